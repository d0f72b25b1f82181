"""The end of a run whose shim is gone: what ``exit.json`` says, or lost and nothing of it left (S6)."""

from pathlib import Path

from ralphd.core.model import Moment
from ralphd.process import tree
from ralphd.process.rundir import ExitRecord, RunDirectory, Swept

SWEEP_S = 10.0


def read_ended(directory: RunDirectory) -> ExitRecord:
    """How a run ended that has no shim any more; to be called only when nothing holds its lock.

    Without an exit record the run is lost: what carries its cookie is ended first, for SWEEP_S seconds at
    most; ``survivors`` is what could not be, and nothing may be started before they are gone. A run of
    another boot is not probed and nothing is signalled (S8). ``ended_at`` is the last trace in its directory.
    """
    if record := directory.exit_record():
        return record
    swept: dict[int, str] = {}
    sweep(directory, swept, limit_s=SWEEP_S)
    return lost(directory, directory.last_trace_at(), swept)


def sweep(directory: RunDirectory, swept: dict[int, str], *, limit_s: float) -> bool:
    """End what is left of a run without a shim and add it to ``swept``; whether nothing is left."""
    if not _of_this_boot(directory):
        return True
    found, gone = tree.sweep(directory.run_id, _cgroup(directory), limit_s=limit_s)
    swept.update(found)
    return gone


def lost(directory: RunDirectory, ended_at: Moment, swept: dict[int, str]) -> ExitRecord:
    """The record of a run whose end nobody saw: neither code nor signal, never 0."""
    record = directory.run_record()
    survivors = tree.carriers(directory.run_id) if _of_this_boot(directory) else []
    return ExitRecord(
        run_id=directory.run_id,
        code=None,
        signal=None,
        started_at=record.started_at if record else None,
        ended_at=ended_at,
        oom=None,
        swept=tuple(Swept(pid, name) for pid, name in sorted(swept.items()) if pid not in survivors),
        survivors=tuple(Swept(pid, tree.command_line(pid)) for pid in survivors),
        dropped_bytes=0,
        fault=None,
        lost=True,
    )


def _of_this_boot(directory: RunDirectory) -> bool:
    """Whether it was started in this boot; so it counts where no record tells: its cookie is its own."""
    record, intent = directory.run_record(), directory.intent()
    boot = record.boot_id if record else (intent or {}).get("boot_id")
    return boot is None or boot == tree.boot_id()


def _cgroup(directory: RunDirectory) -> Path | None:
    record, intent = directory.run_record(), directory.intent()
    leaf = record.cgroup if record else (intent or {}).get("cgroup")
    return None if leaf is None else Path(str(leaf))
