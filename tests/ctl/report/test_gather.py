"""A span from its history: done and undone, times that add up, money neither lost nor invented."""

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphctl.report.gather import Gatherer
from ralphctl.report.history import HistoryReader
from ralphctl.report.model import MICRO, ReportCost, ReportedState, SpanSummary
from ralphctl.report.read import reported_state
from ralphd.core.time import rfc3339
from ralphd.overview import known_reason

BEGIN = 1_795_244_400.0  # 2026-11-21 07:00:00 UTC
HOUR = 3600.0
FILES = Path(__file__).parents[3] / "docs" / "files.md"
END = BEGIN + 10 * HOUR
US1, US2 = {"id": "US-1", "title": "Parse the list"}, {"id": "US-2", "title": "Print it"}
Entry = dict[str, Any]


def entry(kind: str, hours: float, key: str = "", **data: Any) -> Entry:
    return {"kind": kind, "key": key, "at": rfc3339(BEGIN + hours * HOUR), "run_id": "r1", **data}


def attempt(hours: float, took_h: float, number: int = 1, task: Entry | None = US1, **data: Any) -> Entry:
    told = {"agent": "claude", "outcome": "ok", "failure_kind": None, "cost_usd": 0.5, "cost_source": "told"}
    return entry("attempt", hours, iteration=number, task=task, duration_s=took_h * HOUR, **(told | data))


def finished(hours: float, number: int, task: Entry | None = US1, *shas: str, complete: bool = True) -> Entry:
    told: Entry = {"failed": False, "complete": complete, "commits": list(shas)}
    return entry("iteration", hours, f"r1/{number}", iteration=number, task=task, **told)


def verdict(hours: float, number: int, *shas: str, reverted: bool = False, **data: Any) -> Entry:
    gone = list(shas) if reverted else []
    told: Entry = {"verdict": "reverted" if gone else "kept", "why": "the tests failed, and pass without it"}
    told |= {"tests": ["red"], "tail": "E  1 == 2\n\n"} if gone else {}
    found = {"commits": list(shas), "reverted": gone, "tests_s": [], "task": US1, **told, **data}
    return entry("verdict", hours, f"r1/{number}/verdict", iteration=number, **found)


def run(begin_h: float, end_h: float, run_id: str = "r1", outcome: str = "done", **data: Any) -> Entry:
    told = {"started_at": rfc3339(BEGIN + begin_h * HOUR), "outcome": outcome, "code": 0, "signal": None}
    return entry("run", end_h, run_id, **(told | {"run_id": run_id} | data))


def summary_of(
    *entries: Entry, current: ReportedState | None = None, is_whole: bool = False, torn: int = 0
) -> SpanSummary:
    gatherer = Gatherer(BEGIN, END)
    for each in entries:
        gatherer.add(each)
    reader = HistoryReader(Path("history.jsonl"), torn, is_whole)
    return gatherer.finish(current or ReportedState(), END, reader)


def hours(found: SpanSummary) -> dict[str, float]:
    """What the time went to, waits by their reason."""
    return {share.reason or share.doing: share.us / MICRO / HOUR for share in found.shares}


# --- what was done, and undone --------------------------------------------------------------------------


def test_a_task_is_done_with_its_iterations_commits_and_cost() -> None:
    found = summary_of(
        attempt(1, 1, failure_kind="agent_crash", outcome="failed", why="it died", cost_usd=0.25),
        attempt(2, 1),
        finished(2, 1, US1, "abc1234", complete=False),
        attempt(3, 1, 2),
        finished(3, 2, US1, "def5678"),
        run(0, 3),
    )

    (done,) = found.done
    assert (done.id, done.iterations) == ("US-1", [1, 2])
    assert (done.kept, done.reverted) == (["abc1234", "def5678"], [])
    assert done.cost == ReportCost(1_250_000, attempts=3)
    assert (done.failures, done.last_failure) == (1, "it died")
    assert (found.iterations, found.attempts, found.runs, found.failed_runs) == (2, 3, 1, 0)
    assert [(each.kind, each.count, each.why) for each in found.failures] == [("agent_crash", 1, "it died")]


def test_what_was_reverted_is_not_done_and_says_why_and_what_the_tests_said() -> None:
    entries = [
        attempt(1, 1, commits=1),
        verdict(1, 1, "abc1234", reverted=True),
        finished(1, 1, US1, "abc1234"),
        attempt(2, 0.5, 2, US2),
        finished(2, 2, US2, "def5678"),
    ]
    found = summary_of(*entries)

    assert [task.id for task in found.done] == ["US-2"]
    assert (found.kept, found.reverted) == (["def5678"], ["abc1234"])
    (undone,) = found.undone
    assert (undone.iteration, undone.task, undone.commits) == (1, US1, ("abc1234",))
    assert (undone.why, undone.tail, undone.put_back_at) == (
        "the tests failed, and pass without it",
        ("E  1 == 2",),
        None,
    )
    assert hours(summary_of(*entries, run(0, 2)))["undone"] == 1.0


def test_weakened_tests_are_listed_with_what_became_of_their_commits() -> None:
    why = "the tests pass, but 1 test ran, 2 before"
    found = summary_of(
        verdict(1, 1, "abc1234", why=why, weakened="vanished"),
        verdict(2, 2, "def5678", weakened=""),
        verdict(3, 3, "fff5678", reverted=True, weakened="changed"),
        verdict(11, 4, "aaa5678", weakened="changed"),
    )

    assert [(each.iteration, each.commits, each.verdict) for each in found.weakened] == [
        (1, ("abc1234",), "kept"),
        (3, ("fff5678",), "reverted"),
    ]
    assert (found.weakened[0].why, found.weakened[0].task) == (why, US1)


def test_what_a_person_put_back_is_done_again_and_its_time_was_work() -> None:
    found = summary_of(
        attempt(1, 1),
        verdict(1, 1, "abc1234", reverted=True),
        finished(1, 1, US1, "abc1234"),
        run(0, 1),
        entry("undo", 9, "r1/1/undo", iteration=1, task=US1, commits=["abc1234"], made=["fff0000"]),
    )

    assert [task.id for task in found.done] == ["US-1"]
    assert (found.kept, found.reverted) == (["abc1234", "fff0000"], [])
    assert found.undone[0].put_back_at == BEGIN + 9 * HOUR
    assert "undone" not in hours(found)


def test_only_what_lies_in_the_span_is_told_and_what_reaches_into_it_is_cut() -> None:
    found = summary_of(
        finished(-1, 1, US1, "abc1234"),
        entry("wait", -1, reason="usage limit", until=rfc3339(BEGIN + HOUR)),
        attempt(2, 1, 2, US2),
        finished(2, 2, US2),
        finished(11, 3, US1),
        run(-2, 12),
    )

    assert [task.id for task in found.done] == ["US-2"]
    assert hours(found) == {"between": 8.0, "usage_limit": 1.0, "work": 1.0}


def test_calls_and_commits_that_nobody_could_judge_are_told() -> None:
    found = summary_of(
        verdict(1, 1, "abc1234", verdict="untested"),
        entry("escalation", 2, data={"message": "giving up"}),
        entry("escalation", 3, data="torn"),
    )

    assert [call.message for call in found.calls] == ["giving up", ""]
    assert found.unjudged == 1
    assert found.kept == ["abc1234"]


# --- where the time went --------------------------------------------------------------------------------


def test_every_hour_of_a_night_is_told_once() -> None:
    found = summary_of(
        attempt(1, 1),
        attempt(2, 1, failure_kind="rate_limit", outcome="failed"),
        entry("wait", 2, reason="rate limit of claude (try again in 1h)", until=rfc3339(BEGIN + 3 * HOUR)),
        attempt(4, 1, failure_kind="stall", outcome="failed"),
        attempt(5, 1, failure_kind="agent_incomplete", outcome="failed"),
        verdict(6, 1, "abc1234", tests_s=[1800.0, 1800.0]),
        finished(6, 1, US1, "abc1234"),
        run(0, 7),
    )

    assert hours(found) == {
        "off": 3.0, "work": 2.0, "between": 1.0, "failure": 1.0, "hang": 1.0, "rate_limit": 1.0, "tests": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (entry("wait_over", 2), {"work": 9.0, "usage_limit": 1.0}),
        (
            entry("wait", 2, reason="outage", until=rfc3339(END)),
            {"outage": 8.0, "work": 1.0, "usage_limit": 1.0},
        ),
        (finished(3, 1), {"work": 8.0, "usage_limit": 2.0}),
        (attempt(4, 1), {"work": 1.0, "usage_limit": 2.0, "between": 7.0}),
    ],
)
def test_a_wait_ends_with_its_end_the_next_wait_a_boundary_or_the_next_attempt(
    end: Entry, expected: dict[str, float]
) -> None:
    wait = entry("wait", 1, reason="usage_limit", until=rfc3339(END))

    assert hours(summary_of(wait, end, run(0, 10))) == expected


def test_a_foreign_loop_of_boundaries_and_an_opaque_command_are_at_work_while_they_live() -> None:
    assert hours(summary_of(finished(1, 1), entry("iteration", 2, failed=True), run(0, 10))) == {
        "work": 9.0,
        "failure": 1.0,
    }
    assert hours(summary_of(run(0, 4, outcome="failed"), run(4.5, 10, "r2"))) == {"work": 9.5, "crash": 0.5}
    assert hours(summary_of(run(0, 0.1, outcome="lost"), run(4, 10, "r2"))) == {
        "work": 6.0, "off": 2.9, "crash": 1.0, "failure": 0.1,
    }  # fmt: skip
    hung = run(0, 10, outcome="stalled", last_sign_at=rfc3339(BEGIN + 8 * HOUR))
    assert hours(summary_of(hung)) == {"work": 8.0, "hang": 2.0}


@pytest.mark.parametrize(
    ("outcome", "reason", "called", "between"),
    [
        ("paused", "usage_limit", False, "usage_limit"),
        ("paused", "user_requested", False, "off"),
        ("paused", "guard", False, "person"),
        ("failed", None, True, "person"),
        ("gave_up", None, False, "person"),
        ("done", None, False, "off"),
        ("asked", None, False, "off"),
    ],
)
def test_what_lies_between_two_runs_was_waited_for_by_somebody_or_by_nobody(
    outcome: str, reason: str | None, called: bool, between: str
) -> None:
    first = run(0, 1, outcome=outcome, reason=reason)
    calls = [entry("escalation", 1, data={})] if called else []

    assert hours(summary_of(first, *calls, run(3, 10, "r2"))) == {"work": 8.0, between: 2.0}


@pytest.mark.parametrize(("asked", "between"), [(False, "iteration_pause"), (True, "off")])
def test_a_short_time_until_a_person_starts_it_again_is_no_pause_of_its_own(
    asked: bool, between: str
) -> None:
    starts = [entry("request", 1.01, run_id="r2", action="start")] if asked else []
    found = hours(summary_of(run(0, 1), *starts, run(1.01, 10, "r2")))
    assert between in found and len(found) == 2


def test_a_night_that_goes_on_counts_up_to_now() -> None:
    lives = reported_state({"state": "running", "run_id": "r1", "started_at": rfc3339(BEGIN)})

    assert hours(summary_of(attempt(2, 1), finished(2, 1), current=lives)) == {"work": 9.0, "between": 1.0}
    assert hours(summary_of(run(0, 4, outcome="paused"), current=ReportedState(waits_for="usage_limit"))) == {
        "usage_limit": 6.0,
        "work": 4.0,
    }
    assert (
        hours(summary_of(run(0, 4, outcome="failed"), current=ReportedState(needs_person=True)))["person"]
        == 6.0
    )


def test_the_span_begins_with_the_ralph_where_that_is_younger() -> None:
    found = summary_of(run(4, 6), is_whole=True, torn=2)

    assert found.since == BEGIN + 4 * HOUR
    assert hours(found) == {"off": 4.0, "work": 2.0}
    assert found.remarks == ["2 lines of the history could not be read"]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("claude: 5-hour usage limit", "usage_limit"),
        ("rate limit of claude (try again in 1s)", "rate_limit"),
        ("no agent can reach its service", "outage"),
        ("claude failed (agent crash), try 1 of 2 follows", "retry"),
        ("for the tide, which turns at noon", "for the tide, which turns at noon"),
        ("", "unknown"),
    ],
)
def test_waits_of_one_kind_are_told_together_whatever_their_words(told: str, reason: str) -> None:
    assert known_reason(told) == reason


def test_waits_for_rare_reasons_count_as_other() -> None:
    waits = [entry("wait", n / 10, reason=f"why {n}", until=rfc3339(END)) for n in range(12)]

    shares = summary_of(*waits, run(0, 10)).shares

    assert {share.reason for share in shares if share.doing == "wait"} == {"other"}


# --- what it cost ---------------------------------------------------------------------------------------


def test_a_cost_that_nobody_knows_is_counted_as_unknown_and_never_as_0() -> None:
    found = summary_of(
        attempt(1, 1, cost_usd=None, cost_source="unknown"),
        attempt(2, 1, cost_usd=0.0, cost_source=None, agent="codex", task=None),
        attempt(3, 1, cost_usd=0.0, cost_source="told"),
        attempt(4, 1, cost_usd=0.25, cost_source="estimated"),
        attempt(5, 1, cost_usd=float("nan")),
    )

    assert found.cost == ReportCost(250_000, unknown=3, estimated=1, attempts=5)
    assert [(work.agent, work.cost.unknown) for work in found.agents] == [("claude", 2), ("codex", 1)]


def test_costs_that_are_told_apart_from_attempts_are_counted_once() -> None:
    found = summary_of(
        attempt(1, 1, cost_usd=0.0, cost_source=None),
        entry("cost", 1, usd=0.75),
        entry("cost", 2, usd="much"),
    )

    assert found.cost == ReportCost(750_000, attempts=1)
    assert {work.agent: work.cost.micro_usd for work in found.agents} == {None: 750_000, "claude": 0}


def test_spending_and_efforts_tell_when_and_for_which_iteration_the_cost_was() -> None:
    found = summary_of(
        attempt(1, 1),
        attempt(2, 1, cost_usd=0.25, agent="codex"),
        finished(3, 1, US1, "abc1234", "def5678"),
        attempt(5, 1, 2),
        entry("cost", 6, usd=0.75),
        entry("cost", 7, usd=0.5),
        attempt(4, 1, 2, cost_usd=0.0),  # told late
    )

    spent = [(1, 500_000), (2, 250_000), (5, 500_000), (6, 750_000), (7, 500_000)]
    assert found.spending == [(BEGIN + at * HOUR, micro_usd) for at, micro_usd in spent]
    assert found.cost.micro_usd == sum(micro_usd for _, micro_usd in spent)
    assert found.efforts == {("r1", 1): [750_000, 2], ("r1", 2): [500_000, 0]}
    assert found.last_at == BEGIN + 7 * HOUR


def test_every_kind_of_entry_that_is_documented_is_known() -> None:
    kinds = set(re.findall(r"^### `history.jsonl`: kind `(\w+)`$", FILES.read_text(), re.MULTILINE))
    assert {"run", "incident", "undo"} < kinds
    assert summary_of(*(entry(kind, 1, kind) for kind in sorted(kinds))).remarks == []


# --- a record that is not as it should be ---------------------------------------------------------------


def test_a_clock_that_was_set_back_and_unknown_kinds_are_told_in_words() -> None:
    found = summary_of(run(0, 5), entry("sabbath", 6), {"kind": "run"}, run(1, 2, "r2"))

    assert [note.partition(": times")[0] for note in found.remarks] == [
        "left out: 1 entry of the history without a time",
        "the clock was set back",
        "left out: 1 entry of kind 'sabbath', unknown to this ralphctl",
    ]


KINDS = ["run", "attempt", "iteration", "verdict", "undo", "wait", "wait_over", "cost", "escalation"]
KEYS = [
    *("at", "run_id", "key", "task", "iteration", "duration_s", "cost_usd", "commits", "reverted", "tests_s"),
    *("until", "started_at", "outcome", "data", "usd", "failure_kind", "tail", "reason", "complete", "kind"),
]
JUNK = (None, True, -1, 3, float("nan"), "", "x", [1, "abc1234"], {"id": 3}, rfc3339(BEGIN + HOUR))


def any_entry(dice: Random) -> Entry:
    """An entry of any kind at any time, in which one thing or two may be anything."""
    at, number, task = dice.uniform(-2, 12), dice.randint(1, 4), dice.choice([US1, US2, None])
    sha, later = f"{dice.randint(0, 9)}" * 7, rfc3339(BEGIN + dice.uniform(-2, 12) * HOUR)
    cost = {
        "cost_usd": dice.uniform(0, 9),
        "cost_source": dice.choice(["told", "estimated", "unknown", None]),
    }
    kind = dice.choice([None, "stall", "agent_crash"])
    made = dice.choice(
        [
            attempt(at, dice.uniform(0, 3), number, task, agent=dice.choice("ab"), failure_kind=kind, **cost),
            finished(at, number, task, sha),
            verdict(at, number, sha, reverted=dice.random() < 0.7, tests_s=[900]),
            entry("undo", at, f"r1/{number}/undo", iteration=number),
            entry("wait", at, reason=dice.choice(["outage", "a b"]), until=later),
            run(at, dice.uniform(-2, 12), dice.choice(["r1", "r2"]), dice.choice(["done", "failed"])),
            entry(dice.choice(KINDS), at, usd=dice.uniform(0, 3), data={"message": "m"}),
        ]
    )
    return made | {dice.choice(KEYS): dice.choice(JUNK) for _ in range(dice.choice([0, 0, 0, 1, 2]))}


@settings(max_examples=100)
@given(st.integers(0, 1 << 32))
def test_times_sum_to_the_span_money_is_the_same_by_agent_and_by_task_and_done_is_of_the_tasks(
    seed: int,
) -> None:
    dice = Random(seed)
    entries = [any_entry(dice) for _ in range(dice.randint(0, 30))]
    lives = dice.random() < 0.5

    found = summary_of(*entries, current=ReportedState(run_id="r1", started_at=BEGIN) if lives else None)

    assert sum(share.us for share in found.shares) == round((END - BEGIN) * MICRO)
    assert all(share.us > 0 for share in found.shares)
    assert sum((work.cost for work in found.agents), ReportCost()) == found.cost
    assert sum((task.cost for task in found.tasks), ReportCost()) == found.cost
    assert all(task in found.tasks for task in found.done)
    assert not set(found.kept) & set(found.reverted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [[1, "x"], {"id": [1]}, True, -1, float("inf"), "", "\ud800", None])
def test_whatever_stands_in_an_entry_is_no_crash(kind: str, junk: object) -> None:
    found = summary_of(dict.fromkeys(KEYS, junk) | {"kind": kind, "at": rfc3339(BEGIN + HOUR)})

    assert sum(share.us for share in found.shares) == round((END - BEGIN) * MICRO)
