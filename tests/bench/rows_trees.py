"""What lives of a tree after its ralph was stopped: setsid, double fork, an empty environment, a storm."""

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from tests.bench import children
from tests.bench.bench import Bench, Rounds
from tests.bench.measure import carriers, clear_away, is_alive, wait_until
from tests.bench.ours import Daemon
from tests.bench.peers.peer import Peer, Program
from tests.bench.table import Line, Verdict

ROUNDS = 3
SLEEPERS, HOPPERS = 40, 3
WHOLE = SLEEPERS + HOPPERS + 5
STOP_S = 1
NOBODY = 65534
SCANS = 5
HOW = (
    f"A tree of {WHOLE} processes: a leader that ignores SIGTERM and SIGINT, a plain child, one in a session"
    f" of its own, one forked twice, one with an empty environment, {SLEEPERS} sleepers, and {HOPPERS} that"
    f" fork and exit all the time, each hop in a new session. Stopped, with {STOP_S} s of grace; what is"
    " alive then is counted. The peers as they come (supervisord can be told to end the process group, which"
    " gets the plain children and the sleepers)."
)


def stopped_trees(bench: Bench) -> Sequence[Line]:
    """With the means that root has, and with those of everybody."""
    alive: Rounds[int] = Rounds(bench, "trees")
    alive.take(lambda kind: _theirs(bench, kind))
    theirs = alive.texts(lambda found: str(max(found)))
    users: Sequence[int | None] = (None, NOBODY) if os.geteuid() == 0 and which("setpriv") else (None,)
    lines = []
    for user in users:
        means, ours = _ours(bench, user)
        who = "root" if os.geteuid() == 0 and user is None else "a user"
        lines.append(
            Line(
                f"alive of a tree of {WHOLE} after its stop, as {who}, by {means}", "0",
                f"{max(ours)} (of {len(ours)} stops)", Verdict.of(max(ours) == 0), HOW, theirs,
                limit="0", gates=True,
            )
        )  # fmt: skip
        theirs = dict.fromkeys(alive.found, "as above")
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
                {"regent.stop_timeout_seconds": STOP_S}, dict([token.split("=")]),
            )  # fmt: skip
            known = _grown(record, token)
            means = daemon.run_record(name).tree_means
            run_id = daemon.run_record(name).run_id
            daemon.stop(name)
            alive.append(_alive(known, token, f"RALPH_RUN_ID={run_id}"))
    finally:
        daemon.close()
    return means, alive


def _theirs(bench: Bench, kind: type[Peer]) -> int:
    token = f"BENCH_TREE={uuid.uuid4()}"
    record = bench.place() / "tree"
    command = children.argv("tree", record, SLEEPERS, HOPPERS)
    peer = bench.peer(kind, Program("tree", command, dict([token.split("=")]), stop_s=STOP_S))
    try:
        peer.start()
        known = _grown(record, token)
        peer.stop("tree")
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
