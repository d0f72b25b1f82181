"""Many small processes, a few at a time: each tries one change and says by its exit code what came of it."""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
SURVIVED = 0
BROKEN = 70
MEMORY_BYTES = 4 << 30


def tried(
    items: Iterable[Item], attempt: Callable[[Item], int], *, at_once: int, cpu_s: Callable[[Item], float]
) -> Iterator[tuple[Item, int]]:
    """What came of each item, in the order in which they end: its exit code, or -N for signal N.

    A change that makes a loop endless is ended after ``cpu_s`` seconds of its own time.
    """
    alive: dict[int, Item] = {}
    for item in items:
        while len(alive) >= at_once:
            yield _next_end(alive)
        if pid := os.fork():
            alive[pid] = item
        else:
            _be(item, attempt, cpu_s(item))
    while alive:
        yield _next_end(alive)


def _next_end(alive: dict[int, Item]) -> tuple[Item, int]:
    pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    if code == BROKEN:
        raise RuntimeError(f"it could not be tried: {alive[pid]}")
    return alive.pop(pid), code


def _be(item: Item, attempt: Callable[[Item], int], cpu_s: float) -> None:
    """The life of a fork, whose end is its answer; whatever happens, it goes no further than this."""
    code = BROKEN
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        seconds = max(1, round(cpu_s))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20 * seconds)
        code = attempt(item)
    finally:
        sys.stdout = sys.stderr = None
        os._exit(code)
