"""What a verdict does to a ralph: the lines that are said, the pause, the count (C4, R2, R6, R8)."""

from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.gate.verdict import LEFT, Baseline, Result, Verdict, VerdictKind
from ralphd.core.gate.weakened import Weakened
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    GateRunBegan,
    HistoryRewritten,
    LeftBehind,
    RunEnded,
    VerdictReached,
)
from ralphd.core.supervision.model import (
    Announce,
    Escalate,
    Failed,
    Goal,
    Mode,
    Next,
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
from ralphd.core.supervision.reports import IterationFinished, Reported, answer
from ralphd.core.supervision.requests import (
    UNFIT,
    announced,
    baseline,
    began,
    data_of,
    restored_data,
    rewritten_data,
    rewritten_text,
)
from ralphd.core.supervision.requests import over as judge
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import PAUSED_ON_REQUEST, STOPPED
from tests.core.supervision.scenes import EXIT_0, HUNG, NOW, POLICY, RUN, RUNNING, WAITING, ralph

ITERATES = RunReports(hello=True, signals=True, iterates=True)
KEPT = Verdict(VerdictKind.KEPT, "the tests pass", Baseline.GREEN)
REVERTED = Verdict(VerdictKind.REVERTED, "the tests failed, and pass without it", Baseline.GREEN)
IN_THE_WAY = Verdict(VerdictKind.UNTESTED, "a conflict in a.py", Baseline.UNKNOWN, pauses=True)
TESTS = ("red", "red", "green")
RESTORED = "Branch main had lost commit a1: restored"
BOTH_RESTORED = "Branch main had lost commits a1, a2: restored"


def over(verdict: Verdict, **more: object) -> VerdictReached:
    """A judgement of one commit is over."""
    facts = {"commits": ("abc1234",), "tests": TESTS, **more}
    return VerdictReached(replace(verdict, run_id=RUN, at=NOW, **facts))  # type: ignore[arg-type]


def lines(actions: tuple[object, ...]) -> list[str]:
    """What is said to people."""
    return [action.text for action in actions if isinstance(action, Announce) and action.text]


def test_c4_a_kept_commit_is_announced() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(KEPT), POLICY)
    assert lines(told.actions) == ["Tests passed ✅ — commit abc1234 kept"]
    assert [action.type for action in told.actions if isinstance(action, Announce)] == [
        "tests.passed",
        "commit.kept",
    ]


def test_tests_that_pass_over_an_empty_range_keep_nothing() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(KEPT, commits=()), POLICY)
    assert lines(told.actions) == ["Tests passed ✅ — no commit to keep"]
    assert [action.type for action in told.actions if isinstance(action, Announce)] == ["tests.passed"]


def test_c4_a_reverted_commit_is_announced_and_counted() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(REVERTED, reverted=("abc1234",)), POLICY)
    assert lines(told.actions) == ["Tests failed ❌ — reverting commit abc1234"]
    assert told.supervision.tally.reverts == 1
    assert told.supervision.goal is Goal.RUNNING


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("ok 1\nadd.sh 2 3 is   not 5\n\n", "The tests' last line: add.sh 2 3 is not 5"),
        ("\x1b[31mFAILED\x1b[0m a.py\r\n", "The tests' last line: FAILED a.py"),
        ("x" * 160, f"The tests' last line: {'x' * 160}"),
        ("x" * 161, f"The tests' last line: {'x' * 159}…"),
        (" \n\n", None),
    ],
)
def test_the_last_line_of_red_tests_is_announced(printed: str, line: str | None) -> None:
    event = over(REVERTED, reverted=("abc1234",), tail=printed)
    told = lines(step(ralph(RUNNING, said=ITERATES), event, POLICY).actions)
    assert told == [*([line] if line else []), "Tests failed ❌ — reverting commit abc1234"]


def test_an_iteration_without_a_commit_is_no_news() -> None:
    nothing = Verdict(VerdictKind.KEPT, "there is no new commit", Baseline.GREEN)
    assert step(ralph(RUNNING, said=ITERATES), over(nothing, commits=(), tests=()), POLICY).actions == ()


def test_h5_a_run_under_test_need_not_report() -> None:
    tested = step(ralph(RUNNING, said=ITERATES), GateRunBegan(NOW, RUN), POLICY).supervision
    assert tested.said.testing
    assert not step(tested, over(KEPT), POLICY).supervision.said.testing


def test_r8_an_obstacle_pauses_at_the_boundary_and_escalates() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(IN_THE_WAY), POLICY)
    assert isinstance(told.supervision.state, Pausing)
    assert told.supervision.goal is Goal.PAUSED
    assert len([action for action in told.actions if isinstance(action, Escalate)]) == 1
    report = Reported(NOW, RUN, "r1", "d", IterationFinished(1))
    told = step(told.supervision, report, POLICY)
    assert answer(told.supervision, "r1") is Next.PAUSE
    ended = step(told.supervision, RunEnded(EXIT_0), POLICY).supervision
    assert ended.state == Paused("guard", None, "a conflict in a.py")


def test_r8_in_iteration_mode_the_next_end_pauses() -> None:
    told = step(ralph(RUNNING), over(IN_THE_WAY), POLICY)
    ended = step(told.supervision, RunEnded(EXIT_0), POLICY).supervision
    assert ended.state == Paused("guard", None, "a conflict in a.py")


def test_r8_a_gate_pause_outlasts_a_retry_wait() -> None:
    told = step(ralph(WAITING), VerdictReached(replace(IN_THE_WAY, at=NOW)), POLICY)
    assert told.supervision.state == Paused("guard", None, "a conflict in a.py")


def test_who_was_asked_to_stop_stops() -> None:
    stopped = ralph(HUNG, goal=Goal.STOPPED)
    assert step(stopped, over(IN_THE_WAY), POLICY).supervision.goal is Goal.STOPPED


@pytest.mark.parametrize("calls", [True, False])
def test_an_untested_commit_escalates_only_where_asked(calls: bool) -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "the tests did not end in time", Baseline.GREEN, calls=calls)
    told = step(ralph(RUNNING, said=ITERATES), over(verdict), POLICY)
    assert told.supervision.state == RUNNING
    assert any(isinstance(action, Escalate) for action in told.actions) == calls


@pytest.mark.parametrize(
    ("reverted", "what"),
    [
        ((), "commit abc1234 stays"),
        (("abc1234",), "commit abc1234 stays reverted"),
        (("abc1234", "def5678"), "commits abc1234, def5678 stay reverted"),
    ],
)
def test_reverts_that_stay_are_named(reverted: tuple[str, ...], what: str) -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "cannot be taken back", Baseline.UNKNOWN, pauses=True)
    told = step(ralph(RUNNING), over(verdict, reverted=reverted), POLICY)
    assert Escalate(f"Not judged — {what}: cannot be taken back") in told.actions


def test_a_repeated_verdict_counts_once() -> None:
    verdict = over(REVERTED, reverted=("abc1234",), boundary_id="r1/7")
    once = step(ralph(RUNNING, said=ITERATES), verdict, POLICY).supervision
    again = step(once, verdict, POLICY)
    assert (again.supervision, again.actions) == (once, ())


@pytest.mark.parametrize(("judged", "errors"), [("7", 2), ("6", 0)])
def test_c3_an_iteration_that_was_reverted_clears_no_errors(judged: str, errors: int) -> None:
    verdict = over(REVERTED, reverted=("abc1234",), boundary_id=f"{RUN}/{judged}")
    now = step(ralph(RUNNING, tally=Tally(consecutive_errors=2), said=ITERATES), verdict, POLICY).supervision
    finished = step(now, Reported(NOW, RUN, "7", "digest", IterationFinished(4)), POLICY).supervision
    assert finished.tally.consecutive_errors == errors


def test_r8_a_gate_pause_outlasts_a_restart() -> None:
    ending = ralph(Stopping(RUN, NOW, None, again=True), said=ITERATES)
    paused = step(ending, over(IN_THE_WAY), POLICY).supervision
    assert isinstance(paused.state, Pausing)
    assert isinstance(step(paused, RunEnded(EXIT_0), POLICY).supervision.state, Paused)


@pytest.mark.parametrize("result", [Result.GREEN, Result.RED, Result.TIMED_OUT, Result.ENDED])
def test_r4_any_result_before_the_first_run_starts_it(result: Result) -> None:
    tested = step(ralph(Starting(before=Stopped())), GateRunBegan(NOW, None), POLICY).supervision
    assert (tested.state, tested.said.testing) == (Starting(), True)
    answer = step(tested, BaselineTested(NOW, "t1", result, "exit 1"), POLICY)
    assert answer.actions[-1] == Spawn()
    assert not answer.supervision.said.testing
    assert bool(lines(answer.actions)) is (result is not Result.GREEN)


def test_r4_tests_that_cannot_run_fail_the_start() -> None:
    answer = step(ralph(Starting()), BaselineTested(NOW, "t1", Result.CANNOT_RUN, "exit 127"), POLICY)
    assert isinstance(answer.supervision.state, Failed)
    assert isinstance(answer.actions[0], Escalate)


@pytest.mark.parametrize(("goal", "state"), [(Goal.STOPPED, Stopped()), (Goal.PAUSED, Paused("requested"))])
def test_r4_a_withdrawn_start_spawns_nothing(goal: Goal, state: Stopped | Paused) -> None:
    answer = step(ralph(Starting(), goal=goal), BaselineTested(NOW, "t1", None), POLICY)
    assert answer.supervision.state == state
    assert Spawn() not in answer.actions


def test_half_done_work_is_announced() -> None:
    left = LeftBehind(NOW, RUN, ("removed index.lock",), ("a rebase is half done",))
    assert [
        action.type for action in step(ralph(RUNNING), left, POLICY).actions if isinstance(action, Announce)
    ] == [
        "state.recovered",
        "guard.blocked",
    ]


def test_the_same_reason_escalates_once() -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "the tests did not end in time", Baseline.GREEN, calls=True)
    first = step(ralph(RUNNING, said=ITERATES), over(verdict, boundary_id="1"), POLICY)
    second = step(first.supervision, over(verdict, boundary_id="2"), POLICY)
    kept = step(second.supervision, over(KEPT, boundary_id="3"), POLICY)
    again = step(kept.supervision, over(verdict, boundary_id="4"), POLICY)
    calls = [
        sum(isinstance(action, Escalate) for action in each.actions) for each in (first, second, kept, again)
    ]
    assert calls == [1, 0, 0, 1]


def test_restored_commits_are_announced() -> None:
    paused = ralph(Paused("requested"), Goal.PAUSED)
    two = CommitsRestored(NOW, "f2", RUN, 2, None, ("abc1234", "def5678"), ("1234567",))
    told = step(paused, two, POLICY)
    assert told.supervision == paused
    [news] = told.actions
    assert isinstance(news, Announce)
    assert news.type == "commit.restored"
    assert news.text == (
        "Re-applied, as requested — commits abc1234, def5678 of iteration 2;"
        " the tests run before the next start"
    )
    assert dict(news.data) == {
        "iteration": 2,
        "task": None,
        "commits": ["abc1234", "def5678"],
        "made": ["1234567"],
    }


UNDONE = Verdict(VerdictKind.REVERTED, "they pass without it", Baseline.GREEN)
UNTESTED = Verdict(VerdictKind.UNTESTED, "a rebase", Baseline.GREEN)
PAUSES = replace(UNTESTED, pauses=True)


def judged(verdict: Verdict, **more: Any) -> VerdictReached:
    facts = {"commits": ("abc1234",), "tests": ("red",), **more}
    return VerdictReached(replace(verdict, run_id=RUN, at=NOW, **facts))


def data(event: VerdictReached) -> dict[str, Any]:
    return dict(data_of(event.verdict))


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
def test_h5_only_a_live_run_is_under_test(state: Any, run_id: Any, testing: bool) -> None:
    now = ralph(state)
    found = began(now, GateRunBegan(NOW, run_id))
    assert (found.supervision.said.testing, found.actions) == (testing, ())
    assert replace(found.supervision, said=now.said) == now


def test_r4_a_start_is_answered_when_tests_begin() -> None:
    kill = True
    found = began(ralph(Starting(before=Stopped(), kill=kill)), GateRunBegan(NOW, None)).supervision
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
                    "The tests fail before Ralph starts: commits are not judged until they pass",
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
                    "The tests give no result (exit 9) before Ralph starts: "
                    "commits are not judged until they pass",
                    data=(("baseline", True), ("tests", "timed_out")),
                ),
                Spawn(),
            ),
        ),
    ],
)
def test_r4_the_first_result_is_announced(result: Result | None, actions: tuple[Any, ...]) -> None:
    testing = ralph(Starting(), said=RunReports(testing=True))
    found = baseline(testing, BaselineTested(NOW, "t1", result, "exit 9"))
    assert found.actions == actions
    assert (found.supervision.state, found.supervision.said.testing) == (Starting(), False)


def test_r4_tests_that_cannot_run_escalate() -> None:
    why = f"Ralph is not started: {UNFIT} (exit 127)"
    assert UNFIT == "the tests cannot be run: test_command is not found or not executable"
    found = baseline(ralph(Starting()), BaselineTested(NOW, "t1", Result.CANNOT_RUN, "exit 127"))
    assert found.supervision.state == Failed(why)
    assert found.actions == (Escalate(why), Announce("ralph.failed"))


@pytest.mark.parametrize(
    ("goal", "state", "action"),
    [(Goal.STOPPED, Stopped(), STOPPED), (Goal.PAUSED, Paused("requested"), PAUSED_ON_REQUEST)],
)
def test_r4_a_withdrawn_start_is_announced(goal: Goal, state: Any, action: Any) -> None:
    found = baseline(ralph(Starting(), goal=goal), BaselineTested(NOW, "t1", Result.GREEN))
    assert (found.supervision.state, found.actions) == (state, (action,))
    late = baseline(ralph(RUNNING), BaselineTested(NOW, "t1", Result.GREEN))
    assert (late.supervision, late.actions) == (ralph(RUNNING), ())


# It is over


def test_c4_events_of_a_kept_commit() -> None:
    event = judged(KEPT, boundary_id="r1/1")
    found = judge(
        ralph(RUNNING, said=replace(ITERATES, testing=True), tally=Tally(called="x")), event, POLICY
    )
    known = data_of(event.verdict)
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
    assert judge(ralph(RUNNING), judged(KEPT, tests=()), POLICY).actions == ()


def test_c4_a_revert_has_its_events_and_calls() -> None:
    event = judged(UNDONE, reverted=("abc1234", "b", "c", "d"), boundary_id="r1/1")
    text = "Tests failed ❌ — reverting commits abc1234, b, c and 1 more"
    lines = (
        Announce("tests.failed", data=data_of(event.verdict)),
        Announce("commit.reverted", text, data=data_of(event.verdict)),
    )
    found = judge(ralph(RUNNING), event, POLICY)
    assert found.actions == lines
    assert (found.supervision.tally.reverts, found.supervision.said.reverted) == (1, True)
    calls = replace(event, verdict=replace(event.verdict, calls=True))
    called = judge(ralph(RUNNING), calls, POLICY)
    assert called.actions == (*lines, Escalate(f"{text}; they pass without it"))
    assert called.supervision.tally.called == "they pass without it"
    assert (
        judge(
            called.supervision,
            judged(calls.verdict, reverted=calls.verdict.reverted, boundary_id="r1/2"),
            POLICY,
        ).actions
        == lines
    )


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
def test_an_untested_commit_is_one_log_line(more: dict[str, Any], stays: str) -> None:
    text = f"Not judged — {stays}: a rebase"
    event = judged(UNTESTED, **more)
    assert judge(ralph(RUNNING), event, POLICY).actions == (
        Announce("guard.blocked", text, data=data_of(event.verdict)),
    )
    for verdict in (replace(UNTESTED, calls=True), PAUSES):
        event = judged(verdict, **more)
        actions = judge(ralph(RUNNING, said=ITERATES), event, POLICY).actions
        silent = Announce("guard.blocked", data=(("message", text), *data_of(event.verdict)))
        assert actions[:2] == (silent, Escalate(text))


def test_what_events_keep_of_a_verdict() -> None:
    event = judged(UNDONE, number=3, task=ReportedTask("T", "do"), reverted=("abc1234",), refs=("refs/x",))
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


def test_a_verdict_is_announced_once_by_its_id() -> None:
    known = ralph(RUNNING, said=replace(ITERATES, judged="r1/1"))
    assert judge(known, judged(UNDONE, reverted=("a",), boundary_id="r1/1"), POLICY).actions == ()
    assert judge(known, judged(UNDONE, reverted=("a",), boundary_id="r1/2"), POLICY).actions
    assert judge(ralph(RUNNING), judged(UNDONE, reverted=("a",)), POLICY).actions


# The pause


def test_r8_a_loop_pauses_at_its_boundary() -> None:
    found = judge(ralph(RUNNING, said=ITERATES), judged(PAUSES), POLICY).supervision
    assert found.state == Pausing(RUN, NOW, None, asked=False)
    assert (found.goal, found.said.guard) == (Goal.PAUSED, "a rebase")


def test_r8_a_run_that_has_none_is_ended() -> None:
    policy = replace(POLICY, mode=Mode.ITERATION)
    found = judge(ralph(RUNNING), judged(PAUSES), policy)
    assert isinstance(found.supervision.state, Pausing)
    assert isinstance(found.actions[0], Announce) and isinstance(found.actions[1], Escalate)
    assert (found.supervision.goal, found.supervision.said.guard) == (Goal.PAUSED, "a rebase")


@pytest.mark.parametrize("asked", [True, False])
def test_r8_a_stopping_run_ends_in_the_pause(asked: bool) -> None:
    ending = Stopping(RUN, NOW - 5, NOW + 9, again=True, asked=asked)
    found = judge(ralph(ending, said=ITERATES), judged(PAUSES), POLICY)
    assert found.supervision.state == Pausing(RUN, NOW - 5, NOW + 9, asked=asked)
    assert len(found.actions) == 2


@pytest.mark.parametrize("state", [WAITING, Paused("requested")])
def test_r8_where_nothing_runs_it_is_paused_at_once(state: Any) -> None:
    found = judge(ralph(state), judged(PAUSES), POLICY)
    assert (found.supervision.state, len(found.actions)) == (Paused("guard", None, "a rebase"), 2)


def test_r8_stopped_and_failed_ralphs_are_not_paused() -> None:
    stopped = judge(ralph(RUNNING, said=ITERATES, goal=Goal.STOPPED), judged(PAUSES), POLICY)
    assert (stopped.supervision.state, stopped.supervision.goal) == (RUNNING, Goal.STOPPED)
    assert len(stopped.actions) == 2
    failed = judge(ralph(Failed("x")), judged(PAUSES), POLICY)
    assert (failed.supervision.state, len(failed.actions)) == (Failed("x"), 2)
    assert isinstance(ralph(RUNNING).state, Running)


# News of the repository


def test_leftovers_are_announced_line_by_line() -> None:
    assert announced(LeftBehind(NOW, RUN, ("a", "b"), ("c", "d"))) == (
        Announce("state.recovered", "Repaired what the run left behind: a; b"),
        Announce("guard.blocked", "The run left something unfinished: c; d"),
    )
    assert announced(LeftBehind(NOW, RUN, ("a",))) == (
        Announce("state.recovered", "Repaired what the run left behind: a"),
    )
    assert announced(LeftBehind(NOW, RUN)) == ()


@pytest.mark.parametrize(("number", "of"), [(2, " of iteration 2"), (None, "")])
def test_what_a_person_has_put_back_is_told(number: int | None, of: str) -> None:
    event = CommitsRestored(NOW, "r1/2", RUN, number, {"id": "T"}, ("abc1234",), ("def5678",))
    text = f"Re-applied, as requested — commit abc1234{of}; the tests run before the next start"
    assert announced(event) == (Announce("commit.restored", text, data=restored_data(event)),)
    assert dict(restored_data(event)) == {
        "iteration": number,
        "task": {"id": "T"},
        "commits": ["abc1234"],
        "made": ["def5678"],
    }


@pytest.mark.parametrize(
    ("lost", "reapplied", "conflicts", "why", "text"),
    [
        (("a1",), (), (), "", RESTORED),
        ((), (), (), "", "Branch main had lost commits: restored"),
        (("a1",), ("b2",), (), "", f"{RESTORED}, new commit b2 re-applied on top"),
        (("a1", "a2"), (), ("c3", "c4"), "",
         f"{BOTH_RESTORED}, new commits c3, c4 not re-applied because of conflicts"),
        ((), (), (), "gone", "Branch main lost commits, not restored: gone"),
        (("a1",), (), (), "gone", "Branch main lost commit a1, not restored: gone. To restore: git merge a1"),
    ],
)  # fmt: skip
def test_the_text_of_a_rewritten_branch_names_what_became_of_each_commit(
    lost: tuple[str, ...], reapplied: tuple[str, ...], conflicts: tuple[str, ...], why: str, text: str
) -> None:
    event = HistoryRewritten(NOW, RUN, "b1", "main", lost, reapplied=reapplied, conflicts=conflicts, why=why)

    assert rewritten_text(event) == text
    assert dict(rewritten_data(event))["lost"] == [*lost]


def test_weakened_tests_are_announced_besides_the_verdict() -> None:
    weakened = Verdict(VerdictKind.KEPT, "3 tests fewer", weakened=Weakened.VANISHED, boundary_id="b1",
                       run_id=RUN, commits=("a1",), at=NOW)  # fmt: skip

    running = ralph(RUNNING)
    actions = step(running, VerdictReached(weakened), POLICY).actions
    sound = step(running, VerdictReached(replace(weakened, weakened=Weakened.NOT)), POLICY).actions

    text = "Tests weakened: 3 tests fewer"
    assert actions == (*sound, Announce("tests.weakened", text, data=data_of(weakened)))


def test_an_undone_repair_is_announced_with_the_ref_that_keeps_the_branch() -> None:
    undone = CommitsRestored(NOW, "b1", RUN, number=None, repair=3, ref="refs/ralph/left/x")

    (action,) = announced(undone)

    text = "Repair 3 undone, as requested; the repaired branch is kept under refs/ralph/left/x"
    assert action.text == text
    assert dict(action.data)["repair"] == 3
    assert dict(action.data)["ref"] == "refs/ralph/left/x"


def test_commits_that_leave_the_branch_are_said_to_be_taken_off() -> None:
    left = over(REVERTED, reverted=("abc1234",), refs=(f"{LEFT}x",))
    kept = over(REVERTED, reverted=("abc1234",), refs=("refs/ralph/other",))

    said = lines(step(ralph(RUNNING), left, POLICY).actions)
    assert "Tests failed ❌ — taking commit abc1234 off the branch" in said
    assert "Tests failed ❌ — reverting commit abc1234" in lines(step(ralph(RUNNING), kept, POLICY).actions)


def test_passed_tests_without_a_commit_are_announced_with_their_data() -> None:
    event = over(KEPT, commits=())

    (action,) = step(ralph(RUNNING), event, POLICY).actions

    text = "Tests passed ✅ — no commit to keep"
    assert action == Announce("tests.passed", text, data=data_of(event.verdict))
