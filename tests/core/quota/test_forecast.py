"""What open tasks are likely to take, from those that were finished (Q7)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.quota.forecast import Forecast, forecast
from ralphd.core.quota.model import QuotaClock, QuotaWindow

NOW = 1_000_000.0
HOUR_S = 3600.0
Entry = dict[str, Any]


def attempt(task: str, usd: float | None, hours: float, agent: str = "claude") -> Entry:
    source = "unknown" if usd is None else "told"
    return {"kind": "attempt", "key": f"a/{task}", "at": "2026-11-24T01:00:00Z", "task": {"id": task},
            "agent": agent, "cost_usd": usd, "cost_source": source, "duration_s": hours * HOUR_S}  # fmt: skip


def finished(task: str, usd: float | None, hours: float) -> list[Entry]:
    """The entries of a task that took one attempt, newest first."""
    done = {"kind": "iteration", "key": f"r1/{task}", "task": {"id": task}, "complete": True}
    return [done, attempt(task, usd, hours)]


def history(*takes: tuple[float | None, float]) -> list[Entry]:
    return [entry for number, take in enumerate(takes) for entry in finished(f"t{number}", *take)]


TEN = history(*((float(number), number / 10) for number in range(1, 11)))
"""Tasks of 1 to 10 USD, 0.1 to 1 h: the median is 5, the 90th percentile 9."""


def test_the_span_is_from_the_median_to_the_90th_percentile() -> None:
    likely = forecast([TEN], 4, 1, (), NOW)
    assert likely == Forecast(4, 10, (20.0, 36.0), likely.hours)
    assert likely.words() == "likely 20 to 36 USD, 2.0 to 3.6 h"


def test_ralphs_in_parallel_share_the_time_and_not_the_cost() -> None:
    likely = forecast([TEN], 4, 4, (), NOW)
    assert likely.words() == "likely 20 to 36 USD, 30 to 54 min"


def test_a_price_that_is_not_known_is_never_0() -> None:
    likely = forecast([history((None, 1.0), (None, 1.0), (None, 1.0))], 2, 1, (), NOW)
    assert likely.usd is None
    assert likely.words() == "likely cost unknown, 2.0 h"
    few = history((None, 1.0), (None, 1.0), (None, 1.0), (None, 1.0), (2.0, 1.0), (2.0, 1.0), (2.0, 1.0))
    assert forecast([few], 2, 1, (), NOW).usd is None, "most tasks have no price"


def test_a_task_with_one_unknown_attempt_has_no_price() -> None:
    tasks = [*history((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)), attempt("t0", None, 1.0)]
    assert forecast([tasks], 1, 1, (), NOW).usd is None
    silent = attempt("t0", 0.0, 1.0) | {"cost_source": None}
    assert forecast([[*history((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)), silent]], 1, 1, (), NOW).usd is None


@pytest.mark.parametrize(("done", "words"), [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks")])
def test_fewer_than_three_finished_tasks_give_no_forecast(done: int, words: str) -> None:
    likely = forecast([history(*[(1.0, 1.0)] * done)], 5, 1, (), NOW)
    assert (likely.usd, likely.hours, likely.words()) == (None, None, f"no forecast yet: {words} done")


def test_what_was_reverted_or_never_finished_does_not_count() -> None:
    verdict = {"kind": "verdict", "key": "r1/t0/verdict", "task": {"id": "t0"}, "reverted": ["abc1234"]}
    tasks = [verdict, *history((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)), attempt("open", 9.0, 9.0)]
    assert forecast([tasks], 5, 1, (), NOW).finished == 2


def test_a_prompt_without_tasks_is_no_task() -> None:
    tasks = [entry | {"task": {"id": "prompt"}} for entry in TEN]
    assert forecast([tasks, [entry | {"task": None} for entry in TEN]], 5, 1, (), NOW).finished == 0


def test_all_attempts_and_tests_of_a_task_count() -> None:
    tests = {"kind": "verdict", "key": "r1/x/verdict", "task": {"id": "t0"}, "tests_s": [1800.0, 1800.0]}
    tasks = [tests, *history((1.0, 1.0), (4.0, 3.0), (4.0, 3.0)), attempt("t0", 3.0, 1.0)]
    assert forecast([tasks], 1, 1, (), NOW).hours == pytest.approx((3.0, 3.0))
    assert forecast([tasks], 1, 1, (), NOW).usd == (4.0, 4.0)


def test_ralphs_that_share_ids_are_counted_apart() -> None:
    one = history((1.0, 1.0), (1.0, 1.0))
    assert forecast([one, one], 1, 1, (), NOW).finished == 4


def clock(account: str, *, pace: float, name: str = "five_hour", used: float = 0.5) -> QuotaClock:
    """The clock of an account of which ``pace`` is used in an hour."""
    window = QuotaWindow(name, used, NOW - 10.0, NOW + 600.0, used - pace, NOW - 10.0 - HOUR_S)
    return QuotaClock(account, account.partition("@")[0].partition("-")[0], windows=(window,))


def test_the_pace_says_how_often_a_limit_is_crossed() -> None:
    likely = forecast([TEN], 4, 1, [clock("claude-5f0c", pace=0.45)], NOW)
    assert (likely.window, likely.crosses) == ("5-hour", 2)
    assert likely.words().endswith("3.6 h, may cross the 5-hour limit twice")
    once = forecast([TEN], 4, 1, [clock("claude-5f0c", pace=0.25)], NOW)
    assert once.words().endswith("limit once")
    often = forecast([TEN], 40, 1, [clock("claude-5f0c", pace=0.45)], NOW)
    assert often.words().endswith("limit 16 times")


@pytest.mark.parametrize(
    "clocks",
    [
        [],
        [clock("claude-5f0c", pace=0.19)],
        [clock("claude-5f0c", pace=0.45, name="other")],
        [clock("codex-5f0c", pace=0.45)],
        [clock("claude@work", pace=0.45)],
        [clock("claude-5f0c", pace=0.45), clock("claude-77aa", pace=0.45)],
        [QuotaClock("claude-5f0c", "claude", windows=(QuotaWindow("five_hour", 0.5, NOW),))],
    ],
    ids=["no account", "resets before", "length", "agent", "named", "two accounts", "no pace"],
)
def test_a_crossing_that_is_not_known_is_left_out(clocks: list[QuotaClock]) -> None:
    assert forecast([TEN], 4, 1, clocks, NOW).crosses == 0


def test_a_named_account_is_that_of_the_last_attempt() -> None:
    named = [attempt("t0", 1.0, 0.1, "claude@work") | {"at": "2026-11-24T02:00:00Z"}]
    assert forecast([TEN, named], 4, 1, [clock("claude@work", pace=0.45)], NOW).crosses == 2


def test_a_window_that_is_over_begins_again_at_0() -> None:
    assert forecast([TEN], 4, 1, [clock("claude-5f0c", pace=0.3)], NOW + HOUR_S).crosses == 1
    assert forecast([TEN], 4, 1, [clock("claude-5f0c", pace=0.45, used=0.9)], NOW).crosses == 2


@given(
    st.lists(st.tuples(st.none() | st.floats(0, 1e3), st.floats(0, 1e2)), min_size=3, max_size=30),
    st.integers(1, 500),
    st.integers(1, 32),
)
def test_a_forecast_is_a_span_between_what_tasks_took(
    takes: list[tuple[float | None, float]], open_tasks: int, ralphs: int
) -> None:
    likely = forecast([history(*takes)], open_tasks, ralphs, (), NOW)
    assert likely.hours is not None
    low, high = (each * ralphs / open_tasks for each in likely.hours)
    hours = [each for _, each in takes]
    assert min(hours) - 1e-6 <= low <= high <= max(hours) + 1e-6
    known = [usd for usd, _ in takes if usd is not None]
    assert (likely.usd is None) == (len(known) < max(3, len(takes) / 2))
    assert likely.words().startswith("likely ")
