"""What becomes of an iteration's commits: kept, reverted, or left untested with the reason (R1 to R9).

``begin`` takes the facts of a boundary, ``step`` the result of each order. A run holds the order under way
and is saved before it is carried out; each can be carried out twice, so a daemon that dies leaves nothing
half done. Nothing outside the iteration's own range is reverted, and nothing where the range is in doubt.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from ralphd.core.gate.test_counts import TestCounts
from ralphd.core.gate.weakened import UNCHECKED, TestCheck, Weakened, weakened, weakened_text
from ralphd.core.supervision.model import ReportedTask, RunId
from ralphd.core.time import Moment

_NO_RUN: Final = RunId("")
MOST_RETAKES: Final = 3
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
    """A commit of the range. ``pulled``: by fetch or pull. ``upstream``: it has been pushed.

    ``by_run``: a git in the environment of a run made it; None: unknown. ``reverts`` is the commit that its
    message says it reverts. ``owner`` follows from these (``range.attributed``).
    """

    sha: str
    subject: str = ""
    pulled: bool = False
    upstream: bool = False
    by_run: bool | None = None
    reverts: str = ""
    owner: Owner = Owner.RUN


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
        if pulled := [each.sha[:7] for each in self.commits if each.pulled and each.owner is Owner.RUN]:
            return f"commits in it came by fetch or pull: {', '.join(pulled[:3])}"
        return ""


class Result(StrEnum):
    """The result of one run of the tests. A command that cannot be run is not a red test (R3).

    ``ENDED``: somebody else ended the tests, or nobody saw how they ended.
    """

    GREEN = "green"
    RED = "red"
    TIMED_OUT = "timed_out"
    ENDED = "ended"
    CANNOT_RUN = "cannot_run"


_NO_ANSWER: Final = (Result.TIMED_OUT, Result.ENDED)


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
    """Take our reverts back: HEAD returns to ``head`` (R6)."""

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
        """The commits that may be reverted: those of the run alone."""
        commits = self.boundary.commits
        return tuple(each for each in commits if each.owner is Owner.RUN and each.sha not in self.reverted)

    @property
    def theirs(self) -> tuple[str, ...]:
        """The commits that the run did not make, newest first."""
        return tuple(each.sha for each in self.boundary.commits if each.owner is Owner.OTHER)

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
        own = {commit.sha for commit in self.left} | set(self.reverted)
        return replace(
            self.verdict,
            boundary_id=self.boundary_id,
            run_id=self.run_id,
            number=self.number,
            task=self.task,
            commits=tuple(sha for sha in everything if sha in own) or everything,
            reverted=self.reverted,
            tests=tuple(ran.word for ran in self.tests),
            tests_s=tuple(ran.took_s for ran in self.tests),
            refs=refs if self.reverted else (),
            tail=self.tail,
            at=at,
        )


def begin(boundary: Boundary, baseline: Baseline, **about: Any) -> GateRun:
    """Return the run for a boundary, with its first order; ``about`` are more fields of it."""
    return _opened(GateRun(boundary, baseline, boundary.now.head, RunTests(), **about))


def _opened(run: GateRun) -> GateRun:
    if run.boundary.before == run.boundary.now:
        return _say(run, Verdict(VerdictKind.KEPT, "there is no new commit", run.baseline))
    return _in_the_way(run, run.boundary.trouble) if run.boundary.trouble else run


def retaken(run: GateRun, boundary: Boundary, reverts: Mapping[str, str]) -> GateRun:
    """Judge again from the same start. ``reverts``: what this run's reverts reverted, by their shas."""
    present = reversed([commit.sha for commit in boundary.commits])
    again = replace(
        run,
        boundary=boundary,
        head=boundary.now.head,
        order=RunTests(),
        runs=(),
        alone=None,
        reverted=tuple(reverts[sha] for sha in present if sha in reverts),
        retakes=run.retakes + 1,
        stale="",
        check=run.check.again(),
    )
    return _opened(again)


def step(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    """Answer the result of the order under way. A result of another order changes nothing."""
    match run.order, event:
        case Say(), _:
            return run
        case RunTests(), Ran(result=result):
            return _tests_ended(run, result, policy)
        case RunTests(), Cut(why=why):
            # Everything stays as it was, without a pause: the next boundary judges the commits.
            verdict = Verdict(VerdictKind.UNTESTED, why, run.baseline, is_open=True)
            put_back = replace(run, order=PutBack(), planned=verdict)
            return put_back if run.is_aside else _restore(run, verdict)
        case _, Moved(why=why):
            # HEAD stays where it is; only the set-aside changes are brought back.
            if run.retakes == MOST_RETAKES:
                return _give_up(run, why)
            return replace(run, order=PutBack() if run.is_aside else RunTests(), planned=None, stale=why)
        case SetAside(), CarriedOut():
            return replace(run, order=RunTests(), runs=(), is_aside=True)
        case ShowOld(), Shown(changed=changed, gone=gone, hiding=hiding):
            check = replace(run.check, changed=changed, gone=gone, hiding=hiding, is_shown=bool(changed))
            if not changed:
                return _green(replace(run, check=check.done()), policy)
            return replace(run, order=RunTests(), is_aside=True, check=check)
        case ShowOld(), Ran():  # no test file differs
            return _green(replace(run, check=run.check.done()), policy)
        case ShowOld(), Refused(why=why):
            check = replace(run.check, is_shown=True, unknown=why)  # some of them may be there
            return replace(run, order=PutBack(), check=check)
        case PutBack(), CarriedOut(note=note):
            return _put_back(replace(run, note=note or run.note), policy)
        case Revert(commits=commits), CarriedOut(head=head):
            reverted = (*run.reverted, *commits)
            run = replace(run, runs=(), alone=None, confirmed=0, check=run.check.again())
            return replace(run, order=RunTests(), reverted=reverted, head=head)
        case Restore(), CarriedOut(head=head):
            return _say(replace(run, reverted=(), head=head), run.planned)
        case Push(), CarriedOut():
            return _say(run, run.planned)
        case _, Refused(why=why):
            return _refused(run, why)
        case _:
            return run


def _tests_ended(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    """R3: red counts only if every run is red; one without an answer is repeated once, and proves nothing."""
    if run.check.is_shown:
        return _old_tests_ended(run, result, policy)
    run = replace(run, runs=(*run.runs, result))
    at_first = not run.reverted
    if result is Result.RED and at_first and (run.baseline is not Baseline.GREEN or _is_excused(run)):
        return _tree_is(run, Result.RED, policy)  # nothing can follow from it (R4)
    unanswered = any(each in _NO_ANSWER for each in run.runs)
    retries = 0 if run.retakes and run.confirmed else policy.test_retries
    again = len(run.runs) <= max(retries, unanswered)
    if again and result in (Result.RED, *_NO_ANSWER):
        return replace(run, order=RunTests())
    if result is Result.RED:
        result = next((each for each in run.runs if each in _NO_ANSWER), result)
    if result is Result.RED:
        run = replace(run, confirmed=2 if run.is_aside or run.confirmed == 2 else 1)
    if run.is_aside:
        return replace(run, order=PutBack(), alone=result)
    if result is Result.RED and run.boundary.dirty and run.confirmed == 1:
        return replace(run, order=SetAside())
    return _tree_is(run, result, policy)


def _old_tests_ended(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    check = replace(run.check, tries=run.check.tries + 1, is_red=result is Result.RED)
    again = check.is_red and check.tries <= policy.test_retries
    return replace(run, order=RunTests() if again else PutBack(), check=check)


def _put_back(run: GateRun, policy: GatePolicy) -> GateRun:
    run = replace(run, is_aside=False)
    if run.stale and run.planned is None:
        return replace(run, order=RunTests(), check=run.check.again())
    if run.check.is_shown:
        run = replace(run, check=run.check.done())
        if run.planned is None:
            return _green(run, policy)
    if run.planned is not None or run.alone is None:
        return _say(run, run.planned)
    if run.alone is Result.GREEN and not run.reverted:
        why = f"the tests pass without what is not committed: {_names(run.boundary.dirty)}"
        return _say(run, Verdict(VerdictKind.UNTESTED, f"dirty: {why}", Baseline.GREEN))
    return _tree_is(run, run.alone, policy)


def _tree_is(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    match result:
        case Result.GREEN:
            return _green(run, policy)
        case Result.RED:
            return _red(run, policy)
        case Result.TIMED_OUT:
            return _unknown(run, "the tests did not end in time, twice")
        case Result.ENDED:
            return _unknown(run, "the tests were ended by somebody else, twice: by hand, or for memory")
        case Result.CANNOT_RUN:
            return _unknown(run, "the tests cannot be run: test_command is not found or not executable")


def _green(run: GateRun, policy: GatePolicy) -> GateRun:
    check = run.check
    if policy.protect_tests != "off" and run.baseline is Baseline.GREEN and not check.is_done:
        return replace(run, order=ShowOld(policy.protect, policy.test_command))
    kind, text = weakened(check), weakened_text(check)
    if kind and policy.protect_tests == "revert":
        return _red(replace(run, check=replace(check, blamed=text)), policy)
    if not run.reverted:
        why = "the tests pass" + (", at a second run" if len(run.runs) > 1 else "")
        why += f", but {text}" if text else ""
        verdict = Verdict(VerdictKind.KEPT, why, Baseline.GREEN, weakened=kind)
        return _say(replace(run, excused=""), verdict)
    count = len(run.reverted)
    why = f"the tests failed, and pass without {'it' if count == 1 else f'these {count} commits'}"
    if check.blamed:
        why, kind = check.blamed, kind or Weakened.CHANGED
    verdict = Verdict(VerdictKind.REVERTED, why, Baseline.GREEN, weakened=kind)
    if any(commit.upstream for commit in run.boundary.commits if commit.sha in run.reverted):
        return replace(run, order=Push(), planned=verdict)
    return _say(run, verdict)


def _red(run: GateRun, policy: GatePolicy) -> GateRun:
    fails = run.check.blamed or "the tests fail"
    if not run.reverted:
        if run.baseline is not Baseline.GREEN:
            why = "the tests failed, and were not green before: nothing is blamed on these commits"
            return _say(run, Verdict(VerdictKind.UNTESTED, why, Baseline.RED))
        if doubt := run.boundary.doubt:
            why = f"{fails}, and nothing is reverted: {doubt}"
            return _say(run, Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True))
        if _is_excused(run):
            return _say(run, _not_ours(run))
    if left := tuple(commit.sha for commit in run.left):
        return replace(run, order=Revert(left[:1] if policy.minimal else left))
    if run.theirs:
        return _restore(replace(run, excused=run.theirs[0]), _not_ours(run))
    why = f"{fails} without these commits too, which are not to blame: they are back"
    return _restore(run, Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True))


def _is_excused(run: GateRun) -> bool:
    """Whether it is known that the tests fail without the run's commits, and nobody else committed since."""
    return bool(run.excused) and run.theirs[:1] == (run.excused,)


def _not_ours(run: GateRun) -> Verdict:
    """Report a red commit that the run did not make; the range stays open until the tests pass again."""
    theirs = _names(short(run.theirs))
    why = f"the tests fail without the commits of this run too; it did not make {theirs}: look there first"
    return Verdict(VerdictKind.UNTESTED, why, run.baseline, calls=True, is_open=True)


def _give_up(run: GateRun, why: str) -> GateRun:
    """Leave the range open: the next verdict covers it, with what was made meanwhile."""
    kind = VerdictKind.REVERTED if run.reverted else VerdictKind.UNTESTED
    times = f"the repository changed {MOST_RETAKES + 1} times during the tests"
    why = f"{times}; these commits are judged with the next iteration's: {why}"
    verdict = Verdict(kind, why, run.baseline, is_open=True)
    return replace(run, order=PutBack(), planned=verdict) if run.is_aside else _say(run, verdict)


def _unknown(run: GateRun, why: str) -> GateRun:
    """The tests say nothing: revert nothing, call a person."""
    return _restore(run, Verdict(VerdictKind.UNTESTED, why, run.baseline, calls=True))


def _restore(run: GateRun, verdict: Verdict) -> GateRun:
    head = run.boundary.now.head
    if not run.reverted or head is None:
        return _say(run, verdict)
    return replace(run, order=Restore(head), planned=verdict)


def _refused(run: GateRun, why: str) -> GateRun:
    match run.order:
        case Push():
            assert run.planned is not None
            verdict = replace(run.planned, why=f"{run.planned.why}; {why}", calls=True)
            return _say(run, verdict)
        case Revert():
            said = f"the tests fail, and it cannot be reverted: {why}"
            return _restore(run, _paused(said))
        case Restore():
            return _say(run, _paused(f"the reverts are still there, and cannot be taken back: {why}"))
        case SetAside():
            said = f"the tests fail, and could not be tried without what is not committed: {why}"
            return _say(run, _paused(said))
        case _:
            return _in_the_way(replace(run, is_aside=False), why)


def _in_the_way(run: GateRun, why: str) -> GateRun:
    """Pause; the range is judged once the obstacle is gone, against the same baseline."""
    verdict = replace(_paused(why), baseline=run.baseline, is_open=True)
    return replace(run, order=PutBack(), planned=verdict) if run.is_aside else _say(run, verdict)


def _paused(why: str) -> Verdict:
    return Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True)


def _say(run: GateRun, verdict: Verdict | None) -> GateRun:
    assert verdict is not None
    why = f"{verdict.why}; {run.note}" if run.note else verdict.why
    return replace(run, order=Say(replace(verdict, why=why)), planned=None)


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def short(shas: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commits abbreviated, for people."""
    return tuple(sha[:7] for sha in shas)


def label_of(ralph: str, run_id: str, boundary_id: str) -> str:
    """Return the name of a gate run's refs: the ralph, the run, and a digest of the report's id."""
    if boundary_id == run_id:
        return f"{ralph}/{run_id}"
    return f"{ralph}/{run_id}-{hashlib.sha256(boundary_id.encode()).hexdigest()[:_LABEL_CHARS]}"
