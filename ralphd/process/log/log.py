"""A ralph's log: read it, follow it, add the Regent's lines, and keep all logs within their limits (F4, F5).

The shim writes the output and needs nobody for that (P1). A reader owns nothing but its position, the cursor;
it finds out by looking what was written, rotated or deleted. A follower costs no thread. The kernel wakes it
at a write; besides, it looks 10 times a second, 5 times once the run has ended.
"""

import logging
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Container, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.plain_files import append_whole, open_plain, status_of
from ralphd.process.log import records
from ralphd.process.log.positions import LIMIT_BYTES, Start, find_start, last_lines
from ralphd.process.log.records import Chunk, Cursor, Gap, Item, LogLine, LogQuery, LogRecord, LogText
from ralphd.process.log.segments import REGENT_LOG, Hole, RegentStream, RunFiles, Runs, SegmentStream

if TYPE_CHECKING:
    import asyncio

# Read the runs of a ralph one after the other, each merged by time with the Regent's lines about it.

_LATE_S = 1.0  # a record bears the time of its read and is written a little later


class LogReader:
    """Read from ``start`` to ``limit``, or for as long as more comes. ``close`` it.

    As text, the run's output comes in whole blocks wherever nothing has to be left out or inserted.
    """

    def __init__(self, runs: Runs, start: Start, query: LogQuery, *, limit: Cursor | None = None) -> None:
        self._runs, self._query, self._limit, self._sieve = runs, query, limit, records.Sieve(query)
        self._is_within_line = False
        self._gap = start.gap  # to be reported before anything else
        self._is_open = False  # until there is a run to read
        if start.cursor is not None:
            self._open(start.cursor)

    def _open(self, cursor: Cursor) -> None:
        limit = self._limit if self._limit and self._limit.run_id == cursor.run_id else None
        self._files = self._runs.files(cursor.run_id)
        self._segments = SegmentStream(self._files, cursor, limit)
        self._regents = RegentStream(self._files, cursor.regent, limit)
        self._chunk: Chunk | None = None  # read, and not yet parsed
        self._log: list[LogLine] = []
        self._regent: list[LogLine] = []
        self._at = cursor
        self._is_open = True

    @property
    def at(self) -> Cursor | None:
        """The position after what ``next`` has returned; None before the first run."""
        return self._at if self._is_open else None

    @property
    def directory(self) -> Path:
        """Where the next write is expected: in the run that is read, before the first one beside it."""
        return self._files.path if self._is_open else self._runs.path

    def close(self) -> None:
        """Close the open file."""
        if self._is_open:
            self._segments.close()

    def is_past(self) -> bool:
        """Return True once nothing that the query selects can come any more."""
        return self._query.until is not None and time.time() > self._query.until + _LATE_S

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
        if self._query.as_text and self._sieve.is_open and (text := self._whole_block()) is not None:
            return [text]
        if self._chunk is not None:
            self._log, self._chunk = records.parse(self._chunk), None
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
            piece = self._segments.next(over=superseded or self._files.has_ended())
            if isinstance(piece, Chunk):
                self._chunk = piece
                self._at = replace(self._at, segment=self._segments.segment, offset=piece.start)
            elif isinstance(piece, Hole):
                self._at = replace(self._at, segment=self._segments.segment, offset=self._segments.offset)
                return Gap(self._at, piece.reason)
        if not self._regent:
            piece = self._regents.next(over=superseded)
            if isinstance(piece, Chunk):
                self._regent = records.parse(piece)
            elif isinstance(piece, Hole):
                self._at = replace(self._at, regent=self._regents.offset)
                return Gap(self._at, piece.reason)
        return None

    def _whole_block(self) -> LogText | None:
        chunk = self._chunk
        if chunk is None or (self._regent and self._regent[0].at < chunk.last_at):
            return None
        if self._query.whole_events and (self._is_within_line or chunk.has_events):
            return None
        text = b"" if self._query.only_events else records.whole_text(chunk)
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
        self._is_within_line = lines[-1].partial
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


logger = logging.getLogger(__name__)

_POLL_S: Final = 0.025
"""Between two looks while lines come, so that a flood costs little: a wake-up takes 0.1 ms of CPU."""
_QUIET_POLL_S: Final = 0.1
_QUIET_AFTER_S: Final = 1.0
_IDLE_POLL_S: Final = 0.2
_BATCH_RECORDS: Final = 1000
_ITEM_BYTES: Final = 120
"""What a line costs on its way to another machine, without its text."""


class RalphLog:
    """The log of one ralph: the runs below ``<state>/ralphs/NAME/runs`` (which need not exist yet)."""

    def __init__(self, runs: Path) -> None:
        self._path = runs
        self._newest: tuple[RunId, RunFiles] | None = None  # kept: a listing is good until it changes

    def last_output_at(self, run_id: RunId) -> Moment | None:
        """Return when the run last printed something; None if it has not, or nothing of it is kept."""
        if self._newest is None or self._newest[0] != run_id:
            self._newest = run_id, RunFiles(self._path / run_id)
        files = self._newest[1]
        for number in reversed(files.segments()):
            status, began = status_of(files.segment(number)), status_of(files.path / "run.json")
            # The first segment is created before run.json. One that changes later, still empty: a full disk.
            if status and (status.st_size or (began and status.st_mtime > began.st_mtime)):
                return status.st_mtime
        return None

    def last_lines(
        self, run_id: RunId, count: int, *, stream: str | None = "stdout", limit_bytes: int = LIMIT_BYTES
    ) -> list[str]:
        """Return the last lines that a run printed to ``stream`` (None: stdout and stderr), oldest first.

        Blocks while it reads: at most ``limit_bytes`` from the end of the log, usually much less; where that
        is not enough, the earliest lines are cut or missing.
        """
        return last_lines(RunFiles(self._path / run_id), count, stream=stream, limit_bytes=limit_bytes)

    def read(self, query: LogQuery) -> Generator[Item, None, None]:
        """Yield what is there now and selected, oldest first. Blocks while it reads; memory is bounded."""
        runs = Runs(self._path)
        if (limit := self.end()) is None:
            return
        reader = LogReader(runs, next(filter(None, find_start(runs, query))), query, limit=limit)
        try:
            while (batch := reader.next()) is not None:
                yield from batch
        finally:
            reader.close()

    def after_plain(self, start: Cursor) -> tuple[Cursor, bool]:
        """Return the position after the next lines, and whether these were all, if none can be an event.

        Else return ``start`` and False. Reads at most one block.
        """
        try:
            with open_plain(RunFiles(self._path / start.run_id).segment(start.segment)) as file:
                data = os.pread(file.fileno(), records.BLOCK_BYTES, start.offset)
        except OSError:
            return start, False
        # A part (`P`) may belong to an event that begins before it.
        if not data.endswith(b"\n") or records.EVENT_HEAD in data or b" P " in data:
            return start, False
        return replace(start, offset=start.offset + len(data)), len(data) < records.BLOCK_BYTES

    def end(self) -> Cursor | None:
        """Return the position after all that is there now."""
        runs = Runs(self._path)
        return runs.files(ids[-1]).end(ids[-1]) if (ids := runs.ids()) else None

    def portion(
        self, query: LogQuery, *, limit: Cursor | None, most_bytes: int, limit_s: float
    ) -> tuple[list[Item], Cursor | None, bool]:
        """Return the next lines up to ``limit``, where to continue, and whether that is worth while now.

        They have at most ``most_bytes``, and one line more. Blocks for ``limit_s``, and perhaps longer where
        the start has to be searched.
        """
        runs, until, items, size = Runs(self._path), time.monotonic() + limit_s, list[Item](), 0
        reader = LogReader(runs, next(filter(None, find_start(runs, query))), query, limit=limit)
        try:
            while time.monotonic() < until:
                if (batch := reader.next()) is None:
                    return items, reader.at, False
                for item in batch:
                    items.append(item)
                    size += _ITEM_BYTES + (0 if isinstance(item, Gap) else len(item.text))
                    if size >= most_bytes:
                        return items, item.cursor, True
            return items, reader.at, True
        finally:
            reader.close()

    async def follow(
        self, query: LogQuery, *, stopping: "asyncio.Event", ended: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[list[Item], None]:
        """Yield what ``read`` gives, in batches, and then what comes, until ``stopping`` or past ``until``.

        Ends as well when everything is read and ``ended`` returns True.

        Continues into later runs. A line is seen within milliseconds; the first one of a run that begins
        more than a second after the last line within 250 ms. Close it (``aclose``) to close the open file.
        """
        import asyncio  # neither is loaded by a reader without a daemon

        from ralphd.process.log.arrival import Arrival

        runs = Runs(self._path)
        search = find_start(runs, query)
        while (start := next(search)) is None:
            await asyncio.sleep(0)
            if stopping.is_set():
                return
        reader, arrival = LogReader(runs, start, query), Arrival()
        last_at = time.monotonic()
        try:
            while not stopping.is_set():
                is_last = ended()  # asked before the read: nothing comes after it
                if (batch := reader.next()) is None:
                    if is_last or reader.is_past():
                        return
                    await asyncio.sleep(last_at + _POLL_S - time.monotonic())
                    arrival.watch(reader.directory)
                    await arrival.wait(_pause_s(time.monotonic() - last_at, reader, woken=arrival.works))
                    continue
                for first in range(0, len(batch), _BATCH_RECORDS):
                    yield batch[first : first + _BATCH_RECORDS]
                last_at = time.monotonic()
                await asyncio.sleep(0)
        finally:
            reader.close()
            arrival.close()


def _pause_s(quiet_s: float, reader: LogReader, *, woken: bool) -> float:
    if quiet_s <= _QUIET_AFTER_S or not (woken or reader.is_between_runs()):
        return _POLL_S
    return _IDLE_POLL_S if reader.is_between_runs() else _QUIET_POLL_S


def append_regent_line(run_directory: Path, at: Moment, text: str) -> None:
    """Append the Regent's text about a run to its log, one record per line.

    Call it before the next run prints: a follower that has moved on does not look back. A full disk or a
    removed directory is logged and otherwise ignored: the history is the record, this is for reading (F3).
    """
    stamp = records.stored_time(at).encode()
    lines = b"".join(
        b"%s regent %s %s\n" % (stamp, flag, part)
        for line in text.splitlines() or [""]
        for flag, part in _parts(line.encode(errors="replace"))
    )
    try:
        append_whole(run_directory / REGENT_LOG, lines)
    except OSError as error:
        extra = {"run": run_directory.name}
        logger.warning("a line in regent.log could not be written: %s", error, extra=extra)


def _parts(line: bytes) -> Iterator[tuple[bytes, bytes]]:
    last = max(len(line) - 1, 0) // records.PART_BYTES * records.PART_BYTES
    for begin in range(0, last + 1, records.PART_BYTES):
        yield b"F" if begin == last else b"P", line[begin : begin + records.PART_BYTES]


def prune(every: Sequence[Path], *, total_bytes: int, keep_runs: int = 100, living: Container[RunId]) -> None:
    """Keep the newest ``keep_runs`` runs of each ralph, and the newest ``total_bytes`` of all output (F5).

    ``every`` holds the directory of runs of each ralph. Deletes the oldest first over all of them. Never
    touches a living run's newest segment, a kept run's exit record, or the directory of a ralph's newest
    run, whose number the next run needs. Blocks while it deletes: call it in a thread.
    """
    total, removable = 0, list[tuple[float, int, Path]]()
    for runs in every:
        ids, latest = Runs(runs).ids(), 0.0
        newest = {*ids[-max(keep_runs, 1) :]}
        kept = [run_id for run_id in ids if run_id in newest or run_id in living]
        for run_id in ids:
            if run_id not in newest and run_id not in living:
                _remove_run(runs / run_id)
        for run_id in kept:
            files = RunFiles(runs / run_id)
            for number in (numbers := files.segments()):
                if (status := status_of(files.segment(number))) is None:
                    continue
                total += status.st_size
                # Clocks are set back: within a ralph, age follows the order of segments, not their times.
                latest = max(latest, status.st_mtime)
                if run_id not in living or number != numbers[-1]:
                    removable.append((latest, status.st_size, files.segment(number)))
    for _, size, path in sorted(removable, key=lambda each: each[0]):
        if total <= total_bytes:
            return
        total -= size
        path.unlink(missing_ok=True)


def _remove_run(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        return
    try:
        # The exit record last: a run without one would be taken for a lost one (S6).
        for entry in sorted(path.iterdir(), key=lambda each: each.name == "exit.json"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        path.rmdir()
    except OSError as error:
        logger.warning("an old run could not be removed: %s", error, extra={"run": path.name})
