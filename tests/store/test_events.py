"""``events.db``: ids that only rise, nothing twice, an outbox that survives, a disk that may be full."""

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.delivery import Delivery, Destination, StoredEvent
from ralphd.core.time import rfc3339
from ralphd.errors import NewerState
from ralphd.store.database import ADD_EVENT, OLD, Database
from ralphd.store.events import MAX_WAITING, EventStore, Outbox
from tests.store.conftest import SmallDisk

AT = 1_700_000_000.25
ONE, TWO = Destination("http://one.example"), Destination("http://two.example")
FOREVER = 1e12

ENQUEUE = """
import asyncio, sys
from pathlib import Path
from ralphd.core.delivery import Destination
from ralphd.store.events import EventStore

async def main():
    events = await EventStore.open(Path(sys.argv[1]))
    for key in sys.argv[2:]:
        await events.append("ralph.escalated", 1.0, "demo", None, {}, key=key,
            deliver_to=[Destination("http://one.example")])
        print(key, flush=True)

asyncio.run(main())
"""


@asynccontextmanager
async def opened(path: Path, clock: Callable[[], float] = time.time) -> AsyncIterator[EventStore]:
    store = await EventStore.open(path, clock=clock)
    try:
        yield store
    finally:
        await store.close()


async def add(
    store: EventStore, ralph: str = "demo", *to: Destination, key: str | None = None
) -> StoredEvent:
    event = await store.append("ralph.escalated", AT, ralph, "r1", {"why": "é"}, key=key, deliver_to=to)
    assert event is not None
    return event


async def test_events_are_given_back_as_they_came_with_rising_ids(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        before = await store.latest_id()
        events = [await add(store) for _ in range(5)]

        assert [event.id for event in events] == list(range(before + 1, before + 6))
        assert events[0].as_object() == {
            "id": before + 1,
            "type": "ralph.escalated",
            "at": "2023-11-14T22:13:20.250000Z",
            "ralph": "demo",
            "run_id": "r1",
            "data": {"why": "é"},
        }
        assert await store.since(before) == events
        assert await store.since(before, 2) == events[:2]
        assert await store.since(events[2].id) == events[3:]
        assert await store.last(2) == events[3:]
        assert await store.last(0) == []
        assert await store.latest_id() == events[-1].id


async def test_events_outlive_the_daemon_and_ids_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        first = await add(store)
    async with opened(tmp_path / "events.db") as store:
        second = await add(store)

        assert second.id > first.id
        assert await store.since(first.id - 1) == [first, second]


async def test_ids_do_not_fall_behind_when_the_clock_was_set_back(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        first = await add(store)
    async with opened(tmp_path / "events.db", clock=lambda: 1000.0) as store:
        assert (await add(store)).id == first.id + 1


async def test_news_told_twice_is_one_event_and_one_message(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        await add(store, "demo", ONE, key="k")
    async with opened(tmp_path / "events.db") as store:
        again = await store.append("ralph.escalated", AT, "demo", "r1", {}, key="k", deliver_to=[ONE])

        assert again is None
        assert len(await store.last(10)) == 1
        assert len(await store.due(FOREVER)) == 1


async def test_the_file_is_private(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        await add(store)

        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


async def test_a_cancelled_append_is_carried_out(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        adding = asyncio.ensure_future(add(store))
        await asyncio.sleep(0)
        adding.cancel()

        assert len(await store.last(10)) == 1


def _kill_during(path: Path, failpoint: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", ENQUEUE, str(path), "first"],
        env={**os.environ, "RALPHD_FAILPOINTS": f"{failpoint}=kill"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    return ended.stdout


async def test_a_kill_within_a_transaction_leaves_neither_event_nor_message(tmp_path: Path) -> None:
    assert _kill_during(tmp_path / "events.db", "events.before_commit") == ""

    async with opened(tmp_path / "events.db") as store:
        assert await store.last(10) == []
        assert await store.next_due_at() is None
        assert store.recovered is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database at all" * 200),
        lambda path: os.truncate(path, 5000),
        lambda path: path.write_bytes(path.read_bytes()[:100] + b"\xff" * 40_000),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), path.symlink_to("elsewhere")),
    ],
    ids=["text", "cut off", "garbage", "a directory", "a link"],
)
async def test_a_broken_file_is_kept_and_ids_go_on_above_its_own(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "events.db"
    async with opened(path) as store:
        old = await add(store)
    damage(path)

    async with opened(path, clock=lambda: time.time() + 60) as store:
        assert store.recovered is not None
        assert Path(store.recovered).name.startswith("events.db.corrupt-")
        assert os.path.lexists(store.recovered)
        assert (await add(store)).id > old.id
        assert store.degraded is None
    assert not (tmp_path / "elsewhere").exists()


async def test_a_file_that_breaks_under_a_living_daemon_is_replaced_with_what_is_still_to_be_sent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.db"
    async with opened(path) as store:
        queued = await add(store, "demo", ONE)
    async with opened(path) as store:
        for file in tmp_path.iterdir():
            file.write_bytes(b"\xee" * 40_000)
        new = await add(store, "demo", TWO)

        assert store.recovered is not None
        assert store.degraded is None
    async with opened(path) as store:
        assert [delivery.event for delivery in await store.due(FOREVER)] == [queued, new]


async def test_of_a_deleted_file_nothing_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(tmp_path / "events.db") as store:
        await add(store)
        for file in tmp_path.iterdir():
            file.unlink()
        await add(store)

        assert (store.recovered, store.degraded) == (None, None)
    assert "events.db was broken or deleted; left of it: nothing" in caplog.text


async def test_a_file_of_version_1_keeps_its_events_and_becomes_2(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    async with opened(path) as store:
        event = await add(store, "demo", ONE)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")

    async with opened(path) as store:
        assert await store.since(0) == [event]
        assert [delivery.event for delivery in await store.due(FOREVER)] == [event]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(NewerState, match="newer ralphd"):
        await EventStore.open(path)

    assert path.read_bytes() == before


async def test_a_full_disk_keeps_events_and_messages_in_memory_and_heals(small_disk: SmallDisk) -> None:
    path = small_disk.path / "events.db"
    async with opened(path) as store:
        first = await add(store, "demo", ONE)
        small_disk.fill()
        late = [await add(store, f"late-{n}", ONE, key=f"k{n}") for n in range(30)]

        assert store.degraded is not None
        assert "full" in store.degraded or "I/O" in store.degraded
        assert await store.since(first.id - 1) == [first, *late]
        assert await store.last(2) == late[-2:]
        assert await store.append("ralph.escalated", AT, "late-3", "r1", {}, key="k29") is None
        for delivery in (await store.due(FOREVER))[:20]:
            await store.delivered(delivery.id)
        assert len(await store.due(FOREVER)) == 11
        assert not await store.heal()

        small_disk.free()
        assert await store.heal()
        assert store.degraded is None
    async with opened(path) as store:
        assert await store.since(first.id - 1) == [first, *late]
        assert len(await store.due(FOREVER)) == 11


async def test_a_disk_that_is_full_at_the_start_holds_nobody_up(small_disk: SmallDisk) -> None:
    small_disk.fill()
    async with opened(small_disk.path / "events.db") as store:
        event = await add(store, "demo", ONE)
        assert store.degraded

        small_disk.free()
        assert await store.heal()
        assert await store.last(10) == [event]
        assert len(await store.due(FOREVER)) == 1


async def test_a_file_in_use_by_somebody_else_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    async with opened(path) as store:
        kept = await add(store, "demo", ONE)
    other = sqlite3.connect(path)
    other.execute("SELECT count(*) FROM events").fetchone()
    other.execute("BEGIN IMMEDIATE")
    async with opened(path) as store:
        event = await add(store, "demo", TWO)
        assert store.degraded is not None
        assert "locked" in store.degraded

        other.close()
        assert await store.heal()
        assert await store.last(10) == [kept, event]
        assert [d.event for d in await store.due(FOREVER)] == [kept, event]


async def test_old_events_are_forgotten_but_for_those_still_to_be_delivered(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        sent, pending, plain = await add(store, "a", ONE), await add(store, "b", ONE), await add(store)
        (delivery,) = [d for d in await store.due(FOREVER) if d.event == sent]
        await store.delivered(delivery.id)
        young = await store.append("ralph.done", AT + 100, None, None, {})

        await store.prune(AT + 50)

        assert await store.last(10) == [pending, young]
        assert plain not in await store.last(10)
    async with opened(tmp_path / "events.db") as store:
        assert (await add(store)).id > plain.id


async def test_looking_for_old_events_costs_the_same_however_many_are_young(tmp_path: Path) -> None:
    def steps(young: int) -> int:
        path = tmp_path / f"{young}.db"
        database = Database(path)
        connection = database.connect()
        for number in range(young):
            connection.execute(
                ADD_EVENT, (number + 1, "ralph.done", rfc3339(AT + number), None, None, "{}", None)
            )
        database.close()
        asked, count = database.connect(), 0

        def counted() -> None:
            nonlocal count
            count += 1

        asked.set_progress_handler(counted, 1)  # once for each instruction of SQLite's virtual machine
        assert database.rows(OLD, (rfc3339(AT), 10)) == []
        database.close()
        return count

    assert steps(2_000) <= steps(20) + 10


async def test_a_file_of_an_earlier_version_gets_the_index_by_time(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        event = await add(store)
    with closing(sqlite3.connect(tmp_path / "events.db")) as file:
        file.execute("DROP INDEX events_at")

    async with opened(tmp_path / "events.db") as store:
        assert await store.last(10) == [event]

    with closing(sqlite3.connect(tmp_path / "events.db")) as file:
        assert file.execute("SELECT name FROM sqlite_schema WHERE name = 'events_at'").fetchall()


async def test_of_each_ralph_and_destination_only_the_oldest_message_is_due(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        first, _second = await add(store, "a", ONE, TWO), await add(store, "a", ONE)
        other = await add(store, "b", ONE)

        due = await store.due(FOREVER)

        assert [(d.event, d.destination) for d in due] == [(first, ONE.id), (first, TWO.id), (other, ONE.id)]
        assert await store.due(FOREVER, 1) == due[:1]


async def test_a_message_that_failed_holds_back_the_later_ones_of_its_ralph(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        first, second = await add(store, "a", ONE), await add(store, "a", ONE)
        (delivery,) = await store.due(FOREVER)
        now = time.time()
        await store.failed(delivery.id, "answered 500", now + 100)

        assert await store.due(now + 99) == []
        assert await store.next_due_at() == now + 100
        (again,) = await store.due(now + 100)
        assert again == replace(delivery, failures=1, next_at=now + 100)

        await store.failed(delivery.id, "answered 500", None)
        (following,) = await store.due(FOREVER)
        assert (again.event, following.event) == (first, second)


async def test_failures_and_their_next_moment_outlive_the_daemon(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        await add(store, "a", ONE)
        (delivery,) = await store.due(FOREVER)
        await store.failed(delivery.id, "answered 500", 5e9)
    async with opened(tmp_path / "events.db") as store:
        assert await store.due(FOREVER) == [replace(delivery, failures=1, next_at=5e9)]
        await store.delivered(delivery.id)
    async with opened(tmp_path / "events.db") as store:
        assert await store.due(FOREVER) == []


async def test_word_of_a_message_that_waits_no_more_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        await store.delivered(12345)
        await store.failed(12345, "x", 5.0)
        await store.failed(12345, "x", None)

        assert await store.next_due_at() is None


async def test_messages_for_different_destinations_carry_the_same_id_of_the_event(tmp_path: Path) -> None:
    async with opened(tmp_path / "events.db") as store:
        await add(store, "a", ONE, TWO)
        await add(store, "b", ONE)

        first, second, other = await store.due(FOREVER)

        assert first.message_id == second.message_id != other.message_id


def test_a_queue_that_grows_too_long_gives_up_its_oldest() -> None:
    event = StoredEvent(1, "ralph.exited", "", "a", None, {})
    pending = [Delivery(n, "d", "m", event, 0.0, 0, 0.0) for n in range(MAX_WAITING + 1)]
    outbox = Outbox(lambda: 1.0, lambda statement: None, lambda *query: [])
    outbox.load(pending[:-1])

    outbox.take([pending[-1]])

    assert outbox.counted == {"given_up": 1}
    assert len(outbox) == MAX_WAITING
    assert outbox.due(1.0, 5) == [pending[1]]
