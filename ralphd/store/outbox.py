"""Which deliveries wait, and which of them may go: in order, per destination and ralph."""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from ralphd.core.delivery import Delivery
from ralphd.core.model import Moment

MAX_WAITING = 1000
"""How many messages of one ralph may wait for one destination; beyond it the oldest is given up."""

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
