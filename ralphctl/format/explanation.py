"""An explanation as a page: what happened, the rule, the figures, what was missing, what was done."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ralphctl.format.humanize import ago, clock, cut, duration, moment
from ralphctl.format.output import BOLD, DIM, PLAIN_COLUMNS, clean, paint, wrapped_row

View: TypeAlias = Mapping[str, Any]

_LABEL = 10
_INDENT, _GAP = "  ", "  "
_HEADS = ("looked at", "seen", "held against")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_STALLS = frozenset({"H3", "H4", "H6"})
_MOST_PROCESSES = 20


def localised(text: str, now: float) -> str:
    """Return ``text`` with its moments in local time."""

    def local(found: re.Match[str]) -> str:
        at = moment(found[0])
        return found[0] if at is None else clock(at, now)

    return _MOMENT.sub(local, text)


def page(
    name: str, view: View, now: float, *, state: str = "", columns: int | None = None, colour: bool = False
) -> str:
    """Return what ``explain`` prints. ``view`` may hold anything: parts of it were read from files.

    ``state`` is the present state: a person may have acted since.
    """
    return "\n".join(_Page(view, now, max(columns or PLAIN_COLUMNS, 40), colour).lines(name, state))


class _Page:
    def __init__(self, view: View, now: float, columns: int, colour: bool) -> None:
        self._view = view
        self._now = now
        self._columns = columns
        self._colour = colour

    def lines(self, name: str, state: str) -> Iterator[str]:
        view, evidence = self._view, _object(self._view.get("evidence"))
        yield from self._wrapped(f"{name}  {self._text(view, 'title')}", "", "      ", BOLD)
        yield from self._labelled("run", self._run())
        yield from self._explained(view)
        yield from self._labelled("now", state)
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
        state = "lives" if self._view.get("living") else "over"
        if state == "over" and self._view.get("at"):
            state = f"ended {ago(self._view['at'], self._now)}"
        return f"{clean(str(self._view['run_id']))}, {state}"

    def _silence(self, evidence: View) -> View:
        """Return the part about silence: the daemon's, or the saved one if only an earlier daemon knew it."""
        if silence := _object(self._view.get("silence")):
            return silence
        same = evidence.get("title") == self._view.get("title")
        is_shown = self._view.get("living") or same or self._view.get("rule") not in _STALLS
        return {} if is_shown else evidence

    def _explained(self, view: View) -> Iterator[str]:
        rule = clean(str(view.get("rule") or ""))
        because = self._text(view, "because")
        yield from self._labelled("rule", f"{rule}: {because}" if rule else because)
        keys = ("name", "seen", "limit")
        if rows := [[self._text(each, key) for key in keys] for each in _objects(view.get("figures"))]:
            yield from ("", *self._table((_HEADS, *rows)), "")
        missing = view.get("missing")
        if isinstance(missing, list) and missing:
            yield from self._labelled("missing", clean(", ".join(map(str, missing))))
        yield from self._labelled("done", self._text(view, "done"))

    def _saved(self, evidence: View) -> Iterator[str]:
        at = moment(evidence.get("at"))
        when = "" if at is None else f", {clock(at, self._now)}"
        if processes := _objects(evidence.get("processes")):
            yield from ("", paint(f"its processes{when}", BOLD, on=self._colour))
            yield from self._processes(processes)
        lines = evidence.get("last_lines")
        if isinstance(lines, list) and lines:
            yield from ("", paint("the last lines that it printed", BOLD, on=self._colour))
            yield from (cut(f"{_INDENT}{clean(str(line))}", self._columns) for line in lines)

    def _processes(self, processes: Sequence[View]) -> Iterator[str]:
        shown = processes[:_MOST_PROCESSES]
        rows = [("PID", "PARENT", "STATE", "AGE", "CPU", "COMMAND"), *map(_process, shown)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for i, row in enumerate(rows):
            line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            yield paint(cut(_INDENT + line, self._columns), DIM, on=self._colour and i == 0)
        if len(processes) > len(shown):
            yield f"{_INDENT}… and {len(processes) - len(shown)} more: ralphctl explain --json"

    def _table(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        widths = _fitted(rows, self._columns - len(_INDENT) - 2 * len(_GAP))
        for i, row in enumerate(rows):
            for line in wrapped_row(row, widths, _GAP):
                yield paint(_INDENT + line, DIM, on=self._colour and i == 0)

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
    """Shrink the widest columns until all fit into ``room``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths
