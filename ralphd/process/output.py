"""A ralph's log: all that its runs printed and the Regent said about them, read, followed and kept in bounds.

The shim writes it and needs nobody for that (P1). Whoever reads has no more than a place, the cursor; what
is written, rotated or deleted meanwhile is found out by looking. A follower costs no thread and, while
nothing is written, a few system calls 25 times a second, 5 times once the run has ended.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar, cast

from ralphd.core.model import Moment, RunId
from ralphd.process.output_files import RunFiles, Runs
from ralphd.process.output_records import BLOCK_BYTES, Cursor, Gap, Query, Record, Sieve, Text
from ralphd.process.output_run import RunReader
from ralphd.process.output_start import Search, Start, find_start
from ralphd.process.output_tail import LIMIT_BYTES, last_lines
from ralphd.process.output_upkeep import append_regent_line, prune

__all__ = ["Cursor", "Gap", "Log", "Query", "Record", "Text", "append_regent_line", "prune"]

_LOOK_S: Final = 0.025
_QUIET_LOOK_S: Final = 0.04  # a wake-up costs 0.1 ms of CPU: fewer of them, still within the 50 ms
_QUIET_AFTER_S: Final = 1.0
_IDLE_LOOK_S: Final = 0.2
_BATCH_RECORDS: Final = 1000
_LATE_S: Final = 1.0  # a line bears the time of its read and is written a little later

T = TypeVar("T")
Take: TypeAlias = Callable[[RunReader, Sieve], list[T] | None]


class Log:
    """The log of one ralph: the runs below ``<state>/ralphs/NAME/runs`` (which need not exist yet)."""

    def __init__(self, runs: Path, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._path = runs
        self._block_bytes = block_bytes
        self._newest: tuple[RunId, RunFiles] | None = None  # kept, since a listing is good until it changes

    def read(self, query: Query) -> Generator[Record | Gap, None, None]:
        """What is there now and asked for, oldest first. Blocks while it reads; memory stays bounded."""
        return self._read(query, RunReader.batch)

    def read_text(self, query: Query) -> Generator[Text | Record | Gap, None, None]:
        """The same, several times as fast: what the run printed comes as ``Text`` where that is possible."""
        return self._read(query, RunReader.text_batch)

    def follow(self, query: Query, *, stopping: asyncio.Event) -> AsyncGenerator[list[Record | Gap], None]:
        """What ``read`` gives, in batches, and then what comes, until ``stopping`` or past ``until``.

        Goes on into later runs. A line is seen within 50 ms; the first one of a run that follows more than
        a second after the last has ended, within 250 ms. Close it (``aclose``) to let go of the file that
        is open.
        """
        return self._follow(query, RunReader.batch, stopping)

    def follow_text(
        self, query: Query, *, stopping: asyncio.Event
    ) -> AsyncGenerator[list[Text | Record | Gap], None]:
        """The same with ``Text`` as ``read_text`` gives it."""
        return self._follow(query, RunReader.text_batch, stopping)

    def last_output_at(self, run_id: RunId) -> Moment | None:
        """When the run last printed something; None when it has not, or nothing of it is kept."""
        if self._newest is None or self._newest[0] != run_id:
            self._newest = run_id, RunFiles(self._path / run_id)
        files = self._newest[1]
        for number in reversed(files.segments()):
            try:
                status = files.segment(number).stat()
            except FileNotFoundError:
                continue
            if status.st_size:
                return status.st_mtime
        return None

    def last_lines(
        self, run_id: RunId, count: int, *, stream: str | None = "stdout", limit_bytes: int = LIMIT_BYTES
    ) -> list[str]:
        """The last lines that a run printed to ``stream`` (None: stdout and stderr), oldest first.

        Long lines are whole. Blocks while it reads: at most ``limit_bytes`` from the end of the log,
        usually much less; where that is not enough, the earliest lines are cut or missing.
        """
        files = RunFiles(self._path / run_id)
        return last_lines(files, count, stream=stream, limit_bytes=limit_bytes, block_bytes=self._block_bytes)

    def _read(self, query: Query, take: Take[T]) -> Generator[T, None, None]:
        runs = Runs(self._path)
        ids = runs.ids()
        if not ids:
            return
        limit = runs.files(ids[-1]).end(ids[-1])
        search = find_start(runs, query, self._block_bytes)
        while (start := _step(search)) is None:
            pass
        walk = _Walk(runs, start, query, take, self._block_bytes, limit)
        try:
            while (batch := walk.next()) is not None:
                yield from batch
        finally:
            walk.close()

    async def _follow(
        self, query: Query, take: Take[T], stopping: asyncio.Event
    ) -> AsyncGenerator[list[T], None]:
        runs = Runs(self._path)
        search = find_start(runs, query, self._block_bytes)
        while (start := _step(search)) is None:
            await asyncio.sleep(0)
            if stopping.is_set():
                return
        walk = _Walk(runs, start, query, take, self._block_bytes)
        came_at = time.monotonic()
        try:
            while not stopping.is_set():
                batch = walk.next()
                if batch is None:
                    if walk.is_past():
                        return
                    await asyncio.sleep(_pause_s(time.monotonic() - came_at, walk))
                    continue
                for first in range(0, len(batch), _BATCH_RECORDS):
                    yield batch[first : first + _BATCH_RECORDS]
                came_at = time.monotonic()
                await asyncio.sleep(0)
        finally:
            walk.close()


def _step(search: Search) -> Start | None:
    """Look one block further; the answer once it is there."""
    try:
        next(search)
    except StopIteration as found:
        return cast(Start, found.value)
    return None


def _pause_s(quiet_s: float, walk: "_Walk[T]") -> float:
    """How long to wait before looking again, after ``quiet_s`` seconds in which nothing came."""
    if quiet_s <= _QUIET_AFTER_S:
        return _LOOK_S
    return _IDLE_LOOK_S if walk.is_between_runs() else _QUIET_LOOK_S


class _Walk(Generic[T]):
    """Goes from run to run and takes from each what it has. Up to ``limit``, or on and on."""

    def __init__(
        self,
        runs: Runs,
        start: Start,
        query: Query,
        take: Take[T],
        block_bytes: int,
        limit: Cursor | None = None,
    ) -> None:
        self._runs = runs
        self._start = start
        self._sieve = Sieve(query)
        self._until = query.until
        self._take = take
        self._block_bytes = block_bytes
        self._limit = limit
        self._reader: RunReader | None = None

    def close(self) -> None:
        """Let go of the file that is open."""
        if self._reader is not None:
            self._reader.close()

    def is_past(self) -> bool:
        """Whether all has been seen that can be asked for: the end of the asked time is over."""
        return self._until is not None and time.time() > self._until + _LATE_S

    def is_between_runs(self) -> bool:
        """Whether the run that is read has ended, or there is none yet: only a new one can say more."""
        runs = self._runs.ids()
        if self._reader is None or not runs:
            return not runs
        return runs[-1] == self._reader.run_id and self._reader.files.has_ended()

    def next(self) -> list[T] | None:
        """What comes next, possibly nothing that was asked for; None when there is nothing more now."""
        reader = self._reader or self._begin()
        if reader is None or self._sieve.is_past:
            return None
        following = self._following(reader)  # asked before reading: then nothing comes after
        reader.superseded = following is not None
        batch = self._take(reader, self._sieve)
        if batch is not None or following is None:
            return batch
        gap = f"run {reader.run_id} was removed while it was read" if reader.files.is_gone() else ""
        reader.close()
        self._open(Cursor.start_of(following), gap)
        return []

    def _following(self, reader: RunReader) -> RunId | None:
        if self._limit is not None:
            return self._runs.first_after(reader.run_id, last=self._limit.run_id)
        following = self._runs.first_after(reader.run_id)
        if following is None and reader.files.is_gone():
            return self._runs.first_after(None)  # forgotten and registered anew: counted from 1 again
        return following

    def _begin(self) -> RunReader | None:
        """Open the place to start from; where there was no run yet, the first one that has come since."""
        cursor = self._start.cursor
        if cursor is None:
            first = self._runs.first_after(None)
            cursor = None if first is None else Cursor.start_of(first)
        return self._open(cursor, self._start.gap) if cursor else None

    def _open(self, cursor: Cursor, gap: str) -> RunReader:
        limit = self._limit if self._limit and self._limit.run_id == cursor.run_id else None
        files = self._runs.files(cursor.run_id)
        self._reader = RunReader(files, cursor, block_bytes=self._block_bytes, limit=limit, gap=gap)
        return self._reader
