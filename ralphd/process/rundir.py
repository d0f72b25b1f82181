"""A run's directory and the records in it: what was intended, what runs, how it ended.

The files are written whole, by ``spawn`` (``intent.json``) and by the shim (``run.json``, ``exit.json``). One
that is broken or of a newer version counts as missing: the run is then judged by what is left.
"""

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.process.shim import FORMAT_VERSION

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartFault:
    """Why a command could not be started: the system's number and its text."""

    errno: int
    text: str


@dataclass(frozen=True, slots=True)
class SweptProcess:
    """A process of a run's tree that outlived the command; its command line is cut to 200 characters."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """``run.json``: which processes a run consists of, and by what means its tree is found (S7, S8)."""

    run_id: RunId
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    boot_id: str
    tree_means: str
    cgroup: Path | None
    started_at: Moment


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a run ended: ``exit.json``, or what is so when there is none.

    ``code`` and ``signal`` are both None for a command that could not be started (``fault`` says why) and
    for a run that was lost (S6). ``swept`` are the processes that were ended with the run, ``survivors``
    those that could not be. ``dropped_bytes`` of output were lost to a full disk, of ``log_bytes`` in all.
    """

    run_id: RunId
    code: int | None
    signal: int | None
    started_at: Moment | None
    ended_at: Moment
    oom: bool | None
    swept: tuple[SweptProcess, ...]
    survivors: tuple[SweptProcess, ...]
    dropped_bytes: int
    fault: StartFault | None
    lost: bool
    log_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Where the files of one run are. Its name is the run's id."""

    path: Path

    @property
    def run_id(self) -> RunId:
        """The run's id: ``r%06d-%s``, the run's number and eight random hexadecimal digits."""
        return RunId(self.path.name)

    @property
    def lock_path(self) -> Path:
        """The file whose flock is held for as long as a shim, or the daemon that spawns it, lives."""
        return self.path / "lock"

    @property
    def run_file(self) -> Path:
        """``run.json``."""
        return self.path / "run.json"

    def intent(self) -> Mapping[str, object] | None:
        """``intent.json``: what was to be started, with the ralph's definition."""
        return _read(self.path / "intent.json")

    def run_record(self) -> RunRecord | None:
        """``run.json``: there as soon as the command has been executed."""
        return _parsed(_run_record, self.run_file)

    def save_run_record(self, record: RunRecord) -> None:
        """Write ``run.json`` for a shim whose own was lost. Raises OSError."""
        cgroup = None if record.cgroup is None else str(record.cgroup)
        changed = {"cgroup": cgroup, "started_at": rfc3339(record.started_at)}
        write_record(self.run_file, {"version": FORMAT_VERSION, **asdict(record), **changed})

    def exit_record(self) -> ExitRecord | None:
        """``exit.json``: there as soon as the run is over and its tree is gone."""
        return _parsed(_exit_record, self.path / "exit.json")

    def is_locked(self) -> bool:
        """Whether a shim of this run lives, or a daemon is about to start one."""
        try:
            descriptor = os.open(self.lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def take_lock(self) -> int:
        """A descriptor that holds the run's lock, for the shim. Raises BlockingIOError when it is held."""
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def note_signals(self) -> None:
        """Have the shim pass SIGUSR1 and SIGUSR2 on from now on: the command has said that it knows them."""
        with suppress(FileExistsError):
            (self.path / "signals").touch(mode=0o600, exist_ok=False)

    def last_trace_at(self) -> Moment:
        """When it last left a trace in its directory: the end of a lost run, as far as anybody can tell."""
        traces = [_modified_at(path) for path in (*self.path.glob("log.*"), self.run_file)]
        return max([moment for moment in traces if moment is not None], default=None) or (
            _modified_at(self.path / "intent.json") or time.time()
        )


def next_run_directory(runs: Path) -> RunDirectory:
    """Make the directory of the next run below ``runs``, 0700; its number is the newest one's plus one."""
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    number = 1 + max((_number(entry.name) for entry in os.scandir(runs)), default=0)
    path = runs / f"r{number:06d}-{secrets.token_hex(4)}"
    path.mkdir(mode=0o700)
    return RunDirectory(path)


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Replace ``path`` whole and durably (F1): temp, fsync, rename, fsync of the directory. 0600."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(json.dumps(record).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _number(name: str) -> int:
    digits = name[1:].partition("-")[0]
    return int(digits) if name.startswith("r") and digits.isascii() and digits.isdigit() else 0


def _modified_at(path: Path) -> Moment | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("version") != FORMAT_VERSION:
        return None
    return value


def _parsed(parse: Callable[[Mapping[str, Any]], T], path: Path) -> T | None:
    value = _read(path)
    try:
        return None if value is None else parse(value)
    except (KeyError, TypeError, ValueError):
        return None


def _run_record(value: Mapping[str, Any]) -> RunRecord:
    cgroup = value["cgroup"]
    return RunRecord(
        run_id=RunId(str(value["run_id"])),
        pid=int(value["pid"]),
        start_ticks=int(value["start_ticks"]),
        shim_pid=int(value["shim_pid"]),
        shim_start_ticks=int(value["shim_start_ticks"]),
        boot_id=str(value["boot_id"]),
        tree_means=str(value["tree_means"]),
        cgroup=None if cgroup is None else Path(cgroup),
        started_at=parse_rfc3339(value["started_at"]),
    )


def _exit_record(value: Mapping[str, Any]) -> ExitRecord:
    started_at, fault = value["started_at"], value["error"]
    if value["code"] is None and value["signal"] is None and fault is None:
        raise ValueError("neither a code nor a signal nor an error")
    return ExitRecord(
        run_id=RunId(str(value["run_id"])),
        code=_whole(value["code"]),
        signal=_whole(value["signal"]),
        started_at=None if started_at is None else parse_rfc3339(started_at),
        ended_at=parse_rfc3339(value["ended_at"]),
        oom=None if value["oom"] is None else bool(value["oom"]),
        swept=_processes(value["swept"]),
        survivors=_processes(value["survivors"]),
        dropped_bytes=int(value["dropped_bytes"]),
        fault=None if fault is None else StartFault(int(fault["errno"]), str(fault["text"])),
        lost=False,
        log_bytes=int(value["log_bytes"]),
    )


def _whole(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{value!r} is no whole number")


def _processes(values: Sequence[Mapping[str, Any]]) -> tuple[SweptProcess, ...]:
    return tuple(SweptProcess(int(value["pid"]), str(value["command"])) for value in values)
