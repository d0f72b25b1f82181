"""What a person requests, where the table of supervision (``states.toml``) does not reach: G1, G2, E5."""

from dataclasses import replace

import pytest

from ralphd.core.supervision.events import (
    CostSeen,
    Event,
    GateRunBegan,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    ScheduleEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Announce,
    AnsweredReport,
    Done,
    Failed,
    Goal,
    Idle,
    KillAfter,
    LastWord,
    Next,
    Overdue,
    Paused,
    Policy,
    Reason,
    Rest,
    Running,
    RunReports,
    Spawn,
    Starting,
    State,
    Step,
    Stopped,
    Stopping,
    Tally,
    Terminate,
    Waiting,
)
from ralphd.core.supervision.step import step
from tests.core.supervision.scenes import (
    NEXT_RUN,
    NOW,
    POLICY,
    RUN,
    RUNNING,
    WAITING,
    ended,
    escalations,
    orders,
    ralph,
    told,
)

LIMIT = Paused("usage_limit", NOW + 7260)
START, STOP, STOP_NOW = StartRequested(NOW), StopRequested(NOW), StopRequested(NOW, now=True)
PAUSE, RESUME, SKIP = PauseRequested(NOW), ResumeRequested(NOW), SkipWaitRequested(NOW)


def test_g1_stop_timeout_seconds_is_the_grace() -> None:
    answer = step(ralph(RUNNING), STOP, Policy(stop_timeout_s=5.0))

    assert answer.supervision.state == Stopping(RUN, NOW, NOW + 5)
    assert orders(answer) == (Terminate(RUN), KillAfter(RUN, 5.0))


@pytest.mark.parametrize("request_", [START, RESUME, RestartRequested(NOW)])
def test_g1_start_withdraws_a_kill_during_a_spawn(request_: Event) -> None:
    killed = ralph(Starting(WAITING, kill=True), Goal.PAUSED)

    assert step(killed, request_, POLICY) == Step(ralph(Starting(WAITING)))


def test_g2_skip_wait_sets_the_goal_to_running() -> None:
    answer = step(ralph(LIMIT, Goal.PAUSED), SKIP, POLICY)

    restarts = Announce("wait.ended", "Restarting Ralph...")
    assert answer == Step(ralph(Starting(LIMIT, skips=True)), (restarts, Spawn()))


def test_a_skipped_wait_after_a_crash_is_a_restart_and_a_skipped_pause_is_none() -> None:
    """A command may report any reason for its pause."""
    waited = step(ralph(WAITING), SKIP, POLICY).supervision
    paused = step(ralph(Paused("crash", NOW + 60)), SKIP, POLICY).supervision

    assert waited.tally == Tally(restarts=1, restarted_at=(NOW,))
    assert paused.tally == Tally()


@pytest.mark.parametrize("state", [Idle(), Stopped(), Failed("exit 1"), Done()])
def test_e5_a_failed_start_changes_nothing(state: Rest) -> None:
    answer = told(ralph(state, Goal.STOPPED), [START, SpawnFailed(NOW, "./loop.sh: no such file")])

    assert answer.supervision == ralph(state, Goal.STOPPED, Tally(began_at=NOW))
    assert answer.actions == (Spawn(),)


def test_e5_a_failed_resume_leaves_it_paused() -> None:
    answer = told(ralph(Paused("requested"), Goal.PAUSED), [RESUME, SpawnFailed(NOW, "gone")])

    assert answer.supervision == ralph(Paused("requested"), Goal.PAUSED)
    assert escalations(answer) == []


@pytest.mark.parametrize("state", [WAITING, LIMIT])
@pytest.mark.parametrize(
    ("request_", "goal", "rest"),
    [
        (STOP, Goal.STOPPED, Stopped()),
        (STOP_NOW, Goal.STOPPED, Stopped()),
        (PAUSE, Goal.PAUSED, Paused("requested")),
    ],
)
def test_e5_stop_and_pause_outlast_a_failed_start(
    state: State, request_: Event, goal: Goal, rest: State
) -> None:
    answer = told(ralph(state), [SKIP, request_, SpawnFailed(NOW + 1, "gone"), Woke(NOW + 1e6)])

    assert answer.supervision.goal is goal
    assert answer.supervision.state.kind == rest.kind
    assert answer.actions.count(Spawn()) == 1


def test_a_postponed_spawn_waits_at_least_a_second() -> None:
    answer = step(ralph(Starting()), SpawnPostponed(NOW, "no memory"), Policy(retry_backoff_s=0.0))

    assert answer.supervision.state == Waiting(Reason.RESOURCES, NOW, NOW + 1, "no memory")


def test_a_start_that_waits_follows_a_free_place_before_its_backoff() -> None:
    waiting = ralph(Waiting(Reason.RESOURCES, NOW, NOW + 600, "2 of 2 ralphs are running"))

    assert isinstance(step(waiting, Woke(NOW + 1, is_free=True), POLICY).supervision.state, Starting)
    assert step(waiting, Woke(NOW + 1), POLICY).supervision == waiting
    crashed = ralph(Waiting(Reason.CRASH, NOW, NOW + 600))
    assert step(crashed, Woke(NOW + 1, is_free=True), POLICY).supervision == crashed


def test_a_ralph_keeps_its_turn_from_its_first_wait_until_it_runs() -> None:
    postponed = SpawnPostponed(NOW, "2 of 2 ralphs are running", queued_at=NOW - 60)
    waiting = step(ralph(Starting()), postponed, POLICY).supervision
    starting = step(waiting, Woke(NOW + 1, is_free=True), POLICY).supervision
    tested = step(starting, GateRunBegan(NOW + 1, None), POLICY).supervision

    for current in (waiting, starting, tested, step(tested, StartRequested(NOW + 2), POLICY).supervision):
        assert isinstance(current.state, Waiting | Starting)
        assert current.state.queued_at == NOW - 60
    running = step(starting, Spawned(NOW + 3, RUN), POLICY).supervision
    assert isinstance(running.state, Running)


def test_a_skipped_schedule_is_forgotten_at_a_new_start() -> None:
    waiting = ralph(Waiting(Reason.SCHEDULE, NOW, NOW + 600))
    skipped = step(waiting, SkipWaitRequested(NOW + 1), POLICY).supervision
    assert skipped.tally.unscheduled_until == NOW + 600

    again = step(replace(skipped, state=Stopped()), StartRequested(NOW + 9), POLICY).supervision
    assert again.tally.unscheduled_until is None
    resources = ralph(Waiting(Reason.RESOURCES, NOW, NOW + 600))
    assert step(resources, SkipWaitRequested(NOW + 1), POLICY).supervision.tally.unscheduled_until is None


@pytest.mark.parametrize(
    ("state", "goal"),
    [
        (Running(RUN, Overdue.STALL), Goal.RUNNING),
        (Running(RUN), Goal.STOPPED),
        (Running(NEXT_RUN), Goal.RUNNING),
        (Stopping(RUN, NOW, None), Goal.STOPPED),
        (Paused("requested"), Goal.PAUSED),
    ],
)
def test_the_end_of_the_schedule_ends_only_a_run_that_is_wanted(state: State, goal: Goal) -> None:
    current = ralph(state, goal, said=RunReports(iterates=True) if isinstance(state, Running) else None)

    assert step(current, ScheduleEnded(NOW, RUN), POLICY) == Step(current)


def test_a_cost_in_the_output_counts_once_and_only_without_reports() -> None:
    seen = step(ralph(RUNNING), CostSeen(NOW, RUN, 0.5), POLICY).supervision
    assert step(seen, CostSeen(NOW, RUN, 0.5), POLICY) == Step(seen)
    later = step(seen, CostSeen(NOW, RUN, 0.75), POLICY).supervision
    assert (later.tally.cost_usd, later.said.seen_usd) == (0.75, 0.75)
    reports = ralph(RUNNING, said=RunReports(answered=(AnsweredReport("f1", "", Next.CONTINUE),)))
    assert step(reports, CostSeen(NOW, RUN, 0.5), POLICY) == Step(reports)
    assert step(ralph(RUNNING), CostSeen(NOW, NEXT_RUN, 0.5), POLICY) == Step(ralph(RUNNING))


def test_a_run_that_completes_as_its_schedule_ends_is_done() -> None:
    said = RunReports(hello=True, iterates=True, last_word=LastWord(0, "complete"))
    ending = step(ralph(RUNNING, said=said), ScheduleEnded(NOW, RUN), POLICY).supervision

    done = step(ending, RunEnded(ended(code=0)), POLICY).supervision
    later = step(ending, RunEnded(ended(code=75)), POLICY).supervision

    assert (done.state, done.goal) == (Done(), Goal.RUNNING)
    assert later.state == Starting()
    wanted_again = replace(ending, state=Stopping(RUN, NOW, None), goal=Goal.STOPPED)
    assert step(wanted_again, RunEnded(ended(code=0)), POLICY).supervision.state == Stopped()


@pytest.mark.parametrize("state", [Done(), Stopped()])
def test_a_start_by_ralphd_itself_spends_what_is_left(state: State) -> None:
    spent = replace(ralph(state), tally=Tally(cost_usd=9.0, began_at=NOW - 60))
    again = step(spent, StartRequested(NOW, continues=True), POLICY).supervision
    assert (again.tally.cost_usd, again.tally.began_at) == (9.0, NOW - 60)
    assert step(spent, StartRequested(NOW), POLICY).supervision.tally == Tally(began_at=NOW)


def test_a_refused_request_changes_nothing_and_says_why() -> None:
    idle = ralph(Idle())

    answer = step(idle, PAUSE, POLICY)

    assert answer == Step(idle)
    assert answer.refusal == "it is idle: there is nothing to pause"


def test_a_cost_that_is_seen_again_ends_nothing() -> None:
    policy = replace(POLICY, max_cost_usd=0.5)
    running = ralph(RUNNING, tally=Tally(cost_usd=0.6), said=RunReports(seen_usd=0.6))

    assert step(running, CostSeen(NOW, RUN, 0.6), policy) == Step(running)


@pytest.mark.parametrize("limit", [{"max_iterations": 2}, {"max_runtime_s": 10.0}])
def test_a_cost_that_is_seen_ends_a_run_for_no_other_limit(limit: dict[str, float]) -> None:
    policy = replace(POLICY, max_cost_usd=5.0, **limit)  # type: ignore[arg-type]  # of the field's type
    running = ralph(RUNNING, tally=Tally(iteration=3, began_at=NOW - 100))

    after = step(running, CostSeen(NOW, RUN, 0.1), policy)

    assert after.supervision.tally.cost_usd == 0.1
    assert after.supervision.state == RUNNING
