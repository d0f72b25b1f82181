"""Items of two machines land on one branch, in turn, and only what is tested (plan of the fleet, 5.4)."""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.fleet.items import by_person
from ralphd.core.fleet.model import HostName, ItemId, ItemState, Lease
from ralphd.core.fleet.names import lease_key, repo_id
from ralphd.daemon.fleet.fleet import remote_fence
from ralphd.daemon.fleet.landing import TargetLease
from ralphd.errors import NotLandable
from ralphd.git.fence.fence import Claimed, Pushed
from tests.daemon.fleet.landing_world import BASE_LEASE, COMMIT, LIMIT_S, LandingWorld, Machine, machines
from tests.helpers import eventually

ONE, TWO = "i-aaaa", "i-bbbb"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    place = Path(tempfile.mkdtemp(prefix="fl-"))  # short: a socket is in it
    (place / "home").mkdir()
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return LandingWorld(place)


@pytest.fixture
async def pair(world: LandingWorld) -> AsyncIterator[list[Machine]]:
    async with machines(world, "h1", "h2") as made:
        yield made


async def test_two_items_of_two_machines_land(world: LandingWorld, pair: list[Machine]) -> None:
    for machine, name in zip(pair, (ONE, TWO), strict=True):
        machine.starts(world.item(name, COMMIT.format(text=name, file=name)))

    items = [await world.becomes(name, "done", "held", "failed") for name in (ONE, TWO)]

    assert [item.state for item in items] == ["done", "done"], items
    assert {ONE, TWO} <= world.files()
    assert len(world.tips()) == 2
    assert [item.last and item.last.commit in world.tips() for item in items] == [True, True]
    world.check()


async def is_testing(world: LandingWorld, machine: Machine, name: str = ONE) -> None:
    """Have an item of a machine be tested, for as long as the file ``slow`` is there."""
    (world.place / "slow").touch()
    machine.starts(world.item(name, COMMIT.format(text=name, file=name)))
    await eventually((world.place / "began").exists, timeout_s=LIMIT_S, what="the tests")


def doing(machine: Machine) -> str:
    """What the landing queue of a machine does."""
    return next((view["batch"]["doing"] for view in machine.host.landing.views() if view["batch"]), "")


def fast(world: LandingWorld) -> None:
    (world.place / "slow").unlink()


async def given_back(machine: Machine, name: str = ONE) -> None:
    """Wait until the lease of an item is free: its item is written before."""
    holder = machine.holders[name]
    await eventually(lambda: not holder.hold.is_active, timeout_s=LIMIT_S, what="the lease of the item")


async def test_an_item_that_lands_shows_it(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])

    item = world.present(ONE)
    assert (item.state, item.holder) == (ItemState.LANDING, "h1")
    assert item.finished == world.bare.git("rev-parse", item.branch).strip(), "pushed before it lands"
    assert world.base_lease().host == "h1"

    fast(world)
    item = await world.becomes(ONE, "done")
    tip = world.bare.git("rev-parse", "main").strip()
    assert item.last is not None
    assert (item.last.commit, item.why) == (tip, f"landed on main as {tip[:7]}")
    await eventually(lambda: world.base_lease().host == "", what="the lease of main is given back")


async def test_a_machine_waits_for_its_turn(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    pair[1].starts(world.item(TWO, COMMIT.format(text=TWO, file=TWO)))
    await world.becomes(TWO, "landing")
    await asyncio.sleep(4 * pair[1].landings._rules.lease_s)  # longer than a takeover of a silent lease

    assert world.base_lease().host == "h1"
    assert (doing(pair[1]), world.present(TWO).state) == ("", ItemState.LANDING)

    fast(world)
    await world.becomes(TWO, "done")
    assert {ONE, TWO} <= world.files()
    world.check()


async def test_another_base_waits_for_the_queue(world: LandingWorld, pair: list[Machine]) -> None:
    world.person.git("push", "-q", "origin", "HEAD:dev")
    await is_testing(world, pair[0])
    item = replace(world.item(TWO, COMMIT.format(text=TWO, file=TWO)), base="dev")
    world.set_item(item)
    pair[0].starts(item)
    await world.becomes(TWO, "working")
    fast(world)

    await world.becomes(ONE, "done")
    await world.becomes(TWO, "done")

    files = world.bare.git("ls-tree", "--name-only", "dev").split()
    assert (TWO in files, ONE in files, TWO in world.files()) == (True, False, False)
    world.check()


async def test_a_push_of_a_person_is_tested_too(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    theirs = world.pushes("of a person")
    fast(world)

    await world.becomes(ONE, "done")

    assert world.bare.git("rev-parse", "main^1").strip() == theirs
    assert {ONE, "of-a-person"} <= world.files()
    world.check()


async def test_red_tests_hold_an_item_without_loop(world: LandingWorld, pair: list[Machine]) -> None:
    before = world.bare.git("rev-parse", "main")
    pair[0].starts(world.item(ONE, COMMIT.format(text="x", file="bad")))

    item = await world.becomes(ONE, "held", "done")

    assert item.state is ItemState.HELD
    assert "does not land on main: the tests fail on top of" in item.why
    assert world.bare.git("rev-parse", "main") == before


async def test_a_conflict_holds_until_it_is_solved(world: LandingWorld, pair: list[Machine]) -> None:
    script = COMMIT.format(text=ONE, file="same")
    (world.place / "wait").touch()
    pair[0].starts(world.item(ONE, script + f"while [ -e {world.place}/wait ]; do sleep 0.05; done"))
    await world.becomes(ONE, "working")
    (world.person.path / "same").write_text("theirs")
    world.pushes("same")
    (world.place / "wait").unlink()

    item = await world.becomes(ONE, "held", "done")
    assert item.state is ItemState.HELD
    assert "conflict" in item.why

    world.person.git("rm", "-q", "same")
    world.person.git("commit", "-q", "-m", "removed")
    world.person.git("push", "-q", "origin", "HEAD:main")
    await given_back(pair[0])
    world.set_item(by_person(item, "release", "me", 0.0))
    pair[1].starts(world.present(ONE))  # its branch is finished: only the landing is left
    await world.becomes(ONE, "done")
    assert "same" in world.files()
    assert world.runs() == 1
    world.check()


async def test_a_loop_repairs_what_does_not_land(world: LandingWorld, pair: list[Machine]) -> None:
    world.loops(f"""
        if [ -e same ]; then
            git fetch -q origin && git merge -q -X ours -m merged origin/main || exit 1
        else
            echo mine > same; git add same
        fi
        sed -i 's/- \\[ \\]/- [x]/' TASKS.md
        git commit -qam step
        echo well
        while [ -e {world.place}/wait ]; do sleep 0.05; done
        """)
    (world.place / "wait").touch()
    pair[0].starts(world.item(ONE, ""))
    await world.becomes(ONE, "working")
    world.pushes("same")
    (world.place / "wait").unlink()

    item = await world.becomes(ONE, "done", "held")

    assert item.state is ItemState.DONE, item
    assert world.bare.git("show", "main:same").strip() == "mine"
    world.check()


# Machines that die


async def test_a_dead_machine_leaves_its_turn(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    await pair[0].crashes()
    fast(world)

    await pair[1].takes_over(world.present(ONE))
    item = await world.becomes(ONE, "done")

    assert item.last is not None
    assert (item.last.host, world.tips()) == ("h2", [item.last.commit])
    assert world.base_lease().token == 2
    assert world.runs() == 1
    world.check()


async def test_what_arrived_lands_once(
    world: LandingWorld, pair: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, killed, push = threading.Event(), threading.Event(), TargetLease.push

    def last_push(self: TargetLease, old: str, new: str) -> str | None:
        why = push(self, old, new)
        if self.host == "h1":
            arrived.set()
            killed.wait(60)
        return why

    monkeypatch.setattr(TargetLease, "push", last_push)
    pair[0].starts(world.item(ONE, COMMIT.format(text=ONE, file=ONE)))
    try:
        await eventually(arrived.is_set, timeout_s=LIMIT_S, what="the push")
        await pair[0].crashes()
        await pair[1].takes_over(world.present(ONE))
        item = await world.becomes(ONE, "done")
    finally:
        killed.set()

    assert item.why == "main has all of ralph/i-aaaa already"
    assert (len(world.tips()), world.runs()) == (1, 1)
    world.check()


async def test_a_machine_that_was_replaced_lands_nothing(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    world.hub.cut("h1")
    fence = await asyncio.to_thread(remote_fence, world.place, world.target)
    lease = Lease(HostName("h9"), "boot", 2, item=ItemId(TWO))

    def claim() -> Claimed | None:  # h1 moves its lease now and then
        state = fence.claim("main", lease, world.bare.git("rev-parse", BASE_LEASE).strip())
        return state if isinstance(state, Claimed) else None

    claimed = await eventually(claim, timeout_s=LIMIT_S, what="the claim of another")
    assert claimed is not None
    fast(world)
    await eventually(lambda: world.green(), timeout_s=LIMIT_S, what="green tests")
    key = lease_key(repo_id(world.url), "main")
    await eventually(lambda: not pair[0].landings.holds(key, 1), timeout_s=LIMIT_S, what="the refusal")
    assert (world.tips(), world.base_lease().host) == ([], "h9")

    assert isinstance(fence.release("main", lease, claimed.sha), Pushed)
    world.hub.heal()
    await world.becomes(ONE, "done")
    assert world.base_lease().token == 3
    world.check()


# What does not land


async def test_a_remote_that_refuses_says_so(world: LandingWorld, pair: list[Machine]) -> None:
    hook = world.bare.path / "hooks" / "update"
    hook.write_text('#!/bin/sh\n[ "$1" != refs/heads/main ] || { echo main is protected >&2; exit 1; }\n')
    hook.chmod(0o755)
    pair[0].starts(world.item(ONE, COMMIT.format(text=ONE, file=ONE)))

    await eventually(lambda: "protected" in world.present(ONE).why, timeout_s=LIMIT_S, what="the reason")

    assert world.present(ONE).state is ItemState.LANDING
    await eventually(lambda: world.base_lease().host == "", timeout_s=LIMIT_S, what="the turn of others")
    assert world.tips() == []


async def test_an_item_on_hold_is_recalled(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    world.set_item(by_person(world.present(ONE), "hold", "me", 0.0))
    await pair[0].holders[ONE].want(world.present(ONE))

    await world.becomes(ONE, "held")
    fast(world)
    await eventually(lambda: world.base_lease().host == "", timeout_s=LIMIT_S, what="the end of the tests")
    assert world.tips() == []


async def test_a_drained_machine_leaves_the_landing(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    pair[0].holders[ONE].drain()
    item = await world.becomes(ONE, "open")
    await given_back(pair[0])
    pair[1].starts(item)  # its ralph is there, and does not run
    await eventually(lambda: doing(pair[1]) == "testing", timeout_s=LIMIT_S, what="the tests")
    pair[1].holders[ONE].drain()
    item = await world.becomes(ONE, "open")
    await given_back(pair[1])
    fast(world)

    pair[0].starts(item)
    item = await world.becomes(ONE, "done")

    assert item.last is not None
    assert (item.last.host, world.tips(), world.runs()) == ("h1", [item.last.commit], 1)
    world.check()


async def test_rules_land_when_a_person_says_so(world: LandingWorld, pair: list[Machine]) -> None:
    pair[0].starts(world.item(ONE, "mkdir .github; " + COMMIT.format(text=ONE, file=".github/ci")))
    item = await world.becomes(ONE, "held", "done")
    assert item.why == "does not land on main: it changes .github/ci: land it yourself"

    with pytest.raises(NotLandable) as refusal:
        await pair[0].host.landing.land(ONE, None, publishes=True)
    assert refusal.value.mend == "open the pull request from ralph/i-aaaa"
    await pair[0].host.landing.land(ONE, None, publishes=False)
    await eventually(lambda: len(world.tips()) == 1, timeout_s=LIMIT_S, what="the landing")

    await given_back(pair[0])
    world.set_item(by_person(item, "release", "me", 0.0))
    pair[1].starts(world.present(ONE))
    item = await world.becomes(ONE, "done")
    assert (item.why, world.runs()) == ("main has all of ralph/i-aaaa already", 1)
    world.check()


async def test_a_base_without_tests_holds_an_item(world: LandingWorld, pair: list[Machine]) -> None:
    world.configure('mode = "auto"', tests="")
    world.person.commit("no tests")
    world.person.git("push", "-q", "origin", "HEAD:main")
    pair[0].starts(world.item(ONE, COMMIT.format(text=ONE, file=ONE)))

    item = await world.becomes(ONE, "held", "done")

    assert "main has no tests: nothing lands untested" in item.why


async def test_without_mode_an_item_is_done_when_pushed(world: LandingWorld, pair: list[Machine]) -> None:
    world.configure('mode = "branch"')
    world.person.commit("a pull request lands it")
    world.person.git("push", "-q", "origin", "HEAD:main")
    (world.place / "wait").touch()
    script = COMMIT.format(text=ONE, file=ONE) + f"while [ -e {world.place}/wait ]; do sleep 0.05; done"
    pair[0].starts(world.item(ONE, script))
    await world.becomes(ONE, "working")
    with pytest.raises(NotLandable, match="cannot land") as refusal:
        await pair[0].host.landing.land(ONE, None, publishes=False)
    assert "its fleet pushes main" in refusal.value.why
    (world.place / "wait").unlink()

    item = await world.becomes(ONE, "done")

    assert item.last is not None
    assert item.last.commit == world.bare.git("rev-parse", item.branch).strip()
    assert (item.finished, BASE_LEASE in world.bare.git("for-each-ref")) == ("", False)


async def test_a_pause_does_not_stop_a_landing(world: LandingWorld, pair: list[Machine]) -> None:
    await is_testing(world, pair[0])
    world.set_item(by_person(world.present(ONE), "pause", "me", 0.0))
    await pair[0].holders[ONE].want(world.present(ONE))
    fast(world)

    await world.becomes(ONE, "done")

    world.check()
