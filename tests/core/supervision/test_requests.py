"""What a person requests, where the table of supervision (``states.toml``) does not reach: G1, G2, E5."""

import pytest

from ralphd.core.supervision.events import (
    Event,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    SkipWaitRequested,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Failed,
    Goal,
    Idle,
    KillAfter,
    Paused,
    Policy,
    Reason,
    Rest,
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
from tests.core.supervision.scenes import NOW, POLICY, RUN, RUNNING, WAITING, escalations, orders, ralph, told

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
    assert answer == Step(ralph(Starting(LIMIT)), (restarts, Spawn()))


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


def test_a_refused_request_changes_nothing_and_says_why() -> None:
    idle = ralph(Idle())

    answer = step(idle, PAUSE, POLICY)

    assert answer == Step(idle)
    assert answer.refusal == "it is idle: there is nothing to pause"
