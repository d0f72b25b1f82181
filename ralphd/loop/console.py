"""The log of the loop: one line per fact, with the time, and between them the agent's own lines."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from ralphd.core.explanation import in_seconds
from ralphd.core.time import Moment


class Console:
    """Writes to stdout. If nobody reads it any more, only the lines are lost."""

    def __init__(self, now: Callable[[], Moment]) -> None:
        self._now = now
        self._counting = False
        self._buffer: list[str] = []
        self.is_terminal = sys.stdout.isatty()

    def say(self, text: str) -> None:
        """Log a line of the loop itself."""
        self._buffer.append(f"[{datetime.fromtimestamp(self._now()).astimezone():%H:%M:%S}]  Ralph: {text}\n")
        self.flush()

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
    same_day = when.date() == today.date()
    return when.strftime("%H:%M:%S" if same_day else "%a %d %b, %H:%M:%S")


def span(seconds: float) -> str:
    """Return a duration for people: ``2 h 5 min``, ``3 min 20 s``, ``1.9 s``."""
    return in_seconds(seconds, units_from=1)
