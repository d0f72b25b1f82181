"""A terminal with one command in its foreground: what is typed, what is on the screen, and its settings."""

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.helpers import wait_for

SHOWN_S, END_S = 30.0, 60.0
TAKES_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A real pty, of which ``command`` is the session's leader. To be closed."""

    def __init__(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._screen = b""
        self.before = self.settings()
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKES_THE_TERMINAL, *command],
            cwd=cwd,
            env=environment,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *about: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(END_S)
        for descriptor in (self._master, self._slave):
            os.close(descriptor)

    def settings(self) -> list[Any]:
        """What ``stty -g`` tells."""
        return termios.tcgetattr(self._slave)

    def is_raw(self) -> bool:
        """Whether single keys are read, unechoed."""
        return not self.settings()[3] & (termios.ICANON | termios.ECHO)

    def type(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._master, keys)

    def screen(self) -> str:
        """All that was ever on it."""
        with suppress(BlockingIOError, OSError):  # EIO: nobody has it open any more
            while piece := os.read(self._master, 65536):
                self._screen += piece
        return self._screen.decode(errors="replace")

    def shows(self, text: str) -> None:
        """Wait until ``text`` is on it."""
        wait_for(lambda: text in self.screen(), timeout_s=SHOWN_S, what=f"{text!r} in {self.screen()!r}")

    def exit_code(self) -> int:
        """Wait for the end of the command; meanwhile the terminal goes on taking what is printed."""

        def ended() -> bool:
            self.screen()
            return self.process.poll() is not None

        wait_for(ended, timeout_s=END_S, what=f"the end:\n{self.screen()}")
        return int(self.process.returncode)
