"""What ``ralphctl build`` prints of a ralph's log, and what becomes of it where that cannot be printed."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ralphctl.logtext import LogPrinter
from ralphctl.tell import has_colour
from ralphd.errors import RalphdError

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
        self.cursor: str | None = None
        self.is_broken = False

    def put(self, record: dict[str, Any]) -> bool:
        """Print a record; False when that is over, or nobody reads it."""
        with self._lock:
            if not self._over:
                self._print(record)
            return not (self._over or self.is_broken)

    def finish(self, rest: Callable[[str | None], Iterator[dict[str, Any]]]) -> None:
        """Print what comes after the last record that was printed, and nothing more from then on."""
        with self._lock:
            self._over = True
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
