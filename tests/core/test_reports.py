"""What a run reports, what that changes, what it is answered, how it ends at a boundary: G1, H6, C3."""

from dataclasses import replace

import pytest

from ralphd.core.record import entry_of
from ralphd.core.supervision.events import (
    Committed,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GraceOver,
    Overran,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Announce,
    ControlSignal,
    Done,
    Failed,
    Goal,
    Idle,
    KillAfter,
    KillTree,
    LastWord,
    Mode,
    Next,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    ReportedTask,
    ReportedWait,
    Running,
    RunReports,
    Spawn,
    Starting,
    State,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    ANSWERS_KEPT,
    LONGEST_WAIT_S,
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Cost,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    WaitingUntil,
    answer,
    is_known,
    limit_reached,
)
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from tests.core.scenes import (
    EXIT_0,
    EXIT_1,
    HELLO,
    HUNG,
    NEXT_RUN,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    TOO_LONG,
    WAITING,
    ended,
    orders,
    ralph,
    report,
    texts,
    told,
    types,
)

FINISHED, STARTED = IterationFinished(number=4, summary="ok"), IterationStarted(number=5)
ITERATES = RunReports(iterates=True)
SIGNALS = RunReports(hello=True, signals=True)
AT_BOUNDARY = Stopping(RUN, NOW, None, asked=False)
TASK = ReportedTask("3", "Write it down")
ALL_REPORTS: list[Report] = [
    Hello(), STARTED, AttemptFinished("claude", "done"), FINISHED, WaitingUntil(NOW + 60), Cost(0.5),
    Heartbeat(), AgentExhausted("claude", "usage limit"), AgentReturned("claude"), LastWord(1, "no_agent"),
]  # fmt: skip


def after(what: Report, now: Supervision, policy: Policy = POLICY) -> Step:
    return step(now, report(what), policy)


def reply(what: Report, now: Supervision, policy: Policy = POLICY) -> Next:
    """What a run that reports this is told."""
    return answer(after(what, now, policy).supervision, "1")


# each kind


@pytest.mark.parametrize("signals", [True, False])
def test_hello_says_what_the_run_understands(signals: bool) -> None:
    said = after(Hello(signals, "claude"), ralph(RUNNING)).supervision.said

    assert (said.hello, said.signals, said.agent) == (True, signals, "claude")
    assert not (said.iterates or said.beats)


def test_a_hello_without_an_agent_leaves_the_one_that_is_known() -> None:
    assert after(Hello(), ralph(RUNNING, said=RunReports(agent="codex"))).supervision.said.agent == "codex"


ONE_AS_ASKED = Done("limit", "1 iteration, as you asked")


def test_the_wait_that_a_run_reported_is_over_with_the_run() -> None:
    waits = RunReports(wait=ReportedWait("rate_limit", NOW + 60))
    answered = told(ralph(RUNNING, said=waits), [RunEnded(EXIT_0)])

    assert Announce("wait.ended") in answered.actions
    assert answered.supervision.said.wait is None


def test_an_iteration_that_begins_is_told_with_its_task() -> None:
    waits = RunReports(agent="codex", wait=ReportedWait("rate_limit", NOW + 60))
    answered = after(IterationStarted(5, TASK), ralph(RUNNING, said=waits))

    said = answered.supervision.said
    assert (said.iterates, said.task, said.agent, said.wait) == (True, TASK, "codex", None)
    assert answered.actions == (
        Announce("wait.ended"),
        Announce(
            "iteration.started",
            data=(("iteration", 5), ("task", {"id": "3", "title": "Write it down"})),
        ),
    )
    assert after(IterationStarted(5, None, "claude"), ralph(RUNNING)).supervision.said.agent == "claude"


def test_an_attempt_is_told_whole_and_its_cost_is_counted() -> None:
    attempt = AttemptFinished("claude", "failed", "stall", 1, 0.25, 60.0)
    answered = after(attempt, ralph(RUNNING, tally=Tally(cost_usd=0.5)))

    assert answered.supervision.tally == Tally(cost_usd=0.75)
    (announced,) = answered.actions
    assert isinstance(announced, Announce)
    assert announced.type == "attempt.finished"
    told_of = {name: value for name, value in announced.data if value is not None}
    assert told_of == {
        "agent": "claude", "outcome": "failed", "failure_kind": "stall", "code": 1, "cost_usd": 0.25,
        "duration_s": 60.0, "category": "timeout", "hint": "ResumeFromCheckpoint",
    }  # fmt: skip


def test_an_attempt_that_tells_no_cost_has_none() -> None:
    assert after(AttemptFinished("claude", "done"), ralph(RUNNING)).supervision.tally == Tally()


def test_costs_add_up_to_the_millionth() -> None:
    answered = told(ralph(RUNNING), [report(Cost(0.1), str(number)) for number in range(3)])

    assert answered.supervision.tally.cost_usd == 0.3
    assert answered.actions == ()


def test_a_finished_iteration_counts_and_is_told() -> None:
    waits = RunReports(wait=ReportedWait("rate_limit", NOW + 60))
    answered = after(FINISHED, ralph(RUNNING, tally=Tally(iteration=3), said=waits))

    assert answered.supervision.tally.iteration == 4
    assert answered.supervision.said.iterates
    assert answered.supervision.said.wait is None
    assert answered.supervision.state == RUNNING
    assert answered.actions == (
        Announce("wait.ended"),
        Announce("iteration.finished", data=tuple(FINISHED.data().items())),
    )


def test_e4_in_iteration_mode_the_end_of_the_run_counts_it_and_not_the_report() -> None:
    policy = Policy(mode=Mode.ITERATION)
    answered = told(ralph(RUNNING), [report(FINISHED), RunEnded(EXIT_0)], policy)

    assert answered.supervision.tally.iteration == 1


def test_e1_in_loop_mode_an_exit_0_is_no_iteration() -> None:
    answered = told(ralph(RUNNING), [report(FINISHED), RunEnded(EXIT_0)])

    assert answered.supervision.tally.iteration == 1
    assert told(ralph(RUNNING), [RunEnded(EXIT_0)]).supervision.tally.iteration == 0


def test_c3_a_finished_iteration_ends_a_row_of_failures_and_remembers_it() -> None:
    now = after(FINISHED, ralph(RUNNING, tally=Tally(consecutive_errors=2))).supervision

    assert now.tally.consecutive_errors == 0
    assert now.said.errors_cleared == 2
    again = step(now, report(FINISHED, "2"), POLICY).supervision
    assert again.said.errors_cleared == 2


def test_c3_a_failed_iteration_does_not() -> None:
    now = after(IterationFinished(failed=True), ralph(RUNNING, tally=Tally(consecutive_errors=2))).supervision

    assert now.tally.consecutive_errors == 2
    assert now.said.errors_cleared == 0
    assert now.tally.iteration == 1


def test_c3_a_loop_that_works_then_hangs_three_times_fails() -> None:
    """A finished iteration each time, a commit, hours of output: it is a stall all the same."""
    now = ralph(RUNNING)
    for number in range(1, 4):
        hung: list[Event] = [report(Hello()), report(FINISHED, "2"), Overran(NOW, RUN, Overdue.STALL, "hung")]
        end = replace(ended(signal=9), started_at=NOW - 1300, last_sign_at=NOW - 60, committed=True)
        answered = told(now, [*hung, RunEnded(end)])
        assert answered.supervision.tally.consecutive_errors == number
        now = replace(answered.supervision, state=RUNNING)

    assert isinstance(answered.supervision.state, Failed)
    assert texts(answered)[-1] == "Ralph hung and was ended — giving up after 3 failures in a row"


def test_h6_a_heartbeat_is_remembered_as_such_and_not_kept() -> None:
    now = after(Heartbeat(), ralph(RUNNING)).supervision

    assert now == ralph(RUNNING, said=RunReports(beats=True))
    assert after(Heartbeat(), now) == Step(now)
    assert answer(now, "1") is Next.CONTINUE


# waits


def test_h5_a_wait_is_told_with_its_end_and_ends_by_the_clock() -> None:
    answered = after(WaitingUntil(NOW + 60, "rate_limit"), ralph(RUNNING))

    now = answered.supervision
    assert now.said.wait == ReportedWait("rate_limit", NOW + 60)
    assert answered.actions == (
        Announce("wait.started", "Ralph waits: rate_limit", wait_until=NOW + 60),
        WakeAt(NOW + 60),
    )
    assert step(now, Woke(NOW + 59.9), POLICY) == Step(now, (WakeAt(NOW + 60),))
    over = step(now, Woke(NOW + 60), POLICY)
    assert over.supervision.said.wait is None
    assert over.actions == (Announce("wait.ended"),)


def test_a_wait_ends_by_the_word_of_the_run_too() -> None:
    now = after(WaitingUntil(NOW + 60), ralph(RUNNING)).supervision
    over = step(now, report(WaitingUntil(None), "2"), POLICY)

    assert over.supervision.said.wait is None
    assert types(over) == ["wait.ended"]
    assert types(step(over.supervision, report(WaitingUntil(None), "3"), POLICY)) == []


def test_a_run_cannot_talk_itself_out_of_the_watch_for_good() -> None:
    wait = after(WaitingUntil(NOW + 1e9), ralph(RUNNING)).supervision.said.wait

    assert wait == ReportedWait("waiting", NOW + LONGEST_WAIT_S)


@pytest.mark.parametrize("state", [RUNNING, HUNG, STOPPING, PAUSING, AT_BOUNDARY])
def test_p1_a_wait_goes_on_with_the_next_daemon(state: State) -> None:
    waits = ralph(state, Goal.RUNNING, said=replace(SIGNALS, wait=ReportedWait("x", NOW + 60)))
    answered = step(waits, DaemonStarted(NOW + 5, RUN), POLICY)

    assert WakeAt(NOW + 60) in answered.actions
    assert answered.supervision.said == waits.said
    assert types(answered) == ["ralph.adopted"]


def test_l12_a_wait_of_a_run_that_knows_our_signals_can_be_skipped() -> None:
    waits = ralph(RUNNING, said=replace(SIGNALS, wait=ReportedWait("x", NOW + 60)))

    assert step(waits, SkipWaitRequested(NOW), POLICY) == Step(waits, (PassOn(RUN, ControlSignal.SKIP_WAIT),))


def test_l12_any_other_run_waits_by_itself() -> None:
    waits = ralph(RUNNING, said=replace(HELLO, wait=ReportedWait("x", NOW + 60)))

    assert (
        why_not(waits, SkipWaitRequested(NOW)) == "its command waits by itself, and does not know our signals"
    )
    assert step(waits, SkipWaitRequested(NOW), POLICY) == Step(waits)


# ids


def test_a_report_that_is_sent_again_is_answered_as_before_and_changes_nothing() -> None:
    now = after(FINISHED, ralph(RUNNING)).supervision
    stopped = told(now, [StopRequested(NOW)]).supervision

    assert is_known(stopped, report(FINISHED))
    assert step(stopped, report(FINISHED), POLICY) == Step(stopped)
    assert answer(stopped, "1") is Next.CONTINUE
    assert stopped.tally.iteration == 1


def test_another_report_under_the_same_id_is_refused() -> None:
    now = after(FINISHED, ralph(RUNNING)).supervision

    assert why_not(now, report(Cost(1.0))) == "the id 1 was used for another report already"
    assert step(now, report(Cost(1.0)), POLICY) == Step(now)
    assert why_not(now, report(Cost(1.0), "2")) is None


@pytest.mark.parametrize("state", [Idle(), Starting(), WAITING, Paused("x"), Stopped(), Failed("x"), Done()])
def test_a_report_is_refused_where_no_run_lives(state: State) -> None:
    reason = why_not(ralph(state), report(FINISHED))

    assert reason == f"no run lives that {RUN} could be: it is {state.kind.replace('_', ' ')}"
    assert step(ralph(state), report(FINISHED), POLICY) == Step(ralph(state))


@pytest.mark.parametrize("what", ALL_REPORTS)
def test_a_report_of_another_run_is_refused(what: Report) -> None:
    strange = report(what, run_id=NEXT_RUN)

    assert why_not(ralph(RUNNING), strange) == f"{NEXT_RUN} is over; the run that lives is {RUN}"
    assert step(ralph(RUNNING), strange, POLICY) == Step(ralph(RUNNING))


def test_the_newest_answers_are_kept_and_no_more() -> None:
    count = ANSWERS_KEPT + 5
    now = told(ralph(RUNNING), [report(Cost(0.0), str(number)) for number in range(count)]).supervision

    assert [known.id for known in now.said.answered] == [str(n) for n in range(5, count)]
    assert not is_known(now, report(Cost(0.0), "4"))


@pytest.mark.parametrize("what", ALL_REPORTS)
def test_what_a_run_said_is_forgotten_with_it(what: Report) -> None:
    said = after(what, ralph(RUNNING)).supervision

    assert said.said != RunReports()
    for ending in (EXIT_0, EXIT_1):
        assert step(said, RunEnded(ending), POLICY).supervision.said == RunReports()


def test_p1_what_another_run_had_said_is_not_said_by_the_one_that_is_found() -> None:
    now = ralph(Stopping(NEXT_RUN, NOW, NOW), said=SIGNALS)

    assert step(now, DaemonStarted(NOW, RUN), POLICY).supervision == ralph(RUNNING)
    assert step(ralph(RUNNING, said=SIGNALS), DaemonStarted(NOW, RUN), POLICY).supervision.said == SIGNALS


# answers


@pytest.mark.parametrize("what", ALL_REPORTS)
@pytest.mark.parametrize(
    ("state", "goal", "told_next"),
    [
        (RUNNING, Goal.RUNNING, Next.CONTINUE),
        (STOPPING, Goal.STOPPED, Next.STOP),
        (replace(STOPPING, again=True), Goal.RUNNING, Next.STOP),
        (AT_BOUNDARY, Goal.STOPPED, Next.STOP),
        (PAUSING, Goal.PAUSED, Next.PAUSE),
        (TOO_LONG, Goal.RUNNING, Next.STOP),
        (HUNG, Goal.RUNNING, Next.STOP),
        (RUNNING, Goal.STOPPED, Next.STOP),
    ],
)
def test_g1_a_run_is_told_what_is_wanted(what: Report, state: State, goal: Goal, told_next: Next) -> None:
    assert reply(what, ralph(state, goal)) is told_next


# boundaries


@pytest.mark.parametrize("said", [ITERATES, SIGNALS, replace(SIGNALS, iterates=True)])
def test_g1_a_run_with_boundaries_is_stopped_at_the_next(said: RunReports) -> None:
    answered = step(ralph(RUNNING, said=said), StopRequested(NOW), POLICY)

    assert answered.supervision.state == Stopping(RUN, NOW, None, asked=said.signals)
    assert orders(answered) == ((Terminate(RUN),) if said.signals else ())


def test_g1_there_it_is_told_and_given_the_usual_time() -> None:
    answered = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW), report(FINISHED, at=NOW + 500)])

    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 530, asked=False)
    assert orders(answered) == (KillAfter(RUN, 30.0),)
    assert answer(answered.supervision, "1") is Next.STOP
    end = step(answered.supervision, RunEnded(EXIT_0), POLICY)
    assert end.supervision.state == Stopped()


def test_g1_one_that_does_not_end_then_is_asked_and_then_killed() -> None:
    now = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW), report(FINISHED)]).supervision

    asked = step(now, GraceOver(NOW + 30, RUN), POLICY)
    assert asked.supervision.state == Stopping(RUN, NOW, NOW + 60)
    assert orders(asked) == (Terminate(RUN), KillAfter(RUN, 30.0))
    assert orders(step(asked.supervision, GraceOver(NOW + 60, RUN), POLICY)) == (KillTree(RUN),)


def test_g1_one_that_was_asked_by_our_signal_already_is_killed_after_the_grace() -> None:
    answered = told(
        ralph(RUNNING, said=SIGNALS), [StopRequested(NOW), report(FINISHED), GraceOver(NOW + 30, RUN)]
    )

    assert orders(answered) == (Terminate(RUN), KillAfter(RUN, 30.0), KillTree(RUN))


def test_g1_one_that_begins_another_iteration_all_the_same_is_asked_like_any_other_command() -> None:
    now = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW), report(FINISHED)]).supervision
    answered = step(now, report(STARTED, "2", at=NOW + 10), POLICY)

    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 40)
    assert orders(answered) == (Terminate(RUN), KillAfter(RUN, 30.0))
    assert orders(step(answered.supervision, report(STARTED, "3"), POLICY)) == ()


def test_g1_before_its_boundary_it_may_begin_and_nothing_kills_it() -> None:
    now = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW)]).supervision

    assert orders(step(now, report(STARTED), POLICY)) == ()
    assert step(now, GraceOver(NOW + 30, RUN), POLICY) == Step(now)


def test_g1_a_second_boundary_does_not_put_the_deadline_off() -> None:
    now = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW), report(FINISHED)]).supervision
    answered = step(now, report(FINISHED, "2", at=NOW + 20), POLICY)

    assert answered.supervision.state == now.state
    assert orders(answered) == ()


@pytest.mark.parametrize("state", [RUNNING, AT_BOUNDARY])
def test_g1_stop_now_waits_for_no_boundary(state: State) -> None:
    answered = step(ralph(state, said=ITERATES), StopRequested(NOW, now=True), POLICY)

    assert orders(answered) == (KillTree(RUN),)
    assert isinstance(answered.supervision.state, Stopping)
    assert answered.supervision.state.kill_at == NOW


def test_g2_a_run_with_boundaries_is_paused_at_the_next() -> None:
    answered = told(ralph(RUNNING, said=ITERATES), [PauseRequested(NOW), report(FINISHED)])

    assert texts(answered) == ["Pausing after current iteration..."]
    assert answered.supervision.state == Pausing(RUN, NOW, NOW + 30, asked=False)
    assert answer(answered.supervision, "1") is Next.PAUSE
    assert step(answered.supervision, RunEnded(EXIT_0), POLICY).supervision.state == Paused("requested")


def test_l12_one_that_knows_our_signals_is_asked_to_pause_by_them() -> None:
    answered = step(ralph(RUNNING, said=SIGNALS), PauseRequested(NOW), POLICY)

    assert orders(answered) == (PassOn(RUN, ControlSignal.PAUSE),)
    assert answered.supervision.state == Pausing(RUN, NOW, None)


def test_g2_a_restart_waits_for_the_boundary_and_starts_again() -> None:
    answered = told(
        ralph(RUNNING, said=ITERATES), [RestartRequested(NOW), report(FINISHED), RunEnded(EXIT_0)]
    )

    assert orders(answered) == (KillAfter(RUN, 30.0), Spawn())
    assert answered.supervision.state == Starting()


@pytest.mark.parametrize("request_", [StopRequested(NOW), PauseRequested(NOW)])
@pytest.mark.parametrize("said", [ITERATES, SIGNALS])
def test_g1_what_waits_for_a_boundary_waits_for_it_under_the_next_daemon_too(
    request_: Event, said: RunReports
) -> None:
    now = told(ralph(RUNNING, said=said), [request_]).supervision
    answered = step(now, DaemonStarted(NOW + 500, RUN), POLICY)

    assert answered.supervision == now
    assert orders(answered) == ((PassOn(RUN, ControlSignal.PAUSE),) if said.signals else ())


def test_g1_who_was_told_at_a_boundary_keeps_the_rest_of_its_time_under_the_next_daemon() -> None:
    now = told(ralph(RUNNING, said=ITERATES), [StopRequested(NOW), report(FINISHED)]).supervision

    assert orders(step(now, DaemonStarted(NOW + 10, RUN), POLICY)) == (KillAfter(RUN, 20.0),)


def test_g2_a_daemon_that_ends_waits_for_the_boundary_until_its_own_deadline() -> None:
    answered = told(ralph(RUNNING, said=ITERATES), [DaemonStopping(NOW), DaemonStopping(NOW + 60, now=True)])

    assert orders(answered) == (KillTree(RUN),)
    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 60, asked=False)
    assert answered.supervision.goal is Goal.RUNNING


# limits


@pytest.mark.parametrize(
    ("policy", "tally", "words"),
    [
        (Policy(max_iterations=5), Tally(iteration=5), "5 iterations, as you asked"),
        (Policy(max_iterations=5), Tally(iteration=4), None),
        (Policy(max_cost_usd=2.0), Tally(cost_usd=2.0), "$2.00 spent, of $2.00 allowed"),
        (Policy(max_cost_usd=2.0), Tally(cost_usd=1.99), None),
        (Policy(max_runtime_s=60.0), Tally(began_at=NOW - 60), "it has run for 60 s, of 60 s allowed"),
        (Policy(max_runtime_s=60.0), Tally(began_at=NOW - 59), None),
        (Policy(max_runtime_s=60.0), Tally(), None),
        (POLICY, Tally(iteration=10**6, cost_usd=1e6, began_at=0.0), None),
    ],
)
def test_e4_a_limit_of_the_users_own_is_told_in_words(
    policy: Policy, tally: Tally, words: str | None
) -> None:
    assert limit_reached(tally, NOW, policy) == words


def limited(tally: Tally | None = None) -> Supervision:
    """A ralph whose run has just reported the iteration that was its last."""
    return after(FINISHED, ralph(RUNNING, tally=tally), Policy(max_iterations=1)).supervision


def test_e4_a_run_that_has_reached_a_limit_is_told_to_stop_at_its_boundary() -> None:
    answered = after(FINISHED, ralph(RUNNING), Policy(max_iterations=1))

    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 30, asked=False)
    assert orders(answered) == (KillAfter(RUN, 30.0),)
    assert answer(answered.supervision, "1") is Next.STOP
    end = step(answered.supervision, RunEnded(EXIT_1), POLICY)
    assert end.supervision == ralph(ONE_AS_ASKED, tally=Tally(iteration=1))
    assert texts(end) == ["Ralph stopped: 1 iteration, as you asked"]


@pytest.mark.parametrize("living", [RUN, None])
def test_e4_a_limit_ends_it_under_the_next_daemon_too(living: None) -> None:
    answered = told(limited(), [DaemonStarted(NOW + 1, living), RunEnded(EXIT_0)])

    assert answered.supervision.state == ONE_AS_ASKED
    assert Spawn() not in answered.actions


@pytest.mark.parametrize(
    ("requests", "state"),
    [
        ([StopRequested(NOW)], ONE_AS_ASKED),
        ([PauseRequested(NOW)], Paused("requested")),
        ([PauseRequested(NOW), ResumeRequested(NOW)], Starting()),
        ([StartRequested(NOW)], Starting()),
        ([RestartRequested(NOW)], Starting()),
    ],
)
def test_g1_what_a_person_asks_for_meanwhile_outweighs_the_limit(requests: list[Event], state: State) -> None:
    assert told(limited(), [*requests, RunEnded(EXIT_0)]).supervision.state == state


def test_e4_a_limit_changes_nothing_for_a_run_that_is_being_stopped() -> None:
    answered = after(FINISHED, ralph(AT_BOUNDARY, Goal.STOPPED), Policy(max_iterations=1))

    assert answered.supervision.said.limit is None
    assert step(answered.supervision, RunEnded(EXIT_0), POLICY).supervision.state == Stopped()


# the watch


def test_h1_a_silence_is_told_and_changes_nothing() -> None:
    assert step(ralph(RUNNING), FellSilent(NOW, RUN, "silent"), POLICY) == Step(
        ralph(RUNNING), (Announce("ralph.stall_warning", "silent"),)
    )


def test_h4_a_hanging_run_is_killed_and_one_that_took_too_long_is_asked_first() -> None:
    hung = step(ralph(RUNNING), Overran(NOW, RUN, Overdue.STALL, "hung"), POLICY)
    late = step(ralph(RUNNING), Overran(NOW, RUN, Overdue.TIMEOUT, "late"), POLICY)

    assert (hung.supervision, orders(hung)) == (ralph(HUNG), (KillTree(RUN),))
    assert (late.supervision, orders(late)) == (ralph(TOO_LONG), (Terminate(RUN), KillAfter(RUN, 30.0)))
    assert hung.actions[0] == Announce("ralph.stalled", "hung", data=(("failure_kind", "stall"),))
    assert late.actions[0] == Announce("ralph.stalled", "late", data=(("failure_kind", "timeout"),))
    assert orders(step(late.supervision, GraceOver(NOW, RUN), POLICY)) == (KillTree(RUN),)


@pytest.mark.parametrize(
    ("state", "expected"), [(HUNG, (KillTree(RUN),)), (TOO_LONG, (Terminate(RUN), KillAfter(RUN, 30.0)))]
)
def test_h4_the_next_daemon_ends_what_the_last_one_was_ending(state: State, expected: object) -> None:
    assert orders(step(ralph(state), DaemonStarted(NOW, RUN), POLICY)) == expected


@pytest.mark.parametrize("overdue", list(Overdue))
@pytest.mark.parametrize("state", [HUNG, TOO_LONG])
def test_h4_what_is_being_ended_is_not_ended_twice(state: State, overdue: Overdue) -> None:
    assert step(ralph(state), Overran(NOW, RUN, overdue, "again"), POLICY) == Step(ralph(state))


def test_p6_nothing_is_ended_where_nothing_is_supervised() -> None:
    overran = Overran(NOW, RUN, Overdue.STALL, "hung")

    assert step(ralph(RUNNING), overran, Policy(supervised=False)) == Step(ralph(RUNNING))


@pytest.mark.parametrize(
    "state", [Starting(), WAITING, Stopped(), Done(), Running(NEXT_RUN), Stopping(NEXT_RUN, NOW, NOW)]
)
def test_news_of_a_run_that_is_over_means_nothing(state: State) -> None:
    for event in (
        FellSilent(NOW, RUN, "x"),
        Overran(NOW, RUN, Overdue.STALL, "x"),
        Committed(NOW, RUN, 1),
        GraceOver(NOW, RUN),
    ):
        assert step(ralph(state), event, POLICY) == Step(ralph(state))


@pytest.mark.parametrize("state", [AT_BOUNDARY, PAUSING, STOPPING])
def test_h4_a_run_that_hangs_before_it_comes_to_its_boundary_is_killed(state: State) -> None:
    answered = step(ralph(state, said=ITERATES), Overran(NOW, RUN, Overdue.STALL, "hung"), POLICY)

    assert answered == Step(ralph(state, said=ITERATES), (KillTree(RUN),))


def test_h6_a_run_that_is_too_long_before_it_comes_to_its_boundary_is_asked_to_end() -> None:
    """The watch over it is over: nobody would see it hang."""
    late = Overran(NOW + 9, RUN, Overdue.TIMEOUT, "late")
    answered = step(ralph(AT_BOUNDARY, said=ITERATES), late, POLICY)

    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 39)
    assert orders(answered) == (Terminate(RUN), KillAfter(RUN, 30.0))
    assert step(ralph(STOPPING), late, POLICY) == Step(ralph(STOPPING))


@pytest.mark.parametrize("request_", [StopRequested(NOW), PauseRequested(NOW), RestartRequested(NOW)])
@pytest.mark.parametrize("state", [HUNG, TOO_LONG])
def test_g1_no_boundary_is_waited_for_of_a_run_that_we_are_ending(request_: Event, state: State) -> None:
    answered = step(ralph(state, said=replace(SIGNALS, iterates=True)), request_, POLICY)

    assert orders(answered) == (Terminate(RUN), KillAfter(RUN, 30.0))
    late = step(answered.supervision, GraceOver(NOW + 30, RUN), POLICY)
    assert orders(late) == (KillTree(RUN),)


@pytest.mark.parametrize(
    ("said", "policy", "counted"),
    [
        (RunReports(), POLICY, 5),
        (HELLO, POLICY, 5),
        (ITERATES, POLICY, 3),
        (RunReports(), Policy(mode=Mode.ITERATION), 3),
    ],
)
def test_e4_the_commits_of_a_command_that_does_not_report_are_its_iterations(
    said: RunReports, policy: Policy, counted: int
) -> None:
    now = ralph(RUNNING, tally=Tally(iteration=3), said=said)

    assert step(now, Committed(NOW, RUN, 2), policy).supervision.tally.iteration == counted


# the history


def test_what_the_history_keeps_of_a_report() -> None:
    assert entry_of(report(AttemptFinished("claude", "done"))) is not None
    assert entry_of(report(FINISHED)) == ("iteration", dict(FINISHED.data()))
    assert entry_of(report(WaitingUntil(NOW + 60, "rate_limit"))) == (
        "wait", {"reason": "rate_limit", "until": "2026-11-21T20:01:00.000000Z"},
    )  # fmt: skip
    assert entry_of(report(WaitingUntil(NOW + 1e9, "ages"))) == (
        "wait", {"reason": "ages", "until": "2026-12-22T20:00:00.000000Z"},
    )  # fmt: skip
    for over in (WaitingUntil(None), WaitingUntil(NOW)):
        assert entry_of(report(over)) == ("wait_over", {})
    assert entry_of(report(Cost(1.0))) == ("cost", {"usd": 1.0})
    for nothing in (Hello(), STARTED, Heartbeat()):
        assert entry_of(report(nothing)) is None
