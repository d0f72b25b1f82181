"""Probe the tree of a silent run or agent and report what it did since the probe before (H1 to H3).

This module gathers evidence; ``core/stall_detector`` judges it. A probe never raises: files that vanish or
may not be read are skipped.
"""

import os
import socket
import struct
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from ralphd.core.explanation import Seen
from ralphd.core.stall_detector import Changes, Window
from ralphd.dataclass import dataclass
from ralphd.process import shim, tree
from ralphd.process.activity.proc_stats import TICKS_PER_S, Identity, ProcStats, proc_stats_of, reaped_faults
from ralphd.process.machine import boot_s
from ralphd.process.rundir import RunRecord
from ralphd.process.shim import read_bytes

# What TCP sockets have received is read by NETLINK_SOCK_DIAG (sock_diag(7), tcp(7)).

TIME_LIMIT_S = 0.25
"""The limit of one query, both address families together."""
MOST_SOCKETS = 100_000
"""How many sockets of the machine are read."""
MOST_DESCRIPTORS = 20_000
"""How many open descriptors of a tree are read."""

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INET_DIAG_INFO = 2
_STATES = sum(1 << state for state in (1, 4, 5, 8, 9, 11))  # that have, or have had, a peer who sends

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
_ATTRIBUTE = struct.Struct("=HH")
_INODE_AT = 68  # in struct inet_diag_msg
_ATTRIBUTES_AT = 72
_RECEIVED_AT = 128  # tcpi_bytes_received in struct tcp_info, since Linux 4.1


def inodes(pids: Iterable[int]) -> set[int]:
    """Return the sockets that these processes hold open, of any kind. Skip what may not be read."""
    found: set[int] = set()
    left = MOST_DESCRIPTORS
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")[:left]  # noqa: PTH208 - a probe must be cheap
        except OSError:
            continue
        left -= len(names)
        for name in names:
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def received(wanted: Collection[int]) -> dict[int, int] | None:
    """Return the bytes that each TCP socket among ``wanted`` (inodes) has received so far.

    Sockets of another kind or network namespace have no entry. None if the kernel does not answer within
    TIME_LIMIT_S.
    """
    deadline = time.monotonic() + TIME_LIMIT_S
    counts: dict[int, int] | None = None
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            counts = (counts or {}) | _of_family(family, frozenset(wanted), deadline)
        except TimeoutError:
            return None
        except OSError:  # a kernel without that family answers for the other
            continue
    return counts


def received_elsewhere(pids: Iterable[int]) -> dict[int, int]:
    """Return the bytes received over IP by each foreign network namespace (inode) of these processes.

    That is more than TCP, and includes what others in the namespace receive: in doubt the run works.
    """
    ours = _namespace("self")
    counts: dict[int, int] = {}
    for pid in pids:
        namespace = _namespace(str(pid))
        if namespace is None or namespace == ours or namespace in counts:
            continue
        if (count := _octets(pid)) is not None:
            counts[namespace] = count
    return counts


def _namespace(process: str) -> int | None:
    try:
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - a probe must be cheap
    except OSError:  # gone, or another user's
        return None


def _octets(pid: int) -> int | None:
    """Return ``IpExt: InOctets`` plus ``Ip6InOctets`` of the namespace that a process is in."""
    try:
        lines = read_bytes(f"/proc/{pid}/net/netstat").splitlines()
        names, counts = (line.split() for line in lines if line.startswith(b"IpExt:"))
        octets = int(dict(zip(names, counts, strict=True))[b"InOctets"])
    except (OSError, ValueError, KeyError):
        return None
    with suppress(OSError, ValueError):  # a namespace without IPv6
        lines = read_bytes(f"/proc/{pid}/net/snmp6").splitlines()
        octets += sum(int(line.split()[1]) for line in lines if line.startswith(b"Ip6InOctets"))
    return octets


def _of_family(family: int, wanted: frozenset[int], deadline: float) -> dict[int, int]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as link:
        body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), _STATES)
        head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        link.sendto(head + body, (0, 0))
        counts = {}
        for message in _messages(link, deadline):
            inode = int.from_bytes(message[_INODE_AT : _INODE_AT + 4], sys.byteorder)
            if inode in wanted:
                counts[inode] = _received_bytes(message)
        return counts


def _messages(link: socket.socket, deadline: float) -> Iterator[bytes]:
    """Yield the messages of one dump, without their heads. Raise OSError if the kernel does not answer."""
    count = 0
    while True:
        if (left_s := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        link.settimeout(left_s)
        data, sender = link.recvfrom(1 << 16)
        if sender[0] != 0:  # not the kernel
            continue
        for kind, body in _split(data):
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR or count >= MOST_SOCKETS:
                raise OSError("the kernel does not answer the query")
            count += 1
            yield body


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _received_bytes(message: bytes) -> int:
    """Return ``tcpi_bytes_received``; 0 where the kernel does not give it."""
    at = _ATTRIBUTES_AT
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        count = message[at + _ATTRIBUTE.size + _RECEIVED_AT :][:8]
        if kind == _INET_DIAG_INFO and length >= _ATTRIBUTE.size + _RECEIVED_AT + 8:
            return int.from_bytes(count, sys.byteorder)
        at += max((length + 3) & ~3, _ATTRIBUTE.size)
    return 0


# Theory of operation
#
# A probe takes a snapshot of all processes of the tree and compares it with the snapshot before. The kernel
# offers only counters that differ in meaning, and a wrong comparison is worse than none: made-up evidence
# keeps a hung run alive for ever, missed evidence kills a run that works. So:
#
# - A process is known by pid and start time. It is new only if it started after the probe before. A
#   process that was overlooked then (a walk down /proc misses some that are being forked) is not new.
# - When a process is reaped, the kernel adds its counters to its parent's. What was already seen of it is
#   taken off there, or its whole life would count as work done in this window. A parent that died too passes
#   the sum on, so the nearest living ancestor is the heir.
# - A process that came and went between two probes is seen by the page faults that it left with its reaper,
#   since no program starts without some. That says nothing if the reaper may have reaped a known process,
#   whose faults it then inherited.
# - Switches are those of the busiest process, not the sum: many idle processes with a timer each do not add
#   up to a working one.
# - What may not be read is None, never 0: unknown is not idle. A tree of which nothing can be seen (this
#   process is out of descriptors) is not compared at all.
#
# A ptrace or an eBPF program would see more, but needs rights that a user's daemon does not have.


MOST_PROCESSES = 4096
"""How many processes of a tree are probed."""
MOST_REPORTED = 200
"""How many of them are kept as evidence."""


class DirectoryWatch(Protocol):
    """A watch over the working directory."""

    def changes(self) -> Changes:
        """Return what changed since the call before."""

    def close(self) -> None:
        """Release what is held."""


class Tree(Protocol):
    """Which processes to probe. Called in the thread that probes."""

    def pids(self) -> Iterable[int]:
        """Return the processes seen now, without their shim; some that are being started may be missing."""

    def orphan_faults(self) -> int:
        """Return the minor page faults of this tree's orphans that have been reaped so far."""


@dataclass(frozen=True, slots=True)
class RunTree:
    """The tree of a run: what is below its shim, and in its control group."""

    record: RunRecord

    def pids(self) -> Iterator[int]:
        """Yield none below a shim that is gone, or of another boot."""
        record = self.record
        with suppress(OSError):
            if tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id):
                yield from shim.below(record.shim_pid, MOST_PROCESSES)
        if record.cgroup is not None:
            yield from (pid for pid in shim.cgroup_processes(str(record.cgroup)) if pid != record.shim_pid)

    def orphan_faults(self) -> int:
        """Return the shim's count: it reaps nothing but its run."""
        return reaped_faults(self.record.shim_pid)


@dataclass(frozen=True, slots=True)
class TreeSnapshot:
    """A tree at one moment: ``at_s`` by the monotonic clock, ``ticks`` since boot.

    ``orphan_faults`` are the page faults of processes that were reaped at the top of the tree. ``received``
    maps sockets, and foreign network namespaces, to bytes; None where the kernel does not say.
    """

    at_s: float
    ticks: int
    orphan_faults: int
    members: Mapping[Identity, ProcStats]
    received: Mapping[int, int] | None


@dataclass(frozen=True, slots=True)
class ProcUsage:
    """What one process did between two snapshots; None is what may not be read."""

    cpu_ticks: int
    io_bytes: int | None
    switches: int | None


class Observer:
    """Probe one tree and its working directory. Not to be used by two threads at once.

    A probe usually takes some milliseconds, and blocks: call it in a thread.
    """

    def __init__(self, looked_at: Tree, files: DirectoryWatch) -> None:
        self._tree, self._files = looked_at, files
        self._before: TreeSnapshot | None = None
        self._current: TreeSnapshot | None = None
        self._early = Changes()

    def look(self) -> Window:
        """Return what was done since the call before.

        The first call only opens a window; changed files that it finds are reported by the second. The same
        holds for a call that sees no process at all: a tree that cannot be seen is not idle.
        """
        late, early = self._files.changes(), self._early
        both = Changes(early.files + late.files, late.file or early.file, early.committed or late.committed)
        self._before, self._current = self._current, _snapshot(self._tree, self._current)
        current = self._current
        if self._before is None or not current.members:
            self._early = both
            self._before, self._current = None, current if current.members else None
            return Window(processes=len(current.members))
        self._early = Changes()
        return window(self._before, current, both)

    def processes(self) -> tuple[Seen, ...]:
        """Return the tree as the latest probe saw it, oldest first, MOST_REPORTED processes at most."""
        before, current = self._before, self._current
        if current is None:
            return ()
        usages = {} if before is None else _usages(before, current)
        elapsed_s = 0.0 if before is None else _elapsed_s(before, current)
        oldest = sorted(current.members.values(), key=lambda stats: stats.identity.ticks)[:MOST_REPORTED]
        return tuple(_seen(stats, usages.get(stats.identity), current.ticks, elapsed_s) for stats in oldest)

    def close(self) -> None:
        """Release what is held. Call ``look`` no more."""
        self._files.close()


def _snapshot(looked_at: Tree, before: TreeSnapshot | None) -> TreeSnapshot:
    # The time first: what starts from now on is new next time.
    at_s, ticks = time.monotonic(), int(boot_s() * TICKS_PER_S)
    pids = dict.fromkeys(looked_at.pids())
    # A process that was known and is still alive belongs to the tree, even if this walk missed it.
    known = before.members if before else ()
    pids |= dict.fromkeys(pid for pid, started in known if tree.start_ticks(pid) == started)
    wanted = [pid for pid in pids if pid != os.getpid()][:MOST_PROCESSES]
    members = {stats.identity: stats for pid in wanted if (stats := proc_stats_of(pid)) is not None}
    return TreeSnapshot(at_s, ticks, looked_at.orphan_faults(), members, _received([*members]))


def _received(members: list[Identity]) -> dict[int, int] | None:
    pids = [identity.pid for identity in members]
    own_inodes = inodes(pids)
    elsewhere = received_elsewhere(pids)
    if own_inodes:
        here = received(own_inodes)
        return None if here is None else here | elsewhere
    if elsewhere or any(os.access(f"/proc/{pid}/fd", os.R_OK) for pid in pids):
        return elsewhere
    return None


def window(before: TreeSnapshot, current: TreeSnapshot, changes: Changes) -> Window:
    """Return what a tree did between two snapshots."""
    usages = _usages(before, current).values()
    elapsed_s = _elapsed_s(before, current)
    switches = [usage.switches for usage in usages if usage.switches is not None]
    moved = [usage.io_bytes for usage in usages if usage.io_bytes is not None]
    received_bytes, known = None, before.received
    if known is not None and current.received is not None:
        # A socket that was not there before has received all its bytes since.
        received_bytes = sum(max(count - known.get(key, 0), 0) for key, count in current.received.items())
    return Window(
        elapsed_s=elapsed_s, processes=len(current.members),
        new_processes=_new_processes(before, current),
        changed_files=changes.files, changed_file=changes.file, committed=changes.committed,
        io_bytes=sum(moved) if moved else None, received_bytes=received_bytes,
        cpu_s=sum(usage.cpu_ticks for usage in usages) / TICKS_PER_S if usages else None,
        switches_per_s=_rate(max(switches), elapsed_s) if switches else None,
    )  # fmt: skip


def _elapsed_s(before: TreeSnapshot, current: TreeSnapshot) -> float:
    return max(current.at_s - before.at_s, 0.001)


def _rate(count: int, elapsed_s: float) -> float:
    # One is taken off: a window may cut a regular row of events so that it holds one too many.
    return max(count - 1, 0) / elapsed_s


def _is_new(identity: Identity, before: TreeSnapshot) -> bool:
    return identity not in before.members and identity.ticks >= before.ticks


def _new_processes(before: TreeSnapshot, current: TreeSnapshot) -> int:
    started = sum(_is_new(identity, before) for identity in current.members)
    heirs = set(_heirs(before, current).values())
    passed = sum(
        stats.reaped_faults > before.members[identity].reaped_faults
        for identity, stats in current.members.items()
        if identity in before.members and identity.pid not in heirs
    )
    return started + passed + (not heirs and current.orphan_faults > before.orphan_faults)


def _heirs(before: TreeSnapshot, current: TreeSnapshot) -> dict[Identity, int]:
    """Return for each process that is gone the pid of its nearest ancestor that is not."""
    gone = before.members.keys() - current.members.keys()
    parents = {identity.pid: before.members[identity].parent for identity in gone}
    heirs = {}
    for identity in gone:
        pid = parents[identity.pid]
        for _ in parents:  # as many steps as can be: a reused pid could make a circle
            pid = parents.get(pid, pid)
        heirs[identity] = pid
    return heirs


def _usages(before: TreeSnapshot, current: TreeSnapshot) -> dict[Identity, ProcUsage]:
    inherited: dict[int, list[ProcStats]] = {}
    for identity, heir in _heirs(before, current).items():
        inherited.setdefault(heir, []).append(before.members[identity])
    usages = {}
    for identity, stats in current.members.items():
        if _is_new(identity, before):
            earlier = replace(stats, cpu_ticks=0, io_bytes=0, switches={})
        else:  # of an overlooked process nothing counts: nobody knows when it did what it did
            earlier = before.members.get(identity, stats)
        usages[identity] = _usage(earlier, stats, inherited.get(identity.pid, ()))
    return usages


def _usage(before: ProcStats, current: ProcStats, inherited: Iterable[ProcStats]) -> ProcUsage:
    seen = [before, *inherited]
    io_bytes = switches = None
    if current.io_bytes is not None and before.io_bytes is not None:
        io_bytes = max(current.io_bytes - sum(one.io_bytes or 0 for one in seen), 0)
    if current.switches is not None and before.switches is not None:
        counts = before.switches  # by thread: a new thread has made all of its own since
        switches = sum(max(count - counts.get(thread, 0), 0) for thread, count in current.switches.items())
    return ProcUsage(max(current.cpu_ticks - sum(one.cpu_ticks for one in seen), 0), io_bytes, switches)


def _seen(stats: ProcStats, usage: ProcUsage | None, ticks: int, elapsed_s: float) -> Seen:
    identity = stats.identity
    command = shim.command_line(identity.pid)
    is_same = tree.start_ticks(identity.pid) == identity.ticks  # else it is another process's command
    return Seen(
        pid=identity.pid,
        parent=stats.parent,
        state=stats.state,
        command=command if is_same and command else f"[{stats.name}]",
        age_s=max(ticks - identity.ticks, 0) / TICKS_PER_S,
        cpu_s=None if usage is None else usage.cpu_ticks / TICKS_PER_S,
        io_bytes=None if usage is None else usage.io_bytes,
        switches_per_s=None if usage is None or usage.switches is None else _rate(usage.switches, elapsed_s),
    )
