"""supervisord, from PyPI; over XML-RPC on a Unix socket, as supervisorctl does."""

import xmlrpc.client
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.peers.install import VENV
from tests.bench.peers.peer import Peer, Program
from tests.bench.unix_http import ask, ask_often

_CONFIGURATION = """\
[unix_http_server]
file={home}/s.sock
[supervisord]
logfile={home}/supervisord.log
pidfile={home}/supervisord.pid
childlogdir={home}
minfds=4096
nodaemon=true
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{home}/s.sock
"""


class Supervisord(Peer):
    """One supervisord. No word of a command may hold a quote or a percent sign."""

    name = "supervisord"
    asks = "getAllProcessInfo"

    def _configure(self) -> None:
        self._socket = str(self.home / "s.sock")
        self._file = self.home / "supervisord.conf"
        programs = "".join(map(self._section, self.programs))
        self._file.write_text(_CONFIGURATION.format(home=self.home) + programs)

    def _section(self, program: Program) -> str:
        options = {
            "command": " ".join(f'"{word}"' for word in program.command),
            "stdout_logfile": self.log(program.name),
            "stdout_logfile_maxbytes": 0,
            "startsecs": 0,
            "autorestart": "true" if program.restarts else "unexpected",
            "stopwaitsecs": program.stop_s,
        }
        if program.environment:
            options["environment"] = ",".join(
                f'{name}="{value}"' for name, value in program.environment.items()
            )
        lines = (f"{key}={value}" for key, value in options.items())
        return "\n".join([f"[program:{program.name}]", *lines]) + "\n"

    @property
    def _start_command(self) -> Sequence[str]:
        return [str(VENV / "bin/supervisord"), "-c", str(self._file)]

    @property
    def status_command(self) -> Sequence[str]:
        """``supervisorctl status``."""
        return [str(VENV / "bin/supervisorctl"), "-c", str(self._file), "status"]

    def follow_command(self, name: str) -> Sequence[str]:
        """``supervisorctl tail -f``."""
        return [*self.status_command[:-1], "tail", "-f", name]

    def answers(self) -> bool:
        """Whether it says its state."""
        try:
            self._call("getState")
        except OSError:
            return False
        return True

    def ask_often(self, count: int) -> Sequence[float]:
        """``getAllProcessInfo``."""
        body = xmlrpc.client.dumps((), "supervisor.getAllProcessInfo").encode()
        return ask_often(self._socket, "POST", "/RPC2", body, count)

    def pids(self) -> Mapping[str, int]:
        """Of what is RUNNING."""
        running = (each for each in self._call("getAllProcessInfo") if each["statename"] == "RUNNING")
        return {each["name"]: each["pid"] for each in running}

    def stop(self, name: str) -> None:
        """``stopProcess`` waits by itself."""
        self._call("stopProcess", name)

    def _call(self, method: str, *arguments: Any) -> Any:
        body = xmlrpc.client.dumps(arguments, f"supervisor.{method}").encode()
        return xmlrpc.client.loads(ask(self._socket, "POST", "/RPC2", body, "text/xml"))[0][0]
