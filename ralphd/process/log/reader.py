"""Read the runs of a ralph one after the other, each merged by time with the Regent's lines about it.

The merge compares only the two lines that come next and takes the earlier one; of two at the same time the
run's line goes first, as does a line that is not a record. It therefore depends on nothing but the position:
what follows a cursor is the same whether reading began there or earlier (F5).
"""

import time
from dataclasses import replace
from typing import TypeAlias

from ralphd.core.supervision.model import RunId
from ralphd.process.log.positions import Start
from ralphd.process.log.records import (
    Chunk,
    Cursor,
    Gap,
    LogLine,
    LogQuery,
    LogRecord,
    LogText,
    Sieve,
    parse,
    whole_text,
)
from ralphd.process.log.segments import Hole, RegentStream, Runs, SegmentStream

_LATE_S = 1.0  # a record bears the time of its read and is written a little later

Item: TypeAlias = LogText | LogRecord | Gap


class LogReader:
    """Read from ``start`` to ``limit``, or for as long as more comes. ``close`` it.

    With ``as_text`` the run's output comes in whole blocks wherever nothing has to be left out or inserted.
    """

    def __init__(
        self,
        runs: Runs,
        start: Start,
        query: LogQuery,
        *,
        as_text: bool,
        block_bytes: int,
        limit: Cursor | None = None,
    ) -> None:
        self._runs, self._until, self._sieve = runs, query.until, Sieve(query)
        self._as_text, self._block_bytes, self._limit = as_text, block_bytes, limit
        self._gap = start.gap  # to be reported before anything else
        self._is_open = False  # until there is a run to read
        if start.cursor is not None:
            self._open(start.cursor)

    def _open(self, cursor: Cursor) -> None:
        limit = self._limit if self._limit and self._limit.run_id == cursor.run_id else None
        self._files = self._runs.files(cursor.run_id)
        self._segments = SegmentStream(self._files, cursor, limit, self._block_bytes)
        self._regents = RegentStream(self._files, cursor, limit, self._block_bytes)
        self._chunk: Chunk | None = None  # read, and not yet parsed
        self._log: list[LogLine] = []
        self._regent: list[LogLine] = []
        self._at = cursor
        self._is_open = True

    def close(self) -> None:
        """Close the open file."""
        if self._is_open:
            self._segments.close()

    def is_past(self) -> bool:
        """Return True once nothing that the query selects can come any more."""
        return self._until is not None and time.time() > self._until + _LATE_S

    def is_between_runs(self) -> bool:
        """Return True if only a run that has not begun yet can add something."""
        ids = self._runs.ids()
        if not self._is_open or not ids:
            return not ids
        return ids[-1] == self._at.run_id and self._files.has_ended()

    def next(self) -> list[Item] | None:
        """Return what comes next, perhaps nothing that is selected; None when there is nothing more now."""
        if self._sieve.is_past:
            return None
        if not self._is_open:  # there was no run at the start: take the first that has begun since
            if (first := self._runs.first_after(None)) is None:
                return None
            self._open(Cursor.start_of(first))
        following = self._following_run()  # asked before the read: nothing comes after it
        if gap := self._fill(superseded=following is not None):
            return [gap]
        if self._as_text and self._sieve.is_open and (text := self._whole_block()) is not None:
            return [text]
        if self._chunk is not None:
            self._log, self._chunk = parse(self._chunk), None
        if self._log or self._regent:
            return self._merged()
        if following is None:
            return None
        self._gap = f"run {self._at.run_id} was removed while it was read" if self._files.is_gone() else ""
        self.close()
        self._open(Cursor.start_of(following))
        return []

    def _following_run(self) -> RunId | None:
        run_id = self._at.run_id
        if self._limit is not None:
            return self._runs.first_after(run_id, last=self._limit.run_id)
        following = self._runs.first_after(run_id)
        if following is None and self._files.is_gone():
            # The ralph was forgotten and registered again: its runs are counted from 1 again.
            return self._runs.first_after(None)
        return following

    def _fill(self, *, superseded: bool) -> Gap | None:
        """Read until the next lines of both files are known, as far as there are any; or return a gap."""
        if self._gap:
            gap, self._gap = Gap(self._at, self._gap), ""
            return gap
        if not self._log and self._chunk is None:
            over = superseded or self._files.has_ended()
            piece = self._segments.next(over=over)
            if isinstance(piece, Chunk):
                self._chunk = piece
                self._at = replace(self._at, segment=self._segments.segment, offset=piece.start)
            elif isinstance(piece, Hole):
                offset = self._segments.offset
                self._at = replace(self._at, segment=self._segments.segment, offset=offset)
                return Gap(self._at, piece.reason)
        if not self._regent:
            piece = self._regents.next(over=superseded)
            if isinstance(piece, Chunk):
                self._regent = parse(piece)
            elif isinstance(piece, Hole):
                self._at = replace(self._at, regent=self._regents.offset)
                return Gap(self._at, piece.reason)
        return None

    def _whole_block(self) -> LogText | None:
        chunk = self._chunk
        if chunk is None or (self._regent and self._regent[0].at < chunk.last_at):
            return None
        text = whole_text(chunk)
        if text is None:
            return None
        self._chunk = None
        self._at = replace(self._at, offset=chunk.end)
        return LogText(text, self._at)

    def _merged(self) -> list[Item]:
        """Return all lines up to where the next line of one of the files has to be read first."""
        items: list[Item] = []
        log, regent = self._log, self._regent
        if not (log and regent):
            self._give(log, items)
            self._give_regent(regent, items)
            self._log, self._regent = [], []
            return items
        done = taken = 0
        while done < len(log) and taken < len(regent):
            first = done
            while done < len(log) and log[done].at <= regent[taken].at:
                done += 1
            self._give(log[first:done], items)
            if done < len(log):
                self._give_regent(regent[taken : taken + 1], items)
                taken += 1
        self._log, self._regent = log[done:], regent[taken:]
        return items

    def _give(self, lines: list[LogLine], items: list[Item]) -> None:
        if not lines:
            return
        # Local names: this loop runs once per line of output.
        run_id, segment, regent = self._at.run_id, self._at.segment, self._at.regent
        for line in lines:
            if self._sieve.passes(line):
                items.append(_item(line, Cursor(run_id, segment, line.end, regent)))
        self._at = replace(self._at, offset=lines[-1].end)

    def _give_regent(self, lines: list[LogLine], items: list[Item]) -> None:
        for line in lines:
            self._at = replace(self._at, regent=line.end)
            if self._sieve.passes(line):
                items.append(_item(line, self._at))


def _item(line: LogLine, cursor: Cursor) -> LogRecord | Gap:
    if line.at:
        return LogRecord(line.at, line.stream, line.text, line.partial, cursor)
    return Gap(cursor, f"{len(line.text)} bytes here are no log record")
