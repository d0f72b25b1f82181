"""A ralph's log: all that its runs printed and the Regent said about them, read, followed and kept in bounds.

The shim writes it and needs nobody for that (P1). Whoever reads has no more than a place, the cursor; what
is written, rotated or deleted meanwhile is found out by looking. A follower costs no thread and, while
nothing is written, a few system calls 25 times a second, 5 times once the run has ended.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar, cast

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.process.log.merged import RunReader
from ralphd.process.log.positions import LIMIT_BYTES, Search, Start, find_start, last_lines
from ralphd.process.log.segments import (
    BLOCK_BYTES,
    PART_BYTES,
    REGENT_LOG,
    Cursor,
    Gap,
    LogQuery,
    LogRecord,
    LogText,
    RunFiles,
    Runs,
    Sieve,
    size_of,
    stored_time,
)

# What the daemon itself does to logs: its own lines about a run, and pruning what is over the limits.

logger = logging.getLogger(__name__)


def append_regent_line(run_directory: Path, at: Moment, text: str) -> None:
    """Append what the Regent says about a run to its log, a record for each line of ``text``.

    Lines about a run come before the next run prints: a follower that has moved on does not look back.
    A full disk or a removed directory is logged and otherwise passed over: the history is the record, this
    is for reading (F3).
    """
    records = b"".join(_records(at, text))
    try:
        _append(run_directory / REGENT_LOG, records)
    except OSError as error:
        logger.warning(
            "a line about a run could not be written: %s", error, extra={"run": run_directory.name}
        )


def _records(at: Moment, text: str) -> Iterator[bytes]:
    stamp = stored_time(at).encode()
    for line in text.splitlines() or [""]:
        whole = line.encode(errors="replace")
        last = max(len(whole) - 1, 0) // PART_BYTES * PART_BYTES
        for begin in range(0, last + 1, PART_BYTES):
            flag = b"F" if begin == last else b"P"
            yield b"%s regent %s %s\n" % (stamp, flag, whole[begin : begin + PART_BYTES])


def _append(path: Path, records: bytes) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            records = b"\n" + records  # an earlier daemon died within a line
        if os.write(fd, records) < len(records):
            os.ftruncate(fd, size)
            raise OSError(f"no room for {len(records)} bytes in {path}")
    finally:
        os.close(fd)


def prune(
    every: Sequence[Path], *, total_bytes: int, keep_runs: int = 100, living: Collection[RunId]
) -> None:
    """Keep the newest ``keep_runs`` runs of each ralph, and the newest ``total_bytes`` of all output (F5).

    ``every`` holds the directory of runs of each ralph. Goes oldest first over all of them. Never touches a
    living run's newest segment, a kept run's exit record, or a ralph's newest run's directory, whose number
    the next run needs. Blocks while it deletes: call it in a thread.
    """
    kept = {runs: _keep_newest(runs, keep_runs, living) for runs in every}
    excess = sum(_total(runs, ids) for runs, ids in kept.items()) - total_bytes
    if excess > 0:
        _remove_segments(
            [each for runs, ids in kept.items() for each in _removable(runs, ids, living)], excess
        )


def _keep_newest(runs: Path, count: int, living: Collection[RunId]) -> list[RunId]:
    ids = Runs(runs).ids()
    newest = ids[-max(count, 1) :]
    for run_id in ids:
        if run_id not in newest and run_id not in living:
            _remove_run(runs / run_id)
    return [run_id for run_id in ids if run_id in newest or run_id in living]


def _removable(
    runs: Path, kept: Collection[RunId], living: Collection[RunId]
) -> Iterator[tuple[float, Path]]:
    """A ralph's segments, oldest first, with their ages as moments that never go back: clocks are set."""
    latest = 0.0
    for run_id in kept:
        files = RunFiles(runs / run_id)
        segments = files.segments()
        for number in segments[:-1] if run_id in living else segments:
            path = files.segment(number)
            latest = max(latest, _written_at(path))
            yield latest, path


def _remove_segments(segments: list[tuple[float, Path]], excess: int) -> None:
    for _, path in sorted(segments, key=lambda each: each[0]):
        if excess <= 0:
            return
        excess -= size_of(path)
        path.unlink(missing_ok=True)


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _total(runs: Path, kept: Collection[RunId]) -> int:
    each = (RunFiles(runs / run_id) for run_id in kept)
    return sum(size_of(files.segment(number)) for files in each for number in files.segments())


def _remove_run(path: Path) -> None:
    """Remove a run's directory, the exit record last: a run without one would be taken for a lost one."""
    if path.is_symlink() or not path.is_dir():
        return
    try:
        for entry in sorted(path.iterdir(), key=lambda each: each.name == "exit.json"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        path.rmdir()
    except OSError as error:
        logger.warning("an old run could not be removed: %s", error, extra={"run": path.name})


_LOOK_S: Final = 0.025
_QUIET_LOOK_S: Final = 0.04  # a wake-up costs 0.1 ms of CPU: fewer of them, still within the 50 ms
_QUIET_AFTER_S: Final = 1.0
_IDLE_LOOK_S: Final = 0.2
_BATCH_RECORDS: Final = 1000
_LATE_S: Final = 1.0  # a line bears the time of its read and is written a little later

T = TypeVar("T")
Take: TypeAlias = Callable[[RunReader, Sieve], list[T] | None]


class RalphLog:
    """The log of one ralph: the runs below ``<state>/ralphs/NAME/runs`` (which need not exist yet)."""

    def __init__(self, runs: Path, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._path = runs
        self._block_bytes = block_bytes
        self._newest: tuple[RunId, RunFiles] | None = None  # kept, since a listing is good until it changes

    def read(self, query: LogQuery) -> Generator[LogRecord | Gap, None, None]:
        """What is there now and asked for, oldest first. Blocks while it reads; memory stays bounded."""
        return self._read(query, RunReader.batch)

    def read_text(self, query: LogQuery) -> Generator[LogText | LogRecord | Gap, None, None]:
        """The same, several times as fast: what the run printed comes as ``Text`` where that is possible."""
        return self._read(query, RunReader.text_batch)

    def follow(
        self, query: LogQuery, *, stopping: asyncio.Event
    ) -> AsyncGenerator[list[LogRecord | Gap], None]:
        """What ``read`` gives, in batches, and then what comes, until ``stopping`` or past ``until``.

        Goes on into later runs. A line is seen within 50 ms; the first one of a run that follows more than
        a second after the last has ended, within 250 ms. Close it (``aclose``) to let go of the file that
        is open.
        """
        return self._follow(query, RunReader.batch, stopping)

    def follow_text(
        self, query: LogQuery, *, stopping: asyncio.Event
    ) -> AsyncGenerator[list[LogText | LogRecord | Gap], None]:
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

    def _read(self, query: LogQuery, take: Take[T]) -> Generator[T, None, None]:
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
        self, query: LogQuery, take: Take[T], stopping: asyncio.Event
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
        query: LogQuery,
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
