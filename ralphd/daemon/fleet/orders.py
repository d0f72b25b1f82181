"""Carry out the orders of a lease (core/fleet/lease_model.py): its key in the hub, its ref in git.

Each function returns exactly one fact, and raises nothing that the world does. What had no answer is silent,
because it may have been applied.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from ralphd.core.fleet.checked import Rejected, read_value, write_value
from ralphd.core.fleet.lease_model import (
    KeySeen,
    KeyWritten,
    LeaseNews,
    LeaseRules,
    MoveRef,
    RefMoved,
    RefSeen,
    WriteKey,
)
from ralphd.core.fleet.model import HostName, Lease
from ralphd.core.text import short_sha
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


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Clocks:
    """``monotonic`` decides; ``boottime`` shows a sleep; ``wall`` is for people."""

    monotonic: Callable[[], float] = time.monotonic
    boottime: Callable[[], float] = _boottime
    wall: Callable[[], float] = time.time


def tick_s(rules: LeaseRules) -> float:
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


async def write_key(fabric: Fabric, key: str, order: WriteKey, *, at: float) -> KeyWritten | LeaseNews:
    """Create or replace the lease in the hub."""
    value = write_value(replace(order.lease, at=at))
    try:
        if not order.revision:
            return KeyWritten(await fabric.create(Bucket.LEASES, key, value))
        return KeyWritten(await fabric.update(Bucket.LEASES, key, value, revision=order.revision))
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
) -> tuple[RefMoved | LeaseNews, str]:
    """Push the lease, and the commit if there is one. Return the fact, and why it was refused or silent."""
    call = partial(_pushed, fence, branch, order, host, is_claim=is_claim, at=at)
    answer = await asyncio.to_thread(call)
    match answer:
        case Claimed(sha=sha) | Pushed(sha=sha):
            return RefMoved(sha), ""
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
