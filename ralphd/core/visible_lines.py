"""The lines of a Markdown text without code blocks and comments, in which boxes are only examples."""

import re
from collections.abc import Iterator
from typing import Final

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
