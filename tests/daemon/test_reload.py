"""What is pinned and what the files say: found cheaply, told once, and nothing by itself."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from ralphd.config import configuration as config
from ralphd.core.delivery import Destination, StoredEvent
from ralphd.core.supervision.model import Goal, RunId, Running, Supervision
from ralphd.daemon.host import Host
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.regent import Regent
from ralphd.daemon.registration import Registration
from ralphd.daemon.reload import DriftWatch, Renewal, renewed
from ralphd.daemon.services import EventPublisher, Services
from ralphd.notify.hub import Hub
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.state import Definition, RalphFiles, RegentState
from tests.helpers import eventually

RUNNING = Supervision(Goal.RUNNING, Running(RunId("r000001-3fa9c1d2")))


@dataclass
class Scene:
    """One ralph in a directory of its own, and whoever looks at its files."""

    place: Path
    services: Services
    events: EventStore
    regent: Regent
    watch: DriftWatch

    @property
    def account(self) -> RalphRecord:
        return self.regent.account

    def write(self, text: str) -> None:
        (self.place / "ralph.toml").write_text(text)

    async def look(self) -> tuple[dict[str, Any], ...]:
        self.watch.begin({self.account.definition.name})
        await self.watch.look(self.account)
        return tuple(dict(each) for each in self.account.drift)

    async def told(self) -> list[StoredEvent]:
        return [event for event in await self.events.last(100) if event.type == "config.drifted"]


@asynccontextmanager
async def scene(
    tmp_path: Path, *, command: tuple[str, ...] = ("true",), supervision: Supervision | None = None
) -> AsyncIterator[Scene]:
    place, home = tmp_path / "demo", tmp_path / "home"
    for each in (place, home):
        each.mkdir(exist_ok=True)
    events = await EventStore.open(tmp_path / "events.db")
    services = Services(
        state_directory=tmp_path / "state",
        socket_path=tmp_path / "ralphd.sock",
        umask=0o022,
        clock=Clock(),
        news=EventPublisher(events, Hub(), Clock()),
    )
    files = RalphFiles(tmp_path / "state" / "ralphs" / "demo")
    files.create()
    files.save_environment({"HOME": str(home)})
    pinned = config.load(place, environ={"HOME": str(home)})
    definition = Definition("demo", place, command, pinned.pinned(), 0.0)
    record = RegentState(supervision or Supervision())
    account = RalphRecord(files, definition, record, services)
    try:
        yield Scene(place, services, events, Regent(account, services), DriftWatch())
    finally:
        await events.close()


async def test_a_changed_file_is_shown_with_its_place_and_told_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        assert await one.look() == ()

        one.write("[regent]\nmax_retries = 5\n")
        assert await one.look() == (
            {"key": "regent.max_retries", "pinned": "3", "now": "5", "origin": "ralph.toml:2"},
        )
        assert await one.look() == await one.look()

        (told,) = await one.told()
        assert told.data["do"] == "ralphctl reload demo"
        assert json.loads(one.regent.view_bytes())["drift"][0]["now"] == "5"
        assert one.account.policy.max_retries == 3


async def test_what_is_put_back_is_no_drift_and_another_change_is_told_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retries = 5\n")
        await one.look()
        one.write("")
        assert await one.look() == ()
        one.write("[regent]\nmax_retries = 7\n")
        await one.look()

        assert [event.data["drift"][0]["now"] for event in await one.told()] == ["5", "7"]


async def test_the_next_daemon_shows_it_and_does_not_tell_it_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retries = 5\n")
        await one.look()
        one.account.drift, one.watch = (), DriftWatch()

        assert len(await one.look()) == 1
        assert len(await one.told()) == 1


async def test_a_broken_file_is_drift_with_the_text_of_its_faults(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retires = 5\nstop_timeout_seconds = -1\n")
        found = await one.look()

        assert [set(each) for each in found] == [{"fault"}, {"fault"}]
        (told,) = await one.told()
        assert "nothing changes until it is right: ralph.toml:2" in told.data["message"]
        assert "ralph.toml:2: regent.max_retires: unknown key, did you mean max_retries?" in found[0]["fault"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[", b"x = " + b"[" * 50_000])
async def test_whatever_an_agent_writes_there_is_told_and_harms_nothing(
    tmp_path: Path, content: bytes
) -> None:
    async with scene(tmp_path) as one:
        (one.place / "ralph.toml").write_bytes(content)

        assert "ralph.toml" in (await one.look())[0]["fault"]


async def test_a_file_in_the_way_is_told_and_waits_for_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        os.mkfifo(one.place / "ralph.toml")

        assert "is not a regular file" in (await one.look())[0]["fault"]


async def test_thousands_of_faults_are_not_all_kept(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\n" + "".join(f"{'k' * 50}{number} = 1\n" for number in range(3000)))
        found = await one.look()

        assert len(found) == 51
        assert found[-1] == {"fault": "and 2950 more"}


async def test_files_that_are_untouched_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retries = 5\n")
        await one.look()
        with monkeypatch.context() as patched:
            patched.setattr("ralphd.daemon.reload._read", lambda account: pytest.fail("read again"))
            assert len(await one.look()) == 1


async def test_a_file_nearer_than_the_one_that_was_read_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ralph.toml").write_text("[regent]\nmax_retries = 4\n")
    async with scene(tmp_path) as one:
        assert await one.look() == ()
        one.write("[regent]\nmax_retries = 5\n")

        assert (await one.look())[0]["pinned"] == "4"


async def test_a_directory_that_is_gone_is_no_drift(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retries = 5\n")
        before = await one.look()
        one.place.rename(tmp_path / "moved")

        assert await one.look() == before


async def test_a_reload_while_a_run_lives_is_for_the_next_one(tmp_path: Path) -> None:
    async with scene(tmp_path, supervision=RUNNING) as one:
        one.write("[regent]\nmax_retries = 5\n")
        await one.look()
        one.account.redefine(renewed(one.account).definition)

        assert one.account.policy.max_retries == 3
        assert one.regent.view()["notes"] == ["from the next run on: regent.max_retries = 5 (now 3)"]
        assert await one.look() == ()

        one.account.take_up()
        assert one.account.policy.max_retries == 5
        assert one.regent.view()["notes"] == []


async def test_a_reload_while_none_lives_is_for_now(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        one.write("[regent]\nmax_retries = 5\n")
        one.account.redefine(renewed(one.account).definition)

        assert one.account.policy.max_retries == 5
        assert one.regent.view()["notes"] == []


async def test_a_reload_names_no_key_of_the_daemon(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        own = tmp_path / "home/.config/ralph/config.toml"
        own.parent.mkdir(parents=True)
        own.write_text(
            '[web]\nlisten = "127.0.0.1:7999"\n[regent]\nmax_retries = 5\n[notify]\nreminder_minutes = 5\n'
        )
        keys = {change.key for change in renewed(one.account).changes}
        assert keys == {"regent.max_retries", "notify.reminder_minutes"}


async def test_a_webhook_that_left_the_users_own_file_gets_nothing_of_a_ralph_either(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        own = tmp_path / "home/.config/ralph/config.toml"
        own.parent.mkdir(parents=True)
        own.write_text('[[webhooks]]\nurl = "https://mine.example/"\n')
        one.write('[[webhooks]]\nurl = "https://theirs.example/"\n')
        one.account.redefine(renewed(one.account).definition)
        told = [to.label for to in one.account.told().destinations]
        assert told == ["https://mine.example", "https://theirs.example"], "the daemon has not read the file"

        one.services.news.own_file = str(own)
        own.write_text("")

        assert [to.label for to in one.account.told().destinations] == ["https://theirs.example"]
        assert renewed(one.account).changes == ()


async def test_flags_of_the_start_lie_over_what_the_file_says_now(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        definition = replace(one.account.definition, flags={"regent.max_retries": 9})
        one.account.redefine(definition)
        one.account.redefine(renewed(one.account).definition)
        one.write("[regent]\nmax_retries = 5\n")

        assert one.account.policy.max_retries == 9
        assert renewed(one.account).changes == ()


async def test_a_command_that_was_given_stays_and_one_of_the_files_follows_them(tmp_path: Path) -> None:
    async with scene(tmp_path, command=("given",)) as one:
        one.write('[ralph]\ncommand = ["other"]\n')
        found = renewed(one.account)
        assert (found.definition.command, found.changes) == (("given",), ())

    (tmp_path / "demo" / "ralph.toml").write_text('[ralph]\ncommand = ["first"]\n')
    async with scene(tmp_path, command=("first",)) as one:
        one.write('[ralph]\ncommand = ["second"]\n')
        found = renewed(one.account)
        assert found.definition.command == ("second",)
        assert [change.key for change in found.changes] == ["ralph.command"]

        one.write("")
        found = renewed(one.account)
        assert found.definition.runs_own_loop
        assert [change.key for change in found.changes] == ["ralph.command"]


async def test_the_users_own_webhooks_are_told_beside_those_that_are_pinned_and_of_the_daemons_own_news(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as one:
        users, pinned = Destination("http://users", on=("*",)), Destination("http://pinned", on=("ralph.*",))
        one.services.news.always = (users,)
        await one.services.news.tell("daemon.degraded", {"message": "x"})
        await one.services.news.tell("ralph.failed", {}, ralph="demo", destinations=(users, pinned))

        due = await one.events.due(Clock().now() + 1)
        assert sorted((each.event.type, each.destination) for each in due) == sorted(
            [("daemon.degraded", users.id), ("ralph.failed", users.id), ("ralph.failed", pinned.id)]
        )


async def test_of_two_reloads_at_once_the_earlier_reading_does_not_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as one:
        host = Host(one.services, cast(Any, None))
        await host.register(Registration(str(one.place), ["true"], environment={"HOME": "/"}, start=False))
        account = host.regents()[0].account
        has_read, other_is_done = threading.Event(), threading.Event()

        def slow(account: RalphRecord) -> Renewal:
            found = renewed(account)
            if not has_read.is_set():
                has_read.set()
                other_is_done.wait(0.5)
            return found

        monkeypatch.setattr("ralphd.daemon.host.renewed", slow)
        one.write("[regent]\nmax_retries = 8\n")
        earlier = asyncio.create_task(host.reload_ralph(account.definition.name))
        await eventually(has_read.is_set)
        one.write("[regent]\nmax_retries = 9\n")
        await host.reload_ralph(account.definition.name)
        other_is_done.set()
        await earlier
        assert account.policy.max_retries == 9
        await host._roster.close()
