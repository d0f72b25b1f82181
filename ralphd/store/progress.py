"""``progress.md``: the record of a ralph for people, one line an attempt [000-T7].

It follows the history and is made from it: what a full disk or a daemon that died kept from being written is
found there, and added.
"""

import logging
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ralphd.core.records import PROGRESS_HEADER, progress_line
from ralphd.store.files import write_whole

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
"""A longer one loses its older half."""
LOOKED_BACK = 200
"""Entries of the history in which what was missed is looked for."""

_LINE = re.compile(rb"- (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ")
Newest = Callable[[int], Sequence[Mapping[str, Any]]]


class Progress:
    """The lines of ``path``; ``newest`` tells the last entries of the history, newest first.

    One caller at a time; every call blocks on the disk. ``degraded``: it could not be written the last time.
    """

    def __init__(self, path: Path, newest: Newest) -> None:
        self._path = path
        self._newest = newest
        self._behind = True
        self.degraded = False

    def follow(self, *, entered: bool = True) -> None:
        """Add the attempts that the history holds and the file does not; with ``entered``, one is new there.

        On a full disk the next call does it.
        """
        if not (entered or self._behind):
            return
        count = LOOKED_BACK if self._behind else 1
        attempts = [entry for entry in reversed(self._newest(count)) if entry.get("kind") == "attempt"]
        try:
            if attempts:
                self._add([progress_line(entry).encode(errors="replace") for entry in attempts])
        except OSError as fault:
            if not self.degraded:
                logger.warning("%s cannot be written: %s", self._path, fault.strerror or fault)
            self._behind = self.degraded = True
        else:
            self._behind = self.degraded = False

    def _add(self, lines: list[bytes]) -> None:
        present = self._read()
        missing = b"".join(_missing(lines, present) if self._behind else lines)
        if not missing:
            return
        if not present or len(present) + len(missing) > MAX_BYTES:
            present = PROGRESS_HEADER.encode() + _younger_half(present)
            write_whole(self._path, present + missing)
        else:
            self._append(missing if present.endswith(b"\n") else b"\n" + missing)

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> bytes:
        """What is there; nothing where it is no plain file, which is then made anew."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            return file.read(2 * MAX_BYTES)


def _younger_half(data: bytes) -> bytes:
    """The lines in the second half of a file that is full, without its header; all of one that is not."""
    lines = data.removeprefix(PROGRESS_HEADER.encode())
    if len(lines) < MAX_BYTES // 2:
        return lines
    return lines[-(MAX_BYTES // 2) :].partition(b"\n")[2]


def _missing(lines: list[bytes], present: bytes) -> list[bytes]:
    """Those that are not there, by their times: an earlier version may have put them in other words.

    Of the second that the last one there is from, the first ones are there.
    """
    there = [_time(line) for line in present.splitlines()[-LOOKED_BACK:]]
    last = max(there, default=b"")
    later = [line for line in lines if _time(line) > last]
    then = [line for line in lines if _time(line) == last]
    return [*then[there.count(last) :], *later]


def _time(line: bytes) -> bytes:
    """When it was, as the line has it; nothing for other lines."""
    return found[1] if (found := _LINE.match(line)) else b""
