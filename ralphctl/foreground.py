"""What ``ralphctl build`` does while its ralph runs: prints the log, heeds signals, sees the end."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from types import FrameType
from typing import Any, TypeAlias

from ralphctl import countdown, link, streams
from ralphctl.client import Client
from ralphctl.controls import Controls
from ralphctl.embedded import PrivateDaemon
from ralphctl.keys import Keyboard
from ralphctl.lines import lines_of
from ralphctl.screen import Screen
from ralphctl.tell import message, note
from ralphctl.waiting import is_settled
from ralphd import wire
from ralphd.errors import DaemonBusy, RalphdError

View: TypeAlias = dict[str, Any]

_STOP = (signal.SIGINT, signal.SIGTERM)
_END = (signal.SIGQUIT, signal.SIGHUP)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_LAST_LINES_S = 5.0
_LOOK_S = 0.05
_COUNT_S = 0.25
"""Four looks a second at the wait, so that its line never skips one."""
_ANSWER_S = 3.0
_FOLLOWERS_S = 0.3
"""Followers in other terminals look every 0.04 s; they see the last lines before the daemon ends."""


class End(Enum):
    """Why the watching is over."""

    SETTLED = "nothing runs any more"
    NOW = "a signal asked for it"
    UNHEARD = "nobody reads what is printed"
    ALONE = "the daemon is gone"


def say(text: str) -> None:
    """A message, unless the terminal is gone."""
    with suppress(OSError):
        message(text)


class Bell:
    """Wakes the main thread: rung by other threads, by signals, and looked at with ``poll``."""

    def __init__(self) -> None:
        self.fd, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)

    def ring(self) -> None:
        """Wake it."""
        with suppress(BlockingIOError):  # rung often enough
            os.write(self._rope, b"!")

    def hush(self) -> None:
        """Forget that it was rung."""
        with suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass


class Wishes:
    """What signals ask for: the first Ctrl-C or SIGTERM to stop, the next one, or a hang-up, to end it now.

    ``cut`` is called for the latter at once, in the handler, whatever the main thread does meanwhile.
    """

    def __init__(self, cut: Callable[[], None]) -> None:
        self._cut = cut
        self.stop = False
        self.now = False
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it only wakes
        for number in (*_STOP, *_END):
            if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup: then it is to go on
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.stop or number in _END:
            self.now = True
            self._cut()
        self.stop = True


class _Over(Exception):
    """The daemon will not come back."""


class Foreground:
    """One ralph in front of a person, from its registration to its end."""

    def __init__(
        self,
        daemon: PrivateDaemon,
        name: str,
        began_at: str,
        wishes: Wishes,
        bell: Bell,
        keyboard: Keyboard,
    ) -> None:
        self._daemon, self._name, self._began_at = daemon, name, began_at
        self._wishes, self._bell, self._keyboard = wishes, bell, keyboard
        self._screen = Screen(self._unprinted)
        self._controls = Controls(daemon.client, name, self._say)
        self._told_wait: float | None = None
        self._stirred = threading.Event()
        self._over = False
        self._problems: list[str] = []
        self._asked = False
        self.view: View = {}
        self.is_cut_short = False
        """Whether the end of what it printed may be missing."""

    def watch(self) -> End:
        """Print and wait until it is over; says why it is."""
        for work in (self._follow, self._look, self._count_down):
            threading.Thread(target=work, daemon=True).start()
        end = self._wait()
        if end is End.SETTLED:
            self._print_the_rest()
            self._wait_for_followers()
        self._over = True
        self._screen.wipe(for_good=True)
        return end

    def _print_the_rest(self) -> None:
        """As long as its reader takes; but a terminal that is held, by Ctrl-S, does not keep us."""
        printing = threading.Thread(target=self._screen.finish, args=(self._rest,), daemon=True)
        began = time.monotonic()
        printing.start()
        while printing.is_alive() and not self._wishes.now and self._wishes.stop == self._asked:
            if self._screen.is_terminal and time.monotonic() - began > _LAST_LINES_S:
                break
            printing.join(_LOOK_S)
        self.is_cut_short = printing.is_alive()

    def _unprinted(self, why: str) -> None:
        say(f"what {self._name} prints cannot be written here: {why}; it goes on, and ralphctl logs has it")

    def _say(self, text: str) -> None:
        """A message on a line of its own."""
        self._screen.wipe()
        say(text)

    def _wait(self) -> End:
        while (end := self._end()) is None:
            found = dict(self._poll().poll())
            self._bell.hush()
            if found.get(sys.stdout.fileno(), 0) & (select.POLLERR | select.POLLHUP):
                self._screen.is_broken = True
            elif self._keyboard.is_ours and found.get(self._keyboard.fd, 0):
                self._heed(self._keyboard.read())
        return end

    def _poll(self) -> select.poll:
        poll = select.poll()
        for descriptor in (self._bell.fd, self._daemon.pidfd):
            poll.register(descriptor, select.POLLIN)
        if self._keyboard.is_ours:
            poll.register(self._keyboard.fd, select.POLLIN)
        poll.register(sys.stdout.fileno(), 0)  # POLLERR, POLLHUP: its reader is gone
        return poll

    def _heed(self, keys: bytes) -> None:
        for key in keys:
            if question := self._controls.press(key, self.view):
                self._screen.show("")
                with suppress(OSError):
                    sys.stderr.write(question)
                    sys.stderr.flush()

    def _end(self) -> End | None:
        if self._wishes.now:
            return End.NOW
        if self._screen.is_broken:
            return End.UNHEARD
        if not self._daemon.is_alive():
            return End.ALONE
        if self.view and is_settled(self.view):
            return End.SETTLED
        if self._wishes.stop and not self._asked:
            self._asked = True
            threading.Thread(target=self._stop, daemon=True).start()
            echoed = sys.stderr.isatty() and not self._keyboard.is_ours  # then ^C stands on a line of its own
            self._say(
                ("\n" if echoed else "")
                + f"stopping: {self._name} is asked to end its run; Ctrl-C again ends it now"
            )
        return None

    def _stop(self) -> None:
        with suppress(RalphdError):  # it ends, or has ended: that is seen otherwise
            try:
                link.get([self._daemon.socket], f"{wire.API}/ready", timeout_s=_ANSWER_S)
            except DaemonBusy:
                self._say("its ralphd does not answer; Ctrl-C again ends everything without it")
            self._daemon.client.ask(self._name, "stop")
        self._stirred.set()

    # --- in threads of their own ----------------------------------------------------------------------

    def _follow(self) -> None:
        """Print what comes. A line of the Regent's mostly means that something has changed."""
        query = {"since": self._began_at}
        try:
            for record in streams.log(self._daemon.client, self._name, query, on_away=self._away):
                if not self._screen.put(record):
                    break
                if record.get("stream") == "regent":
                    self._stirred.set()
        except (_Over, RalphdError):
            pass
        self._bell.ring()

    def _away(self) -> None:
        if self._over or self._wishes.now:
            raise _Over

    def _look(self) -> None:
        """Look how it is: at once when something stirs, and soon again, then every second."""
        pause_s = _FIRST_PAUSE_S
        while not self._over:
            try:
                status = self._daemon.client.status().value
            except RalphdError:
                status = None
            if status is not None:
                self._tell_problems(status["daemon"]["problems"])
                view = next((view for view in status["ralphs"] if view["name"] == self._name), None)
                if view is not None:
                    self.view = view
                    if is_settled(view):
                        self._bell.ring()
            if self._stirred.wait(pause_s):
                self._stirred.clear()
                pause_s = _FIRST_PAUSE_S
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _count_down(self) -> None:
        """Show a wait that lasts, each second; where there is no terminal, say it once."""
        while not self._over:
            now = time.time()
            if not self._screen.is_terminal:
                self._tell_wait(now)
            elif not self._controls.asks:
                self._screen.show(countdown.line(self.view, now, has_keys=self._keyboard.is_ours))
            time.sleep(_COUNT_S)

    def _tell_wait(self, now: float) -> None:
        ends = countdown.end_of(self.view)
        if ends != self._told_wait and (said := countdown.beginning(self.view, now)):
            say(said)
        self._told_wait = ends

    def _tell_problems(self, problems: list[str]) -> None:
        fresh = [problem for problem in problems if problem not in self._problems]
        self._problems = problems
        for problem in fresh:
            self._screen.wipe()
            with suppress(OSError):
                note(problem)

    def _rest(self, cursor: str | None) -> Iterator[dict[str, Any]]:
        client: Client = self._daemon.client
        place = {"since": self._began_at} if cursor is None else {"cursor": cursor}
        return map(json.loads, lines_of(client.log(self._name, {**place, "format": "json"})))

    def _wait_for_followers(self) -> None:
        if not self._wishes.now:
            time.sleep(_FOLLOWERS_S)
