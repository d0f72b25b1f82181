"""The systemd protocol of the daemon: sd_notify(3), sd_listen_fds(3).

Nothing here fails the daemon: it supervises as well without a manager. The variables are removed from the
environment, so that neither a shim nor a run notifies for the daemon or takes a descriptor for its own.
"""

import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import field

from ralphd.dataclass import dataclass

FIRST_FD = 3
"""SD_LISTEN_FDS_START."""
MOST_FDS = 64
SEND_LIMIT_S = 0.2
"""The time limit for a full manager's socket: it must not block supervision."""
LEAST_PING_S = 0.1
"""The shortest time between two pings; a watchdog limit that needs more cannot be kept anyway."""

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(slots=True)
class Systemd:
    """The service manager of this process, or none: then every method does nothing.

    ``ping_every_s`` is a third of the watchdog's limit; None without a watchdog. ``sockets`` are the
    descriptors that it listens on already.
    """

    address: str | None = None
    ping_every_s: float | None = None
    sockets: tuple[int, ...] = ()
    _status: str = field(default="", init=False)
    _is_up: bool = field(default=False, init=False)

    def ready(self, status: str) -> None:
        """Report that the daemon has adopted what lives, and answers."""
        self._is_up, self._status = True, status
        self._send("READY=1", f"STATUS={status}")

    def passed(self, status: str) -> None:
        """Ping the watchdog after a whole pass of supervision, and report a new status."""
        news = [] if status == self._status else [f"STATUS={status}"]
        if self.ping_every_s is not None:
            news.append("WATCHDOG=1")
        self._status = status
        self._send(*news)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload for the duration of the block, except before ``ready`` and after ``stopping``."""
        if not self._is_up:
            yield
            return
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self._send("READY=1")

    def stopping(self, status: str, *, limit_s: float) -> None:
        """Report the end, and ask for ``limit_s`` seconds for it, whatever the unit allows."""
        self._is_up, self._status = False, status
        self._send("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(limit_s * 1e6)}")

    def _send(self, *assignments: str) -> None:
        if self.address is None or not assignments:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.settimeout(SEND_LIMIT_S)
            link.connect(address)  # only a connected socket can wait for room; sendto would have to poll
            link.send("\n".join(each.replace("\n", " ") for each in assignments).encode())


def take_over(environ: MutableMapping[str, str]) -> Systemd:
    """Return what the manager passed in ``environ``, and remove it there.

    What is meant for another process (a shell below a service, say) or malformed is dropped.
    """
    given = {name: environ.pop(name, "") for name in _VARIABLES}
    address = given["NOTIFY_SOCKET"]
    return Systemd(
        address=address if address.startswith(("/", "@")) else None,
        ping_every_s=_watchdog(given["WATCHDOG_USEC"], given["WATCHDOG_PID"]),
        sockets=_sockets(given["LISTEN_FDS"], given["LISTEN_PID"]),
    )


def _watchdog(limit_us: str, pid: str) -> float | None:
    if pid not in ("", str(os.getpid())):
        return None
    limit_s = _number(limit_us) / 1e6
    return max(limit_s / 3, LEAST_PING_S) if limit_s else None


def _sockets(count: str, pid: str) -> tuple[int, ...]:
    if pid != str(os.getpid()):
        return ()
    handed = range(FIRST_FD, FIRST_FD + min(_number(count), MOST_FDS))
    for fd in handed:
        with suppress(OSError):  # a closed one is reported where it is used
            os.set_inheritable(fd, False)
    return tuple(handed)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
