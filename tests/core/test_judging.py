"""What a verdict does to a ralph: the lines that are said, the pause, the count (C4, R2, R6, R8)."""

import pytest

from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    JudgementBegan,
    JudgementOver,
    LeftBehind,
    RunEnded,
)
from ralphd.core.supervision.model import (
    Announce,
    Escalate,
    Failed,
    Goal,
    Next,
    Paused,
    Pausing,
    RunReports,
    Spawn,
    Starting,
    Stopped,
    Stopping,
    Tally,
)
from ralphd.core.supervision.reports import IterationFinished, Reported, answer
from ralphd.core.supervision.step import step
from tests.core.scenes import EXIT_0, HUNG, NOW, POLICY, RUN, RUNNING, WAITING, ralph

ITERATES = RunReports(hello=True, signals=True, iterates=True)
KEPT = Verdict(VerdictKind.KEPT, "the tests pass", Baseline.GREEN)
REVERTED = Verdict(VerdictKind.REVERTED, "the tests failed, and pass without it", Baseline.GREEN)
IN_THE_WAY = Verdict(VerdictKind.UNTESTED, "a conflict in a.py", Baseline.UNKNOWN, pauses=True)
TESTS = ("red", "red", "green")


def over(verdict: Verdict, **more: object) -> JudgementOver:
    """A judgement of one commit is over."""
    facts = {"commits": ("abc1234",), "tests": TESTS, **more}
    return JudgementOver(NOW, RUN, verdict, **facts)  # type: ignore[arg-type]


def lines(actions: tuple[object, ...]) -> list[str]:
    """What is said to people."""
    return [action.text for action in actions if isinstance(action, Announce) and action.text]


def test_c4_a_kept_commit_is_told_in_the_words_that_were_asked_for() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(KEPT), POLICY)
    assert lines(told.actions) == ["Tests passed ✅ — commit abc1234 kept"]
    assert [action.type for action in told.actions if isinstance(action, Announce)] == [
        "tests.passed",
        "commit.kept",
    ]


def test_c4_a_reverted_commit_as_well_and_it_is_counted() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(REVERTED, reverted=("abc1234",)), POLICY)
    assert lines(told.actions) == ["Tests failed ❌ — reverting commit abc1234"]
    assert told.supervision.tally.reverts == 1
    assert told.supervision.goal is Goal.RUNNING


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("ok 1\nadd.sh 2 3 is   not 5\n\n", "The tests end with: add.sh 2 3 is not 5"),
        ("\x1b[31mFAILED\x1b[0m a.py\r\n", "The tests end with: FAILED a.py"),
        ("x" * 200, f"The tests end with: {'x' * 159}…"),
        (" \n\n", None),
    ],
)
def test_what_red_tests_printed_last_stands_before_their_revert(printed: str, line: str | None) -> None:
    event = over(REVERTED, reverted=("abc1234",), tail=printed)
    told = lines(step(ralph(RUNNING, said=ITERATES), event, POLICY).actions)
    assert told == [*([line] if line else []), "Tests failed ❌ — reverting commit abc1234"]


def test_an_iteration_without_a_commit_is_no_news() -> None:
    nothing = Verdict(VerdictKind.KEPT, "there is no new commit", Baseline.GREEN)
    assert step(ralph(RUNNING, said=ITERATES), over(nothing, commits=(), tests=()), POLICY).actions == ()


def test_h5_a_run_whose_commits_are_tested_is_not_expected_to_give_a_sign() -> None:
    tested = step(ralph(RUNNING, said=ITERATES), JudgementBegan(NOW, RUN), POLICY).supervision
    assert tested.said.testing
    assert not step(tested, over(KEPT), POLICY).supervision.said.testing


def test_r8_what_is_in_the_way_pauses_at_the_boundary_and_calls_a_person_once() -> None:
    told = step(ralph(RUNNING, said=ITERATES), over(IN_THE_WAY), POLICY)
    assert isinstance(told.supervision.state, Pausing)
    assert told.supervision.goal is Goal.PAUSED
    assert len([action for action in told.actions if isinstance(action, Escalate)]) == 1
    report = Reported(NOW, RUN, "r1", "d", IterationFinished(1))
    told = step(told.supervision, report, POLICY)
    assert answer(told.supervision, "r1") is Next.PAUSE
    ended = step(told.supervision, RunEnded(EXIT_0), POLICY).supervision
    assert ended.state == Paused("guard", None, "a conflict in a.py")


def test_where_each_run_is_an_iteration_the_end_that_comes_next_is_the_pause() -> None:
    told = step(ralph(RUNNING), over(IN_THE_WAY), POLICY)
    ended = step(told.supervision, RunEnded(EXIT_0), POLICY).supervision
    assert ended.state == Paused("guard", None, "a conflict in a.py")


def test_a_pause_for_a_person_outlasts_the_wait_for_a_restart() -> None:
    told = step(ralph(WAITING), JudgementOver(NOW, None, IN_THE_WAY), POLICY)
    assert told.supervision.state == Paused("guard", None, "a conflict in a.py")


def test_who_was_asked_to_stop_stops() -> None:
    stopped = ralph(HUNG, goal=Goal.STOPPED)
    assert step(stopped, over(IN_THE_WAY), POLICY).supervision.goal is Goal.STOPPED


@pytest.mark.parametrize("calls", [True, False])
def test_what_is_not_judged_is_told_and_calls_a_person_only_where_that_is_asked(calls: bool) -> None:
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
def test_what_could_not_be_brought_back_is_not_said_to_be_there(reverted: tuple[str, ...], what: str) -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "cannot be taken back", Baseline.UNKNOWN, pauses=True)
    told = step(ralph(RUNNING), over(verdict, reverted=reverted), POLICY)
    assert Escalate(f"Not judged — {what}: cannot be taken back") in told.actions


def test_a_verdict_that_is_told_again_by_the_next_daemon_counts_once() -> None:
    verdict = over(REVERTED, reverted=("abc1234",), id="r1/7")
    once = step(ralph(RUNNING, said=ITERATES), verdict, POLICY).supervision
    again = step(once, verdict, POLICY)
    assert (again.supervision, again.actions) == (once, ())


@pytest.mark.parametrize(("judged", "errors"), [("7", 2), ("6", 0)])
def test_c3_an_iteration_that_was_reverted_clears_no_errors(judged: str, errors: int) -> None:
    verdict = over(REVERTED, reverted=("abc1234",), id=f"{RUN}/{judged}")
    now = step(ralph(RUNNING, tally=Tally(consecutive_errors=2), said=ITERATES), verdict, POLICY).supervision
    finished = step(now, Reported(NOW, RUN, "7", "digest", IterationFinished(4)), POLICY).supervision
    assert finished.tally.consecutive_errors == errors


def test_a_pause_for_the_guard_outlasts_a_restart_that_was_asked_for() -> None:
    ending = ralph(Stopping(RUN, NOW, None, again=True), said=ITERATES)
    paused = step(ending, over(IN_THE_WAY), POLICY).supervision
    assert isinstance(paused.state, Pausing)
    assert isinstance(step(paused, RunEnded(EXIT_0), POLICY).supervision.state, Paused)


@pytest.mark.parametrize("result", [Result.GREEN, Result.RED, Result.TIMED_OUT, Result.ENDED])
def test_r4_whatever_the_tests_say_before_the_first_run_it_starts(result: Result) -> None:
    tested = step(ralph(Starting(before=Stopped())), JudgementBegan(NOW, None), POLICY).supervision
    assert (tested.state, tested.said.testing) == (Starting(), True)
    answer = step(tested, BaselineTested(NOW, "t1", result, "exit 1"), POLICY)
    assert answer.actions[-1] == Spawn()
    assert not answer.supervision.said.testing
    assert bool(lines(answer.actions)) is (result is not Result.GREEN)


def test_tests_that_cannot_be_run_at_all_are_a_mistake_that_is_told_before_anything_starts() -> None:
    answer = step(ralph(Starting()), BaselineTested(NOW, "t1", Result.CANNOT_RUN, "exit 127"), POLICY)
    assert isinstance(answer.supervision.state, Failed)
    assert isinstance(answer.actions[0], Escalate)


@pytest.mark.parametrize(("goal", "state"), [(Goal.STOPPED, Stopped()), (Goal.PAUSED, Paused("requested"))])
def test_nothing_starts_that_was_not_wanted_any_more_while_the_tests_ran(
    goal: Goal, state: Stopped | Paused
) -> None:
    answer = step(ralph(Starting(), goal=goal), BaselineTested(NOW, "t1", None), POLICY)
    assert answer.supervision.state == state
    assert Spawn() not in answer.actions


def test_what_a_run_left_half_done_is_said_as_it_is() -> None:
    left = LeftBehind(NOW, RUN, ("removed index.lock",), ("a rebase is half done",))
    assert [
        action.type for action in step(ralph(RUNNING), left, POLICY).actions if isinstance(action, Announce)
    ] == [
        "state.recovered",
        "guard.blocked",
    ]


def test_a_person_is_called_once_for_the_same_reason_however_many_iterations_have_it() -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "the tests did not end in time", Baseline.GREEN, calls=True)
    first = step(ralph(RUNNING, said=ITERATES), over(verdict, id="1"), POLICY)
    second = step(first.supervision, over(verdict, id="2"), POLICY)
    kept = step(second.supervision, over(KEPT, id="3"), POLICY)
    again = step(kept.supervision, over(verdict, id="4"), POLICY)
    calls = [
        sum(isinstance(action, Escalate) for action in each.actions) for each in (first, second, kept, again)
    ]
    assert calls == [1, 0, 0, 1]


def test_what_a_person_puts_back_is_told_and_changes_nothing_else() -> None:
    paused = ralph(Paused("requested"), Goal.PAUSED)
    two = CommitsRestored(NOW, "f2", RUN, 2, None, ("abc1234", "def5678"), ("1234567",))
    told = step(paused, two, POLICY)
    assert told.supervision == paused
    [news] = told.actions
    assert isinstance(news, Announce)
    assert news.type == "commit.restored"
    assert news.text == (
        "Put back, as asked — commits abc1234, def5678 of iteration 2; the tests run before the next start"
    )
    assert dict(news.data) == {
        "iteration": 2,
        "task": None,
        "commits": ["abc1234", "def5678"],
        "made": ["1234567"],
    }
