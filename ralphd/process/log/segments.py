"""Read the files of a ralph's runs as streams of whole lines while others write, rotate and delete them."""

# Theory of operation
#
# A run's directory holds ``log.000001``, ``log.000002`` …, which the shim alone appends to, and
# ``regent.log``, which the daemon alone appends to. Nothing is locked or indexed: a reader that took a lock
# could stall the shim, and with it the agent. Instead the order of looks makes each answer safe:
#
# - A reader lists later segments *before* it reads the current one. The shim never returns to an older
#   segment, so when the read then finds nothing, the current segment is complete and reading may move on.
# - In the same way ``over`` (exit record written, or a later run begun) is asked before the read.
# - A line without its newline is waited for: the shim writes whole records, so the rest is on its way. It
#   is given up as ``torn`` only when nobody can finish it, that is when writing is over or the file was not
#   touched for ``_STALE_S`` (a daemon died within a line, or the disk was full).
# - Deleted segments, truncated files and damage become a ``Hole``; the reader reports it and continues.

import os
import re
import time
from bisect import bisect_right
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.dataclass import dataclass
from ralphd.plain_files import open_plain, peek, status_of
from ralphd.process.log import records
from ralphd.process.log.records import Chunk, Cursor, run_number

REGENT_LOG: Final = "regent.log"
_SEGMENT: Final = re.compile(r"log\.([0-9]{6,9})")
_SETTLED_NS: Final = 200_000_000
_STALE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes that are missing, or are not lines."""

    reason: str


Piece: TypeAlias = Chunk | Hole | None


class _WatchedDirectory:
    """The names in a directory, listed again only when it has changed; none when it is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_gone = False
        self._listed_at = -1
        self._names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the names; the same object while nothing changes, for the price of one stat."""
        try:
            changed_at = self.path.stat().st_mtime_ns
            if changed_at != self._listed_at:
                self._names = frozenset(entry.name for entry in self.path.iterdir())
                # The kernel's file times advance in steps of up to 10 ms: a listing within the step of a
                # change may have missed the next change, so it is not trusted.
                is_settled = time.time_ns() - changed_at > _SETTLED_NS
                self._listed_at = changed_at if is_settled else -1
        except (FileNotFoundError, NotADirectoryError):
            self._is_gone = True
            self._listed_at = -1  # it may come back with the time it had
            self._names = frozenset()
        return self._names

    def is_gone(self) -> bool:
        """Return True once the directory was found missing."""
        self.names()
        return self._is_gone


class RunFiles(_WatchedDirectory):
    """The log files in the directory of one run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.regent_log = path / REGENT_LOG
        self._sorted: tuple[frozenset[str], tuple[int, ...]] = frozenset(), ()
        self._segment: tuple[int | None, Path] = None, path

    def segments(self) -> tuple[int, ...]:
        """Return the numbers of the segments that are kept, in order."""
        names = self.names()
        if names is not self._sorted[0]:
            segments = [each for each in names if _SEGMENT.fullmatch(each) and status_of(self.path / each)]
            self._sorted = names, tuple(sorted(int(each.rpartition(".")[2]) for each in segments))
        return self._sorted[1]

    def segment(self, number: int) -> Path:
        """Return the path of a segment. The last one is kept: it is asked for every few seconds."""
        if (kept := self._segment)[0] != number:
            kept = self._segment = number, self.path / f"log.{number:06d}"
        return kept[1]

    def has_output(self) -> bool:
        """Return True if there is a file to read."""
        return bool(self.segments()) or REGENT_LOG in self._names

    def has_ended(self) -> bool:
        """Return True if the run wrote its exit record. The log was complete before that (S5)."""
        return "exit.json" in self.names()

    def end(self, run_id: RunId) -> Cursor:
        """Return the position after the last byte present, even within a line."""
        segments = self.segments()
        last = segments[-1] if segments else 1
        return Cursor(run_id, last, size_of(self.segment(last)), size_of(self.regent_log))


class Runs(_WatchedDirectory):
    """The runs of one ralph whose directories are kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._sorted: tuple[frozenset[str], tuple[RunId, ...]] = frozenset(), ()

    def ids(self) -> tuple[RunId, ...]:
        """Return their ids, oldest first."""
        names = self.names()
        if names is not self._sorted[0]:
            numbered = sorted((number, name) for name in names if (number := run_number(name)) is not None)
            self._sorted = names, tuple(RunId(name) for _, name in numbered)
        return self._sorted[1]

    def files(self, run_id: RunId) -> RunFiles:
        """Return the files of one of them."""
        return RunFiles(self.path / run_id)

    def first_after(self, run_id: RunId | None, *, last: RunId | None = None) -> RunId | None:
        """Return the next run, up to ``last``, that has something to read; None while there is none."""
        ids = self.ids()
        if not ids or ids[-1] == run_id:
            return None
        begin = 0 if run_id is None else bisect_right(ids, _order(run_id), key=_order)
        end = len(ids) if last is None else bisect_right(ids, _order(last), key=_order)
        return next((ids[i] for i in range(begin, end) if self.files(ids[i]).has_output()), None)


def _order(run_id: RunId) -> tuple[int, str]:
    return run_number(run_id) or 0, run_id


def size_of(path: Path) -> int:
    """Return the size in bytes; 0 for a missing file."""
    return status.st_size if (status := status_of(path)) else 0


def is_stale(status: os.stat_result) -> bool:
    """Return True if nobody is about to finish a line of this file: lines are written whole, in one call."""
    return time.time() - status.st_mtime > _STALE_S


class _LineStream:
    """What both streams share: ``offset``, the next byte to read, and how the bytes there become lines."""

    def __init__(self, files: RunFiles, offset: int, limit: Cursor | None) -> None:
        self.offset, self._files, self._limit = offset, files, limit

    def _lines_in(self, data: bytes, fd: int, *, over: bool) -> Piece:
        """Return the whole lines at the beginning of ``data`` and move ``offset`` behind them."""
        if end := data.rfind(b"\n") + 1:
            piece = Chunk(data[:end], self.offset)
        elif len(data) >= records.BLOCK_BYTES:
            self.offset += len(data)
            return Hole(f"{len(data)} bytes here are no log record")
        else:
            status = os.fstat(fd)
            is_last = status.st_size == self.offset + len(data)  # not cut short by the limit
            if not data or not is_last or not (over or is_stale(status)):
                return None
            piece = Chunk(data + b"\n", self.offset, torn=True)
        self.offset = piece.end
        return piece


class SegmentStream(_LineStream):
    """A run's segments as one stream, from ``start`` to ``limit`` or on and on. Holds one descriptor."""

    def __init__(self, files: RunFiles, start: Cursor, limit: Cursor | None) -> None:
        super().__init__(files, start.offset, limit)
        self.segment = start.segment
        self._fd = -1
        self._reported_loss = False

    def close(self) -> None:
        """Close the open segment."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def next(self, *, over: bool) -> Piece:
        """Return the next lines or hole; None when there is nothing more now. ``over``: no writer is left."""
        if self._fd < 0:
            if self.segment not in self._files.segments():  # a run may have put a link or a directory there
                return self._skip_missing()
            try:
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                self._fd = os.open(self._files.segment(self.segment), flags)
            except FileNotFoundError:
                return self._skip_missing()
        later = self._later_segment()  # asked before the read, see above
        length = records.BLOCK_BYTES
        if self._limit and self._limit.segment == self.segment:
            length = min(length, max(self._limit.offset - self.offset, 0))
        if data := os.pread(self._fd, length, self.offset):
            return self._lines_in(data, self._fd, over=over or later is not None)
        if (size := os.fstat(self._fd).st_size) < self.offset:
            self.offset = size
            return Hole("the cursor points beyond the end of the log")
        if later is None:
            return None
        following = self.segment + 1
        self._move(later)
        return self.next(over=over) if later == following else _pruned(following, later - 1)

    def _later_segment(self) -> int | None:
        last = self._limit.segment if self._limit else None
        kept = self._files.segments()
        if not kept or kept[-1] <= self.segment:
            return None
        return next((n for n in kept if n > self.segment and (last is None or n <= last)), None)

    def _skip_missing(self) -> Piece:
        """Move from a missing segment to an existing one, and report what is missing."""
        if (later := self._later_segment()) is not None:
            first = self.segment
            self._move(later)
            return _pruned(first, later - 1)
        kept = self._files.segments()
        if earlier := [n for n in kept if n < self.segment]:
            self._move(earlier[-1])
            self.offset = size_of(self._files.segment(self.segment))
            return Hole("the cursor points beyond the end of the log")
        if kept or self._reported_loss:
            return None
        # No segment at all: either nothing was printed yet, or all of it was pruned.
        was_there = self.offset > 0 or self.segment > 1
        if not was_there and not (self._files.has_ended() and _bytes_printed(self._files.path)):
            return None
        self._reported_loss = True
        return Hole("the output of this run is no longer kept")

    def _move(self, segment: int) -> None:
        self.close()
        self.segment, self.offset = segment, 0


def _pruned(first: int, last: int) -> Hole:
    which = f"segment {first} is" if first == last else f"segments {first} to {last} are"
    return Hole(f"output is missing here: {which} no longer kept")


def _bytes_printed(run: Path) -> int:
    printed = (peek(run / "exit.json") or {}).get("log_bytes")
    return printed if isinstance(printed, int) else 0


class RegentStream(_LineStream):
    """The Regent's lines about one run, from ``offset`` to ``limit`` or on and on. Holds nothing open."""

    def next(self, *, over: bool) -> Piece:
        """Return the next lines or hole; None when there is nothing more now. ``over``: no writer is left."""
        end = size_of(self._files.regent_log)
        if self._limit:
            end = min(end, self._limit.regent)
        if end < self.offset:
            if self._files.is_gone():
                return None  # the ralph was forgotten: not a wrong cursor
            self.offset = end
            return Hole("the cursor points beyond the end of the Regent's lines")
        if end == self.offset:
            return None
        try:
            with open_plain(self._files.regent_log) as file:
                data = os.pread(file.fileno(), min(records.BLOCK_BYTES, end - self.offset), self.offset)
                return self._lines_in(data, file.fileno(), over=over)
        except FileNotFoundError:
            return None
