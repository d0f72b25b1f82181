"""A hub of three servers, each on a loopback address of its own: one can be lost."""

import asyncio
import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ralphd.fleet.fabric import Bucket, HubUnreachable
from ralphd.fleet.hub import files as hub
from ralphd.fleet.nats import HubSettings, NatsFabric
from tests.fleet.hub_server import PROGRAM, init

LIMIT_S = 60.0


@contextmanager
def three_servers(directory: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Run the servers as their machines would: same files, another address each."""
    net = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}"
    addresses = [f"{net}.{number}" for number in (1, 2, 3)]
    init(directory, addresses=addresses, servers=3, port=hub.PORT)
    with ExitStack() as stack:
        servers = []
        for number, address in enumerate(addresses, start=1):
            conf = directory / hub.conf_name(number)
            conf.write_text(conf.read_text().replace('listen: "127.0.0.1', f'listen: "{address}'))
            command = [str(PROGRAM), "-c", str(conf)]
            servers.append(stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL)))
            stack.callback(servers[-1].kill)
        yield servers


async def written(fabric: NatsFabric, host: str) -> int:
    """Write as soon as the hub takes it; return the revision."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with suppress(HubUnreachable):
                if not fabric.is_connected:
                    await fabric.connect()
                return await fabric.put(Bucket.LEASES, "r.b", {"host": host})
            await asyncio.sleep(0.1)


async def test_one_of_three_servers_can_be_lost(tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    with three_servers(directory) as servers:
        seed, ca = directory / "admin.seed", directory / "ca.pem"
        urls = hub.read_record(directory).urls
        fabric = NatsFabric(HubSettings(urls, "hub", seed_file=seed, ca_file=ca, replicas=3))
        try:
            first = await written(fabric, "h1")
            servers[0].kill()
            servers[0].wait()
            assert await written(fabric, "h2") > first
            entry = await fabric.get(Bucket.LEASES, "r.b")
            assert entry is not None and entry.value == {"host": "h2"}

            servers[1].kill()
            servers[1].wait()
            with pytest.raises(HubUnreachable):
                await fabric.put(Bucket.LEASES, "r.b", {"host": "h3"})
        finally:
            await fabric.close()
