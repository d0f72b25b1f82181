"""Adopt, reap and kill the processes below this one, while no daemon does."""

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from ralphd.process import shim

_PR_SET_CHILD_SUBREAPER = 36


def become_reaper() -> None:
    """Make this process the parent of orphans below it, in place of init, if the kernel allows it."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap() -> dict[int, int]:
    """Reap all exited children. Return their exit codes by pid, signals as negative numbers."""
    ends: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            ends[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return ends


def tied(pipe: int, parents: Collection[int]) -> list[int]:
    """Return our children and those of ``parents`` that hold the pipe with this inode, and end with it."""
    near = [child for parent in (os.getpid(), *parents) for child in shim.children(parent)]
    return [pid for pid in near if _holds(pid, pipe)]


def wake(pipe: int, parents: Collection[int]) -> None:
    """Continue those that are stopped (SIGSTOP): they could not see the end of the pipe."""
    for pid in tied(pipe, parents):
        shim.signal_if(pid, signal.SIGCONT, lambda pid, _: _holds(pid, pipe))


def _holds(pid: int, pipe: int) -> bool:
    wanted = f"pipe:[{pipe}]"
    with suppress(OSError):  # gone
        return any(_link(entry) == wanted for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _link(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:  # closed since
        return ""


def none_left() -> bool:
    """Reap, and return whether nothing is left: a subreaper without children has no descendants."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def end_all(*, limit_s: float) -> bool:
    """Kill everything below this process within ``limit_s`` seconds. Return whether nothing is left."""
    me, deadline = os.getpid(), time.monotonic() + limit_s
    return shim.end_all(lambda *how: shim.signal_below([me], *how), none_left, {}, deadline)
