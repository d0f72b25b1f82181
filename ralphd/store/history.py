"""The record of a ralph, ``history.jsonl``: one JSON object a line, appended and synced.

It is rewritten only where it was broken, by ``mend``, and then the broken one is kept.
"""

import errno
import json
import logging
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from ralphd.core.explanation import Explanation, Sighting
from ralphd.core.record import PROGRESS_HEADER, progress_line
from ralphd.core.time import Moment, rfc3339
from ralphd.store.files import Broken, read_json, set_aside, write_whole

logger = logging.getLogger(__name__)

RECENT_KEYS = 1000
WAITING_LINES = 1000
MOST_READ_BACK = 100_000
_BLOCK = 1 << 16


class History:
    """Entries ``{kind, key, at, …}`` in the order in which they became known; a key is entered once.

    Only the last ``RECENT_KEYS`` keys are remembered, so a caller that tells old news again asks nothing
    older than that. While the file cannot be written (a full disk, F3) entries wait in memory, at most
    ``WAITING_LINES`` of them, ``degraded`` says why, and each further append or ``heal`` tries again. One
    caller at a time; every call blocks on the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: deque[str] = deque(maxlen=RECENT_KEYS)
        self._known: set[str] = set()
        self._waiting: deque[bytes] = deque()
        self.degraded: str | None = None
        for line in reversed(list(_last_lines(path, RECENT_KEYS))):
            if entry := _parsed(line):
                self._remember(str(entry.get("key")))

    def append(self, kind: str, key: str, at: Moment, data: Mapping[str, Any]) -> bool:
        """Enter a fact, durably. False, and nothing is done, when the key is there already."""
        if self.has(key):
            return False
        entry = {"kind": kind, "key": key, "at": rfc3339(at), **data}
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
        # A lone surrogate, which stands for a byte of a file name that is no UTF-8, becomes a JSON escape.
        self._waiting.append(line.encode(errors="backslashreplace") + b"\n")
        self._remember(key)
        self.heal()
        return True

    def heal(self) -> bool:
        """Write what waits; True when nothing waits any more."""
        try:
            while self._waiting:
                self._write(self._waiting[0])
                self._waiting.popleft()
        except OSError as error:
            self._degrade(error)
            return False
        self.degraded = None
        return True

    def has(self, key: str) -> bool:
        """Whether one of the last ``RECENT_KEYS`` entries has this key."""
        return key in self._known

    def entries(self) -> Iterator[dict[str, Any]]:
        """All entries, oldest first; lines that are none, such as a torn one, are passed over."""
        try:
            with self._path.open("rb") as file:
                yield from filter(None, map(_parsed, file))
        except FileNotFoundError:
            pass
        yield from filter(None, map(_parsed, tuple(self._waiting)))

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The last entries, newest first, read from the end of the file."""
        waiting = list(filter(None, map(_parsed, reversed(self._waiting))))[:limit]
        stored = filter(None, map(_parsed, _last_lines(self._path, limit)))
        return [*waiting, *stored][:limit]

    def backwards(self) -> Iterator[dict[str, Any]]:
        """The entries, newest first, read from the end of the file as far as they are asked for."""
        yield from filter(None, map(_parsed, tuple(reversed(self._waiting))))
        yield from filter(None, map(_parsed, _last_lines(self._path, MOST_READ_BACK)))

    def _remember(self, key: str) -> None:
        if len(self._keys) == RECENT_KEYS:
            self._known.discard(self._keys[0])
        self._keys.append(key)
        self._known.add(key)

    def _write(self, line: bytes) -> None:
        # Opened each time: the file may have been removed meanwhile, and is then made anew.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            end = os.lseek(fd, 0, os.SEEK_END)
            if end and os.pread(fd, 1, end - 1) != b"\n":
                line = b"\n" + line  # mends a line that was torn; it stays as it is, for whoever looks
            try:
                if os.write(fd, line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, end)
                raise
        finally:
            os.close(fd)

    def _degrade(self, error: OSError) -> None:
        if self.degraded is None:
            logger.warning("history cannot be written: %s: %s", self._path, error.strerror)
        self.degraded = f"{self._path}: {error.strerror}"
        while len(self._waiting) > WAITING_LINES:
            self._waiting.popleft()
            logger.error("history entry lost: %s", self._path)


def mend(path: Path) -> Path | None:
    """Have nothing but entries in the file; where the broken one was put, None when it was whole (F2).

    A link, a directory or somebody else's file is put aside as it is, unread. Raises OSError when the disk
    does not take a new one; then all is as it was.
    """
    try:
        with _own_file(path) as file:
            if not any(_is_broken(line) for line in file):
                return None
            file.seek(0)
            entries = b"".join(line.rstrip(b"\n") + b"\n" for line in file if _parsed(line))
    except FileNotFoundError:
        return None
    except ValueError:
        entries = b""
    if (kept_as := set_aside(path)) is None:
        raise OSError(errno.EIO, f"{path} is broken and cannot be moved")
    try:
        write_whole(path, entries)
    except OSError:
        kept_as.rename(path)
        raise
    return kept_as


def _own_file(path: Path) -> BinaryIO:
    """The file, opened. Raises FileNotFoundError, ValueError for what is no plain file of our own."""
    try:
        # O_NONBLOCK: a FIFO in place of the file must not hold us.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(error.strerror) from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
        os.close(fd)
        raise ValueError("no plain file of our own")
    return os.fdopen(fd, "rb")


def _is_broken(line: bytes) -> bool:
    return bool(line.strip()) and _parsed(line) is None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _last_lines(path: Path, count: int) -> Iterator[bytes]:
    """The last lines of a file, newest first, read backwards by blocks."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        start = file.seek(0, os.SEEK_END)
        rest = b""
        while start > 0 and count > 0:
            size = min(_BLOCK, start)
            start -= size
            file.seek(start)
            rest, *lines = (file.read(size) + rest).split(b"\n")
            for line in reversed(lines):
                if line and count > 0:
                    count -= 1
                    yield line
        if rest and count > 0:
            yield rest


# ``progress.md``: the record of a ralph for people, one line an attempt [000-T7].

MAX_BYTES = 1 << 20
"""A longer one loses its older half."""
LOOKED_BACK = 200
"""Entries of the history in which what was missed is looked for."""

_LINE = re.compile(rb"- (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ")
Newest = Callable[[int], Sequence[Mapping[str, Any]]]


class ProgressFile:
    """The lines of ``path``; ``newest`` tells the last entries of the history, newest first.

    One caller at a time; every call blocks on the disk. ``degraded``: it could not be written the last time.
    """

    def __init__(self, path: Path, newest: Newest) -> None:
        self._path = path
        self._newest = newest
        self._behind = True
        self.degraded = False

    def follow(self, *, entered: bool = True) -> None:
        """Add the attempts that the history holds and the file does not; with ``entered``, one is new there.

        On a full disk the next call does it.
        """
        if not (entered or self._behind):
            return
        count = LOOKED_BACK if self._behind else 1
        attempts = [entry for entry in reversed(self._newest(count)) if entry.get("kind") == "attempt"]
        try:
            if attempts:
                self._add([progress_line(entry).encode(errors="replace") for entry in attempts])
        except OSError as fault:
            if not self.degraded:
                logger.warning("%s cannot be written: %s", self._path, fault.strerror or fault)
            self._behind = self.degraded = True
        else:
            self._behind = self.degraded = False

    def _add(self, lines: list[bytes]) -> None:
        present = self._read()
        missing = b"".join(_missing(lines, present) if self._behind else lines)
        if not missing:
            return
        if not present or len(present) + len(missing) > MAX_BYTES:
            present = PROGRESS_HEADER.encode() + _younger_half(present)
            write_whole(self._path, present + missing)
        else:
            self._append(missing if present.endswith(b"\n") else b"\n" + missing)

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> bytes:
        """What is there; nothing where it is no plain file, which is then made anew."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            return file.read(2 * MAX_BYTES)


def _younger_half(data: bytes) -> bytes:
    """The lines in the second half of a file that is full, without its header; all of one that is not."""
    lines = data.removeprefix(PROGRESS_HEADER.encode())
    if len(lines) < MAX_BYTES // 2:
        return lines
    return lines[-(MAX_BYTES // 2) :].partition(b"\n")[2]


def _missing(lines: list[bytes], present: bytes) -> list[bytes]:
    """Those that are not there, by their times: an earlier version may have put them in other words.

    Of the second that the last one there is from, the first ones are there.
    """
    there = [_time(line) for line in present.splitlines()[-LOOKED_BACK:]]
    last = max(there, default=b"")
    later = [line for line in lines if _time(line) > last]
    then = [line for line in lines if _time(line) == last]
    return [*then[there.count(last) :], *later]


def _time(line: bytes) -> bytes:
    """When it was, as the line has it; nothing for other lines."""
    return found[1] if (found := _LINE.match(line)) else b""


# What is kept of why things were done to a run: ``explanation.json`` and ``evidence.json``.

EVIDENCE_VERSION = 1
EVIDENCE_FILE, EXPLANATION_FILE = "evidence.json", "explanation.json"
MOST_PROCESSES = 200
LONGEST_LINE = 500


def save(directory: Path, sighting: Sighting) -> None:
    """Keep the evidence with a run, or with an attempt. Raises OSError."""
    _write(
        directory / EVIDENCE_FILE,
        {
            "at": rfc3339(sighting.at),
            **asdict(sighting.explanation),
            "processes": [asdict(seen) for seen in sighting.processes[:MOST_PROCESSES]],
            "last_lines": [line[:LONGEST_LINE] for line in sighting.last_lines],
        },
    )


def save_explanation(run_directory: Path, at: Moment, explanation: Explanation) -> None:
    """Keep with a run why its end led to what it did; a full disk costs only that."""
    if run_directory.is_dir():
        with suppress(OSError):
            _write(run_directory / EXPLANATION_FILE, {"at": rfc3339(at), **asdict(explanation)})


def load(run_directory: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The explanation and the evidence that are kept with a run; None for what is missing or broken."""
    return _read(run_directory / EXPLANATION_FILE), _read(run_directory / EVIDENCE_FILE)


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"version": EVIDENCE_VERSION, **content}, indent=2, ensure_ascii=False)
    write_whole(path, text.encode(errors="replace") + b"\n", durable=False)


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(Broken, OSError):
        kept = read_json(path)
        if kept is not None and kept.pop("version", None) == EVIDENCE_VERSION:
            return kept
    return None
