"""A browser as the page sees it: raw requests over a socket, a cookie, and a key that signs."""

import base64
import json
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.helpers import wait_for

LIMIT_S = 15.0


def base64url(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class WebReply:
    """What came back; status 0: the connection was closed without a reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


GONE = WebReply(0, {}, b"")


def exchange(port: int, data: bytes, *, limit_s: float = LIMIT_S) -> WebReply:
    """Send bytes, and read the reply; sent again while the page is asked too often, which proves nothing."""
    return wait_for(lambda: _unless_too_many(_exchange(port, data, limit_s)), timeout_s=LIMIT_S) or GONE


def _unless_too_many(reply: WebReply) -> WebReply | None:
    return None if reply.status == 429 else reply


def _exchange(port: int, data: bytes, limit_s: float) -> WebReply:
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as connection:
            connection.sendall(data)
            while not _is_whole(received):
                if not (piece := connection.recv(1 << 16)):
                    break
                received += piece
    except ConnectionError:
        pass
    return parsed(received)


def _is_whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if b"transfer-encoding: chunked" in head.lower():  # a stream: its head is enough
        return b"\r\n\r\n" in received
    return bool(length) and len(body) >= int(length[0].partition(b":")[2])


def parsed(received: bytes) -> WebReply:
    """Read a reply."""
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first:
        return GONE
    fields = (line.partition(":") for line in lines)
    return WebReply(int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}, body)


@dataclass(slots=True)
class Browser:
    """A browser at ``http://ralphd.localhost:PORT``, or under another name; ``skew_s``: of its clock."""

    port: int
    cookie: str = ""
    host: str = ""
    scheme: str = "http"
    skew_s: float = 0.0
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def origin(self) -> str:
        """The origin of the page in this browser."""
        return f"{self.scheme}://{self.host or f'ralphd.localhost:{self.port}'}"

    def head(self, method: str, path: str, changed: Mapping[str, str | None]) -> bytes:
        """The head of a request; a header that is changed to None is left out."""
        headers: dict[str, str | None] = {
            "Host": self.origin.partition("//")[2],
            "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie or None,
        }
        headers |= {"Origin": self.origin, "Content-Type": "application/json"} if method == "POST" else {}
        lines = [f"{name}: {value}" for name, value in (headers | dict(changed)).items() if value is not None]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode("latin-1")

    def request(self, method: str, path: str, body: bytes = b"", /, **headers: str | None) -> WebReply:
        """Send one request; ``Sec_Fetch_Site="none"`` changes that header."""
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        if body or method == "POST":
            changed.setdefault("Content-Length", str(len(body)))
        return exchange(self.port, self.head(method, path, changed) + body)

    def get(self, path: str, /, **headers: str | None) -> WebReply:
        """Ask for a page."""
        return self.request("GET", path, **headers)

    @property
    def jwk(self) -> dict[str, str]:
        """The public key as WebCrypto exports it."""
        numbers = self.key.public_key().public_numbers()
        x, y = (base64url(each.to_bytes(32, "big")) for each in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, "ext": "true"}

    def sign(self, body: bytes, origin: str = "") -> str:
        """The signature of a request to act."""
        message = f"POST /act\n{origin or self.origin}\n".encode() + body
        numbers = utils.decode_dss_signature(self.key.sign(message, ec.ECDSA(hashes.SHA256())))
        return base64url(b"".join(each.to_bytes(32, "big") for each in numbers))

    def order(self, action: str, ralph: str = "demo", **more: Any) -> bytes:
        """The body of a request to act."""
        words = {"action": action, "ralph": ralph, "at": time.time() + self.skew_s}
        return json.dumps(words | {"nonce": secrets.token_urlsafe(18)} | more).encode()

    def act(self, body: bytes, signature: str | None = "", /, **headers: str | None) -> WebReply:
        """Send a request to act; signed unless another signature is given."""
        signature = self.sign(body) if signature == "" else signature
        return self.request("POST", "/act", body, Ralph_Signature=signature, **headers)

    def begin_pairing(self, code: str, name: str = "My phone", **changed: Any) -> WebReply:
        """Use a code."""
        words = {"code": code, "name": name, "key": self.jwk} | changed
        return self.request("POST", "/pair", json.dumps(words).encode())

    def finish_pairing(self, ticket: str) -> WebReply:
        """Fetch what the terminal answered, and keep the cookie."""
        reply = self.get(f"/pair/{ticket}")
        if reply.status == 200:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply
