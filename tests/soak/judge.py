"""The rules of a soak: what may grow how much after the warm-up, and what has a fixed bound."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.soak.faults import RUN_BYTES, TOTAL_BYTES
from tests.soak.growth import Growth, Point, fitted
from tests.soak.samples import Process, Sample, derived

WARM_UP = 0.2
"""The share of the whole time that is not fitted."""
FIRST_S = 180.0
"""The time of a process's own life that is not fitted: it still loads modules and fills caches, and the
garbage collector has not yet seen its oldest generation."""
KEPT_RUNS, KEPT_TESTS, PRUNED_EVERY_S, SHORTEST_RUN_S = 100, 20, 60.0, 1.0
SLACK_RUNS = int(2 * PRUNED_EVERY_S / SHORTEST_RUN_S)
MOST_THREADS = 60
"""Two at once for each of the twenty ralphs, and as many as requests take."""
MOST_LOOP_THREADS = min(32, (os.cpu_count() or 1) + 4) + 4
"""Those of asyncio's pool, which is full after some minutes, and a few for the agent's output."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A figure may grow by ``most`` or by ``share`` of its level within the time that is fitted.

    ``role`` names the processes of which each is a life of its own; without it the figure is of the state.
    """

    name: str
    label: str
    most: float
    share: float = 0.05
    role: str = ""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure of the state never exceeds ``most``."""

    name: str
    label: str
    most: float
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the verdict. ``fault`` says what is wrong; empty if nothing is."""

    label: str
    text: str
    fault: str = ""


OF_PROCESS: dict[str, Callable[[Process], float]] = {
    "rss": lambda process: process.rss_mb,
    "descriptors": lambda process: process.descriptors,
}
RULES = (
    Rule("rss", "daemon: memory, MB", 4.0, role="daemon"),
    Rule("descriptors", "daemon: descriptors", 5.0, role="daemon"),
    Rule("rss", "shims: memory of each, MB", 0.5, role="shim"),
    Rule("descriptors", "shims: descriptors of each", 1.0, role="shim"),
    Rule("rss", "loops: memory of each, MB", 2.0, role="loop"),
    Rule("descriptors", "loops: descriptors of each", 2.0, role="loop"),
    Rule("processes", "processes", 6.0, 0.1),
    Rule("other_files", "files outside of runs and vaults", 10.0),
    Rule("vault_files_per_iteration", "files in vaults per iteration", 0.5, 0.1),
    Rule("bytes_per_event", "bytes per event in events.db", 30.0, 0.1),
    Rule("bytes_per_entry", "bytes per entry of the history", 30.0, 0.1),
    Rule("events_per_entry", "events per entry of the history", 0.1, 0.1),
)
BOUNDS = (
    Bound("most_runs", f"runs of a ralph; {KEPT_RUNS} are kept", KEPT_RUNS + SLACK_RUNS),
    Bound("most_tests", f"runs of tests of a ralph; {KEPT_TESTS} are kept", KEPT_TESTS + 2),
    Bound("runs_bytes", "files of all runs, MB", TOTAL_BYTES + 100 * RUN_BYTES, 1e6),
    Bound("log_bytes", "ralphd.log and its predecessors, MB", 31 << 20, 1e6),
    Bound("most_progress_bytes", "progress.md, MB", (1 << 20) + 1000, 1e6),
    Bound("outbox", "deliveries", 0),
    Bound("daemon_threads", "threads of the daemon, whose pool does not shrink", MOST_THREADS),
    Bound("loop_threads", "threads of a loop, whose pool does not shrink", MOST_LOOP_THREADS),
)


def points(samples: Sequence[Sample], rule: Rule) -> Iterator[Point]:
    """Yield all points of a figure."""
    for sample in samples:
        value = None if rule.role else derived(sample.state).get(rule.name)
        if value is not None:
            yield "", sample.at_s, value
        for process in sample.processes:
            if process.role == rule.role:
                yield process.life, sample.at_s, OF_PROCESS[rule.name](process)


def growth_of(samples: Sequence[Sample], rule: Rule) -> Growth | None:
    """Return the fit after the warm-up; None if no process lived long enough."""
    warm_s = WARM_UP * samples[-1].at_s
    first: dict[object, float] = {}
    for life, at_s, _ in points(samples, rule):
        first.setdefault(life, at_s)
    warm = {life: max(warm_s, at_s + (FIRST_S if rule.role else 0)) for life, at_s in first.items()}
    return fitted(each for each in points(samples, rule) if each[1] >= warm[each[0]])


def rows(samples: Sequence[Sample]) -> Iterator[Row]:
    """Yield the verdict on each figure."""
    for rule in RULES:
        growth = growth_of(samples, rule)
        if growth is None:
            yield Row(rule.label, "no process lived long enough" if rule.role else "not sampled")
            continue
        text = f"{growth.level:.5g}, {growth.per_hour:+.3g} ± {growth.error:.2g} per hour"
        fault = f"{rule.label} grows: {text}" if growth.exceeds(rule.most, rule.share) else ""
        yield Row(rule.label, text, fault)
    for bound in BOUNDS:
        most = max((sample.state.get(bound.name, 0.0) for sample in samples), default=0.0)
        text = f"at most {most / bound.scale:.4g} of {bound.most / bound.scale:.4g}"
        yield Row(bound.label, text, f"{bound.label}: {text}" if most > bound.most else "")


def table(all_rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    width = max(len(row.label) for row in all_rows)
    return "\n".join(
        f"{'FAIL' if row.fault else 'ok':<4}  {row.label:<{width}}  {row.text}" for row in all_rows
    )
