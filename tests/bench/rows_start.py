"""How soon something runs: a command after its crash, the daemon after its start."""

import contextlib
import itertools
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import limits
from tests.bench.bench import Bench, Rounds
from tests.bench.measure import clear_away, median, whole_process
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.peers.peer import Peer, Program
from tests.bench.rows_recovery import AT_ONCE
from tests.bench.table import Line, Verdict

RESTART_ROUNDS, RESTARTS, FEW_RESTARTS = 3, 25, 2
SLOW_S = 0.5
RESTART_GOAL_S = 0.030
STARTS = 5
LOADED_S = 0.27  # FastAPI and uvicorn alone, where the goal was set
START_GOAL_S = 0.55
TYPED, TYPED_GOAL_S = 11, 0.15
HOW_RESTARTED = (
    f"A shell that says that it is there and fails at once: the time between two such words, median of"
    f" {RESTARTS} restarts ({FEW_RESTARTS} of a peer that takes more than {SLOW_S:g} s for one),"
    f" {RESTART_ROUNDS} rounds in turn. Nobody is told to wait between restarts (ours `retry_backoff_seconds"
    " = 0`, supervisord `startsecs = 0`, circus `check_delay = 0.1`: with its default of 5 it takes 5 s);"
    " files on tmpfs, and ours writes its state down and syncs it in between. The machine: a loop that starts"
    " the shell and waits."
)
HOW_STARTED = (
    f"From typing the command (`ralphctl regent start`, `supervisord`, `circusd`, `pm2 ping`) to the first"
    f" answer on the socket, nothing to supervise, {STARTS} rounds in turn. The machine: a Python until it"
    " has FastAPI and uvicorn loaded, which ralphd needs."
)
HOW_TYPED = (
    f"From the start of `ralphctl start` with a daemon that runs, to the first line of the command,"
    f" median of {TYPED}; each in a new directory without a repository. The machine: a Python that does"
    " nothing, then the shell."
)


@dataclass(frozen=True, slots=True)
class Said:
    """A named pipe, and the descriptor on which what is said into it is heard."""

    fifo: Path
    words: int

    @property
    def command(self) -> list[str]:
        """Says that it is there, and fails."""
        return ["/bin/sh", str(self.fifo.with_name("crash.sh"))]

    def gap_s(self) -> float:
        """The median time between two of the next words, the first few left out."""
        moments: list[float] = []
        wanted = RESTARTS + 2
        while len(moments) < wanted:
            if not select.select([self.words], [], [], 10.0)[0]:
                raise TimeoutError(f"only {len(moments)} starts")
            moments += [time.perf_counter()] * os.read(self.words, 4096).count(b"\n")
            if len(moments) > 1 and moments[-1] - moments[-2] > SLOW_S:
                wanted = FEW_RESTARTS + 2
        return median([after - before for before, after in itertools.pairwise(moments[1:])])


@contextlib.contextmanager
def _crashing(bench: Bench) -> Iterator[tuple[Path, Said]]:
    """A directory in memory with a script that crashes, and an ear."""
    home = bench.place(in_memory=True)
    fifo = home / "said"
    os.mkfifo(fifo)
    (home / "crash.sh").write_text(f"echo > {fifo}\nexit 1\n")
    words = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield home, Said(fifo, words)
    finally:
        os.close(words)
        shutil.rmtree(home, ignore_errors=True)


def restarts(bench: Bench) -> Sequence[Line]:
    """The time between two lives of a command that fails at once."""
    ours, least = [], []
    theirs: Rounds[float] = Rounds(bench, "restart")
    for _ in range(RESTART_ROUNDS):
        ours.append(_our_gap(bench))
        theirs.take(lambda kind: _their_gap(bench, kind))
        least.append(_least_gap(bench))
    ours_s = median(ours)
    return [
        Line(
            "crash to restart, no wait between", "<= 30 ms", f"{ours_s * 1e3:.1f} ms",
            Verdict.of(ours_s <= RESTART_GOAL_S), HOW_RESTARTED,
            theirs.texts(lambda found: f"{median(found) * 1e3:.1f} ms"),
            theirs.ratios(ours_s, lambda each: each), f"{median(least) * 1e3:.1f} ms",
        )
    ]  # fmt: skip


def _our_gap(bench: Bench) -> float:
    with _crashing(bench) as (home, said):
        daemon = Daemon(home)
        try:
            daemon.start()
            daemon.register("crash", said.command, AT_ONCE)
            return said.gap_s()
        finally:
            daemon.close()


def _their_gap(bench: Bench, kind: type[Peer]) -> float:
    with _crashing(bench) as (home, said):
        peer = kind(home / "peer", [Program("crash", said.command, restarts=True)])
        try:
            peer.start()
            return said.gap_s()
        finally:
            peer.close()
            clear_away()


def _least_gap(bench: Bench) -> float:
    with _crashing(bench) as (_, said):
        return limits.respawn_s(said.command, said.gap_s)


def daemon_starts(bench: Bench) -> Sequence[Line]:
    """From the start of the command to the first status that is answered, in turn with the peers."""
    ours, cpu, least = [], [], []
    theirs: Rounds[float] = Rounds(bench, "start")
    for _ in range(STARTS):
        took_s, used_s = _our_start(bench)
        ours.append(took_s)
        cpu.append(used_s)
        theirs.take(lambda kind: _their_start(bench, kind))
        least.append(limits.loaded_s())
    ours_s = median(ours)
    return [
        Line(
            "start to the first answered status", f"<= {START_GOAL_S} s",
            f"{ours_s:.2f} s, CPU {median(cpu):.2f} s",
            Verdict.of(ours_s <= START_GOAL_S), HOW_STARTED,
            theirs.texts(lambda found: f"{median(found):.2f} s"), theirs.ratios(ours_s, lambda each: each),
            f"{median(least):.2f} s",
            relative=f"{ours_s / median(least):.2f} times what FastAPI and uvicorn alone take; the goal was"
            f" {START_GOAL_S / LOADED_S:.2f} times",
        )
    ]  # fmt: skip


def _our_start(bench: Bench) -> tuple[float, float]:
    daemon = Daemon(bench.place())
    try:
        return daemon.start_as_people_do(), daemon.start_cpu_s
    finally:
        daemon.close()


def _their_start(bench: Bench, kind: type[Peer]) -> float:
    peer = bench.peer(kind)
    try:
        return peer.start()
    finally:
        peer.close()
        clear_away()


def typed_starts(bench: Bench) -> Sequence[Line]:
    """From ``ralphctl start`` to the first line of a command."""
    took, least = [], []
    with _crashing(bench) as (home, said):
        daemon = Daemon(home)
        try:
            daemon.start()
            for _ in range(TYPED):
                took.append(_typed(daemon, said))
                least.append(limits.interpreter_s() + whole_process(said.command, {}).wall_s)
                os.read(said.words, 4096)
        finally:
            daemon.close()
    ours_s = median(took)
    return [
        Line(
            "`ralphctl start` to the first line of the command", f"<= {TYPED_GOAL_S * 1e3:.0f} ms",
            f"{ours_s * 1e3:.0f} ms", Verdict.of(ours_s <= TYPED_GOAL_S), HOW_TYPED,
            {kind.name: "-" for kind in bench.peers}, limit=f"{median(least) * 1e3:.0f} ms",
        )
    ]  # fmt: skip


def _typed(daemon: Daemon, said: Said) -> float:
    with tempfile.TemporaryDirectory(dir=daemon.home) as directory:
        words = [str(RALPHCTL), "start", "--", *said.command]
        begun = time.perf_counter()
        unread = subprocess.DEVNULL
        with subprocess.Popen(words, env=daemon.environment, cwd=directory, stdout=unread, stderr=unread):
            if not select.select([said.words], [], [], 10.0)[0]:
                raise TimeoutError("the command was not started")
            took_s = time.perf_counter() - begun
        os.read(said.words, 4096)
        return took_s
