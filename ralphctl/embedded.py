"""A ralphd of one's own, for ``ralphctl build``: it lives as long as this process at most (P5).

It, and every shim that it starts, hold the read end of a pipe; this process alone holds the other end. When
that is closed, on purpose or because this process was killed, each of them ends by itself what it started.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ralphctl import link
from ralphctl.background import COOKIES, StartFailed
from ralphctl.client import Client
from ralphctl.offline import processes
from ralphctl.patience import telling
from ralphd import wire
from ralphd.errors import DaemonNotRunning, DirectoryBusy, RalphdError

READY_LIMIT_S = 60.0
"""With the end of what an earlier one left, which takes up to 20 s."""
EARLIER_LIMIT_S = 30.0
LIVES_AFTER_S = 2.0
"""One that has been ready for so long is not about to end."""
SHIMS_LIMIT_S = 20.0
"""A shim needs 12 s at most, for a tree that does all it can to stay alive."""
LAST_WRITES_S = 5.0
"""For the private ralphd, once its shims have ended."""
KILL_LIMIT_S = 10.0
_LOOK_S = 0.02
_WORDS_BYTES = 4096


class PrivateDaemon:
    """One private ralphd. Every method is called on the main thread, ``cut`` in its signal handlers too."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = str(place / "ralphd.sock")
        self.client = Client(lambda: [self.socket])  # this one only: no other daemon is ever asked
        self.pidfd = -1
        self.code: int | None = None
        """What it ended with, a signal as a negative number; None while it lives."""
        self._pid = 0
        self._cord = -1
        self._pipe = 0

    @property
    def log(self) -> Path:
        """Its own log."""
        return self.place / "ralphd.log"

    def start(self) -> None:
        """Start it; it is not ready yet. Raises StartFailed."""
        processes.become_reaper()
        try:
            self._start()
        except OSError as fault:
            raise StartFailed(
                "the private ralphd cannot be started",
                wire.EXIT_FAILED,
                why=f"{fault.filename or self.place}: {fault.strerror}",
                mend="another place for its state, by RALPHD_STATE_DIR",
            ) from fault

    def _start(self) -> None:
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        heard, self._cord = os.pipe()  # neither is inherited by anybody who is not given it
        self._pipe = os.fstat(heard).st_ino
        try:
            self._pid = self._spawn(heard)
        finally:
            os.close(heard)
        self.pidfd = os.pidfd_open(self._pid)

    def _spawn(self, heard: int) -> int:
        # -P: a `ralphd` or `json.py` in the directory we are in must not be taken for ours.
        command = [sys.executable, "-P", "-m", "ralphd", "--tied", str(heard)]
        with self._words_file.open("wb") as words:
            process = subprocess.Popen(
                [*command, "--state-dir", str(self.place), "--socket", self.socket],
                env={name: value for name, value in os.environ.items() if name not in COOKIES},
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                start_new_session=True,
                pass_fds=[heard],
            )
        process.returncode = 0  # reaping is ours: with it come those that are handed to us
        return process.pid

    def await_ready(self, give_up: Callable[[], bool]) -> None:
        """Wait until it takes requests. Raises StartFailed, KeyboardInterrupt when ``give_up`` says so."""
        with telling("the private ralphd to be ready", READY_LIMIT_S):
            self._await_ready(give_up)

    def _await_ready(self, give_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not is_ready(self.socket):
            if give_up():
                raise KeyboardInterrupt
            if not self.is_alive():
                words = self._words_file.read_bytes()[-_WORDS_BYTES:].decode(errors="replace").strip()
                raise StartFailed("the private ralphd did not start", _exit_code(self.code), why=words)
            if time.monotonic() > deadline:
                raise StartFailed(
                    f"the private ralphd was not ready after {READY_LIMIT_S:g} s", 75, mend=f"less {self.log}"
                )
            time.sleep(_LOOK_S)

    def is_alive(self) -> bool:
        """Whether it has not ended. Reaps what else has ended below this process."""
        ends = processes.reap()
        self.code = ends.get(self._pid, self.code)
        return self.code is None

    def cut(self) -> None:
        """Have it and all that it started end now."""
        cord, self._cord = self._cord, -1
        if cord >= 0:
            os.close(cord)

    def end(self) -> bool:
        """The same, and wait until nothing is left; whether that is so.

        Shims end what is theirs whatever their ralphd does. What does not end by itself is killed.
        """
        self.cut()
        if self._pid:
            processes.wake(self._pipe, (self._pid,))
            self._await(self._has_no_shim, SHIMS_LIMIT_S)
            self._await(lambda: not self.is_alive(), LAST_WRITES_S)
            self._await(self._has_no_shim, SHIMS_LIMIT_S)  # one that it was about to start
        gone = processes.none_left() or processes.end_all(limit_s=KILL_LIMIT_S)
        self._tidy()
        return gone

    def _has_no_shim(self) -> bool:
        self.is_alive()  # reaps
        return all(pid == self._pid for pid in processes.tied(self._pipe, (self._pid,)))

    def _tidy(self) -> None:
        """Let go of what a killed one leaves. The lock tells that no other one listens there already."""
        if self._pid and not _is_held(self.place / "lock"):
            Path(self.socket).unlink(missing_ok=True)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _await(self, fact: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not fact() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    @property
    def _words_file(self) -> Path:
        """What it says where nobody listens: why it could not start."""
        return self.place / "ralphd.err"


def _exit_code(code: int | None) -> int:
    """What to end with where it ended with that too early: its own word where it had one."""
    return code if code is not None and code > 0 else wire.EXIT_FAILED


def is_ready(socket: str) -> bool:
    """Whether a ralphd there takes requests, and is not on its way out."""
    try:
        return link.get([socket], f"{wire.API}/ready")[0] == 200
    except RalphdError:
        return False


def await_the_earlier(place: Path, give_up: Callable[[], bool], say: Callable[[str], None]) -> None:
    """Wait until a private ralphd that is on its way out has left ``place``.

    Raises DirectoryBusy for one that is not, StartFailed when it takes too long.
    """
    socket, began, ready_since, said = str(place / "ralphd.sock"), time.monotonic(), None, False
    while _is_held(place / "lock"):
        now = time.monotonic()
        ready_since = (ready_since or now) if is_ready(socket) else None
        if ready_since is not None and now - ready_since > LIVES_AFTER_S:
            raise _builds_already(socket)
        if now - began > EARLIER_LIMIT_S:
            raise StartFailed("an earlier build here does not end", 75, mend=f"less {place}/ralphd.log")
        if give_up():
            raise KeyboardInterrupt
        if not said and now - began > LIVES_AFTER_S / 2 and ready_since is None:
            said = True
            say("waiting for an earlier build in this directory to end")
        time.sleep(_LOOK_S)


def _builds_already(socket: str) -> DirectoryBusy:
    try:
        views = Client(lambda: [socket]).views()
    except RalphdError:
        views = []
    name = str(views[0]["name"]) if views else "a ralph"
    return DirectoryBusy(
        f"{name} is being built in this directory already, in another terminal",
        mend="ralphctl status, ralphctl logs -f, or ralphctl stop and then ralphctl build",
    )


def refuse_beside(directory: str, own_socket: str) -> None:
    """Raise DirectoryBusy where a Regent of another daemon supervises ``directory``, with what to do."""
    socket = link.signpost_in(directory)
    if socket is None or socket == own_socket:
        return
    try:
        views = Client(lambda: [socket]).views()
    except DaemonNotRunning:  # its signpost is about to go; the lock tells
        return
    real = os.path.realpath(directory)
    view = next((each for each in views if os.path.realpath(each["directory"]) == real), None)
    if view is not None and view["state"] not in ("idle", "stopped", "failed", "done"):
        name, state = view["name"], str(view["state"]).replace("_", " ")
        raise DirectoryBusy(
            f"the ralph {name} is {state} in this directory, under another ralphd",
            why="one ralph works in a directory",
            mend=f"ralphctl logs -f {name}, to watch it; or ralphctl stop {name}, then ralphctl build",
        )


def _is_held(lock: Path) -> bool:
    try:
        return link.is_flocked(lock.stat().st_ino)
    except OSError:  # nothing is there, or nothing can be
        return False
