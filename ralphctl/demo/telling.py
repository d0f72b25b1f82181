"""How the demo is shown: numbered scenes, commands as they are typed, their output, and what held."""

import textwrap
from collections.abc import Callable
from typing import TextIO

from ralphctl.demo.stage import DemoFailed
from ralphctl.tell import BLUE, BOLD, DIM, GREEN, ORANGE, paint

_WIDTH = 78
_REGENT = "🛡️  Regent:"


class Teller:
    """Writes for a person with 80 columns; in colour when ``colour``."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._scenes = 0

    def title(self, text: str) -> None:
        """The first line."""
        self._line(self._paint(text, BOLD))

    def scene(self, text: str) -> None:
        """Begin the next scene."""
        self._scenes += 1
        self._line("")
        self._line(self._paint(f"{self._scenes}. {text}", BOLD))

    def say(self, text: str) -> None:
        """A sentence or two."""
        self._line("")
        for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False):
            self._line(line)

    def command(self, command: str, run: Callable[[str], str]) -> str:
        """Show a command as it is typed, run it, show what it prints; gives that."""
        self._line("")
        self._line(self._paint("$ ", BLUE) + self._paint(command, BOLD))
        said = run(command)
        for line in said.splitlines():
            self._output(line)
        return said

    def holds(self, fact: bool, said: str, otherwise: str) -> None:
        """Tell what held. Raises DemoFailed with ``otherwise`` when it did not."""
        if not fact:
            raise DemoFailed(otherwise)
        for number, line in enumerate(textwrap.wrap(said, _WIDTH - 2, break_on_hyphens=False)):
            self._line("  " + line if number else self._paint("✓", GREEN) + " " + line)

    def _output(self, line: str) -> None:
        colour = ORANGE if _REGENT in line else DIM
        rest, indent = line, "  "
        while rest:
            room = _WIDTH + 2 - len(indent)
            at = len(rest) if len(rest) <= room else rest.rfind(" ", 1, room + 1)
            part = rest[: at if at > 0 else room]
            self._line(indent + self._paint(part, colour))
            rest, indent = rest[len(part) :].lstrip(), "      "
        if not line:
            self._line("")

    def _paint(self, text: str, colour: str) -> str:
        return paint(text, colour, on=self._colour)

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()
