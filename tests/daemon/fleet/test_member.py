"""A machine in its fleet: its record, claims, requests of people. The engine is the one in memory."""

import asyncio
import math
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ralphd.config.specs import AccountsSpec, FleetSpec
from ralphd.core.fleet import fit
from ralphd.core.fleet.checked import MOST_ENTRIES, write_value
from ralphd.core.fleet.items import KEPT_S
from ralphd.core.fleet.lease_model import KeySeen, LeaseRules, RefSeen, TakeLease
from ralphd.core.fleet.model import (
    HostName,
    HostRecord,
    Item,
    ItemId,
    ItemState,
    Lease,
    LeaseForm,
    Need,
    Want,
)
from ralphd.core.fleet.names import lease_key, repo_id, want_key
from ralphd.daemon.fleet import joined
from ralphd.daemon.fleet import member as members
from ralphd.daemon.fleet.control import Control
from ralphd.daemon.fleet.fleet import Fleet, remote_fence
from ralphd.daemon.fleet.member import Member
from ralphd.daemon.fleet.sharing.events import EventSender
from ralphd.daemon.fleet.watcher import Watcher
from ralphd.daemon.services import EventPublisher, Services
from ralphd.errors import HubSilent, NotFound, UnknownRalph, UsageError, WrongState
from ralphd.fleet.fabric import Bucket, HubUnreachable
from ralphd.git.fence.fence import Usable
from ralphd.git.fence.lease_ref import LeaseState
from ralphd.notify.hub import Hub
from ralphd.process.log.log import RalphLog
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.helpers import eventually

REFUSES_CUSTOM_REFS = "#!/bin/sh\ncase $1 in refs/heads/*) ;; *) exit 1;; esac\n"
REFUSES_ALL = "#!/bin/sh\nexit 1\n"
REPO = "https://example.com/team/app.git"
ITEM = Item(ItemId("i-aaaa"), REPO, "main", "ralph/i-aaaa")


@dataclass
class Holder:
    """What a machine does with an item, as far as the member sees it."""

    item: Item
    start: object = None
    token: int = 7
    wanted: list[Item] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        if self.fails:
            raise OSError("a bug")
        await self.ended.wait()

    lease: Lease | None = None
    why: str = ""
    problem: str = ""
    fails: bool = False

    def drain(self) -> None:
        self.ended.set()

    async def want(self, item: Item) -> None:
        self.wanted.append(item)

    def holds(self, token: int) -> bool:
        return token == self.token


@dataclass
class Ralphs:
    """The ralphs of a machine."""

    runs: Path
    unknown: str = ""
    orders: list[tuple[str, str]] = field(default_factory=list)

    async def view_bytes(self, name: str) -> bytes:
        if name == self.unknown:
            raise UnknownRalph(f"there is no ralph {name!r}")
        return b'{"name": "%s", "state": "running"}' % name.encode()

    async def order(self, name: str, verb: str) -> bytes:
        self.orders.append((name, verb))
        return await self.view_bytes(name)

    async def explain(self, name: str) -> dict[str, Any]:
        return {"because": f"{name} is idle"}

    def log(self, name: str) -> RalphLog:
        return RalphLog(self.runs)

    def ended(self, name: str) -> Callable[[], bool]:
        return lambda: True


@dataclass
class Machine:
    member: Member
    fleet: Fleet
    ralphs: Ralphs
    events: EventStore
    held: list[Holder]

    @property
    def told(self) -> Counter[str]:
        return self.member.services.news.told


@asynccontextmanager
async def a_machine(
    hub: MemoryHub, state: Path, name: str, *, boot: str = "b1", **spec: Any
) -> AsyncIterator[Machine]:
    state = state / name / boot
    state.mkdir(parents=True, exist_ok=True)
    events = await EventStore.open(state / "events.db")
    clock, ralphs, held = Clock(), Ralphs(state / "runs"), list[Holder]()
    services = Services(state, state / "sock", 0o077, clock, EventPublisher(events, Hub(), clock))
    own = FleetSpec(allow_repos=("*",), slots=1, **spec)

    def hold(item: Item, start: object) -> Holder:
        held.append(Holder(item, start))
        return held[-1]

    member = Member(
        HostName(name), boot, MemoryFabric(hub, name), services, lambda: own, AccountsSpec, state, list, hold
    )
    trouble = services.trouble
    sender = EventSender(member.fabric, events, state / "sent.json", lambda: own.share_events, trouble)
    fleet = Fleet(member, Control(member, ralphs, state / "wants.json"), sender)
    running = asyncio.create_task(fleet.run())
    try:
        yield Machine(member, fleet, ralphs, events, held)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await events.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "TURN_S", 0.02)
    monkeypatch.setattr(fit, "LONGEST_DELAY_S", 0.02)
    monkeypatch.setattr(fit, "RANDOM_DELAY_S", 0.02)


async def put(hub: MemoryHub, bucket: Bucket, key: str, value: Any) -> None:
    writer = MemoryFabric(hub, "writer")
    await writer.connect()
    await writer.put(bucket, key, write_value(value))
    await writer.close()


async def test_a_machine_describes_itself(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1", labels=("docker",)) as one:
        host = await eventually(lambda: one.fleet.view()["hosts"])
        assert [each["host"] for each in host] == ["h1"]
        assert (host[0]["state"], host[0]["labels"], host[0]["slots"]) == ("up", ["docker"], 1)
        assert await eventually(lambda: one.told["fleet.joined"]) == 1


async def test_what_is_not_shared_is_read_only_here(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2", share_logs=False) as two:
        await eventually(lambda: len(one.member.picture.hosts) == len(two.member.picture.hosts) == 2)
        for read in (one.fleet.explain("h2", "api"), one.fleet.log("h2", "api").check()):
            with pytest.raises(WrongState, match="h2 shows no output"):
                await read
        assert await two.fleet.explain("h2", "api") == {"because": "api is idle"}
        await two.fleet.log("h2", "api").check()
        await two.fleet.log("h1", "api").check()


async def test_a_person_is_told_why_nothing_is_seen(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        async with a_machine(hub, tmp_path, "h2") as two:
            await eventually(lambda: len(one.member.picture.hosts) == 2)
            two.ralphs.unknown = "other"
            with pytest.raises(UnknownRalph, match="h2: there is no ralph 'other'"):
                await one.fleet.ralph("h2", "other")
            await put(
                hub, Bucket.ITEMS, ITEM.id, replace(ITEM, state=ItemState.WORKING, holder=HostName("h2"))
            )
            await eventually(lambda: one.member.picture.items)
        with pytest.raises(HubSilent, match=r"^h2 is silent since \d\d:\d\d \(under a minute\)") as absent:
            await one.fleet.ralph("h2", "api")
        assert absent.value.why.splitlines() == ["its ralphs then: none", "it still has i-aaaa (working)"]
        hub.cut("h1")
        with pytest.raises(HubSilent, match="the hub is unreachable, and h2 with it"):
            await one.fleet.ralph("h2", "api")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, "i-aaaa is open: no machine has it"),
        ({"state": ItemState.WORKING, "holder": "h1"}, "this machine has i-aaaa"),
        ({"state": ItemState.WORKING, "holder": "h2", "need": Need(("gpu",))}, "needs label gpu"),
        ({"state": ItemState.WORKING, "holder": "h2"}, "no lease of it is known"),
    ],
)
async def test_a_takeover_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], why: str
) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        unused: Any = None
        one.member.watcher = Watcher(
            HostName("h1"), one.member.fabric, LeaseRules(), fits=lambda key, item: True, take=unused,
            fence_of=unused, report=unused,
        )  # fmt: skip
        monkeypatch.setattr(one.member.watcher, "missed", lambda *lease: None)  # else known after a turn
        await eventually(lambda: one.fleet.view()["hosts"])
        await put(hub, Bucket.ITEMS, ITEM.id, replace(ITEM, not_before=9e9, **change))
        await eventually(lambda: one.member.picture.items)
        with pytest.raises(WrongState) as refused:
            await one.fleet.take_over(ITEM.id, "me")
        assert why in str(refused.value)


async def test_an_open_item_is_taken_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        assert await eventually(lambda: one.held)
        assert (one.held[0].item, len(one.held)) == (ITEM, 1)
        await eventually(lambda: one.fleet.view()["hosts"][0]["used"] == 1)


async def test_a_machine_alone_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "LONGEST_DELAY_S", 1000.0)
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2", labels=("x",)) as two:
        await eventually(lambda: len(one.member.picture.hosts) == len(two.member.picture.hosts) == 2)
        await put(hub, Bucket.ITEMS, ITEM.id, replace(ITEM, need=Need(labels=("x",))))
        await eventually(lambda: two.held)
        assert one.held == []


async def test_a_machine_that_does_not_fit_says_why(tmp_path: Path) -> None:
    hub = MemoryHub()
    needs = replace(ITEM, need=Need(labels=("gpu",)))
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, needs)
        await eventually(lambda: one.member.picture.items and one.member.picture.hosts)
        explained = one.member.picture.explained(ITEM.id)
        assert explained["hosts"][0]["misfits"] == ["needs label gpu; it has none"]
        assert one.held == []
        with pytest.raises(NotFound):
            one.member.picture.explained("i-zzzz")


async def test_a_drained_machine_gives_back_and_rests(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2") as two:
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        first = await eventually(lambda: one.held + two.held)
        holder, other = (one, two) if one.held else (two, one)
        await eventually(lambda: len(other.member.picture.hosts) == 2)
        answer = await other.fleet.drain(holder.member.host, "drain", "me")
        assert answer == {"host": holder.member.host, "draining": True}
        assert first[0].ended.is_set()
        assert await eventually(lambda: other.held), "another machine has it"


async def test_the_next_daemon_of_a_drained_machine_knows_it(tmp_path: Path) -> None:
    async with a_machine(MemoryHub(), tmp_path, "h1") as one:
        one.member.drained = tmp_path / "draining"
        one.member.drain()
        assert one.member.drained.exists()
        one.member.drain(ends=True)
        assert not one.member.drained.exists()
        one.member.drained = tmp_path / "full/draining"  # where nothing can be written
        one.member.drain()
        assert one.member.draining


async def test_a_drain_continues_with_the_next_daemon(tmp_path: Path) -> None:
    async with a_machine(MemoryHub(), tmp_path, "h1") as one:
        one.member.draining = True  # as the file says
        lease = Lease(HostName("h1"), "b1", 7, item=ITEM.id)
        holder = cast("Holder", one.member.take(ITEM, lease))
        assert holder.ended.is_set(), "it gives back what an earlier daemon had"


async def test_a_machine_says_why_it_could_not_begin(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2", labels=("x",)) as two:
        needs = replace(ITEM, need=Need(labels=("x",)))
        await put(hub, Bucket.ITEMS, ITEM.id, needs)
        whys = ["could not begin: it has no ralph.toml on main"]

        def is_told() -> bool:
            for each in two.held:  # it is tried again after a while, and cannot begin then either
                each.why = "it has no ralph.toml on main"
                each.ended.set()
            hosts = one.member.picture.explained(ITEM.id)["hosts"]
            return whys in [each["misfits"] for each in hosts]

        await eventually(lambda: two.held)
        await eventually(is_told)


async def test_an_item_that_goes_meanwhile_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The janitor of another machine, or a newer version, took it from the picture during the wait."""
    hub, other = MemoryHub(), replace(ITEM, id=ItemId("i-bbbb"), branch="ralph/i-bbbb")
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2") as two:
        await eventually(lambda: len(one.member.picture.heard()) == 2)
        two.member._avoided |= {ITEM.id: math.inf, other.id: math.inf}  # it fits, and takes nothing

        def gone(*_: object) -> float:
            one.member.picture.forget(Bucket.ITEMS, ITEM.id)
            return 0.0

        monkeypatch.setattr(fit, "claim_delay_s", gone)
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        await eventually(lambda: two.member.picture.items and not one.member.picture.items)
        await put(hub, Bucket.ITEMS, other.id, other)
        await eventually(lambda: [each.item for each in one.held] == [other])


async def test_a_full_machine_takes_no_more(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        for each in ("i-aaaa", "i-bbbb", "i-cccc"):
            await put(hub, Bucket.ITEMS, each, replace(ITEM, id=ItemId(each), branch=each))
        await eventually(lambda: len(one.member.picture.items) == 3 and one.held)
        key = lease_key(repo_id(REPO), "i-cccc")
        rest = [each for each in ("i-aaaa", "i-bbbb", "i-cccc") if each not in one.member.holders]
        assert not any(one.member.may_take(key, ItemId(each)) for each in rest)
        one.held[0].ended.set()
        await eventually(lambda: len(one.held) == 2)
        assert [len(one.member.holders), one.told["daemon.degraded"]] == [1, 0]


async def test_a_failed_holder_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "AVOIDED_S", 0.05)
    hub, lease = MemoryHub(), Lease(HostName("h1"), "b1", 7)
    async with a_machine(hub, tmp_path, "h1") as one:
        one.member.take(ITEM)
        one.held[0].fails, one.held[0].lease = True, lease
        await eventually(lambda: len(one.held) == 2)
        assert (one.held[1].start, one.held[1].item) == (lease, ITEM)
        assert "a bug" in one.member.services.problems()[0]
        one.held[1].ended.set()
        await eventually(lambda: not one.member.services.problems())


async def test_a_bug_ends_neither_daemon_nor_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "AVOIDED_S", 0.05)
    hub, bugs, chosen = MemoryHub(), [ZeroDivisionError("a bug")], fit.choose

    def choose(*about: Any) -> Item | None:
        if bugs:
            raise bugs.pop()
        return chosen(*about)

    async with a_machine(hub, tmp_path, "h1") as one:
        monkeypatch.setattr(fit, "choose", choose)
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        await eventually(lambda: one.held)
        assert (bugs, len(one.held)) == ([], 1)
        assert "ZeroDivisionError: a bug" in one.member.services.problems()[0]


async def test_two_machines_with_one_name_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each shows its own record again and again: the problem stays, and no item is taken."""
    monkeypatch.setattr(members, "PRESENCE_S", 0.05)
    hub, at = MemoryHub(), [0.0]  # a slow machine must not find that the other has gone
    async with a_machine(hub, tmp_path, "h1") as one:
        async with a_machine(hub, tmp_path, "h1", boot="b2") as two:
            for each in (one, two):
                each.member.picture.monotonic = lambda: at[0]
            await eventually(lambda: one.member.services.problems() and two.member.services.problems())
            await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
            seen = hub.values[Bucket.HOSTS]["h1"].revision
            await eventually(lambda: hub.values[Bucket.HOSTS]["h1"].revision > seen + 20)

            assert Counter(record.getMessage() for record in caplog.records) == {
                f"degraded: fleet name: another machine uses the name h1: boot {boot}": 1
                for boot in ("b1", "b2")
            }
            assert (one.held, two.held) == ([], [])
        at[0] = 1.0
        await eventually(lambda: one.held)
        assert not one.member.services.problems(), "the other machine has gone"
        one.held[0].ended.set()
    async with a_machine(hub, tmp_path, "h1", boot="b3") as three:
        await eventually(lambda: three.held)
        assert not three.member.services.problems(), "the record that was there is of a machine that is gone"


async def test_nothing_is_taken_before_its_own_record_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands there under its name may be of the daemon before, with other labels and logins."""
    before = HostRecord(HostName("h1"), "b0", "1", slots=1)
    monkeypatch.setattr(members.Member, "record", lambda _: before)
    hub = MemoryHub()
    await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: one.member.picture.hosts and one.member.picture.items)
        assert not one.member.may_take(members._lease_key(ITEM), ITEM.id)
        monkeypatch.setattr(members.Member, "record", lambda _: replace(before, boot="b1"))
        one.member._changed.set()
        await eventually(lambda: one.held)


async def test_a_wiped_hub_gets_its_items_again(tmp_path: Path) -> None:
    hub = MemoryHub()
    held = replace(ITEM, state=ItemState.HELD)
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, held)
        await eventually(lambda: one.member.picture.items)
        hub.lose_writes(1000)
        await eventually(lambda: hub.values[Bucket.ITEMS])
        assert hub.values[Bucket.ITEMS][ITEM.id].value == write_value(held)


async def test_an_item_that_ended_long_ago_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "CLEAN_UP_S", 0.02)
    hub = MemoryHub()
    old = replace(ITEM, state=ItemState.DONE, ended_at=1.0)
    held = replace(ITEM, id=ItemId("i-bbbb"), branch="ralph/i-bbbb", state=ItemState.HELD)
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2") as two:
        for each in (old, held):
            await put(hub, Bucket.ITEMS, each.id, each)
        await eventually(lambda: hub.values[Bucket.ITEMS].keys() == {held.id})
        pictures = (one.member.picture, two.member.picture)
        await eventually(lambda: [each.items for each in pictures] == [[held], [held]])
        hub.wipe()
        await eventually(lambda: hub.values[Bucket.ITEMS].keys() == {held.id})


async def test_an_older_state_in_the_hub_is_replaced(tmp_path: Path) -> None:
    """Another machine gave a wiped hub what it knew last, which was long ago."""
    hub, claimed = MemoryHub(), replace(ITEM, state=ItemState.CLAIMED, holder=HostName("h2"), token=1)
    done = replace(ITEM, state=ItemState.DONE, token=2)
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, done)
        await eventually(lambda: one.member.picture.items)
        await put(hub, Bucket.ITEMS, ITEM.id, claimed)
        await eventually(lambda: hub.values[Bucket.ITEMS][ITEM.id].value == write_value(done))
        assert one.member.picture.item(ITEM.id) == done


async def test_a_cancelled_item_is_not_run_by_an_older_store(tmp_path: Path) -> None:
    hub, item = MemoryHub(), replace(ITEM, goal="paused", at=1.0)
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, item)
        await eventually(lambda: one.member.picture.items)
        await one.fleet.act(ITEM.id, "cancel", "me")
        cancelled = one.member.picture.item(ITEM.id)
        assert cancelled.state is ItemState.FAILED
        await put(hub, Bucket.ITEMS, ITEM.id, replace(item, goal="running"))
        await eventually(lambda: hub.values[Bucket.ITEMS][ITEM.id].value == write_value(cancelled))
        assert one.held == []


async def test_a_machine_with_many_ralphs_is_seen(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        one.member.ralphs = lambda: [f"r{number}" for number in range(MOST_ENTRIES + 1)]
        one.member._changed.set()
        await eventually(lambda: MOST_ENTRIES in [len(each.ralphs) for each in one.member.picture.hosts])


async def test_items_are_written_down_as_they_change(tmp_path: Path) -> None:
    hub, kept = MemoryHub(), list[Item]()
    async with a_machine(hub, tmp_path, "h1") as one:
        one.member.keep = kept.append
        await put(hub, Bucket.ITEMS, ITEM.id, replace(ITEM, state=ItemState.HELD))
        await eventually(lambda: kept == [replace(ITEM, state=ItemState.HELD)])


async def test_an_own_item_without_a_holder_is_taken(tmp_path: Path) -> None:
    """The hub shows that this machine has an item that it gave back."""
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        own = replace(ITEM, state=ItemState.WORKING, holder=HostName("h1"), token=1)
        await put(hub, Bucket.ITEMS, ITEM.id, own)
        await eventually(lambda: one.held)
        assert (one.held[0].item, one.held[0].start) == (own, None)


async def test_an_item_that_names_this_machine_runs_only_where_its_repository_is_allowed(
    tmp_path: Path,
) -> None:
    """Any member of the fleet can write such an item, and what the hub shows of this machine."""
    hub, allowed = MemoryHub(), replace(ITEM, id=ItemId("i-good"), repo="https://example.org/app.git")
    async with a_machine(hub, tmp_path, "h1") as one:
        one.member.spec = lambda: FleetSpec(allow_repos=("example.org/*",), slots=2)
        one.member._changed.set()
        await eventually(
            lambda: ("example.org/*",) in [each.allow_repos for each in one.member.picture.hosts]
        )
        shown = HostRecord(HostName("h1"), "b1", "1", allow_repos=("*",), slots=2)
        await put(hub, Bucket.HOSTS, "h1", shown)
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        own = replace(ITEM, id=ItemId("i-evil"), state=ItemState.WORKING, holder=HostName("h1"), token=1)
        await put(hub, Bucket.ITEMS, own.id, own)
        await put(hub, Bucket.ITEMS, allowed.id, allowed)
        await eventually(lambda: one.held)
        await eventually(lambda: len([*one.member.picture.items]) == 3)
        assert [each.item for each in one.held] == [allowed]


async def test_a_second_item_on_a_branch_waits_for_the_first(tmp_path: Path) -> None:
    hub, second = MemoryHub(), replace(ITEM, id=ItemId("i-bbbb"))
    async with a_machine(hub, tmp_path, "h1") as one:
        one.member.spec = lambda: FleetSpec(allow_repos=("*",), slots=2)
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        await eventually(lambda: one.held)
        await put(hub, Bucket.ITEMS, second.id, second)
        await eventually(lambda: len([*one.member.picture.items]) == 2)
        assert one.member._free() == []
        one.held[0].ended.set()
        await put(hub, Bucket.ITEMS, ITEM.id, replace(ITEM, state=ItemState.DONE, token=8))
        await eventually(lambda: len(one.held) == 2)
        assert one.held[1].item == second


async def test_an_item_without_a_lease_is_watched(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        missed: list[tuple[str, Lease, int]] = []
        one.member.watcher = Mock(missed=lambda *about: missed.append(about))
        claimed = replace(ITEM, state=ItemState.CLAIMED, holder=HostName("h2"), token=3)
        await put(hub, Bucket.ITEMS, ITEM.id, claimed)
        await eventually(lambda: missed)
        key = lease_key(repo_id(ITEM.repo), ITEM.branch)
        assert missed[0] == (key, Lease(HostName("h2"), "", 3, item=ITEM.id), 0)
        await put(hub, Bucket.LEASES, key, Lease(HostName("h2"), "b", 3, item=ITEM.id))
        await eventually(lambda: one.member.picture.known(Bucket.LEASES, key))
        count = len(missed)
        await put(hub, Bucket.ITEMS, ITEM.id, replace(claimed, priority=1))
        await eventually(lambda: one.member.picture.item(ITEM.id).priority)
        assert len(missed) == count


def test_items_come_back_from_the_disk(tmp_path: Path) -> None:
    """Row 5: the hub is wiped while each machine restarts."""
    over = replace(ITEM, id=ItemId("i-bbbb"), state=ItemState.DONE, ended_at=0.0)
    for each in (ITEM, over, replace(ITEM, priority=1)):
        joined._keep(tmp_path / "items", each)
    (tmp_path / "items" / "i-cccc.json").write_text("{}")

    assert [*joined._kept(tmp_path / "items", now=KEPT_S + 1.0)] == [replace(ITEM, priority=1)]
    assert not (tmp_path / "items" / "i-bbbb.json").exists()


async def test_a_hub_that_takes_nothing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 7: the hub's disk is full, so it answers, and refuses each write."""
    hub, is_full = MemoryHub(), [True]
    written = MemoryFabric.put

    async def put_or_refuse(self: MemoryFabric, *about: Any) -> int:
        if is_full[0]:
            raise HubUnreachable("insufficient resources")
        return await written(self, *about)

    monkeypatch.setattr(members, "PRESENCE_S", 0.05)
    monkeypatch.setattr(MemoryFabric, "put", put_or_refuse)
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: "takes nothing" in one.fleet.view()["problem"])
        is_full[0] = False
        await eventually(lambda: not one.member.services.problems())


async def test_a_machine_without_git_says_so(tmp_path: Path) -> None:
    """Row 13."""
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        await eventually(lambda: one.held)
        one.held[0].problem = "no route to host"
        await eventually(lambda: any("no route" in each for each in one.member.services.problems()))
        one.held[0].problem = ""
        await eventually(lambda: not one.member.services.problems())


async def test_an_item_of_a_newer_version_is_left(tmp_path: Path) -> None:
    """Row 28."""
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        newer = {**write_value(ITEM), "v": 2}
        writer = MemoryFabric(hub, "writer")
        await writer.connect()
        await writer.put(Bucket.ITEMS, ITEM.id, newer)
        await eventually(lambda: one.member.picture.too_new)
        await put(hub, Bucket.ITEMS, "i-bbbb", replace(ITEM, id=ItemId("i-bbbb"), branch="b"))
        await eventually(lambda: one.held)
        assert one.held[0].item.id == "i-bbbb"
        with pytest.raises(NotFound, match="newer version"):
            one.member.picture.item(ITEM.id)
        assert hub.values[Bucket.ITEMS][ITEM.id].value == newer


async def test_a_machine_that_was_away_does_not_report_itself(tmp_path: Path) -> None:
    hub = MemoryHub()
    for name in ("h1", "h2"):
        await put(hub, Bucket.HOSTS, name, HostRecord(HostName(name), "b1", "0", at=1.0))
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: one.member._silent)
        assert one.member._silent == {"h2"}
        assert one.told["fleet.host.silent"] == 1


async def test_a_lost_hub_is_reported_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: one.told["fleet.joined"] and one.fleet.view()["hosts"])
        hub.cut("h1")
        await eventually(lambda: one.told["fleet.lost"])
        assert not one.fleet.view()["connected"]
        assert [each["host"] for each in one.fleet.view()["hosts"]] == ["h1"], "as last known"
        with pytest.raises(HubSilent):
            await one.fleet.order("h2", "api", "stop", "me")
        hub.heal("h1")
        await eventually(lambda: one.told["fleet.back"])
        assert one.told["fleet.lost"] == 1


async def test_a_person_stops_a_ralph_elsewhere(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one, a_machine(hub, tmp_path, "h2") as two:
        await eventually(lambda: len(one.member.picture.hosts) == 2)
        answer = await one.fleet.order("h2", "api", "stop", "me")
        assert answer == {"done": True, "ralph": {"name": "h2/api", "state": "running"}}
        assert two.ralphs.orders == [("api", "stop")]
        assert (await one.fleet.ralph("h2", "api"))["name"] == "h2/api"
        with pytest.raises(NotFound):
            await one.fleet.order("h3", "api", "stop", "me")
        with pytest.raises(NotFound, match="no item api in this fleet") as refused:
            await one.fleet.act("api", "stop", "me")
        assert refused.value.mend == "ralphctl fleet items; or HOST/NAME"


async def test_a_machine_can_refuse_remote_control(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        a_machine(hub, tmp_path, "h1") as one,
        a_machine(hub, tmp_path, "h2", remote_control=False) as two,
    ):
        await eventually(lambda: len(one.member.picture.hosts) == 2)
        with pytest.raises(WrongState, match="takes no requests"):
            await one.fleet.order("h2", "api", "stop", "me")
        assert two.ralphs.orders == []


async def test_an_absent_machine_gets_its_want_later(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.HOSTS, "h2", HostRecord(HostName("h2"), "b", "1"))
        await eventually(lambda: len(one.member.picture.hosts) == 2)
        answer = await one.fleet.order("h2", "api", "pause", "me")
        assert answer == {"done": False, "ralph": None}
        async with a_machine(hub, tmp_path, "h2") as two:
            await eventually(lambda: two.ralphs.orders)
            assert two.ralphs.orders == [("api", "pause")]


async def test_a_stop_follows_an_item_from_an_absent_machine(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.HOSTS, "h2", HostRecord(HostName("h2"), "b", "1"))
        item = Item(ItemId("i-aaaa"), "/srv/app", "main", "ralph/i-aaaa", holder=HostName("h2"), token=1)
        await put(hub, Bucket.ITEMS, item.id, replace(item, state=ItemState.WORKING))
        await eventually(lambda: len(one.member.picture.hosts) == 2 and one.member.picture.items)

        assert await one.fleet.order("h2", "i-aaaa", "stop", "me") == {"done": False, "ralph": None}

        stopped = one.member.picture.item("i-aaaa")
        assert (stopped.goal, stopped.why, stopped.holder) == ("stopped", "stop by me on h1", "h2")
        assert hub.values[Bucket.WANTS] == {}, "an older want would stop it again after a release"


async def test_a_want_is_refused_too_where_remote_control_is(tmp_path: Path) -> None:
    hub = MemoryHub()
    await put(hub, Bucket.WANTS, want_key(HostName("h1"), "api"), Want("w1", "stop", "me"))
    async with a_machine(hub, tmp_path, "h1", remote_control=False) as one:
        await eventually(one.fleet.control.wants_file.exists)
        assert one.ralphs.orders == []


async def test_no_request_of_a_machine_starts_anything(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        for route, body in (
            ("start", {"name": "api"}),
            ("stop", {"name": "../x"}),
            ("", {}),
            ("x", {"name": 3}),
        ):
            fault = (await one.fleet.control.answer(route, body))["fault"]
            assert fault["slug"] == "usage", route
        assert await one.fleet.control.answer("status", {"lease": "x.y", "token": 7}) == {"holds": False}
        assert one.ralphs.orders == []


async def test_a_machine_takes_over_a_target_that_it_waits_for(tmp_path: Path) -> None:
    taken: list[str] = []
    landings = SimpleNamespace(
        holds=lambda key, token: (key, token) == ("x.y", 7),
        wants=lambda key: key == "x.z",
        take=lambda key, _: taken.append(key),
    )
    async with a_machine(MemoryHub(), tmp_path, "h1") as one:
        one.member.landings = cast(Any, landings)
        for token, holds in ((7, True), (8, False), ("7", False)):
            answer = await one.fleet.control.answer("status", {"lease": "x.y", "token": token})
            assert answer == {"holds": holds}
        assert not one.member.may_take("x.y", ITEM.id)
        assert one.member.may_take("x.z", ITEM.id)
        await one.member.take_over("x.z", ITEM.id, TakeLease(KeySeen(None, 0), RefSeen("", None)))
        assert (taken, one.held) == (["x.z"], [])


async def test_a_change_of_an_item_reaches_its_holder(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with a_machine(hub, tmp_path, "h1") as one:
        await put(hub, Bucket.ITEMS, ITEM.id, ITEM)
        await eventually(lambda: one.held)
        explained = await one.fleet.act(ITEM.id, "hold", "me")
        assert (explained["item"]["state"], explained["item"]["why"]) == ("held", "hold by me on h1")
        wanted = await eventually(lambda: one.held[0].wanted)
        assert wanted[-1].state is ItemState.HELD
        with pytest.raises(WrongState, match="does not apply"):
            await one.fleet.act(ITEM.id, "resume", "me")


async def test_an_item_is_checked_before_it_is_added(tmp_path: Path) -> None:
    hub = MemoryHub()
    remote = tmp_path / "app.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    tree = git(remote, "mktree")
    git(remote, "update-ref", "refs/heads/main", git(remote, "commit-tree", "-m", "first", tree))
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: one.fleet.view()["hosts"])
        for asked, why in (
            ({"repo": str(tmp_path / "nowhere"), "base": "main"}, "cannot be reached"),
            ({"repo": str(remote), "base": "nope"}, "has no branch nope"),
            ({"repo": "not a url", "base": "main"}, "cannot be an item"),
            ({"repo": str(remote), "base": "a..b"}, "(?m)^  base has no valid value: 'a..b'$"),
        ):
            with pytest.raises(UsageError, match=why):
                await one.fleet.submit(asked, "me")
        explained = await one.fleet.submit({"repo": str(remote), "base": "main", "priority": 5}, "me")
        assert (explained["item"]["state"], explained["item"]["priority"]) == ("open", 5)
        assert await eventually(lambda: one.held)


async def test_a_remote_is_read_without_files_that_a_run_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git reads its configuration there, and a daemon that is killed leaves it behind."""
    remote = tmp_path / "app.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    places = Mock(side_effect=TemporaryDirectory)
    monkeypatch.setattr("ralphd.git.runner.TemporaryDirectory", places)
    fence = await asyncio.to_thread(remote_fence, tmp_path / "work", replace(ITEM, repo=str(remote)))
    assert isinstance(fence.read("main"), LeaseState)
    assert isinstance(fence.check(), Usable)
    assert {each.kwargs["dir"] for each in places.call_args_list} == {tmp_path / "work/clones/.scratch"}


async def test_a_remote_is_used_as_far_as_it_allows(tmp_path: Path) -> None:
    remote = tmp_path / "app.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    tree = git(remote, "mktree")
    git(remote, "update-ref", "refs/heads/main", git(remote, "commit-tree", "-m", "first", tree))
    hook = remote / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    asked = {"repo": str(remote), "base": "main"}
    async with a_machine(MemoryHub(), tmp_path, "h1") as one:
        await eventually(lambda: one.fleet.view()["hosts"])
        for script, form in ((REFUSES_CUSTOM_REFS, LeaseForm.BRANCH), (REFUSES_ALL, None)):
            hook.write_text(script)
            hook.chmod(0o755)
            if form is None:
                with pytest.raises(UsageError, match="cannot be used by a fleet"):
                    await one.fleet.submit(asked, "me")
            else:
                explained = await one.fleet.submit(asked, "me")
                assert one.member.picture.item(explained["item"]["id"]).form is form


async def test_a_want_is_carried_out_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    await put(hub, Bucket.WANTS, want_key(HostName("h1"), "api"), Want("w1", "stop", "me"))
    await put(hub, Bucket.WANTS, want_key(HostName("h2"), "api"), Want("w2", "stop", "me"))
    async with a_machine(hub, tmp_path, "h1") as one:
        await eventually(lambda: one.told["fleet.joined"] and one.ralphs.orders)
        hub.cut("h1")
        await eventually(lambda: one.told["fleet.lost"])
        hub.heal("h1")  # all values of the bucket come again
        await put(hub, Bucket.WANTS, want_key(HostName("h1"), "web"), Want("w3", "stop", "me"))
        await eventually(lambda: len(one.ralphs.orders) == 2)
        assert one.ralphs.orders == [("api", "stop"), ("web", "stop")]
        await eventually(lambda: "w3" in one.fleet.control.wants_file.read_text(), what="it is written down")
    async with a_machine(hub, tmp_path, "h1") as again:  # the next daemon
        await put(hub, Bucket.WANTS, want_key(HostName("h1"), "new"), Want("w4", "pause", "me"))
        await eventually(lambda: again.ralphs.orders)
        assert again.ralphs.orders == [("new", "pause")]


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    command = ("git", "-C", str(directory), *identity, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True, input="").stdout.strip()
