"""How long is waited, to the second (C3)."""

from dataclasses import replace

from ralphd.core.backoff import crash_wait
from ralphd.core.supervision.model import Reason, Tally, Waiting
from tests.core.scenes import NOW, POLICY


def test_c3_a_restart_that_is_free_again_when_the_backoff_ends_is_a_wait_for_the_crash_alone() -> None:
    policy = replace(POLICY, max_restarts_per_hour=1)

    assert crash_wait(policy, Tally(restarted_at=(NOW - 3570,)), 1, NOW) == Waiting(
        Reason.CRASH, NOW, NOW + 30
    )
    assert crash_wait(policy, Tally(restarted_at=(NOW - 3569,)), 1, NOW) == Waiting(
        Reason.RESTART_LIMIT, NOW, NOW + 31
    )
