"""A place to start runs in, for the tests of shim and spawn; it leaves nothing alive behind."""

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ralphd.process import tree
from ralphd.process.lock import DirectoryLock
from ralphd.process.rundir import ExitRecord, RunDirectory, next_run_directory
from ralphd.process.spawn import Run, RunSpec, read_ended
from tests.helpers import eventually, is_alive, wait_for

RECORD_HEAD = len(b"2026-11-21T20:00:00.000000000Z stdout F ")


@dataclass
class Stage:
    """A working directory, a place for run directories, and the runs that were started there."""

    home: Path
    runs: Path
    started: list[Run] = field(default_factory=list)

    def directory(self) -> RunDirectory:
        """The directory of the next run."""
        return next_run_directory(self.runs)

    def spec(
        self,
        directory: RunDirectory,
        command: tuple[str, ...],
        *,
        run_bytes: int = 64 << 20,
        environment: Mapping[str, str] | None = None,
        environment_file: Path | None = None,
        umask: int = 0o022,
    ) -> RunSpec:
        """What to start, with the defaults of these tests."""
        return RunSpec(
            run_id=directory.run_id,
            ralph="stage",
            command=command,
            directory=self.home,
            environment_file=environment_file,
            environment=environment or {},
            umask=umask,
            run_bytes=run_bytes,
            definition={"name": "stage"},
        )

    async def spawn(
        self,
        command: tuple[str, ...],
        *,
        lock: DirectoryLock | None = None,
        allow_cgroup: bool = True,
        run_bytes: int = 64 << 20,
    ) -> Run:
        """Start a run of ``command``."""
        directory = self.directory()
        spec = self.spec(directory, command, run_bytes=run_bytes)
        run = await Run.spawn(directory, spec, lock, allow_cgroup=allow_cgroup)
        self.started.append(run)
        return run

    async def ended(self, command: tuple[str, ...], *, allow_cgroup: bool = True) -> ExitRecord:
        """Start a run of ``command`` and wait for its end."""
        return await (await self.spawn(command, allow_cgroup=allow_cgroup)).ended()

    def end_all(self) -> None:
        """End every run that is still there, by what its records say.

        The shim ends its tree itself: without it nobody finds what has neither cookie nor control group.
        """
        for path in self.runs.glob("r*"):
            directory = RunDirectory(path)
            record = directory.run_record()
            if record is not None and tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id):
                os.kill(record.shim_pid, signal.SIGQUIT)
                os.kill(record.shim_pid, signal.SIGCONT)
                wait_for(lambda: not is_alive(record.shim_pid), timeout_s=30, what="the end of a shim")  # noqa: B023
            read_ended(directory)  # sweeps what is left


@contextmanager
def stage_in(path: Path) -> Iterator[Stage]:
    """A stage below ``path``, swept at the end."""
    stage = Stage(path / "home", path / "runs")
    stage.home.mkdir()
    try:
        yield stage
    finally:
        stage.end_all()


def log_bytes(directory: RunDirectory) -> bytes:
    """All that is in the log of a run, as stored."""
    return b"".join(path.read_bytes() for path in sorted(directory.path.glob("log.*")))


def records(directory: RunDirectory) -> list[tuple[str, str, bytes]]:
    """The log of a run as stream, ``F`` or ``P``, and text."""
    lines = log_bytes(directory).split(b"\n")[:-1]
    return [(line[31:37].decode(), line[38:39].decode(), line[RECORD_HEAD:]) for line in lines]


def output(directory: RunDirectory, stream: str = "stdout") -> bytes:
    """What a run said on one stream, put together again."""
    said = [(flag, text) for name, flag, text in records(directory) if name == stream]
    return b"".join(text + (b"\n" if flag == "F" else b"") for flag, text in said)


async def names(directory: RunDirectory, count: int) -> dict[str, int]:
    """The pids that a player told as ``NAME PID`` lines, once ``count`` of them are there."""

    def told() -> dict[str, int] | None:
        pairs = [line.split() for line in output(directory).decode().splitlines()]
        found = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
        return found if len(found) == count else None

    return await eventually(told, what=f"{count} names") or {}


async def said(directory: RunDirectory, text: bytes) -> None:
    """Wait until a run has said ``text`` on one of its streams."""
    await eventually(lambda: text in output(directory) + output(directory, "stderr"), what=repr(text))


def nobody_alive(pids: Mapping[str, int]) -> bool:
    """Whether none of these processes lives."""
    return not any(is_alive(pid) for pid in pids.values())


def is_free(directory: Path) -> bool:
    """Whether nobody holds the lock of a working directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
