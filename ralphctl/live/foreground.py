"""One ralph in front of a person: ``build`` with a daemon of its own, ``attach`` with a daemon that stays."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import FrameType

from ralphctl.client import transport, waiting
from ralphctl.client.client import Client
from ralphctl.format.output import note
from ralphctl.live.keys import Controls, Keyboard, View, ViewKey
from ralphctl.live.view import LiveView, ViewClosed
from ralphctl.service.daemon import PrivateDaemon
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError, UnknownRalph

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_ENDING = (signal.SIGQUIT, signal.SIGHUP)
_LAST_LINES_S = 5.0
_POLL_S = 0.05
_ANSWER_S = 3.0
_FOLLOWERS_S = 0.3
"""Followers in other terminals poll every 0.04 s; they get the last lines before the daemon ends."""


# --- build ---


class BuildEnd(Enum):
    """Why the view of ``build`` is over."""

    SETTLED = "nothing of it is running"
    AT_ONCE = "a signal asked for it"
    UNREAD = "nobody reads what is printed"
    ALONE = "the daemon is gone"


class StopSignals:
    """The first Ctrl-C or SIGTERM sets ``stop``; the next one, SIGHUP and SIGQUIT set ``at_once`` too.

    For the latter the handler calls ``cut`` itself, whatever the main thread is doing.
    """

    def __init__(self, cut: Callable[[], None]) -> None:
        self._cut = cut
        self.stop = False
        self.at_once = False
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # a handler, so that the poll wakes
        for number in (*_STOPPING, *_ENDING):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup sets that, and then it is to continue
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop or number in _ENDING:
            self.at_once = True
            self._cut()
        self.stop = True


class Foreground(LiveView):
    """The ralph of ``build``, from its registration to its end; its log is shown from ``since`` on."""

    def __init__(
        self, daemon: PrivateDaemon, name: str, since: str, last_event: int, stops: StopSignals,
        keyboard: Keyboard,
    ) -> None:  # fmt: skip
        super().__init__(daemon.client, name, {"since": since}, last_event, keyboard)
        self._daemon, self._stops = daemon, stops
        self.controls = Controls(
            daemon.client, name, self.say, on_reply=self.poll_now,
            quit_=ViewKey("q", "finish the iteration, then end (also Ctrl-C)", self._quit),
            more=(("Ctrl-C again", "end at once"),),
        )  # fmt: skip
        self._problems: list[str] = []
        self._is_stopping = self.is_cut_short = False
        """True if the end of its output may be missing."""

    def watch(self) -> BuildEnd:
        """Show the ralph until it is over. Return why it is."""
        self.begin()
        end = self.wait(self._end, beside=(self._daemon.pidfd,))
        if end is BuildEnd.SETTLED:
            self._print_the_rest()
            if not self._stops.at_once:
                time.sleep(_FOLLOWERS_S)
        self.close()
        return end

    def _print_the_rest(self) -> None:
        """Wait as long as the reader takes, but not for a terminal that Ctrl-S holds."""
        printing = threading.Thread(target=self.finish, daemon=True)
        began = time.monotonic()
        printing.start()
        while printing.is_alive() and not self._stops.at_once and self._stops.stop == self._is_stopping:
            if self.screen.is_terminal and time.monotonic() - began > _LAST_LINES_S:
                break
            printing.join(_POLL_S)
        self.is_cut_short = printing.is_alive()

    def _end(self) -> BuildEnd | None:
        if self._stops.at_once:
            return BuildEnd.AT_ONCE
        if self.screen.is_broken:
            return BuildEnd.UNREAD
        if not self._daemon.is_alive():
            return BuildEnd.ALONE
        if self.view and waiting.is_settled(self.view):
            return BuildEnd.SETTLED
        if self._stops.stop and not self._is_stopping:
            self._is_stopping = True
            threading.Thread(target=self._stop, daemon=True).start()
            # Echoed, ^C is on the line, without a newline.
            start = "\n" if sys.stderr.isatty() and not self.keyboard.is_ours else ""
            self.say(f"{start}stopping {self.name}; press Ctrl-C again to end it at once")
        return None

    def _quit(self, view: View) -> None:
        if self._stops.stop:
            self.say(f"{self.name} is stopping already; Ctrl-C ends it at once")
        self._stops.stop = True

    def _stop(self) -> None:
        with suppress(RalphdError):  # it is ending, or has ended: `_end` sees that
            try:
                transport.get([self._daemon.socket], "/ready", timeout_s=_ANSWER_S)
            except DaemonBusy:
                self.say("its ralphd does not answer; Ctrl-C again ends everything anyway")
            self.client.ask(self.name, "stop")
        self.poll_now()

    def is_over(self) -> bool:
        return self._stops.at_once

    def look(self) -> View | None:
        """Return the ralph's view, and print new problems of the daemon."""
        if self._stops.at_once:
            raise ViewClosed
        try:
            status = self.client.status().value
        except RalphdError:
            return None
        known, self._problems = self._problems, status["daemon"]["problems"]
        for problem in (each for each in self._problems if each not in known):
            with self.screen.aside(), suppress(OSError):
                note(problem)
        return next((view for view in status["ralphs"] if view["name"] == self.name), None)


# --- attach ---

_LEAVING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


class AttachEnd(Enum):
    """Why the view of ``attach`` is over."""

    SETTLED = "nothing of it is running"
    LEFT = "a key asked for it"
    INTERRUPTED = "a signal asked for it"
    UNREAD = "nobody reads what is printed"
    FORGOTTEN = "it was removed"


class Attached(LiveView):
    """The ralph of ``attach``; leaving it changes nothing. ``view`` is the one to begin with."""

    def __init__(self, client: Client, view: View, tail: int, last_event: int, keyboard: Keyboard) -> None:
        client = client.without_notices()  # its own messages would tear the region
        super().__init__(client, str(view["name"]), {"tail": str(tail)}, last_event, keyboard)
        self.view, self._directory = view, str(view["directory"])
        self._left: AttachEnd | None = None
        self.controls = Controls(
            client, self.name, self.say, on_reply=self.poll_now, may_stop=True,
            quit_=ViewKey("q", "detach; the loop keeps running (also Ctrl-C)", self._quit),
        )  # fmt: skip
        for number in _LEAVING:
            signal.signal(number, self._on_signal)

    def watch(self) -> AttachEnd:
        """Show the ralph until it is over or the person leaves. Return which."""
        self.begin()
        end = self.wait(self._end)
        if end is AttachEnd.SETTLED:
            printing = threading.Thread(target=self.finish, daemon=True)
            printing.start()
            while printing.is_alive() and self._left is None:  # as long as the reader takes
                printing.join(_POLL_S)
        self.close()
        return end

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._left = AttachEnd.INTERRUPTED

    def _quit(self, view: View) -> None:
        self._left = AttachEnd.LEFT
        self.waker.wake()

    def _end(self) -> AttachEnd | None:
        if self._left is not None:
            return self._left
        if self.screen.is_broken:
            return AttachEnd.UNREAD
        if self.is_gone:
            return AttachEnd.FORGOTTEN
        return AttachEnd.SETTLED if waiting.is_settled(self.view) else None

    def is_over(self) -> bool:
        return self._left is not None

    def look(self) -> View | None:
        """Return the view; without a daemon the last known one, if nothing of the ralph runs."""
        try:
            view: View = self.client.ralph(self.name).value
            return view
        except UnknownRalph as forgotten:
            raise ViewClosed from forgotten
        except DaemonNotRunning:
            return waiting.last_settled(self._directory, self.name)
        except RalphdError:
            return None
