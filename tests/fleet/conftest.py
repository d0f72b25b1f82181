"""Servers and hosts that end with their test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ralphd.fleet.fabric import Fabric
from ralphd.fleet.nats import NatsFabric
from tests.fleet.memory import MemoryFabric, MemoryHub
from tests.fleet.server import NatsServer
from tests.helpers import eventually


class Hosts:
    """Makes connected hosts of one hub, and can break the hub, whatever it is made of."""

    def __init__(self, hub: MemoryHub | NatsServer) -> None:
        self.hub = hub
        self._made: list[Fabric] = []

    async def host(self, name: str = "h1") -> Fabric:
        """Return a connected host."""
        fabric: Fabric = (
            MemoryFabric(self.hub, name) if isinstance(self.hub, MemoryHub)
            else NatsFabric(self.hub.settings(name))
        )  # fmt: skip
        self._made.append(fabric)
        await fabric.connect()
        return fabric

    async def wipe(self) -> None:
        """Restart the hub with an empty store, and make the buckets again."""
        if isinstance(self.hub, MemoryHub):
            self.hub.wipe()
        else:
            await asyncio.to_thread(self.hub.wipe)
            await self.hub.make_buckets()

    async def restart(self) -> None:
        """Kill the hub, start it, and wait until every host is connected again."""
        before = [fabric.connected_since for fabric in self._made]
        if isinstance(self.hub, NatsServer):
            await asyncio.to_thread(self.hub.restart)
        else:
            self.hub.restart()
        for fabric, since in zip(self._made, before, strict=True):
            await eventually(
                lambda fabric=fabric, since=since: fabric.connected_since not in (None, since),  # type: ignore[misc]
                timeout_s=20,
                what="the connection",
            )

    def stop(self) -> None:
        if isinstance(self.hub, NatsServer):
            self.hub.kill()
        else:
            self.hub.cut(*(fabric.host for fabric in self._made if isinstance(fabric, MemoryFabric)))

    def start(self) -> None:
        if isinstance(self.hub, NatsServer):
            self.hub.start()
        else:
            self.hub.heal()

    async def close(self) -> None:
        for fabric in self._made:
            await fabric.close()


@pytest.fixture
def bare_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server without buckets."""
    server = NatsServer(tmp_path / "hub")
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def server(bare_server: NatsServer) -> NatsServer:
    await bare_server.make_buckets()
    return bare_server


@pytest.fixture(params=["memory", "nats"])
async def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hosts]:
    """The same tests for both engines."""
    if request.param == "memory":
        yield Hosts(MemoryHub())
        return
    server = NatsServer(tmp_path / "hub")
    server.start()
    try:
        await server.make_buckets()
        made = Hosts(server)
        yield made
        await made.close()
    finally:
        server.kill()


@pytest.fixture
async def real_hosts(server: NatsServer) -> AsyncIterator[Hosts]:
    made = Hosts(server)
    yield made
    await made.close()
