"""Find what belongs to a run, and end it where its shim no longer can (S6 to S8).

What a shim needs of this lives in ``shim`` and is used from there. Nothing here signals a process that is not
pinned by a descriptor and looked at again first.
"""

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.process import shim
from ralphd.process.shim import boot_id, children, command_line

__all__ = [
    "Stranger",
    "boot_id",
    "carriers",
    "command_line",
    "descendants",
    "is_same",
    "start_ticks",
    "stays_empty",
    "strangers",
    "sweep",
    "tree_means",
    "unescaped",
    "writable_cgroup",
]

SETTLE_S = 0.01
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process that works in a ralph's directory and belongs to none of its runs."""

    pid: int
    command: str


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot: with pid and boot id, who it is (S8)."""
    stat = shim.process_stat(pid)
    return stat[2] if stat else None


def age_s(ticks: int) -> float:
    """How long ago a process of this boot was started, at ``ticks``; no clock that can be set tells it."""
    return max(boot_s() - ticks / _TICKS_PER_S, 0.0)


def moment_of(ticks: int) -> Moment:
    """When a process of this boot was started, at ``ticks``, as the wall clock tells it now."""
    return time.time() - boot_s() + ticks / _TICKS_PER_S


def boot_s() -> float:
    """Seconds since the boot, sleep included: the clock by which the kernel tells starts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def is_same(pid: int, ticks: int, boot: str) -> bool:
    """Whether ``pid`` is still the process that was started at ``ticks`` in the boot ``boot``."""
    return boot == boot_id() and start_ticks(pid) == ticks


def descendants(pid: int) -> list[int]:
    """All processes below ``pid``, as they are seen while walking down; zombies are among them."""
    found: list[int] = []
    queue = [pid]
    while queue:
        below = [child for child in children(queue.pop()) if child not in found]
        found += below
        queue += below
    return found


def carriers(run_id: RunId) -> list[int]:
    """The living processes that carry the run's cookie in their environment (S7)."""
    return shim.carriers(run_id)


def sweep(run_id: RunId, cgroup: Path | None, *, limit_s: float) -> tuple[dict[int, str], bool]:
    """End the tree of a run whose shim is gone: what was signalled, and whether nothing is left (S6).

    Its control group first, when it has one, then all that carries its cookie and what is below them.
    Takes ``limit_s`` seconds at most. To be called only for a run of this boot.
    """
    deadline = time.monotonic() + limit_s
    swept: dict[int, str] = {}
    gone = True
    if cgroup is not None and cgroup.exists():
        gone = shim.kill_cgroup(str(cgroup), swept, lambda: None, deadline)
        shim.remove_cgroup(str(cgroup))
    gone &= shim.end_all(
        lambda *how: shim.signal_carriers(run_id, *how), lambda: stays_empty(run_id), swept, deadline
    )
    return swept, gone


def stays_empty(carried: str, cookie: str = shim.COOKIE) -> bool:
    """Whether nobody carries a cookie: two scans, SETTLE_S apart.

    A process that is being executed shows no environment for a moment.
    """
    if shim.carriers(carried, cookie):
        return False
    time.sleep(SETTLE_S)
    return not shim.carriers(carried, cookie)


def strangers(directory: Path, since: Moment, run_ids: Collection[RunId]) -> list[Stranger]:
    """The processes that work inside ``directory``, started after ``since``, and are in none of ``run_ids``.

    Reported, never killed (S7): a container, a terminal multiplexer, the user's own shell. This process and
    its descendants are no strangers, and neither is what those runs' shims and cookies stand for.
    """
    roots = {os.getpid(), *_shims(run_ids), *(pid for run_id in run_ids for pid in carriers(run_id))}
    known = roots.union(*map(descendants, roots))
    return [
        Stranger(pid, command_line(pid))
        for pid in shim.all_pids()
        if pid not in known and _works_in(pid, directory) and _started_at(pid) > since
    ]


def _shims(run_ids: Collection[RunId]) -> list[int]:
    """The shims of these runs, our children or not: each has the run's directory among its arguments."""
    wanted = {run_id.encode() for run_id in run_ids}
    return [pid for pid in shim.all_pids() if wanted & _last_names(pid)]


def _last_names(pid: int) -> set[bytes]:
    try:
        arguments = shim.read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return set()
    return {argument.rpartition(b"/")[2] for argument in arguments}


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(directory)
    except OSError:  # gone, a kernel thread, or another user's
        return False


def _started_at(pid: int) -> Moment:
    ticks = start_ticks(pid)
    return 0.0 if ticks is None else moment_of(ticks)


@cache
def writable_cgroup() -> Path | None:
    """A control group (v2) in which we can make leaves for our runs; None where there is none (S7).

    It is our own, found through ``/proc/self/mountinfo``; its ``subtree_control`` is never written.
    """
    own = _own_cgroup()
    return own if own is not None and _takes_leaves(own) else None


def tree_means() -> str:
    """By which means the tree of a new run will be found: ``cgroup`` or ``subreaper``."""
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
        root, point = (unescaped(field) for field in before.split()[3:5])
        if after.split()[0] == "cgroup2" and Path(mine).is_relative_to(root):
            return Path(point) / Path(mine).relative_to(root)
    return None


_TRIAL = "ralphd-trial-"


def unescaped(field: str) -> str:
    """A field of mountinfo, in which white space and backslashes are octal."""
    for code in ("040", "011", "012", "134"):
        field = field.replace(f"\\{code}", chr(int(code, 8)))
    return field


def _takes_leaves(group: Path) -> bool:
    leaf = group / f"{_TRIAL}{os.getpid()}"
    for left in group.glob(f"{_TRIAL}*"):  # by a process that was killed while it tried
        pid = left.name.removeprefix(_TRIAL)
        if pid.isdigit() and shim.process_stat(int(pid)) is None:
            shim.remove_cgroup(str(left))
    try:
        leaf.mkdir(exist_ok=True)  # one of a killed process that had our pid serves as well
    except OSError:
        return False
    try:
        # who moves a process has to be allowed to write where it comes from, too
        return os.access(group / "cgroup.procs", os.W_OK) and os.access(leaf / "cgroup.kill", os.W_OK)
    finally:
        shim.remove_cgroup(str(leaf))
