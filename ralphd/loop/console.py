"""What the loop says to whoever reads its log: one line a fact, after the time, and the agent's own lines."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from ralphd.core.time import Moment

MARK = "Ralph: "


class Console:
    """Writes to stdout. A reader that went away costs the lines and nothing else."""

    def __init__(self, now: Callable[[], Moment]) -> None:
        self._now = now
        self._counting = False
        self._held: list[str] = []
        self.is_terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        """A line of the loop's own."""
        self._held.append(f"[{clock_time(self._now())}]  {MARK}{text}\n")
        self.flush()

    def show(self, line: str) -> None:
        """A line as it is, written with the others that are shown in the same turn of the event loop."""
        self._held.append(line + "\n")
        if len(self._held) == 1:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Write what is shown and not written yet."""
        if self._held:
            self._clear()
            text, self._held = "".join(self._held), []
            self._write(text)

    def count_down(self, text: str) -> None:
        """On a terminal: a line that the next one takes the place of."""
        if self.is_terminal:
            self.flush()
            self._write(f"\r\x1b[K{text}")
            self._counting = True

    def _clear(self) -> None:
        if self._counting:
            self._counting = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()


def clock_time(at: Moment) -> str:
    """The local time of a moment."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def day_and_time(at: Moment, now: Moment) -> str:
    """The local time of a moment, with its day where that is another one than today's."""
    when, today = datetime.fromtimestamp(at).astimezone(), datetime.fromtimestamp(now).astimezone()
    same_day = when.date() == today.date()
    return when.strftime("%H:%M:%S" if same_day else "%a %d %b, %H:%M:%S")


def span(seconds: float) -> str:
    """A duration for people: ``2 h 5 min``, ``3 min 20 s``, ``1.9 s``."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
