"""Start a run, adopt one, wait for its end, terminate it. The only module that starts runs (S9)."""

# Theory of operation
#
# A run is a directory, a shim and the tree below it; a ``Run`` here merely observes it. The daemon always
# starts the shim, never the command, and passes no pipe that the command depends on: if the daemon dies at
# any line, shim, log and records remain, and the next daemon adopts them (P1).
#
# - The intent is on disk before a process exists, and the run's lock is taken before it and inherited by
#   the shim. So "locked" means a shim lives or is being born, and at no moment can a second daemon mistake
#   a starting run for a finished one.
# - The end is awaited on the shim's pidfd, which becomes readable however the shim dies and serves our own
#   and adopted shims alike. How the run ended is read from ``exit.json`` (S6), which counts only if the
#   kernel reports that the shim exited with 0: a run can kill its shim and write the record itself. Such a
#   run is lost: code null, never 0, and its tree is swept before anything may follow. Where the kernel does
#   not report the end of an adopted shim (before Linux 6.15), the record is marked unverified.
# - A pid from a file is never signalled as it stands. It is pinned by a pidfd first; then start time and
#   boot id are compared (S8). In this order the process cannot be replaced between the comparison and the
#   signal.

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from ralphd import diagnostics
from ralphd.core.limits import UNLIMITED, RunLimits
from ralphd.core.sandbox import NO_SANDBOX, SandboxChoice
from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import CommandNotStartable
from ralphd.process import rundir, shim, tree
from ralphd.process.lock import DirectoryLock, holders
from ralphd.process.machine import has_spare_descriptors, limit_at_start
from ralphd.process.rundir import ExitRecord, RunDirectory, RunRecord, StartFault, SweptProcess
from ralphd.process.shim import COOKIE, FORMAT_VERSION, TIED
from ralphd.process.start_errors import LACKING, environment_of, not_startable, read_report

START_S = 10.0
POLL_S = 0.02
UNREADABLE_S = 1.0
"""How long a start may take to leave its ``run.json`` before the processes are examined instead."""
SWEEP_S = 10.0
SWEEP_SLICE_S = 2.0
LONGEST_PAUSE_S = 5.0
DESCRIPTORS_EVERY_S = 1.0
SHIM_KEEPS = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")
SHIM_STARTS = "import sys; sys.path.append(sys.argv[1]); import shim; shim.main(sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to start.

    ``environment`` is set last, over what ``environment_file`` (a JSON object, 0600) holds; without that
    file, over a few of the daemon's own variables (SHIM_KEEPS). ``tied`` is the read end of a pipe: at its
    end of file the shim ends the run, whatever else is alive (P5). ``wrapper`` are words before the command.
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
    limits: RunLimits = UNLIMITED
    wrapper: tuple[str, ...] = ()
    sandbox: SandboxChoice = NO_SANDBOX


class Run:
    """One execution of a ralph's command, observed through its shim.

    Spawned here or adopted from an earlier daemon, it is awaited, terminated and killed in the same way.
    """

    def __init__(self, directory: RunDirectory, shim_pid: int = 0, pidfd: int = -1) -> None:
        self.directory, self._run_file = directory, directory.run_file
        self._shim_pid, self._pidfd = shim_pid, pidfd
        self._shim_end: asyncio.Future[None] | None = None
        self._record: RunRecord | None = None
        self._shim_status: int | None = None
        self._known: dict[int, int] = {}

    def close(self) -> None:
        """Release the shim's descriptor, once the end is known: the run may be freed much later."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    __del__ = close

    @property
    def record(self) -> RunRecord | None:
        """The run's processes; None only for a run adopted in the middle of its start, until ``ready``."""
        if self._record is None and (found := self.directory.run_record()) and self._names_our_shim(found):
            self._record = found
        return self._record

    def _names_our_shim(self, record: RunRecord) -> bool:
        # The file may be forged; a run that was started or adopted here is of this boot, whatever it states.
        if self._shim_pid:
            return record.shim_pid == self._shim_pid
        return tree.start_ticks(record.shim_pid) == record.shim_start_ticks

    @classmethod
    async def spawn(
        cls, directory: RunDirectory, spec: RunSpec, lock: DirectoryLock | None, *, allow_cgroup: bool = True
    ) -> "Run":
        """Start a command; return as soon as it has been executed, within START_S seconds.

        The shim inherits ``lock`` (S2). Without ``allow_cgroup`` the subreaper finds the tree. Raise
        CommandNotStartable for what the command lacks, OSError for what the machine lacks. Cancelled, it
        leaves a run that ``adopt`` opens.
        """
        await asyncio.to_thread(_write_intent, directory, spec, allow_cgroup=allow_cgroup)
        run, ready = _start_shim(directory, lock, spec.tied)
        try:
            answer = await read_report(ready, START_S)
        finally:
            os.close(ready)
        if answer != b"ready\n":
            raise await run._start_error(spec, answer)
        return run

    @classmethod
    def adopt(cls, directory: RunDirectory) -> "Run | None":
        """Open a run of an earlier daemon; None if its shim is gone: then call ``read_ended``."""
        run = cls(directory)
        # Its record alone does not prove that it is a shim: a run can write the record, and replace the lock.
        is_shim = run._pin_shim() and directory.run_id.encode() in shim.arguments(run._shim_pid)
        return run if is_shim or directory.is_locked() else None

    async def ready(self) -> RunRecord | None:
        """Wait for the run's record; None when the command was not started and its shim is gone.

        Where ``run.json`` is broken, or missing for UNREADABLE_S seconds, examine the processes.
        """
        examine_at = time.monotonic() + (0.0 if self.directory.run_file.exists() else UNREADABLE_S)
        # Another process writes the file, so poll.
        while self.record is None and self.directory.is_locked():
            await asyncio.sleep(POLL_S)
            if time.monotonic() > examine_at:
                self._record = await asyncio.to_thread(who_runs, self.directory)
                examine_at = time.monotonic() + UNREADABLE_S
        return self.record

    async def ended(self) -> ExitRecord:
        """Wait for the end and return its record, or a lost one, and that only when the tree is gone (S6).

        Cancellation leaves the run alone. It may be awaited again, and by several tasks.
        """
        await self._shim_gone()
        while not has_spare_descriptors():  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(DESCRIPTORS_EVERY_S)
        record = rundir.verified(self.directory.final_record(), self._shim_status)
        if record and not record.unverified:
            return record
        ended_at, swept, pause_s = time.time(), dict[int, str](), POLL_S
        cgroup = self._record.cgroup if self._record else _origin(self.directory)[1]

        def sweep_slice() -> bool:
            run_id, known = self.directory.run_id, self._known
            killed, is_empty = tree.sweep(run_id, cgroup, limit_s=SWEEP_SLICE_S, known=known)
            swept.update(killed)
            return is_empty

        while not await asyncio.to_thread(sweep_slice):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return record or _lost(self.directory, ended_at, swept)

    def is_kept(self) -> bool:
        """Return whether ``keep`` has nothing to do, for the price of one stat."""
        is_noted = self._record is not None and self._record.cgroup is not None and self._pidfd >= 0
        return is_noted and os.path.exists(self._run_file)  # noqa: PTH110 - half as dear, every 8 s

    def keep(self) -> None:
        """Keep what the next daemon needs to find this run and its tree, whatever the run deletes. Blocks."""
        if self._pin_shim() and self.record is not None and self.record.cgroup is None:
            self._known = tree.tree_below(self._shim_pid, self._known)  # for a sweep without the shim
        if self._record is not None and not self.directory.run_file.exists():
            with suppress(OSError):
                self.directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.directory.save_run_record(self._record)

    def terminate(self) -> None:
        """Have the shim send SIGTERM and SIGCONT to the command's process group."""
        self.pass_on(signal.SIGTERM)

    def kill_tree(self) -> None:
        """Have the shim kill the whole tree, now. If the shim is gone, ``ended`` does it."""
        self.pass_on(signal.SIGQUIT)

    def pass_on(self, number: signal.Signals) -> None:
        """Signal the shim, which acts by docs/signals.md. A shim that is gone gets nothing.

        SIGUSR1 and SIGUSR2 reach only a command that has announced that it handles them.
        """
        if self._pin_shim():
            with suppress(ProcessLookupError):
                diagnostics.reach(f"signal.{number.name}")
                signal.pidfd_send_signal(self._pidfd, number)
                signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)  # in case somebody stopped it

    def _pin_shim(self) -> bool:
        record = self.record
        if self._pidfd < 0 and record is not None:
            with suppress(OSError):
                pidfd = os.pidfd_open(record.shim_pid)
                # Only now: the pid may have been another process's until the descriptor pinned it.
                if tree.start_ticks(record.shim_pid) == record.shim_start_ticks:
                    self._shim_pid, self._pidfd = record.shim_pid, pidfd
                else:
                    os.close(pidfd)
        return self._pidfd >= 0

    async def _shim_gone(self) -> None:
        if not self._pin_shim():
            await self.ready()
        if self._pin_shim():
            if self._shim_end is None:  # one reader per descriptor, hence one future for all who wait
                loop = asyncio.get_running_loop()
                self._shim_end = loop.create_future()
                loop.add_reader(self._pidfd, self._note_shim_end, loop, self._shim_end)
            await asyncio.shield(self._shim_end)
            if self._shim_status is None:
                self._shim_status = await tree.reported_end(self._pidfd, self._shim_pid)
            return
        # A shim without a readable record: it cannot be pinned, but its lock ends with it.
        while self.directory.is_locked():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    def _note_shim_end(self, loop: asyncio.AbstractEventLoop, end: asyncio.Future[None]) -> None:
        loop.remove_reader(self._pidfd)
        with suppress(ChildProcessError):  # an adopted shim is not our child
            pid, status = os.waitpid(self._shim_pid, os.WNOHANG)
            self._shim_status = os.waitstatus_to_exitcode(status) if pid else None
        if not end.done():
            end.set_result(None)

    async def _start_error(self, spec: RunSpec, answer: bytes | None) -> CommandNotStartable:
        if not answer and self.directory.exit_record() is None:
            # No answer in time: it may have started something. Kill it, and have ``ended`` sweep the rest.
            self.pass_on(signal.SIGKILL)
        fault = (await self.ended()).fault
        if answer is None:  # it may pass, and says nothing about the command
            raise OSError(errno.ETIMEDOUT, f"nothing was executed within {START_S:g} s")
        if fault is None and answer.startswith(b"fault "):
            number = int(answer.split()[1])
            fault = StartFault(number, os.strerror(number))
        if fault is not None and fault.errno in LACKING:
            raise OSError(fault.errno, fault.text)
        environment = environment_of(spec.environment_file, spec.environment)
        return not_startable(spec.command, spec.directory, environment, fault)


def _write_intent(directory: RunDirectory, spec: RunSpec, *, allow_cgroup: bool) -> None:
    group = tree.writable_cgroup() if allow_cgroup else None
    rundir.write_record(
        directory.path / "intent.json",
        {
            "version": FORMAT_VERSION, "run_id": spec.run_id, "ralph": spec.ralph,
            "command": list(spec.command), "wrapper": list(spec.wrapper),
            "directory": str(spec.directory),
            "environment_file": None if spec.environment_file is None else str(spec.environment_file),
            "environment": {**spec.environment, "RALPH_NAME": spec.ralph, COOKIE: spec.run_id},
            "umask": spec.umask, "descriptors": limit_at_start(), "run_bytes": spec.run_bytes,
            "cgroup": None if group is None else str(group / f"ralphd-{spec.run_id}"),
            "limits": dict(spec.limits.files()), "require_cgroup": spec.limits.require_cgroup,
            "sandbox": spec.sandbox.level, "sandbox_required": spec.sandbox.required,
            "sandbox_reason": spec.sandbox.reason, "writable": list(spec.sandbox.writable),
            "boot_id": shim.boot_id(), "intended_at": rfc3339(time.time()),
            "definition": dict(spec.definition),
        },
    )  # fmt: skip
    diagnostics.reach("spawn.after_intent")


def _start_shim(directory: RunDirectory, lock: DirectoryLock | None, tied: int | None) -> tuple[Run, int]:
    """Start the shim and hand it the locks; return the descriptor on which it reports the start.

    Without an await between the lock and its hand-over: a cancellation cannot leave the lock behind here.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with ExitStack() as theirs, ExitStack() as ours:
        theirs.callback(os.close, held := directory.take_lock())
        ready_r, ready_w = os.pipe()
        ours.callback(os.close, ready_r)
        theirs.callback(os.close, ready_w)
        theirs.callback(os.close, errors := os.open(directory.path / "shim.err", flags, 0o600))
        handed = [held, ready_w] + ([lock.fd] if lock else [])
        words = [str(directory.path), *map(str, handed), *([] if tied is None else [f"{TIED}{tied}"])]
        process = subprocess.Popen(
            [sys.executable, *shim.FLAGS, SHIM_STARTS, str(Path(__file__).parent), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            env={name: os.environ[name] for name in SHIM_KEEPS if name in os.environ},
            start_new_session=True, pass_fds=handed if tied is None else [*handed, tied],
        )  # fmt: skip
        try:
            run = Run(directory, process.pid, os.pidfd_open(process.pid))
        except OSError:  # no descriptor left: what cannot be watched must not live
            process.kill()
            process.wait()
            raise
        process.returncode = 0  # we reap it: the module would warn of a run that is left to its shim
        ours.pop_all()
    diagnostics.reach("spawn.after_popen")
    return run, ready_r


# --- runs whose shim is gone, or whose record is unreadable ---


def read_ended(directory: RunDirectory) -> ExitRecord:
    """Return how a run without a shim ended. Call it only when nothing holds the run's lock.

    Kill the processes that carry its cookie first, for SWEEP_S seconds at most. Without an exit record the
    run is lost, and nothing may be started before its ``survivors`` are gone; with one it is unverified,
    since nobody saw the end. ``ended_at`` is the last change in its directory. A run of another boot is not
    examined, and nothing is signalled (S8).
    """
    ended_at, (is_of_this_boot, cgroup) = directory.last_trace_at(), _origin(directory)
    swept: Mapping[int, str] = {}
    if is_of_this_boot:
        swept, _ = tree.sweep(directory.run_id, cgroup, limit_s=SWEEP_S)
    record = rundir.verified(directory.final_record(), None)
    return record or _lost(directory, ended_at, swept, is_of_this_boot=is_of_this_boot)


def _lost(
    directory: RunDirectory, ended_at: Moment, swept: Mapping[int, str], *, is_of_this_boot: bool = True
) -> ExitRecord:
    """Return the record of a run whose end nobody saw: neither code nor signal, never 0."""
    record = directory.run_record()
    survivors = shim.carriers(directory.run_id) if is_of_this_boot else []
    began_at = record.started_at if record else None
    return ExitRecord(
        *(directory.run_id, None, None, began_at, ended_at),
        swept=tuple(SweptProcess(pid, name) for pid, name in sorted(swept.items()) if pid not in survivors),
        survivors=tuple(SweptProcess(pid, shim.command_line(pid)) for pid in survivors),
        lost=True,
    )


def _origin(directory: RunDirectory) -> tuple[bool, Path | None]:
    """Return whether the run was started in this boot, and its control group.

    Without any record it counts as of this boot: the search by cookie cannot hit anybody else.
    """
    if record := directory.run_record():
        return record.boot_id == shim.boot_id(), record.cgroup
    return (directory.intent() or {}).get("boot_id") in (None, shim.boot_id()), directory.intended_cgroup()


def who_runs(directory: RunDirectory) -> RunRecord | None:
    """Rebuild the record of a living run from its processes, for a ``run.json`` that is missing or broken.

    The shim has the run's directory among its arguments, and holds the lock; where somebody has removed that,
    it has a child with the run's cookie. The command is the shim's oldest child with a session of its own
    (S3), since adopted grandchildren came later. None if no such pair is seen, for example because the
    command has just ended. ``started_at`` is as exact as the kernel's clock ticks. Reads every process of the
    machine.
    """
    for shim_pid in _shims(directory):
        shim_ticks = tree.start_ticks(shim_pid)
        seen = [(pid, shim.process_stat(pid)) for pid in shim.children(shim_pid)]
        living = [(pid, stat) for pid, stat in seen if stat and stat[0] not in "ZX"]
        leaders = [(stat[2], pid) for pid, stat in living if int(stat[4][3]) == pid]  # in its own session
        if shim_ticks is None or not leaders:
            continue
        ticks, pid = min(leaders)
        leaf = directory.intended_cgroup()
        cgroup = leaf if leaf is not None and leaf.is_dir() else None
        return RunRecord(
            run_id=directory.run_id, pid=pid, start_ticks=ticks,
            shim_pid=shim_pid, shim_start_ticks=shim_ticks, boot_id=shim.boot_id(),
            tree_means="subreaper" if cgroup is None else "cgroup", cgroup=cgroup,
            started_at=tree.moment_of(ticks),
        )  # fmt: skip
    return None


def _shims(directory: RunDirectory) -> list[int]:
    # The command is known by the arguments: another daemon may be testing the lock at this moment.
    named, run_id = tree.shims([directory.run_id]), directory.run_id
    with suppress(OSError):
        if holding := set(holders(directory.lock_path.lstat())).intersection(named):
            return list(holding)
    return [pid for pid in named if any(shim.carries(child, run_id) for child in shim.children(pid))]
