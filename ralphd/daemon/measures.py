"""The figures behind ``/metrics``, gathered from memory: no ralph's files are read for them."""

import resource
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ralphd.core.supervision.model import HAS_A_RUN
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
