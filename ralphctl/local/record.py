"""The entries of a ``history.jsonl`` from a moment on, read from its end only as far as that needs.

The file may be a copy in which an agent has written: it is opened if it is a regular file, read line by line
within bounds, and whatever is no entry is counted as torn.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

_BLOCK = 1 << 18
_READ = 1 << 14
"""So many bytes at once: what they become is still in the processor's cache when it is counted."""
_OLD_BLOCKS = 2
"""So many blocks in a row have to be older than what is wanted: a clock that was set back mixes them."""
_MOST_LINE_BYTES = 1 << 20
_AT = re.compile(rb'"at": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z)"')
_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_TELLS_OF_LATER = ("run", "wait")
_FAST_FROM_BYTES = 4 << 20

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
            yield from self._read(file, since, (start, size), told)

    def _read(
        self, file: BinaryIO, since: str, bounds: tuple[int, int], told: Told | None
    ) -> Iterator[dict[str, Any]]:
        before: dict[str, dict[str, Any]] = {}
        start, size = bounds
        read = 0
        for block in _blocks(file, size - start):
            read += len(block)
            if told is not None:
                told(read, size - start)
            for entry in self._parsed(block):
                at = entry.get("at")
                if isinstance(at, str) and at < since and _FORM.fullmatch(at):
                    self.is_whole = False
                    if (kind := entry.get("kind")) in _TELLS_OF_LATER:
                        before[kind] = entry
                    continue
                if before:
                    yield from before.values()
                    before = {}
                yield entry
        yield from before.values()

    def _parsed(self, block: bytes) -> Iterable[dict[str, Any]]:
        """The entries of some lines: all at once, which takes half the time, else one by one."""
        lines = block.rstrip(b"\n").split(b"\n")
        found = self._value(b"[%b]" % b",".join(lines))
        if isinstance(found, list) and len(found) == len(lines) and set(map(type, found)) == {dict}:
            return found
        return self._one_by_one(lines)

    def _one_by_one(self, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            entry = self._value(line)
            if entry is None:  # what the strict one does not take, such as half a surrogate, may be one
                entry = _loaded(json.loads, line)
            if isinstance(entry, dict):
                yield entry
            elif line.strip():
                self.torn += 1

    def _value(self, text: bytes) -> Any:
        return _loaded(self._parse, text)


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Whole lines of the next ``size`` bytes, some at a time; what is too long for a line is cut."""
    rest = b""
    while size > 0 and (read := file.read(min(_READ, size))):
        size -= len(read)
        whole, newline, tail = read.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = tail
        elif len(rest) + len(read) > _MOST_LINE_BYTES:
            yield rest + read
            rest = b""
        else:
            rest += read
    if rest:
        yield rest


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

    # Values are hardly ever the same twice: looking them up would take longer than making them.
    return partial(from_json, cache_strings="keys")


def _loaded(parse: Callable[[bytes], Any], text: bytes) -> Any:
    try:
        return parse(text)
    except (ValueError, RecursionError):
        return None
