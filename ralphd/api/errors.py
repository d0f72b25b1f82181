"""Turn errors into problem documents (RFC 9457): the only place where an error becomes a status."""

import json
import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ralphd.api.bodies import known_fields
from ralphd.api.report_models import ORIGINS
from ralphd.errors import PROBLEM_PREFIX, InternalError, NotFound, RalphdError, UsageError

MEDIA_TYPE = "application/problem+json"
logger = logging.getLogger(__name__)


def problem(
    error: RalphdError, *, status: int | None = None, faults: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:  # fmt: skip
    """Return the reply for ``error``; ``status`` overrides the one of its class."""
    code = status or error.status
    document: dict[str, object] = {
        "type": PROBLEM_PREFIX + error.slug,
        "title": (type(error).__doc__ or "").partition("\n")[0].rstrip("."),
        "status": code,
        "detail": error.what,
        "why": error.why,
        "try": error.mend,
    }
    if faults:
        document["errors"] = list(faults)
    return Response(json.dumps(document), code, headers, MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Register the handlers that answer every error of a route with a problem document."""
    app.add_exception_handler(RalphdError, _on_ralphd_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_exception)


class LastResort:
    """Answers a bug with a problem document, and logs it once with its traceback.

    After the first byte of a reply the error is raised instead, and the server cuts the connection, so that
    no client takes half a reply for a whole one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if started:
                raise
            logger.exception("request failed: %s %s", scope.get("method"), scope.get("path"))
            why = "this is a bug; the daemon and all runs continue"
            mend = "ralphctl regent logs    (it holds the traceback)"
            bug = InternalError("the daemon made a mistake with this request", why=why, mend=mend)
            await problem(bug)(scope, receive, send)


async def _on_ralphd_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RalphdError)
    return problem(error)


async def _on_invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_fault(item) for item in error.errors()]
    count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
    why = "\n".join(f"{fault['where']}: {fault['what']}" for fault in faults)
    mend = "GET /openapi.json lists what each route takes"
    return problem(UsageError(f"the request has {count}", why=why, mend=mend), faults=faults)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        return problem(NotFound(f"no such route: {asked}", mend="GET /openapi.json lists the routes"))
    if error.status_code == 405:
        here = [each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE]
        allowed = ", ".join(sorted(method for each in here for method in each.methods))
        wrong = UsageError(f"no such method here: {asked}", mend=f"use {allowed}")
        return problem(wrong, status=405, headers={"allow": allowed})
    return problem(UsageError(str(error.detail)), status=error.status_code, headers=error.headers)


def _fault(item: Mapping[str, Any]) -> dict[str, str]:
    # What was sent is never repeated: it may hold a secret.
    where, field = ".".join(str(part) for part in item["loc"]), str(item["loc"][-1])
    if item["type"] == "missing" and field in ORIGINS:
        return {"where": where, "what": ORIGINS[field]}
    if item["type"] != "extra_forbidden":
        return {"where": where, "what": str(item["msg"])}
    near = get_close_matches(field, known_fields(), n=1)
    return {"where": where, "what": "unknown field" + (f", did you mean {near[0]}?" if near else "")}
