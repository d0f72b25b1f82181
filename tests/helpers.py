"""What every test may use: waiting for a fact with a bound, and asking whether a pid lives."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(fact: Callable[[], T], *, timeout_s: float = 10.0, what: str = "the awaited fact") -> T:
    """Give the first truthy answer of ``fact``; fail when there is none within ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        time.sleep(0.005)
    return answer


async def eventually(fact: Callable[[], T], *, timeout_s: float = 10.0, what: str = "the awaited fact") -> T:
    """The same on an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout_s} s"
        await asyncio.sleep(0.005)
    return answer


def is_alive(pid: int) -> bool:
    """Whether a process with this pid exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"
