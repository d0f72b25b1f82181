"""The facts, orders and states of a lease: of its holder (lease.py), and of who watches it (takeover.py).

Each order has exactly one answer, in any order; an answer that is late is ``…-silent``. Times are monotonic
seconds of this host.
"""

from enum import StrEnum
from typing import Final, TypeAlias

from ralphd.core.fleet.model import LEASE_S, OFFLINE_PUSH_S, TAKEOVER_WAIT_S, HostName, Lease
from ralphd.dataclass import dataclass

NOBODY: Final = HostName("")


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """``[fleet]``, in seconds. ``max_offline_s``: pause after so long without NATS; 0: never."""

    lease_s: float = LEASE_S
    takeover_wait_s: float = TAKEOVER_WAIT_S
    offline_push_s: float = OFFLINE_PUSH_S
    max_offline_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed, at least every few seconds. ``boottime_s`` includes sleep, as CLOCK_BOOTTIME does."""

    connected_since: float | None
    boottime_s: float = 0.0


@dataclass(frozen=True, slots=True)
class KeySeen:
    """The key in NATS; ``revision`` is 0 where there is none."""

    lease: Lease | None
    revision: int


@dataclass(frozen=True, slots=True)
class KeyWritten:
    """NATS acknowledged WriteKey."""

    revision: int


@dataclass(frozen=True, slots=True)
class RefSeen:
    """The lease ref: the id of its blob, empty where there is none. ``lease``: None if it cannot be read.

    ``tip`` is the branch in the same answer, empty where there is none.
    """

    sha: str
    lease: Lease | None
    tip: str = ""


@dataclass(frozen=True, slots=True)
class RefMoved:
    """The remote acknowledged MoveRef. ``sha`` is the new blob."""

    sha: str


@dataclass(frozen=True, slots=True)
class PushWanted:
    """A commit to push, a descendant of the last one that was.

    ``last`` is where the branch is now, if others move it too: people may push to a target of landings.
    """

    commit: str
    last: str = ""


class LeaseNews(StrEnum):
    """Facts without data. ``…_silent``: no answer in time, so the change may have been applied."""

    KEY_REFUSED = "key-refused"
    HUB_SILENT = "hub-silent"
    REF_REFUSED = "ref-refused"
    GIT_SILENT = "git-silent"
    RELEASE_WANTED = "release-wanted"
    TAKE_NOW = "take-now"


@dataclass(frozen=True, slots=True)
class WriteKey:
    """Write the lease to NATS over this revision; 0: create the key."""

    lease: Lease
    revision: int


@dataclass(frozen=True, slots=True)
class MoveRef:
    """Push a blob with the lease to its ref if the ref has ``expected``; empty: is absent.

    With ``commit``, the same atomic push moves the branch to it, if it is at ``last`` (empty: absent). That
    ``last`` is an ancestor no push checks, so the caller does first; where it is not: ref-refused, no push.
    """

    lease: Lease
    expected: str
    commit: str = ""
    last: str = ""


class LeaseOrder(StrEnum):
    """Orders without data. ``fence``: stop the ralph, and save its work aside. ``hold``: a person decides."""

    READ_KEY = "read-key"
    READ_REF = "read-ref"
    PAUSE = "pause"
    RESUME = "resume"
    HOLD_ITEM = "hold-item"
    FENCE = "fence"
    ASK_HOST = "ask-host"
    REPORT_SILENT = "report-silent"


@dataclass(frozen=True, slots=True)
class HostAnswered:
    """Whether the asked host holds the lease, in its own words; None: it did not answer."""

    holds: bool | None


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Claim the lease over what both witnesses show: this revision of the key, and this blob."""

    key: KeySeen
    ref: RefSeen


LeaseFact: TypeAlias = (
    Tick | KeySeen | KeyWritten | RefSeen | RefMoved | PushWanted | HostAnswered | LeaseNews
)


class Stage(StrEnum):
    """``lost``: a claim that came to nothing. The last three are final."""

    CLAIMING = "claiming"
    HOLDING = "holding"
    RELEASING = "releasing"
    RELEASED = "released"
    LOST = "lost"
    FENCED = "fenced"


class Link(StrEnum):
    """``busy``: an order has no answer yet. ``unsure``: the last one had none, so read first."""

    IDLE = "idle"
    BUSY = "busy"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class LeaseHold:
    """A lease that this host claims or holds.

    ``lease`` and ``sha`` are the ref's while it is ours; during a claim, the new lease and the blob that it
    replaces. ``moving`` is what MoveRef pushes, and ``commit`` waits to be pushed; ``last`` as in PushWanted.
    """

    lease: Lease
    sha: str
    revision: int
    renewed_at: float
    key_at: float
    ref_at: float
    moved_at: float
    boottime_s: float
    stage: Stage = Stage.CLAIMING
    key: Link = Link.IDLE
    ref: Link = Link.IDLE
    moving: Lease | None = None
    n: int = 0
    commit: str = ""
    last: str = ""
    is_refused: bool = False
    is_contested: bool = False
    """NATS names another host: the ref has to move before the key is ours again."""
    is_gone: bool = False
    """Somebody deleted the ref; it is set again if NATS names this host."""
    must_check: bool = False
    has_slept: bool = False
    """The machine, or the daemon, slept for longer than a lease, and the ref was not checked since."""
    is_unchecked: bool = False
    is_offline: bool = False
    """The hub was away for longer than ``max_offline_s``."""
    owes_key: bool = False

    @property
    def is_active(self) -> bool:
        """Whether this host may hold the ref: the answer to another that asks."""
        return self.stage in (Stage.CLAIMING, Stage.HOLDING, Stage.RELEASING)

    @property
    def is_paused(self) -> bool:
        """Whether the ralph has to rest: its work may be another's by now."""
        return self.is_offline or (self.is_unchecked and self.has_slept)

    @property
    def may_attempt(self) -> bool:
        """Whether an agent may start now: its work can land, as far as is known."""
        return self.stage is Stage.HOLDING and not (self.must_check or self.is_paused or self.is_gone)


Orders: TypeAlias = tuple[WriteKey | MoveRef | TakeLease | LeaseOrder, ...]
LeaseStep: TypeAlias = tuple[LeaseHold, Orders]
