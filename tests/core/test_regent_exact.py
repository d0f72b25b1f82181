"""The Regent's answers as a whole: every order and every event of them, with its data (E5, G1, G2, F3)."""

from dataclasses import replace

from ralphd.core.supervision.events import (
    DaemonStarted,
    DaemonStopping,
    GraceOver,
    SpawnFailed,
    SpawnPostponed,
)
from ralphd.core.supervision.model import (
    Announce,
    Escalate,
    Failed,
    Goal,
    KillAfter,
    KillTree,
    Paused,
    Reason,
    ReportedWait,
    RunReports,
    Starting,
    Stopping,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import ADOPTED, Step
from tests.core.scenes import HUNG, NEXT_RUN, NOW, PAUSING, POLICY, RUN, RUNNING, WAITING, ralph


def test_g2_a_pausing_run_is_left_alone_by_a_daemon_that_ends_and_killed_by_one_that_ends_now() -> None:
    pausing = ralph(PAUSING, Goal.PAUSED)

    assert step(pausing, DaemonStopping(NOW), POLICY) == Step(pausing)
    assert step(pausing, DaemonStopping(NOW, now=True), POLICY) == Step(pausing, (KillTree(RUN),))


def test_g2_a_pause_asked_before_a_birth_that_never_came_is_told() -> None:
    answer = step(ralph(Starting(), Goal.PAUSED), DaemonStarted(NOW), POLICY)

    told = Announce("ralph.paused", "Ralph paused, as asked")
    assert answer == Step(ralph(Paused("requested"), Goal.PAUSED), (told,))


def test_p1_what_another_run_had_said_of_its_wait_is_forgotten_with_it() -> None:
    said = RunReports(wait=ReportedWait("usage_limit", NOW + 600))

    answer = step(ralph(RUNNING, said=said), DaemonStarted(NOW, NEXT_RUN), POLICY)

    assert answer == Step(ralph(replace(RUNNING, run_id=NEXT_RUN)), (ADOPTED,))


def test_g1_a_run_that_lives_though_it_was_to_be_stopped_is_asked_on_adoption() -> None:
    answer = step(ralph(RUNNING, Goal.STOPPED), DaemonStarted(NOW, RUN), POLICY)

    state = Stopping(RUN, NOW, NOW + 30)
    assert answer == Step(ralph(state, Goal.STOPPED), (ADOPTED, Terminate(RUN), KillAfter(RUN, 30.0)))


def test_e5_a_start_that_fails_at_night_calls_a_person_and_is_told_as_a_failure() -> None:
    answer = step(ralph(Starting()), SpawnFailed(NOW, "no such file"), POLICY)

    text = "Ralph cannot be started: no such file"
    assert answer == Step(ralph(Failed(text)), (Escalate(text), Announce("ralph.failed")))


def test_e5_a_wait_and_a_timed_pause_go_on_where_a_start_out_of_them_fails() -> None:
    limit = Paused("usage_limit", NOW + 7260)

    for before, until in ((WAITING, NOW + 30), (limit, NOW + 7260)):
        answer = step(ralph(Starting(before)), SpawnFailed(NOW, "no such file"), POLICY)
        assert answer == Step(ralph(before), (WakeAt(until),))


def test_f3_a_start_that_is_put_off_is_told_as_a_wait_with_its_end() -> None:
    answer = step(ralph(Starting()), SpawnPostponed(NOW, "no space left"), POLICY)

    told = Announce("wait.started", "Ralph cannot be started just now: no space left", wait_until=NOW + 30)
    assert answer == Step(ralph(Waiting(Reason.RESOURCES, NOW, NOW + 30)), (told, WakeAt(NOW + 30)))


def test_h6_a_run_that_took_too_long_and_does_not_end_when_asked_is_killed_and_watched_on() -> None:
    overdue = ralph(HUNG)

    assert step(overdue, GraceOver(NOW + 30, RUN), POLICY) == Step(overdue, (KillTree(RUN),))
