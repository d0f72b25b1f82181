"""By the number of ralphs: what the daemon holds, does while nothing is asked, and takes to come back."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.fleet import SILENT, UNHURRIED, WATCHED_AFTER_S
from tests.bench.measure import clear_away, cpu_s, rss_mb, wait_until
from tests.bench.ours import Daemon
from tests.growth.curve import FLAT, LINEAR, Series, Table
from tests.growth.spent import START_S, api_ms, ctl_ms, idle_ms

SIZES: Final = (1, 10, 100, 500)
WINDOW_S, WINDOWS = 30.0, 3
KILLS: Final = 3
UP_S: Final = 300.0
HOW = (
    "Silent children (`sleep`) that are watched: after 30 s without a line, each is probed every 30 s. Idle"
    " CPU is that of the daemon and of all shims. One more start is what the daemon takes to register and"
    " start another ralph. Adoption is all that a daemon takes, from its start after a kill -9 until it shows"
    " each of the living runs."
)


def measured(root: Path, sizes: Sequence[int] = SIZES, windows: int = WINDOWS) -> Series:
    """Start as many ralphs, leave them alone, kill the daemon."""
    table = Table()
    for size in sizes:
        daemon = Daemon(root / str(size))
        try:
            daemon.start()
            _measure(table, daemon, size, windows)
        finally:  # the end of hundreds of runs is not what is measured
            daemon.kill()
            clear_away()
    return Series("ralphs", "By the number of ralphs", "ralphs", HOW, table.curves())


def _measure(table: Table, daemon: Daemon, size: int, windows: int) -> None:
    daemon.register_many(size, SILENT, UNHURRIED)
    begun = time.monotonic()
    table.add("memory of the daemon", "MB", LINEAR, size, rss_mb(daemon.pid))
    table.add("status, the daemon alone", "ms CPU", LINEAR, size, *api_ms(daemon, "/v1/status"))
    table.add("ralphctl status", "ms CPU", LINEAR, size, *ctl_ms(daemon, "status"))
    shims = [daemon.run_record(name).shim_pid for name in daemon.status()]
    if windows:
        time.sleep(max(0.0, begun + WATCHED_AFTER_S + 10 - time.monotonic()))
    idle = [idle_ms(daemon, WINDOW_S, shims) for _ in range(windows)]
    table.add("idle, a minute", "ms CPU", LINEAR, size, *idle)
    for number in range(KILLS):
        before = cpu_s(daemon.pid)
        daemon.register(f"more{number}", SILENT, UNHURRIED)
        table.add("one more start", "ms CPU", FLAT, size, (cpu_s(daemon.pid) - before) * 1e3)
        daemon.stop(f"more{number}")
        daemon.ask("DELETE", f"/v1/ralphs/more{number}")
    for _ in range(KILLS):
        daemon.kill()
        daemon.start(limit_s=START_S)
        wait_until(lambda: _is_adopted(daemon, size), limit_s=UP_S, what="the adoption", pause_s=0.2)
        table.add("adoption of all", "ms CPU", LINEAR, size, cpu_s(daemon.pid) * 1e3)


def _is_adopted(daemon: Daemon, size: int) -> bool:
    return sum(view["ralph_pid"] is not None for view in daemon.status().values()) == size
