"""From the text of a task list to its tasks: user stories in JSON; check lists and task headings in Markdown.

Lists are written by agents, so a text may be anything. Every pass over one is linear, lines are cut before a
pattern sees them, and what is not understood is open work, never done.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ralphd.core.text import CONTROL

# The lines of a Markdown text without code blocks and comments, in which boxes are only examples.

_LINE_CHARS: Final = 1000
_FENCE_CHARS: Final = 8  # a longer fence counts as this long: then few searches for an end can be in vain
_FENCE: Final = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(`{3,}|~{3,})(.*)")
_FENCE_END: Final = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*")
_BEGIN, _END = "<!--", "-->"


def visible_lines(text: str) -> Iterator[str]:
    """The lines of ``text`` outside fenced code and comments, each cut to 1000 characters.

    A fence or a comment that is never closed hides nothing: what follows it may be open work. Linear in the
    length of the text, whatever the text is.
    """
    return _Lines(text).visible()


class _Lines:
    def __init__(self, text: str) -> None:
        self._lines = [line[:_LINE_CHARS].rstrip("\r") for line in text.split("\n")]
        self._in_vain: set[tuple[str, int]] = set()  # ends that were looked for and are not there

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
        """The line after the code block that begins here; None when none does."""
        fence = _FENCE.fullmatch(self._lines[at])
        if fence is None or (fence[1][0] == "`" and "`" in fence[2]):
            return None
        end = self._find(at + 1, (fence[1][0], min(len(fence[1]), _FENCE_CHARS)))
        return None if end is None else end + 1

    def _find(self, first: int, wanted: tuple[str, int]) -> int | None:
        """The first line from ``first`` on that ends what is open: a comment, or a fence of that length."""
        if wanted in self._in_vain:
            return None
        for at in range(first, len(self._lines)):
            if _ends(self._lines[at], *wanted):
                return at
        self._in_vain.add(wanted)
        return None


def _ends(line: str, mark: str, length: int) -> bool:
    if mark == _END:
        return _END in line
    end = _FENCE_END.fullmatch(line)
    return end is not None and end[1][0] == mark and len(end[1]) >= length


def _without_comments(line: str) -> tuple[str, bool]:
    """The line without its comments, up to one that it leaves open; whether it leaves one open."""
    kept, at = "", 0
    while (begin := line.find(_BEGIN, at)) >= 0:
        kept += line[at:begin]
        end = line.find(_END, begin + len(_BEGIN))
        if end < 0:
            return kept, True
        at = end + len(_END)
    return kept + line[at:], False


# The plan: what a user's task list says is done and what is open, and when that is all (E4).

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


AUTO: Final = "auto"
LISTS: Final = ("prd.json", "fix_plan.md", ".ralph/fix_plan.md", "IMPLEMENTATION_PLAN.md", "TASKS.md")
"""What ``tasks = "auto"`` looks for, in this order."""

HEADED_LISTS: Final = ("PLAN.md", "PRD.md")
"""What it looks for then: files that are a list of tasks only when they have headings like ``## Task 1``."""

MAX_TASKS: Final = 5000
_TITLE_CHARS: Final = 200
_ID_CHARS: Final = 48
_STORY_KEYS: Final = ("userStories", "tasks")

_HEADING: Final = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_BOX: Final = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[([^\d\]]?)\ufe0f?\][ \t]+(.*)")
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
    """Why a text is no task list, as the end of a sentence that begins with the file's name."""


class _Item(NamedTuple):
    """A task that has no id yet; ``name`` is what the list calls it, empty where it has none."""

    name: str
    title: str
    status: TaskStatus
    parallel: bool = False


@dataclass(slots=True)
class _Section:
    """A task heading and what is said below it: in words, and by boxes."""

    level: int
    name: str
    title: str
    said: list[TaskStatus]
    parallel: bool = False
    boxes: list[TaskStatus] = field(default_factory=list)
    has_parts: bool = False

    def item(self) -> _Item:
        """The task: done when that is said, or when all its boxes are ticked."""
        marks = self.said + self.boxes
        if _all_done(self.said) or _all_done(self.boxes):
            status = TaskStatus.DONE
        else:
            begun = any(mark is not TaskStatus.PENDING for mark in marks)
            status = TaskStatus.IN_PROGRESS if begun else TaskStatus.PENDING
        return _Item(self.name, self.title, status, self.parallel)

    def is_told_elsewhere(self, names: frozenset[str]) -> bool:
        """Whether only its parts, or boxes of that name, say how far it is."""
        return not (self.said or self.boxes) and (self.has_parts or self.name in names)


def parse(file: str, text: str) -> Plan:
    """The plan in the ``text`` of ``file``, whose name tells JSON from Markdown. Faults are told in it."""
    try:
        items = _stories(text) if file.lower().endswith(".json") else _Outline(text).items()
    except _NotAList as fault:
        return Plan(file, fault=f"{file} {fault}")
    return Plan(file, tuple(_with_ids(items)))


def has_task_headings(text: str) -> bool:
    """Whether a Markdown text is divided by headings such as ``## Task 1``."""
    try:
        return _Outline(text).has_sections
    except _NotAList:
        return True  # and more of them than can be, which is told when it is parsed


def _check_count(found: Sized) -> None:
    if len(found) > MAX_TASKS:
        raise _NotAList(f"lists more than {MAX_TASKS} tasks")


def _all_done(marks: list[TaskStatus]) -> bool:
    return bool(marks) and all(mark is TaskStatus.DONE for mark in marks)


def _with_ids(items: Iterable[_Item]) -> Iterator[Task]:
    """Each task with an id of its own: its name, else its title made short; ``-2`` where that is taken."""
    taken: dict[str, int] = {}
    for item in items:
        slug = re.sub(r"[\W_]+", "-", item.title.lower()).strip("-")[:_ID_CHARS].rstrip("-")
        free = wanted = item.name or slug or "task"
        while free in taken:
            taken[wanted] += 1
            free = f"{wanted}-{taken[wanted]}"
        taken[free] = 1
        yield Task(free, item.title, item.status, item.parallel)


def _plain(text: str) -> str:
    """A text in one line, without emphasis and without what cannot be printed."""
    text = "".join(each if each.isprintable() else " " for each in text).replace("**", "").replace("~~", "")
    return " ".join(text.split())


def _named(text: str) -> tuple[str, str]:
    """The name that a title begins with, such as ``Task 3:`` or ``US-001:``, or ``""``; and the title."""
    match = _NAME.fullmatch(text)
    if match is None or (match["code"] and not match["mark"] and not _UNMARKED_CODE.fullmatch(match["code"])):
        return "", text[:_TITLE_CHARS]
    title = match["rest"] if match["mark"] and match["rest"] else text
    name = match["code"] or f"task-{match['number']}"
    return name[:_ID_CHARS], title[:_TITLE_CHARS]


def _status(text: str) -> TaskStatus:
    """What a status in words says. Done only when it says so without an if or a but."""
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
    """A Markdown text as it is read: loose boxes and task sections, in their order.

    A box below a task heading is a part of that task, any other a task of its own. What stands below a
    heading such as ``## Optional`` or ``## Future work`` need not be done and is left out.
    """

    def __init__(self, text: str) -> None:
        self._found: list[_Item | _Section] = []
        self._around: list[_Section] = []  # the sections that the present line lies in, outermost first
        self._optional_level = 0  # of the heading below which all is optional; 0: none
        for line in visible_lines(text):
            if heading := _HEADING.match(line):
                self._enter(len(heading[1]), _plain(heading[2].rstrip("# \t")))
            elif not self._optional_level:
                self._read(line)
            _check_count(self._found)

    @property
    def has_sections(self) -> bool:
        """Whether there is a task heading."""
        return any(isinstance(each, _Section) for each in self._found)

    def items(self) -> list[_Item]:
        """The tasks, in their order."""
        boxes = frozenset(each.name for each in self._found if isinstance(each, _Item) and each.name)
        return [
            each.item() if isinstance(each, _Section) else each
            for each in self._found
            if isinstance(each, _Item) or not each.is_told_elsewhere(boxes)
        ]

    def _enter(self, level: int, text: str) -> None:
        if self._optional_level and level > self._optional_level:
            return
        self._optional_level = level if _OPTIONAL.fullmatch(text) else 0
        while self._around and self._around[-1].level >= level:
            self._around.pop()
        if section := _section(level, text):
            for outer in self._around:
                outer.has_parts = True
            self._around.append(section)
            self._found.append(section)

    def _read(self, line: str) -> None:
        if (box := _BOX.match(line)) and (text := _plain(box[2])):
            status = _BOX_MARKS.get(box[1], TaskStatus.PENDING)
            if self._around:
                self._around[-1].boxes.append(status)
            else:
                self._found.append(_Item(*_named(text), status))
        elif self._around and (said := _STATUS_LINE.match(line)):
            self._around[-1].said.append(_status(said[1]))


def _section(level: int, text: str) -> _Section | None:
    """The task that a heading names: ``Task 3: …``, ``US-001: …``, ``[ ] …``; None for any other heading."""
    said: list[TaskStatus] = []
    if mark := _HEADING_MARK.fullmatch(text):
        said.append(_BOX_MARKS.get(mark[1], TaskStatus.PENDING) if mark[1] else _status(mark[2]))
        text = mark[3]
    text, parallel = _unmarked(text)
    if (end := _HEADING_END.search(text)) and (
        status := _status(end[1] or end[2] or end[3])
    ) is not TaskStatus.PENDING:
        said.append(status)
        text, before = _unmarked(text[: end.start()])
        parallel = parallel or before
    name, title = _named(text)
    boxed = mark is not None and bool(mark[1])
    return _Section(level, name, title, said, parallel) if name or (boxed and title) else None


def _unmarked(text: str) -> tuple[str, bool]:
    """A heading without ``(parallel)`` at its end and behind its number, and whether there was one."""
    bare = text if (end := _PARALLEL_END.search(text)) is None else text[: end.start()]
    if named := _PARALLEL_NAME.match(bare):
        bare = named[1] + bare[named.end() :]
    return bare, bare != text


def _stories(text: str) -> list[_Item]:
    """The stories of a ``prd.json``, those of the lowest ``priority`` first."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as fault:
        raise _NotAList(f"is not JSON: {fault.msg} in line {fault.lineno}") from fault
    except (ValueError, RecursionError) as fault:
        raise _NotAList("is not JSON that can be read") from fault
    if isinstance(found, dict):
        found = next((found[key] for key in _STORY_KEYS if key in found), None)
    if not isinstance(found, list):
        raise _NotAList('holds no list "userStories"')
    _check_count(found)
    numbered = sorted(enumerate(found, start=1), key=lambda each: _priority(each[1]))
    return [_story(number, story) for number, story in numbered]


def _priority(story: Any) -> float:
    """Its number; what has none comes last."""
    given = story.get("priority") if isinstance(story, dict) else None
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        return math.inf
    return given


def _story(number: int, story: Any) -> _Item:
    if not isinstance(story, dict):
        raise _NotAList(f"holds a story, number {number}, that is no object")
    name = _text_of(story, "id")[:_ID_CHARS]
    title = _text_of(story, "title", "description", "name") or name or f"story {number}"
    told = _status(_text_of(story, "status"))
    if "passes" in story:  # the one key that means done; a status beside it can say no more than begun
        begun = TaskStatus.PENDING if told is TaskStatus.DONE else told
        return _Item(name, title, TaskStatus.DONE if story["passes"] is True else begun)
    return _Item(name, title, told)


def _text_of(story: dict[str, Any], *keys: str) -> str:
    """The first of these values that is a text or a number, in one line."""
    for key in keys:
        value = story.get(key)
        if isinstance(value, str | int | float) and (text := _plain(str(value)[:_TITLE_CHARS])):
            return text
    return ""
