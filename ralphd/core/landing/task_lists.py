"""Merge Markdown task lists: neighbouring ticks of two branches are never a conflict (M2)."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from ralphd.core.plan import HEADED_LISTS, LISTS

_BOX: Final = re.compile(r"([ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[)([^\d\]]?)(\][ \t]+.*)", re.DOTALL)
_DONE: Final = frozenset("xX✅✔✓☑")
_OPEN_MARKS: Final = frozenset(["", " "])


def is_task_list(path: str, own: str) -> bool:
    """Whether a file may be merged as a task list. ``own`` is the one that is configured."""
    return path.endswith(".md") and path in (*LISTS, *HEADED_LISTS, own)


def merged_list(base: str, ours: str, theirs: str) -> str | None:
    """Return the text with the ticks of both sides; None where both changed more than ticks.

    A task is known by its line without the mark, and by its number among equal lines.
    """
    if _bare(theirs) == _bare(base):
        return _with_ticks(ours, dict(_marks(theirs)))
    if _bare(ours) == _bare(base):
        return _with_ticks(theirs, dict(_marks(ours)))
    return None


def with_ticks(text: str, other: str) -> str:
    """Return ``text``; what is ticked in ``other`` is ticked in it, too."""
    return _with_ticks(text, dict(_marks(other)))


def _bare(text: str) -> list[str]:
    return [_key(line) for line in text.split("\n")]


def _key(line: str) -> str:
    match = _BOX.fullmatch(line)
    return line if match is None else f"{match[1]} {match[3]}"


def _marks(text: str) -> Iterator[tuple[tuple[str, int], str]]:
    """Yield each task with its mark."""
    count: Counter[str] = Counter()
    for line in text.split("\n"):
        if match := _BOX.fullmatch(line):
            key = _key(line)
            count[key] += 1
            yield (key, count[key]), match[2]


def _with_ticks(text: str, marks: dict[tuple[str, int], str]) -> str:
    """Return the text, each task with the further of its two marks: open, begun, done."""
    lines, count = text.split("\n"), Counter[str]()
    for at, line in enumerate(lines):
        if match := _BOX.fullmatch(line):
            key = _key(line)
            count[key] += 1
            other = marks.get((key, count[key]), "")
            mark = max(match[2], other, key=_rank)
            lines[at] = f"{match[1]}{mark}{match[3]}"
    return "\n".join(lines)


def _rank(mark: str) -> int:
    return 2 if mark in _DONE else int(mark not in _OPEN_MARKS)
