"""By the runs whose directories are there: more than a daemon keeps, as a copy may bring them."""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ralphd.core.time import rfc3339
from ralphd.process.log.log import prune
from tests.bench.measure import rss_mb
from tests.bench.ours import Daemon
from tests.growth.curve import FLAT, LINEAR, Series, Table
from tests.growth.spent import api_ms, await_state, ctl_ms, idle_ms, start_ms

SIZES: Final = (10, 100, 1_000, 10_000)
STARTS: Final = 3
KEPT: Final = 100
LINES: Final = 20
AGE_S: Final = 30 * 24 * 3600.0
HOW = (
    f"As many directories of ended runs of one ralph, each with its records and {LINES} lines. All are in"
    " the history, all but the last as of a month ago. A minute after its start a daemon deletes all but"
    f" the last {KEPT}; the figures from before show what it costs until then. Retention is what the deletion"
    " takes; up to 100 runs, nothing is deleted."
)


def measured(root: Path, sizes: Sequence[int] = SIZES, *, waits: bool = True) -> Series:
    """Copy a real run so many times, and start daemons on the copies."""
    table = Table()
    for size in sizes:
        daemon = Daemon(root / f"runs-{size}")
        try:
            daemon.start()
            daemon.register("often", ["/bin/sh", "-c", f"seq {LINES}"])
            await_state(daemon, "often", "done")
            daemon.shut()
            copied(daemon.state / "ralphs/often", size)
            _measure(table, daemon, size, waits=waits)
        finally:
            daemon.close()
    return Series("runs", "By the runs in a directory", "runs", HOW, table.curves())


def copied(home: Path, count: int) -> None:
    """Make the only run the last one of ``count``, with an entry in the history for each."""
    (run,) = (home / "runs").iterdir()
    history = home / "history.jsonl"
    lines = history.read_text().splitlines()
    (ended,) = (entry for entry in map(json.loads, lines) if entry["kind"] == "run")
    ended["at"] = rfc3339(time.time() - AGE_S)
    before = []
    for number in range(1, count):
        name = f"r{number:06}-{number:08x}"
        shutil.copytree(run, run.with_name(name))
        before.append(json.dumps(ended | {"key": name, "run_id": name}, separators=(",", ":")))
    last = run.with_name(f"r{count:06}-{run.name.partition('-')[2]}")
    run.rename(last)
    history.write_text("\n".join([*before, *lines, ""]).replace(run.name, last.name))
    state = home / "regent-state.json"
    state.write_text(state.read_text().replace(run.name, last.name))


def _measure(table: Table, daemon: Daemon, size: int, *, waits: bool) -> None:
    for number in range(STARTS):
        table.add("daemon start", "ms CPU", LINEAR, size, start_ms(daemon))
        if number < STARTS - 1:
            daemon.shut()
    table.add("memory of the daemon", "MB", FLAT, size, rss_mb(daemon.pid))
    for words in (("status",), ("logs", "often", "-n", "20"), ("explain", "often"), ("report", "often")):
        table.add(" ".join(words), "ms CPU", FLAT, size, *ctl_ms(daemon, *words, rounds=3))
    for what, goal in (("runs", FLAT), ("iterations", LINEAR)):  # there are none of the latter to be found
        spent = api_ms(daemon, f"/v1/ralphs/often/{what}?limit=20", rounds=3, each=10)
        table.add(f"the last 20 {what}, the daemon alone", "ms CPU", goal, size, *spent)
    daemon.shut()
    everything = ctl_ms(daemon, "logs", "often", "-n", "all", rounds=2, alone=True)
    table.add("logs of all, without a daemon", "ms CPU", LINEAR, size, *everything)
    if waits:
        begun = time.thread_time()
        prune([daemon.state / "ralphs/often/runs"], total_bytes=1 << 40, keep_runs=KEPT, living=())
        table.add("retention", "ms CPU", LINEAR, size, (time.thread_time() - begun) * 1e3)
        table.add("daemon start after it", "ms CPU", FLAT, size, start_ms(daemon))
        table.add("idle after it, a minute", "ms CPU", FLAT, size, idle_ms(daemon, 65.0))


__all__ = ["copied", "measured"]
