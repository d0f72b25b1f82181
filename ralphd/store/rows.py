"""The rows of ``events.db`` in SQL and as the objects they hold."""

import json
from typing import Any

from ralphd.core.delivery import Delivery, DeliveryState, KeptDelivery, StoredEvent
from ralphd.store.database import Statement

ADD_EVENT = (
    "INSERT OR IGNORE INTO events (id, type, at, ralph, run_id, data, key) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
ADD_DELIVERY = """INSERT OR IGNORE INTO outbox
    (id, event_id, destination, message_id, state, queued_at, failures, next_at)
    SELECT ?, ?, ?, ?, 'pending', ?, ?, ? WHERE EXISTS (SELECT 1 FROM events WHERE id = ?)"""
RETRY = "UPDATE outbox SET failures = ?, next_at = ?, last_error = ? WHERE id = ?"
FINISH = "UPDATE outbox SET state = ?, done_at = ?, last_error = coalesce(?, last_error) WHERE id = ?"
EVENT_COLUMNS = "e.id, e.type, e.at, e.ralph, e.run_id, e.data"
HASTEN = "UPDATE outbox SET next_at = ? WHERE destination = ? AND state = 'pending' AND next_at > ?"
ABANDON = """UPDATE outbox SET state = 'given_up', done_at = ?, last_error = ?
    WHERE destination = ? AND state = 'pending'"""
_DELIVERIES = f"""SELECT {EVENT_COLUMNS}, o.id, o.destination, o.message_id, o.queued_at, o.failures,
    o.next_at, o.state, o.last_error, o.done_at FROM outbox o JOIN events e ON e.id = o.event_id"""  # noqa: S608
PENDING = f"{_DELIVERIES} WHERE o.state = 'pending' ORDER BY o.id"
NEWEST = f"{_DELIVERIES} ORDER BY o.id DESC LIMIT ?"
NEWEST_TO = f"{_DELIVERIES} WHERE o.destination = ? ORDER BY o.id DESC LIMIT ?"
DELIVERY = f"{_DELIVERIES} WHERE o.id = ?"
WITH_KEY = "SELECT 1 FROM events WHERE key = ?"
SINCE = f"SELECT {EVENT_COLUMNS} FROM events e WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608
LAST = f"SELECT {EVENT_COLUMNS} FROM events e ORDER BY id DESC LIMIT ?"  # noqa: S608
OLD = """SELECT id FROM events e WHERE at < ? AND NOT EXISTS
    (SELECT 1 FROM outbox o WHERE o.event_id = e.id AND o.state = 'pending') ORDER BY id LIMIT ?"""


def event_row(event: StoredEvent, key: str | None) -> Statement:
    """Adds an event, unless its key is there."""
    data = json.dumps(event.data)
    return ADD_EVENT, (event.id, event.type, event.at, event.ralph, event.run_id, data, key)


def delivery_row(d: Delivery) -> Statement:
    """Adds a pending delivery, if its event was added."""
    return ADD_DELIVERY, (
        d.id,
        d.event.id,
        d.destination,
        d.message_id,
        d.queued_at,
        d.failures,
        d.next_at,
        d.event.id,
    )


def to_event(row: tuple[Any, ...]) -> StoredEvent:
    """A row of SINCE or LAST."""
    id, type, at, ralph, run_id, data = row[:6]
    return StoredEvent(id, type, at, ralph, run_id, json.loads(data))


def to_delivery(row: tuple[Any, ...]) -> Delivery:
    """A row of PENDING, NEWEST, DELIVERY."""
    id, destination, message, queued_at, failures, next_at = row[6:12]
    return Delivery(id, destination, message, to_event(row), queued_at, failures, next_at)


def to_kept(row: tuple[Any, ...]) -> KeptDelivery:
    """The same with what became of it."""
    state, last_error, done_at = row[12:]
    return KeptDelivery(to_delivery(row), DeliveryState(state), last_error, done_at)
