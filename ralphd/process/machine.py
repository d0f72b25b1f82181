"""How many files may be open: as many as the system allows for the daemon, as before for its runs.

The usual 1024 are used up by some 300 ralphs. A run is given the limit that the daemon was started with: some
programs fail by a higher one (``select`` knows 1024 descriptors, and loops that close all of them get long).
"""

import os
import resource
import time
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

from ralphd.core.time import Moment

# The clocks of this machine: one object, so that a test can hold it.


class Clock:
    """The clocks of this machine: the one on the wall, which can be set, and two that cannot (H5)."""

    def now(self) -> Moment:
        """Seconds since the epoch, UTC."""
        return time.time()

    def awake_s(self) -> float:
        """Seconds that pass while the machine is awake, from no particular moment (CLOCK_MONOTONIC)."""
        return time.monotonic()

    def asleep_s(self) -> float:
        """Seconds that the machine has slept since its boot: boot time against monotonic."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return 0.0 if boottime is None else time.clock_gettime(boottime) - time.monotonic()


@cache
def limit_at_start() -> int:
    """The soft limit that this process was started with."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_own_limit() -> None:
    """Have as many descriptors as the hard limit allows. What the system refuses stays as it is."""
    soft, hard = limit_at_start(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def as_at_start(pid: int) -> None:
    """Give a process that we have just started, and what it starts, the limit that we were started with.

    From outside, since it is one system call here and an import there; it takes an interpreter a hundred
    times as long to begin.
    """
    with suppress(OSError):
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit_at_start(), hard))


# The time zone of this machine, for limits that name a time of day and no zone.

_LOCALTIME = Path("/etc/localtime")


def local_zone() -> tzinfo:
    """The zone of ``$TZ``, else of ``/etc/localtime``, with all its changes; else today's offset."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with _LOCALTIME.open("rb") as opened:
            return ZoneInfo.from_file(opened)
    except (OSError, ValueError, LookupError):  # no such file, no such name
        return _todays_offset()


def _todays_offset() -> tzinfo:
    return datetime.now().astimezone().tzinfo or UTC
