"""What the end of a run leads to, as a whole: the state, and every event that is told of it (E1, E4, P6)."""

from ralphd.core.supervision.model import (
    Announce,
    Done,
    Failed,
    Goal,
    LastWord,
    Mode,
    Policy,
    Restart,
    RunReports,
    Stopped,
    Tally,
)
from ralphd.core.supervision.transitions import Step
from tests.core.scenes import EXIT_0, EXIT_1, STOPPING, after_end, ended, ralph, texts

UNWATCHED = Policy(supervised=False)
EXITED = Announce("ralph.exited")


def test_e4_the_iteration_that_reached_a_limit_counts_where_a_run_is_one() -> None:
    said = RunReports(limit="$2.00 spent, of $2.00 allowed")

    answer = after_end(EXIT_0, Policy(mode=Mode.ITERATION), Tally(iteration=4), said=said, state=STOPPING)

    assert answer.supervision == ralph(Done("limit", said.limit), tally=Tally(iteration=5))


def test_e4_a_limit_is_told_as_the_work_done() -> None:
    answer = after_end(EXIT_0, said=RunReports(limit="5 iterations, as you asked"), state=STOPPING)

    told = Announce("ralph.done", "Ralph stopped: 5 iterations, as you asked")
    assert answer == Step(ralph(Done("limit", "5 iterations, as you asked")), (EXITED, told))


def test_p6_the_end_of_a_run_that_nobody_watches_is_told_with_its_own_word() -> None:
    limit = RunReports(hello=True, last_word=LastWord(5, "limit", "two hours are over"))
    stuck = RunReports(last_word=LastWord(0, "no_progress", "three iterations without a commit"))
    no_agent = RunReports(last_word=LastWord(1, "no_agent", "no agent is left"))
    why = "no progress: three iterations without a commit"
    how = "Ralph exited (exit 1): no agent is left"

    assert after_end(ended(code=5), UNWATCHED, said=limit) == Step(
        ralph(Done("limit", "two hours are over")),
        (EXITED, Announce("ralph.done", "Ralph stopped: two hours are over")),
    )
    assert after_end(EXIT_0, UNWATCHED, said=stuck) == Step(
        ralph(Stopped(why), Goal.STOPPED), (EXITED, Announce("ralph.stopped", f"Ralph stopped: {why}"))
    )
    assert after_end(EXIT_1, UNWATCHED, said=no_agent) == Step(
        ralph(Failed(how)), (EXITED, Announce("ralph.failed", how))
    )


def test_p6_a_limit_that_it_was_stopped_for_is_told_though_nobody_watches_it_any_more() -> None:
    answer = after_end(EXIT_0, UNWATCHED, said=RunReports(limit="5 iterations, as you asked"), state=STOPPING)

    assert answer.supervision.state == Done("limit", "5 iterations, as you asked")


def test_e1_what_is_done_is_told_as_done_where_nothing_is_to_follow() -> None:
    for policy in (UNWATCHED, Policy(restart=Restart.NEVER)):
        assert texts(after_end(EXIT_0, policy)) == ["Ralph is done"]
