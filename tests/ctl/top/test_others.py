"""Ralphs of other machines in ``top``, with a daemon in a fleet whose answers the test sets."""

import json
from typing import Any

import pytest

from ralphctl.format.humanize import cells
from ralphd.core.time import rfc3339
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.top import test_app
from tests.ctl.top.test_app import News, running, selected
from tests.helpers import eventually

news = test_app.news


@pytest.fixture
def others(daemon: FakeDaemon) -> dict[str, dict[str, Any]]:
    """The ralphs of h2: one present, one as of a while ago, one never read. They change with it."""
    of_h2 = {
        "h2/api": view("h2/api", tasks={"done": 1, "total": 2}),
        "h2/web": view("h2/web", state="failed", message="out of ideas", as_of=rfc3339(SEVEN - 1740)),
        "h3/new": {"name": "h3/new", "state": "unknown", "message": "h3 is silent", "as_of": rfc3339(SEVEN)},
    }
    daemon.on("GET /v1/fleet/ralphs", lambda _: Answer({"host": "h1", "ralphs": list(of_h2.values())}))
    for name in of_h2:
        daemon.on(f"GET /v1/fleet/ralphs/{name}", lambda asked: Answer(of_h2[asked.path[17:]]))
        daemon.on(f"POST /v1/fleet/ralphs/{name}/pause", lambda _: Answer({"done": True, "ralph": {}}))
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": []}))
    return of_h2


@pytest.mark.parametrize("columns", [40, 100])
def test_others_have_rows_with_their_age(
    columns: int, daemon: FakeDaemon, others: dict[str, Any], ctl: Ctl
) -> None:
    daemon.views = {"api": view("api")}
    reply = ctl("top", "--once", more={"COLUMNS": str(columns)})
    shown = reply.stdout
    assert not reply.stderr
    rows = {
        line.split()[0].strip("▸"): line for line in shown.splitlines() if line[1:3] in ("ap", "h2", "h3")
    }
    rows = {name: line for name, line in rows.items() if not name.endswith(":")}  # not the detail below
    assert list(rows) == ["h2/web", "api", "h2/api", "h3/new"]
    assert "as of 29m ago" in rows["h2/web"] and "as of" not in rows["h2/api"]
    assert max(map(cells, shown.splitlines())) <= columns
    assert "needs you: h2/web" in shown
    document = json.loads(ctl("top", "--json").stdout)
    assert [each["name"] for each in document["ralphs"]] == list(rows)
    assert document["totals"] == {"needs you": 1, "working": 2, "unknown": 1}


def test_a_machine_in_no_fleet_has_none(daemon: FakeDaemon, others: dict[str, Any], ctl: Ctl) -> None:
    daemon.views = {"api": view("api")}
    for refusal in (problem("no-fleet", 409, "this machine is in no fleet"), problem("not-found", 404, "?")):
        daemon.on("GET /v1/fleet/ralphs", lambda _, refusal=refusal: refusal)  # type: ignore[misc]
        assert [each["name"] for each in json.loads(ctl("top", "--json").stdout)["ralphs"]] == ["api"]


async def test_news_of_others_are_shown_and_keys_reach_them(
    daemon: FakeDaemon, others: dict[str, Any]
) -> None:
    local, elsewhere = News(daemon), News(daemon, "GET /v1/fleet/events")
    try:
        async with running(daemon) as (pilot, shown):
            await eventually(lambda: "1 needs you" in shown())
            assert selected(shown()) == "h2/web"
            await eventually(lambda: any(each.path == "/v1/fleet/events" for each in daemon.asked))
            others["h2/api"]["tasks"] = {"done": 2, "total": 2}
            elsewhere.send("api", host="h2")
            await eventually(lambda: "2/2" in shown())
            await pilot.press("end", "up", "p")
            await eventually(lambda: daemon.lines() == ["POST /v1/fleet/ralphs/h2/api/pause"])
            others["h2/late"] = view("h2/late")
            elsewhere.send(None, host="h2")
            await eventually(lambda: "h2/late" in shown())
            seen = len(daemon.asked)
            elsewhere.send("own", host="h1")  # the daemon's own stream has it
            local.send(None)
            await eventually(lambda: len(daemon.asked) > seen)
            assert "h1/own" not in shown()
    finally:
        local.end()
        elsewhere.end()
