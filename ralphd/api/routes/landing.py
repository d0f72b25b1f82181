"""Routes of the landing queues: what waits to land, and requests to land or to take back."""

import json

from fastapi import Response

from ralphd.api.bodies import LandRequest, UndoLandingRequest
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.api.schemas import LandingView, QueuedView, answers

router = routes("/v1/landing", "landing")


@router.get("", responses=answers(LandingView))
async def list_landing(host: TheHost) -> Response:
    """The landing queue of each repository: those that wait first, then the last that ended."""
    return json_bytes(json.dumps({"queues": host.landing.views()}).encode())


@router.post("", status_code=202, responses=answers(QueuedView, 202))
async def land_branch(host: TheHost, asked: LandRequest) -> Response:
    """Queue the branch of a ralph to land. Answers at once; the event stream says when it has landed.

    With `pr` it is only pushed to the remote, for a pull request.

    Refused (409, `not-landable`) where nothing is to land, and (422, `configuration`) where the target has no
    tests.
    """
    return json_bytes(await host.land(asked.ralph, asked.branch, publishes=asked.pr), 202)


@router.post("/undo", status_code=202, responses=answers(QueuedView, 202))
async def undo_landing(host: TheHost, asked: UndoLandingRequest) -> Response:
    """Queue the revert of a landing of the ralph's repository: the last one, or that of `number`."""
    return json_bytes(await host.undo_landing(asked.ralph, asked.number), 202)
