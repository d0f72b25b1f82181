"""What every test may use: waiting for a fact with a bound, and asking whether a pid lives."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_FIRST_REST_S, _LONGEST_REST_S = 0.005, 0.025


def wait_for(fact: Callable[[], T], *, timeout_s: float = 30.0, what: str = "the awaited fact") -> T:
    """Give the first truthy answer of ``fact``; fail when there is none within ``timeout_s`` seconds."""
    deadline, rest_s = time.monotonic() + timeout_s, _FIRST_REST_S
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(rest_s)
        rest_s = _longer(rest_s)
    return answer


async def eventually(fact: Callable[[], T], *, timeout_s: float = 30.0, what: str = "the awaited fact") -> T:
    """The same on an event loop, which goes on meanwhile."""
    deadline, rest_s = time.monotonic() + timeout_s, _FIRST_REST_S
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        await asyncio.sleep(rest_s)
        rest_s = _longer(rest_s)
    return answer


def _longer(rest_s: float) -> float:
    """What takes long is looked at less often: a look is a request to a daemon, or a walk through /proc."""
    return min(_LONGEST_REST_S, rest_s * 1.25)


def is_alive(pid: int) -> bool:
    """Whether a process with this pid exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
