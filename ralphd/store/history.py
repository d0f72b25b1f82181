"""The record of a ralph: ``history.jsonl``, ``progress.md`` made from it, and the evidence kept with runs.

``history.jsonl`` holds one JSON object per line, appended and synced; each fact is entered once, under its
key, although a daemon that died may report it again. It is rewritten only where it was damaged (F2).
"""

import errno
import json
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ralphd.core.explanation import Explanation, Sighting
from ralphd.core.record import PROGRESS_HEADER, progress_line
from ralphd.core.time import Moment, parse_rfc3339, rfc3339
from ralphd.diagnostics import reach
from ralphd.plain_files import append_whole, open_plain
from ralphd.store.files import Broken, as_json, read_json, set_aside, write_whole

logger = logging.getLogger(__name__)

RECENT_KEYS: Final = 1000
WAITING_LINES: Final = 1000
MOST_READ_BACK: Final = 100_000
MAX_PROGRESS_BYTES: Final = 1 << 20
"""A longer ``progress.md`` loses its older half."""
LOOKED_BACK: Final = 200
"""Among how many entries of the history missing lines of ``progress.md`` are searched."""
EVIDENCE_VERSION: Final = 1
EVIDENCE_FILE: Final = "evidence.json"
EXPLANATION_FILE: Final = "explanation.json"
MOST_PROCESSES: Final = 200
LONGEST_LINE: Final = 500
_BLOCK: Final = 1 << 16
_ATTEMPT_LINE: Final = re.compile(rb"- (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)([+-]\d\d:\d\d)? ")


class History:
    """Entries ``{kind, key, at, …}`` in the order in which they became known; a key is entered once.

    Only the last ``RECENT_KEYS`` keys are remembered, so a caller must not repeat older news. While the file
    cannot be written (a full disk, F3), up to ``WAITING_LINES`` entries wait in memory, ``degraded`` says
    why, and each further ``append`` or ``heal`` tries again. One caller at a time; every call blocks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[str, None] = {}
        self._waiting: deque[bytes] = deque()
        self.degraded: str | None = None
        for entry in reversed(self.newest(RECENT_KEYS)):
            self._remember(str(entry.get("key")))

    def append(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> bool:
        """Enter a fact, durably. Return False, and do nothing, if the key is there already."""
        if self.has(key):
            return False
        entry = {"kind": kind, "key": key, "at": rfc3339(at), **data}
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
        # A lone surrogate, which stands for a byte of a file name that is not UTF-8, becomes a JSON escape.
        self._waiting.append(line.encode(errors="backslashreplace") + b"\n")
        self._remember(key)
        self.heal()
        return True

    def heal(self) -> bool:
        """Write what waits. Return whether all of it was written."""
        try:
            while self._waiting:
                append_whole(self._path, self._waiting[0], durable=True)  # creates a file that was removed
                self._waiting.popleft()
                reach("history.appended")
        except OSError as error:
            if self.degraded is None:
                logger.warning("history cannot be written: %s: %s", self._path, error.strerror)
            self.degraded = f"{self._path}: {error.strerror}"
            while len(self._waiting) > WAITING_LINES:
                self._waiting.popleft()
                logger.error("history entry lost: %s", self._path)
            return False
        self.degraded = None
        return True

    def has(self, key: str) -> bool:
        """Return whether one of the last ``RECENT_KEYS`` entries has this key."""
        return key in self._keys

    def recall(self, run_ids: Iterable[str]) -> None:
        """Remember the runs whose end was entered, however long ago. Blocks, and may read the whole file."""
        if unknown := {*run_ids} - self._keys.keys():
            lines = (line for line in _last_lines(self._path) if b'"run"' in line)
            ended = (str(entry.get("key")) for entry in filter(None, map(_parsed, lines)))
            self._keys |= dict.fromkeys(unknown.intersection(ended))

    def backwards(self) -> Iterator[dict[str, Any]]:
        """Iterate over the entries, newest first; the file is read from its end, as far as needed.

        Lines that hold no entry, such as a torn one, are skipped.
        """
        yield from filter(None, map(_parsed, tuple(reversed(self._waiting))))
        yield from newest_first(self._path)

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """Return the last entries, newest first."""
        return list(islice(self.backwards(), limit))

    def _remember(self, key: str) -> None:
        self._keys[key] = None
        if len(self._keys) > RECENT_KEYS:
            del self._keys[next(iter(self._keys))]


def repair(path: Path) -> Path | None:
    """Leave only entries in the file. Return where the damaged one was set aside; None if it was whole.

    A link, a directory or another user's file is set aside unread. Raises OSError if the disk does not take
    a new file; then all is as it was.
    """
    from pydantic_core import from_json  # three times as fast, but slow to import; rejects what json accepts

    try:
        with open_plain(path) as file:
            if os.fstat(file.fileno()).st_uid not in (os.geteuid(), 0):
                raise OSError("another user's")
            if all(_parsed(line, from_json) or _parsed(line) is not None for line in file if line.strip()):
                return None
            file.seek(0)
            entries = b"".join(line.rstrip(b"\n") + b"\n" for line in file if _parsed(line))
    except FileNotFoundError:
        return None
    except OSError:
        entries = b""
    if (kept_as := set_aside(path)) is None:
        raise OSError(errno.EIO, f"{path} is broken and cannot be moved")
    try:
        write_whole(path, entries)
    except OSError:
        kept_as.rename(path)
        raise
    return kept_as


def _parsed(line: bytes, parse: Callable[[bytes], Any] = json.loads) -> dict[str, Any] | None:
    try:
        entry = parse(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def newest_first(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the entries of a history that somebody else writes, newest first."""
    return filter(None, map(_parsed, islice(_last_lines(path), MOST_READ_BACK)))


def _last_lines(path: Path) -> Iterator[bytes]:
    """Iterate over the lines of a file, the last first, reading backwards by blocks."""
    try:
        file = open_plain(path)  # a copy in a working directory may be anything
    except OSError:
        return
    with file:
        start = file.seek(0, os.SEEK_END)
        rest: list[bytes] = []  # of a line, the last part first: to join it for each block takes its square
        while start > 0:
            size, start = min(_BLOCK, start), max(0, start - _BLOCK)
            file.seek(start)
            first, *lines = file.read(size).split(b"\n")
            if lines:
                lines[-1], rest = lines[-1] + b"".join(reversed(rest)), []
                yield from filter(None, reversed(lines))
            rest.append(first)
        yield from filter(None, [b"".join(reversed(rest))])


class ProgressFile:
    """``progress.md``: the record for people, one line per attempt. ``newest`` returns entries, newest first.

    A daemon may have died between the two files, so the first ``follow`` compares the file with the history.
    One caller at a time; every call blocks. ``degraded``: the last write failed.
    """

    def __init__(self, path: Path, newest: Callable[[int], Sequence[Mapping[str, Any]]]) -> None:
        self._path, self._newest = path, newest
        self._is_behind = True
        self.degraded = False

    def follow(self, *, entered: bool = True) -> None:
        """Add the attempts that only the history holds; with ``entered``, its last entry is new.

        What a full disk does not take is added by the next call.
        """
        if not (entered or self._is_behind):
            return
        newest = self._newest(LOOKED_BACK if self._is_behind else 1)
        attempts = [entry for entry in reversed(newest) if entry.get("kind") == "attempt"]
        try:
            self._add([progress_line(entry).encode(errors="replace") for entry in attempts])
        except OSError as fault:
            if not self.degraded:
                logger.warning("%s cannot be written: %s", self._path, fault.strerror or fault)
            self._is_behind = self.degraded = True
        else:
            self._is_behind = self.degraded = False

    def _add(self, lines: list[bytes]) -> None:
        present = b""  # of anything but a plain file, which is replaced
        with suppress(OSError), open_plain(self._path) as file:
            present = file.read(2 * MAX_PROGRESS_BYTES)
        missing = b"".join(_missing(lines, present) if self._is_behind else lines)
        if not missing:
            return
        if present and len(present) + len(missing) <= MAX_PROGRESS_BYTES:
            with open_plain(self._path, os.O_WRONLY | os.O_APPEND) as file:
                file.write(missing if present.endswith(b"\n") else b"\n" + missing)
                file.flush()
                os.fsync(file.fileno())
            return
        header = PROGRESS_HEADER.encode()
        younger = present.removeprefix(header)
        if len(younger) >= MAX_PROGRESS_BYTES // 2:
            younger = younger[-(MAX_PROGRESS_BYTES // 2) :].partition(b"\n")[2]
        write_whole(self._path, header + younger + missing)


def _missing(lines: list[bytes], present: bytes) -> list[bytes]:
    # Compared by time, since an earlier version may have worded a line differently, and wrote UTC without an
    # offset. Of the attempts in the second of the last line, the file has the first ones.
    def time_of(line: bytes) -> Moment:
        if match := _ATTEMPT_LINE.match(line):
            with suppress(ValueError):
                return parse_rfc3339((match[1] + (match[2] or b"Z")).decode())
        return 0.0

    times = [time_of(line) for line in present.splitlines()[-LOOKED_BACK:]]
    last = max(times, default=0.0)
    same = [line for line in lines if time_of(line) == last]
    return [*same[times.count(last) :], *(line for line in lines if time_of(line) > last)]


def save_evidence(directory: Path, sighting: Sighting) -> None:
    """Keep what was seen of a hanging run with the run, or with an attempt. Raises OSError."""
    processes = [asdict(seen) for seen in sighting.processes[:MOST_PROCESSES]]
    lists = {"processes": processes, "last_lines": [line[:LONGEST_LINE] for line in sighting.last_lines]}
    _save(directory / EVIDENCE_FILE, sighting.at, asdict(sighting.explanation) | lists)


def save_explanation(run_directory: Path, at: Moment, explanation: Explanation) -> None:
    """Keep with a run why its end led to what was done; a full disk costs only that."""
    if run_directory.is_dir():
        with suppress(OSError):
            _save(run_directory / EXPLANATION_FILE, at, asdict(explanation))


def load_evidence(run_directory: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the explanation and the evidence of a run; None for what is missing or damaged."""
    return _load(run_directory / EXPLANATION_FILE), _load(run_directory / EVIDENCE_FILE)


def _save(path: Path, at: Moment, content: Mapping[str, Any]) -> None:
    write_whole(path, as_json({"version": EVIDENCE_VERSION, "at": rfc3339(at), **content}), durable=False)


def _load(path: Path) -> dict[str, Any] | None:
    with suppress(Broken, OSError):
        stored = read_json(path)
        if stored is not None and stored.pop("version", None) == EVIDENCE_VERSION:
            return stored
    return None
