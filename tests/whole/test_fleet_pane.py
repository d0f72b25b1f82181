"""One pane of glass, typed by hand: what is seen and done from one machine about another one."""

import json
from collections.abc import Mapping
from typing import Any

import anyio

from tests.helpers import wait_for
from tests.whole import test_fleet
from tests.whole.harness import Daemon
from tests.whole.test_fleet import LIMIT_S, World, git, ralphctl
from tests.whole.test_mcp import answer, served

world = test_fleet.world


def works_on_two(world: World) -> str:
    """Have the second machine work on an item until the test lets it end; return ``HOST/NAME``."""
    seed = world.remote.parent / "seed"
    (seed / "tasks.sh").write_text(f"#!/bin/sh\necho begins; {(seed / 'tasks.sh').read_text()}")
    git(seed, "commit", "--quiet", "-am", "prints")
    git(seed, "push", "--quiet", "origin", "HEAD:main")
    world.hold.touch()
    ralphctl(world.one, "fleet", "drain")
    ralphctl(world.one, "fleet", "submit", str(world.remote))
    item = str(world.becomes("working")["id"])
    wait_for(lambda: "begins" in ralphctl(world.one, "fleet", "logs", item), what="the output of the ralph")
    return f"h2/{item}"


def events(world: World) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in ralphctl(world.one, "fleet", "events", "--json").splitlines()]


def others(daemon: Daemon) -> list[Mapping[str, Any]]:
    shown = json.loads(ralphctl(daemon, "top", "--json"))
    return [each for each in shown["ralphs"] if "/" in each["name"]]


def test_a_ralph_elsewhere_is_as_one_here(world: World) -> None:
    target = works_on_two(world)
    item = target.partition("/")[2]

    assert ralphctl(world.one, "logs", target, "-n", "1") == ralphctl(world.two, "logs", item, "-n", "1")
    assert ralphctl(world.one, "status", target).startswith(f"{target}  working")
    assert f"ralphctl logs {target}" in ralphctl(world.one, "status", target)
    assert "is running" in ralphctl(world.one, "explain", target)
    assert f"{target}: paused" in ralphctl(world.one, "pause", target)
    assert f"{target}: working" in ralphctl(world.one, "resume", target)
    ralphctl(world.one, "ack", target, code=2)
    ralphctl(world.one, "status", "h2/other", code=4)
    wait_for(lambda: "ralph.resumed" in [each["type"] for each in events(world)], what="its events here")
    of_two = [each["type"] for each in events(world) if each["host"] == "h2"]
    assert of_two[:4] == ["fleet.joined", "item.claimed", "ralph.registered", "ralph.started"]

    (row,) = others(world.one)
    assert (row["name"], row["state"], row.get("as_of")) == (target, "running", None)
    assert f"▸{target}  working" in ralphctl(world.one, "top", "--once")

    for words in (("logs", f"h1/{item}"), ("fleet", "events"), ("status", "h1/other")):
        ralphctl(world.two, *words, code=1)  # this one joined without a role
    world.two.configure("[fleet]\nshare_logs = false\n")
    ralphctl(world.two, "regent", "reload")
    ralphctl(world.one, "logs", target, code=1)


def test_a_person_takes_an_item_of_a_dead_machine(world: World) -> None:
    target = works_on_two(world)
    item = target.partition("/")[2]
    ralphctl(world.one, "fleet", "takeover", item, code=2)
    ralphctl(world.one, "fleet", "takeover", item, "--now", code=1)  # it drains, and the other one answers
    patient = test_fleet.CONFIGURATION.replace("wait_seconds = 2", "wait_seconds = 600")
    world.one.configure(patient.format(folder=world.remote.parent))
    assert [each.get("as_of") for each in others(world.one)] == [None]
    world.two.kill()
    ralphctl(world.one, "logs", target, code=3)
    wait_for(lambda: others(world.one)[0].get("as_of"), what="the age of what is known of it")
    assert (others(world.one)[0]["name"], others(world.one)[0]["state"]) == (target, "running")
    assert "as of " in ralphctl(world.one, "top", "--once")
    world.one.kill()
    world.one.start()  # drains as before, and would not take it over for ten minutes
    ralphctl(world.one, "fleet", "undrain")
    wait_for(lambda: _fits(world), timeout_s=LIMIT_S, what="the machine to take part again")

    assert "on h1" in ralphctl(world.one, "fleet", "takeover", item, "--now")
    ralphctl(world.one, "fleet", "hold", item)
    held = world.becomes("held")
    shown = " ".join(ralphctl(world.one, "fleet", "items").split())
    assert f"{held['why']}; needs you: ralphctl fleet" in shown
    wait_for(
        lambda: "item.held" in [each["type"] for each in events(world)], timeout_s=LIMIT_S, what="its end"
    )


def _fits(world: World) -> bool:
    hosts = json.loads(ralphctl(world.one, "fleet", "status", "--json"))["hosts"]
    return any(each["host"] == "h1" and each["state"] == "up" for each in hosts) and bool(world.items())


def test_an_agent_reaches_a_ralph_elsewhere(world: World) -> None:
    target = works_on_two(world)

    async def session() -> None:
        async with served(world.one, "--allow", "act,start") as client:
            row = await answer(client, "get_status", name=target, explain=True)
            assert (row["name"], row["state"], row["actions"]) == (target, "Running", ["stop", "pause"])
            listed = (await answer(client, "get_status", state="Running"))["ralphs"]
            assert [each["name"] for each in listed] == [target] and "as_of" not in listed[0]
            assert (await answer(client, "get_status", state="Paused"))["ralphs"] == []
            assert "begins" in (await answer(client, "logs", name=target))["lines"]
            cursor = (await answer(client, "wait", name=target, cursor=0))["cursor"]
            assert (await answer(client, "act", name=target, action="pause"))["name"] == target
            paused = await answer(client, "wait", name=target, cursor=cursor, kind="ralph.paused")
            assert paused["events"][0]["host"] == "h2"
            assert paused["actions"] == {target: ["stop", "resume"]}
            refused = await client.call_tool("act", {"name": target, "action": "undo"})
            assert refused.is_error

    anyio.run(session)
