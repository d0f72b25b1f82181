"""A boundary, its verdict, and the run of the gate that leads from one to the other (R1 to R9).

The orders of a run and their results are data. ``gate/step`` decides, ``daemon/gate`` carries out, and
``store/gate`` keeps the run between the two.
"""

import hashlib
from dataclasses import replace
from enum import StrEnum
from itertools import takewhile
from typing import Final, TypeAlias

from ralphd.core.gate.weakened import UNCHECKED, TestCheck, TestCounts, Weakened
from ralphd.core.supervision.model import ReportedTask, RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

_NO_RUN: Final = RunId("")
LEFT: Final = "refs/ralph/left/"
"""Where refs keep what is taken off a branch or out of the work tree."""
_LABEL_CHARS: Final = 8

# The facts of a boundary: where the repository was and is, and what lies in between (R1, R2, R4, R8).


class Baseline(StrEnum):
    """The result of the tests on the tree before the iteration (R4)."""

    UNKNOWN = "unknown"
    GREEN = "green"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a repository stands: the full sha of HEAD, None before the first commit; its branch."""

    head: str | None
    branch: str | None


class Owner(StrEnum):
    """Who made a commit of the range. ``GATE``: the gate's revert, or a commit that is reverted already."""

    RUN = "run"
    OTHER = "other"
    GATE = "gate"


@dataclass(frozen=True, slots=True)
class JudgedCommit:
    """A commit of the range. ``upstream``: it has been pushed.

    ``pulled``: it came by fetch or pull, or from another branch, or it is a merge that brings such commits.
    ``by_run``: a git in the environment of a run made it; None: unknown, or not made in this work tree.
    ``reverts`` is the commit that its message says it reverts. ``owner`` follows (``range.attributed``).
    """

    sha: str
    subject: str = ""
    pulled: bool = False
    upstream: bool = False
    by_run: bool | None = None
    reverts: str = ""
    owner: Owner = Owner.RUN


@dataclass(frozen=True, slots=True)
class Change:
    """A commit. ``patch`` is its patch-id, empty for a merge; equal patch-ids are the same change.

    ``reverts`` is the commit that its message says it reverts. Where it is not asked for, a field is empty.
    """

    sha: str
    tree: str = ""
    patch: str = ""
    subject: str = ""
    parents: tuple[str, ...] = ()
    reverts: str = ""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The facts of a boundary (R1, R2).

    ``before`` is where HEAD was after our own pull, ``now`` where it is. ``descends``: the one is an ancestor
    of the other. ``commits`` are those of the range along its first parents, newest first: a merge is one of
    them, what it merged is not. ``trouble`` is what is half done in the repository, in words (R8).
    ``dirty`` are tracked files with uncommitted changes. ``rewritten``: it does not descend only because
    commits that no run made were amended or rebased, and not by a run.
    """

    before: Position
    now: Position
    descends: bool = True
    commits: tuple[JudgedCommit, ...] = ()
    trouble: str = ""
    dirty: tuple[str, ...] = ()
    rewritten: bool = False

    @property
    def doubt(self) -> str:
        """Why nothing of this range may be reverted, in words (R2); empty: it may."""
        if self.before.head is None:
            return "the iteration made the repository's first commit"
        if not self.descends:
            began = f"{self.before.head[:7]}, where the iteration began"
            return f"HEAD does not lead back to {began} (amend, rebase, reset, merge)"
        if self.before.branch != self.now.branch:
            was, now = self.before.branch or "none", self.now.branch or "none"
            return f"the branch is another: it was {was}, now it is {now}"
        return ""

    @property
    def can_go_back(self) -> bool:
        """Whether the branch may return to ``before``: the range has commits that are pulled, and no revert
        may touch; none of it is pushed, or made here by somebody else."""
        is_free = not any(each.upstream or each.owner is Owner.OTHER for each in self.commits)
        is_there = self.before.head is not None and self.before.branch == self.now.branch
        return is_there and is_free and any(each.pulled for each in self.commits)


class Result(StrEnum):
    """The result of one run of the tests. A command that cannot be run is not a red test (R3).

    ``ENDED``: somebody else ended the tests, or nobody saw how they ended.
    """

    GREEN = "green"
    RED = "red"
    TIMED_OUT = "timed_out"
    ENDED = "ended"
    CANNOT_RUN = "cannot_run"


class VerdictKind(StrEnum):
    """What becomes of the commits."""

    KEPT = "kept"
    REVERTED = "reverted"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """``[regent]``. ``minimal``: commits are reverted one by one until the tests pass, else all at once.

    ``protect_tests``: ``report``, ``revert`` or ``off``; ``protect`` are the patterns of the test files,
    and the scripts of ``test_command`` are test files, too.
    """

    test_retries: int = 1
    minimal: bool = True
    protect_tests: str = "off"
    protect: tuple[str, ...] = ()
    test_command: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a gate run: decided by ``step``, completed by ``finished``, kept as the last verdict.

    ``pauses``: a person is called, and nothing continues before they act. ``calls``: a person is called, and
    the work continues. ``is_open``: the commits are judged again with those of the next iteration.

    ``number`` and ``task`` are those of the iteration. ``commits`` and ``reverted`` are full shas, newest
    first; ``refs`` keep what was reverted. ``tests`` and ``tests_s`` are the results and durations of the
    test runs, ``tail`` the end of what the red ones printed. ``boundary_id`` stays the same when a later
    daemon announces the verdict again. ``weakened`` is what became of the tests themselves (A9).
    """

    kind: VerdictKind
    why: str
    baseline: Baseline = Baseline.UNKNOWN
    pauses: bool = False
    calls: bool = False
    is_open: bool = False
    weakened: Weakened = Weakened.NOT
    boundary_id: str = ""
    run_id: RunId = _NO_RUN
    number: int | None = None
    task: ReportedTask | None = None
    commits: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    tests_s: tuple[float, ...] = ()
    refs: tuple[str, ...] = ()
    tail: str = ""
    at: Moment = 0.0


@dataclass(frozen=True, slots=True)
class RunTests:
    """Run the tests in place."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Snapshot the uncommitted changes, and take them out of the work tree."""


@dataclass(frozen=True, slots=True)
class ShowOld:
    """Save the test files that the range changed, and put their earlier versions into the work tree (A9).

    The scripts of ``command`` are shown as they were when the ralph was started.
    """

    patterns: tuple[str, ...]
    command: str = ""


@dataclass(frozen=True, slots=True)
class PutBack:
    """Restore what was set aside."""


@dataclass(frozen=True, slots=True)
class Revert:
    """Revert these, newest first, one commit each; uncommitted changes stay, or it is refused (R5)."""

    commits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Take our reverts back: HEAD returns to ``head`` (R6). Where the range began, it leaves the range."""

    head: str


@dataclass(frozen=True, slots=True)
class Push:
    """Push the reverts, never forced: a reverted commit is in the upstream (R7)."""


@dataclass(frozen=True, slots=True)
class Say:
    """The run is decided."""

    verdict: Verdict


GateOrder: TypeAlias = RunTests | SetAside | ShowOld | PutBack | Revert | Restore | Push | Say


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of the tests has ended."""

    result: Result


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """An order was carried out; HEAD is at ``head``, a full sha. ``note`` is for the verdict."""

    head: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """The earlier versions of test files are in the work tree; ``gone`` were deleted or emptied since.

    ``hiding``: see ``TestCheck``.
    """

    changed: tuple[str, ...]
    gone: tuple[str, ...]
    hiding: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """An order was not carried out, and the repository is as before. ``why`` in words."""

    why: str


@dataclass(frozen=True, slots=True)
class Moved:
    """HEAD or files changed under the run: somebody else works here."""

    why: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The tests were cut off: everything is to end now."""

    why: str


GateEvent: TypeAlias = Ran | CarriedOut | Shown | Refused | Moved | Cut


@dataclass(frozen=True, slots=True)
class TestRun:
    """One run of the tests: its result and duration. ``is_old``: with earlier versions of test files."""

    __test__ = False

    run_id: RunId
    result: Result
    took_s: float
    is_old: bool = False

    @property
    def word(self) -> str:
        return f"{self.result.value}_with_earlier_tests" if self.is_old else self.result.value


@dataclass(frozen=True, slots=True)
class GateRun:
    """A boundary being judged: the order under way, and the results so far.

    ``head`` is where HEAD has to be. ``runs`` are the results of the tests on the present tree; with
    ``is_aside`` the uncommitted changes are out of it, and ``alone`` is the result without them.
    ``reverted`` are the commits reverted so far, newest first. ``planned`` becomes the verdict when the
    order under way is done.

    ``stale``: why the facts no longer hold; the worker reads them again once HEAD has been still
    (``retaken``), and ``retakes`` counts that. ``confirmed``: the tests failed on the present commits in
    every run (1), without uncommitted changes too (2); a retake need not repeat that. ``excused`` is the
    newest commit of somebody else at which the tests failed without the run's commits too. ``note`` is added
    to the verdict's reason.

    ``boundary_id``, ``run_id``, ``number`` and ``task`` name the boundary and its iteration. ``tests`` are
    all runs of the tests, ``tail`` is the end of what the last red one printed.
    """

    boundary: Boundary
    baseline: Baseline
    head: str | None
    order: GateOrder
    runs: tuple[Result, ...] = ()
    is_aside: bool = False
    alone: Result | None = None
    reverted: tuple[str, ...] = ()
    planned: Verdict | None = None
    boundary_id: str = ""
    run_id: RunId = _NO_RUN
    number: int | None = None
    task: ReportedTask | None = None
    tests: tuple[TestRun, ...] = ()
    tail: str = ""
    retakes: int = 0
    stale: str = ""
    confirmed: int = 0
    excused: str = ""
    note: str = ""
    check: TestCheck = UNCHECKED

    @property
    def left(self) -> tuple[JudgedCommit, ...]:
        """The commits that may be reverted: those of the run alone, on top of what is pulled."""
        above = takewhile(lambda each: not each.pulled, self.boundary.commits)
        return tuple(each for each in above if each.owner is Owner.RUN and each.sha not in self.reverted)

    @property
    def theirs(self) -> tuple[str, ...]:
        """The commits that the run did not make, newest first, and its merges of them."""
        return tuple(each.sha for each in self.boundary.commits if each.pulled or each.owner is Owner.OTHER)

    @property
    def is_back(self) -> bool:
        """Whether the branch has returned to where the range began."""
        return self.head == self.boundary.before.head

    @property
    def is_stale(self) -> bool:
        """Whether the facts have to be read again before the next order."""
        return bool(self.stale) and not self.is_aside and self.verdict is None

    @property
    def verdict(self) -> Verdict | None:
        return self.order.verdict if isinstance(self.order, Say) else None

    def tested(self, ran: TestRun, tail: str, counts: TestCounts | None = None) -> "GateRun":
        """Add a run of the tests; the output of a green one is not kept, but for its ``counts``."""
        kept = self.tail if ran.result is Result.GREEN else tail
        is_old = self.check.is_shown
        check = self.check if is_old else replace(self.check, after=counts)
        return replace(self, tests=(*self.tests, replace(ran, is_old=is_old)), tail=kept, check=check)

    def moved(self, at: Position) -> "Moved | None":
        """Return what to report where HEAD is not where this run has left it."""
        if at.head == self.head and at.branch == self.boundary.now.branch:
            return None
        was, is_ = (self.head or "nothing")[:7], (at.head or "nothing")[:7]
        return Moved(f"HEAD was at {was} of {self.boundary.now.branch}, and is at {is_} of {at.branch}")

    def finished(self, at: Moment, refs: tuple[str, ...]) -> Verdict:
        """Return the whole verdict. ``refs`` are those that keep reverted commits."""
        assert self.verdict is not None
        everything = tuple(commit.sha for commit in self.boundary.commits)
        own = {each.sha for each in self.boundary.commits if each.owner is Owner.RUN} | {*self.reverted}
        commits = tuple(sha for sha in everything if sha in own) or everything
        tests, tests_s = tuple(ran.word for ran in self.tests), tuple(ran.took_s for ran in self.tests)
        refs = refs if self.reverted else ()
        verdict = replace(self.verdict, boundary_id=self.boundary_id, run_id=self.run_id, number=self.number)
        verdict = replace(verdict, task=self.task, commits=commits, reverted=self.reverted, refs=refs)
        return replace(verdict, tests=tests, tests_s=tests_s, tail=self.tail, at=at)


def short(shas: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commits abbreviated, for people."""
    return tuple(sha[:7] for sha in shas)


def label_of(ralph: str, run_id: str, boundary_id: str) -> str:
    """Return the name of a gate run's refs: the ralph, the run, and a digest of the report's id."""
    if boundary_id == run_id:
        return f"{ralph}/{run_id}"
    return f"{ralph}/{run_id}-{hashlib.sha256(boundary_id.encode()).hexdigest()[:_LABEL_CHARS]}"
