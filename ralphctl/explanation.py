"""An explanation as a page: what happened, by which rule, what was seen, what was missing, what was done."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ralphctl.tell import BOLD, DIM, clean, paint
from ralphctl.words import ago, clock, duration, moment

View: TypeAlias = Mapping[str, Any]

PLAIN_COLUMNS = 80
_LABEL = 10
_INDENT, _GAP = "  ", "  "
_HEADS = ("looked at", "seen", "held against")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_STALLS = frozenset({"H3", "H4", "H6"})
_MOST_PROCESSES = 20


def localised(text: str, now: float) -> str:
    """``text`` with its moments in local time."""

    def local(found: re.Match[str]) -> str:
        at = moment(found[0])
        return found[0] if at is None else clock(at, now)

    return _MOMENT.sub(local, text)


def page(
    name: str, view: View, now: float, *, is_so: str = "", columns: int | None = None, colour: bool = False
) -> str:
    """What ``explain`` prints. ``view`` may hold anything: parts of it were read from files.

    ``is_so`` says how the ralph is by now: a person may have acted since.
    """
    return "\n".join(_Page(view, now, max(columns or PLAIN_COLUMNS, 40), colour).lines(name, is_so))


class _Page:
    def __init__(self, view: View, now: float, columns: int, colour: bool) -> None:
        self._view = view
        self._now = now
        self._columns = columns
        self._colour = colour

    def lines(self, name: str, is_so: str) -> Iterator[str]:
        view, evidence = self._view, _object(self._view.get("evidence"))
        yield from self._wrapped(f"{name}  {self._text(view, 'title')}", "", "      ", BOLD)
        yield from self._labelled("run", self._run())
        yield from self._explained(view)
        yield from self._labelled("now", is_so)
        if silence := self._silence(evidence):
            yield ""
            yield from self._wrapped(f"its silence: {self._text(silence, 'title')}", "", "      ", BOLD)
            yield from self._explained(silence)
        if verdict := _object(view.get("verdict")):
            yield ""
            when = ago(verdict.get("at"), self._now)
            head = f"the guard: {self._text(verdict, 'title')}, {when}"
            yield from self._wrapped(head, "", "      ", BOLD)
            yield from self._explained(verdict)
        if evidence and not view.get("living") and view.get("rule") in _STALLS:
            yield from self._saved(evidence)

    def _run(self) -> str:
        if not self._view.get("run_id"):
            return ""
        run = clean(str(self._view["run_id"]))
        return f"{run}, lives" if self._view.get("living") else f"{run}, {self._ended()}"

    def _ended(self) -> str:
        return f"ended {ago(self._view.get('at'), self._now)}" if self._view.get("at") else "over"

    def _silence(self, evidence: View) -> View:
        """The part about silence; what was saved stands for one that only an earlier daemon knew."""
        if silence := _object(self._view.get("silence")):
            return silence
        same = evidence.get("title") == self._view.get("title")
        told = self._view.get("living") or same or self._view.get("rule") not in _STALLS
        return {} if told else evidence

    def _explained(self, view: View) -> Iterator[str]:
        rule = clean(str(view.get("rule") or ""))
        because = self._text(view, "because")
        yield from self._labelled("rule", f"{rule}: {because}" if rule else because)
        if rows := [self._figure(each) for each in _objects(view.get("figures"))]:
            yield from ("", *self._table((_HEADS, *rows)), "")
        missing = view.get("missing")
        if isinstance(missing, list) and missing:
            yield from self._labelled("missing", clean(", ".join(map(str, missing))))
        yield from self._labelled("done", self._text(view, "done"))

    def _figure(self, figure: View) -> tuple[str, ...]:
        return tuple(self._text(figure, key) for key in ("name", "seen", "limit"))

    def _saved(self, evidence: View) -> Iterator[str]:
        at = moment(evidence.get("at"))
        when = "" if at is None else f", {clock(at, self._now)}"
        if processes := _objects(evidence.get("processes")):
            yield from ("", paint(f"its processes{when}", BOLD, on=self._colour))
            yield from self._processes(processes)
        lines = evidence.get("last_lines")
        if isinstance(lines, list) and lines:
            yield from ("", paint("the last lines that it printed", BOLD, on=self._colour))
            yield from (_cut(f"{_INDENT}{clean(str(line))}", self._columns) for line in lines)

    def _processes(self, processes: Sequence[View]) -> Iterator[str]:
        shown = processes[:_MOST_PROCESSES]
        rows = [("PID", "PARENT", "STATE", "AGE", "CPU", "COMMAND"), *map(_process, shown)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for i, row in enumerate(rows):
            line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            yield paint(_cut(_INDENT + line, self._columns), DIM, on=self._colour and i == 0)
        if len(processes) > len(shown):
            yield f"{_INDENT}… and {len(processes) - len(shown)} more: ralphctl explain --json"

    def _table(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        widths = _fitted(rows, self._columns - len(_INDENT) - 2 * len(_GAP))
        for i, row in enumerate(rows):
            cells = [
                textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
                for cell, width in zip(row, widths, strict=True)
            ]
            for j in range(max(map(len, cells))):
                parts = [
                    (cell[j] if j < len(cell) else "").ljust(width)
                    for cell, width in zip(cells, widths, strict=True)
                ]
                yield paint((_INDENT + _GAP.join(parts)).rstrip(), DIM, on=self._colour and i == 0)

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        if text:
            yield from self._wrapped(text, f"{_INDENT}{label:<{_LABEL}}", " " * (_LABEL + len(_INDENT)))

    def _wrapped(self, text: str, first: str, further: str, colour: str = "") -> Iterator[str]:
        lines = textwrap.wrap(
            text, self._columns, initial_indent=first, subsequent_indent=further, break_on_hyphens=False
        )
        yield from (paint(line, colour, on=self._colour and bool(colour)) for line in lines)

    def _text(self, view: View, key: str) -> str:
        return localised(clean(str(view.get(key) or "")), self._now)


def _object(value: object) -> View:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[View]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _process(seen: View) -> tuple[str, ...]:
    return (
        clean(str(seen.get("pid", "?"))),
        clean(str(seen.get("parent", "?"))),
        clean(str(seen.get("state", "?"))),
        _seconds(seen.get("age_s")),
        _seconds(seen.get("cpu_s"), exact=True),
        clean(str(seen.get("command", "?"))),
    )


def _seconds(value: object, *, exact: bool = False) -> str:
    if not isinstance(value, int | float):
        return "?"
    return f"{value:.2f}s" if exact else duration(value)


def _fitted(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The widths of columns that fit into ``room``: the widest give way."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else line[: columns - 1] + "…"
