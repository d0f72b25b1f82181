"""What a tree of processes uses: processor time and memory, by psutil."""

from contextlib import suppress
from typing import Any


def resources_of(pid: int) -> dict[str, Any] | None:
    """Processor seconds, resident bytes and number of the processes from ``pid`` down; None when gone."""
    import psutil  # at first use: 1 MB that a daemon nobody asks for it does without

    try:
        leader = psutil.Process(pid)
        members = [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, rss_bytes, count = 0.0, 0, 0
    for member in members:
        with suppress(psutil.Error):
            times, memory = member.cpu_times(), member.memory_info()
            cpu_s, rss_bytes, count = cpu_s + times.user + times.system, rss_bytes + memory.rss, count + 1
    return {"cpu_s": round(cpu_s, 2), "rss_bytes": rss_bytes, "processes": count}
