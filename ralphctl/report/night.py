"""The night as a strip of cells per ralph, with its totals: read from the histories, without a daemon."""

import time
from collections.abc import Iterator, Sequence

from ralphctl.format.humanize import count, cut, duration, minute, wrapped
from ralphctl.format.output import DIM, clean, paint
from ralphctl.report import model, read, text
from ralphctl.report.strip import MOST_CELLS, drawn, legend
from ralphd import __version__, overview
from ralphd.core.time import rfc3339
from ralphd.dataclass import dataclass

_HOURS = (1, 2, 3, 4, 6, 12, 24)


@dataclass(frozen=True, slots=True)
class NightStrip:
    """One ralph's night: a word of ``strip.CELLS`` for each cell."""

    row: overview.Row
    cells: Sequence[str]
    summary: model.SpanSummary


def strips(sources: Sequence[model.ReportSource], since: float, until: float, width: int) -> list[NightStrip]:
    """Return the strips, those that need a person first, for a screen of ``width`` columns."""
    nights = [read.gathered(source, since, until, until)[1:] for source in sources]
    summaries = {id(view): summary for view, summary in nights}
    # As in the report, a name leaves room for the strip.
    names = min(max((len(each.name) for each in sources), default=0), max(width - MOST_CELLS - 2, width // 3))
    number = max(1, min(MOST_CELLS, width - names - 2))
    rows = [(row, summaries[id(row.view)]) for row in overview.rows(view for view, _ in nights)]
    return [NightStrip(row, summary.cells(since, until, number), summary) for row, summary in rows]


def page(
    strips: Sequence[NightStrip], since: float, until: float, width: int, *, encoding: str, colour: bool
) -> str:
    """Return the strips below each other, the hours, the legend, and the totals."""
    names, number = max(len(strip.row.name) for strip in strips), len(strips[0].cells)
    names = min(names, max(width - number - 2, 0))
    begin = time.strftime("%a %d %b %H:%M", time.localtime(since))
    head = f"{begin} to now, {minute(until, until)}; one cell is {duration((until - since) / number)}"
    lines = [paint(line, DIM, on=colour) for line in wrapped(head, width)]
    for strip in strips:
        line = drawn(strip.cells, encoding=encoding, colour=colour)
        lines.append(f"{cut(clean(strip.row.name), names).ljust(names)}  {line}".rstrip())
    lines.append(f"{'':{names}}  {_hours(since, until, number)}".rstrip())
    lines += [line.replace("\xa0", " ") for line in wrapped(legend(encoding=encoding), width)]
    return "\n".join([*lines, "", *(line for words in _totals(strips) for line in wrapped(words, width))])


def _hours(since: float, until: float, number: int) -> str:
    """Return the full hours below their cells, as many as have room."""
    cell_s, begin, line = (until - since) / number, time.localtime(since), [" "] * number
    step = next((step for step in _HOURS if step * 3600 / cell_s >= 4), _HOURS[-1])
    at = since + 3600 - begin.tm_min * 60 - begin.tm_sec
    while (i := int((at - since) / cell_s)) + 2 <= number:
        if time.localtime(at).tm_hour % step == 0:
            line[i : i + 2] = time.strftime("%H", time.localtime(at))
        at += 3600
    return "".join(line)


def _totals(strips: Sequence[NightStrip]) -> Iterator[str]:
    for strip in strips:
        done = " ({} of {} in all)".format(*strip.row.tasks) if strip.row.tasks else ""
        yield f"{clean(strip.row.name)}: {strip.row.word}, {figures([strip.summary], done)}"
    if len(strips) > 1:
        yield f"together: {figures([strip.summary for strip in strips])}"


def figures(summaries: Sequence[model.SpanSummary], done: str = "") -> str:
    """Return how many tasks are done, commits kept and reverted, and the cost."""
    sums = totals(summaries)
    cost = text.cost_words(sum((each.cost for each in summaries), model.ReportCost()), brief=True)
    tasks, kept = f"{count(sums['tasks'], 'task')} done{done}", f"{count(sums['kept'], 'commit')} kept"
    return ", ".join(filter(None, (tasks, kept, f"{sums['reverted']} reverted", cost)))


def totals(summaries: Sequence[model.SpanSummary]) -> dict[str, int]:
    """Return how many tasks are done, and how many commits are kept and reverted."""
    keys = {"tasks": "done", "kept": "kept", "reverted": "reverted"}
    return {word: sum(len(getattr(each, key)) for each in summaries) for word, key in keys.items()}


def span(since: float, until: float) -> dict[str, str]:
    """Return the bounds of a night for JSON."""
    return {"since": rfc3339(since), "until": rfc3339(until)}


def document(strips: Sequence[NightStrip], since: float, until: float) -> dict[str, object]:
    """Return what ``--json`` prints."""
    cells = [{"name": strip.row.name, "state": strip.row.word, "cells": strip.cells} for strip in strips]
    return {"version": __version__, "daemon": None, "night": span(since, until), "ralphs": cells}
