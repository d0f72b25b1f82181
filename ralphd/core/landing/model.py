"""The landing queue of one repository as plain data: candidates, and the batch under way (M1, M2).

A batch goes from merging over testing to moving. What it does is saved before it is done, and every act can
be repeated, so a daemon that dies at any line lands a candidate once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from ralphd.core.gate.verdict import Result
from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment

MOST_IN_A_BATCH: Final = 16
MOST_OPEN: Final = 200
MOST_ENDED: Final = 100
"""How many ended candidates the queue keeps, for ``queue`` and ``land --undo``."""


class Standing(StrEnum):
    """Where a candidate stands. ``waiting``: a person has to ask for it (M2)."""

    QUEUED = "queued"
    WAITING = "waiting"
    LANDED = "landed"
    REFUSED = "refused"


class Doing(StrEnum):
    """What a batch does now. ``baseline``: the tests run without it, since they failed with it (R4)."""

    MERGING = "merging"
    TESTING = "testing"
    BASELINE = "baseline"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class LandingCandidate:
    """A commit that is to land. ``branch`` is a full ref, ``ralph`` is whose it is.

    ``commit`` is what the target got for it. ``undoes`` is the commit of an earlier landing that this one
    reverts (M6). ``tries`` counts how often the branch was refused for its content (M4). ``is_told``: its
    end was published, and its ralph got a task.
    """

    id: int
    ralph: str
    branch: str
    head: str
    queued_at: Moment
    standing: Standing = Standing.QUEUED
    why: str = ""
    tail: str = ""
    tries: int = 0
    commit: str = ""
    undoes: str = ""
    ended_at: Moment | None = None
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class Merged:
    """A candidate of a batch, and the commit that was made for it on top of the one before."""

    id: int
    commit: str


@dataclass(frozen=True, slots=True)
class LandingBatch:
    """The candidates ``ids``, worked on together (M5).

    ``tip`` is the target when they were merged, ``base`` what they are merged onto: the tip, or what has
    landed and waits for the target's checkout. ``merged`` are those without a conflict, in order.
    """

    ids: tuple[int, ...]
    doing: Doing = Doing.MERGING
    tip: str = ""
    base: str = ""
    merged: tuple[Merged, ...] = ()
    runs: tuple[Result, ...] = ()
    test_run: RunId | None = None
    tail: str = ""

    @property
    def commit(self) -> str:
        """What is tested now."""
        return self.base if self.doing is Doing.BASELINE or not self.merged else self.merged[-1].commit


@dataclass(frozen=True, slots=True)
class Target:
    """The branch that everything lands on. With ``url`` it is the remote's, which is called ``remote``."""

    branch: str
    remote: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class LandingQueue:
    """``queue.json``. ``repository`` is the common git directory, ``work_tree`` one of its work trees.

    ``pinned`` is the configuration of the target's tip when the queue began. ``suspects`` are known to be
    red together. ``green`` is the last commit that passed the tests. ``blocked`` says why nothing lands, and
    ``blocked_at`` of which tip that is true.
    """

    repository: str
    work_tree: str
    target: Target
    pinned: Mapping[str, Any] = field(default_factory=dict)
    last_id: int = 0
    candidates: tuple[LandingCandidate, ...] = ()
    batch: LandingBatch | None = None
    suspects: tuple[int, ...] = ()
    green: str = ""
    blocked: str = ""
    blocked_at: str = ""
    retry_at: Moment | None = None

    def candidate(self, id: int) -> LandingCandidate:
        """Return a candidate by its number. Raises StopIteration for an unknown one."""
        return next(each for each in self.candidates if each.id == id)

    def standing(self, standing: Standing) -> tuple[LandingCandidate, ...]:
        """Return the candidates that stand so, in the order of the queue."""
        return tuple(each for each in self.candidates if each.standing is standing)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to land: the next candidate renews the pinned configuration."""
        return self.batch is None and not self.standing(Standing.QUEUED)

    def with_candidate(self, changed: LandingCandidate) -> "LandingQueue":
        every = tuple(changed if each.id == changed.id else each for each in self.candidates)
        return replace(self, candidates=every)


@dataclass(frozen=True, slots=True)
class LandingPolicy:
    """The rules of one queue, from its pinned configuration."""

    test_retries: int = 1
    max_tries: int = 3


# Facts: what came of the step under way.


@dataclass(frozen=True, slots=True)
class MergeDone:
    """The batch was merged onto ``base``. ``conflicts``: why a candidate cannot land; ``present``: it has.

    What is in neither conflicts only with another candidate of the batch, and stays in the queue.
    """

    tip: str
    base: str
    merged: tuple[Merged, ...]
    conflicts: Mapping[int, str] = field(default_factory=dict)
    present: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchTested:
    """The tests of the batch's commit ended."""

    result: Result
    tail: str = ""


@dataclass(frozen=True, slots=True)
class TargetMoved:
    """The target has the batch's commit. ``note``: the person's checkout waits for it (M3)."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class TargetTaken:
    """Somebody else moved the target: merge and test again (M3)."""


@dataclass(frozen=True, slots=True)
class Hindered:
    """The step could not be done, and no candidate is to blame. ``retry_after_s``: it may be done later."""

    why: str
    retry_after_s: float | None = None


LandingFact = MergeDone | BatchTested | TargetMoved | TargetTaken | Hindered
