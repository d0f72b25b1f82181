"""The end of a run's output, read backwards from its newest segment: its price is not that of the whole log.

For what is judged by the last lines (the promise, E4) and for the evidence that is kept with a stall (H4).
"""

from collections.abc import Iterator
from typing import Final

from ralphd.process.output_files import RunFiles, size_of
from ralphd.process.output_records import BLOCK_BYTES, Line, parse
from ralphd.process.output_start import block_before

LIMIT_BYTES: Final = 1 << 20
"""How much of a log is looked at, unless told otherwise."""


def last_lines(
    files: RunFiles, count: int, *, stream: str | None, limit_bytes: int, block_bytes: int = BLOCK_BYTES
) -> list[str]:
    """The last ``count`` lines of ``stream``, or of both for None, oldest first, without their newlines.

    Parts of a long line are put together. A line that has no end yet, or never got one, counts as one. At
    most ``limit_bytes`` of the log, rounded up to whole blocks, are read: fewer lines come back, and the
    first of them without its beginning, where that is not enough.
    """
    tail = _Tail(count)
    for line in _backwards(files, limit_bytes, block_bytes):
        if line.at and stream in (None, line.stream) and not tail.takes(line):
            break
    return tail.lines()


def _backwards(files: RunFiles, limit_bytes: int, block_bytes: int) -> Iterator[Line]:
    """The records of a run, the last one first."""
    left = limit_bytes
    for number in reversed(files.segments()):
        path = files.segment(number)
        end = size_of(path)
        while end > 0:
            if left <= 0:
                return
            chunk = block_before(path, end, block_bytes)
            left -= end - chunk.start
            end = chunk.start
            yield from reversed(parse(chunk))


class _Tail:
    """Lines as they are put together from their last part to their first, the last line first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lines: list[list[bytes]] = []
        self._growing: dict[str, list[bytes]] = {}  # of each stream the line that earlier parts belong to

    def takes(self, line: Line) -> bool:
        """Take the record before those that were taken; False when no earlier one is needed."""
        parts = self._growing.get(line.stream)
        if line.partial and parts is not None:
            parts.append(line.text)
        elif len(self._lines) < self._count:
            self._growing[line.stream] = [line.text]
            self._lines.append(self._growing[line.stream])
        else:
            self._growing.pop(line.stream, None)
        return bool(self._growing)

    def lines(self) -> list[str]:
        """The lines, oldest first."""
        return [b"".join(reversed(parts)).decode(errors="replace") for parts in reversed(self._lines)]
