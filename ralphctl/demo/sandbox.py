"""A private home directory with a daemon, three repositories and scripted agents.

Nothing of the user's is read or written. At the end, however it comes, the processes are killed and the files
removed.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ralphctl.client.client import Client
from ralphctl.offline import processes
from ralphd import wire
from ralphd.errors import RalphdError

_FIXTURES = Path(__file__).parent / "fixtures"
_REPOSITORIES = {"project": "the loop", "tasks": "the tasks", "guarded": "a calculator"}
_ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_DIRECTORIES = {"HOME": "", "TMPDIR": "tmp", "XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state"}
_COMMAND_LIMIT_S, _FACT_LIMIT_S, _CLEANUP_LIMIT_S, _POLL_S = 40.0, 20.0, 10.0, 0.02


class DemoFailed(RalphdError, slug="demo-failed"):
    """Something that the demo shows did not hold."""


class DemoInterrupted(BaseException):
    """A signal, whose number is the argument, ended the demo."""


class Sandbox:
    """The private home. ``ralphctl`` and all it starts there see no other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # COLUMNS: the output is shown indented, and a terminal may have 80.
        constant = {"GIT_CONFIG_NOSYSTEM": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "76"}
        self._environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | constant
        self._environment |= {name: str(home / below) for name, below in _DIRECTORIES.items()}
        self._environment["PATH"] = f"{home}/bin:{os.environ.get('PATH', os.defpath)}"
        self.state_directory = Path(wire.state_directory(self._environment))
        socket = wire.socket_path(self._environment)
        self.client = Client(lambda: [socket])  # this one only: no other daemon is ever contacted

    @classmethod
    @contextmanager
    def open(cls) -> "Iterator[Sandbox]":
        """Build a sandbox, and on the way out kill its processes and remove its files.

        From now on SIGINT, SIGTERM and SIGHUP raise DemoInterrupted. Raise DemoFailed when a program is
        missing, or when something cannot be removed.
        """
        if missing := [name for name in ("git", "setsid") if shutil.which(name) is None]:
            what = f"the demo needs {' and '.join(missing)}"
            raise DemoFailed(what, mend="install it, then: ralphctl demo")
        processes.become_reaper()  # every process of the demo stays below this one
        for number in _ENDED_BY:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        # Blocked while there is a directory that nothing would remove, and during the removal.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED_BY)
        try:
            sandbox = cls(Path(tempfile.mkdtemp(prefix="ralphd-demo-")).resolve())
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                sandbox._fill()
                yield sandbox
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, _ENDED_BY)
                sandbox._clean_up()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _fill(self) -> None:
        if os.statvfs(self.home).f_flag & os.ST_NOEXEC:
            what = f"programs cannot be executed in {self.home.parent} (mounted noexec)"
            raise DemoFailed(what, mend="TMPDIR=ANOTHER_DIRECTORY ralphctl demo")
        (self.home / "tmp").mkdir()
        self._write(".gitconfig", "[user]\nname = demo\nemail = demo@localhost\n")
        for file in _FIXTURES.glob("*/*"):
            self._write(str(file.relative_to(_FIXTURES)), file.read_text())
        # -P: a `json.py` where a command is typed must not be taken for Python's own.
        self._write("bin/ralphctl", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ralphctl "$@"\n')
        for name, subject in _REPOSITORIES.items():
            self.run(f"cd {name} && git init --quiet && git symbolic-ref HEAD refs/heads/main")
            self.run(f"cd {name} && git add . && git commit --quiet --message '{subject}'")
        self._write("guarded/notes.txt", "Buy milk.\n")

    def _write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        # Whatever the umask is: ralphd refuses a ralph.toml that others may write.
        path.chmod(0o755 if text.startswith("#!") else 0o644)

    def _clean_up(self) -> None:
        is_alone = processes.none_left() or processes.end_all(limit_s=_CLEANUP_LIMIT_S)
        for intent in self.state_directory.glob("ralphs/*/runs/*/intent.json"):
            with suppress(OSError, ValueError):
                if group := json.loads(intent.read_text())["cgroup"]:
                    Path(group).rmdir()
        shutil.rmtree(self.home, ignore_errors=True)
        if not is_alone or self.home.exists():
            why = f"it could not remove {self.home}" if is_alone else "some of its processes are alive"
            raise DemoFailed("the demo could not clean up", why=why)

    def run(self, command: str) -> str:
        """Run a shell command and return stdout and stderr together. Raise DemoFailed if it fails."""
        try:
            ended = subprocess.run(
                ["/bin/sh", "-c", command], cwd=self.home, env=self._environment, timeout=_COMMAND_LIMIT_S,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as fault:
            raise DemoFailed(f"still running after {_COMMAND_LIMIT_S:g} s: {command}") from fault
        processes.reap()
        output = ended.stdout.decode(errors="replace").rstrip("\n")
        if ended.returncode:
            raise DemoFailed(f"{command} exited with {ended.returncode}", why=output)
        return output

    def lines(self, path: Path | str) -> list[str]:
        """Return the lines of a file below the home; none if it does not exist."""
        with suppress(FileNotFoundError):
            return (self.home / path).read_text(errors="replace").splitlines()
        return []


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise DemoInterrupted(number)


def eventually(fact: Callable[[], object], what: str) -> None:
    """Wait until ``fact`` is true. Raise DemoFailed when it is not in time."""
    deadline = time.monotonic() + _FACT_LIMIT_S
    while not fact():
        if time.monotonic() >= deadline:
            raise DemoFailed(f"did not happen within {_FACT_LIMIT_S:g} s: {what}")
        time.sleep(_POLL_S)
        processes.reap()


def parent_of(pid: int) -> int | None:
    """Return the pid of the parent; None when the process is gone or a zombie."""
    with suppress(OSError):
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(parent)
    return None
