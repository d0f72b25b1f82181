"""pm2, from npm; over its own RPC on a Unix socket, as its client does."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.bench.measure import is_alive, wait_until
from tests.bench.peers.install import PM2
from tests.bench.peers.peer import ANSWER_S, END_S, START_S, Peer, Program

_META = struct.Struct(">BI")
_SIZE = struct.Struct(">I")
_ENDLESS = 1_000_000


class Pm2(Peer):
    """One pm2 with its home in ours. It is started by its client, which leaves the daemon behind."""

    name = "pm2"
    asks = "getMonitorData"

    def _configure(self) -> None:
        (self.home / "touch").touch()  # else it greets, and asks the network for a newer one
        self._file = self.home / "ecosystem.json"
        self._file.write_text(json.dumps({"apps": [self._app(program) for program in self.programs]}))

    def _app(self, program: Program) -> dict[str, Any]:
        return {
            "name": program.name,
            "script": program.command[0],
            "args": list(program.command[1:]),
            "interpreter": "none",
            "cwd": "/",
            "env": dict(program.environment),
            "out_file": str(self.log(program.name)),
            "error_file": str(self.home / f"{program.name}.err"),
            "autorestart": program.restarts,
            "max_restarts": _ENDLESS,
            "kill_timeout": program.stop_s * 1000,
        }

    @property
    def environment(self) -> Mapping[str, str]:
        """Its home, and nothing that goes out to the network."""
        quiet = {"PM2_DISABLE_VERSION_CHECK": "true", "PM2_NO_INTERACTION": "true"}
        return {**super().environment, "PM2_HOME": str(self.home), **quiet}

    @property
    def _start_command(self) -> Sequence[str]:
        return [str(PM2), "start", str(self._file)] if self.programs else [str(PM2), "ping"]

    @property
    def status_command(self) -> Sequence[str]:
        """``pm2 status``."""
        return [str(PM2), "status"]

    def follow_command(self, name: str) -> Sequence[str]:
        """``pm2 logs``."""
        return [str(PM2), "logs", name, "--raw", "--lines", "0"]

    @property
    def pid(self) -> int:
        """What it wrote down itself."""
        return int((self.home / "pm2.pid").read_text())

    def start(self) -> float:
        """Until the daemon answers; the client is awaited afterwards, since the programs are its orders."""
        for name in ("rpc.sock", "pub.sock", "pm2.pid"):  # a pm2 that was killed leaves its own
            (self.home / name).unlink(missing_ok=True)
        took_s = super().start()
        assert self._process is not None
        code = self._process.wait(START_S + END_S)
        if code:
            raise RuntimeError(f"pm2 start ended with {code}")
        wait_until(lambda: is_alive(self.pid), limit_s=START_S, what="pm2's pid")
        return took_s

    def answers(self) -> bool:
        """Whether it answers a ping."""
        try:
            self._call("ping")
        except (OSError, EOFError):
            return False
        return True

    def ask_often(self, count: int) -> Sequence[float]:
        """``getMonitorData``, which is what ``pm2 status`` shows."""
        took_s = []
        with self._linked() as link:
            for number in range(count):
                begun = time.perf_counter()
                _asked(link, "getMonitorData", number)
                took_s.append(time.perf_counter() - begun)
        return took_s

    def pids(self) -> Mapping[str, int]:
        """Of what is online."""
        online = (each for each in self._call("getMonitorData") if each["pm2_env"]["status"] == "online")
        return {each["name"]: each["pid"] for each in online}

    def stop(self, name: str) -> None:
        """``pm2 stop``, which waits by itself."""
        subprocess.run(
            [str(PM2), "stop", name], env=self.environment, check=True, timeout=START_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def close(self) -> None:
        """The daemon is nobody's child but the bench's, once its client is gone."""
        super().close()
        with contextlib.suppress(OSError, ValueError):
            os.waitpid(self.pid, os.WNOHANG)

    def _call(self, method: str) -> Any:
        with self._linked() as link:
            return _asked(link, method, 0)["args"][0]

    @contextlib.contextmanager
    def _linked(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(ANSWER_S)
            link.connect(str(self.home / "rpc.sock"))
            yield link


def _asked(link: socket.socket, method: str, number: int) -> Any:
    """One request in pm2's framing: a byte with the count of parts, then each part after its length."""
    parts = (_json({"type": "call", "method": method, "args": [{}]}), b"s:bench:%d" % number)
    link.sendall(bytes([0x10 | len(parts)]) + b"".join(_SIZE.pack(len(part)) + part for part in parts))
    count, size = _META.unpack(_exactly(link, _META.size))
    reply = _exactly(link, size)
    for _ in range((count & 0xF) - 1):
        _exactly(link, _SIZE.unpack(_exactly(link, _SIZE.size))[0])
    answer = json.loads(reply.removeprefix(b"j:"))
    if "error" in answer:
        raise RuntimeError(f"pm2: {method}: {answer['error']}")
    return answer


def _json(value: object) -> bytes:
    return b"j:" + json.dumps(value).encode()


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = link.recv(min(size - len(data), 1 << 18))
        if not more:
            raise EOFError("pm2 closed the connection")
        data += more
    return bytes(data)
