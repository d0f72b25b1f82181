"""Logs and events of other machines: pulled in portions, and sent at least once. The engine is in memory."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.checked import write_value
from ralphd.daemon.fleet.sharing import events as sharing
from ralphd.daemon.fleet.sharing import logs
from ralphd.daemon.fleet.sharing.events import EventSender, SharedEvents
from ralphd.daemon.fleet.sharing.logs import RemoteLog, portion_of
from ralphd.errors import HubSilent, RalphdError, UsageError
from ralphd.fleet.fabric import Fabric, JsonObject
from ralphd.fleet.nats import NatsFabric
from ralphd.process.log.log import RalphLog
from ralphd.process.log.records import Gap, Item, LogQuery
from ralphd.store.events import EventStore
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.fleet.server import NatsServer
from tests.helpers import eventually
from tests.process.log import written_logs as written

MOST_BYTES = 64 << 10


@dataclass
class Elsewhere:
    """A log on another machine, which answers as long as it is not absent."""

    runs: Path
    is_absent: bool = False
    has_ended: bool = True
    sizes: list[int] = field(default_factory=list)

    @property
    def log(self) -> RemoteLog:
        return RemoteLog("h2", self.ask, asyncio.get_running_loop())

    async def ask(self, body: JsonObject) -> JsonObject:
        if self.is_absent:
            raise HubSilent("h2 is silent since 14:03")
        portion = await asyncio.to_thread(portion_of, RalphLog(self.runs), json.loads(json.dumps(body)))
        text = json.dumps({**portion, "ended": self.has_ended})
        self.sizes.append(len(text))
        reply: JsonObject = json.loads(text)
        return reply

    async def read(self, query: LogQuery) -> list[Item]:
        return await asyncio.to_thread(list, self.log.read(query))


@pytest.mark.parametrize(
    "query", [LogQuery(), LogQuery(tail=3), LogQuery(grep="line 7"), LogQuery(stream="regent")]
)
async def test_a_log_elsewhere_reads_as_here(tmp_path: Path, query: LogQuery) -> None:
    run, elsewhere = written.run_directory(tmp_path, 1), Elsewhere(tmp_path)
    for segment in (1, 2):
        lines = (written.line(b"line %d \xff" % number + b"\x1b" * 4000) for number in range(20))
        written.write(run, segment, b"".join(lines))
    written.write(run, 2, written.line(b"x" * 16384))
    written.write_regent(run, written.line(b"ended", stream="regent"))

    assert await elsewhere.read(query) == list(RalphLog(tmp_path).read(query))
    assert max(elsewhere.sizes) <= MOST_BYTES


async def test_a_log_without_a_run_is_empty(tmp_path: Path) -> None:
    assert await Elsewhere(tmp_path / "none").read(LogQuery(tail=100)) == []


async def test_a_reader_follows_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_S", 0.01)
    run, elsewhere, seen = (
        written.run_directory(tmp_path, 1),
        Elsewhere(tmp_path, has_ended=False),
        list[Item](),
    )
    written.write(run, 1, written.line(b"1") + written.line(b"2"))
    log = elsewhere.log

    async def follow() -> None:
        async for batch in log.follow(
            LogQuery(tail=1), stopping=asyncio.Event(), ended=lambda: log.has_ended
        ):
            seen.extend(batch)

    following = asyncio.create_task(follow())
    await eventually(lambda: written.texts(seen) == [b"2"])
    written.write(run, 1, written.line(b"3"))
    await eventually(lambda: written.texts(seen) == [b"2", b"3"])
    elsewhere.has_ended = True
    await asyncio.wait_for(following, 10)
    assert written.texts(seen) == [b"2", b"3"]


async def test_an_absent_machine_leaves_a_gap(tmp_path: Path) -> None:
    run, elsewhere = written.run_directory(tmp_path, 1), Elsewhere(tmp_path)
    written.write(run, 1, written.line(b"x" * 16000) * 4)
    reading = elsewhere.log.read(LogQuery())
    items = [await asyncio.to_thread(next, reading)]
    elsewhere.is_absent = True
    items += await asyncio.to_thread(list, reading)

    assert isinstance(items[-1], Gap)
    assert "h2 is silent since 14:03" in items[-1].reason
    with pytest.raises(HubSilent):
        await elsewhere.log.check()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
)


@given(query=JSON, limit=JSON)
def test_no_request_for_a_log_is_a_bug(query: Any, limit: Any) -> None:
    with suppress(RalphdError):
        portion_of(RalphLog(Path("/nonexistent")), {"query": query, "limit": limit})


def test_a_cursor_names_no_other_directory(tmp_path: Path) -> None:
    words = {**write_value(LogQuery()), "cursor": {"run_id": "../x", "segment": 1, "offset": 0, "regent": 0}}
    with pytest.raises(UsageError, match="is no cursor"):
        portion_of(RalphLog(tmp_path), {"query": words, "follows": True})


@given(items=JSON, cursor=JSON)
async def test_any_answer_is_read_or_refused(items: Any, cursor: Any) -> None:
    async def ask(body: JsonObject) -> JsonObject:
        return {"items": items, "cursor": cursor, "limit": None, "more": False, "ended": False}

    with suppress(HubSilent):
        await RemoteLog("h2", ask, asyncio.get_running_loop()).check()


# --- events ----------------------------------------------------------------------------------------------


@dataclass
class Sending:
    """A machine that sends its events."""

    store: EventStore
    fabric: Fabric
    is_allowed: bool = True
    troubles: dict[str, str | None] = field(default_factory=dict)

    async def tell(self, *numbers: int, ralph: str | None = "web") -> None:
        for n in numbers:
            await self.store.append("ralph.paused", 1.0, ralph, None, {"n": n})


@asynccontextmanager
async def sending(
    hub: MemoryHub | NatsServer,
    state: Path,
    name: str = "h1",
    clock: Callable[[], float] = time.time,
    **spec: Any,
) -> AsyncIterator[Sending]:
    store = await EventStore.open(state / f"{name}.db", clock=clock)
    fabric: Fabric = MemoryFabric(hub, name) if isinstance(hub, MemoryHub) else NatsFabric(hub.settings(name))
    await fabric.connect()
    one = Sending(store, fabric, **spec)
    sender = EventSender(
        fabric, store, state / f"{name}.json", lambda: one.is_allowed, one.troubles.__setitem__
    )
    running = asyncio.create_task(sender.run())
    await eventually(lambda: sender.file.exists())
    try:
        yield one
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await fabric.close()
        await store.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "POLL_S", 0.01)


def numbers(hub: MemoryHub) -> list[int]:
    return [body["data"]["n"] for _, body in hub.events]


async def test_events_arrive_in_order_over_outages(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sending(hub, tmp_path) as one:
        await one.tell(1, 2)
        await eventually(lambda: numbers(hub) == [1, 2])
        hub.cut("h1")
        await one.tell(3, 4)
        hub.answers_to_lose = 2
        hub.heal()
        await eventually(lambda: numbers(hub) == [1, 2, 3, 4])
        hub.cut("h1")
        await one.tell(5)
    hub.heal()
    async with sending(hub, tmp_path) as again:  # another daemon
        await again.tell(6)
        await eventually(lambda: numbers(hub) == [1, 2, 3, 4, 5, 6])
    assert {subject for subject, _ in hub.events} == {"h1.web.ralph.paused"}


async def test_events_before_the_fleet_stay_here(tmp_path: Path) -> None:
    hub, store = MemoryHub(), await EventStore.open(tmp_path / "h1.db")
    await store.append("ralph.paused", 1.0, "web", None, {"n": 0})
    await store.close()
    async with sending(hub, tmp_path) as one:
        await one.tell(1)
        await eventually(lambda: numbers(hub) == [1])


async def test_a_removed_state_repeats_no_id(tmp_path: Path) -> None:
    hub = MemoryHub()
    for n in (1, 2):
        state = tmp_path / str(n)
        state.mkdir()
        async with sending(hub, state, clock=lambda: 0.041) as one:  # a clock that was set back
            await one.tell(n)
            await eventually(lambda n=n: len(hub.events) == n)  # type: ignore[misc]
    assert numbers(hub) == [1, 2]


async def test_events_that_may_not_be_shared_are_never_sent(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sending(hub, tmp_path, is_allowed=False) as one:
        cursor = (tmp_path / "h1.json").read_bytes()
        await one.tell(1)
        await eventually(lambda: (tmp_path / "h1.json").read_bytes() != cursor)
        one.is_allowed = True
        await one.tell(2)
        await eventually(lambda: numbers(hub) == [2])


async def test_a_huge_event_blocks_nothing(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sending(hub, tmp_path) as one:
        await one.store.append("ralph.paused", 1.0, None, None, {"message": "ä" * 60_000})
        await one.tell(2)
        await eventually(lambda: len(hub.events) == 2)
    assert [subject for subject, _ in hub.events] == ["h1.ralphd.ralph.paused", "h1.web.ralph.paused"]
    assert hub.events[0][1]["data"] == {"message": "too long to be shown here"}


async def test_a_killed_hub_gets_all_events_once(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "hub")
    server.start()
    try:
        await server.make_buckets()
        async with sending(server, tmp_path) as one:
            events = reader(one.fabric)
            for n in range(60):
                await one.tell(n)
                if n % 20 == 10:
                    server.kill()
                    await one.tell(1000 + n)
                    await asyncio.to_thread(server.start)

            async def read_back() -> list[int]:
                with suppress(HubSilent):
                    return [each.data["n"] for each in await events.since(0)]
                return []

            async with asyncio.timeout(30):
                while len(found := await read_back()) < 63:
                    await asyncio.sleep(0.05)
            sent = [each.data["n"] for each in await one.store.since(0)]
            assert found == sent
    finally:
        server.kill()


def reader(fabric: Fabric) -> SharedEvents:
    return SharedEvents(fabric, lambda fault: HubSilent(str(fault)))


async def test_events_of_all_machines_are_read(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with sending(hub, tmp_path) as one, sending(hub, tmp_path, "h2") as two:
        events = reader(two.fabric)
        assert (await events.before(5), await events.latest_id()) == (0, 0)
        await one.tell(1, 2)
        await eventually(lambda: len(hub.events) == 2)
        await two.fabric.publish_events([("x", "web.y", {"type": "no such type"}), ("y", "web.z", {})])
        await two.tell(3, ralph=None)
        await eventually(lambda: len(hub.events) == 5)

        found = [each.as_object() for each in await events.since(0)]

        assert [(each["id"], each["host"], each["ralph"]) for each in found] == [
            (1, "h1", "web"),
            (2, "h1", "web"),
            (5, "h2", None),
        ]
        assert [each.id for each in await events.since(1, 1)] == [2]
        assert (await events.since(5), await events.before(2), await events.latest_id()) == ([], 3, 5)
        hub.wipe()
        await one.tell(4)
        await eventually(lambda: len(hub.events) == 1)
        assert [each.id for each in await events.since(5)] == [1]
        hub.cut("h2")
        with pytest.raises(HubSilent):
            await events.since(5)
