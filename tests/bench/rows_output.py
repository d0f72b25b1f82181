"""What it costs to keep the output of a command, and how soon somebody sees it."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import children
from tests.bench.bench import Bench
from tests.bench.measure import clear_away, cpu_s, median, wait_until
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.peer import Supervisord, program
from tests.bench.table import NOT_INSTALLED, Line, Verdict, ratio

FLOOD_BYTES = 500_000_000
FLOODS = 2
FLOOD_S = 60.0
GB = 1e9
SHIM_LIMIT = 3.0
DAEMON_LIMIT = 0.1
RUN_BYTES = 4_000_000_000
CONFIGURATION = f"[logs]\nrun_bytes = {RUN_BYTES}\ntotal_bytes = {RUN_BYTES}\n"
HEAD_BYTES = len("2026-11-21T20:00:00.000000000Z stdout F ")
TICKS = 25
_NUMBER_BYTES = 20


@dataclass(frozen=True, slots=True)
class Captured:
    """What one flood cost, in CPU seconds (beside the command, in the daemon), and what is missing."""

    beside_s: float
    daemon_s: float
    lost_bytes: int


def capture(bench: Bench) -> Sequence[Line]:
    """Floods in turn, the same command under both."""
    ours, theirs = [], []
    for _ in range(FLOODS):
        ours.append(_our_flood(bench))
        if bench.has_peer:
            theirs.append(_their_flood(bench))
    shim = median([each.beside_s for each in ours]) * GB / FLOOD_BYTES
    daemon = median([each.daemon_s for each in ours]) * GB / FLOOD_BYTES
    lost = sum(each.lost_bytes for each in ours)
    their_cost = median([each.beside_s for each in theirs]) * GB / FLOOD_BYTES if theirs else None
    return [
        Line(
            f"log capture, {FLOOD_BYTES // 10**6} MB of 100-byte lines, CPU s per GB",
            "<= 3 in the shim, daemon 0, 0 lost", f"{shim:.2f}, daemon {daemon:.3f}, {lost} lost",
            NOT_INSTALLED if their_cost is None
            else f"{their_cost:.2f}, {sum(each.lost_bytes for each in theirs)} lost, no times",
            ratio(shim, their_cost),
            Verdict.of(shim <= SHIM_LIMIT and daemon <= DAEMON_LIMIT and lost == 0), gates=True,
        )
    ]  # fmt: skip


def _our_flood(bench: Bench) -> Captured:
    daemon = Daemon(bench.place(), configuration=CONFIGURATION)
    record = daemon.home / "record"
    try:
        daemon.start()
        daemon.register("flood", children.argv("flood", record, FLOOD_BYTES))
        before = cpu_s(daemon.pid)
        run, directory = daemon.run_record("flood"), daemon.run_directory("flood")
        _await_all(record, lambda: _segments(directory), FLOOD_BYTES // 100 * (100 + HEAD_BYTES))
        beside, own = cpu_s(run.shim_pid), cpu_s(daemon.pid) - before
        lost = _missing(_segments(directory), HEAD_BYTES)
        for path in _segments(directory):
            path.unlink()
    finally:
        daemon.close()
    return Captured(beside, own, lost)


def _their_flood(bench: Bench) -> Captured:
    home = bench.place() / "peer"
    record, log = home.parent / "record", home / "flood.log"
    command = children.argv("flood", record, FLOOD_BYTES)
    peer = Supervisord(home, program("flood", command, stdout_logfile=log, autostart="false"))
    try:
        peer.start()
        before = cpu_s(peer.pid)
        peer.call("startProcess", "flood")
        _await_all(record, lambda: [log], FLOOD_BYTES)
        spent = cpu_s(peer.pid) - before
        lost = _missing([log], 0)
        log.unlink()
    finally:
        peer.close()
        clear_away()
    return Captured(spent, 0.0, lost)


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("log.*"))


def _await_all(record: Path, files: Callable[[], Sequence[Path]], size: int) -> None:
    """Wait until all is written and kept, or nothing more has come for a second."""
    wait_until(record.exists, limit_s=FLOOD_S, what="the end of the flood", pause_s=0.02)
    deadline, before = time.monotonic() + 1.0, -1
    while time.monotonic() < deadline:
        found = sum(path.stat().st_size for path in files())
        if found == size:
            return
        if found != before:
            deadline, before = time.monotonic() + 1.0, found
        time.sleep(0.02)


def _missing(files: Iterable[Path], head_bytes: int) -> int:
    """How many bytes of the flood are not there, or not in their place."""
    text = records = number = astray = 0
    for path in files:
        with path.open("rb") as file:
            rest = b""
            while data := file.read(1 << 23):
                text += len(data)
                records += data.count(b"\n")
                data = rest + data
                end = max(0, len(data) - _NUMBER_BYTES)
                at = data.find(b"#", 0, end)
                while at >= 0:
                    astray += int(data[at + 1 : at + 13]) != number
                    number = int(data[at + 1 : at + 13]) + 1
                    at = data.find(b"#", at + 1, end)
                rest = data[end:]
    kept = text - records * head_bytes
    return abs(FLOOD_BYTES - kept) + astray * children.LINE_BYTES


def follow(bench: Bench) -> Sequence[Line]:
    """Ten lines a second, each with the moment of its writing, read from the client's stdout."""
    ours_s = _our_delay(bench)
    theirs_s = _their_delay(bench) if bench.has_peer else None
    return [
        Line(
            "line written to line seen (logs -f; supervisorctl tail -f)", "<= 50 ms",
            f"{ours_s * 1e3:.0f} ms median of {TICKS}",
            NOT_INSTALLED if theirs_s is None else f"{theirs_s * 1e3:.0f} ms", ratio(ours_s, theirs_s),
            Verdict.of(ours_s <= 0.050),
        )
    ]  # fmt: skip


def _our_delay(bench: Bench) -> float:
    daemon = Daemon(bench.place())
    try:
        daemon.start()
        daemon.register("ticker", children.argv("ticker"))
        return _delay([str(RALPHCTL), "logs", "-f", "-n", "1", "ticker"], daemon.environment)
    finally:
        daemon.close()


def _their_delay(bench: Bench) -> float:
    home = bench.place() / "peer"
    peer = Supervisord(home, program("ticker", children.argv("ticker"), stdout_logfile=home / "t.log"))
    try:
        peer.start()
        return _delay([*peer.status_command[:-1], "tail", "-f", "ticker"], dict(os.environ))
    finally:
        peer.close()
        clear_away()


def _delay(argv: Sequence[str], environment: dict[str, str]) -> float:
    """The median delay of the lines that a follower prints, those left out that were there before it."""
    follower = subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert follower.stdout is not None
    delays: list[float] = []
    rest, since_ns = b"", 0
    try:
        while len(delays) < TICKS:
            if not select.select([follower.stdout], [], [], 10.0)[0]:
                raise TimeoutError(f"only {len(delays)} lines were seen")
            data = os.read(follower.stdout.fileno(), 65536)
            now_ns = time.monotonic_ns()
            if not data:
                raise EOFError(f"the follower ended after {len(delays)} lines")
            since_ns = since_ns or now_ns
            *lines, rest = (rest + data).split(b"\n")
            written = [int(line.split()[1]) for line in lines if line.startswith(b"tick ")]
            delays += [(now_ns - at) / 1e9 for at in written if at > since_ns]
    finally:
        follower.terminate()
        follower.wait(10)
    return median(delays)
