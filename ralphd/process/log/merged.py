"""One run's output and the Regent's lines about it, merged by time into one sequence of records.

The merge looks at nothing but the two lines that come next, and takes the earlier one (of two at the same
time the run's, of a line that is no record that one). So what follows a cursor is the same whether reading
began there or earlier.
"""

from ralphd.process.log.segments import (
    Chunk,
    Cursor,
    Gap,
    Hole,
    LogLine,
    LogRecord,
    LogText,
    RegentStream,
    RunFiles,
    SegmentStream,
    Sieve,
    parse,
    whole_text,
)


class RunReader:
    """Reads one run from ``start`` on, to ``limit`` or for as long as more comes. ``close`` it.

    ``gap`` is told before all else. ``superseded`` is set once a later run has begun.
    """

    def __init__(
        self, files: RunFiles, start: Cursor, *, block_bytes: int, limit: Cursor | None = None, gap: str = ""
    ) -> None:
        self.files = files
        self.run_id = start.run_id
        self.superseded = False
        self._gap = gap
        self._segments = SegmentStream(files, start, limit, block_bytes)
        self._regents = RegentStream(files, start, limit, block_bytes)
        self._at = start
        self._chunk: Chunk | None = None  # read, and not yet parsed
        self._log: list[LogLine] = []
        self._regent: list[LogLine] = []

    def close(self) -> None:
        """Let go of the files."""
        self._segments.close()

    def batch(self, sieve: Sieve) -> list[LogRecord | Gap] | None:
        """What comes next, possibly nothing that passes the sieve; None when there is nothing more now."""
        if gap := self._fill():
            return [gap]
        if self._chunk is not None:
            self._log, self._chunk = parse(self._chunk), None
        if not self._log and not self._regent:
            return None
        return self._merged(sieve)

    def text_batch(self, sieve: Sieve) -> list[LogText | LogRecord | Gap] | None:
        """The same, with the run's output in whole blocks where nothing has to be left out or put between."""
        if gap := self._fill():
            return [gap]
        if sieve.is_open and (text := self._whole_block()) is not None:
            return [text]
        batch = self.batch(sieve)
        return None if batch is None else [*batch]

    def _fill(self) -> Gap | None:
        """Have the next lines of both files at hand, as far as there are any; or say what is missing."""
        if self._gap:
            gap, self._gap = Gap(self._at, self._gap), ""
            return gap
        return self._fill_log() or self._fill_regent()

    def _fill_log(self) -> Gap | None:
        if self._log or self._chunk is not None:
            return None
        over = self.superseded or self.files.has_ended()  # asked before reading: then nothing comes after
        match self._segments.next(over=over):
            case Chunk() as chunk:
                self._chunk = chunk
                self._move_to(self._segments.segment, chunk.start)
            case Hole(reason):
                self._move_to(self._segments.segment, self._segments.offset)
                return Gap(self._at, reason)
        return None

    def _fill_regent(self) -> Gap | None:
        if self._regent:
            return None
        match self._regents.next(over=self.superseded):
            case Chunk() as chunk:
                self._regent = parse(chunk)
            case Hole(reason):
                self._at = self._cursor(regent=self._regents.offset)
                return Gap(self._at, reason)
        return None

    def _whole_block(self) -> LogText | None:
        chunk = self._chunk
        if chunk is None or (self._regent and self._regent[0].at < chunk.last_at):
            return None
        text = whole_text(chunk)
        if text is None:
            return None
        self._chunk = None
        self._at = self._cursor(offset=chunk.end)
        return LogText(text, self._at)

    def _merged(self, sieve: Sieve) -> list[LogRecord | Gap]:
        """All that is at hand, up to where the next line of one of the files has to be read first."""
        items: list[LogRecord | Gap] = []
        log, regent = self._log, self._regent
        if not (log and regent):
            self._give(log, sieve, items)
            self._give_regent(regent, sieve, items)
            self._log, self._regent = [], []
            return items
        done = taken = 0
        while done < len(log) and taken < len(regent):
            first = done
            while done < len(log) and log[done].at <= regent[taken].at:
                done += 1
            self._give(log[first:done], sieve, items)
            if done < len(log):
                self._give_regent(regent[taken : taken + 1], sieve, items)
                taken += 1
        self._log, self._regent = log[done:], regent[taken:]
        return items

    def _give(self, lines: list[LogLine], sieve: Sieve, items: list[LogRecord | Gap]) -> None:
        if not lines:
            return
        run_id, segment, regent = self._at.run_id, self._at.segment, self._at.regent
        for line in lines:
            if sieve.passes(line):
                items.append(_item(line, Cursor(run_id, segment, line.end, regent)))
        self._at = self._cursor(offset=lines[-1].end)

    def _give_regent(self, lines: list[LogLine], sieve: Sieve, items: list[LogRecord | Gap]) -> None:
        for line in lines:
            self._at = self._cursor(regent=line.end)
            if sieve.passes(line):
                items.append(_item(line, self._at))

    def _move_to(self, segment: int, offset: int) -> None:
        if (segment, offset) != (self._at.segment, self._at.offset):
            self._at = Cursor(self.run_id, segment, offset, self._at.regent)

    def _cursor(self, *, offset: int | None = None, regent: int | None = None) -> Cursor:
        return Cursor(
            self.run_id,
            self._at.segment,
            self._at.offset if offset is None else offset,
            self._at.regent if regent is None else regent,
        )


def _item(line: LogLine, cursor: Cursor) -> LogRecord | Gap:
    if line.at:
        return LogRecord(line.at, line.stream, line.text, line.partial, cursor)
    return Gap(cursor, f"{len(line.text)} bytes here are no log record")
