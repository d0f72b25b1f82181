"""An agent's process and its tree: started, pinned, looked at, and ended without a survivor (L5, S5).

This process is the subreaper of what its agents leave behind. It has children of its own as well, calls of
git above all: what belongs to an attempt is told by the session, which is never ours, and by the start, which
is never before the agent's. Nothing else is signalled, or reaped.
"""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ralphd.errors import CommandNotStartable
from ralphd.process import shim, tree
from ralphd.process.activity.probe import below
from ralphd.process.activity.proc_stats import Identity
from ralphd.process.rundir import StartFault
from ralphd.process.start_errors import LACKING, not_startable

COOKIE = "RALPH_ATTEMPT_ID"
START_S = 30.0
"""How long it may take until a command is executed."""
END_S = 5.0
STARTS = "import sys; sys.path.append(sys.argv[1]); import shim; shim.become(sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What is to be started: with ``environment`` and nothing else, stdin from ``/dev/null`` or a pipe.

    ``attempt`` is the beginning of its cookie, which is made unique: a sweep by it meets nobody else.
    """

    attempt: str
    argv: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    has_stdin: bool


@dataclass(frozen=True, slots=True)
class Pipes:
    """Our ends of an agent's streams. Who takes them closes them."""

    stdin: int | None
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What was left of a tree and was ended, and what could not be: commands by pid, without the leader."""

    ended: Mapping[int, str]
    survivors: Mapping[int, str]


class AgentNotStarted(CommandNotStartable):
    """An agent cannot be started; ``code`` is a shell's: 127 for not there, 126 for not to be run."""

    def __init__(self, fault: CommandNotStartable, code: int) -> None:
        super().__init__(fault.what, why=fault.why, mend=fault.mend)
        self.code = code


class AgentProcess:
    """The leader of an attempt's tree, and all that is below it. It is a tree to be looked at, too."""

    def __init__(
        self, cookie: str, leader: Identity, pidfd: int, pipes: Pipes, known: Collection[int]
    ) -> None:
        self.pipes = pipes
        self.pid, self._start_ticks = leader
        self.status: int | None = None
        self._cookie, self._pidfd = cookie, pidfd
        self._session = os.getsid(0)
        # A tick is 10 ms long: who was started just before the agent may show the same one.
        self._known = {child: tree.start_ticks(child) for child in known}
        self._faults = 0
        self._swept: SweepResult | None = None
        self._lock = threading.Lock()
        self._exited = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._note_exit)

    def _note_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._exited.set()

    @property
    def has_exited(self) -> bool:
        """Whether the leader has ended."""
        return self._exited.is_set()

    async def exited(self) -> None:
        """Wait for the leader's end. It is not reaped before ``end``: so its pid stays its group's name."""
        await self._exited.wait()

    def ask(self) -> None:
        """SIGTERM, and SIGCONT with it, to the leader's process group."""
        with self._lock:
            if self.status is not None or self._swept is not None:
                return
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)

    def reap_orphans(self) -> None:
        """Take the ends of those that were left to us meanwhile, but not the leader's."""
        if self._lock.acquire(blocking=False):
            try:
                self._reap(with_leader=False)
            finally:
                self._lock.release()

    def end(self, limit_s: float) -> SweepResult:
        """End all that is left of the tree and reap it: SIGSTOP until two scans agree, then SIGKILL (S5).

        Blocks for ``limit_s`` seconds at most; may be called again, and from any thread.
        """
        with self._lock:
            self._swept = self._swept or self._sweep(time.monotonic() + limit_s)
            return self._swept

    def close(self) -> None:
        """Let go of the leader's descriptor; to be called once, in the loop's thread, after ``end``."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)

    # the tree, as it is looked at

    def pids(self) -> Iterator[int]:
        """What is seen of the tree now."""
        for pid in self._tops():
            yield pid
            yield from below(pid)

    def others(self) -> Collection[int]:
        """Nobody: our own calls of git are not below the tops."""
        return ()

    def orphan_faults(self) -> int:
        """Only those of this tree are counted, never those of our own children."""
        return self._faults

    # its end

    def _sweep(self, deadline: float) -> SweepResult:
        swept: dict[int, str] = {}
        gone = self._is_reaped() or shim.end_all(self._signal_all, self._is_reaped, swept, deadline)
        if not tree.stays_empty(self._cookie, COOKIE):
            gone &= shim.end_all(self._signal_carriers, self._nobody_carries, swept, deadline)
        survivors = {} if gone else {pid: shim.command_line(pid) for pid in self._living()}
        ended = {pid: name for pid, name in swept.items() if pid != self.pid and pid not in survivors}
        return SweepResult(ended, survivors)

    def _signal_all(self, number: int, done: set[int], swept: dict[int, str]) -> bool:
        return shim.signal_below([os.getpid()], number, done, swept, lambda pid: not self._is_top(pid))

    def _signal_carriers(self, number: int, done: set[int], swept: dict[int, str]) -> bool:
        return shim.signal_carriers(self._cookie, number, done, swept, COOKIE)

    def _nobody_carries(self) -> bool:
        self._reap(with_leader=True)
        return tree.stays_empty(self._cookie, COOKIE)

    def _living(self) -> list[int]:
        found = dict.fromkeys((*self.pids(), *shim.carriers(self._cookie, COOKIE)))
        return [pid for pid in found if (stat := shim.process_stat(pid)) and stat[0] not in "ZX"]

    def _is_reaped(self) -> bool:
        """Twice: a list may miss children while others come and go; it is empty where none can be read."""
        return self._reap(with_leader=True) and self._reap(with_leader=True) and self.status is not None

    def _reap(self, *, with_leader: bool) -> bool:
        """Reap what has ended at the top of the tree; whether nothing is left there."""
        left = False
        for pid in self._tops():
            if pid == self.pid and not with_leader:
                continue
            with suppress(ChildProcessError):
                reaped, status, usage = os.wait4(pid, os.WNOHANG)
                left |= reaped == 0
                if reaped and pid == self.pid and self.status is None:
                    self.status = status
                elif reaped:
                    self._faults += usage.ru_minflt
        return not left

    def _tops(self) -> list[int]:
        return [pid for pid in shim.children(os.getpid()) if self._is_top(pid)]

    def _is_top(self, pid: int) -> bool:
        """Whether a child of ours is the leader, or was left to us by its tree."""
        if pid == self.pid and self.status is None:
            return True
        try:
            is_ours = os.getsid(pid) == self._session
        except OSError:
            return False
        ticks = tree.start_ticks(pid)
        if is_ours or ticks is None or ticks < self._start_ticks:
            return False
        return self._known.get(pid) != ticks


async def start(command: AgentCommand) -> AgentProcess:
    """Start an agent in a session of its own; it dies with this process.

    To be called in the main thread: the kernel ends the agent when the thread that started it ends. Raises
    NotStarted for what the command lacks, OSError for what the machine lacks. Cancelled, it leaves
    nothing.
    """
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 1)
    cookie, known = f"{command.attempt}-{secrets.token_hex(4)}", shim.children(os.getpid())
    with ExitStack() as ours:
        try:
            pid, told, pipes = _started(command, cookie, ours)
        except ValueError as fault:
            raise _null_byte(command) from fault
        except OSError as fault:
            stage = "chdir" if str(fault.filename) == str(command.directory) else "exec"
            raise _fault(command, fault.errno or 0, stage) from fault
        process = _pinned(cookie, pid, pipes, known)
        try:
            if number := await _executed(told):
                raise _fault(command, number, "exec")
        except BaseException:
            process.end(END_S)
            process.close()
            raise
        ours.pop_all()
        os.close(told)
        return process


def _pinned(cookie: str, pid: int, pipes: Pipes, known: Collection[int]) -> AgentProcess:
    """Raises OSError when no descriptor is left: what cannot be watched is not to live."""
    try:
        ticks = tree.start_ticks(pid)
        if ticks is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return AgentProcess(cookie, Identity(pid, ticks), os.pidfd_open(pid), pipes, known)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # our child, and not reaped: the pid is its own
        os.waitpid(pid, 0)
        raise


def _started(command: AgentCommand, cookie: str, ours: ExitStack) -> tuple[int, int, Pipes]:
    """The pid of what will be the agent, where it tells of its fault, and our ends of its streams."""
    with ExitStack() as theirs:
        told_r, told_w = _pipe(ours, theirs)
        out_r, out_w = _pipe(ours, theirs)
        err_r, err_w = _pipe(ours, theirs)
        stdin_r, stdin_w = subprocess.DEVNULL, None
        if command.has_stdin:
            stdin_w, stdin_r = _pipe(theirs, ours)[::-1]
        words = (str(os.getpid()), str(told_w), command.environment.get("LC_CTYPE", ""), *command.argv)
        process = subprocess.Popen(
            [*_interpreter(), *words],
            stdin=stdin_r,
            stdout=out_w,
            stderr=err_w,
            env={**command.environment, COOKIE: cookie},
            cwd=command.directory,
            start_new_session=True,
            pass_fds=[told_w],
        )
    process.returncode = 0  # reaping is ours: the module would take an end that it is not asked for
    for descriptor in (out_r, err_r, *(() if stdin_w is None else (stdin_w,))):
        os.set_blocking(descriptor, False)
    return process.pid, told_r, Pipes(stdin_w, out_r, err_r)


def _interpreter() -> Sequence[str]:
    folder = str(Path(__file__).parent)
    return (sys.executable, "-I", "-S", "-E", "-X", "utf8", "-c", STARTS, folder)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


async def _executed(told: int) -> int:
    """0 as soon as the command is executed, else the number of the error. Raises OSError if it takes long."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(told, readable.set)
    try:
        async with asyncio.timeout(START_S):
            await readable.wait()
    except TimeoutError as fault:
        raise OSError(errno.ETIMEDOUT, f"nothing was executed within {START_S:g} s") from fault
    finally:
        loop.remove_reader(told)
    return int(os.read(told, 16) or b"0")


def _fault(command: AgentCommand, number: int, stage: str) -> Exception:
    text = os.strerror(number)
    if number in LACKING:
        return OSError(number, text)
    fault = StartFault(number, f"{stage}: {text}")
    told = not_startable(command.argv, command.directory, command.environment, fault)
    return AgentNotStarted(told, 127 if stage == "exec" and _is_missing(command, number) else 126)


def _is_missing(command: AgentCommand, number: int) -> bool:
    """By its name as well: one folder of a PATH that may not be searched makes the error another one."""
    name, path = command.argv[0], command.environment.get("PATH", os.defpath)
    is_nowhere = "/" not in name and shutil.which(name, os.F_OK, path) is None
    return is_nowhere or number in (errno.ENOENT, errno.ENOTDIR)


def _null_byte(command: AgentCommand) -> AgentNotStarted:
    fault = CommandNotStartable(
        f"cannot start {command.argv[0]!r}",
        why="a null byte is among its arguments or in its environment",
        mend="take it out of the prompt, or of [agents.NAME] in ralph.toml",
    )
    return AgentNotStarted(fault, 126)
