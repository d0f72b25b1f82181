"""Start an agent, probe its tree, and kill it without a survivor (L5, S5)."""

# Theory of operation
#
# The loop starts its agents itself; a shim for each would be one process more per attempt, and the loop has a
# shim already. So this process is the subreaper of what its agents leave behind. But it has other children,
# above all calls of git, and these must be neither signalled nor reaped here. An attempt's processes are
# therefore recognized by two facts that cannot be forged: the session, which is never ours (an agent is
# started in one of its own, and nobody can join an existing one), and the start time, which is not before
# the agent's.
#
# The leader is reaped last. Until then its pid cannot be reused, so it remains the valid name of its process
# group, and SIGTERM to the group cannot hit anybody else.
#
# The agent is started through a fresh interpreter that becomes it (``shim.become``), 15 ms more than a fork.
# It sets PR_SET_PDEATHSIG and default signals; to run that code in a fork of a process with threads can
# deadlock (subprocess's preexec_fn was rejected for that).
#
# The cookie ends with something random: a sweep by a name that came twice would kill somebody else's agent.

import asyncio
import errno
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from ralphd.dataclass import dataclass
from ralphd.errors import CommandNotStartable
from ralphd.process import shim, tree
from ralphd.process.activity.probe import MOST_PROCESSES
from ralphd.process.activity.proc_stats import Identity
from ralphd.process.rundir import StartFault
from ralphd.process.sandbox.box import WORDS
from ralphd.process.start_errors import LACKING, not_startable, read_report

COOKIE = "RALPH_ATTEMPT_ID"
START_S = 30.0
"""The limit for executing a command."""
END_S = 5.0
STARTS = "import sys; sys.path.append(sys.argv[1]); import shim; shim.become(sys.argv[2:])"


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What to start: with ``environment`` and nothing else, stdin from ``/dev/null`` or a pipe.

    ``attempt`` begins the cookie, which is made unique.
    """

    attempt: str
    argv: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    has_stdin: bool


@dataclass(frozen=True, slots=True)
class Pipes:
    """Our ends of an agent's streams. The caller of ``start`` closes them."""

    stdin: int | None
    stdout: int
    stderr: int


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What was left of a tree and was killed, and what could not be: commands by pid, without the leader."""

    ended: Mapping[int, str]
    survivors: Mapping[int, str]


class AgentNotStarted(CommandNotStartable):
    """An agent cannot be started; ``code`` is as in a shell: 127 for not found, 126 for not executable."""

    def __init__(self, fault: CommandNotStartable, code: int) -> None:
        super().__init__(fault.what, why=fault.why, mend=fault.mend)
        self.code = code


class AgentProcess:
    """The leader of an attempt's tree, and all that is below it. Also the ``Tree`` that a probe reads."""

    def __init__(self, cookie: str, leader: Identity, pidfd: int, pipes: Pipes, known: Iterable[int]) -> None:
        self.pipes = pipes
        self.pid, self._start_ticks = leader
        self.status: int | None = None
        self._cookie, self._pidfd = cookie, pidfd
        self._session = os.getsid(0)
        # A tick is 10 ms long: a child that was started just before the agent may show the same one.
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
        """True once the leader has ended, whether the loop has been told of it or not."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return self._exited.is_set() or bool(poll.poll(0))

    async def exited(self) -> None:
        """Wait for the leader's end. ``end`` reaps it."""
        await self._exited.wait()

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT with it, to the leader's process group."""
        with self._lock:
            if self.status is not None or self._swept is not None:
                return
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)

    def reap_orphans(self) -> None:
        """Reap the orphans that were left to us, but not the leader."""
        if self._lock.acquire(blocking=False):
            try:
                self._reap(with_leader=False)
            finally:
                self._lock.release()

    def end(self, limit_s: float) -> SweepResult:
        """Kill all that is left of the tree and reap it (S5).

        Blocks for ``limit_s`` seconds at most; may be called again, and from any thread.
        """
        with self._lock:
            self._swept = self._swept or self._sweep(time.monotonic() + limit_s)
            return self._swept

    def close(self) -> None:
        """Close the leader's descriptor. Call it once, in the loop's thread, after ``end``."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)

    # the tree, for a probe

    def pids(self) -> Iterator[int]:
        """Yield the processes of the tree that are seen now."""
        for pid in self._tops():
            yield pid
            yield from shim.below(pid, MOST_PROCESSES)

    def orphan_faults(self) -> int:
        """Return the page faults of this tree's reaped orphans, never of our other children."""
        return self._faults

    # its end

    def _sweep(self, deadline: float) -> SweepResult:
        me, swept = os.getpid(), dict[int, str]()

        def signal_tops(number: int, done: set[int], swept: dict[int, str]) -> bool:
            return shim.signal_below([me], number, done, swept, lambda pid: not self._is_top(pid))

        def signal_carriers(number: int, done: set[int], swept: dict[int, str]) -> bool:
            return shim.signal_carriers(self._cookie, number, done, swept, COOKIE)

        def is_empty() -> bool:
            self._reap(with_leader=True)
            return tree.stays_empty(self._cookie, COOKIE)

        gone = self._is_reaped() or shim.end_all(signal_tops, self._is_reaped, swept, deadline)
        if not tree.stays_empty(self._cookie, COOKIE):
            gone &= shim.end_all(signal_carriers, is_empty, swept, deadline)
        survivors = {} if gone else shim.living((*self.pids(), *shim.carriers(self._cookie, COOKIE)))
        ended = {pid: name for pid, name in swept.items() if pid != self.pid and pid not in survivors}
        return SweepResult(ended, survivors)

    def _is_reaped(self) -> bool:
        # Twice: a list may miss children while others come and go, and it is empty if none can be read.
        return self._reap(with_leader=True) and self._reap(with_leader=True) and self.status is not None

    def _reap(self, *, with_leader: bool) -> bool:
        """Reap what has ended at the top of the tree; return True if nothing is left there."""
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
        """Return True for a child of ours that is the leader, or was left to us by its tree."""
        if pid == self.pid and self.status is None:
            return True
        if (stat := shim.process_stat(pid)) is None:
            return False
        _, _, ticks, _, fields = stat
        is_ours = int(fields[3]) == self._session
        return not is_ours and ticks >= self._start_ticks and self._known.get(pid) != ticks


async def start(command: AgentCommand) -> AgentProcess:
    """Start an agent in a session of its own; it dies with this process.

    Call it in the main thread: the kernel kills the agent when the thread that started it ends. Raise
    AgentNotStarted for what the command lacks, OSError for what the machine lacks. Cancelled, it leaves
    nothing behind.
    """
    shim.prctl(shim.PR_SET_CHILD_SUBREAPER, 1)
    cookie, known = f"{command.attempt}-{secrets.token_hex(4)}", shim.children(os.getpid())
    with ExitStack() as ours:
        try:
            pid, report, pipes = _popen(command, cookie, ours)
        except ValueError as fault:
            what = f"cannot start {command.argv[0]!r}"
            why = "a null byte is among its arguments or in its environment"
            mend = "take it out of the prompt, or of [agents.NAME] in ralph.toml"
            raise AgentNotStarted(CommandNotStartable(what, why=why, mend=mend), 126) from fault
        except OSError as fault:
            stage = "chdir" if str(fault.filename) == str(command.directory) else "exec"
            raise _fault(command, fault.errno or 0, stage) from fault
        process = _pinned(cookie, pid, pipes, known)
        try:
            data = await read_report(report, START_S)  # empty as soon as the command is executed
            if data is None:
                raise OSError(errno.ETIMEDOUT, f"nothing was executed within {START_S:g} s")
            if data:
                raise _fault(command, int(data), "exec")
        except BaseException:
            process.end(END_S)
            process.close()
            raise
        ours.pop_all()
        os.close(report)
        return process


def _pinned(cookie: str, pid: int, pipes: Pipes, known: Iterable[int]) -> AgentProcess:
    try:
        if (ticks := tree.start_ticks(pid)) is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return AgentProcess(cookie, Identity(pid, ticks), os.pidfd_open(pid), pipes, known)
    except OSError:  # no descriptor left: what cannot be watched must not live
        os.kill(pid, signal.SIGKILL)  # our child, and not reaped: the pid is its own
        os.waitpid(pid, 0)
        raise


def _popen(command: AgentCommand, cookie: str, ours: ExitStack) -> tuple[int, int, Pipes]:
    """Return the pid of what will be the agent, where it reports an errno, and our ends of its streams."""
    with ExitStack() as theirs:
        report_r, report_w = _pipe(ours, theirs)
        out_r, out_w = _pipe(ours, theirs)
        err_r, err_w = _pipe(ours, theirs)
        stdin_r, stdin_w = subprocess.DEVNULL, None
        if command.has_stdin:
            stdin_w, stdin_r = _pipe(theirs, ours)[::-1]
        inside = (os.environ.get(shim.SANDBOX, ""), os.environ.get(shim.WRITABLE, ""))
        locale, box = command.environment.get("LC_CTYPE", ""), json.loads(os.environ.get(WORDS, "[]"))
        words = (str(os.getpid()), str(report_w), locale, *inside, *box, *command.argv)
        process = subprocess.Popen(
            [sys.executable, *shim.FLAGS, STARTS, str(Path(__file__).parent), *words],
            stdin=stdin_r, stdout=out_w, stderr=err_w,
            env={**command.environment, COOKIE: cookie}, cwd=command.directory,
            start_new_session=True, pass_fds=[report_w],
        )  # fmt: skip
    process.returncode = 0  # we reap it: the module would do so at an arbitrary moment
    for descriptor in (out_r, err_r, *(() if stdin_w is None else (stdin_w,))):
        os.set_blocking(descriptor, False)
    return process.pid, report_r, Pipes(stdin_w, out_r, err_r)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


def _fault(command: AgentCommand, number: int, stage: str) -> Exception:
    text = os.strerror(number)
    if number in LACKING:
        return OSError(number, text)
    fault = StartFault(number, f"{stage}: {text}")
    error = not_startable(command.argv, command.directory, command.environment, fault)
    # The errno is not enough: a PATH folder that may not be searched turns ENOENT into EACCES.
    name, path = command.argv[0], command.environment.get("PATH", os.defpath)
    is_on_path = "/" in name or shutil.which(name, os.F_OK, path) is not None
    is_missing = number in (errno.ENOENT, errno.ENOTDIR) or not is_on_path
    return AgentNotStarted(error, 127 if stage == "exec" and is_missing else 126)
