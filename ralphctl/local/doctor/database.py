"""SQLite: whether its log works in the state directory, and whether ``events.db`` is whole.

A second connection to the daemon's own file is never opened: while a daemon lives only it looks there.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from ralphctl.local.doctor.findings import Finding, Level
from ralphctl.local.doctor.homes import lock_holder

_MOST_BYTES = 1 << 30
_STEPS = 10_000
_TRIAL = ".doctor-"
_LEFT_S = 3600.0


def sqlite(state: Path) -> Sequence[Finding]:
    """Whether a database with a write-ahead log works where the daemon's is."""
    name = "sqlite"
    if not state.is_dir():
        return [Finding(name, Level.OK, sqlite3.sqlite_version)]
    _clean_up(state)
    try:
        with tempfile.TemporaryDirectory(prefix=_TRIAL, dir=state) as place:
            mode = _tried(Path(place) / "trial.db")
    except (OSError, sqlite3.Error) as fault:
        found = f"{sqlite3.sqlite_version}, which cannot write in {state}: {fault}"
        return [Finding(name, Level.FAILED, found, f"df -h {state}; ls -ld {state}")]
    if mode != "wal":
        found = f"{sqlite3.sqlite_version}, without a write-ahead log in {state} (it is {mode} there)"
        mend = "export RALPHD_STATE_DIR=DIR  (one on a disk of this machine)"
        return [Finding(name, Level.FAILED, found, mend)]
    return [Finding(name, Level.OK, f"{sqlite3.sqlite_version}, with a write-ahead log")]


def _clean_up(state: Path) -> None:
    """Remove what a doctor that was killed has left."""
    for left in state.glob(f"{_TRIAL}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left)


def _tried(path: Path) -> str:
    """The mode of the log of a database that was written and read. Raises sqlite3.Error."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        mode = str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        connection.execute("CREATE TABLE trial (id INTEGER)")
        connection.execute("INSERT INTO trial VALUES (1)")
        connection.execute("SELECT id FROM trial").fetchall()
    return mode


def events(state: Path, *, limit_s: float) -> Sequence[Finding]:
    """Whether ``events.db`` is whole, as far as that can be seen in ``limit_s`` seconds."""
    name, path, lock = "events.db", state / "events.db", state / "lock"
    if not path.exists():
        return [Finding(name, Level.OK, "not there yet")]
    if lock_holder(lock) is not None:
        return [Finding(name, Level.OK, "in use by the daemon, which tells of damage by itself")]
    try:
        said = _checked(path, time.monotonic() + limit_s)
    except OSError as fault:
        said = str(fault)
    except _TooLong as why:
        return [Finding(name, Level.UNKNOWN, str(why))]
    if lock_holder(lock) is not None:
        return [Finding(name, Level.UNKNOWN, "a daemon has started while it was looked at")]
    if said == "ok":
        return [Finding(name, Level.OK, "whole")]
    found = f"damaged: {said}; the daemon keeps a copy of it and goes on with a new one"
    return [Finding(name, Level.FAILED, found, "ralphctl regent start")]


class _TooLong(Exception):
    """It cannot be looked at in time."""


def _checked(path: Path, deadline: float) -> str:
    """What SQLite says of it: ``ok``, or what is wrong. Raises OSError, _TooLong."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return _quick_check(path, deadline)
    if path.stat().st_size + log.stat().st_size > _MOST_BYTES:
        raise _TooLong("it is too large to be looked at; a daemon looks when it opens it")
    # What the last daemon wrote is in the log, and to read that means to write: so a copy is read.
    with tempfile.TemporaryDirectory(prefix="ralphd-doctor-") as place:
        for each in (path, log):
            shutil.copyfile(each, Path(place) / each.name)
        return _quick_check(Path(place) / path.name, deadline, is_copy=True)


def _quick_check(path: Path, deadline: float, *, is_copy: bool = False) -> str:
    where = f"file:{quote(str(path))}" + ("" if is_copy else "?mode=ro&immutable=1")
    try:
        with closing(sqlite3.connect(where, uri=True)) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as fault:
        if time.monotonic() > deadline:
            raise _TooLong("it is large, and was not looked at to its end") from fault
        return str(fault)
    except sqlite3.Error as fault:
        return str(fault)
