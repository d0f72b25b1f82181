"""Many simulated hosts, a connection each: leases, renewals, a limit that reaches all (fleet 12 e)."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import psutil

from ralphd.fleet.fabric import Bucket, HubUnreachable, WrongRevision
from ralphd.fleet.nats import NatsFabric
from tests.fleet.server import NatsServer
from tests.helpers import eventually

AT_ONCE = 50
"""Hosts that connect at the same time: more would only wait for this one process."""
LIMIT = "claude.team"


@dataclass
class Crowd:
    """What the hosts met. ``waits_s`` are those of renewals; ``reached_s``: a limit is at the last host."""

    hosts: Sequence[NatsFabric]
    connected_s: float = 0.0
    taken_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    failed: int = 0
    reached_s: float = 0.0
    server_cores: float = 0.0
    server_mb: float = 0.0
    revisions: dict[str, int] = field(default_factory=dict)


async def gathered(server: NatsServer, count: int, leases_each: int, play_s: float, renew_s: float) -> Crowd:
    """Connect hosts, have each take its leases and renew them, and tell all of a limit."""
    crowd = Crowd([NatsFabric(server.settings(f"h{number}")) for number in range(count)])
    try:
        await _connect(crowd)
        begun = time.perf_counter()
        keys = {host: [f"r.{number}-{each}" for each in range(leases_each)]
                for number, host in enumerate(crowd.hosts)}  # fmt: skip
        await asyncio.gather(*(_take(crowd, host, each) for host, each in keys.items()))
        crowd.taken_s = time.perf_counter() - begun
        process = psutil.Process(server.pid)
        before, begun = process.cpu_times(), time.perf_counter()
        ends_at = time.monotonic() + play_s
        await asyncio.gather(*(_renew(crowd, host, each, ends_at, renew_s) for host, each in keys.items()))
        after = process.cpu_times()
        spent_s = after.user + after.system - before.user - before.system
        crowd.server_cores = spent_s / (time.perf_counter() - begun)
        await _reach(crowd)
        crowd.server_mb = process.memory_info().rss / 1e6
    finally:
        await asyncio.gather(*(host.close() for host in crowd.hosts))
    return crowd


async def _connect(crowd: Crowd) -> None:
    begun, gate = time.perf_counter(), asyncio.Semaphore(AT_ONCE)

    async def connect(host: NatsFabric) -> None:
        async with gate:
            await host.connect()

    await asyncio.gather(*(connect(host) for host in crowd.hosts))
    crowd.connected_s = time.perf_counter() - begun


async def _take(crowd: Crowd, host: NatsFabric, keys: Sequence[str]) -> None:
    for key in keys:
        crowd.revisions[key] = await host.create(Bucket.LEASES, key, {"v": 1, "n": 0})


async def _renew(crowd: Crowd, host: NatsFabric, keys: Sequence[str], ends_at: float, renew_s: float) -> None:
    """Renew each lease by its revision every ``renew_s`` seconds, not all at one moment."""
    await asyncio.sleep(random.uniform(0, renew_s))
    while time.monotonic() < ends_at:
        for key in keys:
            begun = time.perf_counter()
            try:
                revision = crowd.revisions[key]
                crowd.revisions[key] = await host.update(Bucket.LEASES, key, {"v": 1}, revision=revision)
            except (HubUnreachable, WrongRevision):
                crowd.failed += 1
            crowd.waits_s.append(time.perf_counter() - begun)
        await asyncio.sleep(renew_s)


async def _reach(crowd: Crowd) -> None:
    """Measure how long a limit takes from one host to all."""
    ready, seen = set[int](), set[int]()

    async def watch(number: int, host: NatsFabric) -> None:
        async with aclosing(host.watch(Bucket.QUOTA)) as entries:
            async for entry in entries:
                (ready if entry.key == "first" else seen).add(number)

    tasks = [asyncio.create_task(watch(*each)) for each in enumerate(crowd.hosts)]
    try:
        await crowd.hosts[0].put(Bucket.QUOTA, "first", {"v": 1})
        await eventually(lambda: len(ready) == len(crowd.hosts), timeout_s=60.0, what="a watch of each host")
        begun = time.perf_counter()
        await crowd.hosts[0].put(Bucket.QUOTA, LIMIT, {"v": 1})
        await eventually(lambda: len(seen) == len(crowd.hosts), timeout_s=60.0, what="the limit at each host")
        crowd.reached_s = time.perf_counter() - begun
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
