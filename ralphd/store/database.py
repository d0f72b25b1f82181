"""``events.db`` as a file and as rows: one connection, opened when it is needed; a damaged file is set aside.

One connection, in exclusive mode: SQLite before 3.51.3 can corrupt a WAL database when two connections
write or checkpoint at once. Clients ask the API, never the file.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from ralphd import diagnostics
from ralphd.core.delivery import Delivery, DeliveryState, KeptDelivery, StoredEvent
from ralphd.errors import NewerState
from ralphd.plain_files import Descriptor, status_of
from ralphd.store.files import corrupt_name

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 2
"""2 has the tables of 1. It keeps 0.1.0, which would drop what it does not know, off the state directory."""
BUSY_TIMEOUT_S = 0.2
Statement: TypeAlias = tuple[str, tuple[Any, ...]]

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # an escalation that was queued has to survive a power cut
    "PRAGMA wal_autocheckpoint = 256",
    "PRAGMA journal_size_limit = 1048576",
)


def is_broken(error: sqlite3.Error) -> bool:
    """Return whether the file itself is damaged, rather than the disk full or the file in use."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_of_the_file(error: Exception) -> bool:
    """Return whether disk, permissions or damage are the cause, and not a statement of ours."""
    is_damaged = isinstance(error, sqlite3.Error) and is_broken(error)
    return is_damaged or isinstance(error, sqlite3.OperationalError | OSError)


class Database:
    """The file and its connection, for one thread. Every method may raise sqlite3.Error or OSError.

    ``is_new``: it was made since the start, so what waited in an earlier one may be lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept_as: Path | None = None
        self.is_new = False
        self._connection: sqlite3.Connection | None = None

    @property
    def is_gone(self) -> bool:
        return not os.path.lexists(self.path)

    def connect(self) -> sqlite3.Connection:
        """Return the connection, made if there is none. Raises NewerState for a file of a newer version."""
        if self._connection is None:
            status = status_of(self.path)
            is_ours = status is not None and status.st_uid in (os.geteuid(), 0)
            if not self.is_gone and not is_ours:
                self.put_aside()
            self.is_new = self.is_new or self.is_gone
            self._connection = _opened(self.path)
        return self._connection

    def run(self, statements: Iterable[Statement]) -> None:
        """Execute all of the statements, or none."""
        connection = self.connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in statements:
                connection.execute(sql, values)
            diagnostics.reach("events.before_commit")
            connection.execute("COMMIT")
            diagnostics.reach("events.committed")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.connect().execute(sql, values).fetchall()

    def put_aside(self) -> None:
        """Set what is left of a damaged file aside, as ``kept_as``; the next use creates a new one."""
        self.close()
        kept_as, left = corrupt_name(self.path), []
        # The main file last: a new one would take an old log with its name for its own.
        for suffix in ("-wal", "-shm", "-journal", ""):
            with suppress(FileNotFoundError):
                left.append(self.path.with_name(self.path.name + suffix).rename(f"{kept_as}{suffix}"))
        self.kept_as = left[-1] if left else self.kept_as
        names = ", ".join(each.name for each in left) or "nothing"
        logger.warning("%s was broken or deleted; left of it: %s", self.path, names)

    def close(self) -> None:
        """Close the connection; a later use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _opened(path: Path) -> sqlite3.Connection:
    # SQLite would create the file with the umask's mode, and follow a link.
    with Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as descriptor:
        os.fchmod(descriptor, 0o600)  # a file that was there keeps the mode that somebody gave it
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        # Set before the first access to the file, so that the WAL needs no shared index.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            known = f"version {version}, this one knows {SCHEMA_VERSION}"
            mend = "install that ralphd again, or use another state directory (RALPHD_STATE_DIR)"
            raise NewerState(f"{path} was written by a newer ralphd ({known})", mend=mend)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        if version < SCHEMA_VERSION:
            tables = "" if version else Path(__file__).with_name("events.sql").read_text()
            stamp = f"PRAGMA user_version = {SCHEMA_VERSION};"
            connection.executescript(f"BEGIN IMMEDIATE; {tables} {stamp} COMMIT;")
        connection.execute(BY_TIME)
    except BaseException:
        connection.close()
        raise
    return connection


ADD_EVENT = """INSERT OR IGNORE INTO events (id, type, at, ralph, run_id, data, key)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
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
BY_TIME = "CREATE INDEX IF NOT EXISTS events_at ON events (at)"  # an earlier version made the file without
OLD = """SELECT id FROM events e WHERE at < ? AND NOT EXISTS
    (SELECT 1 FROM outbox o WHERE o.event_id = e.id AND o.state = 'pending') ORDER BY at LIMIT ?"""


def event_row(event: StoredEvent, key: str | None) -> Statement:
    """Return the statement that adds an event, unless its key is there."""
    return ADD_EVENT, (event.id, event.type, event.at, event.ralph, event.run_id, json.dumps(event.data), key)


def delivery_row(d: Delivery) -> Statement:
    """Return the statement that adds a pending delivery, if its event was added."""
    schedule = (d.queued_at, d.failures, d.next_at)
    return ADD_DELIVERY, (d.id, d.event.id, d.destination, d.message_id, *schedule, d.event.id)


def to_event(row: tuple[Any, ...]) -> StoredEvent:
    """Return the event in a row of SINCE or LAST."""
    id, type, at, ralph, run_id, data = row[:6]
    return StoredEvent(id, type, at, ralph, run_id, json.loads(data))


def to_delivery(row: tuple[Any, ...]) -> Delivery:
    """Return the delivery in a row of PENDING, NEWEST or DELIVERY."""
    id, destination, message, queued_at, failures, next_at = row[6:12]
    return Delivery(id, destination, message, to_event(row), queued_at, failures, next_at)


def to_kept(row: tuple[Any, ...]) -> KeptDelivery:
    """Return the same with what became of it."""
    state, last_error, done_at = row[12:]
    return KeptDelivery(to_delivery(row), DeliveryState(state), last_error, done_at)
