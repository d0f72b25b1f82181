"""A host joins a fleet by a token, and leaves it.

A token names the hub's addresses, the fingerprint of its CA, and a one-time code: the seed of a user that may
only ask to join. The hub keeps the public key of the code. A person at the hub sees who asks, and decides.
"""

import asyncio
import base64
import binascii
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ralphd.core.fleet.model import HostName
from ralphd.core.fleet.names import is_host_name
from ralphd.core.text import one_line
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import NameTaken, NotFound, RalphdError, UsageError
from ralphd.fleet.fabric import HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import keys
from ralphd.fleet.hub import server as hub_server
from ralphd.fleet.hub.files import HubMember, HubRecord, Invitation
from ralphd.store import files
from ralphd.store.codec import Codec, Unfit

if TYPE_CHECKING:
    from nats.aio.msg import Msg

TOKEN_S: Final = 900.0
MOST_TOKEN_CHARS: Final = 2048
MOST_REQUEST_BYTES: Final = 4096
MOST_ADDRESSES: Final = 8
MOST_INVITATIONS: Final = 100
_HEAD: Final = re.compile(r"ralph-fleet-(\d{1,4})\.([A-Za-z0-9_-]*)")
_VERSION: Final = 1
_NOBODY: Final = HostName("")
_MOST_PENDING: Final = 64
ITEMS: Final = "items"
"""The folder in which a host keeps the items of its fleet."""
HOLDS: Final = "holds"
"""The folder of the leases that a host has."""
_OWN_FILES: Final = ("draining", "host.seed", "ca.pem", "fleet.json")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """What a token says. ``pin`` is the SHA-256 of the CA's certificate."""

    addresses: tuple[str, ...]
    pin: str
    code: str = field(repr=False)
    expires_at: Moment


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """Who asks to join. ``address`` and ``version`` are the host's own words, for people."""

    code: str = field(repr=False)
    name: HostName
    key: str
    address: str
    version: str


@dataclass(frozen=True, slots=True)
class Joined:
    """What a host gets to know when it joins, or why it is refused. Kept as ``fleet.json``."""

    host: HostName = _NOBODY
    servers: tuple[str, ...] = ()
    ca: str = ""
    hub_host: HostName = _NOBODY
    refused: str = ""
    v: int = _VERSION


Decide = Callable[[JoinRequest], Awaitable[bool]]
_TOKEN: Final = Codec[JoinToken](JoinToken)
_REQUEST: Final = Codec[JoinRequest](JoinRequest)
_JOINED: Final = Codec[Joined](Joined)


# --- tokens ----------------------------------------------------------------------------------------------


async def make_token(directory: Path, *, now: Moment, addresses: Sequence[str] = (), role: str = "") -> str:
    """Return a token for one host, valid for TOKEN_S. ``addresses``: instead of the hub's own.

    Raises RalphdError.
    """
    record = hub.read_record(directory)
    for each in addresses:
        keys.host_and_port(each)
    code = keys.new_seed()
    invitation = Invitation(keys.public_key(code), now + TOKEN_S, role)

    def edit(before: HubRecord) -> HubRecord:
        invitations = [each for each in before.invitations if each.expires_at > now]
        if len(invitations) >= MOST_INVITATIONS:
            raise RalphdError(f"there are {MOST_INVITATIONS} tokens already; they end within 15 minutes")
        return replace(before, invitations=(*invitations, invitation))

    await hub_server.apply(directory, edit)
    pin = keys.fingerprint(hub.pem(directory / "ca.pem"))
    token = JoinToken(tuple(addresses) or record.urls, pin, code, invitation.expires_at)
    packed = json.dumps(_TOKEN.dump(token), separators=(",", ":")).encode()
    return f"ralph-fleet-{_VERSION}.{base64.urlsafe_b64encode(packed).decode().rstrip('=')}"


def read_token(text: str, *, now: Moment) -> JoinToken:
    """Return what a token says. Raises UsageError for one that is cut off, newer, or over."""
    again = "make a new one on the hub: ralphctl fleet token"
    match = _HEAD.fullmatch(text.strip()[: MOST_TOKEN_CHARS + 1])
    if match is None or len(match[0]) > MOST_TOKEN_CHARS:
        raise UsageError("this is not a token of a fleet, or a part of one", mend=again)
    if int(match[1]) != _VERSION:
        what = f"the token is of version {match[1]}; this ralphd knows {_VERSION}"
        raise UsageError(what, mend="upgrade ralphd")
    try:
        token = _TOKEN.load(json.loads(base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))))
        keys.public_key(token.code)
        is_bad = not re.fullmatch("[0-9a-f]{64}", token.pin) or not 0 < len(token.addresses) <= MOST_ADDRESSES
        if is_bad or not 0 <= token.expires_at < 1e11:
            raise ValueError("a value is out of bounds")
        for each in token.addresses:
            keys.host_and_port(each)
    except (ValueError, Unfit, UsageError, binascii.Error, RecursionError) as error:
        raise UsageError("the token is damaged", why=one_line(str(error), 200), mend=again) from error
    if token.expires_at <= now:
        why = f"it ended at {rfc3339(token.expires_at)}; this machine's clock says {rfc3339(now)}"
        raise UsageError("the token has expired", why=why, mend=again)
    return token


# --- at the hub ------------------------------------------------------------------------------------------


async def answer_joins(
    directory: Path, decide: Decide, *, clock: Callable[[], Moment], limit_s: float = TOKEN_S, most: int = 1
) -> list[HostName]:
    """Answer hosts that ask to join, until ``most`` have joined or ``limit_s`` is over. Return who joined.

    Raises HubUnreachable, RalphdError.
    """
    from nats.errors import Error

    record = hub.read_record(directory)
    joined: list[HostName] = []
    try:
        async with asyncio.timeout(limit_s), hub_server.local(directory, record) as client:
            subscription = await client.subscribe(
                hub.JOIN_SUBJECT, queue="admin", pending_msgs_limit=_MOST_PENDING
            )
            await keys.settled(client)
            while len(joined) < most:
                message = await subscription.next_msg(timeout=None)
                if not message.reply.startswith(hub.inbox_of("U")):
                    continue
                answer, code = await _answer(directory, message, decide, clock)
                await message.respond(json.dumps(_JOINED.dump(answer)).encode())
                # The reply leaves before its reader's connection is closed by the reload.
                await keys.settled(client)
                if code:
                    await hub_server.apply(directory, partial(_without, code=code, now=clock()))
                joined += [answer.host] if not answer.refused else []
    except TimeoutError:
        pass
    except Error as error:
        raise HubUnreachable(f"the hub went away: {one_line(str(error), 200)}") from error
    return joined


async def _answer(
    directory: Path, message: "Msg", decide: Decide, clock: Callable[[], Moment]
) -> tuple[Joined, str]:
    """Return the answer, and the public key of the code that is used up by it; empty if none is."""
    code = ""
    try:
        request = _read_request(message.data)
        invitation = _admitted(hub.read_record(directory), request, clock())
        code = invitation.key
        if not await decide(request):
            raise RalphdError("the person at the hub refused it")
        member = HubMember(request.name, request.key, invitation.role)

        def edit(before: HubRecord) -> HubRecord:
            _admitted(before, request, clock())  # the decision took its time
            hosts = [each for each in before.hosts if each.name != member.name]
            used = [replace(each, is_used=each.is_used or each.key == code) for each in before.invitations]
            # Still a user of nats-server, for the answer to arrive.
            return replace(before, hosts=(*hosts, member), invitations=tuple(used))

        await hub_server.apply(directory, edit)
    except RalphdError as fault:
        return Joined(refused=one_line(str(fault), 300)), code
    record = hub.read_record(directory)
    ca = hub.pem(directory / "ca.pem").decode("ascii")
    return Joined(request.name, record.urls, ca, record.admin.name), code


def _read_request(data: bytes) -> JoinRequest:
    try:
        if len(data) > MOST_REQUEST_BYTES:
            raise ValueError("too long")
        request = _REQUEST.load(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise RalphdError("the request cannot be read: the versions of ralphd may differ") from error
    if not is_host_name(request.name) or not keys.is_public_key(request.key):
        raise RalphdError("the request has no valid name or key")
    return replace(request, address=one_line(request.address, 200), version=one_line(request.version, 40))


def _admitted(record: HubRecord, request: JoinRequest, now: Moment) -> Invitation:
    """Return the invitation of a request. Raises RalphdError."""
    try:
        code = keys.public_key(request.code)
    except ValueError:
        code = ""
    invitation = next((each for each in record.invitations if each.key == code), None)
    if invitation is None or invitation.is_used:
        raise RalphdError("the token is unknown here, or was used before")
    if invitation.expires_at <= now:
        raise RalphdError("the token has expired")
    if request.key in [record.admin.key, *(each.key for each in record.invitations)]:
        raise RalphdError("this key belongs to the hub")
    for each in (record.admin, *record.hosts):
        if (each.name == request.name) != (each.key == request.key):
            taken = f"the name {each.name} belongs to another host" if each.name == request.name else ""
            raise RalphdError(taken or f"this host has joined as {each.name}")
    return invitation


def _without(record: HubRecord, *, code: str, now: Moment) -> HubRecord:
    left = tuple(each for each in record.invitations if each.key != code and each.expires_at > now)
    return replace(record, invitations=left)


async def forget_host(directory: Path, name: str) -> bool:
    """Lock a host out. False: the hub does not run, and does it when it starts. Raises RalphdError."""
    record = hub.read_record(directory)
    if name == record.admin.name:
        raise UsageError(f"{name} is the hub itself", mend="remove the hub's unit and directory")
    if all(each.name != name for each in record.hosts):
        raise NotFound(f"no host {one_line(name, 80)} in this fleet", mend="ralphctl fleet status")

    def edit(before: HubRecord) -> HubRecord:
        return replace(before, hosts=tuple(each for each in before.hosts if each.name != name))

    return await hub_server.apply(directory, edit)


# --- at the host -----------------------------------------------------------------------------------------


async def join(
    text: str, *, directory: Path, name: str, address: str, version: str, now: Moment,
    limit_s: float = TOKEN_S,
) -> Joined:  # fmt: skip
    """Ask to join, and wait for the person at the hub. Key and CA are in ``directory``.

    Raises UsageError for the token, NameTaken or RalphdError where the hub refuses, HubUnreachable. A key
    that is there is used again.
    """
    from nats.errors import ConnectionClosedError, Error, NoRespondersError

    token = read_token(text, now=now)
    if not is_host_name(name):
        raise UsageError(f"not the name of a host: {one_line(name, 100)}", mend="--name HOST, in lower case")
    files.make_private_directory(directory)
    key = keys.make_seed(directory / "host.seed")
    asking = JoinRequest(token.code, HostName(name), key, address, version)
    request = json.dumps(_REQUEST.dump(asking)).encode()
    server, ca = await _first_that_answers(token)
    inbox = hub.inbox_of(keys.public_key(token.code))
    try:
        for tries_left in reversed(range(keys.TRIES)):
            try:
                async with keys.connected([server], ca=ca, seed=token.code, inbox=inbox) as client:
                    reply = await keys.asked(client, hub.JOIN_SUBJECT, request, limit_s=limit_s)
                break
            except ConnectionClosedError:  # before it asked: a reload of nats-server ends what just connected
                if not tries_left:
                    raise
        joined = _JOINED.load(json.loads(reply))
    except NoRespondersError as error:
        mend = "leave `ralphctl fleet token` open there until this host has joined"
        raise RalphdError("nobody at the hub answers hosts that join", mend=mend) from error
    except HubUnreachable as error:
        if not any(why in str(error) for why in ("does not know this key", "closed the connection")):
            raise
        raise UsageError("the token was used before, or has expired", mend="ralphctl fleet token") from error
    except (Error, ValueError) as error:
        raise HubUnreachable(f"{server}: {one_line(str(error) or type(error).__name__, 200)}") from error
    if joined.refused:
        what, why = "the hub refused this host", one_line(joined.refused, 300)
        if "belongs to another host" not in why:
            raise RalphdError(what, why=why)
        mend = f"--name OTHER; or, if this machine had it before, on the hub: ralphctl fleet forget {name}"
        raise NameTaken(what, why=why, mend=mend)
    return _keep(directory, replace(joined, ca=ca, host=HostName(name)), server)


async def _first_that_answers(token: JoinToken) -> tuple[str, str]:
    """Return the first address that answers, and its CA. Raises HubUnreachable, UsageError."""
    faults = []
    for each in token.addresses:
        try:
            return each, await keys.pinned_authority(each, token.pin)
        except HubUnreachable as error:
            faults.append(str(error))
    raise HubUnreachable("; ".join(faults))


def _keep(directory: Path, joined: Joined, server: str) -> Joined:
    for each in joined.servers:
        keys.host_and_port(each)
    # nats-py refuses a mixture of schemes.
    same = [each for each in joined.servers[:MOST_ADDRESSES] if each[:4] == server[:4]]
    kept = replace(joined, servers=(*dict.fromkeys((server, *same)),))
    keep(directory, kept)
    return kept


def keep(directory: Path, joined: Joined, *, seed: str = "") -> None:
    """Write down that this host belongs to a fleet; ``seed``: and its key. Raises RalphdError."""
    files.make_private_directory(directory)
    if seed:
        files.write_whole(directory / "host.seed", f"{seed}\n".encode())
    shutil.rmtree(directory / ITEMS, ignore_errors=True)  # of an earlier fleet
    files.write_whole(directory / "ca.pem", joined.ca.encode("ascii"))
    files.write_whole(directory / "fleet.json", files.as_json(_JOINED.dump(joined)))


def membership(directory: Path) -> Joined | None:
    """Return what this host knows of its fleet; None outside of one. Raises RalphdError."""
    path = directory / "fleet.json"
    try:
        if (stored := files.read_json(path)) is None:
            return None
        files.refuse_newer(path, stored.get("v"), _VERSION)
        return _JOINED.load(stored)
    except (files.Broken, Unfit) as error:
        what = f"{path} cannot be used"
        raise RalphdError(what, why=one_line(str(error), 300), mend="ralphctl fleet join") from error


def leave(directory: Path) -> str:
    """Remove the host's key and what it knows. Return what to type on the hub, which still has its name."""
    if (joined := membership(directory)) is None:
        raise NotFound("this host is in no fleet")
    for name in reversed(_OWN_FILES):
        (directory / name).unlink(missing_ok=True)
    if joined.hub_host == joined.host:
        return "systemctl --user disable --now ralph-hub-1"
    return f"ralphctl fleet forget {joined.host}"
