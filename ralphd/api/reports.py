"""What a run tells its Regent, and why its Regent did what it did."""

import hashlib
import json
from typing import Annotated, assert_never

from fastapi import APIRouter, Body, Response

from ralphd.api.context import NO_QUERY, TheHost, json_bytes
from ralphd.api.ralphs import RalphName
from ralphd.api.report_models import (
    ANSWER,
    EXPLANATION,
    AttemptFinishedReport,
    CostReport,
    HeartbeatReport,
    HelloReport,
    IterationFinishedReport,
    IterationStartedReport,
    ReportBody,
    WaitingReport,
)
from ralphd.core.model import RunId, Task
from ralphd.core.moments import parse_rfc3339
from ralphd.core.reports import (
    AttemptFinished,
    Cost,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    WaitingUntil,
)

router = APIRouter(prefix="/v1/ralphs", tags=["reports"])


@router.post(
    "/{name}/reports",
    operation_id="report",
    responses={200: ANSWER},
    dependencies=[NO_QUERY],
)
async def report(host: TheHost, name: RalphName, said: Annotated[ReportBody, Body()]) -> Response:
    """What a run tells its Regent. Acted upon once: sent again under the same id it gets the same answer.

    The run that reports is named by `run_id`, the `RALPH_RUN_ID` of its environment. A report of another run
    than the one that lives, or a second one under a used id, is refused (409, `stale-report`).
    """
    answer = await host.report(name, RunId(said.run_id), said.id, digest_of(said), in_core(said))
    return json_bytes(json.dumps(answer).encode())


@router.get("/{name}/explain", operation_id="explain", responses={200: EXPLANATION}, dependencies=[NO_QUERY])
async def explain(host: TheHost, name: RalphName) -> Response:
    """Why the last thing was done to a ralph: the rule, the figures that were seen, what was missing."""
    return json_bytes(json.dumps(await host.explain(name)).encode())


def digest_of(said: ReportBody) -> str:
    """What tells this report from another one under the same id; defaults count as said."""
    whole = json.dumps(said.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()


def in_core(said: ReportBody) -> Report:
    """The same in the words of the core."""
    match said:
        case HelloReport():
            return Hello(said.signals, said.agent)
        case IterationStartedReport(task=task):
            working_on = None if task is None else Task(task.id, task.title)
            return IterationStarted(said.iteration, working_on, said.agent)
        case AttemptFinishedReport():
            return AttemptFinished(
                agent=said.agent,
                outcome=said.outcome,
                kind=said.failure_kind,
                code=said.exit_code,
                cost_usd=said.cost_usd,
                duration_s=said.duration_s,
            )
        case IterationFinishedReport():
            return IterationFinished(said.iteration, said.failed, said.summary)
        case WaitingReport(until=until):
            return WaitingUntil(None if until is None else parse_rfc3339(until), said.reason)
        case CostReport():
            return Cost(said.usd)
        case HeartbeatReport():
            return Heartbeat()
        case _:
            assert_never(said)
