"""The supervision of one ralph by example: E1 to E4, C1 to C4, G2, G3, waits, adoption and lost runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.supervision.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    GraceOver,
    PauseRequested,
    ResumeRequested,
    RunEnded,
    Spawned,
    SpawnFailed,
    StartRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    Idle,
    KillAfter,
    KillTree,
    Mode,
    Paused,
    Policy,
    Reason,
    Restart,
    RunId,
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
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from ralphd.core.time import Moment
from tests.core.scenes import (
    EXIT_0,
    EXIT_1,
    HELLO,
    HUNG,
    LOST,
    NEXT_RUN,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    USAGE_LIMIT,
    WAITING,
    after_end,
    ended,
    escalations,
    orders,
    ralph,
    texts,
    told,
    types,
)

ITERATIONS = Policy(mode=Mode.ITERATION)
UNSUPERVISED = Policy(supervised=False)
TWO_FAILURES = Tally(consecutive_errors=2)
REQUESTED = Paused("requested")


# E1: ends


def test_e1_exit_0_is_done() -> None:
    answer = after_end(EXIT_0)

    assert answer.supervision.state == Done("complete")
    assert answer.supervision.goal is Goal.RUNNING
    assert orders(answer) == ()
    assert types(answer) == ["ralph.exited", "ralph.done"]
    assert texts(answer) == ["Ralph is done"]


def test_e1_exit_0_starts_again_where_restart_is_always() -> None:
    answer = after_end(EXIT_0, Policy(restart=Restart.ALWAYS))

    assert answer.supervision.state == Waiting(Reason.RESTART, NOW, NOW + 1)
    assert orders(answer) == (WakeAt(NOW + 1),)
    again = step(answer.supervision, Woke(NOW + 1), Policy(restart=Restart.ALWAYS))
    assert orders(again) == (Spawn(),)
    assert again.supervision.tally.restarts == 0


def test_e1_exit_0_is_done_where_restart_is_never() -> None:
    assert after_end(EXIT_0, Policy(restart=Restart.NEVER)).supervision.state == Done("complete")


def test_e1_exit_0_ends_a_row_of_failures() -> None:
    assert after_end(EXIT_0, tally=TWO_FAILURES).supervision.tally.consecutive_errors == 0


def test_e1_exit_75_pauses_with_the_reason_of_the_checkpoint() -> None:
    answer = after_end(replace(ended(code=75), pause_reason="requested by its user"))

    assert answer.supervision == ralph(Paused("requested by its user"))
    assert orders(answer) == ()
    assert texts(answer) == ["Ralph paused: requested by its user"]


def test_e1_exit_75_without_a_checkpoint_pauses_too_and_says_so() -> None:
    answer = after_end(ended(code=75))

    assert answer.supervision.state == Paused("exit 75, without a checkpoint that says why")
    assert orders(answer) == ()


def test_e1_a_usage_limit_with_a_known_reset_resumes_by_itself_a_margin_after_it() -> None:
    answer = after_end(USAGE_LIMIT)
    at = NOW + 7200 + 60

    assert answer.supervision == ralph(Paused("usage_limit", at))
    assert answer.actions[1:] == (
        Announce("ralph.paused", "Ralph paused: usage_limit", wait_until=at),
        WakeAt(at),
    )
    early = step(answer.supervision, Woke(at - 1), POLICY)
    assert early == Step(answer.supervision, (WakeAt(at),))
    resumed = step(answer.supervision, Woke(at), POLICY)
    assert resumed.supervision == ralph(Starting())
    assert orders(resumed) == (Spawn(),)
    assert texts(resumed) == ["Resuming Ralph..."]


def test_e1_the_margin_is_as_configured() -> None:
    state = after_end(USAGE_LIMIT, Policy(reset_margin_s=5.0)).supervision.state

    assert state == Paused("usage_limit", NOW + 7205)


def test_e1_a_usage_limit_without_a_known_reset_waits_for_a_person() -> None:
    answer = after_end(replace(USAGE_LIMIT, resume_at=None))

    assert answer.supervision.state == Paused("usage_limit")
    assert orders(answer) == ()


def test_e1_another_pause_does_not_end_by_itself_even_with_a_moment() -> None:
    answer = after_end(replace(USAGE_LIMIT, pause_reason="requested"))

    assert answer.supervision.state == Paused("requested")
    assert orders(answer) == ()


def test_e1_a_pause_is_no_failure() -> None:
    assert after_end(USAGE_LIMIT, tally=TWO_FAILURES).supervision.tally == TWO_FAILURES


def test_e1_a_reset_that_is_not_ahead_is_looked_at_again_in_15_minutes() -> None:
    for passed_s in (0.0, 1.0):
        stale = replace(USAGE_LIMIT, resume_at=NOW - 60 - passed_s)
        assert after_end(stale).supervision.state == Paused("usage_limit", NOW + 900)
    ahead = replace(USAGE_LIMIT, resume_at=NOW - 59)
    assert after_end(ahead).supervision.state == Paused("usage_limit", NOW + 1)


@pytest.mark.parametrize("margin_s", [0.0, 60.0])
def test_e1_a_reset_that_has_long_passed_never_makes_a_ralph_start_over_and_over(margin_s: float) -> None:
    """A checkpoint that nobody renews says the same moment at every end."""
    policy = Policy(reset_margin_s=margin_s)
    now, clock = ralph(RUNNING), NOW
    starts = 0
    for _ in range(100):
        stale = ExitFacts(RUN, clock, code=75, pause_reason="usage_limit", resume_at=NOW - 86_400)
        answer = told(now, [RunEnded(stale), Woke(clock)], policy)
        starts += answer.actions.count(Spawn())
        now, clock = ralph(RUNNING), clock + 1.0
        if not isinstance(answer.supervision.state, Starting):
            break
        now = replace(answer.supervision, state=RUNNING)

    assert starts <= policy.max_restarts_per_hour


# E2, E3


def test_e2_a_limit_of_the_users_own_is_done_with_that_reason() -> None:
    answer = after_end(ended(code=5), said=HELLO)

    assert answer.supervision.state == Done("limit")
    assert orders(answer) == ()
    assert texts(answer) == ["Ralph stopped: a limit of yours was reached"]


@pytest.mark.parametrize("code", [2, 78])
def test_e2_a_run_that_refuses_fails_at_once_and_a_person_is_called(code: int) -> None:
    answer = after_end(ended(code=code), said=HELLO)

    assert answer.supervision.state == Failed(f"Ralph refused to run (exit {code})")
    assert orders(answer) == ()
    assert escalations(answer) == [f"Ralph refused to run (exit {code})"]


@pytest.mark.parametrize("code", [2, 5, 78])
def test_e2_from_any_other_command_the_same_code_is_a_failure_like_the_rest(code: int) -> None:
    answer = after_end(ended(code=code))

    assert answer.supervision.state == WAITING
    assert texts(answer) == [f"Ralph exited (exit {code}) — retrying in 30s (attempt 2/3)"]


def test_e2_a_command_that_is_not_found_is_told_in_words() -> None:
    assert texts(after_end(ended(code=127))) == [
        "Ralph exited (exit 127: command not found) — retrying in 30s (attempt 2/3)"
    ]


def test_e3_a_run_that_was_lost_is_a_failure() -> None:
    answer = after_end(LOST)

    assert answer.supervision == ralph(WAITING, tally=Tally(consecutive_errors=1))
    assert texts(answer) == ["Ralph exited (lost: nobody saw how it ended) — retrying in 30s (attempt 2/3)"]


def test_e3_a_stalled_run_is_started_again() -> None:
    answer = after_end(ended(signal=9), state=HUNG)

    assert answer.supervision == ralph(WAITING, tally=Tally(consecutive_errors=1))


@pytest.mark.parametrize("state", [Idle(), Starting(), WAITING, REQUESTED, Stopped(), Failed("x"), Done()])
def test_the_end_of_a_run_that_is_not_ours_any_more_means_nothing(state: State) -> None:
    assert step(ralph(state), RunEnded(EXIT_1), POLICY) == Step(ralph(state))


@pytest.mark.parametrize("state", [RUNNING, STOPPING, PAUSING])
def test_the_end_of_another_run_means_nothing(state: State) -> None:
    assert step(ralph(state), RunEnded(replace(EXIT_1, run_id=NEXT_RUN)), POLICY) == Step(ralph(state))


# E4: each run one iteration


def test_e4_the_next_iteration_starts_after_the_pause() -> None:
    answer = after_end(EXIT_0, ITERATIONS, Tally(iteration=3))

    assert answer.supervision == ralph(
        Waiting(Reason.ITERATION_PAUSE, NOW, NOW + 1), tally=Tally(iteration=4)
    )
    assert orders(answer) == (WakeAt(NOW + 1),)
    following = step(answer.supervision, Woke(NOW + 1), ITERATIONS)
    assert following.actions == (Spawn(),)
    assert following.supervision.tally == Tally(iteration=4)


def test_e4_it_is_done_when_no_task_is_open() -> None:
    answer = after_end(replace(EXIT_0, complete=True), ITERATIONS)

    assert answer.supervision.state == Done("complete")
    assert texts(answer) == ["Ralph is done: no task is open"]


@pytest.mark.parametrize(("ending", "counted"), [(EXIT_0, 4), (EXIT_1, 3)])
def test_e4_an_iteration_that_was_told_to_stop_counts_when_it_ends_well(
    ending: ExitFacts, counted: int
) -> None:
    stopping = ralph(STOPPING, Goal.STOPPED, Tally(iteration=3))

    assert step(stopping, RunEnded(ending), ITERATIONS).supervision.tally.iteration == counted
    assert step(stopping, RunEnded(ending), POLICY).supervision.tally.iteration == 3


@pytest.mark.parametrize("ending", [EXIT_0, EXIT_1])
def test_e4_a_loop_that_is_started_again_and_again_ends_at_its_limits_too(ending: ExitFacts) -> None:
    policy = replace(POLICY, restart=Restart.ALWAYS, max_runtime_s=60)
    over, not_yet = Tally(began_at=ending.at - 60), Tally(began_at=ending.at - 59)

    assert isinstance(after_end(ending, policy, over).supervision.state, Done)
    assert isinstance(after_end(ending, policy, not_yet).supervision.state, Waiting)


@pytest.mark.parametrize(("before", "done"), [(3, False), (4, True), (9, True)])
def test_e4_it_is_done_when_max_iterations_are_reached(before: int, done: bool) -> None:
    answer = after_end(EXIT_0, replace(ITERATIONS, max_iterations=5), Tally(iteration=before))

    limit = f"{before + 1} iterations, as you asked"
    assert (answer.supervision.state == Done("limit", limit)) is done
    if done:
        assert texts(answer) == [f"Ralph stopped: {limit}"]


def test_e4_a_finished_iteration_ends_a_row_of_failures() -> None:
    assert after_end(EXIT_0, ITERATIONS, TWO_FAILURES).supervision.tally.consecutive_errors == 0


def test_e4_a_failed_iteration_is_tried_again_like_any_run() -> None:
    assert after_end(EXIT_1, ITERATIONS).supervision == ralph(WAITING, tally=Tally(consecutive_errors=1))


def test_e4_no_task_open_means_nothing_in_a_loop() -> None:
    answer = after_end(replace(EXIT_0, complete=True), Policy(restart=Restart.ALWAYS))

    assert isinstance(answer.supervision.state, Waiting)


# C1 to C4


def test_c4_a_loop_that_exits_1_each_time_is_run_three_times_with_the_seeds_messages() -> None:
    """C1, C2, C4: three runs, then a person is called, once."""
    now, clock, heard, called, spawned = ralph(Idle(), Goal.STOPPED), NOW, list[str](), list[str](), 0
    events: list[Event] = [StartRequested(clock)]
    for number in range(1, 4):
        run_id = RunId(f"r{number:06}-00000000")
        events += [Spawned(clock, run_id), RunEnded(ExitFacts(run_id, clock, code=1)), Woke(clock + 30)]
        clock += 30
    answer = told(now, events)
    heard, called, spawned = texts(answer), escalations(answer), answer.actions.count(Spawn())

    assert heard == [
        "Ralph exited (exit 1) — retrying in 30s (attempt 2/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — retrying in 30s (attempt 3/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — giving up after 3 failures in a row",
    ]
    assert spawned == 3
    assert called == ["Ralph exited (exit 1) — giving up after 3 failures in a row"]
    assert answer.supervision.state == Failed("Ralph exited (exit 1) — giving up after 3 failures in a row")
    assert answer.supervision.tally.consecutive_errors == 3
    assert answer.supervision.tally.restarts == 2


@given(st.floats(1e9, 4e9, allow_nan=False))
def test_c4_the_message_is_the_seeds_at_any_moment(at: Moment) -> None:
    assert texts(after_end(replace(EXIT_1, at=at))) == [
        "Ralph exited (exit 1) — retrying in 30s (attempt 2/3)"
    ]


@pytest.mark.parametrize(
    ("seconds", "said"), [(30, "30s"), (0.1, "0.1s"), (0.25, "0.25s"), (1_000_000, "1000000s"), (0, "0s")]
)
@given(at=st.floats(1e9, 4e9, allow_nan=False))
def test_c4_a_delay_is_told_as_it_was_configured(seconds: float, said: str, at: Moment) -> None:
    policy = Policy(retry_backoff_s=seconds, retry_backoff_max_s=seconds)
    assert texts(after_end(replace(EXIT_1, at=at), policy)) == [
        f"Ralph exited (exit 1) — retrying in {said} (attempt 2/3)"
    ]


def test_c1_a_failure_counts_and_waits() -> None:
    answer = after_end(EXIT_1, tally=Tally(consecutive_errors=1))

    assert answer.supervision == ralph(WAITING, tally=TWO_FAILURES)
    assert orders(answer) == (WakeAt(NOW + 30),)
    assert types(answer) == ["ralph.exited", "ralph.retrying", "wait.started"]
    assert [a.wait_until for a in answer.actions if isinstance(a, Announce)] == [None, NOW + 30, NOW + 30]


def test_c1_a_growing_backoff_is_told_as_it_is() -> None:
    answer = after_end(EXIT_1, Policy(retry_backoff_factor=2.0), Tally(consecutive_errors=1))

    assert answer.supervision.state == Waiting(Reason.CRASH, NOW, NOW + 60)
    assert texts(answer) == ["Ralph exited (exit 1) — retrying in 60s (attempt 3/3)"]


@pytest.mark.parametrize("failures", [2, 3, 7])
def test_c2_giving_up_calls_a_person_once_and_starts_nothing(failures: int) -> None:
    answer = after_end(EXIT_1, tally=Tally(consecutive_errors=failures))
    text = f"Ralph exited (exit 1) — giving up after {failures + 1} failures in a row"

    assert answer.supervision.state == Failed(text)
    assert answer.actions == (Announce("ralph.exited"), Escalate(text), Announce("ralph.failed"))


def test_c2_with_one_retry_the_first_failure_is_the_last() -> None:
    assert texts(after_end(EXIT_1, Policy(max_retries=1))) == [
        "Ralph exited (exit 1) — giving up after 1 failure"
    ]


@pytest.mark.parametrize("policy", [Policy(max_retries=0), Policy(restart=Restart.NEVER)])
def test_c2_where_it_is_not_to_be_restarted_the_first_failure_is_told_and_final(policy: Policy) -> None:
    answer = after_end(EXIT_1, policy)

    assert isinstance(answer.supervision.state, Failed)
    assert orders(answer) == ()
    assert escalations(answer) == ["Ralph exited (exit 1) — not restarted, as configured"]
    assert answer.supervision.tally.consecutive_errors == 1


def test_c3_a_commit_keeps_a_failing_run_from_being_the_last() -> None:
    answer = after_end(replace(EXIT_1, committed=True), tally=TWO_FAILURES)

    assert answer.supervision == ralph(WAITING, tally=Tally(consecutive_errors=1))


@pytest.mark.parametrize("state", [RUNNING, STOPPING])
@pytest.mark.parametrize("code", [75, 143])
def test_c3_a_commit_starts_the_count_anew_however_its_run_ended(state: State, code: int) -> None:
    """A run that works for hours and then meets a usage limit is no third failure in a row."""
    ending = replace(USAGE_LIMIT, code=code, committed=True)

    tally = step(ralph(state, tally=TWO_FAILURES), RunEnded(ending), POLICY).supervision.tally

    assert tally.consecutive_errors <= 1


def test_c3_signs_of_life_start_the_count_anew_however_their_run_ended() -> None:
    """A command that does not report, at work for hours before it met a usage limit."""
    ending = replace(USAGE_LIMIT, started_at=NOW - 7200, last_sign_at=NOW)

    assert after_end(ending, tally=TWO_FAILURES).supervision.tally.consecutive_errors == 0


def test_c3_the_restarts_of_an_hour_are_told_when_they_are_used_up() -> None:
    policy = Policy(max_retries=50, max_restarts_per_hour=2)
    answer = after_end(EXIT_1, policy, Tally(restarted_at=(NOW - 3000, NOW - 100)))

    assert answer.supervision.state == Waiting(Reason.RESTART_LIMIT, NOW, NOW + 600)
    assert texts(answer) == [
        "Ralph exited (exit 1) — 2 restarts in an hour are used up, retrying in 600s (attempt 2/50)"
    ]


def test_c3_only_restarts_after_failures_are_counted() -> None:
    for reason in Reason:
        tally = step(ralph(Waiting(reason, NOW, NOW + 1)), Woke(NOW + 1), POLICY).supervision.tally
        after_failure = reason in (Reason.CRASH, Reason.RESTART_LIMIT)
        assert tally.restarts == (1 if after_failure else 0)
        assert tally.restarted_at == ((NOW + 1,) if after_failure else ())


def test_c3_restarts_are_forgotten_after_an_hour() -> None:
    old = Tally(restarts=5, restarted_at=(NOW - 4000, NOW - 3000))

    tally = step(ralph(WAITING, tally=old), Woke(NOW + 30), POLICY).supervision.tally

    assert tally == Tally(restarts=6, restarted_at=(NOW - 3000, NOW + 30))


# P6: not supervised


def test_p6_a_run_that_is_not_supervised_fails_without_a_restart_and_without_a_call() -> None:
    answer = after_end(EXIT_1, UNSUPERVISED)

    assert answer.supervision.state == Failed("Ralph exited (exit 1)")
    assert answer.actions == (Announce("ralph.exited"), Announce("ralph.failed", "Ralph exited (exit 1)"))


@pytest.mark.parametrize(
    "policy", [replace(UNSUPERVISED, restart=Restart.ALWAYS), replace(UNSUPERVISED, mode=Mode.ITERATION)]
)
def test_p6_nor_is_it_started_again_after_a_good_end(policy: Policy) -> None:
    assert after_end(EXIT_0, policy).supervision.state == Done("complete")


def test_p6_nor_is_anybody_called_when_it_refuses_to_run() -> None:
    answer = after_end(ended(code=78), UNSUPERVISED, said=HELLO)

    assert answer.supervision.state == Failed("Ralph exited (exit 78)")
    assert texts(answer) == ["Ralph exited (exit 78)"]
    assert escalations(answer) == []


def test_p6_nor_after_a_limits_reset() -> None:
    answer = after_end(USAGE_LIMIT, UNSUPERVISED)

    assert answer.supervision.state == Paused("usage_limit")
    assert orders(answer) == ()


# Waits


def test_a_wait_goes_on_until_its_moment() -> None:
    assert step(ralph(WAITING), Woke(NOW + 29.9), POLICY) == Step(ralph(WAITING), (WakeAt(NOW + 30),))


def test_a_wait_that_is_over_starts_the_next_run_and_says_so() -> None:
    answer = step(ralph(WAITING), Woke(NOW + 30), POLICY)

    assert answer.supervision.state == Starting()
    assert answer.actions == (Announce("wait.ended", "Restarting Ralph..."), Spawn())


def test_a_clock_set_back_an_hour_costs_at_most_the_wait_once_more() -> None:
    answer = step(ralph(WAITING), Woke(NOW - 3600), POLICY)

    assert answer == Step(ralph(Waiting(Reason.CRASH, NOW - 3600, NOW - 3570)), (WakeAt(NOW - 3570),))
    assert orders(step(answer.supervision, Woke(NOW - 3570), POLICY)) == (Spawn(),)


def test_a_clock_set_forward_a_day_ends_the_wait() -> None:
    assert orders(step(ralph(WAITING), Woke(NOW + 86_400), POLICY)) == (Spawn(),)


@pytest.mark.parametrize(
    "state", [Idle(), Starting(), RUNNING, STOPPING, PAUSING, REQUESTED, Stopped(), Failed("x"), Done()]
)
def test_to_be_woken_means_nothing_where_nothing_is_waited_for(state: State) -> None:
    assert step(ralph(state), Woke(NOW + 1e6), POLICY) == Step(ralph(state))


@pytest.mark.parametrize("state", [RUNNING, Starting(), WAITING, REQUESTED, Stopped(), Done()])
def test_a_grace_that_is_over_kills_nothing_that_was_not_asked_to_end(state: State) -> None:
    assert step(ralph(state), GraceOver(NOW, RUN), POLICY) == Step(ralph(state))


def test_a_grace_of_an_earlier_run_kills_nothing() -> None:
    assert step(ralph(STOPPING), GraceOver(NOW, NEXT_RUN), POLICY) == Step(ralph(STOPPING))


# G2: the daemon ends, the goals stay


def test_g2_a_daemon_that_ends_asks_its_run_to_end_and_leaves_the_goal() -> None:
    answer = step(ralph(RUNNING), DaemonStopping(NOW), POLICY)

    assert answer.supervision == ralph(STOPPING)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 30.0))


def test_g2_asked_a_second_time_it_kills_the_tree() -> None:
    answer = told(ralph(RUNNING), [DaemonStopping(NOW), DaemonStopping(NOW + 1, now=True)])

    assert orders(answer)[-1] == KillTree(RUN)
    assert answer.supervision == ralph(Stopping(RUN, NOW, NOW + 1))


def test_g2_a_run_that_ended_with_its_daemon_runs_again_with_the_next() -> None:
    answer = told(ralph(RUNNING), [DaemonStopping(NOW), RunEnded(ended(signal=15))])
    assert answer.supervision == ralph(Stopped())

    following = step(answer.supervision, DaemonStarted(NOW + 60), POLICY)
    assert following == Step(ralph(Starting()), (Spawn(),))


@pytest.mark.parametrize("state", [Idle(), WAITING, REQUESTED, Stopped(), Failed("x"), Done()])
def test_g2_a_daemon_that_ends_changes_nothing_where_nothing_runs(state: State) -> None:
    assert step(ralph(state), DaemonStopping(NOW), POLICY) == Step(ralph(state))


def test_g2_a_restart_under_way_when_the_daemon_ends_is_left_to_the_next() -> None:
    answer = told(
        ralph(replace(STOPPING, again=True)), [DaemonStopping(NOW), RunEnded(EXIT_0), DaemonStarted(NOW + 9)]
    )

    assert answer.supervision.state == Starting()
    assert answer.actions.count(Spawn()) == 1


@pytest.mark.parametrize("events", [[], [DaemonStarted(NOW + 60)]])
def test_g2_a_pause_under_way_when_the_daemon_ends_is_a_pause_still(events: list[Event]) -> None:
    answer = told(ralph(RUNNING), [PauseRequested(NOW), DaemonStopping(NOW), RunEnded(EXIT_0), *events])

    assert answer.supervision == ralph(REQUESTED, Goal.PAUSED)
    assert orders(step(answer.supervision, ResumeRequested(NOW + 99), POLICY)) == (Spawn(),)


def test_g2_a_daemon_that_ends_now_kills_the_tree_of_a_pausing_run() -> None:
    answer = step(ralph(PAUSING, Goal.PAUSED), DaemonStopping(NOW + 1, now=True), POLICY)

    assert orders(answer) == (KillTree(RUN),)


@pytest.mark.parametrize("end_first", [True, False])
def test_g2_a_run_asked_to_end_by_a_daemon_that_died_too_is_run_again_by_the_next(end_first: bool) -> None:
    """In whichever order the next daemon tells that it started and how the run ended."""
    events: list[Event] = [RunEnded(LOST), DaemonStarted(NOW + 60)]

    answer = told(ralph(STOPPING), events if end_first else events[::-1])

    assert answer.supervision.state == Starting()
    assert answer.actions.count(Spawn()) == 1


@pytest.mark.parametrize("end_first", [True, False])
@pytest.mark.parametrize(
    ("state", "goal", "rest"), [(STOPPING, Goal.STOPPED, Stopped()), (PAUSING, Goal.PAUSED, REQUESTED)]
)
def test_g1_a_stop_or_pause_whose_daemon_died_too_is_one_still(
    state: State, goal: Goal, rest: State, end_first: bool
) -> None:
    events: list[Event] = [RunEnded(LOST), DaemonStarted(NOW + 60)]

    answer = told(ralph(state, goal), events if end_first else events[::-1])

    assert answer.supervision == ralph(rest, goal)
    assert orders(answer) == ()


@pytest.mark.parametrize("state", [Failed("x"), Done(), Paused("usage_limit")])
def test_g2_what_waits_for_a_person_waits_for_a_person_after_a_reboot_too(state: State) -> None:
    assert step(ralph(state), DaemonStarted(NOW), POLICY) == Step(ralph(state))


@pytest.mark.parametrize("state", [Idle(), Stopped(), Failed("x"), Done()])
def test_g2_what_was_not_to_run_is_not_started(state: State) -> None:
    assert step(ralph(state, Goal.STOPPED), DaemonStarted(NOW), POLICY) == Step(ralph(state, Goal.STOPPED))


def test_g2_waits_go_on_with_the_next_daemon() -> None:
    for state, moment in ((WAITING, NOW + 30), (Paused("usage_limit", NOW + 99), NOW + 99)):
        assert step(ralph(state), DaemonStarted(NOW + 5), POLICY) == Step(ralph(state), (WakeAt(moment),))


# P1, G3: adoption


def test_g3_a_living_run_is_adopted_as_it_is() -> None:
    answer = step(ralph(RUNNING, tally=TWO_FAILURES), DaemonStarted(NOW, RUN), POLICY)

    assert answer.supervision == ralph(RUNNING, tally=TWO_FAILURES)
    assert types(answer) == ["ralph.adopted"]
    assert orders(answer) == ()


def test_p1_a_run_that_ended_while_no_daemon_looked_is_judged_by_how_it_ended() -> None:
    answer = told(ralph(RUNNING), [DaemonStarted(NOW + 60), RunEnded(EXIT_0)])

    assert answer.supervision.state == Done("complete")
    assert Spawn() not in answer.actions


def test_p1_a_run_that_was_born_while_the_daemon_died_is_adopted_and_not_started_twice() -> None:
    answer = step(ralph(Starting()), DaemonStarted(NOW, RUN), POLICY)

    assert answer.supervision == ralph(RUNNING)
    assert types(answer) == ["ralph.started", "ralph.adopted"]
    assert orders(answer) == ()


def test_p1_a_run_that_was_born_and_ended_while_no_daemon_looked_is_not_run_a_second_time() -> None:
    """What its directory tells comes before the news that a daemon has started."""
    answer = told(ralph(Starting()), [Spawned(NOW - 9, RUN), RunEnded(EXIT_0), DaemonStarted(NOW + 60)])

    assert answer.supervision.state == Done("complete")
    assert Spawn() not in answer.actions


def test_p1_a_start_that_was_ordered_and_not_carried_out_is_ordered_again() -> None:
    answer = step(ralph(Starting(before=Stopped())), DaemonStarted(NOW), POLICY)

    assert answer == Step(ralph(Starting()), (Spawn(),))


def test_p1_nobody_waits_for_its_answer_any_more() -> None:
    answer = told(ralph(Starting(before=Stopped())), [DaemonStarted(NOW), SpawnFailed(NOW, "gone")])

    assert escalations(answer) == ["Ralph cannot be started: gone"]


def test_p1_a_start_that_was_taken_back_by_a_stop_is_not_ordered_again() -> None:
    answer = step(ralph(Starting(), Goal.STOPPED), DaemonStarted(NOW), POLICY)

    assert texts(answer) == ["Ralph stopped"]
    assert answer.supervision == ralph(Stopped(), Goal.STOPPED)
    assert orders(answer) == ()


def test_p1_a_start_that_was_taken_back_by_a_pause_is_a_pause() -> None:
    answer = step(ralph(Starting(), Goal.PAUSED), DaemonStarted(NOW), POLICY)

    assert answer.supervision == ralph(REQUESTED, Goal.PAUSED)
    assert orders(answer) == ()


@pytest.mark.parametrize(("state", "goal"), [(STOPPING, Goal.STOPPED), (PAUSING, Goal.PAUSED)])
def test_g1_the_rest_of_a_stop_is_carried_out_by_the_next_daemon(state: Stopping, goal: Goal) -> None:
    answer = step(ralph(state, goal), DaemonStarted(NOW + 10, RUN), POLICY)

    assert answer.supervision == ralph(state, goal)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 20.0))


def test_g1_a_stop_whose_deadline_has_passed_meanwhile_is_due_at_once() -> None:
    answer = step(ralph(STOPPING, Goal.STOPPED), DaemonStarted(NOW + 500, RUN), POLICY)

    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 0.0))


def test_g1_a_clock_set_back_never_makes_a_stop_longer_than_its_grace() -> None:
    answer = step(ralph(STOPPING, Goal.STOPPED), DaemonStarted(NOW - 86_400, RUN), POLICY)

    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 30.0))


def test_g2_a_run_that_an_earlier_daemon_was_taking_along_is_followed_by_the_next() -> None:
    answer = told(ralph(STOPPING), [DaemonStarted(NOW + 1, RUN), RunEnded(ended(signal=15))])

    assert answer.supervision.state == Starting()
    assert answer.actions.count(Spawn()) == 1


def test_g1_a_run_born_after_it_was_asked_to_stop_is_stopped_when_it_is_found() -> None:
    answer = step(ralph(Starting(), Goal.STOPPED), DaemonStarted(NOW, RUN), POLICY)

    assert answer.supervision == ralph(STOPPING, Goal.STOPPED)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 30.0))


def test_g2_a_run_born_after_it_was_asked_to_pause_is_paused_when_it_is_found() -> None:
    answer = step(ralph(Starting(), Goal.PAUSED), DaemonStarted(NOW, RUN), POLICY)

    assert answer.supervision == ralph(PAUSING, Goal.PAUSED)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 30.0))


@pytest.mark.parametrize("goal", [Goal.STOPPED, Goal.PAUSED, Goal.RUNNING])
def test_p1_the_birth_of_an_adopted_run_is_told_whatever_is_wanted_by_now(goal: Goal) -> None:
    assert types(step(ralph(Starting(), goal), DaemonStarted(NOW, RUN), POLICY))[:2] == [
        "ralph.started",
        "ralph.adopted",
    ]


@pytest.mark.parametrize("state", [WAITING, Stopped(), Failed("x"), Done(), Stopping(NEXT_RUN, NOW, NOW)])
def test_p1_a_living_run_is_watched_whatever_was_written_down(state: State) -> None:
    answer = step(ralph(state), DaemonStarted(NOW, RUN), POLICY)

    assert answer.supervision == ralph(Running(RUN))
    assert orders(answer) == ()
