"""The deliveries of webhooks: which wait, which may be sent now, and what became of the others.

Messages of one ralph reach a destination in their order, and a destination that does not answer delays no
other: each pair has a queue of its own, and only its head is sent.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ralphd.core.delivery import Delivery, DeliveryState, Destination, KeptDelivery, StoredEvent, message_id
from ralphd.core.time import Moment
from ralphd.store import database
from ralphd.store.database import Statement

logger = logging.getLogger(__name__)

MAX_WAITING = 1000
"""How many messages of one ralph may wait for one destination; beyond it the oldest is given up."""
_ENDS_REMEMBERED = 200

Read: TypeAlias = Callable[..., list[tuple[Any, ...]]]
_Lane: TypeAlias = tuple[str, str | None]


class Queues:
    """The pending deliveries in memory: a queue (lane) for each destination and ralph."""

    def __init__(self, deliveries: Iterable[Delivery] = ()) -> None:
        self._lanes: dict[_Lane, deque[Delivery]] = {}
        self._by_id: dict[int, Delivery] = {}
        for delivery in deliveries:
            self._push(delivery)

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, delivery: Delivery) -> Delivery | None:
        """Append to the lane. Return the oldest one, removed, if the lane was full."""
        lane = self._push(delivery)
        return self.remove(lane[0].id) if len(lane) > MAX_WAITING else None

    def find(self, delivery_id: int) -> Delivery | None:
        """Return the delivery as it stands; None if it does not wait any longer."""
        return self._by_id.get(delivery_id)

    def head_before(self, delivery: Delivery) -> Delivery | None:
        """Return the head of its lane, which may be itself; None if it does not wait any longer."""
        lane = self._lanes.get(_lane_of(delivery))
        return lane[0] if lane else None

    def all(self) -> list[Delivery]:
        """Return every pending delivery, oldest first."""
        return sorted(self._by_id.values(), key=lambda delivery: delivery.id)

    def due(self, now: Moment, limit: int) -> list[Delivery]:
        """Return the heads that are due, oldest first."""
        heads = [lane[0] for lane in self._lanes.values() if lane[0].next_at <= now]
        return sorted(heads, key=lambda delivery: delivery.id)[:limit]

    def next_due_at(self) -> Moment | None:
        """Return when the next head is due; None if nothing waits."""
        return min((lane[0].next_at for lane in self._lanes.values()), default=None)

    def replace(self, delivery: Delivery) -> None:
        """Replace a pending delivery by its newer form."""
        lane = self._lanes[_lane_of(delivery)]
        lane[lane.index(self._by_id[delivery.id])] = delivery
        self._by_id[delivery.id] = delivery

    def remove(self, delivery_id: int) -> Delivery | None:
        """Remove a delivery and return it; None if it does not wait."""
        delivery = self._by_id.pop(delivery_id, None)
        if delivery is not None:
            lane = self._lanes[_lane_of(delivery)]
            lane.remove(delivery)
            if not lane:
                del self._lanes[_lane_of(delivery)]
        return delivery

    def _push(self, delivery: Delivery) -> deque[Delivery]:
        lane = self._lanes.setdefault(_lane_of(delivery), deque())
        lane.append(delivery)
        self._by_id[delivery.id] = delivery
        return lane


def _lane_of(delivery: Delivery) -> _Lane:
    return delivery.destination, delivery.event.ralph


class Outbox:
    """The deliveries of a store: queued, finished, retried. Only the store's thread uses it.

    ``record`` executes a statement now or later; ``read`` returns the rows of a query, none while the file
    cannot be read. ``counted`` has the numbers of attempts that were ``delivered``, ``failed``, ``given_up``.
    """

    def __init__(self, clock: Callable[[], Moment], record: Callable[[Statement], None], read: Read) -> None:
        self.queues = Queues()
        self.counted: Counter[str] = Counter()
        self.last_id = 0
        self._clock = clock
        self._record = record
        self._read = read
        # The last ones that are finished: the file may not have them yet.
        self._ended: dict[int, KeptDelivery] = {}

    def load(self, pending: Iterable[Delivery]) -> None:
        """Queue what is pending in the file, before what was queued since."""
        added = self.queues.all()
        self.queues = Queues([each for each in pending if self.queues.find(each.id) is None] + added)

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
            if crowded_out := self.queues.add(delivery):
                logger.warning("a webhook was given up: too many wait (%s)", crowded_out.message_id)
                self._end(crowded_out, DeliveryState.GIVEN_UP, "too many were waiting")

    def finish(self, delivery_id: int, state: DeliveryState, why: str | None) -> None:
        """End a delivery that arrived or is given up."""
        if delivery := self.queues.remove(delivery_id):
            self._end(delivery, state, why)

    def _end(self, delivery: Delivery, state: DeliveryState, why: str | None) -> None:
        now = self._clock()
        self._note_end(KeptDelivery(delivery, state, why, now))
        self._record((database.FINISH, (state.value, now, why, delivery.id)))

    def _note_end(self, ended: KeptDelivery) -> None:
        self.counted[ended.state.value] += 1
        self._ended[ended.delivery.id] = ended
        if len(self._ended) > _ENDS_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def retry(self, delivery_id: int, why: str, next_at: Moment) -> None:
        """Send a delivery that failed again at ``next_at``."""
        if delivery := self.queues.find(delivery_id):
            later = replace(delivery, failures=delivery.failures + 1, next_at=next_at)
            self.queues.replace(later)
            self.counted["failed"] += 1
            self._record((database.RETRY, (later.failures, next_at, why, delivery_id)))

    def newest(self, destination: str | None, limit: int) -> list[KeptDelivery]:
        """Return the last deliveries in any state, newest first; to one destination, or to all."""
        query = (database.NEWEST, limit) if destination is None else (database.NEWEST_TO, destination, limit)
        waiting = (each for each in self.queues.all() if destination in (None, each.destination))
        every = {each.id: KeptDelivery(each) for each in waiting}
        every |= {kept.delivery.id: kept for kept in map(database.to_kept, self._read(*query))}
        return [self._current(every[id]) for id in sorted(every, reverse=True)[:limit]]

    def last(self, destination: str) -> KeptDelivery | None:
        """Return the last to a destination or, if that waits, the head of its lane."""
        last = next(iter(self.newest(destination, 1)), None)
        if last is None or last.state is not DeliveryState.PENDING:
            return last
        head = self.queues.head_before(last.delivery)
        return last if head is None else self.find(head.id)

    def find(self, delivery_id: int) -> KeptDelivery | None:
        """Return a delivery in any state; None for an unknown one."""
        if kept := next(map(database.to_kept, self._read(database.DELIVERY, delivery_id)), None):
            return self._current(kept)
        delivery = self.queues.find(delivery_id)
        return None if delivery is None else KeptDelivery(delivery)

    def _current(self, kept: KeptDelivery) -> KeptDelivery:
        """Return what the file has, updated by what is not written yet."""
        if kept.state is not DeliveryState.PENDING:
            return kept
        id = kept.delivery.id
        return self._ended.get(id) or replace(kept, delivery=self.queues.find(id) or kept.delivery)

    def replay(self, delivery_id: int) -> KeptDelivery | None:
        """Queue its message again, under the same id, as a new delivery. Return None for an unknown one.

        If its message waits already, that becomes due now instead, behind the head of its lane.
        """
        kept = self.find(delivery_id)
        if kept is None:
            return None
        same = (kept.delivery.destination, kept.delivery.message_id)
        if waiting := next((d for d in self.queues.all() if (d.destination, d.message_id) == same), None):
            self.hasten(waiting.destination)
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
        for delivery in self.queues.all():
            if delivery.destination == destination and delivery.next_at > now:
                self.queues.replace(replace(delivery, next_at=now))
        self._record((database.HASTEN, (now, destination, now)))

    def abandon(self, destination: str, why: str) -> None:
        """Give up what waits for a destination."""
        now = self._clock()
        for delivery in self.queues.all():
            if delivery.destination == destination and self.queues.remove(delivery.id):
                self._note_end(KeptDelivery(delivery, DeliveryState.GIVEN_UP, why, now))
        self._record((database.ABANDON, (now, why, destination)))
