"""What the live view costs while a ralph prints a lot, and ``top`` while many do."""

import sys
import time
from collections.abc import Sequence

from tests.bench import children
from tests.bench.bench import Bench
from tests.bench.fleet import SILENT
from tests.bench.measure import cpu_s, median, rss_mb, wait_until
from tests.bench.ours import Daemon
from tests.bench.table import Line, Verdict
from tests.terminal import Terminal

LINES_PER_S = 1000
WATCHED_S = 8.0
LIMIT_PERCENT = 3.0
SHOWN_S = 20.0
WARM_S = 2.0
HOW = (
    f"{LINES_PER_S} lines of 100 bytes a second in `ralphctl attach` on a terminal of 80 columns, with its"
    f" region below; that process's CPU time over {WATCHED_S:g} seconds, and whether all lines were seen."
)

RALPHS, LOUD, LINES_OF_EACH, REQUESTS_PER_S, KEYS = 200, 10, 50, 3, 12
TOP_PERCENT, TOP_MB, KEY_MS = 5.0, 60.0, 100.0
HOW_TOP = (
    f"{RALPHS} ralphs in `ralphctl top`, on a terminal of 100 columns and 24 rows. {LOUD} of them, with the"
    f" selected one, print {LINES_OF_EACH} lines a second each (it reads no other log); {REQUESTS_PER_S} of"
    " the others a second are paused or resumed, which makes 10 events a second. The CPU time of that process"
    f" and of the daemon over {WATCHED_S:g} seconds, its resident memory, the median of {KEYS} times from a"
    " key to the moved row."
)


def watching(bench: Bench) -> Sequence[Line]:
    """The view's own CPU, at many lines a second."""
    daemon = Daemon(bench.place())
    try:
        daemon.start()
        daemon.register("chatter", children.argv("chatter", LINES_PER_S))
        percent, seen, missing = _watched(daemon)
    finally:
        daemon.close()
    return [
        Line(
            f"live view at {LINES_PER_S} lines a second", f"<= {LIMIT_PERCENT:g} % of a core",
            f"{percent:.2f} %, {seen / WATCHED_S:.0f} lines/s, {missing} missing",
            Verdict.of(percent <= LIMIT_PERCENT and not missing), HOW,
        )
    ]  # fmt: skip


def watching_all(bench: Bench) -> Sequence[Line]:
    """What ``top`` costs, and how soon it obeys."""
    daemon = Daemon(bench.place())
    try:
        daemon.start()
        daemon.register_many(LOUD, children.argv("chatter", LINES_OF_EACH))
        for number in range(LOUD, RALPHS):
            daemon.register(f"r{number:03d}", SILENT)
        percent, daemon_percent, megabytes, key_ms = _top(daemon)
    finally:
        daemon.close()
    is_met = percent <= TOP_PERCENT and megabytes <= TOP_MB and key_ms <= KEY_MS
    return [
        Line(
            f"top with {RALPHS} ralphs: CPU at {LINES_OF_EACH} lines a second; memory; a key",
            f"<= {TOP_PERCENT:g} % of a core; <= {TOP_MB:g} MB; <= {KEY_MS:g} ms",
            f"{percent:.2f} % (daemon {daemon_percent:.2f} %); {megabytes:.1f} MB; {key_ms:.0f} ms",
            Verdict.of(is_met), HOW_TOP,
        )
    ]  # fmt: skip


def _top(daemon: Daemon) -> tuple[float, float, float, float]:
    """Percent of a core of ``top`` and of the daemon, megabytes, milliseconds from a key to its effect."""
    command = [sys.executable, "-P", "-m", "ralphctl", "top"]
    environment = {**daemon.environment, "TERM": "xterm-256color", "NO_COLOR": "1"}
    with Terminal(command, cwd=daemon.home, environment=environment, columns=100) as terminal:
        wait_until(lambda: f"of {RALPHS} ralphs" in terminal.screen(), limit_s=SHOWN_S, what="the table")
        wait_until(lambda: "line " in terminal.screen(), limit_s=SHOWN_S, what="the log")
        _read_on(terminal, WARM_S)
        pids, begun = (terminal.process.pid, daemon.pid), time.monotonic()
        before = [cpu_s(pid) for pid in pids]
        number = 0
        while time.monotonic() < begun + WATCHED_S:
            verb, name = ("pause", "resume")[number % 2], f"r{RALPHS - 1 - number // 2:03d}"
            daemon.ask("POST", f"/v1/ralphs/{name}/{verb}", {})
            number += 1
            _read_on(terminal, 1 / REQUESTS_PER_S)
        lasted_s = time.monotonic() - begun
        mine, theirs = (100 * (cpu_s(pid) - was) / lasted_s for pid, was in zip(pids, before, strict=True))
        keys_ms = [_moved_ms(terminal, number) for number in range(1, KEYS + 1)]
        return mine, theirs, rss_mb(terminal.process.pid), median(keys_ms)


def _moved_ms(terminal: Terminal, number: int) -> float:
    begun, seen = time.monotonic(), len(terminal.screen())
    terminal.type(b"\x1b[B")
    row = f"\u25b8r{number:03d}"
    wait_until(lambda: row in terminal.screen()[seen:], limit_s=SHOWN_S, what="the selection")
    return 1000 * (time.monotonic() - begun)


def _watched(daemon: Daemon) -> tuple[float, int, int]:
    """Percent of a core, how many lines came meanwhile, and how many of all are missing."""
    command = [sys.executable, "-P", "-m", "ralphctl", "attach", "chatter"]
    environment = {**daemon.environment, "TERM": "xterm-256color"}
    with Terminal(command, cwd=daemon.home, environment=environment) as terminal:
        wait_until(lambda: "line " in terminal.screen(), limit_s=SHOWN_S, what="the first lines")
        _read_on(terminal, WARM_S)
        before_s, first = cpu_s(terminal.process.pid), len(_numbers(terminal.screen()))
        _read_on(terminal, WATCHED_S)
        spent_s, numbers = cpu_s(terminal.process.pid) - before_s, _numbers(terminal.screen())
    missing = numbers[-1] - numbers[0] + 1 - len(numbers)
    return 100 * spent_s / WATCHED_S, len(numbers) - first, missing


def _read_on(terminal: Terminal, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        terminal.take()
        time.sleep(0.005)


def _numbers(screen: str) -> list[int]:
    return [int(piece.split(maxsplit=1)[0]) for piece in screen.split("line ")[1:-1]]
