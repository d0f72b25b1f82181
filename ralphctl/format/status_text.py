"""What ``status`` prints of one ralph: its state, its work, and what to do next.

Any key of a view may be missing, and others may have written any text in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ralphctl.format import checkpoint_text, gate_text, humanize, incident_text, state_text
from ralphctl.format.humanize import View, ago, count, part, wrapped
from ralphctl.format.output import BOLD, DIM, clean, paint
from ralphd import overview

_LABEL = 12
_LIMITING = ("write", "box")
"""The levels of the sandbox that somebody has chosen."""
_NARROWEST = 20


def ralph(
    view: View, now: float, *, checkpoint: View | None = None, checkpoint_fault: str = "",
    colour: bool = False, step: tuple[str, str] | None = None, columns: int | None = None,
) -> str:  # fmt: skip
    """Return one ralph in full: its state, what a person has to do, what it has done, and what to type.

    With a ``step`` to take next, the view is the last known one, without a daemon. Only a line with a longer
    word exceeds ``columns``.
    """
    daemon = step is None
    steps = state_text.next_steps(view)
    if step is not None:  # the daemon comes first: what an incident asks for needs one
        steps = [step, *([("then fix the cause", do)] if (do := state_text.needed(view)) else [])]
    saved = [clean(checkpoint_fault)] if checkpoint_fault else []
    if checkpoint and not saved:
        state = state_text.state_words(view, now)
        resumes = daemon and view.get("state") == "paused"
        resting = checkpoint if resumes else {**checkpoint, "resume_at": None}
        saved = checkpoint_text.summary(resting, now, state, runs=overview.has_a_run(view))
    notes = given if isinstance(given := view.get("notes"), list) else []
    if view.get("tasks"):  # they are counted below; the note has the numbers of the start
        notes = [note for note in notes if not str(note).startswith(("the task list is ", "forecast for "))]
    rows = [
        *incident_text.incident_rows(view, now, daemon=daemon),
        ("last change", _last_change(view, now)),
        ("work", state_text.work_words(view)),
        *_under("agents", _agents(view, now)),
        *_under("checkpoint", saved),
        *_facts(view, now, daemon=daemon),
        ("landing", clean("" if view.get("state") == "done" else overview.landing_words(view))),
        *_under("changed", state_text.drift_rows(view)),
        *[("note", clean(line)) for line in notes],
        *_under("next", [f"{command}  ({what})" for what, command in steps]),
    ]
    rows = [(label, text) for label, text in rows if text]
    return "\n".join([_head(view, now, columns, colour=colour), *_labelled(rows, columns, colour=colour)])


def _under(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if i == 0 else "", line) for i, line in enumerate(lines)]


def _head(view: View, now: float, columns: int | None, *, colour: bool) -> str:
    name, state = clean(view.get("name") or "?"), state_text.state_words(view, now)
    room = len(state) if columns is None else max(columns - len(name) - 2, _NARROWEST)
    shade = state_text.COLOURS.get(overview.word(view), BOLD)
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
    sandbox = part(view, "sandbox")
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
        *gate_text.gate_rows(view, now),
        ("directory", state_text.directory_words(view)),
        ("command", (words or "the built-in loop") if isinstance(command, list) else ""),
        ("sandbox", f"{level} ({sandbox['means']})" if (level := sandbox.get("level")) in _LIMITING else ""),
        ("resources", ", ".join(filter(None, resources))),
    ]


def _agents(view: View, now: float) -> list[str]:
    pool = part(view, "pool")
    agents = pool.get("agents", [])
    is_limited = overview.word(view) == "limited"  # then the state shows until when, and why
    is_choice = len(agents) > 1 or (not is_limited and any(not agent["in"] for agent in agents))
    return incident_text.pool_rows(pool, now) if is_choice else []
