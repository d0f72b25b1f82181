"""Write the live view: the log as it comes, panels between its lines, and a region below that is redrawn.

Many lines of the log go into one write, with the region after them, so that a thousand lines per second cost
little and nothing flickers. Without a terminal, or on a dumb one, only the log is written.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ralphctl.format import log_text, state_text
from ralphctl.format.humanize import clock, duration, moment
from ralphctl.format.output import discard, has_colour, is_foreground, message
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError

_WIPE_LIMIT_S = 0.2
"""How long a message waits for a terminal that Ctrl-S holds."""
_NOBODY = (errno.EPIPE, errno.EIO)
"""A closed pipe or a lost terminal. Any other error, such as a full disk, may pass."""
_COLUMNS, _LINES = 80, 24
_PIECE_BYTES = 1 << 16
_UNENDED_S = 2.0
"""A program that prints dots prints the next one earlier than this."""


@dataclass(frozen=True, slots=True)
class Painted:
    """The region as written, its last line without a newline; ``widths`` are the columns of each line."""

    text: str
    widths: tuple[int, ...]


NOTHING = Painted("", ())


class Screen:
    """Print a ralph's log, panels and region; threads may share it.

    ``complain`` is called once, with the reason, when printing fails although the reader is still there.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        # Not sys.stdout: what its buffer cannot write would fail only at the interpreter's end.
        self._out = io.BytesIO()
        self.is_terminal = sys.stdout.isatty()
        self.is_live = self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        """True where the cursor can be moved, so that there is a region."""
        self.has_colour = has_colour(sys.stdout)
        self._encoding = sys.stdout.encoding
        self._printer = log_text.LogPrinter(
            self._out, safe=self.is_terminal, colour=self.has_colour, encoding=self._encoding
        )
        self._complain, self._lock = complain, threading.Lock()
        self._over = self._has_complained = self._must_be_seen = False
        self._region = self._drawn = NOTHING
        self.is_resting = self.is_broken = False
        self._put_at = 0.0
        self.cursor: str | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The present number of columns and lines; COLUMNS would be that of the start."""
        with suppress(OSError):
            size = os.get_terminal_size(sys.stdout.fileno())
            return size.columns or _COLUMNS, size.lines or _LINES
        return _COLUMNS, _LINES

    def put(self, records: Iterable[dict[str, Any]]) -> bool:
        """Print records. Return False after ``close`` or when the reader is gone."""
        with self._lock:
            if not self._over:
                self._put_at = time.monotonic()
                with self._above_the_region():
                    for record in records:
                        self._print(record)
            return not (self._over or self.is_broken)

    def put_panel(self, panel: str) -> None:
        """Print a panel on lines of its own."""
        with self._lock:
            if self.is_live and not self._over:
                with self._above_the_region():
                    self._printer.end()
                    self._write(panel)

    def show(self, region: Painted, *, must_be_seen: bool = False) -> None:
        """Keep ``region`` below all that is printed, from now on.

        It waits for the end of an unfinished line of the log, but not long, and not if it ``must_be_seen``.
        """
        with self._lock:
            if self.is_live and not self._over and (region != self._region or self._drawn is NOTHING):
                self._region = region
                self._must_be_seen = must_be_seen or time.monotonic() - self._put_at > _UNENDED_S
                with self._above_the_region():
                    pass

    def say(self, text: str) -> None:
        """Print a message on a line of its own, on stderr."""
        with self.aside():
            say(text)

    def rest(self) -> None:
        """Remove the region until ``wake``, while another program has the terminal."""
        self.is_resting = True
        with self.aside():
            pass

    def wake(self) -> None:
        self.is_resting = False

    def close(self) -> None:
        """Remove the region and print nothing more."""
        with self.aside():
            self._over = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Remove the region and hold back all other output; give up both if a write is stuck."""
        is_ours = self._lock.acquire(timeout=_WIPE_LIMIT_S)
        try:
            if is_ours:
                self._erase()
                if self.is_terminal:
                    self._printer.end()
                self._flush()
            yield
            if is_ours and not self._over:
                self._draw()
                self._flush()
        finally:
            if is_ours:
                self._lock.release()

    @contextmanager
    def _above_the_region(self) -> Iterator[None]:
        self._erase()
        yield
        if self._must_be_seen:
            self._printer.end()
        self._draw()
        self._flush()

    def _erase(self) -> None:
        if self._drawn is NOTHING:
            return
        # A terminal that was made narrower has wrapped our lines: they take more rows than we wrote.
        width, _ = self.size
        rows = sum(max(1, -(-wide // width)) for wide in self._drawn.widths)
        self._write("\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J")
        self._drawn = NOTHING

    def _draw(self) -> None:
        if self._region is NOTHING or not self._printer.is_at_line_start or self.is_resting:
            return
        if is_foreground(sys.stdout.fileno(), otherwise=True):
            self._write(self._region.text)
            self._drawn = self._region

    def _write(self, text: str) -> None:
        self._out.write(text.encode(self._encoding, "replace"))

    def finish(self, rest: Callable[[str | None], Iterator[dict[str, Any]]]) -> None:
        """Print the records after the last printed one, then nothing more."""
        with self._lock:
            self._over = True
            self._erase()
            with suppress(RalphdError, OSError, ValueError):  # what could not be printed is in the log
                for record in rest(self.cursor):
                    self._print(record)
                    if self._out.tell() >= _PIECE_BYTES:
                        self._flush()
                    if self.is_broken:
                        return
                if self.is_terminal:
                    self._printer.end()
            self._flush()

    def _print(self, record: dict[str, Any]) -> None:
        self._printer.put(record)
        self.cursor = record["cursor"]

    def _flush(self) -> None:
        unwritten = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        try:
            while unwritten:
                unwritten = unwritten[os.write(sys.stdout.fileno(), unwritten) :]
        except OSError as fault:
            if fault.errno in _NOBODY:
                self.is_broken = True
            elif not self._has_complained:
                self._has_complained = True
                self._complain(fault.strerror or str(fault))


def say(text: str) -> None:
    """Print a message, unless the terminal is gone."""
    with suppress(OSError):
        message(text)


def let_go_of_stderr() -> None:
    """Discard what stderr cannot take any more, so that the exit code stays the ralph's."""
    try:
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


# --- the present wait, as a countdown ---

_WAITING = ("running", "pausing", "stopping", "waiting_for_retry")
WORTH_A_LINE_S = 2.0
"""A shorter wait is over before a person has read about it."""


def wait_ends_at(view: Mapping[str, Any]) -> float | None:
    """Return the end of the present wait; None without a wait, or if its end is not known."""
    return moment(state_text.wait_of(view).get("until")) if view.get("state") in _WAITING else None


def is_waiting(view: Mapping[str, Any], now: float) -> bool:
    """Return whether it waits now, for a known time or not."""
    wait, ends = state_text.wait_of(view), wait_ends_at(view)
    is_open = bool(wait) and not wait.get("until") and view.get("state") in _WAITING
    return is_open or (ends is not None and ends > now)


def countdown_lines(view: Mapping[str, Any], now: float, *, has_keys: bool) -> list[str]:
    """Return the present wait with the time that is left, in four lengths, the longest first.

    In the last one the time comes first: the reason may be cut off.
    """
    if not is_waiting(view, now):
        return []
    words, ends, key = state_text.waiting_words(view), wait_ends_at(view), ", s: skip" if has_keys else ""
    if ends is None:
        return [words + key, words]
    left = f"{duration(ends - now + 0.999)} left"
    text = f"{words}: {left}"
    return [f"{text} (until {clock(ends, now)}){key}", text + key, text, f"{left}: {words}"]


def wait_announcement(view: Mapping[str, Any], now: float) -> str:
    """Return a line to print once without a region; empty for a wait that the Regent logs itself."""
    ends = wait_ends_at(view)
    is_logged = view.get("state") == "waiting_for_retry" and not view.get("ralph_pid")
    is_short = ends is not None and ends - now < WORTH_A_LINE_S
    if is_logged or is_short or not is_waiting(view, now):
        return ""
    span = "" if ends is None else f", {duration(ends - now + 0.999)} until {clock(ends, now)}"
    return f"{state_text.waiting_words(view)}{span}; to skip it: ralphctl skip-wait"
