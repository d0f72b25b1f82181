"""A relay from a port of loopback to the daemon's socket, which makes every request harmless.

Generated requests are addressed to a few ralphs with harmless commands, in directories of the test, and to a
receiver on loopback, so that they change something. The daemon itself is never opened to the network.
"""

import http.client
import json
import re
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ralphd import wire
from ralphd.core.worktrees.rules import MOST_TREES
from tests.whole.harness import _UnixConnection

STREAM_S = 0.25
"""A stream that is silent for so long is ended towards the client, as if the daemon had ended it."""
HOOK = "hook-"
MOST_HOOK_CHARS = 64
ALWAYS = ("directory", "command", "environment", "url")
"""What is never passed on as it was sent, if it is what the schema allows."""
STREAM_BYTES = 1 << 18
REPLY_S = 60.0
HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})


@dataclass(frozen=True, slots=True)
class Harmless:
    """What requests are turned into: ``flags`` and ``commands`` are picked by what was sent."""

    names: Sequence[str]
    directories: Sequence[Path]
    commands: Sequence[Sequence[str]]
    flags: Sequence[Mapping[str, object]]
    webhook: str
    reporter: str
    port_file: Path

    def path(self, method: str, target: str) -> str:
        """Return the target of a request with a known ralph instead of any other."""
        parts = urlsplit(target)
        words = parts.path.split("/")
        match words:
            case ["", "v1", "ralphs", name, "reports"] if wire.is_name(unquote(name)):
                words[3] = self.reporter
            case ["", "v1", "trees", name] if wire.is_name(unquote(name)):
                words[3] = f"tree-{_number(name) % 4}"
            case ["", "v1", "ralphs", name, *_] if wire.is_name(unquote(name)):
                words[3] = self._ralph(name, method)
            case ["", "v1", "webhooks", hook, *_] if _number(hook) % 4:
                if 0 < len(unquote(hook)) <= MOST_HOOK_CHARS:
                    words[3] = HOOK + str(_number(hook) % 5)
            case ["", "v1", "deliveries", number, "replay"] if number.isascii() and number.isdecimal():
                words[3] = str(int(number) % 20)
        return str(urlunsplit(parts._replace(path="/".join(words))))

    def _ralph(self, name: str, method: str) -> str:
        if _number(name) % 8 == 0:
            return name
        return str(_pick(self.names if method != "GET" else (*self.names, self.reporter), name))

    def body(self, path: str, body: Any, run_id: str | None) -> Any:
        """Return a body with which nothing of the machine is run, read or called."""
        if not isinstance(body, dict):
            return body
        changed = dict(body)
        if path.endswith("/reports"):
            if run_id is not None and _is_id(body.get("run_id")) and _number(body["run_id"]) % 8:
                changed["run_id"] = run_id
            if _is_id(body.get("id")) and len(body["id"]) < 80:
                changed["id"] += f"-{_number(json.dumps(body)) % 10_000}"
            return changed
        for key, value in body.items():
            if _number(key + repr(value)) % 8 or key in ALWAYS:
                changed[key] = self._value(key, value)
        if "directory" in body and isinstance(name := body.get("name"), str) and wire.is_name(name):
            own = Path(str(changed["directory"])).name
            changed["name"] = own if path.endswith("/ralphs") else f"tree-{_number(name) % 4}"
        if (
            "url" in body
            and isinstance(body.get("allow_private", True), bool)
            and _is_plain(body.get("name", ""))
        ):
            changed["name"] = HOOK + str(_number(repr(body)) % 5)
            changed["allow_private"] = _number(repr(body["url"])) % 8 > 0
        if isinstance(count := body.get("count"), int) and 2 < count <= MOST_TREES:
            changed["count"] = 2
        return changed

    def _value(self, key: str, value: Any) -> Any:
        """Return a harmless value instead of one that the schema allows; one that it refuses stays."""
        match key, value:
            case "directory", str() if value.startswith("/") and _is_plain(value):
                return str(_pick(self.directories, value))
            case "command", list() if all(map(_is_plain, value)):
                return list(_pick(self.commands, repr(value)))
            case "flags", dict() if all(map(_is_plain, value)):
                return _pick(self.flags, repr(value))
            case "on", list() if all(map(_is_plain, value)) and len(value) <= 100:
                return ["*"]
            case "from_ref", str() if _is_id(value) and not value.startswith("-"):
                return "HEAD"
            case "branch", str() if _is_id(value):
                return f"ralph/branch-{_number(value) % 5}"
            case (("secret_env" | "secret_file"), str()) if _is_plain(value) and (
                key[7] == "e" or value[:1] == "/"
            ):
                return None
            case (("iteration" | "number" | "repair"), int()) if 1 < value < 1 << 53:
                return value % 4
            case "tasks", list() if all(map(_is_id, value)) and len(value) <= 1000:
                return []
            case "environment", dict():
                return {f"FUZZ_{name}" if name else name: text for name, text in value.items()}
            case (("name" | "ralph"), str()) if wire.is_name(value):
                return _pick(self.names, value)
            case "url", str() if _is_id(value.strip()):
                return self.webhook + str(_number(value) % 20) if _number(value) % 4 else "http://[" + value
        return value


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and len(value) < 1 << 16 and not re.search("[\x00\ud800-\udfff]", value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 100 and value.isprintable()


def _number(text: str) -> int:
    return zlib.crc32(text.encode(errors="surrogatepass"))


def _pick(values: Sequence[Any], text: str) -> Any:
    return values[_number(text) // 8 % len(values)]


@dataclass
class Traffic:
    """What passed: the statuses of each route, and the slowest reply."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, asked: str, status: int, took_s: float, sent: bytes, received: bytes) -> None:
        with self.lock:
            self.statuses[asked, status] += 1
            self.slowest = max(self.slowest, (took_s, asked))
            if status >= 500 and status != 503:
                self.errors.append(f"{asked} {sent[:2000]!r}: {status} {received[:2000]!r}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, state: Path, harmless: Harmless, run_id: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket_path, self.harmless, self.run_id = state / "ralphd.sock", harmless, run_id
        self.traffic = Traffic()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _relay(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        target = self.server.harmless.path(self.command, self.path)
        sent = self._changed(target, data)
        began = time.monotonic()
        status, headers, body = self._answer(target, sent)
        asked = f"{self.command} {_shape(target)}"
        self.server.traffic.count(asked, status, time.monotonic() - began, sent, body)
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _changed(self, target: str, data: bytes) -> bytes:
        with suppress(ValueError, RecursionError):
            asked = json.loads(data)
            run_id = self.server.run_id[-1] if self.server.run_id else None
            changed = self.server.harmless.body(urlsplit(target).path, asked, run_id)
            if changed != asked:
                return json.dumps(changed).encode()
        return data

    def _answer(self, target: str, sent: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = self._connection(target)
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "content-length", "connection", "accept-encoding")
        }
        try:
            connection.request(self.command, target, sent or None, headers | {"host": "localhost"})
            reply = connection.getresponse()
            return reply.status, reply.getheaders(), self._read(connection, reply)
        finally:
            connection.close()

    def _connection(self, target: str) -> http.client.HTTPConnection:
        port_file = self.server.harmless.port_file
        if urlsplit(target).path.endswith("/reports") and port_file.exists():
            with suppress(OSError):
                port = int(port_file.read_text())
                socket.create_connection(("127.0.0.1", port), 5).close()
                return http.client.HTTPConnection("127.0.0.1", port, timeout=REPLY_S)
        return _UnixConnection(self.server.socket_path)

    @staticmethod
    def _read(connection: http.client.HTTPConnection, reply: http.client.HTTPResponse) -> bytes:
        if reply.getheader("content-length") is not None or not reply.chunked:
            return reply.read()
        body = bytearray()
        if connection.sock is not None:
            connection.sock.settimeout(STREAM_S)
        with suppress(TimeoutError, http.client.IncompleteRead):
            while len(body) < STREAM_BYTES and (part := reply.read1(1 << 16)):
                body += part
        return bytes(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_TRACE = _relay
    do_QUERY = _relay


def _shape(target: str) -> str:
    """Return a path with its variable parts left out."""
    words = urlsplit(target).path.split("/")
    if words[2:3] and words[2] in ("ralphs", "trees", "webhooks", "deliveries") and len(words) > 3:
        words[3] = "…"
    if words[2:3] == ["fleet"]:
        words[4:6] = ["…"] * len(words[4:6])
    return "/".join(words[:7])[:80]


@contextmanager
def relay(state: Path, harmless: Harmless, run_id: list[str]) -> Iterator[_Server]:
    """Serve on a port of loopback until the end of the block. ``run_id`` grows with the reporter's runs."""
    with _Server(state, harmless, run_id) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
