"""Keep a lease: carry out the orders of its steps (core/fleet/lease_model.py), in the hub and in git.

Each order has exactly one fact as its answer, and raises nothing that the world does. What had no answer is
silent, because it may have been applied.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from ralphd.core.fleet import lease_model
from ralphd.core.fleet.checked import Rejected, read_value, write_value
from ralphd.core.fleet.lease import begin_claim, is_claimable, step
from ralphd.core.fleet.lease_model import KeySeen, LeaseNews, LeaseOrder, MoveRef, RefSeen, TakeLease
from ralphd.core.fleet.model import HostName, Item, Lease
from ralphd.core.fleet.names import lease_key, repo_id
from ralphd.core.text import short_sha
from ralphd.dataclass import dataclass
from ralphd.fleet.fabric import Bucket, Fabric, HubUnreachable, WrongRevision
from ralphd.git.fence.fence import (
    BranchMoved,
    Claimed,
    ClaimLost,
    Fence,
    LeaseMove,
    Pushed,
    RemoteRefused,
    Rewound,
    Unreachable,
    WorkPush,
)

_SHORTEST_TICK_S: Final = 0.2

Report: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Publishes an event of a type with its data."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """``monotonic`` decides; ``boottime`` shows a sleep; ``wall`` is for people."""

    monotonic: Callable[[], float] = time.monotonic
    boottime: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    wall: Callable[[], float] = time.time


def tick_s(rules: lease_model.LeaseRules) -> float:
    """Return the time between two ticks of a lease or of its watcher."""
    return max(_SHORTEST_TICK_S, rules.lease_s / 12)


async def read_key(fabric: Fabric, key: str) -> KeySeen | LeaseNews:
    """Return the lease in the hub; silent where a newer version of ralphd wrote it."""
    try:
        entry = await fabric.get(Bucket.LEASES, key)
    except HubUnreachable:
        return LeaseNews.HUB_SILENT
    if entry is None:
        return KeySeen(None, 0)
    lease = read_value(Lease, entry.value)
    if isinstance(lease, Rejected):
        return LeaseNews.HUB_SILENT if lease.is_newer else KeySeen(None, entry.revision)
    return KeySeen(lease, entry.revision)


async def write_key(
    fabric: Fabric, key: str, order: lease_model.WriteKey, *, at: float
) -> lease_model.KeyWritten | LeaseNews:
    """Create or replace the lease in the hub."""
    value = write_value(replace(order.lease, at=at))
    try:
        if not order.revision:
            return lease_model.KeyWritten(await fabric.create(Bucket.LEASES, key, value))
        return lease_model.KeyWritten(await fabric.update(Bucket.LEASES, key, value, revision=order.revision))
    except WrongRevision:
        return LeaseNews.KEY_REFUSED
    except HubUnreachable:
        return LeaseNews.HUB_SILENT


async def read_ref(fence: Fence, branch: str) -> RefSeen | LeaseNews:
    """Return the lease ref and the branch on the remote."""
    state = await asyncio.to_thread(fence.read, branch)
    if isinstance(state, Unreachable):
        return LeaseNews.GIT_SILENT
    return RefSeen(state.sha, state.lease, state.tip)


async def move_ref(
    fence: Fence, branch: str, order: MoveRef, host: HostName, *, is_claim: bool, at: float
) -> tuple[lease_model.RefMoved | LeaseNews, str]:
    """Push the lease, and the commit if there is one. Return the fact, and why it was refused or silent."""
    match await asyncio.to_thread(_pushed, fence, branch, order, host, is_claim=is_claim, at=at):
        case Claimed(sha=sha) | Pushed(sha=sha):
            return lease_model.RefMoved(sha), ""
        case Unreachable(why=why):
            return LeaseNews.GIT_SILENT, why
        case RemoteRefused(why=why):
            return LeaseNews.REF_REFUSED, why
        case BranchMoved(tip=tip):
            return LeaseNews.REF_REFUSED, f"{branch} was moved to {short_sha(tip) or 'nothing'} by another"
        case Rewound(last=last):
            return LeaseNews.REF_REFUSED, f"HEAD does not contain {short_sha(last)}, which was pushed"
        case _:
            return LeaseNews.REF_REFUSED, "the lease is another's"


def _pushed(
    fence: Fence, branch: str, order: MoveRef, host: HostName, *, is_claim: bool, at: float
) -> WorkPush | LeaseMove | Claimed | ClaimLost:
    lease = replace(order.lease, at=at)
    if is_claim or not order.expected:
        return fence.claim(branch, lease, order.expected)
    before = replace(lease, n=lease.n - 1)  # the fence counts
    if order.commit:
        return fence.push(branch, order.commit, before, order.expected, order.last)
    if not lease.host:
        return fence.release(branch, replace(before, host=host), order.expected)
    return fence.bump(branch, before, order.expected)


class LeaseKeeper:
    """The lease of a branch that this host claims or holds. ``fence`` and ``_tasks`` are set before a claim.

    ``why`` is the reason where nothing was claimed.
    """

    fence: Fence
    _tasks: asyncio.TaskGroup

    def __init__(
        self, url: str, branch: str, host: HostName, boot: str, fabric: Fabric, rules: lease_model.LeaseRules,
        clocks: Clocks,
    ) -> None:  # fmt: skip
        self.host, self.why, self.key = host, "", lease_key(repo_id(url), branch)
        self._branch, self._boot, self._fabric = branch, boot, fabric
        self._rules, self._clocks, self._changed = rules, clocks, asyncio.Event()
        self._push_fault, self._other = "", lease_model.NOBODY
        at, boottime_s = clocks.monotonic(), clocks.boottime()
        self.hold = lease_model.LeaseHold(
            Lease(lease_model.NOBODY, boot, 0), "", 0, at, at, at, at, boottime_s, lease_model.Stage.LOST
        )

    def holds(self, token: int) -> bool:
        """Whether this host holds, or may hold, the lease with this token now."""
        return self.hold.is_active and self.hold.lease.token == token

    def _stepped(self) -> None:
        """Look at the new state of the lease, before its orders are carried out."""

    async def _act(self, order: LeaseOrder) -> None:
        """Carry out an order that concerns more than the lease."""

    async def _claim(self, item: Item, start: TakeLease | None) -> bool:
        """Begin to claim the lease for an item; ``start`` is what to take over. Return whether it began."""
        if (seen := await self._seen(start)) is None:
            return False
        at, boottime_s = self._clocks.monotonic(), self._clocks.boottime()
        claim = begin_claim(item, self.host, self._boot, seen.key, seen.ref, at=at, boottime_s=boottime_s)
        self._follow(claim)
        return True

    async def _seen(self, start: TakeLease | None) -> TakeLease | None:
        key = await read_key(self._fabric, self.key)
        if start is not None:  # unless the hub forgot the lease, only what was seen
            return replace(start, key=key) if isinstance(key, KeySeen) and key.lease is None else start
        if not isinstance(key, KeySeen):
            self.why = "the hub does not answer"
            return None
        if is_claimable(key.lease, RefSeen("", None), self.host):  # else git is not asked each time
            ref = await read_ref(self.fence, self._branch)
            if not isinstance(ref, RefSeen):
                self.why = "git does not answer"
                return None
            if is_claimable(key.lease, ref, self.host):
                return TakeLease(key, ref)
        self.why = "another host has the branch"
        return None

    async def _tick(self) -> None:
        while self.hold.is_active:
            self._feed(lease_model.Tick(self._fabric.connected_since, self._clocks.boottime()))
            await asyncio.sleep(tick_s(self._rules))

    async def _until(self, is_true: Callable[[], bool]) -> None:
        """Wait for a fact about the lease; its end ends every wait."""
        while not is_true() and self.hold.is_active:
            self._changed.clear()
            await self._changed.wait()

    def _feed(self, fact: lease_model.LeaseFact) -> None:
        self._follow(step(self.hold, fact, self._rules, self._clocks.monotonic()))

    def _follow(self, following: lease_model.LeaseStep) -> None:
        self.hold, orders = following
        self._stepped()
        for order in orders:
            is_claim = self.hold.stage is lease_model.Stage.CLAIMING
            self._tasks.create_task(self._carry_out(order, is_claim=is_claim))
        self._changed.set()

    async def _carry_out(
        self, order: lease_model.WriteKey | MoveRef | TakeLease | LeaseOrder, *, is_claim: bool
    ) -> None:
        at, fence, branch = self._clocks.wall(), self.fence, self._branch
        match order:
            case lease_model.WriteKey():
                self._feed(await write_key(self._fabric, self.key, order, at=at))
            case MoveRef():
                fact, why = await move_ref(fence, branch, order, self.host, is_claim=is_claim, at=at)
                self._push_fault = why or self._push_fault
                self._feed(fact)
            case LeaseOrder.READ_KEY:
                self._feed(self._looked(await read_key(self._fabric, self.key)))
            case LeaseOrder.READ_REF:
                self._feed(self._looked(await read_ref(fence, branch)))
            case LeaseOrder():
                await self._act(order)

    def _looked(self, fact: KeySeen | RefSeen | LeaseNews) -> KeySeen | RefSeen | LeaseNews:
        if not isinstance(fact, LeaseNews) and fact.lease is not None and fact.lease.host != self.host:
            self._other = fact.lease.host
        return fact
