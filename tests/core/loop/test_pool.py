"""Who may be asked, who is out and until when, how long waits are (L2, L3, 002-US-006)."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.loop.model import Cooldown, LoopState
from ralphd.core.loop.pool import LONGEST_PROBE_S, Pool, changes_at, pool_view, rotation_words
from ralphd.core.supervision.backoff import (
    attempt_limit_s,
    doubled_s,
    grown,
    jittered_s,
    outage_s,
    rate_limit_s,
)

POOL = Pool(("claude", "codex", "gemini"))


def test_an_exhausted_agent_returns_at_its_time() -> None:
    pool = POOL.put_out("claude", "limit", 100.0)

    assert pool.first(99.0) == "codex"
    assert pool.returned(99.0) == ()
    assert pool.first(100.0) == "claude"
    assert pool.returned(100.0) == ("claude",)
    assert pool.let_in("claude").returned(100.0) == ()


def test_a_disabled_agent_does_not_return() -> None:
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


def test_an_unlisted_agent_is_not_waited_for() -> None:
    pool = POOL.put_out("claude", "limit", 300.0)

    assert Pool(("codex",), pool.out).next_return() is None
    assert Pool(("codex",), pool.out).returned(400.0) == ()


def test_an_unknown_reset_is_probed_with_backoff() -> None:
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
def test_no_wait_exceeds_its_cap_or_is_negative(
    base_s: float, tries: int, jitter: float, chance: float, most_s: float
) -> None:
    wait_s = jittered_s(doubled_s(base_s, tries, most_s=most_s), jitter=jitter, chance=chance, most_s=most_s)

    assert 0 <= wait_s <= most_s


def test_an_outage_is_probed_with_backoff() -> None:
    assert [outage_s(step, base_s=1.0, most_s=900.0) / 60 for step in range(1, 7)] == [1, 2, 4, 8, 15, 15]
    assert outage_s(1, base_s=1.0, most_s=5.0) == 5.0
    assert outage_s(1, base_s=0.2, most_s=900.0) == 12.0


def test_a_rate_limit_waits_at_least_as_told() -> None:
    assert rate_limit_s(0.9, waited_s=0.0, unknown_s=0.2) == 0.9
    assert rate_limit_s(-5.0, waited_s=4.0, unknown_s=60.0) == 4.0
    assert rate_limit_s(None, waited_s=0.0, unknown_s=60.0) == 60.0


def test_timeouts_grow_by_half_up_to_four_times() -> None:
    assert [grown(1.0), grown(1.5), grown(3.9), grown(4.0)] == [1.5, 2.25, 4.0, 4.0]


def test_l6_the_iteration_limit_cuts_no_attempt_short() -> None:
    assert attempt_limit_s(600.0, 900.0) == 600.0
    assert attempt_limit_s(2400.0, 900.0) == 2400.0
    assert attempt_limit_s(0.0, 900.0) == 900.0
    assert attempt_limit_s(600.0, 0.0) == 600.0
    assert attempt_limit_s(0.0, 0.0) == 0.0


def test_the_pool_shows_who_is_out() -> None:
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


def test_an_agent_past_its_cooldown_is_in() -> None:
    memory = LoopState(agents=("a",), out=(Cooldown("a", "limit", 100.0),))

    shown = pool_view(memory, 100.0)

    is_in = {"name": "a", "in": True, "until": None, "reason": None, "last": False}
    assert shown == {"strategy": "fallback", "agents": [is_in]}


def test_an_unreported_pool_is_not_shown() -> None:
    assert pool_view(LoopState(out=(Cooldown("a", "limit"),)), 0.0) is None


def test_a_shown_pool_is_short_text() -> None:
    shown = pool_view(LoopState(agents=("a\ud800",), out=(Cooldown("a\ud800", "x" * 9999),)), 0.0)

    assert shown is not None
    assert shown["agents"][0]["name"] == "a?"
    assert len(shown["agents"][0]["reason"]) == 500


def test_a_rotation_is_told_in_a_line() -> None:
    assert rotation_words(["a", "b"]) == "rotation: a, b take turns, an iteration each"
    assert rotation_words(["a"]) == "rotation with one agent: a is asked every time"


PAIR = Pool(("claude", "codex"))


def test_an_exhausted_agent_keeps_reason_and_tries() -> None:
    once = PAIR.put_out("claude", "weekly limit", 100.0)
    again = once.let_in("claude").put_out("claude", "5-hour limit", None)

    assert once.out == (Cooldown("claude", "weekly limit", 100.0, probes=0),)
    assert again.out == (Cooldown("claude", "5-hour limit", None, probes=1),)


def test_letting_in_a_present_agent_changes_nothing() -> None:
    assert PAIR.let_in("claude") == PAIR
    assert PAIR.due("claude", 100.0) == PAIR
    assert PAIR.worked("claude") == PAIR


def test_ending_a_cooldown_returns_one_agent() -> None:
    pool = PAIR.put_out("claude", "limit", 500.0).put_out("codex", "limit", 500.0).due("claude", 100.0)

    assert pool.returned(100.0) == ("claude",)
    assert pool.out == (Cooldown("codex", "limit", 500.0), Cooldown("claude", "limit", 100.0))


def test_a_returned_agent_is_not_waited_for() -> None:
    pool = PAIR.put_out("claude", "limit", 100.0).let_in("claude")

    assert pool.next_return() is None
    assert pool.is_in("claude", 0.0)


def test_the_pool_changes_at_the_next_reset() -> None:
    out = (
        Cooldown("claude", "limit", 300.0),
        Cooldown("codex", "limit", 200.0),
        Cooldown("gemini", "no login"),
    )

    assert changes_at(LoopState(out=out), 100.0) == 200.0
    assert changes_at(LoopState(out=out), 200.0) == 300.0
    assert changes_at(LoopState(out=out), 300.0) == inf


def test_a_hold_by_another_ralph_leaves_the_probes_as_they_were() -> None:
    assert POOL.hold("claude", "used up", 30.0).entry("claude") == Cooldown("claude", "used up", 30.0)
    probed = POOL.put_out("claude", "limit", 10.0).put_out("claude", "limit", 20.0)

    held = probed.hold("claude", "no slot", 30.0, for_slot=True)

    assert held.entry("claude") == Cooldown("claude", "no slot", 30.0, probes=1, for_slot=True)
