"""One ralph in full, as ``status NAME`` says it: what is so, what a person has to do, what it has done.

Any key of a view may be missing, any text in it somebody else's. Loaded by ``status``: little is imported.
"""

from __future__ import annotations

from ralphctl.show import (
    COLOURS,
    directory_words,
    needed,
    next_steps,
    resource_cells,
    state_words,
    work_words,
)
from ralphctl.tell import BOLD, DIM, clean, paint
from ralphctl.words import ago, count, last_exit, wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphctl.show import View

_LABEL = 12
_NARROWEST = 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%")


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
    """One ralph in full: what is so, what a person has to do, what it has done, and last what to type.

    With a ``step`` to take next, the view is what is last known, without a daemon. Lines are at most
    ``columns`` long, but for words that are longer.
    """
    daemon = step is None
    steps = next_steps(view) if step is None else _last_known_steps(view, step)
    runs = bool(view.get("ralph_pid"))
    rows = [
        *_incident(view, now, daemon=daemon),
        *_work(view, now),
        *_checkpoint_rows(checkpoint, checkpoint_fault, now, runs=runs),
        *_facts(view, now, daemon=daemon),
    ]
    rows += _remarks(view)
    rows += [("next" if i == 0 else "", f"{command}  ({what})") for i, (what, command) in enumerate(steps)]
    return "\n".join([_head(view, now, columns, colour=colour), *_labelled(rows, columns, colour=colour)])


def _head(view: View, now: float, columns: int | None, *, colour: bool) -> str:
    name, state = clean(str(view.get("name") or "?")), state_words(view, now)
    room = len(state) if columns is None else max(columns - len(name) - 2, _NARROWEST)
    shade = COLOURS.get(str(view.get("state")), BOLD)
    lines = [paint(line, shade, on=colour) for line in wrapped(state, room)]
    return f"{paint(name, BOLD, on=colour)}  " + "\n    ".join(lines)


def _labelled(rows: Sequence[tuple[str, str]], columns: int | None, *, colour: bool) -> Iterator[str]:
    room = 0 if columns is None else max(columns - _LABEL - 3, _NARROWEST)
    for label, text in rows:
        for i, line in enumerate(wrapped(text, room) if room else [text]):
            shown = label if i == 0 else ""
            yield f"  {paint(shown.ljust(_LABEL), DIM, on=colour)} {line}"


def _last_known_steps(view: View, step: tuple[str, str]) -> list[tuple[str, str]]:
    """Without a daemon: it first; what a person was called for needs one."""
    do = needed(view)
    return [step, ("then what it needs", do)] if do else [step]


def _incident(view: View, now: float, *, daemon: bool) -> list[tuple[str, str]]:
    if not isinstance(view.get("incident"), dict):
        return []
    from ralphctl.incident_words import rows  # most have none, and `status` is to be quick

    return rows(view, now, daemon=daemon)


def _work(view: View, now: float) -> list[tuple[str, str]]:
    """What it has got done, and what it does."""
    rows = [("last change", _last_change(view, now)), ("work", work_words(view))]
    return [(label, text) for label, text in rows if text] + _agents(view, now)


def _last_change(view: View, now: float) -> str:
    """What got anywhere last, and how long ago; a run's output alone is no change."""
    last = view.get("last_change")
    if isinstance(last, dict):
        return f"{ago(last.get('at'), now)}: {clean(str(last.get('what')))}"
    return "none yet" if "last_change" in view and view.get("run_id") else ""


def _facts(view: View, now: float, *, daemon: bool) -> list[tuple[str, str]]:
    rows = []
    # The state file is written anew every few seconds only: a first output may not be in it yet.
    unseen = not daemon and view.get("run_id") and not view.get("last_output_at")
    rows.append(("last output", "unknown" if unseen else ago(view.get("last_output_at"), now)))
    if view.get("last_commit"):
        rows.append(("last commit", clean(str(view["last_commit"]))))
    ending = view.get("last_exit")
    if isinstance(ending, dict):
        rows.append(("last exit", f"{clean(last_exit(ending))}, {ago(ending.get('at'), now)}"))
    rows.append(("restarts", _restarts(view)))
    rows += _guard(view, now)
    rows += [("directory", directory_words(view)), ("command", _command(view))]
    if resources := _resources(view):
        rows.append(("resources", resources))
    return [(label, text) for label, text in rows if text]


def _agents(view: View, now: float) -> list[tuple[str, str]]:
    """Who may be asked: where there is a choice, or nobody."""
    pool = view.get("pool")
    if not isinstance(pool, dict):
        return []
    agents = pool["agents"]
    if not agents or (len(agents) == 1 and agents[0]["in"]):
        return []
    from ralphctl.pool_words import rows  # most have one agent, and `status` is to be quick

    return [("agents" if i == 0 else "", line) for i, line in enumerate(rows(pool, now))]


def _guard(view: View, now: float) -> list[tuple[str, str]]:
    if not view.get("guard"):
        return []
    from ralphctl.guard_words import rows  # most have none, and `status` is to be quick

    return rows(view, now)


def _command(view: View) -> str:
    command = view.get("command")
    if not isinstance(command, list):
        return ""
    return " ".join(_quoted(clean(str(word))) for word in command) or "the built-in loop"


def _quoted(word: str) -> str:
    return word if word and _PLAIN.issuperset(word) else "'" + word.replace("'", "'\\''") + "'"


def _restarts(view: View) -> str:
    said, errors = str(view.get("restarts") or 0), view.get("consecutive_errors") or 0
    if errors:
        said += f", {count(errors, 'failure')} in a row"
    if view.get("reverts"):
        said += f", {count(view['reverts'], 'iteration')} reverted"
    return "" if said == "0" else said


def _resources(view: View) -> str:
    cpu, memory, processes = resource_cells(view)
    parts = [f"{cpu} of processor time" if cpu else "", memory]
    parts.append("1 process" if processes == "1" else f"{processes} processes" if processes else "")
    return ", ".join(part for part in parts if part)


def _checkpoint_rows(checkpoint: View | None, fault: str, now: float, *, runs: bool) -> list[tuple[str, str]]:
    if fault:
        return [("checkpoint", clean(fault))]
    if not checkpoint:
        return []
    from ralphctl.checkpoint_words import summary  # most have none, and `status` is to be quick

    lines = summary(checkpoint, now, runs=runs)
    return [("checkpoint" if i == 0 else "", line) for i, line in enumerate(lines)]


def _remarks(view: View) -> list[tuple[str, str]]:
    rows = []
    if view.get("drift"):
        from ralphctl.changes import drift_rows  # most have none, and `status` is to be quick

        rows += [("changed" if i == 0 else "", row) for i, row in enumerate(drift_rows(view))]
    notes = view.get("notes")
    return rows + ([("note", clean(str(line))) for line in notes] if isinstance(notes, list) else [])
