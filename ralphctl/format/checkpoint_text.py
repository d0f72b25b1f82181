"""A checkpoint in words: where a loop was, why it paused, what is saved with it.

Any text in it may have been written by others. A daemon reports only the number of uncommitted
files.
"""

from __future__ import annotations

from ralphctl.format import humanize
from ralphctl.format.humanize import View, ago, count, cut, moment, part, pause_words, since_words, until
from ralphctl.format.output import clean

OLD_S = 7 * 86400
"""From this age on it is marked as old; none is discarded for its age."""
_MOST_CHARS = 100


def fuller(reported: object, copy: View | None) -> View | None:
    """Return the daemon's view, or the copy in the working directory if it is the same checkpoint in full."""
    if not isinstance(reported, dict):
        return copy
    return copy if copy and copy.get("created_at") == reported.get("created_at") else reported


def rows(checkpoint: View, now: float) -> list[tuple[str, str]]:
    """Return label and text of what is shown before the question whether to resume."""
    saved = ago(checkpoint.get("created_at"), now)
    labelled = [
        ("task", _task(checkpoint)),
        ("iteration", _iteration(checkpoint)),
        ("agent", _text(checkpoint.get("agent"))),
        ("why", _why(checkpoint)),
        ("resumes", until(checkpoint.get("resume_at"), now)),
        ("saved", f"{saved}; {_TOO_OLD}" if is_old(checkpoint, now) else saved),
        ("cost", _cost(checkpoint)),
        ("uncommitted", uncommitted(checkpoint)),
    ]
    return [(label, text) for label, text in labelled if text]


def summary(checkpoint: View, now: float, state: str = "", *, runs: bool = False) -> list[str]:
    """Return the same in two or three lines, without what the words of its ``state`` show.

    Of a ralph that ``runs`` they show all but two things.
    """
    task, resumes = _task(checkpoint), until(checkpoint.get("resume_at"), now)
    iteration = f"iteration {_iteration(checkpoint)}"
    saved = f"saved {ago(checkpoint.get('created_at'), now)}"
    where = [iteration, f"task {task}" if task else "", _text(checkpoint.get("agent"))]
    shown = clean(checkpoint.get("why") or pause_words(checkpoint.get("pause_reason")))
    why = "" if shown in state else _why(checkpoint)
    rest = [why, f"resumes {resumes}" if resumes else "", saved, _cost(checkpoint)]
    lines = [[iteration, saved]] if runs else [where, rest]
    lines[-1].append(uncommitted(checkpoint))
    return [", ".join(filter(None, parts)) for parts in lines] + [_TOO_OLD] * is_old(checkpoint, now)


_TOO_OLD = "older than 7 days: check it before you resume"


def brief(checkpoint: View, now: float) -> str:
    """Return ``iteration 6 of 40, task Fix the parser, saved 2h ago``."""
    task, saved = _task(checkpoint), since_words("saved ", checkpoint.get("created_at"), now, " ago")
    parts = (f"iteration {_iteration(checkpoint)}", f"task {task}" if task else "", saved)
    return ", ".join(filter(None, parts))


def is_old(checkpoint: View, now: float) -> bool:
    """Return whether it was saved more than 7 days ago."""
    saved = moment(checkpoint.get("created_at"))
    return saved is not None and now - saved > OLD_S


def uncommitted(checkpoint: View) -> str:
    """Return ``3 uncommitted files``; empty for none."""
    files = checkpoint.get("uncommitted_files")
    number = len(files) if isinstance(files, list) else checkpoint.get("uncommitted")
    return count(number, "uncommitted file") if isinstance(number, int) and number > 0 else ""


def _task(checkpoint: View) -> str:
    if not (task := part(checkpoint, "task")):
        return ""
    said = _text(task.get("title") or task.get("id") or "?")
    attempt = task.get("attempt", checkpoint.get("attempt"))
    return f"{said} (attempt {attempt})" if isinstance(attempt, int) and attempt > 1 else said


def _iteration(checkpoint: View) -> str:
    most = checkpoint.get("max_iterations")
    number = checkpoint.get("iteration", "?")
    within = isinstance(most, int) and isinstance(number, int) and number <= most
    return f"{number} of {most}" if within else _text(number)  # a limit counts from each start


def _why(checkpoint: View) -> str:
    reason = _text(pause_words(checkpoint.get("pause_reason")))
    asked = checkpoint.get("pause_reason") in ("user_requested", "iteration_boundary")
    why = "" if asked else _text(checkpoint.get("why"))  # it would say the same
    return f"{reason}: {why}" if reason and why else reason or why


def _cost(checkpoint: View) -> str:
    cost = checkpoint.get("total_cost_usd")
    return humanize.usd_words(cost) if isinstance(cost, int | float) and 0 < cost < 1e9 else ""


def _text(value: object) -> str:
    return "" if value is None else cut(clean(value), _MOST_CHARS)
