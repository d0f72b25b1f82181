"""The events, for replay, and the outbox of webhooks: ``events.db``, written by one thread.

What could not be written (a full disk, F3) waits in memory and is replayed and delivered from there.
"""

import asyncio
import logging
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ralphd.core.delivery import Delivery, DeliveryState, Destination, KeptDelivery, StoredEvent
from ralphd.core.time import Moment, rfc3339
from ralphd.store import database
from ralphd.store.database import Database, Statement, is_broken, is_of_the_file
from ralphd.store.outbox import Outbox

__all__ = ["EventStore", "StoredEvent"]

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

WAITING_WRITES = 1000
_PRUNE_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class _Write:
    """A transaction that is still to be made, and what it will have added."""

    statements: tuple[Statement, ...]
    event: StoredEvent | None = None
    key: str | None = None


class EventStore:
    """Every event gets the next id, is kept with its deliveries in one transaction, and can be read again.

    ``degraded`` says why nothing can be written at the moment, ``recovered`` where a broken file went (F2).
    Cancelling a call does not undo it: it is carried out by the store's own thread.
    """

    def __init__(self, path: Path, clock: Callable[[], Moment]) -> None:
        """Use ``open``."""
        self._database = Database(path)
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="events")
        self._backlog: deque[_Write] = deque()
        self._outbox = Outbox(clock, lambda statement: self._record(_Write((statement,))), self._rows)
        self._loaded = False
        self._last_event = 0
        self.degraded: str | None = None

    @property
    def pending(self) -> int:
        """How many deliveries wait."""
        return len(self._outbox.queues)

    @property
    def counted(self) -> Counter[str]:
        """How many tries were ``delivered``, ``failed`` or ``given_up`` since it was opened."""
        return self._outbox.counted

    @property
    def recovered(self) -> str | None:
        """Where the last broken file is kept."""
        return str(self._database.kept_as) if self._database.kept_as else None

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], Moment] = time.time) -> "EventStore":
        """Open or make the store. Only a file of a newer version is refused (NewerState)."""
        store = cls(path, clock)
        try:
            await store._do(store._start)
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    async def append(
        self,
        type: str,
        at: Moment,
        ralph: str | None,
        run_id: str | None,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        deliver_to: Sequence[Destination] = (),
    ) -> StoredEvent | None:
        """Keep an event and queue its deliveries. None, and nothing is done, when ``key`` is not new."""
        event = StoredEvent(0, type, rfc3339(at), ralph, run_id, dict(data))
        return await self._do(self._append, event, key, tuple(deliver_to))

    async def since(self, id: int, limit: int = 500) -> list[StoredEvent]:
        """The first ``limit`` events after ``id``, oldest first."""
        return await self._do(self._since, id, limit)

    async def last(self, count: int) -> list[StoredEvent]:
        """The last ``count`` events, oldest first. Ids have holes, so this is not a matter of subtraction."""
        return await self._do(self._last, count)

    async def latest_id(self) -> int:
        """The id after which everything is still to come."""
        return await self._do(lambda: self._last_event)

    async def due(self, now: Moment, limit: int = 100) -> list[Delivery]:
        """Deliveries to be made now: of each destination and ralph only the oldest."""
        return await self._do(lambda: self._outbox.queues.due(now, limit))

    async def next_due_at(self) -> Moment | None:
        """When the next delivery is due; None when none waits."""
        return await self._do(lambda: self._outbox.queues.next_due_at())

    async def delivered(self, delivery_id: int) -> None:
        """It arrived."""
        await self._do(self._outbox.finish, delivery_id, DeliveryState.DELIVERED, None)

    async def failed(self, delivery_id: int, why: str, next_at: Moment | None) -> None:
        """It did not arrive: to be sent again at ``next_at``, or given up when that is None."""
        if next_at is None:
            await self._do(self._outbox.finish, delivery_id, DeliveryState.GIVEN_UP, why)
        else:
            await self._do(self._outbox.retry, delivery_id, why, next_at)

    async def deliveries(self, destination: str | None, limit: int) -> list[KeptDelivery]:
        """The last deliveries, newest first, whatever became of them; to one destination, or to all."""
        return await self._do(self._outbox.newest, destination, limit)

    async def last_delivery(self, destination: str) -> KeptDelivery | None:
        """The last to a destination, or, where it waits for its turn, the one that it waits for."""
        return await self._do(self._outbox.last, destination)

    async def delivery(self, delivery_id: int) -> KeptDelivery | None:
        """One of them."""
        return await self._do(self._outbox.find, delivery_id)

    async def replay(self, delivery_id: int) -> KeptDelivery | None:
        """Queue the message of a delivery again, or let it go now where it waits; None for an unknown one."""
        return await self._do(self._outbox.replay, delivery_id)

    async def hasten(self, destination: str) -> None:
        """Let what waits for a destination go now, whenever it was to be tried again."""
        await self._do(self._outbox.hasten, destination)

    async def abandon(self, destination: str, why: str) -> None:
        """Give up what waits for a destination."""
        await self._do(self._outbox.abandon, destination, why)

    async def heal(self) -> bool:
        """Try to write what waits; True when nothing waits any more."""
        return await self._do(self._settle)

    async def prune(self, before: Moment) -> None:
        """Forget events older than ``before``, but for those that are still to be delivered."""
        while await self._do(self._prune, rfc3339(before)) == _PRUNE_AT_ONCE:
            pass

    async def close(self) -> None:
        """Write what waits, as far as the disk allows, and close the file."""
        await self._do(self._settle)
        if self._backlog:
            logger.error("events lost at the end: %d", len(self._backlog))
        await self._do(self._database.close)
        self._thread.shutdown(wait=False)

    async def _do(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, lambda: act(*args, **kwargs)))

    # Everything below runs in the store's thread.

    def _start(self) -> None:
        # Ids start at the epoch's milliseconds and never lag behind them at a start, so that they go on
        # rising above ids that were given out and lost: with a broken file, or while the disk was full.
        self._last_event = self._outbox.last_id = int(self._clock() * 1000)
        self._with_file(lambda: None, None)

    def _append(
        self, event: StoredEvent, key: str | None, destinations: Sequence[Destination]
    ) -> StoredEvent | None:
        if key is not None and self._has(key):
            return None
        self._last_event += 1
        event = replace(event, id=self._last_event)
        queued = self._outbox.made(event, key, destinations)
        self._record(
            _Write((database.event_row(event, key), *map(database.delivery_row, queued)), event, key)
        )
        self._outbox.take(queued)
        return event

    def _has(self, key: str) -> bool:
        if any(write.key == key for write in self._backlog):
            return True
        return bool(self._rows(database.WITH_KEY, key))

    def _since(self, id: int, limit: int) -> list[StoredEvent]:
        stored = [database.to_event(row) for row in self._rows(database.SINCE, id, limit)]
        waiting = [write.event for write in self._backlog if write.event and write.event.id > id]
        return [*stored, *waiting][:limit]

    def _last(self, count: int) -> list[StoredEvent]:
        stored = [database.to_event(row) for row in reversed(self._rows(database.LAST, count))]
        waiting = [write.event for write in self._backlog if write.event]
        return [*stored, *waiting][-count:] if count > 0 else []

    def _prune(self, before: str) -> int:
        def forget() -> int:
            old = self._database.rows(database.OLD, (before, _PRUNE_AT_ONCE))
            places = [("DELETE FROM outbox WHERE event_id = ?", row) for row in old]
            self._database.run([*places, *(("DELETE FROM events WHERE id = ?", row) for row in old)])
            return len(old)

        return self._with_file(forget, 0)

    def _record(self, write: _Write) -> None:
        self._backlog.append(write)
        if not self._settle() and len(self._backlog) > WAITING_WRITES:
            self._backlog.popleft()
            logger.error("an event or the end of a delivery was lost: too many wait for the disk")

    def _settle(self) -> bool:
        def write_all() -> bool:
            while self._backlog:
                self._write_first()
            self.degraded = None
            return True

        return self._with_file(write_all, False)

    def _write_first(self) -> None:
        try:
            self._database.run(self._backlog[0].statements)
        except Exception as error:
            if not is_of_the_file(error):
                self._backlog.popleft()  # a bug; it must not be in the way of all that comes after it
            raise
        self._backlog.popleft()

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        nothing: list[tuple[Any, ...]] = []
        return self._with_file(lambda: self._database.rows(query, values), nothing)

    def _with_file(self, act: Callable[[], T], otherwise: T) -> T:
        """What ``act`` gives; ``otherwise`` while the file cannot be used. A broken one is replaced first."""
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
        if self._loaded:
            return
        self._outbox.load(database.to_delivery(row) for row in self._database.rows(database.PENDING))
        used = dict(self._database.rows("SELECT name, seq FROM sqlite_sequence"))
        self._last_event = max(self._last_event, used.get("events", 0))
        self._outbox.last_id = max(self._outbox.last_id, used.get("outbox", 0))
        self._loaded = True

    def _start_over(self) -> bool:
        try:
            self._database.put_aside()
        except OSError as error:
            self._degrade(f"the file is broken and cannot be moved: {error}")
            return False
        # What is still to be delivered is known here as well, and goes into the new file.
        kept = [
            _Write((database.event_row(d.event, None), database.delivery_row(d)))
            for d in self._outbox.queues.all()
        ]
        self._backlog.extendleft(reversed(kept))
        return True

    def _degrade(self, why: str) -> None:
        if self.degraded is None:
            logger.warning("events cannot be written: %s", why)
        self.degraded = f"{self._database.path}: {why}"
