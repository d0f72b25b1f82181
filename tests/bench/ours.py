"""A private ralphd: in a directory of its own, spoken to as any client does."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ralphd.process import tree
from ralphd.process.rundir import RunDirectory, RunRecord
from tests.bench.measure import clear_away, cpu_s, is_alive, wait_until
from tests.bench.unix_http import ANSWER_S, ask

START_S = 20.0
END_S = 90.0  # of a daemon with hundreds of runs, on a loaded machine
RALPHCTL = Path(sys.executable).with_name("ralphctl")


_MAY_READ = "--clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"


class LeftBehind(Exception):
    """Processes that a daemon should have ended."""


class Daemon:
    """ralphd with its state below ``home``, as ``user`` where one is given (root only).

    ``configuration`` is the user's own ``config.toml``.
    """

    def __init__(self, home: Path, *, user: int | None = None, configuration: str = "") -> None:
        self.home, self._user = home, user
        self.state = home / "state"
        self.socket = str(self.state / "ralphd.sock")
        (home / "config/ralph").mkdir(parents=True)
        (home / "config/ralph/config.toml").write_text(configuration)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "RALPHD_STATE_DIR": str(self.state),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
        if user is not None:
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)
        # The one capability lets that user read an interpreter that lives in root's home.
        self._become = [] if user is None else f"setpriv --reuid {user} --regid {user} {_MAY_READ}".split()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self.start_cpu_s = 0.0

    @property
    def pid(self) -> int:
        """Of the daemon that was started last."""
        assert self._pid is not None, "not started"
        return self._pid

    def start(self, *, limit_s: float = START_S) -> float:
        """Start it in the foreground; the seconds until its first answered status."""
        took = self._spawn([*self._become, sys.executable, "-P", "-m", "ralphd"], limit_s)
        assert self._process is not None
        self._pid = self._process.pid
        return took

    def start_as_people_do(self) -> float:
        """The same by ``ralphctl regent start``, which is over when this returns."""
        took = self._spawn([str(RALPHCTL), "regent", "start"])
        assert self._process is not None
        _, _, usage = os.wait4(self._process.pid, 0)
        self._pid = int(self.ask("GET", "/v1/status")["daemon"]["pid"])
        self.start_cpu_s = usage.ru_utime + usage.ru_stime + cpu_s(self._pid)
        return took

    def _spawn(self, argv: Sequence[str], limit_s: float = START_S) -> float:
        with (self.home / "daemon.err").open("ab") as said:
            begun = time.perf_counter()
            self._process = subprocess.Popen(
                argv, env=self.environment, cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip
        wait_until(self.answers, limit_s=limit_s, what="the daemon's first answer", pause_s=0.001)
        return time.perf_counter() - begun

    def answers(self) -> bool:
        """Whether a status is answered."""
        try:
            self.status()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def kill(self) -> None:
        """kill -9."""
        os.kill(self.pid, signal.SIGKILL)
        self._await_end()

    def _await_end(self) -> None:
        wait_until(lambda: not is_alive(self.pid), limit_s=END_S, what="the daemon's end", pause_s=0.002)

    def close(self) -> None:
        """End it and all its runs, whatever its state. Raises LeftBehind for what is alive after that."""
        self.shut()
        left = clear_away()
        if left and sys.exc_info()[0] is None:  # what broke the row says more
            raise LeftBehind(f"alive after the daemon's end: {left}")

    def shut(self) -> None:
        """The same where others live on beside it; what escapes is for ``clear_away``."""
        if self._process is None:
            return
        if self._pid is not None and is_alive(self._pid):
            with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException):
                self.ask("POST", "/v1/shutdown", {"runs": "now"})
            self._await_end()
        self._process.poll()
        for path in self.state.glob("ralphs/*/runs/*"):
            if RunDirectory(path).is_locked():
                tree.sweep(RunDirectory(path).run_id, None, limit_s=5.0)

    def ask(
        self, method: str, target: str, body: Mapping[str, Any] | None = None, limit_s: float = ANSWER_S
    ) -> Any:
        """One request; its JSON reply. Raises RuntimeError on a refusal."""
        data = None if body is None else json.dumps(body).encode()
        return json.loads(ask(self.socket, method, target, data, "application/json", limit_s) or b"null")

    def status(self) -> dict[str, dict[str, Any]]:
        """Every ralph's view, by name."""
        return {view["name"]: view for view in self.ask("GET", "/v1/status")["ralphs"]}

    def register(
        self,
        name: str,
        command: Sequence[str],
        flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Register and start a ralph in a directory of its own; its view."""
        directory = self.home / "work" / name
        directory.mkdir(parents=True)
        if self._user is not None:
            os.chown(directory, self._user, self._user)
        body = {
            "directory": str(directory),
            "command": list(command),
            "name": name,
            "flags": dict(flags or {}),
            "environment": {**self.environment, **(environment or {})},
        }
        view: dict[str, Any] = self.ask("POST", "/v1/ralphs", body)
        return view

    def register_many(
        self, count: int, command: Sequence[str], flags: Mapping[str, Any] | None = None
    ) -> None:
        """Register and start ``count`` ralphs ``r000`` …, four at a time."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: self.register(f"r{number:03d}", command, flags), range(count)))

    def stop(self, name: str, *, limit_s: float = 30.0) -> dict[str, Any]:
        """Ask a ralph to stop and wait until it has; its view."""
        self.ask("POST", f"/v1/ralphs/{name}/stop", {})

        def stopped() -> dict[str, Any] | None:
            view: dict[str, Any] = self.ask("GET", f"/v1/ralphs/{name}")
            return view if view["state"] in ("stopped", "failed", "done") else None

        view = wait_until(stopped, limit_s=limit_s, what=f"{name} stopped", pause_s=0.02)
        assert view is not None
        return view

    def told(self, event: str) -> int:
        """How many events of this type there were since its start."""
        text = ask(self.socket, "GET", "/metrics", None, "").decode()
        wanted = f'ralphd_events_total{{type="{event}"}} '
        return sum(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(wanted))

    def log(self, name: str) -> bytes:
        """All that a ralph printed on stdout and that is kept."""
        target = f"/v1/ralphs/{name}/logs?tail=all&stream=stdout&format=text"
        return ask(self.socket, "GET", target, None, "")

    def runs(self, name: str) -> list[dict[str, Any]]:
        """The ends that are on record, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/v1/ralphs/{name}/runs?limit=1000")["runs"]
        return [entry for entry in found if entry["kind"] == "run"]

    def run_directory(self, name: str) -> Path:
        """The newest run's."""
        return max((self.state / "ralphs" / name / "runs").iterdir())

    def run_record(self, name: str) -> RunRecord:
        """Who the newest run is."""
        record = RunDirectory(self.run_directory(name)).run_record()
        assert record is not None, f"{name} has no run"
        return record
