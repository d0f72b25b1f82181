"""The leases of other hosts: taken over only after two silent witnesses (plan of the fleet, section 6)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from ralphd.core.fleet.checked import read_value
from ralphd.core.fleet.lease_model import TakeLease
from ralphd.core.fleet.model import HostName, ItemId, Lease
from ralphd.daemon.fleet.watcher import Watcher
from ralphd.errors import RalphdError
from ralphd.fleet.fabric import Bucket, JsonObject
from ralphd.git.fence.fence import Fence
from tests.daemon.fleet.fleet_world import ITEM, KEY, RULES, FleetHost, FleetWorld
from tests.git.fence_world import BRANCH, HEAD_REF, world
from tests.helpers import eventually


class Watching:
    """A host that watches, and takes over what its watcher gives it."""

    def __init__(self, fleet: FleetWorld, host: FleetHost) -> None:
        self.fleet, self.host = fleet, host
        self.fits, self.has_clone, self.takes = True, True, 0
        self.reads = 0
        self.watcher = Watcher(
            host.name,
            host.fabric,
            RULES,
            fits=lambda key, item: self.fits and (key, item) == (KEY, ITEM.id),
            fence_of=self._fence_of,
            take=self._take,
            report=host.report,
            chance=lambda: 0.5,
        )
        self._tasks = [asyncio.create_task(each) for each in (self.watcher.run(), self._follow())]

    async def _fence_of(self, item: ItemId) -> Fence:
        self.reads += 1
        if not self.has_clone:
            raise RalphdError("there is no clone")
        return self.host.work.fence

    async def _take(self, _: str, item: ItemId, start: TakeLease) -> None:
        self.takes += 1
        self.host.starts(item=self.fleet.item, start=start)

    async def _follow(self) -> None:
        async with aclosing(self.host.fabric.watch(Bucket.LEASES)) as entries:
            async for entry in entries:
                lease = read_value(Lease, entry.value)
                self.watcher.seen(entry.key, lease if isinstance(lease, Lease) else None, entry.revision)

    async def taken(self) -> None:
        await eventually(lambda: self.takes, timeout_s=30.0, what="the takeover")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[FleetWorld]:
    with world(tmp_path, "file") as remote:
        made = FleetWorld(remote)
        yield made
        await made.close()


@pytest.fixture
async def watching(fleet: FleetWorld) -> AsyncIterator[Watching]:
    made = Watching(fleet, await fleet.host("h2"))
    yield made
    await made.close()


@pytest.fixture
async def holding(fleet: FleetWorld) -> FleetHost:
    host = await fleet.host("h1")
    await host.works()
    return host


async def after_looks(watching: Watching, count: int) -> None:
    """Wait until the watcher has read the ref so often from now on."""
    wanted = watching.reads + count
    await eventually(lambda: watching.reads >= wanted, timeout_s=30.0, what="a look at the ref")


async def test_a_dead_host_is_taken_over(watching: Watching, holding: FleetHost) -> None:
    last = watching.fleet.ref(HEAD_REF)
    await holding.crashes()
    await holding.fabric.close()

    await watching.taken()

    await eventually(lambda: "begin" in watching.host.work.calls, what="the ralph on the other host")
    assert watching.host.work.head == last
    assert (watching.fleet.lease().host, watching.fleet.lease().token) == ("h2", 2)
    assert watching.host.event("fleet.host.silent")["host"] == "h1"
    assert watching.host.event("item.taken_over")["previous"] == "h1"
    assert f"refs/ralph/stale/{BRANCH}/1" in watching.host.work.notes[0]


async def test_a_host_without_hub_keeps_its_item(watching: Watching, holding: FleetHost) -> None:
    watching.fleet.hub.cut("h1")

    await after_looks(watching, 4)  # two rounds of two witnesses
    await holding.pushes("two")

    assert watching.takes == 0
    watching.fleet.hub.heal()
    assert holding.holder is not None
    assert holding.holder.holds(1)


async def test_a_host_that_answers_keeps_its_item(watching: Watching, holding: FleetHost) -> None:
    asked: list[str] = []
    await holding.crashes()

    async def answer(route: str, body: JsonObject) -> JsonObject:
        asked.append(route)
        return {"holds": True}

    await holding.fabric.serve(answer)

    await eventually(lambda: len(asked) >= 2, timeout_s=30.0, what="two questions")
    assert watching.reads == 0


async def test_a_denied_lease_is_taken_sooner(watching: Watching, holding: FleetHost) -> None:
    await holding.crashes()
    holding.holder = None  # its daemon runs, and knows nothing of the lease

    await watching.taken()

    assert watching.reads == 1


async def test_an_unfit_host_takes_nothing(watching: Watching, holding: FleetHost) -> None:
    watching.fits = False
    await holding.crashes()
    await holding.fabric.close()
    other = Watching(watching.fleet, await watching.fleet.host("h3"))

    await other.taken()
    await other.close()

    assert (watching.takes, watching.reads) == (0, 0)


async def test_unreadable_git_postpones_a_takeover(watching: Watching, holding: FleetHost) -> None:
    watching.has_clone = False
    await holding.crashes()
    await holding.fabric.close()
    await after_looks(watching, 2)
    assert watching.takes == 0

    watching.has_clone = True

    await watching.taken()


async def test_a_person_decides_without_a_wait(watching: Watching, holding: FleetHost) -> None:
    await holding.crashes()  # and still answers that it holds the lease
    await eventually(_is_current(watching), what="the last renewal")
    assert await watching.watcher.take_now(KEY) == "h1 answers: it works on it"
    await holding.fabric.close()

    assert not await watching.watcher.take_now(KEY)

    await watching.taken()
    assert watching.reads == 1
    await eventually(lambda: watching.fleet.item.holder == "h2", what="the new holder")


async def test_released_and_own_leases_are_not_watched(watching: Watching) -> None:
    watcher = watching.watcher
    watcher.seen(KEY, Lease(HostName("h1"), "b", 1, item=ITEM.id), 1)

    for number, host in enumerate(("", "h2"), 2):
        watcher.seen(KEY, Lease(HostName(host), "b", 1, item=ITEM.id), number)
        assert await watcher.take_now(KEY) == "no lease of it is known to the hub"

    assert await _rests(watching)


async def test_a_hub_that_forgot_does_not_hinder(watching: Watching, holding: FleetHost) -> None:
    await holding.crashes()
    await holding.fabric.close()
    await eventually(_is_current(watching), what="the last renewal")
    item = watching.fleet.item
    watching.fleet.hub.wipe()
    watching.fleet.set_item(item)  # from the copy of some host

    await watching.taken()

    await eventually(lambda: "begin" in watching.host.work.calls, what="the ralph on the other host")
    assert watching.fleet.lease().host == "h2"


async def test_an_item_whose_lease_is_lost_is_taken_over(watching: Watching, holding: FleetHost) -> None:
    """The hub was wiped, and has only the item again."""
    item = watching.fleet.item
    await holding.crashes()
    await holding.fabric.close()
    watching.fleet.hub.wipe()
    watching.fleet.set_item(item)
    watching.watcher.seen(KEY, None, 0)  # what the wipe showed

    watching.watcher.missed(KEY, Lease(HostName("h1"), "", 1, item=ITEM.id), 0)
    await watching.taken()

    await eventually(lambda: "begin" in watching.host.work.calls, what="the ralph on the other host")
    assert (watching.fleet.lease().host, watching.fleet.lease().token) == ("h2", 2)


async def test_of_two_watchers_one_takes(watching: Watching, holding: FleetHost) -> None:
    other = Watching(watching.fleet, await watching.fleet.host("h3"))
    await holding.crashes()
    await holding.fabric.close()

    await eventually(lambda: watching.fleet.item.holder in ("h2", "h3"), timeout_s=30.0, what="a holder")

    hosts = [watching.host, other.host]
    winner = next(host for host in hosts if host.name == watching.fleet.item.holder)
    await eventually(lambda: "begin" in winner.work.calls, what="the ralph")
    await winner.pushes("two")
    assert (watching.fleet.lease().host, watching.fleet.lease().token) == (winner.name, 2)
    await other.close()


def _is_current(watching: Watching) -> Callable[[], bool]:
    """Whether the watcher has seen the present value of the key."""

    def is_current() -> bool:
        watch = watching.watcher._watches.get(KEY)
        return (
            watch is not None and watch.key.revision == watching.fleet.hub.values[Bucket.LEASES][KEY].revision
        )

    return is_current


async def _rests(watching: Watching) -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
    return watching.reads == 0
