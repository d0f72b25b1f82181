"""Listen for browsers: the socket, TLS with a certificate of the page's own, and bounded connections."""

import asyncio
import ipaddress
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

import h11
import psutil
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ralphctl.web.guard import HEAD_BYTES, HEADERS, Site
from ralphd.errors import RalphdError, UsageError
from ralphd.fleet.hub import keys
from ralphd.store.files import write_whole
from ralphd.unix_http import short_address

MOST_CONNECTIONS: Final = 64
HEAD_S: Final = 10.0
READER_S: Final = 30.0
_LOOK_S: Final = 2.0
_BACKLOG: Final = 64


def site_of(listen: str, hosts: tuple[str, ...]) -> Site:
    """Return where the page is. Raise RalphdError for an interface that has no address."""
    if not (where := listen.rpartition(":")[0].strip("[]")):
        return Site(listen, hosts)
    found = [each.address for each in psutil.net_if_addrs().get(where, ()) if each.family == socket.AF_INET]
    try:
        address = ipaddress.ip_address((found or [where])[0])
    except ValueError:
        mend = "ip address  lists them; or give an IP address"
        raise UsageError(f"no interface {where} has an IPv4 address", mend=mend) from None
    if address.is_unspecified or getattr(address, "ipv4_mapped", None):
        raise UsageError(f"{address} is not one address", mend="[web] listen")
    return Site(listen, hosts, str(address))


def bound(site: Site, directory: Path) -> socket.socket:
    """Return the socket of the page, bound; ``directory`` is the state directory. Raise RalphdError."""
    family = socket.AF_INET6 if ":" in site.address else socket.AF_INET if site.address else socket.AF_UNIX
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            bind_private(listening, directory / "web.sock")
            return listening
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((site.address, int(site.listen.rpartition(":")[2])))
    except OSError as fault:
        listening.close()
        what = f"cannot listen on {site.listen}: {fault.strerror or fault}"
        raise RalphdError(what, mend="[web] listen") from fault
    return listening


def bind_private(listening: socket.socket, path: Path) -> None:
    """Bind to ``path``, mode 0600, in place of a socket that an earlier process left. Raise OSError."""
    os.fchmod(listening.fileno(), 0o600)  # Linux gives the file the mode of the socket (unix(7))
    path.unlink(missing_ok=True)
    with short_address(str(path)) as address:
        listening.bind(address)


def tls(site: Site, directory: Path) -> ssl.SSLContext:
    """Return TLS with a certificate for the names of the page, made where it is missing, old or for others.

    The key of the CA is thrown away once it has signed: nobody can sign for other names with a CA that is
    installed on a phone. A new certificate is one of a new CA.
    """
    names = list(dict.fromkeys([*(each.partition(":")[0] for each in site.hosts), site.address]))
    key_file, chain_file, ca_file = (directory / name for name in ("web.key", "web.pem", "ca.pem"))
    if not _is_usable(chain_file, names):
        now, own_key, ca_key = time.time(), keys.private_key(), keys.private_key()
        ca = keys.authority(ca_key, f"ralphd's page on {socket.gethostname()}"[:64], now=now)
        chain = keys.server_certificate(own_key, names, ca=ca, ca_key=ca_key, now=now)
        for path, data in ((chain_file, b""), (key_file, own_key), (ca_file, ca), (chain_file, chain)):
            write_whole(path, data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain_file, key_file)
    return context


def _is_usable(chain_file: Path, names: list[str]) -> bool:
    from cryptography import x509

    try:
        chain = chain_file.read_bytes()
        extensions = x509.load_pem_x509_certificate(chain).extensions
        own = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_fresh = keys.valid_until(chain) > time.time() + 86_400
        return is_fresh and [str(each.value) for each in own] == names
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False


class WebProtocol(H11Protocol):
    """A connection of a browser: a head has HEAD_S, and what was sent has to be read within READER_S."""

    _watch: asyncio.TimerHandle | None = None
    _head_since = _unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Let the connection in, or cut it."""
        if len(self.connections) >= MOST_CONNECTIONS:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._head_since = self._unread_since = self.loop.time()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._head_since = self.loop.time()
        super().data_received(data)

    def _look(self) -> None:
        now = self.loop.time()
        if not self.transport.get_write_buffer_size():
            self._unread_since = now
        is_read = self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None
        if (not is_read and now - self._head_since > HEAD_S) or now - self._unread_since > READER_S:
            self.transport.abort()
            return
        self._watch = self.loop.call_later(_LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop looking."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Cut the connection: no browser sends what is not HTTP."""
        self.transport.abort()


async def listen(app: ASGIApp, listening: socket.socket, context: ssl.SSLContext | None) -> asyncio.Server:
    """Serve ``app`` on a bound socket, until the server is closed."""
    config = uvicorn.Config(
        app, ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False,
        server_header=False, date_header=False, headers=HEADERS, h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=15, proxy_headers=False,
    )  # fmt: skip
    config.load()
    state = ServerState()
    state.default_headers = config.encoded_headers

    def protocol() -> Any:
        return WebProtocol(config, state, {})

    limits: dict[str, Any] = {"ssl_handshake_timeout": HEAD_S, "ssl_shutdown_timeout": 2} if context else {}
    loop = asyncio.get_running_loop()
    return await loop.create_server(protocol, sock=listening, ssl=context, backlog=_BACKLOG, **limits)
