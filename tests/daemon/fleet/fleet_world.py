"""Hosts with real clones of a real remote, an engine in memory, and a ralph whose commits a test makes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ralphd.core.fleet.checked import read_value, write_value
from ralphd.core.fleet.lease_model import LeaseRules, Stage, TakeLease
from ralphd.core.fleet.model import HostName, Item, ItemId, ItemState, Lease
from ralphd.core.fleet.names import lease_key, repo_id
from ralphd.daemon.fleet.holder import Holder, Progress
from ralphd.daemon.fleet.orders import Clocks
from ralphd.errors import RalphdError
from ralphd.fleet.fabric import Bucket, JsonObject
from ralphd.git.fence.fence import Fence
from ralphd.git.fence.lease_ref import decode_lease
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.git.fence_world import BRANCH, HEAD_REF, LEASE_REF, World, environment
from tests.git.work_tree import WorkTree
from tests.helpers import eventually

RULES = LeaseRules(lease_s=0.6, takeover_wait_s=0.6, offline_push_s=0.3)
ITEM = Item(ItemId("i-7f3k"), "/srv/app", "main", BRANCH)
KEY = lease_key(repo_id(ITEM.repo), BRANCH)


class FakeWork:
    """A ralph that commits when the test says so."""

    def __init__(self, tree: WorkTree, fence: Fence) -> None:
        self.tree, self.fence = tree, fence
        self.fault = ""
        self.begin_fault = ""
        self.notes: list[str] = []
        self.calls: list[str] = []
        self.news: asyncio.Queue[Progress] = asyncio.Queue()
        self.is_between = asyncio.Event()
        """Not within an iteration, which a stop waits for."""
        self.is_between.set()

    @property
    def head(self) -> str:
        return self.tree.git("rev-parse", "HEAD").strip()

    def commit(self, subject: str) -> str:
        """Commit in the clone, and report it."""
        self.tree.commit(subject)
        self.news.put_nowait(Progress(self.head))
        return self.head

    def end(self, state: ItemState, why: str = "") -> None:
        self.news.put_nowait(Progress(self.head, state, why))

    async def prepare(self) -> str:
        return self.fault

    async def begin(self, tip: str, note: str) -> None:
        self.calls.append("begin")
        self.notes.append(note)
        if self.begin_fault:
            raise RalphdError(self.begin_fault)
        if tip and "adopts" not in self.calls:
            self.tree.git("fetch", "--quiet", self.fence.url, HEAD_REF)
            self.tree.git("reset", "--quiet", "--hard", tip)

    async def changed(self) -> Progress:
        return await self.news.get()

    async def stop(self, *, at_once: bool) -> None:
        self.calls.append("stop now" if at_once else "stop")
        if not at_once:
            await self.is_between.wait()

    async def pause(self) -> None:
        self.calls.append("pause")

    async def resume(self) -> None:
        self.calls.append("resume")

    async def saved(self) -> tuple[str, ...]:
        return (self.head,)

    async def forget(self) -> None:
        self.calls.append("forget")


@dataclass
class FleetHost:
    """One host, its connection, clone and holder."""

    name: HostName
    fabric: MemoryFabric
    work: FakeWork
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    kept: JsonObject | None = None
    rules: LeaseRules = RULES
    holder: Holder | None = None
    task: asyncio.Task[None] | None = None

    async def report(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    def record(self, lease: JsonObject | None) -> None:
        self.kept = lease

    def starts(
        self, item: Item = ITEM, start: TakeLease | Lease | None = None, clocks: Clocks | None = None
    ) -> Holder:
        """Run a holder until it ends."""
        report, record = self.report, self.record
        self.holder = Holder(
            item,
            self.name,
            "boot",
            self.fabric,
            self.work,
            self.rules,
            record=record,
            report=report,
            clocks=clocks,
            start=start,
        )
        self.task = asyncio.create_task(self.holder.run())
        return self.holder

    async def works(self) -> Holder:
        """Claim the item, and push a first commit."""
        holder = self.starts()
        await eventually(lambda: "begin" in self.work.calls, what="the ralph")
        await self.pushes("one")
        return holder

    async def pushes(self, subject: str) -> str:
        head = self.work.commit(subject)
        await self.pushed(head)
        return head

    async def pushed(self, head: str) -> None:
        holder = self.holder
        assert holder is not None
        await eventually(lambda: holder.hold.lease.pushed == head, timeout_s=30.0, what="the push")

    async def ended(self) -> Stage:
        """Wait for the end of the holder; the last stage of its lease."""
        assert self.task is not None
        assert self.holder is not None
        async with asyncio.timeout(30.0):
            await self.task
        return self.holder.hold.stage

    async def crashes(self) -> None:
        """End as a daemon that is killed: nothing is released."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])

    async def resumes(self) -> Holder:
        """A new daemon continues the recorded lease."""
        lease = read_value(Lease, self.kept)
        assert isinstance(lease, Lease)
        self.work.calls.append("adopts")
        return self.starts(start=lease)

    def event(self, name: str) -> dict[str, Any]:
        return next(data for event, data in self.events if event == name)

    def has(self, name: str) -> Callable[[], bool]:
        return lambda: any(event == name for event, _ in self.events)


class FleetWorld:
    """A remote, a hub, and hosts."""

    def __init__(self, remote: World) -> None:
        self.remote, self.hub = remote, MemoryHub()
        self.hub.write(Bucket.ITEMS, ITEM.id, write_value(ITEM), revision=0)
        self.hosts: list[FleetHost] = []

    async def host(self, name: str) -> FleetHost:
        fabric = MemoryFabric(self.hub, name)
        await fabric.connect()
        tree = await asyncio.to_thread(self.remote.host, name)
        fence = Fence(tree.tree.path, self.remote.url, environment(), limit_s=30.0)
        host = FleetHost(HostName(name), fabric, FakeWork(tree.tree, fence))
        self.hosts.append(host)

        async def answer(route: str, body: JsonObject) -> JsonObject:
            assert (route, body["lease"]) == ("status", KEY)
            return {"holds": host.holder is not None and host.holder.holds(body["token"])}

        await fabric.serve(answer)
        return host

    async def close(self) -> None:
        for host in self.hosts:
            if host.task is not None:
                host.task.cancel()
                await asyncio.wait([host.task])

    @property
    def item(self) -> Item:
        item = read_value(Item, self.hub.values[Bucket.ITEMS][ITEM.id].value)
        assert isinstance(item, Item)
        return item

    def set_item(self, item: Item) -> None:
        self.hub.write(Bucket.ITEMS, ITEM.id, write_value(item), revision=None)

    @property
    def key(self) -> Lease | None:
        entry = self.hub.values[Bucket.LEASES].get(KEY)
        lease = read_value(Lease, entry.value) if entry else None
        return lease if isinstance(lease, Lease) else None

    def ref(self, name: str = LEASE_REF) -> str:
        return self.remote.refs().get(name, "")

    def lease(self) -> Lease:
        lease = decode_lease(self.remote.bare.git("cat-file", "blob", LEASE_REF).encode())
        assert lease is not None
        return lease

    def move_branch(self, subject: str) -> str:
        """A person's force-push of a commit of their own."""
        tree = self.remote.bare.git("rev-parse", "main^{tree}").strip()
        commit = self.remote.bare.git("commit-tree", tree, "-m", subject).strip()
        self.remote.bare.git("update-ref", HEAD_REF, commit)
        return commit
