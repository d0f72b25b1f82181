"""Which host takes which item, and what it lacks where it does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.fit import choose, claim_delay_s, defers_to, misfits, score, waits_for
from ralphd.core.fleet.model import (
    AccountLimit,
    HostName,
    HostRecord,
    Item,
    ItemFlags,
    ItemId,
    ItemState,
    Login,
    Need,
)
from ralphd.core.fleet.names import account_key, repo_id

GIB = 2**30
NOW = 1000.0
URL = "git@host:team/app.git"
ITEM = Item(
    ItemId("i-aaaa"),
    URL,
    "main",
    "b",
    need=Need(("linux", "docker"), ("claude", "codex"), 2, 6 * GIB, 10 * GIB),
)
LOGINS = (Login("claude", "team-a"), Login("gemini"))
HOST = HostRecord(
    HostName("h1"),
    "b1",
    "1",
    ("linux", "docker", "gpu"),
    LOGINS,
    ("host/team/*",),
    2,
    1,
    4,
    8 * GIB,
    20 * GIB,
)
LIMITED = {account_key("claude", "team-a"): AccountLimit("claude", "team-a", "limited", NOW + 60)}


def test_a_host_with_all_of_it_fits() -> None:
    assert misfits(ITEM, HOST, {}, NOW) == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"draining": True}, "it is draining"),
        ({"allow_repos": ("host/other/*",)}, "its fleet.allow_repos does not allow host/team/app"),
        ({"labels": ("linux",)}, "needs label docker; it has linux"),
        ({"labels": ()}, "needs label linux, docker; it has none"),
        ({"used": 2}, "needs a free slot; 2 of 2 are in use"),
        ({"slots": 0, "used": 0}, "needs a free slot; 0 of 0 are in use"),
        ({"cpus": 1}, "needs 2 CPUs; it has 1"),
        ({"memory_free_bytes": 5 * GIB}, "needs 6.0 GiB of memory; 5.0 GiB are free"),
        ({"disk_free_bytes": GIB // 2}, "needs 10.0 GiB of disk; 0.5 GiB are free"),
        ({"logins": (Login("gemini"),)}, "needs a login of claude or codex; it has gemini"),
        ({"logins": ()}, "needs a login of claude or codex; it has none"),
        (
            {"logins": (Login("claude", "x", NOW + 60),)},
            "needs a login that is not limited; claude x is, until 1970-01-01T00:17:40.000000Z",
        ),
    ],
)  # fmt: skip
def test_each_unmet_need_is_named(change: dict[str, Any], why: str) -> None:
    assert misfits(ITEM, replace(HOST, **change), {}, NOW) == (why,)


@pytest.mark.parametrize(("account", "fits"), [("team-a", True), ("team-b", False)])
def test_an_agent_may_be_named_with_its_account(account: str, *, fits: bool) -> None:
    """As the screen of the fleet names it."""
    item = replace(ITEM, flags=ItemFlags(agents=(f"claude@{account}",)))
    has = () if fits else (f"needs a login of claude@{account}; it has claude, gemini",)
    assert misfits(item, HOST, {}, NOW) == has
    assert score(item, replace(HOST, used=2), {}, NOW) == pytest.approx(0.1 * fits)


def test_all_unmet_needs_are_named_together() -> None:
    assert len(misfits(ITEM, HostRecord(HostName("h2"), "b", "1"), {}, NOW)) == 7


def test_a_limit_of_the_fleet_counts() -> None:
    assert "claude team-a is, until" in misfits(ITEM, HOST, LIMITED, NOW)[0]
    assert misfits(ITEM, HOST, LIMITED, NOW + 60) == ()


def test_accounts_without_names_are_not_shared() -> None:
    limits = {account_key("claude", ""): AccountLimit("claude", "", "limited", NOW + 60)}

    assert misfits(ITEM, replace(HOST, logins=(Login("claude"),)), limits, NOW) == ()


def test_a_second_login_is_enough() -> None:
    host = replace(HOST, logins=(*LOGINS, Login("codex")))

    assert misfits(ITEM, host, LIMITED, NOW) == ()


def test_the_agents_of_the_flags_decide() -> None:
    item = replace(ITEM, flags=ItemFlags(agents=("gemini",)))

    assert misfits(item, HOST, LIMITED, NOW) == ()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"not_before": NOW}, ""),
        ({"not_before": NOW + 1}, "not before 1970-01-01T00:16:41.000000Z"),
        ({"goal": "paused"}, "it is paused"),
        ({"goal": "paused", "why": "pause by me"}, "pause by me"),
        ({"state": ItemState.HELD, "why": "hold by me"}, "it is held: hold by me"),
        ({"state": ItemState.WORKING}, "it is working"),
    ],
)
def test_an_item_waits_for_its_own_reason(change: dict[str, Any], why: str) -> None:
    assert waits_for(replace(ITEM, **change), NOW) == why
    assert (choose([replace(ITEM, **change)], HOST, [HOST], {}, NOW) is None) == bool(why)


@pytest.mark.parametrize(
    ("change", "points"),
    [
        ({}, 0.25),
        ({"clones": (repo_id("https://host/team/app"),)}, 0.65),
        ({"used": 0}, 0.40),
        ({"slots": 0}, 0.10),
        ({"name": HostName("rack3")}, 0.45),
        ({"logins": (Login("claude", "x", NOW + 1), Login("codex"))}, 0.20),
    ],
)
def test_the_score_adds_up(change: dict[str, Any], points: float) -> None:
    item = replace(ITEM, prefer=(HostName("rack3"),))

    assert score(item, replace(HOST, **change), {}, NOW) == pytest.approx(points)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_better_host_claims_earlier(better: float, worse: float, chance: float) -> None:
    better, worse = max(better, worse), min(better, worse)

    assert 0 <= claim_delay_s(better, chance) <= claim_delay_s(worse, chance) <= 3.5


def test_priority_comes_first_then_age() -> None:
    items = [
        replace(ITEM, id=ItemId(f"i-{name}"), priority=priority, at=at)
        for name, priority, at in (("aaaa", 0, 1.0), ("bbbb", 5, 9.0), ("cccc", 5, 8.0), ("dddd", 5, 8.0))
    ]
    order = []
    while items and (chosen := choose(items, HOST, [HOST], {}, NOW)):
        items.remove(chosen)
        order.append(chosen.id)

    assert order == ["i-cccc", "i-dddd", "i-bbbb", "i-aaaa"]


def test_who_had_it_comes_last() -> None:
    item = replace(ITEM, tried=(HOST.name,))
    other, small = replace(HOST, name=HostName("h2")), replace(HOST, name=HostName("h3"), cpus=1)

    assert defers_to(item, HOST, [HOST, other, small], {}, NOW) == ("h2",)
    assert choose([item], HOST, [HOST, other], {}, NOW) is None
    assert choose([item], other, [HOST, other], {}, NOW) == item
    assert choose([item], HOST, [HOST, small], {}, NOW) == item
    both = replace(item, tried=(HOST.name, other.name))
    assert choose([both], HOST, [HOST, other], {}, NOW) == both
