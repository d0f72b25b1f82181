"""The same children under ours and under every peer, at the same time."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.bench import Bench, Rounds
from tests.bench.measure import cpu_s, rss_mb
from tests.bench.ours import Daemon
from tests.bench.peers.peer import Peer, Program

FLEET, LARGE_FLEET = 100, 500
LINE_EVERY_S = 20
SILENT = ("/bin/sleep", "900")
WATCHED_AFTER_S = 30
UNHURRIED: Mapping[str, Any] = {
    "regent.hang_timeout_seconds": 3600,
    "agents.heartbeat_seconds": WATCHED_AFTER_S,
    "agents.missed_heartbeats": 1,
}


@dataclass(slots=True)
class Watched:
    """A daemon whose children say nothing at all, and the moment since when."""

    daemon: Daemon
    shims: Sequence[int]
    silent_since: float


@dataclass(slots=True)
class Fleet:
    """All daemons; memory is taken before anything else is asked of them."""

    bench: Bench
    size: int
    ours: Daemon
    shims: Sequence[int] = ()
    empty_mb: float = 0.0
    full_mb: float = 0.0
    theirs: dict[str, Peer] = field(default_factory=dict)
    their_mb: "Rounds[tuple[float, float]] | None" = None
    watched: Watched | None = None


@contextlib.contextmanager
def a_fleet(bench: Bench, size: int, *, watched: bool) -> Iterator[Fleet]:
    """``size`` children that print a line now and then; ``watched``: and as many silent ones of ours."""
    fleet = Fleet(bench, size, Daemon(bench.place()))
    command = _chatter(bench)
    try:
        if watched:
            fleet.watched = _watched(bench, size)
        fleet.ours.start_as_people_do()
        fleet.empty_mb = rss_mb(fleet.ours.pid)
        fleet.ours.register_many(size, command)
        fleet.full_mb = rss_mb(fleet.ours.pid)
        fleet.shims = _shims(fleet.ours)
        fleet.their_mb = Rounds(bench, f"fleet of {size}")
        fleet.their_mb.take(lambda kind: _join(fleet, kind, command))
        yield fleet
    finally:
        for peer in fleet.theirs.values():
            peer.close()
        if fleet.watched is not None:
            fleet.watched.daemon.shut()
        fleet.ours.close()


def _chatter(bench: Bench) -> Sequence[str]:
    script = bench.place() / "chatter.sh"
    script.write_text(f"while :; do echo still here; sleep {LINE_EVERY_S}; done\n")
    return ("/bin/sh", str(script))


def _watched(bench: Bench, size: int) -> Watched:
    daemon = Daemon(bench.place())
    try:
        daemon.start_as_people_do()
        daemon.register_many(size, SILENT, UNHURRIED)
        return Watched(daemon, _shims(daemon), time.monotonic())
    except BaseException:
        daemon.close()
        raise


def _shims(daemon: Daemon) -> Sequence[int]:
    return [daemon.run_record(name).shim_pid for name in daemon.status()]


def _join(fleet: Fleet, kind: type[Peer], command: Sequence[str]) -> tuple[float, float]:
    """Start a peer with the same children; its memory without any, and with all."""
    alone = fleet.bench.peer(kind)
    try:
        alone.start()
        empty_mb = rss_mb(alone.pid)
    finally:
        alone.close()
    peer = fleet.bench.peer(kind, *(Program(f"r{number:03d}", command) for number in range(fleet.size)))
    fleet.theirs[kind.name] = peer
    try:
        peer.start()
        peer.wait_for_all()
        return empty_mb, rss_mb(peer.pid)
    except BaseException:
        fleet.theirs.pop(kind.name).close()
        raise


def spent_ms(groups: Mapping[str, Sequence[int]], window_s: float) -> dict[str, float]:
    """The CPU of each group of processes over one window, scaled to a minute, in milliseconds."""
    begun = time.monotonic()
    before = {name: sum(map(cpu_s, pids)) for name, pids in groups.items()}
    time.sleep(window_s)
    spent_s = {name: sum(map(cpu_s, pids)) - before[name] for name, pids in groups.items()}
    per_minute_ms = 60_000 / (time.monotonic() - begun)
    return {name: each_s * per_minute_ms for name, each_s in spent_s.items()}
