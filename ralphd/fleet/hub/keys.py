"""Keys and certificates of a fleet, and the connections that are made with them.

A host has an nkey: its seed stays in a file of its own (0600), and the hub knows the public key only. TLS
comes first, before a byte of NATS: nats-py believes a server that TLS is not needed, even for ``tls://``, so
that somebody in between could strip it off.
"""

import asyncio
import base64
import binascii
import hashlib
import ipaddress
import os
import re
import ssl
import stat
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from ralphd.core.text import one_line
from ralphd.core.time import Moment
from ralphd.errors import RalphdError, UsageError
from ralphd.fleet.fabric import HubUnreachable
from ralphd.plain_files import open_plain, reason
from ralphd.store.files import write_whole

if TYPE_CHECKING:
    from nats.aio.client import Client

T = TypeVar("T")
Connection: TypeAlias = AbstractAsyncContextManager["Client"]
AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 730
CONNECT_S: Final = 10.0
MOST_FAULTS: Final = 20
_CLOSE_S: Final = 1.0
_LOOK_S: Final = 0.1
TRIES: Final = 3
_UNKNOWN_KEY: Final = "the hub does not know this key"
_BACKDATED: Final = timedelta(days=1)
"""Clocks are wrong by hours."""
_SEED_BYTES: Final = 128
_PUBLIC_KEY: Final = re.compile(r"U[A-Z2-7]{55}")
_MOST_CERTIFICATES: Final = 8


def new_seed() -> str:
    """Return the seed of a new user key."""
    import nkeys  # type: ignore[import-untyped]  # has no types

    return str(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER), "ascii")


def make_seed(path: Path) -> str:
    """Return the public key of the seed in a file; a missing file is made. Raises RalphdError."""
    if not os.path.lexists(path):
        write_whole(path, f"{new_seed()}\n".encode())
    return public_key(read_seed(path))


def read_seed(path: Path) -> str:
    """Return the seed in a file that only we can read. Raises RalphdError."""
    try:
        with open_plain(path) as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid():
                raise ValueError(f"belongs to uid {about.st_uid}")
            if stat.S_IMODE(about.st_mode) & 0o077:
                raise ValueError("others can read it")
            seed = file.read(_SEED_BYTES + 1).decode("ascii").strip()
        public_key(seed)
    except (OSError, ValueError) as error:
        what = f"the key in {path} cannot be used"
        raise RalphdError(what, why=reason(error), mend=f"ls -l {path}; chmod 600 {path}") from error
    return seed


def public_key(seed: str) -> str:
    """Return the public key of a user's seed. Raises ValueError."""
    import nkeys

    try:
        prefix, raw = nkeys.decode_seed(seed.encode("ascii"))
        # The library does not check the sum at the end.
        if prefix != nkeys.PREFIX_BYTE_USER or nkeys.encode_seed(bytes(raw), prefix).decode() != seed:
            raise ValueError("no seed of a user key")
        return str(nkeys.from_seed(bytearray(seed, "ascii")).public_key, "ascii")
    except (nkeys.NkeysError, binascii.Error, UnicodeError, IndexError) as error:
        raise ValueError("no seed of a user key") from error


def is_public_key(text: str) -> bool:
    """Return whether this is the public key of a user, with its sum."""
    if not _PUBLIC_KEY.fullmatch(text):
        return False
    raw = base64.b32decode(text)
    return binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") == raw[-2:]


def private_key() -> bytes:
    """Return a new P-256 key as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def authority(key: bytes, name: str, *, now: Moment) -> bytes:
    """Return a CA's own certificate as PEM, for AUTHORITY_DAYS."""
    from cryptography import x509

    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    basic = x509.BasicConstraints(ca=True, path_length=0)
    return _signed(key, own, key, own, (basic, _usage(signs_others=True)), now=now, days=AUTHORITY_DAYS)


def server_certificate(key: bytes, names: Sequence[str], *, ca: bytes, ca_key: bytes, now: Moment) -> bytes:
    """Return the certificate for these names and addresses, and the CA's after it, as PEM, for SERVER_DAYS.

    Servers send the CA's too, so that a host that joins can compare it with the fingerprint in its token.
    """
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)  # routes use both
    extensions = (
        *(x509.BasicConstraints(ca=False, path_length=None), _usage(signs_others=False)),
        x509.ExtendedKeyUsage(usages),
        x509.SubjectAlternativeName([_general_name(name) for name in names]),
    )
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
    issuer = x509.load_pem_x509_certificate(ca).subject
    return _signed(key, own, ca_key, issuer, extensions, now=now, days=SERVER_DAYS) + ca


def _signed(
    key: bytes, subject: Any, ca_key: bytes, issuer: Any, extensions: Sequence[Any], *, now: Moment, days: int
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    own, signer = (serialization.load_pem_private_key(each, None) for each in (key, ca_key))
    assert isinstance(own, ec.EllipticCurvePrivateKey) and isinstance(signer, ec.EllipticCurvePrivateKey)
    start = datetime.fromtimestamp(now, UTC)
    builder = x509.CertificateBuilder(
        issuer, subject, own.public_key(), x509.random_serial_number(), start - _BACKDATED,
        start + timedelta(days=days),
    )  # fmt: skip
    known_by = (
        x509.SubjectKeyIdentifier.from_public_key(own.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
    )
    for each in (*extensions, *known_by):
        is_critical = isinstance(each, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(each, critical=is_critical)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _usage(*, signs_others: bool) -> Any:
    from cryptography import x509

    names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not signs_others, key_cert_sign=signs_others, crl_sign=signs_others,
        encipher_only=False, decipher_only=False, **dict.fromkeys(names, False),
    )  # fmt: skip


def _general_name(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def fingerprint(ca: bytes) -> str:
    """Return the SHA-256 of a certificate (PEM; of several, the first)."""
    end = b"-----END CERTIFICATE-----"
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert((ca.partition(end)[0] + end).decode("ascii"))).hexdigest()


def valid_until(certificate: bytes) -> Moment:
    """Return when a certificate (PEM) ends. Raises ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def client_tls(ca: str) -> ssl.SSLContext:
    """Return TLS for a client that trusts this CA alone. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca)
    return context


def host_and_port(address: str) -> tuple[str, int]:
    """Return both of ``tls://HOST:PORT`` or ``wss://HOST:PORT``. Raises UsageError."""
    with suppress(ValueError):
        parts = urlsplit(address)
        is_bare = not (parts.path or parts.query or parts.fragment or parts.username)
        if parts.scheme in ("tls", "wss") and parts.hostname and parts.port and is_bare:
            return parts.hostname, parts.port
    raise UsageError(f"not an address of a hub: {one_line(address, 100)}", mend="tls://hub.example.org:4222")


async def pinned_authority(address: str, pin: str, *, limit_s: float = CONNECT_S) -> str:
    """Return the CA's certificate with this fingerprint, as the server at the address sends it.

    Nothing is sent to the server. Raises UsageError for another fingerprint, HubUnreachable.
    """
    host, port = host_and_port(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the pin decides; then all is verified
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                tls = writer.get_extra_info("ssl_object")
                # Public since Python 3.13; pip uses the private one before, too.
                chain = getattr(tls, "get_unverified_chain", tls._sslobj.get_unverified_chain)()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError) as error:
        raise HubUnreachable(f"{address}: {_why(error)}") from error
    for each in chain[:_MOST_CERTIFICATES]:
        der = each if isinstance(each, bytes) else each.public_bytes(2)
        if hashlib.sha256(der).hexdigest() == pin:
            return ssl.DER_cert_to_PEM_cert(der)
    what = f"{address} is not the hub of this token: none of its certificates has the token's fingerprint"
    raise UsageError(what, why="somebody is in between, or the hub has a new CA", mend="ask for a new token")


@asynccontextmanager
async def connected(
    servers: Sequence[str], *, ca: str, seed: str, inbox: str, tls_name: str = "",
    faults: list[str] | None = None, limit_s: float = CONNECT_S,
) -> AsyncIterator["Client"]:  # fmt: skip
    """Connect as the user of this seed. Raises HubUnreachable with the reason, UsageError for an address.

    What the hub refuses afterwards is appended to ``faults``, MOST_FAULTS at most: a refused publish is
    silent but for that.
    """
    from nats.aio.client import Client
    from nats.errors import Error

    seen = faults if faults is not None else []

    async def note(error: Exception) -> None:
        seen[:] = [*seen, _why(error)][-MOST_FAULTS:]

    for each in servers:
        host_and_port(each)
    for tries_left in reversed(range(TRIES)):
        client = Client()
        try:
            try:
                await bounded(
                    client.connect(
                        list(servers), error_cb=note, nkeys_seed_str=seed, inbox_prefix=inbox,
                        tls=client_tls(ca), tls_hostname=tls_name or None, connect_timeout=5,
                        tls_handshake_first=servers[0].startswith("tls:"), allow_reconnect=False,
                        max_reconnect_attempts=1, reconnect_time_wait=0,
                    ),
                    limit_s,
                )  # fmt: skip
            except (OSError, TimeoutError, Error, ValueError) as error:
                why = _why(error) if isinstance(error, TimeoutError) or not seen else seen[-1]
                is_reset = isinstance(error, ConnectionResetError | BrokenPipeError)
                if tries_left and (is_reset or why == _UNKNOWN_KEY):
                    await asyncio.sleep(_LOOK_S)  # nats-server ends what connects while it reloads
                    continue
                raise HubUnreachable(f"{', '.join(servers)}: {why}") from error
            yield client
            return
        finally:
            await _close(client)


async def _close(client: "Client") -> None:
    """Close, though we are cancelled meanwhile; after a failed handshake nats-py would wait for ever."""
    closing = asyncio.ensure_future(client.close())
    try:
        await asyncio.wait([closing], timeout=_CLOSE_S)
    except asyncio.CancelledError:
        await asyncio.wait([closing], timeout=_CLOSE_S)
        raise
    finally:
        closing.cancel()


async def asked(client: "Client", subject: str, data: bytes, *, limit_s: float) -> bytes:
    """Return the reply to a request. Raises HubUnreachable without a connection, nats.errors.Error.

    nats-py itself waits for its whole time then.
    """
    task = asyncio.ensure_future(client.request(subject, data, timeout=limit_s))
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_S))[0]:
            if client.is_closed:
                raise HubUnreachable("the hub closed the connection")
        return (await task).data
    finally:
        task.cancel()


async def settled(client: "Client") -> None:
    """Return when the server has taken what was sent before. Raises TimeoutError, nats.errors.Error."""
    for _ in range(2):  # nats-py 2.16 writes its PING before what is still in its own queue
        await bounded(client.flush(), CONNECT_S)


async def bounded(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Return the result of ``work``. Raises TimeoutError.

    It runs in a task of its own, since the ``wait_for`` of Python 3.11, which nats-py uses, can lose a
    cancellation; ``wait`` does not.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise TimeoutError(f"no answer within {limit_s:g} s")
        return task.result()
    finally:
        if task.cancel():
            await asyncio.wait([task], timeout=_CLOSE_S)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid here: {error.verify_message}"
    if "Authorization Violation" in str(error):
        return _UNKNOWN_KEY
    return one_line(str(error), 200) or type(error).__name__
