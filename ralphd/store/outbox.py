"""Which deliveries wait, which of them may go (in order, per destination and ralph), what became of all."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ralphd.core.delivery import (
    Delivery,
    DeliveryState,
    Destination,
    KeptDelivery,
    StoredEvent,
    message_id,
)
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
    """The pending deliveries in memory: a queue for each destination and ralph; only its head may go.

    So a message never overtakes an earlier one of the same ralph, and a destination that does not answer
    holds up nobody else.
    """

    def __init__(self, deliveries: Iterable[Delivery] = ()) -> None:
        self._lanes: dict[_Lane, deque[Delivery]] = {}
        self._by_id: dict[int, Delivery] = {}
        for delivery in deliveries:
            self._push(delivery)

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, delivery: Delivery) -> Delivery | None:
        """Put one at the end of its queue; the one that has to make room for it, if any, is returned."""
        lane = self._push(delivery)
        if len(lane) <= MAX_WAITING:
            return None
        return self.remove(lane[0].id)

    def find(self, delivery_id: int) -> Delivery | None:
        """The delivery as it stands, None when it does not wait any more."""
        return self._by_id.get(delivery_id)

    def head_before(self, delivery: Delivery) -> Delivery | None:
        """The one that it waits for; itself where it is the head, None when it does not wait any more."""
        lane = self._lanes.get(_lane_of(delivery))
        return lane[0] if lane else None

    def all(self) -> list[Delivery]:
        """Every pending delivery, oldest first."""
        return sorted(self._by_id.values(), key=lambda delivery: delivery.id)

    def due(self, now: Moment, limit: int) -> list[Delivery]:
        """Heads whose moment has come, oldest first."""
        heads = [lane[0] for lane in self._lanes.values() if lane[0].next_at <= now]
        return sorted(heads, key=lambda delivery: delivery.id)[:limit]

    def next_due_at(self) -> Moment | None:
        """When the next head may go; None when nothing waits."""
        return min((lane[0].next_at for lane in self._lanes.values()), default=None)

    def replace(self, delivery: Delivery) -> None:
        """Put a newer form of a pending delivery in its place."""
        lane = self._lanes[_lane_of(delivery)]
        lane[lane.index(self._by_id[delivery.id])] = delivery
        self._by_id[delivery.id] = delivery

    def remove(self, delivery_id: int) -> Delivery | None:
        """Take one out, whatever became of it."""
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
    """The deliveries of a store: queued, ended, tried again. Used by the store's thread alone.

    ``record`` has a statement carried out now or later, ``read`` gives the rows of a query, none while the
    file cannot be read. ``counted`` says how many tries were ``delivered``, ``failed`` or ``given_up``.
    """

    def __init__(self, clock: Callable[[], Moment], record: Callable[[Statement], None], read: Read) -> None:
        self.queues = Queues()
        self.counted: Counter[str] = Counter()
        self.last_id = 0
        self._clock = clock
        self._record = record
        self._read = read
        # What has ended, and is perhaps not in the file yet.
        self._ended: dict[int, KeptDelivery] = {}

    def load(self, pending: Iterable[Delivery]) -> None:
        """Take up what the file says is pending, before what was queued since."""
        added = self.queues.all()
        self.queues = Queues([each for each in pending if self.queues.find(each.id) is None] + added)

    def made(self, event: StoredEvent, key: str | None, to: Sequence[Destination]) -> list[Delivery]:
        """Deliveries of an event, due now; they do not wait yet (``take``)."""
        return [self._made(event, key, destination) for destination in to]

    def _made(self, event: StoredEvent, key: str | None, destination: Destination) -> Delivery:
        self.last_id += 1
        now = self._clock()
        message = message_id(event, key or str(event.id))
        return Delivery(self.last_id, destination.id, message, event, now, failures=0, next_at=now)

    def take(self, deliveries: Iterable[Delivery]) -> None:
        """Have recorded deliveries wait; what there is no room for is given up."""
        for delivery in deliveries:
            if crowded_out := self.queues.add(delivery):
                logger.warning("a webhook was given up: too many wait (%s)", crowded_out.message_id)
                self._end(crowded_out, DeliveryState.GIVEN_UP, "too many were waiting")

    def finish(self, delivery_id: int, state: DeliveryState, why: str | None) -> None:
        """It arrived, or it was given up."""
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
        """It did not arrive, and is sent again."""
        if delivery := self.queues.find(delivery_id):
            later = replace(delivery, failures=delivery.failures + 1, next_at=next_at)
            self.queues.replace(later)
            self.counted["failed"] += 1
            self._record((database.RETRY, (later.failures, next_at, why, delivery_id)))

    def newest(self, destination: str | None, limit: int) -> list[KeptDelivery]:
        """The last deliveries, newest first, whatever became of them; to one destination, or to all."""
        query = (database.NEWEST, limit) if destination is None else (database.NEWEST_TO, destination, limit)
        found = {kept.delivery.id: kept for kept in map(database.to_kept, self._read(*query))}
        waiting = [each for each in self.queues.all() if destination in (None, each.destination)]
        every = {each.id: KeptDelivery(each) for each in waiting} | found
        return [self._now(every[id]) for id in sorted(every, reverse=True)[:limit]]

    def last(self, destination: str) -> KeptDelivery | None:
        """The last to a destination, or, where that waits for its turn, the one that holds it up."""
        last = next(iter(self.newest(destination, 1)), None)
        if last is None or last.state is not DeliveryState.PENDING:
            return last
        head = self.queues.head_before(last.delivery)
        return last if head is None else self.find(head.id)

    def find(self, delivery_id: int) -> KeptDelivery | None:
        """One of them."""
        if kept := next(map(database.to_kept, self._read(database.DELIVERY, delivery_id)), None):
            return self._now(kept)
        delivery = self.queues.find(delivery_id)
        return None if delivery is None else KeptDelivery(delivery)

    def _now(self, kept: KeptDelivery) -> KeptDelivery:
        """What the file says, brought up to date by what it was not told yet."""
        if kept.state is not DeliveryState.PENDING:
            return kept
        id = kept.delivery.id
        return self._ended.get(id) or replace(kept, delivery=self.queues.find(id) or kept.delivery)

    def replay(self, delivery_id: int) -> KeptDelivery | None:
        """Send its message again, under the same id: as a delivery of its own, at the end of its queue.

        One that waits already is sent now instead, after what is before it. None where there is none.
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
        """Let what waits for a destination go now."""
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
