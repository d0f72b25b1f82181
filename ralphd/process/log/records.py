"""The records of a log: their format (F4), the cursor between two of them (F5), and how a query selects them.

A record is one line: ``2026-11-21T20:00:00.000000000Z stdout F text``. That is the format of the container
runtimes (CRI), so existing log shippers read it. ``P`` instead of ``F`` marks a part of a longer line.
"""

import re
from typing import Final, NamedTuple, TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import UsageError

BLOCK_BYTES: Final = 65536
"""How much is read at once. Longer than any line the shim writes (16 KiB and a head of 40 bytes)."""

PART_BYTES: Final = 16384
"""The longest text of one record; a longer line continues in the next one (``P``)."""

EVENT_HEAD: Final = b'{"'
"""How a line begins that may be an event of an agent."""

_HEAD_BYTES: Final = len("2026-11-21T20:00:00.000000000Z stdout F ")
_AT_BYTES: Final = len("2026-11-21T20:00:00.000000000Z")
_AT: Final = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"
_LINE: Final = re.compile(rb"(?:(%b) (stdout|stderr|regent) ([FP]) (.*)|(.*))\n" % _AT)
_TEXT_HEAD: Final = re.compile(rb"\n%b std(?:out|err) F " % _AT)
_STREAMS: Final = {b"stdout": "stdout", b"stderr": "stderr", b"regent": "regent"}
_RUN_ID: Final = re.compile(r"r([0-9]{6,12})-[0-9a-f]{8}")
_CURSOR: Final = re.compile(r"([^:]{1,32}):([1-9][0-9]{0,8}):([0-9]{1,18}):([0-9]{1,18})", re.ASCII)


def run_number(name: str) -> int | None:
    """Return the number in the name of a run's directory; None for any other name."""
    match = _RUN_ID.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a ralph's log that survives rotation, reconnects and daemon restarts (F5).

    ``segment`` and ``offset`` point into the run's output, ``regent`` into the Regent's own lines about the
    run. Both offsets are in bytes.
    """

    run_id: RunId
    segment: int
    offset: int
    regent: int

    def __str__(self) -> str:
        return f"{self.run_id}:{self.segment}:{self.offset}:{self.regent}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the cursor that ``str`` printed. Raise UsageError for anything else."""
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
        """Return the position before the first byte of a run."""
        return cls(run_id, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line, or a part of one (``partial``: the next record continues the line, or it was cut off)."""

    at: str
    stream: str
    text: bytes
    partial: bool
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Gap:
    """Requested lines are missing. Reading continues at ``cursor``."""

    cursor: Cursor
    reason: str


@dataclass(frozen=True, slots=True)
class LogText:
    """The texts of many whole lines of stdout and stderr, each with its newline; nothing is left out."""

    text: bytes
    cursor: Cursor


Item: TypeAlias = LogText | LogRecord | Gap


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines to select. Empty, all that are kept.

    ``tail`` counts records after the filters. ``cursor`` says where to continue and overrides ``tail``.
    ``since`` and ``until`` are inclusive; reading ends at the first record later than ``until``. ``stream``
    is stdout, stderr or regent. ``grep`` is a fixed text, searched in each record (never a pattern: Python's
    ``re`` holds the interpreter for as long as a hostile pattern takes).

    ``as_text`` is several times as fast: output comes as ``LogText`` where that is possible. With
    ``whole_events`` a line that may be an event comes as a record of its own, and ``tail``, where nothing is
    filtered, counts whole lines; with ``only_events`` as well a block of other lines is an empty text.
    """

    tail: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    stream: str | None = None
    grep: str | None = None
    cursor: Cursor | None = None
    as_text: bool = False
    whole_events: bool = False
    only_events: bool = False


class LogLine(NamedTuple):
    """A parsed line; ``end`` is the offset just after it. ``at`` is empty if the line is not a record."""

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
    def has_events(self) -> bool:
        """Whether a line may be an event."""
        return b' F {"' in self.data or b' P {"' in self.data

    @property
    def last_at(self) -> str:
        """The time of the last line, if it is a record."""
        begin = self.data.rfind(b"\n", 0, -1) + 1
        return self.data[begin : begin + _AT_BYTES].decode("ascii", "replace")


def parse(chunk: Chunk) -> list[LogLine]:
    """Return the lines of a chunk, in order."""
    lines: list[LogLine] = []
    end, last, at = chunk.start, b"", ""
    for stamp, stream, flag, text, junk in _LINE.findall(chunk.data):
        if stamp != last:  # the shim stamps whole reads: the same time comes many times in a row
            last, at = stamp, _valid_time(stamp)
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
    """Return the texts of a chunk in one go; None if it holds anything but whole lines of stdout and stderr.

    Several times as fast as ``parse``: one substitution for 64 KiB, no object per line.
    """
    if chunk.torn:
        return None
    text, lines = _TEXT_HEAD.subn(b"\n", b"\n" + chunk.data)
    # Without the newline that we put before the data.
    return text[1:] if lines == chunk.data.count(b"\n") else None


def stored_time(moment: Moment) -> str:
    """Return a moment in the form that records bear, with nanoseconds."""
    return rfc3339(moment)[:-1] + "000Z"


def _valid_time(stamp: bytes) -> str:
    # The run can write into its own log directory. "2026-99-99" passes the pattern and is not a time; readers
    # of a record rely on one.
    try:
        parse_rfc3339(stamp.decode())
    except ValueError:
        return ""
    return stamp.decode()


class Sieve:
    """Select the lines of a query. Times are compared as text: all have the same form and zone."""

    def __init__(self, query: LogQuery) -> None:
        self.since = "" if query.since is None else stored_time(query.since)
        self._until = None if query.until is None else stored_time(query.until)
        self._stream = query.stream
        self._needle = query.grep.encode(errors="surrogateescape") if query.grep else b""
        self.is_open = not (self.since or self._until or self._stream or self._needle)
        self.is_past = False

    def passes(self, line: LogLine) -> bool:
        """Return True for a selected line. A line later than ``until`` sets ``is_past``."""
        if self.is_open:
            return True
        if not line.at:  # damage: show it, unless the user asked for something it cannot be
            return not (self._stream or self._needle)
        if self._until is not None and line.at > self._until:
            self.is_past = True
            return False
        return line.at >= self.since and self._stream in (None, line.stream) and self._needle in line.text
