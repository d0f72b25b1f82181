"""The records of a log: what a line says, where reading goes on after it, and which lines are asked for.

A line is one record in the container log format (F4), ``2026-11-21T20:00:00.000000000Z stdout F text``. The
times have a fixed width, so that their order is the order of their characters. Texts are bytes as the
command wrote them. Nothing here touches a file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ralphd.core.model import Moment, RunId
from ralphd.core.moments import parse_rfc3339, rfc3339
from ralphd.errors import UsageError

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
class Record:
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
class Text:
    """The texts of many whole lines of stdout and stderr at once, each with its newline, nothing left out."""

    text: bytes
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Query:
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


class Line(NamedTuple):
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


def parse(chunk: Chunk) -> list[Line]:
    """The lines of a chunk, in order."""
    lines: list[Line] = []
    end, last, at = chunk.start, b"", ""
    for stamp, stream, flag, text, junk in _LINE.findall(chunk.data):
        if stamp != last:  # the shim stamps whole reads: the same time comes many times running
            last, at = stamp, _checked(stamp)
        if stamp:
            end += _HEAD_BYTES + len(text) + 1
            lines.append(Line(at, _STREAMS[stream], text, flag == b"P", end))
        else:
            end += len(junk) + 1
            lines.append(Line("", "", junk, False, end))
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

    def __init__(self, query: Query) -> None:
        self.since = "" if query.since is None else stored_time(query.since)
        self.until = None if query.until is None else stored_time(query.until)
        self._stream = query.stream
        self._needle = query.grep.encode(errors="surrogateescape") if query.grep else b""
        self.is_open = not (self.since or self.until or self._stream or self._needle)
        self._shows_junk = not (self._stream or self._needle)
        self.is_past = False

    def passes(self, line: Line) -> bool:
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
