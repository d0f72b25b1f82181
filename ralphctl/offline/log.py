"""Read a ralph's log, verdicts, events and explanations from disk, with or without a daemon."""

from __future__ import annotations

import json
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from ralphctl.offline import state
from ralphd import wire
from ralphd.core.gate.git_repair import repairs
from ralphd.core.gate.verdict_views import verdicts as verdicts_in
from ralphd.core.time import parse_rfc3339
from ralphd.errors import UnknownRalph
from ralphd.store.history import History, load_evidence

_EVENT_FILES = ("events.db", "events.db-wal")
_MOST_COPIES = 5
_MOST_RUNS = 100  # as many as a daemon keeps


def records(directory: str, name: str | None, words: Mapping[str, str]) -> Iterator[dict[str, Any]] | None:
    """Return a ralph's log records as the API words them, for the words of a query.

    The ralph is the one of ``directory`` or the nearest one above, else the one with this ``name`` in the
    state directory, else among those of ``ralphctl build``. None without one.
    """
    known = find(directory, name)
    return None if known is None else of_runs(known[1] / "runs", words)


def of_runs(runs: Path, words: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Return the records of a directory of runs, as ``records`` does."""
    from ralphd.agents.streams import EventText
    from ralphd.process.log.log import RalphLog  # loads asyncio, which verdicts do without
    from ralphd.process.log.records import LogQuery
    from ralphd.process.log.rendered import rendered, shown

    tail = words.get("tail", "all")
    since, until = (parse_rfc3339(words[key]) if key in words else None for key in ("since", "until"))
    query = LogQuery(tail=None if tail == "all" else int(tail), since=since, until=until,
                     grep=words.get("grep"), stream=words.get("stream"),
                     whole_events=words.get("events") != "raw")  # fmt: skip
    read = RalphLog(runs).read
    verbose = words.get("events") == "verbose"
    items = rendered(read, query, lambda: EventText(verbose=verbose, grep=query.grep).line)
    return map(shown, items if query.whole_events else read(query))


def last_lines(
    runs: Path, spans: Sequence[tuple[float, float]], *, most: int, limit_s: float
) -> list[list[str]]:
    """Return the last lines that were printed in each of these spans, of events the text, in one pass.

    Each has at most ``most`` records. Spans come in the order of time. What takes longer than ``limit_s`` to
    read is missing.
    """
    from ralphd.agents.streams import EventText
    from ralphd.process.log.log import RalphLog
    from ralphd.process.log.records import LogQuery, LogRecord, stored_time
    from ralphd.process.log.rendered import Rendering, shown

    if not spans:
        return []
    begins, ends = ([stored_time(at) for at in bounds] for bounds in zip(*spans, strict=True))
    last: list[deque[LogRecord]] = [deque(maxlen=most) for _ in spans]
    query = LogQuery(since=spans[0][0], until=spans[-1][1], whole_events=True)
    deadline = time.monotonic() + limit_s
    for record in RalphLog(runs).read(query):
        if not isinstance(record, LogRecord) or record.stream == "regent":
            continue
        i = bisect_right(begins, record.at) - 1
        if i >= 0 and record.at <= ends[i]:
            last[i].append(record)
        if time.monotonic() > deadline:
            break
    render = EventText().line
    texts = ([str(shown(each).get("text", "")) for each in Rendering(render)(records)] for records in last)
    return ["\n".join(lines).split("\n") if lines else [] for lines in texts]


def verdicts(
    directory: str, name: str | None, limit: int
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]] | None:
    """Return the name of the ralph, its last verdicts and its last repairs; None as for ``records``."""
    if (known := find(directory, name)) is None:
        return None
    history = History(known[1] / "history.jsonl")
    return known[0], verdicts_in(history.backwards(), limit), repairs(history.backwards(), limit)


def find(directory: str, name: str | None) -> tuple[str, Path] | None:
    """Return the name and the home of the ralph that ``records`` describes.

    Raise UnknownRalph where no name is given, no ralph works, and several are known.
    """
    view = state.nearest_view(directory)
    if view is not None and name in (None, view["name"]) and (home := state.home(view, os.environ)):
        return str(view["name"]), Path(home)
    root = Path(wire.state_directory(os.environ))
    kept = [[home for home in root.glob(pattern) if name in (None, home.name)]
            for pattern in ("ralphs/*", "build/*/ralphs/*")]  # fmt: skip
    if len(names := {home.name for homes in kept for home in homes}) > 1 and view is None:
        raise state.none_works_in(directory, names)
    newest = max(kept[0] or kept[1], key=lambda home: home.stat().st_mtime, default=None)
    return (newest.name, newest) if newest and len(names) == 1 else None


def events(directory: str, name: str | None, limit: int) -> list[dict[str, Any]] | None:
    """Return the last events kept for a ralph, or for all of them, oldest first; None without a file.

    A copy of the file is read: SQLite would write to the original even to read it.
    """
    import sqlite3
    import tempfile

    known = None
    with suppress(UnknownRalph):  # without a name, all of them are meant
        known = find(directory, name)
    if known is None and name is not None:
        return None
    source = Path(wire.state_directory(os.environ)) if known is None else known[1].parent.parent
    query = "SELECT id, type, at, ralph, run_id, data FROM events WHERE ? IN ('', ralph)"
    with tempfile.TemporaryDirectory() as copies, suppress(OSError, sqlite3.Error, ValueError):
        _copy_events(source, Path(copies))
        with closing(sqlite3.connect(Path(copies, "events.db"))) as database:
            rows = database.execute(f"{query} ORDER BY id DESC LIMIT ?", (name or "", limit)).fetchall()
        keys = ("id", "type", "at", "ralph", "run_id")
        return [dict(zip(keys, row[:5], strict=True)) | {"data": json.loads(row[5])} for row in rows[::-1]]
    return None


def _copy_events(source: Path, copies: Path) -> None:
    """Copy the database with its log, again if they changed meanwhile.

    A daemon that ends moves the rows of the log into the database, and removes the log.
    """
    import shutil

    for _ in range(_MOST_COPIES):
        before = _changed_at(source)
        for name in _EVENT_FILES:
            (copies / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(source / name, copies / name, follow_symlinks=False)
        if before == _changed_at(source):
            return


def _changed_at(source: Path) -> dict[str, int]:
    times = {}
    for name in _EVENT_FILES:
        with suppress(FileNotFoundError):
            times[name] = (source / name).stat().st_mtime_ns
    return times


def explanations(home: Path) -> list[dict[str, Any]]:
    """Return what is kept of why runs ended and of hung attempts, newest first, as the API words it.

    ``which`` names a run (``3``) or an attempt of the built-in loop (``3:2-1``: run, iteration, attempt).
    """
    kept = []
    for run in sorted((home / "runs").glob("r*-*"), reverse=True)[:_MOST_RUNS]:
        number = run.name[1:].partition("-")[0].lstrip("0")
        attempts = sorted((run / "attempts").glob("*"), reverse=True)
        for path, which in ((run, number), *((each, f"{number}:{_attempt(each.name)}") for each in attempts)):
            explanation, evidence = load_evidence(path)
            if shown := explanation or evidence:
                about = {"run_id": run.name, "living": False, "evidence": evidence, "verdict": None}
                kept.append({**shown, **about, "which": which})
    return sorted(kept, key=lambda each: str(each.get("at")), reverse=True)


def _attempt(name: str) -> str:
    """Return ``2-1-build`` for ``00002-01-build``."""
    return "-".join(part.lstrip("0") for part in name.split("-"))
