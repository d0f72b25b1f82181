"""What is read from disk while no daemon runs."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ralphctl.offline import log


def test_events_that_a_daemon_moves_from_the_log_into_the_database_while_they_are_copied_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPHD_STATE_DIR", str(tmp_path))
    writer = sqlite3.connect(tmp_path / "events.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, type, at, ralph, run_id, data)")
    insert = "INSERT INTO events (type, at, ralph, data) VALUES (?, '2026-11-21T20:00:00Z', '', '{}')"
    writer.execute(insert, ("ralph.started",))
    real, copied = shutil.copyfile, list[str]()

    def copyfile(source: Path, target: Path, **options: bool) -> None:
        real(source, target, **options)
        copied.append(source.name)
        if len(copied) == 1:  # the daemon ends at this very moment
            writer.execute(insert, ("ralph.stopped",))
            writer.close()

    monkeypatch.setattr(shutil, "copyfile", copyfile)

    found = log.events(str(tmp_path), None, 10)

    assert found is not None
    assert [each["type"] for each in found] == ["ralph.started", "ralph.stopped"]
    assert json.dumps(found)
    with closing(sqlite3.connect(tmp_path / "events.db")) as kept:
        assert kept.execute("SELECT count(*) FROM events").fetchone() == (2,)
