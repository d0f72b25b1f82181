"""Starts the daemon in the background, and runs a private one for ``ralphctl build``.

A private daemon lives as long as this process at most: it and every shim that it starts hold the read end of
a pipe whose write end only this process has. When that closes, on purpose or because this process was killed,
each of them ends what it started.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ralphctl.client import discovery, transport
from ralphctl.client.client import Client
from ralphctl.format.output import SlowNotice, message
from ralphctl.offline import processes
from ralphctl.offline.state import is_held
from ralphctl.service import systemd
from ralphd import wire
from ralphd.errors import DaemonNotRunning, DirectoryBusy, RalphdError, ShuttingDown

_READY_LIMIT_S = 30.0
_OTHERS_LIMIT_S = 5.0
COOKIES = ("RALPH_RUN_ID", "RALPH_NAME", "RALPH_ATTEMPT_ID")


class StartFailed(RalphdError, slug="start-failed"):
    """The daemon could not be started; what it printed has been shown."""

    def __init__(self, what: str, exit_code: int, **more: str) -> None:
        super().__init__(what, **more)
        self.exit_code = exit_code


def start_daemon(socket: str | None) -> None:
    """Start ``ralphd`` in the background, or its service if one is installed; return when it is ready.

    Its output goes to our stderr. Raise StartFailed with its exit code (75: another daemon owns the state
    directory, and does not answer soon); for a service NoSystemd and SystemctlFailed.
    """
    if unit := systemd.meant_by(os.environ, socket):
        unit.check_there()
        unit.work("start")
        return
    # -P: a `ralphd` or `json.py` in the current directory must not be imported in place of ours.
    command = [sys.executable, "-P", "-m", "ralphd", "--background"]
    try:
        with SlowNotice("ralphd to be ready", _READY_LIMIT_S):
            done = subprocess.run(
                command, env=_environment(socket), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=_READY_LIMIT_S, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired as fault:
        what = f"ralphd was not ready after {_READY_LIMIT_S:g} s"
        raise StartFailed(what, 75, mend="ralphctl regent logs") from fault
    code, until = done.returncode, time.monotonic() + _OTHERS_LIMIT_S
    while code == wire.EXIT_PAUSED and time.monotonic() < until:  # it may have been started a moment ago
        if is_ready(socket or wire.socket_path(os.environ)):
            return
        time.sleep(_LOOK_S)
    sys.stderr.write(done.stdout.decode(errors="replace"))
    if code:
        raise StartFailed("cannot start ralphd", code if code > 0 else 1, mend="ralphctl regent logs")


def _environment(socket: str | None) -> dict[str, str]:
    # A daemon that carried a run's cookie would be swept with that run.
    environment = {name: value for name, value in os.environ.items() if name not in COOKIES}
    return environment | ({"RALPHD_SOCKET": os.path.abspath(socket)} if socket else {})  # noqa: PTH100


def ensure(client: Client, socket: str | None) -> None:
    """Start a daemon and print its pid, unless one answers."""
    try:
        client.status()
    except DaemonNotRunning:
        start_daemon(socket)
        message(f"started ralphd (pid {client.status().value['daemon']['pid']})")


class DaemonExit:
    """Waits for the end of a daemon's process.

    Create it before the stop is requested: later the pid may belong to another process.
    """

    def __init__(self, pid: int, client: Client) -> None:
        self._client = client
        self._pidfd: int | None = None
        with suppress(OSError):
            # In another pid namespace this is another process; then only the silent socket shows the end.
            if b"ralphd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                self._pidfd = os.pidfd_open(pid)

    def wait(self, timeout_s: float | None) -> bool:
        """Return whether it ended within ``timeout_s`` seconds; None waits without limit."""
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                self._client.status()
            except DaemonNotRunning:
                return True
            except ShuttingDown:
                pass
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.05)

    def close(self) -> None:
        """Close the handle of the process."""
        if self._pidfd is not None:
            os.close(self._pidfd)


READY_LIMIT_S = 60.0
"""Includes the end of an earlier daemon's leftovers, which takes up to 20 s."""
EARLIER_LIMIT_S = 30.0
LIVES_AFTER_S = 2.0
"""A daemon that has been ready for so long is not about to end."""
SHIMS_LIMIT_S = 20.0
"""A shim needs 12 s at most, even for a tree that resists."""
LAST_WRITES_S = 5.0
"""For the private daemon, once its shims have ended."""
KILL_LIMIT_S = 10.0
_LOOK_S = 0.02
_STDERR_BYTES = 4096


class PrivateDaemon:
    """One private daemon. Every method runs on the main thread, ``cut`` in its signal handlers too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "ralphd.sock")
        self.log = directory / "ralphd.log"
        self._stderr_file = directory / "ralphd.err"
        """Its stdout and stderr: why it could not start."""
        self.client = Client(lambda: [self.socket])  # no other daemon is ever asked
        self.pidfd = -1
        self.code: int | None = None
        """Its exit code, a signal as a negative number; None while it lives."""
        self._pid, self._cord, self._pipe = 0, -1, 0

    def start(self) -> None:
        """Start it without waiting until it is ready. Raise StartFailed."""
        processes.become_reaper()
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in (self.directory, *self.directory.parents[:2]):
                directory.chmod(0o700)  # parents are made with the mode of the umask
            read_end, self._cord = os.pipe()  # inherited only where passed on explicitly
            self._pipe = os.fstat(read_end).st_ino
            try:
                self._pid = self._spawn(read_end)
            finally:
                os.close(read_end)
            self.pidfd = os.pidfd_open(self._pid)
        except OSError as fault:
            what = "cannot start the private ralphd"
            why = f"{fault.filename or self.directory}: {fault.strerror}"
            mend = "export RALPHD_STATE_DIR=DIR  (a directory that you can write to)"
            raise StartFailed(what, wire.EXIT_FAILED, why=why, mend=mend) from fault

    def _spawn(self, read_end: int) -> int:
        # -P: a `ralphd` or `json.py` in the current directory must not be imported in place of ours.
        command = [sys.executable, "-P", "-m", "ralphd", "--tied", str(read_end)]
        with self._stderr_file.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--state-dir", str(self.directory), "--socket", self.socket],
                env=_environment(None), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True, pass_fds=[read_end],
            )  # fmt: skip
        process.returncode = 0  # `orphans` reaps it, with what it leaves to this process
        return process.pid

    def await_ready(self, give_up: Callable[[], bool]) -> None:
        """Wait until it accepts requests. Raise StartFailed, KeyboardInterrupt if ``give_up`` is true."""
        deadline = time.monotonic() + READY_LIMIT_S
        with SlowNotice("the private ralphd to be ready", READY_LIMIT_S):
            while not is_ready(self.socket):
                if give_up():
                    raise KeyboardInterrupt
                if not self.is_alive():
                    code = max(self.code or 0, 0) or wire.EXIT_FAILED
                    why = self._stderr_file.read_bytes()[-_STDERR_BYTES:].decode(errors="replace").strip()
                    raise StartFailed("the private ralphd did not start", code, why=why)
                if time.monotonic() > deadline:
                    what = f"the private ralphd was not ready after {READY_LIMIT_S:g} s"
                    raise StartFailed(what, 75, mend=f"less {self.log}")
                time.sleep(_LOOK_S)

    def is_alive(self) -> bool:
        """Return whether it lives. Reap everything that has ended below this process."""
        self.code = processes.reap().get(self._pid, self.code)
        return self.code is None

    def cut(self) -> None:
        """Make it, and all that it started, end now."""
        cord, self._cord = self._cord, -1
        if cord >= 0:
            os.close(cord)

    def end(self) -> bool:
        """Cut it, wait until nothing is left, and return whether that succeeded.

        Shims end their trees whatever their daemon does. What does not end is killed.
        """
        self.cut()
        if self._pid:
            self._await(self._has_no_shim, SHIMS_LIMIT_S)
            self._await(lambda: not self.is_alive(), LAST_WRITES_S)
            self._await(self._has_no_shim, SHIMS_LIMIT_S)  # of a run that it was about to start
        gone = processes.none_left() or processes.end_all(limit_s=KILL_LIMIT_S)
        self._tidy()
        return gone

    def _has_no_shim(self) -> bool:
        self.is_alive()  # reaps
        return all(pid == self._pid for pid in processes.tied(self._pipe, (self._pid,)))

    def _tidy(self) -> None:
        """Remove the socket of a killed daemon, unless the lock shows that the next one listens there."""
        if self._pid and not is_held(self.directory / "lock"):
            Path(self.socket).unlink(missing_ok=True)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _await(self, fact: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not fact() and time.monotonic() < deadline:
            processes.wake(self._pipe, (self._pid,))  # each time: one look may miss a child
            time.sleep(_LOOK_S)


def is_ready(socket: str) -> bool:
    """Return whether a daemon there accepts requests, and is not ending."""
    with suppress(RalphdError):
        transport.get([socket], "/ready")
        return True
    return False


def await_earlier(directory: Path, give_up: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait until an ending private daemon has left ``directory``.

    Raise DirectoryBusy if it is not ending, StartFailed if that takes too long.
    """
    socket, began, ready_since, reported = str(directory / "ralphd.sock"), time.monotonic(), None, False
    while is_held(directory / "lock"):
        now = time.monotonic()
        ready_since = (ready_since or now) if is_ready(socket) else None
        if ready_since is not None and now - ready_since > LIVES_AFTER_S:
            raise _builds_already(socket)
        if now - began > EARLIER_LIMIT_S:
            raise StartFailed("an earlier build here has not ended", 75, mend=f"less {directory}/ralphd.log")
        if give_up():
            raise KeyboardInterrupt
        if not reported and now - began > LIVES_AFTER_S / 2 and ready_since is None:
            reported = True
            say("waiting for an earlier build in this directory to end")
        time.sleep(_LOOK_S)


def _builds_already(socket: str) -> DirectoryBusy:
    name = "a ralph"
    with suppress(RalphdError, IndexError):
        name = str(Client(lambda: [socket]).views()[0]["name"])
    what = f"another terminal already runs ralphctl build in this directory ({name})"
    mend = "ralphctl status, ralphctl logs -f, or ralphctl stop and then ralphctl build"
    return DirectoryBusy(what, mend=mend)


def refuse_if_supervised(directory: str, own_socket: str) -> None:
    """Raise DirectoryBusy if another daemon's Regent supervises ``directory``."""
    sockets = [path for path in discovery.candidates(None, os.environ, directory) if path != own_socket]
    try:
        views = Client(lambda: sockets).views()
    except DaemonNotRunning:  # it is ending; the directory's lock decides
        return
    real = os.path.realpath(directory)
    view = next((each for each in views if os.path.realpath(each["directory"]) == real), None)
    if view is not None and view["state"] not in ("idle", "stopped", "failed", "done"):
        name, state = view["name"], str(view["state"]).replace("_", " ")
        what = f"another ralphd already supervises this directory: {name} is {state}"
        mend = f"ralphctl logs -f {name}  (to watch it)\nralphctl stop {name}, then ralphctl build"
        raise DirectoryBusy(what, why="only one ralph may work in a directory", mend=mend)
