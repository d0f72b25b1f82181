"""What the live view costs while a ralph prints a lot."""

import sys
import time
from collections.abc import Sequence

from tests.bench import children
from tests.bench.bench import Bench
from tests.bench.measure import cpu_s, wait_until
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
