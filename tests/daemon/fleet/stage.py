"""A host with its API, a bare repository over file://, and items whose iterations are shell scripts."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ralphd.api.app import create_app
from ralphd.core.fleet.model import HostName, Item, ItemFlags, ItemId, Lease
from ralphd.daemon.fleet.work import RalphWork
from ralphd.daemon.host import Host
from ralphd.daemon.services import EventPublisher, Services
from ralphd.git.fence.fence import Claimed, Pushed, SavedAside
from ralphd.git.fence.lease_ref import Aside
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from tests.api.serving import serve
from tests.git.work_tree import WorkTree
from tests.players import player

BRANCH = "ralph/i-7f3k"
COMMIT = "echo {0} > {0}; git add {0}; git commit -q -m {0}"
LIMIT_S = 10.0


@dataclass(slots=True)
class Stage:
    """Everything below ``place``. ``host`` is there within ``running``."""

    place: Path
    project: WorkTree = field(init=False)
    host: Host = field(init=False)
    how: Literal["now", "leave"] = "now"

    def __post_init__(self) -> None:
        for each in ("state", "home", "scripts", "work"):
            (self.place / each).mkdir(mode=0o700)
        self.project = WorkTree.new(self.place / "project")
        self.configure()
        self.project.commit("first")
        self.project.git("clone", "-q", "--bare", str(self.project.path), str(self.place / "app.git"))
        self.project.git("remote", "add", "origin", self.url)
        self.push()

    @property
    def url(self) -> str:
        return f"file://{self.place}/app.git"

    @property
    def environment(self) -> Mapping[str, str]:
        names = {f"GIT_{who}_{what}": "r@example.invalid" for who in ("AUTHOR", "COMMITTER")
                 for what in ("NAME", "EMAIL")}  # fmt: skip
        given = {"PATH": os.environ["PATH"], "HOME": str(self.place / "home"), "LANG": "C.UTF-8"}
        return given | names

    @property
    def clone(self) -> Path:
        (clone,) = (each for each in (self.place / "work/clones").iterdir() if not each.name.startswith("."))
        return clone

    def configure(self, more: str = "", command: tuple[str, ...] | None = None) -> None:
        """Write ``ralph.toml``: a ralph that does the scripts that ``script`` writes."""
        words = json.dumps(list(command or player("iterator", self.place / "scripts")))
        (self.project.path / "ralph.toml").write_text(f"[ralph]\ncommand = {words}\n{more}")

    def push(self) -> str:
        self.project.git("push", "-q", "origin", "main")
        return self.project.git("rev-parse", "HEAD").strip()

    def script(self, number: int, text: str = COMMIT) -> None:
        """Have the ralph do an iteration."""
        path = self.place / "scripts" / "new"
        path.write_text(text.format(f"file-{number}"))
        path.rename(path.with_name(str(number)))

    def end(self, code: int = 0) -> None:
        """Have the ralph end."""
        path = self.place / "scripts" / "new"
        path.write_text(str(code))
        path.rename(path.with_name("END"))

    def work(self, *, repo: str = "", base: str = "main", **how: Any) -> RalphWork:
        flags = ItemFlags(max_iterations=50)
        item = Item(ItemId("i-7f3k"), repo or self.url, base, BRANCH, flags=flags)
        return RalphWork(item, self.host, self.place / "work", self.environment, **how)

    async def begun(self, tip: str = "", note: str = "") -> RalphWork:
        work = self.work()
        assert await work.prepare() == ""
        await work.begin(tip, note)
        return work

    def branch(self) -> str:
        """The tip of the item's branch in the clone."""
        return WorkTree(self.clone).git("rev-parse", BRANCH).strip()

    async def view(self) -> dict[str, Any]:
        view: dict[str, Any] = json.loads(await self.host.view_bytes("i-7f3k"))
        return view

    def publish(self, work: RalphWork, head: str, *aside: str) -> None:
        """Push as the holder of the lease does."""
        lease = Lease(HostName("h"), "boot", 1)
        state = work.fence.claim(BRANCH, lease, "")
        assert isinstance(state, Claimed)
        assert isinstance(work.fence.push(BRANCH, head, lease, state.sha, ""), Pushed)
        if aside:
            assert isinstance(work.fence.save_aside(Aside.STALE, BRANCH, 1, *aside), SavedAside)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Host]:
        """Run a host, which leaves its runs alone at the end where ``how`` says so."""
        events = await EventStore.open(self.place / "state/events.db")
        socket, clock = self.place / "s", Clock()
        news = EventPublisher(events, Hub(), clock)
        services = Services(self.place / "state", socket, 0o022, clock, news)
        self.host, self.how = Host(services, cast("Any", None)), "now"
        try:
            async with serve(create_app(self.host), socket, is_within=self.host.callers.is_within):
                await self.host.recover()
                self.host.ready = True
                try:
                    yield self.host
                finally:
                    await self.host.end(self.how)
                    self.host.hub.close()
        finally:
            await events.close()

    def clean_up(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
