"""The commands of ``ralphctl`` and its help page, printed without click: 40 ms instead of 100."""

import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralphctl.format.output import columns

_WIDEST, _NARROWEST = 80, 20
_PROGRAM = """Usage: ralphctl [OPTIONS] [COMMAND] [ARGS]...

  Run coding agents unattended: restart them, wait out limits, undo what
  breaks the tests.

    ralphctl start ~/project                  start the built-in loop there
    ralphctl start ~/project -- ./loop.sh     or a loop of your own
    ralphctl status                           show state and progress
    ralphctl attach                           watch it live
    ralphctl stop                             stop it and every process it started
"""
EXIT_CODES = (
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 no such ralph, 75 paused or try later, "
    "78 configuration, 124 --wait-timeout ran out, 130 interrupted."
)
OPTIONS = {
    "--version": "Print the version.",
    "-C DIR": "Run as if started in DIR.",
    "--socket PATH": "The daemon's socket.",
    "--json": "Output JSON.",
    "-h, --help": "Show this message and exit.",
}


class CommandEntry:
    """Where a command is loaded from (``module:name`` in ``ralphctl.commands``), and its line in the help.

    Commands with the same help text share a line.
    """

    def __init__(self, location: str, help: str, section: str = "Commands") -> None:
        self.location, self.help, self.section = location, help, section


_COMMANDS = tomllib.loads((Path(__file__).parent / "commands.toml").read_text())


def commands_of(group: str) -> dict[str, CommandEntry]:
    """Return the commands of ``ralphctl`` or of one of its groups, in the order of the help."""
    return {name: CommandEntry(*words) for name, words in _COMMANDS[group].items()}


TABLE = commands_of("ralphctl")


def page(width: int | None = None) -> str:
    """Return the help page, ``width`` columns wide (those of the terminal, 80 at most)."""
    width = max(_NARROWEST, min(_WIDEST, width or columns(sys.stdout) or _WIDEST))
    blocks = [_PROGRAM]
    for head, rows in (("Options", [*OPTIONS.items()]), *sections(TABLE).items()):
        blocks.append("\n".join([f"{head}:", *_two_columns(rows, width)]) + "\n")
    return "\n".join([*blocks, *(f"  {line}" for line in textwrap.wrap(EXIT_CODES, width - 2))])


def sections(table: Mapping[str, CommandEntry]) -> dict[str, list[tuple[str, str]]]:
    """Return the sections of a help page, each with the names of its commands and their help."""
    names: dict[str, dict[str, list[str]]] = {}
    for name, entry in table.items():
        names.setdefault(entry.section, {}).setdefault(entry.help, []).append(name)
    return {head: [(", ".join(those), help) for help, those in rows.items()] for head, rows in names.items()}


def _two_columns(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    first = max(len(name) for name, _ in rows) + 4
    for name, text in rows:
        if width - first < _NARROWEST:
            yield f"  {name}"
            yield from (f"    {line}" for line in textwrap.wrap(text, width - 4))
            continue
        head, *more = textwrap.wrap(text, width - first)
        yield f"  {name}".ljust(first) + head
        yield from (" " * first + line for line in more)
