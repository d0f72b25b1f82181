"""What ``ralphctl build`` prints of a ralph's log, and what becomes of it where that cannot be printed."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ralphctl.logtext import LogPrinter
from ralphctl.tell import columns, has_colour
from ralphd.errors import RalphdError

_WIPE_LIMIT_S = 0.2
"""A terminal that is held, by Ctrl-S, must not keep who only wants to say something."""
_NARROW = 20
_NOBODY = (errno.EPIPE, errno.EIO)
"""A closed pipe, a terminal that is gone. Anything else, a full disk above all, may pass."""


class _Out:
    """Bytes to a descriptor, whole and at once; nothing is kept in a buffer that may fail at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._held = bytearray()

    def write(self, data: bytes) -> None:
        self._held += data

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
        self._printer = LogPrinter(self._out, safe=self.is_terminal, colour=has_colour(sys.stdout))
        self._complain = complain
        self._has_complained = False
        self._lock = threading.Lock()
        self._over = False
        self._shown = ""
        self.cursor: str | None = None
        self.is_broken = False

    def put(self, record: dict[str, Any]) -> bool:
        """Print a record; False when that is over, or nobody reads it."""
        with self._lock:
            if not self._over:
                self._wipe()
                self._print(record)
            return not (self._over or self.is_broken)

    def show(self, text: str) -> None:
        """Have ``text`` on the present line of a terminal until something is printed; empty: have nothing.

        Not where a line of the log has not ended yet.
        """
        fitting = text[: max((columns(sys.stdout) or 80) - 1, _NARROW)]
        with self._lock:
            can = self.is_terminal and self._printer.is_at_line_start and not (self._over or self.is_broken)
            if not can or fitting == self._shown:
                return
            if not fitting:
                self._wipe()
                return
            # Spaces and a carriage return: every terminal knows those.
            self._write_over(fitting.ljust(len(self._shown)))
            self._shown = fitting

    def wipe(self, *, for_good: bool = False) -> None:
        """Take that away before something else is said; ``for_good``: nothing is printed any more."""
        if self._lock.acquire(timeout=_WIPE_LIMIT_S):
            try:
                self._over = self._over or for_good
                self._wipe()
            finally:
                self._lock.release()

    def _wipe(self) -> None:
        if self._shown:
            self._write_over(" " * len(self._shown))
            self._write_over("")
            self._shown = ""

    def _write_over(self, text: str) -> None:
        try:
            self._out.write(b"\r" + text.encode("utf-8", "replace"))
            self._out.flush()
        except OSError as fault:
            self._failed(fault)

    def finish(self, rest: Callable[[str | None], Iterator[dict[str, Any]]]) -> None:
        """Print what comes after the last record that was printed, and nothing more from then on."""
        with self._lock:
            self._over = True
            self._wipe()
            try:
                for record in rest(self.cursor):
                    self._print(record)
                    if self.is_broken:
                        return
                if self.is_terminal:
                    self._printer.end()
                    self._out.flush()
            except (RalphdError, OSError, ValueError):
                pass  # what could not be printed is in the log

    def _print(self, record: dict[str, Any]) -> None:
        try:
            self._printer.put(record)
            self._out.flush()
        except OSError as fault:
            self._failed(fault)
        self.cursor = record["cursor"]

    def _failed(self, fault: OSError) -> None:
        if fault.errno in _NOBODY:
            self.is_broken = True
        elif not self._has_complained:
            self._has_complained = True
            self._complain(fault.strerror or str(fault))


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
