"""A person's requests, and all that comes of each: state, goal, count, orders, what is told (G1, G2)."""

from dataclasses import replace

import pytest

from ralphd.core.supervision.events import (
    DaemonStarted,
    Event,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Goal,
    Paused,
    Pausing,
    RunReports,
    Spawn,
    Starting,
    State,
    Stopped,
    Stopping,
    Tally,
)
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from tests.core.scenes import NOW, POLICY, RUN, RUNNING, WAITING, orders, ralph

AT_BOUNDARY = Stopping(RUN, NOW, None, asked=False)
ITERATES = RunReports(iterates=True)
LIMIT = Paused("usage_limit", NOW + 7260)
RESTARTS = Announce("wait.ended", "Restarting Ralph...")


@pytest.mark.parametrize("request_", [StartRequested(NOW), ResumeRequested(NOW), RestartRequested(NOW)])
def test_g1_a_stop_now_during_a_birth_is_taken_back_and_what_was_before_is_remembered(
    request_: Event,
) -> None:
    killed = ralph(Starting(WAITING, kill=True), Goal.PAUSED)

    assert step(killed, request_, POLICY) == Step(ralph(Starting(WAITING)))


def test_g2_a_restart_during_a_birth_begins_the_count_of_failures_anew_as_at_any_other_time() -> None:
    worn = Tally(consecutive_errors=2, restarts=2, iteration=7, restarted_at=(NOW - 60,))

    answer = step(ralph(Starting(), tally=worn), RestartRequested(NOW), POLICY)

    assert answer == Step(ralph(Starting(), tally=Tally(restarts=2, iteration=7)))


def test_g2_a_restart_tells_that_it_is_one_and_the_time_of_a_settled_ralph_begins_anew() -> None:
    answer = step(ralph(WAITING), RestartRequested(NOW), POLICY)
    assert answer == Step(ralph(Starting(WAITING)), (RESTARTS, Spawn()))

    done = step(ralph(Done(), tally=Tally(began_at=NOW - 9000)), RestartRequested(NOW), POLICY)
    assert done == Step(ralph(Starting(Done()), tally=Tally(began_at=NOW)), (RESTARTS, Spawn()))


def test_g2_who_skips_a_wait_wants_it_to_run() -> None:
    answer = step(ralph(LIMIT, Goal.PAUSED), SkipWaitRequested(NOW), POLICY)

    assert answer == Step(ralph(Starting(LIMIT)), (RESTARTS, Spawn()))


def test_g1_a_stop_of_a_ralph_that_waits_is_told() -> None:
    answer = step(ralph(WAITING), StopRequested(NOW), POLICY)

    assert answer == Step(ralph(Stopped(), Goal.STOPPED), (Announce("ralph.stopped", "Ralph stopped"),))


def test_g1_a_stop_now_kills_at_once_and_nothing_follows() -> None:
    answer = step(ralph(RUNNING), StopRequested(NOW, now=True), POLICY)

    assert answer.supervision == ralph(Stopping(RUN, NOW, NOW), Goal.STOPPED)


def test_g2_each_way_to_pause_is_told_in_its_own_words() -> None:
    def told(state: State, said: RunReports | None = None) -> tuple[object, ...]:
        answer = step(replace(ralph(RUNNING, said=said), state=state), PauseRequested(NOW), POLICY)
        return tuple(action for action in answer.actions if isinstance(action, Announce))

    at_once = Announce("ralph.paused", "Pausing: Ralph was asked to end")
    assert told(RUNNING) == (at_once,)
    assert told(RUNNING, ITERATES) == (Announce("ralph.paused", "Pausing after current iteration..."),)
    assert told(WAITING) == (Announce("ralph.paused", "Ralph paused, as asked"),)


def test_g2_a_command_that_does_not_know_our_signals_is_sent_none_to_pause() -> None:
    answer = step(ralph(RUNNING, said=ITERATES), PauseRequested(NOW), POLICY)

    assert orders(answer) == ()


def test_g2_a_stop_at_the_next_boundary_becomes_a_pause_at_it() -> None:
    answer = step(ralph(AT_BOUNDARY, Goal.STOPPED), PauseRequested(NOW + 5), POLICY)

    assert answer == Step(ralph(Pausing(RUN, NOW, None, asked=False), Goal.PAUSED))


def test_g2_a_pause_that_is_over_is_told_as_resumed() -> None:
    resumed = (Announce("ralph.resumed", "Resuming Ralph..."), Spawn())

    assert step(ralph(LIMIT), ResumeRequested(NOW), POLICY) == Step(ralph(Starting(LIMIT)), resumed)
    assert step(ralph(LIMIT), Woke(NOW + 7260), POLICY) == Step(ralph(Starting()), resumed)


def test_p1_a_run_that_goes_on_under_the_next_daemon_is_told_so() -> None:
    (told,) = step(ralph(RUNNING), DaemonStarted(NOW, RUN), POLICY).actions

    goes_on = "Ralph goes on: taken over after a restart of the daemon"
    assert told == Announce("ralph.adopted", goes_on)
