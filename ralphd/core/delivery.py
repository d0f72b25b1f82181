"""Webhook deliveries: events, destinations, signatures, and the decision after an answer.

Time and jitter come in as values. ``ralphd.store`` keeps deliveries, ``ralphd.notify`` sends them; this
module is what both share.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from ralphd.dataclass import dataclass

if TYPE_CHECKING:
    from ralphd.core.time import Moment

RETRY_AFTER_S = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0, 86400.0)
"""How long to wait after the first, second, … failed delivery: the example of Standard Webhooks."""
UNREACHED_AFTER_S = (5.0, 30.0, 60.0, 300.0)
"""The same without a reply: it costs the receiver nothing, and the network may be back any minute."""
GIVE_UP_AFTER_S = sum(RETRY_AFTER_S)
"""The age from which an undelivered message is given up, once it has also failed often enough."""
LONGEST_RETRY_AFTER_S = 86400.0
NO_ADDRESS = "(not an address)"
_GONE = 410
_NAME_CHARS = 40
ID_CHARS = 16


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as it is stored, replayed and sent. ``id`` grows; ``at`` is RFC 3339 UTC."""

    id: int
    type: str
    at: str
    ralph: str | None
    run_id: str | None
    data: Mapping[str, Any]

    def as_object(self) -> dict[str, Any]:
        """Return the event as every reply shows it."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"data": dict(self.data)}


class Format(StrEnum):
    """``[[webhooks]] format``: the form of the body. All but ``json`` are read by people."""

    JSON = "json"
    SLACK = "slack"
    NTFY = "ntfy"


_REPORTED_BY = {"ralph.stalled": "ralph.retrying", "tests.failed": "commit.reverted"}
"""Events whose consequence is the message to people, where a destination asks for both."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One ``[[webhooks]]`` entry. The secret itself is never here: it is read when a message is sent."""

    url: str
    on: tuple[str, ...] = ("ralph.escalated",)
    format: Format = Format.JSON
    allow_private: bool = False
    secret_file: str | None = None
    secret_env: str | None = None
    name: str = ""
    secret_cmd: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A stable id that reveals nothing of the address."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:ID_CHARS]

    @property
    def label(self) -> str:
        """Scheme and host for logs and replies: a path or a user part may contain a token."""
        try:
            parts = urlsplit(self.url)
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            return NO_ADDRESS
        return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else NO_ADDRESS

    def wants(self, event_type: str) -> bool:
        """Return whether a pattern of ``on`` matches; ``*`` stands for any text."""
        patterns = (".*".join(map(re.escape, pattern.split("*"))) for pattern in self.on)
        return any(re.fullmatch(pattern, event_type) for pattern in patterns)

    def gets(self, event_type: str, data: Mapping[str, Any], *, is_titled: bool) -> bool:
        """Return whether to send an event: each that matches to programs, one per incident to people.

        To people, a pattern with ``*`` stands for titled events only, and an event is not sent if an alert
        or a later event reports the same.
        """
        if self.format is Format.JSON or not self.wants(event_type):
            return self.wants(event_type)
        consequence = "ralph.escalated" if data.get("escalated") else _REPORTED_BY.get(event_type)
        if consequence is not None and self.wants(consequence) and "baseline" not in data:
            return False
        return is_titled or event_type in self.on


@dataclass(frozen=True, slots=True)
class ProjectsDestination(Destination):
    """One that ``ralph.toml`` names: only a ``whsec_`` key signs, or receivers could guess another text."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one destination, as the outbox keeps it. ``message_id`` stays the same over retries."""

    id: int
    destination: str
    message_id: str
    event: StoredEvent
    queued_at: "Moment"
    failures: int
    next_at: "Moment"


class DeliveryState(StrEnum):
    """The state of a delivery. A dead letter (given up) is kept, and can be replayed."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class KeptDelivery:
    """A delivery with its state. ``done_at`` is when it arrived or was given up."""

    delivery: Delivery
    state: DeliveryState = DeliveryState.PENDING
    last_error: str | None = None
    done_at: "Moment | None" = None


@dataclass(frozen=True, slots=True)
class ReceiverReply:
    """The receiver answered. ``retry_after`` is the header as received."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Unreached:
    """No answer: no network, no name, no secret, too slow, or a refused address."""

    why: str


Answer: TypeAlias = ReceiverReply | Unreached


@dataclass(frozen=True, slots=True)
class Delivered:
    """It arrived."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Send it again at ``at``."""

    at: "Moment"
    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Every retry was used up."""

    why: str


@dataclass(frozen=True, slots=True)
class Disable:
    """The receiver answered 410: send nothing more."""

    why: str


Sequel: TypeAlias = Delivered | Retry | GiveUp | Disable


def wanted(
    destinations: Iterable[Destination], event_type: str, data: Mapping[str, Any], *, is_titled: bool
) -> tuple[Destination, ...]:
    """Return the destinations that get this event, each address once."""
    getting = (each for each in destinations if each.gets(event_type, data, is_titled=is_titled))
    return tuple({each.id: each for each in getting}.values())


def default_name(to: Destination, taken: Collection[str]) -> str:
    """Return a free name for a webhook: ``slack``, ``ntfy``, or its host, with a number if needed."""
    host = (urlsplit(to.url).hostname or "").encode("ascii", "ignore").decode()
    base = to.format.value if to.format is not Format.JSON else re.sub(r"[^a-z0-9.-]+", "-", host)
    base = base.strip("-.")[:_NAME_CHARS].rstrip("-.") or "webhook"
    names = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def message_id(event: StoredEvent, key: str) -> str:
    """Return the ``webhook-id`` of an event: the same however often it is queued, by any daemon."""
    parts = json.dumps([event.type, event.at, event.ralph, event.run_id, key])
    return "msg_" + hashlib.sha256(parts.encode()).hexdigest()[:32]


def sequel(answer: Answer, delivery: Delivery, *, now: "Moment", jitter: float) -> Sequel:
    """Return what follows from an answer. ``jitter`` in [0, 1) spreads a wait by 10 % to either side."""
    if (why := why_failed(answer)) is None:
        return Delivered()
    if is_gone(answer):
        return Disable(why)
    if delivery.failures >= len(RETRY_AFTER_S) and now - delivery.queued_at >= GIVE_UP_AFTER_S:
        return GiveUp(why)
    steps = RETRY_AFTER_S if isinstance(answer, ReceiverReply) else UNREACHED_AFTER_S
    delay_s = steps[min(delivery.failures, len(steps) - 1)] * (0.9 + 0.2 * jitter)
    return Retry(now + max(delay_s, _asked_for_s(answer, now)), why)


def why_failed(answer: Answer) -> str | None:
    """Return why a message did not arrive; None when it did."""
    match answer:
        case Unreached(why=why):
            return why
        case ReceiverReply(status=status) if 200 <= status < 300:
            return None
        case ReceiverReply(status=status) if 300 <= status < 400:
            return f"answered {status}, a redirect, which is not followed: use the final URL"
        case ReceiverReply(status=status):
            return "answered 410 Gone" if status == _GONE else f"answered {status}"


def is_gone(answer: Answer) -> bool:
    """Return whether the receiver answered 410."""
    return isinstance(answer, ReceiverReply) and answer.status == _GONE


def _asked_for_s(answer: Answer, now: "Moment") -> float:
    if not isinstance(answer, ReceiverReply) or answer.retry_after is None:
        return 0.0
    text = answer.retry_after.strip()
    try:
        is_number = text.isascii() and text.isdigit()
        asked = float(text) if is_number else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, min(asked, LONGEST_RETRY_AFTER_S))


# The headers of Standard Webhooks, and the key in a secret.

SECRET_PREFIX = "whsec_"  # noqa: S105 - the name of a form, not a secret
SECRET_BYTES = 32
"""Random bytes in a generated secret."""


CREDENTIAL = "credential:"
"""A ``secret_file`` that names a file of ``$CREDENTIALS_DIRECTORY`` (systemd, LoadCredential=)."""


class BadSecret(ValueError):
    """A ``whsec_`` secret whose rest is not base64, or an empty one."""


def secret_key(text: str) -> bytes:
    """Return the key in a secret: ``whsec_<base64>``, or any other text as it is. Raises BadSecret."""
    text = text.strip()
    if not text.startswith(SECRET_PREFIX):
        key = text.encode()
    else:
        try:
            key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error as error:
            raise BadSecret("the part after whsec_ is not base64") from error
    if not key:
        raise BadSecret("it is empty")
    return key


def secret_text(chance: bytes) -> str:
    """Return random bytes as a secret in the form that receivers take."""
    return SECRET_PREFIX + base64.b64encode(chance).decode()


def signature_headers(message: str, at: "Moment", payload: bytes, key: bytes | None) -> dict[str, str]:
    """Return the headers of Standard Webhooks; without a key the signature is absent."""
    timestamp = str(int(at))
    plain = {"webhook-id": message, "webhook-timestamp": timestamp}
    if key is None:
        return plain
    digest = hmac.new(key, f"{message}.{timestamp}.".encode() + payload, hashlib.sha256).digest()
    return plain | {"webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


# The IP addresses that a message may be sent to: public ones, and private ones where that is allowed.

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_CLOUDS = ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::/32", "fd20:ce::/64")
_METADATA = tuple(map(ipaddress.ip_network, _CLOUDS))
"""Where clouds hand out a machine's credentials. Link-local addresses, which most of them are, count too."""
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "3fff::/20")))
"""Reserved networks that ``is_global`` of older Python versions takes for public."""
_BROADCAST = ipaddress.ip_address("255.255.255.255")


def why_not(addresses: Iterable[str], *, allow_private: bool) -> str | None:
    """Return why a host with these addresses is refused; None when it is not.

    One address that is not public makes the whole name untrustworthy. ``allow_private`` lets private and
    loopback addresses through, metadata services never.
    """
    every = list(addresses)
    if any(map(is_metadata, every)):
        return "the address is link-local or a cloud metadata service, which is never allowed"
    if any(map(_is_of_many, every)):
        return "the address is that of a group, not of one host, which is never allowed"
    if not allow_private and not all(map(is_public, every)):
        return "the address is private: only allow_private = true in your own configuration file allows that"
    return None


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet, an IPv4 one inside an IPv6 one included."""
    outer = ipaddress.ip_address(address)
    if isinstance(outer, ipaddress.IPv6Address) and outer in _NAT64_LOCAL:
        return False
    ip = _innermost(outer)
    if isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local:
        return False
    if any(ip in net for net in _NOT_PUBLIC):
        return False
    # is_global alone lets multicast through.
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified or ip.is_link_local)


def is_metadata(address: str) -> bool:
    """Return whether an address is link-local or that of a cloud's metadata service."""
    ip = _innermost(ipaddress.ip_address(address))
    return ip.is_link_local or any(ip in net for net in _METADATA)


def _is_of_many(address: str) -> bool:
    ip = _innermost(ipaddress.ip_address(address))
    return ip.is_multicast or ip == _BROADCAST


def _innermost(ip: _Address) -> _Address:
    # An IPv6 address may stand for an IPv4 one: mapped, NAT64, 6to4, Teredo.
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    is_translated = any(ip in net for net in (_NAT64, _NAT64_LOCAL, _TRANSLATED))
    if is_translated or (ip in _COMPATIBLE and int(ip) > 0xFFFF):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
