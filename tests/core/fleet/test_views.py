"""What ``fleet status``, ``items`` and ``explain`` show."""

import json
from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.fleet.model import (
    AccountLimit,
    HostName,
    HostRecord,
    Item,
    ItemId,
    ItemState,
    LastTry,
    Login,
    Need,
)
from ralphd.core.fleet.views import explain, fleet_view, host_view, item_view, next_words
from tests.core.fleet.world import ITEM as BARE

H1, H2 = HostName("h1"), HostName("h2")
NOW = 10_000.0
ITEM = replace(BARE, repo="https://me:secret@host/team/app.git", at=NOW, by="me")
HOST = HostRecord(
    H1, "b", "1.2", ("linux",), (Login("claude", "team-a", NOW + 5),), ("*",), 2, 1, 4, ralphs=("app",)
)
SILENT = replace(HOST, name=H2, draining=True)
AGES = {H1: 4.0, H2: 600.0}
WORKING = replace(ITEM, state=ItemState.WORKING, holder=H1)


def test_a_host_shows_its_state() -> None:
    view = host_view(HOST, AGES, NOW)

    assert view == {
        "host": "h1",
        "state": "up",
        "seen_at": "1970-01-01T02:46:36.000000Z",
        "version": "1.2",
        "labels": ["linux"],
        "slots": 2,
        "used": 1,
        "logins": [{"agent": "claude", "account": "team-a", "limited_until": "1970-01-01T02:46:45.000000Z"}],
        "ralphs": ["app"],
    }
    assert host_view(SILENT, {H2: 1.0}, NOW)["state"] == "draining"
    assert host_view(SILENT, AGES, NOW)["state"] == "silent"
    assert host_view(HOST, {}, NOW)["state"] == "silent"
    assert host_view(HOST, {}, NOW)["seen_at"] is None


def test_an_item_shows_no_secrets() -> None:
    view = item_view(replace(ITEM, last=LastTry(H2, "host-gone", "a" * 40)), AGES, NOW)

    assert view["repo"] == "host/team/app"
    assert "secret" not in json.dumps(view)
    assert view["last"] == {"host": "h2", "why": "host-gone", "commit": "aaaaaaa"}
    assert view["submitted_at"] == "1970-01-01T02:46:40.000000Z"
    assert view["ended_at"] is None


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (ITEM, "waits for a host: ralphctl fleet explain i-abcd"),
        (replace(ITEM, goal="paused", why="pause by me"), "pause by me"),
        (WORKING, ""),
        (replace(WORKING, holder=H2), "h2 is silent for 10 min; taken over if its lease does not move"),
        (replace(WORKING, holder=HostName("h3")), "h3 is silent; taken over if its lease does not move"),
        (replace(WORKING, goal="stopped"), "h1 stops it, then it needs you"),
        (replace(ITEM, state=ItemState.HELD), "needs you: ralphctl fleet release i-abcd, or cancel"),
        (replace(ITEM, state=ItemState.FAILED), "ralphctl fleet retry i-abcd"),
        (replace(ITEM, state=ItemState.DONE), ""),
        (replace(WORKING, state=ItemState.LANDING), "lands on main if the tests pass"),
        (replace(WORKING, state=ItemState.LANDING, why="main is red"), "main is red"),
    ],
)
def test_an_item_says_what_comes_next(item: Item, words: str) -> None:
    assert next_words(item, AGES, NOW) == words


def test_an_item_shows_what_landed() -> None:
    done = replace(ITEM, state=ItemState.DONE, last=LastTry(H1, "landed", "c" * 40))

    assert item_view(done, AGES, NOW)["landed"] is None
    assert item_view(replace(done, finished="b" * 40), AGES, NOW)["landed"] == "ccccccc"


def test_status_has_open_items_first() -> None:
    items = [
        replace(ITEM, id=ItemId("i-done"), state=ItemState.DONE, ended_at=1.0),
        replace(ITEM, id=ItemId("i-late"), state=ItemState.DONE, ended_at=2.0),
        replace(ITEM, id=ItemId("i-young")),
        replace(ITEM, id=ItemId("i-old"), at=1.0),
        replace(ITEM, id=ItemId("i-urgent"), priority=9),
    ]
    limits = {"x": AccountLimit("claude", "team-a", "limited", NOW), "y": AccountLimit("codex", "b")}

    view = fleet_view([SILENT, HOST], items, limits, AGES, NOW)

    assert [each["id"] for each in view["items"]] == ["i-urgent", "i-old", "i-young", "i-late", "i-done"]
    assert [each["host"] for each in view["hosts"]] == ["h1", "h2"]
    until = "1970-01-01T02:46:40.000000Z"
    assert view["limits"] == [
        {"agent": "claude", "account": "team-a", "state": "limited", "until": until, "by": None}
    ]
    json.dumps(view)


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({}, [[], ["it is silent for 10 min", "it is draining"]]),
        (
            {"need": Need(("gpu",))},
            [
                ["needs label gpu; it has linux"],
                ["it is silent for 10 min", "it is draining", "needs label gpu; it has linux"],
            ],
        ),
        ({"tried": (H1,)}, [[], ["it is silent for 10 min", "it is draining"]]),
    ],
)
def test_explain_names_each_failed_need(change: dict[str, Any], rows: list[list[str]]) -> None:
    hosts = [replace(each, logins=(Login("claude"),)) for each in (SILENT, HOST)]

    view = explain(replace(ITEM, **change), hosts, {}, AGES, NOW)

    assert [each["misfits"] for each in view["hosts"]] == rows
    assert [each["fits"] for each in view["hosts"]] == [not row for row in rows]
    assert view["waits_for"] is None


def test_explain_names_whom_it_waits_for() -> None:
    hosts = [replace(HOST, name=name, logins=(Login("claude"),)) for name in (H1, H2)]

    view = explain(replace(ITEM, tried=(H1,)), hosts, {}, {H1: 1.0, H2: 1.0}, NOW)

    assert view["hosts"][0]["misfits"] == ["had it already; first h2"]
    assert view["hosts"][1]["fits"]
