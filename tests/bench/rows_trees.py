"""What lives of a tree after its ralph was stopped: setsid, double fork, an empty environment, a storm."""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from tests.bench import children
from tests.bench.bench import Bench
from tests.bench.measure import carriers, clear_away, is_alive, wait_until
from tests.bench.ours import Daemon
from tests.bench.peer import Supervisord, program
from tests.bench.table import NONE, NOT_INSTALLED, Line, Verdict

ROUNDS = 3
SLEEPERS, HOPPERS = 40, 3
GRACE_S = 0.5
NOBODY = 65534
SCANS = 5


def stopped_trees(bench: Bench) -> Sequence[Line]:
    """With the means that root has, and with those of everybody."""
    theirs = str(_theirs(bench)) if bench.has_peer else NOT_INSTALLED
    users: Sequence[int | None] = (None, NOBODY) if os.geteuid() == 0 and which("setpriv") else (None,)
    lines = []
    for user in users:
        means, alive = _ours(bench, user)
        who = "root" if os.geteuid() == 0 and user is None else "a user"
        lines.append(
            Line(
                f"descendants alive after stop, as {who}, by {means}", "0",
                f"{max(alive)} (of {SLEEPERS + HOPPERS + 5}, {len(alive)} stops)", theirs, NONE,
                Verdict.of(max(alive) == 0), gates=True,
            )
        )  # fmt: skip
    return lines


def _ours(bench: Bench, user: int | None) -> tuple[str, list[int]]:
    daemon = Daemon(bench.place(), user=user)
    token = f"BENCH_TREE={uuid.uuid4()}"
    alive, means = [], ""
    try:
        daemon.start()
        for number in range(ROUNDS):
            name, record = f"tree{number}", daemon.home / f"tree{number}"
            record.touch()
            record.chmod(0o666)
            daemon.register(
                name, children.argv("tree", record, SLEEPERS, HOPPERS),
                {"regent.stop_timeout_seconds": GRACE_S}, dict([token.split("=")]),
            )  # fmt: skip
            known = _grown(record, token)
            means = daemon.run_record(name).tree_means
            run_id = daemon.run_record(name).run_id
            daemon.stop(name)
            alive.append(_alive(known, token, f"RALPH_RUN_ID={run_id}"))
    finally:
        daemon.close()
    return means, alive


def _theirs(bench: Bench) -> int:
    home = bench.place() / "peer"
    token = f"BENCH_TREE={uuid.uuid4()}"
    record = home.parent / "tree"
    command = children.argv("tree", record, SLEEPERS, HOPPERS)
    peer = Supervisord(home, program("tree", command, environment=token, stopwaitsecs=1))
    try:
        peer.start()
        known = _grown(record, token)
        peer.call("stopProcess", "tree")
        return _alive(known, token)
    finally:
        peer.close()
        clear_away()


def _grown(record: Path, token: str) -> Mapping[str, int]:
    """Wait until the whole tree is there; its named processes."""
    names = {"plain", "setsid", "double", "cleared", "leader"}
    return wait_until(
        lambda: _complete(record, names) if len(carriers(token)) >= SLEEPERS + len(names) - 1 else None,
        limit_s=20.0, what="the whole tree", pause_s=0.05,
    ) or {}  # fmt: skip


def _complete(record: Path, names: set[str]) -> dict[str, int] | None:
    found = dict(line.split() for line in record.read_text().splitlines()) if record.exists() else {}
    return {name: int(pid) for name, pid in found.items()} if names <= set(found) else None


def _alive(known: Mapping[str, int], *tokens: str) -> int:
    """How many live, by several looks: a process that hops is easily missed by one."""
    looks = [carriers(*tokens) | {pid for pid in known.values() if is_alive(pid)} for _ in range(SCANS)]
    return max(map(len, looks))
