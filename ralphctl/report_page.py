"""A report as a page: rows and sections, to text for a terminal or to Markdown.

What is between two ``CODE`` marks is to be typed as it stands. All other text may be somebody else's: it has
been cleaned, so that it holds no mark and no other control character.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ralphctl.tell import BOLD, DIM, paint

CODE = "\x01"
PLAIN_COLUMNS = 80
_LABEL = 12
_NARROW = 40
_LEAST_COLUMNS = 20
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&$!])")
_LIST = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s|$)")


def typed(command: str) -> str:
    """A command that can be typed."""
    return f"{CODE}{command}{CODE}"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing in a section; ``quoted`` are lines that a program printed, ``more`` what belongs to it."""

    text: str
    quoted: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page. Its ``rows`` are a table of equal columns, numbers to the right."""

    title: str
    items: tuple[Item, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    end: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One ralph's report: a name with its state, rows of what matters most, and sections."""

    name: str
    state: str
    rows: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    state_colour: str = ""


def text(page: Page, *, columns: int | None = None, colour: bool = False) -> str:
    """The page for a terminal, at most ``columns`` wide."""
    width = max(columns or PLAIN_COLUMNS, _LEAST_COLUMNS)
    lines = list(_wrapped(f"{page.name}  {page.state}", width, "", "  "))
    lines[0] = lines[0].replace(page.name, paint(page.name, BOLD, on=colour), 1)
    for label, said in page.rows:
        lines += _labelled(label, said, width, colour=colour)
    for section in page.sections:
        title = (paint(line, BOLD, on=colour) for line in _wrapped(section.title, width, "", "  "))
        lines += ("", *title, *_section(section, width, colour=colour))
    return "\n".join(lines).replace(CODE, "")


def _labelled(label: str, said: str, width: int, *, colour: bool) -> Iterator[str]:
    if width < _NARROW:
        yield from _wrapped(f"{label}: {said}" if label else said, width, "  ", "    ")
        return
    first, *more = list(_wrapped(said, width - _LABEL - 3, "", "")) or [""]
    yield f"  {paint(label.ljust(_LABEL), DIM, on=colour)} {first}"
    yield from (f"{'':{_LABEL + 3}}{line}" for line in more)


def _section(section: Section, width: int, *, colour: bool) -> Iterator[str]:
    for item in section.items:
        yield from _wrapped(item.text, width, "  ", "      ")
        yield from (paint(_cut(f"      | {line}", width), DIM, on=colour) for line in item.quoted)
        for line in item.more:
            yield from _wrapped(line, width, "      ", "        ")
    yield from _table(section.rows, width)
    if section.end:
        yield from _wrapped(section.end, width, "  ", "    ")


def _table(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    if not rows:
        return
    *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    widths[0] = max(min(widths[0], width - sum(widths[1:]) - 24), 10)
    for first, *cells, last in rows:
        padded = [_cut(first, widths[0]).ljust(widths[0])]
        padded += [cell.rjust(wide) for cell, wide in zip(cells, widths[1:], strict=True)]
        line = "  ".join(padded)
        yield from _wrapped(f"{line}  {last}".rstrip(), width, "  ", " " * min(len(line) + 4, width // 2))


def _wrapped(said: str, width: int, first: str, further: str) -> Iterator[str]:
    """Lines of at most ``width``; the marks take no room, and a command is not broken where it fits."""
    joined = re.sub(f"{CODE}[^{CODE}]*{CODE}", lambda found: found[0].replace(" ", "\x02"), said)
    inside = joined.replace(CODE, "")
    lines = textwrap.wrap(
        inside,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
    return (line.replace("\x02", " ") for line in lines)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def markdown(page: Page) -> str:
    """The page as Markdown, to be pasted."""
    lines = [f"## {_escaped(page.name)}: {_escaped(page.state)}", ""]
    lines += [
        f"- **{label}**: {_escaped(said)}" if label else f"  {_escaped(said)}" for label, said in page.rows
    ]
    for section in page.sections:
        lines += ("", f"### {section.title}", "", *_marked(section))
    return "\n".join(lines)


def _marked(section: Section) -> Iterator[str]:
    for item in section.items:
        yield f"- {_escaped(item.text)}"
        if item.quoted:
            yield from ("", *(f"      {line}" for line in item.quoted), "")
        yield from (f"  - {_escaped(line)}" for line in item.more)
    if section.rows:
        head = " | ".join("" for _ in section.rows[0])
        yield f"| {head} |"
        yield f"| {' | '.join('---' for _ in section.rows[0])} |"
        yield from (f"| {' | '.join(map(_escaped, row))} |" for row in section.rows)
    if section.end:
        yield from ("", _escaped(section.end))


def _escaped(said: str) -> str:
    """``said`` with nothing in it that Markdown would take for a mark; commands as code."""
    parts = said.split(CODE)
    for i, part in enumerate(parts):
        parts[i] = _code(part) if i % 2 else _LIST.sub(r"\1\\\2", _MARKS.sub(r"\\\1", part))
    return "".join(parts)


def _code(command: str) -> str:
    fence = "`" * (max((len(ticks) for ticks in re.findall("`+", command)), default=0) + 1)
    return f"{fence}{command}{fence}"
