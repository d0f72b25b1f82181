"""HTTP over a Unix socket, as little of it as the bench needs."""

import http.client
import socket
import time
from collections.abc import Sequence

ANSWER_S = 20.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, limit_s: float = ANSWER_S) -> None:
        super().__init__("localhost", timeout=limit_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the path instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(
    path: str, method: str, target: str, body: bytes | None, content_type: str, limit_s: float = ANSWER_S
) -> bytes:
    """One request, one connection. Raises OSError where nobody listens, RuntimeError on a refusal."""
    connection = UnixConnection(path, limit_s)
    try:
        connection.request(method, target, body, {"content-type": content_type} if body else {})
        reply = connection.getresponse()
        data = reply.read()
    finally:
        connection.close()
    if reply.status >= 400:
        raise RuntimeError(f"{method} {target}: {reply.status} {data.decode(errors='replace')[:300]}")
    return data


def ask_often(path: str, method: str, target: str, body: bytes, count: int) -> Sequence[float]:
    """The seconds that each of ``count`` requests took, the connection kept."""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n"
    more = f"Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n" if body else ""
    request = (head + more + "\r\n").encode() + body
    took_s = []
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_S)
        link.connect(path)
        for _ in range(count):
            begun = time.perf_counter()
            link.sendall(request)
            _take_reply(link)
            took_s.append(time.perf_counter() - begun)
    return took_s


def _take_reply(link: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(link)
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b" 200 " in lines[0], head
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    missing = length - len(rest)
    while missing > 0:
        missing -= len(_more(link))


def _more(link: socket.socket) -> bytes:
    data = link.recv(1 << 18)
    if not data:
        raise EOFError("the connection was closed")
    return data
