"""The limits of every request, checked before a route sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ralphd.api.errors import problem
from ralphd.errors import Forbidden, NotFound, NotJson, RalphdError, TooLarge, TooSlow
from ralphd.wire import MAX_BODY_BYTES

BODY_S = 10.0
"""The time limit for a whole body."""
LINGER_S = 1.0
LINGER_BYTES = 16 * MAX_BODY_BYTES
"""How long, and how much of, a refused body is read: a client that still sends could not read the reply."""


HOSTS = frozenset({b"ralphd", b"localhost"})


class ClientGone(Exception):
    """The client hung up before its request was whole."""


class RequestLimits:
    """Refuses browser requests, paths that escape, and bodies that are too large, too slow, or not JSON.

    The size is counted while the body comes in; ``Content-Length`` is only a reason to refuse sooner. A route
    is called with a whole body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers: dict[bytes, bytes] = dict(scope["headers"])
        length = int(headers.get(b"content-length", 0))
        has_body = length > 0 or b"transfer-encoding" in headers
        if fault := _fault(scope, headers, length, has_body=has_body):
            return await _refuse(fault, has_body, receive, send)
        if not has_body:
            return await self._app(scope, receive, send)
        try:
            body = await _whole_body(receive)
        except RalphdError as too_much:
            return await _refuse(too_much, has_body, receive, send)
        except ClientGone:
            return None
        return await self._app(scope, _replayed(body, receive), send)


def _fault(scope: Scope, headers: dict[bytes, bytes], length: int, *, has_body: bool) -> RalphdError | None:
    if b"origin" in headers:
        why = "only browser pages send it, and no web page may steer a ralph"
        mend = "leave the Origin header out"
        return Forbidden("a request with an Origin header is refused", why=why, mend=mend)
    host = headers.get(b"host", b"ralphd").lower().partition(b":")[0]  # HTTP/1.0 needs none
    if b"sec-fetch-site" in headers or host not in HOSTS:
        what = "the request is refused: it is addressed to another host, or a browser sent it"
        why = "a forwarded socket must not serve web pages"
        return Forbidden(what, why=why, mend="use http://ralphd/ or http://localhost/")
    if _escapes(scope):
        why = "it holds an encoded slash, a control character, or a '.' or '..' segment"
        mend = "GET /openapi.json lists the routes"
        return NotFound("the path of the request is refused", why=why, mend=mend)
    if length > MAX_BODY_BYTES:
        return _too_large()
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if has_body and media_type != b"application/json":
        mend = "add the header Content-Type: application/json"
        return NotJson("the body of the request is not said to be JSON", mend=mend)
    return None


def _escapes(scope: Scope) -> bool:
    path: str = scope["path"]
    has_dots = not {".", ".."}.isdisjoint(path.split("/"))
    return b"%2f" in scope["raw_path"].lower() or has_dots or not path.isprintable()


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
        mend = "send it again"
        raise TooSlow(f"the body of the request did not arrive within {BODY_S:g} s", mend=mend) from None
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
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _refuse(fault: RalphdError, has_body: bool, receive: Receive, send: Send) -> None:
    """Answer with ``fault`` and close the connection, after the rest of the body was read."""
    reply = problem(fault, headers={"connection": "close"})
    await send({"type": "http.response.start", "status": reply.status_code, "headers": reply.raw_headers})
    await send({"type": "http.response.body", "body": bytes(reply.body), "more_body": True})
    if has_body:
        await _drain(receive)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    drained = 0
    with suppress(TimeoutError, ClientGone):
        async with asyncio.timeout(LINGER_S):
            async for part in _parts(receive):
                drained += len(part)
                if drained > LINGER_BYTES:
                    return
