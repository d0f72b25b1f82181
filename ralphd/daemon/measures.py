"""The figures behind ``/metrics``, gathered from memory: no ralph's files are read for them."""

import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd.core.supervision.model import HAS_A_RUN
from ralphd.store.state import shown_state

if TYPE_CHECKING:
    from ralphd.core.time import Moment
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services
    from ralphd.store.events import EventStore


@dataclass(frozen=True, slots=True)
class RalphMeasures:
    """One ralph. Ages and waits in seconds, None where there is none; ``waits_for`` says what for."""

    name: str
    state: str
    has_a_run: bool
    restarts: int
    consecutive_errors: int
    iterations: int
    cost_usd: float
    last_output_age_s: float | None
    wait_s: float | None
    waits_for: str
    drifted: bool


@dataclass(frozen=True, slots=True)
class Measures:
    """The daemon and its ralphs. Counts of events and deliveries are since its start."""

    uptime_s: float
    cpu_s: float
    rss_bytes: int
    open_files: int
    most_open_files: int
    problems: int
    events: Mapping[str, int]
    deliveries: Mapping[str, int]
    pending_deliveries: int
    ralphs: tuple[RalphMeasures, ...]


def measured(
    regents: Iterable["Regent"], services: "Services", events: "EventStore", started_at: "Moment"
) -> Measures:
    """Return the present figures of the daemon and of every ralph."""
    now = services.clock.now()
    return Measures(
        uptime_s=max(0.0, now - started_at),
        cpu_s=time.process_time(),
        rss_bytes=_resident_bytes(),
        open_files=sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1,  # that of the listing itself
        most_open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        problems=len(services.problems()),
        events=dict(services.news.told),
        deliveries=dict(events.counted),
        pending_deliveries=events.pending,
        ralphs=tuple(_of_ralph(regent, now) for regent in regents),
    )


def _of_ralph(regent: "Regent", now: "Moment") -> RalphMeasures:
    account = regent.account
    supervision, facts = account.supervision, account.facts
    output_at, wait = facts.last_output_at, supervision.wait
    return RalphMeasures(
        name=regent.name,
        state=shown_state(supervision, own_loop=account.policy.own_loop),
        has_a_run=isinstance(supervision.state, HAS_A_RUN),
        restarts=supervision.tally.restarts,
        consecutive_errors=supervision.tally.consecutive_errors,
        iterations=supervision.tally.iteration,
        cost_usd=supervision.tally.cost_usd,
        last_output_age_s=None if output_at is None else max(0.0, now - output_at),
        wait_s=None if wait is None else max(0.0, wait.until - now),
        waits_for="" if wait is None else wait.reason,
        drifted=bool(account.drift),
    )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
