PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        type TEXT NOT NULL,
        at TEXT NOT NULL,
        ralph TEXT,
        run_id TEXT,
        data TEXT NOT NULL,
        key TEXT UNIQUE
    );
INSERT INTO "events" VALUES(1795374095309,'daemon.started','2026-11-22T19:01:35.860949Z',NULL,NULL,'{"pid": 1709, "version": "0.1.0"}',NULL);
INSERT INTO "events" VALUES(1795374095310,'ralph.registered','2026-11-22T19:01:36.436344Z','shop',NULL,'{"directory": "@ROOT@/shop"}',NULL);
INSERT INTO "events" VALUES(1795374095311,'tests.passed','2026-11-22T19:01:36.436010Z','shop',NULL,'{"baseline": true, "tests": "green"}','r000001-9b20f8cb/tests.passed');
INSERT INTO "events" VALUES(1795374095312,'ralph.started','2026-11-22T19:01:36.542785Z','shop','r000001-b1d05d4c','{"pid": 1753}','r000001-b1d05d4c/ralph.started');
INSERT INTO "events" VALUES(1795374095313,'iteration.started','2026-11-22T19:01:37.700653Z','shop','r000001-b1d05d4c','{"iteration": 1, "task": {"id": "first", "title": "first"}}','r000001-b1d05d4c/2/iteration.started');
INSERT INTO "events" VALUES(1795374095314,'attempt.finished','2026-11-22T19:01:37.918702Z','shop','r000001-b1d05d4c','{"iteration": 1, "task": {"id": "first", "title": "first"}, "attempt": 1, "phase": null, "agent": "scribe", "outcome": "ok", "failure_kind": null, "category": null, "hint": null, "rule": "exit status 0", "why": "exit status 0, and no failure on its last lines", "code": 0, "cost_usd": null, "cost_source": "unknown", "tokens_in": null, "tokens_out": null, "model": null, "session": null, "duration_s": 0.104, "reset_at": null, "commits": 1, "next": "the iteration is finished"}','r000001-b1d05d4c/3/attempt.finished');
INSERT INTO "events" VALUES(1795374095315,'tests.passed','2026-11-22T19:01:38.095037Z','shop','r000001-b1d05d4c','{"iteration": 1, "task": {"id": "first", "title": "first"}, "verdict": "kept", "why": "the tests pass", "commits": ["07c81e8"], "reverted": [], "tests": ["green"], "refs": []}','r000001-b1d05d4c/4/tests.passed');
INSERT INTO "events" VALUES(1795374095316,'commit.kept','2026-11-22T19:01:38.095037Z','shop','r000001-b1d05d4c','{"message": "Tests passed \u2705 \u2014 commit 07c81e8 kept", "iteration": 1, "task": {"id": "first", "title": "first"}, "verdict": "kept", "why": "the tests pass", "commits": ["07c81e8"], "reverted": [], "tests": ["green"], "refs": []}','r000001-b1d05d4c/4/commit.kept');
INSERT INTO "events" VALUES(1795374095317,'iteration.finished','2026-11-22T19:01:38.112675Z','shop','r000001-b1d05d4c','{"iteration": 1, "failed": false, "summary": "first is done", "task": {"id": "first", "title": "first"}, "complete": true, "commits": ["07c81e8"]}','r000001-b1d05d4c/4/iteration.finished');
INSERT INTO "events" VALUES(1795374095318,'iteration.started','2026-11-22T19:01:38.184666Z','shop','r000001-b1d05d4c','{"iteration": 2, "task": {"id": "second", "title": "second"}}','r000001-b1d05d4c/5/iteration.started');
INSERT INTO "events" VALUES(1795374095319,'attempt.finished','2026-11-22T19:01:38.279793Z','shop','r000001-b1d05d4c','{"iteration": 2, "task": {"id": "second", "title": "second"}, "attempt": 1, "phase": null, "agent": "scribe", "outcome": "ok", "failure_kind": null, "category": null, "hint": null, "rule": "exit status 0", "why": "exit status 0, and no failure on its last lines", "code": 0, "cost_usd": null, "cost_source": "unknown", "tokens_in": null, "tokens_out": null, "model": null, "session": null, "duration_s": 0.077, "reset_at": null, "commits": 1, "next": "the iteration is finished"}','r000001-b1d05d4c/6/attempt.finished');
INSERT INTO "events" VALUES(1795374095320,'tests.failed','2026-11-22T19:01:38.596585Z','shop','r000001-b1d05d4c','{"iteration": 2, "task": {"id": "second", "title": "second"}, "verdict": "reverted", "why": "the tests failed, and pass without it", "commits": ["f2d2a2d"], "reverted": ["f2d2a2d"], "tests": ["red", "green"], "refs": ["refs/ralph/reverted/shop/r000001-b1d05d4c-6a12c562", "refs/ralph/reverts/shop/r000001-b1d05d4c-6a12c562"]}','r000001-b1d05d4c/7/tests.failed');
INSERT INTO "events" VALUES(1795374095321,'commit.reverted','2026-11-22T19:01:38.596585Z','shop','r000001-b1d05d4c','{"message": "Tests failed \u274c \u2014 reverting commit f2d2a2d", "iteration": 2, "task": {"id": "second", "title": "second"}, "verdict": "reverted", "why": "the tests failed, and pass without it", "commits": ["f2d2a2d"], "reverted": ["f2d2a2d"], "tests": ["red", "green"], "refs": ["refs/ralph/reverted/shop/r000001-b1d05d4c-6a12c562", "refs/ralph/reverts/shop/r000001-b1d05d4c-6a12c562"]}','r000001-b1d05d4c/7/commit.reverted');
INSERT INTO "events" VALUES(1795374095322,'iteration.finished','2026-11-22T19:01:38.628784Z','shop','r000001-b1d05d4c','{"iteration": 2, "failed": false, "summary": "second is done", "task": {"id": "second", "title": "second"}, "complete": true, "commits": ["f2d2a2d"]}','r000001-b1d05d4c/7/iteration.finished');
INSERT INTO "events" VALUES(1795374095323,'iteration.started','2026-11-22T19:01:38.700619Z','shop','r000001-b1d05d4c','{"iteration": 3, "task": {"id": "third", "title": "third"}}','r000001-b1d05d4c/8/iteration.started');
INSERT INTO "events" VALUES(1795374095324,'ralph.paused','2026-11-22T19:01:38.989050Z','shop','r000001-b1d05d4c','{"message": "Pausing after current iteration..."}',NULL);
INSERT INTO "events" VALUES(1795374095325,'ralph.registered','2026-11-22T19:02:03.621147Z','web',NULL,'{"directory": "@ROOT@/web"}',NULL);
INSERT INTO "events" VALUES(1795374095326,'ralph.started','2026-11-22T19:02:03.608649Z','web','r000001-3634da26','{"pid": 2202}','r000001-3634da26/ralph.started');
INSERT INTO "events" VALUES(1795374095327,'attempt.finished','2026-11-22T19:02:21.450236Z','shop','r000001-b1d05d4c','{"iteration": 3, "task": {"id": "third", "title": "third"}, "attempt": 1, "phase": null, "agent": "scribe", "outcome": "failed", "failure_kind": "agent_incomplete", "category": "transient", "hint": "RetryNow", "rule": "exit status 0", "why": "the agent ended well, but third is still open in TASKS.md", "code": 0, "cost_usd": null, "cost_source": "unknown", "tokens_in": null, "tokens_out": null, "model": null, "session": null, "duration_s": 42.692, "reset_at": null, "commits": 0, "next": "the end"}','r000001-b1d05d4c/10/attempt.finished');
INSERT INTO "events" VALUES(1795374095328,'ralph.exited','2026-11-22T19:02:21.514557Z','shop','r000001-b1d05d4c','{"code": 75, "signal": null, "outcome": "asked"}','r000001-b1d05d4c/ralph.exited');
INSERT INTO "events" VALUES(1795374095329,'ralph.paused','2026-11-22T19:02:21.514557Z','shop','r000001-b1d05d4c','{"message": "Ralph paused, as asked"}','r000001-b1d05d4c/ralph.paused');
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',1795374095329);
COMMIT;
