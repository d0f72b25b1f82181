-- The tables of events.db, in the schema versions 1 and 2 (SCHEMA_VERSION in database.py).

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL,
    at TEXT NOT NULL,
    ralph TEXT,
    run_id TEXT,
    data TEXT NOT NULL,
    key TEXT UNIQUE
);

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL,
    destination TEXT NOT NULL,
    message_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'given_up')),
    queued_at REAL NOT NULL,
    failures INTEGER NOT NULL,
    next_at REAL NOT NULL,
    last_error TEXT,
    done_at REAL
);

CREATE INDEX outbox_pending ON outbox (id) WHERE state = 'pending';
CREATE INDEX outbox_event ON outbox (event_id);
CREATE INDEX outbox_destination ON outbox (destination);
