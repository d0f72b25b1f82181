"""Who may be asked, who is out and until when, how long waits are (L2, L3, 002-US-006)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.backoff import attempt_limit_s, doubled_s, grown, jittered_s, outage_s, rate_limit_s
from ralphd.core.loop.pool import LONGEST_PROBE_S, Pool, pool_view, rotation_words
from ralphd.core.loop.state import Cooldown, LoopState

POOL = Pool(("claude", "codex", "gemini"))


def test_an_exhausted_agent_is_out_until_its_moment_and_then_in_again() -> None:
    pool = POOL.put_out("claude", "limit", 100.0)

    assert pool.first(99.0) == "codex"
    assert pool.returned(99.0) == ()
    assert pool.first(100.0) == "claude"
    assert pool.returned(100.0) == ("claude",)
    assert pool.let_in("claude").returned(100.0) == ()


def test_an_agent_that_a_person_has_to_see_to_does_not_come_back() -> None:
    pool = POOL.put_out("claude", "no login", None)

    assert not pool.is_in("claude", 1e12)
    assert pool.next_return() is None


def test_the_first_to_come_back_is_waited_for() -> None:
    pool = (
        POOL.put_out("claude", "limit", 300.0).put_out("codex", "limit", 100.0).put_out("gemini", "no", None)
    )

    first = pool.next_return()

    assert first is not None
    assert first.agent == "codex"
    assert pool.first(50.0) is None


def test_an_agent_that_was_taken_off_the_list_is_not_waited_for() -> None:
    pool = POOL.put_out("claude", "limit", 300.0)

    assert Pool(("codex",), pool.out).next_return() is None
    assert Pool(("codex",), pool.out).returned(400.0) == ()


def test_an_unknown_reset_is_probed_after_15_30_60_minutes_until_the_agent_has_worked() -> None:
    pool, waits = POOL, []
    for _ in range(7):
        waits.append(pool.probe_s("claude") / 60)
        pool = pool.put_out("claude", "limit", 0.0).let_in("claude")

    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0, 240.0, 240.0]
    assert pool.worked("claude").probe_s("claude") == 15 * 60.0
    assert LONGEST_PROBE_S == 240 * 60.0


@pytest.mark.parametrize(("tries", "wait_s"), [(1, 2.0), (2, 4.0), (3, 8.0), (99, 60.0)])
def test_waits_double_up_to_their_cap(tries: int, wait_s: float) -> None:
    assert doubled_s(2.0, tries, most_s=60.0) == wait_s


@given(st.floats(0, 1e6), st.integers(0, 10**6), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6))
def test_no_wait_is_longer_than_its_cap_or_below_nothing(
    base_s: float, tries: int, jitter: float, chance: float, most_s: float
) -> None:
    wait_s = jittered_s(doubled_s(base_s, tries, most_s=most_s), jitter=jitter, chance=chance, most_s=most_s)

    assert 0 <= wait_s <= most_s


def test_an_outage_is_looked_at_after_1_2_4_8_15_minutes() -> None:
    assert [outage_s(step, base_s=1.0, most_s=900.0) / 60 for step in range(1, 7)] == [1, 2, 4, 8, 15, 15]
    assert outage_s(1, base_s=1.0, most_s=5.0) == 5.0
    assert outage_s(1, base_s=0.2, most_s=900.0) == 12.0


def test_t5_a_rate_limit_is_never_waited_for_less_long_than_it_says() -> None:
    assert rate_limit_s(0.9, waited_s=0.0, unknown_s=0.2) == 0.9
    assert rate_limit_s(-5.0, waited_s=4.0, unknown_s=60.0) == 4.0
    assert rate_limit_s(None, waited_s=0.0, unknown_s=60.0) == 60.0


def test_time_outs_grow_by_half_and_four_times_at_most() -> None:
    assert [grown(1.0), grown(1.5), grown(3.9), grown(4.0)] == [1.5, 2.25, 4.0, 4.0]


def test_l6_the_iterations_limit_cuts_no_attempt_short_and_holds_where_it_is_the_only_one() -> None:
    assert attempt_limit_s(600.0, 900.0) == 600.0
    assert attempt_limit_s(2400.0, 900.0) == 2400.0
    assert attempt_limit_s(0.0, 900.0) == 900.0
    assert attempt_limit_s(600.0, 0.0) == 600.0
    assert attempt_limit_s(0.0, 0.0) == 0.0


def test_the_pool_is_shown_with_who_is_out_until_when_and_why() -> None:
    out = (
        Cooldown("a", "5-hour limit", 100.0),
        Cooldown("b", "no login"),
        Cooldown("c", "limit", 900.0, back=True),
    )
    memory = LoopState(
        agents=("a", "b", "c"), rotates=True, last_agent="c", out=(*out, Cooldown("gone", "limit"))
    )

    shown = pool_view(memory, 99.0)

    until = "1970-01-01T00:01:40.000000Z"
    assert shown == {
        "strategy": "rotate",
        "agents": [
            {"name": "a", "in": False, "until": until, "reason": "5-hour limit", "last": False},
            {"name": "b", "in": False, "until": None, "reason": "no login", "last": False},
            {"name": "c", "in": True, "until": None, "reason": None, "last": True},
        ],
    }


def test_one_whose_time_out_is_over_is_shown_as_in() -> None:
    memory = LoopState(agents=("a",), out=(Cooldown("a", "limit", 100.0),))

    shown = pool_view(memory, 100.0)

    is_in = {"name": "a", "in": True, "until": None, "reason": None, "last": False}
    assert shown == {"strategy": "fallback", "agents": [is_in]}


def test_a_pool_that_nobody_told_of_is_not_shown() -> None:
    assert pool_view(LoopState(out=(Cooldown("a", "limit"),)), 0.0) is None


def test_what_is_shown_of_a_pool_is_text_and_short() -> None:
    shown = pool_view(LoopState(agents=("a\ud800",), out=(Cooldown("a\ud800", "x" * 9999),)), 0.0)

    assert shown is not None
    assert shown["agents"][0]["name"] == "a?"
    assert len(shown["agents"][0]["reason"]) == 500


def test_a_rotation_is_told_in_a_line() -> None:
    assert rotation_words(["a", "b"]) == "rotation: a, b take turns, an iteration each"
    assert rotation_words(["a"]) == "rotation with one agent: a is asked every time"
