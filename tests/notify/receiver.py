"""A webhook receiver on loopback: keeps what it gets, answers what it is told to."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

Handler: TypeAlias = BaseHTTPRequestHandler
Reply: TypeAlias = Callable[[Handler], None]


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]


def status(code: int, **headers: str) -> Reply:
    """Answer with a status and an empty body."""

    def reply(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return reply


@dataclass
class Receiver:
    """``replies`` are used up one by one; after them everything is answered with 200."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def message_ids(self) -> list[str]:
        return [request.message_id for request in self.received]


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what some tests are about."""


@contextmanager
def receiving(*replies: Reply, certificate: Path | None = None) -> Iterator[Receiver]:
    """A receiver that lives as long as the block; nothing of it is left afterwards."""
    receiver = Receiver(replies=list(replies))

    class Handling(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(self.path, headers, body))
            reply = receiver.replies.pop(0) if receiver.replies else status(200)
            with suppress(OSError):
                reply(self)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = _Server(("127.0.0.1", 0), Handling)
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        server.socket = _wrapped(server, certificate, receiver)
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _wrapped(server: _Server, certificate: Path, receiver: Receiver) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def heard(_socket: object, name: str | None, _context: object) -> None:
        receiver.server_names.append(name)

    context.sni_callback = heard
    return context.wrap_socket(server.socket, server_side=True)
