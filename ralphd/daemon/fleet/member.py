"""This machine in its fleet: its record, what it hears of the others, the items that it takes.

Without the hub nothing changes for what runs here: holders push on, and nothing new is claimed.
"""

import asyncio
import logging
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from ralphd import __version__
from ralphd.agents.identity import Account
from ralphd.config.specs import AccountsSpec, FleetSpec
from ralphd.core.fleet import fit, model
from ralphd.core.fleet.checked import MOST_ENTRIES, write_value
from ralphd.core.fleet.items import by_person, is_later, is_old
from ralphd.core.fleet.lease_model import TakeLease
from ralphd.core.fleet.model import ENDED, HAS_HOLDER, PRESENCE_S, HostName, HostRecord, Item, ItemId, Lease
from ralphd.core.fleet.names import is_allowed, lease_key, repo_id
from ralphd.daemon.fleet.landing import Landings
from ralphd.daemon.fleet.picture import Picture
from ralphd.daemon.fleet.quota import installed_accounts, logins
from ralphd.daemon.fleet.watcher import Watcher
from ralphd.daemon.services import Services
from ralphd.dataclass import dataclass
from ralphd.errors import WrongState
from ralphd.fleet.fabric import Bucket, Entry, Fabric, HubUnreachable, WrongRevision
from ralphd.process.machine import memory_bytes, wait_at_most

logger = logging.getLogger(__name__)

TURN_S: Final = 1.0
"""A host takes at most one item in this time."""
MOST_DECLINES: Final = 20
AVOIDED_S: Final = 30.0
"""How long a host leaves an item to others after a claim that came to nothing."""
LONGEST_CONNECT_S: Final = 30.0
CLEAN_UP_S: Final = 3600.0
LOGINS_S: Final = 600.0
"""The files of logins can be large, and change seldom."""
TAKE_NOW_S: Final = 20.0
TAKE_LOOK_S: Final = 0.1
_GIB: Final = 2**30
_TOPIC: Final = "fleet"


Work = Callable[[], Awaitable[None]]


class ItemHolder(Protocol):
    """An item that this machine has, or is claiming."""

    item: Item

    async def run(self) -> None:
        """Claim it, work on it, and give it back."""

    @property
    def lease(self) -> Lease | None:
        """The lease to continue with another holder, should this one fail."""

    @property
    def why(self) -> str:
        """Why nothing was claimed; empty where it was."""

    @property
    def problem(self) -> str:
        """Why its pushes wait; empty while git answers."""

    def drain(self) -> None:
        """Leave the item to other hosts after the iteration."""

    async def want(self, item: Item) -> None:
        """Act on the item as a person has changed it."""

    def holds(self, token: int) -> bool:
        """Whether this machine has the lease with this token."""


@dataclass(slots=True)
class Member:
    """A member of a fleet. ``hold`` makes the holder of an item that is claimed."""

    host: HostName
    boot: str
    fabric: Fabric
    services: Services
    spec: Callable[[], FleetSpec]
    accounts: Callable[[], AccountsSpec]
    work_directory: Path
    ralphs: Callable[[], Collection[str]]
    hold: Callable[[Item, TakeLease | Lease | None], ItemHolder]
    watcher: Watcher | None = None
    landings: Landings | None = None
    recorded: list[tuple[Item, Lease]] = field(default_factory=list)
    keep: Callable[[Item], None] = lambda item: None
    """Writes down an item, so that a hub that lost its store gets it again. Blocks."""
    picture: Picture = field(init=False)
    draining: bool = False
    drained: Path | None = None
    """A file that is there while it drains, for the next daemon."""
    limits_changed: asyncio.Event = field(default_factory=asyncio.Event)
    holders: dict[str, ItemHolder] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _avoided: dict[str, float] = field(default_factory=dict)
    _declines: dict[ItemId, model.Decline] = field(default_factory=dict)
    _unkept: dict[ItemId, Item] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _silent: set[str] = field(default_factory=set)
    _installed: list[Account] = field(default_factory=list)
    _look_at: float = 0.0
    _was_connected: bool | None = None
    _rival: tuple[str, float] = ("", 0.0)
    """The boot of another machine that wrote this one's record, and until when that counts."""

    def __post_init__(self) -> None:
        self.picture = Picture(self.services.clock.now)

    # --- tasks -----------------------------------------------------------------------------------------

    async def run(self, *more: Work) -> None:
        """Take part, until cancelled, and keep ``more`` tasks running beside those of the member."""
        try:
            for item, lease in self.recorded:
                self.take(item, lease)
            follows = [partial(self._follow, each) for each in Bucket if each is not Bucket.WANTS]
            leases = [each.run for each in (self.watcher, self.landings) if each is not None]
            works: list[Work] = [self._connect, self._show, self._take_turns, self._restore, *leases]
            works += [self._clean_up, self._remember, *follows, *more]
            await asyncio.gather(*map(self._keep, works))
        finally:
            holders = [*self._tasks.values()]
            for task in holders:
                task.cancel()
            await asyncio.gather(*holders, return_exceptions=True)
            await self.fabric.close()

    async def _keep(self, work: Work) -> None:
        """Run a task, and begin it again after a bug: it must end neither the daemon nor the other tasks."""
        while True:
            try:
                return await work()
            except Exception as fault:
                logger.exception("fleet: a task failed, and begins again")
                self.services.trouble(f"{_TOPIC} task", f"{type(fault).__name__}: {fault}")
            await asyncio.sleep(AVOIDED_S)

    async def _connect(self) -> None:
        rest_s = TURN_S
        while True:
            try:
                return await self.fabric.connect()
            except HubUnreachable as error:
                self.services.trouble(_TOPIC, f"the hub is unreachable: {error}")
            await asyncio.sleep(rest_s * random.uniform(0.5, 1))  # noqa: S311
            rest_s = min(2 * rest_s, LONGEST_CONNECT_S)

    async def _follow(self, bucket: Bucket) -> None:
        async for entry in self.fabric.watch(bucket):
            before = self.picture.known(bucket, entry.key)
            value = self.picture.take(bucket, entry)
            if isinstance(value, HostRecord) and before and value.boot != self.boot == before.value.boot:
                self._rival = value.boot, self.picture.monotonic() + 3 * PRESENCE_S
            if isinstance(value, Item):
                await self._item_seen(value, before.value if before else None, entry.revision)
            if bucket is Bucket.QUOTA:
                self.limits_changed.set()
            if bucket is Bucket.LEASES and self.watcher is not None:
                self.watcher.seen(entry.key, value if isinstance(value, Lease) else None, entry.revision)

    async def _item_seen(self, item: Item, before: Item | None, revision: int) -> None:
        if before is not None and is_later(before, item):
            self.picture.remember(before, revision)
            with suppress(HubUnreachable, WrongRevision):  # else the hub shows it again
                await self.fabric.update(Bucket.ITEMS, item.id, write_value(before), revision=revision)
            return
        if item != before:
            self._unkept[item.id] = item
        if (holder := self.holders.get(item.id)) is not None:
            await holder.want(item)

    async def _remember(self) -> None:
        while True:
            await asyncio.sleep(TURN_S)
            changed, self._unkept = self._unkept, {}
            for item in changed.values():
                await asyncio.to_thread(self.keep, item)

    async def _show(self) -> None:
        """Put this machine's record into its bucket, every PRESENCE_S and when it has changed."""
        while True:
            if self.fabric.is_connected:
                refusal, record = None, await asyncio.to_thread(self.record)
                try:
                    await self.fabric.put(Bucket.HOSTS, self.host, write_value(record))
                except HubUnreachable as fault:
                    refusal = f"the hub takes nothing: {fault}" if self.fabric.is_connected else None
                self.services.trouble(f"{_TOPIC} hub", refusal)
            self._changed.clear()
            await wait_at_most(PRESENCE_S * random.uniform(0.8, 1.2), self._changed)  # noqa: S311

    def record(self) -> HostRecord:
        """Return this machine as the others see it. Blocks."""
        if self.picture.monotonic() >= self._look_at:
            self._installed, self._look_at = [*installed_accounts()], self.picture.monotonic() + LOGINS_S
        spec, (total_bytes, free_bytes), cpus = self.spec(), memory_bytes(), os.cpu_count() or 1
        disk = next(each for each in (self.work_directory, *self.work_directory.parents) if each.exists())
        return HostRecord(
            self.host, self.boot, __version__, labels=tuple(spec.labels),
            logins=tuple(logins(self._installed, self.accounts(), self.services.clocks)),
            allow_repos=tuple(spec.allow_repos),
            slots=spec.slots or max(1, min(cpus // 2, total_bytes // (3 * _GIB))), used=len(self.holders),
            cpus=cpus, memory_free_bytes=free_bytes,
            disk_free_bytes=shutil.disk_usage(disk).free, draining=self.draining,
            clones=tuple(_names(self.work_directory / "clones")), ralphs=tuple(self.ralphs())[:MOST_ENTRIES],
            declines=tuple(self._declines.values())[-MOST_DECLINES:], at=self.services.clock.now(),
        )  # fmt: skip

    async def _take_turns(self) -> None:
        is_late = False
        while True:
            if not is_late:  # else it looks at the next item at once: the faster one rests now
                await asyncio.sleep(TURN_S)
            await self._report_connection()
            for item, holder in self.holders.items():
                waits = f"pushes wait: {holder.problem}" if holder.problem else None
                self.services.trouble(f"{_TOPIC} {item}", waits)
            is_late = await self._take_turn()

    async def _report_connection(self) -> None:
        is_connected = self.fabric.is_connected
        if is_connected:
            self.services.trouble(_TOPIC, None)
        if is_connected != self._was_connected and (is_connected or self._was_connected is not None):
            kinds = {None: "fleet.joined", True: "fleet.lost", False: "fleet.back"}
            await self.services.news.tell(kinds[self._was_connected], {"host": self.host})
            if not is_connected:
                self.services.trouble(_TOPIC, "the hub is unreachable: what runs continues")
            self._was_connected = is_connected
            self._changed.set()
        if not is_connected:
            return
        others = {each.name for each in self.picture.hosts} - {self.host}
        silent = others - {each.name for each in self.picture.heard()}
        for name in sorted(silent - self._silent):
            entry = self.picture.known(Bucket.HOSTS, name)
            key = f"fleet.host.silent {name} {entry.revision if entry else 0}"
            await self.services.news.tell("fleet.host.silent", {"host": name}, key=key)
        self._silent = set(silent)

    # --- items -----------------------------------------------------------------------------------------

    async def _take_turn(self) -> bool:
        """Claim the item that suits this machine best, after a wait that lets better ones go first.

        Return whether another one was faster.
        """
        if self.draining or not self.fabric.is_connected or (me := self._me()) is None or self._has_rival():
            return False
        self._watch_orphans()
        now, heard, limits = self.services.clock.now(), self.picture.heard(), self.picture.limits
        if (item := fit.choose(self._free(), me, heard, limits, now)) is None:
            return False
        if any(each.name != self.host and not fit.misfits(item, each, limits, now) for each in heard):
            suits = fit.score(item, me, limits, now)
            await asyncio.sleep(fit.claim_delay_s(suits, random.random()))  # noqa: S311
        known = self.picture.known(Bucket.ITEMS, item.id)  # it may be gone by now
        if known is None or fit.waits_for(known.value, self.services.clock.now()):
            return True
        if not self.draining:
            self.take(known.value)
        return False

    def _free(self) -> list[Item]:
        """Return the items that this machine neither has nor leaves to others for now."""
        at, held = self.picture.monotonic(), {_lease_key(each.item) for each in self.holders.values()}
        every = [each for each in self.picture.items if self._avoided.get(each.id, 0.0) <= at]
        return [each for each in every if _lease_key(each) not in held]

    def _watch_orphans(self) -> None:
        """Find the items whose holder has no lease in the hub: it was wiped, or shows an older state."""
        for item in self.picture.items:
            if item.state not in HAS_HOLDER or item.holder is None or item.id in self.holders:
                continue
            key = _lease_key(item)
            known = self.picture.known(Bucket.LEASES, key)
            if known is not None and known.value.host:
                continue
            if item.holder == self.host and self._avoided.get(item.id, 0.0) <= self.picture.monotonic():
                if is_allowed(item.repo, self.spec().allow_repos):  # any member can write such an item
                    self.take(item)
            elif self.watcher is not None:
                lease = Lease(item.holder, "", item.token, item=item.id)
                self.watcher.missed(key, lease, known.revision if known else 0)

    def _has_rival(self) -> bool:
        """Whether another machine writes the record under this machine's name, which is a problem."""
        boot, until = self._rival
        other = boot if self.picture.monotonic() < until else None
        words = f"another machine uses the name {self.host}: boot {other}"
        self.services.trouble(f"{_TOPIC} name", words if other else None)
        return other is not None

    def _me(self) -> HostRecord | None:
        """Return this machine's last record with the items that it has by now; None before its first."""
        known, allowed = self.picture.known(Bucket.HOSTS, self.host), self.spec().allow_repos
        # What the hub has of these may be old.
        own = {"allow_repos": tuple(allowed), "used": len(self.holders), "draining": self.draining}
        return None if known is None or known.value.boot != self.boot else replace(known.value, **own)

    def may_take(self, key: str, item_id: ItemId) -> bool:
        """Whether this machine may take over a lease: it waits to land there, or suits the item."""
        if self.landings is not None and self.landings.wants(key):
            return True
        known = self.picture.known(Bucket.ITEMS, item_id)
        if self.draining or known is None or item_id in self.holders:
            return False
        item: Item = known.value
        if item.state in (*ENDED, model.ItemState.HELD):
            return False
        is_its_branch = _lease_key(item) == key
        me, now = self._me(), self.services.clock.now()
        return is_its_branch and me is not None and not fit.misfits(item, me, self.picture.limits, now)

    def holds(self, key: str, token: int) -> bool:
        """Whether this machine has the lease with this key and token."""
        if self.landings is not None and self.landings.holds(key, token):
            return True
        items = ((each, each.item) for each in self.holders.values())
        return any(_lease_key(item) == key and each.holds(token) for each, item in items)

    async def take_over(self, key: str, item_id: ItemId, lease: TakeLease) -> None:
        """Claim the lease of a silent machine: of an item, or of a branch to land on."""
        if self.landings is not None and self.landings.wants(key):
            self.landings.take(key, lease)
        elif item_id not in self.holders and not self.draining:
            self.take(self.picture.item(item_id), lease)

    def take(self, item: Item, start: TakeLease | Lease | None = None) -> ItemHolder:
        """Hold an item from now on: claim it, take it over, or continue what an earlier daemon held."""
        holder = self.holders[item.id] = self.hold(item, start)
        if self.draining:  # since before this daemon began
            holder.drain()
        self._tasks[item.id] = task = asyncio.create_task(holder.run(), name=f"item {item.id}")
        task.add_done_callback(partial(self._gave_back, item, holder))
        self._changed.set()
        return holder

    def _gave_back(self, item: Item, holder: ItemHolder, task: "asyncio.Task[None]") -> None:
        self.holders.pop(item.id, None)
        self._tasks.pop(item.id, None)
        self._avoided[item.id] = self.picture.monotonic() + AVOIDED_S
        self._declines.pop(item.id, None)
        if holder.why:
            self._declines[item.id] = model.Decline(item.id, holder.why)
        self._changed.set()
        topic = f"item {item.id}"
        self.services.trouble(f"{_TOPIC} {item.id}", None)
        if task.cancelled() or (error := task.exception()) is None:
            self.services.trouble(topic, None)
            return
        logger.error("%s: its holder failed", topic, exc_info=error)
        self.services.trouble(topic, f"its holder failed, and is begun again: {error}")
        if holder.lease is not None:  # what runs must not stay without a holder
            asyncio.get_running_loop().call_later(AVOIDED_S, self._take_again, item, holder.lease)

    def _take_again(self, item: Item, lease: Lease) -> None:
        if item.id not in self.holders:
            self.take(item, lease)

    def drain(self, *, ends: bool = False) -> None:
        """Claim nothing more, and give back what this machine has; ``ends``: take part again."""
        self.draining = not ends
        with suppress(OSError):  # a full disk: the next daemon takes part again
            if self.drained is not None:
                self.drained.touch() if self.draining else self.drained.unlink(missing_ok=True)
        self._changed.set()
        for each in self.holders.values() if self.draining else ():
            each.drain()

    # --- requests of people ----------------------------------------------------------------------------

    async def submit(self, item: Item) -> dict[str, Any]:
        """Add an item. Raises HubUnreachable."""
        item = replace(item, at=self.services.clock.now())
        await self._write(item, 0)
        return self.picture.explained(item.id)

    async def act(self, item_id: str, verb: str, by: str) -> dict[str, Any]:
        """Carry out a person's verb on an item. Raises NotFound, WrongState, HubUnreachable."""
        for _ in range(5):
            self.picture.item(item_id)
            with suppress(WrongRevision):
                entry = await self.fabric.get(Bucket.ITEMS, item_id)
                present = self.picture.take(Bucket.ITEMS, entry) if entry else None
                if present is None or entry is None:
                    self.picture.item(item_id)
                    raise WrongState(f"the hub has no item {item_id}")
                await self._write(by_person(present, verb, by, self.services.clock.now()), entry.revision)
                return self.picture.explained(item_id)
        raise WrongState(f"{item_id} changes all the time", mend="try again")

    async def take_from_absent(self, item_id: str) -> dict[str, Any]:
        """Take an item from its holder at once. Raises NotFound, and WrongState with the reason."""
        item, watcher = self.picture.item(item_id), self.watcher
        if item.holder is None:
            mend = f"ralphctl fleet explain {item_id}"
            raise WrongState(f"{item_id} is {item.state}: no machine has it", mend=mend)
        if item.holder == self.host:
            raise WrongState(f"this machine has {item_id}", mend=f"ralphctl status {item_id}")
        me, now = self._me(), self.services.clock.now()
        misfits = ["not connected"] if me is None else fit.misfits(item, me, self.picture.limits, now)
        if misfits:
            mend = f"type it on another machine: ralphctl fleet explain {item_id}"
            raise WrongState(f"this machine cannot take {item_id}", why="; ".join(misfits), mend=mend)
        if not self.fabric.is_connected or watcher is None:
            raise HubUnreachable("not connected to the hub")
        if why := await watcher.take_now(_lease_key(item)):
            mend = f"ralphctl fleet hold {item_id}, or ralphctl fleet drain {item.holder}"
            raise WrongState(f"{item_id} is not taken from {item.holder}", why=why, mend=mend)
        for _ in range(round(TAKE_NOW_S / TAKE_LOOK_S)):
            if self.picture.item(item_id).holder == self.host:
                return self.picture.explained(item_id)
            await asyncio.sleep(TAKE_LOOK_S)
        if item_id in self.holders:
            return self.picture.explained(item_id)
        why = f"{item.holder} has renewed its lease meanwhile, or the remote does not answer from here"
        raise WrongState(f"{item_id} was not taken", why=why, mend="ralphctl fleet status")

    async def _write(self, item: Item, revision: int) -> None:
        value = write_value(item)
        if revision:
            revision = await self.fabric.update(Bucket.ITEMS, item.id, value, revision=revision)
        else:
            revision = await self.fabric.create(Bucket.ITEMS, item.id, value)
        self.picture.take(Bucket.ITEMS, Entry(item.id, value, revision))

    async def _restore(self) -> None:
        """Give a hub that lost its store the items that this machine knows."""
        since: float | None = None
        while True:
            await asyncio.sleep(TURN_S)
            if (connected := self.fabric.connected_since) is None or connected == since:
                continue
            with suppress(HubUnreachable):
                there = {each.key for each in await self.fabric.entries(Bucket.ITEMS)}
                for key, item in self.picture.missing(Bucket.ITEMS, there).items():
                    if not is_old(item, self.services.clock.now()):
                        with suppress(WrongRevision):
                            await self.fabric.create(Bucket.ITEMS, key, write_value(item))
                since = connected

    async def _clean_up(self) -> None:
        """Remove the items that ended long ago from the hub, and from what this machine would restore."""
        while True:
            for item in self.picture.items:
                known = self.picture.known(Bucket.ITEMS, item.id)
                if known is not None and is_old(item, self.services.clock.now()):
                    with suppress(HubUnreachable, WrongRevision):  # another machine was faster
                        await self.fabric.delete(Bucket.ITEMS, item.id, revision=known.revision)
                    self.picture.forget(Bucket.ITEMS, item.id)
            await asyncio.sleep(CLEAN_UP_S * random.uniform(0.8, 1.2))  # noqa: S311


def _names(directory: Path) -> list[str]:
    try:
        return sorted(each.name for each in directory.iterdir() if each.is_dir())[:256]
    except OSError:
        return []


def _lease_key(item: Item) -> str:
    return lease_key(repo_id(item.repo), item.branch)
