"""How fast a daemon with a hundred children says how they are."""

from collections.abc import Mapping, Sequence

from tests.bench import limits
from tests.bench.bench import Rounds
from tests.bench.fleet import Fleet
from tests.bench.measure import Spent, cpu_s, median, percentile, whole_process
from tests.bench.ours import RALPHCTL
from tests.bench.peers.peer import Peer
from tests.bench.table import Line, Verdict
from tests.bench.unix_http import ask, ask_often

REQUESTS, TURNS = 400, 4
COMMANDS = 11
STATUS_GOAL_S, STATUS_GOAL_PER_S = 0.0004, 2400
ROUTE_PER_S = 2992  # of a FastAPI route that has such bytes ready, where the goal was set
CLI_GOAL = 0.4
GATING_PEER = "supervisord"
HOW_ASKED = (
    f"The status of all children over one kept connection on a Unix socket, {REQUESTS} requests in {TURNS}"
    " turns; ours `GET /v1/status` (21 and more fields a child; a reply serves again for 20 ms, so most are"
    " ready here), supervisord `getAllProcessInfo`, circus `status` (names and states only), pm2"
    " `getMonitorData`. The machine: the same bytes from a server that has them ready; below the table, from"
    " a FastAPI route that has them ready."
)
HOW_TYPED = (
    f"Whole processes in turn, their output thrown away, median of {COMMANDS}: `ralphctl status`,"
    " `supervisorctl status`, `circusctl status`, `pm2 status`; the ratio is the median of that of each turn."
    " The goal, which gates, is 0.4 of supervisorctl's. The machine: a bare Python that does nothing."
)


def api(fleet: Fleet) -> Sequence[Line]:
    """The whole status over one kept connection, in turns."""
    bench, count = fleet.bench, REQUESTS // TURNS
    ours: list[float] = []
    least: list[float] = []
    route: list[float] = []
    theirs: Rounds[Sequence[float]] = Rounds(bench, "status")
    reply_bytes = len(ask(fleet.ours.socket, "GET", "/v1/status", None, ""))
    place = bench.place()
    before_s = cpu_s(fleet.ours.pid)
    for _ in range(TURNS):
        ours += ask_often(fleet.ours.socket, "GET", "/v1/status", b"", count)
        theirs.take(lambda kind: _of(fleet, kind).ask_often(count))
        least += limits.canned_s(place / "s.sock", reply_bytes, count)
        route += limits.route_s(place / "r.sock", reply_bytes, count)
    cpu_ms = (cpu_s(fleet.ours.pid) - before_s) / REQUESTS * 1e3
    met = median(ours) <= STATUS_GOAL_S and _per_s(ours) >= STATUS_GOAL_PER_S
    return [
        Line(
            f"status of {fleet.size} over the API", "p50 <= 0.4 ms, >= 2,400 a second",
            f"p50 {_ms(median(ours))}, p99 {_ms(percentile(ours, 0.99))}, {_per_s(ours):.0f}/s,"
            f" CPU {cpu_ms:.2f} ms each",
            Verdict.of(met), HOW_ASKED, theirs.texts(_told),
            theirs.ratios(median(ours), median), f"p50 {_ms(median(least))}",
            relative=f"{_per_s(ours) / _per_s(route):.2f} of the rate of a FastAPI route that has the reply"
            f" ready ({_per_s(route):.0f}/s); the goal was {STATUS_GOAL_PER_S / ROUTE_PER_S:.2f} of it",
        )
    ]  # fmt: skip


def _of(fleet: Fleet, kind: type[Peer]) -> Peer:
    """The peer in this fleet. Raises LookupError for one that did not get into it."""
    return fleet.theirs[kind.name]


def _told(rounds: Sequence[Sequence[float]]) -> str:
    took_s = [each for turn in rounds for each in turn]
    return f"p50 {_ms(median(took_s))}, {_per_s(took_s):.0f}/s"


def _per_s(took_s: Sequence[float]) -> float:
    return len(took_s) / sum(took_s)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def commands(fleet: Fleet) -> Sequence[Line]:
    """What people type, as whole processes, in turn."""
    ours: list[Spent] = []
    theirs: Rounds[Spent] = Rounds(fleet.bench, "command")
    least: list[float] = []
    for number in range(COMMANDS + 1):
        if number == 1:  # the first turn warms the caches
            ours.clear()
            theirs.found.clear()
        ours.append(_typed([str(RALPHCTL), "status"], fleet.ours.environment))
        theirs.take(lambda kind: _typed(_of(fleet, kind).status_command, _of(fleet, kind).environment))
        least.append(limits.interpreter_s())
    ratios = {name: _ratio(ours, turns) for name, turns in theirs.found.items() if len(turns) == COMMANDS}
    gating = ratios.get(GATING_PEER)
    return [
        Line(
            f"status of {fleet.size}, the command as people type it", f"<= {CLI_GOAL} of supervisorctl's",
            f"{_middle_ms(ours)}, CPU {_ms(median([each.cpu_s for each in ours]))}",
            Verdict.NONE if gating is None else Verdict.of(gating <= CLI_GOAL), HOW_TYPED,
            theirs.texts(_middle_ms), ratios, _ms(median(least)), gates=True,
        )
    ]  # fmt: skip


def _typed(command: Sequence[str], environment: Mapping[str, str]) -> Spent:
    spent = whole_process(list(command), dict(environment))
    if spent.code:
        raise RuntimeError(f"{command[0]} ended with {spent.code}")
    return spent


def _middle_ms(turns: Sequence[Spent]) -> str:
    return _ms(median([each.wall_s for each in turns]))


def _ratio(ours: Sequence[Spent], theirs: Sequence[Spent]) -> float:
    return median([mine.wall_s / his.wall_s for mine, his in zip(ours, theirs, strict=True)])
