"""What becomes of an iteration's commits: kept, reverted, or left untested with the reason (R1 to R9).

``begin`` takes the facts of a boundary, ``step`` the result of each order. A judgement holds the order under
way and is written down before it is carried out; each can be carried out twice, so a daemon that dies leaves
nothing half done. Nothing outside of the iteration's own range is ever reverted, and nothing at all
where the range is in doubt or the tests were not green before.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

# The facts of a boundary: where the repository was and is, and what lies in between (R1, R2, R4, R8).


class Baseline(StrEnum):
    """What the tests said of the tree before the iteration: the last verdict (R4)."""

    UNKNOWN = "unknown"
    GREEN = "green"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a repository stands: the full sha of HEAD, None before the first commit; its branch."""

    head: str | None
    branch: str | None


@dataclass(frozen=True, slots=True)
class JudgedCommit:
    """A commit of the range. ``pulled``: it came by fetch or pull. ``upstream``: it is in the upstream."""

    sha: str
    subject: str = ""
    pulled: bool = False
    upstream: bool = False


@dataclass(frozen=True, slots=True)
class Boundary:
    """The facts of a boundary (R1, R2).

    ``before`` is where HEAD was after our own pull, ``now`` where it is. ``descends``: the one is an ancestor
    of the other. ``commits`` are those of the range along its first parents, newest first: a merge is one of
    them, what it merged is not. ``trouble`` says what is half done in the repository, in words (R8).
    ``dirty`` are tracked files that are not committed.
    """

    before: Position
    now: Position
    descends: bool = True
    commits: tuple[JudgedCommit, ...] = ()
    trouble: str = ""
    dirty: tuple[str, ...] = ()

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
        if pulled := [commit.sha[:7] for commit in self.commits if commit.pulled]:
            return f"commits in it came by fetch or pull: {', '.join(pulled[:3])}"
        return ""


class Result(StrEnum):
    """What one run of the tests came to. A command that cannot be run is no red test (R3).

    ``ENDED``: somebody else ended the tests, or nobody saw how they ended.
    """

    GREEN = "green"
    RED = "red"
    TIMED_OUT = "timed_out"
    ENDED = "ended"
    CANNOT_RUN = "cannot_run"


_NO_ANSWER = (Result.TIMED_OUT, Result.ENDED)


class VerdictKind(StrEnum):
    """What the Regent says of an iteration's commits."""

    KEPT = "kept"
    REVERTED = "reverted"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """``[regent]``. ``minimal``: commits are reverted one by one until the tests pass, else all at once."""

    test_retries: int = 1
    minimal: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of a boundary, and what the tests are known to say now.

    ``pauses``: nothing goes on before a person has looked, and they are called. ``calls``: they are called,
    and the work goes on. ``is_open``: the commits are to be judged with those of the next iteration.
    """

    kind: VerdictKind
    why: str
    baseline: Baseline
    pauses: bool = False
    calls: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class RunTests:
    """Run the tests in place."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Keep what is not committed in a snapshot, and take it out of the work tree."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """Bring back what was set aside."""


@dataclass(frozen=True, slots=True)
class Revert:
    """Revert these, newest first, a commit each; what is not committed stays, or it is refused (R5)."""

    commits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restore:
    """Take our own reverts back: HEAD is to be at ``head`` again (R6)."""

    head: str


@dataclass(frozen=True, slots=True)
class Push:
    """Push the reverts, never forced: a reverted commit is in the upstream (R7)."""


@dataclass(frozen=True, slots=True)
class Say:
    """The judgement is over."""

    verdict: Verdict


JudgeOrder: TypeAlias = RunTests | SetAside | PutBack | Revert | Restore | Push | Say


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of the tests is over."""

    result: Result


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """An order was carried out. ``head`` is where HEAD is now, full sha."""

    head: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An order was not carried out; the repository is as it was before it. ``why`` in words."""

    why: str


@dataclass(frozen=True, slots=True)
class Moved:
    """HEAD is not where it was left: somebody else works here."""

    why: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The tests are not to go on: everything is to end now."""

    why: str


JudgeEvent: TypeAlias = Ran | CarriedOut | Refused | Moved | Cut


@dataclass(frozen=True, slots=True)
class Judgement:
    """A boundary being judged: the order under way, and what was found and done so far.

    ``head`` is where HEAD has to be. ``runs`` are the runs of the tests at the present tree; with
    ``is_aside`` what is not committed is out of it. ``alone`` is what the tests said without it.
    ``reverted`` are the commits that are reverted by now, newest first. ``planned`` is said when what is
    still under way is done.
    """

    boundary: Boundary
    baseline: Baseline
    head: str | None
    order: JudgeOrder
    runs: tuple[Result, ...] = ()
    is_aside: bool = False
    alone: Result | None = None
    reverted: tuple[str, ...] = ()
    planned: Verdict | None = None

    @property
    def left(self) -> tuple[JudgedCommit, ...]:
        """The commits of the range that are not reverted, newest first."""
        return tuple(commit for commit in self.boundary.commits if commit.sha not in self.reverted)

    @property
    def verdict(self) -> Verdict | None:
        """What is said, once it is over."""
        return self.order.verdict if isinstance(self.order, Say) else None


def begin(boundary: Boundary, baseline: Baseline) -> Judgement:
    """The judgement of a boundary, with its first order."""
    judgement = Judgement(boundary, baseline, boundary.now.head, RunTests())
    if boundary.before.head == boundary.now.head and boundary.before.branch == boundary.now.branch:
        return _say(judgement, Verdict(VerdictKind.KEPT, "there is no new commit", baseline))
    if boundary.trouble:
        return _in_the_way(judgement, boundary.trouble)
    return judgement


def step(judgement: Judgement, event: JudgeEvent, policy: GatePolicy) -> Judgement:
    """Answer the result of the order under way. What is no answer to it changes nothing."""
    match judgement.order, event:
        case Say(), _:
            return judgement
        case RunTests(), Ran(result=result):
            return _tests_ended(judgement, result, policy)
        case RunTests(), Cut(why=why):
            return _cut(judgement, why)
        case _, Moved(why=why):
            return _moved(judgement, why)
        case SetAside(), CarriedOut():
            return replace(judgement, order=RunTests(), runs=(), is_aside=True)
        case PutBack(), CarriedOut():
            return _put_back(judgement, policy)
        case Revert(commits=commits), CarriedOut(head=head):
            reverted = (*judgement.reverted, *commits)
            return replace(judgement, order=RunTests(), runs=(), alone=None, reverted=reverted, head=head)
        case Restore(), CarriedOut(head=head):
            return _say(replace(judgement, reverted=(), head=head), judgement.planned)
        case Push(), CarriedOut():
            return _say(judgement, judgement.planned)
        case _, Refused(why=why):
            return _refused(judgement, why)
        case _:
            return judgement


def _tests_ended(judgement: Judgement, result: Result, policy: GatePolicy) -> Judgement:
    """R3: red counts when each run is red; one without an answer is made once more, and proves nothing."""
    judgement = replace(judgement, runs=(*judgement.runs, result))
    at_first = not judgement.reverted
    if result is Result.RED and at_first and judgement.baseline is not Baseline.GREEN:
        return _tree_is(judgement, Result.RED, policy)  # nothing can follow from it (R4)
    again = len(judgement.runs) <= _most_retries(judgement, policy)
    if again and result in (Result.RED, *_NO_ANSWER):
        return replace(judgement, order=RunTests())
    if result is Result.RED:
        result = next((each for each in judgement.runs if each in _NO_ANSWER), result)
    if judgement.is_aside:
        return replace(judgement, order=PutBack(), alone=result)
    if result is Result.RED and judgement.boundary.dirty:
        return replace(judgement, order=SetAside())
    return _tree_is(judgement, result, policy)


def _most_retries(judgement: Judgement, policy: GatePolicy) -> int:
    unanswered = any(each in _NO_ANSWER for each in judgement.runs)
    return max(policy.test_retries, 1) if unanswered else policy.test_retries


def _put_back(judgement: Judgement, policy: GatePolicy) -> Judgement:
    judgement = replace(judgement, is_aside=False)
    if judgement.planned is not None or judgement.alone is None:
        return _say(judgement, judgement.planned)
    if judgement.alone is Result.GREEN and not judgement.reverted:
        why = f"the tests pass without what is not committed: {_names(judgement.boundary.dirty)}"
        return _say(judgement, Verdict(VerdictKind.UNTESTED, f"dirty: {why}", Baseline.GREEN))
    return _tree_is(judgement, judgement.alone, policy)


def _tree_is(judgement: Judgement, result: Result, policy: GatePolicy) -> Judgement:
    """What follows from what the tests say of the present tree."""
    match result:
        case Result.GREEN:
            return _green(judgement)
        case Result.RED:
            return _red(judgement, policy)
        case Result.TIMED_OUT:
            return _unknown(judgement, "the tests did not end in time, twice")
        case Result.ENDED:
            return _unknown(judgement, "the tests were ended by somebody else, twice: by hand, or for memory")
        case Result.CANNOT_RUN:
            return _unknown(judgement, "the tests cannot be run: test_command is not found or not executable")


def _green(judgement: Judgement) -> Judgement:
    if not judgement.reverted:
        why = "the tests pass" + (", at a second run" if len(judgement.runs) > 1 else "")
        return _say(judgement, Verdict(VerdictKind.KEPT, why, Baseline.GREEN))
    count = len(judgement.reverted)
    why = f"the tests failed, and pass without {'it' if count == 1 else f'these {count} commits'}"
    verdict = Verdict(VerdictKind.REVERTED, why, Baseline.GREEN)
    if any(commit.upstream for commit in judgement.boundary.commits if commit.sha in judgement.reverted):
        return replace(judgement, order=Push(), planned=verdict)
    return _say(judgement, verdict)


def _red(judgement: Judgement, policy: GatePolicy) -> Judgement:
    if not judgement.reverted:
        if judgement.baseline is not Baseline.GREEN:
            why = "the tests failed, and were not green before: nothing is blamed on these commits"
            return _say(judgement, Verdict(VerdictKind.UNTESTED, why, Baseline.RED))
        if doubt := judgement.boundary.doubt:
            why = f"the tests fail, and nothing is reverted: {doubt}"
            return _say(judgement, Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True))
    if left := tuple(commit.sha for commit in judgement.left):
        return replace(judgement, order=Revert(left[:1] if policy.minimal else left))
    why = "the tests fail without these commits too, which are not to blame: they are back"
    return _restore(judgement, Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True))


def _unknown(judgement: Judgement, why: str) -> Judgement:
    """The tests say nothing: nothing is reverted for that, and a person is told."""
    return _restore(judgement, Verdict(VerdictKind.UNTESTED, why, judgement.baseline, calls=True))


def _restore(judgement: Judgement, verdict: Verdict) -> Judgement:
    head = judgement.boundary.now.head
    if not judgement.reverted or head is None:
        return _say(judgement, verdict)
    return replace(judgement, order=Restore(head), planned=verdict)


def _refused(judgement: Judgement, why: str) -> Judgement:
    match judgement.order:
        case Push():
            assert judgement.planned is not None
            verdict = replace(judgement.planned, why=f"{judgement.planned.why}; {why}", calls=True)
            return _say(judgement, verdict)
        case Revert():
            said = f"the tests fail, and it cannot be reverted: {why}"
            return _restore(judgement, _paused(said))
        case Restore():
            return _say(judgement, _paused(f"the reverts are still there, and cannot be taken back: {why}"))
        case SetAside():
            said = f"the tests fail, and could not be tried without what is not committed: {why}"
            return _say(judgement, _paused(said))
        case _:
            return _in_the_way(replace(judgement, is_aside=False), why)


def _moved(judgement: Judgement, why: str) -> Judgement:
    """Whoever moved HEAD goes on from there; only what is theirs and set aside is brought back."""
    made = "; reverts that were made are there" if judgement.reverted else ""
    return _in_the_way(judgement, f"somebody else works here while it is judged: {why}{made}")


def _cut(judgement: Judgement, why: str) -> Judgement:
    """As it was, without a pause: the commits are judged at the next boundary."""
    verdict = Verdict(VerdictKind.UNTESTED, why, judgement.baseline, is_open=True)
    if judgement.is_aside:
        return replace(judgement, order=PutBack(), planned=verdict)
    return _restore(judgement, verdict)


def _in_the_way(judgement: Judgement, why: str) -> Judgement:
    verdict = _paused(why)
    if judgement.is_aside:
        return replace(judgement, order=PutBack(), planned=verdict)
    return _say(judgement, verdict)


def _paused(why: str) -> Verdict:
    return Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True)


def _say(judgement: Judgement, verdict: Verdict | None) -> Judgement:
    assert verdict is not None
    return replace(judgement, order=Say(verdict), planned=None)


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
