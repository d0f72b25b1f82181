"""The prompt of an attempt: the user's own, the task, notes of earlier agents, what went wrong (L4)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ralphd.core.loop.tasks import PROMPT_ALONE
from ralphd.core.plan import PROMISE, Plan, Task

if TYPE_CHECKING:
    from ralphd.core.gate.verdict_views import RevertNotice
    from ralphd.core.loop.model import Iteration, Previous

PLACEHOLDER = "{previous_attempt_context}"
"""Where a user's prompt wants the section on the previous attempt; without it, the section comes last."""

NOTE_HEADING = "## Note from the person who runs this loop"
MOST_LINE_CHARS = 500


def prompt(
    own: str, *, task: Task, plan: Plan | None, handoff: str = "", trouble: Sequence[str] = (),
    previous_attempt_context: str = "", reverted: "RevertNotice | None" = None, notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return the whole prompt. ``own`` is the user's prompt file; empty sections are left out."""
    state = ["## State of the repository\n", *(f"- {_cut(each)}" for each in trouble)] if trouble else []
    parts = [
        own.replace(PLACEHOLDER, previous_attempt_context).rstrip(),
        "" if plan is None or task == PROMPT_ALONE else _task(task, plan),
        "\n\n".join([NOTE_HEADING, *notes]) if notes else "",
        "" if reverted is None else _reverted(reverted),
        f"## Handoff\n\n{handoff.strip()}" if handoff.strip() else "",
        "\n".join(state),
        "" if PLACEHOLDER in own else previous_attempt_context,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def previous_attempt(previous: "Previous | None", attempt: int) -> str:
    """Return the section on the previous attempt: its number, what went wrong, its last output."""
    if previous is None:
        return ""
    which = f"This is attempt {attempt}. Attempt {previous.attempt}, by {previous.agent},"
    failed = f"{which if previous.attempt else 'An earlier attempt at this'} failed"
    failed += f" ({previous.kind.value.replace('_', ' ')}): {_cut(previous.why)}"
    advice = "Its changes may still be in the working directory: inspect them before you begin."
    lines = ["## Previous Attempt", "", failed, advice]
    count = "last line" if len(previous.lines) == 1 else f"last {len(previous.lines)} lines"
    return "\n".join([*lines, *_quoted(f"The {count} of its output:", previous.lines)])


def previous_of(iteration: "Iteration") -> str:
    """Return the section on the previous attempt, for the iteration's present attempt."""
    return previous_attempt(iteration.previous, iteration.nth)


def _task(task: Task, plan: Plan) -> str:
    title = f"{task.id}: {task.title}" if task.title and task.title != task.id else task.id
    if task.added:
        return (
            f"## Task\n\n{task.title}\n\n"
            "A person added this task; no file lists it. Do this task and no other, and commit the result.\n"
            f"When it is done, end your answer with `{PROMISE}` on a line of its own."
        )
    return (
        f"## Task\n\n{title}\n\n"
        f"It is listed in {plan.file}. Do this task and no other; when it is done, mark it as done there.\n"
        f"Only when no open task is left, end your answer with `{PROMISE}` on a line of its own."
    )


def _reverted(notice: "RevertNotice") -> str:
    see = f"`git show {' '.join(notice.commits)}` shows them"
    lines = [
        "## Reverted", "",
        f"The commits for this task were reverted ({', '.join(notice.commits)}): {_cut(notice.why)}.",
        "They are no longer in the working directory" + (f"; {see}." if notice.commits else "."),
        "Do the task again so that the tests pass, and commit it. Do not undo the revert.",
    ]  # fmt: skip
    return "\n".join([*lines, *_quoted("The last lines of the tests' output:", notice.tail)])


def _quoted(title: str, lines: Sequence[str]) -> list[str]:
    fence = "```"
    while any(line.lstrip().startswith(fence) for line in lines):  # none of the lines may end the block
        fence += "`"
    return ["", title, "", fence, *map(_cut, lines), fence] if lines else []


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LINE_CHARS else text[:MOST_LINE_CHARS] + " …"
