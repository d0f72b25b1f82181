"""The picture of ``top`` as lines of text, for a terminal of any size. Pure: what is drawn comes in.

One row is one ralph and never wraps; what is clipped is in the detail of the selected ralph below the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ralphctl.format import incident_text, state_text, table_text
from ralphctl.format.humanize import View, ago, cells, clock, count, cut, minute, usd_words, wrapped
from ralphctl.format.output import BOLD, DIM, RED, YELLOW, clean, paint
from ralphctl.report import night, strip
from ralphctl.report.model import usd_per_hour
from ralphctl.top.model import TopModel
from ralphd import overview
from ralphd.dataclass import dataclass

LOG_LINES = 5
_HEADS = ("NAME", "STATE", "TASK", "PROGRESS", "NOW", "ITER", "COST", "EACH")
_STATE, _TASKS, _PROGRESS, _NOW = 1, 2, 3, 4
_LEFT_OUT = (7, _PROGRESS, 5, 6, _TASKS)
"""Columns by how soon they are left out where NOW has no room."""
_LEAST_NOW, _MOST_NAME, _BAR, _MOST_ACCOUNTS, _MOST_NEEDS, _LEAST_ROWS, _SPARKS = 20, 24, 10, 3, 2, 3, 5
_KEYS = "↑↓ select  ⏎ attach  l logs  d diff  e explain  p pause/resume  s skip wait  S stop  ? help  q quit"
_FEW_KEYS = "↑↓ ⏎ l d e p s S  ? help  q quit"
_SGR = re.compile(r"(\x1b\[[0-9;:]{0,64}m)")
_PLAIN = str.maketrans("█░▒▸│┤▕▏·⏎↑↓…▁▂▃▄▅▆▇", "#.->||||-^^v~_.:-=+*")
"""For terminals without these characters."""


@dataclass(frozen=True, slots=True)
class TopScreen:
    """What is shown besides the model, and where; without ``rows`` all of it, without keys."""

    columns: int
    rows: int | None = None
    selected: str = ""
    log: Sequence[str] = ()
    output_at: str = ""
    message: str = ""
    trouble: str = ""
    colour: bool = False
    utf8: bool = True


def shown_rows(model: TopModel) -> list[overview.Row]:
    """Return the ralphs that have a row: the finished ones are only counted, unless all are."""
    return list(overview.folded(model.rows())[0])


def page(model: TopModel, screen: TopScreen, now: float) -> list[str]:
    """Return the lines, none longer than the screen is wide, and not more than it has rows."""
    head = [*_head(model, screen, now), ""]
    detail, below = _detail(model, screen, now), _below(model, screen)
    logged = [paint(" │ ", DIM, on=screen.colour) + line for line in screen.log[-LOG_LINES:]]
    if screen.rows is None:
        table = _table(model, screen, now, None)
    else:
        room = screen.rows - len(head) - len(detail) - len(below) - 1
        rows = min(len(shown_rows(model)), room)  # those come before lines of the log, but for two
        left = min(max(room - rows - 3, 2), room - _LEAST_ROWS - 2)
        logged = logged[-left:] if left > 0 else []
        table = _table(model, screen, now, max(room - len(logged) - 1, 1))
    lines = [*head, *table, "", *detail, *logged, *below]
    if screen.rows is not None and len(lines) > screen.rows:  # the message and the keys stay
        lines = [*lines[: screen.rows - len(below)], *below][-screen.rows :]
    return [fitted(line if screen.utf8 else line.translate(_PLAIN), screen.columns) for line in lines]


def fitted(line: str, columns: int) -> str:
    """Return a line with colours in at most ``columns`` columns."""
    result, left = "", columns
    for i, piece in enumerate(_SGR.split(line.replace("\t", " "))):
        if i % 2 == 0:
            wide = cells(piece)
            piece = piece if wide <= left else cut(piece, left) if left else ""
            left = max(left - wide, 0)
        result += piece
    return result


def _head(model: TopModel, screen: TopScreen, now: float) -> Iterator[str]:
    rows = model.rows()
    totals = [f"{number} {word}" for word, number in overview.totals(rows).items()]
    parts = [screen.trouble, f"ralphd {clean(model.version)}", count(len(rows), "ralph"), *totals]
    left = " · ".join(filter(None, parts))
    at = clock(now, now)
    gap = screen.columns - cells(left) - len(at)
    for line in [f"{left}{' ' * gap}{at}"] if gap > 1 else wrapped(left, screen.columns):
        yield paint(line, RED if screen.trouble else BOLD, on=screen.colour)
    for problem in model.problems[:_MOST_NEEDS]:
        yield from (paint(line, RED, on=screen.colour) for line in wrapped(clean(problem), screen.columns))
    yield from wrapped(f"tonight {_tonight(model, now)}", screen.columns)
    spent_usd, budget_usd, names = model.budget()
    if names:
        whose = "" if len(names) == len(rows) else f" for {len(names)} of {count(len(rows), 'ralph')}"
        spent = f"{usd_words(spent_usd)} of {usd_words(budget_usd)}{whose}"
        yield f"budget  {_bar(round(100 * spent_usd), max(round(100 * budget_usd), 1))}  {spent}"
    width = max((len(clean(each["account"])) for each in model.accounts), default=0)
    for each in sorted(model.accounts, key=lambda account: account["state"] == "open")[:_MOST_ACCOUNTS]:
        yield incident_text.account_line(each, width, now, None, colour=screen.colour)
    if (more := len(model.accounts) - _MOST_ACCOUNTS) > 0:
        yield f"and {count(more, 'account')} more: ralphctl quota"


def _tonight(model: TopModel, now: float) -> str:
    """Return the figures of the night, which are in the files of the daemon."""
    if not model.nights:
        where, is_known = clean(model.state_directory), any("/" not in name for name in model.views)
        return f"unknown: no history can be read in {where}" if model.have_nights and is_known else "…"
    rate = usd_per_hour(model.summaries(), now)
    return night.figures(model.summaries()) + (f", {usd_words(rate)}/h" if rate else "")


# --- the table ---


def _table(model: TopModel, screen: TopScreen, now: float, room: int | None) -> list[str]:
    """Return the head, as many rows around the selected one as have room, and what is only counted."""
    rows, rest = overview.folded(model.rows())
    if not rows:
        return ["no ralph yet: ralphctl start DIR"]
    names = [row.name for row in rows]
    at = names.index(screen.selected) if screen.selected in names else 0
    notes = [f"and {', '.join(f'{n} {word}' for word, n in overview.totals(rest).items())}"] if rest else []
    first, last = 0, len(rows)
    if room is not None and room < len(rows) + 1 + len(notes):
        fit = max(room - 2, 1)
        first = min(max(at - fit // 2, 0), max(len(rows) - fit, 0))
        last = min(first + fit, len(rows))
        notes = [", ".join([f"{first + 1} to {last} of {count(len(rows), 'ralph')}", *notes])]
    shown = [[*_cells(row, now), model.sparkline(row.name, _SPARKS)] for row in rows[first:last]]
    widths = _widths([_HEADS, *shown], screen.columns - 1)
    lines = [paint(f" {_line(_HEADS, widths)}", DIM, on=screen.colour)]
    for i, texts in enumerate(shown, first):
        shade = state_text.COLOURS.get(rows[i].word, "") if screen.colour else ""
        line = _line(texts, widths, shade)
        lines.append(paint("▸", BOLD, on=screen.colour) + line if i == at else f" {line}")
    return lines + [paint(f" {note}", DIM, on=screen.colour) for note in notes]


def _cells(row: overview.Row, now: float) -> list[str]:
    known, until = table_text.fields(row, now), table_text.state_cell(row, now).removeprefix(row.word).strip()
    bar = _bar(*row.tasks) if row.tasks else ""
    words = ": ".join(filter(None, (until, state_text.age_words(row.view, now), known["now"])))
    return [known["name"], clean(row.word), known["tasks"], bar, words, known["iteration"], known["cost"]]


def _bar(done: int, total: int) -> str:
    full = min(max(_BAR * done // total, 0), _BAR) if total > 0 else 0
    return "█" * full + "░" * (_BAR - full)


def _widths(rows: Sequence[Sequence[str]], columns: int) -> list[int]:
    widths = [max(map(cells, column)) if any(column[1:]) else 0 for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], _MOST_NAME, max(columns // 3, 8))
    for left_out in (None, *_LEFT_OUT):
        if left_out is not None:
            widths[left_out] = 0
        widths[_NOW] = 0
        room = columns - sum(width + 2 for width in widths if width)
        if room >= _LEAST_NOW:
            break
    widths[_NOW] = max(room, 0)
    return widths


def _line(texts: Sequence[str], widths: Sequence[int], shade: str = "") -> str:
    shown = [(cut(text, width), width) for text, width in zip(texts, widths, strict=True) if width]
    padded = [text + " " * (width - cells(text)) for text, width in shown]
    padded[_STATE] = paint(padded[_STATE], shade, on=bool(shade))
    return "  ".join(padded).rstrip()


# --- the selected ralph, and what waits for a person ---


def _detail(model: TopModel, screen: TopScreen, now: float) -> list[str]:
    view = model.views.get(screen.selected)
    if view is None:
        return []
    name, room = clean(view.get("name") or "?"), max(screen.columns - 3, 8)
    work = state_text.work_words(view)
    output_at = max(str(view.get("last_output_at") or ""), screen.output_at)
    last = f"last output {ago(output_at, now)}"
    words = wrapped(f"{name}: {state_text.state_words(view, now)}", room)[:3]
    words += wrapped(", ".join(filter(None, (state_text.age_words(view, now), work, last))), room)[:3]
    return [*_strip(model, screen), *(f" {line}" for line in words)]


def _strip(model: TopModel, screen: TopScreen) -> list[str]:
    states = model.cells(screen.selected, max(min(screen.columns - 22, strip.MOST_CELLS), 8))
    if not states:
        return []
    until = model.nights[screen.selected][0]
    line = strip.drawn(states, encoding="utf-8" if screen.utf8 else "ascii", colour=screen.colour)
    return [f" night {minute(model.since, model.since)} ┤{line}▏{minute(until, until)}"]


def _below(model: TopModel, screen: TopScreen) -> list[str]:
    """Return what to type for those who need a person, the message, and the keys."""
    names = [row.name for row in model.rows() if row.needs_you]
    lines = [line for name in names[:_MOST_NEEDS] for line in _need(model.views[name], screen)]
    if len(names) > _MOST_NEEDS:
        lines.append(f" and {len(names) - _MOST_NEEDS} more: ralphctl status")
    if screen.rows is None:
        return lines
    lines += [paint(clean(line), YELLOW, on=screen.colour) for line in screen.message.splitlines()]
    keys = _KEYS if cells(_KEYS) <= screen.columns else _FEW_KEYS
    return [*lines, paint(keys, DIM, on=screen.colour)]


def _need(view: View, screen: TopScreen) -> list[str]:
    """Return a ralph and its next step; the command is not cut where it fits on a line of its own."""
    does, how = state_text.next_steps(view)[0]
    words = f"needs you: {clean(view.get('name') or '?')}: "
    head = f" {paint(words, RED, on=screen.colour)}"
    room = screen.columns - cells(words) - 1 - cells(how)
    if room < 0:
        return [head.rstrip(), f"   {how}"]
    return [f"{head}{how}" + (f"  ({does})" if cells(does) + 4 <= room else "")]
