"""What a person asks of a ralph: G1 and G2."""

from dataclasses import replace

import pytest

from ralphd.core.supervision.events import (
    Event,
    GraceOver,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Done,
    Failed,
    Goal,
    Idle,
    KillAfter,
    KillTree,
    Paused,
    Pausing,
    Policy,
    Reason,
    Rest,
    Running,
    Spawn,
    Starting,
    State,
    Stopped,
    Stopping,
    Tally,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from tests.core.scenes import (
    EXIT_0,
    EXIT_1,
    HELLO,
    NEXT_RUN,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    WAITING,
    ended,
    escalations,
    orders,
    ralph,
    texts,
    told,
    types,
)

SETTLED: list[State] = [Idle(), Stopped(), Failed("exit 1"), Done()]
WORN = Tally(consecutive_errors=2, restarts=7, iteration=4, restarted_at=(NOW - 60,))
LIMIT_PAUSE = Paused("usage_limit", NOW + 7260)
ASKED = (Terminate(RUN), KillAfter(RUN, 30.0))
START, STOP, STOP_NOW = StartRequested(NOW), StopRequested(NOW), StopRequested(NOW, now=True)
PAUSE, RESUME, RESTART, SKIP = (
    PauseRequested(NOW),
    ResumeRequested(NOW),
    RestartRequested(NOW),
    SkipWaitRequested(NOW),
)


# start


@pytest.mark.parametrize("state", SETTLED)
def test_start_runs_a_settled_ralph_afresh(state: Rest) -> None:
    answer = step(ralph(state, Goal.STOPPED, WORN), START, POLICY)

    assert answer == Step(ralph(Starting(before=state), Goal.RUNNING, Tally(began_at=NOW)), (Spawn(),))


def test_start_takes_a_paused_ralph_up_again_and_keeps_its_count() -> None:
    answer = step(ralph(Paused("requested"), Goal.PAUSED, WORN), START, POLICY)

    assert answer.supervision == ralph(Starting(before=Paused("requested")), Goal.RUNNING, WORN)
    assert orders(answer) == (Spawn(),)
    assert texts(answer) == ["Resuming Ralph..."]


@pytest.mark.parametrize("state", [RUNNING, WAITING, Starting()])
def test_start_of_a_ralph_that_runs_or_will_changes_nothing(state: State) -> None:
    assert step(ralph(state), START, POLICY) == Step(ralph(state))


def test_start_of_a_ralph_that_is_being_stopped_starts_it_again_once_it_has_ended() -> None:
    answer = told(ralph(STOPPING, Goal.STOPPED), [START])
    assert answer == Step(ralph(replace(STOPPING, again=True), tally=Tally(began_at=NOW)))

    following = step(answer.supervision, RunEnded(EXIT_0), POLICY)
    assert isinstance(following.supervision.state, Starting)
    assert orders(following) == (Spawn(),)


def test_start_while_a_pause_is_under_way_starts_it_again_once_it_has_ended() -> None:
    answer = told(ralph(PAUSING, Goal.PAUSED), [START, RunEnded(EXIT_0)])

    assert isinstance(answer.supervision.state, Starting)
    assert answer.supervision.goal is Goal.RUNNING
    assert orders(answer) == (Spawn(),)


def test_start_takes_back_a_stop_that_was_asked_while_it_was_being_born() -> None:
    answer = told(ralph(Starting()), [STOP, START, Spawned(NOW, RUN)])

    assert answer.supervision == ralph(RUNNING)
    assert orders(answer) == ()


@pytest.mark.parametrize("state", [STOPPING, PAUSING])
def test_start_counts_afresh_whether_the_old_run_has_ended_yet_or_not(state: State) -> None:
    before = told(ralph(state, Goal.STOPPED, WORN), [START, RunEnded(EXIT_0)])

    assert before.supervision.tally.consecutive_errors == 0


# stop


def test_g1_stop_asks_the_run_to_end_and_kills_its_tree_30_seconds_later() -> None:
    answer = step(ralph(RUNNING), STOP, POLICY)

    assert answer.supervision == ralph(Stopping(RUN, NOW, NOW + 30), Goal.STOPPED)
    assert orders(answer) == ASKED

    late = step(answer.supervision, GraceOver(NOW + 30, RUN), POLICY)
    assert late == Step(answer.supervision, (KillTree(RUN),))


def test_g1_stop_timeout_seconds_is_the_grace() -> None:
    answer = step(ralph(RUNNING), STOP, Policy(stop_timeout_s=5.0))

    assert answer.supervision.state == Stopping(RUN, NOW, NOW + 5)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 5.0))


def test_g1_stop_now_kills_the_tree_at_once() -> None:
    answer = step(ralph(RUNNING), STOP_NOW, POLICY)

    assert answer.supervision == ralph(Stopping(RUN, NOW, NOW), Goal.STOPPED)
    assert orders(answer) == (KillTree(RUN),)


def test_g1_a_second_stop_changes_nothing_and_the_first_deadline_stays() -> None:
    stopping = ralph(STOPPING, Goal.STOPPED)

    assert step(stopping, StopRequested(NOW + 20), POLICY) == Step(stopping)


@pytest.mark.parametrize("state", [STOPPING, PAUSING])
def test_g1_stop_now_after_a_stop_or_a_pause_kills_the_tree(state: State) -> None:
    answer = step(ralph(state, Goal.STOPPED), StopRequested(NOW + 5, now=True), POLICY)

    assert answer.supervision == ralph(Stopping(RUN, NOW, NOW + 5), Goal.STOPPED)
    assert orders(answer) == (KillTree(RUN),)


def test_g1_stop_now_after_the_deadline_does_not_move_it() -> None:
    answer = step(ralph(STOPPING, Goal.STOPPED), StopRequested(NOW + 50, now=True), POLICY)

    assert answer.supervision.state == STOPPING
    assert orders(answer) == (KillTree(RUN),)


def test_g1_a_stopped_run_is_stopped_whatever_its_exit_code() -> None:
    for ending in (EXIT_0, EXIT_1, ended(code=75), ended(signal=15), ended(code=2)):
        answer = step(ralph(STOPPING, Goal.STOPPED, said=HELLO), RunEnded(ending), POLICY)

        assert answer.supervision == ralph(Stopped(), Goal.STOPPED)
        assert texts(answer) == ["Ralph stopped"]
        assert orders(answer) == ()


@pytest.mark.parametrize("state", [WAITING, Paused("requested"), LIMIT_PAUSE])
def test_stop_of_a_ralph_without_a_run_is_done_at_once(state: State) -> None:
    answer = step(ralph(state), STOP, POLICY)

    assert answer.supervision == ralph(Stopped(), Goal.STOPPED)
    assert orders(answer) == ()
    assert texts(answer) == ["Ralph stopped"]


@pytest.mark.parametrize("state", SETTLED)
def test_stop_of_a_settled_ralph_leaves_what_it_is_and_sets_the_goal(state: State) -> None:
    assert step(ralph(state), STOP, POLICY) == Step(ralph(state, Goal.STOPPED))


def test_stop_while_it_is_being_born_is_carried_out_as_soon_as_it_is_there() -> None:
    answer = step(ralph(Starting()), STOP, POLICY)
    assert answer == Step(ralph(Starting(), Goal.STOPPED))

    born = step(answer.supervision, Spawned(NOW + 1, RUN), POLICY)
    assert born.supervision == ralph(Stopping(RUN, NOW + 1, NOW + 31), Goal.STOPPED)
    assert types(born) == ["ralph.started"]
    assert orders(born) == ASKED


def test_g1_stop_now_while_it_is_being_born_kills_the_tree_as_soon_as_it_is_there() -> None:
    answer = told(ralph(Starting()), [STOP_NOW, Spawned(NOW + 1, RUN)])

    assert orders(answer) == (KillTree(RUN),)


def test_g1_a_stop_now_that_was_taken_back_does_not_make_the_next_stop_one() -> None:
    answer = told(ralph(Starting()), [STOP_NOW, START, STOP, Spawned(NOW, RUN)])

    assert orders(answer) == ASKED


def test_stop_calls_off_a_restart_that_is_under_way() -> None:
    answer = told(ralph(RUNNING), [RESTART, STOP, RunEnded(ended(signal=15))])

    assert answer.supervision.state == Stopped()
    assert Spawn() not in answer.actions


# pause and resume


def test_g2_pause_is_a_stop_with_the_goal_paused() -> None:
    answer = step(ralph(RUNNING), PAUSE, POLICY)

    assert answer.supervision == ralph(Pausing(RUN, NOW, NOW + 30), Goal.PAUSED)
    assert orders(answer) == ASKED

    end = step(answer.supervision, RunEnded(ended(signal=15)), POLICY)
    assert end.supervision == ralph(Paused("requested"), Goal.PAUSED)
    assert texts(end) == ["Ralph paused, as asked"]
    assert orders(end) == ()


def test_g2_a_pausing_run_is_killed_after_its_grace() -> None:
    assert orders(step(ralph(PAUSING, Goal.PAUSED), GraceOver(NOW + 30, RUN), POLICY)) == (KillTree(RUN),)


def test_pause_of_a_waiting_ralph_keeps_it_from_starting() -> None:
    answer = told(ralph(WAITING), [PAUSE, Woke(NOW + 31)])

    assert answer.supervision == ralph(Paused("requested"), Goal.PAUSED)
    assert orders(answer) == ()


def test_pause_outlasts_the_reset_of_a_limit() -> None:
    answer = told(ralph(LIMIT_PAUSE), [PAUSE, Woke(NOW + 9999)])

    assert answer.supervision == ralph(Paused("usage_limit"), Goal.PAUSED)
    assert orders(answer) == ()


def test_pause_while_it_is_being_born_is_carried_out_as_soon_as_it_is_there() -> None:
    answer = told(ralph(Starting()), [PAUSE, Spawned(NOW, RUN)])

    assert types(answer) == ["ralph.started", "ralph.paused"]
    assert answer.supervision == ralph(Pausing(RUN, NOW, NOW + 30), Goal.PAUSED)
    assert orders(answer) == ASKED


@pytest.mark.parametrize("again", [True, False])
def test_pause_of_a_ralph_that_is_ending_pauses_it_by_the_first_deadline(again: bool) -> None:
    answer = step(ralph(replace(STOPPING, again=again)), PauseRequested(NOW + 9), POLICY)

    assert answer == Step(ralph(PAUSING, Goal.PAUSED))


def test_resume_starts_a_paused_ralph() -> None:
    for state, goal in ((Paused("requested"), Goal.PAUSED), (LIMIT_PAUSE, Goal.RUNNING)):
        answer = step(ralph(state, goal), RESUME, POLICY)

        assert answer.supervision == ralph(Starting(before=state))
        assert orders(answer) == (Spawn(),)
        assert texts(answer) == ["Resuming Ralph..."]


def test_resume_while_the_pause_is_under_way_starts_it_again_once_it_has_ended() -> None:
    answer = told(ralph(RUNNING), [PAUSE, RESUME, RunEnded(ended(signal=15))])

    assert isinstance(answer.supervision.state, Starting)
    assert answer.supervision.goal is Goal.RUNNING


def test_resume_takes_back_a_pause_that_was_asked_while_it_was_being_born() -> None:
    answer = told(ralph(Starting()), [PAUSE, RESUME, Spawned(NOW, RUN)])

    assert answer.supervision == ralph(RUNNING)
    assert orders(answer) == ()


@pytest.mark.parametrize("state", [RUNNING, WAITING, Starting()])
def test_resume_of_a_ralph_that_runs_or_will_changes_nothing(state: State) -> None:
    assert step(ralph(state), RESUME, POLICY) == Step(ralph(state))


# restart


def test_g2_restart_is_a_stop_then_a_start() -> None:
    answer = step(ralph(RUNNING, tally=WORN), RESTART, POLICY)
    assert answer.supervision.state == Stopping(RUN, NOW, NOW + 30, again=True)
    assert orders(answer) == ASKED

    end = step(answer.supervision, RunEnded(ended(signal=15)), POLICY)
    assert isinstance(end.supervision.state, Starting)
    assert orders(end) == (Spawn(),)
    assert texts(end) == ["Restarting Ralph..."]


@pytest.mark.parametrize("state", [*SETTLED, WAITING, Paused("requested"), LIMIT_PAUSE])
def test_restart_of_a_ralph_without_a_run_starts_it(state: Rest) -> None:
    answer = step(ralph(state, Goal.STOPPED, WORN), RESTART, POLICY)

    assert answer.supervision.state == Starting(before=state)
    assert answer.supervision.goal is Goal.RUNNING
    assert orders(answer) == (Spawn(),)


@pytest.mark.parametrize("state", [*SETTLED, RUNNING, STOPPING, PAUSING, WAITING, LIMIT_PAUSE])
def test_restart_starts_the_count_of_failures_anew(state: State) -> None:
    tally = step(ralph(state, tally=WORN), RESTART, POLICY).supervision.tally

    assert tally.consecutive_errors == 0
    assert tally.restarted_at == ()


@pytest.mark.parametrize("state", [STOPPING, PAUSING])
def test_restart_of_a_ralph_that_is_ending_starts_it_again_by_the_first_deadline(state: State) -> None:
    answer = step(ralph(state, Goal.STOPPED), RestartRequested(NOW + 9), POLICY)

    assert answer == Step(ralph(replace(STOPPING, again=True)))


def test_restart_takes_back_a_stop_that_was_asked_while_it_was_being_born() -> None:
    answer = told(ralph(Starting()), [STOP, RESTART, Spawned(NOW, RUN)])

    assert answer.supervision.state == RUNNING


def test_restart_of_a_ralph_that_reached_its_limit_of_iterations_grants_them_anew_as_start_does() -> None:
    tally = step(ralph(Done("limit"), tally=Tally(iteration=5)), RESTART, POLICY).supervision.tally

    assert tally.iteration == 0


# skip-wait


@pytest.mark.parametrize("reason", list(Reason))
def test_skip_wait_starts_at_once(reason: Reason) -> None:
    answer = step(ralph(Waiting(reason, NOW, NOW + 30)), SKIP, POLICY)

    assert answer.supervision.state == Starting(before=Waiting(reason, NOW, NOW + 30))
    assert orders(answer) == (Spawn(),)


def test_skip_wait_ends_a_pause_that_waits_for_a_reset() -> None:
    answer = step(ralph(LIMIT_PAUSE), SKIP, POLICY)

    assert answer.supervision == ralph(Starting(before=LIMIT_PAUSE))
    assert orders(answer) == (Spawn(),)


def test_c3_a_restart_that_was_not_waited_for_counts_like_any_other() -> None:
    tally = step(ralph(WAITING), SkipWaitRequested(NOW + 3), POLICY).supervision.tally

    assert tally == Tally(restarts=1, restarted_at=(NOW + 3,))


# requests that do not fit


@pytest.mark.parametrize("state", SETTLED)
def test_a_settled_ralph_cannot_be_paused(state: State) -> None:
    assert why_not(ralph(state), PAUSE) == f"it is {state.kind}: there is nothing to pause"


@pytest.mark.parametrize("state", SETTLED)
def test_a_settled_ralph_cannot_be_resumed_and_is_told_to_be_started(state: State) -> None:
    assert why_not(ralph(state), RESUME) == f"it is {state.kind}, not paused: start it instead"


@pytest.mark.parametrize("state", [STOPPING, Starting()])
def test_a_ralph_that_is_asked_to_stop_cannot_be_resumed_and_says_so(state: State) -> None:
    assert why_not(ralph(state, Goal.STOPPED), RESUME) is not None


@pytest.mark.parametrize("state", [*SETTLED, RUNNING, STOPPING, PAUSING, Starting(), Paused("requested")])
def test_a_wait_cannot_be_skipped_where_there_is_none(state: State) -> None:
    assert why_not(ralph(state), SKIP) == f"it is {state.kind} and not waiting for a moment"


@pytest.mark.parametrize("event", [PAUSE, RESUME, SKIP])
@pytest.mark.parametrize("state", SETTLED)
def test_a_request_that_does_not_fit_changes_nothing_not_even_the_goal(state: State, event: Event) -> None:
    assert step(ralph(state, Goal.STOPPED), event, POLICY) == Step(ralph(state, Goal.STOPPED))


@pytest.mark.parametrize("event", [START, STOP, STOP_NOW, RESTART])
@pytest.mark.parametrize("state", [*SETTLED, RUNNING, STOPPING, PAUSING, Starting(), WAITING, LIMIT_PAUSE])
def test_start_stop_and_restart_fit_everywhere(state: State, event: Event) -> None:
    assert why_not(ralph(state), event) is None


@pytest.mark.parametrize("state", [RUNNING, STOPPING, PAUSING, Starting(), WAITING, LIMIT_PAUSE])
def test_whatever_runs_or_will_can_be_paused(state: State) -> None:
    assert why_not(ralph(state), PAUSE) is None


# a command that cannot be started


@pytest.mark.parametrize("state", SETTLED)
def test_e5_a_start_that_fails_leaves_a_settled_ralph_as_it_was_and_calls_nobody(state: State) -> None:
    answer = told(ralph(state, Goal.STOPPED), [START, SpawnFailed(NOW, "./loop.sh: no such file")])

    assert answer.supervision == ralph(state, Goal.STOPPED, Tally(began_at=NOW))
    assert answer.actions == (Spawn(),)


def test_e5_a_resume_that_fails_leaves_it_paused() -> None:
    answer = told(ralph(Paused("requested"), Goal.PAUSED), [RESUME, SpawnFailed(NOW, "gone")])

    assert answer.supervision == ralph(Paused("requested"), Goal.PAUSED)
    assert escalations(answer) == []


@pytest.mark.parametrize("state", [WAITING, LIMIT_PAUSE])
@pytest.mark.parametrize(
    ("request_", "goal", "rest"),
    [
        (STOP, Goal.STOPPED, Stopped()),
        (STOP_NOW, Goal.STOPPED, Stopped()),
        (PAUSE, Goal.PAUSED, Paused("requested")),
    ],
)
def test_e5_a_stop_or_pause_asked_meanwhile_outlasts_a_start_that_fails(
    state: State, request_: Event, goal: Goal, rest: State
) -> None:
    answer = told(ralph(state), [SKIP, request_, SpawnFailed(NOW + 1, "gone"), Woke(NOW + 1e6)])

    assert answer.supervision.goal is goal
    assert answer.supervision.state.kind == rest.kind
    assert answer.actions.count(Spawn()) == 1


@pytest.mark.parametrize(("state", "until"), [(WAITING, NOW + 30), (LIMIT_PAUSE, LIMIT_PAUSE.resume_at)])
def test_e5_a_skipped_wait_whose_start_fails_is_waited_for_again(state: State, until: float) -> None:
    answer = told(ralph(state), [SKIP, SpawnFailed(NOW + 1, "gone")])

    assert answer.supervision.state == state
    assert orders(answer) == (Spawn(), WakeAt(until))
    assert escalations(answer) == []


def test_e5_where_nobody_waits_for_the_answer_a_person_is_called_once() -> None:
    answer = told(ralph(WAITING), [Woke(NOW + 30), SpawnFailed(NOW + 30, "./loop.sh: no such file")])

    assert isinstance(answer.supervision.state, Failed)
    assert orders(answer) == (Spawn(),)
    assert escalations(answer) == ["Ralph cannot be started: ./loop.sh: no such file"]


def test_e5_the_reason_is_one_line_for_people_and_not_two() -> None:
    answer = step(ralph(Starting()), SpawnFailed(NOW, "gone"), POLICY)

    assert texts(answer) == ["Ralph cannot be started: gone"]


def test_what_the_machine_cannot_start_just_now_is_started_after_the_backoff_and_is_no_failure() -> None:
    answer = step(ralph(Starting(before=Stopped()), tally=WORN), SpawnPostponed(NOW, "no memory"), POLICY)

    assert answer.supervision == ralph(Waiting(Reason.RESOURCES, NOW, NOW + 30), tally=WORN)
    assert orders(answer) == (WakeAt(NOW + 30),)
    assert texts(answer) == ["Ralph cannot be started just now: no memory"]
    again = step(answer.supervision, Woke(NOW + 30), POLICY)
    assert orders(again) == (Spawn(),)
    assert again.supervision.tally == WORN


def test_a_machine_that_lacks_something_is_asked_once_a_second_at_most() -> None:
    answer = step(ralph(Starting()), SpawnPostponed(NOW, "no memory"), Policy(retry_backoff_s=0.0))

    assert answer.supervision.state == Waiting(Reason.RESOURCES, NOW, NOW + 1)


@pytest.mark.parametrize(("goal", "state"), [(Goal.STOPPED, Stopped()), (Goal.PAUSED, Paused("requested"))])
def test_a_start_that_was_taken_back_is_not_postponed_but_dropped(goal: Goal, state: State) -> None:
    answer = step(ralph(Starting(), goal), SpawnPostponed(NOW, "no memory"), POLICY)

    assert answer.supervision == ralph(state, goal)
    assert orders(answer) == ()


@pytest.mark.parametrize("state", [*SETTLED, RUNNING, STOPPING, PAUSING, WAITING, LIMIT_PAUSE])
def test_news_of_a_postponed_start_means_nothing_where_none_was_ordered(state: State) -> None:
    assert step(ralph(state), SpawnPostponed(NOW, "no memory"), POLICY) == Step(ralph(state))


@pytest.mark.parametrize("state", [*SETTLED, RUNNING, STOPPING, PAUSING, WAITING, LIMIT_PAUSE])
def test_news_of_a_failed_start_means_nothing_where_none_was_ordered(state: State) -> None:
    assert step(ralph(state), SpawnFailed(NOW, "gone"), POLICY) == Step(ralph(state))


def test_a_spawned_run_is_running_and_told() -> None:
    answer = step(ralph(Starting(before=Stopped())), Spawned(NOW, NEXT_RUN), POLICY)

    assert answer.supervision == ralph(Running(NEXT_RUN))
    assert [getattr(action, "type", None) for action in answer.actions] == ["ralph.started"]


def test_a_wake_up_for_a_pause_at_a_limit_is_kept_until_its_reset() -> None:
    assert step(ralph(LIMIT_PAUSE), Woke(NOW), POLICY) == Step(ralph(LIMIT_PAUSE), (WakeAt(NOW + 7260),))
