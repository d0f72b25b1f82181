"""Worktrees of ralphs: names, ports, disk, what may be removed, who does which task (W1, W3, W4, W6).

Several ralphs on one repository must neither share files nor do a task twice, and no worktree may be removed
that holds work which is nowhere else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from ralphd.core.limits import size_text
from ralphd.core.plan import Plan, TaskStatus
from ralphd.core.text import first_names
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

PORTS: Final = 100
PORTS_VARIABLE: Final = "RALPH_PORT_BASE"
"""How many ports a worktree has, and where the first one is found."""
_FIRST_PORT, _LAST_PORT = 20_000, 32_700
"""Below the ports that Linux gives to outgoing connections."""
QUEUE_PORT: Final = 14_000
"""The first port of landing queues, which are below those of worktrees."""
MOST_TREES: Final = 32
"""How many worktrees one start makes."""
MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree of ralphd (``trees/NAME.json``), with the name of its ralph.

    ``repository`` is the git directory that all worktrees share, ``source`` the work tree that this one was
    made from, ``target`` the branch there, ``start`` the commit at which ``branch`` begins. ``has_branch``:
    the branch was there before. ``tasks`` are the only ones that its ralph does; empty: all. ``shares``: each
    task is done by one of the ralphs that share the list. ``inside`` is the ralph's directory in it.

    ``stage``: ``making`` until git is done, ``preparing`` until ``setup`` is done. ``setup_run`` is the run
    of ``setup``; ``starts``: the ralph starts when the worktree is ready.
    """

    name: str
    path: str
    repository: str
    source: str
    branch: str
    start: str
    made_at: Moment
    port_base: int
    target: str = ""
    inside: str = ""
    has_branch: bool = False
    tasks: tuple[str, ...] = ()
    shares: bool = False
    stage: Literal["making", "preparing", "ready"] = "making"
    setup_run: str = ""
    starts: bool = False

    @property
    def reason(self) -> str:
        """The reason of git's lock, which keeps other tools from removing the worktree (W2)."""
        return f"ralphd: {self.name}"


Worktrees: TypeAlias = Mapping[str, Worktree]


@dataclass(frozen=True, slots=True)
class WorktreeFacts:
    """What git and the disk know of a worktree.

    ``dirty`` are files that are not committed and not ignored; ``doing`` is a rebase or merge that is not
    finished. ``unlanded`` counts commits that no other branch and no remote has; ``ahead`` and ``behind``
    are relative to the target. ``head`` and ``tip`` are the commits of HEAD and of the branch.
    """

    is_there: bool
    size_bytes: int = 0
    dirty: tuple[str, ...] = ()
    doing: str = ""
    ahead: int = 0
    behind: int = 0
    unlanded: int = 0
    head: str = ""
    tip: str = ""


def names_of(name: str, count: int) -> tuple[str, ...]:
    """Return the names of ``count`` worktrees: NAME, or NAME-1 to NAME-4 (W1)."""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(1, count + 1))


def folder_of(repository_name: str, repository: str, digest: str, known: Iterable[Worktree]) -> str:
    """Return the folder of a repository's worktrees: its name, with a digest if another one has that (W1)."""
    others = {tree.path.split("/")[-2] for tree in known if tree.repository != repository}
    return f"{repository_name}-{digest}" if repository_name in others else repository_name


def port_bases(known: Iterable[int], *, first: int = _FIRST_PORT, end: int = _LAST_PORT) -> Iterator[int]:
    """Yield the port bases that are not among ``known`` (W3)."""
    taken = {*known}
    return (base for base in range(first, end, PORTS) if base not in taken)


def why_kept(facts: WorktreeFacts, *, for_good: bool = False) -> tuple[str, ...]:
    """Return what would be lost with a worktree; empty where it may be removed (W4).

    ``for_good``: its commits and files are saved under a ref; only what is half done stands in the way.
    """
    lost = []
    if facts.doing:
        lost.append(facts.doing)
    if facts.dirty and not for_good:
        lost.append(f"not committed: {first_names(list(facts.dirty), MOST_NAMED)}")
    if facts.unlanded and not for_good:
        plural = "s" * (facts.unlanded > 1)
        lost.append(f"{facts.unlanded} commit{plural} that no other branch and no remote has")
    return tuple(lost)


def over_limit(facts: Mapping[str, WorktreeFacts], most_bytes: int, resting: Collection[str]) -> str:
    """Return why no further worktree is made, with those that may go; empty where there is room (W6).

    ``resting`` are the worktrees without a living ralph.
    """
    used = sum(each.size_bytes for each in facts.values())
    if not 0 < most_bytes <= used:
        return ""
    clean = [name for name, each in facts.items() if name in resting and not why_kept(each)]
    names = first_names(clean, MOST_NAMED) if clean else "none"
    text = f"{used / (1 << 30):.1f} GiB of {size_text(most_bytes)} are used ([worktree] max_total_bytes)"
    return f"{text}; landed and clean: {names}"


# Claims: which ralph does which task of a list that several share (W1).


@dataclass(frozen=True, slots=True)
class Claim:
    """Which ralph does a task. ``done``: it is ticked in that ralph's list."""

    ralph: str
    done: bool = False


Claims: TypeAlias = Mapping[str, Claim]
"""By task id."""


def claimed(claims: Claims, plan: Plan, ralph: str, failed: Collection[str] = ()) -> tuple[Claims, Plan]:
    """Claim the next open task for a ralph that has none; return the claims, and the list as it sees it (W1).

    Open tasks that are not its own are ``elsewhere``. A ralph whose tasks have all ``failed`` claims another
    one and keeps them. Claims of tasks that are not in this copy of the list stay: other copies have them.
    """
    after = dict(claims)
    for task in plan.tasks:
        if task.id in after and after[task.id].ralph == ralph:
            after[task.id] = Claim(ralph, task.status is TaskStatus.DONE)
    own = [task.id for task in plan.open if task.id in after and after[task.id].ralph == ralph]
    if all(each in failed for each in own):
        free = next((task.id for task in plan.open if not task.elsewhere and task.id not in after), None)
        if free is not None:
            after[free] = Claim(ralph)
    return after, only(plan, [id_ for id_, claim in after.items() if claim.ralph == ralph])


def only(plan: Plan, ids: Collection[str]) -> Plan:
    """Return the list with every open task that is not in ``ids`` marked ``elsewhere``."""
    others = {task.id for task in plan.open} - {*ids}
    tasks = (replace(each, elsewhere=True) if each.id in others else each for each in plan.tasks)
    return replace(plan, tasks=tuple(tasks))


def released(claims: Claims, ralph: str, *, landed: bool = False) -> Claims:
    """Return the claims without those of a ralph that is removed; what it did and ``landed`` stays done."""
    return {id_: each for id_, each in claims.items() if each.ralph != ralph or (landed and each.done)}
