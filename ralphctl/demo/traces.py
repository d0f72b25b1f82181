"""What is alive of a private home directory: found in /proc, and ended for good.

A process belongs to a home when its environment says so (``HOME=``), when it is the shim of one of its runs,
or when it is below the process that is to have nothing left. A person's shell that only looks into the
directory is none of these.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ROUND_S = 0.02


@dataclass(frozen=True, slots=True)
class Trace:
    """A living process."""

    pid: int
    command: str


def reap() -> None:
    """Take the exit status of every process of ours that has ended. Not while a Popen is under way."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def of_home(home: Path, *, below: int | None = None) -> list[Trace]:
    """All living processes of ``home``, and all below the process ``below``; zombies are not alive."""
    parents = {pid: parent for pid in _all_pids() if (parent := parent_of(pid)) is not None}
    found = [pid for pid in parents if _bears(pid, home) or _is_below(pid, below, parents)]
    return [Trace(pid, command_line(pid)) for pid in sorted(found)]


def end_all(home: Path, *, below: int | None = None, limit_s: float) -> list[Trace]:
    """Kill all that ``of_home`` finds until it finds nothing twice; gives what is left after ``limit_s``."""
    deadline, clean_looks = time.monotonic() + limit_s, 0
    while True:
        left = of_home(home, below=below)
        # A process that is being executed shows no environment for a moment: hence a second look.
        clean_looks = 0 if left else clean_looks + 1
        if clean_looks == 2 or time.monotonic() >= deadline:
            return left
        for trace in left:
            _kill(trace, lambda: of_home(home, below=below))
        time.sleep(_ROUND_S)
        reap()


def parent_of(pid: int) -> int | None:
    """The pid of its parent; None when it is gone or a zombie."""
    state, _, rest = _read(pid, "stat").rpartition(b")")[2].strip().partition(b" ")
    return int(rest.split()[0]) if state and state not in b"ZX" else None


def command_line(pid: int) -> str:
    """Its words with blanks between; empty when it is gone."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _kill(trace: Trace, look: Callable[[], list[Trace]]) -> None:
    """Kill it if a look still finds it: pinned first, so that its pid cannot become another's (S8)."""
    with suppress(OSError):
        pinned = os.pidfd_open(trace.pid)
        try:
            if trace.pid in {found.pid for found in look()}:
                signal.pidfd_send_signal(pinned, signal.SIGKILL)
        finally:
            os.close(pinned)


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _bears(pid: int, home: Path) -> bool:
    mark = os.fsencode(home)
    if b"HOME=" + mark in _read(pid, "environ").split(b"\0"):
        return True
    # A shim's environment is almost empty; it is told of its run directory.
    words = _read(pid, "cmdline").split(b"\0")
    return any(b"shim" in word for word in words) and any(word.startswith(mark + b"/") for word in words)


def _is_below(pid: int, above: int | None, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == above:
            return True
    return False


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # gone, or another user's
        return b""
