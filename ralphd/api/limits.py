"""What every request has to keep to, before any route sees it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ralphd.api.errors import problem
from ralphd.errors import Forbidden, NotFound, NotJson, RalphdError, TooLarge, TooSlow
from ralphd.wire import MAX_BODY_BYTES

BODY_S = 10.0
"""A body has to be here in full after this many seconds."""
LINGER_S = 1.0
LINGER_BYTES = 16 * MAX_BODY_BYTES
"""How long, and how much, a refused body is read and thrown away, so that its sender gets to read why."""


class ClientGone(Exception):
    """The client hung up before its request was whole."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What the limits look at in the head of a request."""

    has_body: bool
    length: int
    media_type: str
    from_browser: bool
    path_escapes: bool

    @classmethod
    def read(cls, scope: Scope) -> "RequestHead":
        """The head of the request in ``scope``. A body of unknown length counts as 0 bytes here."""
        chunked, length, media_type, origin = False, 0, b"", False
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"content-type":
                media_type = value
            elif name == b"origin":
                origin = True
        essence = media_type.partition(b";")[0].strip().lower().decode("latin-1")
        return cls(chunked or length > 0, length, essence, origin, _escapes(scope))

    def fault(self) -> RalphdError | None:
        """Why a request with this head is refused, if it is."""
        if self.from_browser:
            return Forbidden(
                "a request with an Origin header is refused",
                why="only browser pages send it, and no web page may steer a ralph",
                mend="leave the Origin header out",
            )
        if self.path_escapes:
            return NotFound(
                "the path of the request is refused",
                why="it holds an encoded slash, a control character, or a '.' or '..' segment",
                mend="GET /openapi.json lists the routes",
            )
        if self.length > MAX_BODY_BYTES:
            return _too_large()
        if self.has_body and self.media_type != "application/json":
            return NotJson(
                "the body of the request is not said to be JSON",
                mend="add the header Content-Type: application/json",
            )
        return None


class RequestLimits:
    """Refuses browser requests, paths that escape, and bodies that are too large, too slow, or not JSON.

    The size is counted while the body comes in; what a client says of it is only a reason to refuse sooner.
    A route is called with a whole body at hand.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        head = RequestHead.read(scope)
        if fault := head.fault():
            return await _refuse(fault, head, scope, receive, send)
        if not head.has_body:
            return await self._app(scope, receive, send)
        try:
            body = await _whole_body(receive)
        except RalphdError as too_much:
            return await _refuse(too_much, head, scope, receive, send)
        except ClientGone:
            return None
        return await self._app(scope, _replayed(body, receive), send)


def _escapes(scope: Scope) -> bool:
    path: str = scope["path"]
    segments = path.split("/")
    return (
        b"%2f" in scope["raw_path"].lower() or "." in segments or ".." in segments or not path.isprintable()
    )


def _too_large() -> TooLarge:
    return TooLarge("the body of the request is too large", why=f"{MAX_BODY_BYTES} bytes are the limit")


async def _whole_body(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in _parts(receive):
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise TooSlow(
            f"the body of the request did not arrive within {BODY_S:g} s", mend="send it again"
        ) from None
    return bytes(body)


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        more = message.get("more_body", False)
        yield message.get("body", b"")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body that was read, then whatever comes next."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _refuse(fault: RalphdError, head: RequestHead, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with ``fault`` and close the connection, after what is still being sent was thrown away."""
    reply = problem(fault, headers={"connection": "close"})
    start: Message = {
        "type": "http.response.start",
        "status": reply.status_code,
        "headers": reply.raw_headers,
    }
    await send(start)
    await send({"type": "http.response.body", "body": bytes(reply.body), "more_body": True})
    if head.has_body:
        await _drain(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    drained = 0
    try:
        async with asyncio.timeout(LINGER_S):
            async for part in _parts(receive):
                drained += len(part)
                if drained > LINGER_BYTES:
                    return
    except (TimeoutError, ClientGone):
        return
