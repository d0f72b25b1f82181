"""The keys of the live view: single keys of a terminal, unechoed, and what they do.

The terminal gets its settings back at the end, also by SIGTERM or an exception, and at Ctrl-Z (L12), but not
after SIGKILL. In the background nothing is read or set, since the kernel would stop us for either.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY
from types import FrameType
from typing import Any, TypeAlias

from ralphctl.client.client import Client
from ralphctl.format import state_text
from ralphctl.format.output import clean, is_foreground
from ralphctl.live.screen import is_waiting
from ralphd import overview
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError

View: TypeAlias = dict[str, Any]

_LOCAL_MODES, _CONTROL_CHARACTERS = 3, 6  # positions in what tcgetattr returns
_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Arrow keys and a terminal's replies: several bytes each, and none of our keys."""


class Waker:
    """A pipe by which other threads, signals and a resized terminal wake the main thread's poll."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda number, frame: None)  # a handler, so that the pipe is written

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it is full, so the reader is awake
            os.write(self._write_fd, b"!")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass


class Keyboard:
    """The keys of the terminal at stdin; none where stdin or stdout is something else.

    Make, enter and leave it on the main thread. It wakes ``waker`` when the terminal may have become ours or
    have been lost. ``resting`` is called before Ctrl-Z takes effect; the owner of the screen sets it.
    """

    def __init__(self, waker: Waker) -> None:
        self.waker = waker
        self.resting: Callable[[], None] = lambda: None
        self.fd = sys.stdin.fileno() if sys.stdin is not None else -1
        self.is_usable = self.fd >= 0 and os.isatty(self.fd) and sys.stdout.isatty()
        self._is_entered = False
        self._saved: list[Any] | None = None

    def __enter__(self) -> Keyboard:
        if self.is_usable:
            if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:  # as by a shell without jobs
                signal.signal(signal.SIGTSTP, self._suspend)
            signal.signal(signal.SIGCONT, self._continue)
            self._is_entered = True
            self._take()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._is_entered:
            signal.signal(signal.SIGCONT, signal.SIG_DFL)
            if signal.getsignal(signal.SIGTSTP) == self._suspend:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            self._give_back()

    @property
    def is_ours(self) -> bool:
        """True while keys that are typed come to us."""
        return self._saved is not None and is_foreground(self.fd)

    def look(self) -> bool:
        """Take the terminal if it has become ours. Return whether it is.

        To be polled: a shell that brings a running job to the foreground sends no signal.
        """
        if self.is_usable and self._saved is None:
            self._take()
        return self.is_ours

    def read(self) -> bytes:
        """Return the keys that were typed, one byte each. At the terminal's end it stops being ours."""
        try:
            typed = os.read(self.fd, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone
            self.is_usable, self._saved = False, None
        return _SEQUENCES.sub(b"", typed)

    def _take(self) -> None:
        if not is_foreground(self.fd):
            return
        with suppress(termios.error):
            self._saved = self._saved or termios.tcgetattr(self.fd)
            ours = termios.tcgetattr(self.fd)
            ours[_LOCAL_MODES] &= ~(termios.ICANON | termios.ECHO)
            ours[_CONTROL_CHARACTERS][termios.VMIN] = 1
            ours[_CONTROL_CHARACTERS][termios.VTIME] = 0
            # Not TCSADRAIN: it would wait while Ctrl-S holds the terminal.
            termios.tcsetattr(self.fd, termios.TCSANOW, ours)

    def _give_back(self) -> None:
        if self._saved is not None and is_foreground(self.fd):
            with suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSANOW, self._saved)
            self._saved = None

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self.resting()
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # returns after SIGCONT
        signal.signal(signal.SIGTSTP, self._suspend)
        self._continue(number, frame)

    def _continue(self, number: int, frame: FrameType | None) -> None:
        self._take()  # after `bg` this does nothing
        self.waker.wake()


# --- what the keys do ---


@dataclass(frozen=True, slots=True)
class ViewKey:
    """A key, its line in the help, and the function that gets the present view when the key is pressed."""

    letter: str
    help: str
    act: Callable[[View], None]


@dataclass(frozen=True, slots=True)
class Question:
    """An open question; one of ``letters`` calls ``yes``, any other key prints ``no``."""

    text: str
    letters: str
    yes: Callable[[View], None]
    no: str


@dataclass(eq=False)
class Controls:
    """Turn keys into requests: p pauses, s skips the present wait, q leaves or ends, S stops if ``may_stop``.

    What is not easily undone needs a confirmation: the key after a question is its answer. Each request has
    a thread of its own, so that the main one stays free for signals; ``on_reply`` is called after its reply.
    ``more`` are lines of the help for keys that are handled elsewhere.
    """

    _client: Client
    _name: str
    _say: Callable[[str], None]
    _: KW_ONLY
    on_reply: Callable[[], None]
    quit_: ViewKey
    more: tuple[tuple[str, str], ...] = ()
    may_stop: bool = False

    def __post_init__(self) -> None:
        self._pending = ""  # the request that has not been answered
        self.question: Question | None = None
        pause = ViewKey("p", "pause after the iteration, or resume", self._pause)
        skip = ViewKey("s", "skip the wait", self._skip)
        stop = ViewKey("S", "stop after the iteration", self._stop)
        listed = ViewKey("?", "list the keys", self._show_keys)
        keys = (pause, skip, self.quit_, *([stop] if self.may_stop else []), listed)
        self._keys: Mapping[int, ViewKey] = {ord(key.letter): key for key in keys}

    def press(self, key: int, view: View) -> None:
        """Act on one key, pressed while ``view`` was shown; unknown keys are ignored."""
        question, self.question = self.question, None
        if question is not None and chr(key) in question.letters:
            question.yes(view)
        elif question is not None:
            self._say(question.no)
        elif key in self._keys:
            self._keys[key].act(view)

    def going(self, view: View) -> str:
        """Return what the ralph does after we detach; ``view`` may not show our latest request yet."""
        requested = self._pending or self._requested_in(view)
        return {"stop": "is stopping", "pause": "is pausing"}.get(requested, "keeps running")

    def _requested_in(self, view: View) -> str:
        return {"stopping": "stop", "pausing": "pause"}.get(str(view.get("state")), "")

    def _show_keys(self, view: View) -> None:
        rows = [(key.letter, key.help) for key in self._keys.values()] + list(self.more)
        width = max(len(letter) for letter, _ in rows)
        self._say("\n".join(f"  {letter:<{width}}  {text}" for letter, text in rows))

    def _skip(self, view: View) -> None:
        if not is_waiting(view, time.time()):
            self._say(f"{self._name} is not waiting: there is nothing to skip")
            return
        still = " The limit may still apply." if overview.wait_reason(view) in overview.LIMITS else ""
        text = f"Skip the wait?{still} [y/N]"
        self.question = Question(text, "yY", self._skip_now, "not skipped; still waiting")

    def _skip_now(self, view: View) -> None:
        if is_waiting(view, time.time()):
            self._request("skip-wait", done="wait skipped")
        else:
            self._say("the wait is over already")

    def _stop(self, view: View) -> None:
        at_once = f"at once: ralphctl stop --now {self._name}"
        if view.get("state") == "stopping":
            self._say(f"{self._name} is stopping already; {at_once}")
            return
        when = "" if state_text.is_built_in(view) else ", or at once if it reports none"
        text = f"Stop {self._name} after this iteration{when}? [y/N]"
        done = f"stopping {self._name}; {at_once}"
        self.question = Question(text, "SyY", lambda _: self._request("stop", done=done), "not stopped")

    def _pause(self, view: View) -> None:
        if view.get("state") == "paused":
            self._request("resume")
            return
        if "pause" in (self._pending, self._requested_in(view)):
            self._say(f"{self._name} is pausing already")
            return
        self._request("pause")  # its Regent logs that it pauses

    def _request(self, action: str, *, done: str = "") -> None:
        """Send a request from a thread of its own, and print ``done`` when it has been answered."""
        self._pending = action
        threading.Thread(target=self._send, args=(action, done), daemon=True).start()

    def _send(self, action: str, done: str) -> None:
        try:
            view = self._client.ask(self._name, action).value
        except RalphdError as fault:
            why = f": {clean(fault.why.splitlines()[0])}" if fault.why else ""
            self._say(f"{action}: {clean(fault.what)}{why}")
        else:
            now = time.time()
            if action == "skip-wait" and not view.get("ralph_pid") and is_waiting(view, now):
                done = f"still {state_text.state_words(view, now)}"  # its start has no place yet
            if done:
                self._say(done)
        finally:
            self._pending = ""
            self.on_reply()
