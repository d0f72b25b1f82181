"""What a gate run keeps and forgets from one order to the next, by example (R3 to R8, A9)."""

from dataclasses import replace

import pytest

from ralphd.core.gate.step import begin, retaken, step
from ralphd.core.gate.verdict import (
    Baseline,
    Boundary,
    CarriedOut,
    Cut,
    GateEvent,
    GatePolicy,
    GateRun,
    JudgedCommit,
    Moved,
    Owner,
    Position,
    Push,
    PutBack,
    Ran,
    Restore,
    Result,
    Revert,
    RunTests,
    Shown,
    ShowOld,
    Verdict,
    VerdictKind,
)
from ralphd.core.gate.weakened import TestCheck, TestCounts, Weakened

BEFORE, NOW = Position("b" * 40, "main"), Position("a" * 40, "main")
OLD, NEW = JudgedCommit("1" * 40), JudgedCommit("2" * 40)
CLEAN = Boundary(BEFORE, NOW, commits=(NEW, OLD))
DIRTY = replace(CLEAN, dirty=("a.py",))
LATER = replace(DIRTY, now=Position("d" * 40, "main"))
GREEN, RED, DONE, MOVED = Ran(Result.GREEN), Ran(Result.RED), CarriedOut("c" * 40), Moved("it is elsewhere")
ONCE, TWICE = GatePolicy(test_retries=0), GatePolicy(test_retries=1)
REPORT = GatePolicy(0, protect_tests="report", protect=("*.bats",), test_command="./t.sh")


def after(run: GateRun, *events: GateEvent, policy: GatePolicy = ONCE) -> GateRun:
    """A gate run to which this has happened."""
    for event in events:
        run = step(run, event, policy)
    return run


def verdict(run: GateRun) -> Verdict:
    """What a gate run came to."""
    assert run.verdict is not None, run.order
    return run.verdict


# Somebody else moves HEAD during the tests


def test_a_run_that_is_taken_again_knows_nothing_of_the_tests_on_the_commits_before() -> None:
    counted = begin(DIRTY, Baseline.GREEN, check=TestCheck(TestCounts(5), TestCounts(4)))
    red = after(counted, RED, DONE, RED)
    assert (red.order, red.runs, red.alone) == (PutBack(), (Result.RED,), Result.RED)

    again = retaken(after(red, MOVED, DONE), LATER, {})

    fresh = begin(LATER, Baseline.GREEN, check=TestCheck(TestCounts(5)))
    assert again == replace(fresh, retakes=1, confirmed=2)
    assert not again.is_stale


@pytest.mark.parametrize("order", [Revert((NEW.sha,)), Push(), ShowOld(())])
def test_a_run_that_is_taken_again_begins_with_the_tests_whatever_was_ordered(
    order: Revert | Push | ShowOld,
) -> None:
    run = replace(begin(CLEAN, Baseline.GREEN), order=order, stale="it is elsewhere")

    assert retaken(run, CLEAN, {}).order == RunTests()


def test_red_tests_before_a_retake_are_no_second_try_of_those_after_it() -> None:
    red = after(begin(CLEAN, Baseline.GREEN), RED, MOVED, policy=TWICE)

    again = step(retaken(red, CLEAN, {}), RED, TWICE)

    assert (again.order, again.runs) == (RunTests(), (Result.RED,))


def test_where_nothing_is_set_aside_nothing_is_put_back_after_a_move() -> None:
    moved = after(begin(CLEAN, Baseline.GREEN), MOVED)

    assert (moved.order, moved.is_stale, moved.retakes) == (RunTests(), True, 0)


def test_what_was_about_to_be_said_is_not_said_after_a_move() -> None:
    cut = after(begin(DIRTY, Baseline.GREEN), RED, DONE, Cut("all was to end"))
    assert cut.planned is not None

    back = after(cut, MOVED, DONE)

    assert (back.order, back.planned, back.is_stale) == (RunTests(), None, True)


def test_what_is_set_aside_is_put_back_before_an_obstacle_is_reported() -> None:
    aside = after(begin(DIRTY, Baseline.GREEN), RED, DONE)
    assert aside.is_aside

    blocked = retaken(aside, replace(DIRTY, trouble="a rebase is half done"), {})

    assert (blocked.order, blocked.verdict) == (PutBack(), None)
    back = after(blocked, DONE)
    why = "a rebase is half done"
    assert verdict(back) == Verdict(VerdictKind.UNTESTED, why, Baseline.GREEN, pauses=True, is_open=True)
    assert not back.is_aside


def test_a_run_that_gives_up_does_not_judge_by_the_tests_without_what_is_not_committed() -> None:
    green_alone = after(begin(DIRTY, Baseline.GREEN, retakes=3), RED, DONE, GREEN)
    assert (green_alone.order, green_alone.alone) == (PutBack(), Result.GREEN)

    given_up = verdict(after(green_alone, MOVED, DONE))

    assert given_up.is_open
    assert given_up.why.startswith("the repository changed 4 times during the tests")


# What is put back


def test_a_note_about_what_was_put_back_is_added_to_the_verdict() -> None:
    noted = CarriedOut("c" * 40, note="a.py is in refs/ralph/aside")

    back = after(begin(DIRTY, Baseline.GREEN), RED, DONE, GREEN, noted)

    why = "dirty: the tests pass without what is not committed: a.py; a.py is in refs/ralph/aside"
    assert verdict(back).why == why


def test_a_note_stays_when_the_next_files_are_put_back_without_one() -> None:
    noted = CarriedOut("c" * 40, note="a.py is in refs/ralph/aside")

    back = after(begin(DIRTY, Baseline.GREEN), RED, DONE, RED, noted, DONE, RED, DONE, GREEN, DONE)

    assert verdict(back).why == "the tests failed, and pass without it; a.py is in refs/ralph/aside"


# A revert


def test_after_a_revert_red_tests_have_to_be_confirmed_again() -> None:
    red = retaken(after(begin(CLEAN, Baseline.GREEN), RED, MOVED), CLEAN, {})
    assert red.confirmed == 1

    gone = after(red, RED, DONE, policy=TWICE)

    assert (gone.reverted, gone.confirmed) == ((NEW.sha,), 0)
    assert step(gone, RED, TWICE).order == RunTests()


def test_an_empty_commit_is_not_blamed_for_flaky_tests() -> None:
    """Its revert changes nothing: green tests of the same tree would prove that they are flaky."""
    same = CarriedOut(NOW.head)
    run = after(begin(CLEAN, Baseline.GREEN), RED, same)
    assert run.order == Revert((OLD.sha,))
    assert verdict(after(run, DONE, GREEN)).kind is VerdictKind.REVERTED
    assert after(run, DONE, GREEN).reverted == (NEW.sha, OLD.sha)
    assert "which are not to blame" in verdict(after(run, same, same)).why


def test_a_branch_that_went_back_says_why_there_is_no_revert() -> None:
    pulled = replace(CLEAN, commits=(replace(NEW, pulled=True),))

    back = after(begin(pulled, Baseline.GREEN), RED, CarriedOut("b" * 40), GREEN)

    assert verdict(back).why == (
        "the tests failed, and pass without it; a revert would remove what other branches have, "
        "so the branch is back at bbbbbbb"
    )


# The earlier versions of the tests


def test_a9_the_patterns_and_the_command_of_the_policy_tell_which_files_are_shown() -> None:
    green = after(begin(CLEAN, Baseline.GREEN), GREEN, policy=REPORT)

    assert green.order == ShowOld(("*.bats",), "./t.sh")


def test_a9_a_test_file_that_was_emptied_is_named_as_gone() -> None:
    shown = Shown(("a.bats", "b.bats"), ("b.bats",))

    found = verdict(after(begin(CLEAN, Baseline.GREEN), GREEN, shown, RED, DONE, policy=REPORT))

    assert found.weakened is Weakened.VANISHED
    assert found.why == (
        "the tests pass, but the earlier version of a.bats, b.bats fails; deleted or emptied: b.bats"
    )


def test_a9_a_run_that_is_taken_again_shows_the_earlier_tests_again() -> None:
    pushed = replace(CLEAN, commits=(replace(NEW, upstream=True),))
    checked = after(begin(pushed, Baseline.GREEN), RED, DONE, GREEN, Shown((), ()), policy=REPORT)
    assert (checked.order, checked.check.is_done) == (Push(), True)

    again = retaken(after(checked, MOVED), pushed, {})

    assert isinstance(step(again, GREEN, REPORT).order, ShowOld)


# Everything is to end during the tests


@pytest.mark.parametrize(
    ("boundary", "policy", "events"),
    [
        (DIRTY, ONCE, (RED, DONE, RED, DONE, DONE, RED, DONE)),
        (CLEAN, REPORT, (RED, DONE, GREEN, Shown(changed=("a.bats",), gone=(), hiding=()))),
    ],
    ids=["without what is not committed", "with the earlier tests"],
)
def test_reverts_are_taken_back_when_the_tests_after_them_are_cut(
    boundary: Boundary, policy: GatePolicy, events: tuple[GateEvent, ...]
) -> None:
    testing = after(begin(boundary, Baseline.GREEN), *events, policy=policy)
    assert testing.order == RunTests() and testing.is_aside and testing.reverted == (NEW.sha,)

    cut = after(testing, Cut("all was to end"), DONE, policy=policy)

    assert cut.order == Restore("a" * 40) and not cut.is_aside
    over = after(cut, CarriedOut(NOW.head), policy=policy)
    open_ = Verdict(VerdictKind.UNTESTED, "all was to end", Baseline.GREEN, is_open=True)
    assert (verdict(over), over.reverted, over.head) == (open_, (), NOW.head)


def test_what_was_to_be_said_is_said_though_the_tests_have_answered_meanwhile() -> None:
    events = (RED, DONE, RED, DONE, DONE, RED, DONE, RED)
    answered = replace(after(begin(DIRTY, Baseline.GREEN), *events), retakes=3)
    assert answered.order == PutBack() and answered.alone is Result.RED

    moved = after(answered, MOVED, DONE)

    assert (verdict(moved).kind, verdict(moved).is_open) == (VerdictKind.REVERTED, True)
    assert moved.reverted == (NEW.sha,)


def test_a_commit_of_somebody_else_excuses_though_there_are_older_ones() -> None:
    newest, older = (JudgedCommit(digit * 40, owner=Owner.OTHER) for digit in "34")
    run = begin(replace(CLEAN, commits=(newest, older, NEW)), Baseline.GREEN, excused=newest.sha)

    found = verdict(after(run, RED))

    assert (found.kind, found.calls, found.is_open) == (VerdictKind.UNTESTED, True, True)
    assert "it did not make 3333333, 4444444: look there first" in found.why
