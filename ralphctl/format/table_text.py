"""Several ralphs: the table of ``status``, its line for a prompt, and the fields of ``--format``.

Names are never cut, since people type them next. A reason that does not fit continues on the lines below; the
title of a task is cut. Columns that do not fit are left out, those at the right end first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from string import Formatter

from ralphctl.format import humanize, output, state_text
from ralphctl.format.humanize import View, count, cut, moment, since_words
from ralphctl.format.output import DIM, clean, paint
from ralphd import overview
from ralphd.errors import UsageError

_HEADS = ("NAME", "STATE", "TASKS", "NOW", "AGENT", "COST", "LAST")
_RESOURCES = ("CPU TIME", "MEMORY", "PROCESSES")
_STATE, _NOW = 1, 3
_GAP = "  "
_LEAST_NOW, _MOST_NOW, _MOST_LINES = 24, 72, 3
_LEFT_OUT = (6, 4, 5, 2, _NOW)
"""Columns by how soon they are left out where NOW has no room."""


def table(
    views: Sequence[View], now: float, *, every: bool = True, colour: bool = False,
    columns: int | None = None, steps: dict[int, list[tuple[str, str]]] | None = None,
) -> str:  # fmt: skip
    """Return several ralphs, then the next steps of those that need a person.

    Finished ones are only counted, unless ``every`` one is to be shown. ``steps`` replaces the next steps, by
    the id of a view, where no daemon carries them out.
    """
    rows = overview.rows(views)
    shown, rest = (rows, []) if every else overview.folded(rows)
    heads = _HEADS + (_RESOURCES if any(view.get("resources") for view in views) else ())
    cells = [[*_cells(row, now), *state_text.resource_cells(row.view)][: len(heads)] for row in shown]
    widths = _widths([heads, *cells], columns)
    lines = [paint(_line(heads, widths), DIM, on=colour)] if widths[_NOW] else []
    for row, texts in zip(shown, cells, strict=True):
        lines += _row(row, texts, widths, columns, colour=colour)
    counts = ", ".join(f"{number} {key}" for key, number in overview.totals(rest).items())
    notes = [f"and {counts}: ralphctl status --all"] if rest else []
    notes += _waits(rows, now)
    notes += filter(None, [clean(overview.landing_line(rows))])
    if changed := [clean(row.name) for row in shown if row.view.get("drift")]:
        notes.append(f"* configuration changed since the start: ralphctl status {changed[0]}")
    lines += [line for note in notes for line in _broken(note, columns)]
    needed = [row for row in shown if row.needs_you]
    lines += ["", "Needs you:"] if needed else []
    for row in needed:
        for does, how in (steps or {}).get(id(row.view)) or state_text.next_steps(row.view):
            step = f"  {clean(row.name)}: {how}"  # whole, to be copied
            why = f"  ({does})"
            lines.append(step + (why if columns is None or len(step + why) <= columns else ""))
    return "\n".join(lines)


def _waits(rows: Sequence[overview.Row], now: float) -> Iterator[str]:
    """Yield a line for each agent whose limit several ralphs wait for."""
    limited = [row for row in rows if row.word == "limited" and row.agent]
    for agent in sorted({row.agent for row in limited}):
        if len(waiting := [row for row in limited if row.agent == agent]) > 1:
            first = min(waiting, key=lambda row: moment(row.until) or now)
            yield f"{clean(agent)} {state_cell(first, now)}: {', '.join(clean(row.name) for row in waiting)}"


def _cells(row: overview.Row, now: float) -> tuple[str, ...]:
    mark = "*" if row.view.get("drift") else ""
    number, reason = row.view.get("iteration"), state_text.reason(row.view, now)
    return (
        clean(row.name),
        state_cell(row, now).replace(row.word, clean(row.word) + mark, 1),
        "{}/{}".format(*row.tasks) if row.tasks else "-",
        reason or clean(row.task) or (f"{count(number, 'iteration')} finished" if number else "-"),
        clean(row.agent) or "-",
        humanize.usd_words(row.cost_usd).replace("less than ", "<") if row.cost_usd else "-",
        since_words("", row.last_at, now, " ago") or "never",
    )


def state_cell(row: overview.Row, now: float) -> str:
    """Return the word for the state, and until when: ``limited until 20:31``, ``waiting 25s``."""
    ends = moment(row.until)
    if ends is None or ends <= now or row.word not in ("limited", "waiting", "paused"):
        return row.word
    left_s = ends - now + 0.999
    ends_in = humanize.duration(left_s) if left_s < 100 else f"until {humanize.minute(ends, now)}"
    return f"{row.word} {ends_in}"


def _row(
    row: overview.Row, cells: Sequence[str], widths: Sequence[int], columns: int | None, *, colour: bool
) -> Iterator[str]:
    """Yield the line of a ralph, and the lines with the rest of its reason."""
    words, room = cells[_NOW], widths[_NOW]
    shade = state_text.COLOURS.get(row.word, "") if colour else ""
    indent = sum(width + len(_GAP) for width in widths[:_NOW] if width)
    if not room:  # too narrow for a table
        yield from (paint(line, shade, on=bool(shade)) for line in _broken(_GAP.join(cells[:2]), columns))
        first, indent = "", 2
    elif words == clean(row.task):
        first = words
        yield _line([*cells[:_NOW], cut(words, room), *cells[_NOW + 1 :]], widths, shade)
    else:
        first = _broken(words, room)[0]
        yield _line([*cells[:_NOW], first, *cells[_NOW + 1 :]], widths, shade)
    rest = words.removeprefix(first).strip().removeprefix("-")
    below = _broken(rest, (columns or _MOST_NOW + indent) - indent, _MOST_LINES - 1) if rest else []
    if below and below[-1].endswith("…"):
        below.append(f"all of it: ralphctl status {cells[0]}")
    yield from (f"{' ' * indent}{line}" for line in below)


def _widths(rows: Sequence[Sequence[str]], columns: int | None) -> list[int]:
    """Return the width of each column; 0 leaves it out. Without NOW there is no table."""
    widths = [max(map(output.cells, column)) for column in zip(*rows, strict=True)]
    wanted = min(widths[_NOW], _MOST_NOW)
    for left_out in (None, *_LEFT_OUT):
        if left_out is not None:
            widths[left_out] = 0
        others = sum(width + len(_GAP) for i, width in enumerate(widths) if width and i != _NOW)
        room = wanted if columns is None else columns - others
        if room >= min(wanted, _LEAST_NOW):
            break
    widths[_NOW] = min(wanted, room) if widths[_NOW] else 0
    return widths


def _line(cells: Sequence[str], widths: Sequence[int], shade: str = "") -> str:
    padded = [output.padded(cell, width) for cell, width in zip(cells, widths, strict=True) if width]
    padded[_STATE] = paint(padded[_STATE], shade, on=bool(shade))
    return _GAP.join(padded).rstrip()


def _broken(text: str, width: int | None, most: int | None = None) -> list[str]:
    return output.wrap(text, max(width or len(text), 1), max_lines=most, placeholder="…") or [""]


def short(views: Sequence[View], now: float) -> str:
    """Return one line for a prompt or a status bar: ``1 needs you, 3 working, 1 limited until 20:31``."""
    rows, _ = overview.folded(overview.rows(views))
    if len(views) == 1:
        tasks = " {}/{}".format(*rows[0].tasks) if rows[0].tasks else ""
        return f"{clean(rows[0].name)} {clean(state_cell(rows[0], now))}{tasks}"
    last = {row.word: state_cell(row, now) for row in rows if not row.needs_you}
    counts = overview.totals(rows).items()
    return ", ".join(f"{number} {last.get(key, key) if number == 1 else key}" for key, number in counts)


def formatted(views: Sequence[View], form: str, now: float) -> str:
    """Return a line per ralph in the user's ``form``, such as ``{name} {state}``. Raise UsageError."""
    form, values = form.replace(r"\t", "\t").replace(r"\n", "\n"), dict[str, str]()
    try:
        return "\n".join(_filled(form, values := fields(row, now)) for row in overview.rows(views))
    except (KeyError, ValueError) as fault:
        which = f"{fault} is not a field" if isinstance(fault, KeyError) else str(fault)
        known = f"fields: {', '.join(values)}"
        raise UsageError(f"--format: {which}", why=known, mend="--format '{name} {state}'") from None


def _filled(form: str, values: dict[str, str]) -> str:
    """Fill in a form that only names ``values``, with widths up to 200. Raise KeyError, ValueError."""
    for _, name, spec, _ in Formatter().parse(form):
        if name is not None and name not in values:
            raise KeyError(name)
        if "{" in (spec or "") or any(int(width) > 200 for width in re.findall(r"\d+", spec or "")):
            raise ValueError(f"the width in {spec!r} is not a number up to 200")
    return form.format_map(values)


def fields(row: overview.Row, now: float) -> dict[str, str]:
    """Return what ``--format`` can name, as text; empty for what is not known."""
    known = dict(zip(map(str.lower, _HEADS), _cells(row, now), strict=True))
    known |= {"state": row.word, "task": row.task, "until": str(row.until or "")}
    for key in ("directory", "branch", "iteration", "restarts", "reverts", "ralph_pid"):
        known[key] = str(row.view.get(key) or "")
    return {name: "" if text == "-" else clean(text) for name, text in known.items()}
