"""Several ralphs as a table: one a line that fits the terminal, then those that need a person.

What does not fit is cut where it says least: the end of a state's reason, the beginning of a directory. The
name is never cut, since it is what people type next.
"""

from __future__ import annotations

from ralphctl.show import (
    COLOURS,
    directory_words,
    next_steps,
    place,
    resource_cells,
    since_words,
    wait_of,
    why_failed,
)
from ralphctl.tell import DIM, clean, paint
from ralphctl.words import duration, moment, pause_words, wait_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphctl.show import View

_HEADS = ("NAME", "STATE", "RESTARTS", "LAST OUTPUT", "DIRECTORY")
_RESOURCES = ("CPU TIME", "MEMORY", "PROCESSES")
_STATE, _DIRECTORY = 1, 4
_GAP = "  "
_CUT = "…"
_NARROW_STATE, _NARROW_DIRECTORY = 22, 14
_LONGEST_STATE = 60  # where no terminal says how wide it may be


def table(views: Sequence[View], now: float, *, colour: bool = False, columns: int | None = None) -> str:
    """Several ralphs, one a line of at most ``columns`` characters, then those that need a person."""
    heads = _HEADS + (_RESOURCES if any(view.get("resources") for view in views) else ())
    rows = [[*_cells(view, now), *resource_cells(view)][: len(heads)] for view in views]
    widths = _widths([heads, *rows], columns)
    lines = [paint(_line(heads, widths), DIM, on=colour)]
    for view, row in zip(views, rows, strict=True):
        row[_STATE] = cut(row[_STATE], widths[_STATE])
        row[_DIRECTORY] = _fitting(view, widths[_DIRECTORY])
        lines.append(_line(row, widths, state_colour=COLOURS.get(str(view.get("state"))) if colour else None))
    return "\n".join([*lines, *_drifted(views), *_needed(views, columns)])


def _cells(view: View, now: float) -> tuple[str, ...]:
    return (
        clean(str(view.get("name") or "?")),
        _marked(brief_state(view, now), view),
        str(view.get("restarts") or 0),
        since_words("", view.get("last_output_at"), now, " ago") or "never",
        directory_words(view),
    )


def _marked(state: str, view: View) -> str:
    """The state; with a ``*`` at its first word, which is never cut, where the configuration has drifted."""
    if not view.get("drift"):
        return state
    word, gap, rest = state.partition(" ")
    return f"{word.rstrip(':,')}*{word[len(word.rstrip(':,')) :]}{gap}{rest}"


def _drifted(views: Sequence[View]) -> list[str]:
    names = [clean(str(view.get("name"))) for view in views if view.get("drift")]
    if not names:
        return []
    which = names[0] if len(names) == 1 else "NAME"
    return ["", f"* its configuration was changed since it was started: ralphctl status {which}"]


def brief_state(view: View, now: float) -> str:
    """The state in few words; what says least stands last, so that it can be cut."""
    match view.get("state"):
        case "idle":
            return "idle, never started"
        case "running":
            return _running(view, now)
        case "testing":
            return "running the tests"
        case "waiting_for_retry":
            return f"waiting{_left(view, now)} {clean(wait_words(wait_of(view).get('reason', 'unknown')))}"
        case "paused":
            return f"paused{_left(view, now)} {clean(pause_words(view.get('pause_reason')))}".rstrip()
        case "stopped":
            return "stopped" + since_words(" ", view.get("finished_at"), now, " ago")
        case "failed":
            return "failed" + since_words(" ", view.get("finished_at"), now, " ago") + f": {_why(view)}"
        case "done":
            why = f": {clean(str(view['message']))}" if view.get("message") else ""
            return "done" + since_words(" ", view.get("finished_at"), now, " ago") + why
        case other:
            return clean(str(other))


def _running(view: View, now: float) -> str:
    if wait := wait_of(view):
        return f"running, waiting{_left(view, now)} {clean(wait_words(wait.get('reason', 'unknown')))}"
    return "running" + since_words(" for ", view.get("started_at"), now)


def _why(view: View) -> str:
    """Why it failed; of an end that the Regent tells at length, the exit alone."""
    at_length = str(view.get("message") or "").startswith("Ralph exited (")
    return why_failed({**view, "message": None} if at_length else view)


def _left(view: View, now: float) -> str:
    ends = moment(wait_of(view).get("until"))
    return "" if ends is None else f" {duration(ends - now + 0.999)} more"


def _widths(rows: Sequence[Sequence[str]], columns: int | None) -> list[int]:
    """How wide each column is; 0 for one that is left out."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if columns is None:
        widths[_STATE] = min(widths[_STATE], _LONGEST_STATE)
        return widths
    state, directory = widths[_STATE], widths[_DIRECTORY]
    room = columns - sum(widths) - len(_GAP) * (len(widths) - 1) + state + directory
    if room < _NARROW_STATE + _NARROW_DIRECTORY:
        widths[_STATE], widths[_DIRECTORY] = min(state, max(room + len(_GAP), _NARROW_STATE)), 0
    elif room < state + directory:
        widths[_DIRECTORY] = min(directory, max(room - state, _NARROW_DIRECTORY))
        widths[_STATE] = min(state, room - widths[_DIRECTORY])
    return widths


def cut(text: str, width: int) -> str:
    """``text``, with ``…`` in place of its end where it is longer than ``width``."""
    return text if len(text) <= width else text[: width - 1].rstrip() + _CUT


def _fitting(view: View, width: int) -> str:
    """The directory with its branch, or without it, or the end of it."""
    for words in (directory_words(view), place(view)):
        if len(words) <= width:
            return words
    return _CUT + words[len(words) - width + 1 :] if width else ""


def _line(cells: Sequence[str], widths: Sequence[int], *, state_colour: str | None = None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True) if width]
    if state_colour:
        padded[_STATE] = paint(padded[_STATE], state_colour, on=True)
    return _GAP.join(padded).rstrip()


def _needed(views: Sequence[View], columns: int | None) -> list[str]:
    needed = [view for view in views if view.get("state") == "failed"]
    needed += [view for view in views if view.get("state") == "paused" and not wait_of(view).get("until")]
    if not needed:
        return []
    lines = ["", "These wait for you:"]
    for view in needed:
        steps = [f"{does}: {how}" for does, how in next_steps(view)]
        line = f"  {clean(str(view.get('name')))}: " + ", ".join(steps)
        fits = columns is None or len(line) <= columns
        lines += (
            [line] if fits else [f"  {clean(str(view.get('name')))}:", *(f"    {step}" for step in steps)]
        )
    return lines
