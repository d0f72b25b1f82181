"""Merge Markdown task lists: neighbouring ticks of two branches are never a conflict (M2)."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from ralphd.core.plan import HEADED_LISTS, LISTS

_BOX: Final = re.compile(r"([ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[)([^\d\]]?)(\][ \t]+.*)", re.DOTALL)
_DONE: Final = frozenset("xX✅✔✓☑")
_OPEN_MARKS: Final = frozenset(["", " "])

_Task: TypeAlias = tuple[str, int]


def is_task_list(path: str, own: str) -> bool:
    """Whether a file may be merged as a task list. ``own`` is the one that is configured."""
    return path.endswith(".md") and path in (*LISTS, *HEADED_LISTS, own)


def merged_list(base: str, ours: str, theirs: str) -> str | None:
    """Return the text with the marks that either side changed; None where both changed more than marks.

    Where both changed one, the further counts: open, begun, done. A task is known by its line without the
    mark, and by its number among equal lines.
    """
    if _bare(theirs) == _bare(base):
        return _with_marks(ours, dict(_marks(theirs)), dict(_marks(base)))
    if _bare(ours) == _bare(base):
        return _with_marks(theirs, dict(_marks(ours)), dict(_marks(base)))
    return None


def with_ticks(text: str, other: str) -> str:
    """Return ``text``; what is ticked in ``other`` is ticked in it, too."""
    return _with_marks(text, dict(_marks(other)), {})


def _bare(text: str) -> list[str]:
    return [_key(line) for line in text.split("\n")]


def _key(line: str) -> str:
    match = _BOX.fullmatch(line)
    return line if match is None else f"{match[1]} {match[3]}"


def _marks(text: str) -> Iterator[tuple[_Task, str]]:
    """Yield each task with its mark."""
    count: Counter[str] = Counter()
    for line in text.split("\n"):
        if match := _BOX.fullmatch(line):
            key = _key(line)
            count[key] += 1
            yield (key, count[key]), match[2]


def _with_marks(text: str, others: Mapping[_Task, str], base: Mapping[_Task, str]) -> str:
    lines, count = text.split("\n"), Counter[str]()
    for at, line in enumerate(lines):
        if match := _BOX.fullmatch(line):
            key = _key(line)
            count[key] += 1
            task = key, count[key]
            mark = _merged_mark(match[2], others.get(task, match[2]), base.get(task))
            lines[at] = f"{match[1]}{mark}{match[3]}"
    return "\n".join(lines)


def _merged_mark(mark: str, other: str, base: str | None) -> str:
    if base is not None and _rank(base) in (_rank(mark), _rank(other)):
        return mark if _rank(other) == _rank(base) else other
    return max(mark, other, key=_rank)


def _rank(mark: str) -> int:
    return 2 if mark in _DONE else int(mark not in _OPEN_MARKS)
