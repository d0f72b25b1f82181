"""Whose turn it is to land on a branch of a remote: the lease of that branch, as of any other.

The landing queue of a clone merges and tests; it moves the branch here, in one atomic push with the lease.
A host that waits for its turn reads the lease now and then, or takes it over from one that is gone.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ralphd.core.fleet.lease_model import LeaseNews, LeaseOrder, LeaseRules, PushWanted, Stage, TakeLease
from ralphd.core.fleet.model import HostName, Item, ItemId, LeaseForm
from ralphd.core.fleet.names import lease_key, repo_id
from ralphd.core.landing.model import Target
from ralphd.daemon.fleet.clones import Clones
from ralphd.daemon.fleet.orders import Clocks, LeaseKeeper, tick_s
from ralphd.fleet.fabric import Fabric
from ralphd.git.fence.fence import Fence
from ralphd.process.machine import wait_at_most

PUSH_S: Final = 120.0
_OTHERS_TICKS: Final = 2
"""A host that has landed leaves the lease to others for so many ticks."""


class TargetLease(LeaseKeeper):
    """The lease of one target, held only while this host lands on it. ``run`` claims it when it is wanted."""

    def __init__(
        self, target: Target, fence: Fence, host: HostName, boot: str, fabric: Fabric, rules: LeaseRules
    ) -> None:
        super().__init__(target.url, target.branch, host, boot, fabric, rules, Clocks())
        self.fence, self._target, self._loop = fence, target, asyncio.get_running_loop()
        self._nudge: Callable[[], object] = lambda: None
        self._item, self._refusal = "", ""
        self.is_wanted = False
        self._start: TakeLease | None = None

    def is_ours(self, item: str, nudge: Callable[[], object]) -> bool:
        """Return whether this host may land. If not, wait in line for an item, and ``nudge`` when it may."""
        self._item, self._nudge, self.is_wanted = item, nudge, True
        self._changed.set()
        return self.hold.may_attempt

    def end(self) -> None:
        """Give the lease back."""
        self.is_wanted = False
        if self.hold.stage is Stage.HOLDING:
            self._feed(LeaseNews.RELEASE_WANTED)

    def take(self, start: TakeLease) -> None:
        """Claim the lease of a host that is gone."""
        self._start = start
        self._changed.set()

    def push(self, old: str, new: str) -> str | None:
        """Move the target and the lease, both or none. Return why not; None: the lease is another's.

        Blocks for PUSH_S at most. Raises TimeoutError.
        """
        pushing = asyncio.run_coroutine_threadsafe(self._push(old, new), self._loop)
        try:
            return pushing.result(PUSH_S)
        finally:
            pushing.cancel()

    async def _push(self, old: str, new: str) -> str | None:
        if not self.hold.may_attempt:
            return None
        self._refusal = self._push_fault = ""
        self._feed(PushWanted(new, old))
        await self._until(lambda: self.hold.lease.pushed == new or bool(self._refusal))
        return "" if self.hold.lease.pushed == new else self._refusal or None

    async def run(self) -> None:
        """Claim the lease whenever it is wanted, until cancelled."""
        while True:
            self._changed.clear()
            start, self._start, is_begun = self._start, None, False
            if self.is_wanted:
                async with asyncio.TaskGroup() as self._tasks:  # no answer of a claim reaches the next one
                    claimant = Item(ItemId(self._item), self._target.url, self._branch, self._branch)
                    if is_begun := await self._claim(claimant, start):
                        await self._hold()
            if is_begun:
                await asyncio.sleep(_OTHERS_TICKS * tick_s(self._rules))
                continue
            await wait_at_most(tick_s(self._rules), self._changed)

    async def _hold(self) -> None:
        self._tasks.create_task(self._tick())
        await self._until(lambda: self.hold.stage is not Stage.CLAIMING)
        self._nudge()
        if not self.is_wanted:
            self.end()
        await self._until(lambda: False)

    async def _act(self, order: LeaseOrder) -> None:
        if order is LeaseOrder.HOLD_ITEM:
            self._refusal = self._push_fault or f"the remote refused {self._branch}"
            self._changed.set()


class Landings:
    """The targets on which this host lands, or waits to land. Used on the event loop, except ``push``."""

    def __init__(
        self, host: HostName, boot: str, fabric: Fabric, rules: LeaseRules, clones: Clones,
        form_of: Callable[[str], LeaseForm],
    ) -> None:  # fmt: skip
        self._host, self._boot, self._fabric, self._rules, self._clones = host, boot, fabric, rules, clones
        self._form_of = form_of
        self._leases: dict[str, TargetLease] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Claim what landing queues want, until cancelled."""
        self._leases.clear()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    def turn(self, target: Target) -> TargetLease | None:
        """Return this host's turn on a shared target; None while it does not take part in its fleet."""
        key = lease_key(repo_id(target.url), target.branch)
        if (lease := self._leases.get(key)) is None and self._tasks is not None:
            clones, url = self._clones, target.url
            place, form = clones.directory(url), self._form_of(url)
            fence = Fence(place, url, clones.environment, form, scratch=clones.scratch)
            lease = TargetLease(target, fence, self._host, self._boot, self._fabric, self._rules)
            self._leases[key] = lease
            self._tasks.create_task(lease.run())
        return lease

    def wants(self, key: str) -> bool:
        """Whether this host waits for the lease with this key."""
        lease = self._leases.get(key)
        return lease is not None and lease.is_wanted and not lease.hold.is_active

    def holds(self, key: str, token: int) -> bool:
        """Whether this host has the lease with this key and token."""
        lease = self._leases.get(key)
        return lease is not None and lease.holds(token)

    def take(self, key: str, start: TakeLease) -> None:
        """Claim the lease of a host that is gone, which this host waits for."""
        self._leases[key].take(start)
