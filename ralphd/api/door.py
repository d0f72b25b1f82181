"""The door of the socket: refuse what a supervised run may not request, and record who requested the rest."""

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ralphd.api.errors import problem
from ralphd.core.supervision.door import REPORT, Caller, requested
from ralphd.core.text import one_line
from ralphd.daemon.ralph.callers import REQUESTED_BY
from ralphd.errors import Forbidden, WithinRun
from ralphd.wire import DEVICE_HEADER

if TYPE_CHECKING:
    from ralphd.daemon.host import Host

_DEVICE_CHARS = 40


class Door:
    """Puts ``caller`` into the state of each request that would change something, or refuses it (A3, A4)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        asked = requested(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if asked is None:
            await self._app(scope, receive, send)
            return
        host: Host = scope["app"].state.host
        caller = replace(host.callers.caller(scope["state"]["peer"]), device=_device(scope))
        if not host.callers.permits(caller, asked):
            await host.callers.refuse(caller, asked)
            await problem(WithinRun())(scope, receive, send)
            return
        scope["state"]["caller"] = caller
        status = 500

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            host.forget_status()
            await send(message)

        if asked.action != REPORT:  # uvicorn serves each request in a task, hence in a context, of its own
            REQUESTED_BY.set(caller)
        await self._app(scope, receive, watched)
        if status < 300 and asked.action != REPORT:
            await host.callers.record(caller, asked)


def _device(scope: Scope) -> str:
    """Return the device that the page sends a request for; any process of the user could name one."""
    given = dict(scope["headers"]).get(DEVICE_HEADER.lower().encode(), b"")
    return one_line(unquote(given.decode("latin-1")), _DEVICE_CHARS).replace('"', "'")


def check_reporter(request: Request, run_id: str) -> None:
    """Raise Forbidden unless a process of the run ``run_id`` sent the request."""
    caller: Caller = request.scope["state"]["caller"]
    if caller.run_id != run_id:
        why = f"pid {caller.pid}, which sent it, does not belong to that run"
        mend = "report from the script that the ralph runs"
        raise Forbidden(f"the report for {run_id} is refused", why=why, mend=mend)
