"""What ``ralphctl build`` does while its ralph runs: shows it, heeds signals and keys, sees the end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, TypeAlias

from ralphctl import link
from ralphctl.controls import Controls, Key
from ralphctl.embedded import PrivateDaemon
from ralphctl.keys import Keyboard
from ralphctl.tell import message, note
from ralphctl.view.bell import Bell
from ralphctl.view.live import LiveView, Over, Source
from ralphctl.waiting import is_settled
from ralphd import wire
from ralphd.errors import DaemonBusy, RalphdError

View: TypeAlias = dict[str, Any]

_STOP = (signal.SIGINT, signal.SIGTERM)
_END = (signal.SIGQUIT, signal.SIGHUP)
_LAST_LINES_S = 5.0
_LOOK_S = 0.05
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


@dataclass(frozen=True, slots=True)
class Begun:
    """A ralph that was just registered: its log is shown from ``at`` on, its events after ``last_event``."""

    name: str
    at: str
    last_event: int


class Foreground:
    """One ralph in front of a person, from its registration to its end."""

    def __init__(
        self, daemon: PrivateDaemon, begun: Begun, wishes: Wishes, bell: Bell, keyboard: Keyboard
    ) -> None:
        self._daemon, self._wishes, self._keyboard = daemon, wishes, keyboard
        self._name = begun.name
        self._live = LiveView(
            Source(
                daemon.client, begun.name, {"since": begun.at}, begun.last_event,
                look=self._look, is_over=lambda: wishes.now,
            ),
            bell,
            keyboard,
        )  # fmt: skip
        self._live.controls = Controls(
            daemon.client, self._name, self._live.say, stir=self._live.stir,
            quit_=Key("q", "finish the iteration, then end; so does Ctrl-C", self._quit),
            more=(("Ctrl-C again", "end it now"),),
        )  # fmt: skip
        self._problems: list[str] = []
        self._asked = False
        self.is_cut_short = False
        """Whether the end of what it printed may be missing."""

    @property
    def view(self) -> View:
        """How it was when it was looked at last."""
        return self._live.view

    def watch(self) -> End:
        """Show it and wait until it is over; says why it is."""
        self._live.begin()
        end = self._live.wait(self._end, beside=(self._daemon.pidfd,))
        if end is End.SETTLED:
            self._print_the_rest()
            self._wait_for_followers()
        self._live.close()
        return end

    def tell(self, lines: list[str]) -> None:
        """The last words: a panel where there is a view, else lines."""
        say(self._live.last_words(lines))

    def _print_the_rest(self) -> None:
        """As long as its reader takes; but a terminal that is held, by Ctrl-S, does not keep us."""
        printing = threading.Thread(target=self._live.finish, daemon=True)
        began = time.monotonic()
        printing.start()
        while printing.is_alive() and not self._wishes.now and self._wishes.stop == self._asked:
            if self._live.screen.is_terminal and time.monotonic() - began > _LAST_LINES_S:
                break
            printing.join(_LOOK_S)
        self.is_cut_short = printing.is_alive()

    def _end(self) -> End | None:
        if self._wishes.now:
            return End.NOW
        if self._live.screen.is_broken:
            return End.UNHEARD
        if not self._daemon.is_alive():
            return End.ALONE
        if self.view and is_settled(self.view):
            return End.SETTLED
        if self._wishes.stop and not self._asked:
            self._asked = True
            threading.Thread(target=self._stop, daemon=True).start()
            echoed = sys.stderr.isatty() and not self._keyboard.is_ours  # then ^C stands on a line of its own
            self._live.say(
                ("\n" if echoed else "")
                + f"stopping: {self._name} is asked to end its run; Ctrl-C again ends it now"
            )
        return None

    def _quit(self, view: View) -> None:
        if self._wishes.stop:
            self._live.say("it is asked to end already; Ctrl-C ends it now")
        self._wishes.stop = True

    def _stop(self) -> None:
        with suppress(RalphdError):  # it ends, or has ended: that is seen otherwise
            try:
                link.get([self._daemon.socket], f"{wire.API}/ready", timeout_s=_ANSWER_S)
            except DaemonBusy:
                self._live.say("its ralphd does not answer; Ctrl-C again ends everything without it")
            self._daemon.client.ask(self._name, "stop")
        self._live.stir()

    def _look(self) -> View | None:
        """How it is, and what is wrong with the daemon."""
        if self._wishes.now:
            raise Over
        try:
            status = self._daemon.client.status().value
        except RalphdError:
            return None
        self._tell_problems(status["daemon"]["problems"])
        return next((view for view in status["ralphs"] if view["name"] == self._name), None)

    def _tell_problems(self, problems: list[str]) -> None:
        fresh = [problem for problem in problems if problem not in self._problems]
        self._problems = problems
        for problem in fresh:
            with self._live.screen.aside(), suppress(OSError):
                note(problem)

    def _wait_for_followers(self) -> None:
        if not self._wishes.now:
            time.sleep(_FOLLOWERS_S)
