"""``make bench``: the goals in numbers, ours beside supervisord's, circus' and pm2's, in one run.

    python -m tests.bench                  all rows but --full's, and docs/performance.md; below six minutes
    python -m tests.bench --full           500 ralphs too; below ten minutes
    python -m tests.bench --only capture   one row or more (--only may be given again); writes no page
    python -m tests.bench --list           the rows

Rows with † gate: when one is missed the exit code is 1. The others inform, since other work on the machine
moves them. Times of one run compare with each other and with nothing else; CPU is a process's own CPU clock;
where a row has several rounds the supervisors take turns, and the medians are shown.

The peers come from their registries into ``.venv-bench`` the first time. Where a registry does not answer the
column says "not installed", and what is a ratio to that peer is not judged.

Everything runs in temporary directories, on Unix sockets, under time limits. This process is the reaper of
all that it starts, so whatever is left at the end is found, ended, named, and makes the exit code 1.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench import (
    page,
    rows_fleet,
    rows_guard,
    rows_help,
    rows_loop,
    rows_machines,
    rows_many,
    rows_output,
    rows_recovery,
    rows_report,
    rows_start,
    rows_trees,
    rows_view,
    table,
)
from tests.bench.bench import Bench, Row
from tests.bench.measure import adopt_orphans, clear_away, time_limit
from tests.bench.peers.circus import Circus
from tests.bench.peers.install import VERSIONS, install
from tests.bench.peers.pm2 import Pm2
from tests.bench.peers.supervisord import Supervisord

KILLS = 8
PEERS = (Supervisord, Circus, Pm2)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ROWS = (
    Row("trees", rows_trees.stopped_trees, 60.0, gates=True),
    Row("kills", rows_recovery.killed_daemons, 90.0, gates=True),
    Row("adoption", rows_recovery.adoption, 40.0),
    Row("restart", rows_start.restarts, 90.0),
    Row("capture", rows_output.capture, 120.0, gates=True),
    Row("follow", rows_output.follow, 60.0),
    Row("view", rows_view.watching, 60.0),
    Row("top", rows_view.watching_all, 120.0),
    Row("fleet", rows_fleet.fleet_rows, 180.0, gates=True),
    Row("start", rows_start.daemon_starts, 60.0),
    Row("typed", rows_start.typed_starts, 30.0),
    Row("loop", rows_loop.iterations, 90.0),
    Row("listening", rows_loop.listening, 180.0),
    Row("guard", rows_guard.judgements, 90.0),
    Row("landing", rows_many.landings, 120.0),
    Row("worktree", rows_many.worktrees, 120.0),
    Row("limit", rows_many.limits, 60.0),
    Row("limit1000", rows_many.fleet_limits, 60.0),
    Row("machines", rows_machines.machines, 120.0),
    Row("crowd", rows_machines.crowd, 150.0),
    Row("report", rows_report.reports, 60.0),
    Row("html", rows_report.html, 60.0),
    Row("help", rows_help.help_page, 30.0),
)
FULL = (Row("fleet500", rows_fleet.large_fleet, 300.0),)


def main() -> int:
    """Measure what is asked for, print the table and write the page; 1 when a row with † was missed."""
    asked = _arguments()
    rows = [row for row in (*ROWS, *FULL) if _is_asked(row, asked)]
    if asked.list:
        print("\n".join(row.name for row in (*ROWS, *FULL)))
        return 0
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    root = Path(tempfile.mkdtemp(prefix="rb-"))
    root.chmod(0o755)
    begun = time.monotonic()
    try:
        there = install()
        bench = Bench(
            root, [kind for kind in PEERS if kind.name in there], sorted(set(VERSIONS) - there), asked.kills
        )
        lines, left = _measured(rows, bench)
    finally:
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)  # what is being cleared away is cleared away whole
        clear_away()
        for place in (root, *Path("/dev/shm").glob(f"{root.name}-*")):
            shutil.rmtree(place, ignore_errors=True)
    print(table.text(lines, tuple(VERSIONS)))
    for fault in bench.faults:
        print(f"went wrong: {fault}")
    for pid, command in left.items():
        print(f"left behind, and ended now: {pid} {command}")
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; in brackets ours by theirs; rows with † gate"
    )
    if not asked.only:
        page.write(page.text(lines, bench, full=asked.full, took_s=time.monotonic() - begun))
        print("written: docs/performance.md")
    return int(bool(left) or any(line.fails for line in lines))


def _measured(rows: Sequence[Row], bench: Bench) -> tuple[list[table.Line], dict[int, str]]:
    """The lines of all rows, and the processes that were still there after one."""
    lines: list[table.Line] = []
    left: dict[int, str] = {}
    for row in rows:
        begun = time.monotonic()
        print(f"measuring {row.name} …", end="", file=sys.stderr, flush=True)
        try:
            with time_limit(row.limit_s):
                lines += row.measure(bench)
        except Exception as fault:
            lines.append(table.broken(row.name, fault, gates=row.gates))
        left |= clear_away()
        print(f" {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return lines, left


def _is_asked(row: Row, asked: argparse.Namespace) -> bool:
    return row.name in asked.only if asked.only else (row in ROWS or asked.full)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    names = [row.name for row in (*ROWS, *FULL)]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--full", action="store_true", help="500 ralphs too")
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help=f"kill -9 N times ({KILLS})")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
