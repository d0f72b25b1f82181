"""Looks at the tree of a silent run, or agent, and says what it did since the look before (H1 to H3).

This module gathers evidence; ``core/stall_detector`` judges it. A look never raises: files that vanish or may
not be read are skipped.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from ralphd.core.explanation import Seen
from ralphd.core.stall_detector import Changes, Window
from ralphd.process import shim, tree
from ralphd.process.activity import sockets
from ralphd.process.activity.proc_stats import (
    TICKS_PER_S,
    Identity,
    ProcStats,
    boot_ticks,
    proc_stats_of,
    reaped_faults,
)
from ralphd.process.rundir import RunRecord

MOST_PROCESSES = 4096
"""How many processes of a tree are looked at."""
MOST_TOLD = 200
"""How many of them are kept as evidence."""


class DirectoryWatch(Protocol):
    """What watches the working directory."""

    def changes(self) -> Changes:
        """What changed since the call before."""

    def close(self) -> None:
        """Let go of what is held."""


class Tree(Protocol):
    """Which processes are looked at. Asked in the thread that looks."""

    def pids(self) -> Iterable[int]:
        """Those that are seen now; a walk down may miss some that are just being started (shim.children)."""

    def others(self) -> Collection[int]:
        """Those that may be among them, and are not to be looked at."""

    def orphan_faults(self) -> int:
        """The minor page faults of the orphans of this tree that have been reaped so far."""


@dataclass(frozen=True, slots=True)
class RunTree:
    """The tree of a run: what is below its shim, and in its control group."""

    record: RunRecord

    def pids(self) -> Iterator[int]:
        """None below a shim that is gone, or of another boot."""
        record = self.record
        with suppress(OSError):
            if tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id):
                yield from below(record.shim_pid)
        if record.cgroup is not None:
            yield from shim.cgroup_processes(str(record.cgroup))

    def others(self) -> Collection[int]:
        """The shim."""
        return (self.record.shim_pid,)

    def orphan_faults(self) -> int:
        """The shim reaps nothing else than what belongs to its run."""
        return reaped_faults(self.record.shim_pid)


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """A tree at one moment: ``at_s`` by the monotonic clock, ``ticks`` since boot.

    ``orphan_faults`` are the page faults of those that were reaped at the top of the tree.
    ``received`` gives the bytes by socket, and by network namespace where that is not ours; None where the
    kernel does not tell.
    """

    at_s: float
    ticks: int
    orphan_faults: int
    members: Mapping[Identity, ProcStats]
    received: Mapping[int, int] | None


@dataclass(frozen=True, slots=True)
class Deed:
    """What one process did between two snapshots, as far as it may be read."""

    cpu_ticks: int
    io_bytes: int | None
    switches: int | None


class Observer:
    """The looks at one tree and its working directory. Not to be used by two threads at once.

    A look takes some milliseconds as a rule, and blocks; it is meant for a thread of its own.
    """

    def __init__(self, looked_at: Tree, files: DirectoryWatch) -> None:
        self._tree = looked_at
        self._files = files
        self._before: TreeSnapshot | None = None
        self._now: TreeSnapshot | None = None
        self._early = Changes()

    def look(self) -> Window:
        """What was done since the look before.

        The first look only begins a window; files that it finds changed already are told with the second. So
        does one that finds no tree at all: who cannot be seen (this process is out of descriptors, say) is
        not said to be idle.
        """
        changes = _together(self._early, self._files.changes())
        self._before, self._now = self._now, _snapshot(self._tree, self._now)
        if self._before is None or not self._now.members:
            self._early = changes
            return self._begun(self._now)
        self._early = Changes()
        return window(self._before, self._now, changes)

    def _begun(self, now: TreeSnapshot) -> Window:
        self._before, self._now = None, now if now.members else None
        return Window(processes=len(now.members))

    def processes(self) -> tuple[Seen, ...]:
        """The tree as the latest look saw it, oldest first, at most MOST_TOLD of it."""
        before, now = self._before, self._now
        if now is None:
            return ()
        deeds = {} if before is None else _deeds(before, now)
        elapsed_s = 0.0 if before is None else _elapsed_s(before, now)
        oldest = sorted(now.members.values(), key=lambda figures: figures.identity.ticks)
        return tuple(
            _seen(figures, deeds.get(figures.identity), now.ticks, elapsed_s)
            for figures in oldest[:MOST_TOLD]
        )

    def close(self) -> None:
        """Let go of what is held. There are no looks after it."""
        self._files.close()


def _snapshot(looked_at: Tree, before: TreeSnapshot | None) -> TreeSnapshot:
    at_s, ticks = (
        time.monotonic(),
        boot_ticks(tree.boot_s()),
    )  # first: what starts from now on is new next time
    members = {
        figures.identity: figures
        for pid in _pids(looked_at, before)
        if (figures := proc_stats_of(pid)) is not None
    }
    held = sockets.inodes(identity.pid for identity in members)
    return TreeSnapshot(
        at_s=at_s,
        ticks=ticks,
        orphan_faults=looked_at.orphan_faults(),
        members=members,
        received=_received(held, members),
    )


def _received(held: set[int], members: Mapping[Identity, ProcStats]) -> dict[int, int] | None:
    elsewhere = sockets.received_elsewhere(identity.pid for identity in members)
    if held:
        here = sockets.received(held)
        return None if here is None else here | elsewhere
    if elsewhere:
        return elsewhere
    readable = any(os.access(f"/proc/{identity.pid}/fd", os.R_OK) for identity in members)
    return {} if readable else None


def _pids(looked_at: Tree, before: TreeSnapshot | None) -> list[int]:
    """The processes of the tree; not this one. Whoever was known and still lives belongs to it, too."""
    found = dict.fromkeys(looked_at.pids())
    for pid, ticks in () if before is None else before.members:
        if pid not in found and tree.start_ticks(pid) == ticks:
            found[pid] = None
    others = (*looked_at.others(), os.getpid())
    return [pid for pid in found if pid not in others][:MOST_PROCESSES]


def below(root: int) -> Iterator[int]:
    """What is below a process, as it is seen while walking down; MOST_PROCESSES or a few more."""
    known, queue = {root}, [root]
    while queue and len(known) <= MOST_PROCESSES:
        children = [child for child in shim.children(queue.pop()) if child not in known]
        known.update(children)
        queue += children
        yield from children


def window(before: TreeSnapshot, now: TreeSnapshot, changes: Changes) -> Window:
    """What a tree did between two snapshots."""
    deeds = _deeds(before, now).values()
    elapsed_s = _elapsed_s(before, now)
    switches = [deed.switches for deed in deeds if deed.switches is not None]
    moved = [deed.io_bytes for deed in deeds if deed.io_bytes is not None]
    return Window(
        elapsed_s=elapsed_s,
        processes=len(now.members),
        new_processes=_new_processes(before, now),
        changed_files=changes.files,
        changed_file=changes.file,
        committed=changes.committed,
        io_bytes=sum(moved) if moved else None,
        received_bytes=_received_bytes(before.received, now.received),
        cpu_s=sum(deed.cpu_ticks for deed in deeds) / TICKS_PER_S if deeds else None,
        switches_per_s=_rate(max(switches), elapsed_s) if switches else None,
    )


def _together(early: Changes, late: Changes) -> Changes:
    return Changes(early.files + late.files, late.file or early.file, early.committed or late.committed)


def _elapsed_s(before: TreeSnapshot, now: TreeSnapshot) -> float:
    return max(now.at_s - before.at_s, 0.001)


def _rate(count: int, elapsed_s: float) -> float:
    """How often a second, at least: a span cuts off up to one event of a regular row at its ends."""
    return max(count - 1, 0) / elapsed_s


def _received_bytes(before: Mapping[int, int] | None, now: Mapping[int, int] | None) -> int | None:
    """A socket that was not there before has received all its bytes since."""
    if before is None or now is None:
        return None
    return sum(max(count - before.get(inode, 0), 0) for inode, count in now.items())


def _is_new(identity: Identity, before: TreeSnapshot) -> bool:
    """Whether a process was started since: not known, and not merely overlooked either."""
    return identity not in before.members and identity.ticks >= before.ticks


def _new_processes(before: TreeSnapshot, now: TreeSnapshot) -> int:
    """How many were started since, as far as it can be seen.

    One that came and went between the looks has left its page faults with whoever reaped it. They tell
    nothing where that one may also have reaped a process that was known; an orphan is reaped at the top of
    the tree.
    """
    started = sum(_is_new(identity, before) for identity in now.members)
    heirs = set(_heirs(before, now).values())
    passed = sum(
        figures.reaped_faults > before.members[identity].reaped_faults
        for identity, figures in now.members.items()
        if identity in before.members and identity.pid not in heirs
    )
    return started + passed + (not heirs and now.orphan_faults > before.orphan_faults)


def _heirs(before: TreeSnapshot, now: TreeSnapshot) -> dict[Identity, int]:
    """Who has the figures of each process that is gone: the nearest of its ancestors that is not."""
    gone = before.members.keys() - now.members.keys()
    parents = {identity.pid: before.members[identity].parent for identity in gone}
    heirs = {}
    for identity in gone:
        pid = parents[identity.pid]
        for _ in parents:
            pid = parents.get(pid, pid)
        heirs[identity] = pid
    return heirs


def _deeds(before: TreeSnapshot, now: TreeSnapshot) -> dict[Identity, Deed]:
    """What each process did; what it inherited of a reaped child, and was seen there, is taken off."""
    inherited: dict[int, list[ProcStats]] = {}
    for identity, heir in _heirs(before, now).items():
        inherited.setdefault(heir, []).append(before.members[identity])
    return {
        identity: _deed(_known_of(figures, before), figures, inherited.get(identity.pid, ()))
        for identity, figures in now.members.items()
    }


def _known_of(figures: ProcStats, before: TreeSnapshot) -> ProcStats | None:
    """What it had done before: nothing, for a new one; for one that was overlooked, all that it has."""
    if _is_new(figures.identity, before):
        return None
    return before.members.get(figures.identity, figures)


def _deed(before: ProcStats | None, now: ProcStats, inherited: Iterable[ProcStats]) -> Deed:
    was = before or replace(now, cpu_ticks=0, io_bytes=0, switches={})
    seen = [was, *inherited]
    io_bytes = None
    if now.io_bytes is not None and was.io_bytes is not None:
        io_bytes = max(now.io_bytes - sum(one.io_bytes or 0 for one in seen), 0)
    return Deed(
        cpu_ticks=max(now.cpu_ticks - sum(one.cpu_ticks for one in seen), 0),
        io_bytes=io_bytes,
        switches=_switches(was.switches, now.switches),
    )


def _switches(before: Mapping[int, int] | None, now: Mapping[int, int] | None) -> int | None:
    """Those of all threads together. A thread that is new has made all of its own since."""
    if before is None or now is None:
        return None
    return sum(max(count - before.get(thread, 0), 0) for thread, count in now.items())


def _seen(figures: ProcStats, deed: Deed | None, ticks: int, elapsed_s: float) -> Seen:
    identity = figures.identity
    command = tree.command_line(identity.pid)
    still = tree.start_ticks(identity.pid) == identity.ticks
    switches = None if deed is None else deed.switches
    return Seen(
        pid=identity.pid,
        parent=figures.parent,
        state=figures.state,
        command=command if still and command else f"[{figures.name}]",
        age_s=max(ticks - identity.ticks, 0) / TICKS_PER_S,
        cpu_s=None if deed is None else deed.cpu_ticks / TICKS_PER_S,
        io_bytes=None if deed is None else deed.io_bytes,
        switches_per_s=None if switches is None else _rate(switches, elapsed_s),
    )
