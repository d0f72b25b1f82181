"""What is printed besides the data: errors, messages, notices; colour, and text made safe for a terminal."""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

from ralphd.errors import RalphdError

TYPE_CHECKING = False  # typing would cost `status` its start-up time
if TYPE_CHECKING:
    from typing import Any, TextIO


QUIET_S = 1.0
"""A wait shorter than this prints no notice."""
PLAIN_COLUMNS = 80
"""The width of what does not go to a terminal."""

RED, YELLOW, GREEN, BLUE, ORANGE, DIM, BOLD = "31", "33", "32", "34", "38;5;208", "2", "1"

# Everything that moves a terminal instead of showing something: C0, DEL, C1, bidi and line controls. Others
# write the titles of tasks and the names of directories.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {
    code: f"^{chr(code + 64)}" if code < 0x20 else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in _CONTROLS
}
_SGR = re.compile(r"(\x1b\[[0-9;:]{0,64}m)")
_RESET = "\x1b[0m"


def prepare_streams() -> None:
    """Make stdin, stdout and stderr usable: whatever is closed (``>&-``) leads nowhere.

    The next file to be opened would get the free number, and with it what is printed. Characters that the
    encoding of stdout or stderr lacks are printed escaped.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def clean(value: object) -> str:
    """Return a value as text on one line, every control character made visible."""
    text = str(value)
    return text if text.isprintable() else text.translate(_VISIBLE)  # most is, and the test takes no time


def has_colour(stream: TextIO) -> bool:
    """Return whether to colour what goes to ``stream``: a terminal, not a dumb one, and no ``NO_COLOR``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO) -> int | None:
    """Return the width for ``stream``: ``COLUMNS``, else its terminal's; None if neither is known."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # no terminal, or no descriptor at all
        return None


def is_foreground(descriptor: int, *, otherwise: bool = False) -> bool:
    """Return whether we are in front on a terminal; ``otherwise`` if it does not control us."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return otherwise


def discard(stream: TextIO) -> None:
    """Lead what is written to ``stream`` nowhere: the interpreter flushes it once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def paint(text: str, colour: str, *, on: bool) -> str:
    """Return ``text`` in ``colour``, an SGR code, if ``on``."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on else text


def neutralise(text: str) -> str:
    """Return one line of an agent's output, without its newline, safe to print.

    Colours stay, and end with the line. Sequences that move the cursor, write the clipboard or make the
    terminal answer are shown instead.
    """
    text = text.removesuffix("\r")
    if text.isprintable():
        return text
    parts = _SGR.split(text)
    shown = "".join(
        part if i % 2 else "\t".join(clean(cell) for cell in part.split("\t")) for i, part in enumerate(parts)
    )
    return shown + _RESET if len(parts) > 1 else shown


def cells(text: str) -> int:
    """Return how many columns ``text`` takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(letter) or letter in "\u200d\ufe0f" else 2 if east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def padded(text: str, width: int) -> str:
    """Return ``text``, with spaces up to ``width`` columns."""
    return text + " " * (width - cells(text))


def wrap(text: str, width: int, **options: Any) -> list[str]:
    """Break ``text`` into lines of at most ``width`` columns, as ``textwrap.wrap`` does for characters."""
    wide = text if text.isascii() else "".join("\x03" * (cells(each) - 1) + each for each in text)
    lines = textwrap.wrap(wide, width, break_on_hyphens=False, **options)
    return [line.replace("\x03", "") for line in lines]


def wrapped_table(
    rows: Sequence[Sequence[str]], widths: Sequence[int], *, colour: bool, indent: str = ""
) -> Iterator[str]:
    """Yield the lines of a table, each cell wrapped in its column, the heads dimmed."""
    for i, row in enumerate(rows):
        columns = [
            [cell]
            if cells(cell) <= width and cell.isprintable()  # most are: a wrap takes 20 µs
            else wrap(cell, width) or [""]
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in itertools.zip_longest(*columns, fillvalue=""):
            line = "  ".join(padded(part, width) for part, width in zip(parts, widths, strict=True))
            yield paint(indent + line.rstrip(), DIM, on=colour and i == 0)


def fitted(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the widths of a table's columns for ``room`` columns; no word is cut."""
    texts = list(zip(*rows, strict=True))
    widths = [max(map(cells, column)) for column in texts]
    words = [[word for cell in column for word in cell.split() or [""]] for column in texts]
    # A line may end after any wide character, as after 日.
    least = [max(len(word) if cells(word) == len(word) else 2 for word in column) for column in words]
    while sum(widths) + 2 * (len(widths) - 1) > room and widths != least:
        slack = [width - low for width, low in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths


def table_here(rows: Sequence[Sequence[str]], otherwise: int = PLAIN_COLUMNS) -> str:
    """Return a table as wide as stdout, or as ``otherwise`` where that has no width."""
    widths = fitted(rows, columns(sys.stdout) or otherwise)
    return "\n".join(wrapped_table(rows, widths, colour=has_colour(sys.stdout)))


def error(fault: RalphdError) -> None:
    """Print an error on stderr: what, why, what to do."""
    head, *more = fault.what.splitlines() or [""]
    lines = [f"{paint('error:', RED, on=has_colour(sys.stderr))} {clean(head)}"]
    lines += [f"  {clean(line)}" for line in (*more, *fault.why.splitlines())]
    lines += [f"  try: {clean(line)}" for line in fault.mend.splitlines()]
    message("\n".join(lines))


def message(text: str) -> None:
    """Print one line on stderr: something to know that is not the data asked for."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a note of the daemon's on stderr."""
    message(f"{paint('note:', YELLOW, on=has_colour(sys.stderr))} {clean(text)}")


def slow_notice(what: str, limit_s: float) -> Callable[[], None] | None:
    """Return what prints ``waiting for WHAT; 10 s at most``; None unless stderr is a terminal."""
    return (lambda: message(f"waiting for {what}; {limit_s:g} s at most")) if sys.stderr.isatty() else None


class SlowNotice:
    """Prints the slow notice if the ``with`` block takes longer than a second."""

    def __init__(self, what: str, limit_s: float) -> None:
        from threading import Timer

        notice = slow_notice(what, limit_s)
        self._timer = Timer(QUIET_S, notice) if notice else None

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
