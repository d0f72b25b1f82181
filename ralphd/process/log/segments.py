"""The files of one run's log, read as streams of whole lines while others write, rotate and delete them.

The shim appends to the newest segment and deletes its oldest; the daemon appends to ``regent.log``. So a
reader looks for a later segment *before* it reads: once it then finds nothing more, the segment is complete.
"""

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.errors import UsageError

# The records of a log: what a line says, where reading goes on after it, and which lines are asked for.

BLOCK_BYTES: Final = 65536
"""How much is read at once. Longer than any line the shim writes (16 KiB and a head of 40 bytes)."""

PART_BYTES: Final = 16384
"""The longest text of one record; what is longer goes on in the next one (``P``)."""

_HEAD_BYTES: Final = len("2026-11-21T20:00:00.000000000Z stdout F ")
_AT_BYTES: Final = len("2026-11-21T20:00:00.000000000Z")
_LINE: Final = re.compile(
    rb"(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (stdout|stderr|regent) ([FP]) (.*)|(.*))\n"
)
_TEXT_HEAD: Final = re.compile(rb"\n\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z std(?:out|err) F ")
_STREAMS: Final = {b"stdout": "stdout", b"stderr": "stderr", b"regent": "regent"}
_RUN_ID: Final = re.compile(r"r([0-9]{6,12})-[0-9a-f]{8}")
_CURSOR: Final = re.compile(r"([^:]{1,32}):([1-9][0-9]{0,8}):([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


def run_number(name: str) -> int | None:
    """The number in the name of a run's directory; None when it is not the name of one."""
    match = _RUN_ID.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a ralph's log, which survives rotation, reconnects and daemon restarts (F5).

    ``segment`` and ``offset`` say how far the run's output was read, ``regent`` how far the Regent's own
    lines about the run, both in bytes.
    """

    run_id: RunId
    segment: int
    offset: int
    regent: int

    def __str__(self) -> str:
        return f"{self.run_id}:{self.segment}:{self.offset}:{self.regent}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """The cursor that ``str`` gave. Raises UsageError for anything else."""
        match = _CURSOR.fullmatch(text)
        if match is None or run_number(match[1]) is None:
            raise UsageError(
                f"{text[:80]!r} is no cursor",
                why="a cursor looks like r000012-3fa9c1d2:3:1234:0 and is copied from an earlier reply",
                mend="leave the cursor out to read from the oldest line kept",
            )
        return cls(RunId(match[1]), int(match[2]), int(match[3]), int(match[4]))

    @classmethod
    def start_of(cls, run_id: RunId) -> "Cursor":
        """Before the first byte of a run."""
        return cls(run_id, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line, or a part of one (``partial``: the line goes on in the next record, or was cut off)."""

    at: str
    stream: str
    text: bytes
    partial: bool
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines that were asked for are not there. Reading goes on at ``cursor``."""

    cursor: Cursor
    reason: str


@dataclass(frozen=True, slots=True)
class LogText:
    """The texts of many whole lines of stdout and stderr at once, each with its newline, nothing left out."""

    text: bytes
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines are asked for. Empty, all that are kept.

    ``tail`` counts records after the filters. ``cursor`` says where to go on and makes ``tail`` void.
    ``since`` is included, and so is ``until``; what comes after the first record later than ``until`` is not
    looked at. ``stream`` is stdout, stderr or regent. ``grep`` is a fixed text, looked for in each record by
    itself (never a pattern: a pattern could hold the daemon for ever).
    """

    tail: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    stream: str | None = None
    grep: str | None = None
    cursor: Cursor | None = None


class LogLine(NamedTuple):
    """A parsed line; ``end`` is the offset just after it. ``at`` is empty for a line that is no record."""

    at: str
    stream: str
    text: bytes
    partial: bool
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of one file from the byte ``start`` on. ``torn``: the last newline is not in the file."""

    data: bytes
    start: int
    torn: bool = False

    @property
    def end(self) -> int:
        """The offset just after the chunk."""
        return self.start + len(self.data) - self.torn

    @property
    def last_at(self) -> str:
        """The time that the last line bears, if it is a record."""
        begin = self.data.rfind(b"\n", 0, -1) + 1
        return self.data[begin : begin + _AT_BYTES].decode("ascii", "replace")


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes that should be here and are not, or are no lines."""

    reason: str


Piece: TypeAlias = Chunk | Hole | None


def cut(data: bytes, start: int, *, block_bytes: int, is_final: Callable[[], bool]) -> Piece:
    """The whole lines at the beginning of ``data``.

    What has no newline yet is waited for (None), unless ``is_final`` says that nobody will finish it or it
    is longer than any line can be.
    """
    if end := data.rfind(b"\n") + 1:
        return Chunk(data[:end], start)
    if len(data) >= block_bytes:
        return Hole(f"{len(data)} bytes here are no log record")
    if data and is_final():
        return Chunk(data + b"\n", start, torn=True)
    return None


def parse(chunk: Chunk) -> list[LogLine]:
    """The lines of a chunk, in order."""
    lines: list[LogLine] = []
    end, last, at = chunk.start, b"", ""
    for stamp, stream, flag, text, junk in _LINE.findall(chunk.data):
        if stamp != last:  # the shim stamps whole reads: the same time comes many times running
            last, at = stamp, _checked(stamp)
        if stamp:
            end += _HEAD_BYTES + len(text) + 1
            lines.append(LogLine(at, _STREAMS[stream], text, flag == b"P", end))
        else:
            end += len(junk) + 1
            lines.append(LogLine("", "", junk, False, end))
    if chunk.torn:
        lines[-1] = lines[-1]._replace(partial=True, end=chunk.end)
    return lines


def whole_text(chunk: Chunk) -> bytes | None:
    """The texts of a chunk in one go; None where it holds anything but whole lines of stdout and stderr."""
    if chunk.torn:
        return None
    text, lines = _TEXT_HEAD.subn(b"\n", b"\n" + chunk.data)
    # The last newline of the text belongs to its last line; the first one was put there by us.
    return text[1:] if lines == chunk.data.count(b"\n") else None


def stored_time(moment: Moment) -> str:
    """A moment as the records bear it, with nanoseconds."""
    return rfc3339(moment)[:-1] + "000Z"


def _checked(stamp: bytes) -> str:
    """The time a record bears, if it is one: whoever reads a record may count on it."""
    try:
        parse_rfc3339(stamp.decode())
    except ValueError:
        return ""
    return stamp.decode()


class Sieve:
    """Which lines a query lets through."""

    def __init__(self, query: LogQuery) -> None:
        self.since = "" if query.since is None else stored_time(query.since)
        self.until = None if query.until is None else stored_time(query.until)
        self._stream = query.stream
        self._needle = query.grep.encode(errors="surrogateescape") if query.grep else b""
        self.is_open = not (self.since or self.until or self._stream or self._needle)
        self._shows_junk = not (self._stream or self._needle)
        self.is_past = False

    def passes(self, line: LogLine) -> bool:
        """Whether the line is asked for. A line later than ``until`` sets ``is_past``."""
        if self.is_open:
            return True
        if not line.at:
            return self._shows_junk
        if self.until is not None and line.at > self.until:
            self.is_past = True
            return False
        return (
            line.at >= self.since
            and (self._stream is None or line.stream == self._stream)
            and self._needle in line.text
        )


REGENT_LOG: Final = "regent.log"
_SEGMENT: Final = re.compile(r"log\.([0-9]{6,9})")
_SETTLED_NS: Final = 200_000_000
_STALE_S: Final = 2.0


class WatchedDirectory:
    """The names in a directory, listed again only when it has changed; none when it is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_gone = False
        self._listed_at = -1
        self._names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """What is there now. One stat while nothing changes."""
        try:
            changed_at = self.path.stat().st_mtime_ns
            if changed_at != self._listed_at:
                self._names = frozenset(entry.name for entry in self.path.iterdir())
                # The kernel's file times advance by up to 10 ms at a time: a listing in the same tick as
                # a change may have missed the next one, so it is not relied on.
                settled = time.time_ns() - changed_at > _SETTLED_NS
                self._listed_at = changed_at if settled else -1
        except (FileNotFoundError, NotADirectoryError):
            self.is_gone = True
            self._listed_at = -1  # it may come back with the time it had
            self._names = frozenset()
        return self._names


class RunFiles:
    """What the directory of one run holds now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory = WatchedDirectory(path)
        self._names: frozenset[str] = frozenset()
        self._segments: tuple[int, ...] = ()

    def segments(self) -> tuple[int, ...]:
        """The numbers of the segments that are kept, in order."""
        names = self._directory.names()
        if names is not self._names:
            self._names = names
            self._segments = segment_numbers(names)
        return self._segments

    def has_output(self) -> bool:
        """Whether there is a file to read."""
        return bool(self.segments()) or REGENT_LOG in self._names

    def has_ended(self) -> bool:
        """Whether the run wrote its exit record: its log is complete since before that."""
        return "exit.json" in self._directory.names()

    def is_gone(self) -> bool:
        """Whether the directory was removed."""
        self._directory.names()
        return self._directory.is_gone

    def segment(self, number: int) -> Path:
        """The path of a segment."""
        return self.path / f"log.{number:06d}"

    def regent_log(self) -> Path:
        """The path of the Regent's own lines."""
        return self.path / REGENT_LOG

    def end(self, run_id: RunId) -> Cursor:
        """Just after what is there now, whole line or not."""
        segments = self.segments()
        last = segments[-1] if segments else 1
        return Cursor(run_id, last, size_of(self.segment(last)), size_of(self.regent_log()))


class Runs:
    """The runs of one ralph whose directories are kept, oldest first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory = WatchedDirectory(path)
        self._names: frozenset[str] = frozenset()
        self._ids: tuple[RunId, ...] = ()

    def ids(self) -> tuple[RunId, ...]:
        """Their ids, in the order of their numbers."""
        names = self._directory.names()
        if names is not self._names:
            self._names = names
            self._ids = ordered_runs(names)
        return self._ids

    def files(self, run_id: RunId) -> RunFiles:
        """The files of one of them."""
        return RunFiles(self.path / run_id)

    def first_after(self, run_id: RunId | None, *, last: RunId | None = None) -> RunId | None:
        """The next run, up to ``last``, that has something to read; None while there is none."""
        ids = self.ids()
        if not ids or ids[-1] == run_id:
            return None
        for each in ids:
            beyond = last is not None and _order(each) > _order(last)
            if (
                not beyond
                and (run_id is None or _order(each) > _order(run_id))
                and self.files(each).has_output()
            ):
                return each
        return None


def segment_numbers(names: frozenset[str]) -> tuple[int, ...]:
    """The segments among the names in a run's directory, in order."""
    return tuple(sorted(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name))))


def ordered_runs(names: frozenset[str]) -> tuple[RunId, ...]:
    """The runs among the names in a directory, oldest first."""
    return tuple(sorted((RunId(name) for name in names if run_number(name) is not None), key=_order))


def _order(run_id: RunId) -> tuple[int, str]:
    return run_number(run_id) or 0, run_id


def size_of(path: Path) -> int:
    """Bytes; 0 when it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def is_stale(status: os.stat_result) -> bool:
    """Whether a line that has no end will get none: lines are written whole, in one call."""
    return time.time() - status.st_mtime > _STALE_S


class SegmentStream:
    """A run's segments as one stream of whole lines, from (``segment``, ``offset``) on.

    ``limit`` is where to end, if not at the end of what is there. Holds one descriptor; ``close`` it.
    """

    def __init__(self, files: RunFiles, start: Cursor, limit: Cursor | None, block_bytes: int) -> None:
        self.segment = start.segment
        self.offset = start.offset
        self._files = files
        self._limit = limit
        self._block_bytes = block_bytes
        self._fd = -1
        self._told_loss = False

    def close(self) -> None:
        """Let go of the segment that is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def next(self, *, over: bool) -> Piece:
        """The next lines or hole; None when there is nothing more now. ``over``: nobody writes here now."""
        if self._fd < 0 and not self._open():
            return self._missing()
        later = self._later()
        if data := self._read():
            piece = cut(
                data,
                self.offset,
                block_bytes=self._block_bytes,
                is_final=lambda: self._is_final(len(data), complete=over or later is not None),
            )
            if piece is not None:
                self.offset += len(data) if isinstance(piece, Hole) else piece.end - piece.start
            return piece
        if (size := os.fstat(self._fd).st_size) < self.offset:
            self.offset = size
            return Hole("the place asked for lies beyond the end of the log")
        return None if later is None else self._go_on(later, over=over)

    def _open(self) -> bool:
        try:
            path = self._files.segment(self.segment)
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        return True

    def _later(self) -> int | None:
        last = self._limit.segment if self._limit else None
        kept = self._files.segments()
        if not kept or kept[-1] <= self.segment:
            return None
        return next((n for n in kept if n > self.segment and (last is None or n <= last)), None)

    def _read(self) -> bytes:
        length = self._block_bytes
        if self._limit and self._limit.segment == self.segment:
            length = min(length, max(self._limit.offset - self.offset, 0))
        return os.pread(self._fd, length, self.offset)

    def _is_final(self, length: int, *, complete: bool) -> bool:
        status = os.fstat(self._fd)
        return status.st_size == self.offset + length and (complete or is_stale(status))

    def _go_on(self, later: int, *, over: bool) -> Piece:
        following = self.segment + 1
        self._move(later)
        return self.next(over=over) if later == following else _pruned(following, later - 1)

    def _missing(self) -> Piece:
        if (later := self._later()) is not None:
            first = self.segment
            self._move(later)
            return _pruned(first, later - 1)
        kept = self._files.segments()
        if earlier := [n for n in kept if n < self.segment]:
            self._move(earlier[-1])
            self.offset = size_of(self._files.segment(self.segment))
            return Hole("the place asked for lies beyond the end of the log")
        return None if kept or self._told_loss else self._lost()

    def _lost(self) -> Piece:
        """There is no segment at all: not yet, or no more."""
        was_there = self.offset > 0 or self.segment > 1
        if not was_there and not (self._files.has_ended() and _bytes_printed(self._files.path)):
            return None
        self._told_loss = True
        return Hole("the output of this run is no longer kept")

    def _move(self, segment: int) -> None:
        self.close()
        self.segment, self.offset = segment, 0


def _pruned(first: int, last: int) -> Hole:
    which = f"segment {first} is" if first == last else f"segments {first} to {last} are"
    return Hole(f"output is missing here: {which} no longer kept")


def _bytes_printed(run: Path) -> int:
    """What the exit record says; 0 when there is none to read."""
    try:
        record = json.loads((run / "exit.json").read_bytes())
    except (OSError, ValueError):
        return 0
    printed = record.get("log_bytes") if isinstance(record, dict) else 0
    return printed if isinstance(printed, int) else 0


class RegentStream:
    """The Regent's lines about one run, from ``offset`` on. Holds nothing open."""

    def __init__(self, files: RunFiles, start: Cursor, limit: Cursor | None, block_bytes: int) -> None:
        self.offset = start.regent
        self._files = files
        self._path = files.regent_log()
        self._limit = limit
        self._block_bytes = block_bytes

    def next(self, *, over: bool) -> Piece:
        """The next lines or hole; None when there is nothing more now."""
        end = size_of(self._path)
        if self._limit:
            end = min(end, self._limit.regent)
        if end < self.offset:
            if self._files.is_gone():
                return None  # the ralph was forgotten; nobody asked for a place that is not there
            self.offset = end
            return Hole("the place asked for lies beyond the end of the Regent's lines")
        return self._read(end, over=over) if end > self.offset else None

    def _read(self, end: int, *, over: bool) -> Piece:
        try:
            with self._path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), min(self._block_bytes, end - self.offset), self.offset)
                status = os.fstat(file.fileno())
        except FileNotFoundError:
            return None
        whole = status.st_size == self.offset + len(data)
        piece = cut(
            data,
            self.offset,
            block_bytes=self._block_bytes,
            is_final=lambda: whole and (over or is_stale(status)),
        )
        if piece is not None:
            self.offset += len(data) if isinstance(piece, Hole) else piece.end - piece.start
        return piece
