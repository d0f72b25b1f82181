"""The entries of a ``history.jsonl`` from a moment on, read from its end only as far as that needs.

The file may be a copy in which an agent has written: it is opened if it is a regular file, read line by line
within bounds, and whatever is no entry is counted as torn.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_BLOCK = 1 << 18
_OLD_BLOCKS = 2
"""So many blocks in a row have to be older than what is wanted: a clock that was set back mixes them."""
_MOST_LINE_BYTES = 1 << 20
_AT = re.compile(rb'"at": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z)"')
_TELLS_OF_LATER = re.compile(rb'\{"kind": ?"(run|wait)"')
_FAST_FROM_BYTES = 4 << 20
_TOLD_EVERY = 4096

Told = Callable[[int, int], None]


@dataclass(slots=True)
class Record:
    """A history file. ``torn`` and ``is_whole`` are known when ``entries`` has been read to its end.

    ``is_whole``: there is nothing from before the moment asked for.
    """

    path: Path
    torn: int = 0
    is_whole: bool = True
    _parse: Callable[[bytes], Any] = field(default=json.loads)

    def entries(self, since: str, told: Told | None = None) -> Iterator[dict[str, Any]]:
        """The entries from ``since`` (RFC 3339, UTC) on, in the order of the file.

        The last end of a run and the last wait from before come first. ``told`` hears now and then how many
        bytes of how many were read. A file that is not there, or cannot be read, has none.
        """
        file = _opened(self.path)
        if file is None:
            return
        with file:
            size = file.seek(0, os.SEEK_END)
            start = _begin(file, size, since.encode())
            self.is_whole = start == 0
            self._parse = _parser(size - start)
            file.seek(start)
            yield from self._read(file, since.encode(), (start, size), told)

    def _read(
        self, file: BinaryIO, since: bytes, bounds: tuple[int, int], told: Told | None
    ) -> Iterator[dict[str, Any]]:
        before: dict[bytes, bytes] = {}
        start, size = bounds
        read, number = 0, 0
        while (line := file.readline(_MOST_LINE_BYTES)) and read < size - start:
            read += len(line)
            number += 1
            if told is not None and number % _TOLD_EVERY == 0:
                told(read, size - start)
            found = _AT.search(line)
            if found is not None and found[1] < since:
                self.is_whole = False
                if kind := _TELLS_OF_LATER.match(line):
                    before[kind[1]] = line
                continue
            if before:
                yield from self._parsed(before.values())
                before = {}
            yield from self._parsed((line,))
        yield from self._parsed(before.values())

    def _parsed(self, lines: Any) -> Iterator[dict[str, Any]]:
        for line in lines:
            try:
                entry = self._parse(line)
            except (ValueError, RecursionError):
                entry = _by_json(line)
            if isinstance(entry, dict):
                yield entry
            elif line.strip():
                self.torn += 1


def _opened(path: Path) -> BinaryIO | None:
    try:
        # O_NONBLOCK: a FIFO put in its place must not hang a report.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=1 << 20)


def _begin(file: BinaryIO, size: int, since: bytes) -> int:
    """Where to begin: a place before the first line that is wanted, as far as the clock went forward."""
    start, old = size, 0
    while start > 0 and old < _OLD_BLOCKS:
        start = max(0, start - _BLOCK)
        file.seek(start)
        if start:
            file.readline(_MOST_LINE_BYTES)  # of which the beginning lies in the block before
        first = _AT.search(file.readline(_MOST_LINE_BYTES))
        old = old + 1 if first is not None and first[1] < since else 0
    if start:
        file.seek(start)
        start += len(file.readline(_MOST_LINE_BYTES))
    return start


def _parser(size: int) -> Callable[[bytes], Any]:
    """What reads a line: of many, three times as fast, once it is loaded."""
    if size < _FAST_FROM_BYTES:
        return json.loads
    from pydantic_core import from_json

    return from_json


def _by_json(line: bytes) -> Any:
    """What the strict one does not take, such as half a surrogate, may be an entry all the same."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
