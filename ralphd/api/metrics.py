"""The daemon and every ralph as Prometheus metrics.

Imported at the first ``GET /metrics``, so that a daemon that nobody scrapes does not load the library.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ralphd.wire import EVENT_TYPES, STATES

if TYPE_CHECKING:
    from ralphd.daemon.measures import Measures

Sample = tuple[Mapping[str, str], float]
OUTCOMES = ("delivered", "failed", "given_up")
PER_RALPH = (
    ("ralphd_ralph_up", "has_a_run", "Whether a run lives."),
    ("ralphd_ralph_restarts_total", "restarts", "Restarts after failures."),
    ("ralphd_ralph_consecutive_errors", "consecutive_errors", "Failures in a row."),
    ("ralphd_ralph_iterations_total", "iterations", "Iterations that were finished."),
    ("ralphd_ralph_cost_usd_total", "cost_usd", "What the agents cost, as far as reported."),
    (
        *("ralphd_ralph_last_output_age_seconds", "last_output_age_s"),
        "Time since the last output; 8 s behind at most.",
    ),
    ("ralphd_ralph_config_drifted", "drifted", "Whether its files differ from what is pinned."),
)
"""Name, field of RalphMeasures, and help. A ralph of which the field is None has no sample."""


def metrics_text(measures: "Measures") -> bytes:
    """Return all metrics in the text format, version 0.0.4."""
    return generate_latest(_Collected(measures))


@dataclass(frozen=True)
class _Collected(Collector):
    measures: "Measures"

    def collect(self) -> Iterator[Metric]:
        """Yield every family, those without samples too."""
        each = self.measures
        yield _one("ralphd_uptime_seconds", "Time since the daemon's start.", each.uptime_s)
        yield _one("ralphd_cpu_seconds_total", "Processor time of the daemon.", each.cpu_s)
        yield _one("ralphd_resident_memory_bytes", "Resident memory of the daemon.", each.rss_bytes)
        yield _one("ralphd_open_fds", "Files that the daemon holds open.", each.open_files)
        yield _one("ralphd_max_fds", "How many files it may hold open.", each.most_open_files)
        yield _one("ralphd_problems", "What is wrong with the daemon now; see health.", each.problems)
        yield _family(
            *("ralphd_events_total", "Events told since the daemon's start."),
            [({"type": kind}, each.events.get(kind, 0)) for kind in EVENT_TYPES],
        )
        yield _one(
            *("ralphd_deliveries_pending", "Messages that wait for their webhook."), each.pending_deliveries
        )
        yield _family(
            *("ralphd_deliveries_total", "Tries to deliver since the daemon's start, by what came of it."),
            [({"outcome": outcome}, each.deliveries.get(outcome, 0)) for outcome in OUTCOMES],
        )
        yield from self._of_ralphs()

    def _of_ralphs(self) -> Iterator[Metric]:
        ralphs = self.measures.ralphs
        by_state = Counter(each.state for each in ralphs)
        states = [({"state": state}, by_state[state]) for state in STATES]
        yield _family("ralphd_ralphs", "Ralphs by state.", states)
        yield _family(
            *("ralphd_ralph_state", "1 for the state that a ralph is in."),
            [({"ralph": each.name, "state": each.state}, 1) for each in ralphs],
        )
        for name, field, text in PER_RALPH:
            values = [({"ralph": each.name}, getattr(each, field)) for each in ralphs]
            yield _family(name, text, [sample for sample in values if sample[1] is not None])
        yield _family(
            *("ralphd_ralph_wait_seconds", "What is left of a wait."),
            [
                ({"ralph": each.name, "reason": each.waits_for}, each.wait_s)
                for each in ralphs
                if each.wait_s is not None
            ],
        )


def _one(name: str, text: str, value: float) -> Metric:
    return _family(name, text, [({}, value)])


def _family(name: str, text: str, samples: Iterable[Sample]) -> Metric:
    """Make a counter of what ends in ``_total``, a gauge of all else."""
    family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text)
    for labels, value in samples:
        family.add_sample(name, dict(labels), value)
    return family
