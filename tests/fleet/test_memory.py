"""The knobs of the engine in memory, and what engines share: the queue of changes, keys."""

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.fleet.entries import LatestEntries, escaped_key, escaped_token, unescaped_key
from ralphd.fleet.fabric import Bucket, Entry, HubUnreachable
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.fleet.test_fabric import following


async def a_host(hub: MemoryHub, name: str = "h1") -> MemoryFabric:
    host = MemoryFabric(hub, name)
    await host.connect()
    return host


async def test_a_lost_answer_was_applied() -> None:
    hub = MemoryHub()
    host = await a_host(hub)
    hub.answers_to_lose = 2
    with pytest.raises(HubUnreachable):
        await host.create(Bucket.LEASES, "r.b", {"n": 1})
    with pytest.raises(HubUnreachable):
        await host.publish_events([("1", "web.x", {"n": 1}), ("2", "web.x", {"n": 2})])
    assert await host.get(Bucket.LEASES, "r.b") == Entry("r.b", {"n": 1}, 1)
    await host.publish_events([("1", "web.x", {"n": 1}), ("2", "web.x", {"n": 2})])
    assert hub.events == [("h1.web.x", {"n": 1}), ("h1.web.x", {"n": 2})]


async def test_lost_writes_are_undone_backwards() -> None:
    hub = MemoryHub()
    host = await a_host(hub)
    first = await host.create(Bucket.LEASES, "a", {"n": 1})
    async with aclosing(host.watch(Bucket.LEASES)) as watch:
        await host.update(Bucket.LEASES, "a", {"n": 2}, revision=first)
        await host.create(Bucket.LEASES, "b", {"n": 3})
        since = host.connected_since
        hub.lose_writes(2)
        assert await host.entries(Bucket.LEASES) == [Entry("a", {"n": 1}, first)]
        assert host.connected_since != since, "the hub was away"
        assert await following(watch) == Entry("a", {"n": 1}, first)
    assert await host.update(Bucket.LEASES, "a", {"n": 4}, revision=first) == first + 1
    hub.lose_writes(1000)
    assert await host.entries(Bucket.LEASES) == []


async def test_a_host_is_cut_off_alone() -> None:
    hub = MemoryHub()
    one, two = await a_host(hub, "h1"), await a_host(hub, "h2")
    async with aclosing(two.watch(Bucket.ITEMS)) as watch:
        hub.cut("h2")
        await one.create(Bucket.ITEMS, "i-1", {"n": 1})
        with pytest.raises(HubUnreachable):
            await two.get(Bucket.ITEMS, "i-1")
        with pytest.raises(HubUnreachable):
            await MemoryFabric(hub, "h2").connect()
        assert (one.is_connected, two.is_connected) == (True, False)
        hub.heal("h2")
        assert await following(watch) == Entry("i-1", {"n": 1}, 1)


async def test_a_cut_during_a_delay_applies_nothing() -> None:
    hub = MemoryHub()
    host = await a_host(hub)
    hub.delay_s = 0.05
    call = asyncio.create_task(host.create(Bucket.ITEMS, "i-1", {}))
    await asyncio.sleep(0)
    hub.cut("h1")
    with pytest.raises(HubUnreachable):
        await call
    hub.heal()
    assert await host.get(Bucket.ITEMS, "i-1") is None


async def test_the_clock_of_the_hub_is_used() -> None:
    now = [5.0]
    host = await a_host(MemoryHub(clock=lambda: now[0]))
    assert host.connected_since == 5.0


async def test_a_queue_holds_the_latest_of_each_key() -> None:
    latest = LatestEntries()
    for n in range(10_000):
        latest.put(Entry(f"k{n % 4}", {}, n))
    assert len(latest) == 4
    assert [await latest.get() for _ in range(4)] == [Entry(f"k{n}", {}, 9996 + n) for n in range(4)]
    latest.put(Entry("k", {}, 1))
    latest.end()
    assert await latest.get() == Entry("k", {}, 1)
    assert await latest.get() is None


@given(st.text(min_size=1, max_size=40) | st.text("./=aB1é", min_size=1, max_size=40))
def test_keys_are_escaped_and_come_back(key: str) -> None:
    escaped = escaped_key(key)
    assert unescaped_key(escaped) == key
    assert all(token for token in escaped.split("."))
    assert set(escaped) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/.=")
    assert "." not in escaped_token(key)


def test_plain_keys_stay() -> None:
    assert escaped_key("0f3a.nrqw4zy") == "0f3a.nrqw4zy"
    assert escaped_token("rack-3_b") == "rack-3_b"
    with pytest.raises(ValueError, match="empty"):
        escaped_token("")
