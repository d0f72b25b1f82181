"""Machines with a host, a landing queue and an engine in memory each, and a repository that they land on."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ralphd.api.app import create_app
from ralphd.core.fleet.checked import read_value, write_value
from ralphd.core.fleet.lease_model import KeySeen, LeaseRules, RefSeen, TakeLease
from ralphd.core.fleet.model import HostName, Item, ItemId, Lease, LeaseForm
from ralphd.core.fleet.names import lease_key, repo_id
from ralphd.daemon.fleet.clones import Clones
from ralphd.daemon.fleet.fleet import remote_fence
from ralphd.daemon.fleet.holder import Holder
from ralphd.daemon.fleet.landing import Landings
from ralphd.daemon.fleet.orders import Clocks, read_ref
from ralphd.daemon.fleet.watcher import Watcher
from ralphd.daemon.fleet.work import RalphWork
from ralphd.daemon.host import Host
from ralphd.daemon.services import EventPublisher, Services
from ralphd.fleet.fabric import Bucket, JsonObject
from ralphd.git.fence.lease_ref import decode_lease
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from tests.api.serving import serve
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.git.work_tree import WorkTree
from tests.helpers import eventually

RULES = LeaseRules(lease_s=0.6, takeover_wait_s=0.6, offline_push_s=0.3)
LIMIT_S = 60.0
COMMAND = '["sh", "-c", ". {place}/do/$(basename $(git branch --show-current))"]'
TESTS = """touch {place}/began; [ ! -e bad ] && while [ -e {place}/slow ]; do sleep 0.05; done; """
TESTS += """[ ! -e bad ] && git rev-parse HEAD >> {place}/green"""
COMMIT = "echo {text} > {file}; git add {file}; git commit -qm {file}\n"
BASE_LEASE = "refs/ralph/lease/main"


@dataclass
class LandingWorld:
    """A bare repository, a person's clone of it, and the hub."""

    place: Path
    hub: MemoryHub = field(default_factory=MemoryHub)

    def __post_init__(self) -> None:
        (self.place / "do").mkdir()
        self.person = WorkTree.new(self.place / "person")
        self.configure('mode = "auto"')
        self.person.commit("first")
        self.person.git("clone", "-q", "--bare", str(self.person.path), str(self.place / "app.git"))
        self.bare = WorkTree(self.place / "app.git")
        self.bare.git("config", "core.logAllRefUpdates", "always")
        self.person.git("remote", "add", "origin", self.url)

    @property
    def url(self) -> str:
        return f"file://{self.place}/app.git"

    def configure(self, landing: str, tests: str = TESTS) -> None:
        command, tests = COMMAND.format(place=self.place), tests.format(place=self.place)
        text = f"[ralph]\ncommand = {command}\n[regent]\ntest_command = '{tests}'\n[landing]\n{landing}\n"
        (self.person.path / "ralph.toml").write_text(text)

    def loops(self, agent: str) -> None:
        """Have the base run the built-in loop with an agent that is a shell script."""
        script = self.place / "agent"
        script.write_text(f"cat > /dev/null\n{agent}")
        self.configure('mode = "auto"')
        rules = (self.person.path / "ralph.toml").read_text().partition("[regent]")[2]
        words = json.dumps(["sh", str(script)])
        text = f'[agents]\nprimary = "sheller"\n[agents.sheller]\ncommand = {words}\n[regent]{rules}'
        (self.person.path / "ralph.toml").write_text(text)
        (self.person.path / "TASKS.md").write_text("- [ ] one\n")
        (self.person.path / "PROMPT.md").write_text("Do it.\n")
        self.person.commit("a loop")
        self.person.git("push", "-q", "origin", "HEAD:main")

    def pushes(self, subject: str) -> str:
        """A person pushes a commit to the base; its id."""
        self.person.git("fetch", "-q", "origin")
        self.person.git("reset", "-q", "--hard", "origin/main")
        self.person.commit(subject)
        self.person.git("push", "-q", "origin", "HEAD:main")
        return self.person.git("rev-parse", "HEAD").strip()

    @property
    def target(self) -> Item:
        """An item that is looked at for its remote only."""
        return Item(ItemId("i-zzzz"), self.url, "main", "main")

    def item(self, name: str, script: str) -> Item:
        """An item whose ralph runs a script on its branch."""
        (self.place / "do" / name).write_text(f"echo >> {self.place}/runs\n{script}")
        item = Item(ItemId(name), self.url, "main", f"ralph/{name}")
        self.hub.write(Bucket.ITEMS, name, write_value(item), revision=0)
        return item

    def present(self, name: str) -> Item:
        item = read_value(Item, self.hub.values[Bucket.ITEMS][name].value)
        assert isinstance(item, Item)
        return item

    def set_item(self, item: Item) -> None:
        self.hub.write(Bucket.ITEMS, item.id, write_value(item), revision=None)

    async def becomes(self, name: str, *states: str) -> Item:
        def reached() -> bool:
            return self.present(name).state in states

        await eventually(reached, timeout_s=LIMIT_S, what=f"{name} is {states}")
        return self.present(name)

    def tips(self) -> list[str]:
        """Each commit to which a push has moved the base, oldest first."""
        return self.bare.git("log", "--walk-reflogs", "--format=%H", "refs/heads/main").split()[::-1]

    def runs(self) -> int:
        """How often a ralph ran."""
        return len((self.place / "runs").read_text().splitlines())

    def green(self) -> set[str]:
        with suppress(FileNotFoundError):
            return set((self.place / "green").read_text().split())
        return set()

    def subjects(self) -> list[str]:
        return self.bare.git("log", "--format=%s", "main").splitlines()

    def files(self) -> set[str]:
        return set(self.bare.git("ls-tree", "--name-only", "main").split())

    def base_lease(self) -> Lease:
        lease = decode_lease(self.bare.git("cat-file", "blob", BASE_LEASE).encode())
        assert lease is not None
        return lease

    def check(self) -> None:
        """What holds whatever happened: the history is whole, and each tip that we pushed was green."""
        check = ("fsck", "--strict", "--connectivity-only")
        try:
            self.bare.git(*check)
        except subprocess.CalledProcessError:  # objects are read before refs: a push in between is a gap
            self.bare.git(*check)
        ours = [
            each for each in self.tips() if self.bare.git("log", "-1", "--format=%s", each).startswith("M")
        ]
        assert set(ours) <= self.green()


@dataclass
class Machine:
    """One machine, its holders, and what it knows of leases."""

    name: HostName
    world: LandingWorld
    fabric: MemoryFabric
    host: Host
    services: Services
    place: Path
    holders: dict[str, Holder] = field(default_factory=dict)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        names = {f"GIT_{who}_{what}": "r@example.invalid" for who in ("AUTHOR", "COMMITTER")
                 for what in ("NAME", "EMAIL")}  # fmt: skip
        home = {"HOME": str(self.place / "home"), "LANG": "C.UTF-8"}
        return {"PATH": os.environ["PATH"]} | home | names

    def __post_init__(self) -> None:
        clones = Clones(self.place / "work/clones", self.environment)
        self.landings = Landings(self.name, "boot", self.fabric, RULES, clones, lambda _: LeaseForm.BLOB)
        self.services.turn_of = self.landings.turn
        self.watcher = Watcher(
            self.name, self.fabric, RULES,
            fits=lambda key, _: self.landings.wants(key),
            fence_of=lambda _: asyncio.to_thread(remote_fence, self.place / "work", self.world.target),
            take=self._take,
            report=self._report,
            chance=lambda: 0.5,
        )  # fmt: skip

    async def _take(self, key: str, _: ItemId, start: TakeLease) -> None:
        if self.landings.wants(key):
            self.landings.take(key, start)

    async def _report(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, data))

    async def _answer(self, route: str, body: JsonObject) -> JsonObject:
        assert route == "status"
        key, token = str(body["lease"]), cast(int, body["token"])
        items = {lease_key(repo_id(each.item.repo), each.item.branch): each for each in self.holders.values()}
        has_item = key in items and items[key].holds(token)
        return {"holds": has_item or self.landings.holds(key, token)}

    async def _follow(self) -> None:
        async with aclosing(self.fabric.watch(Bucket.LEASES)) as entries:
            async for entry in entries:
                lease = read_value(Lease, entry.value)
                self.watcher.seen(entry.key, lease if isinstance(lease, Lease) else None, entry.revision)

    async def begins(self) -> None:
        await self.fabric.connect()
        await self.fabric.serve(self._answer)
        works = (self.host.landing.run(), self.landings.run(), self.watcher.run(), self._follow())
        self.tasks += [asyncio.create_task(each) for each in works]

    def starts(self, item: Item, start: TakeLease | Lease | None = None) -> Holder:
        work = RalphWork(item, self.host, self.place / "work", self.environment)
        holder = self.holders[item.id] = Holder(
            item, self.name, "boot", self.fabric, work, RULES,
            record=lambda _: None, report=self._report, start=start,
            clocks=Clocks(boottime=float),  # a busy machine is none that slept: it would pause its ralphs
        )  # fmt: skip
        self.tasks.append(asyncio.create_task(holder.run()))
        return holder

    async def takes_over(self, item: Item) -> Holder:
        """Continue the item of a machine that is gone."""
        entry = self.world.hub.values[Bucket.LEASES][lease_key(repo_id(item.repo), item.branch)]
        lease = read_value(Lease, entry.value)
        ref = await read_ref(await asyncio.to_thread(remote_fence, self.place / "work", item), item.branch)
        assert isinstance(lease, Lease)
        assert isinstance(ref, RefSeen)
        return self.starts(item, TakeLease(KeySeen(lease, entry.revision), ref))

    async def crashes(self) -> None:
        """End as a daemon that is killed: nothing is given back."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.fabric.close()


@asynccontextmanager
async def a_machine(world: LandingWorld, name: str) -> AsyncIterator[Machine]:
    place = world.place / name
    for each in ("state", "home", "work"):
        (place / each).mkdir(mode=0o700, parents=True)
    events = await EventStore.open(place / "state/events.db")
    socket, clock = place / "s", Clock()
    services = Services(place / "state", socket, 0o022, clock, EventPublisher(events, Hub(), clock))
    host = Host(services, cast("Any", None))
    machine = Machine(HostName(name), world, MemoryFabric(world.hub, name), host, services, place)
    try:
        async with serve(create_app(host), socket, is_within=host.callers.is_within):
            await host.recover()
            host.ready = True
            await machine.begins()
            try:
                yield machine
            finally:
                await machine.crashes()
                await host.end("now")
                host.hub.close()
    finally:
        await events.close()


@asynccontextmanager
async def machines(world: LandingWorld, *names: str) -> AsyncIterator[list[Machine]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(a_machine(world, name)) for name in names]
    (world.place / "slow").unlink(missing_ok=True)  # tests of a machine that crashed end now
    await eventually(lambda: not _runs_in(world.place), timeout_s=LIMIT_S, what="the end of all tests")
    shutil.rmtree(world.place, ignore_errors=True)


def _runs_in(place: Path) -> bool:
    """Whether a process has the directory in its command line."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(place) in each.read_bytes():
                return True
    return False
