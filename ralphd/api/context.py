"""What routes share: the host behind them, streams, and replies that are bytes already."""

import json
from collections.abc import AsyncGenerator
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Depends, Request, Response

from ralphd.api.schemas import FAULTS
from ralphd.api.streams import StreamReply, Turnstile
from ralphd.errors import UsageError

if TYPE_CHECKING:  # the daemon is not loaded for a name
    from ralphd.daemon.host import Host


def routes(prefix: str, tag: str) -> APIRouter:
    """Return a router whose operations are named after their functions."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        responses=FAULTS,
        generate_unique_id_function=attrgetter("name"),
    )


async def the_host(request: Request) -> "Host":
    """Return the host that the application was made for.

    Refuses query parameters where none are known: ``stop?now=1`` must not pass for ``{"now": true}``.
    """
    if request.scope["query_string"] and not request.scope["route"].dependant.query_params:
        mend = "GET /openapi.json lists what it takes in its body"
        raise UsageError(f"{request.url.path} takes no query parameters", mend=mend)
    return cast("Host", request.app.state.host)


TheHost: TypeAlias = Annotated["Host", Depends(the_host)]


def json_bytes(body: bytes, status: int = 200) -> Response:
    """Return a reply whose JSON is made already."""
    return Response(body, status, media_type="application/json")


def json_reply(content: object, status: int = 200) -> Response:
    """Return a reply that may hold texts of any origin: what is not Unicode becomes question marks."""
    return json_bytes(json.dumps(content, ensure_ascii=False).encode(errors="replace"), status)


def stream_reply(request: Request, pieces: AsyncGenerator[bytes, None], media_type: str) -> StreamReply:
    """Return a reply that continues until ``pieces`` ends, the client leaves, or the daemon stops."""
    state: Any = request.app.state
    turnstile: Turnstile = state.turnstile
    return StreamReply(pieces, media_type=media_type, stopping=state.host.stopping, turnstile=turnstile)
