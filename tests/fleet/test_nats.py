"""What NATS and nats-py do to a fleet, against a real server: restarts, silence, refusals, hostile data."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StorageType
from nats.js.errors import APIError

from ralphd.fleet import feed
from ralphd.fleet import nats as fleet_nats
from ralphd.fleet.buckets import EVENTS, make_buckets, stream_of
from ralphd.fleet.fabric import REQUEST_S, Bucket, Entry, Fabric, HubUnreachable, JsonObject, WrongRevision
from ralphd.fleet.nats import MOST_ANSWERS, HubSettings, NatsFabric
from tests.fleet.conftest import Hosts
from tests.fleet.server import EVENT_BYTES, NatsServer
from tests.fleet.test_fabric import LIMIT_S, back, following, until
from tests.helpers import eventually

DEAF_S = 16.7
"""So long a watcher of nats-py misses changes after a restart."""


async def stored(server: NatsServer) -> list[tuple[str, JsonObject]]:
    """Return the events of the stream, in its order."""
    async with server.administrator() as js:
        info = await js.stream_info(EVENTS)
        messages = [await js.get_msg(EVENTS, seq=n + 1) for n in range(info.state.last_seq)]
        return [(str(each.subject), json.loads(each.data or b"")) for each in messages]


async def test_a_watch_is_not_deaf_after_a_restart(server: NatsServer, real_hosts: Hosts) -> None:
    watcher, writer = await real_hosts.host("h1"), await real_hosts.host("h2")
    async with aclosing(watcher.watch(Bucket.QUOTA)) as watch:
        await writer.put(Bucket.QUOTA, "a", {"n": 0})
        await following(watch)
        for n in range(1, 4):
            await real_hosts.restart()
            await writer.put(Bucket.QUOTA, "a", {"n": n})
            async with asyncio.timeout(DEAF_S / 2):
                await until(watch, {"n": n})


async def test_a_watch_waits_for_its_bucket(bare_server: NatsServer) -> None:
    host = NatsFabric(bare_server.settings("h1"))
    await host.connect()
    watch = host.watch(Bucket.ITEMS)
    first = asyncio.ensure_future(anext(watch))
    await eventually(lambda: "no bucket items" in host.problem)
    with pytest.raises(HubUnreachable):
        await host.entries(Bucket.ITEMS)
    await bare_server.make_buckets()
    await host.put(Bucket.ITEMS, "i-1", {"n": 1})
    assert (await asyncio.wait_for(first, LIMIT_S)).value == {"n": 1}
    await host.close()


async def test_a_lost_consumer_is_replaced(
    server: NatsServer, real_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_S", 0.4)
    monkeypatch.setattr(feed, "SILENCE_S", 1.0)
    host = await real_hosts.host()
    async with aclosing(host.watch(Bucket.ITEMS)) as watch:
        await host.put(Bucket.ITEMS, "i-1", {"n": 1})
        await following(watch)
        async with server.administrator() as js:
            for consumer in await js.consumers_info(stream_of(Bucket.ITEMS)):
                await js.delete_consumer(stream_of(Bucket.ITEMS), consumer.name)
        await host.put(Bucket.ITEMS, "i-2", {"n": 2})
        await until(watch, {"n": 2})


async def test_heartbeats_keep_a_quiet_watch(
    server: NatsServer, real_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_S", 0.2)
    host = await real_hosts.host()
    async with aclosing(host.watch(Bucket.ITEMS)) as watch, server.administrator() as js:
        await host.put(Bucket.ITEMS, "i-1", {"n": 1})
        await following(watch)
        (before,) = await js.consumers_info(stream_of(Bucket.ITEMS))
        await asyncio.sleep(1)  # nothing is to be seen: five heartbeats pass
        (after,) = await js.consumers_info(stream_of(Bucket.ITEMS))
    assert before.name == after.name


async def test_reading_leaves_no_consumer(server: NatsServer, real_hosts: Hosts) -> None:
    host = await real_hosts.host()
    await host.put(Bucket.LEASES, "r.b", {})
    before = asyncio.all_tasks()
    for _ in range(20):
        await host.entries(Bucket.LEASES)
        async with aclosing(host.watch(Bucket.LEASES)) as watch:
            await following(watch)  # it comes together with the answer that the consumer is made
    await eventually(lambda: asyncio.all_tasks() <= before, what="the end of all tasks")
    async with server.administrator() as js:
        async with asyncio.timeout(LIMIT_S):
            while await js.consumers_info(stream_of(Bucket.LEASES)):
                await asyncio.sleep(0.02)


async def test_a_large_bucket_is_read_whole(server: NatsServer, real_hosts: Hosts) -> None:
    host, text = await real_hosts.host(), "x" * 20_000
    for start in range(0, 1200, 100):
        puts = (host.put(Bucket.ITEMS, f"i-{n}", {"n": n, "text": text}) for n in range(start, start + 100))
        await asyncio.gather(*puts)
    found = await host.entries(Bucket.ITEMS)
    assert sorted(entry.value["n"] for entry in found) == list(range(1200))


async def read_back(host: Fabric, key: str) -> Entry:
    """Return a lease as soon as the hub is back."""
    entry = None
    while entry is None:
        await back(host)
        with suppress(HubUnreachable):
            entry = await host.get(Bucket.LEASES, key)
    return entry


async def test_a_kill_loses_no_acknowledged_update(server: NatsServer, real_hosts: Hosts) -> None:
    hosts = [await real_hosts.host(f"h{n}") for n in range(10)]
    acknowledged, is_over = dict.fromkeys(range(10), 0), False

    async def renew(number: int) -> None:
        host, key = hosts[number], f"lease-{number}"
        revision, n = await host.create(Bucket.LEASES, key, {"n": 0}), 0
        while not is_over:
            try:
                revision = await host.update(Bucket.LEASES, key, {"n": n + 1}, revision=revision)
                n = acknowledged[number] = n + 1
            except HubUnreachable:
                entry = await read_back(host, key)
                assert entry.value["n"] in (n, n + 1)
                revision, n = entry.revision, entry.value["n"]

    async def progress(before: dict[int, int]) -> None:
        await eventually(lambda: all(acknowledged[n] > before[n] + 5 for n in before), timeout_s=LIMIT_S)

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(renew(number))
        for _ in range(4):
            before = dict(acknowledged)
            await progress(before)
            await asyncio.to_thread(server.restart)
        await progress(dict(acknowledged))
        is_over = True
    for entry in await hosts[0].entries(Bucket.LEASES):
        assert entry.value["n"] == acknowledged[int(entry.key.removeprefix("lease-"))]


async def test_events_are_stored_once_in_order(server: NatsServer, real_hosts: Hosts) -> None:
    host, other = await real_hosts.host("h1"), await real_hosts.host("h2")
    batch = [(f"boot:{n}", f"web.run.ended{n % 3}", {"n": n}) for n in range(60)]
    await host.publish_events(batch[:20])
    await host.publish_events(batch[10:30])
    await real_hosts.restart()
    await host.publish_events(batch)
    await other.publish_events(batch[:1])
    found = await stored(server)
    assert [body["n"] for _, body in found] == [*range(60), 0]
    assert found[4] == ("ralph.ev.h1.web.run.ended1", {"n": 4})
    assert found[60][0] == "ralph.ev.h2.web.run.ended0"


async def test_events_survive_a_kill_once(server: NatsServer, real_hosts: Hosts) -> None:
    host = await real_hosts.host()
    batch = [(f"boot:{n}", "web.run.ended", {"n": n}) for n in range(1500)]

    async def publish() -> None:
        while True:
            try:
                await host.publish_events(batch)
                return
            except HubUnreachable:
                await asyncio.sleep(0.02)

    publishing = asyncio.create_task(publish())
    for _ in range(2):
        await asyncio.sleep(0.2)  # anywhere in the batch
        await asyncio.to_thread(server.restart)
    await asyncio.wait_for(publishing, 60)
    assert [body["n"] for _, body in await stored(server)] == list(range(1500))


async def test_a_frozen_hub_is_lost_and_found(
    server: NatsServer, real_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_nats, "PING_S", 0.5)
    host = await real_hosts.host()
    async with aclosing(host.watch(Bucket.ITEMS)) as watch:
        await host.put(Bucket.ITEMS, "i-1", {"n": 1})
        await following(watch)
        server.freeze()
        with pytest.raises(HubUnreachable):
            await host.put(Bucket.ITEMS, "i-1", {"n": 2})
        await eventually(lambda: host.connected_since is None, timeout_s=LIMIT_S)
        server.thaw()
        await back(host)
        await host.put(Bucket.ITEMS, "i-1", {"n": 3})
        await until(watch, {"n": 3})


async def test_a_full_socket_does_not_hold_a_host(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of nats-py cannot close while its peer takes no bytes; the host goes to another server."""
    monkeypatch.setattr(fleet_nats, "PING_S", 0.5)
    other = NatsServer(tmp_path / "other")
    other.start()
    try:
        host = NatsFabric(HubSettings((server.url,), "h1"))
        await host.connect()
        await other.make_buckets()
        object.__setattr__(host._settings, "servers", (other.url,))
        server.freeze()
        value = {"x": "x" * 60_000}
        flood = [asyncio.create_task(host.put(Bucket.ITEMS, f"i-{n}", value)) for n in range(400)]
        await eventually(lambda: not host.is_connected, timeout_s=LIMIT_S)
        await back(host)
        answers = await asyncio.gather(*flood, return_exceptions=True)
        assert all(isinstance(answer, HubUnreachable) for answer in answers)
        await host.put(Bucket.ITEMS, "i-1", {"n": 1})
        await host.close()
    finally:
        server.kill()
        other.kill()


async def test_a_call_ends_with_its_connection(server: NatsServer, real_hosts: Hosts) -> None:
    host = await real_hosts.host()
    server.freeze()
    call = asyncio.create_task(host.put(Bucket.ITEMS, "i-1", {"n": 1}))
    await asyncio.sleep(0.05)  # it is on its way
    before = asyncio.get_running_loop().time()
    server.kill()
    with pytest.raises(HubUnreachable):
        await call
    assert asyncio.get_running_loop().time() - before < REQUEST_S - 1
    server.start()


async def test_an_old_server_in_the_way_is_closed(server: NatsServer, real_hosts: Hosts) -> None:
    """Close returns, though the peer reads nothing."""
    host = await real_hosts.host()
    server.freeze()
    async with asyncio.timeout(LIMIT_S):
        await host.close()
    server.thaw()


def silent_peer() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


async def test_a_first_try_that_fails_says_why(tmp_path: Path) -> None:
    with silent_peer() as closed:
        port = closed.getsockname()[1]
    bad_seed = tmp_path / "seed"
    bad_seed.write_text("SUNOTASEED")
    for settings, why in (
        (HubSettings((f"nats://127.0.0.1:{port}", f"127.0.0.1:{port}"), "h1"), "refused|Connect"),
        (HubSettings((f"127.0.0.1:{port}",), "h1", seed_file=tmp_path / "missing"), "missing"),
        (HubSettings((f"127.0.0.1:{port}",), "h1", seed_file=bad_seed), None),
        (HubSettings((f"127.0.0.1:{port}",), "h1", ca_file=bad_seed), None),
        (HubSettings(("nats://",), "h1"), "hostname"),
    ):
        host = NatsFabric(settings)
        with pytest.raises(HubUnreachable, match=why):
            await host.connect()
        await host.close()


async def test_an_error_of_the_reader_raises_nothing(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub ends just after the handshake: a task of nats-py's, which nobody awaits, reports it."""
    connect = Client.connect

    async def reported(self: Client, **options: Any) -> None:
        await connect(self, **options)
        await asyncio.create_task(options["error_cb"](OSError("unexpected EOF")))

    monkeypatch.setattr(Client, "connect", reported)
    fabric = NatsFabric(server.settings("h1"))
    try:
        await fabric.connect()
        assert fabric.problem == "unexpected EOF"
    finally:
        await fabric.close()


async def test_a_silent_peer_is_no_hub() -> None:
    with silent_peer() as listening:
        host = NatsFabric(HubSettings((f"127.0.0.1:{listening.getsockname()[1]}",), "h1"))
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(HubUnreachable):
                await host.connect()
        await host.close()


async def test_making_buckets_again_changes_them(server: NatsServer) -> None:
    async with server.administrator() as js:
        await make_buckets(js, event_bytes=EVENT_BYTES, event_days=3)
        events = (await js.stream_info(EVENTS)).config
        assert (events.max_age, events.duplicate_window) == (3 * 86_400, 7200)
        ages = {bucket: (await js.stream_info(stream_of(bucket))).config.max_age for bucket in Bucket}
        leases = (await js.stream_info(stream_of(Bucket.LEASES))).config
    assert {str(bucket): age for bucket, age in ages.items() if age} == {
        "hosts": 7 * 86_400, "quota": 35 * 86_400, "wants": 86_400,
    }  # fmt: skip
    assert leases.storage == StorageType.FILE
    assert (leases.max_msgs_per_subject, leases.num_replicas, leases.allow_direct) == (1, 1, False)


@pytest.mark.parametrize("headers", [{"Nats-Rollup": "all"}, {"Nats-TTL": "1s"}])
async def test_headers_cannot_empty_a_bucket(
    server: NatsServer, real_hosts: Hosts, headers: dict[str, str]
) -> None:
    host = await real_hosts.host()
    await host.create(Bucket.LEASES, "r.b", {})
    async with server.administrator() as js:
        with pytest.raises(APIError):
            await js.publish("$KV.leases.r.c", b"{}", headers=headers)
    assert len(await host.entries(Bucket.LEASES)) == 1


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"[" * 30_000, b'{"a":NaN}', b"1" * 9000])
async def test_a_broken_value_is_read_as_empty(server: NatsServer, real_hosts: Hosts, data: bytes) -> None:
    host = await real_hosts.host()
    async with server.administrator() as js, aclosing(host.watch(Bucket.ITEMS)) as watch:
        await js.publish("$KV.items.i-1", data)
        assert await following(watch) == Entry("i-1", {}, 1)
    assert await host.get(Bucket.ITEMS, "i-1") == Entry("i-1", {}, 1)
    assert await host.entries(Bucket.ITEMS) == [Entry("i-1", {}, 1)]


async def test_a_key_that_a_person_deleted_is_absent(server: NatsServer, real_hosts: Hosts) -> None:
    host = await real_hosts.host()
    await host.create(Bucket.ITEMS, "i-1", {"n": 1})
    async with server.administrator() as js:
        await (await js.key_value("items")).delete("i-1")
    assert await host.get(Bucket.ITEMS, "i-1") is None
    assert await host.entries(Bucket.ITEMS) == []
    with pytest.raises(WrongRevision):
        await host.update(Bucket.ITEMS, "i-1", {"n": 2}, revision=1)
    await host.create(Bucket.ITEMS, "i-1", {"n": 2})


async def test_a_flood_of_requests_is_bounded(server: NatsServer, real_hosts: Hosts) -> None:
    one, two = await real_hosts.host("h1"), await real_hosts.host("h2")
    free, running = asyncio.Event(), set[str]()

    async def answer(route: str, body: JsonObject) -> JsonObject:
        running.add(route)
        await free.wait()
        return {}

    await two.serve(answer)
    requests = [asyncio.create_task(one.request("h2", f"r{n}", {})) for n in range(MOST_ANSWERS + 40)]
    await eventually(lambda: sum(each.done() for each in requests) == 40, what="40 refusals")
    assert len(running) == MOST_ANSWERS
    free.set()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert sum(isinstance(each, HubUnreachable) for each in answers) == 40


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"body":1}', b'{"route":"x"}'])
async def test_a_broken_request_fails_alone(server: NatsServer, real_hosts: Hosts, data: bytes) -> None:
    one, two = await real_hosts.host("h1"), await real_hosts.host("h2")

    async def answer(route: str, body: JsonObject) -> JsonObject:
        return {"route": route}

    await two.serve(answer)
    client = await nats.connect(server.url)
    reply = await client.request("ralph.ctl.h2.status", data, timeout=LIMIT_S)
    assert reply.headers == {"Ralph-Failed": "1"}
    await client.publish("ralph.ctl.h2.status", data)
    await client.close()
    assert await one.request("h2", "status", {}) == {"route": "status"}


async def test_a_body_cannot_claim_another_request(server: NatsServer, real_hosts: Hosts) -> None:
    """The hub lets every host ask for the status of others, and only some for more."""
    two, asked = await real_hosts.host("h2"), list[str]()

    async def answer(route: str, body: JsonObject) -> JsonObject:
        asked.append(route)
        return {}

    await two.serve(answer)
    forged, client = b'{"route":"stop","body":{"name":"web"}}', await nats.connect(server.url)
    try:
        await client.request("ralph.ctl.h2.status", forged, timeout=LIMIT_S)
        await client.request("ralph.ctl.h2.drain", b'{"body":{}}', timeout=LIMIT_S)
    finally:
        await client.close()
    assert asked == ["status", "drain"]


async def test_a_server_continues_after_a_restart(server: NatsServer, real_hosts: Hosts) -> None:
    one, two = await real_hosts.host("h1"), await real_hosts.host("h2")

    async def answer(route: str, body: JsonObject) -> JsonObject:
        return {"route": route}

    await two.serve(answer)
    await real_hosts.restart()
    assert await one.request("h2", "status", {}) == {"route": "status"}


async def test_a_host_without_nats_loads_none_of_it() -> None:
    code = "import sys, ralphd.fleet.fabric, tests.fleet.memory; sys.exit('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
