"""Which commits the gate judges: where a range opens, where it ends, and whose commits it holds (R1, R2, R4).

A range begins where HEAD was before an iteration and ends at its boundary. It stays open where a run ended
without one, or where somebody else changed the branch during the tests: the next verdict covers its commits
too. Commits that a run made are recognized by a mark (``git/facts``); all others stay. Where the mark was
never seen, every commit counts as the run's, and a range is dropped where HEAD moved while nothing ran.
"""

from collections.abc import Container
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from ralphd.core.gate import verdict as gate
from ralphd.core.gate.verdict import Baseline, Owner, Position, Result, Verdict, VerdictKind
from ralphd.core.gate.verdict_views import GateNews, heard
from ralphd.core.gate.weakened import TestCounts
from ralphd.core.supervision.model import RunId
from ralphd.core.text import short_sha
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

_MOST_UNDONE: Final = 50


@dataclass(frozen=True, slots=True)
class GateState:
    """What a gate knows, as ``gate.json`` keeps it.

    ``before`` is where the range begins. ``is_open``: there may be commits since then without a verdict.
    ``left`` is where HEAD was when the last run ended. ``test_run`` is the run of the tests under way,
    ``judging`` the gate run. ``since`` is when the baseline became what it is. ``reverted`` is the last
    verdict that reverted something and was not undone; ``undone`` are the last boundaries that were.
    ``knows_run``: commits with the mark of a run were seen. ``excused``: see ``GateRun``.
    ``good`` is the last position whose commits may not be lost; it is noted with the gate off, too.
    ``unapplied`` are the new commits that conflicted with what was restored then, as a verdict on their task.
    ``counts`` are those of the last green tests, on the commit ``counted``. ``is_bare``: the tests were green
    only without the sandbox, so this ralph has none (A1). ``start_commit`` is where HEAD was when somebody
    started the ralph: the version of the scripts of the tests that they trust.
    """

    baseline: Baseline = Baseline.UNKNOWN
    before: Position | None = None
    is_open: bool = False
    left: Position | None = None
    test_run: RunId | None = None
    judging: gate.GateRun | None = None
    last: Verdict | None = None
    since: Moment | None = None
    reverted: Verdict | None = None
    undone: tuple[str, ...] = ()
    knows_run: bool = False
    excused: str = ""
    good: Position | None = None
    unapplied: Verdict | None = None
    counts: TestCounts | None = None
    counted: str | None = None
    is_bare: bool = False
    start_commit: str = ""

    @property
    def counts_before(self) -> TestCounts | None:
        """Return the counts on the tree before the range; None where they are not known."""
        return self.counts if self.before is not None and self.before.head == self.counted else None


def last_verdict(state: GateState) -> Verdict | None:
    """Return what the loop gets at the last boundary: commits that are on no branch open their task again."""
    last, left = state.last, state.unapplied
    if left is None or last is None:
        return left or last
    if last.boundary_id == left.boundary_id:
        return last if last.kind is VerdictKind.REVERTED else left
    return left if left.at > last.at else last


def news_for(state: GateState, judged: str | None, tasks: Container[str]) -> GateNews:
    """Return what a loop has to know when it begins; ``judged`` is the boundary whose verdict it heard last.

    Only a readable verdict on one of its ``tasks``, by id, is news.
    """
    last, verdict = last_verdict(state), None
    is_ours = last is not None and last.task is not None and last.task.id in tasks
    if last is not None and is_ours and last.boundary_id not in (judged, *state.undone):
        with suppress(ValueError):  # it names a commit that is none
            verdict = heard(replace(last, is_open=last.is_open and state.is_open))
    return GateNews(verdict, state.undone, settled=not state.is_open and state.judging is None)


class AtEnd(Enum):
    """What becomes of the range when a run has ended."""

    JUDGE = auto()
    FOREIGN = auto()
    LEAVE = auto()


def has_boundaries(state: GateState, *, is_opaque: bool, iterates: bool, passed_by: bool) -> bool:
    """Whether there will be something to judge, as far as can be known (R1).

    A command of the user's own (``is_opaque``) shows it by reports (``iterates``) that wait for an answer;
    with ``passed_by`` a boundary was reported without waiting. A verdict settles it.
    """
    return not is_opaque or state.last is not None or (iterates and not passed_by)


def switched_off(state: GateState) -> GateState:
    """Forget range and baseline; what was reverted can still be undone."""
    if state.before is None:
        return state
    return GateState(last=state.last, reverted=state.reverted, undone=state.undone, good=state.good)


def before_run(state: GateState, head: Position, *, is_iteration: bool, descends: bool = False) -> GateState:
    """Open the range of a run that is about to start; with ``is_iteration`` the run is one iteration.

    ``descends``: HEAD leads back to where the range begins. Then what others committed while nothing ran is
    part of it if it can be told apart; otherwise a range that they continued is dropped.
    """
    keeps = state.knows_run and descends
    if state.is_open and state.left != head and not keeps:
        state = replace(state, is_open=False, baseline=Baseline.UNKNOWN)
    if not state.is_open:
        state = replace(state, before=state.before if keeps else head, is_open=is_iteration)
    return replace(state, left=head, start_commit=state.start_commit or head.head or "")


def at_iteration(state: GateState, head: Position, *, descends: bool) -> GateState:
    """Open a range with an iteration that begins at ``head``.

    ``descends``: HEAD leads back to the end of the last range, as it does not after a pull that rebased.
    """
    keeps = state.knows_run and descends
    return replace(state, before=state.before if keeps else head, is_open=True)


def attributed(boundary: gate.Boundary, *, knows_run: bool) -> gate.Boundary:
    """Return the facts with the owner of each commit.

    A revert made outside of the run, and the commit that it reverts, need no verdict any more; the revert of
    such a revert brings the commit back.
    """
    commits = boundary.commits
    knows = knows_run or any(each.by_run for each in commits)
    made_by = {each.sha: Owner.OTHER if knows and each.by_run is False else Owner.RUN for each in commits}
    owners, reverted = dict(made_by), dict[str, str]()
    for each in reversed(commits):
        if each.by_run or each.reverts not in owners:
            continue
        owners[each.sha] = Owner.GATE
        if (target := reverted.pop(each.reverts, None)) is not None:
            owners[target] = made_by[target]
        else:
            reverted[each.sha] = each.reverts
            owners[each.reverts] = Owner.GATE
    owned = tuple(replace(each, owner=owners[each.sha]) for each in commits)
    return replace(boundary, descends=boundary.descends or (knows and boundary.rewritten), commits=owned)


def needs_baseline(state: GateState) -> bool:
    """Whether the tests run before the first run (R4)."""
    return state.baseline is Baseline.UNKNOWN


def with_baseline(state: GateState, result: Result | None, *, is_first: bool = False) -> GateState:
    """Keep the result of the tests before a run; None: they were cut off."""
    is_bare = state.is_bare and (result is Result.GREEN or not is_first)
    tested = Baseline.GREEN if result is Result.GREEN else Baseline.RED
    baseline = Baseline.UNKNOWN if result in (None, Result.CANNOT_RUN) else tested
    return replace(state, baseline=baseline, is_bare=is_bare)


def without_sandbox(state: GateState, result: Result | None, *, is_first: bool) -> GateState | None:
    """Return the state in which red tests run once more, without the sandbox that ``auto`` chose (A1).

    None: they do not. Only before the first run they do: later an agent may have written them.
    """
    if not is_first or result is not Result.RED or state.is_bare:
        return None
    return replace(state, is_bare=True, test_run=None)


def with_counts(state: GateState, counts: TestCounts | None, head: Position) -> GateState:
    """Keep how many tests ran on the commit at ``head``."""
    return replace(state, counts=counts, counted=head.head)


def opens_with_iteration(state: GateState) -> bool:
    """Whether a range begins with an iteration: not while one is open, or judged."""
    return not state.is_open and state.judging is None


def at_end(
    state: GateState, head: Position, *,
    code: int | None, is_foreign: bool, is_iteration: bool, reports_boundaries: bool,
) -> AtEnd:  # fmt: skip
    """Return what becomes of the range when a run has ended with ``code`` and HEAD is at ``head``.

    ``is_foreign``: no daemon saw the end, and HEAD is younger than it. Only a run that ended well is judged
    at its end: its iteration, or what a loop has committed after its last boundary. If the tests failed there
    because of somebody else's commit, the same commits are not judged again.
    """
    if is_foreign:
        return AtEnd.FOREIGN if head != state.before else AtEnd.LEAVE
    if code != 0:
        return AtEnd.LEAVE
    is_known = bool(state.excused) and head == state.good
    if is_iteration or (reports_boundaries and head != state.before and not is_known):
        return AtEnd.JUDGE
    return AtEnd.LEAVE


def is_said_again(last: Verdict | None, end: Verdict | None, run_id: RunId) -> bool:
    """Whether a run's last boundary left the range open for the same reason as its end would."""
    return bool(last and end and end.is_open and (last.run_id, last.why) == (run_id, end.why))


def dropped(state: GateState, head: Position) -> GateState:
    """Begin again at ``head``, without a baseline: the commits before it are not the ralph's."""
    return replace(state, before=head, is_open=False, baseline=Baseline.UNKNOWN)


def left_at(state: GateState, head: Position) -> GateState:
    """Note where a run has left HEAD; commits without a verdict keep the range open."""
    return replace(state, is_open=state.is_open or head != state.before, left=head)


def after_verdict(state: GateState, verdict: Verdict, head: Position) -> GateState:
    """Begin the next range at ``head``, where it was judged, unless the verdict leaves this one open."""
    run = state.judging
    commits = run.boundary.commits if run is not None else ()
    if run is not None and run.check.after is not None and verdict.kind is not VerdictKind.UNTESTED:
        state = with_counts(state, run.check.after, head)
    knows_run = state.knows_run or any(each.by_run for each in commits)
    reverted = verdict if verdict.reverted else state.reverted
    state = replace(state, knows_run=knows_run, judging=None, test_run=None, last=verdict, reverted=reverted)
    excused = run.excused if run is not None and verdict.is_open else ""
    before, is_open = state.before if verdict.is_open else head, verdict.is_open
    return replace(state, excused=excused, baseline=verdict.baseline, before=before, is_open=is_open)


def after_undo(state: GateState, boundary_id: str, head: Position) -> GateState:
    """Begin again where HEAD is; nobody knows what the tests say of that tree."""
    reverted = state.reverted
    if reverted is not None and reverted.boundary_id == boundary_id:
        reverted = None
    undone = (*state.undone, boundary_id)[-_MOST_UNDONE:]
    known = replace(GateState(), last=state.last, since=state.since, knows_run=state.knows_run)
    return replace(known, before=head, left=head, reverted=reverted, undone=undone, good=head)


def unjudged_since(state: GateState) -> str:
    """Return the commit after which there are commits without a verdict; empty where there are none."""
    if not state.is_open or state.before is None or state.left in (None, state.before):
        return ""
    return short_sha(state.before.head or "") or "the beginning"
