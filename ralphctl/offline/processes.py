"""Run a program within a time limit; adopt, reap and kill what runs below this process, as a daemon does."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ralphctl.offline.state import is_flocked
from ralphd.process import shim

_PR_SET_CHILD_SUBREAPER = 36
_OUTPUT_BYTES = 64 << 10


def lock_holder(lock: Path) -> str | None:
    """Return the pid in a state directory's lock file, or None if nobody holds the lock."""
    with suppress(OSError), lock.open("rb") as file:
        if is_flocked(os.fstat(file.fileno()).st_ino):
            return file.read(64).decode(errors="replace").strip() or "unknown"
    return None


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
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed since
                if str(entry.readlink()) == wanted:
                    return True
    return False


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


class ProgramOutput(NamedTuple):
    """Both streams of a program and its exit code, which is None if it did not end in time."""

    code: int | None
    text: str


def ask(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> ProgramOutput | None:
    """Run a program and kill its process group at the end. Return None if it cannot be started.

    More than 64 KiB of output counts as not ending.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(environment), cwd="/", start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError):
        return None
    assert process.stdout is not None  # it is a pipe
    pipe, pidfd = process.stdout.fileno(), os.pidfd_open(process.pid)
    deadline, printed, is_open = time.monotonic() + limit_s, b"", True
    try:
        while is_open and len(printed) < _OUTPUT_BYTES and _is_readable(pipe, deadline):
            part = os.read(pipe, _OUTPUT_BYTES)
            is_open, printed = bool(part), printed + part
        is_over = not is_open and _is_readable(pidfd, deadline)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # before its leader is reaped: the id is still its own
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        os.close(pidfd)
        process.stdout.close()
    text = printed.decode(errors="replace")
    return ProgramOutput(process.returncode, text) if is_over else ProgramOutput(None, "")


def _is_readable(descriptor: int, deadline: float) -> bool:
    return bool(select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0])
