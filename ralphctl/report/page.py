"""A report as a page of rows and sections, rendered for a terminal or as Markdown.

Text between two ``CODE`` marks is a command to type. Any other text may come from elsewhere: it has been
cleaned, so it contains neither marks nor other control characters.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ralphctl.format.humanize import cut
from ralphctl.format.output import BOLD, DIM, PLAIN_COLUMNS, cells, padded, paint, wrap
from ralphctl.report import strip

CODE = "\x01"
_LABEL = 12
_LEAST_COLUMNS = 20
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&$!])")
_LIST = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s|$)")


def typed(command: str) -> str:
    """Mark a command that can be typed."""
    return f"{CODE}{command}{CODE}"


class PageItem(NamedTuple):
    """One thing in a section; ``quoted`` are lines that a program printed, ``more`` are details."""

    text: str
    quoted: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


class PageSection(NamedTuple):
    """A part of the page. ``rows`` are a table: the first column aligned left, numbers right."""

    title: str
    items: tuple[PageItem, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    end: str = ""


class PageStrip(NamedTuple):
    """A labelled strip; ``cells`` returns a given number of them."""

    label: str
    cells: Callable[[int], Sequence[str]]


class ReportPage(NamedTuple):
    """A name with its state, labelled rows of what matters most, strips, and sections."""

    name: str
    state: str
    rows: tuple[tuple[str, str], ...]
    sections: tuple[PageSection, ...]
    strips: tuple[PageStrip, ...] = ()


def plain_text(
    page: ReportPage, *, columns: int | None = None, colour: bool = False, encoding: str = "utf-8"
) -> str:
    """Return the page for a terminal, at most ``columns`` wide. The strips are as its encoding has them."""
    width = max(columns or PLAIN_COLUMNS, _LEAST_COLUMNS)
    lines = _wrapped(f"{page.name}  {page.state}", width, "", "  ")
    lines[0] = lines[0].replace(page.name, paint(page.name, BOLD, on=colour), 1)
    for label, words in page.rows:
        first, *more = _wrapped(words, width - _LABEL - 3, "", "") or [""]
        lines.append(f"  {paint(label.ljust(_LABEL), DIM, on=colour)} {first}")
        lines += [f"{'':{_LABEL + 3}}{line}" for line in more]
    lines += _strips(page.strips, width, colour=colour, encoding=encoding)
    for section in page.sections:
        title = [paint(line, BOLD, on=colour) for line in _wrapped(section.title, width, "", "  ")]
        lines += ["", *title]
        for item in section.items:
            lines += _wrapped(item.text, width, "  ", "      ")
            lines += [paint(cut(f"      | {line}", width), DIM, on=colour) for line in item.quoted]
            for line in item.more:
                lines += _wrapped(line, width, "      ", "        ")
        lines += _table(section.rows, width)
        lines += _wrapped(section.end, width, "  ", "    ")
    return "\n".join(lines).replace(CODE, "")


def _strips(strips: Sequence[PageStrip], width: int, *, colour: bool, encoding: str) -> Iterator[str]:
    if not strips:
        return
    wide = min(max(len(each.label) for each in strips), max(width - strip.MOST_CELLS - 3, width // 3))
    wide = max(wide, min(_LABEL, width // 3))
    number = min(width - wide - 3, strip.MOST_CELLS)
    for label, states in strips:
        line = strip.drawn(states(number), encoding=encoding, colour=colour)
        yield f"  {paint(padded(cut(label, wide), wide), DIM, on=colour)} {line}".rstrip()
    for line in _wrapped(strip.legend(encoding=encoding), width, " " * (wide + 3), " " * (wide + 3)):
        yield paint(line.replace("\xa0", " "), DIM, on=colour)


def _table(rows: Sequence[tuple[str, ...]], width: int) -> Iterator[str]:
    if not rows:
        return
    *widths, _ = (max(map(cells, column)) for column in zip(*rows, strict=True))
    widths[0] = max(min(widths[0], width - sum(widths[1:]) - 24), 10)
    for first, *others, last in rows:
        figures = [cell.rjust(wide) for cell, wide in zip(others, widths[1:], strict=True)]
        line = "  ".join((padded(cut(first, widths[0]), widths[0]), *figures))
        yield from _wrapped(f"{line}  {last}".rstrip(), width, "  ", " " * min(len(line) + 4, width // 2))


def _wrapped(text: str, width: int, first: str, further: str) -> list[str]:
    """Break ``text`` at spaces, but not inside a command if that fits. The marks take no room."""
    joined = re.sub(f"{CODE}[^{CODE}]*{CODE}", lambda command: command[0].replace(" ", "\x02"), text)
    options = {"initial_indent": first, "subsequent_indent": further, "replace_whitespace": False}
    return [line.replace("\x02", " ") for line in wrap(joined.replace(CODE, ""), width, **options)]


def markdown(page: ReportPage) -> str:
    """Return the page as Markdown, to be pasted."""
    lines = [f"## {_escaped(page.name)}: {_escaped(page.state)}", ""]
    for label, words in page.rows:
        lines.append(f"- **{label}**: {_escaped(words)}" if label else f"  {_escaped(words)}")
    for label, states in page.strips:
        lines.append(f"- **{_escaped(label)}**: `{strip.drawn(states(strip.MOST_CELLS))}`")
    for section in page.sections:
        lines += ["", f"### {section.title}", ""]
        for item in section.items:
            lines.append(f"- {_escaped(item.text)}")
            if item.quoted:
                lines += ["", *(f"      {line}" for line in item.quoted), ""]
            lines += [f"  - {_escaped(line)}" for line in item.more]
        if section.rows:
            columns = len(section.rows[0])
            lines += [f"| {' | '.join([''] * columns)} |", f"| {' | '.join(['---'] * columns)} |"]
            lines += [f"| {' | '.join(map(_escaped, row))} |" for row in section.rows]
        if section.end:
            lines += ["", _escaped(section.end)]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Escape what Markdown would take for markup; commands become code."""
    parts = text.split(CODE)
    for i, part in enumerate(parts):
        if i % 2:
            fence = "`" * (max((len(ticks) for ticks in re.findall("`+", part)), default=0) + 1)
            parts[i] = f"{fence}{part}{fence}"
        else:
            parts[i] = _LIST.sub(r"\1\\\2", _MARKS.sub(r"\\\1", part))
    return "".join(parts)
