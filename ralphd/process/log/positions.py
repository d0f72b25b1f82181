"""Where reading begins: after a cursor, at a time, or so many records before the end.

These are generators that give way after each block: looking for a rare line in gigabytes must not hold the
event loop. Their return value is the answer.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.process.log.segments import (
    BLOCK_BYTES,
    Chunk,
    Cursor,
    LogLine,
    LogQuery,
    RunFiles,
    Runs,
    Sieve,
    is_stale,
    parse,
    size_of,
)

_MTIME_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin (None: before whatever run comes first) and what is to be told first, if anything."""

    cursor: Cursor | None
    gap: str = ""


Search: TypeAlias = Generator[None, None, Start]


def find_start(runs: Runs, query: LogQuery, block_bytes: int) -> Search:
    """Where reading for ``query`` begins."""
    if query.cursor is not None:
        return _after(runs, query.cursor)
    if query.tail is not None:
        return _before_end(runs, query.tail, Sieve(query), block_bytes)
    if query.since is not None:
        return _at_time(runs, query.since)
    return _oldest(runs)


def _oldest(runs: Runs) -> Search:
    yield
    return _start_of_oldest(runs)


def _start_of_oldest(runs: Runs) -> Start:
    ids = runs.ids()
    return Start(Cursor.start_of(ids[0]) if ids else None)


def _after(runs: Runs, cursor: Cursor) -> Search:
    yield
    ids = runs.ids()
    if cursor.run_id in ids:
        return Start(cursor)
    # Nothing later: the ralph was forgotten and registered anew, and its runs are counted from 1 again.
    on = runs.first_after(cursor.run_id) or (ids[0] if ids else None)
    return Start(Cursor.start_of(on) if on else None, f"run {cursor.run_id} is no longer kept")


def _at_time(runs: Runs, since: Moment) -> Search:
    """The first segment that was written to at that time or later: nothing before it can be meant."""
    for run_id in runs.ids():
        yield
        files = runs.files(run_id)
        segments = files.segments()
        written = (n for n in segments if _is_newer(files.segment(n), since))
        if (first := next(written, None)) is not None:
            return Start(Cursor(run_id, first, 0, 0))
        if _is_newer(files.regent_log(), since):
            return Start(Cursor(run_id, segments[-1] if segments else 1, 0, 0))
    return _end(runs)


def _is_newer(path: Path, since: Moment) -> bool:
    try:
        return path.stat().st_mtime >= since - _MTIME_MARGIN_S
    except FileNotFoundError:
        return False


def _end(runs: Runs) -> Start:
    ids = runs.ids()
    if not ids:
        return Start(None)
    log, regent = _backwards(runs, ids[-1], superseded=False)
    return Start(Cursor(ids[-1], log.number, log.offset, regent.offset))


def _before_end(runs: Runs, wanted: int, sieve: Sieve, block_bytes: int) -> Search:
    """The place that ``wanted`` records follow. Holds two blocks at a time, however many are wanted."""
    yield
    if wanted <= 0:
        return _end(runs)
    ids = runs.ids()
    for run_id in reversed(ids):
        log, regent = _backwards(runs, run_id, superseded=run_id != ids[-1])
        while True:
            for side in (log, regent):
                while not side.found and side.refill(sieve, block_bytes):
                    yield
            if not (log.found or regent.found):
                break
            _later(log, regent).take()
            wanted -= 1
            if not wanted:
                return Start(Cursor(run_id, log.number, log.offset, regent.offset))
    return _start_of_oldest(runs)


def _backwards(runs: Runs, run_id: RunId, *, superseded: bool) -> tuple["_Backwards", "_Backwards"]:
    files = runs.files(run_id)
    over = superseded or files.has_ended()
    log = [(number, files.segment(number)) for number in files.segments()]
    return _Backwards(log, over=over), _Backwards([(1, files.regent_log())], over=superseded)


def _later(log: "_Backwards", regent: "_Backwards") -> "_Backwards":
    """The one whose last line comes last in the merge: of two at the same time the Regent's."""
    if log.found and regent.found:
        return regent if regent.found[-1][0] >= log.found[-1][0] else log
    return regent if regent.found else log


class _Backwards:
    """Files read backwards as one, the last of them first.

    ``number`` and ``offset`` are where the earliest line taken begins, at first the end of the last line
    that is whole. ``found`` has the lines that count in the block at hand: time, file, offset.
    """

    def __init__(self, files: list[tuple[int, Path]], *, over: bool) -> None:
        self.found: list[tuple[str, int, int]] = []
        self._rest = files
        self._path = Path()
        self._file = self._left = 0
        self.number = files[-1][0] if files else 1
        self.offset = _end_of_lines(files[-1][1], over=over) if files else 0
        if self._rest:
            self._open_last()
            self._left = self.offset

    def take(self) -> None:
        """Count the last line that was found."""
        _, self.number, self.offset = self.found.pop()

    def refill(self, sieve: Sieve, block_bytes: int) -> bool:
        """Look through the block before; False when there is none."""
        if not self._left:
            if not self._rest:
                return False
            self._open_last()
            return True
        chunk = block_before(self._path, self._left, block_bytes)
        self._left = chunk.start
        starts = chunk.start
        latest = ""
        for line in parse(chunk):
            latest = max(latest, line.at)
            if line.at and sieve.passes(line):
                self.found.append((line.at, self._file, starts))
            starts = line.end
        if latest and latest < sieve.since:
            self._left, self._rest = 0, []
        return True

    def _open_last(self) -> None:
        self._file, self._path = self._rest.pop()
        self._left = size_of(self._path)


def _end_of_lines(path: Path, *, over: bool) -> int:
    """Where the last line ends. One without a newline is a line if nobody is going to finish it."""
    try:
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            begin = max(0, status.st_size - BLOCK_BYTES)
            data = os.pread(file.fileno(), status.st_size - begin, begin)
    except FileNotFoundError:
        return 0
    whole = data.rfind(b"\n") + 1
    return begin + (len(data) if over or is_stale(status) else whole)


def block_before(path: Path, end: int, block_bytes: int) -> Chunk:
    """The lines that begin in the block that ends at ``end``; empty where none does."""
    start = max(0, end - block_bytes)
    try:
        with path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), end - start, start)
    except FileNotFoundError:
        return Chunk(b"", 0)
    begin = data.find(b"\n") + 1 if start else 0
    if start and not 0 < begin < len(data):
        return Chunk(b"", start)
    if data and not data.endswith(b"\n"):
        return Chunk(data[begin:] + b"\n", start + begin, torn=True)
    return Chunk(data[begin:], start + begin)


# The end of a run's output, read backwards from its newest segment: its price is not that of the whole log.

LIMIT_BYTES: Final = 1 << 20
"""How much of a log is looked at, unless told otherwise."""


def last_lines(
    files: RunFiles, count: int, *, stream: str | None, limit_bytes: int, block_bytes: int = BLOCK_BYTES
) -> list[str]:
    """The last ``count`` lines of ``stream``, or of both for None, oldest first, without their newlines.

    Parts of a long line are put together. A line that has no end yet, or never got one, counts as one. At
    most ``limit_bytes`` of the log, rounded up to whole blocks, are read: fewer lines come back, and the
    first of them without its beginning, where that is not enough.
    """
    tail = _Tail(count)
    for line in _output_tail_backwards(files, limit_bytes, block_bytes):
        if line.at and stream in (None, line.stream) and not tail.takes(line):
            break
    return tail.lines()


def _output_tail_backwards(files: RunFiles, limit_bytes: int, block_bytes: int) -> Iterator[LogLine]:
    """The records of a run, the last one first."""
    left = limit_bytes
    for number in reversed(files.segments()):
        path = files.segment(number)
        end = size_of(path)
        while end > 0:
            if left <= 0:
                return
            chunk = block_before(path, end, block_bytes)
            left -= end - chunk.start
            end = chunk.start
            yield from reversed(parse(chunk))


class _Tail:
    """Lines as they are put together from their last part to their first, the last line first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lines: list[list[bytes]] = []
        self._growing: dict[str, list[bytes]] = {}  # of each stream the line that earlier parts belong to

    def takes(self, line: LogLine) -> bool:
        """Take the record before those that were taken; False when no earlier one is needed."""
        parts = self._growing.get(line.stream)
        if line.partial and parts is not None:
            parts.append(line.text)
        elif len(self._lines) < self._count:
            self._growing[line.stream] = [line.text]
            self._lines.append(self._growing[line.stream])
        else:
            self._growing.pop(line.stream, None)
        return bool(self._growing)

    def lines(self) -> list[str]:
        """The lines, oldest first."""
        return [b"".join(reversed(parts)).decode(errors="replace") for parts in reversed(self._lines)]
