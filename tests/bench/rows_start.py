"""How soon something runs: a command after its crash, the daemon after its start."""

import contextlib
import itertools
import os
import select
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.measure import clear_away, median
from tests.bench.ours import Daemon
from tests.bench.peer import Supervisord, program
from tests.bench.rows_recovery import AT_ONCE
from tests.bench.table import NOT_INSTALLED, Line, Verdict, ratio

OUR_RESTARTS, THEIR_RESTARTS = 40, 4
STARTS = 5


def restarts(bench: Bench) -> Sequence[Line]:
    """A shell that says that it is there and fails at once: the time between two such words."""
    ours_s = _our_restarts(bench)
    theirs_s = _their_restarts(bench) if bench.has_peer else None
    return [
        Line(
            "crash to restart, no backoff, state on tmpfs", "<= 50 ms",
            f"{ours_s * 1e3:.1f} ms median of {OUR_RESTARTS}",
            NOT_INSTALLED if theirs_s is None else f"{theirs_s * 1e3:.0f} ms", ratio(ours_s, theirs_s),
            Verdict.of(ours_s <= 0.050),
        )
    ]  # fmt: skip


def _our_restarts(bench: Bench) -> float:
    with _in_memory(bench) as home, _said(home) as (fifo, words):
        daemon = Daemon(home)
        try:
            daemon.start()
            daemon.register("crash", _crashes(fifo), AT_ONCE)
            return _gap(words, OUR_RESTARTS)
        finally:
            daemon.close()


def _their_restarts(bench: Bench) -> float:
    with _in_memory(bench) as home, _said(home) as (fifo, words):
        script = home / "crash.sh"
        script.write_text(f"#!/bin/sh\n{_crashes(fifo)[2]}\n")
        peer = Supervisord(home / "peer", program("crash", ["/bin/sh", str(script)], autorestart="true"))
        try:
            peer.start()
            return _gap(words, THEIR_RESTARTS)
        finally:
            peer.close()
            clear_away()


def _crashes(fifo: Path) -> list[str]:
    return ["/bin/sh", "-c", f"echo > {fifo}; exit 1"]


@contextlib.contextmanager
def _in_memory(bench: Bench) -> Iterator[Path]:
    home = bench.place(in_memory=True)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _said(home: Path) -> Iterator[tuple[Path, int]]:
    """A named pipe, and the descriptor on which what is said into it is heard."""
    fifo = home / "said"
    os.mkfifo(fifo)
    words = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield fifo, words
    finally:
        os.close(words)


def _gap(words: int, count: int) -> float:
    """The median time between two of the next ``count`` words, the first few left out."""
    moments: list[float] = []
    while len(moments) < count + 2:
        if not select.select([words], [], [], 10.0)[0]:
            raise TimeoutError(f"only {len(moments)} starts")
        moments += [time.perf_counter()] * os.read(words, 4096).count(b"\n")
    return median([after - before for before, after in itertools.pairwise(moments[1:])])


def daemon_starts(bench: Bench) -> Sequence[Line]:
    """From the start of the command to the first status that is answered, in turn with supervisord."""
    ours, cpu, theirs = [], [], []
    for _ in range(STARTS):
        took_s, used_s = _our_start(bench)
        ours.append(took_s)
        cpu.append(used_s)
        if bench.has_peer:
            theirs.append(_their_start(bench))
    theirs_s = median(theirs) if theirs else None
    return [
        Line(
            "regent start to the first answered status", "<= 0.9 s",
            f"{median(ours):.2f} s, CPU {median(cpu):.2f} s",
            NOT_INSTALLED if theirs_s is None else f"{theirs_s:.2f} s", ratio(median(ours), theirs_s),
            Verdict.of(median(ours) <= 0.9),
        )
    ]  # fmt: skip


def _our_start(bench: Bench) -> tuple[float, float]:
    daemon = Daemon(bench.place())
    try:
        return daemon.start_as_people_do(), daemon.start_cpu_s
    finally:
        daemon.close()


def _their_start(bench: Bench) -> float:
    peer = Supervisord(bench.place() / "peer", "")
    try:
        return peer.start()
    finally:
        peer.close()
