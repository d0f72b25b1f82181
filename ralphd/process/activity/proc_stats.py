"""Read a process's identity and counters from ``/proc``, and the resources that whole runs use.

The counters are evidence of work (H2) and read without psutil: a probe must be cheap, and the daemon loads
psutil only when somebody asks for ``?resources=1``.
"""

import os
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ralphd.dataclass import dataclass
from ralphd.process.shim import process_stat, read_bytes

THREADS = 4096
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Identity(NamedTuple):
    """A pid and when it was started, in ticks since boot: no other process of this boot has both (S8)."""

    pid: int
    ticks: int


@dataclass(frozen=True, slots=True)
class ProcStats:
    """One process at one moment. As the kernel counts, children are included once they are reaped.

    ``cpu_ticks`` and ``io_bytes`` (what read and write calls moved) are its own and its reaped children's,
    ``reaped_faults`` the minor page faults of those children alone: no program starts without some.
    ``switches`` are the voluntary context switches of each of its threads. None is what we may not read.
    """

    identity: Identity
    parent: int
    state: str
    name: str
    cpu_ticks: int
    reaped_faults: int
    io_bytes: int | None
    switches: Mapping[int, int] | None


def proc_stats_of(pid: int) -> ProcStats | None:
    """Return the counters of a process; None when it is gone. Reads THREADS of its threads at most."""
    if (stat := process_stat(pid)) is None:
        return None
    state, parent, ticks, name, fields = stat
    cpu_ticks, faults = sum(map(int, fields[11:15])), int(fields[8])
    identity, io_bytes, switches = Identity(pid, ticks), _io_bytes(pid), _switches(pid)
    return ProcStats(identity, parent, state, name, cpu_ticks, faults, io_bytes, switches)


def reaped_faults(pid: int) -> int:
    """Return the minor page faults of all children that a process has reaped; 0 when it is gone."""
    stat = process_stat(pid)
    return 0 if stat is None else int(stat[4][8])


def _io_bytes(pid: int) -> int | None:
    # rchar and wchar: what passed through read and write calls. read_bytes and write_bytes would count disks
    # only, and an agent that talks through a pipe would look idle.
    try:
        words = read_bytes(f"/proc/{pid}/io").split()
        return int(words[1]) + int(words[3])
    except (OSError, IndexError, ValueError):  # gone, another user's, or a kernel that does not count
        return None


def _switches(pid: int) -> dict[int, int] | None:
    counts: dict[int, int] = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - a probe must be cheap
    except OSError:
        return None
    for thread in threads[:THREADS]:
        try:
            status = read_bytes(f"/proc/{pid}/task/{thread}/status")
            counts[int(thread)] = int(status.partition(b"\nvoluntary_ctxt_switches:")[2].split(maxsplit=1)[0])
        except (OSError, IndexError, ValueError):
            continue
    return counts or None


K = TypeVar("K", bound=Hashable)


def resources_of(leaders: Mapping[K, int]) -> dict[K, dict[str, Any]]:
    """Return processor seconds, resident bytes and the number of processes of each run, by leader's pid.

    The leader's parent is the shim, which adopts what detaches: all of a run is below it, and it is not
    counted itself. Processor time is that of living processes and of reaped ones. A run that is gone has no
    entry. Reads every process of the machine once, however many runs.
    """
    import psutil  # at first use: most daemons are never asked, and save 1 MB

    parents: dict[int, int] = {}
    children: dict[int, list[Any]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            parents[process.pid] = process.ppid()
            children.setdefault(parents[process.pid], []).append(process)
    return {key: _used(psutil, parents[pid], children) for key, pid in leaders.items() if pid in parents}


def _used(psutil: Any, shim: int, children: Mapping[int, list[Any]]) -> dict[str, Any]:
    cpu_s, rss_bytes, count = 0.0, 0, 0
    with suppress(psutil.Error):
        waited_for = psutil.Process(shim).cpu_times()
        cpu_s = waited_for.children_user + waited_for.children_system
    below = list(children.get(shim, ()))
    while below:
        process = below.pop()
        below += children.get(process.pid, ())
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            cpu_s += times.user + times.system + times.children_user + times.children_system
            if process.status() != psutil.STATUS_ZOMBIE:
                rss_bytes, count = rss_bytes + process.memory_info().rss, count + 1
    return {"cpu_s": round(cpu_s, 2), "rss_bytes": rss_bytes, "processes": count}
