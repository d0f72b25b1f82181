"""The guard of the page: what a request must be before a route sees it. Each rule holds on every route.

Host and Origin stop rebinding and forged requests, ``Sec-Fetch-Site`` those that another page makes. Sizes,
times and rates are bounded.
"""

import asyncio
import html
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ralphctl.web.devices import Device, Devices
from ralphd import errors
from ralphd.config.values import page_address
from ralphd.dataclass import dataclass
from ralphd.errors import Forbidden, NotFound, RalphdError, UsageError

MOST_KEYS: Final = 1024
HEAD_BYTES: Final = 16 << 10
MOST_BODY_BYTES: Final = 64 << 10
BODY_S: Final = 10.0
SEND_S: Final = 30.0
_DIGITS: Final = frozenset("0123456789")
_ONCE: Final = (b"host", b"origin", b"content-length", b"content-type", b"sec-fetch-site", b"ralph-signature")
_OWN_SITES: Final = (b"same-origin", b"none")
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = [
    ("content-security-policy", _CSP),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
]
"""On every reply; the server adds them."""


class Misdirected(RalphdError, slug="misdirected", status=421):
    """The request is addressed to a host that is not this page."""


class Unpaired(RalphdError, slug="unpaired", status=401):
    """The request comes from no paired device."""


class TooMany(RalphdError, slug="too-many", status=429):
    """More requests than a person makes."""


class HeadTooLarge(RalphdError, slug="head-too-large", status=431):
    """The headers of the request are over the limit."""


class CrossSite(Forbidden, slug="cross-site"):
    """Another page made the request."""


@dataclass(frozen=True, slots=True)
class Site:
    """The names under which the page may be asked.

    ``ralphd.localhost`` on loopback, and no other: cookies of ``127.0.0.1`` go to every port of it, those of
    agents' development servers included. Only a configured name may be behind a proxy, hence https.
    """

    listen: str
    hosts: tuple[str, ...]
    address: str = ""
    """The IP address that ``listen`` names; empty for a Unix socket."""

    @property
    def is_tls(self) -> bool:
        """Whether the page itself speaks TLS."""
        return self.address not in ("", "127.0.0.1", "::1")

    @property
    def url(self) -> str:
        """Where a browser finds the page; empty where only the one who forwards the socket knows."""
        if self.hosts:
            return page_address(self.listen, self.hosts)
        return f"{'https' if self.is_tls else 'http'}://{self._own}" if self.address else ""

    @property
    def _own(self) -> str:
        port = self.listen.rpartition(":")[2]
        if not self.is_tls:
            return f"ralphd.localhost:{port}"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return host if port == "443" else f"{host}:{port}"

    def origin(self, host: str) -> str | None:
        """Return the origin of the page under the name in a Host header; None for a name that is not ours."""
        host = host.lower()
        if any(host == page_address(self.listen, (each,)).removeprefix("https://") for each in self.hosts):
            return f"https://{host}"
        if self.address:
            return f"{'https' if self.is_tls else 'http'}://{host}" if host == self._own else None
        name, _, port = host.partition(":")
        is_forward = name in ("localhost", "ralphd.localhost") and set(port) <= _DIGITS
        return f"http://{host}" if is_forward else None


@dataclass(slots=True)
class Rates:
    """A bucket of ``burst`` tokens for each key, refilled with ``per_s``. It knows the last MOST_KEYS."""

    per_s: float
    burst: float
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: str) -> None:
        """Take a token. Raise TooMany."""
        now = self.clock()
        left, at = self._left.pop(key, (self.burst, now))
        left = min(self.burst, left + (now - at) * self.per_s)
        self._left[key] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._left) > MOST_KEYS:
            self._left.popitem(last=False)
        if left < 1:
            raise TooMany("too many requests", mend="wait a few seconds")


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request that passed the guard. ``device`` is None on the public routes of an unpaired browser."""

    method: str
    path: tuple[str, ...]
    headers: Mapping[bytes, bytes]
    origin: str
    body: bytes
    device: Device | None
    query: bytes = b""


class Guard:
    """Calls ``serve`` with each request that is in order, and refuses the others."""

    def __init__(self, site: Site, devices: Devices, serve: Callable[[WebRequest], Any]) -> None:
        self._site, self._devices, self._serve = site, devices, serve
        self._by_address, self._by_device = Rates(20, 200), Rates(10, 60)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        try:
            origin = self._checked(scope)
            reply = await self._serve(self._request(scope, origin, await _body(scope, receive)))
        except CrossSite as fault:
            reply = _landing(scope) if _is_visit(scope) else problem(fault)
        except RalphdError as fault:
            reply = problem(fault)
        if reply.status_code >= 400:
            reply.headers["connection"] = "close"  # what follows a refused request is not read
        reply.headers.setdefault("cache-control", "no-store")

        async def bounded(message: Any) -> None:
            async with asyncio.timeout(SEND_S):
                await send(message)

        with suppress(TimeoutError):
            await reply(scope, receive, bounded)

    def _checked(self, scope: Scope) -> str:
        """Return the origin that the request is addressed to. Raise RalphdError."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES:
            raise HeadTooLarge("the head of the request is too large")
        names = [name for name, _ in scope["headers"]]
        if any(names.count(name) > 1 for name in _ONCE):
            raise UsageError("a header is there twice")
        headers: dict[bytes, bytes] = dict(scope["headers"])
        origin = self._site.origin(headers.get(b"host", b"").decode("latin-1"))
        if origin is None:
            why = "the host in the request is not one of this page"
            raise Misdirected("not a page of this host", why=why, mend="ralphctl web, or [web] hosts")
        if scope["method"] not in ("GET", "POST"):
            raise NotAllowed
        is_get = scope["method"] == "GET"
        if b"transfer-encoding" in headers or (is_get and headers.get(b"content-length", b"0") != b"0"):
            raise UsageError("a body has to have a length, and a GET request has none")
        given = headers.get(b"origin", b"" if is_get else b"none").decode("latin-1")
        if given and given != origin:
            raise Forbidden("the request comes from another page")
        if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
            raise CrossSite("the request comes from another page", mend="open the page by its address")
        if _escapes(scope):
            raise NotFound("the page does not exist")
        if scope["method"] == "POST" and headers.get(b"content-type") != b"application/json":
            raise errors.NotJson("the body has to be application/json")
        self._by_address.take(str((scope.get("client") or ("",))[0]))
        return origin

    def _request(self, scope: Scope, origin: str, body: bytes) -> WebRequest:
        headers = dict(scope["headers"])
        cookies = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
        device = self._devices.find(_cookie(cookies, cookie_name(origin)))
        if device is not None:
            self._by_device.take(device.id)
        path = tuple(scope["path"].removeprefix("/").split("/"))
        return WebRequest(scope["method"], path, headers, origin, body, device, scope["query_string"])


class NotAllowed(RalphdError, slug="method", status=405):
    """The method does not fit the route."""

    def __init__(self) -> None:
        super().__init__("this cannot be asked that way")


def cookie_name(origin: str) -> str:
    """Return the name of the session's cookie: browsers accept ``__Host-`` over https only."""
    return "__Host-ralphd" if origin.startswith("https:") else "ralphd"


def _cookie(header: bytes, name: str) -> str:
    pairs = (each.strip().partition("=") for each in header.decode("latin-1").split(";"))
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else ""


def _escapes(scope: Scope) -> bool:
    path, raw = scope["path"], scope.get("raw_path") or b""
    has_dots = not {".", ".."}.isdisjoint(path.split("/"))
    is_odd = not path.startswith("/") or len(raw) > 300 or not path.isprintable()
    return is_odd or has_dots or b"%2f" in raw.lower()


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body. Raise TooLarge, TooSlow."""
    headers, body, more = dict(scope["headers"]), bytearray(), scope["method"] == "POST"
    if int(headers.get(b"content-length", 0)) > MOST_BODY_BYTES:
        raise errors.TooLarge("the body is too large")
    try:
        async with asyncio.timeout(BODY_S):
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MOST_BODY_BYTES:
                    raise errors.TooLarge("the body is too large")
    except TimeoutError:
        raise errors.TooSlow("the body did not arrive in time") from None
    return bytes(body)


def problem_document(fault: RalphdError) -> dict[str, Any]:
    """Return what a person may read of a fault, as a problem document (RFC 9457) has it."""
    content = {"type": errors.PROBLEM_PREFIX + fault.slug, "title": HTTPStatus(fault.status).phrase}
    content |= {"detail": fault.what, "why": fault.why, "try": fault.mend}
    return {key: value for key, value in content.items() if value} | {"status": fault.status}


def problem(fault: RalphdError) -> Response:
    """Return the reply to a request that is refused."""
    return Response(json.dumps(problem_document(fault)), fault.status, media_type="application/problem+json")


def _is_visit(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    kind = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return scope["method"] == "GET" and kind == (b"navigate", b"document")


def _landing(scope: Scope) -> Response:
    """Return what a link in another page leads to: nothing but a link, which the person follows from here."""
    path = html.escape(scope["path"], quote=True)
    link = f'<p><a href="{path}">Open the page of ralphd</a>'
    text = f'<!doctype html><meta charset="utf-8"><title>ralphd</title>{link}'
    return Response(text, 403, media_type="text/html")
