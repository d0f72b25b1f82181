"""What a verdict does to a ralph, to the letter: every line, event and state (C4, R2, R4, R6, R8)."""

from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    JudgementBegan,
    JudgementOver,
    LeftBehind,
)
from ralphd.core.supervision.gate_events import UNFIT, baseline, began, data_of, over, restored_data, told
from ralphd.core.supervision.model import (
    Announce,
    Escalate,
    Failed,
    Goal,
    Mode,
    Paused,
    Pausing,
    ReportedTask,
    Running,
    RunReports,
    Spawn,
    Starting,
    Stopped,
    Stopping,
    Tally,
)
from ralphd.core.supervision.transitions import PAUSED_ON_REQUEST, STOPPED
from tests.core.scenes import NOW, POLICY, RUN, RUNNING, WAITING, ralph

ITERATES = RunReports(hello=True, signals=True, iterates=True)
KEPT = Verdict(VerdictKind.KEPT, "the tests pass", Baseline.GREEN)
REVERTED = Verdict(VerdictKind.REVERTED, "they pass without it", Baseline.GREEN)
UNTESTED = Verdict(VerdictKind.UNTESTED, "a rebase", Baseline.GREEN)
PAUSES = replace(UNTESTED, pauses=True)


def judged(verdict: Verdict, **more: Any) -> JudgementOver:
    return JudgementOver(NOW, RUN, verdict, **{"commits": ("abc1234",), "tests": ("red",), **more})


def data(event: JudgementOver) -> dict[str, Any]:
    return dict(data_of(event))


# It begins


@pytest.mark.parametrize(
    ("state", "run_id", "testing"),
    [
        (RUNNING, RUN, True),
        (RUNNING, "r9", False),
        (RUNNING, None, False),
        (WAITING, RUN, False),
        (Stopped(), RUN, False),
    ],
)
def test_h5_only_of_the_run_that_lives_no_sign_is_expected(state: Any, run_id: Any, testing: bool) -> None:
    now = ralph(state)
    found = began(now, JudgementBegan(NOW, run_id))
    assert (found.supervision.said.testing, found.actions) == (testing, ())
    assert replace(found.supervision, said=now.said) == now


def test_r4_who_asked_for_a_start_is_answered_when_the_tests_begin() -> None:
    kill = True
    found = began(ralph(Starting(before=Stopped(), kill=kill)), JudgementBegan(NOW, None)).supervision
    assert (found.state, found.said.testing) == (Starting(kill=kill), True)


# The tests before the first run


@pytest.mark.parametrize(
    ("result", "actions"),
    [
        (None, (Spawn(),)),
        (Result.GREEN, (Announce("tests.passed", data=(("baseline", True), ("tests", "green"))), Spawn())),
        (
            Result.RED,
            (
                Announce(
                    "tests.failed",
                    "The tests are red before Ralph begins: commits are not judged until they are green",
                    data=(("baseline", True), ("tests", "red")),
                ),
                Spawn(),
            ),
        ),
        (
            Result.TIMED_OUT,
            (
                Announce(
                    "tests.failed",
                    "The tests say nothing (exit 9) before Ralph begins: "
                    "commits are not judged until they are green",
                    data=(("baseline", True), ("tests", "timed_out")),
                ),
                Spawn(),
            ),
        ),
    ],
)
def test_r4_what_the_tests_say_first_is_told_and_it_starts(
    result: Result | None, actions: tuple[Any, ...]
) -> None:
    testing = ralph(Starting(), said=RunReports(testing=True))
    found = baseline(testing, BaselineTested(NOW, "t1", result, "exit 9"))
    assert found.actions == actions
    assert (found.supervision.state, found.supervision.said.testing) == (Starting(), False)


def test_r4_tests_that_cannot_be_run_are_why_it_is_not_started() -> None:
    why = f"Ralph is not started: {UNFIT} (exit 127)"
    assert UNFIT == "the tests cannot be run: test_command is not found or not executable"
    found = baseline(ralph(Starting()), BaselineTested(NOW, "t1", Result.CANNOT_RUN, "exit 127"))
    assert found.supervision.state == Failed(why)
    assert found.actions == (Escalate(why), Announce("ralph.failed"))


@pytest.mark.parametrize(
    ("goal", "state", "action"),
    [(Goal.STOPPED, Stopped(), STOPPED), (Goal.PAUSED, Paused("requested"), PAUSED_ON_REQUEST)],
)
def test_who_is_not_to_run_any_more_is_told_so(goal: Goal, state: Any, action: Any) -> None:
    found = baseline(ralph(Starting(), goal=goal), BaselineTested(NOW, "t1", Result.GREEN))
    assert (found.supervision.state, found.actions) == (state, (action,))
    late = baseline(ralph(RUNNING), BaselineTested(NOW, "t1", Result.GREEN))
    assert (late.supervision, late.actions) == (ralph(RUNNING), ())


# It is over


def test_c4_events_of_a_kept_commit() -> None:
    event = judged(KEPT, id="r1/1")
    found = over(ralph(RUNNING, said=replace(ITERATES, testing=True), tally=Tally(called="x")), event, POLICY)
    known = data_of(event)
    assert found.actions == (
        Announce("tests.passed", data=known),
        Announce("commit.kept", "Tests passed ✅ — commit abc1234 kept", data=known),
    )
    said = found.supervision.said
    assert (said.testing, said.judged, said.reverted, found.supervision.tally.called) == (
        False,
        "r1/1",
        False,
        None,
    )
    assert over(ralph(RUNNING), judged(KEPT, tests=()), POLICY).actions == ()


def test_c4_events_of_a_revert_and_of_one_for_which_somebody_is_called() -> None:
    event = judged(REVERTED, reverted=("abc1234", "b", "c", "d"), id="r1/1")
    text = "Tests failed ❌ — reverting commits abc1234, b, c and 1 more"
    lines = (
        Announce("tests.failed", data=data_of(event)),
        Announce("commit.reverted", text, data=data_of(event)),
    )
    found = over(ralph(RUNNING), event, POLICY)
    assert found.actions == lines
    assert (found.supervision.tally.reverts, found.supervision.said.reverted) == (1, True)
    calls = replace(event, verdict=replace(REVERTED, calls=True))
    called = over(ralph(RUNNING), calls, POLICY)
    assert called.actions == (*lines, Escalate(f"{text}; they pass without it"))
    assert called.supervision.tally.called == "they pass without it"
    assert over(called.supervision, replace(calls, id="r1/2"), POLICY).actions == lines


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        ({}, "commit abc1234 stays"),
        ({"commits": ("abc1234", "def5678")}, "commit abc1234 stays"),
        ({"commits": ()}, "the iteration stays"),
        ({"reverted": ("b",)}, "commit b stays reverted"),
        ({"reverted": ("b", "c", "d")}, "commits b, c, d stay reverted"),
    ],
)
def test_what_is_not_judged_is_one_line_of_the_log_whoever_is_called(
    more: dict[str, Any], stays: str
) -> None:
    text = f"Not judged — {stays}: a rebase"
    event = judged(UNTESTED, **more)
    assert over(ralph(RUNNING), event, POLICY).actions == (
        Announce("guard.blocked", text, data=data_of(event)),
    )
    for verdict in (replace(UNTESTED, calls=True), PAUSES):
        event = judged(verdict, **more)
        actions = over(ralph(RUNNING, said=ITERATES), event, POLICY).actions
        silent = Announce("guard.blocked", data=(("message", text), *data_of(event)))
        assert actions[:2] == (silent, Escalate(text))


def test_what_events_keep_of_a_verdict() -> None:
    event = judged(REVERTED, number=3, task=ReportedTask("T", "do"), reverted=("abc1234",), refs=("refs/x",))
    assert data(event) == {
        "iteration": 3,
        "task": {"id": "T", "title": "do"},
        "verdict": "reverted",
        "why": "they pass without it",
        "commits": ["abc1234"],
        "reverted": ["abc1234"],
        "tests": ["red"],
        "refs": ["refs/x"],
    }


def test_a_verdict_is_told_once_by_its_id_and_without_one_each_time() -> None:
    known = ralph(RUNNING, said=replace(ITERATES, judged="r1/1"))
    assert over(known, judged(REVERTED, reverted=("a",), id="r1/1"), POLICY).actions == ()
    assert over(known, judged(REVERTED, reverted=("a",), id="r1/2"), POLICY).actions
    assert over(ralph(RUNNING), judged(REVERTED, reverted=("a",)), POLICY).actions


# The pause


def test_r8_a_loop_pauses_at_its_boundary() -> None:
    found = over(ralph(RUNNING, said=ITERATES), judged(PAUSES), POLICY).supervision
    assert found.state == Pausing(RUN, NOW, None, asked=False)
    assert (found.goal, found.said.guard) == (Goal.PAUSED, "a rebase")


def test_r8_a_run_that_has_none_is_ended() -> None:
    policy = replace(POLICY, mode=Mode.ITERATION)
    found = over(ralph(RUNNING), judged(PAUSES), policy)
    assert isinstance(found.supervision.state, Pausing)
    assert isinstance(found.actions[0], Announce) and isinstance(found.actions[1], Escalate)
    assert (found.supervision.goal, found.supervision.said.guard) == (Goal.PAUSED, "a rebase")


@pytest.mark.parametrize("asked", [True, False])
def test_r8_a_run_that_is_ending_ends_in_the_pause(asked: bool) -> None:
    ending = Stopping(RUN, NOW - 5, NOW + 9, again=True, asked=asked)
    found = over(ralph(ending, said=ITERATES), judged(PAUSES), POLICY)
    assert found.supervision.state == Pausing(RUN, NOW - 5, NOW + 9, asked=asked)
    assert len(found.actions) == 2


@pytest.mark.parametrize("state", [WAITING, Paused("requested")])
def test_r8_where_nothing_runs_it_is_paused_at_once(state: Any) -> None:
    found = over(ralph(state), judged(PAUSES), POLICY)
    assert (found.supervision.state, len(found.actions)) == (Paused("guard", None, "a rebase"), 2)


def test_who_was_to_stop_stops_and_who_failed_has_failed() -> None:
    stopped = over(ralph(RUNNING, said=ITERATES, goal=Goal.STOPPED), judged(PAUSES), POLICY)
    assert (stopped.supervision.state, stopped.supervision.goal) == (RUNNING, Goal.STOPPED)
    assert len(stopped.actions) == 2
    failed = over(ralph(Failed("x")), judged(PAUSES), POLICY)
    assert (failed.supervision.state, len(failed.actions)) == (Failed("x"), 2)
    assert isinstance(ralph(RUNNING).state, Running)


# News of the repository


def test_what_a_run_left_is_told_line_by_line() -> None:
    assert told(LeftBehind(NOW, RUN, ("a", "b"), ("c", "d"))) == (
        Announce("state.recovered", "Mended what the run had left: a; b"),
        Announce("guard.blocked", "The run has left something half done: c; d"),
    )
    assert told(LeftBehind(NOW, RUN, ("a",))) == (
        Announce("state.recovered", "Mended what the run had left: a"),
    )
    assert told(LeftBehind(NOW, RUN)) == ()


@pytest.mark.parametrize(("number", "of"), [(2, " of iteration 2"), (None, "")])
def test_what_a_person_has_put_back_is_told(number: int | None, of: str) -> None:
    event = CommitsRestored(NOW, "r1/2", RUN, number, {"id": "T"}, ("abc1234",), ("def5678",))
    text = f"Put back, as asked — commit abc1234{of}; the tests run before the next start"
    assert told(event) == (Announce("commit.restored", text, data=restored_data(event)),)
    assert dict(restored_data(event)) == {
        "iteration": number,
        "task": {"id": "T"},
        "commits": ["abc1234"],
        "made": ["def5678"],
    }
