"""An explanation as a page: what happened, the rule, the figures, what was missing, what was done."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from ralphctl.format.gate_text import repair_words
from ralphctl.format.humanize import View, ago, clock, cut, duration, moment, objects, part
from ralphctl.format.output import BOLD, DIM, PLAIN_COLUMNS, clean, paint, wrapped_table

_LABEL = 10
_INDENT, _GAP = "  ", "  "
_HEADS = ("signal", "observed", "threshold")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_STALLS = frozenset({"H3", "H4", "H6"})
HANGS = _STALLS | {"L6"}
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


def kept_line(kept: View, name: str, now: float) -> str:
    """Return an explanation that is kept as one line: when, what, and the command that shows it."""
    which, at = clean(kept.get("which") or ""), moment(kept.get("at"))
    when = "?" if at is None else clock(at, now)
    command = f"ralphctl explain {name} {'--attempt' if ':' in which else '--run'} {which}"
    return f"{when}  {localised(clean(kept.get('title') or ''), now)}  ({command})"


def caller_words(by: View) -> str:
    """Return who sent a request: a process, or a device of the page."""
    if by.get("device") and not by.get("run_id"):  # a run could name any device
        return f'device "{clean(by["device"])}"'
    command, run = clean(by.get("command") or ""), clean(by.get("run_id") or "")
    who = f"pid {by.get('pid')}" + (f" ({command})" if command else "") + f", uid {by.get('uid')}"
    return who + (f", within run {run}" if run else "")


class _Page:
    def __init__(self, view: View, now: float, columns: int, colour: bool) -> None:
        self._view, self._now, self._columns, self._colour = view, now, columns, colour

    def lines(self, name: str, state: str) -> Iterator[str]:
        view, evidence = self._view, part(self._view, "evidence")
        yield from self._head(name + "  ", view)
        yield from self._labelled("run", self._run())
        yield from self._explained(view)
        yield from self._labelled("now", state)
        yield from self._labelled("request", self._request())
        if repair := part(view, "repair"):
            words, *ways = repair_words(repair)
            yield from self._labelled("repair", "; ".join((words, ago(repair.get("at"), self._now), *ways)))
        if silence := self._silence(evidence):
            yield from ("", *self._head("silence: ", silence), *self._explained(silence))
        if verdict := part(view, "verdict"):
            when = f", {ago(verdict.get('at'), self._now)}"
            yield from ("", *self._head("test guard: ", verdict, when), *self._explained(verdict))
        if evidence and not view.get("living") and view.get("rule") in _STALLS:
            yield from self._saved(evidence)

    def _head(self, name: str, view: View, when: str = "") -> Iterator[str]:
        text = f"{name}{self._text(view, 'title')}{when}"
        yield from (paint(line, BOLD, on=self._colour) for line in self._wrapped(text, "", "      "))

    def _run(self) -> str:
        if not self._view.get("run_id"):
            return ""
        ended = f"ended {ago(self._view['at'], self._now)}" if self._view.get("at") else "over"
        return f"{clean(self._view['run_id'])}, {'running' if self._view.get('living') else ended}"

    def _request(self) -> str:
        """Return the last request, and who sent it."""
        request, by = part(self._view, "request"), part(part(self._view, "request"), "by")
        action, when = clean(request.get("action")), ago(request.get("at"), self._now)
        return f"{action} by {caller_words(by)}, {when}" if by else ""

    def _silence(self, evidence: View) -> View:
        """Return the part about silence: the daemon's, or the saved one if only an earlier daemon knew it."""
        if silence := part(self._view, "silence"):
            return silence
        same = evidence.get("title") == self._view.get("title")
        is_shown = self._view.get("living") or same or self._view.get("rule") not in _STALLS
        return {} if is_shown else evidence

    def _explained(self, view: View) -> Iterator[str]:
        rule = clean(view.get("rule") or "")
        because = self._text(view, "because")
        yield from self._labelled("rule", f"{rule}: {because}" if rule else because)
        keys = ("name", "seen", "limit")
        if rows := [[self._text(each, key) for key in keys] for each in objects(view, "figures")]:
            rows = [[*_HEADS], *rows]
            widths = _fitted(rows, self._columns - len(_INDENT) - 2 * len(_GAP))
            yield from ("", *wrapped_table(rows, widths, colour=self._colour, indent=_INDENT), "")
        if isinstance(missing := view.get("missing"), list) and missing:
            yield from self._labelled("missing", clean(", ".join(map(str, missing))))
        yield from self._labelled("action", self._text(view, "done"))

    def _saved(self, evidence: View) -> Iterator[str]:
        at = moment(evidence.get("at"))
        when = "" if at is None else f", {clock(at, self._now)}"
        if processes := objects(evidence, "processes"):
            yield from ("", paint(f"processes before the kill{when}", BOLD, on=self._colour))
            yield from self._processes(processes)
        if isinstance(lines := evidence.get("last_lines"), list) and lines:
            yield from ("", paint("last lines of output", BOLD, on=self._colour))
            yield from (cut(f"{_INDENT}{clean(line)}", self._columns) for line in lines)

    def _processes(self, processes: Sequence[View]) -> Iterator[str]:
        shown = processes[:_MOST_PROCESSES]
        rows = [("PID", "PARENT", "STATE", "AGE", "CPU", "COMMAND"), *map(_process, shown)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for i, row in enumerate(rows):
            line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            yield paint(cut(_INDENT + line, self._columns), DIM, on=self._colour and i == 0)
        if len(processes) > len(shown):
            yield f"{_INDENT}… and {len(processes) - len(shown)} more: ralphctl explain --json"

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        if text:
            yield from self._wrapped(text, f"{_INDENT}{label:<{_LABEL}}", " " * (_LABEL + len(_INDENT)))

    def _wrapped(self, text: str, first: str, further: str) -> list[str]:
        return textwrap.TextWrapper(self._columns, first, further, break_on_hyphens=False).wrap(text)

    def _text(self, view: View, key: str) -> str:
        return localised(clean(view.get(key) or ""), self._now)


def _process(seen: View) -> tuple[str, ...]:
    pid, parent, state, command = (clean(seen.get(key, "?")) for key in ("pid", "parent", "state", "command"))
    age_s, cpu_s = seen.get("age_s"), seen.get("cpu_s")
    age = duration(age_s) if isinstance(age_s, int | float) else "?"
    cpu = f"{cpu_s:.2f}s" if isinstance(cpu_s, int | float) else "?"
    return pid, parent, state, age, cpu, command


def _fitted(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Shrink the widest columns until all fit into ``room``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths
