"""A real daemon in a place of its own, killed and started at will, and the proof that nothing is left."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers import wait_for
from tests.template import Forked, Template

UP_S = 20.0
REQUEST_S = 30.0
CGROUPS = Path("/sys/fs/cgroup")

REPORT_SENDER = """
import http.client, json, os, socket, sys
given = json.load(sys.stdin)
directory, name = os.path.split(given["socket"])
connection = http.client.HTTPConnection("ralphd")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(f"/proc/self/fd/{os.open(directory, os.O_RDONLY)}/{name}")
connection.request("POST", given["path"], json.dumps(given["body"]), {"content-type": "application/json"})
answer = connection.getresponse()
print(json.dumps([answer.status, json.loads(answer.read())]))
"""

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the daemon answered: the status, and the body, read as JSON where it is some."""

    status: int
    body: Any


class _UnixConnection(http.client.HTTPConnection):
    """Over a Unix socket, however long its path is: it is reached through its directory's descriptor."""

    def __init__(self, path: Path) -> None:
        super().__init__("ralphd", timeout=REQUEST_S)
        self._path = path

    def connect(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(REQUEST_S)
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


@dataclass(slots=True)
class Daemon:
    """``ralphd`` in the foreground, with state, home and configuration below ``root``.

    It may be killed and started again any number of times. ``failpoints`` are names of places at which the
    one that is started with them ends itself by SIGKILL.
    """

    root: Path
    state: Path = field(init=False)
    home: Path = field(init=False)
    _process: subprocess.Popen[bytes] | Forked | None = None

    def __post_init__(self) -> None:
        self.state, self.home = self.root / "state", self.root / "home"
        for directory in (self.state, self.home, self.root / "config"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    # --- its life -------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id of the daemon that was started last."""
        assert self._process is not None, "no daemon was started"
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """What the daemon is started with, and a client has to be."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "RALPHD_STATE_DIR": str(self.state),
            **({"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {}),
        }

    def configure(self, text: str) -> None:
        """Write the user's configuration file; the next daemon reads it."""
        path = self.root / "config" / "ralph" / "config.toml"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def start(
        self,
        *,
        failpoints: Sequence[str] = (),
        wait: bool = True,
        unarmed: bool = False,
        as_child: bool = False,
    ) -> None:
        """Start it; unless told otherwise, return when it is ready and has adopted what lives.

        ``unarmed`` failpoints hold from ``arm`` on. ``as_child``: no fork of the template, but ``python -m
        ralphd`` with the limits of this process.
        """
        armed = {"RALPHD_FAILPOINTS": ",".join(f"{name}=kill" for name in failpoints)} if failpoints else {}
        if unarmed:
            armed["RALPHD_FAILPOINTS_WHEN"] = str(self.root / "armed")
            (self.root / "armed").unlink(missing_ok=True)
        with (self.root / "stderr").open("ab") as stderr:
            environment = self.environment | armed
            if as_child:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "ralphd"],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    cwd=self.root,
                )
            else:
                self._process = Template.present().start(
                    "ralphd", (), environment, self.root, output=stderr.fileno(), errors=stderr.fileno()
                )
        if wait:
            wait_for(self._is_up, timeout_s=UP_S, what="an answer of the daemon")

    def arm(self) -> None:
        """Have the failpoints hold that it was started with."""
        (self.root / "armed").touch()

    def kill(self) -> None:
        """End the daemon as a power cut would, and nothing else."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(UP_S)

    def restart(self, *, failpoints: Sequence[str] = ()) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start(failpoints=failpoints)

    def died(self) -> None:
        """Wait until it has been ended by SIGKILL, as it is at a failpoint."""
        assert self.exit_code() == -signal.SIGKILL, self.words()

    def exit_code(self) -> int:
        """Wait until it has ended; its exit code, or its signal as a negative number."""
        assert self._process is not None, "no daemon was started"
        process = self._process
        wait_for(
            lambda: process.poll() is not None, timeout_s=UP_S, what=f"the daemon's end:\n{self.words()}"
        )
        assert process.returncode is not None
        return process.returncode

    def send(self, number: signal.Signals) -> None:
        """Send the daemon a signal."""
        assert self._process is not None, "no daemon was started"
        self._process.send_signal(number)

    def words(self) -> str:
        """All that it wrote on stderr so far."""
        return (self.root / "stderr").read_text(errors="replace")

    def _is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.words()
        with suppress(OSError, http.client.HTTPException):
            return self.api("GET", "/v1/ready").status == 200
        return False

    # --- what it is asked -----------------------------------------------------------------------------

    def api(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, from_outside: bool = False
    ) -> Reply:
        """One request. Raises OSError or HTTPException where there is no answer.

        A report is sent by a process that carries the cookie of its run, unless ``from_outside``.
        """
        if path.endswith("/reports") and body is not None and not from_outside:
            return self._report(path, body)
        connection = _UnixConnection(self.state / "ralphd.sock")
        try:
            headers = {"content-type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        is_json = "json" in (answer.getheader("content-type") or "")
        return Reply(answer.status, json.loads(data) if is_json else data)

    def _report(self, path: str, body: Mapping[str, Any]) -> Reply:
        given = json.dumps({"socket": str(self.state / "ralphd.sock"), "path": path, "body": body})
        sent = subprocess.run(
            [sys.executable, "-I", "-S", "-c", REPORT_SENDER],
            env={"RALPH_RUN_ID": str(body.get("run_id"))},
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=REQUEST_S,
        )
        if not sent.stdout:
            raise ConnectionResetError(sent.stderr)
        return Reply(*json.loads(sent.stdout))

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The body of a reply that has to be a good one."""
        reply = self.api(method, path, body)
        assert reply.status < 300, reply
        return reply.body

    def ask_the_dying(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """A request in the course of which the daemon ends itself at a failpoint."""
        with suppress(OSError, http.client.HTTPException):
            self.api(method, path, body)
        self.died()

    def status(self) -> View:
        """``GET /v1/status``."""
        return dict(self.ask("GET", "/v1/status"))

    def view(self, name: str) -> View:
        """One ralph."""
        return dict(self.ask("GET", f"/v1/ralphs/{name}"))

    def becomes(self, name: str, state: str, *, timeout_s: float = 30.0) -> View:
        """The view of the ralph, once it is in this state; a failure shows what it was and did instead."""

        def reached() -> View | None:
            view = self.view(name)
            return view if view["state"] == state else None

        try:
            return wait_for(reached, timeout_s=timeout_s, what=f"{name} {state}") or {}
        except AssertionError as late:
            late.add_note(json.dumps({"view": self.view(name), "last events": self.events()[-5:]}, indent=1))
            raise

    def events(self, kind: str | None = None) -> list[View]:
        """All events that are kept, oldest first; of one kind, where that is asked."""
        stream = self.ask("GET", "/v1/events?replay=10000&follow=false").decode()
        told = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
        return [event for event in told if kind in (None, event["type"])]

    # --- what it wrote --------------------------------------------------------------------------------

    def files(self, name: str) -> Path:
        """Where the originals of a ralph's files are."""
        return self.state / "ralphs" / name

    def history(self, name: str, kind: str = "run") -> list[View]:
        """The record, oldest first: the ends of runs, or another kind of entry."""
        lines = (self.files(name) / "history.jsonl").read_text().splitlines()
        return [entry for line in lines if (entry := json.loads(line))["kind"] == kind]

    def run_directories(self, name: str) -> list[Path]:
        """The directories of a ralph's runs, oldest first."""
        return sorted((self.files(name) / "runs").glob("r*"))

    def run_record(self, name: str) -> View:
        """``run.json`` of a ralph's newest run."""
        return dict(json.loads((self.run_directories(name)[-1] / "run.json").read_text()))

    # --- its end --------------------------------------------------------------------------------------

    def leftovers(self) -> list[tuple[int, str]]:
        """Every process that has to do with this daemon, by its command line, its environment or a cookie."""
        marks = [str(self.state).encode(), *(f"RALPH_RUN_ID={run.name}\0".encode() for run in self._runs())]
        return [(pid, line) for pid, line in _processes(marks) if pid != os.getpid()]

    def pids_of_runs(self) -> list[int]:
        """Return the processes of all runs, with their shims."""
        marks = [f"RALPH_RUN_ID={run.name}\0".encode() for run in self._runs()]
        return [pid for pid, _ in _processes(marks)] if marks else []

    def clean_up(self) -> None:
        """End what was started here, and prove that nothing is left of it."""
        self.kill()
        groups = {f"ralphd-{run.name}" for run in self._runs()}
        groups |= {group for pid, _ in self.leftovers() if (group := _group_of(pid)).startswith("ralphd-r")}
        wait_for(self._is_swept, timeout_s=30.0, what=f"an end of {self.leftovers()}")
        for leaf in _leaves(groups):  # a process in execve(2) shows no environment, and may have been missed
            wait_for(lambda leaf=leaf: self._is_swept() and _removed(leaf), what=f"an empty {leaf}")  # type: ignore[misc]
        assert not self.leftovers()
        assert not _leaves(groups)

    def _is_swept(self) -> bool:
        found = self.leftovers()
        for pid, _ in found:
            with suppress(ProcessLookupError):
                pinned = os.pidfd_open(pid)
                try:
                    if pid in {again for again, _ in self.leftovers()}:
                        signal.pidfd_send_signal(pinned, signal.SIGKILL)
                finally:
                    os.close(pinned)
        return not found

    def _runs(self) -> list[Path]:
        return list(self.state.glob("ralphs/*/runs/r*"))


def _processes(marks: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """The living processes that carry one of the marks."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            carried = command + b"\0" + Path(f"/proc/{entry}/environ").read_bytes() + b"\0"
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and any(mark in carried for mark in marks):
            yield int(entry), command.replace(b"\0", b" ").decode(errors="replace")


def _group_of(pid: int) -> str:
    """The name of the control group that a process is in."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return ""
    return next((line.rpartition("/")[2] for line in lines if line.startswith("0::")), "")


def _leaves(names: set[str]) -> list[Path]:
    found = [Path(folder) for folder, _, _ in os.walk(CGROUPS)]
    return [folder for folder in found if folder.name in names]


def _removed(leaf: Path) -> bool:
    with suppress(OSError):
        leaf.rmdir()
    return not leaf.exists()


@contextmanager
def daemon_in(root: Path) -> Iterator[Daemon]:
    """A daemon below ``root``, not started yet; cleaned up at the end, whatever happened."""
    daemon = Daemon(root)
    try:
        yield daemon
    finally:
        daemon.clean_up()
