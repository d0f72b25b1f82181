"""What a hundred children cost whoever supervises them: memory, and CPU while nothing is asked."""

import time
from collections.abc import Sequence

from tests.bench import limits
from tests.bench.bench import Bench
from tests.bench.fleet import FLEET, LARGE_FLEET, LINE_EVERY_S, WATCHED_AFTER_S, Fleet, a_fleet, spent_ms
from tests.bench.measure import TooLong, median, pss_mb, wait_until
from tests.bench.rows_status import api, commands
from tests.bench.table import Line, Verdict

IDLE_S = 60.0
IDLE_PEER, IDLE_GOAL = "supervisord", 1.0
MEGABYTES_EMPTY, MEGABYTES_FLEET, MEGABYTES_SHIM = 52, 58, 5
HOW_IDLE = (
    f"Children that print a line every {LINE_EVERY_S} s, the same under all, all at the same time; the"
    f" kernel's count of the CPU of the daemon and, ours, of all its shims, over {IDLE_S:g} s. The peers keep"
    " the lines too, in a file."
)
HOW_WATCHED = (
    f"Children that say nothing at all, the watch begun after {WATCHED_AFTER_S} s of silence: every 30 s the"
    " whole tree of each is looked at, for files, bytes, new processes, CPU, to tell one that works from one"
    " that hangs. Their working directories are empty. In the same minute as the row above. No peer looks."
)
HOW_MEMORY = (
    f"Resident memory of the daemon after its start, and with {FLEET} children. The machine: a Python with"
    " FastAPI and uvicorn loaded. Not in it: the shims, one beside each run, which no peer has (next row)."
)
HOW_SHIM = (
    f"Proportional share (PSS: pages that are shared count in parts), median of {FLEET}. The machine: a bare"
    " Python that waits, beside two more."
)


def fleet_rows(bench: Bench) -> Sequence[Line]:
    """All that is measured on a fleet."""
    with a_fleet(bench, FLEET, watched=True) as fleet:
        return [*_memory(fleet), *api(fleet), *commands(fleet), *_idle(fleet)]


def large_fleet(bench: Bench) -> Sequence[Line]:
    """The idle cost of a large one."""
    with a_fleet(bench, LARGE_FLEET, watched=False) as fleet:
        return _idle(fleet)


def _memory(fleet: Fleet) -> Sequence[Line]:
    assert fleet.their_mb is not None
    shim_mb = median([pss_mb(pid) for pid in fleet.shims])
    small = fleet.empty_mb <= MEGABYTES_EMPTY and fleet.full_mb <= MEGABYTES_FLEET
    return [
        Line(
            f"RSS of the daemon, 0; {fleet.size} children", f"<= {MEGABYTES_EMPTY}; <= {MEGABYTES_FLEET} MB",
            f"{fleet.empty_mb:.1f}; {fleet.full_mb:.1f} MB", Verdict.of(small), HOW_MEMORY,
            fleet.their_mb.texts(lambda found: f"{found[0][0]:.1f}; {found[0][1]:.1f} MB"),
            fleet.their_mb.ratios(fleet.full_mb, lambda each: each[1]), f"{limits.loaded_mb():.1f} MB",
        ),
        Line(
            "shim memory, each", f"<= {MEGABYTES_SHIM} MB", f"{shim_mb:.2f} MB",
            Verdict.of(shim_mb <= MEGABYTES_SHIM), HOW_SHIM,
            {kind.name: "has none" for kind in fleet.bench.peers},
            limit=f"{limits.interpreter_mb():.2f} MB",
        ),
    ]  # fmt: skip


def _idle(fleet: Fleet) -> Sequence[Line]:
    """CPU while nothing is asked: of all at the same time, so that they share what else the machine does."""
    assert fleet.their_mb is not None
    groups = {"daemon": [fleet.ours.pid], "shims": fleet.shims}
    groups |= {name: [peer.pid] for name, peer in fleet.theirs.items()}
    if fleet.watched is not None:
        groups |= {"watching": [fleet.watched.daemon.pid], "their shims": fleet.watched.shims}
        _await_watch(fleet)
    time.sleep(1.0)  # what the requests before left to be done is not idling
    spent = spent_ms(groups, IDLE_S)
    ours_ms = spent["daemon"] + spent["shims"]
    ratios = {name: ours_ms / spent[name] for name in fleet.theirs if spent[name] > 0}
    ratio = ratios.get(IDLE_PEER)
    theirs = fleet.their_mb.texts(lambda _: "") | {name: f"{spent[name]:.0f} ms" for name in fleet.theirs}
    idle = Line(
        f"idle CPU a minute, {fleet.size} children that print now and then",
        f"<= {IDLE_GOAL} of {IDLE_PEER}'s",
        f"{ours_ms:.0f} ms (daemon {spent['daemon']:.0f}, shims {spent['shims']:.0f})",
        Verdict.NONE if ratio is None else Verdict.of(ratio <= IDLE_GOAL), HOW_IDLE, theirs, ratios, "0",
    )  # fmt: skip
    return (
        [idle] if fleet.watched is None else [idle, _watching(fleet, spent["watching"], spent["their shims"])]
    )


def _watching(fleet: Fleet, daemon_ms: float, shims_ms: float) -> Line:
    return Line(
        f"the same, {fleet.size} silent children being watched", "-",
        f"{daemon_ms + shims_ms:.0f} ms (daemon {daemon_ms:.0f}, shims {shims_ms:.0f})", Verdict.NONE,
        HOW_WATCHED, {kind.name: "does not look" for kind in fleet.bench.peers},
    )  # fmt: skip


def _await_watch(fleet: Fleet) -> None:
    """Until every silent child has been silent long enough to be looked at, and is still there."""
    assert fleet.watched is not None
    daemon = fleet.watched.daemon
    time.sleep(max(0.0, fleet.watched.silent_since + WATCHED_AFTER_S - time.monotonic()))
    wait_until(
        lambda: daemon.told("ralph.stall_warning") >= fleet.size,
        limit_s=WATCHED_AFTER_S, what="the watch over all silent children", pause_s=0.5,
    )  # fmt: skip
    time.sleep(5.0)  # the warnings are no part of watching
    states = {view["state"] for view in daemon.status().values()}
    if states != {"running"}:
        raise TooLong(f"silent children are {states}")
