"""A checkpoint in words: where a loop was, why it rests, what is with it (L13, 002-US-003).

Loaded by ``status`` where there is one, so little is imported. What is in it may be somebody else's text, and
a daemon tells less of it than the file: how many files are not committed, not which.
"""

from __future__ import annotations

from ralphctl.tell import clean
from ralphctl.words import ago, count, duration, moment, pause_words, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OLD_S = 7 * 86400
"""None is discarded for its age; from here on it is told."""
_MOST_CHARS = 100


def fuller(told: object, copy: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the daemon tells, or the copy in the working directory where that is the same one in full."""
    if not isinstance(told, dict):
        return copy
    return copy if copy and copy.get("created_at") == told.get("created_at") else told


def rows(checkpoint: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    """Label and text of all that a person is told before the question is asked."""
    found = [
        ("task", _task(checkpoint)),
        ("iteration", _iteration(checkpoint)),
        ("agent", _text(checkpoint.get("agent"))),
        ("why", _why(checkpoint)),
        ("may go on", until(checkpoint.get("resume_at"), now)),
        ("saved", _saved(checkpoint, now)),
        ("cost", _cost(checkpoint)),
        ("uncommitted", uncommitted(checkpoint)),
    ]
    return [(label, text) for label, text in found if text]


def summary(checkpoint: Mapping[str, Any], now: float, *, runs: bool = False) -> list[str]:
    """The same in two lines or three, for ``status``; while it ``runs`` its state tells what it waits for."""
    where = [f"iteration {_iteration(checkpoint)}"]
    if task := _task(checkpoint):
        where.append(f"task {task}")
    if agent := _text(checkpoint.get("agent")):
        where.append(agent)
    resumes = "" if runs else until(checkpoint.get("resume_at"), now)
    rest = [
        _why(checkpoint),
        f"may go on {resumes}" if resumes else "",
        f"saved {ago(checkpoint.get('created_at'), now)}",
    ]
    rest += [_cost(checkpoint), uncommitted(checkpoint)]
    lines = [", ".join(where), ", ".join(part for part in rest if part)]
    return [*lines, _TOO_OLD] if is_old(checkpoint, now) else lines


_TOO_OLD = "older than 7 days: look at it before you go on"


def brief(checkpoint: Mapping[str, Any], now: float) -> str:
    """``iteration 6 of 40, task Mend the parser, saved 2h ago``: for one line of a message."""
    task, saved = _task(checkpoint), moment(checkpoint.get("created_at"))
    said = [f"iteration {_iteration(checkpoint)}", f"task {task}" if task else ""]
    said.append("" if saved is None else f"saved {duration(now - saved)} ago")
    return ", ".join(part for part in said if part)


def is_old(checkpoint: Mapping[str, Any], now: float) -> bool:
    """Whether it was saved more than 7 days ago."""
    saved = moment(checkpoint.get("created_at"))
    return saved is not None and now - saved > OLD_S


def uncommitted(checkpoint: Mapping[str, Any]) -> str:
    """``3 uncommitted files``; empty for none."""
    files = checkpoint.get("uncommitted_files")
    number = len(files) if isinstance(files, list) else checkpoint.get("uncommitted")
    return count(number, "uncommitted file") if isinstance(number, int) and number > 0 else ""


def _task(checkpoint: Mapping[str, Any]) -> str:
    task = checkpoint.get("task")
    if not isinstance(task, dict):
        return ""
    said = _text(task.get("title") or task.get("id") or "?")
    attempt = task.get("attempt", checkpoint.get("attempt"))
    return f"{said} (attempt {attempt})" if isinstance(attempt, int) and attempt > 1 else said


def _iteration(checkpoint: Mapping[str, Any]) -> str:
    most = checkpoint.get("max_iterations")
    number = checkpoint.get("iteration", "?")
    within = isinstance(most, int) and isinstance(number, int) and number <= most
    return f"{number} of {most}" if within else _text(number)  # a limit counts from each start anew


def _why(checkpoint: Mapping[str, Any]) -> str:
    reason = _text(pause_words(checkpoint.get("pause_reason")))
    asked = checkpoint.get("pause_reason") in ("user_requested", "iteration_boundary")
    why = "" if asked else _text(checkpoint.get("why"))  # it would say the same
    return f"{reason}: {why}" if reason and why else reason or why


def _saved(checkpoint: Mapping[str, Any], now: float) -> str:
    said = ago(checkpoint.get("created_at"), now)
    return f"{said}; {_TOO_OLD}" if is_old(checkpoint, now) else said


def _cost(checkpoint: Mapping[str, Any]) -> str:
    cost = checkpoint.get("total_cost_usd")
    return f"${cost:.2f}" if isinstance(cost, int | float) and 0 < cost < 1e9 else ""


def _text(value: object) -> str:
    said = "" if value is None else clean(str(value))
    return said if len(said) <= _MOST_CHARS else said[: _MOST_CHARS - 1] + "…"
