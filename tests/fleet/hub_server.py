"""A real hub on loopback for tests: its files, its nats-server with TLS, and users of it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphd.core.fleet.model import HostName
from ralphd.fleet.hub import files as hub
from ralphd.fleet.hub import keys
from ralphd.fleet.hub import server as hub_server
from ralphd.fleet.hub.files import HubFiles, HubMember
from tests.helpers import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

PROGRAM = Path(sys.executable).parent / "nats-server"


@dataclass(frozen=True, slots=True)
class RunningHub:
    """A hub that runs: its directory, and where it listens."""

    directory: Path
    url: str

    @property
    def ca(self) -> str:
        """The CA's certificate."""
        return (self.directory / "ca.pem").read_text()

    async def add(self, name: str, **more: Any) -> str:
        """Have a host in the fleet; return its seed."""
        seed = keys.new_seed()
        member = HubMember(HostName(name), keys.public_key(seed), **more)
        await hub_server.apply(self.directory, lambda before: replace(before, hosts=(*before.hosts, member)))
        return seed

    @asynccontextmanager
    async def user(self, seed: str, name: str, faults: list[str] | None = None) -> "AsyncIterator[Client]":
        """Connect with a key, as the host of this name."""
        async with keys.connected(
            [self.url], ca=self.ca, seed=seed, inbox=hub.inbox_of(name), faults=faults
        ) as client:
            yield client

    def admin_seed(self) -> str:
        """The administrator's key."""
        return keys.read_seed(self.directory / "admin.seed")


def init(directory: Path, **more: Any) -> HubFiles:
    """Write a hub whose server takes any free port of loopback."""
    options: dict[str, Any] = {"listen": "127.0.0.1", "port": -1, "name": "hub", "now": time.time()}
    return hub.init_hub(directory, more.pop("addresses", ["hub.test"]), program=PROGRAM, **options | more)


@contextmanager
def embedded_server(directory: Path) -> Iterator[str]:
    """Run a hub's first server; yield its URL once it listens. It ends with the block."""
    command = hub_server.run_command(directory)
    log = directory / "nats-server.log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            ports = directory / f"nats-server_{process.pid}.ports"
            wait_for(lambda: ports.exists() or process.poll() is not None, what="the hub listens")
            assert process.poll() is None, log.read_text()
            found = wait_for(lambda: _ports(ports))
            yield f"tls://{found[0].partition('://')[2]}"
        finally:
            process.terminate()
            process.wait(10)


def _ports(path: Path) -> list[str]:
    with suppress(ValueError):
        ports: list[str] = json.loads(path.read_text())["nats"]
        return ports
    return []


@contextmanager
def hub_in(directory: Path) -> Iterator[RunningHub]:
    """Run a hub until the end of the block."""
    init(directory)
    with embedded_server(directory) as url:
        yield RunningHub(directory, url)
