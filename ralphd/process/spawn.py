"""Start a run, adopt one, wait for its end, ask it to end. The only module that starts processes (S9).

What is started is always the shim; the command is the shim's. Nothing here is needed for a run to go on: a
daemon that ends leaves shim, log and records behind, and the next one opens them again (P1).
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ralphd import diagnostics
from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, rfc3339
from ralphd.errors import CommandNotStartable
from ralphd.process import shim, tree
from ralphd.process.lock import DirectoryLock, holders
from ralphd.process.machine import as_at_start
from ralphd.process.rundir import (
    ExitRecord,
    RunDirectory,
    RunRecord,
    StartFault,
    SweptProcess,
    write_record,
)
from ralphd.process.shim import COOKIE, FORMAT_VERSION, TIED
from ralphd.process.start_errors import LACKING, environment_of, not_startable

# A shim as a daemon holds it: a pid that cannot become another process's (S8).


class PinnedShim:
    """A shim, pinned by a descriptor, so that no signal for it can reach anybody else (S8)."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self._pid, self._pidfd = pid, pidfd
        self._end: asyncio.Future[None] | None = None

    def __del__(self) -> None:
        os.close(self._pidfd)

    @classmethod
    def of_record(cls, record: RunRecord | None) -> "PinnedShim | None":
        """The shim that a record names; None when it is gone, or its pid is another process's by now."""
        if record is None:
            return None
        try:
            shim = cls(record.shim_pid, os.pidfd_open(record.shim_pid))
        except OSError:
            return None
        return shim if tree.is_same(record.shim_pid, record.shim_start_ticks, record.boot_id) else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and SIGCONT with it. A shim that is gone gets none."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    async def gone(self) -> None:
        """Wait for its end; one that we started is reaped then. Several may wait, and any may give up."""
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = loop.create_future()
            loop.add_reader(self._pidfd, self._ended, loop)
        await asyncio.shield(self._end)

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._pidfd)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        if self._end is not None and not self._end.done():
            self._end.set_result(None)


# The end of a run whose shim is gone: what ``exit.json`` says, or lost and nothing of it left (S6).

SWEEP_S = 10.0


def read_ended(directory: RunDirectory) -> ExitRecord:
    """How a run ended that has no shim any more; to be called only when nothing holds its lock.

    Without an exit record the run is lost: what carries its cookie is ended first, for SWEEP_S seconds at
    most; ``survivors`` is what could not be, and nothing may be started before they are gone. A run of
    another boot is not probed and nothing is signalled (S8). ``ended_at`` is the last trace in its directory.
    """
    if record := directory.exit_record():
        return record
    swept: dict[int, str] = {}
    sweep(directory, swept, limit_s=SWEEP_S)
    return lost(directory, directory.last_trace_at(), swept)


def sweep(directory: RunDirectory, swept: dict[int, str], *, limit_s: float) -> bool:
    """End what is left of a run without a shim and add it to ``swept``; whether nothing is left."""
    if not _of_this_boot(directory):
        return True
    found, gone = tree.sweep(directory.run_id, _cgroup(directory), limit_s=limit_s)
    swept.update(found)
    return gone


def lost(directory: RunDirectory, ended_at: Moment, swept: dict[int, str]) -> ExitRecord:
    """The record of a run whose end nobody saw: neither code nor signal, never 0."""
    record = directory.run_record()
    survivors = tree.carriers(directory.run_id) if _of_this_boot(directory) else []
    return ExitRecord(
        run_id=directory.run_id,
        code=None,
        signal=None,
        started_at=record.started_at if record else None,
        ended_at=ended_at,
        oom=None,
        swept=tuple(SweptProcess(pid, name) for pid, name in sorted(swept.items()) if pid not in survivors),
        survivors=tuple(SweptProcess(pid, tree.command_line(pid)) for pid in survivors),
        dropped_bytes=0,
        fault=None,
        lost=True,
    )


def _of_this_boot(directory: RunDirectory) -> bool:
    """Whether it was started in this boot; so it counts where no record tells: its cookie is its own."""
    record, intent = directory.run_record(), directory.intent()
    boot = record.boot_id if record else (intent or {}).get("boot_id")
    return boot is None or boot == tree.boot_id()


def _cgroup(directory: RunDirectory) -> Path | None:
    record, intent = directory.run_record(), directory.intent()
    leaf = record.cgroup if record else (intent or {}).get("cgroup")
    return None if leaf is None else Path(str(leaf))


# Who runs in a run whose ``run.json`` is missing or broken, as the processes themselves tell it.


def who_runs(directory: RunDirectory) -> RunRecord | None:
    """The record of a run that lives: its shim holds the lock, its command is the shim's oldest child.

    None where no such pair is seen, for example because the command has just ended. ``started_at`` is as
    exact as the kernel's clock ticks. Looks at every process there is.
    """
    for holder in _shims(directory):
        shim_ticks = tree.start_ticks(holder)
        leaders = [(ticks, pid) for pid in shim.children(holder) if (ticks := _leads_since(pid)) is not None]
        if shim_ticks is None or not leaders:
            continue
        ticks, pid = min(leaders)
        cgroup = _found_cgroup(directory)
        return RunRecord(
            run_id=directory.run_id,
            pid=pid,
            start_ticks=ticks,
            shim_pid=holder,
            shim_start_ticks=shim_ticks,
            boot_id=tree.boot_id(),
            tree_means="subreaper" if cgroup is None else "cgroup",
            cgroup=cgroup,
            started_at=tree.moment_of(ticks),
        )
    return None


def _shims(directory: RunDirectory) -> list[int]:
    """Who holds the lock and was started for this run: the shim, or a fork of it just now."""
    try:
        descriptor = os.open(directory.lock_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        return [pid for pid in holders(descriptor) if directory.run_id in _command_line(pid)]
    finally:
        os.close(descriptor)


def _command_line(pid: int) -> str:
    try:
        return shim.read_bytes(f"/proc/{pid}/cmdline").decode(errors="replace")
    except OSError:
        return ""


def _leads_since(pid: int) -> int | None:
    """When it was started, for a living process with a session of its own, as a command has (S3)."""
    try:
        alone = os.getsid(pid) == pid
    except OSError:
        return None
    stat = shim.process_stat(pid)
    return stat[2] if alone and stat is not None and stat[0] not in "ZX" else None


def _found_cgroup(directory: RunDirectory) -> Path | None:
    """The control group that it was to have, where it has it."""
    leaf = (directory.intent() or {}).get("cgroup")
    return Path(leaf) if isinstance(leaf, str) and Path(leaf).is_dir() else None


START_S = 10.0
LOCK_S = 0.1
POLL_S = 0.02
UNREADABLE_S = 1.0
"""How long a start may take to leave its ``run.json`` before the processes are looked at."""
SWEEP_SLICE_S = 2.0
LONGEST_REST_S = 5.0
SHIM_KEEPS = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
SHIM_STARTS = "import sys; sys.path.append(sys.argv[1]); import shim; shim.main(sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to start.

    ``environment`` is set last, over what ``environment_file`` (a JSON object, 0600) holds; without that
    file, over a few of the daemon's own variables (SHIM_KEEPS). ``tied`` is the read end of a pipe: at its
    end of file the shim ends the run, whoever else lives or not (P5).
    """

    run_id: RunId
    ralph: str
    command: tuple[str, ...]
    directory: Path
    environment_file: Path | None
    environment: Mapping[str, str]
    umask: int
    run_bytes: int
    definition: Mapping[str, object]
    tied: int | None = None


class Run:
    """One life of a ralph's process, watched through its shim.

    Spawned here or adopted from an earlier daemon, it is waited for, asked and ended in one way.
    """

    def __init__(self, directory: RunDirectory, shim: PinnedShim | None) -> None:
        self.directory = directory
        self._shim = shim
        self._record: RunRecord | None = None

    @property
    def record(self) -> RunRecord | None:
        """Who runs; None only for a run adopted in the middle of its start, until ``ready``."""
        self._record = self._record or self.directory.run_record()
        return self._record

    @classmethod
    async def spawn(
        cls,
        directory: RunDirectory,
        spec: RunSpec,
        lock: DirectoryLock | None,
        *,
        allow_cgroup: bool = True,
    ) -> "Run":
        """Start a command and answer as soon as it has been executed, within START_S seconds.

        ``lock`` goes on to the shim (S2). Without ``allow_cgroup`` the tree is found by the subreaper.
        Raises CommandNotStartable for what the command lacks, OSError for what the machine lacks. Cancelled,
        it leaves a run that ``adopt`` opens.
        """
        await asyncio.to_thread(_write_intent, directory, spec, allow_cgroup=allow_cgroup)
        shim, ready = _start_shim(directory, _take_lock(directory), lock, spec.tied)
        run = cls(directory, shim)
        try:
            answer = await _answer(ready, START_S)
        finally:
            os.close(ready)
        if answer != b"ready\n":
            raise await run._not_started(spec, answer)
        return run

    @classmethod
    def adopt(cls, directory: RunDirectory) -> "Run | None":
        """Open a run of an earlier daemon; None when its shim is gone, and then ``read_ended`` tells."""
        if not directory.is_locked():
            return None
        return cls(directory, PinnedShim.of_record(directory.run_record()))

    async def ready(self) -> RunRecord | None:
        """Who runs, as soon as that is known; None when the command was not started and its shim is gone.

        Where ``run.json`` is broken, or stays missing for UNREADABLE_S seconds, the processes tell.
        """
        look_at = time.monotonic() + (0.0 if self.directory.run_file.exists() else UNREADABLE_S)
        # another process writes it: there is no event to wait for
        while self.record is None and self.directory.is_locked():
            await asyncio.sleep(POLL_S)
            if time.monotonic() > look_at:
                self._record = await asyncio.to_thread(who_runs, self.directory)
                look_at = time.monotonic() + UNREADABLE_S
        return self.record

    async def ended(self) -> ExitRecord:
        """How the run ended: what ``exit.json`` says, or lost, and then only when its tree is gone (S6).

        Cancelled, it leaves the run alone; it may be awaited again, and by several.
        """
        await self._shim_gone()
        if record := self.directory.exit_record():
            return record
        ended_at, swept, rest_s = time.time(), dict[int, str](), POLL_S
        while not await asyncio.to_thread(sweep, self.directory, swept, limit_s=SWEEP_SLICE_S):
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, LONGEST_REST_S)
        return lost(self.directory, ended_at, swept)

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM and SIGCONT to its process group, by way of the shim."""
        self._signal(signal.SIGTERM)

    def kill_tree(self) -> None:
        """Have the shim end the whole tree, now. Where the shim is gone, ``ended`` does it."""
        self._signal(signal.SIGQUIT)

    def pass_on(self, number: signal.Signals) -> None:
        """Send SIGUSR1 or SIGUSR2 to a command whose hello said that it knows them; no other one gets it."""
        self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        self._shim = self._shim or PinnedShim.of_record(self.record)
        if self._shim is not None:
            self._shim.signal(number)

    async def _shim_gone(self) -> None:
        if self._shim is None:
            await self.ready()
            self._shim = PinnedShim.of_record(self.record)
        if self._shim is not None:
            await self._shim.gone()
            return
        # by a shim that cannot be named
        while self.directory.is_locked():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async def _not_started(self, spec: RunSpec, answer: bytes) -> CommandNotStartable:
        """The words for a start that failed. A shim that gave no answer is ended first, with all it began."""
        if answer == b"" and self._shim is not None and self.directory.exit_record() is None:
            self._shim.signal(signal.SIGKILL)
        fault = (await self.ended()).fault
        if fault is None and answer.startswith(b"fault "):
            number = int(answer.split()[1])
            fault = StartFault(number, os.strerror(number))
        if fault is not None and fault.errno in LACKING:
            raise OSError(fault.errno, fault.text)
        environment = environment_of(spec.environment_file, spec.environment)
        return not_startable(spec.command, spec.directory, environment, fault)


def _write_intent(directory: RunDirectory, spec: RunSpec, *, allow_cgroup: bool) -> None:
    """Write down what is about to be started, durably."""
    group = tree.writable_cgroup() if allow_cgroup else None
    write_record(
        directory.path / "intent.json",
        {
            "version": FORMAT_VERSION,
            "run_id": spec.run_id,
            "ralph": spec.ralph,
            "command": list(spec.command),
            "directory": str(spec.directory),
            "environment_file": None if spec.environment_file is None else str(spec.environment_file),
            "environment": {**spec.environment, "RALPH_NAME": spec.ralph, COOKIE: spec.run_id},
            "umask": spec.umask,
            "run_bytes": spec.run_bytes,
            "cgroup": None if group is None else str(group / f"ralphd-{spec.run_id}"),
            "boot_id": tree.boot_id(),
            "intended_at": rfc3339(time.time()),
            "definition": dict(spec.definition),
        },
    )
    diagnostics.reach("spawn.after_intent")


def _take_lock(directory: RunDirectory) -> int:
    """The run's lock. Who looks whether it is held, holds it for an instant: hence more than one try.

    It is taken and handed on without an await in between, so that a cancel cannot leave it behind here.
    """
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            return directory.take_lock()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S / 10)


def _start_shim(
    directory: RunDirectory, held: int, lock: DirectoryLock | None, tied: int | None
) -> tuple[PinnedShim, int]:
    """Start the shim and hand it the locks; the descriptor on which it says that the command runs."""
    try:
        ready_r, ready_w = os.pipe()
        try:
            shim = _popen(directory, [held, ready_w] + ([lock.fd] if lock else []), tied)
        except OSError:
            os.close(ready_r)
            raise
        finally:
            os.close(ready_w)
    finally:
        os.close(held)
    diagnostics.reach("spawn.after_popen")
    return shim, ready_r


def _popen(directory: RunDirectory, handed: list[int], tied: int | None) -> PinnedShim:
    last = () if tied is None else (tied,)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    complaints = os.open(directory.path / "shim.err", flags, 0o600)
    try:
        process = subprocess.Popen(
            [*_shim_argv(directory), *map(str, handed), *(f"{TIED}{number}" for number in last)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={name: os.environ[name] for name in SHIM_KEEPS if name in os.environ},
            start_new_session=True,
            pass_fds=[*handed, *last],
        )
    finally:
        os.close(complaints)
    as_at_start(process.pid)
    try:
        shim = PinnedShim(process.pid, os.pidfd_open(process.pid))
    except OSError:  # no descriptor left: what cannot be watched is not to live
        process.kill()
        process.wait()
        raise
    process.returncode = 0  # reaping is ours: the module would warn of a run that is left to its shim
    return shim


def _shim_argv(directory: RunDirectory) -> list[str]:
    """Isolated from its surroundings, and imported rather than run, so that its bytecode is found (S1)."""
    flags = ["-I", "-S", "-E", "-X", "utf8"]
    return [sys.executable, *flags, "-c", SHIM_STARTS, str(Path(__file__).parent), str(directory.path)]


async def _answer(ready: int, limit_s: float) -> bytes:
    """What the shim says of its start; empty when it ends without a word, or says nothing in time."""
    try:
        async with asyncio.timeout(limit_s):
            await _readable(ready)
    except TimeoutError:
        return b""
    return os.read(ready, 64)


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, or the other end is gone."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
