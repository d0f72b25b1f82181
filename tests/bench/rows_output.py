"""What it costs to keep the output of a command, and how soon somebody sees it."""

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import children, limits
from tests.bench.bench import Bench, Rounds
from tests.bench.measure import clear_away, cpu_s, median, wait_until
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.peers.peer import Peer, Program
from tests.bench.table import Line, Verdict

FLOOD_BYTES = 500_000_000
FLOODS = 2
FLOOD_S = 60.0
GB = 1e9
SHIM_LIMIT, SHIM_GOAL = 3.0, 1.2
SUPERVISORD_S = 0.83  # CPU s per GB, where the goal was set
DAEMON_LIMIT = 0.1
RUN_BYTES = 4_000_000_000
CONFIGURATION = f"[logs]\nrun_bytes = {RUN_BYTES}\ntotal_bytes = {RUN_BYTES}\n"
HEAD_BYTES = len("2026-11-21T20:00:00.000000000Z stdout F ")
TICKS = 15
FOLLOWS = 2
FOLLOW_GOAL_S = 0.003
HOW_CAPTURED = (
    f"{FLOOD_BYTES // 10**6} MB of 100-byte lines in blocks of 8 KB, as fast as they are taken, {FLOODS}"
    " times in turn; CPU seconds of whoever reads them, by GB (10^9 bytes). Every block is looked for in the"
    " log afterwards. Ours writes a time before each line, the peers write the bytes as they are. The"
    " machine: a loop of 64 KiB reads and writes, without times."
)
HOW_TIMED = "The CPU seconds of the row above: what they are to be, not what they must be."
HOW_FOLLOWED = (
    f"Ten lines a second, each with the moment of its writing, read from the stdout of `ralphctl logs -f`,"
    f" `supervisorctl tail -f`, `pm2 logs`; circus has no such command. Median of {TICKS} lines, {FOLLOWS}"
    " times."
)
_NUMBER_BYTES = 20


@dataclass(frozen=True, slots=True)
class Captured:
    """What one flood cost, in CPU seconds (beside the command, in the daemon), and what is missing."""

    beside_s: float
    daemon_s: float
    lost_bytes: int


def capture(bench: Bench) -> Sequence[Line]:
    """Floods in turn, the same command under all."""
    ours, least_s = [], []
    theirs: Rounds[Captured] = Rounds(bench, "capture")
    for _ in range(FLOODS):
        ours.append(_our_flood(bench))
        theirs.take(lambda kind: _their_flood(bench, kind))
        least_s.append(_least(bench))
    shim, daemon = _per_gb([each.beside_s for each in ours]), _per_gb([each.daemon_s for each in ours])
    lost = sum(each.lost_bytes for each in ours)
    return [
        Line(
            f"log capture, {FLOOD_BYTES // 10**6} MB, CPU s per GB", "<= 3 in the shim, daemon 0, 0 lost",
            f"{shim:.2f}, daemon {daemon:.3f}, {lost} lost",
            Verdict.of(shim <= SHIM_LIMIT and daemon <= DAEMON_LIMIT and lost == 0), HOW_CAPTURED,
            theirs.texts(_told), theirs.ratios(shim, lambda each: _per_gb([each.beside_s])),
            f"{_per_gb(least_s):.2f}", gates=True,
        ),
        Line(
            "the same, with a time before each line", f"<= {SHIM_GOAL}", f"{shim:.2f}",
            Verdict.of(shim <= SHIM_GOAL), HOW_TIMED, {kind.name: "writes no times" for kind in bench.peers},
            relative=_beside(theirs.ratios(shim, lambda each: _per_gb([each.beside_s]))),
        ),
    ]  # fmt: skip


def _per_gb(spent_s: Sequence[float]) -> float:
    return median(spent_s) * GB / FLOOD_BYTES


def _told(rounds: Sequence[Captured]) -> str:
    lost = sum(each.lost_bytes for each in rounds)
    return f"{_per_gb([each.beside_s for each in rounds]):.2f}, {lost} lost"


def _our_flood(bench: Bench) -> Captured:
    daemon = Daemon(bench.place(), configuration=CONFIGURATION)
    record = daemon.home / "record"
    try:
        daemon.start()
        daemon.register("flood", children.argv("flood", record, FLOOD_BYTES))
        run, directory = daemon.run_record("flood"), daemon.run_directory("flood")
        shim_s, daemon_s = cpu_s(run.shim_pid), cpu_s(daemon.pid)
        _go(record)
        _await_all(record, lambda: _segments(directory), FLOOD_BYTES // 100 * (100 + HEAD_BYTES))
        beside, own = cpu_s(run.shim_pid) - shim_s, cpu_s(daemon.pid) - daemon_s
        lost = _missing(_segments(directory), HEAD_BYTES)
        for path in _segments(directory):
            path.unlink()
    finally:
        daemon.close()
    return Captured(beside, own, lost)


def _beside(ratios: Mapping[str, float]) -> str:
    if "supervisord" not in ratios:
        return ""
    goal = SHIM_GOAL / SUPERVISORD_S
    return f"{ratios['supervisord']:.2f} times supervisord, which writes none; the goal was {goal:.2f} times"


def _their_flood(bench: Bench, kind: type[Peer]) -> Captured:
    record = bench.place() / "record"
    peer = bench.peer(kind, Program("flood", children.argv("flood", record, FLOOD_BYTES)))
    log = peer.log("flood")
    try:
        peer.start()
        peer.wait_for_all()
        before_s = cpu_s(peer.pid)
        _go(record)
        _await_all(record, lambda: [log], FLOOD_BYTES)
        spent_s = cpu_s(peer.pid) - before_s
        lost = _missing([log], 0)
        log.unlink()
    finally:
        peer.close()
        clear_away()
    return Captured(spent_s, 0.0, lost)


def _least(bench: Bench) -> float:
    place = bench.place()
    record = place / "record"
    words = children.argv("flood", record, FLOOD_BYTES)
    return limits.pumped_s(words, lambda: _go(record), place / "log")


def _go(record: Path) -> None:
    record.with_name(f"{record.name}.go").touch()


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
    ours_s = []
    theirs: Rounds[float | None] = Rounds(bench, "follow")
    for _ in range(FOLLOWS):
        ours_s.append(_our_delay(bench))
        theirs.take(lambda kind: _their_delay(bench, kind))
    met = median(ours_s) <= FOLLOW_GOAL_S
    return [
        Line(
            "line written to line seen", "<= 3 ms", f"{median(ours_s) * 1e3:.1f} ms", Verdict.of(met),
            HOW_FOLLOWED, theirs.texts(_delay_told),
            theirs.ratios(median(ours_s), lambda took_s: took_s or 0.0),
        )
    ]  # fmt: skip


def _delay_told(rounds: Sequence[float | None]) -> str:
    delays = [took_s for took_s in rounds if took_s is not None]
    return f"{median(delays) * 1e3:.1f} ms" if delays else "has none"


def _our_delay(bench: Bench) -> float:
    daemon = Daemon(bench.place())
    try:
        daemon.start()
        daemon.register("ticker", children.argv("ticker"))
        return _delay([str(RALPHCTL), "logs", "-f", "-n", "1", "ticker"], daemon.environment)
    finally:
        daemon.close()


def _their_delay(bench: Bench, kind: type[Peer]) -> float | None:
    peer = bench.peer(kind, Program("ticker", children.argv("ticker")))
    command = peer.follow_command("ticker")
    if command is None:
        return None
    try:
        peer.start()
        peer.wait_for_all()
        return _delay(command, peer.environment)
    finally:
        peer.close()
        clear_away()


def _delay(argv: Sequence[str], environment: Mapping[str, str]) -> float:
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
