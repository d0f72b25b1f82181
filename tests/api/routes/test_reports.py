"""Reports of runs, and explanations: what is taken, what is refused, and what reaches the host."""

import hashlib
import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from ralphd.api.report_models import ReportBody
from ralphd.api.routes.reports import digest_of
from ralphd.core.supervision.model import LastWord, ReportedTask, RunId
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Cost,
    CostSource,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    WaitingUntil,
)
from tests.api.serving import Whole

RUN = "r000001-aaaaaaaa"
PATH = "/v1/ralphs/alice/reports"
UNTIL = "2026-11-22T03:00:00Z"


def report(kind: str, **words: object) -> dict[str, Any]:
    return {"run_id": RUN, "id": "1", "kind": kind, **words}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (report("hello"), Hello()),
        (report("hello", signals=True, agent="claude"), Hello(True, "claude")),
        (report("iteration-started"), IterationStarted()),
        (
            report("iteration-started", iteration=3, task={"id": "US-1", "title": "파싱"}, agent="codex"),
            IterationStarted(3, ReportedTask("US-1", "파싱"), "codex"),
        ),
        (report("attempt-finished", agent="claude", outcome="done"), AttemptFinished("claude", "done")),
        (
            report(
                "attempt-finished", agent="claude", outcome="failed", failure_kind="rate_limit",
                exit_code=1, cost_usd=0.25, duration_s=61,
            ),
            AttemptFinished("claude", "failed", "rate_limit", 1, 0.25, 61),
        ),
        (
            report(
                "attempt-finished", agent="claude", outcome="failed", failure_kind="usage_limit",
                exit_code=-9, cost_usd=None, cost_source="unknown", iteration=3, attempt=2, phase="address",
                task={"id": "US-1"}, rule="resets-at", why="weekly\nlimit", tokens_in=10, tokens_out=2,
                model="opus", session="s-1", reset_at=UNTIL, commits=0, next="codex is asked",
            ),
            AttemptFinished(
                "claude", "failed", "usage_limit", -9, None, None, 3, ReportedTask("US-1"), 2, "address",
                "resets-at",
                "weekly\nlimit", CostSource.UNKNOWN, 10, 2, "opus", "s-1", 1795316400.0, 0, "codex is asked",
            ),
        ),
        (report("iteration-finished"), IterationFinished()),
        (
            report("iteration-finished", task={"id": "US-1"}, complete=True, commits=["abc1234"]),
            IterationFinished(task=ReportedTask("US-1"), complete=True, commits=("abc1234",)),
        ),
        (report("agent-exhausted", agent="claude", reason="weekly limit", until=UNTIL),
         AgentExhausted("claude", "weekly limit", 1795316400.0)),
        (report("agent-exhausted", agent="claude", reason="login"), AgentExhausted("claude", "login")),
        (report("agent-returned", agent="claude"), AgentReturned("claude")),
        (report("ending", code=0, reason="complete"), LastWord(0, "complete")),
        (
            report("ending", code=75, reason="usage_limit", why="at its limit", resume_at=UNTIL),
            LastWord(75, "usage_limit", "at its limit", 1795316400.0),
        ),
        (
            report("iteration-finished", iteration=3, failed=True, summary="two\nlines"),
            IterationFinished(3, True, "two\nlines"),
        ),
        (report("waiting", until=UNTIL, reason="usage limit"), WaitingUntil(1795316400.0, "usage limit")),
        (report("waiting", until=None), WaitingUntil(None)),
        (report("cost", usd=2), Cost(2)),
        (report("heartbeat"), Heartbeat()),
    ],
)  # fmt: skip
async def test_a_report_reaches_the_host_in_the_words_of_the_core(
    api: Whole, body: dict[str, Any], told: Report
) -> None:
    reply = await api.client.post(PATH, json=body)

    assert reply.status_code == 200
    assert reply.json() == {"id": "1", "next": "continue", "verdict": None}
    [(what, name, run_id, report_id, _, heard)] = api.host.asked
    assert (what, name, run_id, report_id, heard) == ("report", "alice", RUN, "1", told)


async def test_the_digest_tells_other_reports_and_not_other_spellings_of_one(api: Whole) -> None:
    spellings = (
        f'{{"run_id": "{RUN}", "id": "1", "kind": "cost", "usd": 1}}',
        f'{{"usd":1.0,"kind":"cost","id":"1","run_id":"{RUN}"}}',
        f'{{"usd":2,"kind":"cost","id":"1","run_id":"{RUN}"}}',
    )
    for content in spellings:
        headers = {"content-type": "application/json"}
        assert (await api.client.post(PATH, content=content, headers=headers)).status_code == 200

    first, second, third = (asked[4] for asked in api.host.asked)
    assert first == second
    assert third != first


async def test_a_field_of_a_later_version_that_is_left_out_changes_no_digest() -> None:
    body = {"run_id": RUN, "id": "1", "kind": "cost", "usd": 1.0}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    assert digest_of(TypeAdapter(ReportBody).validate_python(body)) == digest


async def test_without_a_run_it_is_said_where_its_id_comes_from(api: Whole) -> None:
    reply = await api.client.post(PATH, json={"kind": "heartbeat", "id": "1"})

    assert reply.status_code == 422
    [fault] = reply.json()["errors"]
    assert fault["where"].endswith("run_id")
    assert "RALPH_RUN_ID" in fault["what"]
    assert api.host.asked == []


@pytest.mark.parametrize("kind", ["hello", "cost", "waiting", "nothing-known", 7, None])
async def test_unknown_fields_and_kinds_are_refused(api: Whole, kind: object) -> None:
    body = {"run_id": RUN, "id": "1", "kind": kind, "sumary": "x", "until": None}

    reply = await api.client.post(PATH, json=body)

    assert reply.status_code == 422
    assert api.host.asked == []


async def test_a_near_miss_is_told_by_its_right_name(api: Whole) -> None:
    reply = await api.client.post(PATH, json=report("iteration-finished", sumary="x"))

    assert "did you mean summary?" in reply.json()["why"]


@pytest.mark.parametrize(
    "body",
    [
        report("cost", usd=-1),
        report("cost", usd="1"),
        report("cost", usd=True),
        report("cost", usd=1e300),
        report("heartbeat") | {"id": ""},
        report("heartbeat") | {"id": "x" * 101},
        report("heartbeat") | {"id": "two\nlines"},
        report("heartbeat") | {"run_id": "x" * 101},
        report("hello", signals=1),
        report("hello", agent="x" * 101),
        report("iteration-started", iteration=-1),
        report("iteration-started", iteration=1.5),
        report("iteration-started", task={"title": "without an id"}),
        report("iteration-started", task={"id": "1", "title": "x" * 501}),
        report("iteration-finished", summary="x" * 4001),
        report("iteration-finished", summary="\0"),
        report("attempt-finished", outcome="done"),
        report("attempt-finished", agent="claude"),
        report("attempt-finished", agent="claude", outcome="done", duration_s=-1),
        report("attempt-finished", agent="claude", outcome="done", exit_code=1000),
        report("attempt-finished", agent="claude", outcome="done", cost_source="guessed"),
        report("attempt-finished", agent="claude", outcome="done", why="x" * 4001),
        report("attempt-finished", agent="claude", outcome="done", next="two\nlines"),
        report("attempt-finished", agent="claude", outcome="done", reset_at="soon"),
        report("iteration-finished", commits=["no commit"]),
        report("iteration-finished", commits=["abc1234"] * 1001),
        report("agent-exhausted", agent="claude"),
        report("ending", code=1),
        report("ending", code=256, reason="x"),
        report("ending", code=1, reason=""),
        report("ending", code=1, reason="x", why="x" * 4001),
        report("waiting"),
        report("waiting", until="tomorrow"),
        report("waiting", until="2026-11-22T03:00:00"),
        report("waiting", until=1795316400),
        report("waiting", until=UNTIL, reason="\x1b[2J"),
    ],
)
async def test_what_is_out_of_bounds_is_refused(api: Whole, body: dict[str, Any]) -> None:
    reply = await api.client.post(PATH, json=body)

    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"
    assert api.host.asked == []


@pytest.mark.parametrize(
    "text", [r'"usd": NaN', r'"usd": 1e999', r'"usd": 1, "id": "\ud800"', '"usd": ' + "9" * 5000]
)
async def test_numbers_and_texts_that_cannot_be_written_down_are_refused(api: Whole, text: str) -> None:
    content = f'{{"run_id": "{RUN}", "id": "1", "kind": "cost", {text}}}'

    reply = await api.client.post(PATH, content=content, headers={"content-type": "application/json"})

    assert reply.status_code in (400, 422)
    assert api.host.asked == []


async def test_a_stale_report_is_a_conflict_that_says_why(api: Whole) -> None:
    api.host.callers.run_id = RunId("r000000-00000000")
    reply = await api.client.post(PATH, json=report("heartbeat") | {"run_id": "r000000-00000000"})

    assert reply.status_code == 409
    assert reply.json()["type"] == "urn:ralphd:problem:stale-report"
    assert "r000000-00000000" in reply.json()["why"]


async def test_an_unknown_ralph_has_no_reports_and_no_explanation(api: Whole) -> None:
    assert (await api.client.post("/v1/ralphs/bob/reports", json=report("heartbeat"))).status_code == 404
    assert (await api.client.get("/v1/ralphs/bob/explain")).status_code == 404


async def test_an_explanation_comes_from_the_host(api: Whole) -> None:
    reply = await api.client.get("/v1/ralphs/alice/explain")

    assert reply.status_code == 200
    assert reply.json()["title"] == "Nothing was done yet"
    assert json.loads(reply.content)["run_id"] is None
