"""The plan: what a user's task list says is done and what is open, and when that is all (E4).

An agent writes the list and the lines that are judged here: nothing that was not understood counts as done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ralphd.core.printed import CONTROL

PROMISE: Final = "<promise>COMPLETE</promise>"
"""The line by which an agent says that all is done."""

MARKED_NAMED: Final = 5
"""Of tasks that are marked, so many are told by name."""

PROMISE_LINES: Final = 50
"""How many of the last lines of stdout are looked through for it (E4)."""


class TaskStatus(StrEnum):
    """How far a task is, by the list."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of work. ``id`` is the list's own where it gives one; it stays while the title does.

    ``parallel``: the list says that it can be done beside others. It is done in its turn all the same.
    """

    id: str
    title: str
    status: TaskStatus
    parallel: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a list said, in the order in which the tasks are to be done.

    ``file`` is relative to the working directory. ``fault`` says in a sentence why the list could not be
    read; then there are no tasks.
    """

    file: str
    tasks: tuple[Task, ...] = ()
    fault: str | None = None

    @property
    def open(self) -> tuple[Task, ...]:
        """The tasks that are not done."""
        return tuple(task for task in self.tasks if task.status is not TaskStatus.DONE)


def parallel_words(plan: Plan) -> str:
    """What becomes of open tasks that are marked parallel, in a sentence; empty where none is."""
    marked = [task.id for task in plan.open if task.parallel]
    if not marked:
        return ""
    more = len(marked) - MARKED_NAMED
    told = ", ".join(marked[:MARKED_NAMED]) + (f" and {more} more" if more > 0 else "")
    if len(marked) == 1:
        return f"{told} is marked parallel: it is done in its turn, like the others"
    return f"{told} are marked parallel: they are done one after the other"


def is_promised(lines: Sequence[str]) -> bool:
    """Whether the promise is a line of its own among the last 50 of ``lines``.

    White space around it and control sequences of a terminal are no part of a line. Quotes, backticks and
    asterisks are: in them the promise is spoken of, as in a prompt that was echoed, and not given.
    """
    return any(CONTROL.sub("", line).strip() == PROMISE for line in lines[-PROMISE_LINES:])


def is_complete(plan: Plan | None, promised: bool) -> bool:
    """Whether there is nothing more to do (E4): every task is done, or it was promised and none is open.

    A list without a task says nothing either way. One that cannot be read is never complete: what it holds
    may be open. Where there is no list, the promise is all there is.
    """
    if plan is None:
        return promised
    if plan.fault is not None or plan.open:
        return False
    return promised or bool(plan.tasks)
