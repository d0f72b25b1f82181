"""What a run tells its Regent, and why its Regent did what it did."""

import hashlib
import json
from typing import Annotated, assert_never

from fastapi import APIRouter, Body, Response

from ralphd.api.context import NO_QUERY, TheHost, json_bytes
from ralphd.api.report_models import (
    ANSWER,
    EXPLANATION,
    AgentExhaustedReport,
    AgentReturnedReport,
    AttemptFinishedReport,
    CostReport,
    EndingReport,
    HeartbeatReport,
    HelloReport,
    IterationFinishedReport,
    IterationStartedReport,
    ReportBody,
    TaskReport,
    WaitingReport,
)
from ralphd.api.routes.ralphs import RalphName
from ralphd.api.schemas import FAULTS
from ralphd.core.supervision.model import LastWord, ReportedTask, RunId
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Cost,
    CostSource,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    WaitingUntil,
)
from ralphd.core.time import Moment, parse_rfc3339

router = APIRouter(prefix="/v1/ralphs", tags=["reports"], responses=FAULTS)


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
    """What tells this report from another one under the same id; what is left out counts as its default.

    Defaults are no part of it, so that a field of a later version changes no digest of an earlier one.
    """
    content = said.model_dump(mode="json", exclude_defaults=True)
    whole = json.dumps({"kind": said.kind, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()


def in_core(said: ReportBody) -> Report:
    """The same in the words of the core."""
    match said:
        case HelloReport():
            return Hello(said.signals, said.agent)
        case IterationStartedReport():
            return IterationStarted(said.iteration, _task(said.task), said.agent, said.head, said.branch)
        case AttemptFinishedReport():
            return _attempt(said)
        case IterationFinishedReport():
            return IterationFinished(
                number=said.iteration,
                failed=said.failed,
                summary=said.summary,
                task=_task(said.task),
                complete=said.complete,
                commits=tuple(said.commits),
                ended_at=_moment(said.ended_at),
                waits=said.wait,
            )
        case WaitingReport():
            return WaitingUntil(_moment(said.until), said.reason)
        case CostReport():
            return Cost(said.usd)
        case AgentExhaustedReport():
            return AgentExhausted(said.agent, said.reason, _moment(said.until))
        case AgentReturnedReport():
            return AgentReturned(said.agent)
        case EndingReport():
            return LastWord(said.code, said.reason, said.why, _moment(said.resume_at))
        case HeartbeatReport():
            return Heartbeat()
        case _:
            assert_never(said)


def _attempt(said: AttemptFinishedReport) -> AttemptFinished:
    return AttemptFinished(
        agent=said.agent,
        outcome=said.outcome,
        kind=said.failure_kind,
        code=said.exit_code,
        cost_usd=said.cost_usd,
        duration_s=said.duration_s,
        iteration=said.iteration,
        task=_task(said.task),
        attempt=said.attempt,
        phase=said.phase,
        rule=said.rule,
        why=said.why,
        cost_source=None if said.cost_source is None else CostSource(said.cost_source),
        tokens_in=said.tokens_in,
        tokens_out=said.tokens_out,
        model=said.model,
        session=said.session,
        reset_at=_moment(said.reset_at),
        commits=said.commits,
        next=said.next,
        ended_at=_moment(said.ended_at),
    )


def _task(said: TaskReport | None) -> ReportedTask | None:
    return None if said is None else ReportedTask(said.id, said.title)


def _moment(text: str | None) -> Moment | None:
    return None if text is None else parse_rfc3339(text)
