"""What a person sends to a built-in loop: tasks to do next, and notes for the next prompt (``inbox.json``).

Only the daemon changes an inbox. The loop reads it, and keeps in its own memory which notes an agent got, so
no file has two writers. An inbox is never changed in place: every function returns a new one.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ralphd.core.plan import Task, TaskStatus
from ralphd.core.text import one_line, strip_controls
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.errors import NotFound, UsageError, WrongState

ADDED: Final = "+"
"""The ids of added tasks begin with this; the ids that a Markdown list gets never do."""
MOST_TASKS: Final = 100
MOST_NOTES: Final = 20
TITLE_CHARS: Final = 200
NOTE_CHARS: Final = 4000


@dataclass(frozen=True, slots=True)
class Sent:
    """An added task, with an id such as ``+1``, or a note, with an id such as ``2``. No id is used twice."""

    id: str
    text: str
    added_at: Moment


@dataclass(frozen=True, slots=True)
class Inbox:
    """``inbox.json``. ``last_id`` is the number of the last task or note."""

    last_id: int = 0
    tasks: tuple[Sent, ...] = ()
    notes: tuple[Sent, ...] = ()


def with_task(inbox: Inbox, at: Moment, text: str) -> Inbox:
    """Add a task. Raise UsageError for an unfit title, WrongState where there are too many tasks."""
    number, line = inbox.last_id + 1, one_line(text, 2 * TITLE_CHARS)
    _check(line, "task", TITLE_CHARS, len(inbox.tasks), MOST_TASKS)
    return replace(inbox, last_id=number, tasks=(*inbox.tasks, Sent(f"{ADDED}{number}", line, at)))


def with_note(inbox: Inbox, at: Moment, text: str) -> Inbox:
    """Add a note. Raise UsageError for an unfit text, WrongState where too many notes wait."""
    number, lines = inbox.last_id + 1, [strip_controls(line).rstrip() for line in text.strip().splitlines()]
    _check("\n".join(lines), "note", NOTE_CHARS, len(inbox.notes), MOST_NOTES)
    return replace(inbox, last_id=number, notes=(*inbox.notes, Sent(str(number), "\n".join(lines), at)))


def _check(text: str, what: str, most_chars: int, count: int, most: int) -> None:
    if not text:
        raise UsageError(f"the {what} is empty")
    if len(text) > most_chars:
        why = "write the rest to a file of the repository, and name the file"
        raise UsageError(f"the {what} is longer than {most_chars} characters", why=why)
    if count >= most:
        raise WrongState(f"there are {most} added {what}s already", mend="ralphctl tasks remove ID")


def without(inbox: Inbox, at: Moment, id: str) -> Inbox:
    """Remove an added task or a note by its number, or else added tasks by their text. Raise NotFound."""
    gone = {each.id for each in (*inbox.tasks, *inbox.notes) if each.id in (id, f"{ADDED}{id}")}
    gone = gone or {each.id for each in inbox.tasks if each.text == one_line(id, 2 * TITLE_CHARS)}
    if not gone:
        why = "only added tasks and pending notes can be removed; other tasks are in your own task list"
        raise NotFound(f"no added task {id[:TITLE_CHARS]!r}", why=why, mend="ralphctl tasks")
    tasks = tuple(each for each in inbox.tasks if each.id not in gone)
    notes = tuple(each for each in inbox.notes if each.id not in gone)
    return replace(inbox, tasks=tasks, notes=notes)


def unread(notes: Iterable[Sent], read: int, *, taken_at: Moment | None = None) -> tuple[Sent, ...]:
    """Return the notes after the one with the id ``read``, without those before ``taken_at``.

    ``taken_at`` is the start of the attempt in progress, whose agent has got the notes of before.
    """
    return tuple(
        note for note in notes if int(note.id) > read and (taken_at is None or note.added_at > taken_at)
    )


def plan_tasks(inbox: Inbox) -> tuple[Task, ...]:
    """Return the added tasks for the loop; its ledger records which of them are done."""
    return tuple(Task(task.id, task.text, TaskStatus.PENDING, added=True) for task in inbox.tasks)
