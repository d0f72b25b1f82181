"""A daemon for tests of ralphctl: the API's routes over a real socket, answers set by the test."""

import contextlib
import json
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ralphd import __version__

JSON = "application/json"


def view(name: str = "api", **changes: Any) -> dict[str, Any]:
    """A ralph as the daemon shows it; one that waits has no run, unless ``ralph_pid`` is given."""
    return {
        "ralph_pid": None if changes.get("state") == "waiting_for_retry" else 4711,
        "iteration": 7,
        "consecutive_errors": 0,
        "last_output_at": "2026-11-21T06:59:48.000000Z",
        "last_commit": "abc1234",
        "total_cost_usd": 1.42,
        "version": 1,
        "name": name,
        "state": "running",
        "goal": "running",
        "mode": "loop",
        "branch": "main",
        "started_at": "2026-11-21T04:47:00.000000Z",
        "finished_at": None,
        "passed": None,
        "agent": None,
        "pool": None,
        "tasks": None,
        "task": None,
        "wait": None,
        "restarts": 0,
        "reverts": 0,
        "last_exit": None,
        "pause_reason": None,
        "run_id": "r000012-3fa9c1d2",
        "message": None,
        "directory": f"/somewhere/{name}",
        "command": ["./loop.sh"],
        "tree_means": "subreaper",
        "drift": [],
        "notes": [],
        "seen": None,
        "landing": None,
        "sandbox": {"level": "signals", "means": "landlock", "reason": None},
        **changes,
    }


def problem(slug: str, status: int, detail: str, why: str = "", mend: str = "") -> "Answer":
    """A refusal, as the daemon words it."""
    document = {
        "type": f"urn:ralphd:problem:{slug}",
        "status": status,
        "detail": detail,
        "why": why,
        "try": mend,
    }
    return Answer(document, status)


class Answer:
    """A reply: a JSON value, bytes, or parts that are sent one after the other."""

    def __init__(self, body: Any, status: int = 200, parts: Iterator[bytes] | None = None) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.parts = parts


class Request:
    """What was asked."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        self.path = urlsplit(target).path
        self.query = dict(parse_qsl(urlsplit(target).query))
        self.headers = headers
        self.body = json.loads(body) if body else None

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class FakeDaemon:
    """Answers as ``on`` says, otherwise from ``views``. Keeps all requests in ``asked``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.views: dict[str, dict[str, Any]] = {}
        self.asked: list[Request] = []
        self.answers: dict[str, Callable[[Request], Answer]] = {}
        self.ended = threading.Event()
        self._server: _Server | None = None
        self.start()

    def start(self) -> None:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.cut()
            self._server.server_close()
            self._server = None
            self.path.unlink(missing_ok=True)

    def on(self, line: str, answer: Callable[[Request], Answer]) -> None:
        self.answers[line] = answer

    def lines(self) -> list[str]:
        """What was asked, beside looks at the state."""
        return [request.line for request in self.asked if request.method != "GET"]

    def body_of(self, line: str) -> Any:
        return next(request.body for request in self.asked if request.line == line)

    def answer(self, request: Request) -> Answer:
        self.asked.append(request)
        if request.line in self.answers:
            return self.answers[request.line](request)
        if request.line == "GET /v1/status":
            return Answer(
                {"version": __version__, "daemon": self.daemon(), "ralphs": list(self.views.values())}
            )
        if request.line == "POST /v1/shutdown":
            threading.Timer(0.05, self.ended.set).start()
            return Answer(self.daemon(), 202)
        name = request.path.split("/")[3] if request.path.startswith("/v1/ralphs/") else ""
        if name not in self.views:
            return problem("unknown-ralph", 404, f"no ralph is called {name!r}", "", "ralphctl status")
        return Answer(self.views[name], 200 if request.method == "GET" else 202)

    def daemon(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "started_at": "2026-11-21T04:00:00.000000Z",
            "state_directory": str(self.path.parent),
            "socket": str(self.path),
            "status": "ok",
            "problems": [],
            "tree_means": "subreaper",
            "ralphs": len(self.views),
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.daemon.answer(Request(self.command, self.path, headers, body))
        self.send_response(reply.status)
        self.send_header("Content-Type", JSON)
        if reply.parts is None:
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in reply.parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, daemon: FakeDaemon) -> None:
        self.daemon = daemon
        self._open: set[socket.socket] = set()
        super().__init__(str(daemon.path), _Handler)

    def server_bind(self) -> None:
        # By the directory's descriptor: a test's directory may be longer than an address.
        held = os.open(self.daemon.path.parent, os.O_PATH)
        try:
            self.socket.bind(f"/proc/self/fd/{held}/{self.daemon.path.name}")
        finally:
            os.close(held)

    def get_request(self) -> tuple[socket.socket, Any]:
        link, address = super().get_request()
        self._open.add(link)
        return link, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        for link in list(self._open):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # clients may leave when they like
            super().handle_error(request, client_address)


def main() -> None:
    """Be a daemon process at the socket given, until it is shut down."""
    daemon = FakeDaemon(Path(sys.argv[1]))
    daemon.views = json.loads(os.environ.get("FAKE_VIEWS", "{}"))
    daemon.ended.wait(30)
    daemon.stop()


if __name__ == "__main__":
    main()
