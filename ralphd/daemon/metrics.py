"""The daemon and every ralph as Prometheus metrics, gathered from memory: no ralph's files are read for them.

Imported at the first ``GET /metrics``, so that a daemon that nobody scrapes does not load the library.
"""

import resource
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ralphd.core.supervision.model import HAS_A_RUN
from ralphd.dataclass import dataclass
from ralphd.store.state import shown_state
from ralphd.wire import EVENT_TYPES, STATES

if TYPE_CHECKING:
    from ralphd.core.time import Moment
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services
    from ralphd.store.events import EventStore

Sample: TypeAlias = tuple[str, dict[str, str], float | None]
"""The name of a metric, its labels, and its value; None where there is none."""
OUTCOMES = ("delivered", "failed", "given_up")
HELP = {
    "ralphd_uptime_seconds": "Time since the daemon's start.",
    "ralphd_cpu_seconds_total": "Processor time of the daemon.",
    "ralphd_resident_memory_bytes": "Resident memory of the daemon.",
    "ralphd_open_fds": "Files that the daemon holds open.",
    "ralphd_max_fds": "How many files it may hold open.",
    "ralphd_problems": "What is wrong with the daemon now; see health.",
    "ralphd_events_total": "Events told since the daemon's start.",
    "ralphd_deliveries_pending": "Messages that wait for their webhook.",
    "ralphd_deliveries_total": "Tries to deliver since the daemon's start, by what came of it.",
    "ralphd_ralphs": "Ralphs by state.",
    "ralphd_ralph_state": "1 for the state that a ralph is in.",
    "ralphd_ralph_up": "Whether a run lives.",
    "ralphd_ralph_restarts_total": "Restarts after failures.",
    "ralphd_ralph_consecutive_errors": "Failures in a row.",
    "ralphd_ralph_iterations_total": "Iterations that were finished.",
    "ralphd_ralph_cost_usd_total": "What the agents cost, as far as reported.",
    "ralphd_ralph_last_output_age_seconds": "Time since the last output; 8 s behind at most.",
    "ralphd_ralph_config_drifted": "Whether its files differ from what is pinned.",
    "ralphd_ralph_wait_seconds": "What is left of a wait.",
}
"""Each metric with its help: a counter if its name ends in ``_total``, else a gauge."""


def metrics_text(samples: Iterable[Sample]) -> bytes:
    """Return all metrics in the text format, version 0.0.4."""
    return generate_latest(_Collected([*samples]))


@dataclass(frozen=True)
class _Collected(Collector):
    samples: list[Sample]

    def collect(self) -> Iterator[Metric]:
        """Yield every family, those without samples too."""
        for name, text in HELP.items():
            family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text)
            for of, labels, value in self.samples:
                if of == name and value is not None:
                    family.add_sample(name, labels, value)
            yield family


def measured(
    regents: Iterable["Regent"], services: "Services", events: "EventStore", started_at: "Moment"
) -> Iterator[Sample]:
    """Yield the present figures of the daemon and of every ralph. Counts are since the daemon's start."""
    now, pages = services.clock.now(), Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    yield "ralphd_uptime_seconds", {}, max(0.0, now - started_at)
    yield "ralphd_cpu_seconds_total", {}, time.process_time()
    yield "ralphd_resident_memory_bytes", {}, int(pages) * resource.getpagesize()
    yield "ralphd_open_fds", {}, len([*Path("/proc/self/fd").iterdir()]) - 1  # that of the listing itself
    yield "ralphd_max_fds", {}, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "ralphd_problems", {}, len(services.problems())
    yield "ralphd_deliveries_pending", {}, events.pending
    for kind in EVENT_TYPES:
        yield "ralphd_events_total", {"type": kind}, services.news.told[kind]
    for outcome in OUTCOMES:
        yield "ralphd_deliveries_total", {"outcome": outcome}, events.counted[outcome]
    states: Counter[str] = Counter()
    for regent in regents:
        account = regent.account
        state = shown_state(account.supervision, own_loop=account.policy.own_loop)
        states[state] += 1
        yield "ralphd_ralph_state", {"ralph": regent.name, "state": state}, 1
        yield from _of_ralph(regent, now)
    for state in STATES:
        yield "ralphd_ralphs", {"state": state}, states[state]


def _of_ralph(regent: "Regent", now: "Moment") -> Iterator[Sample]:
    supervision, output_at = regent.account.supervision, regent.account.facts.last_output_at
    ralph, tally, wait = {"ralph": regent.name}, supervision.tally, supervision.wait
    yield "ralphd_ralph_up", ralph, isinstance(supervision.state, HAS_A_RUN)
    yield "ralphd_ralph_restarts_total", ralph, tally.restarts
    yield "ralphd_ralph_consecutive_errors", ralph, tally.consecutive_errors
    yield "ralphd_ralph_iterations_total", ralph, tally.iteration
    yield "ralphd_ralph_cost_usd_total", ralph, tally.cost_usd
    age_s = None if output_at is None else max(0.0, now - output_at)
    yield "ralphd_ralph_last_output_age_seconds", ralph, age_s
    yield "ralphd_ralph_config_drifted", ralph, bool(regent.account.drift)
    if wait is not None:
        yield "ralphd_ralph_wait_seconds", {**ralph, "reason": wait.reason}, max(0.0, wait.until - now)
