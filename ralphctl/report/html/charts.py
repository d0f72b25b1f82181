"""The drawings of the report as HTML: the strip of a night, and the cost over time with its budget."""

import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Final

from ralphctl.format.humanize import minute, usd_words
from ralphctl.format.output import clean
from ralphctl.report.model import MICRO
from ralphctl.report.strip import CELLS, DRAWN
from ralphd.core.time import Moment

_WIDE: Final = 640
_TOPS: Final = {"working": 2, "waiting": 8, "limited": 12}
"""Where the bar of a state begins: it can be told apart without its colour. Others fill their cell."""
_MARKS: Final = ("testing", "reverted", "failed")
_HOURS: Final = (1, 2, 3, 4, 6, 12, 24, 168)
_TALL: Final = 160


def escaped(value: object) -> str:
    """Return any value as text of the page, on one line, its control characters visible."""
    return escape(clean(value))


def strip(name: str, cells: Sequence[str], since: Moment, until: Moment) -> str:
    """Return a strip with its hours. The title of each bar has its state and its times."""
    wide, cell_s = _WIDE / len(cells), (until - since) / len(cells)
    parts, first, shown = [], 0, dict[str, int]()
    for state, group in groupby(cells):
        number = len(list(group))
        begin, end = (minute(since + i * cell_s, until) for i in (first, first + number))
        if state != "stopped":
            shown[state] = shown.get(state, 0) + number
            top, x = _TOPS.get(state, 0), first * wide
            bar = f'x="{x:g}" y="{top}" width="{number * wide:g}" height="{24 - top}"'
            parts.append(f'<rect class="{state}" {bar}><title>{begin} to {end}: {state}</title></rect>')
            centres = (x + (i + 0.5) * wide for i in range(number if state in _MARKS else 0))
            parts += (f'<text class="mark" x="{at:g}" y="16">{CELLS[state]}</text>' for at in centres)
        first += number
    words = ", ".join(f"{state} {100 * number / len(cells):.0f} %" for state, number in shown.items())
    label = f"{escaped(name)}, strip of the night: {words or 'nothing ran'}"
    return _picture(label, 40, [*parts, *_hours(since, until, 24)])


def legend() -> str:
    """Return what the bars of a strip mean."""
    parts, wide = [], _WIDE / len(DRAWN)
    for i, state in enumerate(DRAWN):
        x, top = i * wide, _TOPS.get(state, 0)
        parts.append(f'<rect class="{state}" x="{x:.1f}" y="{top}" width="16" height="{24 - top}"/>')
        if state in _MARKS:
            parts.append(f'<text class="mark" x="{x + 8:.1f}" y="16">{CELLS[state]}</text>')
        parts.append(f'<text x="{x + 21:.1f}" y="17">{state}</text>')
    return _picture("what the bars mean", 26, parts)


def cost(spent: Sequence[tuple[Moment, int]], since: Moment, until: Moment, budget_usd: float | None) -> str:
    """Return the cost added up over the span. ``budget_usd``: where it would meet the budget."""
    total = sum(micro for _, micro in spent) / MICRO
    most = max(total, budget_usd or 0.0) * 1.05 or 1.0
    sums, sum_usd = dict[int, float](), 0.0
    for at, micro in sorted(spent):
        sum_usd += micro / MICRO
        sums[round(max(at - since, 0.0) / max(until - since, 1.0) * _WIDE)] = sum_usd
    line = "".join(f"H{x}V{140 - usd / most * 130:.1f}" for x, usd in sums.items())
    parts = ['<path class="axis" d="M0 10V140H640"/>', f'<path class="cost" d="M0 140{line}H{_WIDE}"/>']
    top, words = 140 - total / most * 130, escaped(usd_words(total))
    parts.append(f'<text class="end" x="{_WIDE - 2}" y="{max(top - 5, 11):.1f}">{words}</text>')
    label = f"cost over time: {words} in all"
    if budget_usd is not None:
        y = 140 - budget_usd / most * 130
        parts.append(f'<path class="budget" d="M0 {y:.1f}H{_WIDE}"/>')
        parts.append(f'<text x="4" y="{y - 4:.1f}">budget</text>')
        label += f"; the budget is used up at {escaped(usd_words(budget_usd))}"
    return _picture(label, _TALL, [*parts, *_hours(since, until, 142)])


def _picture(label: str, tall: int, parts: Sequence[str]) -> str:
    head = f'<svg role="img" viewBox="0 0 {_WIDE} {tall}" aria-label="{label}"><title>{label}</title>'
    return f"{head}{''.join(parts)}</svg>"


def _hours(since: Moment, until: Moment, top: int) -> Iterator[str]:
    """Yield the full hours below a drawing, as many as have room."""
    span_s, begin = until - since, time.localtime(since)
    step = next((step for step in _HOURS if span_s / 3600 / step <= 14), _HOURS[-1])
    at = since + 3600 - begin.tm_min * 60 - begin.tm_sec
    while at < until and span_s > 0:
        local, x = time.localtime(at), (at - since) / span_s * _WIDE
        if (local.tm_hour + 24 * local.tm_wday) % step == 0 and x < _WIDE - 14:
            yield f'<path class="axis" d="M{x:.1f} {top}v4"/>'
            yield f'<text x="{x + 2:.1f}" y="{top + 14}">{local.tm_hour:02}</text>'
        at += 3600
