"""HTTP over a Unix socket, for every client of the daemon, which speaks HTTP/1.1 at the other end.

``ralphctl status`` and the loop's report client load it: ``http.client`` would be a sixth of the time of
``status``, as it reads a head like an email, and to import httpx takes longer than all of ``status``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    import io
    from types import TracebackType
    from typing import Self

_LONGEST_ADDRESS = 107  # sun_path has 108 bytes, the last of them NUL
_LINE_BYTES, _MOST_HEADERS = 1 << 16, 100


class BadReply(Exception):
    """What answers does not speak HTTP as the daemon does."""


class CutOff(BadReply):
    """The connection ended within a reply, or before it."""


class HttpReply:
    """The reply to one request: its ``status``, and its body, which is read in parts."""

    def __init__(self, file: io.BufferedReader) -> None:
        """Read the head. Raise BadReply, CutOff, OSError."""
        self._file = file
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise BadReply("no status line")
        self.status = int(rest[:3])
        headers = dict(self._headers())
        self._is_chunked = headers.get(b"transfer-encoding") == b"chunked"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise BadReply("no length")
        self._left = 0 if self._is_chunked else int(length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None
    ) -> None:
        self._file.close()

    def _line(self) -> bytes:
        line = self._file.readline(_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise BadReply("a long line") if len(line) == _LINE_BYTES else CutOff("it ends within a line")
        return line.rstrip(b"\r\n")

    def _headers(self) -> Iterator[tuple[bytes, bytes]]:
        for _ in range(_MOST_HEADERS):
            if not (line := self._line()):
                return
            name, _, value = line.partition(b":")
            yield name.lower(), value.strip().lower()
        raise BadReply("too many headers")

    def read1(self, most: int) -> bytes:
        """Return the next part of the body, at most so many bytes; none at its end. Raise as for the head."""
        if self._is_chunked and not self._left:
            try:
                self._left = int(self._line().partition(b";")[0], 16)
            except ValueError:
                raise BadReply("no chunk") from None
            if self._left <= 0:
                self._is_chunked = False
        if self._left <= 0:
            return b""
        if not (part := self._file.read1(min(most, self._left))):
            raise CutOff("the reply ends within its body")
        self._left -= len(part)
        if self._is_chunked and not self._left:
            self._line()
        return part

    def read(self, most: int = 1 << 62) -> bytes:
        """Return the rest of the body; of more than ``most`` bytes only a beginning, at least as long."""
        parts = list[bytes]()
        while most > 0 and (part := self.read1(_LINE_BYTES)):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)


class UnixConnection:
    """A connection to the socket at ``path`` for one request; each step of it is bounded by ``timeout_s``."""

    sock: socket.socket

    def __init__(self, path: str, timeout_s: float) -> None:
        self.path, self.timeout_s = path, timeout_s

    def connect(self) -> None:
        """Connect. Raise OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout_s)
        try:
            with short_address(self.path) as address:
                self.sock.connect(address)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one."""
        if hasattr(self, "sock"):
            self.sock.close()

    def request(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        """Send a request, and connect first where that was not done. Raise OSError."""
        length = {} if body is None else {"Content-Length": str(len(body))}
        every = {"Host": "ralphd", **headers, **length}
        head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
        if not all(map(str.isprintable, head)):
            raise ValueError(f"not for a head: {head}")
        if not hasattr(self, "sock"):
            self.connect()
        self.sock.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + (body or b""))

    def getresponse(self) -> HttpReply:
        """Wait for the reply. Raise as it does."""
        file = self.sock.makefile("rb")
        try:
            return HttpReply(file)
        except BaseException:
            file.close()
            raise

    def peer_uid(self) -> int:
        """Return the user who listens, as the kernel knows it."""
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[4:8], "little", signed=True)

    def replies_within(self, seconds: float) -> bool:
        """Wait for the first byte of the reply without consuming it."""
        self.sock.settimeout(min(seconds, self.timeout_s))
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        finally:
            self.sock.settimeout(self.timeout_s)
        return True


@contextmanager
def short_address(path: str) -> Iterator[str]:
    """Yield an address for the socket at ``path`` that the kernel accepts however long ``path`` is.

    A long one goes through the open directory, so the address holds inside the ``with`` block only.
    """
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield path
        return
    directory, name = os.path.split(path)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
