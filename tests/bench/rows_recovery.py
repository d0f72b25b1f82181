"""What a kill -9 of the daemon costs, and how soon the next one has its runs again."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import children
from tests.bench.bench import Bench, Rounds
from tests.bench.measure import clear_away, cpu_s, is_alive, median, wait_until
from tests.bench.ours import Daemon
from tests.bench.peers.peer import Peer, Program
from tests.bench.table import OURS, Line, Verdict

ADOPTED = 50
ADOPTIONS = 3
THEIR_ROUNDS = 2
SLEEP = ("/bin/sleep", "600")
AT_ONCE: Mapping[str, Any] = {
    "regent.retry_backoff_seconds": 0,
    "regent.max_retries": 1_000_000,
    "regent.max_restarts_per_hour": 0,
}
STEADY = ("writer", "sleeper")
HOW_KILLED = (
    "kill -9 of the daemon at a random moment, and a new one, again and again, over a command that writes"
    " numbered lines all the time, one that sleeps, and (ours) one that crashes and is started again all the"
    " time, whose every end is compared with what is on record. A peer's run is lost when it dies of the"
    " broken pipe, and duplicated when a second one is started beside the first; their logs are read as ours."
    f" The peers: {THEIR_ROUNDS} kills each."
)
HOW_ADOPTED = (
    f"{ADOPTED} sleeping runs, {ADOPTIONS} kills: from the start of a daemon until every run is shown with"
    " its pid, less what a daemon without runs took in the same round."
)


@dataclass(slots=True)
class Cost:
    """What was lost, or done twice, or made up."""

    lost: int = 0
    duplicated: int = 0
    bytes_lost: int = 0
    invented: int = 0
    ends: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.lost} / {self.duplicated} / {self.bytes_lost} / {self.invented}"


def killed_daemons(bench: Bench) -> Sequence[Line]:
    """A writer, a sleeper, and one that crashes and is started again all the time."""
    cost = _ours(bench)
    theirs: Rounds[Cost] = Rounds(bench, "kills")
    theirs.take(lambda kind: _theirs(bench, kind))
    clean = not (cost.lost or cost.duplicated or cost.bytes_lost or cost.invented)
    bench.faults.extend(f"kills: {OURS}: {fault}" for fault in cost.faults[:4])
    return [
        Line(
            "kill -9 of the daemon: runs lost / duplicated / log bytes lost / statuses invented",
            "0 / 0 / 0 / 0", f"{cost} ({bench.kills} kills, {cost.ends} ends)", Verdict.of(clean), HOW_KILLED,
            theirs.texts(_told), limit="0", gates=True,
        )
    ]  # fmt: skip


def _told(rounds: Sequence[Cost]) -> str:
    """Statuses of peers are not looked at."""
    [cost] = rounds
    return f"{cost.lost} / {cost.duplicated} / {cost.bytes_lost} / - ({THEIR_ROUNDS} kills)"


def _ours(bench: Bench) -> Cost:
    daemon = Daemon(bench.place())
    record = daemon.home / "record"
    cost = Cost()
    try:
        daemon.start()
        daemon.register("writer", children.argv("writer", record))
        daemon.register("sleeper", SLEEP)
        daemon.register("crasher", children.argv("crasher", record), AT_ONCE)
        for _ in range(bench.kills):
            before = daemon.status()
            time.sleep(random.uniform(0.1, 0.6))
            daemon.kill()
            time.sleep(random.uniform(0.0, 0.3))
            daemon.start()
            _compare(before, daemon.status(), cost)
        for name in ("crasher", *STEADY):
            daemon.stop(name)
        _judge_ends(_begins_and_ends(record), daemon.runs("crasher"), cost)
        _judge_log(record, daemon.log("writer"), cost)
        for name in STEADY:
            _count(cost, "duplicated", len(daemon.runs(name)) - 1, f"{name} has more than one run")
    finally:
        daemon.close()
    return cost


def _count(cost: Cost, what: str, number: int, why: str) -> None:
    if number:
        setattr(cost, what, getattr(cost, what) + number)
        cost.faults.append(why)


def _compare(before: Mapping[str, Any], after: Mapping[str, Any], cost: Cost) -> None:
    for name in STEADY:
        was, now = before[name], after[name]
        same = (was["ralph_pid"], was["run_id"]) == (now["ralph_pid"], now["run_id"])
        well = same and now["state"] == "running" and is_alive(now["ralph_pid"])
        _count(cost, "lost", int(not well), f"{name} is {now['state']}, pid {now['ralph_pid']}")


def _begins_and_ends(record: Path) -> list[tuple[str, int, int | None]]:
    """Each life of the crasher by its own account: run, begin, end (None where it was cut short)."""
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    for line in record.read_text().splitlines():
        what, run_id, at = line.split()
        (begins if what == "begin" else ends)[run_id] = int(at)
    return [(run_id, at, ends.get(run_id)) for run_id, at in sorted(begins.items(), key=lambda item: item[1])]


def _judge_ends(
    lives: Sequence[tuple[str, int, int | None]], runs: Sequence[Mapping[str, Any]], cost: Cost
) -> None:
    """What the record says of each life against what the life said of itself."""
    known = Counter(str(entry["run_id"]) for entry in runs)
    said = {str(entry["run_id"]): entry for entry in runs}
    last_at = 0
    for number, (run_id, began, ended) in enumerate(lives):
        is_last = number == len(lives) - 1  # our own stop may have ended it
        _count(cost, "duplicated", int(began < last_at), f"{run_id} overlaps the run before")
        _count(cost, "duplicated", max(0, known[run_id] - 1), f"{run_id} ended twice on record")
        _count(cost, "lost", int(run_id not in known), f"{run_id} has no end on record")
        _count(cost, "lost", int(ended is None and not is_last), f"{run_id} was cut short")
        if ended is not None and run_id in said:
            entry = said[run_id]
            told = -entry["signal"] if entry["signal"] is not None else entry["code"]
            _count(cost, "invented", int(told != children.planned_end(run_id)), f"{run_id} is told as {told}")
            cost.ends += 1
        last_at = ended if ended is not None else began


def _judge_log(record: Path, text: bytes, cost: Cost) -> None:
    wanted = b"".join(children.numbered(number) for number in range(_written(record) // children.LINE_BYTES))
    if text != wanted:
        same = next(
            (at for at, pair in enumerate(zip(text, wanted, strict=False)) if pair[0] != pair[1]), None
        )
        _count(
            cost, "bytes_lost", max(1, len(wanted) - len(text)),
            f"log of {len(text)} bytes for {len(wanted)} written, different from byte {same}",
        )  # fmt: skip


def _written(record: Path) -> int:
    files = record.parent.glob(f"{record.name}.*")
    return sum(int(line) for file in files for line in file.read_text().split())


def _theirs(bench: Bench, kind: type[Peer]) -> Cost:
    record = bench.place() / "record"
    peer = bench.peer(
        kind, Program("writer", children.argv("writer", record), stop_s=5), Program("sleeper", SLEEP)
    )
    cost = Cost()
    sleepers: set[int] = set()
    try:
        peer.start()
        for _ in range(THEIR_ROUNDS):
            before = peer.wait_for_all()
            _await_writer(record, before["writer"])
            sleepers.add(before["sleeper"])
            time.sleep(0.4)
            peer.kill()
            wait_until(partial(_is_dead, before["writer"]), limit_s=5.0, what="the writer's end")
            cost.lost += 1
            peer.start()
        after = peer.wait_for_all()
        sleepers.add(after["sleeper"])
        _await_writer(record, after["writer"])
        peer.stop("writer")
        cost.duplicated = sum(map(is_alive, sleepers)) - 1
        cost.bytes_lost = _written(record) - peer.log("writer").stat().st_size
    finally:
        peer.close()
        clear_away()
    return cost


def _await_writer(record: Path, pid: int) -> None:
    """A signal that comes before the command is executed would be the supervisor's, and lost."""
    file = record.with_name(f"{record.name}.{pid}")
    wait_until(file.exists, limit_s=10.0, what="the writer's begin")


def _is_dead(pid: int) -> bool:
    return not is_alive(pid)


def adoption(bench: Bench) -> Sequence[Line]:
    """What it takes longer until all runs are shown as they were than until a daemon without any answers."""
    daemon, empty = Daemon(bench.place()), Daemon(bench.place())
    alone_s, all_s, alone_cpu_s, all_cpu_s = [], [], [], []
    try:
        daemon.start()
        daemon.register_many(ADOPTED, SLEEP)
        pids = _running(daemon.status().values())
        for _ in range(ADOPTIONS):
            alone_s.append(empty.start())
            alone_cpu_s.append(cpu_s(empty.pid))
            empty.kill()
            daemon.kill()
            begun = time.perf_counter()
            daemon.start()
            wait_until(
                lambda: _running(daemon.status().values()) == pids, limit_s=20.0, what="all runs adopted"
            )
            all_s.append(time.perf_counter() - begun)
            all_cpu_s.append(cpu_s(daemon.pid))
    finally:
        daemon.close()
    took_s = max(0.0, median([late - soon for late, soon in zip(all_s, alone_s, strict=True)]))
    used_s = median(all_cpu_s) - median(alone_cpu_s)
    return [
        Line(
            f"adoption of {ADOPTED} runs, after the daemon is up", "<= 1 s",
            f"{took_s:.2f} s, CPU {used_s:.2f} s", Verdict.of(took_s <= 1.0), HOW_ADOPTED,
            {kind.name: "adopts none" for kind in bench.peers},
        )
    ]  # fmt: skip


def _running(views: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {view["name"]: view["ralph_pid"] for view in views if view["state"] == "running"}
