"""circusd, from PyPI; over ZeroMQ on a Unix socket, as circusctl does."""

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import is_alive
from tests.bench.peers.install import VENV
from tests.bench.peers.peer import START_S, Peer, Program

CHECK_DELAY_S = 0.1
_CONFIGURATION = f"""\
[circus]
check_delay = {CHECK_DELAY_S}
endpoint = ipc://{{home}}/c.sock
pubsub_endpoint = ipc://{{home}}/p.sock
multicast_endpoint =
"""


class Circus(Peer):
    """One circusd. ``check_delay`` is how often it looks: 5 s by default, here the tenth of a second."""

    name = "circus"
    asks = "status (names and states only)"
    _voice: subprocess.Popen[bytes] | None = None

    def _configure(self) -> None:
        self._file = self.home / "circus.ini"
        watchers = "".join(map(self._section, self.programs))
        self._file.write_text(_CONFIGURATION.format(home=self.home) + watchers)

    def _section(self, program: Program) -> str:
        options: dict[str, object] = {
            "cmd": program.command[0],
            "args": " ".join(program.command[1:]),
            "respawn": program.restarts,
            "max_retry": -1,
            "graceful_timeout": program.stop_s,
            "stdout_stream.class": "FileStream",
            "stdout_stream.filename": self.log(program.name),
        }
        environment = {**self.mark, **program.environment}
        lines = [
            f"[watcher:{program.name}]",
            *(f"{key} = {value}" for key, value in options.items()),
            f"[env:{program.name}]",
            *(f"{key} = {value}" for key, value in environment.items()),
        ]
        return "\n".join(lines) + "\n"

    @property
    def _start_command(self) -> Sequence[str]:
        return [str(VENV / "bin/circusd"), str(self._file)]

    @property
    def status_command(self) -> Sequence[str]:
        """``circusctl status``."""
        return [str(VENV / "bin/circusctl"), "--endpoint", f"ipc://{self.home}/c.sock", "status"]

    def follow_command(self, name: str) -> None:
        """It has none."""

    def start(self) -> float:
        """Its voice first, so that loading that one is not counted."""
        self._hush()
        self.home.joinpath("c.sock").unlink(missing_ok=True)  # a circusd that was killed leaves its own
        words = [str(VENV / "bin/python"), "-I", str(Path(__file__).with_name("circus_asks.py"))]
        self._voice = subprocess.Popen(
            [*words, f"ipc://{self.home}/c.sock"], env=self.environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._heard(START_S)
        return super().start()

    def answers(self) -> bool:
        """Waits for the answer by itself."""
        return self._ask({"command": "list"})["reply"] is not None

    def ask_often(self, count: int) -> Sequence[float]:
        """``status``."""
        took_s: list[float] = self._ask({"command": "status"}, count)["took_s"]
        return took_s

    def pids(self) -> Mapping[str, int]:
        """Of each watcher that is active; it has to be asked one by one."""
        states = self._ask({"command": "status"})["reply"]["statuses"]
        active = [name for name, state in states.items() if state == "active"]
        found = {name: self._ask(_about("list", name))["reply"]["pids"] for name in active}
        return {name: pids[0] for name, pids in found.items() if pids and is_alive(pids[0])}

    def stop(self, name: str) -> None:
        """It waits by itself when it is asked to."""
        self._ask(_about("stop", name, waiting=True))

    def close(self) -> None:
        """Its voice too."""
        self._hush()
        super().close()

    def _ask(self, message: Mapping[str, Any], count: int = 1) -> dict[str, Any]:
        assert self._voice is not None and self._voice.stdin is not None, "not started"
        self._voice.stdin.write(json.dumps({"message": message, "count": count}).encode() + b"\n")
        self._voice.stdin.flush()
        answer = self._heard(2 * START_S)
        if "error" in answer:
            raise RuntimeError(f"circus: {answer['error']}")
        return answer

    def _heard(self, limit_s: float) -> dict[str, Any]:
        assert self._voice is not None and self._voice.stdout is not None, "not started"
        if not select.select([self._voice.stdout], [], [], limit_s)[0]:
            raise TimeoutError(f"circus said nothing for {limit_s:g} s")
        answer: dict[str, Any] = json.loads(self._voice.stdout.readline() or b'{"error": "it is gone"}')
        return answer

    def _hush(self) -> None:
        if self._voice is None:
            return
        self._voice.kill()
        self._voice.communicate()
        self._voice = None


def _about(command: str, name: str, **more: Any) -> dict[str, Any]:
    return {"command": command, "properties": {"name": name, **more}}
