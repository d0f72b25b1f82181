"""A terminal with one command in its foreground: what is typed, what is on the screen, and its settings."""

import fcntl
import os
import pty
import re
import struct
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

    def __init__(
        self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], columns: int = 80
    ) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(columns)
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
        self.hang_up()

    def hang_up(self) -> None:
        """Close it, as a person closes a window."""
        for descriptor in (self._master, self._slave):
            if descriptor >= 0:
                os.close(descriptor)
        self._master = self._slave = -1

    def settings(self) -> list[Any]:
        """What ``stty -g`` tells."""
        return termios.tcgetattr(self._slave)

    def is_raw(self) -> bool:
        """Whether single keys are read, unechoed."""
        return not self.settings()[3] & (termios.ICANON | termios.ECHO)

    def type(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._master, keys)

    def resize(self, columns: int) -> None:
        """Make it so wide; who is in the foreground is told."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def lines(self) -> list[str]:
        """What is on it now, with all that has scrolled off it."""
        return seen(self.screen())

    def take(self) -> None:
        """Take what was printed, so that who prints can go on."""
        with suppress(BlockingIOError, OSError):  # EIO: nobody has it open any more
            while piece := os.read(self._master, 65536):
                self._screen += piece

    def screen(self) -> str:
        """All that was ever on it."""
        self.take()
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


_PIECES = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


def seen(text: str) -> list[str]:
    """What is left to be read of ``text`` on a wide terminal: lines, without colours."""
    lines, row, column = [""], 0, 0
    for piece in _PIECES.finditer(text):
        number, command = piece[1], piece[2]
        if piece[0] == "\r":
            column = 0
        elif piece[0] == "\n":
            row += 1
            lines += [""] * (row >= len(lines))
        elif command == "A":
            row = max(0, row - int(number or 1))
        elif command == "J":
            lines[row:] = [lines[row][:column]]
        elif command is None:
            lines[row] = lines[row][:column].ljust(column) + piece[0] + lines[row][column + len(piece[0]) :]
            column += len(piece[0])
    return lines
