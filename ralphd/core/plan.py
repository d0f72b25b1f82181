"""The plan: a task list, parsed from JSON user stories or from Markdown, and when it is complete (L1, E4).

Lists are written by agents, so a text may be anything. Every pass over one is linear, lines are truncated
before a pattern is applied, and what is not understood counts as open work, never as done.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final

from ralphd.core.text import CONTROL, first_names
from ralphd.dataclass import dataclass

# Markdown lines outside code blocks and comments, in which boxes are only examples.

_LINE_CHARS: Final = 1000
_FENCE_CHARS: Final = 8  # a longer fence counts as this long, which bounds the number of useless searches
_FENCE: Final = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})(.*)")
_FENCE_END: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*")
_BEGIN, _END = "<!--", "-->"


class _Lines:
    """The lines of a text outside fenced code and comments, each truncated to 1000 characters.

    A fence or a comment without an end hides nothing: open work may follow it. Linear in the length of the
    text, whatever the text is.
    """

    def __init__(self, text: str) -> None:
        self._lines = [line[:_LINE_CHARS].rstrip("\r") for line in text.split("\n")]
        self._missing: set[tuple[str, int]] = set()  # ends that a search has not found

    def visible(self) -> Iterator[str]:
        at = 0
        while at < len(self._lines):
            if (after := self._after_fence(at)) is not None:
                at = after
                continue
            line, is_open = _without_comments(self._lines[at])
            end = self._find(at + 1, (_END, 0)) if is_open else None
            if end is None:
                yield self._lines[at] if is_open else line
                at += 1
            else:
                yield line
                self._lines[end] = self._lines[end].partition(_END)[2]
                at = end

    def _after_fence(self, at: int) -> int | None:
        """Return the line after the code block that begins here, if one does."""
        fence = _FENCE.fullmatch(self._lines[at])
        if fence is None or (fence[1][0] == "`" and "`" in fence[2]):
            return None
        end = self._find(at + 1, (fence[1][0], min(len(fence[1]), _FENCE_CHARS)))
        return None if end is None else end + 1

    def _find(self, first: int, wanted: tuple[str, int]) -> int | None:
        """Return the first line that ends a comment, or a fence of that character and length."""
        if wanted in self._missing:
            return None
        mark, length = wanted
        for at in range(first, len(self._lines)):
            end = _FENCE_END.fullmatch(self._lines[at])
            if mark == _END:
                if _END in self._lines[at]:
                    return at
            elif end is not None and end[1][0] == mark and len(end[1]) >= length:
                return at
        self._missing.add(wanted)
        return None


def _without_comments(line: str) -> tuple[str, bool]:
    """Return the line without its comments, and whether it leaves one open."""
    text, at = "", 0
    while (begin := line.find(_BEGIN, at)) >= 0:
        text += line[at:begin]
        end = line.find(_END, begin + len(_BEGIN))
        if end < 0:
            return text, True
        at = end + len(_END)
    return text + line[at:], False


# The plan, and when it is complete (E4).

PROMISE: Final = "<promise>COMPLETE</promise>"
"""The line by which an agent declares that everything is done."""

MARKED_NAMED: Final = 5
"""How many of the tasks that are marked parallel are named."""

PROMISE_LINES: Final = 50
"""How many of the last lines of stdout are searched for it (E4)."""


class TaskStatus(StrEnum):
    """The state of a task in the list."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of work. ``id`` is the list's own if it has ids, else it is made from the title.

    ``parallel``: the list allows it to run next to others. It is done in its turn all the same. ``added``: a
    person added it with ``ralphctl tasks add``. No list has it, and only the ledger records that it is done.
    ``elsewhere``: another ralph that shares the list does it, or this one was not asked to.
    """

    id: str
    title: str
    status: TaskStatus
    parallel: bool = False
    added: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A task list, in the order of work.

    ``file`` is relative to the working directory, and empty if there are only ``added`` tasks. ``fault`` says
    in a sentence why the list could not be read; it then has no tasks.
    """

    file: str
    tasks: tuple[Task, ...] = ()
    fault: str | None = None
    added: tuple[Task, ...] = ()

    @property
    def open(self) -> tuple[Task, ...]:
        """Return the tasks that are not done."""
        return tuple(task for task in self.tasks if task.status is not TaskStatus.DONE)


def list_words(plan: Plan | None) -> str:
    """Return the name of the task list, and how many of its tasks are open."""
    if plan is None or not plan.tasks:
        what = f"{plan.file} lists no task" if plan is not None and plan.file else "no task list"
        return f"{what}: the prompt alone defines the work"
    return f"{plan.file}: {len(plan.open)} of {len(plan.tasks)} task{'s'[len(plan.tasks) == 1 :]} open"


def parallel_words(plan: Plan) -> str:
    """Return a sentence on the open tasks that are marked parallel, empty if there are none."""
    marked = [task.id for task in plan.open if task.parallel]
    if not marked:
        return ""
    names = first_names(marked, MARKED_NAMED)
    if len(marked) == 1:
        return f"{names} is marked parallel: it is done in its turn, like the others"
    return f"{names} are marked parallel: they are done one after the other"


def is_promised(lines: Sequence[str]) -> bool:
    """Return whether the promise is a line of its own among the last 50 of ``lines``.

    White space and control sequences around it are ignored. Quotes, backticks and asterisks are not: they
    mean that the promise is quoted, as in the echo of a prompt.
    """
    return any(CONTROL.sub("", line).strip() == PROMISE for line in lines[-PROMISE_LINES:])


def is_complete(plan: Plan | None, promised: bool) -> bool:
    """Return whether everything is done (E4): every task is, or it was promised and no task is open.

    A list that cannot be read is never complete: it may hold open work. Without a list, or with an empty
    one, the promise alone counts.
    """
    if plan is None:
        return promised
    if plan.fault is not None or plan.open:
        return False
    return promised or bool(plan.tasks)


AUTO: Final = "auto"
LISTS: Final = (
    "prd.json", "fix_plan.md", ".ralph/fix_plan.md", "IMPLEMENTATION_PLAN.md", "TASKS.md", "TODO.md"
)  # fmt: skip
"""The files that ``tasks = "auto"`` looks for, in this order."""

HEADED_LISTS: Final = ("PLAN.md", "PRD.md")
"""The files that it looks for next. They are task lists only with headings like ``## Task 1``."""

MAX_TASKS: Final = 5000
_TITLE_CHARS: Final = 200
_ID_CHARS: Final = 48
_STORY_KEYS: Final = ("userStories", "tasks")

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_BOX: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[ {0,2}([^\d\]]?)\ufe0f? {0,2}\][ \t]+(.*)")
_BOX_MARKS: Final = dict.fromkeys("xX✅✔✓☑", TaskStatus.DONE) | dict.fromkeys("~-/", TaskStatus.IN_PROGRESS)
_STATUS_LINE: Final = re.compile(r"[ \t>*_+-]*status[ \t*_]*:(.*)", re.IGNORECASE)
_OPTIONAL: Final = re.compile(
    r"(?:optional|future|nice[ -]to[ -]have|out[ -]of[ -]scope)"
    r"(?: (?:features|ideas|improvements|enhancements|items|tasks|work))?(?: ?[(:/].*)?",
    re.IGNORECASE,
)

_NUMBER = r"\d{1,6}(?:\.\d{1,6})*"
_NAME: Final = re.compile(
    rf"(?:(?i:task) #?(?P<number>[A-Za-z]{{0,3}}{_NUMBER})|(?P<code>[A-Z]{{1,8}}-?{_NUMBER}))"
    r"(?P<mark>[:.)]| [–—-](?= )|)(?: (?P<rest>.*))?"
)
_UNMARKED_CODE: Final = re.compile(r"[A-Z]{1,8}-?\d{3,6}")  # T001, US-001; but not HTTP2

_DONE_MARKS: Final = "✅✔✓☑"
_BEGUN_MARKS: Final = "🚧🔄⏳"
_DONE_WORDS: Final = frozenset(
    ["x", "done", "complete", "completed", "finished", "implemented", "passed", "passes", "closed"]
)
_BEGUN: Final = re.compile(r"(?:in progress|started|doing|wip|ongoing)\b")
_HEDGE: Final = re.compile(
    r"\b(?:not|but|except|when|if|once|until|unless|after|or|partial\w*|pending|todo|remaining|missing|blocked"
    r"|fail\w*|progress|open)\b|[|?]"
)
_HEADING_END: Final = re.compile(
    rf" ?(?:[(\[]([\w -]{{1,14}})[)\]]|[–—-] (\w{{4,9}})|([{_DONE_MARKS}{_BEGUN_MARKS}])\ufe0f?)$"
)
_PARALLEL: Final = r" ?[(\[](?i:parallel)[)\]]"
_PARALLEL_END: Final = re.compile(rf"{_PARALLEL}$")
_PARALLEL_NAME: Final = re.compile(
    rf"((?i:task) #?[A-Za-z]{{0,3}}{_NUMBER}|[A-Z]{{1,8}}-?{_NUMBER}){_PARALLEL}(?=[ :.)])"
)
_HEADING_MARK: Final = re.compile(rf"(?:\[([xX\W])\]|([{_DONE_MARKS}{_BEGUN_MARKS}]))\ufe0f? (.*)")


class _NotAList(Exception):
    """The text is not a task list. The message ends a sentence that begins with the file's name."""


@dataclass(slots=True)
class _Section:
    """A task heading, with the states below it: in words, and by boxes."""

    level: int
    name: str
    title: str
    stated: list[TaskStatus]
    parallel: bool = False
    boxes: list[TaskStatus] = field(default_factory=list)
    has_parts: bool = False

    def item(self) -> Task:
        """Return the task: done if that is stated, or if all its boxes are ticked."""
        marks, status = self.stated + self.boxes, TaskStatus.PENDING
        if any(group and set(group) == {TaskStatus.DONE} for group in (self.stated, self.boxes)):
            status = TaskStatus.DONE
        elif any(mark is not TaskStatus.PENDING for mark in marks):
            status = TaskStatus.IN_PROGRESS
        return Task(self.name, self.title, status, self.parallel)


def parse(file: str, text: str) -> Plan:
    """Return the plan in the ``text`` of ``file``, which is JSON by its name, else Markdown."""
    try:
        items = _stories(text) if file.lower().endswith(".json") else _Outline(text).items()
    except _NotAList as fault:
        return Plan(file, fault=f"{file} {fault}")
    return Plan(file, tuple(_with_ids(items)))


def has_task_headings(text: str) -> bool:
    """Return whether a Markdown text has headings such as ``## Task 1``."""
    try:
        return any(isinstance(each, _Section) for each in _Outline(text).entries)
    except _NotAList:
        return True  # it has too many of them, which ``parse`` reports


def _check_count(tasks: Sized) -> None:
    if len(tasks) > MAX_TASKS:
        raise _NotAList(f"lists more than {MAX_TASKS} tasks")


def _with_ids(tasks: Iterable[Task]) -> Iterator[Task]:
    """Give each task a unique id: its own, else its title made short; ``-2`` if that is taken."""
    taken: dict[str, int] = {}
    for task in tasks:
        slug = re.sub(r"[\W_]+", "-", task.title.lower()).strip("-")[:_ID_CHARS].rstrip("-")
        free = wanted = task.id or slug or "task"
        while free in taken:
            taken[wanted] += 1
            free = f"{wanted}-{taken[wanted]}"
        taken[free] = 1
        yield replace(task, id=free)


def _plain(text: str) -> str:
    """Return one line, without emphasis and unprintable characters."""
    text = "".join(each if each.isprintable() else " " for each in text).replace("**", "").replace("~~", "")
    return " ".join(text.split())


def _named(text: str) -> tuple[str, str]:
    """Return the name at the beginning, such as ``Task 3:`` or ``US-001:``, or ``""``; and the title."""
    match = _NAME.fullmatch(text)
    if match is None or (match["code"] and not match["mark"] and not _UNMARKED_CODE.fullmatch(match["code"])):
        return "", text[:_TITLE_CHARS]
    title = match["rest"] if match["mark"] and match["rest"] else text
    name = match["code"] or f"task-{match['number']}"
    return name[:_ID_CHARS], title[:_TITLE_CHARS]


def _status(text: str) -> TaskStatus:
    """Return the status that a text states. It is done only without an if or a but."""
    plain = " ".join(re.sub(r"[*_`~()\[\]\ufe0f-]", " ", text).lower().split())
    words = plain.lstrip(_DONE_MARKS + _BEGUN_MARKS + " ")
    if plain[:1] in tuple(_BEGUN_MARKS) or _BEGUN.match(words):
        return TaskStatus.IN_PROGRESS
    if "[ ]" in text or _HEDGE.search(words):
        return TaskStatus.PENDING
    first = re.split(r"[^a-z]", words, maxsplit=1)[0]
    ticked = plain != "" and not words
    return TaskStatus.DONE if ticked or first in _DONE_WORDS else TaskStatus.PENDING


class _Outline:
    """The loose boxes and task sections of a Markdown text, in their order.

    A box below a task heading is a part of that task; any other box is a task. Work below a heading such as
    ``## Optional`` or ``## Future work`` is left out.
    """

    def __init__(self, text: str) -> None:
        self.entries: list[Task | _Section] = []
        self._sections: list[_Section] = []  # those around the present line, outermost first
        self._optional_level = 0  # of the heading below which all is optional; 0: none
        for line in _Lines(text).visible():
            if heading := _HEADING.match(line):
                self._enter(len(heading[1]), _plain(heading[2].rstrip("# \t")))
            elif not self._optional_level:
                self._read(line)
            _check_count(self.entries)

    def items(self) -> list[Task]:
        """Return the tasks. A heading is not one if only its parts, or boxes of its name, have a state."""
        boxes = {each.id for each in self.entries if isinstance(each, Task) and each.id}
        items = []
        for each in self.entries:
            if isinstance(each, Task):
                items.append(each)
            elif each.stated or each.boxes or not (each.has_parts or each.name in boxes):
                items.append(each.item())
        return items

    def _enter(self, level: int, text: str) -> None:
        if self._optional_level and level > self._optional_level:
            return
        self._optional_level = level if _OPTIONAL.fullmatch(text) else 0
        while self._sections and self._sections[-1].level >= level:
            self._sections.pop()
        if section := _section(level, text):
            for outer in self._sections:
                outer.has_parts = True
            self._sections.append(section)
            self.entries.append(section)

    def _read(self, line: str) -> None:
        if (box := _BOX.match(line)) and (text := _plain(box[2])):
            status = _BOX_MARKS.get(box[1], TaskStatus.PENDING)
            if self._sections:
                self._sections[-1].boxes.append(status)
            else:
                self.entries.append(Task(*_named(text), status))
        elif self._sections and (stated := _STATUS_LINE.match(line)):
            self._sections[-1].stated.append(_status(stated[1]))


def _section(level: int, text: str) -> _Section | None:
    """Return the task of a heading such as ``Task 3: …``, ``US-001: …``, ``[ ] …``, else None."""
    stated: list[TaskStatus] = []
    if mark := _HEADING_MARK.fullmatch(text):
        stated.append(_BOX_MARKS.get(mark[1], TaskStatus.PENDING) if mark[1] else _status(mark[2]))
        text = mark[3]
    text, parallel = _unmarked(text)
    if (end := _HEADING_END.search(text)) and (
        status := _status(end[1] or end[2] or end[3])
    ) is not TaskStatus.PENDING:
        stated.append(status)
        text, before = _unmarked(text[: end.start()])
        parallel = parallel or before
    name, title = _named(text)
    boxed = mark is not None and bool(mark[1])
    return _Section(level, name, title, stated, parallel) if name or (boxed and title) else None


def _unmarked(text: str) -> tuple[str, bool]:
    """Remove ``(parallel)`` from the end and after the number; return whether there was one."""
    bare = text if (end := _PARALLEL_END.search(text)) is None else text[: end.start()]
    if named := _PARALLEL_NAME.match(bare):
        bare = named[1] + bare[named.end() :]
    return bare, bare != text


def _stories(text: str) -> list[Task]:
    """Return the stories of a ``prd.json``, those of the lowest ``priority`` first."""
    try:
        stories = json.loads(text)
    except json.JSONDecodeError as fault:
        raise _NotAList(f"is not JSON: {fault.msg} in line {fault.lineno}") from fault
    except (ValueError, RecursionError) as fault:
        raise _NotAList("is not JSON that can be read") from fault
    if isinstance(stories, dict):
        stories = next((stories[key] for key in _STORY_KEYS if key in stories), None)
    if not isinstance(stories, list):
        raise _NotAList('holds no list "userStories"')
    _check_count(stories)
    numbered = sorted(enumerate(stories, start=1), key=lambda each: _priority(each[1]))
    return [_story(number, story) for number, story in numbered]


def _priority(story: Any) -> float:
    given = story.get("priority") if isinstance(story, dict) else None
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return math.inf
    return given


def _story(number: int, story: Any) -> Task:
    if not isinstance(story, dict):
        raise _NotAList(f"holds a story, number {number}, that is not an object")
    name = _text_of(story, "id")[:_ID_CHARS]
    title = _text_of(story, "title", "description", "name") or name or f"story {number}"
    status = _status(_text_of(story, "status"))
    if "passes" in story:  # the only key that means done; next to it a status can mean started at most
        unfinished = TaskStatus.PENDING if status is TaskStatus.DONE else status
        status = TaskStatus.DONE if story["passes"] is True else unfinished
    return Task(name, title, status)


def _text_of(story: dict[str, Any], *keys: str) -> str:
    """Return the first of these values that is a text or a number, as one line."""
    for key in keys:
        value = story.get(key)
        if isinstance(value, str | int | float) and (text := _plain(str(value)[:_TITLE_CHARS])):
            return text
    return ""
