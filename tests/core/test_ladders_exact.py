"""How long waits and limits are, at the moments where one rule ends and the next begins (L2, L6)."""

import pytest

from ralphd.core.backoff import attempt_budget_s, between_s, jittered_s, rate_limit_s


def test_us006_a_wait_is_shorter_or_longer_by_a_share_and_never_over_its_cap() -> None:
    waits = [jittered_s(100.0, jitter=0.1, chance=chance, most_s=105.0) for chance in (0.0, 0.25, 0.5, 1.0)]

    assert waits == [90.0, 95.0, 100.0, 105.0]


def test_a_rate_limit_of_a_second_is_believed_however_often_it_was_told() -> None:
    assert rate_limit_s(1.0, waited_s=4.0, unknown_s=60.0) == 1.0
    assert rate_limit_s(0.9, waited_s=4.0, unknown_s=60.0) == 4.0


@pytest.mark.parametrize(
    ("timeout_s", "iteration_timeout_s", "budget_s"),
    [
        (600.0, 900.0, 900.0),
        (600.0, 1200.0, 1200.0),
        (600.0, 100.0, 900.0),  # an attempt has 1.5 times one agent's time at least
        (0.0, 900.0, 0.0),  # an agent without a limit is cut short by none of ours
        (600.0, 0.0, 0.0),
        (0.0, 0.0, 0.0),
    ],
)
def test_l6_an_attempt_with_its_phases_has_the_iterations_time_and_half_as_much_again_as_an_agent_at_least(
    timeout_s: float, iteration_timeout_s: float, budget_s: float
) -> None:
    assert attempt_budget_s(timeout_s, iteration_timeout_s) == budget_s


def test_the_first_failed_iteration_is_followed_at_once_and_the_others_after_growing_waits() -> None:
    assert [between_s(failed, base_s=2.0, most_s=5.0) for failed in range(5)] == [0.0, 0.0, 2.0, 4.0, 5.0]
