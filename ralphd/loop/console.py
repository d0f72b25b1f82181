"""The log of the loop: one line per fact, and between them the agent's own lines.

On a terminal a line has its time. In a log it has none: who reads the log shows the time of each record, in
the reader's own time zone, and converts moments within a line.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from ralphd.core.explanation import in_seconds
from ralphd.core.time import Moment, rfc3339


class Console:
    """Writes to stdout. If nobody reads it any more, only the lines are lost."""

    def __init__(self, now: Callable[[], Moment]) -> None:
        self._now = now
        self._counting = False
        self._buffer: list[str] = []
        self.is_terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        """Log a line of the loop itself."""
        clock = f"[{datetime.fromtimestamp(self._now()).astimezone():%H:%M:%S}]  " if self.is_terminal else ""
        self._buffer.append(f"{clock}Ralph: {text}\n")
        self.flush()

    def moment(self, at: Moment) -> str:
        """Return a moment for a line: the local time on a terminal, else RFC 3339 to the second."""
        return day_and_time(at, self._now()) if self.is_terminal else rfc3339(int(at))

    def show(self, line: str) -> None:
        """Log a line as it is, together with the others of the same turn of the event loop."""
        self._buffer.append(line + "\n")
        if len(self._buffer) == 1:
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Write the lines that are still buffered."""
        if self._buffer:
            if self._counting:
                self._counting = False
                self._write("\r\x1b[K")
            text, self._buffer = "".join(self._buffer), []
            self._write(text)

    def count_down(self, text: str) -> None:
        """Show a line on a terminal that the next one replaces."""
        if self.is_terminal:
            self.flush()
            self._write(f"\r\x1b[K{text}")
            self._counting = True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stdout.write(text)
            sys.stdout.flush()


def day_and_time(at: Moment, now: Moment) -> str:
    """Return the local time of a moment, with the day if that is not today."""
    when, today = datetime.fromtimestamp(at).astimezone(), datetime.fromtimestamp(now).astimezone()
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%a %d %b, %H:%M:%S")


def span(seconds: float) -> str:
    """Return a duration for people: ``2 h 5 min``, ``3 min 20 s``, ``1.9 s``."""
    return in_seconds(seconds, units_from=1)
