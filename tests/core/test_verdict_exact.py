"""The guard's decisions to the letter: what is ordered, what is said, what it counts for (R1 to R9)."""

from dataclasses import replace

import pytest

from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    CarriedOut,
    Cut,
    GatePolicy,
    JudgedCommit,
    JudgeEvent,
    Judgement,
    Moved,
    Position,
    Push,
    PutBack,
    Ran,
    Refused,
    Restore,
    Result,
    Revert,
    RunTests,
    Say,
    SetAside,
    Verdict,
    VerdictKind,
    begin,
    step,
)

WAS, IS = Position("b" * 40, "main"), Position("a" * 40, "main")
ONE, TWO = JudgedCommit("1" * 40), JudgedCommit("2" * 40)
BOUNDARY = Boundary(WAS, IS, commits=(TWO, ONE))
UNTESTED, KEPT, REVERTED = VerdictKind.UNTESTED, VerdictKind.KEPT, VerdictKind.REVERTED
GREEN, UNKNOWN = Baseline.GREEN, Baseline.UNKNOWN
RED, TIMED_OUT, ENDED = Ran(Result.RED), Ran(Result.TIMED_OUT), Ran(Result.ENDED)
PASS, CANNOT = Ran(Result.GREEN), Ran(Result.CANNOT_RUN)
HEAD = CarriedOut("c" * 40)


def after(
    *events: JudgeEvent,
    boundary: Boundary = BOUNDARY,
    baseline: Baseline = GREEN,
    retries: int = 0,
    all_at_once: bool = False,
) -> Judgement:
    """A judgement to which this has happened."""
    judgement = begin(boundary, baseline)
    for event in events:
        judgement = step(judgement, event, GatePolicy(retries, minimal=not all_at_once))
    return judgement


# Boundary


def test_the_words_in_files_and_replies_are_these() -> None:
    assert [each.value for each in Baseline] == ["unknown", "green", "red"]
    assert [each.value for each in Result] == ["green", "red", "timed_out", "ended", "cannot_run"]
    assert [each.value for each in VerdictKind] == ["kept", "reverted", "untested"]


def test_a_commit_is_nobodys_and_nowhere_and_nothing_is_in_the_way_unless_it_is_said() -> None:
    assert JudgedCommit("a") == JudgedCommit("a", "", pulled=False, upstream=False)
    assert Boundary(WAS, IS) == Boundary(WAS, IS, descends=True, commits=(), trouble="", dirty=())
    assert (JudgedCommit("a").pulled, JudgedCommit("a").upstream, Boundary(WAS, IS).descends) == (
        False,
        False,
        True,
    )
    assert (JudgedCommit("a").subject, Boundary(WAS, IS).trouble) == ("", "")
    assert (Boundary(WAS, IS).commits, Boundary(WAS, IS).dirty) == ((), ())
    assert Boundary(WAS, IS).doubt == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"before": Position(None, "main")}, "the iteration made the repository's first commit"),
        (
            {"descends": False},
            "HEAD does not lead back to bbbbbbb, where the iteration began (amend, rebase, reset, merge)",
        ),
        ({"now": Position("a" * 40, None)}, "the branch is another: it was main, now it is none"),
        ({"before": Position("b" * 40, None)}, "the branch is another: it was none, now it is main"),
        ({"now": Position("a" * 40, "side")}, "the branch is another: it was main, now it is side"),
        (
            {"commits": (ONE, *(JudgedCommit(each * 40, pulled=True) for each in "defg"))},
            "commits in it came by fetch or pull: ddddddd, eeeeeee, fffffff",
        ),
    ],
)  # fmt: skip
def test_r2_a_doubt_is_told_with_what_was_seen(change: dict[str, object], why: str) -> None:
    assert replace(BOUNDARY, **change).doubt == why  # type: ignore[arg-type]


# Begin


def test_a_judgement_begins_with_the_tests_where_head_is() -> None:
    begun = begin(BOUNDARY, Baseline.RED)

    assert begun == Judgement(BOUNDARY, Baseline.RED, "a" * 40, RunTests())
    assert (begun.runs, begun.is_aside, begun.alone, begun.reverted, begun.planned) == (
        (),
        False,
        None,
        (),
        None,
    )
    assert (begun.left, begun.verdict) == ((TWO, ONE), None)
    assert GatePolicy() == GatePolicy(test_retries=1, minimal=True)
    assert Verdict(KEPT, "", GREEN) == Verdict(KEPT, "", GREEN, pauses=False, calls=False, is_open=False)
    plain = Verdict(KEPT, "", GREEN)
    assert (plain.pauses, plain.calls, plain.is_open) == (False, False, False)
    assert (GatePolicy().test_retries, GatePolicy().minimal) == (1, True)


@pytest.mark.parametrize("trouble", ["", "a rebase"])
def test_r1_the_same_commit_on_the_same_branch_is_nothing_new_whatever_is_in_the_way(trouble: str) -> None:
    here = replace(BOUNDARY, now=WAS, trouble=trouble)
    assert begin(here, Baseline.RED).verdict == Verdict(KEPT, "there is no new commit", Baseline.RED)


@pytest.mark.parametrize("now", [Position("b" * 40, "side"), Position("a" * 40, "main")])
def test_r8_another_branch_or_commit_with_something_in_the_way_pauses(now: Position) -> None:
    found = begin(replace(BOUNDARY, now=now, trouble="a rebase is half done"), GREEN).verdict
    assert found == Verdict(UNTESTED, "a rebase is half done", UNKNOWN, pauses=True)


# The tests


def called(why: str) -> Verdict:
    return Verdict(UNTESTED, why, GREEN, calls=True)


@pytest.mark.parametrize(
    ("events", "retries", "runs"),
    [
        ((RED,), 1, 1), ((RED, RED), 2, 2), ((TIMED_OUT,), 0, 1), ((ENDED,), 0, 1), ((RED, TIMED_OUT), 2, 2),
        ((TIMED_OUT, RED), 2, 2),
    ],
)  # fmt: skip
def test_r3_what_is_not_green_is_run_again(events: tuple[Ran, ...], retries: int, runs: int) -> None:
    found = after(*events, retries=retries)
    assert (found.order, len(found.runs)) == (RunTests(), runs)


@pytest.mark.parametrize(
    ("events", "retries", "verdict"),
    [
        ((PASS,), 0, Verdict(KEPT, "the tests pass", GREEN)),
        ((RED, PASS), 1, Verdict(KEPT, "the tests pass, at a second run", GREEN)),
        ((TIMED_OUT, PASS), 0, Verdict(KEPT, "the tests pass, at a second run", GREEN)),
        ((TIMED_OUT, TIMED_OUT), 0, called("the tests did not end in time, twice")),
        ((RED, TIMED_OUT), 1, called("the tests did not end in time, twice")),
        ((TIMED_OUT, RED), 1, called("the tests did not end in time, twice")),
        (
            (ENDED, RED), 1,
            called("the tests were ended by somebody else, twice: by hand, or for memory"),
        ),
        (
            (CANNOT,), 3,
            called("the tests cannot be run: test_command is not found or not executable"),
        ),
    ],
)  # fmt: skip
def test_r3_what_the_tests_come_to(events: tuple[Ran, ...], retries: int, verdict: Verdict) -> None:
    assert after(*events, retries=retries).verdict == verdict


@pytest.mark.parametrize("baseline", [Baseline.RED, UNKNOWN])
def test_r4_red_after_what_was_not_green_is_said_at_once(baseline: Baseline) -> None:
    why = "the tests failed, and were not green before: nothing is blamed on these commits"
    dirty = replace(BOUNDARY, dirty=("a",))
    assert after(RED, baseline=baseline, boundary=dirty, retries=2).verdict == Verdict(
        UNTESTED, why, Baseline.RED
    )


# What is not committed


@pytest.mark.parametrize(
    ("dirty", "names"),
    [(("a", "b", "c"), "a, b, c"), (("a", "b", "c", "d"), "a, b, c and 1 more")],
)
def test_r3_red_with_work_left_is_tried_without_it(dirty: tuple[str, ...], names: str) -> None:
    boundary = replace(BOUNDARY, dirty=dirty)
    aside = after(RED, boundary=boundary)
    assert aside.order == SetAside()
    alone = after(RED, HEAD, boundary=boundary)
    assert (alone.order, alone.runs, alone.is_aside) == (RunTests(), (), True)
    back = after(RED, HEAD, PASS, boundary=boundary)
    assert (back.order, back.alone, back.is_aside) == (PutBack(), Result.GREEN, True)
    over = after(RED, HEAD, PASS, HEAD, boundary=boundary)
    why = f"dirty: the tests pass without what is not committed: {names}"
    assert (over.verdict, over.is_aside) == (Verdict(UNTESTED, why, GREEN), False)


def test_r5_red_without_it_too_the_newest_is_reverted_and_what_is_left_is_asked_anew() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    red = after(RED, HEAD, RED, HEAD, boundary=boundary)
    assert (red.order, red.alone, red.is_aside) == (Revert((TWO.sha,)), Result.RED, False)
    gone = after(RED, HEAD, RED, HEAD, HEAD, boundary=boundary)
    assert (gone.order, gone.runs, gone.alone, gone.reverted) == (RunTests(), (), None, (TWO.sha,))
    assert (gone.head, gone.left) == ("c" * 40, (ONE,))
    again = after(RED, HEAD, RED, HEAD, HEAD, RED, boundary=boundary)
    assert again.order == SetAside()
    green = after(RED, HEAD, RED, HEAD, HEAD, RED, HEAD, PASS, HEAD, boundary=boundary).verdict
    assert green == Verdict(REVERTED, "the tests failed, and pass without it", GREEN)


def test_without_an_answer_what_is_left_comes_back_and_nothing_is_blamed() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    over = after(RED, HEAD, TIMED_OUT, TIMED_OUT, HEAD, boundary=boundary).verdict
    assert over == Verdict(UNTESTED, "the tests did not end in time, twice", GREEN, calls=True)


# Reverts


@pytest.mark.parametrize(
    ("all_at_once", "first", "why"),
    [
        (False, (TWO.sha,), "the tests failed, and pass without it"),
        (True, (TWO.sha, ONE.sha), "the tests failed, and pass without these 2 commits"),
    ],
)
def test_r5_reverts_come_newest_first(all_at_once: bool, first: tuple[str, ...], why: str) -> None:
    assert after(RED, all_at_once=all_at_once).order == Revert(first)
    over = after(RED, HEAD, PASS, all_at_once=all_at_once)
    assert (over.verdict, over.reverted) == (Verdict(REVERTED, why, GREEN), first)


def test_r6_used_up_and_still_red_all_comes_back() -> None:
    used = after(RED, HEAD, RED, HEAD, RED)
    assert (used.order, used.reverted) == (Restore("a" * 40), (TWO.sha, ONE.sha))
    over = after(RED, HEAD, RED, HEAD, RED, CarriedOut("a" * 40))
    why = "the tests fail without these commits too, which are not to blame: they are back"
    assert (over.verdict, over.reverted) == (Verdict(UNTESTED, why, UNKNOWN, pauses=True), ())
    assert (over.head, over.planned) == ("a" * 40, None)


@pytest.mark.parametrize(("upstream", "order"), [((ONE,), Say), ((TWO,), Push), ((ONE, TWO), Push)])
def test_r7_only_a_revert_of_what_was_pushed_is_pushed(
    upstream: tuple[JudgedCommit, ...], order: type
) -> None:
    commits = tuple(replace(each, upstream=each in upstream) for each in (TWO, ONE))
    found = after(RED, HEAD, PASS, boundary=replace(BOUNDARY, commits=commits))
    assert type(found.order) is order
    if order is Push:
        why = "the tests failed, and pass without it"
        assert found.planned == Verdict(REVERTED, why, GREEN)
        assert step(found, HEAD, GatePolicy()).verdict == Verdict(REVERTED, why, GREEN)
        rejected = Verdict(REVERTED, f"{why}; the revert is not pushed", GREEN, calls=True)
        assert step(found, Refused("the revert is not pushed"), GatePolicy()).verdict == rejected


def test_r2_in_doubt_red_is_told_with_the_doubt() -> None:
    boundary = replace(BOUNDARY, now=Position("a" * 40, "side"))
    why = "the tests fail, and nothing is reverted: the branch is another: it was main, now it is side"
    assert after(RED, boundary=boundary).verdict == Verdict(UNTESTED, why, UNKNOWN, pauses=True)


# What goes wrong


def paused(why: str) -> Verdict:
    return Verdict(UNTESTED, why, UNKNOWN, pauses=True)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((RED, Refused("a lock")), "the tests fail, and it cannot be reverted: a lock"),
        (
            (RED, HEAD, RED, HEAD, RED, Refused("a lock")),
            "the reverts are still there, and cannot be taken back: a lock",
        ),
        ((Moved("it is elsewhere"),), "somebody else works here while it is judged: it is elsewhere"),
        (
            (RED, HEAD, Moved("it is elsewhere")),
            "somebody else works here while it is judged: it is elsewhere; reverts that were made are there",
        ),
        ((Refused("no git"),), "no git"),
    ],
)
def test_r8_what_cannot_go_on_pauses_and_says_why(events: tuple[JudgeEvent, ...], why: str) -> None:
    assert after(*events).verdict == paused(why)


def test_a_conflict_at_the_second_revert_brings_the_first_commit_back() -> None:
    found = after(RED, HEAD, RED, Refused("a conflict"))
    why = "the tests fail, and it cannot be reverted: a conflict"
    assert (found.order, found.planned) == (Restore("a" * 40), paused(why))


def test_refusals_about_work_that_is_left() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    why = "the tests fail, and could not be tried without what is not committed: a lock"
    assert after(RED, Refused("a lock"), boundary=boundary).verdict == paused(why)
    lost = after(RED, HEAD, PASS, Refused("it changed"), boundary=boundary)
    assert (lost.verdict, lost.is_aside) == (paused("it changed"), False)
    moved = after(RED, HEAD, Moved("it is elsewhere"), boundary=boundary)
    why = "somebody else works here while it is judged: it is elsewhere"
    assert (moved.order, moved.planned) == (PutBack(), paused(why))
    assert step(moved, HEAD, GatePolicy()).verdict == paused(why)


def test_who_moves_head_while_work_is_put_back_outweighs_what_the_tests_said() -> None:
    boundary = replace(BOUNDARY, dirty=("a",))
    over = after(RED, HEAD, PASS, Moved("it is elsewhere"), HEAD, boundary=boundary).verdict
    assert over == paused("somebody else works here while it is judged: it is elsewhere")


def test_what_is_cut_stays_open() -> None:
    cut = Verdict(UNTESTED, "all was to end", Baseline.RED, is_open=True)
    assert after(Cut("all was to end"), baseline=Baseline.RED).verdict == cut
    boundary = replace(BOUNDARY, dirty=("a",))
    aside = after(RED, HEAD, Cut("all was to end"), boundary=boundary)
    assert (aside.order, aside.planned) == (PutBack(), replace(cut, baseline=GREEN))
    assert step(aside, HEAD, GatePolicy()).verdict == replace(cut, baseline=GREEN)
    back = after(RED, HEAD, Cut("all was to end"))
    assert (back.order, back.planned) == (Restore("a" * 40), replace(cut, baseline=GREEN))


@pytest.mark.parametrize("event", [RED, Cut("x"), Moved("x"), Refused("x"), HEAD])
def test_what_was_said_stays_said(event: JudgeEvent) -> None:
    over = after(PASS)
    assert step(over, event, GatePolicy()) == over


@pytest.mark.parametrize(
    ("events", "event"), [((), HEAD), ((RED,), PASS), ((RED,), Cut("x")), ((RED, HEAD, RED, HEAD, RED), PASS)]
)
def test_what_answers_another_order_changes_nothing(
    events: tuple[JudgeEvent, ...], event: JudgeEvent
) -> None:
    before = after(*events)
    assert step(before, event, GatePolicy()) == before
