"""Routes of ralphs, and how errors read."""

import asyncio
import logging
import threading
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute

from ralphd.api.app import Api, create_app
from ralphd.api.context import the_host
from ralphd.daemon.registration import Registration
from tests.api.memory_host import a_view
from tests.api.serving import Whole


async def test_a_registration_reaches_the_host_as_it_was_sent(api: Whole) -> None:
    body = {
        "directory": "/tmp/bob",
        "command": ["./loop.sh", "-v"],
        "name": "bob",
        "flags": {"regent.max_retries": 5},
        "environment": {"TOKEN": "secret"},
        "start": False,
    }

    reply = await api.client.post("/v1/ralphs", json=body)

    assert reply.status_code == 201
    assert reply.json()["name"] == "bob"
    asked = Registration(
        "/tmp/bob", ["./loop.sh", "-v"], "bob", {"regent.max_retries": 5}, {"TOKEN": "secret"}, False
    )
    assert api.host.asked == [("register", asked)]
    assert "secret" not in repr(asked)


async def test_a_ralph_that_runs_is_not_replaced(api: Whole) -> None:
    reply = await api.client.post("/v1/ralphs", json={"directory": "/tmp/alice"})

    assert reply.status_code == 409
    assert reply.json()["type"] == "urn:ralphd:problem:already-running"
    assert reply.json()["try"] == "ralphctl stop alice"


@pytest.mark.parametrize("act", ["start", "stop", "restart", "pause", "resume", "skip-wait", "ack"])
@pytest.mark.parametrize("body", [None, {}])
async def test_a_request_to_a_ralph_answers_at_once_with_its_view(
    api: Whole, act: str, body: dict[str, object] | None
) -> None:
    reply = await api.client.post(f"/v1/ralphs/alice/{act}", json=body)

    assert reply.status_code == 202
    assert reply.json() == a_view("alice", "/tmp", ["./loop.sh"])
    assert api.host.asked[-1][:2] == (act, "alice")


async def test_stop_now_and_the_flags_of_a_start_arrive(api: Whole) -> None:
    await api.client.post("/v1/ralphs/alice/stop", json={"now": True})
    body = {"flags": {"ralph.max_iterations": 2}, "environment": {"KEY": "new"}}
    await api.client.post("/v1/ralphs/alice/start", json=body)

    assert api.host.asked == [("stop", "alice", True), ("start", "alice", *body.values())]


async def test_what_becomes_of_a_checkpoint_arrives(api: Whole) -> None:
    await api.client.post("/v1/ralphs/alice/start", json={"resume": False})
    body = {"directory": "/srv/bob", "resume": True}
    await api.client.post("/v1/ralphs", json=body)

    started, (_, registration) = api.host.asked
    assert started == ("start", "alice", {}, False)
    assert isinstance(registration, Registration)
    assert registration.resume is True
    assert (await api.client.post("/v1/ralphs", json={**body, "resume": "yes"})).status_code == 422


async def test_verdicts_are_listed_like_runs(api: Whole) -> None:
    reply = await api.client.get("/v1/ralphs/alice/verdicts?limit=7")

    assert reply.json() == {
        "verdicts": [{"iteration": 1, "verdict": "kept", "undone": False}],
        "repairs": [{"number": 1, "undone": False}],
    }
    assert api.host.asked == [("verdicts", "alice", 7), ("repairs", "alice", 7)]
    assert (await api.client.get("/v1/ralphs/alice/verdicts?limit=0")).status_code == 422


async def test_an_undo_names_an_iteration_or_none_and_a_refusal_is_a_conflict(api: Whole) -> None:
    assert (await api.client.post("/v1/ralphs/alice/undo", json={"iteration": 2})).json()["iteration"] == 2
    assert (await api.client.post("/v1/ralphs/alice/undo")).status_code == 200
    assert (await api.client.post("/v1/ralphs/alice/undo", json={"repair": 3})).status_code == 200

    refused = await api.client.post("/v1/ralphs/alice/undo", json={"iteration": 404})

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:ralphd:problem:not-undone")
    assert [asked[2] for asked in api.host.asked] == [2, None, "repair 3", 404]
    for wrong in ({"iteration": "2"}, {"iteration": -1}, {"number": 2}):
        assert (await api.client.post("/v1/ralphs/alice/undo", json=wrong)).status_code == 422


async def test_iterations_are_listed_like_runs(api: Whole) -> None:
    reply = await api.client.get("/v1/ralphs/alice/iterations?limit=7")

    assert reply.json() == {"iterations": [{"iteration": 1, "attempts": []}]}
    assert api.host.asked == [("iterations", "alice", 7)]
    assert (await api.client.get("/v1/ralphs/alice/iterations?limit=1001")).status_code == 422


async def test_now_in_the_query_is_refused_and_not_overlooked(api: Whole) -> None:
    reply = await api.client.post("/v1/ralphs/alice/stop?now=1")

    assert reply.status_code == 422
    assert api.host.asked == []


def test_every_route_refuses_unknown_queries(api: Whole) -> None:
    asked = {route.path: route.dependant for route in create_app(cast("Any", api.host)).routes
             if isinstance(route, APIRoute)}  # fmt: skip

    assert len(asked) > 30
    assert [
        path for path, each in asked.items() if the_host not in [it.call for it in each.dependencies]
    ] == []


async def test_ralphs_are_listed_looked_at_and_forgotten(api: Whole) -> None:
    api.host.add("bob")

    listed = (await api.client.get("/v1/ralphs")).json()["ralphs"]
    one = await api.client.get("/v1/ralphs/bob?resources=1")
    forgotten = await api.client.delete("/v1/ralphs/bob")

    assert [view["name"] for view in listed] == ["alice", "bob"]
    assert one.json()["name"] == "bob"
    assert ("view", "bob", True) in api.host.asked
    assert (forgotten.status_code, forgotten.content) == (204, b"")
    assert (await api.client.get("/v1/ralphs/bob")).status_code == 404


async def test_runs_come_from_the_host_within_a_limit(api: Whole) -> None:
    reply = await api.client.get("/v1/ralphs/alice/runs?limit=7")

    assert reply.json() == {"runs": [{"run_id": "r000001-aaaaaaaa", "code": 0}]}
    assert api.host.asked == [("runs", "alice", 7)]
    assert (await api.client.get("/v1/ralphs/alice/runs?limit=0")).status_code == 422


async def test_an_unknown_ralph_is_a_problem_document_that_says_what_to_do(api: Whole) -> None:
    reply = await api.client.post("/v1/ralphs/nobody/stop")

    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json() == {
        "type": "urn:ralphd:problem:unknown-ralph",
        "title": "No ralph of this name, or none in this directory",
        "status": 404,
        "detail": "no ralph is called nobody",
        "why": "",
        "try": "ralphctl status",
    }


async def test_all_faults_of_a_body_are_told_together_and_nothing_sent_is_repeated(api: Whole) -> None:
    body = {"dirctory": "/tmp", "command": "./loop.sh", "environment": {"TOKEN": 1234567}, "start": "yes"}

    reply = await api.client.post("/v1/ralphs", json=body)

    assert reply.status_code == 422
    faults = {fault["where"]: fault["what"] for fault in reply.json()["errors"]}
    assert faults["body.dirctory"] == "unknown field, did you mean directory?"
    assert set(faults) == {
        "body.directory",
        "body.dirctory",
        "body.command",
        "body.environment.TOKEN",
        "body.start",
    }
    assert "body.dirctory: unknown field, did you mean directory?" in reply.json()["why"].splitlines()
    assert "1234567" not in reply.text
    assert api.host.asked == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("directory", "relative/path"),
        ("directory", "/tmp/\0"),
        ("command", ["a\0b"]),
        ("environment", {"A=B": "c"}),
        ("environment", {"": "c"}),
        ("environment", {"A": "\0"}),
        ("flags", {"\0": 1}),
    ],
)
async def test_what_no_process_could_be_given_is_refused(api: Whole, field: str, value: object) -> None:
    reply = await api.client.post("/v1/ralphs", json={"directory": "/tmp", field: value})

    assert reply.status_code == 422
    assert reply.json()["errors"][0]["where"].startswith(f"body.{field}")


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-Infinity", b"9" * 5000])
async def test_a_number_that_json_does_not_have_is_refused(api: Whole, number: bytes) -> None:
    body = b'{"directory": "/tmp", "flags": {"ralph.max_cost_usd": ' + number + b"}}"

    reply = await api.client.post("/v1/ralphs", content=body, headers={"content-type": "application/json"})

    assert reply.status_code in (400, 422)
    assert api.host.asked == []


@pytest.mark.parametrize("name", ["UPPER", "-dash", ".hidden", "a b", "a" * 64, "ü", "a:b", "a%00"])
async def test_a_bad_name_is_told_the_allowed_form(api: Whole, name: str) -> None:
    in_path = await api.client.get(f"/v1/ralphs/{name}")
    in_body = await api.client.post("/v1/ralphs", json={"directory": "/tmp", "name": name})

    assert in_path.status_code in (404, 422)
    assert in_body.status_code == 422
    assert in_body.json()["type"] == "urn:ralphd:problem:bad-name"
    assert "a-z 0-9 . _ -" in in_body.json()["why"]
    assert api.host.asked == []


@pytest.mark.parametrize(
    ("body", "where"), [(b"{", "body"), (b"[1]", "body"), (b"nope", "body"), (b"[" * 100_000, "")]
)
async def test_a_body_that_is_not_the_json_asked_for_is_told(api: Whole, body: bytes, where: str) -> None:
    reply = await api.client.post("/v1/ralphs", content=body, headers={"content-type": "application/json"})

    assert reply.status_code in (400, 422)
    assert reply.json()["type"] == "urn:ralphd:problem:usage"
    assert where in reply.json()["why"]


async def test_an_unknown_route_and_a_wrong_method_are_told(api: Whole) -> None:
    unknown = await api.client.get("/v1/ralfs")
    slashed = await api.client.get("/v1/status/")
    wrong = await api.client.delete("/v1/status")

    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:ralphd:problem:not-found")
    assert slashed.status_code == 404
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")


async def test_a_wrong_method_is_answered_with_all_others(api: Whole) -> None:
    wrong = await api.client.put("/v1/ralphs/demo")

    assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE, GET")
    assert wrong.json()["try"] == "use DELETE, GET"


async def test_a_bug_is_told_as_one_logged_once_and_leaves_the_daemon_up(
    api: Whole, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await api.client.post("/v1/ralphs", json={"directory": "/tmp", "name": "broken"})

    assert reply.status_code == 500
    assert reply.json()["type"] == "urn:ralphd:problem:internal"
    assert "on purpose" not in reply.text
    [logged] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged.exc_info is not None
    assert (await api.client.get("/v1/health")).status_code == 200


async def test_nobody_waits_while_the_schema_is_made(api: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()

    def slow(app: Api) -> dict[str, bool]:
        began.set()
        return {"in_time": may_end.wait(5)}

    monkeypatch.setattr(Api, "openapi", slow)
    schema = asyncio.create_task(api.client.get("/openapi.json"))
    await asyncio.to_thread(began.wait)
    assert (await api.client.get("/v1/health")).status_code == 200
    may_end.set()

    assert (await schema).json() == {"in_time": True}


async def test_every_operation_has_a_name_and_every_reply_and_problem_a_schema(api: Whole) -> None:
    schema = (await api.client.get("/openapi.json")).json()

    operations = [op for path in schema["paths"].values() for op in path.values()]
    names = [op["operationId"] for op in operations]
    assert len(names) == len(set(names)) >= 15
    assert all("application/problem+json" in op["responses"]["422"]["content"] for op in operations)
    assert all(replies_are_described(op["responses"]) for op in operations)
    assert {"Problem", "RalphView", "StatusView"} <= set(schema["components"]["schemas"])


def replies_are_described(responses: dict[str, Any]) -> bool:
    good = [reply for status, reply in responses.items() if status.startswith("2") and status != "204"]
    media = (media for reply in good for media in reply["content"].values())
    return all(each.get("schema") or each["itemSchema"] for each in media)


async def test_tasks_and_notes_are_sent_and_taken_back(api: Whole) -> None:
    task = await api.client.post("/v1/ralphs/alice/tasks", json={"text": "Fix the header"})
    note = await api.client.post("/v1/ralphs/alice/notes", json={"text": "Use the new API"})
    gone = await api.client.delete("/v1/ralphs/alice/tasks/%2B1")
    left = await api.client.delete("/v1/ralphs/alice/tasks/2")

    assert [reply.status_code for reply in (task, note, gone, left)] == [201, 201, 200, 200]
    assert [each["text"] for each in task.json()["tasks"]] == ["Fix the header"]
    assert [each["text"] for each in note.json()["notes"]] == ["Use the new API"]
    assert (gone.json()["tasks"], left.json()) == ([], {"tasks": [], "notes": []})
    await api.client.post("/v1/ralphs/alice/tasks", json={"text": "Fix src/a.py"})
    assert (await api.client.delete("/v1/ralphs/alice/tasks/Fix%20src/a.py")).json()["tasks"] == []


@pytest.mark.parametrize(("what", "body", "status"), [
    ("tasks", {"text": ""}, 422),
    ("tasks", {"text": "x" * 201}, 422),
    ("tasks", {"title": "x"}, 422),
    ("tasks", None, 422),
    ("notes", {"text": "x" * 4001}, 422),
    ("notes", {"text": "a\0b"}, 422),
    ("notes", {"text": 7}, 422),
])  # fmt: skip
async def test_what_is_no_task_and_no_note_is_refused(
    api: Whole, what: str, body: dict[str, object] | None, status: int
) -> None:
    reply = await api.client.post(f"/v1/ralphs/alice/{what}", json=body)
    assert (reply.status_code, reply.json()["status"]) == (status, status)


async def test_a_task_that_was_not_added_is_not_found(api: Whole) -> None:
    reply = await api.client.delete("/v1/ralphs/alice/tasks/US-001")
    assert (reply.status_code, reply.json()["type"]) == (404, "urn:ralphd:problem:not-found")
    assert (await api.client.delete("/v1/ralphs/alice/tasks/")).status_code == 404
    assert (await api.client.post("/v1/ralphs/bob/tasks", json={"text": "x"})).status_code == 404
