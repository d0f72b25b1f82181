"""A ralph's log: read it, follow it, add the Regent's lines, and keep all logs within their limits (F4, F5).

The shim writes the output and needs nobody for that (P1). A reader owns nothing but its position, the cursor;
it finds out by polling what was written, rotated or deleted. A follower costs no thread, and while nothing is
written a few system calls 25 times a second, 5 times once the run has ended.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncGenerator, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, cast

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.process.log.positions import LIMIT_BYTES, find_start, last_lines
from ralphd.process.log.reader import Item, LogReader
from ralphd.process.log.records import BLOCK_BYTES, PART_BYTES, Gap, LogQuery, LogRecord, LogText, stored_time
from ralphd.process.log.segments import REGENT_LOG, RunFiles, Runs

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.025
_QUIET_POLL_S: Final = 0.04  # a wake-up costs 0.1 ms of CPU: fewer of them, still within the 50 ms
_QUIET_AFTER_S: Final = 1.0
_IDLE_POLL_S: Final = 0.2
_BATCH_RECORDS: Final = 1000


class RalphLog:
    """The log of one ralph: the runs below ``<state>/ralphs/NAME/runs`` (which need not exist yet)."""

    def __init__(self, runs: Path, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._path = runs
        self._block_bytes = block_bytes
        self._newest: tuple[RunId, RunFiles] | None = None  # kept: a listing is good until it changes

    def read(self, query: LogQuery) -> Generator[LogRecord | Gap, None, None]:
        """Yield what is there now and selected, oldest first. Blocks while it reads; memory is bounded."""
        return cast("Generator[LogRecord | Gap, None, None]", self._read(query, as_text=False))

    def read_text(self, query: LogQuery) -> Generator[Item, None, None]:
        """Do the same several times as fast: the run's output comes as ``LogText`` where that is possible."""
        return self._read(query, as_text=True)

    def follow(
        self, query: LogQuery, *, stopping: asyncio.Event
    ) -> AsyncGenerator[list[LogRecord | Gap], None]:
        """Yield what ``read`` gives, in batches, and then what comes, until ``stopping`` or past ``until``.

        Continues into later runs. A line is seen within 50 ms; the first one of a run that begins more than
        a second after the last line within 250 ms. Close it (``aclose``) to close the open file.
        """
        batches = self._follow(query, stopping, as_text=False)
        return cast("AsyncGenerator[list[LogRecord | Gap], None]", batches)

    def follow_text(
        self, query: LogQuery, *, stopping: asyncio.Event
    ) -> AsyncGenerator[list[LogText | LogRecord | Gap], None]:
        """Do the same with ``LogText`` as ``read_text`` yields it."""
        return self._follow(query, stopping, as_text=True)

    def last_output_at(self, run_id: RunId) -> Moment | None:
        """Return when the run last printed something; None if it has not, or nothing of it is kept."""
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
        """Return the last lines that a run printed to ``stream`` (None: stdout and stderr), oldest first.

        Blocks while it reads: at most ``limit_bytes`` from the end of the log, usually much less; where that
        is not enough, the earliest lines are cut or missing.
        """
        files = RunFiles(self._path / run_id)
        return last_lines(files, count, stream=stream, limit_bytes=limit_bytes, block_bytes=self._block_bytes)

    def _read(self, query: LogQuery, *, as_text: bool) -> Generator[Item, None, None]:
        runs = Runs(self._path)
        ids = runs.ids()
        if not ids:
            return
        limit = runs.files(ids[-1]).end(ids[-1])
        search = find_start(runs, query, self._block_bytes)
        while (start := next(search)) is None:
            pass
        reader = LogReader(runs, start, query, as_text=as_text, block_bytes=self._block_bytes, limit=limit)
        try:
            while (batch := reader.next()) is not None:
                yield from batch
        finally:
            reader.close()

    async def _follow(
        self, query: LogQuery, stopping: asyncio.Event, *, as_text: bool
    ) -> AsyncGenerator[list[Item], None]:
        runs = Runs(self._path)
        search = find_start(runs, query, self._block_bytes)
        while (start := next(search)) is None:
            await asyncio.sleep(0)
            if stopping.is_set():
                return
        reader = LogReader(runs, start, query, as_text=as_text, block_bytes=self._block_bytes)
        last_at = time.monotonic()
        try:
            while not stopping.is_set():
                batch = reader.next()
                if batch is None:
                    if reader.is_past():
                        return
                    await asyncio.sleep(_pause_s(time.monotonic() - last_at, reader))
                    continue
                for first in range(0, len(batch), _BATCH_RECORDS):
                    yield batch[first : first + _BATCH_RECORDS]
                last_at = time.monotonic()
                await asyncio.sleep(0)
        finally:
            reader.close()


def _pause_s(quiet_s: float, reader: LogReader) -> float:
    if quiet_s <= _QUIET_AFTER_S:
        return _POLL_S
    return _IDLE_POLL_S if reader.is_between_runs() else _QUIET_POLL_S


def append_regent_line(run_directory: Path, at: Moment, text: str) -> None:
    """Append the Regent's text about a run to its log, one record per line.

    Call it before the next run prints: a follower that has moved on does not look back. A full disk or a
    removed directory is logged and otherwise ignored: the history is the record, this is for reading (F3).
    """
    stamp = stored_time(at).encode()
    records = b"".join(
        b"%s regent %s %s\n" % (stamp, flag, part)
        for line in text.splitlines() or [""]
        for flag, part in _parts(line.encode(errors="replace"))
    )
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(run_directory / REGENT_LOG, flags, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                records = b"\n" + records  # an earlier daemon died within a line
            if os.write(fd, records) < len(records):
                os.ftruncate(fd, size)
                raise OSError(f"no room for {len(records)} bytes in {REGENT_LOG}")
        finally:
            os.close(fd)
    except OSError as error:
        logger.warning(
            "a line about a run could not be written: %s", error, extra={"run": run_directory.name}
        )


def _parts(line: bytes) -> Iterator[tuple[bytes, bytes]]:
    last = max(len(line) - 1, 0) // PART_BYTES * PART_BYTES
    for begin in range(0, last + 1, PART_BYTES):
        yield b"F" if begin == last else b"P", line[begin : begin + PART_BYTES]


def prune(
    every: Sequence[Path], *, total_bytes: int, keep_runs: int = 100, living: Collection[RunId]
) -> None:
    """Keep the newest ``keep_runs`` runs of each ralph, and the newest ``total_bytes`` of all output (F5).

    ``every`` holds the directory of runs of each ralph. Deletes the oldest first over all of them. Never
    touches a living run's newest segment, a kept run's exit record, or the directory of a ralph's newest
    run, whose number the next run needs. Blocks while it deletes: call it in a thread.
    """
    total, removable = 0, list[tuple[float, int, Path]]()
    for runs in every:
        latest = 0.0
        for run_id in _prune_runs(runs, keep_runs, living):
            files = RunFiles(runs / run_id)
            for number in (numbers := files.segments()):
                try:
                    status = files.segment(number).stat()
                except OSError:
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


def _prune_runs(runs: Path, count: int, living: Collection[RunId]) -> list[RunId]:
    ids = Runs(runs).ids()
    kept = [run_id for run_id in ids if run_id in ids[-max(count, 1) :] or run_id in living]
    for run_id in ids:
        if run_id not in kept:
            _remove_run(runs / run_id)
    return kept


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
