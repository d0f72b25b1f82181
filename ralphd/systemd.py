"""What systemd hands to the daemon, and what the daemon tells it: sd_notify(3), sd_listen_fds(3).

Nothing here fails the daemon: it supervises as well when nobody listens. What was handed over is taken out of
the environment, so that neither a shim nor a run speaks for the daemon or mistakes a descriptor for its own.
"""

import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

FIRST_FD = 3
"""SD_LISTEN_FDS_START."""
MOST_FDS = 64
SEND_LIMIT_S = 0.2
"""A manager's socket that is full is waited for so long: it must not hold up the supervision."""
LEAST_PING_S = 0.1
"""No manager is told more often; a limit that would need it is none that a daemon can keep."""

_HANDED_OVER = (
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"),
    *("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"),
)


@dataclass(slots=True)
class Systemd:
    """The service manager above this process; one that is not there hears nothing.

    ``ping_every_s``: so often the watchdog has to be told that all is well, a third of its limit; None where
    nobody watches. ``sockets``: the descriptors that it listens on already.
    """

    address: str | None = None
    ping_every_s: float | None = None
    sockets: tuple[int, ...] = ()
    _status: str = field(default="", init=False)
    _is_up: bool = field(default=False, init=False)

    def ready(self, status: str) -> None:
        """The daemon has adopted what lives, and answers."""
        self._is_up, self._status = True, status
        self._tell("READY=1", f"STATUS={status}")

    def passed(self, status: str) -> None:
        """A whole pass of the supervision is over: the watchdog is told, and the status where it is new."""
        told = [] if status == self._status else [f"STATUS={status}"]
        if self.ping_every_s is not None:
            told.append("WATCHDOG=1")
        self._status = status
        self._tell(*told)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Around reading the configuration anew.

        Nothing is told before the daemon is ready, nor on its way out. The moment is on the clock that
        sd_notify(3) asks for.
        """
        if not self._is_up:
            yield
            return
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
        try:
            yield
        finally:
            self._tell("READY=1")

    def stopping(self, status: str, *, limit_s: float) -> None:
        """The daemon is on its way out, for at most ``limit_s`` seconds, whatever the unit allows."""
        self._is_up, self._status = False, status
        self._tell("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(limit_s * 1e6)}")

    def _tell(self, *assignments: str) -> None:
        if self.address is None or not assignments:
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.settimeout(SEND_LIMIT_S)
            link.connect(address)  # only a connected socket waits for room instead of asking again and again
            link.send("\n".join(each.replace("\n", " ") for each in assignments).encode())


def take_over(environ: MutableMapping[str, str]) -> Systemd:
    """What the manager put into ``environ``, which it is taken out of.

    What is meant for another process (a shell below a service, say) or makes no sense is dropped.
    """
    given = {name: environ.pop(name, "") for name in _HANDED_OVER}
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
        with suppress(OSError):  # one that is not open is told of where it is to be used
            os.set_inheritable(fd, False)
    return tuple(handed)


def _number(text: str) -> int:
    """What is no number that a manager would send counts as none at all."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
