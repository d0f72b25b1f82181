"""Who runs in a run whose ``run.json`` is missing or broken, as the processes themselves tell it."""

import os
from pathlib import Path

from ralphd.process import shim, tree
from ralphd.process.lock import holders
from ralphd.process.rundir import RunDirectory, RunRecord


def who_runs(directory: RunDirectory) -> RunRecord | None:
    """The record of a run that lives: its shim holds the lock, its command is the shim's oldest child.

    None where no such pair is seen, for example because the command has just ended. ``started_at`` is as
    exact as the kernel's clock ticks. Looks at every process there is.
    """
    for holder in _shims(directory):
        shim_ticks = tree.start_ticks(holder)
        leaders = [(ticks, pid) for pid in shim.children(holder) if (ticks := _leads_since(pid)) is not None]
        if shim_ticks is None or not leaders:
            continue
        ticks, pid = min(leaders)
        cgroup = _cgroup(directory)
        return RunRecord(
            run_id=directory.run_id,
            pid=pid,
            start_ticks=ticks,
            shim_pid=holder,
            shim_start_ticks=shim_ticks,
            boot_id=tree.boot_id(),
            tree_means="subreaper" if cgroup is None else "cgroup",
            cgroup=cgroup,
            started_at=tree.moment_of(ticks),
        )
    return None


def _shims(directory: RunDirectory) -> list[int]:
    """Who holds the lock and was started for this run: the shim, or a fork of it just now."""
    try:
        descriptor = os.open(directory.lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        return [pid for pid in holders(descriptor) if directory.run_id in _command_line(pid)]
    finally:
        os.close(descriptor)


def _command_line(pid: int) -> str:
    try:
        return shim.read_bytes(f"/proc/{pid}/cmdline").decode(errors="replace")
    except OSError:
        return ""


def _leads_since(pid: int) -> int | None:
    """When it was started, for a living process with a session of its own, as a command has (S3)."""
    try:
        alone = os.getsid(pid) == pid
    except OSError:
        return None
    stat = shim.process_stat(pid)
    return stat[2] if alone and stat is not None and stat[0] not in "ZX" else None


def _cgroup(directory: RunDirectory) -> Path | None:
    """The control group that it was to have, where it has it."""
    leaf = (directory.intent() or {}).get("cgroup")
    return Path(leaf) if isinstance(leaf, str) and Path(leaf).is_dir() else None
