"""The events, for replay, and the outbox of webhooks: ``events.db``, written by one thread.

What cannot be written (a full disk, F3) waits in memory, and is replayed and delivered from there.
"""

import asyncio
import logging
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ralphd.core.delivery import Delivery, DeliveryState, Destination, KeptDelivery, StoredEvent, message_id
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass
from ralphd.store import database
from ralphd.store.database import Database, Statement, is_broken, is_of_the_file

# The deliveries of webhooks: which wait, which may be sent now, and what became of the others.

logger = logging.getLogger(__name__)

MAX_WAITING = 1000
"""How many messages of one ralph may wait for one destination; beyond it the oldest is given up."""
_ENDS_REMEMBERED = 200

Read: TypeAlias = Callable[..., list[tuple[Any, ...]]]
_Lane: TypeAlias = dict[int, Delivery]


class Outbox:
    """The deliveries of a store: queued, finished, retried. Only the store's thread uses it.

    What is pending waits in memory: in a lane, by id, for each destination and ralph.
    ``record`` executes a statement now or later; ``read`` returns the rows of a query, none while the file
    cannot be read. ``counted`` has the numbers of attempts that were ``delivered``, ``failed``, ``given_up``.
    """

    def __init__(self, clock: Callable[[], Moment], record: Callable[[Statement], None], read: Read) -> None:
        self.counted: Counter[str] = Counter()
        self.last_id, self._asked_at = 0, 0.0
        self._lanes: dict[tuple[str, str | None], _Lane] = {}
        self._clock, self._record, self._read = clock, record, read
        # The last ones that are finished: the file may not have them yet.
        self._ended: dict[int, KeptDelivery] = {}

    def __len__(self) -> int:
        return sum(map(len, tuple(self._lanes.values())))  # a copy: another thread may ask

    def load(self, pending: Iterable[Delivery]) -> None:
        """Queue what is pending in the file, before what was queued since."""
        added, self._lanes = self.pending(), {}
        for delivery in (*pending, *added):
            self._put(delivery)

    def pending(self, to: str | None = None) -> list[Delivery]:
        """Return what is pending, for one destination or for all, oldest first."""
        every = (each for lane in self._lanes.values() for each in lane.values())
        return sorted((each for each in every if to in (None, each.destination)), key=attrgetter("id"))

    def due(self, now: Moment, limit: int) -> list[Delivery]:
        """Return the heads of the lanes that are due, oldest first.

        If the clock was set back since the last call, everything that waits is due: its times are wrong.
        """
        before, self._asked_at = self._asked_at, self._clock()
        if self._asked_at < before - 1.0:
            for destination in {each.destination for each in self.pending()}:
                self.hasten(destination)
        heads = [head for head in map(_head, self._lanes.values()) if head.next_at <= now]
        return sorted(heads, key=attrgetter("id"))[:limit]

    def next_due_at(self) -> Moment | None:
        """Return when the next head is due; None if nothing waits."""
        return min((_head(lane).next_at for lane in self._lanes.values()), default=None)

    def _waiting(self, delivery_id: int) -> Delivery | None:
        return next((lane[delivery_id] for lane in self._lanes.values() if delivery_id in lane), None)

    def _put(self, delivery: Delivery) -> _Lane:
        """Append a delivery to its lane, or replace it there by its newer form."""
        lane = self._lanes.setdefault((delivery.destination, delivery.event.ralph), {})
        lane[delivery.id] = delivery
        return lane

    def made(self, event: StoredEvent, key: str | None, to: Sequence[Destination]) -> list[Delivery]:
        """Return deliveries of an event, due now; they wait only after ``take``."""
        now, message, deliveries = self._clock(), message_id(event, key or str(event.id)), []
        for destination in to:
            self.last_id += 1
            deliveries.append(Delivery(self.last_id, destination.id, message, event, now, 0, next_at=now))
        return deliveries

    def take(self, deliveries: Iterable[Delivery]) -> None:
        """Queue recorded deliveries. Those that a full lane drops are given up."""
        for delivery in deliveries:
            lane = self._put(delivery)
            if len(lane) > MAX_WAITING:
                crowded_out = _head(lane)
                logger.warning("a webhook was given up: too many wait (%s)", crowded_out.message_id)
                self._end(crowded_out, DeliveryState.GIVEN_UP, "too many were waiting")

    def finish(self, delivery_id: int, state: DeliveryState, why: str | None) -> None:
        """End a delivery that arrived or is given up."""
        if delivery := self._waiting(delivery_id):
            self._end(delivery, state, why)

    def _end(self, delivery: Delivery, state: DeliveryState, why: str | None) -> None:
        now = self._clock()
        self._note_end(KeptDelivery(delivery, state, why, now))
        self._record((database.FINISH, (state.value, now, why, delivery.id)))

    def _note_end(self, ended: KeptDelivery) -> None:
        key = ended.delivery.destination, ended.delivery.event.ralph
        del self._lanes[key][ended.delivery.id]
        if not self._lanes[key]:
            del self._lanes[key]
        self.counted[ended.state.value] += 1
        self._ended[ended.delivery.id] = ended
        if len(self._ended) > _ENDS_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def retry(self, delivery_id: int, why: str, next_at: Moment) -> None:
        """Send a delivery that failed again at ``next_at``."""
        if delivery := self._waiting(delivery_id):
            later = replace(delivery, failures=delivery.failures + 1, next_at=next_at)
            self._put(later)
            self.counted["failed"] += 1
            self._record((database.RETRY, (later.failures, next_at, why, delivery_id)))

    def newest(self, destination: str | None, limit: int) -> list[KeptDelivery]:
        """Return the last deliveries in any state, newest first; to one destination, or to all."""
        query = (database.NEWEST, limit) if destination is None else (database.NEWEST_TO, destination, limit)
        every = {each.id: KeptDelivery(each) for each in self.pending(destination)}
        every |= {kept.delivery.id: kept for kept in map(database.to_kept, self._read(*query))}
        return [self._current(every[id]) for id in sorted(every, reverse=True)[:limit]]

    def last(self, destination: str) -> KeptDelivery | None:
        """Return the last to a destination or, if that waits, the head of its lane."""
        last = next(iter(self.newest(destination, 1)), None)
        if last is None or last.state is not DeliveryState.PENDING:
            return last
        lane = self._lanes.get((destination, last.delivery.event.ralph))
        return self.find(_head(lane).id) if lane else last

    def find(self, delivery_id: int) -> KeptDelivery | None:
        """Return a delivery in any state; None for an unknown one."""
        if kept := next(map(database.to_kept, self._read(database.DELIVERY, delivery_id)), None):
            return self._current(kept)
        delivery = self._waiting(delivery_id)
        return None if delivery is None else KeptDelivery(delivery)

    def _current(self, kept: KeptDelivery) -> KeptDelivery:
        """Return what the file has, updated by what is not written yet."""
        if kept.state is not DeliveryState.PENDING:
            return kept
        id = kept.delivery.id
        return self._ended.get(id) or replace(kept, delivery=self._waiting(id) or kept.delivery)

    def replay(self, delivery_id: int) -> KeptDelivery | None:
        """Queue its message again, under the same id, as a new delivery. Return None for an unknown one.

        If its message waits already, that becomes due now instead, behind the head of its lane.
        """
        if (kept := self.find(delivery_id)) is None:
            return None
        to, message = kept.delivery.destination, kept.delivery.message_id
        if waiting := next((each for each in self.pending(to) if each.message_id == message), None):
            self.hasten(to)
            return self.find(waiting.id)
        self.last_id += 1
        now = self._clock()
        again = replace(kept.delivery, id=self.last_id, queued_at=now, failures=0, next_at=now)
        self._record(database.delivery_row(again))
        self.take([again])
        return KeptDelivery(again)

    def hasten(self, destination: str) -> None:
        """Make what waits for a destination due now."""
        now = self._clock()
        for delivery in self.pending(destination):
            if delivery.next_at > now:
                self._put(replace(delivery, next_at=now))
        self._record((database.HASTEN, (now, destination, now)))

    def abandon(self, destination: str, why: str) -> None:
        """Give up what waits for a destination."""
        now = self._clock()
        for delivery in self.pending(destination):
            self._note_end(KeptDelivery(delivery, DeliveryState.GIVEN_UP, why, now))
        self._record((database.ABANDON, (now, why, destination)))


def _head(lane: _Lane) -> Delivery:
    return next(iter(lane.values()))


T = TypeVar("T")

WAITING_WRITES = 1000
_PRUNE_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class _Write:
    """A transaction that waits to be made, and the event that it adds."""

    statements: tuple[Statement, ...]
    event: StoredEvent | None = None
    key: str | None = None


class EventStore:
    """Keep each event, under the next id, and its deliveries in one transaction.

    ``degraded`` says why nothing can be written at present; ``heal`` also replaces a deleted ``file``.
    Cancelling a call does not undo it: the store's own thread finishes it.
    """

    def __init__(self, path: Path, clock: Callable[[], Moment]) -> None:
        """Use ``open``."""
        self.file = Database(path)
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="events")
        self._backlog: deque[_Write] = deque()
        self._outbox = Outbox(clock, lambda statement: self._record(_Write((statement,))), self._rows)
        self.counted = self._outbox.counted
        self._is_loaded = False
        self._last_event = 0
        self.degraded: str | None = None

    @property
    def pending(self) -> int:
        """The number of deliveries that wait."""
        return len(self._outbox)

    @property
    def recovered(self) -> str | None:
        """Where the last damaged file was set aside (F2)."""
        return str(self.file.kept_as) if self.file.kept_as else None

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], Moment] = time.time) -> "EventStore":
        """Open or create the store. Raises NewerState for a file of a newer version, and nothing else."""
        store = cls(path, clock)
        try:
            await store._do(store._start)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    async def append(
        self, type: str, at: Moment, ralph: str | None, run_id: str | None, data: Mapping[str, Any], *,
        key: str | None = None, deliver_to: Sequence[Destination] = (),
    ) -> StoredEvent | None:  # fmt: skip
        """Keep an event and queue its deliveries. Return None, and do nothing, if ``key`` is not new."""

        def add() -> StoredEvent | None:
            is_waiting = key is not None and any(write.key == key for write in self._backlog)
            if is_waiting or (key is not None and self._rows(database.WITH_KEY, key)):
                return None
            self._last_event += 1
            event = StoredEvent(self._last_event, type, rfc3339(at), ralph, run_id, dict(data))
            queued = self._outbox.made(event, key, deliver_to)
            rows = (database.event_row(event, key), *map(database.delivery_row, queued))
            self._record(_Write(rows, event, key))
            self._outbox.take(queued)
            return event

        return await self._do(add)

    async def since(self, id: int, limit: int = 500) -> list[StoredEvent]:
        """Return the first ``limit`` events after ``id``, oldest first."""

        def read() -> list[StoredEvent]:
            stored = [database.to_event(row) for row in self._rows(database.SINCE, id, limit)]
            return [*stored, *(event for event in self._waiting() if event.id > id)][:limit]

        return await self._do(read)

    async def last(self, count: int) -> list[StoredEvent]:
        """Return the last ``count`` events, oldest first. Ids have gaps, so they cannot be counted back."""

        def read() -> list[StoredEvent]:
            stored = [database.to_event(row) for row in reversed(self._rows(database.LAST, count))]
            return [*stored, *self._waiting()][-count:] if count > 0 else []

        return await self._do(read)

    async def latest_id(self) -> int:
        """Return the id of the last event; every later one is larger."""
        return await self._do(lambda: self._last_event)

    async def before(self, count: int) -> int:
        """Return the id after which the last ``count`` events come."""
        last = await self.last(count)
        return last[0].id - 1 if last else await self.latest_id()

    async def due(self, now: Moment, limit: int = 100) -> list[Delivery]:
        """Return the deliveries to be made now: of each destination and ralph only the oldest."""
        return await self._do(lambda: self._outbox.due(now, limit))

    async def next_due_at(self) -> Moment | None:
        """Return when the next delivery is due; None if none waits."""
        return await self._do(self._outbox.next_due_at)

    async def delivered(self, delivery_id: int) -> None:
        """Note that a delivery arrived."""
        await self._do(lambda: self._outbox.finish(delivery_id, DeliveryState.DELIVERED, None))

    async def failed(self, delivery_id: int, why: str, next_at: Moment | None) -> None:
        """Note that a delivery failed: retry it at ``next_at``, or give it up if that is None."""
        if next_at is None:
            await self._do(lambda: self._outbox.finish(delivery_id, DeliveryState.GIVEN_UP, why))
        else:
            await self._do(lambda: self._outbox.retry(delivery_id, why, next_at))

    async def deliveries(self, destination: str | None, limit: int) -> list[KeptDelivery]:
        """Return the last deliveries in any state, newest first; to one destination, or to all."""
        return await self._do(lambda: self._outbox.newest(destination, limit))

    async def last_delivery(self, destination: str) -> KeptDelivery | None:
        """Return the last delivery to a destination or, if that waits, the one at the head of its queue."""
        return await self._do(lambda: self._outbox.last(destination))

    async def delivery(self, delivery_id: int) -> KeptDelivery | None:
        return await self._do(lambda: self._outbox.find(delivery_id))

    async def replay(self, delivery_id: int) -> KeptDelivery | None:
        """Queue the message of a delivery again, or make it due now if it waits; None for an unknown one."""
        return await self._do(lambda: self._outbox.replay(delivery_id))

    async def hasten(self, destination: str) -> None:
        """Make what waits for a destination due now."""
        await self._do(lambda: self._outbox.hasten(destination))

    async def abandon(self, destination: str, why: str) -> None:
        """Give up what waits for a destination."""
        await self._do(lambda: self._outbox.abandon(destination, why))

    async def heal(self) -> bool:
        """Write what waits. Return whether all of it was written."""
        return await self._do(self._settle)

    async def prune(self, before: Moment) -> None:
        """Forget events older than ``before``, except those that are still to be delivered."""

        def forget() -> int:
            old = self.file.rows(database.OLD, (rfc3339(before), _PRUNE_AT_ONCE))
            tables = ("outbox WHERE event_id", "events WHERE id")
            self.file.run([(f"DELETE FROM {table} = ?", row) for table in tables for row in old])  # noqa: S608
            return len(old)

        while await self._do(lambda: self._with_file(forget, 0)) == _PRUNE_AT_ONCE:
            pass

    async def close(self) -> None:
        """Write what waits, as far as the disk allows, and close the file."""
        await self._do(self._settle)
        if self._backlog:
            logger.error("events lost at the end: %d", len(self._backlog))
        await self._do(self.file.close)
        self._thread.shutdown(wait=False)

    async def _do(self, act: Callable[[], T]) -> T:
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, act))

    # Everything below runs in the store's thread.

    def _start(self) -> None:
        # At each start ids are at least the milliseconds since the epoch, so that they stay above ids that
        # were given out and then lost: with a damaged file, or while the disk was full.
        self._last_event = self._outbox.last_id = int(self._clock() * 1000)
        self._with_file(lambda: None, None)

    def _waiting(self) -> list[StoredEvent]:
        return [write.event for write in self._backlog if write.event]

    def _record(self, write: _Write) -> None:
        self._backlog.append(write)
        if not self._settle() and len(self._backlog) > WAITING_WRITES:
            self._backlog.popleft()
            logger.error("an event or the end of a delivery was lost: too many wait for the disk")

    def _settle(self) -> bool:
        def write_all() -> bool:
            while self._backlog:
                try:
                    self.file.run(self._backlog[0].statements)
                except Exception as error:
                    if not is_of_the_file(error):
                        self._backlog.popleft()  # a bug; it must not block everything that comes after it
                    raise
                self._backlog.popleft()
            self.degraded = None
            return True

        return self._with_file(write_all, False)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._with_file(lambda: self.file.rows(query, values), [])

    def _with_file(self, act: Callable[[], T], otherwise: T) -> T:
        """Return ``act()``, or ``otherwise`` while the file cannot be used. A damaged one is replaced."""
        for _ in range(2):
            try:
                self._load()
                return act()
            except (sqlite3.OperationalError, OSError) as error:
                self._degrade(str(error))
                return otherwise
            except sqlite3.DatabaseError as error:
                if not is_broken(error):
                    raise
                if not self._start_over():
                    return otherwise
        self._degrade("the file is broken, and so is its successor")
        return otherwise

    def _load(self) -> None:
        if self._is_loaded:
            if self.file.is_gone:
                self._start_over()
            return
        self._outbox.load(database.to_delivery(row) for row in self.file.rows(database.PENDING))
        used = dict(self.file.rows("SELECT name, seq FROM sqlite_sequence"))
        self._last_event = max(self._last_event, used.get("events", 0))
        self._outbox.last_id = max(self._outbox.last_id, used.get("outbox", 0))
        self._is_loaded = True

    def _start_over(self) -> bool:
        try:
            self.file.put_aside()
        except OSError as error:
            self._degrade(f"the file is broken and cannot be moved: {error}")
            return False
        # The pending deliveries are in memory as well, and go into the new file first.
        for each in reversed(self._outbox.pending()):
            rows = database.event_row(each.event, None), database.delivery_row(each)
            self._backlog.appendleft(_Write(rows))
        return True

    def _degrade(self, why: str) -> None:
        if self.degraded is None:
            logger.warning("events cannot be written: %s", why)
        self.degraded = f"{self.file.path}: {why}"
