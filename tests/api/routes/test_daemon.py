"""Routes of the daemon itself."""

import os

from ralphd.config.configuration import Difference
from ralphd.errors import ConfigFaults
from tests.api.serving import Whole


async def test_status_is_what_the_host_made_once(api: Whole) -> None:
    reply = await api.client.get("/v1/status")

    assert reply.headers["content-type"] == "application/json"
    assert reply.content == await api.host.status_bytes()
    assert reply.json()["daemon"]["pid"] == os.getpid()


async def test_status_after_the_reply_to_a_change_is_made_anew(api: Whole) -> None:
    api.host.add("demo")
    before = (await api.client.get("/v1/status")).json()["ralphs"]

    assert (await api.client.delete("/v1/ralphs/demo")).status_code < 300

    after = (await api.client.get("/v1/status")).json()["ralphs"]
    assert [each for each in before if each["name"] != "demo"] == after != before


async def test_resources_are_looked_at_only_on_request(api: Whole) -> None:
    await api.client.get("/v1/status")
    await api.client.get("/v1/status?resources=1")

    assert api.host.asked == [("status", False), ("status", True)]


async def test_a_query_parameter_that_status_does_not_know_is_refused(api: Whole) -> None:
    reply = await api.client.get("/v1/status?resource=1")

    assert reply.status_code == 422
    assert reply.json()["errors"] == [
        {"where": "query.resource", "what": "unknown field, did you mean resources?"}
    ]


async def test_health_answers_while_ready_does_not_yet_and_no_more(api: Whole) -> None:
    assert (await api.client.get("/v1/ready")).json() == {"ready": True}

    api.host.ready = False
    early = await api.client.get("/v1/ready")
    api.host.ready = True
    api.host.stopping.set()
    late = await api.client.get("/v1/ready")

    assert (early.status_code, early.json()["type"]) == (503, "urn:ralphd:problem:busy")
    assert (late.status_code, late.json()["type"]) == (503, "urn:ralphd:problem:shutting-down")
    assert (await api.client.get("/v1/health")).json() == {"status": "ok", "problems": []}


async def test_a_shutdown_says_whose_end_to_wait_for(api: Whole) -> None:
    plain = await api.client.post("/v1/shutdown")
    leave = await api.client.post("/v1/shutdown", json={"runs": "leave"})
    wrong = await api.client.post("/v1/shutdown", json={"runs": "some"})

    assert (plain.status_code, plain.json()["pid"]) == (202, os.getpid())
    assert leave.status_code == 202
    assert wrong.status_code == 422
    assert api.host.asked == [("shutdown", "finish"), ("shutdown", "leave")]


async def test_a_reload_says_what_has_changed(api: Whole) -> None:
    api.host.reloaded = (Difference("logs.total_bytes", "1048576", "2097152", "config.toml:2"),)
    answer = await api.client.post("/v1/reload")

    assert answer.status_code == 200
    assert answer.json()["daemon"]["pid"] == os.getpid()
    assert answer.json()["changes"] == [
        {"key": "logs.total_bytes", "was": "1048576", "becomes": "2097152", "origin": "config.toml:2"}
    ]


async def test_a_reload_with_faults_tells_them_all(api: Whole) -> None:
    api.host.reloaded = ConfigFaults(
        "2 faults in the configuration", why="config.toml:1: a\nconfig.toml:2: b"
    )
    answer = await api.client.post("/v1/reload")

    assert answer.status_code == ConfigFaults.status
    assert answer.json()["why"].splitlines() == ["config.toml:1: a", "config.toml:2: b"]
