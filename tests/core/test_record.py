"""The record read back: an attempt as a line for people, iterations with their attempts."""

from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.record import PROGRESS_HEADER, entry_of, happened_at, iterations, progress_line
from ralphd.core.supervision.model import ReportedTask
from ralphd.core.supervision.reports import (
    AttemptFinished,
    Cost,
    CostSource,
    Heartbeat,
    IterationFinished,
    WaitingUntil,
)
from tests.core.supervision.scenes import HELLO, NOW, report

AT = "2026-11-21T20:01:02.345678Z"
WHOLE = AttemptFinished(
    agent="claude",
    outcome="failed",
    kind="rate_limit",
    code=1,
    cost_usd=0.25,
    duration_s=61.0,
    iteration=3,
    task=ReportedTask("US-2", "Parse the list"),
    attempt=2,
    phase="address",
    rule="status-429",
    why="API Error: 429",
    cost_source=CostSource.ESTIMATED,
    tokens_in=1000,
    tokens_out=20,
    model="opus",
    session="s-1",
    reset_at=NOW + 60,
    commits=1,
    next="waits 60 s",
)


def entry(kind: str, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "key": "k", "at": AT, "run_id": "r1", **data}


@pytest.mark.parametrize("word", ["told", "estimated", "unknown"])
def test_the_history_has_the_words_of_docs_files_for_the_source_of_a_cost(word: str) -> None:
    kept = entry_of(report(AttemptFinished("aider", "ok", cost_source=CostSource(word))), HELLO)

    assert kept is not None and kept[1]["cost_source"] == word


def test_the_history_keeps_all_of_an_attempt() -> None:
    kept = entry_of(report(WHOLE), HELLO)

    assert kept == (
        "attempt",
        {
            "iteration": 3,
            "task": {"id": "US-2", "title": "Parse the list"},
            "attempt": 2,
            "phase": "address",
            "agent": "claude",
            "outcome": "failed",
            "failure_kind": "rate_limit",
            "category": "transient",
            "hint": "RetryAfter",
            "rule": "status-429",
            "why": "API Error: 429",
            "code": 1,
            "cost_usd": 0.25,
            "cost_source": "estimated",
            "tokens_in": 1000,
            "tokens_out": 20,
            "model": "opus",
            "session": "s-1",
            "duration_s": 61.0,
            "reset_at": "2026-11-21T20:01:00.000000Z",
            "commits": 1,
            "next": "waits 60 s",
        },
    )


def test_a_usage_limit_without_a_reset_waits_for_a_person() -> None:
    known = AttemptFinished("claude", "failed", kind="usage_limit", reset_at=NOW)

    assert known.data()["hint"] == "ResumeFromCheckpoint"
    assert replace(known, reset_at=None).data()["hint"] == "WaitForUser"


def test_a_cost_that_nobody_knows_is_none_and_not_0() -> None:
    unknown = AttemptFinished("aider", "ok", cost_source=CostSource.UNKNOWN)

    assert unknown.data()["cost_usd"] is None


def test_the_history_keeps_all_of_an_iteration() -> None:
    finished = IterationFinished(3, False, "parsed", ReportedTask("US-2"), True, ("abc1234", "def5678"))

    assert entry_of(report(finished), HELLO) == (
        "iteration",
        {
            "iteration": 3,
            "failed": False,
            "summary": "parsed",
            "task": {"id": "US-2", "title": ""},
            "complete": True,
            "commits": ["abc1234", "def5678"],
        },
    )


def test_a_wait_its_end_and_a_cost_are_kept_and_heartbeats_are_not() -> None:
    assert entry_of(report(WaitingUntil(NOW + 60, "usage limit")), HELLO) == (
        "wait",
        {"reason": "usage limit", "until": "2026-11-21T20:01:00.000000Z"},
    )
    assert entry_of(report(WaitingUntil(None)), HELLO) == ("wait_over", {})
    assert entry_of(report(WaitingUntil(NOW - 60)), HELLO) == ("wait_over", {})
    assert entry_of(report(Cost(1.0)), HELLO) == ("cost", {"usd": 1.0})
    assert entry_of(report(Heartbeat()), HELLO) is None


def test_what_is_told_after_the_daemon_was_away_keeps_its_own_time_which_is_never_to_come() -> None:
    for what in (AttemptFinished("claude", "ok"), IterationFinished(1)):
        told = report(what, at=NOW)
        assert happened_at(told) == NOW
        assert happened_at(replace(told, report=replace(what, ended_at=NOW - 90.0))) == NOW - 90.0
        assert happened_at(replace(told, report=replace(what, ended_at=NOW + 90.0))) == NOW


@pytest.mark.usefixtures("berlin")
def test_an_attempt_is_one_line_for_people() -> None:
    assert progress_line(entry("attempt", **WHOLE.data())) == (
        "- 2026-11-21 21:01:02+01:00 · iteration 3 · US-2 Parse the list · claude (attempt 2, address)"
        " · failed: rate_limit (API Error: 429) · 61 s · $0.25 (estimated) · commits 1 · waits 60 s\n"
    )


def test_the_page_of_the_attempts_begins_with_what_it_is() -> None:
    assert PROGRESS_HEADER.startswith("# Progress\n\nOne line per attempt")
    assert PROGRESS_HEADER.endswith(" See also history.jsonl\n\n")


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("data", "line"),
    [
        (AttemptFinished("claude", "ok").data(), "- 2026-11-21 21:01:02+01:00 · claude · ok\n"),
        (
            AttemptFinished("aider", "ok", cost_source=CostSource.UNKNOWN).data(),
            "- 2026-11-21 21:01:02+01:00 · aider · ok · cost unknown\n",
        ),
        (
            {"agent": "a\nb" * 99, "task": "none", "why": 7},
            f"- 2026-11-21 21:01:02+01:00 · {('a b' * 99)[:59].rstrip()}…\n",
        ),
        ({}, "- 2026-11-21 21:01:02+01:00\n"),
        ({"at": "2026-99-99T20:01:02Z", "agent": "a"}, "- a\n"),
        ({"at": None, "agent": "a" * 60}, f"- {'a' * 60}\n"),
        ({"commits": 0}, "- 2026-11-21 21:01:02+01:00\n"),
        ({"task": {"id": "US-2", "title": ""}}, "- 2026-11-21 21:01:02+01:00 · US-2\n"),
        ({"task": {"id": "Parse", "title": "Parse"}}, "- 2026-11-21 21:01:02+01:00 · Parse\n"),
        ({"outcome": "failed", "failure_kind": "stall"}, "- 2026-11-21 21:01:02+01:00 · failed: stall\n"),
        ({"next": "x" * 200}, f"- 2026-11-21 21:01:02+01:00 · {'x' * 200}\n"),
        ({"next": "x" * 201}, f"- 2026-11-21 21:01:02+01:00 · {'x' * 199}…\n"),
        ({"cost_usd": 0.25}, "- 2026-11-21 21:01:02+01:00 · $0.25\n"),
        ({"cost_usd": 0.25, "cost_source": "told"}, "- 2026-11-21 21:01:02+01:00 · $0.25\n"),
        ({"cost_usd": 0, "cost_source": "told"}, "- 2026-11-21 21:01:02+01:00 · $0.00\n"),
    ],
)
def test_what_is_not_known_is_left_out_and_a_line_stays_a_line(data: dict[str, Any], line: str) -> None:
    assert progress_line(entry("attempt") | data) == line


def attempt(number: int | None, iteration: int | None, run_id: str = "r1") -> dict[str, Any]:
    return entry("attempt", attempt=number, iteration=iteration) | {"run_id": run_id}


def finished(iteration: int | None, run_id: str = "r1") -> dict[str, Any]:
    return entry("iteration", iteration=iteration, failed=False) | {"run_id": run_id}


def shape(found: list[dict[str, Any]]) -> list[tuple[int | None, bool, list[int | None]]]:
    """Of each iteration its number, whether it was finished, and the numbers of its attempts."""
    return [
        (each["iteration"], each["at"] is not None, [one["attempt"] for one in each["attempts"]])
        for each in found
    ]


def test_iterations_come_newest_first_with_their_attempts_in_order() -> None:
    record = [
        attempt(1, 1), finished(1), entry("wait"), attempt(1, 2), entry("escalation"), attempt(2, 2),
        finished(2), entry("run"),
    ]  # fmt: skip

    assert shape(iterations(reversed(record), 9)) == [(2, True, [1, 2]), (1, True, [1])]
    assert shape(iterations(reversed(record), 1)) == [(2, True, [1, 2])]


def test_an_iteration_that_was_cut_off_shows_its_attempts_and_no_end() -> None:
    record = [attempt(1, 1), finished(1), attempt(1, 2), entry("run")]

    assert shape(iterations(reversed(record), 9)) == [(2, False, [1]), (1, True, [1])]


def test_attempts_of_a_run_that_was_killed_belong_to_the_iteration_that_the_next_one_finished() -> None:
    record = [attempt(1, 1), entry("run"), attempt(2, 1, "r2"), finished(1, "r2")]

    assert shape(iterations(reversed(record), 9)) == [(1, True, [1, 2])]


def test_attempts_without_a_number_belong_to_the_iteration_of_their_run() -> None:
    record = [attempt(None, None), attempt(None, None, "r2"), finished(None, "r2")]

    assert shape(iterations(reversed(record), 9)) == [(None, True, [None]), (None, False, [None])]


def test_the_limit_counts_iterations_that_were_cut_off_too() -> None:
    record = [attempt(1, 1), attempt(1, 2), finished(2)]

    assert shape(iterations(reversed(record), 1)) == [(2, True, [1])]
    assert shape(iterations(reversed(record), 2)) == [(2, True, [1]), (1, False, [1])]


def test_a_finished_iteration_is_shown_whole() -> None:
    told = {"run_id": "r1", "iteration": 3, "at": AT, "failed": False, "summary": "Parsed"}
    told |= {"task": {"id": "US-2", "title": ""}, "complete": True, "commits": ["abc1234"]}

    assert iterations([entry("iteration", **told)], 9) == [told | {"attempts": []}]


def test_an_iteration_that_was_cut_off_is_known_by_its_attempt() -> None:
    task = {"id": "US-2", "title": "Parse the list"}

    (found,) = iterations([attempt(1, 3) | {"task": task}], 9)

    assert (found["run_id"], found["iteration"], found["task"]) == ("r1", 3, task)
    assert found["attempts"] == [{"at": AT, "run_id": "r1", "attempt": 1, "iteration": 3, "task": task}]
    assert [found[key] for key in ("at", "failed", "summary", "complete", "commits")] == [None] * 5
