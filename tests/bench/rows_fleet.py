"""A hundred ralphs that sleep: what they cost, and how fast their daemon answers."""

import contextlib
import socket
import time
import xmlrpc.client
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.bench.bench import Bench
from tests.bench.measure import (
    cpu_s,
    median,
    percentile,
    pss_mb,
    rss_mb,
    whole_process,
)
from tests.bench.ours import RALPHCTL, Daemon
from tests.bench.peer import Supervisord, program
from tests.bench.table import NONE, NOT_INSTALLED, Line, Verdict, ratio

FLEET, LARGE_FLEET = 100, 500
SLEEP = ("/bin/sleep", "900")
IDLE_S, LONG_IDLE_S = 16.0, 60.0
REQUESTS, TURNS = 400, 4
COMMANDS = 11
STATUS_GOAL_S, STATUS_GOAL_PER_S = 0.0015, 700
CLI_GOAL = 0.5
MEGABYTES_EMPTY, MEGABYTES_FLEET, MEGABYTES_SHIM = 50, 60, 5


@dataclass(slots=True)
class Fleet:
    """Both daemons with the same children; memory is taken before anything else is asked of them."""

    ours: Daemon
    theirs: Supervisord | None
    size: int
    shims: list[int] = field(default_factory=list)
    empty_mb: float = 0.0
    full_mb: float = 0.0
    their_empty_mb: float = 0.0
    their_full_mb: float = 0.0


@contextlib.contextmanager
def a_fleet(bench: Bench, size: int) -> Iterator[Fleet]:
    """Both daemons with ``size`` sleepers each, and nothing left of it afterwards."""
    fleet = Fleet(Daemon(bench.place()), None, size)
    try:
        fleet.ours.start_as_people_do()
        fleet.empty_mb = rss_mb(fleet.ours.pid)
        fleet.ours.register_many(size, SLEEP)
        fleet.full_mb = rss_mb(fleet.ours.pid)
        fleet.shims = [fleet.ours.run_record(name).shim_pid for name in fleet.ours.status()]
        if bench.has_peer:
            _add_theirs(bench, fleet)
        yield fleet
    finally:
        if fleet.theirs is not None:
            fleet.theirs.close()
        fleet.ours.close()


def _add_theirs(bench: Bench, fleet: Fleet) -> None:
    empty = Supervisord(bench.place() / "peer", "")
    try:
        empty.start()
        fleet.their_empty_mb = rss_mb(empty.pid)
    finally:
        empty.close()
    options = {"process_name": "r%(process_num)03d", "numprocs": fleet.size}
    fleet.theirs = Supervisord(bench.place() / "peer", program("fleet", SLEEP, **options))
    fleet.theirs.start()
    fleet.theirs.wait_for(fleet.size)
    fleet.their_full_mb = rss_mb(fleet.theirs.pid)


def fleet_rows(bench: Bench) -> Sequence[Line]:
    """All that is measured on a fleet."""
    with a_fleet(bench, FLEET) as fleet:
        return [*_memory(fleet), *_idle(bench, fleet), *_api(fleet), *_commands(fleet)]


def large_fleet(bench: Bench) -> Sequence[Line]:
    """The idle cost of a large one."""
    with a_fleet(bench, LARGE_FLEET) as fleet:
        return _idle(bench, fleet)


def _memory(fleet: Fleet) -> Sequence[Line]:
    shim = median([pss_mb(pid) for pid in fleet.shims])
    there = fleet.theirs is not None
    theirs = f"{fleet.their_empty_mb:.0f}; {fleet.their_full_mb:.0f} MB" if there else NOT_INSTALLED
    small = fleet.empty_mb <= MEGABYTES_EMPTY and fleet.full_mb <= MEGABYTES_FLEET
    return [
        Line(
            f"daemon RSS, 0; {fleet.size} ralphs", f"<= {MEGABYTES_EMPTY}; <= {MEGABYTES_FLEET} MB",
            f"{fleet.empty_mb:.1f}; {fleet.full_mb:.1f} MB", theirs,
            ratio(fleet.full_mb, fleet.their_full_mb), Verdict.of(small),
        ),
        Line(
            "shim memory, PSS each", f"<= {MEGABYTES_SHIM} MB", f"{shim:.2f} MB", "has none", NONE,
            Verdict.of(shim <= MEGABYTES_SHIM),
        ),
    ]  # fmt: skip


def _idle(bench: Bench, fleet: Fleet) -> Sequence[Line]:
    """CPU of the daemon and its shims while nothing is asked of them."""
    goal_ms = {FLEET: 60, LARGE_FLEET: 300}[fleet.size]
    window_s = LONG_IDLE_S if bench.full else IDLE_S
    time.sleep(1.0)  # what the registrations left to be done is not idling
    pids, their_pids = [fleet.ours.pid, *fleet.shims], [fleet.theirs.pid] if fleet.theirs else []
    begun, daemon = time.monotonic(), cpu_s(fleet.ours.pid)
    ours, theirs = sum(map(cpu_s, pids)), sum(map(cpu_s, their_pids))
    time.sleep(window_s)
    per_minute_ms = 60_000 / (time.monotonic() - begun)
    ours_ms = (sum(map(cpu_s, pids)) - ours) * per_minute_ms
    daemon_ms = (cpu_s(fleet.ours.pid) - daemon) * per_minute_ms
    theirs_ms = (sum(map(cpu_s, their_pids)) - theirs) * per_minute_ms if their_pids else None
    return [
        Line(
            f"idle CPU a minute, {fleet.size} ralphs", f"<= {goal_ms} ms",
            f"{ours_ms:.0f} ms (daemon {daemon_ms:.0f})",
            NOT_INSTALLED if theirs_ms is None else f"{theirs_ms:.0f} ms", ratio(ours_ms, theirs_ms),
            Verdict.of(ours_ms <= goal_ms),
        )
    ]  # fmt: skip


def _api(fleet: Fleet) -> Sequence[Line]:
    """The whole status over one kept connection, in turns; supervisord's is getAllProcessInfo."""
    ours: list[float] = []
    theirs: list[float] = []
    before = cpu_s(fleet.ours.pid)
    call = xmlrpc.client.dumps((), "supervisor.getAllProcessInfo").encode()
    for _ in range(TURNS):
        ours += _asked(fleet.ours.socket, "GET", "/v1/status", b"", REQUESTS // TURNS)
        if fleet.theirs is not None:
            theirs += _asked(fleet.theirs.socket, "POST", "/RPC2", call, REQUESTS // TURNS)
    cpu_ms = (cpu_s(fleet.ours.pid) - before) / REQUESTS * 1e3
    per_s = len(ours) / sum(ours)
    met = median(ours) <= STATUS_GOAL_S and per_s >= STATUS_GOAL_PER_S
    return [
        Line(
            f"GET /v1/status, {fleet.size} ralphs", "p50 <= 1.5 ms, >= 700 a second",
            f"p50 {_ms(median(ours))}, p99 {_ms(percentile(ours, 0.99))}, {per_s:.0f}/s, CPU {cpu_ms:.2f} ms",
            f"p50 {_ms(median(theirs))}, {len(theirs) / sum(theirs):.0f}/s" if theirs else NOT_INSTALLED,
            ratio(median(ours), median(theirs) if theirs else None), Verdict.of(met),
        )
    ]  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _asked(path: str, method: str, target: str, body: bytes, count: int) -> list[float]:
    """The seconds that each of ``count`` requests took, the connection kept."""
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n"
    more = f"Content-Type: text/xml\r\nContent-Length: {len(body)}\r\n" if body else ""
    request = (head + more + "\r\n").encode() + body
    took = []
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(20)
        link.connect(path)
        for _ in range(count):
            begun = time.perf_counter()
            link.sendall(request)
            _take_reply(link)
            took.append(time.perf_counter() - begun)
    return took


def _take_reply(link: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(link)
    head, _, rest = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], head
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    missing = length - len(rest)
    while missing > 0:
        missing -= len(_more(link))


def _more(link: socket.socket) -> bytes:
    data = link.recv(1 << 18)
    if not data:
        raise EOFError("the connection was closed")
    return data


def _commands(fleet: Fleet) -> Sequence[Line]:
    """Whole processes in turn, their output thrown away; the ratio is that of each pair, in the middle."""
    ralphctl = [str(RALPHCTL), "status"]
    ours, theirs = [], []
    for number in range(COMMANDS + 1):
        mine = whole_process(ralphctl, fleet.ours.environment)
        his = whole_process(fleet.theirs.status_command, {}) if fleet.theirs else None
        assert mine.code == 0, f"ralphctl status ended with {mine.code}"
        assert his is None or his.code == 0, f"supervisorctl status ended with {his.code if his else 0}"
        if number > 0:  # the first pair warms the caches
            ours.append(mine)
            theirs += [his] if his else []
    pairs = list(zip(ours, theirs, strict=False))
    wall = median([mine.wall_s / his.wall_s for mine, his in pairs]) if pairs else None
    cpu = median([mine.cpu_s / his.cpu_s for mine, his in pairs]) if pairs else None
    return [
        Line(
            f"ralphctl status ÷ supervisorctl status, {fleet.size}", f"<= {CLI_GOAL}",
            f"{_ms(median([each.wall_s for each in ours]))}, CPU {_ms(median([e.cpu_s for e in ours]))}",
            f"{_ms(median([each.wall_s for each in theirs]))}" if theirs else NOT_INSTALLED,
            NONE if wall is None else f"{wall:.2f} (CPU {cpu:.2f})",
            Verdict.NONE if wall is None else Verdict.of(wall <= CLI_GOAL), gates=True,
        )
    ]  # fmt: skip
