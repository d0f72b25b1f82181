"""The server that plays the vendors: routes, streams, resets and silence."""

import json
import re
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents.vendors import anthropic, gemini, openai
from tests.agents.vendors.answers import (
    OK,
    Answer,
    Asked,
    Call,
    Event,
    How,
    Refusal,
    Script,
    ServerCalls,
    shell_call,
)

CLOSING = "Done, as asked."
_HANG_S = 600.0
_ENDING_S = 10.0
_NO_LINGER = struct.pack("ii", 1, 0)
_NAMED = re.compile(r"/as/(\w+)/")
_MODELS = ("claude-sonnet-4-5", "gpt-5", "gemini-2.5-pro", "made-up")


@dataclass(frozen=True, slots=True)
class _Format:
    """One API: whose it is, and how it is read and spoken."""

    agent: str
    path: re.Pattern[str]
    read: Callable[[str, Mapping[str, Any]], Asked]
    events: Callable[[Asked, Call | str], Iterator[Event]]
    whole: Callable[[Asked, Call | str], dict[str, Any]]
    refusal: Callable[[Answer], Refusal]


_FORMATS = (
    _Format(
        "claude", re.compile(r"/messages$"),
        anthropic.read, anthropic.events, anthropic.whole, anthropic.refusal,
    ),
    _Format(
        "codex", re.compile(r"/responses$"),
        openai.read_response, openai.response_events, openai.whole_response, openai.refusal,
    ),
    _Format(
        "opencode", re.compile(r"/chat/completions$"),
        openai.read_chat, openai.chat_events, openai.whole_chat, openai.refusal,
    ),
    _Format(
        "gemini", re.compile(r":(stream)?[gG]enerateContent$"),
        gemini.read, gemini.events, gemini.whole, gemini.refusal,
    ),
)  # fmt: skip


class Vendors:
    """All vendors at one address of loopback, from entering to leaving it.

    ``command`` is what an agent's shell tool is told to run, in the agent's working directory. Whatever asks
    is known by the format in which it asks: ``claude``, ``codex``, ``gemini``, ``opencode``; any other by its
    address, ``url_of``.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self._scripts: defaultdict[str, Script] = defaultdict(Script)
        self._words: dict[str, str] = {}
        self._calls: ServerCalls | None = None
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.vendors = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="vendors", daemon=True
        )

    def __enter__(self) -> "Vendors":
        self._thread.start()
        return self

    def __exit__(self, *how: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_ENDING_S)

    @property
    def url(self) -> str:
        """Where they are asked, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def url_of(self, agent: str) -> str:
        """The address for an agent that is not known by its format."""
        return f"{self.url}/as/{agent}"

    def says(self, agent: str, words: str) -> None:
        """From now on ``agent``, which offers no tools, gets these words as a good answer."""
        self._words[agent] = words

    def words_for(self, agent: str) -> str:
        """The closing words of a good answer."""
        return self._words.get(agent, CLOSING)

    def answer(self, agent: str, *answers: Answer, then: Answer = OK) -> None:
        """From now on ``agent`` gets these, one a request, then ``then`` for ever."""
        self._scripts[agent].set(answers, then)

    def asked(self, agent: str) -> int:
        """How many requests for an answer ``agent`` has made."""
        with self._lock:
            return self._asked[agent]

    def uses(self, calls: ServerCalls) -> None:
        """From now on a good answer is one of these calls, not the command in the agent's shell."""
        self._calls = calls

    def call_for(self, asked: Asked) -> Call | None:
        """The call that a good answer to this request is; None for the closing words."""
        if self._calls is None:
            return shell_call(asked.tools, self.command) if asked.result is None else None
        with self._lock:
            return self._calls.next(asked)

    def take(self, agent: str) -> Answer:
        """Count a request; gives its answer."""
        with self._lock:
            self._asked[agent] += 1
        return self._scripts[agent].next()

    def hang(self) -> None:
        """Block until the end."""
        self._closing.wait(_HANG_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    vendors: Vendors

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is nothing to tell of."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""

    def do_HEAD(self) -> None:
        self._send(200, {})

    def do_GET(self) -> None:
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._send(426, {"error": {"message": "no websockets here"}})
        elif self._path.endswith("/models"):
            listed = [{"id": name, "object": "model", "type": "model"} for name in _MODELS]
            self._send(200, {"object": "list", "has_more": False, "data": listed})
        else:
            self._send(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        body = self._body()
        spoken = next((each for each in _FORMATS if each.path.search(self._path)), None)
        if spoken is not None:
            named = _NAMED.match(self._path)
            asker = named[1] if named else spoken.agent
            with suppress(ConnectionError, ValueError):
                self._answer(spoken, spoken.read(self._path, body), asker)
        elif re.search(r"count_?tokens$", self._path, re.IGNORECASE):
            self._send(200, {"input_tokens": 1200, "totalTokens": 1200})
        else:
            self._send(404, {"error": {"message": "no such path"}})

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _body(self) -> dict[str, Any]:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            raw = self._chunks()
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _chunks(self) -> bytes:
        whole = b""
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _answer(self, spoken: _Format, asked: Asked, asker: str) -> None:
        answer = self.server.vendors.take(asker)
        call = self.server.vendors.call_for(asked)
        words = self.server.vendors.words_for(asker)
        match answer.how:
            case How.HANG:
                self.server.vendors.hang()
                self.close_connection = True
            case How.RESET:
                if asked.streams:
                    self._stream([next(iter(spoken.events(asked, CLOSING)))])
                self._reset()
            case How.OK if asked.streams:
                self._stream(spoken.events(asked, call or words))
            case How.OK:
                self._send(200, spoken.whole(asked, call or words))
            case _:
                refused = spoken.refusal(answer)
                self._send(refused.status, refused.body, refused.headers)

    def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(dict(body)).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: Iterator[Event] | list[Event]) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in (("content-type", "text/event-stream"), ("connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        for event, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            head = f"event: {event}\n" if event else ""
            self.wfile.write(f"{head}data: {text}\n\n".encode())
            self.wfile.flush()

    def _reset(self) -> None:
        """End the connection by RST: with nothing lingering, and no other file that keeps it open."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
