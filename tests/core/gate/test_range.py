"""Which commits the gate judges: ``core/gate/range``, by example and by property (R1, R2, R4)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.gate import range as ranges
from ralphd.core.gate.range import AtEnd, GateState
from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    GateRun,
    JudgedCommit,
    Owner,
    Position,
    Result,
    RunTests,
    Verdict,
    VerdictKind,
)
from ralphd.core.gate.verdict_views import GateNews
from ralphd.core.gate.weakened import TestCheck, TestCounts
from ralphd.core.supervision.model import ReportedTask, RunId

A, B, C = (Position(letter * 40, "main") for letter in "abc")
OPEN = GateState(Baseline.GREEN, A, is_open=True, left=B, start_commit="s")
CLOSED = GateState(Baseline.GREEN, A, is_open=False, left=A, start_commit="s")
RUN = GateRun(Boundary(A, B), Baseline.GREEN, B.head, RunTests())
KEPT = Verdict(VerdictKind.KEPT, "the tests pass", Baseline.GREEN, boundary_id="r1/1", commits=("b" * 40,))
REVERTED = replace(KEPT, kind=VerdictKind.REVERTED, reverted=("b" * 40,), boundary_id="r1/2")

positions = st.sampled_from([A, B, C])
states = st.builds(
    GateState,
    baseline=st.sampled_from(Baseline),
    before=positions,
    is_open=st.booleans(),
    left=st.none() | positions,
    judging=st.none() | st.just(RUN),
    last=st.none() | st.sampled_from([KEPT, REVERTED]),
    reverted=st.none() | st.just(REVERTED),
    undone=st.lists(st.text(max_size=3), max_size=60).map(tuple),
    good=st.none() | positions,
)


# last_verdict


def test_a_commit_that_conflicted_opens_its_task_again() -> None:
    left = replace(REVERTED, boundary_id=KEPT.boundary_id, why="conflict", at=1.0)
    state = replace(CLOSED, unapplied=left)
    assert ranges.last_verdict(state) is left, "with the gate off"
    assert ranges.last_verdict(replace(state, last=KEPT)) is left
    same = replace(REVERTED, boundary_id=KEPT.boundary_id)
    assert ranges.last_verdict(replace(state, last=same)) is same
    later = replace(KEPT, boundary_id="later", at=2.0)
    assert ranges.last_verdict(replace(state, last=later)) is later
    earlier = replace(KEPT, boundary_id="earlier", at=0.5)
    assert ranges.last_verdict(replace(state, last=earlier)) is left
    assert ranges.last_verdict(replace(state, last=replace(earlier, at=left.at))) is not left
    assert ranges.last_verdict(replace(CLOSED, last=KEPT)) is KEPT


# news_for


@pytest.mark.parametrize(
    ("judged", "task", "undone"),
    [
        (None, "B", ("r0/1",)),
        ("r1/1", "A", ("r0/1",)),
        (None, "A", ("r0/1", "r1/1")),
    ],
    ids=["of a task that is not in the list", "of a boundary heard before", "of a boundary that was undone"],
)
def test_a_verdict_is_no_news(judged: str | None, task: str, undone: tuple[str, ...]) -> None:
    state = replace(CLOSED, last=replace(KEPT, task=ReportedTask("A")), undone=undone)

    assert ranges.news_for(state, judged, {task}) == GateNews(None, undone, settled=True)
    assert ranges.news_for(replace(state, is_open=True), judged, {task}) == GateNews(None, undone)
    assert ranges.news_for(replace(state, judging=RUN), judged, {task}) == GateNews(None, undone)


def test_a_verdict_on_a_task_of_the_loop_is_news() -> None:
    last = replace(REVERTED, task=ReportedTask("A"))

    news = ranges.news_for(replace(CLOSED, last=last), "r1/1", {"A", "B"})

    short = replace(last, commits=("b" * 7,), reverted=("b" * 7,))
    assert news == GateNews(short, settled=True)


@pytest.mark.parametrize(
    "last",
    [None, KEPT, replace(KEPT, task=ReportedTask("A"), commits=("b",))],
    ids=["none so far", "of no task", "of a commit that is none"],
)
def test_a_verdict_that_no_task_can_have_is_no_news(last: Verdict | None) -> None:
    assert ranges.news_for(replace(CLOSED, last=last), None, {"A"}) == GateNews(settled=True)


# before_run, with_baseline, opens_with_iteration


def test_a_range_begins_where_head_is() -> None:
    assert ranges.before_run(CLOSED, B, is_iteration=False) == replace(CLOSED, before=B, left=B)


def test_the_first_run_after_a_start_sets_its_commit() -> None:
    started = replace(CLOSED, start_commit="")
    assert ranges.before_run(started, B, is_iteration=True).start_commit == B.head
    assert ranges.before_run(CLOSED, B, is_iteration=True).start_commit == "s"
    empty = Position(None, "main")
    assert ranges.before_run(started, empty, is_iteration=True).start_commit == ""


def test_a_run_that_is_one_iteration_opens_its_range() -> None:
    assert ranges.before_run(CLOSED, B, is_iteration=True).is_open


def test_an_open_range_goes_on_where_it_was_left() -> None:
    assert ranges.before_run(OPEN, B, is_iteration=False) == OPEN


def test_an_open_range_is_dropped_where_head_has_moved() -> None:
    dropped = ranges.before_run(OPEN, C, is_iteration=False)

    assert dropped == GateState(Baseline.UNKNOWN, C, is_open=False, left=C, start_commit="s")
    assert ranges.needs_baseline(dropped)


@given(states, positions, st.booleans())
def test_before_a_run_no_foreign_commit_is_in_range(state: GateState, head: Position, each: bool) -> None:
    after = ranges.before_run(state, head, is_iteration=each)

    assert after.left == head
    assert after.before == head or (state.is_open and state.left == head and after.before == state.before)
    assert after.baseline in (state.baseline, Baseline.UNKNOWN)


@pytest.mark.parametrize(
    ("result", "baseline"),
    [
        (None, Baseline.UNKNOWN),
        (Result.GREEN, Baseline.GREEN),
        (Result.RED, Baseline.RED),
        (Result.TIMED_OUT, Baseline.RED),
        (Result.ENDED, Baseline.RED),
        (Result.CANNOT_RUN, Baseline.UNKNOWN),
    ],
)
def test_the_first_tests_set_the_baseline(result: Result | None, baseline: Baseline) -> None:
    assert ranges.with_baseline(GateState(), result).baseline is baseline


def test_an_iteration_opens_a_range_unless_one_is_open_or_judged() -> None:
    assert ranges.opens_with_iteration(CLOSED)
    assert not ranges.opens_with_iteration(OPEN)
    assert not ranges.opens_with_iteration(replace(CLOSED, judging=RUN))


def test_what_can_be_told_apart_stays_in_the_range() -> None:
    known = replace(OPEN, knows_run=True)
    kept = ranges.before_run(known, C, is_iteration=False, descends=True)
    assert kept == replace(known, left=C)
    closed = replace(CLOSED, knows_run=True)
    assert ranges.before_run(closed, C, is_iteration=False, descends=True).before == A
    assert ranges.before_run(closed, C, is_iteration=False, descends=False).before == C
    assert ranges.before_run(known, C, is_iteration=False, descends=False).baseline is Baseline.UNKNOWN
    assert ranges.at_iteration(closed, C, descends=True) == replace(closed, is_open=True)
    assert ranges.at_iteration(CLOSED, C, descends=True) == replace(CLOSED, before=C, is_open=True)
    assert ranges.at_iteration(closed, C, descends=False) == replace(closed, before=C, is_open=True)


def commits_of(*given: tuple[str, bool | None, str]) -> Boundary:
    """A range of these commits, newest first: name, whether a run made it, what it reverts."""
    commits = tuple(JudgedCommit(name, by_run=by_run, reverts=reverts) for name, by_run, reverts in given)
    return Boundary(A, B, commits=commits, rewritten=True, descends=False)


def test_commits_have_their_owners() -> None:
    mixed = commits_of(("d", False, "a"), ("c", None, ""), ("b", False, ""), ("a", True, ""))
    found = ranges.attributed(mixed, knows_run=False)
    assert [each.owner for each in found.commits] == [Owner.GATE, Owner.RUN, Owner.OTHER, Owner.GATE]
    assert found.descends
    again = commits_of(("e", False, "d"), ("d", False, "a"), ("a", True, ""))
    assert [each.owner for each in ranges.attributed(again, knows_run=False).commits] == [
        Owner.GATE,
        Owner.GATE,
        Owner.RUN,
    ]
    unknown = ranges.attributed(commits_of(("b", False, ""), ("a", False, "")), knows_run=False)
    assert {each.owner for each in unknown.commits} == {Owner.RUN}
    assert not unknown.descends
    known = ranges.attributed(commits_of(("b", False, "")), knows_run=True)
    assert [each.owner for each in known.commits] == [Owner.OTHER]
    own = ranges.attributed(commits_of(("b", True, "a"), ("a", True, "")), knows_run=True)
    assert {each.owner for each in own.commits} == {Owner.RUN}


def test_a_verdict_remembers_the_mark_and_whose_commit_was_red() -> None:
    run = replace(RUN, boundary=commits_of(("a", True, "")), excused="b")
    red = Verdict(VerdictKind.UNTESTED, "red", Baseline.GREEN, is_open=True)
    after = ranges.after_verdict(replace(OPEN, judging=run), red, C)
    assert (after.knows_run, after.excused, after.before) == (True, "b", A)
    assert ranges.after_verdict(replace(after, judging=run), KEPT, C).excused == ""
    assert ranges.after_undo(after, "r1/2", C).knows_run


# with_counts, counts_before

GREEN_AT_C = replace(RUN, check=TestCheck(after=TestCounts(5)))


def test_the_next_range_is_compared_with_the_tests_of_the_last_verdict() -> None:
    after = ranges.after_verdict(replace(OPEN, judging=GREEN_AT_C), KEPT, C)

    assert (after.counts, after.counted) == (TestCounts(5), C.head)
    assert after.counts_before == TestCounts(5)
    assert ranges.at_iteration(after, C, descends=True).counts_before == TestCounts(5)


def test_tests_of_another_commit_are_not_compared_with() -> None:
    counted = ranges.with_counts(CLOSED, TestCounts(5), C)

    assert counted.before == A
    assert counted.counts_before is None
    assert replace(counted, before=C).counts_before == TestCounts(5)
    assert replace(counted, before=None).counts_before is None


def test_a_range_that_was_not_judged_leaves_the_counts_as_they_were() -> None:
    counted = replace(ranges.with_counts(OPEN, TestCounts(9), A), judging=GREEN_AT_C)
    untested = Verdict(VerdictKind.UNTESTED, "cut off", Baseline.GREEN, is_open=True)

    assert ranges.after_verdict(counted, untested, C).counts_before == TestCounts(9)


# at_end, dropped, left_at


@pytest.mark.parametrize(
    ("code", "head", "is_foreign", "is_iteration", "reports", "result"),
    [
        (0, B, False, True, False, AtEnd.JUDGE),
        (0, A, False, True, False, AtEnd.JUDGE),
        (0, B, False, False, True, AtEnd.JUDGE),
        (0, A, False, False, True, AtEnd.LEAVE),
        (0, B, False, False, False, AtEnd.LEAVE),
        (1, B, False, True, True, AtEnd.LEAVE),
        (None, B, False, True, True, AtEnd.LEAVE),
        (0, B, True, True, True, AtEnd.FOREIGN),
        (0, A, True, True, True, AtEnd.LEAVE),
    ],
)
def test_what_becomes_of_a_range_at_the_end_of_a_run(
    code: int | None, head: Position, is_foreign: bool, is_iteration: bool, reports: bool, result: AtEnd
) -> None:
    found = ranges.at_end(
        OPEN, head, code=code, is_foreign=is_foreign, is_iteration=is_iteration, reports_boundaries=reports
    )
    assert found is result


@pytest.mark.parametrize(("head", "result"), [(B, AtEnd.LEAVE), (C, AtEnd.JUDGE)])
def test_commits_that_are_red_by_another_ones_are_judged_again_only_with_new_ones(
    head: Position, result: AtEnd
) -> None:
    state = replace(OPEN, excused="b" * 40, good=B)

    found = ranges.at_end(state, head, code=0, is_foreign=False, is_iteration=False, reports_boundaries=True)

    assert found is result


@given(states, positions, st.none() | st.integers(0, 2), st.booleans(), st.booleans(), st.booleans())
def test_only_a_seen_good_end_is_judged(
    state: GateState, head: Position, code: int | None, is_foreign: bool, each: bool, reports: bool
) -> None:
    found = ranges.at_end(
        state, head, code=code, is_foreign=is_foreign, is_iteration=each, reports_boundaries=reports
    )
    if found is AtEnd.JUDGE:
        assert code == 0 and not is_foreign and (each or reports)
    if found is AtEnd.FOREIGN:
        after = ranges.dropped(state, head)
        assert (after.before, after.is_open, after.baseline) == (head, False, Baseline.UNKNOWN)


def test_what_the_last_boundary_said_is_not_said_again() -> None:
    end = replace(KEPT, kind=VerdictKind.UNTESTED, why="locked", is_open=True)
    last = replace(end, run_id=RunId("r1"))
    assert ranges.is_said_again(last, end, RunId("r1"))
    assert not ranges.is_said_again(last, end, RunId("r2")), "of an earlier run"
    assert not ranges.is_said_again(last, replace(end, why="a rebase"), RunId("r1"))
    assert not ranges.is_said_again(last, replace(end, is_open=False), RunId("r1"))
    assert not ranges.is_said_again(last, None, RunId("r1")), "the tests run"
    assert not ranges.is_said_again(None, end, RunId("r1"))


@given(states, positions)
def test_commits_without_a_verdict_keep_a_range_open(state: GateState, head: Position) -> None:
    after = ranges.left_at(state, head)

    assert (after.left, after.before) == (head, state.before)
    assert after.is_open is (state.is_open or head != state.before)


# after_verdict, after_undo, switched_off


def test_the_next_range_begins_after_a_verdict() -> None:
    state = replace(OPEN, judging=RUN, test_run=RUN.run_id)

    after = ranges.after_verdict(state, KEPT, C)

    assert after == GateState(Baseline.GREEN, C, is_open=False, left=B, last=KEPT, start_commit="s")


def test_a_verdict_that_is_open_leaves_the_range_open() -> None:
    untested = Verdict(VerdictKind.UNTESTED, "cut off", Baseline.RED, is_open=True)

    after = ranges.after_verdict(OPEN, untested, C)

    assert (after.before, after.is_open, after.baseline) == (A, True, Baseline.RED)


@given(states, st.sampled_from([KEPT, REVERTED]), positions)
def test_the_last_revert_is_remembered(state: GateState, verdict: Verdict, head: Position) -> None:
    after = ranges.after_verdict(state, verdict, head)

    assert after.judging is None and after.test_run is None and after.last == verdict
    assert after.reverted == (verdict if verdict.reverted else state.reverted)


@given(states, st.sampled_from(["r1/2", "r9/9"]), positions)
def test_an_undo_begins_again_without_a_baseline(state: GateState, id_: str, head: Position) -> None:
    after = ranges.after_undo(state, id_, head)

    assert (after.before, after.left, after.is_open, after.baseline) == (head, head, False, Baseline.UNKNOWN)
    assert after.undone == (*state.undone, id_)[-50:]
    assert after.reverted == (None if id_ == "r1/2" else state.reverted)
    assert (after.last, after.since, after.good) == (state.last, state.since, head)


def test_an_undo_keeps_the_last_50_and_the_date() -> None:
    known = replace(OPEN, since=7.0, undone=tuple(f"r{number}/1" for number in range(50)))

    after = ranges.after_undo(known, "r99/1", C)

    assert (after.since, len(after.undone), after.undone[-1]) == (7.0, 50, "r99/1")
    assert after.undone[0] == "r1/1"


def test_a_range_that_somebody_else_continued_is_closed() -> None:
    known = replace(OPEN, left=B)
    assert ranges.before_run(known, C, is_iteration=False).is_open is False


@given(states)
def test_switched_off_forgets_all_but_what_can_be_undone(state: GateState) -> None:
    after = ranges.switched_off(state)

    kept = GateState(last=state.last, reverted=state.reverted, undone=state.undone, good=state.good)
    assert after == kept
    assert ranges.switched_off(after) is after


# has_boundaries, unjudged_since


@pytest.mark.parametrize(
    ("is_opaque", "last", "iterates", "passed_by", "result"),
    [
        (False, None, False, True, True),
        (True, None, False, False, False),
        (True, None, True, False, True),
        (True, None, True, True, False),
        (True, KEPT, False, True, True),
    ],
)
def test_a_command_has_boundaries_if_it_waits_at_them(
    is_opaque: bool, last: Verdict | None, iterates: bool, passed_by: bool, result: bool
) -> None:
    state = GateState(last=last)
    found = ranges.has_boundaries(state, is_opaque=is_opaque, iterates=iterates, passed_by=passed_by)
    assert found is result


def test_what_no_verdict_was_reached_on_is_named() -> None:
    assert A.head is not None and ranges.unjudged_since(OPEN) == A.head[:7]
    assert ranges.unjudged_since(replace(OPEN, before=Position(None, "main"))) == "the beginning"
    for state in (CLOSED, replace(OPEN, left=A), replace(OPEN, left=None), replace(OPEN, before=None)):
        assert ranges.unjudged_since(state) == ""


def test_red_tests_before_the_first_run_run_once_more_without_the_sandbox() -> None:
    first = ranges.GateState(test_run=RunId("t1"))
    again = ranges.without_sandbox(first, Result.RED, is_first=True)

    assert again == replace(first, test_run=None, is_bare=True)
    assert ranges.without_sandbox(again, Result.RED, is_first=True) is None
    assert ranges.with_baseline(again, Result.GREEN, is_first=True).is_bare
    assert not ranges.with_baseline(again, Result.RED, is_first=True).is_bare
    assert ranges.with_baseline(again, Result.RED).is_bare


@pytest.mark.parametrize("result", [Result.GREEN, Result.TIMED_OUT, Result.CANNOT_RUN, Result.ENDED, None])
def test_no_other_tests_run_without_the_sandbox(result: Result | None) -> None:
    assert ranges.without_sandbox(ranges.GateState(), result, is_first=True) is None
    assert ranges.without_sandbox(ranges.GateState(), Result.RED, is_first=False) is None
