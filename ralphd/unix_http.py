"""HTTP over a Unix socket, for every client of the daemon that does not stream.

Standard library only: ``ralphctl status`` and the loop's report client load this module. httpx alone speaks
over a Unix socket too, but importing it takes longer than all of ``status``.
"""

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

Reply = http.client.HTTPResponse
BadReply = http.client.HTTPException
CutOff = (http.client.RemoteDisconnected, http.client.IncompleteRead)
_LONGEST_ADDRESS = 107  # sun_path has 108 bytes, the last of them NUL


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection to the socket at ``path``; every step of it is bounded by ``timeout_s``."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("ralphd", timeout=timeout_s)
        self.path = path
        self.timeout_s = timeout_s

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
