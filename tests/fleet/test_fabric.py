"""What every engine of a fleet does: the same tests for memory and for NATS."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from ralphd.fleet.fabric import (
    Bucket,
    Entry,
    Fabric,
    HubUnreachable,
    JsonObject,
    NoSuchHost,
    WrongRevision,
)
from tests.fleet.conftest import Hosts
from tests.helpers import eventually

LIMIT_S = 20.0


async def following(watch: AsyncIterator[Entry]) -> Entry:
    """Return the next entry of a watch, within a limit."""
    async with asyncio.timeout(LIMIT_S):
        return await anext(watch)


async def until(watch: AsyncIterator[Entry], value: JsonObject) -> Entry:
    """Read on to a value: after a reconnect the others come again."""
    async with asyncio.timeout(LIMIT_S):
        while (entry := await anext(watch)).value != value:
            pass
    return entry


async def back(fabric: Fabric) -> None:
    await eventually(lambda: fabric.is_connected, timeout_s=LIMIT_S, what="the connection")


async def test_a_created_value_is_read_back(hosts: Hosts) -> None:
    host = await hosts.host()
    assert await host.get(Bucket.ITEMS, "i-1") is None
    revision = await host.create(Bucket.ITEMS, "i-1", {"state": "open"})
    assert await host.get(Bucket.ITEMS, "i-1") == Entry("i-1", {"state": "open"}, revision)


async def test_an_existing_key_is_not_created(hosts: Hosts) -> None:
    host = await hosts.host()
    await host.create(Bucket.LEASES, "r.b", {"host": "h1"})
    with pytest.raises(WrongRevision):
        await host.create(Bucket.LEASES, "r.b", {"host": "h2"})
    assert await host.get(Bucket.LEASES, "r.b") == Entry("r.b", {"host": "h1"}, 1)


async def test_only_the_present_revision_is_removed(hosts: Hosts) -> None:
    host = await hosts.host()
    revision = await host.create(Bucket.ITEMS, "i-1", {"state": "done"})
    with pytest.raises(WrongRevision):
        await host.delete(Bucket.ITEMS, "i-1", revision=revision + 1)
    await host.delete(Bucket.ITEMS, "i-1", revision=revision)
    assert await host.get(Bucket.ITEMS, "i-1") is None
    assert await host.entries(Bucket.ITEMS) == []


async def test_an_update_takes_the_present_revision(hosts: Hosts) -> None:
    host = await hosts.host()
    first = await host.create(Bucket.LEASES, "r.b", {"n": 1})
    second = await host.update(Bucket.LEASES, "r.b", {"n": 2}, revision=first)
    assert second > first
    for stale in (first, second + 1, 0, -1):
        with pytest.raises(WrongRevision):
            await host.update(Bucket.LEASES, "r.b", {"n": 3}, revision=stale)
    assert await host.get(Bucket.LEASES, "r.b") == Entry("r.b", {"n": 2}, second)


async def test_revision_zero_does_not_create(hosts: Hosts) -> None:
    host = await hosts.host()
    with pytest.raises(WrongRevision):
        await host.update(Bucket.LEASES, "r.b", {"n": 1}, revision=0)
    assert await host.get(Bucket.LEASES, "r.b") is None


async def test_a_put_replaces_any_revision(hosts: Hosts) -> None:
    host = await hosts.host()
    first = await host.put(Bucket.HOSTS, "h1", {"at": 1})
    second = await host.put(Bucket.HOSTS, "h1", {"at": 2})
    assert second > first
    assert await host.get(Bucket.HOSTS, "h1") == Entry("h1", {"at": 2}, second)


async def test_entries_has_the_latest_of_all(hosts: Hosts) -> None:
    host = await hosts.host()
    assert await host.entries(Bucket.ITEMS) == []
    for n in range(40):
        await host.put(Bucket.ITEMS, f"i-{n % 20}", {"n": n})
    found = await host.entries(Bucket.ITEMS)
    assert {entry.key: entry.value["n"] for entry in found} == {f"i-{n}": n + 20 for n in range(20)}


@pytest.mark.parametrize(
    "key", ["ralph/i-1", "a.b", ".a", "a..b.", "ä b", "x*>=", "=2E", "\ud800", "a" * 400]
)
async def test_any_text_is_a_key(hosts: Hosts, key: str) -> None:
    host = await hosts.host()
    await host.create(Bucket.LEASES, key, {"key": 1})
    with pytest.raises(WrongRevision):
        await host.create(Bucket.LEASES, key, {})
    read = key.replace("\ud800", "?")
    assert [entry.key for entry in await host.entries(Bucket.LEASES)] in ([key], [read])


@pytest.mark.parametrize("key", ["", "a" * 2000])
async def test_an_impossible_key_is_refused(hosts: Hosts, key: str) -> None:
    host = await hosts.host()
    with pytest.raises(ValueError, match="a key has"):
        await host.put(Bucket.HOSTS, key, {})


@pytest.mark.parametrize("value", [{"a": "x" * 70_000}, {"a": float("nan")}])
async def test_an_impossible_value_is_refused(hosts: Hosts, value: dict[str, Any]) -> None:
    host = await hosts.host()
    with pytest.raises(ValueError, match=r"at most|JSON"):
        await host.put(Bucket.HOSTS, "h1", value)


async def test_events_are_read_in_pages(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h2")
    assert await one.read_events(1, 10) == ([], 0)
    for n in range(6):
        await (one if n % 2 else two).publish_events([(str(n), "web.ralph.done", {"n": n})])

    first, left = await one.read_events(1, 4)

    assert ([each.number for each in first], left) == ([1, 2, 3, 4], 2)
    assert [each.host for each in first] == ["h2", "h1", "h2", "h1"]
    rest, left = await two.read_events(5, 10)
    assert ([each.body["n"] for each in rest], left) == ([4, 5], 0)
    assert await one.read_events(7, 10) == ([], 0)


async def test_a_watch_gives_all_then_changes(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h2")
    await one.put(Bucket.HOSTS, "h1", {"at": 1})
    async with aclosing(two.watch(Bucket.HOSTS)) as watch:
        assert (await following(watch)).value == {"at": 1}
        revision = await one.put(Bucket.HOSTS, "h1", {"at": 2})
        assert await following(watch) == Entry("h1", {"at": 2}, revision)
        await two.put(Bucket.HOSTS, "h2", {"at": 3})
        assert (await following(watch)).key == "h2"


async def test_a_watch_tells_when_a_value_was_stored(hosts: Hosts) -> None:
    host, before = await hosts.host(), time.time()
    await host.create(Bucket.HOSTS, "h1", {"n": 1})
    after = time.time()
    async with aclosing(host.watch(Bucket.HOSTS)) as watch:
        assert before - 0.001 <= (await following(watch)).stored_at <= after + 0.001


async def test_a_watch_survives_a_restart(hosts: Hosts) -> None:
    host = await hosts.host()
    await host.put(Bucket.ITEMS, "i-1", {"n": 1})
    async with aclosing(host.watch(Bucket.ITEMS)) as watch:
        assert (await following(watch)).value == {"n": 1}
        hosts.stop()
        await eventually(lambda: not host.is_connected)
        hosts.start()
        await back(host)
        assert (await following(watch)).value == {"n": 1}, "all keys come again"
        await host.put(Bucket.ITEMS, "i-1", {"n": 2})
        await until(watch, {"n": 2})


async def test_a_wiped_hub_is_empty_and_works(hosts: Hosts) -> None:
    host = await hosts.host()
    await host.create(Bucket.LEASES, "r.b", {"n": 1})
    async with aclosing(host.watch(Bucket.LEASES)) as watch:
        assert (await following(watch)).value == {"n": 1}
        await hosts.wipe()
        await back(host)
        assert await host.entries(Bucket.LEASES) == []
        assert await host.get(Bucket.LEASES, "r.b") is None
        with pytest.raises(WrongRevision):
            await host.update(Bucket.LEASES, "r.b", {"n": 2}, revision=1)
        await host.create(Bucket.LEASES, "r.b", {"n": 2})
        assert (await until(watch, {"n": 2})).revision == 1


async def test_an_outage_ends_the_connected_time(hosts: Hosts) -> None:
    host = await hosts.host()
    before = host.connected_since
    assert before is not None
    hosts.stop()
    await eventually(lambda: host.connected_since is None)
    assert not host.is_connected
    for call in (host.get(Bucket.ITEMS, "i"), host.put(Bucket.ITEMS, "i", {}), host.entries(Bucket.ITEMS)):
        with pytest.raises(HubUnreachable):
            await call
    with pytest.raises(HubUnreachable):
        await host.request("h2", "status", {})
    hosts.start()
    await back(host)
    assert host.connected_since is not None
    assert host.connected_since > before
    assert await host.get(Bucket.ITEMS, "i") is None, "what was refused is not sent later"


async def test_a_host_answers_another(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h-2.example")

    async def answer(route: str, body: JsonObject) -> JsonObject:
        return {"route": route, "got": body}

    await two.serve(answer)
    reply = await one.request("h-2.example", "stop/web site", {"by": "me"})
    assert reply == {"route": "stop/web site", "got": {"by": "me"}}


async def test_nobody_answers_for_an_absent_host(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h2")
    with pytest.raises(NoSuchHost):
        await one.request("h2", "status", {})
    await two.close()
    with pytest.raises(NoSuchHost):
        await one.request("h2", "status", {})


async def test_a_failed_answer_is_unknown(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h2")

    async def answer(route: str, body: JsonObject) -> JsonObject:
        raise LookupError(route)

    await two.serve(answer)
    with pytest.raises(HubUnreachable, match="h2 could not answer status"):
        await one.request("h2", "status", {})


async def test_a_slow_answer_is_unknown(hosts: Hosts) -> None:
    one, two = await hosts.host("h1"), await hosts.host("h2")
    asked = asyncio.Event()

    async def answer(route: str, body: JsonObject) -> JsonObject:
        asked.set()
        await asyncio.sleep(60)
        return {}

    await two.serve(answer)
    with pytest.raises(HubUnreachable):
        await one.request("h2", "status", {}, limit_s=0.2)
    assert asked.is_set()


async def test_close_ends_watches_and_tasks(hosts: Hosts) -> None:
    before = asyncio.all_tasks()
    host = await hosts.host()
    await host.put(Bucket.HOSTS, "h1", {})
    watch = host.watch(Bucket.HOSTS)
    assert (await following(watch)).key == "h1"
    await host.close()
    async with asyncio.timeout(LIMIT_S):
        assert [entry async for entry in watch] == []
        assert [entry async for entry in host.watch(Bucket.HOSTS)] == []
    await eventually(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")
    with pytest.raises(HubUnreachable):
        await host.get(Bucket.HOSTS, "h1")
    with pytest.raises(HubUnreachable):
        await host.connect()


async def test_a_slow_reader_gets_the_latest(hosts: Hosts) -> None:
    host = await hosts.host()
    async with aclosing(host.watch(Bucket.HOSTS)) as watch:
        await host.put(Bucket.HOSTS, "h0", {"n": -1})
        await following(watch)
        for n in range(3000):
            await host.put(Bucket.HOSTS, f"h{n % 3}", {"n": n})
        seen = [await following(watch)]
        while seen[-1].value != {"n": 2999}:
            seen.append(await following(watch))
        assert len(seen) < 3000


async def test_two_hundred_hosts_claim_each_item_once(hosts: Hosts) -> None:
    fleet = [await hosts.host(f"h{n}") for n in range(200)]
    items = [f"i-{n}" for n in range(300)]
    revisions = {item: await fleet[0].create(Bucket.ITEMS, item, {"holder": None}) for item in items}
    claims: dict[str, list[int]] = {item: [] for item in items}

    async def work(number: int) -> None:
        own = number // 10 * 15
        for item in items[own:] + items[:own]:
            if claims[item]:  # a watch would show it
                continue
            try:
                await fleet[number].update(Bucket.ITEMS, item, {"holder": number}, revision=revisions[item])
            except WrongRevision:
                continue
            claims[item].append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(len(fleet)):
            group.create_task(work(number))
    assert {len(winners) for winners in claims.values()} == {1}
    stored = {entry.key: entry.value["holder"] for entry in await fleet[1].entries(Bucket.ITEMS)}
    assert stored == {item: winners[0] for item, winners in claims.items()}
