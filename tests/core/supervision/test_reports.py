"""What a run reports, what that changes, what it is answered, how it ends at a boundary: G1, H6, C3."""

from dataclasses import replace

import pytest

from ralphd.core.record import entry_of
from ralphd.core.supervision.events import (
    DaemonStarted,
    Event,
    Overran,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    StartRequested,
    StopRequested,
)
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Failed,
    Goal,
    KillAfter,
    LastWord,
    Next,
    Overdue,
    Paused,
    Policy,
    ReportedTask,
    RunReports,
    Spawn,
    Starting,
    State,
    Step,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    Wait,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    ANSWERS_KEPT,
    LONGEST_UNGREETED_S,
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
from tests.core.supervision.scenes import (
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
WAITS = RunReports(wait=Wait("rate_limit", NOW + 60))
TASK = ReportedTask("3", "Write it down")
ONE_AS_ASKED = Done("limit", "max_iterations = 1 reached")
ALL_REPORTS: list[Report] = [
    Hello(), STARTED, AttemptFinished("claude", "done"), FINISHED, WaitingUntil(NOW + 60), Cost(0.5),
    Heartbeat(), AgentExhausted("claude", "usage limit"), AgentReturned("claude"), LastWord(1, "no_agent"),
]  # fmt: skip


def after(what: Report, now: Supervision, policy: Policy = POLICY) -> Step:
    return step(now, report(what), policy)


# each kind


@pytest.mark.parametrize("signals", [True, False])
def test_hello_reports_what_the_run_supports(signals: bool) -> None:
    said = after(Hello(signals, "claude"), ralph(RUNNING)).supervision.said

    assert (said.hello, said.signals, said.agent) == (True, signals, "claude")
    assert not (said.iterates or said.beats)


def test_hello_without_an_agent_keeps_the_last() -> None:
    assert after(Hello(), ralph(RUNNING, said=RunReports(agent="codex"))).supervision.said.agent == "codex"


def test_a_reported_wait_ends_with_the_run() -> None:
    answered = told(ralph(RUNNING, said=WAITS), [RunEnded(EXIT_0)])

    assert Announce("wait.ended") in answered.actions
    assert answered.supervision.said.wait is None


def test_an_iteration_is_announced_with_its_task() -> None:
    waits = RunReports(agent="codex", wait=Wait("rate_limit", NOW + 60))
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


def test_an_attempt_is_announced_and_its_cost_counted() -> None:
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


def test_an_attempt_without_a_cost_costs_nothing() -> None:
    assert after(AttemptFinished("claude", "done"), ralph(RUNNING)).supervision.tally == Tally()


@pytest.mark.parametrize(("costs", "total"), [((0.1, 0.1, 0.1), 0.3), ((0.0000014,), 0.000001)])
def test_costs_add_up_to_the_millionth(costs: tuple[float, ...], total: float) -> None:
    answered = told(ralph(RUNNING), [report(Cost(cost), str(number)) for number, cost in enumerate(costs)])

    assert answered.supervision.tally.cost_usd == total
    assert answered.actions == ()


def test_c3_an_iteration_clears_failures_and_remembers_them() -> None:
    now = after(FINISHED, ralph(RUNNING, tally=Tally(consecutive_errors=2))).supervision

    assert now.tally.consecutive_errors == 0
    assert now.said.errors_cleared == 2
    again = step(now, report(FINISHED, "2"), POLICY).supervision
    assert again.said.errors_cleared == 2


def test_c3_three_stalls_after_work_fail() -> None:
    """A finished iteration each time, a commit, hours of output: it is a stall all the same."""
    now = ralph(RUNNING)
    for number in range(1, 4):
        hung: list[Event] = [report(Hello()), report(FINISHED, "2"), Overran(NOW, RUN, Overdue.STALL, "hung")]
        end = replace(ended(signal=9), started_at=NOW - 1300, last_sign_at=NOW - 60, committed=True)
        answered = told(now, [*hung, RunEnded(end)])
        assert answered.supervision.tally.consecutive_errors == number
        now = replace(answered.supervision, state=RUNNING)

    assert isinstance(answered.supervision.state, Failed)
    assert texts(answered)[-1] == "Ralph hung and was killed — giving up after 3 failures in a row"


def test_h6_a_heartbeat_is_noted_once() -> None:
    now = after(Heartbeat(), ralph(RUNNING)).supervision

    assert now == ralph(RUNNING, said=RunReports(beats=True))
    assert after(Heartbeat(), now) == Step(now)
    assert answer(now, "1") is Next.CONTINUE


# waits


def test_a_reported_wait_is_bounded() -> None:
    def waits(said: RunReports) -> Wait | None:
        return after(WaitingUntil(NOW + 1e9), ralph(RUNNING, said=said)).supervision.said.wait

    assert waits(HELLO) == Wait("waiting", NOW + 31 * 86_400)
    assert waits(RunReports()) == Wait("waiting", NOW + 86_400)


def test_a_wait_above_a_day_is_reported_once() -> None:
    first = after(WaitingUntil(NOW + 1e9), ralph(RUNNING, said=HELLO))
    again = step(first.supervision, report(WaitingUntil(NOW + 2e9), "2"), POLICY)
    short = after(WaitingUntil(NOW + LONGEST_UNGREETED_S), ralph(RUNNING, said=HELLO))

    assert types(first) == ["wait.started", "ralph.stall_warning"]
    assert "until 2026-12-22T20:00:00" in str(first.actions)
    assert types(again) == types(short) == ["wait.started"]


@pytest.mark.parametrize("before_s", [60.0, LONGEST_UNGREETED_S])
def test_a_wait_above_a_day_is_reported_after_a_shorter_one_too(before_s: float) -> None:
    waits = after(WaitingUntil(NOW + before_s), ralph(RUNNING, said=HELLO)).supervision
    longer = step(waits, report(WaitingUntil(NOW + 1e6), "2"), POLICY)

    assert types(longer) == ["wait.started", "ralph.stall_warning"]


@pytest.mark.parametrize("state", [RUNNING, HUNG, STOPPING, PAUSING, AT_BOUNDARY])
def test_p1_a_wait_continues_under_the_next_daemon(state: State) -> None:
    waits = ralph(state, Goal.RUNNING, said=replace(SIGNALS, wait=Wait("x", NOW + 60)))
    answered = step(waits, DaemonStarted(NOW + 5, RUN), POLICY)

    assert WakeAt(NOW + 60) in answered.actions
    assert answered.supervision.said == waits.said
    assert types(answered) == ["ralph.adopted"]


def test_h5_a_wait_until_now_is_over() -> None:
    answer = step(ralph(RUNNING, said=WAITS), report(WaitingUntil(NOW)), POLICY)

    assert answer.supervision.said.wait is None
    assert answer.actions == (Announce("wait.ended"),)


# ids


def test_a_repeated_report_gets_the_same_reply() -> None:
    now = after(FINISHED, ralph(RUNNING)).supervision
    stopped = told(now, [StopRequested(NOW)]).supervision

    assert is_known(stopped, report(FINISHED))
    assert step(stopped, report(FINISHED), POLICY) == Step(stopped)
    assert answer(stopped, "1") is Next.CONTINUE
    assert stopped.tally.iteration == 1


def test_an_id_cannot_be_used_twice() -> None:
    now = after(FINISHED, ralph(RUNNING)).supervision

    assert why_not(now, report(Cost(1.0))) == "the id 1 was already used for another report"
    assert step(now, report(Cost(1.0)), POLICY) == Step(now)
    assert why_not(now, report(Cost(1.0), "2")) is None


def test_g1_the_last_64_reports_are_known() -> None:
    many = [report(Cost(0.0), str(number)) for number in range(ANSWERS_KEPT + 5)]
    now = told(ralph(RUNNING), many).supervision

    assert ANSWERS_KEPT == 64
    assert [known.id for known in now.said.answered] == [each.id for each in many[5:]]
    assert [each.id for each in many if not is_known(now, each)] == ["0", "1", "2", "3", "4"]
    assert why_not(now, many[-1]) is None


@pytest.mark.parametrize("what", ALL_REPORTS)
def test_reports_are_forgotten_with_the_run(what: Report) -> None:
    said = after(what, ralph(RUNNING)).supervision

    assert said.said != RunReports()
    for ending in (EXIT_0, EXIT_1):
        assert step(said, RunEnded(ending), POLICY).supervision.said == RunReports()


def test_p1_an_adopted_run_inherits_no_reports() -> None:
    now = ralph(Stopping(NEXT_RUN, NOW, NOW), said=SIGNALS)

    assert step(now, DaemonStarted(NOW, RUN), POLICY).supervision == ralph(RUNNING)
    assert step(ralph(RUNNING, said=SIGNALS), DaemonStarted(NOW, RUN), POLICY).supervision.said == SIGNALS


# boundaries


def test_g2_a_restart_waits_for_the_boundary() -> None:
    answered = told(
        ralph(RUNNING, said=ITERATES), [RestartRequested(NOW), report(FINISHED), RunEnded(EXIT_0)]
    )

    assert orders(answered) == (KillAfter(RUN, 30.0), Spawn())
    assert answered.supervision.state == Starting()


def test_g1_an_iteration_past_the_last_is_terminated() -> None:
    state = Stopping(RUN, NOW - 20, NOW + 10, asked=False)
    answer = step(ralph(state, said=WAITS), report(IterationStarted(5)), POLICY)

    assert answer.supervision.state == Stopping(RUN, NOW - 20, NOW + 30)
    assert answer.actions == (
        Announce("wait.ended"),
        Announce("iteration.started", data=(("iteration", 5), ("task", None))),
        Terminate(RUN),
        KillAfter(RUN, 30.0),
    )


# limits


@pytest.mark.parametrize(
    ("policy", "tally", "words"),
    [
        (Policy(max_iterations=5), Tally(iteration=5), "max_iterations = 5 reached"),
        (Policy(max_iterations=5), Tally(iteration=4), None),
        (Policy(max_cost_usd=2.0), Tally(cost_usd=2.0), "$2.00 of $2.00 spent (max_cost_usd)"),
        (Policy(max_cost_usd=2.0), Tally(cost_usd=1.99), None),
        (Policy(max_runtime_s=60.0), Tally(began_at=NOW - 60), "60 s of 60 s used (max_runtime_seconds)"),
        (Policy(max_runtime_s=60.0), Tally(began_at=NOW - 59), None),
        (Policy(max_runtime_s=60.0), Tally(), None),
        (POLICY, Tally(iteration=10**6, cost_usd=1e6, began_at=0.0), None),
    ],
)
def test_e4_a_limit_is_described_in_words(policy: Policy, tally: Tally, words: str | None) -> None:
    assert limit_reached(tally, NOW, policy) == words


def limited(tally: Tally | None = None) -> Supervision:
    """A ralph whose run has just reported the iteration that was its last."""
    return after(FINISHED, ralph(RUNNING, tally=tally), Policy(max_iterations=1)).supervision


def test_e4_a_limit_stops_the_run_at_its_boundary() -> None:
    answered = after(FINISHED, ralph(RUNNING), Policy(max_iterations=1))

    assert answered.supervision.state == Stopping(RUN, NOW, NOW + 30, asked=False)
    assert orders(answered) == (KillAfter(RUN, 30.0),)
    assert answer(answered.supervision, "1") is Next.STOP
    end = step(answered.supervision, RunEnded(EXIT_1), POLICY)
    assert end.supervision == ralph(ONE_AS_ASKED, tally=Tally(iteration=1))
    assert texts(end) == ["Ralph stopped: max_iterations = 1 reached"]


@pytest.mark.parametrize("living", [RUN, None])
def test_e4_a_limit_holds_under_the_next_daemon(living: None) -> None:
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
def test_g1_a_request_outweighs_the_limit(requests: list[Event], state: State) -> None:
    assert told(limited(), [*requests, RunEnded(EXIT_0)]).supervision.state == state


def test_e4_max_runtime_is_checked_at_a_boundary() -> None:
    policy = Policy(max_runtime_s=60.0)
    now = ralph(RUNNING, tally=Tally(began_at=NOW - 60))

    late = step(now, report(IterationFinished()), policy).supervision
    in_time = step(replace(now, tally=Tally(began_at=NOW - 59)), report(IterationFinished()), policy)

    assert late.said.limit == "60 s of 60 s used (max_runtime_seconds)"
    assert in_time.supervision.state == RUNNING


# the history


def test_the_history_entry_of_each_report() -> None:
    assert entry_of(report(AttemptFinished("claude", "done")), HELLO) is not None
    assert entry_of(report(FINISHED), HELLO) == ("iteration", dict(FINISHED.data()))
    assert entry_of(report(WaitingUntil(NOW + 60, "rate_limit")), HELLO) == (
        "wait", {"reason": "rate_limit", "until": "2026-11-21T20:01:00.000000Z"},
    )  # fmt: skip
    assert entry_of(report(WaitingUntil(NOW + 1e9, "ages")), HELLO) == (
        "wait", {"reason": "ages", "until": "2026-12-22T20:00:00.000000Z"},
    )  # fmt: skip
    for over in (WaitingUntil(None), WaitingUntil(NOW)):
        assert entry_of(report(over), HELLO) == ("wait_over", {})
    assert entry_of(report(Cost(1.0)), HELLO) == ("cost", {"usd": 1.0})
    for nothing in (Hello(), STARTED, Heartbeat()):
        assert entry_of(report(nothing), HELLO) is None
