"""Single keys of a terminal, unechoed, while we are in its foreground; it is given back as it was (L12).

Ctrl-C and Ctrl-Z stay what they are. In the background nothing is read and nothing is set: either would stop
us. Where we are killed, a guardian gives it back.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from ralphctl.guardian import Guardian, modes

_LOCAL_MODES = 3
_CONTROL_CHARACTERS = 6
_SEQUENCES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Arrows and their like, and what a terminal answers: more than one byte, and none of our keys."""


class Keyboard:
    """The keys of the terminal that stdin is; none where stdin or stdout is something else.

    Made, entered and left on the main thread. ``changed`` is called when it may be ours again, or no more;
    ``resting`` before Ctrl-Z takes effect, to be set by who has something on the screen that has to go.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.resting: Callable[[], None] = lambda: None
        self.fd = sys.stdin.fileno() if sys.stdin is not None else -1
        self.is_usable = self.fd >= 0 and os.isatty(self.fd) and sys.stdout.isatty()
        self._saved: list[Any] | None = None
        self._before = b""
        self._guardian: Guardian | None = None

    def __enter__(self) -> Keyboard:
        if self.is_usable:
            if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:  # as by a shell without jobs
                signal.signal(signal.SIGTSTP, self._suspend)
            signal.signal(signal.SIGCONT, self._go_on)
            self._guardian = Guardian(self.fd)
            self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._guardian is not None:
            signal.signal(signal.SIGCONT, signal.SIG_DFL)
            if signal.getsignal(signal.SIGTSTP) == self._suspend:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            self._give_back()
            self._guardian.dismiss()

    @property
    def is_ours(self) -> bool:
        """Whether what is typed now is for us."""
        return self._saved is not None and self._in_foreground()

    def look(self) -> bool:
        """Take it, where it has become ours; whether it is.

        A shell that brings a running job to the foreground sends no signal.
        """
        if self.is_usable and self._saved is None:
            self._take()
        return self.is_ours

    def read(self) -> bytes:
        """What was typed, a key a byte. At the terminal's end it is not ours any more."""
        try:
            typed = os.read(self.fd, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone
            self.is_usable, self._saved = False, None
        return _SEQUENCES.sub(b"", typed)

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return False

    def _take(self) -> None:
        if not self._in_foreground():
            return
        with suppress(termios.error, OSError):
            if self._saved is None:
                self._saved, self._before = termios.tcgetattr(self.fd), modes(self.fd)
            ours = termios.tcgetattr(self.fd)
            ours[_LOCAL_MODES] &= ~(termios.ICANON | termios.ECHO)
            ours[_CONTROL_CHARACTERS][termios.VMIN] = 1
            ours[_CONTROL_CHARACTERS][termios.VTIME] = 0
            # Not TCSADRAIN: where Ctrl-S holds the terminal, that would wait.
            termios.tcsetattr(self.fd, termios.TCSANOW, ours)
            if self._guardian is not None:
                self._guardian.tell(self._before, modes(self.fd))

    def _give_back(self) -> None:
        if self._saved is not None and self._in_foreground():
            with suppress(termios.error):
                termios.tcsetattr(self.fd, termios.TCSANOW, self._saved)
            self._saved = None

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal as it was."""
        self.resting()
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # here we rest, until SIGCONT
        signal.signal(signal.SIGTSTP, self._suspend)
        self._go_on(number, frame)

    def _go_on(self, number: int, frame: FrameType | None) -> None:
        """In the foreground again, or for the first time; after ``bg`` neither."""
        self._take()
        self._changed()
