"""What a run reports to its Regent, and why the Regent did what it did."""

import hashlib
import json
from typing import Annotated

from fastapi import Body, Request, Response

from ralphd.api.bodies import RalphName
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.api.door import check_reporter
from ralphd.api.report_models import ReportBody, in_core
from ralphd.api.schemas import ExplanationView, ReportAnswerView, answers
from ralphd.core.supervision.model import RunId

router = routes("/v1/ralphs", "reports")


@router.post("/{name}/reports", responses=answers(ReportAnswerView))
async def report(
    request: Request, host: TheHost, name: RalphName, body: Annotated[ReportBody, Body()]
) -> Response:
    """What a run tells its Regent. Acted upon once: sent again under the same id it gets the same answer.

    The run that reports is named by `run_id`, the `RALPH_RUN_ID` of its environment. A report of another run
    than the one that lives, or a second one under a used id, is refused (409, `stale-report`). So is one from
    a process that does not belong to that run (403, `forbidden`).
    """
    check_reporter(request, body.run_id)
    answer = await host.report(name, RunId(body.run_id), body.id, digest_of(body), in_core(body))
    return json_bytes(json.dumps(answer).encode())


@router.get("/{name}/explain", responses=answers(ExplanationView))
async def explain(host: TheHost, name: RalphName) -> Response:
    """Why the last thing was done to a ralph: the rule, the figures that were seen, what was missing."""
    return json_bytes(json.dumps(await host.explain(name)).encode())


def digest_of(body: ReportBody) -> str:
    """Return what distinguishes this report from another one under the same id.

    Defaults are no part of it, so that a field of a later version changes no digest of an earlier one.
    """
    content = body.model_dump(mode="json", exclude_defaults=True)
    whole = json.dumps({"kind": body.kind, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()
