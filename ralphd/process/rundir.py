"""A run's directory and its records: ``intent.json``, ``run.json``, ``exit.json``.

``spawn`` writes the first before it starts the shim; the shim writes the others. Each is replaced whole, so a
reader never sees half a record. A record that is broken or of a newer version counts as missing: the run is
then judged by what is left. The formats are stable, since after an upgrade old shims meet a new daemon.
"""

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.dataclass import dataclass
from ralphd.plain_files import PASSING, open_plain, read_plain, sync_directory
from ralphd.process.shim import FORMAT_VERSION, write_new

T = TypeVar("T")
LOCK_S = 0.1
MAX_RECORD_BYTES = 8 << 20
MAX_PID = 1 << 22
MAX_COUNT = (1 << 63) - 1
_TRANSIENT = (*PASSING, errno.EIO, errno.ESTALE)


@dataclass(frozen=True, slots=True)
class StartFault:
    """Why a command could not be started: the errno, and its text behind the stage that failed."""

    errno: int
    text: str


@dataclass(frozen=True, slots=True)
class SweptProcess:
    """A process of a run's tree that outlived the command; its command line is cut to 200 characters."""

    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """``run.json``: which processes a run consists of, and by what means its tree is found (S7, S8).

    A pid alone is not an identity: the kernel reuses it, after a reboot at once. So each is stored with the
    start time in clock ticks and with the boot id, and nothing is signalled unless all three agree.
    """

    run_id: RunId
    pid: int
    start_ticks: int
    shim_pid: int
    shim_start_ticks: int
    boot_id: str
    tree_means: str
    cgroup: Path | None
    started_at: Moment
    sandbox: str = "none"
    sandbox_reason: str = ""


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a run ended: ``exit.json``, or a record made in its place for a lost run (S6).

    ``code`` and ``signal`` are both None for a command that could not be started (``fault`` says why) and
    for a lost run. ``swept`` are the processes that were killed with the run, ``survivors`` those that could
    not be. Of ``log_bytes`` of output, ``dropped_bytes`` were lost to a full disk. ``unverified``: the kernel
    did not report how the shim ended, so the run may have written the record itself.
    """

    run_id: RunId
    code: int | None
    signal: int | None
    started_at: Moment | None
    ended_at: Moment
    oom: bool | None = None
    swept: tuple[SweptProcess, ...] = ()
    survivors: tuple[SweptProcess, ...] = ()
    dropped_bytes: int = 0
    fault: StartFault | None = None
    lost: bool = False
    log_bytes: int = 0
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run. Its name is the run's id."""

    path: Path

    @property
    def run_id(self) -> RunId:
        """``r%06d-%s``: the run's number and eight random hexadecimal digits."""
        return RunId(self.path.name)

    @property
    def lock_path(self) -> Path:
        """The file whose flock is held while a shim lives, or while a daemon is about to start one."""
        return self.path / "lock"

    @property
    def run_file(self) -> Path:
        """The path of ``run.json``."""
        return self.path / "run.json"

    def intent(self) -> Mapping[str, Any] | None:
        """Return ``intent.json``: what was to be started, with the ralph's definition."""
        return _read(self.path / "intent.json", dict)

    def intended_cgroup(self) -> Path | None:
        """Return the control group in ``intent.json``; None if it has none, or a foreign one."""
        return _read(self.path / "intent.json", lambda intent: _own_group(intent["cgroup"], self.run_id))

    def run_record(self) -> RunRecord | None:
        """Return ``run.json``, which exists as soon as the command has been executed."""
        return _read(self.run_file, _run_record)

    def save_run_record(self, record: RunRecord) -> None:
        """Write ``run.json`` for a shim whose own was lost. Raise OSError."""
        cgroup = None if record.cgroup is None else str(record.cgroup)
        changed = {"cgroup": cgroup, "started_at": rfc3339(record.started_at)}
        write_record(self.run_file, {"version": FORMAT_VERSION, **asdict(record), **changed})

    def exit_record(self) -> ExitRecord | None:
        """Return ``exit.json``, which exists as soon as the run is over and its tree is gone (S5)."""
        return _read(self.path / "exit.json", _exit_record)

    def final_record(self) -> ExitRecord | None:
        """Return ``exit.json`` once the shim is gone, or what it could not rename on a read-only mount."""
        unnamed = self.path / "exit.json.tmp"
        if (record := self.exit_record()) or (record := _read(unnamed, _exit_record)) is None:
            return record
        with suppress(OSError):
            unnamed.rename(self.path / "exit.json")
        return record

    def is_locked(self) -> bool:
        """Return True while a shim of this run lives, or a daemon is about to start one (S2)."""
        try:
            with open_plain(self.lock_path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # none, or what a run put in its place: that shows nothing
            if error.errno in _TRANSIENT:
                raise
            return isinstance(error, BlockingIOError)
        return False

    def take_lock(self) -> int:
        """Return a descriptor that holds the run's lock. Raise BlockingIOError if somebody holds it."""
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # ``is_locked`` of another process holds the lock for an instant: hence more than one attempt.
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except OSError as error:
                if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                    os.close(descriptor)
                    raise
            time.sleep(LOCK_S / 50)

    def note_signals(self) -> None:
        """Have the shim pass SIGUSR1 and SIGUSR2 on: the command has announced that it handles them."""
        with suppress(FileExistsError):
            (self.path / "signals").touch(mode=0o600, exist_ok=False)

    def last_trace_at(self) -> Moment:
        """Return when the run last changed a file here: the best estimate of when a lost run ended."""
        written = [_modified_at(path) for path in (*self.path.glob("log.*"), self.run_file)]
        return max(written, default=0.0) or _modified_at(self.path / "intent.json") or time.time()


_MOST_RUNS: Final = 10**11


def next_run_directory(runs: Path, *, alone: bool = False) -> RunDirectory:
    """Create the directory of the next run below ``runs``, 0700; its number is the newest one's plus one.

    ``alone``: raise BlockingIOError while the newest run has not ended, as one whose start failed half-way.
    """
    from ralphd.process.log.records import run_number  # not loaded by loops, which start no run

    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = ((run_number(entry.name) or 0, entry.name) for entry in os.scandir(runs))
    # A run may write names here. No glob: each number would be a pattern to compile and to keep.
    newest, name = max((each for each in found if 0 < each[0] < _MOST_RUNS), default=(0, ""))
    path = runs / f"r{newest + 1:06d}-{secrets.token_hex(4)}"
    if alone and name and RunDirectory(runs / name).is_locked():
        raise BlockingIOError(errno.EAGAIN, f"{name} has not ended")
    path.mkdir(mode=0o700)
    return RunDirectory(path)


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Replace ``path`` whole and durably, 0600 (F1).

    Write to a temporary file, fsync, rename, fsync the directory: after a power cut there is either the old
    file or the new one, never an empty one.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_new(str(temporary), json.dumps(record).encode())
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _modified_at(path: Path) -> Moment:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _read(path: Path, parse: Callable[[dict[str, Any]], T]) -> T | None:
    """Return the record in a file; None when it is missing, broken, of another version or of another run.
    Raise OSError where the file cannot be read at present: it may say that the run has ended.

    A run can write here, so every value is checked by type and range, and nothing is converted.
    """
    try:
        value = json.loads(read_plain(path, MAX_RECORD_BYTES))
        is_ours = value["version"] == FORMAT_VERSION and value["run_id"] == path.parent.name
        return parse(value) if is_ours else None
    except (OSError, ValueError, OverflowError, RecursionError, KeyError, TypeError) as error:
        if getattr(error, "errno", None) in _TRANSIENT:
            raise
        return None


def verified(record: ExitRecord | None, shim_status: int | None) -> ExitRecord | None:
    """Return the record if it counts once its shim ended with ``shim_status``, else None.

    A shim exits with 0 after it wrote the record. Any other end (a signal: minus its number) makes the run
    lost, whatever the file states. Status None: the kernel did not report it.
    """
    if record is None or shim_status not in (0, None):
        return None
    return replace(record, unverified=shim_status is None)


def _optional(parse: Callable[[Any], T], value: object) -> T | None:
    return None if value is None else parse(value)


def _run_record(value: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        run_id=RunId(str(value["run_id"])),
        pid=_whole(value["pid"], 1, MAX_PID),
        start_ticks=_whole(value["start_ticks"]),
        shim_pid=_whole(value["shim_pid"], 1, MAX_PID),
        shim_start_ticks=_whole(value["shim_start_ticks"]),
        boot_id=_text(value["boot_id"]),
        tree_means=_text(value["tree_means"]),
        cgroup=_optional(lambda path: _own_group(path, value["run_id"]), value["cgroup"]),
        started_at=parse_rfc3339(value["started_at"]),
        sandbox=str(value.get("sandbox", "none")),  # an earlier shim writes neither
        sandbox_reason=str(value.get("sandbox_reason", "")),
    )


def _exit_record(value: Mapping[str, Any]) -> ExitRecord:
    if value["code"] is value["signal"] is value["error"] is None:
        raise ValueError("neither a code nor a signal nor an error")
    return ExitRecord(
        run_id=RunId(str(value["run_id"])),
        code=_optional(lambda code: _whole(code, 0, 255), value["code"]),
        signal=_optional(lambda number: _whole(number, 1, 64), value["signal"]),
        started_at=_optional(parse_rfc3339, value["started_at"]),
        ended_at=parse_rfc3339(value["ended_at"]),
        oom=value["oom"] if value["oom"] is None else value["oom"] is True,
        swept=_processes(value["swept"]),
        survivors=_processes(value["survivors"]),
        dropped_bytes=_whole(value["dropped_bytes"]),
        fault=_optional(lambda each: StartFault(_whole(each["errno"]), _text(each["text"])), value["error"]),
        log_bytes=_whole(value["log_bytes"]),
    )


def _whole(value: object, least: int = 0, most: int = MAX_COUNT) -> int:
    # An exit code decides what happens next, so nothing is converted: int() would take True and "0" too.
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ValueError(f"not an integer from {least} to {most}: {value!r}")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"not a string: {value!r}")


def _own_group(path: object, run_id: str) -> Path:
    """Return the path of a run's control group. Raise ValueError for a foreign one: it would be killed."""
    group = Path(_text(path))
    if group.is_absolute() and group.name == f"ralphd-{run_id}" and ".." not in group.parts:
        return group
    raise ValueError(f"not the control group of {run_id}: {path!r}")


def _processes(values: Sequence[Mapping[str, Any]]) -> tuple[SweptProcess, ...]:
    return tuple(SweptProcess(_whole(value["pid"], 1, MAX_PID), _text(value["command"])) for value in values)
