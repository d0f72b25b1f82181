"""The paired devices, in a file that the page and ``ralphctl web`` share, and the check of their signatures.

The file has the hash of each session and the public key of each device, and no secret. It is read again when
it changes, so that the next request of a revoked device is refused.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from ralphctl.format.humanize import part
from ralphd.core.text import one_line
from ralphd.core.time import rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import DaemonBusy, Forbidden, RalphdError, UsageError
from ralphd.plain_files import peek
from ralphd.store import files

Role = Literal["look", "act"]
VERSION: Final = 1
MOST_DEVICES: Final = 32
DEVICE_DAYS: Final = 365
WINDOW_S: Final = 60.0
NAME_CHARS: Final = 40
_MOST_NONCES: Final = 4096


@dataclass(frozen=True, slots=True)
class Device:
    """A paired browser. ``session`` is the hash of its cookie, ``key`` its point on P-256, if it may act."""

    id: str
    name: str
    role: Role
    session: str
    key: str | None
    paired_at: float

    def shown(self) -> dict[str, str]:
        """Return what people see of it."""
        return {"id": self.id, "name": self.name, "role": self.role, "paired_at": rfc3339(self.paired_at)}


class Devices:
    """The devices that ``directory`` has on file. A process holds the lock while it changes the file."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = directory / "devices.json", clock
        self._seen: tuple[int, ...] | None = ()
        self._known: tuple[Device, ...] = ()

    def all(self) -> tuple[Device, ...]:
        """Return the devices whose time is not over, oldest first. Raise NewerState."""
        try:
            about = self._path.lstat()
            seen = (about.st_ino, about.st_mtime_ns, about.st_size)
        except OSError:
            seen = None
        if seen != self._seen:
            self._known, self._seen = self._read(), seen
        since = self._clock() - DEVICE_DAYS * 86_400
        return tuple(each for each in self._known if each.paired_at > since)

    def find(self, session: str) -> Device | None:
        """Return the device with this session."""
        digest = _digest(session)
        return next((each for each in self.all() if each.session == digest), None) if session else None

    def is_paired(self, device: Device) -> bool:
        """Return whether a device is still one: it was not revoked."""
        return device in self.all()

    def add(self, name: str, role: Role, key: str | None) -> tuple[Device, str]:
        """Pair a device. Return it, and its session, which is kept nowhere. Raise RalphdError."""
        session = secrets.token_urlsafe(32)
        with self._changing() as devices:
            if len(devices) >= MOST_DEVICES:
                raise RalphdError(f"{MOST_DEVICES} devices are paired", mend="ralphctl web revoke NAME")
            name, names = device_name(name), {each.name for each in devices}
            name = next(each for each in (name, *(f"{name} {n}" for n in range(2, 99))) if each not in names)
            device = Device(secrets.token_hex(4), name, role, _digest(session), key, self._clock())
            devices.append(device)
        return device, session

    def revoke(self, name: str | None) -> list[str]:
        """Remove the device with this name or id, or all. Return their names."""
        with self._changing() as devices:
            gone = [each for each in devices if name in (None, each.name, each.id)]
            devices[:] = [each for each in devices if each not in gone]
        return [each.name for each in gone]

    @contextmanager
    def _changing(self) -> Iterator[list[Device]]:
        files.make_private_directory(self._path.parent)
        with files.Lock.acquire_soon(self._path.with_name("lock")):
            devices = list(self.all())
            yield devices
            content = {"version": VERSION, "devices": [asdict(each) for each in devices]}
            files.write_whole(self._path, files.as_json(content))

    def _read(self) -> tuple[Device, ...]:
        fields = Device.__dataclass_fields__
        try:
            content = files.read_json(self._path) or {}
            files.refuse_newer(self._path, content.get("version"), VERSION)
            entries = content.get("devices", ())
            return tuple(Device(**{name: each[name] for name in fields}) for each in entries)
        except (files.Broken, KeyError, TypeError):  # every device has to be paired again
            return ()


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()


def device_name(given: str) -> str:
    """Return a name as people see it: one line, printable, short."""
    return one_line(given, NAME_CHARS) or "unnamed"


def public_point(key: Any) -> str:
    """Return the point of a public P-256 key (JWK). Raise UsageError."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        if (key["kty"], key["crv"]) != ("EC", "P-256") or "d" in key:
            raise ValueError
        point = b"\x04" + unbase64(key["x"], 32) + unbase64(key["y"], 32)
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError("the browser gave no public P-256 key", mend="ralphctl web pair --look") from None
    return point.hex()


def unbase64(text: str, size: int) -> bytes:
    """Return the bytes of base64url without padding. Raise ValueError."""
    data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
    if len(data) != size or "=" in text:
        raise ValueError("wrong size")
    return data


class Signatures:
    """Checks what devices sign. Nonces are remembered in a file, since the process may be started again."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = directory / "nonces.json", clock
        nonces = part(peek(self._path) or {}, "nonces")
        self._nonces = {key: at for key, at in nonces.items() if type(at) is float}

    def check(self, device: Device, signature: str, origin: str, body: bytes) -> dict[str, Any]:
        """Return the object in a body that the device signed just now, and never before. Raise Forbidden."""
        if device.role != "act" or device.key is None:
            raise Forbidden(f"{device.name} may look only", mend="ralphctl web pair --act")
        if not _is_signed(device.key, signature, f"POST /act\n{origin}\n".encode() + body):
            raise Forbidden("the signature is of another key", mend="pair it again: ralphctl web pair")
        try:
            content = json.loads(body)
            at, nonce = content["at"], content["nonce"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UsageError("the body is not an action") from None
        now = self._clock()
        if type(at) not in (int, float) or not now - WINDOW_S <= at <= now + WINDOW_S:
            raise Forbidden("the request is too old", why="or the clock of the device is wrong")
        if not isinstance(nonce, str) or not 22 <= len(nonce) <= 64 or not nonce.isascii():
            raise UsageError("the nonce is not one")
        self._remember(f"{device.id} {nonce}", now)
        return dict(content)

    def _remember(self, key: str, now: float) -> None:
        nonces = {each: at for each, at in self._nonces.items() if abs(now - at) <= 2 * WINDOW_S}
        if key in nonces:
            raise Forbidden("this request was sent before", mend="try again")
        if len(nonces) >= _MOST_NONCES:
            raise DaemonBusy("too many requests within two minutes", mend="wait a minute")
        self._nonces = nonces | {key: now}
        content = {"version": VERSION, "nonces": self._nonces}
        files.write_whole(self._path, files.as_json(content), durable=False)


def _is_signed(point: str, signature: str, message: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    try:
        raw = unbase64(signature, 64)
        numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes.fromhex(point))
        key.verify(utils.encode_dss_signature(*numbers), message, ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True
