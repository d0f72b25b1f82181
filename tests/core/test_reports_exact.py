"""Reports to the letter: what is told, when it counts, and by which id it is known again (G1, H5, E4)."""

from dataclasses import replace

from ralphd.core.supervision.model import (
    Announce,
    KillAfter,
    Policy,
    ReportedWait,
    RunReports,
    Stopping,
    Tally,
    Terminate,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    Cost,
    Heartbeat,
    IterationFinished,
    IterationStarted,
    WaitingUntil,
    is_known,
)
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from tests.core.scenes import NOW, POLICY, RUN, RUNNING, ralph, report, told

WAITS = RunReports(wait=ReportedWait("rate_limit", NOW + 60))


def test_g1_the_same_report_sent_again_fits_and_the_last_64_are_known() -> None:
    many = [report(Cost(0.0), str(number)) for number in range(65)]
    now = told(ralph(RUNNING), many).supervision

    assert [number for number, each in enumerate(many) if not is_known(now, each)] == [0]
    assert why_not(now, many[64]) is None


def test_h6_a_heartbeat_is_not_kept_and_the_second_is_no_news() -> None:
    now = step(ralph(RUNNING), report(Heartbeat()), POLICY).supervision

    assert now == ralph(RUNNING, said=RunReports(beats=True))
    assert step(now, report(Heartbeat()), POLICY) == Step(now)


def test_h5_a_wait_until_this_very_moment_is_over() -> None:
    answer = step(ralph(RUNNING, said=WAITS), report(WaitingUntil(NOW)), POLICY)

    assert answer.supervision.said.wait is None
    assert answer.actions == (Announce("wait.ended"),)


def test_h5_a_wait_without_a_reason_is_told_without_one() -> None:
    answer = step(ralph(RUNNING), report(WaitingUntil(NOW + 60)), POLICY)

    assert answer.actions == (Announce("wait.started", "Ralph waits", wait_until=NOW + 60), WakeAt(NOW + 60))


def test_costs_are_kept_to_the_millionth_of_a_dollar() -> None:
    now = told(ralph(RUNNING), [report(Cost(0.0000014))]).supervision

    assert now.tally.cost_usd == 0.000001


def test_g1_an_iteration_that_begins_though_it_was_to_be_the_last_is_told_and_asked_to_end() -> None:
    state = Stopping(RUN, NOW - 20, NOW + 10, asked=False)
    answer = step(ralph(state, said=WAITS), report(IterationStarted(5)), POLICY)

    assert answer.supervision.state == Stopping(RUN, NOW - 20, NOW + 30)
    assert answer.actions == (
        Announce("wait.ended"),
        Announce("iteration.started", data=(("iteration", 5), ("task", None))),
        Terminate(RUN),
        KillAfter(RUN, 30.0),
    )


def test_e4_a_limit_of_time_is_looked_at_when_an_iteration_is_finished() -> None:
    policy = Policy(max_runtime_s=60.0)
    now = ralph(RUNNING, tally=Tally(began_at=NOW - 60))

    late = step(now, report(IterationFinished()), policy).supervision
    in_time = step(replace(now, tally=Tally(began_at=NOW - 59)), report(IterationFinished()), policy)

    assert late.said.limit == "it has run for 60 s, of 60 s allowed"
    assert in_time.supervision.state == RUNNING
