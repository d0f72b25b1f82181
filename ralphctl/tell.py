"""What is said beside the data: errors in three lines, messages on stderr, and whether colour is welcome."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from ralphd.errors import RalphdError

RED, YELLOW, GREEN, BLUE, ORANGE, DIM, BOLD = "31", "33", "32", "34", "38;5;208", "2", "1"

# Everything that moves a terminal instead of showing something: C0, DEL, C1, bidi and line controls. A task's
# title or a directory's name is somebody else's text.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE = {
    code: f"^{chr(code + 64)}" if code < 0x20 else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in _CONTROLS
}


def prepare_streams() -> None:
    """Let no text fail to print: what the terminal's encoding lacks is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def clean(text: str) -> str:
    """``text`` on one line, with every control character made visible (F6)."""
    return text.translate(_VISIBLE)


def has_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to ``stream``: a terminal, not a dumb one, and no ``NO_COLOR``."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: TextIO) -> int | None:
    """How wide what goes to ``stream`` may be: ``COLUMNS``, else its terminal's; None where nothing says."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # no terminal, or no descriptor at all
        return None


def paint(text: str, colour: str, *, on: bool) -> str:
    """``text`` in ``colour`` (an SGR code) when ``on``."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on else text


def error(fault: RalphdError) -> None:
    """Print an error on stderr: what, why, what to do."""
    _print_error(fault.what, fault.why, fault.mend)


def _print_error(what: str, why: str, mend: str) -> None:
    head, *more = what.splitlines() or [""]
    lines = [f"{paint('error:', RED, on=has_colour(sys.stderr))} {clean(head)}"]
    lines += [f"  {clean(line)}" for line in (*more, *why.splitlines())]
    lines += [f"  try: {clean(line)}" for line in mend.splitlines()]
    print("\n".join(lines), file=sys.stderr, flush=True)


def message(text: str) -> None:
    """Print one line on stderr: something to know that is not the data asked for."""
    print(text, file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a note of the daemon's on stderr."""
    message(f"{paint('note:', YELLOW, on=has_colour(sys.stderr))} {clean(text)}")
