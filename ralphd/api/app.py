"""The API as one ASGI application over a host."""

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from starlette.middleware import Middleware

import ralphd
from ralphd.api.context import json_reply
from ralphd.api.door import Door
from ralphd.api.errors import LastResort, add_handlers
from ralphd.api.limits import RequestLimits
from ralphd.api.routes import daemon, events, fleet, landing, logs, quota, ralphs, reports, trees, webhooks
from ralphd.api.schemas import Problem
from ralphd.api.streams import Turnstile

if TYPE_CHECKING:
    from ralphd.daemon.host import Host


class Api(FastAPI):
    """FastAPI whose schema knows what a problem document is."""

    def openapi(self) -> dict[str, Any]:
        """The schema at ``/openapi.json``, made at the first request for it, within a second."""
        schema = super().openapi()
        schema["components"]["schemas"].setdefault("Problem", Problem.model_json_schema(by_alias=True))
        return schema


async def _openapi(request: Request) -> Response:
    # In a thread: no other client waits while it is made.
    return json_reply(await asyncio.to_thread(request.app.openapi))


def create_app(host: "Host") -> Api:
    """Every route, over ``host``. Served by ``ralphd.api.server.ApiServer``, which says who calls."""
    app = Api(
        title="ralphd",
        summary="The Regent: supervises unattended coding-agent loops.",
        version=ralphd.__version__,
        openapi_url=None,
        redirect_slashes=False,
        # In full: OTEL_* variables of an agent's environment must not make the daemon export traces.
        telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False,
                   "operation_spans": False},
        middleware=[Middleware(LastResort), Middleware(RequestLimits), Middleware(Door)],
    )  # fmt: skip
    app.state.host = host
    app.state.turnstile = Turnstile()
    add_handlers(app)
    app.add_route("/openapi.json", _openapi, include_in_schema=False)
    for routes in (daemon, ralphs, trees, reports, logs, events, landing, fleet, quota, webhooks):
        app.router.routes.extend(routes.router.routes)  # as they are: include_router would build each again
    return app
