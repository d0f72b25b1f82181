"""What trees of processes use: processor time and memory, by psutil."""

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)


def resources_of(leaders: Mapping[K, int]) -> dict[K, dict[str, Any]]:
    """Of each run, by its leader's pid: processor seconds, resident bytes, number of its processes.

    The leader's parent is the shim, which adopts what detached itself, so that all of a run is below it; it
    is not counted itself. Processor time is that of the living, and of the ended that were waited for. No
    entry for a run that is gone. One look at every process of the machine, however many runs.
    """
    import psutil  # at first use: 1 MB that a daemon nobody asks for it does without

    parents: dict[int, int] = {}
    children: dict[int, list[Any]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            parents[process.pid] = process.ppid()
            children.setdefault(parents[process.pid], []).append(process)
    return {
        key: _used(psutil, parents[leader], children) for key, leader in leaders.items() if leader in parents
    }


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
