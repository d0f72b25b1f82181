"""The two files: where they are, whether they may be believed, and what they say."""

import grp
import os
import pwd
import re
import stat
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ralphd.config.layers import ConfigFault, KeyPath, Layer, tree_layer

# The line of every key in a TOML text. tomllib tells none, so this reads the text once more.

_KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}|"(?:[^"\\\n]|\\.)*"'''
    r"""|'''(?:[^']|'{1,2}(?!'))*'{3,5}|'[^'\n]*'""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[_KeyPath, int]:
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
        self.lines: dict[_KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._entries: dict[_KeyPath, int] = {}

    def document(self) -> None:
        table: _KeyPath = ()
        self._blank()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._blank()

    def _header(self) -> _KeyPath:
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

    def _pair(self, table: _KeyPath) -> None:
        line = self._line()
        path = table
        for name in self._key():
            path = (*path, name)
            self.lines.setdefault(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _value(self, path: _KeyPath) -> None:
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

    def _items(self, end: str, path: _KeyPath) -> None:
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

    def _inside(self, path: _KeyPath, names: list[str]) -> _KeyPath:
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


PROJECT_FILE = "ralph.toml"
MOST_DOTS = 32
_TOO_DEEP = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_DOTS + 1}}}""")
MAX_FILE_BYTES = 1 << 18


def user_file(environ: Mapping[str, str], home: Path) -> Path:
    """``$XDG_CONFIG_HOME/ralph/config.toml``, or the one below ``~/.config``."""
    given = environ.get("XDG_CONFIG_HOME", "")
    base = Path(given) if given.startswith("/") else home / ".config"
    return base / "ralph" / "config.toml"


def project_file(directory: Path, home: Path) -> Path | None:
    """The nearest ``ralph.toml`` from ``directory`` up to its git root, never above ``home``."""
    last = project_places(directory, home)[-1]
    return last if os.path.lexists(last) else None


def project_places(directory: Path, home: Path) -> tuple[Path, ...]:
    """Where ``ralph.toml`` is looked for, as far as the one that is used: another may come before it."""
    found = []
    for place in _upward(directory.resolve(), home.resolve()):
        found.append(place / PROJECT_FILE)
        if os.path.lexists(found[-1]):
            break
    return tuple(found)


def layer(path: Path, directory: Path | None, home: Path, *, users_own: bool) -> Layer:
    """What a file says; nothing when it is not there. What others may write is a fault."""
    shown = path.name if directory is not None and path.parent == directory.resolve() else str(path)
    try:
        text = _read(path)
    except FileNotFoundError:
        return Layer()
    except OSError as fault:
        return Layer(faults=[ConfigFault(shown, "", f"cannot be read: {fault.strerror}")])
    except Untrusted as fault:
        return Layer(faults=[ConfigFault(shown, "", f"{fault}; it is not used")])
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        return Layer(faults=[ConfigFault(f"{shown}:{line}", "", "is not UTF-8 text")])
    return _parsed(text, shown, _Paths(path.parent, home), users_own)


def layer_of(text: str, path: Path, home: Path, *, users_own: bool) -> Layer:
    """What a file would say with this text; nothing is read."""
    return _parsed(text, path.name, _Paths(path.parent, home), users_own)


@dataclass(frozen=True, slots=True)
class _Paths:
    """What the paths in a file are relative to."""

    base: Path
    home: Path

    def resolve(self, named: str) -> str:
        return str(self.home / named[2:] if named.startswith("~/") else self.base / named)


class Untrusted(Exception):
    """A file that is not ours alone to write; the text says why and what to do."""


def distrust(status: os.stat_result, path: Path, *, uid: int, private_group: int | None) -> str | None:
    """Why a file may not be believed, with what to do about it; None when it may.

    It has to be a regular file of ``uid`` or root that nobody else can write. A user's private group, which
    nobody else is in, counts as the user: many systems create files writable for it.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (uid, 0):
        return f"belongs to another user (uid {status.st_uid}): make it yours with `chown {uid} {path}`"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != private_group):
        return f"can be written by other users: `chmod go-w {path}`"
    return f"is larger than {MAX_FILE_BYTES} bytes" if status.st_size > MAX_FILE_BYTES else None


def _upward(directory: Path, home: Path) -> Iterator[Path]:
    above = [directory, *directory.parents]
    root = next((place for place in above if (place / ".git").exists()), directory)
    for place in above:
        yield place
        if place in (root, home):
            return


def _read(path: Path) -> str:
    # O_NONBLOCK: a FIFO in the place of the file must not hold the daemon
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if why := distrust(os.fstat(fd), path, uid=os.geteuid(), private_group=_private_group()):
            raise Untrusted(why)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read().decode("utf-8")
    finally:
        os.close(fd)


def _private_group() -> int | None:
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    alone = group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return user.pw_gid if alone else None


def _parsed(text: str, shown: str, paths: _Paths, users_own: bool) -> Layer:
    if line := _too_deep(text):
        return Layer(faults=[ConfigFault(f"{shown}:{line}", "", f"has a key of more than {MOST_DOTS} dots")])
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        return Layer(faults=[ConfigFault(shown, "", "is nested too deeply")])
    except ValueError as fault:
        return Layer(faults=[_not_toml(str(fault), text, shown)])
    lines = key_lines(text)

    def place(path: KeyPath) -> str:
        while path and path not in lines:
            path = path[:-1]
        return f"{shown}:{lines[path]}" if path else shown

    return tree_layer(tree, place, users_own=users_own, resolve=paths.resolve)


def _too_deep(text: str) -> int:
    """The line of the first key with too many dots, or 0: reading one takes the square of their number."""
    found = _TOO_DEEP.search(text)
    return 0 if found is None else text.count("\n", 0, found.start()) + 1


def _not_toml(why: str, text: str, shown: str) -> ConfigFault:
    where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", why)
    if where is None:
        return ConfigFault(shown, "", f"is not TOML: {why}")
    line = where[1] or text.count("\n") + 1
    return ConfigFault(f"{shown}:{line}", "", f"is not TOML: {why[: where.start()]}")
