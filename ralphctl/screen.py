"""What the live view prints: the log as it comes, panels between, and below them a region that is taken away.

Lines of the log are written many at once, with the region after them in the same write, so that a thousand
lines a second cost little and nothing flickers. Where stdout is no terminal, or a dumb one, there is the log
alone.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ralphctl.letters import is_utf8
from ralphctl.logtext import LogPrinter
from ralphctl.tell import has_colour, message
from ralphctl.view.drawing import NOTHING, Painted
from ralphd.errors import RalphdError

_WIPE_LIMIT_S = 0.2
"""A terminal that is held, by Ctrl-S, must not keep who only wants to say something."""
_NOBODY = (errno.EPIPE, errno.EIO)
"""A closed pipe, a terminal that is gone. Anything else, a full disk above all, may pass."""
_COLUMNS, _LINES = 80, 24
_PIECE_BYTES = 1 << 16
_UNENDED_S = 2.0
"""Who prints dots prints the next one by then."""


class _Out:
    """Bytes to a descriptor, whole and at once; nothing is kept in a buffer that may fail at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += data

    @property
    def is_large(self) -> bool:
        """Whether there is enough for a write."""
        return len(self._held) >= _PIECE_BYTES

    def flush(self) -> None:
        try:
            while self._held:
                del self._held[: os.write(self._fd, self._held)]
        finally:
            self._held.clear()


class Screen:
    """Prints a ralph's log, from one thread while it runs and from another one its rest.

    ``complain`` is called once with what stands in the way of printing while somebody still reads.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._out = _Out(sys.stdout.fileno())
        self.is_terminal = sys.stdout.isatty()
        self.is_live = self.is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        """Whether it can be moved about on, so that there is a region."""
        self.has_colour, self.is_utf8 = has_colour(sys.stdout), is_utf8(sys.stdout)
        self._printer = LogPrinter(
            self._out, safe=self.is_terminal, colour=self.has_colour, ascii_only=not self.is_utf8
        )
        self._complain = complain
        self._has_complained = False
        self._lock = threading.Lock()
        self._over = False
        self._region = self._drawn = NOTHING
        self.is_resting = False
        self._put_at, self._must_be_seen = 0.0, False
        self.cursor: str | None = None
        self.is_broken = False

    @property
    def size(self) -> tuple[int, int]:
        """How many columns and lines there are now, whatever COLUMNS said once."""
        with suppress(OSError):
            found = os.get_terminal_size(sys.stdout.fileno())
            return found.columns or _COLUMNS, found.lines or _LINES
        return _COLUMNS, _LINES

    def put(self, records: Iterable[dict[str, Any]]) -> bool:
        """Print records; False when that is over, or nobody reads it."""
        with self._lock:
            if not self._over:
                self._put_at = time.monotonic()
                with self._above_the_region():
                    for record in records:
                        self._print(record)
            return not (self._over or self.is_broken)

    def place(self, panel: str) -> None:
        """Print a panel, on lines of its own."""
        with self._lock:
            if self.is_live and not self._over:
                with self._above_the_region():
                    self._printer.end()
                    self._write(panel)

    def show(self, region: Painted, *, must_be_seen: bool = False) -> None:
        """Have ``region`` below all that is printed, from now on.

        One that ``must_be_seen`` ends a line that has not ended yet; so does any where the line stays so.
        """
        with self._lock:
            if self.is_live and not self._over and (region != self._region or self._drawn is NOTHING):
                self._region = region
                self._must_be_seen = must_be_seen or time.monotonic() - self._put_at > _UNENDED_S
                with self._above_the_region():
                    pass

    def say(self, text: str) -> None:
        """A message on a line of its own, unless the terminal is gone."""
        with self.aside(), suppress(OSError):
            message(text)

    def rest(self) -> None:
        """Take the region away, since somebody else has the terminal; until ``wake``."""
        self.is_resting = True
        with self.aside():
            pass

    def wake(self) -> None:
        """Have it again, when it is shown next."""
        self.is_resting = False

    def close(self) -> None:
        """Take the region away; nothing is printed any more."""
        with self.aside():
            self._over = True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Nothing else is written meanwhile, and there is no region, as far as that can be had in time."""
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
        # A terminal that was made narrower has broken our lines: they take more of its rows than we wrote.
        width, _ = self.size
        rows = sum(max(1, -(-wide // width)) for wide in self._drawn.widths)
        self._write("\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J")
        self._drawn = NOTHING

    def _draw(self) -> None:
        """The region, but not after a line that has not ended yet, and not on somebody else's screen."""
        if self._region is NOTHING or not self._printer.is_at_line_start or self.is_resting:
            return
        if _in_front():
            self._write(self._region.text)
            self._drawn = self._region

    def _write(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "replace"))

    def finish(self, rest: Callable[[str | None], Iterator[dict[str, Any]]]) -> None:
        """Print what comes after the last record that was printed, and nothing more from then on."""
        with self._lock:
            self._over = True
            self._erase()
            with suppress(RalphdError, OSError, ValueError):  # what could not be printed is in the log
                for record in rest(self.cursor):
                    self._print(record)
                    if self._out.is_large:
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
        try:
            self._out.flush()
        except OSError as fault:
            if fault.errno in _NOBODY:
                self.is_broken = True
            elif not self._has_complained:
                self._has_complained = True
                self._complain(fault.strerror or str(fault))


def _in_front() -> bool:
    """Whether the terminal shows us, and not who put us in the background."""
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that we are controlled by
        return True


def have_streams() -> None:
    """Have something behind each of the descriptors 0, 1 and 2.

    Where one was closed (``>&-``), the next thing that is opened would get its number, and what is printed.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def let_go_of_stderr() -> None:
    """Where it takes nothing any more, forget what it did not take: the exit code is to be the ralph's."""
    try:
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)
