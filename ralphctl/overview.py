"""``ralphctl --help``, told before click is imported: 40 ms instead of 100."""

from __future__ import annotations

import sys

from ralphctl.entry import Entry, options
from ralphctl.tell import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ASKED: Sequence[list[str]] = ([], ["--help"], ["-h"])
"""The words that ask for nothing but this page."""
_WIDEST, _NARROWEST = 80, 20
_PROGRAM = """Usage: ralphctl [OPTIONS] [COMMAND] [ARGS]...

  Keep coding-agent loops running, and honest.

    ralphctl start ~/project                  supervise Ralph there: the built-in loop
    ralphctl start ~/project -- ./loop.sh     or a loop of your own
    ralphctl status                           see how it is
    ralphctl logs -f                          watch it
    ralphctl stop                             end it, and all it started
"""
EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 no such ralph, 75 paused or try later, "
    "78 configuration, 124 --wait-timeout ran out, 130 interrupted."
)


def text(table: Mapping[str, Entry], width: int | None = None) -> str:
    """The page for the commands of ``table``, ``width`` columns wide (those of the terminal, 80 at most)."""
    width = max(_NARROWEST, min(_WIDEST, width or columns(sys.stdout) or _WIDEST))
    sections: dict[str, list[tuple[str, str]]] = {"Options": list(options())}
    for name, entry in table.items():
        if not entry.hidden:
            sections.setdefault(entry.section, []).append((name, entry.help))
    blocks = [_PROGRAM]
    blocks += ["\n".join([f"{head}:", *_rows(rows, width)]) + "\n" for head, rows in sections.items()]
    return "\n".join([*blocks, *(f"  {line}" for line in _lines(EXIT_CODES, width - 2))])


def _rows(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Two columns; what is too long for the second one goes on below it."""
    first = max(len(name) for name, _ in rows) + 4
    for name, told in rows:
        if width - first < _NARROWEST:
            yield f"  {name}"
            yield from (f"    {line}" for line in _lines(told, width - 4))
            continue
        head, *more = _lines(told, width - first)
        yield f"  {name}".ljust(first) + head
        yield from (" " * first + line for line in more)


def _lines(told: str, width: int) -> Iterator[str]:
    """Words in lines; ``textwrap`` would cost as much as all the rest."""
    line = ""
    for word in told.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
