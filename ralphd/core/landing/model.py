"""The landing queue of one repository as plain data: candidates, and the batch under way (M1, M2).

A batch goes from merging over testing to moving. What it does is saved before it is done, and every act can
be repeated, so a daemon that dies at any line lands a candidate once.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final

from ralphd.core.gate.verdict import Result
from ralphd.core.gate.weakened import UNCHECKED, TestCheck, TestCounts
from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

MOST_IN_A_BATCH: Final = 16
MOST_OPEN: Final = 200
MOST_ENDED: Final = 100
"""How many ended candidates the queue keeps, for ``queue`` and ``land --undo``."""


class Standing(StrEnum):
    """Where a candidate stands. ``waiting``: a person has to ask for it (M2)."""

    QUEUED = "queued"
    WAITING = "waiting"
    LANDED = "landed"
    PUSHED = "pushed"
    REFUSED = "refused"


class Doing(StrEnum):
    """What a batch does now.

    ``checking``: the tests are green, and run once more in their earlier version where it changed them (A9).
    ``baseline``: they run on the target alone, since something is to be blamed on the batch (R4).
    """

    MERGING = "merging"
    TESTING = "testing"
    CHECKING = "checking"
    BASELINE = "baseline"
    MOVING = "moving"
    PUSHING = "pushing"


@dataclass(frozen=True, slots=True)
class LandingCandidate:
    """A commit that is to land. ``branch`` is a full ref, ``ralph`` is whose it is.

    ``commit`` is what the target got for it. ``undoes`` is the commit of an earlier landing that this one
    reverts (M6). ``tries`` counts how often the branch was refused for its content (M4). ``is_told``: its
    end was published; ``has_task``: its ralph got a task about it. ``is_auto``: no person asked for it.
    ``publishes``: the branch is only pushed, for a pull request (M1). ``note`` is what its tests showed,
    although they passed. ``refused_at`` is what it was merged onto when it conflicted last. ``copies``: if it
    landed by rebase, its commits, oldest first, each with its copy on the target. ``inside`` is where its
    ralph works in the repository: the configuration is read there. ``is_again``: it reverts a revert.
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
    is_auto: bool = False
    note: str = ""
    has_task: bool = False
    publishes: bool = False
    refused_at: str = ""
    copies: tuple[tuple[str, str], ...] = ()
    inside: str = "."
    is_again: bool = False

    @property
    def undone(self) -> tuple[str, ...]:
        """What it reverts, newest first: the commit ``undoes``, or all copies of a rebased branch."""
        copies = tuple(copy for _, copy in reversed(self.copies))
        return (copies or (self.undoes,)) if self.undoes else ()

    @property
    def name(self) -> str:
        """The branch, for people."""
        return self.branch.removeprefix("refs/heads/")


@dataclass(frozen=True, slots=True)
class Merged:
    """A candidate of a batch, and the commit that was made for it on top of the one before.

    ``copies``: as in ``LandingCandidate``.
    """

    id: int
    commit: str
    copies: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LandingBatch:
    """The candidates ``ids``, worked on together (M5).

    ``tip`` is the target when they were merged, ``base`` what they are merged onto: the tip, or what has
    landed and waits for the target's checkout. ``merged`` are those without a conflict, in order. ``fault``
    says what was red, ``note`` what is to be reported of green tests.
    """

    ids: tuple[int, ...]
    doing: Doing = Doing.MERGING
    tip: str = ""
    base: str = ""
    merged: tuple[Merged, ...] = ()
    runs: tuple[Result, ...] = ()
    setup_run: RunId | None = None
    test_run: RunId | None = None
    tail: str = ""
    fault: str = "the tests fail"
    note: str = ""
    check: TestCheck = UNCHECKED

    @property
    def commit(self) -> str:
        """What is tested now."""
        return self.base if self.doing is Doing.BASELINE or not self.merged else self.merged[-1].commit


@dataclass(frozen=True, slots=True)
class Target:
    """The branch that everything lands on. With ``url`` it is the remote's, which is called ``remote``.

    ``is_shared``: the machines of a fleet land on it, in turn, and git refuses what has not its lease.
    """

    branch: str
    remote: str = ""
    url: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class LandingQueue:
    """``queue.json``. ``repository`` is the common git directory, ``work_tree`` one of its work trees.

    ``pinned`` is the configuration at the target's tip ``pinned_at``. ``suspects`` are known to be
    red together. ``green`` is the last commit that passed the tests. ``blocked`` says why nothing lands, and
    ``blocked_at`` of which tip that is true. ``counts`` are the tests that ran at the green commit
    ``counts_at``.

    ``tree`` is its own work tree, empty in the layout of earlier versions; setup runs at ``inside`` in it.
    ``is_spoiled``: a setup there has not succeeded, so that its ignored files prove nothing. ``left`` is what
    it has put on ``ralph/landed`` (M3).
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
    counts: TestCounts | None = None
    counts_at: str = ""
    tree: str = ""
    inside: str = ""
    port_base: int = 0
    is_spoiled: bool = False
    pinned_at: str = ""
    left: str = ""

    def candidate(self, id: int) -> LandingCandidate:
        """Return a candidate by its number. Raises StopIteration for an unknown one."""
        return next(each for each in self.candidates if each.id == id)

    def standing(self, standing: Standing) -> tuple[LandingCandidate, ...]:
        """Return the candidates that stand so, in the order of the queue."""
        return tuple(each for each in self.candidates if each.standing is standing)

    def copied(self, branch: str) -> tuple[tuple[str, str], ...] | None:
        """Return the heads that landed by rebase, of any branch, each with its last copy.

        None: this branch was pushed, so somebody may have its commits (M2).
        """
        if any(each.publishes and each.branch == branch for each in self.candidates):
            return None
        return tuple((each.head, each.commit) for each in self.candidates if each.copies and not each.undoes)

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
    protect_tests: str = "off"


# Facts: what came of the step under way.


@dataclass(frozen=True, slots=True)
class MergeDone:
    """The batch was merged onto ``base``. ``conflicts``: why a candidate cannot land; ``present``: it has.
    ``resolved`` conflict with what landed since their last conflict, which they have resolved. ``waits``: why
    a candidate that nobody asked for needs a person.

    What is in neither conflicts only with another candidate of the batch, and stays in the queue.
    """

    tip: str
    base: str
    merged: tuple[Merged, ...]
    conflicts: Mapping[int, str] = field(default_factory=dict)
    present: tuple[int, ...] = ()
    resolved: tuple[int, ...] = ()
    waits: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchTested:
    """The tests of the batch's commit ended. ``fault`` says why they did not begin."""

    result: Result
    tail: str = ""
    fault: str = ""
    counts: TestCounts | None = None


@dataclass(frozen=True, slots=True)
class TargetMoved:
    """The target has the batch's commit. ``note``: the person's checkout waits for it (M3)."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class TargetTaken:
    """Somebody else moved the target: merge and test again (M3)."""


@dataclass(frozen=True, slots=True)
class BranchPushed:
    """The remote has the branch (M1), unless it was ``rejected``: then that is why."""

    rejected: str = ""


@dataclass(frozen=True, slots=True)
class Hindered:
    """The step could not be done, and no candidate is to blame. ``retry_after_s``: it may be done later."""

    why: str
    retry_after_s: float | None = None


LandingFact = MergeDone | BatchTested | TargetMoved | TargetTaken | BranchPushed | Hindered
