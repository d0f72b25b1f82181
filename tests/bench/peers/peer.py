"""What every peer is asked, in the same words, so that each row treats all of them alike."""

import abc
import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.bench.measure import carriers, is_alive, wait_until

START_S = 20.0
END_S = 15.0
ANSWER_S = 20.0
_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class Program:
    """One command to supervise.

    ``restarts``: started again after every end. ``stop_s``: how long a stop waits before it kills.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = False
    stop_s: int = 1


class Peer(abc.ABC):
    """A supervisor with its files in ``home``, which is made here; the output of NAME is in ``log(NAME)``."""

    name: ClassVar[str]
    asks: ClassVar[str]
    """What ``ask_often`` asks, for people."""

    def __init__(self, home: Path, programs: Sequence[Program]) -> None:
        home.mkdir(parents=True)
        self.home, self.programs = home, programs
        self._mark = f"BENCH_PEER={uuid.uuid4()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._configure()

    @abc.abstractmethod
    def _configure(self) -> None:
        """Write what it reads at its start."""

    @property
    @abc.abstractmethod
    def _start_command(self) -> Sequence[str]:
        """What people type to start it, in the foreground where it has one."""

    @property
    @abc.abstractmethod
    def status_command(self) -> Sequence[str]:
        """What people type to see how all is."""

    @abc.abstractmethod
    def follow_command(self, name: str) -> Sequence[str] | None:
        """What people type to follow the output of a program; None where there is no such command."""

    @abc.abstractmethod
    def answers(self) -> bool:
        """Whether its control channel answers."""

    @abc.abstractmethod
    def ask_often(self, count: int) -> Sequence[float]:
        """Ask for the status of all programs, over one kept connection; the seconds each answer took."""

    @abc.abstractmethod
    def pids(self) -> Mapping[str, int]:
        """The programs that run, by what it says itself."""

    @abc.abstractmethod
    def stop(self, name: str) -> None:
        """Stop a program, and be back when it is said to be stopped."""

    def log(self, name: str) -> Path:
        """Where the output of a program is kept."""
        return self.home / f"{name}.log"

    @property
    def environment(self) -> Mapping[str, str]:
        """Of the daemon and of its client."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), **self.mark}

    @property
    def mark(self) -> Mapping[str, str]:
        """What every process of this peer has in its environment."""
        name, _, value = self._mark.partition("=")
        return {name: value}

    @property
    def pid(self) -> int:
        """Of the daemon that lives."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> float:
        """Start it; the seconds until its first answer."""
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            self._start_command, cwd="/", env=self.environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self.answers, limit_s=START_S, what=f"{self.name}'s first answer", pause_s=_PAUSE_S)
        return time.perf_counter() - begun

    def wait_for_all(self, *, limit_s: float = 60.0) -> Mapping[str, int]:
        """Wait until every program runs; their pids."""
        found = wait_until(
            lambda: pids if len(pids := self.pids()) == len(self.programs) else None,
            limit_s=limit_s, what=f"{len(self.programs)} programs of {self.name}", pause_s=0.05,
        )  # fmt: skip
        assert found is not None
        return found

    def kill(self) -> None:
        """kill -9 of the daemon alone."""
        os.kill(self.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(self.pid), limit_s=END_S, what=f"{self.name}'s end")

    def close(self) -> None:
        """End it and every process that carries its mark; what has shed the mark is for ``clear_away``."""
        deadline = time.monotonic() + END_S
        while (found := carriers(self._mark)) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        if self._process is not None:
            self._process.poll()
