"""Whoever listens gets everything in order; whoever does not keep up is ended and holds up nobody."""

import asyncio

import pytest

from ralphd.core.delivery import StoredEvent
from ralphd.notify.hub import Hub


def event(id: int) -> StoredEvent:
    return StoredEvent(id, "ralph.exited", "", None, None, {})


async def test_every_listener_gets_what_is_published_while_it_listens() -> None:
    hub = Hub()
    hub.publish(event(1))
    async with hub.subscribe() as one, hub.subscribe() as two:
        hub.publish(event(2))
        hub.publish(event(3))

        assert [(await anext(one)).id, (await anext(one)).id] == [2, 3]
        assert (await anext(two)).id == 2


async def test_a_listener_waits_for_news() -> None:
    hub = Hub()
    async with hub.subscribe() as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not waiting.done()

        hub.publish(event(1))

        assert (await waiting).id == 1


async def test_a_read_that_is_given_up_loses_nothing() -> None:
    hub = Hub()
    async with hub.subscribe() as events:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.01)
        hub.publish(event(1))

        assert (await anext(events)).id == 1


async def test_a_listener_that_does_not_keep_up_is_ended_and_the_others_are_not() -> None:
    hub = Hub(bound=3)
    async with hub.subscribe() as slow, hub.subscribe() as quick:
        seen = []
        for id in range(1, 6):
            hub.publish(event(id))
            seen.append((await anext(quick)).id)

        assert seen == [1, 2, 3, 4, 5]
        assert [e.id async for e in slow] == [1, 2, 3]


async def test_closing_the_hub_ends_those_who_wait() -> None:
    hub = Hub()
    async with hub.subscribe() as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)

        hub.close()

        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_listener_that_left_is_forgotten() -> None:
    hub = Hub(bound=1)
    async with hub.subscribe() as events:
        pass
    hub.publish(event(1))
    hub.publish(event(2))

    assert [e async for e in events] == []
