"""The line of every key in a TOML text. tomllib tells none, so this reads the text once more.

Only text that tomllib has accepted is read: what is wrong TOML never gets here, and nothing is checked again.
"""

import re
import tomllib
from bisect import bisect_left
from contextlib import suppress
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}|"(?:[^"\\\n]|\\.)*"'''
    r"""|'''(?:[^']|'{1,2}(?!'))*'{3,5}|'[^'\n]*'""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1, of each key: ``("regent", "max_retries")``, ``("webhooks", 0, "url")``.

    A table has the line of its header. Text nested too deeply for this reader gives what was found so far.
    """
    scan = _Scan(text)
    with suppress(RecursionError):
        scan.document()
    return scan.lines


class _Scan:
    """A walk over the text, which notes the line of each key it comes by."""

    def __init__(self, text: str) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._entries: dict[KeyPath, int] = {}

    def document(self) -> None:
        table: KeyPath = ()
        self._blank()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._blank()

    def _header(self) -> KeyPath:
        line = self._line()
        many = self._text.startswith("[[", self._at)
        self._at += 2 if many else 1
        *above, name = self._key()
        self._at += 2 if many else 1
        path = (*self._inside((), above), name)
        if many:
            index = self._entries[path] = self._entries.get(path, -1) + 1
            self.lines.setdefault(path, line)
            path = (*path, index)
        else:
            path = self._inside((), [*above, name])
        self.lines.setdefault(path, line)
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        self._blank()
        match self._text[self._at]:
            case "[":
                self._items("]", path)
            case "{":
                self._items("}", path)
            case '"' | "'":
                self._take(_STRING)
            case _:
                self._take(_BARE_VALUE)

    def _items(self, end: str, path: KeyPath) -> None:
        self._at += 1
        self._blank()
        index = 0
        while self._text[self._at] != end:
            if end == "}":
                self._pair(path)
            else:
                self.lines[(*path, index)] = self._line()
                self._value((*path, index))
                index += 1
            self._blank()
            self._at += self._text[self._at] == ","
            self._blank()
        self._at += 1

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            self._blank()
            quoted = self._text[self._at] in "\"'"
            name = self._take(_STRING if quoted else _BARE_KEY)
            names.append(tomllib.loads(f"key = {name}")["key"] if quoted else name)
            self._blank()
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _inside(self, path: KeyPath, names: list[str]) -> KeyPath:
        """Where a header leads: a name that stands for a list of tables means the last of them."""
        for name in names:
            path = (*path, name)
            if path in self._entries:
                path = (*path, self._entries[path])
        return path

    def _blank(self) -> None:
        self._take(_BLANK)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, "text that tomllib accepts"
        self._at = found.end()
        return found[0]

    def _line(self) -> int:
        return bisect_left(self._ends, self._at) + 1
