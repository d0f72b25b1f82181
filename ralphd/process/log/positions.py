"""Find where reading begins: after a cursor, at a time, or so many records before the end.

The searches are generators that yield None after each block and the answer last: a search for a rare line in
gigabytes must not hold the event loop.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.plain_files import open_plain, status_of
from ralphd.process.log import records
from ralphd.process.log.records import Chunk, Cursor, LogQuery, Sieve, parse
from ralphd.process.log.segments import RunFiles, Runs, is_stale, size_of

_MTIME_MARGIN_S = 1.0
_END_BYTES: Final = records.BLOCK_BYTES
LIMIT_BYTES: Final = 1 << 20
"""How much of a log ``last_lines`` reads by default."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin (None: before whatever run comes first), and the gap to report first, if any."""

    cursor: Cursor | None
    gap: str = ""


Search: TypeAlias = Iterator[Start | None]


def find_start(runs: Runs, query: LogQuery) -> Search:
    """Search where reading for ``query`` begins."""
    yield None
    ids = runs.ids()
    oldest = Start(Cursor.start_of(ids[0]) if ids else None)
    if (cursor := query.cursor) is not None:
        if cursor.run_id in ids:
            yield Start(cursor)
            return
        # If no later run exists, the ralph was forgotten and registered again: its runs count from 1 again.
        following = runs.first_after(cursor.run_id)
        gap = f"run {cursor.run_id} is no longer kept"
        yield Start(Cursor.start_of(following) if following else oldest.cursor, gap)
        return
    if query.tail is not None:
        sieve = Sieve(query)
        yield from _before_end(runs, query.tail, sieve, whole_lines=query.whole_events and sieve.is_open)
    if query.since is not None:  # or fewer records than wanted are as late as that
        yield from _at_time(runs, query.since)
    yield oldest


def _at_time(runs: Runs, since: Moment) -> Search:
    """Search the first segment written to at that time or later; older files cannot hold a later line."""
    for run_id in runs.ids():
        yield None
        files = runs.files(run_id)
        segments = files.segments()
        if (first := next((n for n in segments if _is_newer(files.segment(n), since)), None)) is not None:
            offsets = (_offset_at(path, since) for path in (files.segment(first), files.regent_log))
            yield Start(Cursor(run_id, first, *offsets))
            return
        if _is_newer(files.regent_log, since):
            yield Start(Cursor(run_id, segments[-1] if segments else 1, 0, 0))
            return
    yield _end(runs)


def _offset_at(path: Path, since: Moment) -> int:
    """Return where a line begins before all lines from that time on, found by halving.

    If the clock was set back within the file, lines of the time before that may be missed.
    """
    wanted, low, high = records.stored_time(since), 0, size_of(path)
    while high - low > 2 * records.BLOCK_BYTES:
        lines = parse(chunk := _block_before(path, (low + high) // 2))[:-1]  # the last one may be cut
        is_before = "" < max((line.at for line in lines), default="") < wanted
        low, high = (lines[-1].end, high) if is_before else (low, chunk.start)
    return low


def _is_newer(path: Path, since: Moment) -> bool:
    status = status_of(path)
    return status is not None and status.st_mtime >= since - _MTIME_MARGIN_S


def _end(runs: Runs) -> Start:
    if not (ids := runs.ids()):
        return Start(None)
    log, regent = _backwards(runs, ids[-1], superseded=False)
    return Start(Cursor(ids[-1], log.number, log.offset, regent.offset))


def _before_end(runs: Runs, wanted: int, sieve: Sieve, *, whole_lines: bool) -> Search:
    """Search the position that ``wanted`` records follow, or whole lines; no answer if there are fewer.

    Holds two blocks at a time, however many records are wanted.
    """
    if wanted <= 0:
        yield _end(runs)
        return
    ids = runs.ids()
    for run_id in reversed(ids):
        log, regent = _backwards(runs, run_id, superseded=run_id != ids[-1])
        while True:
            for side in (log, regent):
                while not side.pending and side.refill(sieve):
                    yield None
            if not (log.pending or regent.pending):
                break
            # The last line of the merge: of two at the same time the Regent's, which the merge puts second.
            last = max((regent, log), key=lambda side: side.pending[-1][0] if side.pending else "")
            here = Start(Cursor(run_id, log.number, log.offset, regent.offset))
            _, last.number, last.offset, is_part = last.pending.pop()
            wanted -= not (whole_lines and is_part)
            if wanted == (-1 if whole_lines else 0):  # of lines: the end of the one before those wanted
                yield here if whole_lines else Start(Cursor(run_id, log.number, log.offset, regent.offset))
                return


def _backwards(runs: Runs, run_id: RunId, *, superseded: bool) -> tuple["_Backwards", "_Backwards"]:
    files = runs.files(run_id)
    over = superseded or files.has_ended()
    regent = [(1, files.regent_log)] if status_of(files.regent_log) else []
    return _Backwards(_segments(files), over=over), _Backwards(regent, over=superseded)


def _segments(files: RunFiles) -> list[tuple[int, Path]]:
    return [(number, files.segment(number)) for number in files.segments()]


class _Backwards:
    """Read files backwards as one stream, the last of them first.

    ``number`` and ``offset`` are where the earliest line taken begins, at first the end of the last whole
    line. ``pending`` has the selected lines of the current block: time, file, offset, whether it is a part.
    """

    def __init__(self, files: list[tuple[int, Path]], *, over: bool) -> None:
        self.pending: list[tuple[str, int, int, bool]] = []
        self.number, self.offset = (files[-1][0], _end_of_lines(files[-1][1], over=over)) if files else (1, 0)
        self._blocks = _blocks_backwards(files, self.offset)

    def refill(self, sieve: Sieve) -> bool:
        """Search the block before; False when there is none."""
        if (block := next(self._blocks, None)) is None:
            return False
        number, chunk = block
        begin, latest = chunk.start, ""
        for line in parse(chunk):
            latest = max(latest, line.at)
            if line.at and sieve.passes(line):
                self.pending.append((line.at, number, begin, line.partial))
            begin = line.end
        if latest and latest < sieve.since:
            self._blocks = iter(())
        return True


def _blocks_backwards(
    files: list[tuple[int, Path]], end: int | None = None, left: float = math.inf
) -> Iterator[tuple[int, Chunk]]:
    """Yield blocks with the numbers of their files, the last first, up to ``left`` bytes and not cut short.

    ``end`` is where the last file ends, if that is not its size.
    """
    for number, path in reversed(files):
        end = size_of(path) if end is None else end
        while end > 0 and left > 0:
            chunk = _block_before(path, end)
            left -= end - chunk.start
            end = chunk.start
            yield number, chunk
        end = None


def _end_of_lines(path: Path, *, over: bool) -> int:
    """Return where the last line ends. One without a newline counts if nobody is going to finish it."""
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            begin = max(0, status.st_size - _END_BYTES)
            data = os.pread(file.fileno(), status.st_size - begin, begin)
    except FileNotFoundError:
        return 0
    whole = data.rfind(b"\n") + 1
    return begin + (len(data) if over or is_stale(status) else whole)


def _block_before(path: Path, end: int) -> Chunk:
    """Return the lines that begin in the block that ends at ``end``; empty if none does."""
    start = max(0, end - records.BLOCK_BYTES)
    try:
        with open_plain(path) as file:
            data = os.pread(file.fileno(), end - start, start)
    except FileNotFoundError:
        return Chunk(b"", 0)
    begin = data.find(b"\n") + 1 if start else 0
    if start and not 0 < begin < len(data):
        return Chunk(b"", start)
    if data and not data.endswith(b"\n"):
        return Chunk(data[begin:] + b"\n", start + begin, torn=True)
    return Chunk(data[begin:], start + begin)


def last_lines(files: RunFiles, count: int, *, stream: str | None, limit_bytes: int) -> list[str]:
    """Return the last ``count`` lines of ``stream`` (None: of both), oldest first, without newlines.

    Joins the parts of a long line; a line without its end counts as one. Reads backwards, so the price does
    not grow with the log, and at most ``limit_bytes`` in whole blocks: where that is not enough, lines are
    missing and the first one lacks its beginning.
    """
    lines: list[list[bytes]] = []  # the last line first, of each line the last part first
    growing: dict[str, list[bytes]] = {}  # per stream the line whose earlier parts may still come
    blocks = _blocks_backwards(_segments(files), left=limit_bytes)
    for line in (line for _, chunk in blocks for line in reversed(parse(chunk))):
        if not line.at or stream not in (None, line.stream):
            continue
        parts = growing.get(line.stream)
        if line.partial and parts is not None:
            parts.append(line.text)
        elif len(lines) < count:
            growing[line.stream] = [line.text]
            lines.append(growing[line.stream])
        else:
            growing.pop(line.stream, None)
        if not growing:
            break
    return [b"".join(reversed(parts)).decode(errors="replace") for parts in reversed(lines)]
