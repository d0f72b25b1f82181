"""Routes of the daemon itself."""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Response

from ralphd.api.context import NO_QUERY, TheHost, json_bytes
from ralphd.api.models import NoFields, ShutdownRequest, ViewQuery
from ralphd.api.views import DAEMON, FAULTS, HEALTH, READY, RELOADED, STATUS, change_object
from ralphd.errors import ConfigFaults, DaemonBusy, ShuttingDown

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
