"""What the kernel says of a process, and small helpers to measure with.

CPU is a process's own CPU clock, which counts all its threads to the nanosecond; on a loaded machine it says
what a wall clock cannot.
"""

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from ralphd.process import shim

T = TypeVar("T")
PR_SET_CHILD_SUBREAPER = 36
CLEAR_AWAY_S = 10.0
ENDS_WITHIN_S = 1.0


class TooLong(Exception):
    """Something that was waited for did not come."""


class RowTooLong(Exception):
    """A row took longer than it may."""


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise RowTooLong in the main thread after ``limit_s`` seconds. Not to be nested."""

    def over(number: int, frame: FrameType | None) -> None:
        raise RowTooLong(f"not over after {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_until(fact: Callable[[], T], *, limit_s: float, what: str, pause_s: float = 0.005) -> T:
    """The first truthy answer of ``fact``. Raises TooLong, which names ``what`` did not come."""
    deadline = time.monotonic() + limit_s
    while not (answer := fact()):
        if time.monotonic() > deadline:
            raise TooLong(f"{what}: not within {limit_s:g} s")
        time.sleep(pause_s)
    return answer


def cpu_s(pid: int) -> float:
    """CPU seconds a living process has used, all threads together. Raises OSError when it is gone."""
    return time.clock_gettime_ns((~pid << 3) | 2) / 1e9  # clock_getcpuclockid(3)


def rss_mb(pid: int) -> float:
    """Resident memory, in megabytes (10^6 bytes)."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS:")


def pss_mb(pid: int) -> float:
    """Resident memory with shared pages divided by who shares them, in megabytes."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def _kilobytes(path: Path, key: str) -> float:
    lines = (line.split() for line in path.read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == key) * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class Spent:
    """What a whole process took from its start to its end."""

    wall_s: float
    cpu_s: float
    code: int


def whole_process(argv: list[str], environment: dict[str, str]) -> Spent:
    """Run a command with its output thrown away."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    begun = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=null)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - begun
    return Spent(wall_s, usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status))


def is_alive(pid: int) -> bool:
    """Whether a process with this pid exists and is no zombie."""
    stat = shim.process_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def carriers(*tokens: str) -> set[int]:
    """The living processes in whose environment one of ``tokens`` (``NAME=value``) is."""
    wanted = [token.encode() for token in tokens]
    found = set()
    for pid in shim.all_pids():
        try:
            environment = shim.read_bytes(f"/proc/{pid}/environ").split(b"\0")
        except OSError:
            continue
        if any(token in environment for token in wanted) and is_alive(pid):
            found.add(pid)
    return found


def adopt_orphans() -> None:
    """Become the parent of whatever loses its own, so that nothing started here can get away."""
    shim.prctl(PR_SET_CHILD_SUBREAPER, 1)


def clear_away() -> dict[int, str]:
    """End every process below this one, however it hides; what there was, by pid.

    What is ending when the row does is not left behind: it has a second to be gone.
    """
    swept: dict[int, str] = {}
    begun = time.monotonic()
    deadline = begun + CLEAR_AWAY_S
    while not (is_clear := _no_child_left()) and time.monotonic() < begun + ENDS_WITHIN_S:
        time.sleep(0.01)
    if not is_clear:
        shim.end_all(
            lambda *how: shim.signal_below([os.getpid()], *how), _no_child_left, swept, deadline
        )  # fmt: skip
    return swept


def _no_child_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


median = statistics.median
