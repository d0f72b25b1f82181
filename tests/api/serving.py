"""The API served for real: uvicorn, a Unix socket, and clients that speak HTTP over it."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
from starlette.types import ASGIApp

from ralphd.api.app import Api, create_app
from ralphd.api.server import ApiServer, Listener
from ralphd.process.peer_run import Peer
from ralphd.store.events import EventStore
from tests.api.memory_host import MemoryHost
from tests.helpers import eventually

if TYPE_CHECKING:
    from ralphd.daemon.host import Host


@dataclass(frozen=True)
class Served:
    """A server under way. ``address`` leads to its socket, however long the path is."""

    server: ApiServer
    serving: asyncio.Task[None]
    path: Path
    address: str
    client: httpx.AsyncClient

    async def raw(self, request: bytes, *, half_close: bool = False) -> bytes:
        """Send bytes as they are, and give all that comes back until the server closes."""
        reader, writer = await asyncio.open_unix_connection(self.address)
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        if half_close:
            writer.write_eof()
        try:
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()

    def connect(self) -> socket.socket:
        """A connection that does only what the test says."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(self.address)
        return connection


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """An address that fits a Unix socket's 108 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


@contextlib.asynccontextmanager
async def serve(
    app: ASGIApp, path: Path, *, is_within: Callable[[Peer], bool] = lambda peer: False
) -> AsyncIterator[Served]:
    """Serve an application at ``path``; everything is over when the block is."""
    listener = Listener.bind(path)
    server = ApiServer(app, listener, is_within=is_within)
    serving = asyncio.create_task(server.run_until_asked())
    with short_address(path) as address:
        transport = httpx.AsyncHTTPTransport(uds=address)
        async with httpx.AsyncClient(transport=transport, base_url="http://ralphd", timeout=5) as client:
            await eventually(lambda: server.started)
            yield Served(server, serving, path, address, client)
        server.ask_to_exit()
        await serving


@dataclass(frozen=True)
class Whole:
    """The API over a host in memory."""

    host: MemoryHost
    app: Api
    served: Served

    @property
    def client(self) -> httpx.AsyncClient:
        return self.served.client


@contextlib.asynccontextmanager
async def serve_host(directory: Path) -> AsyncIterator[Whole]:
    """A host with one ralph called alice, and its API."""
    events = await EventStore.open(directory / "events.db")
    host = MemoryHost(directory, events)
    host.add("alice")
    app = create_app(cast("Host", host))
    try:
        async with serve(app, directory / "ralphd.sock") as served:
            yield Whole(host, app, served)
            host.stopping.set()
    finally:
        await events.close()
