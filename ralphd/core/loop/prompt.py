"""The prompt of an attempt: the user's own, the task, what is left of others, what went wrong (L4)."""

from collections.abc import Sequence

from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.loop.model import Iteration, Previous
from ralphd.core.loop.tasks import PROMPT_ALONE
from ralphd.core.plan import PROMISE, Plan, Task

PLACEHOLDER = "{previous_attempt_context}"
"""Where a user's prompt wants the section on the attempt before; without it, it comes last."""

MOST_LINE_CHARS = 500


def prompt(
    own: str,
    *,
    task: Task,
    plan: Plan | None,
    handoff: str = "",
    trouble: Sequence[str] = (),
    previous_attempt_context: str = "",
    reverted: RevertNotice | None = None,
) -> str:
    """The whole prompt. ``own`` is the user's prompt file; what is empty is left out."""
    has_place = PLACEHOLDER in own
    parts = [
        own.replace(PLACEHOLDER, previous_attempt_context).rstrip(),
        _task(task, plan),
        _reverted(reverted),
        _handoff(handoff),
        _trouble(trouble),
        "" if has_place else previous_attempt_context,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def previous_attempt(previous: Previous | None, attempt: int) -> str:
    """The section on the attempt before: its number, what went wrong, what it printed last (000-T2)."""
    if previous is None:
        return ""
    which = f"This is attempt {attempt}. Attempt {previous.attempt}, by {previous.agent},"
    lines = [
        "## Previous Attempt",
        "",
        f"{which if previous.attempt else 'An earlier attempt at this'} failed"
        f" ({previous.kind.value.replace('_', ' ')}): {_cut(previous.why)}",
        "What it had done may still be in the working directory: look before you begin.",
    ]
    if previous.lines:
        fence = _fence(previous.lines)
        shown = [_cut(line) for line in previous.lines]
        count = "last line" if len(shown) == 1 else f"last {len(shown)} lines"
        lines += ["", f"The {count} that it printed:", "", fence, *shown, fence]
    return "\n".join(lines)


def previous_of(iteration: Iteration) -> str:
    """The section on the attempt before, for the iteration's present attempt."""
    return previous_attempt(iteration.previous, iteration.attempt)


def _task(task: Task, plan: Plan | None) -> str:
    if plan is None or task == PROMPT_ALONE:
        return ""
    title = f"{task.id}: {task.title}" if task.title and task.title != task.id else task.id
    return "\n".join(
        (
            "## Task",
            "",
            title,
            "",
            f"It is listed in {plan.file}. Do this task and no other; when it is done, mark it so there.",
            f"Only when no task is open any more, end your answer with `{PROMISE}` on a line of its own.",
        )
    )


def _reverted(note: RevertNotice | None) -> str:
    """The section on commits that did not stay: which, why, and what the tests printed last (R9)."""
    if note is None:
        return ""
    these = ", ".join(note.commits)
    lines = [
        "## Reverted",
        "",
        f"What was committed for this task was reverted ({these}): {_cut(note.why)}.",
        f"It is not in the working directory any more; `git show {note.commits[0]}` shows it."
        if note.commits
        else "It is not in the working directory any more.",
        "Do the task again, so that the tests pass, and commit it; do not take the revert back.",
    ]
    if note.tail:
        fence = _fence(note.tail)
        lines += ["", "The end of what the tests printed:", "", fence, *map(_cut, note.tail), fence]
    return "\n".join(lines)


def _handoff(text: str) -> str:
    return f"## Handoff\n\n{text.strip()}" if text.strip() else ""


def _trouble(trouble: Sequence[str]) -> str:
    if not trouble:
        return ""
    return "## State of the repository\n\n" + "\n".join(f"- {_cut(each)}" for each in trouble)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LINE_CHARS else text[:MOST_LINE_CHARS] + " …"


def _fence(lines: Sequence[str]) -> str:
    """A fence that none of the lines ends."""
    fence = "```"
    while any(line.lstrip().startswith(fence) for line in lines):
        fence += "`"
    return fence
