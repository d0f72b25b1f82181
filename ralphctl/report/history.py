"""Read a ``history.jsonl`` from its end, as far back as needed, and the values in its entries.

The file may be a copy that an agent has changed: it is opened only if it is a regular file, read within
bounds, and any value in it may be missing or of another type.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from ralphd.core.text import strip_controls
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.plain_files import open_plain

HistoryEntry: TypeAlias = Mapping[str, Any]

SHORT: Final = 7
"""All abbreviations of commits have at least so many digits."""
SHA: Final = re.compile(r"[0-9a-f]{4,64}")

_BLOCK: Final = 1 << 18
_BATCH_LINES: Final = 40
"""Parse so few lines at once that their entries are still in the processor's cache when they are counted."""
_OLD_BLOCKS: Final = 2
"""Stop after so many old blocks in a row: a clock that was set back mixes old and new ones."""
_MOST_LINE_BYTES: Final = 1 << 20
_FAST_FROM_BYTES: Final = 4 << 20
_AT: Final = re.compile(rb'"at": ?"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z)"')
_FORM: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_OUTLASTING_KINDS: Final = ("run", "wait")
"""Kinds whose last entry before the span says what the span began with."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_LATEST: Final = 32_503_680_000.0  # 3000-01-01: every later step can still format what is before it
_RUN_FAILURES: Final = frozenset({"failed", "stalled", "timeout", "lost", "refused", "gave_up"})
_LINE_CHARS: Final = 400


@dataclass(slots=True)
class HistoryReader:
    """Reads a history file. ``torn`` and ``is_whole`` are final once ``entries`` is exhausted.

    ``torn`` counts lines that are not entries. ``is_whole``: nothing in the file is older than ``since``.
    """

    path: Path
    torn: int = 0
    is_whole: bool = True

    def entries(self, since: str) -> Iterator[dict[str, Any]]:
        """Yield the entries from ``since`` (RFC 3339, UTC) on, in the order of the file.

        The last end of a run and the last wait before ``since`` come first. A file that cannot be read has no
        entries.
        """
        try:
            file = open_plain(self.path)
        except OSError:
            return
        with file:
            start, size = _start(file, since.encode()), file.seek(0, os.SEEK_END)
            self.is_whole = start == 0
            parse, read = _parser(size - start), 0
            file.seek(start)
            lines = iter(partial(file.readline, _MOST_LINE_BYTES), b"")
            before: dict[str, dict[str, Any]] = {}
            while read < size - start and (batch := list(islice(lines, _BATCH_LINES))):
                read += sum(map(len, batch))
                for entry in self._parsed(batch, parse):
                    if isinstance(at := entry.get("at"), str) and at < since and _FORM.fullmatch(at):
                        self.is_whole = False
                        if (kind := entry.get("kind")) in _OUTLASTING_KINDS:
                            before[kind] = entry
                        continue
                    yield from before.values()
                    before.clear()
                    yield entry
            yield from before.values()

    def _parsed(self, lines: list[bytes], parse: Callable[[bytes], Any]) -> list[dict[str, Any]]:
        """Parse lines: all at once, which takes half the time, else one by one."""
        entries = _loaded(parse, b"[%b]" % b",".join(lines))
        if isinstance(entries, list) and len(entries) == len(lines) and set(map(type, entries)) == {dict}:
            return entries
        # json accepts what the fast parser rejects, such as an unpaired surrogate.
        values = [_loaded(json.loads, line) for line in lines if line.strip()]
        entries = [value for value in values if isinstance(value, dict)]
        self.torn += len(values) - len(entries)
        return entries


def _start(file: BinaryIO, since: bytes) -> int:
    """Return an offset before the first line from ``since`` on, as far as the clock was never set back."""
    start, old = file.seek(0, os.SEEK_END), 0
    while start > 0 and old < _OLD_BLOCKS:
        start = max(0, start - _BLOCK)
        file.seek(start)
        if start:
            file.readline(_MOST_LINE_BYTES)  # begins in the block before
        first = _AT.search(file.readline(_MOST_LINE_BYTES))
        old = old + 1 if first is not None and first[1] < since else 0
    if start:
        file.seek(start)
        start += len(file.readline(_MOST_LINE_BYTES))
    return start


def _parser(size: int) -> Callable[[bytes], Any]:
    if size < _FAST_FROM_BYTES:
        return json.loads
    from pydantic_core import from_json  # three times as fast, but slow to import

    # Values hardly ever repeat: a cache for them would cost more than it saves.
    return partial(from_json, cache_strings="keys")


def _loaded(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except (ValueError, RecursionError):
        return None


def failure_of(entry: HistoryEntry) -> str | None:
    """Return in which way an attempt or a run failed; None if it did not. Nothing else decides this."""
    outcome = entry.get("outcome")
    if entry.get("kind") == "run":
        return f"run {outcome}" if text(outcome) in _RUN_FAILURES else None
    kind = entry.get("failure_kind")
    return None if kind is None and outcome != "lost" else text(kind) or "lost"


def moment(value: Any) -> Moment | None:
    """Return seconds since the epoch for an RFC 3339 time; None for anything else."""
    try:
        at = (datetime.fromisoformat(value) - _EPOCH).total_seconds()
    except (TypeError, ValueError, OverflowError):  # TypeError: not a string, or without a time zone
        return None
    return at if 0.0 <= at <= _LATEST else None


def amount(value: Any) -> float | None:
    """Return a number of dollars or seconds, from 0 to 1e9; None for what is not a finite number."""
    if type(value) is float and 0.0 <= value <= 1e9:  # most are; min and max take longer
        return value
    is_finite = type(value) in (float, int) and abs(value) < 1e300
    return float(min(max(value, 0.0), 1e9)) if is_finite else None


def whole(value: object) -> int | None:
    """Return a whole number; None for anything else."""
    return value if type(value) is int else None


def text(value: object) -> str:
    """Return a string; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def commits(value: object) -> list[str]:
    """Return the commits in a list."""
    shas = value if isinstance(value, list) else ()
    return [sha for sha in shas if isinstance(sha, str) and SHA.fullmatch(sha)]


def last_lines(value: object, most: int) -> tuple[str, ...]:
    """Return the last visible lines of a text without terminal control sequences, each truncated."""
    shown = (strip_controls(line).rstrip() for line in text(value).splitlines())
    return tuple(line[:_LINE_CHARS] for line in shown if line)[-most:]
