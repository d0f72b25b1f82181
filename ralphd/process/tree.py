"""Find the processes of a run, and kill them where its shim no longer can (S6 to S8)."""

# Theory of operation
#
# A process tree is not a thing that the kernel knows: processes detach, change session and outlive their
# parents. So there are three means, from best to last. A control group cannot be left without rights, but
# one is writable only as root or by delegation. The subreaper (the shim) inherits every orphan, so descent
# from it is complete while it lives. The cookie in the environment survives the shim's death, but a program
# may clear it. Each misses something that another one catches; a sweep uses all that there are. Without a
# control group the daemon also notes every few seconds who is below the shim: a process that clears its
# environment and then kills the shim is found if it was seen before. Searching
# by process group or session was rejected: any process leaves those with one ``setsid``.
#
# The scans and signals live in ``shim``, which cannot import us. Nothing here signals a process that is not
# pinned by a descriptor and examined again first.

import asyncio
import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.process import shim
from ralphd.process.machine import boot_s

SETTLE_S = 0.01
NO_ONE: Mapping[int, int] = MappingProxyType({})
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_INIT = 1
_PROBE = "ralphd-trial-"
SUBGROUP = "ralphd-daemon"
"""As in the unit: DelegateSubgroup= (systemd 254)."""
REAPED_S = 2.0
_PIDFD_INFO = struct.Struct("=Q52xi")  # struct pidfd_info: its mask and exit code, 64 bytes (linux/pidfd.h)
_PIDFD_GET_INFO, _PIDFD_INFO_EXIT = 0xC000FF0B | _PIDFD_INFO.size << 16, 1 << 3


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process that works in a ralph's directory and belongs to none of its runs."""

    pid: int
    command: str


def start_ticks(pid: int) -> int | None:
    """Return a process's start time in clock ticks since boot; with pid and boot id it is unique (S8)."""
    stat = shim.process_stat(pid)
    return stat[2] if stat else None


def age_s(ticks: int) -> float:
    """Return the age of a process of this boot that started at ``ticks``, by a clock that nobody can set."""
    return max(boot_s() - ticks / _TICKS_PER_S, 0.0)


def moment_of(ticks: int) -> Moment:
    """Return when a process of this boot that started at ``ticks`` did so, by the present wall clock."""
    return time.time() - boot_s() + ticks / _TICKS_PER_S


def is_same(pid: int, ticks: int, boot: str) -> bool:
    """Return True if ``pid`` is still the process that was started at ``ticks`` in the boot ``boot``."""
    return boot == shim.boot_id() and start_ticks(pid) == ticks


async def reported_end(pidfd: int, pid: int) -> int | None:
    """Return how a process that is not our child ended: its exit code, or minus the signal; None if unknown.

    The kernel reports it once its parent has reaped it, from Linux 6.15; until then it is a zombie's.
    """
    until = time.monotonic() + REAPED_S
    while (status := _status_of(pidfd, pid)) is None and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(SETTLE_S)
    return None if status is None else os.waitstatus_to_exitcode(status)


def _status_of(pidfd: int, pid: int) -> int | None:
    stat = shim.process_stat(pid)  # before the question: a zombie that is gone by then has left its answer
    try:
        answer = fcntl.ioctl(pidfd, _PIDFD_GET_INFO, _PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
        if _PIDFD_INFO.unpack(answer)[0] & _PIDFD_INFO_EXIT:
            return int(_PIDFD_INFO.unpack(answer)[1])
        signal.pidfd_send_signal(pidfd, 0)  # the pid is still this process's
    except OSError:
        return None
    return int(stat[4][49]) if stat and stat[0] == "Z" and len(stat[4]) > 49 else None


def ancestors(pid: int) -> list[int]:
    """Return the processes above ``pid``, the nearest first."""
    above: list[int] = []
    while (stat := shim.process_stat(pid)) is not None and (pid := stat[1]):
        above.append(pid)
    return above


def sweep(
    run_id: RunId, cgroup: Path | None, *, limit_s: float, known: Mapping[int, int] = NO_ONE
) -> tuple[dict[int, str], bool]:
    """Kill the tree of a run whose shim is gone; return what was signalled, and whether nothing is left (S6).

    First its control group, if it has one, then all that carry its cookie, those ``known`` as its processes
    (start ticks by pid), and what is below them. Takes ``limit_s`` seconds at most. Call it only for a run
    of this boot.
    """
    deadline = time.monotonic() + limit_s
    swept: dict[int, str] = {}
    is_empty = True
    if cgroup is not None and cgroup.exists():
        is_empty = shim.kill_cgroup(str(cgroup), swept, lambda: None, deadline)
        shim.remove_cgroup(str(cgroup))

    def signal_all(number: int, done: set[int], swept: dict[int, str]) -> bool:
        fresh, alive = shim.signal_carriers(run_id, number, done, swept), _alive(known)
        fresh |= shim.signal_each(alive, number, done, swept, lambda pid, stat: stat[2] == known[pid])
        return fresh

    is_empty &= shim.end_all(
        signal_all, lambda: stays_empty(run_id) and not shim.living(_alive(known)), swept, deadline
    )
    return swept, is_empty


def tree_below(root: int, before: Mapping[int, int]) -> dict[int, int]:
    """Return the start ticks of the processes below ``root``, by pid, and of those ``before`` that live."""
    pids = [*_alive(before), *shim.below(root, 1 << 12)]
    return {pid: stat[2] for pid in pids if (stat := shim.process_stat(pid)) and stat[0] not in "ZX"}


def _alive(known: Mapping[int, int]) -> list[int]:
    return [pid for pid, ticks in known.items() if start_ticks(pid) == ticks]


def stays_empty(carried: str, cookie: str = shim.COOKIE) -> bool:
    """Return True if two scans, SETTLE_S apart, find nobody who carries a cookie.

    One scan is not enough: within execve a process has no environment for a moment.
    """
    if shim.carriers(carried, cookie):
        return False
    time.sleep(SETTLE_S)
    return not shim.carriers(carried, cookie)


def strangers(directory: Path, since: Moment, run_ids: Collection[RunId]) -> list[Stranger]:
    """Return the processes that work inside ``directory``, started after ``since``, outside of ``run_ids``.

    They are reported, never killed (S7): containers, servers of a terminal multiplexer. Excluded are this
    process, the shims and cookie carriers of the runs, all descendants of these, and what a person runs:
    ralphctl, every process with a terminal, and what a program from before ``since`` has started.
    """
    roots = {os.getpid(), *shims(run_ids), *(pid for run_id in run_ids for pid in shim.carriers(run_id))}
    known = roots.union(*map(shim.below, roots))
    return [
        Stranger(pid, shim.command_line(pid))
        for pid in shim.all_pids()
        if pid not in known
        and _works_in(pid, directory)
        and (stat := shim.process_stat(pid)) is not None
        and moment_of(stat[2]) > since
        and not is_a_persons(stat[4], shim.arguments(pid).split(b"\0"))
        and not _is_of_an_older(pid, int(stat[4][3]), since)
    ]


def is_a_persons(stat: Sequence[bytes], arguments: Sequence[bytes]) -> bool:
    """Return True for ralphctl, and for a process with a controlling terminal.

    ``stat`` holds the fields of proc_pid_stat(5) from the third on; the fifth of them is the terminal. Other
    tools are called ralph, too: ours is run by our own interpreter.
    """
    names = {word.rpartition(b"/")[2] for word in arguments[:2]}
    is_alias = b"ralph" in names and arguments[0] == os.fsencode(sys.executable)
    return stat[4] != b"0" or b"ralphctl" in names or is_alias or b"ralphctl" in arguments[2:4]


def _is_of_an_older(pid: int, session: int, since: Moment) -> bool:
    # A run begins with a session of its own, and no process can enter an existing session. An orphan of a run
    # gets init or another reaper as its parent, which is above us, too; no other parent is older. Init is not
    # above one who was put into its PID namespace, as ``docker exec`` does: there, our parent is 0.
    above = {session, *set(ancestors(pid)).difference(ancestors(os.getpid()), [_INIT])}
    return any((ticks := start_ticks(each)) is not None and moment_of(ticks) <= since for each in above)


def shims(run_ids: Collection[RunId]) -> list[int]:
    """Return the processes that have the directory of a run among their arguments: the shims, and tools."""
    wanted = {run_id.encode() for run_id in run_ids}
    return [
        pid
        for pid in shim.all_pids()
        if any(word.rpartition(b"/")[2] in wanted for word in shim.arguments(pid).split(b"\0"))
    ]


def _works_in(pid: int, directory: Path) -> bool:
    with suppress(OSError):  # gone, a kernel thread, or another user's
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(directory)
    return False


@cache
def writable_cgroup() -> Path | None:
    """Return a control group (v2) that takes leaves for our runs; None where there is none (S7).

    It is our own group, as ``/proc/self/mountinfo`` shows it, or the one above if systemd has put us into
    ``SUBGROUP``. Only then are controllers enabled: a group that has them enabled below holds no processes.
    """
    own = _own_cgroup()
    groups = [] if own is None else [own.parent, own] if own.name == SUBGROUP else [own]
    return next(filter(_takes_leaves, groups), None)


@cache
def enabled_controllers() -> frozenset[str] | None:
    """Return the controllers that limit our runs' control groups; None where there are no such groups.

    They are enabled here where we are in a group of our own beside the runs' (``SUBGROUP``).
    """
    if (group := writable_cgroup()) is None:
        return None
    enabled = group / "cgroup.subtree_control"
    for name in ("memory", "pids", "cpu"):
        with suppress(OSError):  # EBUSY: the group holds processes; ENOENT: it has no such controller
            if group != _own_cgroup():
                enabled.write_text(f"+{name}")
    with suppress(OSError):
        return frozenset(enabled.read_text().split())
    return frozenset()


def tree_means() -> str:
    """Return the means by which the tree of a new run will be found: ``cgroup`` or ``subreaper``."""
    return "subreaper" if writable_cgroup() is None else "cgroup"


def _own_cgroup() -> Path | None:
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    mine = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    if mine is None:
        return None
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        root, point = (_unescaped(field) for field in before.split()[3:5])
        if after.split()[0] == "cgroup2" and Path(mine).is_relative_to(root):
            return Path(point) / Path(mine).relative_to(root)
    return None


def _unescaped(field: str) -> str:
    """Return a field of mountinfo, in which white space and backslashes are octal."""
    for code in ("040", "011", "012", "134"):
        field = field.replace(f"\\{code}", chr(int(code, 8)))
    return field


def _takes_leaves(group: Path) -> bool:
    # Only a trial tells: permissions on the directory do not show a read-only mount or a delegation's limits.
    for left in group.glob(f"{_PROBE}*"):  # by a process that was killed within its trial
        pid = left.name.removeprefix(_PROBE)
        if pid.isdigit() and shim.process_stat(int(pid)) is None:
            shim.remove_cgroup(str(left))
    leaf = group / f"{_PROBE}{os.getpid()}"
    try:
        leaf.mkdir(exist_ok=True)  # left by a killed process that had our pid: it serves as well
    except OSError:
        return False
    try:
        # Moving a process needs write permission on the group that it leaves, too.
        return os.access(group / "cgroup.procs", os.W_OK) and os.access(leaf / "cgroup.kill", os.W_OK)
    finally:
        shim.remove_cgroup(str(leaf))
