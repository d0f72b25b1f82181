"""supervisord beside ours: from PyPI, in a virtual environment of its own, and private in every way."""

import contextlib
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import wait_until
from tests.bench.ours import ask

VERSION = "4.3.0"
VENV = Path(__file__).parents[2] / ".venv-bench"
INSTALL_S = 90.0
START_S = 20.0
CONFIGURATION = """\
[unix_http_server]
file={home}/s.sock
[supervisord]
logfile={home}/supervisord.log
pidfile={home}/supervisord.pid
childlogdir={home}
minfds={descriptors}
nodaemon=true
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{home}/s.sock
{programs}
"""


def install() -> bool:
    """Have supervisord in ``.venv-bench``; False when it cannot be had, which is then said."""
    if (VENV / "bin/supervisord").exists():
        return True
    steps = (
        [sys.executable, "-m", "venv", str(VENV)],
        [str(VENV / "bin/python"), *["-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
         f"supervisor=={VERSION}"],
    )  # fmt: skip
    try:
        for step in steps:
            subprocess.run(step, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL, capture_output=True)
            (VENV / ".gitignore").write_text("*\n")  # a cache, whatever the project ignores
    except (OSError, subprocess.SubprocessError) as fault:
        print(f"supervisord cannot be installed: {fault}", file=sys.stderr)
        return False
    return True


def program(name: str, command: Sequence[str], **options: object) -> str:
    """A ``[program:NAME]`` section. No argument of ``command`` may hold a quote or a percent sign."""
    words = " ".join(f'"{word}"' for word in command)
    lines = [f"[program:{name}]", f"command={words}", "stdout_logfile_maxbytes=0", "startsecs=0"]
    return "\n".join([*lines, *(f"{key}={value}" for key, value in options.items())]) + "\n"


class Supervisord:
    """One supervisord with its files in ``home``, which is made here."""

    def __init__(self, home: Path, programs: str) -> None:
        home.mkdir(parents=True)
        self.home, self.socket = home, str(home / "s.sock")
        self.configuration = home / "supervisord.conf"
        self.configuration.write_text(
            CONFIGURATION.format(home=home, programs=programs, descriptors=4096)
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the supervisord that lives."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def status_command(self) -> list[str]:
        """``supervisorctl status``."""
        return [str(VENV / "bin/supervisorctl"), "-c", str(self.configuration), "status"]

    def start(self) -> float:
        """Start it; the seconds until its first answer."""
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            [str(VENV / "bin/supervisord"), "-c", str(self.configuration)], cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers, limit_s=START_S, what="supervisord's first answer", pause_s=0.001)
        return time.perf_counter() - begun

    def _answers(self) -> bool:
        try:
            self.call("getState")
        except OSError:
            return False
        return True

    def call(self, method: str, *arguments: Any) -> Any:
        """One call of its XML-RPC interface."""
        body = xmlrpc.client.dumps(arguments, f"supervisor.{method}").encode()
        reply = ask(self.socket, "POST", "/RPC2", body, "text/xml")
        return xmlrpc.client.loads(reply)[0][0]

    def processes(self) -> dict[str, dict[str, Any]]:
        """What it says of each process, by name."""
        return {found["name"]: found for found in self.call("getAllProcessInfo")}

    def wait_for(self, count: int, *, limit_s: float = 60.0) -> None:
        """Wait until that many processes run."""
        wait_until(
            lambda: sum(found["statename"] == "RUNNING" for found in self.processes().values()) >= count,
            limit_s=limit_s, what=f"{count} processes of supervisord", pause_s=0.05,
        )  # fmt: skip

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it; what it leaves behind is for ``clear_away``."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        self.kill()
