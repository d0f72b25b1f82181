"""What the machines of a fleet know of each other, as plain data: hosts, items, leases, accounts, wants.

NATS keeps these values and decides who should try; git decides who may write (docs/decisions/0040). Each
value has a version, so that a host takes only what it knows.
"""

from dataclasses import field
from enum import StrEnum
from typing import Final, NewType

from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

HostName = NewType("HostName", str)
ItemId = NewType("ItemId", str)

VERSION: Final = 1
MOST_VALUE_BYTES: Final = 64 << 10
LEASE_S: Final = 60.0
"""A lease without a new revision for this time, by the watcher's own clock, is suspect."""
TAKEOVER_WAIT_S: Final = 180.0
"""The lease ref must not move for this time before a takeover."""
OFFLINE_PUSH_S: Final = 60.0
PRESENCE_S: Final = 15.0
MOST_TRIES: Final = 3
GOALS: Final = ("running", "paused", "stopped")
WANTS: Final = ("stop", "pause", "resume")
LIMIT_STATES: Final = ("open", "limited", "probing")


class ItemState(StrEnum):
    """``held``: a person decides. ``landing``: its ralph is done, and its branch is to land on the base."""

    OPEN = "open"
    CLAIMED = "claimed"
    WORKING = "working"
    LANDING = "landing"
    DONE = "done"
    FAILED = "failed"
    HELD = "held"


class LeaseForm(StrEnum):
    """What a remote takes as a lease: a blob, only a commit, or only a commit as a branch."""

    BLOB = "blob"
    COMMIT = "commit"
    BRANCH = "branch"

    @property
    def prefix(self) -> str:
        """How the full names of the fleet's refs begin."""
        return "refs/heads/ralph-" if self is LeaseForm.BRANCH else "refs/ralph/"


ENDED: Final = (ItemState.DONE, ItemState.FAILED)
HAS_HOLDER: Final = (ItemState.CLAIMED, ItemState.WORKING, ItemState.LANDING)


@dataclass(frozen=True, slots=True)
class Login:
    """An agent that a host can start, and its account. ``limited_until``: its limit, as the host knows it."""

    agent: str
    account: str = ""
    limited_until: Moment | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    """Why a host that fits an item could not begin with it."""

    item: ItemId
    why: str


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host as it describes itself, every PRESENCE_S. ``boot`` changes when its daemon's machine restarts.

    ``allow_repos`` are globs on normalized URLs. ``at`` is its own clock, for people only.
    """

    name: HostName
    boot: str
    version: str
    labels: tuple[str, ...] = ()
    logins: tuple[Login, ...] = ()
    allow_repos: tuple[str, ...] = ()
    slots: int = 0
    used: int = 0
    cpus: int = 0
    memory_free_bytes: int = 0
    disk_free_bytes: int = 0
    draining: bool = False
    clones: tuple[str, ...] = ()
    """Ids of the repositories that it has cloned."""
    ralphs: tuple[str, ...] = ()
    declines: tuple[Decline, ...] = ()
    at: Moment = 0.0
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class Need:
    """What a host must have for an item. ``agents``: a login of one of them; empty: of any."""

    labels: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    cpus: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ItemFlags:
    """The closed list of what a submitter may set; 0 and empty: as the repository says."""

    max_cost_usd: float = 0.0
    max_iterations: int = 0
    timeout_s: float = 0.0
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LastTry:
    """How the last host ended with an item, and the last commit that it pushed."""

    host: HostName
    why: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of work: a repository, and the branch on which a ralph works on it.

    ``branch`` and ``base`` are names of branches. ``token`` is that of the holder's lease. ``tried`` are the
    hosts that had it. ``goal`` is ``running``, ``paused`` or ``stopped``.
    """

    id: ItemId
    repo: str
    base: str
    branch: str
    goal: str = "running"
    state: ItemState = ItemState.OPEN
    holder: HostName | None = None
    token: int = 0
    priority: int = 0
    not_before: Moment | None = None
    need: Need = field(default_factory=Need)
    prefer: tuple[HostName, ...] = ()
    flags: ItemFlags = field(default_factory=ItemFlags)
    form: LeaseForm = LeaseForm.BLOB
    """Of the leases on its remote, as found at the submit."""
    tries: int = 0
    max_tries: int = MOST_TRIES
    tried: tuple[HostName, ...] = ()
    last: LastTry | None = None
    why: str = ""
    """Why it is held or failed, or does not land yet."""
    finished: str = ""
    """The commit at which its ralph was done, if its branch is to land or has landed."""
    by: str = ""
    at: Moment = 0.0
    ended_at: Moment | None = None
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has a branch: the value in NATS, and the blob under ``refs/ralph/lease/BRANCH``.

    ``host`` is empty when it is released. ``n`` counts the changes of the blob, so that each is a new one.
    """

    host: HostName
    boot: str
    token: int
    n: int = 0
    item: ItemId | None = None
    pushed: str = ""
    at: Moment = 0.0
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class AccountLimit:
    """The quota clock of an account in the whole fleet: ``open``, ``limited`` or ``probing`` (Q2, Q3)."""

    agent: str
    account: str
    state: str = "open"
    until: Moment | None = None
    window: str = ""
    by: HostName | None = None
    probed_at: Moment | None = None
    guessed: bool = False
    brief: bool = False
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class Want:
    """What a person wants of a ralph on another host: ``stop``, ``pause`` or ``resume``."""

    id: str
    want: str
    by: str
    at: Moment = 0.0
    v: int = VERSION
