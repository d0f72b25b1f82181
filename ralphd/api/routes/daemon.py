"""Routes of the daemon itself."""

import json
from typing import Annotated

from fastapi import Query, Response

from ralphd.api import bodies, schemas
from ralphd.api.context import TheHost, json_bytes, routes
from ralphd.errors import ConfigFaults, DaemonBusy, ShuttingDown

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
router = routes("", "daemon")


@router.get("/v1/status", responses=schemas.answers(schemas.StatusView))
async def show_status(host: TheHost, query: Annotated[bodies.ViewQuery, Query()]) -> Response:
    """The daemon and every ralph."""
    return json_bytes(await host.status_bytes(resources=query.resources))


@router.get("/v1/health", responses=schemas.answers(schemas.HealthView))
async def show_health(host: TheHost) -> Response:
    """Whether the daemon answers, and what is wrong with it if anything is."""
    view = host.daemon_view()
    return json_bytes(json.dumps({"status": view["status"], "problems": view["problems"]}).encode())


@router.get("/v1/ready", responses=schemas.answers(schemas.ReadyView))
async def show_ready(host: TheHost) -> Response:
    """200 once requests are taken; 503 before, and on the way out."""
    if host.stopping.is_set():
        raise ShuttingDown("the daemon is on its way out", mend="ralphctl regent start")
    if not host.ready:
        why = "it reads its state and adopts runs"
        raise DaemonBusy("the daemon is not ready yet", why=why, mend="ask again")
    return json_bytes(b'{"ready":true}')


@router.post("/v1/reload", responses=schemas.answers(schemas.ReloadedView))
async def reload_daemon(host: TheHost, nothing: bodies.NoFields | None = None) -> Response:
    """Read the user's own configuration file again, and say what has changed.

    Its webhooks and `logs.total_bytes` hold at once; what it says about ralphs, for each when that is
    reloaded. With faults nothing changes.
    """
    result = host.reload()
    if isinstance(result, ConfigFaults):
        raise result
    changes = [schemas.change_object(each) for each in result]
    return json_bytes(json.dumps({"daemon": host.daemon_view(), "changes": changes}).encode())


@router.post("/v1/shutdown", status_code=202, responses=schemas.answers(schemas.DaemonView, 202))
async def shut_down(host: TheHost, how: bodies.ShutdownRequest | None = None) -> Response:
    """End the daemon. Answers at once; the process whose pid is in the reply ends after."""
    view = json.dumps(host.daemon_view()).encode()
    await host.shutdown(how.runs if how else "finish")
    return json_bytes(view, 202)


@router.get("/metrics", responses={200: schemas.METRICS}, response_class=Response)
async def show_metrics(host: TheHost) -> Response:
    """The daemon and every ralph as Prometheus metrics. Reads no ralph's files, so it may be asked often."""
    return Response(host.metrics(), media_type=METRICS_TYPE)
