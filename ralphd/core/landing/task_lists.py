"""Merge Markdown task lists: neighbouring ticks of two branches are never a conflict (M2)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ralphd.core.plan import HEADED_LISTS, LISTS

_BOX: Final = re.compile(r"([ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[)([^\d\]]?)(\][ \t]+.*)", re.DOTALL)
_DONE: Final = frozenset("xX✅✔✓☑")
_OPEN_MARKS: Final = frozenset(["", " "])

_Task: TypeAlias = tuple[str, str, int]
"""The heading above, the line without its mark, and the number among equal lines there."""


def is_task_list(path: str, own: str) -> bool:
    """Whether a file may be merged as a task list. ``own`` is the one that is configured."""
    return path.endswith(".md") and path in (*LISTS, *HEADED_LISTS, own)


def merged_list(base: str, ours: str, theirs: str) -> str | None:
    """Return the text with the marks that either side changed; None where both changed more than marks.

    Where both changed one, the further counts: open, begun, done. A task is known by heading and line, or by
    a line that each text has once.
    """
    if _bare(theirs) == _bare(base):
        return _with_marks(ours, _marks(theirs), _marks(base))
    if _bare(ours) == _bare(base):
        return _with_marks(theirs, _marks(ours), _marks(base))
    return None


def with_ticks(text: str, other: str) -> str:
    """Return ``text``; what is ticked in ``other`` is ticked in it, too."""
    return _with_marks(text, _marks(other), {})


def _bare(text: str) -> list[str]:
    return [_key(line) for line in text.split("\n")]


def _key(line: str) -> str:
    match = _BOX.fullmatch(line)
    return line if match is None else f"{match[1]} {match[3]}"


def _tasks(text: str) -> Iterator[tuple[int, re.Match[str], _Task]]:
    """Yield each task: the number of its line, the match of ``_BOX``, and its key."""
    count, head = Counter[tuple[str, str]](), ""
    for at, line in enumerate(text.split("\n")):
        head = line if line.startswith("#") else head
        if match := _BOX.fullmatch(line):
            count[head, _key(line)] += 1
            yield at, match, (head, _key(line), count[head, _key(line)])


def _marks(text: str) -> dict[_Task, str]:
    """Return the mark of each task. A line that occurs once is also known as ``("", LINE, 0)``.

    So it is found under another heading, which a branch may have renamed.
    """
    marks = {task: match[2] for _, match, task in _tasks(text)}
    lines = Counter(line for _, line, _ in marks)
    return marks | {("", line, 0): mark for (_, line, _), mark in marks.items() if lines[line] == 1}


def _with_marks(text: str, others: Mapping[_Task, str], base: Mapping[_Task, str]) -> str:
    lines, own = text.split("\n"), _marks(text)
    for at, match, task in _tasks(text):
        alone = ("", task[1], 0) if ("", task[1], 0) in own else task
        other, before = (each.get(task, each.get(alone)) for each in (others, base))
        mark = _merged_mark(match[2], match[2] if other is None else other, before)
        lines[at] = f"{match[1]}{mark}{match[3]}"
    return "\n".join(lines)


def _merged_mark(mark: str, other: str, base: str | None) -> str:
    if base is not None and _rank(base) in (_rank(mark), _rank(other)):
        return mark if _rank(other) == _rank(base) else other
    return max(mark, other, key=_rank)


def _rank(mark: str) -> int:
    return 2 if mark in _DONE else int(mark not in _OPEN_MARKS)
