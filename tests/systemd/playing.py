"""Plays systemd for a real daemon: a notify socket that hears it, and a socket that is handed over."""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.helpers import wait_for
from tests.whole.harness import UP_S, Daemon

# What systemd does between fork and exec: the socket becomes descriptor 3, the pid is that of the service.
_AS_SYSTEMD = """
import os, sys
given, *command = sys.argv[1:]
if given:
    for number, fd in enumerate(given.split(",")):
        os.dup2(int(fd), 3 + number)
os.environ.update({name: str(os.getpid()) for name in ("LISTEN_PID", "WATCHDOG_PID")})
os.execv(command[0], command)
"""


class Manager:
    """The notify socket, and what was heard on it: one list of assignments a message."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.heard: list[list[str]] = []

    def listen(self) -> list[list[str]]:
        """All that has been heard so far."""
        while True:
            try:
                self.heard.append(self._socket.recv(4096).decode().splitlines())
            except BlockingIOError:
                return self.heard

    def hears(self, assignment: str, *, times: int = 1) -> list[str]:
        """The message that holds the assignment for the n-th time, once there is one."""

        def found() -> list[list[str]]:
            messages = [each for each in self.listen() if assignment in each]
            return messages[times - 1 : times]

        return wait_for(found, timeout_s=UP_S, what=f"{assignment} for the {times}. time, of {self.heard}")[0]

    def pings(self) -> int:
        """How often the watchdog was told that all is well."""
        return sum("WATCHDOG=1" in each for each in self.listen())

    def is_silent_for(self, limit_s: float) -> bool:
        """Whether nothing at all is said for so long."""
        before, deadline = len(self.listen()), time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if len(self.listen()) > before:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Hear nothing any more; the file is gone."""
        self._socket.close()
        if self.address.startswith("/"):
            Path(self.address).unlink(missing_ok=True)


@contextmanager
def manager_at(address: str) -> Iterator[Manager]:
    """A manager that listens at this address."""
    manager = Manager(address)
    try:
        yield manager
    finally:
        manager.close()


class Service(Daemon):
    """A daemon as systemd starts it."""

    def start_as_service(
        self,
        manager: Manager | None = None,
        *,
        watchdog_s: float | None = None,
        sockets: tuple[socket.socket, ...] = (),
        more: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> None:
        """Start it; unless told otherwise, return when it answers."""
        given = {"NOTIFY_SOCKET": manager.address} if manager else {}
        given |= {"WATCHDOG_USEC": str(int(watchdog_s * 1e6))} if watchdog_s else {}
        given |= {"LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": "ralphd.socket"} if sockets else {}
        # Above the numbers that they are to get, so that none is written over.
        fds = [os.dup(each.fileno()) for each in sockets]
        high = [_raised(fd) for fd in fds]
        with (self.root / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-S", "-c", _AS_SYSTEMD, ",".join(map(str, high))),
                    *(sys.executable, "-m", "ralphd"),
                ],
                env=self.environment | given | dict(more or {}),
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=high,
                cwd=self.root,
            )
        for fd in (*fds, *high):
            os.close(fd)
        if wait:
            wait_for(self._is_up, timeout_s=UP_S, what="an answer of the daemon")


def _raised(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD, 100)


def listening_at(path: Path, *, mode: int = 0o600) -> socket.socket:
    """A socket as systemd makes it for a unit."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    path.chmod(mode)
    made.listen(16)
    return made
