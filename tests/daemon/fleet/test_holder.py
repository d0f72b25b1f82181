"""One item on a host, from claim to end, over real remotes (plan of the fleet, section 11)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.fleet.items import by_person
from ralphd.core.fleet.lease_model import KeySeen, RefSeen, Stage, TakeLease
from ralphd.core.fleet.model import HostName, Item, ItemState, Lease
from ralphd.daemon.fleet.holder import Progress
from ralphd.daemon.fleet.orders import Clocks
from ralphd.errors import WrongState
from ralphd.fleet.fabric import Bucket, HubUnreachable, JsonObject
from tests.daemon.fleet.fleet_world import ITEM, KEY, FleetHost, FleetWorld
from tests.git.fence_world import BRANCH, HEAD_REF, LEASE_REF, environment, world
from tests.helpers import eventually

STALE = f"refs/ralph/stale/{BRANCH}/1"
LEFT = f"refs/ralph/left/{BRANCH}/1"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[FleetWorld]:
    with world(tmp_path, "file") as remote:
        made = FleetWorld(remote)
        yield made
        await made.close()


def taken(fleet: FleetWorld) -> TakeLease:
    """What both witnesses show now."""
    entry = fleet.hub.values[Bucket.LEASES][KEY]
    return TakeLease(
        KeySeen(fleet.key, entry.revision), RefSeen(fleet.ref(), fleet.lease(), fleet.ref(HEAD_REF))
    )


async def take_over(fleet: FleetWorld) -> FleetHost:
    other = await fleet.host("h2")
    other.starts(item=fleet.item, start=taken(fleet))
    await eventually(lambda: "begin" in other.work.calls, what="the other ralph")
    return other


# From claim to end


async def test_an_item_is_claimed_worked_and_done(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    assert (fleet.item.state, fleet.item.holder, fleet.item.token) == (ItemState.WORKING, "h1", 1)
    assert holder.holds(1)
    assert not holder.holds(2)
    head = host.work.commit("two")
    host.work.end(ItemState.DONE, "all tasks are done")

    assert await host.ended() is Stage.RELEASED

    assert fleet.ref(HEAD_REF) == head
    assert (fleet.item.state, fleet.item.holder, fleet.lease().host) == (ItemState.DONE, None, "")
    assert fleet.key is not None
    assert fleet.key.host == ""
    assert [name for name, _ in host.events] == ["item.claimed", "item.done"]
    assert host.event("item.done")["commit"] == head
    assert host.work.calls == ["begin", "forget"]
    assert host.kept is None


async def test_of_two_claimants_one_wins(fleet: FleetWorld) -> None:
    hosts = [await fleet.host(name) for name in ("h1", "h2")]
    for host in hosts:
        host.starts()
    await eventually(lambda: fleet.item.state is ItemState.WORKING, what="a holder")

    winner, loser = sorted(hosts, key=lambda host: host.name != fleet.item.holder)

    assert await loser.ended() is Stage.LOST
    assert loser.holder is not None
    assert loser.holder.why
    assert "begin" not in loser.work.calls
    assert fleet.lease().host == winner.name
    await winner.pushes("one")


async def test_git_decides_between_two_claims(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    fleet.hub.wipe()  # the other sees an empty hub, and the ref before the claim
    other = await fleet.host("h2")
    other.starts(start=TakeLease(KeySeen(None, 0), RefSeen("", None)))

    assert await other.ended() is Stage.LOST

    assert fleet.lease().host == "h1"
    await host.pushes("two")


async def test_an_item_of_another_is_left(fleet: FleetWorld) -> None:
    fleet.set_item(by_person(ITEM, "cancel", "me", 0.0))
    host = await fleet.host("h1")
    host.starts()

    assert await host.ended() is Stage.RELEASED

    assert "begin" not in host.work.calls
    assert fleet.item.state is ItemState.FAILED


async def test_nothing_is_claimed_without_a_clone(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    host.work.fault = "the remote does not answer"
    holder = host.starts()
    await host.ended()

    assert holder.why == "the remote does not answer"
    assert fleet.key is None


async def test_a_drained_host_gives_its_item_back(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    host.work.tree.commit("two")

    holder.drain()
    await host.ended()

    assert host.work.calls[-2:] == ["stop", "forget"], "the iteration is finished first"
    assert fleet.ref(HEAD_REF) == host.work.head
    assert (fleet.item.state, fleet.item.tries, fleet.lease().host) == (ItemState.OPEN, 0, "")
    other = await fleet.host("h2")
    other.starts(item=fleet.item)
    await eventually(lambda: fleet.item.state is ItemState.WORKING, what="the next holder")
    assert other.work.head == host.work.head


# The hub


async def test_a_wiped_hub_gets_its_lease_again(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    fleet.hub.wipe()

    await eventually(lambda: fleet.key, what="the lease in the hub")

    assert fleet.key is not None
    assert (fleet.key.host, fleet.key.token) == ("h1", 1)
    await host.pushes("two")
    host.work.end(ItemState.DONE)
    await host.ended()
    assert fleet.item.state is ItemState.DONE


@pytest.mark.parametrize("copy", ["none", "of another", "before the claim"])
async def test_a_hub_that_forgot_gets_the_end(fleet: FleetWorld, copy: str) -> None:
    """A restarted daemon is drained before it has seen the item in the hub."""
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    other = await take_over(fleet)
    await other.crashes()
    stale = replace(ITEM, state=ItemState.CLAIMED, holder=HostName("h1"), token=1)
    fleet.hub.wipe()
    if copy != "none":
        fleet.set_item(stale if copy == "of another" else ITEM)

    (await other.resumes()).drain()
    await other.ended()

    assert (fleet.item.state, fleet.item.holder, fleet.item.token) == (ItemState.OPEN, None, 2)
    assert fleet.lease().host == ""


@pytest.mark.parametrize("end", [ItemState.HELD, ItemState.DONE, None])
async def test_an_end_says_what_is_finished(
    fleet: FleetWorld, end: ItemState | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await fleet.host("h1")
    holder, update = await host.works(), host.fabric.update

    async def missed(bucket: Bucket, key: str, value: JsonObject, *, revision: int) -> int:
        if value.get("state") == "landing":
            raise HubUnreachable("no answer")
        return await update(bucket, key, value, revision=revision)

    monkeypatch.setattr(host.fabric, "update", missed)
    head = host.work.commit("two")
    host.work.news.put_nowait(Progress(head, ItemState.LANDING))
    await host.pushed(head)
    if end is None:
        holder.drain()
    else:
        host.work.news.put_nowait(Progress(head, end, "as it is", head))

    assert await host.ended() is Stage.RELEASED

    assert (fleet.item.state, fleet.item.finished) == (end or ItemState.OPEN, head)


async def test_a_finished_item_stays_so_before_it_lands(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    head = await host.pushes("two")
    host.work.news.put_nowait(Progress(head, ItemState.LANDING))
    await eventually(lambda: fleet.item.state is ItemState.LANDING, what="the item lands")
    await host.crashes()

    other = await take_over(fleet)
    await other.crashes()

    assert fleet.item.finished == head


async def test_pushes_continue_without_the_hub(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    fleet.hub.cut("h1")

    await host.pushes("two")
    before = fleet.lease().n

    await eventually(lambda: fleet.lease().n > before + 1, timeout_s=30.0, what="a bump")
    assert fleet.lease().pushed == host.work.head


async def test_a_lost_answer_of_a_renewal_is_harmless(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    fleet.hub.answers_to_lose = 1
    await eventually(lambda: not fleet.hub.answers_to_lose, what="a renewal without an answer")
    revision = fleet.hub.values[Bucket.LEASES][KEY].revision

    await eventually(lambda: fleet.hub.values[Bucket.LEASES][KEY].revision > revision, what="a renewal")

    assert holder.holds(1)


async def test_lost_answers_do_not_hinder_a_claim(fleet: FleetWorld) -> None:
    fleet.hub.answers_to_lose = 2  # of the key, and of the item or a renewal
    host = await fleet.host("h1")
    await host.works()

    await eventually(lambda: fleet.item.state is ItemState.WORKING, what="the item")

    assert fleet.item.holder == "h1"


# Another holder


async def test_a_frozen_host_is_fenced(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()  # frozen: its clone and its record remain
    other = await take_over(fleet)
    assert other.work.head == fleet.ref(HEAD_REF)
    assert "h1" in other.work.notes[0]
    assert (fleet.item.tries, fleet.item.token, fleet.item.holder) == (1, 2, "h2")
    assert other.event("item.taken_over")["previous"] == "h1"

    await host.resumes()
    late = host.work.commit("late")

    assert await host.ended() is Stage.FENCED
    assert fleet.ref(STALE) == late
    fenced = host.event("fleet.fenced")
    assert (fenced["by"], fenced["refs"]) == ("h2", (STALE,))
    assert host.work.calls[-2:] == ["stop now", "forget"]
    assert host.kept is None
    await other.pushes("two")


async def test_a_push_after_a_takeover_is_fenced(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    fleet.hub.cut("h1")
    await take_over(fleet)

    late = host.work.commit("late")

    assert await host.ended() is Stage.FENCED
    assert fleet.ref(STALE) == late
    assert fleet.ref(HEAD_REF) != late
    assert fleet.item.holder == "h2"


async def test_a_host_without_hub_and_git_is_fenced(fleet: FleetWorld) -> None:
    """Row 14."""
    host = await fleet.host("h1")
    holder = await host.works()
    fleet.hub.cut("h1")
    fence = host.work.fence
    host.work.fence = holder.fence = replace(fence, url=f"{fence.url}-is-away")
    late = host.work.commit("late")
    await eventually(lambda: holder.problem, timeout_s=30.0, what="a push without an answer")
    other = await take_over(fleet)
    assert holder.hold.is_active

    host.work.fence = holder.fence = fence
    fleet.hub.heal("h1")

    assert await host.ended() is Stage.FENCED
    assert (fleet.ref(STALE), fleet.item.holder) == (late, "h2")
    await other.pushes("two")


async def test_unsaved_work_is_not_forgotten(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    fleet.hub.cut("h1")
    await take_over(fleet)
    fleet.remote.hook("update", "#!/bin/sh\ncase $1 in refs/ralph/stale/*) exit 1;; esac\n")
    host.work.commit("late")

    assert await host.ended() is Stage.FENCED

    assert not host.event("fleet.fenced")["is_saved"]
    assert "forget" not in host.work.calls
    assert host.kept is not None


# What people do


async def test_a_force_push_holds_the_item(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    theirs = await asyncio.to_thread(fleet.move_branch, "by a person")
    mine = host.work.commit("two")

    assert await host.ended() is Stage.RELEASED

    assert (fleet.ref(HEAD_REF), fleet.ref(LEFT)) == (theirs, mine)
    assert fleet.item.state is ItemState.HELD
    assert BRANCH in fleet.item.why
    assert "stop now" in host.work.calls
    assert host.event("item.held")["refs"] == (LEFT,)


async def test_a_deleted_lease_ref_is_set_again(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    fleet.remote.bare.git("update-ref", "-d", LEASE_REF)

    await host.pushes("two")

    assert fleet.lease().host == "h1"
    assert holder.holds(1)


async def test_a_reset_in_the_clone_holds_the_item(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    pushed = fleet.ref(HEAD_REF)
    host.work.tree.git("reset", "--quiet", "--hard", "HEAD~1")
    other = host.work.commit("another way")

    assert await host.ended() is Stage.RELEASED

    assert (fleet.ref(HEAD_REF), fleet.ref(LEFT)) == (pushed, other)
    assert fleet.item.state is ItemState.HELD
    assert host.event("item.held")["why"].startswith("HEAD does not contain")


@pytest.mark.parametrize(("verb", "state"), [("stop", ItemState.HELD), ("cancel", ItemState.FAILED)])
async def test_a_person_stops_the_item(fleet: FleetWorld, verb: str, state: ItemState) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    await eventually(lambda: fleet.item.state is ItemState.WORKING, what="the item")
    host.work.tree.commit("two")
    fleet.set_item(by_person(fleet.item, verb, "me", 0.0))

    await holder.want(fleet.item)

    assert await host.ended() is Stage.RELEASED
    assert fleet.item.state is state
    assert fleet.ref(HEAD_REF) == host.work.head
    assert host.work.calls == ["begin", "stop" if verb == "stop" else "stop now"]


@pytest.mark.parametrize("first", ["drain", "hold"])
async def test_a_cancel_does_not_wait_for_the_iteration(fleet: FleetWorld, first: str) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    await eventually(lambda: fleet.item.state is ItemState.WORKING, what="the item")
    host.work.is_between.clear()
    if first == "drain":
        holder.drain()
    else:
        fleet.set_item(by_person(fleet.item, "hold", "me", 0.0))
        await holder.want(fleet.item)
    await eventually(lambda: host.work.calls[-1] == "stop", what="the stop after the iteration")

    fleet.set_item(by_person(fleet.item, "cancel", "me", 0.0))
    await holder.want(fleet.item)

    assert await host.ended() is Stage.RELEASED
    assert host.work.calls[-1] == "stop now"
    assert fleet.item.state is ItemState.FAILED


async def test_who_is_replaced_does_not_finish_an_iteration(fleet: FleetWorld) -> None:
    """It was drained, and frozen until another machine had the item."""
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    host.work.is_between.clear()
    other = await take_over(fleet)

    (await host.resumes()).drain()

    assert await host.ended() is Stage.FENCED
    assert "stop now" in host.work.calls
    await other.pushes("two")


async def test_a_person_pauses_and_resumes(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    item: Item = replace(fleet.item, goal="paused")

    await holder.want(item)
    assert host.work.calls[-1] == "pause"
    await holder.want(item)
    await holder.want(replace(item, goal="running"))

    assert host.work.calls == ["begin", "pause", "resume"]


async def test_a_paused_item_waits_for_its_person(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    fleet.set_item(replace(fleet.item, goal="paused"))
    other = await fleet.host("h2")
    holder = other.starts(item=fleet.item, start=taken(fleet))
    await eventually(lambda: fleet.item.holder == "h2", what="the takeover")
    await eventually(other.has("item.taken_over"), what="the event")
    assert "begin" not in other.work.calls

    fleet.set_item(by_person(fleet.item, "resume", "me", 0.0))
    await holder.want(fleet.item)

    await eventually(lambda: "begin" in other.work.calls, what="the ralph")
    assert "pause" not in other.work.calls


async def test_a_ralph_that_cannot_start_releases(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    host.work.begin_fault = "no agent is installed"
    host.starts()

    assert await host.ended() is Stage.RELEASED

    assert (fleet.item.state, fleet.item.tries, fleet.ref(HEAD_REF)) == (ItemState.OPEN, 1, "")
    assert fleet.item.last is not None
    assert fleet.item.last.why == "no agent is installed"


async def test_a_wrong_clock_decides_nothing(fleet: FleetWorld) -> None:
    """Row 21: its wall clock is wrong by days, in both directions."""
    host, wall = await fleet.host("h1"), [1e6]
    holder = host.starts(clocks=Clocks(wall=lambda: wall[0]))
    await eventually(lambda: "begin" in host.work.calls, what="the ralph")
    await host.pushes("one")
    wall[0] = 5e9
    before = holder.hold.renewed_at
    await eventually(lambda: holder.hold.renewed_at > before, timeout_s=30.0, what="a renewal")
    await host.pushes("two")
    wall[0] = 1.0
    await host.pushes("three")
    assert (fleet.lease().token, fleet.lease().at) == (1, 1.0)
    assert host.work.calls == ["begin"]


async def test_a_remote_that_is_away_is_named(fleet: FleetWorld) -> None:
    """Row 13: what waits is pushed when git is back."""
    host = await fleet.host("h1")
    holder = await host.works()
    away = fleet.remote.bare.path.with_suffix(".away")
    fleet.remote.bare.path.rename(away)
    head = host.work.commit("two")
    await eventually(lambda: holder.problem, timeout_s=30.0, what="the problem")
    assert "does not appear to be a git repository" in holder.problem or "not exist" in holder.problem
    away.rename(fleet.remote.bare.path)
    await host.pushed(head)
    assert holder.problem == ""


async def test_a_long_outage_pauses_the_ralph(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    host.rules = replace(host.rules, max_offline_s=0.8)
    await host.works()
    fleet.hub.cut("h1")
    await eventually(lambda: "pause" in host.work.calls, timeout_s=30.0, what="the pause")

    fleet.hub.heal()

    await eventually(lambda: host.work.calls[-1] == "resume", timeout_s=30.0, what="the resume")


async def test_after_a_sleep_a_ralph_waits_for_git(fleet: FleetWorld) -> None:
    """Row 11: a laptop slept for a night, and git does not answer at once."""
    host, slept_s = await fleet.host("h1"), [0.0]
    holder = host.starts(clocks=Clocks(boottime=lambda: slept_s[0]))
    await eventually(lambda: "begin" in host.work.calls, what="the ralph")
    await host.pushes("one")
    away = fleet.remote.bare.path.with_suffix(".away")
    fleet.remote.bare.path.rename(away)

    slept_s[0] = 8 * 3600.0
    await eventually(lambda: "pause" in host.work.calls, timeout_s=30.0, what="the pause")
    assert not holder.hold.may_attempt
    away.rename(fleet.remote.bare.path)

    await eventually(lambda: host.work.calls[-1] == "resume", timeout_s=30.0, what="the resume")
    assert holder.hold.may_attempt


async def test_a_pause_that_is_refused_ends_nothing(
    fleet: FleetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await fleet.host("h1")
    await host.works()

    async def refuse() -> None:
        host.work.calls.append("refused")
        raise WrongState("it is done: there is nothing to pause")

    monkeypatch.setattr(host.work, "pause", refuse)
    fleet.set_item(by_person(fleet.item, "pause", "me", 0.0))
    assert host.holder is not None
    await host.holder.want(fleet.item)

    assert "refused" in host.work.calls
    host.work.end(ItemState.DONE)
    assert await host.ended() is Stage.RELEASED


async def test_a_push_without_answer_is_not_repeated(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = await host.works()
    host.work.fence = replace(host.work.fence, environment=environment("after"))
    before = holder.hold.n

    head = await host.pushes("two")

    assert fleet.lease().pushed == head
    assert holder.hold.n == fleet.lease().n == before + 1
    host.work.end(ItemState.FAILED, "the checks fail")
    assert await host.ended() is Stage.RELEASED
    assert (fleet.item.state, fleet.item.why) == (ItemState.FAILED, "the checks fail")


# The daemon


async def test_a_restarted_daemon_continues_its_lease(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    head = host.work.commit("two")

    holder = await host.resumes()
    await host.pushed(head)

    assert holder.holds(1)
    assert (fleet.lease().token, fleet.ref(HEAD_REF), fleet.item.tries) == (1, head, 0)
    assert host.work.head == head


async def test_a_drain_waits_until_git_is_back(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    host.work.fault = "the remote does not answer"
    away = fleet.remote.bare.path.with_suffix(".away")
    fleet.remote.bare.path.rename(away)

    holder = await host.resumes()
    holder.drain()
    await eventually(lambda: holder.problem and "stop" in host.work.calls, what="its problem")

    assert holder.holds(1)
    away.rename(fleet.remote.bare.path)
    assert await host.ended() is Stage.RELEASED
    assert (fleet.item.state, holder.problem, holder.why) == (ItemState.OPEN, "", "")
    assert "stop" in host.work.calls, "what runs does not stay without a holder"


@pytest.mark.parametrize(("verb", "state"), [("cancel", ItemState.FAILED), ("hold", ItemState.HELD)])
async def test_a_person_stops_what_cannot_be_fetched(fleet: FleetWorld, verb: str, state: ItemState) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    host.work.fault = "the disk is full"
    holder = await host.resumes()
    await eventually(lambda: holder.problem == host.work.fault, what="the problem")

    fleet.set_item(by_person(fleet.item, verb, "me", 0.0))
    await holder.want(fleet.item)

    assert await host.ended() is Stage.RELEASED
    assert (fleet.item.state, host.kept) == (state, None)
    assert {"stop", "stop now"} & {*host.work.calls}


async def test_a_restart_needs_no_hub(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    await host.works()
    await host.crashes()
    fleet.hub.cut("h1")
    head = host.work.commit("two")

    await host.resumes()

    await host.pushed(head)


async def test_a_recorded_lease_is_held_at_once(fleet: FleetWorld) -> None:
    host = await fleet.host("h1")
    holder = host.starts(start=Lease(HostName("h1"), "boot", 7, n=3, item=ITEM.id))

    assert holder.holds(7)
