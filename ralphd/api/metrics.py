"""The daemon and every ralph as Prometheus metrics.

Imported at the first ``GET /metrics``, so that a daemon that nobody scrapes does not load the library.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ralphd.daemon.measures import Sample

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


def metrics_text(samples: "Iterable[Sample]") -> bytes:
    """Return all metrics in the text format, version 0.0.4."""
    return generate_latest(_Collected([*samples]))


@dataclass(frozen=True)
class _Collected(Collector):
    samples: "list[Sample]"

    def collect(self) -> Iterator[Metric]:
        """Yield every family, those without samples too."""
        for name, text in HELP.items():
            family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text)
            for of, labels, value in self.samples:
                if of == name and value is not None:
                    family.add_sample(name, labels, value)
            yield family
