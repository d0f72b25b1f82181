"""Own one item of the fleet on this host, from the claim of its lease to its end.

The pure lease (core/fleet/lease.py) gives orders; each is carried out by a task of its own. The item in the
hub follows what git decided: it is written when the lease is held, and before the lease is released. A
cancelled holder leaves the lease and the ralph as they are, for the next daemon.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from ralphd.core.fleet import lease_model
from ralphd.core.fleet.checked import Rejected, read_value, write_value
from ralphd.core.fleet.items import advanced, is_holder, released, taken_over
from ralphd.core.fleet.lease import resume_hold
from ralphd.core.fleet.lease_model import LeaseNews, LeaseOrder, LeaseRules, PushWanted, Stage, TakeLease
from ralphd.core.fleet.model import ENDED, HAS_HOLDER, HostName, Item, ItemState, Lease
from ralphd.core.text import short_sha
from ralphd.daemon.fleet.orders import Clocks, LeaseKeeper, Report, tick_s
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError, in_one_line
from ralphd.fleet.fabric import Bucket, Fabric, HubUnreachable, JsonObject, WrongRevision
from ralphd.git.fence.fence import Fence, SavedAside
from ralphd.git.fence.lease_ref import Aside

_ASIDE_TRIES: Final = 3
_EVENTS: Final = {
    ItemState.OPEN: "item.released",
    ItemState.HELD: "item.held",
    ItemState.DONE: "item.done",
    ItemState.FAILED: "item.done",
}

Record: TypeAlias = Callable[[JsonObject | None], None]
"""Stores the lease on disk, before the orders that depend on it; None: there is none to continue."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last commit of a branch, and how the work on it ended; ``state`` is None while it continues.

    ``working`` and ``landing`` are no end: it lands once it is pushed. ``commit`` is what landed.
    """

    head: str
    state: ItemState | None = None
    why: str = ""
    commit: str = ""


class Work(Protocol):
    """The clone and the ralph of an item. ``fence`` is valid once ``prepare`` has succeeded."""

    fence: Fence

    async def prepare(self) -> str:
        """Clone or fetch. Return why it is not ready; empty if it is."""

    async def begin(self, tip: str, note: str) -> None:
        """Start the ralph at ``tip``, which may have to be fetched; empty: at the base. Or adopt it.

        Raises RalphdError.
        """

    async def changed(self) -> Progress:
        """Wait for the next commit or the end."""

    async def stop(self, *, at_once: bool) -> None:
        """Stop the ralph, of an earlier daemon too, after its iteration or ``at_once``, and wait."""

    async def pause(self) -> None:
        """Pause the ralph."""

    async def resume(self) -> None:
        """Continue the paused ralph."""

    async def saved(self) -> tuple[str, ...]:
        """Return the commits to save: HEAD, then a snapshot of uncommitted files; none without a worktree."""

    async def forget(self) -> None:
        """Remove the ralph and its worktree: what they had is on the remote."""


@dataclass(frozen=True, slots=True)
class _End:
    """What becomes of the item; OPEN: another host may take it. ``is_own``: the ralph has ended already.

    ``is_patient``: it finishes its iteration first. ``commit`` is what landed.
    """

    state: ItemState
    why: str
    head: str = ""
    is_try: bool = True
    is_own: bool = False
    is_patient: bool = False
    commit: str = ""


class Holder(LeaseKeeper):
    """One item on this host. ``start``: the lease to take over, or the recorded one to continue."""

    def __init__(
        self, item: Item, host: HostName, boot: str, fabric: Fabric, work: Work, rules: LeaseRules, *,
        record: Record, report: Report, clocks: Clocks | None = None, start: TakeLease | Lease | None = None,
    ) -> None:  # fmt: skip
        super().__init__(item.repo, item.branch, host, boot, fabric, rules, clocks or Clocks())
        self.item, self.work = item, work
        self._record, self._report, self._start = record, report, start
        self._has_ralph = self._is_resumed = isinstance(start, Lease)
        self._has_item = self._is_begun = self._is_releasing = False
        self._end: _End | None = None
        self._pauses = {"goal"} if item.goal == "paused" else set()
        self._pausing = asyncio.Lock()
        self._recorded: Lease | None = None
        self._refusal, self._note, self._progress = "", "", Progress("")
        self._orders: lease_model.Orders = ()
        if isinstance(start, Lease):  # another host that asks gets a yes from now on
            at, boottime_s = self._clocks.monotonic(), self._clocks.boottime()
            self.hold, self._orders = resume_hold(start, at=at, boottime_s=boottime_s)

    async def run(self) -> None:
        """Claim or continue the lease, and work until it is released, lost or fenced. Once only.

        ``why`` then has the reason where nothing was claimed.
        """
        async with asyncio.TaskGroup() as self._tasks:
            if await self._is_started():
                await self._own()

    @property
    def lease(self) -> Lease | None:
        """The lease to continue with another holder, should this one fail; None where there is none."""
        return self.hold.lease if self.hold.is_active and self._recorded is not None else None

    @property
    def problem(self) -> str:
        """Why pushes wait; empty while git answers."""
        is_unsure = self.hold.ref is lease_model.Link.UNSURE
        return self.why or (self._push_fault or "git does not answer" if is_unsure else "")

    def drain(self) -> None:
        """Have the ralph finish its iteration; then ``run`` pushes, releases item and lease, and ends."""
        self._end_with(_End(ItemState.OPEN, "drained", is_try=False, is_patient=True))

    async def want(self, item: Item) -> None:
        """Follow an item as a person, or a hub that forgot something, changed it."""
        if self._end is not None and item.state in ENDED:  # cancelled
            self._end = replace(self._end, is_patient=False)
            self._changed.set()
        if not self._has_item or self._end is not None:  # else it is read when this host takes it
            return
        if is_holder(item, self.host, self.hold.lease.token):
            await self._obey(item)
        else:
            await self._take_item()

    # From the claim to the end

    async def _is_started(self) -> bool:
        self.why = await self.work.prepare()
        if self.why and not self._is_resumed:
            return False
        self.fence = self.work.fence
        if self._is_resumed:
            self._follow((self.hold, self._orders))
            return True
        start = self._start if isinstance(self._start, TakeLease) else None
        return self._end is None and await self._claim(self.item, start)

    async def _own(self) -> None:
        ticker, life = self._tasks.create_task(self._tick()), self._tasks.create_task(self._live())
        await self._until(lambda: self._end is not None)
        life.cancel()
        await asyncio.wait([life])
        self.why = ""
        await self._until(lambda: self.hold.stage is not Stage.CLAIMING)
        if self._end is not None:
            await self._finish(self._end)
        ticker.cancel()

    async def _live(self) -> None:
        await self._until(lambda: self.hold.stage is not Stage.CLAIMING)
        if self._is_resumed:  # what runs does not wait for the hub
            self._tasks.create_task(self._take_item())
        elif not await self._take_item():
            return
        await self._until(lambda: self.hold.may_attempt and (self._is_resumed or not self._pauses))
        while self.why and self._end is None:
            await asyncio.sleep(tick_s(self._rules))
            self.why = await self.work.prepare()
        if self._end is None:
            await self._follow_work()

    async def _follow_work(self) -> None:
        self._has_ralph = True
        try:
            await self.work.begin(self.hold.lease.pushed, self._note)
        except RalphdError as fault:
            self._has_ralph = self._is_resumed
            self._end_with(_End(ItemState.OPEN, in_one_line(fault), is_own=True))
            return
        async with self._pausing:
            self._is_begun = True
            if self._pauses:
                await self.work.pause()
        if self.item.finished != self.hold.lease.pushed or not self.item.finished:  # else it only lands
            self._tasks.create_task(self._write_item(self._working))
        while self._end is None:
            progress = await self.work.changed()
            head, state = progress.head, progress.state
            if not self._is_pushed(head):
                self._feed(PushWanted(head))
            if state in HAS_HOLDER:
                self._progress = progress
                if state is ItemState.WORKING and self._pauses:  # there was nothing to pause before
                    await self.work.pause()
                self._tasks.create_task(self._write_item(self._working))
                await self._until(partial(self._is_pushed, head))
            elif state is not None:
                self._end_with(_End(state, progress.why, head=head, is_own=True, commit=progress.commit))

    def _end_with(self, end: _End) -> None:
        self._end = self._end or end
        self._changed.set()

    async def _finish(self, end: _End) -> None:
        if self._has_ralph and not end.is_own:
            await self._stop()
        if self.hold.stage is Stage.LOST:
            self.why = self._push_fault or "another host was faster"
        if self.hold.is_active:
            await self._give_back(end)
        if self._has_ralph and not (self._is_releasing and self.hold.stage is Stage.RELEASED):
            if not await self._save_stale():
                return
        elif (end.state is ItemState.DONE and self._is_pushed(end.head)) or self._leaves_nothing(end):
            await self.work.forget()
        self._record(None)

    async def _stop(self) -> None:
        """Stop the ralph. If its end is patient, first wait for the iteration while the item is ours."""
        if self._end is not None and self._end.is_patient:
            stopping = self._tasks.create_task(self.work.stop(at_once=False))
            stopping.add_done_callback(lambda _: self._changed.set())
            await self._until(lambda: stopping.done() or not (self._end and self._end.is_patient))
            if stopping.done():
                return
            stopping.cancel()
        await self.work.stop(at_once=True)

    def _is_pushed(self, head: str) -> bool:
        return head in ("", self.hold.lease.pushed)

    async def _give_back(self, end: _End) -> None:
        head = end.head or next(iter(await self.work.saved() if self._has_ralph else ()), "")
        if not self._refusal and not self._is_pushed(head):
            self._feed(PushWanted(head))
            await self._until(lambda: self._is_pushed(head) or bool(self._refusal))
        refs: tuple[str, ...] = ()
        if self._refusal and self.hold.is_active:
            await self.work.stop(at_once=True)
            refs = await self._save_aside(Aside.LEFT) or ()
            end = _End(ItemState.HELD, self._refusal)
        item = await self._write_item(partial(self._after, end))
        self._is_releasing = self.hold.is_active
        self._feed(LeaseNews.RELEASE_WANTED)
        await self._until(lambda: not self.hold.is_active)
        if item is not None:
            data = {"why": item.why or end.why, "refs": refs, "state": item.state.value}
            await self._tell(_EVENTS[item.state], **data, **({"commit": end.commit} if end.commit else {}))

    def _leaves_nothing(self, end: _End) -> bool:
        """Whether another host continues, and nobody has to look here at a failure."""
        return self._has_ralph and self.item.state is ItemState.OPEN and not end.is_try

    async def _save_stale(self) -> bool:
        await self.work.stop(at_once=True)
        refs = await self._save_aside(Aside.STALE)
        await self._tell("fleet.fenced", by=self._other, refs=refs or (), is_saved=refs is not None)
        if refs is not None:
            await self.work.forget()
        return refs is not None

    async def _save_aside(self, kind: Aside) -> tuple[str, ...] | None:
        commits, token = await self.work.saved(), self.hold.lease.token
        for _ in range(_ASIDE_TRIES):
            call = partial(self.work.fence.save_aside, kind, self.item.branch, token, *commits)
            if isinstance(saved := await asyncio.to_thread(call), SavedAside):
                return saved.refs
            await asyncio.sleep(tick_s(self._rules))
        return None

    async def _tell(self, event: str, **data: Any) -> None:
        lease = self.hold.lease
        common = {"item": self.item.id, "branch": self.item.branch, "token": lease.token}
        await self._report(event, {**common, "commit": lease.pushed, **data})

    # The item in the hub

    async def _take_item(self) -> bool:
        """Become the holder of the item, or end. Return whether this host has it."""
        token, before = self.hold.lease.token, self.item

        def change(item: Item) -> Item | None:
            nonlocal before
            before = item
            return item if is_holder(item, self.host, token) else taken_over(item, self.host, token)

        item = await self._write_item(change)
        if item is None or item.state is ItemState.HELD:
            if item is not None:
                await self._tell("item.held", why=item.why)
            self._end_with(_End(ItemState.OPEN, "the item is not for this host now", is_try=False))
            return False
        if before.holder is not None and before.holder != self.host:
            at = short_sha(self.hold.lease.pushed) or "the base"
            ref = f"{item.form.prefix}stale/{item.branch}/{before.token}"
            self._note = f"Taken over from {before.holder} at {at}. Its unpushed work may appear at {ref}."
            await self._tell("item.taken_over", previous=before.holder)
        elif not is_holder(before, self.host, token):
            await self._tell("item.claimed")
        self._has_item = True
        await self._obey(item)
        return self._end is None

    async def _obey(self, item: Item) -> None:
        self.item = item
        if item.goal == "stopped":
            self._end_with(_End(ItemState.OPEN, item.why or "stopped", is_try=False, is_patient=True))
        else:
            await self._pause("goal", is_on=item.goal == "paused")

    def _working(self, item: Item) -> Item | None:
        token, now, last = self.hold.lease.token, self._clocks.wall(), self._progress
        state = last.state or ItemState.WORKING
        return advanced(item, self.host, token, state, now, why=last.why, commit=last.head)

    def _after(self, end: _End, item: Item) -> Item | None:
        token, now = self.hold.lease.token, self._clocks.wall()
        commit = end.commit or self.hold.lease.pushed
        # A hub that forgot shows the item as it was before this host had it.
        own = item if is_holder(item, self.host, token) else taken_over(item, self.host, token)
        if own is None or own.state is ItemState.HELD:
            return own
        if self._progress.state is not None:  # which the hub may have missed
            own = self._working(own) or own
        if end.state is ItemState.OPEN:
            return released(own, self.host, token, why=end.why, commit=commit, is_try=end.is_try)
        own = own if end.commit or end.state is ItemState.HELD else replace(own, finished="")
        return advanced(own, self.host, token, end.state, now, why=end.why, commit=commit)

    async def _write_item(self, change: Callable[[Item], Item | None]) -> Item | None:
        """Change the item as soon as the hub answers, while the lease is ours. None: not this host's."""
        wanted: Item | None = None
        while self.hold.is_active:
            with suppress(HubUnreachable, WrongRevision):
                entry = await self._fabric.get(Bucket.ITEMS, self.item.id)
                item = self.item if entry is None else read_value(Item, entry.value)
                if isinstance(item, Rejected):
                    return None
                if entry is None or item != wanted:  # else the answer to the last write was lost
                    wanted = change(item)
                if wanted is None:
                    return None
                if entry is None:
                    await self._fabric.create(Bucket.ITEMS, item.id, write_value(wanted))
                elif wanted != item:
                    value = write_value(wanted)
                    await self._fabric.update(Bucket.ITEMS, item.id, value, revision=entry.revision)
                self.item = wanted
                return wanted
            await asyncio.sleep(tick_s(self._rules))
        return None

    # The lease

    def _stepped(self) -> None:
        kept = replace(self.hold.lease, n=self.hold.n)
        if self.hold.is_active and kept != self._recorded:
            self._recorded = kept
            self._record(write_value(kept))
        if not self.hold.is_active:
            self._end_with(_End(ItemState.OPEN, f"the lease is {self.hold.stage}"))

    async def _act(self, order: LeaseOrder) -> None:
        match order:
            case LeaseOrder.PAUSE | LeaseOrder.RESUME:
                await self._pause("lease", is_on=order is LeaseOrder.PAUSE)
            case LeaseOrder.HOLD_ITEM:
                self._refusal = self._push_fault or "the remote refused the branch"
                self._end_with(_End(ItemState.HELD, self._refusal))

    async def _pause(self, by: str, *, is_on: bool) -> None:
        async with self._pausing:
            was = bool(self._pauses)
            self._pauses = self._pauses | {by} if is_on else self._pauses - {by}
            self._changed.set()
            if self._is_begun and bool(self._pauses) != was:
                with suppress(RalphdError):  # it has just ended, or a person was faster
                    await (self.work.pause() if self._pauses else self.work.resume())
