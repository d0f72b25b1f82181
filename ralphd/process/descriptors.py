"""How many files may be open: as many as the system allows for the daemon, as before for its runs.

The usual 1024 are used up by some 300 ralphs. A run is given the limit that the daemon was started with: some
programs fail by a higher one (``select`` knows 1024 descriptors, and loops that close all of them get long).
"""

import resource
from contextlib import suppress
from functools import cache


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
