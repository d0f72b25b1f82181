"""The routes of the page, and what a device may have done."""

import asyncio
import gzip
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from ralphctl.client.client import Client
from ralphctl.format import gate_text, state_text
from ralphctl.format.humanize import asked
from ralphctl.web.devices import Device, Devices, Signatures
from ralphctl.web.guard import NotAllowed, TooMany, Unpaired, WebRequest, cookie_name, problem
from ralphctl.web.news import NewsFeed
from ralphctl.web.pages import Pages
from ralphctl.web.pairing import PairingDesk
from ralphd import wire
from ralphd.errors import DaemonBusy, NotFound, RalphdError, UnknownRalph, UsageError

ACTIONS: Final = ("ack", "pause", "resume", "skip-wait", "stop", "undo", "land")
"""Never one that starts a command, or changes environment, files or configuration."""
COOKIE_S: Final = 365 * 86_400
_MOST_STREAMS, _STREAMS_EACH = 32, 4
_LOOK_S, _GAP_S, _PING_S = 0.5, 1.0, 15.0
_DRAW_S: Final = 30.0
_MOST_DRAWN: Final = 16
_ITERATION: Final = re.compile(r"(?:[0-9]{1,9}:)?[0-9]{1,9}")
_STATIC: Final = Path(__file__).parent / "static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class WebApp:
    """Answers what the guard has let in."""

    def __init__(
        self, client: Client, devices: Devices, signatures: Signatures, desk: PairingDesk, news: NewsFeed
    ) -> None:
        self._client, self._devices, self._signatures = client, devices, signatures
        self._desk, self.news = desk, news
        self._pages = Pages(client)
        self._files = {each.name: each.read_bytes() for each in _STATIC.iterdir() if each.is_file()}
        self._drawing = 0
        self._watching: list[str] = []

    async def serve(self, request: WebRequest) -> Response:
        """Answer a request. Raise RalphdError."""
        match request.method, request.path:
            case "GET", ("static", name) if name in self._files:
                return self._file(request, name)
            case "GET", ("pair",):
                return _page(request, await self._drawn(self._pages.pair))
            case "POST", ("pair",):
                return self._begin_pairing(request)
            case "GET", ("pair", ticket):
                return await self._paired(request, ticket)
            case _, ("static", *_):
                raise NotFound("the file does not exist")
        if request.device is None:
            return await self._unpaired(request)
        match request.method, request.path:
            case "GET", ("news",):
                return self._stream(request.device)
            case "POST", ("act",):
                return await self._act(request, request.device)
            case "GET", path:
                return await self._shown(request, request.device, path)
        raise NotAllowed

    # --- pages ----------------------------------------------------------------------------------------

    async def _shown(self, request: WebRequest, device: Device, path: tuple[str, ...]) -> Response:
        """Return a page; an error is one too for a person who came to it."""
        try:
            return await self._draw(request, device, path)
        except RalphdError as fault:
            if b"ralph-part" in request.headers or b"text/html" not in request.headers.get(b"accept", b""):
                raise
            return _page(request, await self._drawn(self._pages.problem, fault, device), fault.status)

    async def _draw(self, request: WebRequest, device: Device, path: tuple[str, ...]) -> Response:
        draw = partial(self._drawn, part=request.headers.get(b"ralph-part") == b"1")
        match path:
            case ("",):
                drawn = draw(self._pages.home, device)
            case ("ralphs", *name, "log") if name:
                drawn = draw(self._pages.log, _checked("/".join(name)), device)
            case ("ralphs", *name, "iterations", number) if _ITERATION.fullmatch(number):
                drawn = draw(self._pages.iteration, _checked("/".join(name)), number, device)
            case ("ralphs", *name):
                drawn = draw(self._pages.ralph, _checked("/".join(name)), device)
            case _:
                raise NotFound("the page does not exist")
        return _page(request, await drawn)

    async def _drawn(self, work: Callable[..., str], *words: Any, **more: Any) -> str:
        """Return a page, drawn in a thread. Raise DaemonBusy where too many are drawn already."""
        if self._drawing >= _MOST_DRAWN:
            raise DaemonBusy("too many pages at once", mend="try again")
        self._drawing += 1
        try:
            async with asyncio.timeout(_DRAW_S):
                return await asyncio.to_thread(work, *words, **more)
        except TimeoutError:
            raise DaemonBusy("ralphd does not answer", mend="try again") from None
        finally:
            self._drawing -= 1

    async def _unpaired(self, request: WebRequest) -> Response:
        fault = Unpaired("this browser is not paired", mend="ralphctl web pair")
        if request.method != "GET" or request.path == ("news",) or b"ralph-part" in request.headers:
            return problem(fault)
        return _page(request, await self._drawn(self._pages.pair), fault.status)

    def _file(self, request: WebRequest, name: str) -> Response:
        reply = _page(request, self._files[name], kind=_KINDS[Path(name).suffix])
        forever = f"public, max-age={COOKIE_S}, immutable"
        reply.headers["cache-control"] = forever if request.query else "no-cache"
        return reply

    # --- news -----------------------------------------------------------------------------------------

    def _stream(self, device: Device) -> Response:
        if len(self._watching) >= _MOST_STREAMS or self._watching.count(device.id) >= _STREAMS_EACH:
            raise TooMany("too many streams of news", mend="close a page")
        self._watching.append(device.id)
        return StreamingResponse(self._events(device), media_type="text/event-stream")

    async def _events(self, device: Device) -> AsyncIterator[bytes]:
        """Yield what has changed, at most once a second; end when the device is revoked."""
        try:
            with self.news.watch() as changes:
                last = time.monotonic()
                yield b"retry: 2000\n\n"
                while self._devices.is_paired(device):
                    if names := await changes.taken(_LOOK_S):
                        lines = [f"data: {json.dumps({'ralph': each})}\n\n" for each in names]
                        yield "".join(lines).encode()
                        await asyncio.sleep(_GAP_S)
                    elif time.monotonic() - last < _PING_S:
                        continue
                    else:
                        yield b": ping\n\n"
                    last = time.monotonic()
        finally:
            self._watching.remove(device.id)

    # --- pairing --------------------------------------------------------------------------------------

    def _begin_pairing(self, request: WebRequest) -> Response:
        content = _object(request.body, {"code", "name", "key"})
        ticket, number = self._desk.ask(content["code"], content["name"], content["key"])
        return _json({"ticket": ticket, "number": number}, 202)

    async def _paired(self, request: WebRequest, ticket: str) -> Response:
        if (paired := await self._desk.outcome(ticket)) is None:
            return _json({}, 202)
        role, session = paired
        reply = _json({"role": role})
        name = cookie_name(request.origin)
        secure = name.startswith("__Host-")
        reply.set_cookie(name, session, COOKIE_S, secure=secure, httponly=True, samesite="strict")
        return reply

    # --- acts -----------------------------------------------------------------------------------------

    async def _act(self, request: WebRequest, device: Device) -> Response:
        signature = request.headers.get(b"ralph-signature", b"").decode("latin-1")
        content = self._signatures.check(device, signature, request.origin, request.body)
        if content.keys() != {"action", "ralph", "at", "nonce"} or content["action"] not in ACTIONS:
            raise UsageError("the page does not have this action", why=f"it may {', '.join(ACTIONS)}")
        name = _checked(content["ralph"])
        words = await self._drawn(_carry_out, self._client.on_behalf(device.name), name, content["action"])
        return _json({"words": words})


def _carry_out(client: Client, name: str, action: str) -> str:
    """Have the daemon do it; return what comes of it. Raise RalphdError."""
    if action == "land":
        client.land(name, None)
        return f"{name} is queued to land"
    reply = client.ask(name, action, {"iteration": None} if action == "undo" else None).value
    if action == "undo":
        return gate_text.undone_lines(reply)[0]
    waits_for_iteration = asked(reply.get("message"))[1] is not None
    if action in ("pause", "stop") and waits_for_iteration:
        return f"{name} {action}s after this iteration"
    words = {"ack": "acknowledged", "skip-wait": "continues now"}.get(action)
    return f"{name}: {words or state_text.state_words(reply, time.time())}"


def _checked(name: object) -> str:
    """Return a name, here or as ``HOST/NAME`` in the fleet. Raise UnknownRalph."""
    if not isinstance(name, str) or name.count("/") > 1 or not all(map(wire.is_name, name.split("/"))):
        raise UnknownRalph("the ralph does not exist")
    return name


def _object(body: bytes, keys: set[str]) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.keys() != keys:
        raise UsageError("the body is not what this route takes")
    return content


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


def _page(request: WebRequest, text: str | bytes, status: int = 200, kind: str = "text/html") -> Response:
    data = text.encode(errors="replace") if isinstance(text, str) else text
    headers = {"vary": "accept-encoding, ralph-part"}
    if b"gzip" in request.headers.get(b"accept-encoding", b"") and len(data) > 1000:
        data, headers = gzip.compress(data, 6), headers | {"content-encoding": "gzip"}
    return Response(data, status, headers, kind)
