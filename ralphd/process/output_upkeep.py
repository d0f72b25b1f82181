"""What the daemon itself does to logs: its own lines about a run, and pruning what is over the limits."""

import logging
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ralphd.core.model import Moment, RunId
from ralphd.process.output_files import REGENT_LOG, RunFiles, Runs, size_of
from ralphd.process.output_records import PART_BYTES, stored_time

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
