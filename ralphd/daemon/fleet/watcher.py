"""Watch the leases of other hosts, and give one to its owner to take over once both witnesses are silent.

The pure watch (core/fleet/takeover.py) decides; this asks the host, reads the ref and waits for ticks. While
this host does not fit an item its watch rests.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ralphd.core.fleet import lease_model
from ralphd.core.fleet.lease_model import HostAnswered, KeySeen, LeaseFact, LeaseNews, LeaseOrder, TakeLease
from ralphd.core.fleet.model import HostName, ItemId, Lease
from ralphd.core.fleet.names import branch_of
from ralphd.core.fleet.takeover import LeaseWatch, step
from ralphd.daemon.fleet.orders import Clocks, Report, read_ref, tick_s
from ralphd.errors import RalphdError
from ralphd.fleet.fabric import Fabric, HubUnreachable, NoSuchHost
from ralphd.git.fence.fence import Fence

_ASK_S: Final = 2.0

Take: TypeAlias = Callable[[str, ItemId, TakeLease], Awaitable[None]]
"""Starts the claim of a key, for an item, and returns without waiting for its end."""


class Watcher:
    """The leases of all other hosts, as this one sees them.

    ``fits``: whether a key is that of the item's branch, the item has not ended, and this host may have it
    now. ``fence_of`` raises RalphdError or OSError where it has no clone to read the remote with.
    """

    def __init__(
        self, host: HostName, fabric: Fabric, rules: lease_model.LeaseRules, *,
        fits: Callable[[str, ItemId], bool], fence_of: Callable[[ItemId], Awaitable[Fence]], take: Take,
        report: Report, clocks: Clocks | None = None, chance: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self._host, self._fabric, self._rules, self._chance = host, fabric, rules, chance
        self._fits, self._fence_of, self._take, self._report = fits, fence_of, take, report
        self._clocks = clocks or Clocks()
        self._watches: dict[str, LeaseWatch] = {}

    def seen(self, key: str, lease: Lease | None, revision: int) -> None:
        """Take a lease from the feed of the hub."""
        if lease is None or lease.item is None or lease.host in ("", self._host):
            self._watches.pop(key, None)
            return
        fact, at = KeySeen(lease, revision), self._clocks.monotonic()
        watch = self._watches.get(key) or LeaseWatch(fact, at, self._chance())
        self._watches[key], _ = step(watch, fact, self._rules, at)

    def missed(self, key: str, lease: Lease, revision: int) -> None:
        """Watch a lease that an item names and the hub does not have, as if it had been renewed now."""
        if lease.host != self._host and key not in self._watches:
            self._watches[key] = LeaseWatch(
                KeySeen(lease, revision), self._clocks.monotonic(), self._chance()
            )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                tick = lease_model.Tick(self._fabric.connected_since, self._clocks.boottime())
                for key in tuple(self._watches):
                    self._feed(key, tick)
                await asyncio.sleep(tick_s(self._rules))

    async def take_now(self, key: str) -> str:
        """Take a lease after one look at its ref, while ``run`` runs: a person is the other witness.

        A renewal during that look cancels it: the holder lives. Return why it is not taken; empty if it is.
        """
        if (watch := self._watches.get(key)) is None:
            return "no lease of it is known to the hub"
        if await self._asked(key, _of(watch)):
            return f"{_of(watch).host} answers: it works on it"
        self._feed(key, LeaseNews.TAKE_NOW)
        return ""

    def _feed(self, key: str, fact: LeaseFact) -> None:
        watch = self._watches.get(key)
        if watch is None or not self._fits(key, _of(watch).item or ItemId("")):
            return
        self._watches[key], orders = step(watch, fact, self._rules, self._clocks.monotonic())
        for order in orders:
            self._tasks.create_task(self._carry_out(key, _of(watch), order))

    async def _carry_out(self, key: str, lease: Lease, order: object) -> None:
        item = lease.item or ItemId("")
        match order:
            case LeaseOrder.REPORT_SILENT:
                await self._report("fleet.host.silent", {"host": lease.host, "item": item})
            case LeaseOrder.ASK_HOST:
                self._feed(key, HostAnswered(await self._asked(key, lease)))
            case LeaseOrder.READ_REF:
                try:
                    fence = await self._fence_of(item)
                except (RalphdError, OSError):
                    return self._feed(key, LeaseNews.GIT_SILENT)
                self._feed(key, await read_ref(fence, branch_of(key)))
            case TakeLease():
                await self._take(key, item, order)
                if (watch := self._watches.get(key)) is not None:  # a claim that is lost leaves it as it was
                    self._watches[key] = LeaseWatch(watch.key, self._clocks.monotonic(), self._chance())
        return None

    async def _asked(self, key: str, lease: Lease) -> bool | None:
        body = {"lease": key, "token": lease.token}
        try:
            reply = await self._fabric.request(lease.host, "status", body, limit_s=_ASK_S)
        except (NoSuchHost, HubUnreachable):
            return None
        holds = reply.get("holds")
        return holds if isinstance(holds, bool) else None


def _of(watch: LeaseWatch) -> Lease:
    assert watch.key.lease is not None  # seen() takes no other
    return watch.key.lease
