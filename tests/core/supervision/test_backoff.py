"""How long is waited after a failure, and when the count of failures starts anew: C1 and C3."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.supervision.backoff import (
    after_a_set_back_clock,
    backoff_s,
    crash_wait,
    was_healthy,
    within_an_hour,
)
from ralphd.core.supervision.model import (
    ExitFacts,
    Outcome,
    Policy,
    Reason,
    Running,
    RunReports,
    Tally,
    Waiting,
)
from tests.core.supervision.scenes import (
    EXIT_1,
    HELLO,
    HUNG,
    LOST,
    NOW,
    POLICY,
    RUN,
    RUNNING,
    TOO_LONG,
    after_end,
)

GROWING = Policy(retry_backoff_factor=2.0)
LIVELY = ExitFacts(RUN, NOW, code=1, started_at=NOW - 601, last_sign_at=NOW)
TWO_FAILURES = Tally(consecutive_errors=2)
NEVER_GIVEN_UP = replace(POLICY, max_retries=100)


def failures_after(
    tally: Tally, ending: ExitFacts, said: RunReports | None = None, state: Running = RUNNING
) -> int:
    """How many failures in a row it is after one more end."""
    return after_end(
        ending, NEVER_GIVEN_UP, tally, said=said, state=state
    ).supervision.tally.consecutive_errors


def test_c1_the_backoff_is_30_seconds_and_constant() -> None:
    assert [backoff_s(POLICY, failures) for failures in (1, 2, 3, 50)] == [30, 30, 30, 30]


def test_c1_a_factor_grows_up_to_its_maximum() -> None:
    assert [backoff_s(GROWING, failures) for failures in (1, 2, 3, 4, 5, 6, 7)] == [
        30, 60, 120, 240, 480, 600, 600,
    ]  # fmt: skip


def test_c1_a_low_maximum_keeps_the_first_backoff() -> None:
    assert backoff_s(replace(GROWING, retry_backoff_max_s=10.0), 4) == 30


def test_c1_a_factor_below_1_does_not_shrink_it() -> None:
    assert backoff_s(replace(GROWING, retry_backoff_factor=0.5), 4) == 30


@given(st.integers(1, 10_000), st.floats(1, 1e9))
def test_c1_nothing_exceeds_the_maximum(failures: int, factor: float) -> None:
    assert 30 <= backoff_s(replace(POLICY, retry_backoff_factor=factor), failures) <= 600


def test_c1_each_failure_counts() -> None:
    assert failures_after(Tally(), EXIT_1) == 1
    assert failures_after(TWO_FAILURES, EXIT_1) == 3


def test_c3_a_new_commit_starts_the_count_anew() -> None:
    assert failures_after(TWO_FAILURES, replace(EXIT_1, committed=True)) == 1


def test_c3_a_commit_counts_for_a_reporting_run() -> None:
    assert failures_after(TWO_FAILURES, replace(EXIT_1, committed=True), HELLO) == 1


def test_c3_a_late_sign_of_life_resets_failures() -> None:
    assert failures_after(TWO_FAILURES, LIVELY) == 1


def test_c3_exactly_600_seconds_do_not() -> None:
    assert failures_after(TWO_FAILURES, replace(LIVELY, last_sign_at=NOW - 1)) == 3


def test_c3_a_long_silent_run_does_not() -> None:
    silent = ExitFacts(RUN, NOW, code=1, started_at=NOW - 7200, last_sign_at=NOW - 7190)

    assert failures_after(TWO_FAILURES, silent) == 3
    assert failures_after(TWO_FAILURES, replace(silent, last_sign_at=None)) == 3


def test_c3_a_run_without_a_known_start_does_not() -> None:
    assert failures_after(TWO_FAILURES, replace(LIVELY, started_at=None)) == 3


def test_c3_signs_of_a_reporting_run_do_not_count() -> None:
    assert failures_after(TWO_FAILURES, LIVELY, HELLO) == 3
    assert failures_after(TWO_FAILURES, LIVELY, RunReports(iterates=True)) == 3


def test_c3_heartbeats_alone_are_not_reports() -> None:
    assert failures_after(TWO_FAILURES, LIVELY, RunReports(beats=True)) == 1


@pytest.mark.parametrize(("code", "signal"), [(1, None), (None, 9), (None, None)])
def test_c3_a_run_ended_as_a_stall_never_does(code: int | None, signal: int | None) -> None:
    """However its end was seen, if it was seen at all."""
    assert failures_after(TWO_FAILURES, replace(LIVELY, code=code, signal=signal), state=HUNG) == 3
    committed = replace(EXIT_1, committed=True, code=code, signal=signal)
    assert failures_after(TWO_FAILURES, committed, state=HUNG) == 3


def test_c3_a_stall_restores_the_cleared_failures() -> None:
    iterated = RunReports(hello=True, iterates=True, errors_cleared=2)

    assert failures_after(Tally(), LIVELY, iterated, state=HUNG) == 3
    assert failures_after(Tally(), LIVELY, iterated) == 1


def test_c3_a_run_that_timed_out_can_be_healthy() -> None:
    assert failures_after(TWO_FAILURES, LIVELY, state=TOO_LONG) == 1
    assert failures_after(TWO_FAILURES, EXIT_1, state=TOO_LONG) == 3


def test_c3_a_lost_run_can_be_healthy() -> None:
    lost = replace(LIVELY, code=None)

    assert lost.lost
    assert failures_after(TWO_FAILURES, lost) == 1
    assert failures_after(TWO_FAILURES, LOST) == 3


@given(committed=st.booleans(), meant=st.sampled_from(Outcome))
def test_c3_only_a_stall_outweighs_a_commit(committed: bool, meant: Outcome) -> None:
    ending = replace(EXIT_1, committed=committed)

    assert was_healthy(POLICY, ending, HELLO, meant) is (committed and meant is not Outcome.STALLED)


def test_c1_the_wait_after_a_failure_is_the_backoff() -> None:
    assert crash_wait(POLICY, Tally(), 1, NOW) == Waiting(Reason.CRASH, NOW, NOW + 30)
    assert crash_wait(GROWING, Tally(), 3, NOW) == Waiting(Reason.CRASH, NOW, NOW + 120)


def restarts(*seconds_ago: float) -> Tally:
    return Tally(restarted_at=tuple(NOW - ago for ago in seconds_ago))


def test_c3_one_restart_too_many_waits_an_hour() -> None:
    policy = Policy(max_restarts_per_hour=3)

    assert crash_wait(policy, restarts(3000, 2000, 1000), 1, NOW) == Waiting(
        Reason.RESTART_LIMIT, NOW, NOW + 600
    )
    assert crash_wait(policy, restarts(3000, 2000), 1, NOW).reason is Reason.CRASH


def test_c3_a_requested_restart_keeps_the_limit() -> None:
    wait = crash_wait(Policy(max_restarts_per_hour=2), restarts(3000, 2000, 1000), 1, NOW)

    assert wait == Waiting(Reason.RESTART_LIMIT, NOW, NOW + 1600)


def test_c3_restarts_expire_after_an_hour() -> None:
    wait = crash_wait(Policy(max_restarts_per_hour=2), restarts(3600, 2000), 1, NOW)

    assert wait.reason is Reason.CRASH


def test_c3_the_longer_backoff_wins() -> None:
    wait = crash_wait(Policy(max_restarts_per_hour=1), restarts(3590), 1, NOW)

    assert wait == Waiting(Reason.CRASH, NOW, NOW + 30)


def test_c3_a_limit_of_0_is_none() -> None:
    wait = crash_wait(Policy(max_restarts_per_hour=0), restarts(*range(100, 0, -1)), 1, NOW)

    assert wait.reason is Reason.CRASH


@pytest.mark.parametrize(("ago", "counts"), [(3600.0, False), (3599.0, True), (0.0, True), (-1.0, False)])
def test_an_hour_is_the_last_3600_seconds(ago: float, counts: bool) -> None:
    assert within_an_hour((NOW - ago,), NOW) == ((NOW - ago,) if counts else ())


def test_a_clock_set_back_restarts_the_wait() -> None:
    wait = Waiting(Reason.CRASH, NOW, NOW + 30)

    assert after_a_set_back_clock(wait, NOW - 3600) == Waiting(Reason.CRASH, NOW - 3600, NOW - 3570)
    assert after_a_set_back_clock(wait, NOW) is wait
    assert after_a_set_back_clock(wait, NOW + 29) is wait


def test_c3_a_free_restart_waits_for_the_crash() -> None:
    policy = replace(POLICY, max_restarts_per_hour=1)

    assert crash_wait(policy, Tally(restarted_at=(NOW - 3570,)), 1, NOW) == Waiting(
        Reason.CRASH, NOW, NOW + 30
    )
    assert crash_wait(policy, Tally(restarted_at=(NOW - 3569,)), 1, NOW) == Waiting(
        Reason.RESTART_LIMIT, NOW, NOW + 31
    )
