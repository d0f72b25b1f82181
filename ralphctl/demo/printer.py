"""Print the demo: numbered scenes, commands as they are typed, their output, and what was checked."""

import textwrap
from typing import TextIO

from ralphctl.demo.sandbox import DemoFailed
from ralphctl.format.output import BLUE, BOLD, DIM, GREEN, ORANGE, paint

_WIDTH = 78


class DemoPrinter:
    """Prints for a terminal with 80 columns."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out, self._colour = out, colour
        self._scenes = 0

    def title(self, text: str) -> None:
        self._line(self._paint(text, BOLD))

    def scene(self, title: str) -> None:
        self._scenes += 1
        self._line()
        self._line(self._paint(f"{self._scenes}. {title}", BOLD))

    def say(self, text: str) -> None:
        self._line()
        for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False):
            self._line(line)

    def command(self, command: str) -> None:
        self._line()
        self._line(self._paint("$ ", BLUE) + self._paint(command, BOLD))

    def output(self, text: str) -> None:
        for line in text.splitlines():
            colour = ORANGE if "🛡️  Regent:" in line else DIM
            parts = textwrap.wrap(
                line, _WIDTH + 2, initial_indent="  ", subsequent_indent=" " * 6,
                break_on_hyphens=False, replace_whitespace=False,
            )  # fmt: skip
            for part in parts or [""]:
                self._line(self._paint(part, colour))

    def check(self, fact: object, holds: str, otherwise: str = "") -> None:
        """Print ``holds``. Raise DemoFailed, with ``otherwise`` if given, when ``fact`` is falsy."""
        if not fact:
            raise DemoFailed(otherwise or f"this did not hold: {holds}")
        for number, line in enumerate(textwrap.wrap(holds, _WIDTH - 2, break_on_hyphens=False)):
            self._line("  " + line if number else self._paint("✓", GREEN) + " " + line)

    def _line(self, text: str = "") -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def _paint(self, text: str, colour: str) -> str:
        return paint(text, colour, on=self._colour and bool(text))
