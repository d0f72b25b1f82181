"""Determine who connected to the daemon, and which run a process belongs to, by three independent signs (A3).

A control group cannot be left without rights, descent from the shim cannot be left while the shim lives, and
the cookie in the environment outlives both. One sign is enough; what cannot be examined counts as within.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from ralphd.core.supervision.door import UNKNOWN_RUN, can_end_services
from ralphd.core.supervision.model import RunId
from ralphd.dataclass import dataclass
from ralphd.process import shim
from ralphd.process.tree import ancestors, start_ticks

_LEAF = re.compile(rb"/ralphd-(r\d+-[0-9a-f]+)(?=/|$)", re.MULTILINE)
_DIRECTORY = re.compile(rb".*/(r\d+-[0-9a-f]+)", re.DOTALL)
_UCRED = struct.Struct("3i")
_COOKIE = re.compile(shim.COOKIE.encode() + rb"=(r\d+-[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that connected (SO_PEERCRED); its pid may have been reused since."""

    pid: int
    uid: int
    gid: int
    ticks: int | None = None
    """When it started, in clock ticks since boot: a later process of the same pid differs."""

    @property
    def is_welcome(self) -> bool:
        """Return whether it is our own user's, or root's. Another user namespace is 65534: refused."""
        return self.uid in (os.geteuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end of a Unix socket."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid, start_ticks(pid))


def run_of(pid: int, uid: int, ticks: int | None, is_known: Callable[[RunId], bool]) -> RunId | None:
    """Return the run that the process ``pid``, which started at ``ticks``, belongs to; None if to none.

    ``is_known`` tells the runs of this daemon from those of others. A process that is gone, or whose pid was
    reused since, is of an unknown run: whoever still uses its connection may be anywhere.
    """
    if pid == 0:  # outside of our pid namespace, where no run of ours can be
        return None
    signs = (_by_group, _by_descent, lambda each: _by_cookie(each, uid))
    candidates = (RunId(run_id.decode()) for sign in signs for run_id in sign(pid))
    known = next((run_id for run_id in candidates if run_id == UNKNOWN_RUN or is_known(run_id)), None)
    return UNKNOWN_RUN if ticks is None or start_ticks(pid) != ticks else known


def first_ender(pids: Iterable[int], deadline: float) -> tuple[int, str] | None:
    """Return the first of them that can end services, with its command; None after ``deadline``."""
    in_time = takewhile(lambda _: time.monotonic() <= deadline, pids)
    enders = (pid for pid in in_time if can_end_services(os.fsdecode(shim.arguments(pid)).split("\0")))
    return next(((pid, shim.command_line(pid)) for pid in enders), None)


def _by_group(pid: int) -> Iterator[bytes]:
    try:
        yield from reversed(_LEAF.findall(shim.read_bytes(f"/proc/{pid}/cgroup")))
    except OSError:
        return


def _by_descent(pid: int) -> Iterator[bytes]:
    for above in ancestors(pid):
        words = shim.arguments(above).split(b"\0")
        if any(b"import shim" in word for word in words):
            yield from (found[1] for word in words if (found := _DIRECTORY.fullmatch(word)))


def _by_cookie(pid: int, uid: int) -> Iterator[bytes]:
    try:
        environment = shim.read_bytes(f"/proc/{pid}/environ")
    except OSError:  # root's cannot be read by others: group and descent have to suffice
        if uid != 0:
            yield UNKNOWN_RUN.encode()
        return
    yield from (found[1] for word in environment.split(b"\0") if (found := _COOKIE.fullmatch(word)))
