"""By the events and the entries of the history: what shows a part of it, and what reads all of it once."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ralphd.core.time import parse_rfc3339, rfc3339
from ralphd.store.database import ADD_EVENT, Database
from tests.bench.measure import rss_mb
from tests.bench.ours import Daemon
from tests.growth.curve import FLAT, LINEAR, Series, Table
from tests.growth.files import git
from tests.growth.spent import api_ms, await_state, ctl_ms, idle_ms, start_ms
from tests.written_nights import Entry, night

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
STARTS: Final = 3
IDLE_S: Final = 65.0
KEPT_S: Final = 29 * 24 * 3600.0
ENTRIES_EACH: Final = 3.1
GATED: Final = {"regent.rollback_on_test_failure": True, "regent.test_command": "true"}
HOW = (
    "As many events in `events.db`, over the last 29 days, and as many entries in the histories of two"
    " ralphs: one has a verdict for each iteration, and the same last night at each size; the other has no"
    " verdict at all, and is the one that is explained. Daemons are started on these files. Idle is a minute"
    " in which the daemon deletes what is too old."
)


def measured(root: Path, sizes: Sequence[int] = SIZES, idle_s: float = IDLE_S) -> Series:
    """Make the files for each size, and start daemons on them."""
    table = Table()
    for size in sizes:
        daemon = Daemon(root / f"history-{size}")
        try:
            daemon.start()
            for name in ("judged", "quiet"):
                daemon.register(name, ["true"], GATED)
                await_state(daemon, name, "done")
                git(daemon.home / "work" / name, "init", "-q")
            daemon.shut()
            _filled(daemon, size)
            _measure(table, daemon, size, idle_s)
        finally:
            daemon.close()
    return Series("history", "By events and entries of the history", "events", HOW, table.curves())


def _filled(daemon: Daemon, size: int) -> None:
    prepend(daemon.state / "ralphs/judged/history.jsonl", _paced(size // 2))
    without = (entry for entry in night(int(size / 2), 0.0) if entry["kind"] not in ("verdict", "run"))
    prepend(daemon.state / "ralphs/quiet/history.jsonl", islice(_until_now(without), size // 2))
    add_events(daemon.state / "events.db", size)


def _paced(entries: int) -> Iterator[Entry]:
    """Entries of a night that ends now, each iteration with the same pace."""
    iterations = int(entries / ENTRIES_EACH)
    *_, last = night(iterations, 0.0)
    began_at = time.time() - 600 - parse_rfc3339(str(last["at"]))
    return (entry for entry in night(iterations, began_at) if entry["kind"] != "run")


def _until_now(entries: Iterator[Entry]) -> Iterator[Entry]:
    """The same entries, all of yesterday: their times do not matter."""
    at = rfc3339(time.time() - 24 * 3600)
    return (entry | {"at": at, "key": f"{number}/q"} for number, entry in enumerate(entries))


def prepend(history: Path, entries: Iterator[Entry]) -> None:
    """Write entries before those that a history has."""
    present = history.read_text()
    with history.open("w") as file:
        file.writelines(f"{json.dumps(each, separators=(',', ':'))}\n" for each in entries)
        file.write(present)


def add_events(path: Path, count: int) -> None:
    """Add so many events of the last 29 days, before those that are there."""
    data = json.dumps(
        {"iteration": 12, "failed": False, "task": {"id": "US-012", "title": "Story 12 of the list"}}
    )
    begin, step = time.time() - KEPT_S, KEPT_S / count

    def rows() -> Iterator[tuple[Any, ...]]:
        for number in range(count):
            at = rfc3339(begin + number * step)
            yield number + 1, "iteration.finished", at, "judged", "r000001-0000beef", data, f"r/{number}/x"

    database = Database(path)
    connection = database.connect()
    connection.execute("BEGIN")
    connection.executemany(ADD_EVENT, rows())
    connection.execute("COMMIT")
    database.close()


def _measure(table: Table, daemon: Daemon, size: int, idle_s: float) -> None:
    for number in range(STARTS):
        table.add("daemon start", "ms CPU", LINEAR, size, start_ms(daemon))
        if number < STARTS - 1:
            daemon.shut()
    assert daemon.ask("GET", "/v1/ralphs/judged/explain")["verdict"] is not None, "the guard is off"
    table.add("memory of the daemon", "MB", FLAT, size, rss_mb(daemon.pid))
    for words in (
        ("events", "-n", "20"),
        ("events", "judged"),
        ("explain", "quiet"),
        ("report", "judged"),
        ("status",),
    ):
        table.add(" ".join(words), "ms CPU", FLAT, size, *ctl_ms(daemon, *words))
    everything = ctl_ms(daemon, "report", "judged", "--since", "2000-01-01", rounds=3)
    table.add("report of all", "ms CPU", LINEAR, size, *everything)
    for what, target, goal in (
        ("explain", "quiet/explain", FLAT), ("the last 20 verdicts", "judged/verdicts?limit=20", LINEAR),
    ):  # fmt: skip
        spent = api_ms(daemon, f"/v1/ralphs/{target}", each=3)
        table.add(f"{what}, the daemon alone", "ms CPU", goal, size, *spent)
    if idle_s:
        table.add("idle, a minute", "ms CPU", FLAT, size, idle_ms(daemon, idle_s))
    daemon.shut()
    table.add("events.db", "MB", LINEAR, size, (daemon.state / "events.db").stat().st_size / 1e6)
