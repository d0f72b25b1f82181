"""A ralph is removed, stopped, or registered again while something of it is just beginning."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from ralphd.core.supervision.events import StopRequested
from ralphd.daemon import registration
from ralphd.daemon.admission import Admission
from ralphd.daemon.host import Host
from ralphd.daemon.registration import Candidate, Registration
from ralphd.daemon.services import EventPublisher, Services
from ralphd.daemon.trees.plan import WorktreeOrder
from ralphd.errors import CommandNotStartable, RalphdError, UnknownRalph, WrongState
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.files import remove_folder
from tests.helpers import eventually, is_alive

SETUP = "setup"
AGENT = "agent"


class Stage:
    """A host in this process, and processes that write their pids down."""

    def __init__(self, host: Host, root: Path) -> None:
        self.host, self.root = host, root

    def command(self, name: str, lasts_s: float = 60.0) -> str:
        return f"echo $$ >> {self.root}/{name}; exec sleep {lasts_s}"

    def order(self, directory: Path, name: str = "demo", *, start: bool = True) -> Registration:
        environment = os.environ | {"XDG_DATA_HOME": str(self.root / "data"), "HOME": str(self.root)}
        command = ["/bin/sh", "-c", self.command(AGENT)]
        return Registration(str(directory), command, name=name, environment=environment, start=start)

    def directory(self, name: str = "work") -> Path:
        (work := self.root / name).mkdir()
        return work

    def repository(self, setup: str) -> Path:
        work = self.directory("repository")
        (work / "ralph.toml").write_text(f'[ralph]\ncommand = ["true"]\nsetup = "{setup}"\n')
        identity = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(work))
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run([*identity, *words], check=True, timeout=60)
        return work

    def living(self, name: str) -> list[int]:
        try:
            pids = map(int, (self.root / name).read_text().split())
        except FileNotFoundError:
            return []
        return [pid for pid in pids if is_alive(pid)]

    async def begins(self, name: str) -> None:
        await eventually(lambda: bool(self.living(name)), timeout_s=30)


@asynccontextmanager
async def staged(root: Path) -> AsyncIterator[Stage]:
    (state := root / "state").mkdir()
    events = await EventStore.open(state / "events.db")
    news = EventPublisher(events, Hub(), Clock())
    services = Services(
        state_directory=state, socket_path=state / "s", umask=0o022, clock=Clock(), news=news
    )  # fmt: skip
    host = Host(services, cast(Any, None))
    host.ready = True
    stage = Stage(host, root)
    try:
        yield stage
    finally:
        for regent in host.regents():
            for setup in regent.setups:
                setup.cut()
            if regent._live is not None:
                regent._live.run.kill_tree()
        for pid in (*stage.living(AGENT), *stage.living(SETUP)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not stage.living(AGENT) and not stage.living(SETUP))
        await host._roster.close()
        await events.close()


@pytest.fixture
def late_removal(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The files of a removed ralph go when this is set: a slow disk, large logs."""
    goes_on = threading.Event()

    def late(path: Path, into: Path) -> None:
        assert goes_on.wait(30)
        remove_folder(path, into)

    monkeypatch.setattr("ralphd.daemon.lifecycle.remove_folder", late)
    yield goes_on
    goes_on.set()


async def test_a_reply_about_all_ralphs_serves_again_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphd.daemon.host.STATUS_KEPT_S", 1000.0)
    async with staged(tmp_path) as stage:
        before = await stage.host.status_bytes()
        await stage.host.register(stage.order(stage.directory(), start=False))
        assert await stage.host.status_bytes() is before
        assert b'"demo"' in await stage.host.status_bytes(resources=True)
        stage.host.forget_status()
        assert b'"demo"' in await stage.host.status_bytes()
        monkeypatch.setattr("ralphd.daemon.host.STATUS_KEPT_S", 0.0)
        stage.host.forget_status()
        assert await stage.host.status_bytes() is not await stage.host.status_bytes()


async def test_a_ralph_that_is_being_started_is_not_removed(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.host.register(stage.order(stage.directory(), start=False))
        (regent,) = stage.host.regents()
        start = asyncio.create_task(stage.host.start("demo"))
        await eventually(regent.alone.locked)
        with pytest.raises(WrongState, match="demo is running"):
            await stage.host.forget("demo")
        await start
        await stage.begins(AGENT)
        assert stage.host.regents() == [regent] and regent.account.files.definition_file.exists()


async def test_a_start_of_a_ralph_that_is_removed_meanwhile_is_answered(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.host.register(stage.order(stage.directory(), start=False))
        (regent,) = stage.host.regents()
        async with regent.alone:
            remove = asyncio.create_task(stage.host.forget("demo"))
            await asyncio.sleep(0)
            start = asyncio.create_task(regent.request(StopRequested(time.time(), now=False)))
            await eventually(lambda: regent._doing is not None)
        await remove
        with pytest.raises(UnknownRalph, match="was removed meanwhile"):
            await asyncio.wait_for(start, 30)
        with pytest.raises(UnknownRalph, match="was removed meanwhile"):
            await asyncio.wait_for(regent.request(StopRequested(time.time(), now=False)), 30)
        assert not stage.living(AGENT)


async def test_a_registration_and_a_removal_come_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def foretell(*_: object) -> None:
        begun.set()
        assert goes_on.wait(30)

    async with staged(tmp_path) as stage:
        work = stage.directory()
        await stage.host.register(stage.order(work, start=False))
        monkeypatch.setattr(Admission, "_foretell", foretell)
        again = asyncio.create_task(stage.host.register(stage.order(work)))
        await eventually(begun.is_set)
        remove = asyncio.create_task(stage.host.forget("demo"))
        await asyncio.sleep(0)
        goes_on.set()
        await again
        with pytest.raises(WrongState):
            await remove
        other = stage.order(stage.directory("other"), "other", start=False)
        await asyncio.wait_for(stage.host.register(other), 30)
        assert len(stage.host.regents()) == 2


async def test_a_name_is_free_when_its_files_are_gone(tmp_path: Path, late_removal: threading.Event) -> None:
    async with staged(tmp_path) as stage:
        work = stage.directory()
        await stage.host.register(stage.order(work, start=False))
        remove = asyncio.create_task(stage.host.forget("demo"))
        await eventually(lambda: not stage.host.regents())
        again = asyncio.create_task(stage.host.register(stage.order(work)))
        await asyncio.sleep(0.1)
        assert not again.done()
        late_removal.set()
        await remove
        await again
        await stage.begins(AGENT)
        (regent,) = stage.host.regents()
        assert (regent.account.files.runs / str(regent.living)).is_dir()


@pytest.mark.parametrize("verb", ["rm", "trees rm"])
async def test_a_ralph_is_not_removed_while_its_setup_runs(tmp_path: Path, verb: str) -> None:
    async with staged(tmp_path) as stage:
        work = stage.repository(stage.command(SETUP))
        order = WorktreeOrder(stage.order(work))
        start = asyncio.create_task(stage.host.start_in_worktrees(order))
        await stage.begins(SETUP)
        with pytest.raises(WrongState, match="demo is being set up"):
            await (stage.host.forget("demo") if verb == "rm" else stage.host.trees.remove("demo", keep=False))
        (regent,) = stage.host.regents()
        assert "its [ralph] setup runs" in json.loads(regent.view_bytes())["notes"]
        await stage.host.ask("demo", StopRequested, now=False)
        with pytest.raises(CommandNotStartable, match="was stopped"):
            await asyncio.wait_for(start, 30)
        assert not stage.living(SETUP) and not stage.living(AGENT)
        assert not regent.has_a_run and "setup" not in str(json.loads(regent.view_bytes())["notes"])


async def test_a_worktree_is_not_removed_under_a_ralph_that_was_started_meanwhile(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.host.start_in_worktrees(WorktreeOrder(stage.order(stage.repository("true"), start=False)))
        (regent,) = stage.host.regents()
        async with stage.host.trees._alone:  # another one is being made
            remove = asyncio.create_task(stage.host.trees.remove("demo", keep=False))
            await asyncio.sleep(0.1)
            await stage.host.start("demo")
            await stage.begins(AGENT)
        with pytest.raises(WrongState, match="demo is running"):
            await remove
        assert regent.account.definition.directory.exists() and stage.living(AGENT)


async def test_a_setup_ends_with_a_daemon_that_ends_its_runs(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        order = WorktreeOrder(stage.order(stage.repository(stage.command(SETUP))))
        start = asyncio.create_task(stage.host.start_in_worktrees(order))
        await stage.begins(SETUP)
        await stage.host.shutdown("now")
        await stage.host.end("now")
        assert not stage.living(SETUP)
        with suppress(RalphdError):
            await asyncio.wait_for(start, 30)


async def test_no_run_begins_after_the_end_of_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, begun, goes_on = registration.candidate, threading.Event(), threading.Event()

    def slow(*words: Any) -> Candidate:
        begun.set()
        assert goes_on.wait(30)
        return check(*words)

    monkeypatch.setattr(registration, "candidate", slow)
    async with staged(tmp_path) as stage:
        new = asyncio.create_task(stage.host.register(stage.order(stage.directory())))
        await eventually(begun.is_set)
        await stage.host.shutdown("now")
        end = asyncio.create_task(stage.host.end("now"))
        goes_on.set()
        with suppress(RalphdError):
            await asyncio.wait_for(new, 30)
        await end
        assert not stage.living(AGENT)
