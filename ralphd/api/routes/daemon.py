"""``GET /metrics``: what Prometheus scrapes, in its text format (version 0.0.4).

Written by hand: the format is a line a value, and a library for it would cost every daemon its import.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query, Response

from ralphd.api.context import NO_QUERY, TheHost, json_bytes
from ralphd.api.schemas import (
    DAEMON,
    FAULTS,
    HEALTH,
    READY,
    RELOADED,
    STATUS,
    NoFields,
    ShutdownRequest,
    ViewQuery,
    change_object,
)
from ralphd.daemon.measures import Measures, RalphMeasures
from ralphd.errors import ConfigFaults, DaemonBusy, ShuttingDown
from ralphd.wire import EVENT_TYPES, STATES

# Routes of the daemon itself.

router = APIRouter(prefix="/v1", tags=["daemon"], responses=FAULTS)


@router.get("/status", operation_id="show_status", responses={200: STATUS})
async def show_status(host: TheHost, query: Annotated[ViewQuery, Query()]) -> Response:
    """The daemon and every ralph."""
    return json_bytes(await host.status_bytes(resources=query.resources))


@router.get("/health", operation_id="show_health", responses={200: HEALTH}, dependencies=[NO_QUERY])
async def show_health(host: TheHost) -> Response:
    """Whether the daemon answers, and what is wrong with it if anything is."""
    view = host.daemon_view()
    return json_bytes(json.dumps({"status": view["status"], "problems": view["problems"]}).encode())


@router.get("/ready", operation_id="show_ready", responses={200: READY}, dependencies=[NO_QUERY])
async def show_ready(host: TheHost) -> Response:
    """200 once requests are taken; 503 before, and on the way out."""
    if host.stopping.is_set():
        raise ShuttingDown("the daemon is on its way out", mend="ralphctl regent start")
    if not host.ready:
        raise DaemonBusy(
            "the daemon is not ready yet", why="it reads its state and adopts runs", mend="ask again"
        )
    return json_bytes(b'{"ready":true}')


@router.post(
    "/reload",
    operation_id="reload_daemon",
    responses={200: RELOADED},
    dependencies=[NO_QUERY],
)
async def reload_daemon(host: TheHost, nothing: NoFields | None = None) -> Response:
    """Read the user's own configuration file again, and say what has changed.

    Its webhooks and `logs.total_bytes` hold at once; what it says about ralphs, for each when that is
    reloaded. With faults nothing changes.
    """
    found = host.reload()
    if isinstance(found, ConfigFaults):
        raise found
    changes = [change_object(each) for each in found]
    return json_bytes(json.dumps({"daemon": host.daemon_view(), "changes": changes}).encode())


@router.post(
    "/shutdown",
    status_code=202,
    operation_id="shut_down",
    responses={202: DAEMON},
    dependencies=[NO_QUERY],
)
async def shut_down(host: TheHost, how: ShutdownRequest | None = None) -> Response:
    """End the daemon. Answers at once; the process whose pid is in the reply ends after."""
    view = json.dumps(host.daemon_view()).encode()
    await host.shutdown(how.runs if how else "finish")
    return json_bytes(view, 202)


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS: dict[str, Any] = {
    "description": "The Prometheus text format.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
DELIVERED, FAILED, GIVEN_UP = "delivered", "failed", "given_up"

Sample: TypeAlias = tuple[Mapping[str, str], float]

metrics_router = APIRouter(tags=["daemon"], responses=FAULTS)


@metrics_router.get(
    "/metrics",
    operation_id="show_metrics",
    responses={200: METRICS},
    response_class=Response,
    dependencies=[NO_QUERY],
)
async def show_metrics(host: TheHost) -> Response:
    """The daemon and every ralph as Prometheus metrics. Reads no ralph's files, so it may be asked often."""
    return Response(metrics_text(host.measures()), media_type=MEDIA_TYPE)


def metrics_text(found: Measures) -> str:
    """All metrics, each with its HELP and TYPE."""
    families = [*_daemon(found), *_ralphs(found.ralphs)]
    return "".join(line for family in families for line in family)


def _daemon(found: Measures) -> Iterator[Iterator[str]]:
    yield _one("ralphd_uptime_seconds", "gauge", "Time since the daemon's start.", found.uptime_s)
    yield _one("ralphd_cpu_seconds_total", "counter", "Processor time of the daemon.", found.cpu_s)
    yield _one("ralphd_resident_memory_bytes", "gauge", "Resident memory of the daemon.", found.rss_bytes)
    yield _one("ralphd_open_fds", "gauge", "Files that the daemon holds open.", found.open_files)
    yield _one("ralphd_max_fds", "gauge", "How many files it may hold open.", found.most_open_files)
    yield _one("ralphd_problems", "gauge", "What is wrong with the daemon now; see health.", found.problems)
    yield _family(
        *("ralphd_events_total", "counter", "Events told since the daemon's start."),
        [({"type": kind}, found.events.get(kind, 0)) for kind in EVENT_TYPES],
    )
    yield _one(
        *("ralphd_deliveries_pending", "gauge", "Messages that wait for their webhook."),
        found.pending_deliveries,
    )
    yield _family(
        *(
            "ralphd_deliveries_total",
            "counter",
            "Tries to deliver since the daemon's start, by what came of it.",
        ),
        [({"outcome": each}, found.deliveries.get(each, 0)) for each in (DELIVERED, FAILED, GIVEN_UP)],
    )


def _ralphs(ralphs: tuple[RalphMeasures, ...]) -> Iterator[Iterator[str]]:
    by_state = Counter(each.state for each in ralphs)
    yield _family(
        *("ralphd_ralphs", "gauge", "Ralphs by state."),
        [({"state": state}, by_state[state]) for state in STATES],
    )
    yield _family(
        *("ralphd_ralph_state", "gauge", "1 for the state that a ralph is in."),
        [({"ralph": each.name, "state": each.state}, 1) for each in ralphs],
    )
    for name, kind, help_text, field in PER_RALPH:
        values = [({"ralph": each.name}, getattr(each, field)) for each in ralphs]
        yield _family(name, kind, help_text, [sample for sample in values if sample[1] is not None])
    waits = [
        ({"ralph": each.name, "reason": each.waits_for}, each.wait_s)
        for each in ralphs
        if each.wait_s is not None
    ]
    yield _family("ralphd_ralph_wait_seconds", "gauge", "What is left of a wait.", waits)


PER_RALPH = (
    ("ralphd_ralph_up", "gauge", "Whether a run lives.", "has_a_run"),
    ("ralphd_ralph_restarts_total", "counter", "Restarts after failures.", "restarts"),
    ("ralphd_ralph_consecutive_errors", "gauge", "Failures in a row.", "consecutive_errors"),
    ("ralphd_ralph_iterations_total", "counter", "Iterations that were finished.", "iterations"),
    ("ralphd_ralph_cost_usd_total", "counter", "What the agents cost, as far as reported.", "cost_usd"),
    (
        *("ralphd_ralph_last_output_age_seconds", "gauge"),
        *("Time since the last output; 8 s behind at most.", "last_output_age_s"),
    ),
    ("ralphd_ralph_config_drifted", "gauge", "Whether its files differ from what is pinned.", "drifted"),
)
"""Name, type, help, and the field of RalphMeasures. No sample where that is None."""


def _one(name: str, kind: str, help_text: str, value: float) -> Iterator[str]:
    return _family(name, kind, help_text, [({}, value)])


def _family(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {_number(value)}\n" if inside else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(int(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


router.routes.extend(metrics_router.routes)
