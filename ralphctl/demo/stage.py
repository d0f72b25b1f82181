"""A place of its own for a daemon and a loop: a home directory, an environment, a git repository.

Nothing of the user's is read or written, and however it is left, nothing of it stays.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ralphctl.client import Client
from ralphctl.demo import furniture, traces
from ralphctl.offline.processes import become_reaper
from ralphd import wire
from ralphd.errors import RalphdError

T = TypeVar("T")

ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_COMMAND_LIMIT_S = 40.0
_FACT_LIMIT_S = 20.0
_CLEANING_LIMIT_S = 10.0
_LOOK_S = 0.02
_FILES = {"loop.sh": 0o755, "devserver.sh": 0o755}
_CONFIGURATION = """\
[regent]
retry_backoff_seconds = 1   # how long to wait after a crash; 30 unless you say
stop_timeout_seconds = 2    # how long a loop may take to end when asked; 30 unless you say
"""


class DemoFailed(RalphdError):
    """Something that the demo shows was not so."""

    slug = "demo-failed"


class Interrupted(BaseException):
    """A signal asked the demo to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def interruptible() -> Iterator[None]:
    """Within it, each signal that asks to end raises Interrupted; one that was ignored stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in ENDED_BY}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stage:
    """The private home. ``ralphctl`` and all it starts there see no other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.environment = _environment(home)
        self.state_directory = Path(wire.state_directory(self.environment))
        socket = wire.socket_path(self.environment)
        self.client = Client(lambda: [socket])  # this one only: no other daemon is ever asked

    @classmethod
    @contextmanager
    def open(cls) -> "Iterator[Stage]":
        """Build it; when it is left, by whatever way, end all that runs there and remove it.

        Raises DemoFailed when something that it needs is not installed, or cannot be removed.
        """
        _check_tools()
        become_reaper()
        # Held back while there is a directory that nobody would remove, and while it is being removed.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY)
        try:
            home = Path(tempfile.mkdtemp(prefix="ralphd-demo-")).resolve()
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                _check_executable(home)
                stage = cls(home)
                stage._furnish()
                yield stage
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY)
                _clear(home)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def run(self, command: str) -> str:
        """What a line typed into a shell prints, stdout and stderr together. Raises DemoFailed."""
        try:
            ended = subprocess.run(
                ["/bin/sh", "-c", command], cwd=self.home, env=self.environment, timeout=_COMMAND_LIMIT_S,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as fault:
            raise DemoFailed(f"no end after {_COMMAND_LIMIT_S:g} s: {command}") from fault
        traces.reap()
        said = ended.stdout.decode(errors="replace").rstrip("\n")
        if ended.returncode:
            raise DemoFailed(f"{command} ended with {ended.returncode}", why=said)
        return said

    def view(self, name: str = "project") -> dict[str, Any]:
        """A ralph as the daemon sees it."""
        view: dict[str, Any] = self.client.ralph(name).value
        return view

    def attempts(self) -> list[dict[str, Any]]:
        """What the record of the built-in loop has of its agents' attempts, oldest first."""
        entries = map(json.loads, _lines(self.state_directory / "ralphs" / "tasks" / "history.jsonl"))
        return [entry for entry in entries if entry["kind"] == "attempt"]

    def log_lines(self) -> list[str]:
        """All that the loop printed on stdout, as the log has it."""
        query = {"tail": "all", "format": "text", "stream": "stdout"}
        return b"".join(self.client.log("project", query)).decode(errors="replace").splitlines()

    def printed(self) -> int:
        """How many lines the loop says it has printed, by its own account."""
        return len(_lines(self.home / "printed"))

    def servers(self) -> list[int]:
        """The pids of the servers that were left behind, oldest first."""
        return [int(line) for line in _lines(self.home / "servers")]

    def swept(self) -> list[dict[str, Any]]:
        """What was ended after each run, as its exit record has it."""
        records = sorted(self.state_directory.glob("ralphs/project/runs/*/exit.json"))
        return [process for record in records for process in json.loads(record.read_text())["swept"]]

    def left(self) -> list[traces.Trace]:
        """All that is alive of it."""
        traces.reap()
        return traces.of_home(self.home, below=os.getpid())

    def last_words(self) -> str:
        """The end of the daemon's log, for whoever looks into a failure."""
        return "\n".join(_lines(self.state_directory / "ralphd.log")[-12:])

    def _furnish(self) -> None:
        for directory in ("bin", "tmp", "project", "tasks", "guarded"):
            (self.home / directory).mkdir()
        # -P: a `json.py` where a command is typed must not be taken for Python's own.
        command = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ralphctl "$@"\n'
        _write(self.home / "bin" / "ralphctl", command, 0o755)
        for name, mode in _FILES.items():
            _write(self.project / name, (Path(__file__).parent / name).read_text(), mode)
        _write(self.project / "ralph.toml", _CONFIGURATION)
        for name, text in furniture.programs().items():
            _write(self.home / "bin" / name, text, 0o755)
        for directory, files in (("tasks", furniture.tasks()), ("guarded", furniture.guarded())):
            for name, text in files.items():
                _write(self.home / directory / name, text)
        _write(self.home / ".gitconfig", "[user]\nname = demo\nemail = demo@localhost\n")
        for name, what in (("project", "the loop"), ("tasks", "the tasks"), ("guarded", "a calculator")):
            self.run(
                f"cd {name} && git init --quiet && git symbolic-ref HEAD refs/heads/main"
                f" && git add . && git commit --quiet --message '{what}'"
            )
        _write(self.home / "guarded" / furniture.NOTES, furniture.NOT_COMMITTED)


def eventually(fact: Callable[[], T], what: str) -> T:
    """The first truthy answer of ``fact``. Raises DemoFailed when there is none in time."""
    deadline = time.monotonic() + _FACT_LIMIT_S
    while not (answer := fact()):
        if time.monotonic() >= deadline:
            raise DemoFailed(f"not so after {_FACT_LIMIT_S:g} s: {what}")
        time.sleep(_LOOK_S)
        traces.reap()
    return answer


def _check_tools() -> None:
    missing = [name for name in ("git", "setsid") if shutil.which(name) is None]
    if missing:
        raise DemoFailed(f"the demo needs {' and '.join(missing)}", mend="install it, then ralphctl demo")


def _check_executable(home: Path) -> None:
    if os.statvfs(home).f_flag & os.ST_NOEXEC:
        raise DemoFailed(
            f"programs cannot be executed in {home.parent} (it is mounted noexec)",
            mend="TMPDIR=SOME_OTHER_DIRECTORY ralphctl demo",
        )


def _environment(home: Path) -> dict[str, str]:
    """No variable of the user's but those that programs need to be found and to speak."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "PATH": f"{home}/bin:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "76",  # what is shown is indented, and a terminal may have 80
    }


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)  # a umask of 002 would make a ralph.toml that others may write, which is refused


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ()


def _clear(home: Path) -> None:
    """End what runs there, and remove it with its control groups. Raises DemoFailed when something stays."""
    living = traces.end_all(home, below=os.getpid(), limit_s=_CLEANING_LIMIT_S)
    for group in _control_groups(home):
        with suppress(OSError):
            group.rmdir()
    shutil.rmtree(home, ignore_errors=True)
    if living or home.exists():
        pids = ", ".join(f"{trace.pid} ({trace.command})" for trace in living)
        raise DemoFailed(
            "the demo could not clean up after itself",
            why="\n".join([f"alive: {pids}"] * bool(living) + [f"there: {home}"] * home.exists()),
        )


def _control_groups(home: Path) -> Iterator[Path]:
    for intent in home.glob(".local/state/ralphd/ralphs/*/runs/*/intent.json"):
        with suppress(OSError, ValueError):
            if group := json.loads(intent.read_text())["cgroup"]:
                yield Path(group)
