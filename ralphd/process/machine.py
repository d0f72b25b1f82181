"""This machine's clocks, time zone and descriptor limit.

The descriptor limit is raised for the daemon alone: the usual 1024 are used up by some 300 ralphs. Its runs
get the limit that the daemon was started with, since some programs fail with a higher one (``select`` knows
1024 descriptors, and loops that close all of them take long).
"""

import asyncio
import ctypes
import os
import resource
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from ralphd.core.time import Moment
from ralphd.core.worktrees.rules import PORTS

SPARE_DESCRIPTORS = 16
"""The sweep of a run, its record and a git need no more."""
_M_ARENA_MAX = -8
"""Of glibc's ``mallopt(3)``."""


class Clock:
    """The wall clock, which can be set, and two clocks that cannot (H5). One object, for tests to replace."""

    def now(self) -> Moment:
        """Return seconds since the epoch, UTC."""
        return time.time()

    def awake_s(self) -> float:
        """Return the seconds that the machine was awake since some fixed moment (CLOCK_MONOTONIC)."""
        return time.monotonic()

    def asleep_s(self) -> float:
        """Return the seconds that the machine has slept since its boot."""
        return boot_s() - time.monotonic()


def boot_s() -> float:
    """Return the seconds since boot, sleep included: the clock of the kernel's process start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


async def wait_at_most(limit_s: float | None, event: asyncio.Event) -> None:
    """Wait until an event is set, for at most ``limit_s``; None: without a limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()


@cache
def limit_at_start() -> int:
    """Return the soft limit of descriptors that this process was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_own_limit() -> None:
    """Raise the limit of descriptors to the hard limit. If the system refuses, leave it as it is."""
    soft, hard = limit_at_start(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def share_freed_memory() -> None:
    """Have all threads allocate from one arena; with one each, what a thread has freed is only its own.

    A daemon with twenty busy ralphs has twenty threads, and a loop six: each would keep 1 MB (``make soak``).
    """
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Return to the kernel what a busy moment has left free between allocations (malloc_trim(3))."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def local_zone() -> tzinfo:
    """Return the zone of ``$TZ``, else of ``/etc/localtime``, with all its changes; else today's offset.

    For rate limits whose text names a time of day and no zone.
    """
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with Path("/etc/localtime").open("rb") as opened:
            return ZoneInfo.from_file(opened)
    except (OSError, ValueError, LookupError):  # no such file, no such name
        return datetime.now().astimezone().tzinfo or UTC


def memory_bytes() -> tuple[int, int]:
    """Return the bytes of memory, and those that are available; psutil would cost 1 MB of them.

    Raise OSError, ValueError or LookupError where the kernel does not tell.
    """
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) > 1}
    return kilobytes["MemTotal:"] << 10, kilobytes["MemAvailable:"] << 10


def free_memory() -> float:
    """Return the share of the memory that is available; 1 where the kernel does not tell."""
    try:
        total, available = memory_bytes()
        return available / total
    except (OSError, ValueError, LookupError, ZeroDivisionError):
        return 1.0


def has_spare_descriptors() -> bool:
    """Return whether SPARE_DESCRIPTORS more can be opened: without, what a run left looks like nothing."""
    spare: list[int] = []
    try:
        spare.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(SPARE_DESCRIPTORS))
    except OSError:
        return False
    finally:
        for each in spare:
            os.close(each)
    return True


def are_free(base: int) -> bool:
    """Return whether nothing listens on the 100 ports from ``base`` on."""
    for port in range(base, base + PORTS):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
