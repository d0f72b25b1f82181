"""What ``status`` prints: one ralph in full, or several as a table and then those that need a person.

Any key of a view may be missing, and others may have written any text in it. The table cuts what does not fit
where that matters least: the end of a state's reason, the beginning of a directory. The name is never cut,
since people type it next.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ralphctl.format import checkpoint_text, humanize, state_text
from ralphctl.format.gate_text import gate_rows
from ralphctl.format.humanize import View, ago, count, moment, part, since_words, wrapped
from ralphctl.format.incident_text import incident_rows, pool_rows
from ralphctl.format.output import BOLD, DIM, clean, paint
from ralphctl.format.state_text import directory_words, wait_of

_LABEL = 12
_NARROWEST = 20
_HEADS = ("NAME", "STATE", "RESTARTS", "LAST OUTPUT", "DIRECTORY")
_RESOURCES = ("CPU TIME", "MEMORY", "PROCESSES")
_STATE, _DIRECTORY = 1, 4
_GAP = "  "
_NARROW_STATE, _NARROW_DIRECTORY = 22, 14
_LONGEST_STATE = 60  # where no terminal limits the width


def ralph(
    view: View,
    now: float,
    *,
    checkpoint: View | None = None,
    checkpoint_fault: str = "",
    colour: bool = False,
    step: tuple[str, str] | None = None,
    columns: int | None = None,
) -> str:
    """Return one ralph in full: its state, what a person has to do, what it has done, and what to type.

    With a ``step`` to take next, the view is the last known one, without a daemon. Only a line with a longer
    word exceeds ``columns``.
    """
    daemon = step is None
    steps = state_text.next_steps(view)
    if step is not None:  # the daemon comes first: what an incident asks for needs one
        steps = [step, *([("then what it needs", do)] if (do := state_text.needed(view)) else [])]
    saved = [clean(checkpoint_fault)] if checkpoint_fault else []
    if checkpoint and not saved:
        saved = checkpoint_text.summary(checkpoint, now, runs=bool(view.get("ralph_pid")))
    notes = view.get("notes")
    rows = [
        *incident_rows(view, now, daemon=daemon),
        ("last change", _last_change(view, now)),
        ("work", state_text.work_words(view)),
        *_under("agents", _agents(view, now)),
        *_under("checkpoint", saved),
        *_facts(view, now, daemon=daemon),
        *_under("changed", state_text.drift_rows(view)),
        *[("note", clean(line)) for line in (notes if isinstance(notes, list) else [])],
        *_under("next", [f"{command}  ({what})" for what, command in steps]),
    ]
    rows = [(label, text) for label, text in rows if text]
    return "\n".join([_head(view, now, columns, colour=colour), *_labelled(rows, columns, colour=colour)])


def _under(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if i == 0 else "", line) for i, line in enumerate(lines)]


def _head(view: View, now: float, columns: int | None, *, colour: bool) -> str:
    name, state = clean(view.get("name") or "?"), state_text.state_words(view, now)
    room = len(state) if columns is None else max(columns - len(name) - 2, _NARROWEST)
    shade = state_text.COLOURS.get(str(view.get("state")), BOLD)
    lines = [paint(line, shade, on=colour) for line in wrapped(state, room)]
    return f"{paint(name, BOLD, on=colour)}  " + "\n    ".join(lines)


def _labelled(rows: Sequence[tuple[str, str]], columns: int | None, *, colour: bool) -> Iterator[str]:
    room = 0 if columns is None else max(columns - _LABEL - 3, _NARROWEST)
    for label, text in rows:
        for i, line in enumerate(wrapped(text, room) if room else [text]):
            shown = label if i == 0 else ""
            yield f"  {paint(shown.ljust(_LABEL), DIM, on=colour)} {line}"


def _last_change(view: View, now: float) -> str:
    if last := part(view, "last_change"):
        return f"{ago(last.get('at'), now)}: {clean(last.get('what'))}"
    return "none yet" if "last_change" in view and view.get("run_id") else ""


def _facts(view: View, now: float, *, daemon: bool) -> list[tuple[str, str]]:
    # The state file is written every few seconds only: a first output may not be in it yet.
    unseen = not daemon and view.get("run_id") and not view.get("last_output_at")
    ending, command, errors = part(view, "last_exit"), view.get("command"), view.get("consecutive_errors")
    restarts = str(view.get("restarts") or 0)
    restarts += f", {count(errors, 'failure')} in a row" if errors else ""
    restarts += f", {count(view['reverts'], 'iteration')} reverted" if view.get("reverts") else ""
    words = shlex.join(clean(word) for word in command or ()).replace("'\"'\"'", "'\\''")
    cpu, memory, processes = state_text.resource_cells(view)
    resources = [f"{cpu} of processor time" if cpu else "", memory]
    resources.append(count(int(processes), "process", "processes") if processes else "")
    return [
        ("last output", "unknown" if unseen else ago(view.get("last_output_at"), now)),
        ("last commit", clean(view.get("last_commit") or "")),
        ("last exit", f"{clean(humanize.last_exit(ending))}, {ago(ending.get('at'), now)}" if ending else ""),
        ("restarts", "" if restarts == "0" else restarts),
        *gate_rows(view, now),
        ("directory", directory_words(view)),
        ("command", (words or "the built-in loop") if isinstance(command, list) else ""),
        ("resources", ", ".join(filter(None, resources))),
    ]


def _agents(view: View, now: float) -> list[str]:
    pool = part(view, "pool")
    agents = pool.get("agents", [])
    is_choice = len(agents) > 1 or any(not agent["in"] for agent in agents)
    return pool_rows(pool, now) if is_choice else []


def table(views: Sequence[View], now: float, *, colour: bool = False, columns: int | None = None) -> str:
    """Return several ralphs, one per line of at most ``columns``, then those that need a person."""
    heads = _HEADS + (_RESOURCES if any(view.get("resources") for view in views) else ())
    rows = [[*_cells(view, now), *state_text.resource_cells(view)][: len(heads)] for view in views]
    widths = _widths([heads, *rows], columns)
    lines = [paint(_line(heads, widths), DIM, on=colour)]
    for view, row in zip(views, rows, strict=True):
        row[_STATE] = humanize.cut(row[_STATE], widths[_STATE])
        row[_DIRECTORY] = _fitting(row[_DIRECTORY], view, widths[_DIRECTORY])
        lines.append(
            _line(
                row, widths, state_colour=state_text.COLOURS.get(str(view.get("state"))) if colour else None
            )
        )
    return "\n".join([*lines, *_drifted(views), *_needed(views, columns)])


def _cells(view: View, now: float) -> tuple[str, ...]:
    return (
        clean(view.get("name") or "?"),
        _marked(brief_state(view, now), view),
        str(view.get("restarts") or 0),
        since_words("", view.get("last_output_at"), now, " ago") or "never",
        directory_words(view),
    )


def _marked(state: str, view: View) -> str:
    """Mark the state of a drifted configuration with a ``*`` at its first word, which is never cut."""
    if not view.get("drift"):
        return state
    word, gap, rest = state.partition(" ")
    return f"{word.rstrip(':,')}*{word[len(word.rstrip(':,')) :]}{gap}{rest}"


def _drifted(views: Sequence[View]) -> list[str]:
    names = [clean(view.get("name")) for view in views if view.get("drift")]
    if not names:
        return []
    which = names[0] if len(names) == 1 else "NAME"
    return ["", f"* its configuration was changed since it was started: ralphctl status {which}"]


def brief_state(view: View, now: float) -> str:
    """Return the state in few words, the least important last, so that it can be cut."""
    wait = wait_of(view)
    ends, ended = moment(wait.get("until")), since_words(" ", view.get("finished_at"), now, " ago")
    left = "" if ends is None else f" {humanize.duration(ends - now + 0.999)} more"
    waits = f"waiting{left} {humanize.wait_words(wait.get('reason', 'unknown'))}"
    match view.get("state"):
        case "idle":
            return "idle, never started"
        case "running":
            return (
                f"running, {waits}" if wait else "running" + since_words(" for ", view.get("started_at"), now)
            )
        case "testing":
            return "running the tests"
        case "waiting_for_retry":
            return waits
        case "paused":
            return f"paused{left} {humanize.pause_words(view.get('pause_reason'))}".rstrip()
        case "stopped":
            return f"stopped{ended}"
        case "failed":
            # The exit alone says as much as the Regent's own message, if that is long.
            is_long = str(view.get("message") or "").startswith("Ralph exited (")
            return f"failed{ended}: {state_text.why_failed({**view, 'message': None} if is_long else view)}"
        case "done":
            return f"done{ended}{state_text.message_words(view)}"
        case other:
            return clean(other)


def _widths(rows: Sequence[Sequence[str]], columns: int | None) -> list[int]:
    """Return the width of each column; 0 leaves it out."""
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


def _fitting(words: str, view: View, width: int) -> str:
    """Return the directory with its branch (``words``), or without it, or the end of it."""
    if len(words) <= width or len(words := state_text.directory_name(view)) <= width:
        return words
    return "…" + words[len(words) - width + 1 :] if width else ""


def _line(cells: Sequence[str], widths: Sequence[int], *, state_colour: str | None = None) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True) if width]
    if state_colour:
        padded[_STATE] = paint(padded[_STATE], state_colour, on=True)
    return _GAP.join(padded).rstrip()


def _needed(views: Sequence[View], columns: int | None) -> list[str]:
    needed = sorted(filter(state_text.is_stuck, views), key=lambda view: view["state"] != "failed")
    lines = ["", "These wait for you:"] if needed else []
    for view in needed:
        name = clean(view.get("name"))
        steps = [f"{does}: {how}" for does, how in state_text.next_steps(view)]
        line = f"  {name}: {', '.join(steps)}"
        fits = columns is None or len(line) <= columns
        lines += [line] if fits else [f"  {name}:", *(f"    {step}" for step in steps)]
    return lines
