"""What routes share: the host behind them, the streams they may open, and replies that are bytes already."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastapi import Depends, Request, Response

from ralphd.api.streams import StreamReply, Turnstile
from ralphd.errors import UsageError

if TYPE_CHECKING:  # routes are handed a host; they need not load the daemon to name its type
    from ralphd.daemon.host import Host


async def the_host(request: Request) -> "Host":
    """The host that the application was made for."""
    host: Host = request.app.state.host
    return host


async def no_query(request: Request) -> None:
    """Refuse query parameters where none are known: ``stop?now=1`` must not pass for ``{"now": true}``."""
    if request.scope["query_string"]:
        raise UsageError(
            f"{request.url.path} takes no query parameters",
            mend="GET /openapi.json lists what it takes in its body",
        )


TheHost: TypeAlias = Annotated["Host", Depends(the_host)]
NO_QUERY = Depends(no_query)


def json_bytes(body: bytes, status: int = 200) -> Response:
    """A reply whose JSON is made already."""
    return Response(body, status, media_type="application/json")


def stream_reply(request: Request, pieces: AsyncGenerator[bytes, None], media_type: str) -> StreamReply:
    """A reply that goes on until ``pieces`` ends, the client leaves, or the daemon stops."""
    state: Any = request.app.state
    turnstile: Turnstile = state.turnstile
    return StreamReply(pieces, media_type=media_type, stopping=state.host.stopping, turnstile=turnstile)
