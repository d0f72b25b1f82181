"""How long waits and limits are, at the moments where one rule ends and the next begins (L2, L6)."""

import pytest

from ralphd.core.supervision.backoff import (
    attempt_budget_s,
    between_s,
    jittered_s,
    raised_words,
    rate_limit_s,
)


def test_jitter_stays_below_the_cap() -> None:
    waits = [jittered_s(100.0, jitter=0.1, chance=chance, most_s=105.0) for chance in (0.0, 0.25, 0.5, 1.0)]

    assert waits == [90.0, 95.0, 100.0, 105.0]


def test_a_rate_limit_of_a_second_is_believed() -> None:
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
def test_l6_an_attempt_gets_half_as_much_again(
    timeout_s: float, iteration_timeout_s: float, budget_s: float
) -> None:
    assert attempt_budget_s(timeout_s, iteration_timeout_s) == budget_s


def test_l6_a_limit_of_an_iteration_that_is_too_short_is_named_with_the_one_in_effect() -> None:
    assert raised_words(600.0, 100.0) == (
        "iteration_timeout_seconds = 100 is less than 1.5 × timeout_seconds (600):"
        " the limit of an iteration is 900 s"
    )


@pytest.mark.parametrize(
    ("timeout_s", "iteration_timeout_s"), [(600.0, 900.0), (600.0, 1200.0), (0.0, 900.0), (600.0, 0.0)]
)
def test_l6_a_limit_of_an_iteration_that_is_in_effect_has_no_note(
    timeout_s: float, iteration_timeout_s: float
) -> None:
    assert raised_words(timeout_s, iteration_timeout_s) == ""


def test_the_first_failed_iteration_is_followed_at_once() -> None:
    assert [between_s(failed, base_s=2.0, most_s=5.0) for failed in range(5)] == [0.0, 0.0, 2.0, 4.0, 5.0]
