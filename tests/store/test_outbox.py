"""What becomes of deliveries: listed, given up, sent again under their id, over restarts and full disks."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ralphd.core.delivery import Delivery, DeliveryState, Destination, KeptDelivery
from ralphd.store import events
from ralphd.store.events import EventStore
from tests.store.conftest import SmallDisk

ONE, TWO = Destination("http://one.example"), Destination("http://two.example")
FOREVER = 1e12
AT = 1_700_000_000.0


@asynccontextmanager
async def opened(path: Path, clock: Callable[[], float] = lambda: AT) -> AsyncIterator[EventStore]:
    store = await EventStore.open(path / "events.db", clock=clock)
    try:
        yield store
    finally:
        await store.close()


async def queue(store: EventStore, *to: Destination, ralph: str = "demo") -> Delivery:
    """Queue an event; its first delivery."""
    event = await store.append("ralph.escalated", AT, ralph, "r1", {}, deliver_to=to)
    assert event is not None
    return next(
        each.delivery for each in reversed(await store.deliveries(None, 9)) if each.delivery.event == event
    )


def states(kept: list[KeptDelivery]) -> list[tuple[int, str, str | None]]:
    return [(each.delivery.id, each.state.value, each.last_error) for each in kept]


async def test_deliveries_are_listed_newest_first_whatever_became_of_them(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        arrived, lost, waiting = [await queue(store, ONE) for _ in range(3)]
        other = await queue(store, TWO)
        await store.delivered(arrived.id)
        await store.failed(lost.id, "answered 500", None)
        await store.failed(waiting.id, "answered 503", AT + 60)
        expected = [
            (other.id, "pending", None),
            (waiting.id, "pending", "answered 503"),
            (lost.id, "given_up", "answered 500"),
            (arrived.id, "delivered", None),
        ]
        assert states(await store.deliveries(None, 10)) == expected
        assert states(await store.deliveries(ONE.id, 2)) == expected[1:3]
    async with opened(tmp_path) as store:
        kept = await store.deliveries(None, 10)
        assert states(kept) == expected
        assert (kept[1].delivery.failures, kept[1].delivery.next_at) == (1, AT + 60)
        assert (kept[2].done_at, kept[1].done_at) == (AT, None)
        assert await store.delivery(lost.id) == kept[2]
        assert await store.delivery(1) is None


async def test_what_waits_outlasts_a_deleted_file(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        waiting = await queue(store, ONE)
        for path in tmp_path.iterdir():
            path.unlink()
        assert store.file.is_gone
        assert await store.heal()
        assert not store.file.is_gone
    async with opened(tmp_path) as store:
        assert await store.due(AT) == [waiting]


async def test_a_replay_is_a_new_delivery_of_the_same_message(tmp_path: Path) -> None:
    now = [AT]
    async with opened(tmp_path, lambda: now[0]) as store:
        lost = await queue(store, ONE)
        await store.failed(lost.id, "answered 500", AT + 1)
        await store.failed(lost.id, "answered 500", None)
        now[0] += 1000
        again = await store.replay(lost.id)
        assert again is not None and again.state is DeliveryState.PENDING
        replayed = again.delivery
        assert (replayed.message_id, replayed.event) == (lost.message_id, lost.event)
        assert (replayed.failures, replayed.queued_at, replayed.next_at) == (0, now[0], now[0])
        assert await store.due(now[0]) == [replayed]
        assert await store.replay(lost.id) == again, "asked twice, it is sent once"
        assert await store.replay(12345) is None
    async with opened(tmp_path) as store:
        assert await store.due(FOREVER) == [replayed]
        assert [each[1] for each in states(await store.deliveries(ONE.id, 9))] == ["pending", "given_up"]


async def test_a_replay_of_one_that_waits_lets_its_queue_go_now(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        first, second, other = await queue(store, ONE), await queue(store, ONE), await queue(store, TWO)
        for each in (first, other):
            await store.failed(each.id, "x", AT + 3600)
        assert await store.due(AT) == []
        again = await store.replay(second.id)
        assert again is not None and again.delivery.id == second.id
        assert [each.id for each in await store.due(AT)] == [first.id]
    async with opened(tmp_path) as store:
        assert [each.id for each in await store.due(AT)] == [first.id]


async def test_what_waits_for_a_webhook_that_was_removed_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        mine = [await queue(store, ONE, ralph=name) for name in ("a", "b")]
        other = await queue(store, TWO)
        await store.abandon(ONE.id, "it was removed")
        assert await store.due(FOREVER) == [other]
        assert store.counted["given_up"] == 2
    async with opened(tmp_path) as store:
        assert await store.due(FOREVER) == [other]
        assert states(await store.deliveries(ONE.id, 9)) == [
            (each.id, "given_up", "it was removed") for each in reversed(mine)
        ]


async def test_one_that_has_to_make_room_is_listed_as_given_up(tmp_path: Path) -> None:
    room, events.MAX_WAITING = events.MAX_WAITING, 1
    try:
        async with opened(tmp_path) as store:
            first, _ = await queue(store, ONE), await queue(store, ONE)
            assert states(await store.deliveries(ONE.id, 9))[1] == (
                first.id,
                "given_up",
                "too many were waiting",
            )
    finally:
        events.MAX_WAITING = room


async def test_a_full_disk_does_not_make_the_list_untrue(tmp_path: Path, small_disk: SmallDisk) -> None:
    async with opened(small_disk.path) as store:
        arrived, waiting = await queue(store, ONE), await queue(store, ONE)
        small_disk.fill()
        await store.delivered(arrived.id)
        unwritten = await queue(store, ONE)
        assert store.degraded
        assert [each[:2] for each in states(await store.deliveries(ONE.id, 9))] == [
            (unwritten.id, "pending"),
            (waiting.id, "pending"),
            (arrived.id, "delivered"),
        ]
        small_disk.free()
        assert await store.heal()
        assert [each[:2] for each in states(await store.deliveries(ONE.id, 9))][2] == (
            arrived.id,
            "delivered",
        )


async def test_the_last_delivery_that_waits_for_its_turn_is_told_by_the_one_that_holds_it_up(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        assert await store.last_delivery(ONE.id) is None
        first = await queue(store, ONE)
        await store.failed(first.id, "answered 500", FOREVER)
        await queue(store, ONE)
        held_up = await store.last_delivery(ONE.id)
        assert held_up is not None
        assert (held_up.delivery.id, held_up.last_error) == (first.id, "answered 500")
        other = await queue(store, ONE, ralph="other")
        await store.delivered(other.id)
        assert (await store.last_delivery(ONE.id)) == (await store.deliveries(ONE.id, 1))[0]


async def test_what_failed_while_the_clock_was_ahead_is_due_when_it_is_set_back(tmp_path: Path) -> None:
    now = [AT + 8 * 3600.0]
    async with opened(tmp_path, clock=lambda: now[0]) as store:
        failed = await queue(store, ONE)
        await store.failed(failed.id, "no network", now[0] + 300.0)
        assert await store.due(now[0], 1) == []
        now[0] = AT
        assert [each.id for each in await store.due(now[0], 1)] == [failed.id]

        await store.failed(failed.id, "no network", now[0] + 300.0)
        now[0] += 60.0
        assert await store.due(now[0], 1) == []
