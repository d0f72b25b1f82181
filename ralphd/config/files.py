"""The two files: where they are, whether they can be trusted, and their keys with the lines of each."""

import grp
import os
import pwd
import re
import stat
import tomllib
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ralphd.config.layers import ConfigFault, KeyPath, Layer, tree_layer
from ralphd.core.delivery import SECRET_PREFIX
from ralphd.plain_files import Descriptor, read_plain

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}|"(?:[^"\\\n]|\\.)*"'''
    r"""|'''(?:[^']|'{1,2}(?!'))*'{3,5}|'[^'\n]*'""",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, of each key: ``("regent", "max_retries")``, ``("webhooks", 0, "url")``.

    A table has the line of its header. Of text nested too deeply for this reader the first keys are returned.
    """
    scan = _Scan(text)
    with suppress(RecursionError):
        scan.document()
    return scan.lines


class _Scan:
    """A second walk over the text: tomllib reports no lines. It may be as sloppy as valid TOML allows."""

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
        """Resolve a header: the name of a list of tables means the last of them."""
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
BYTE_ORDER_MARK = "\ufeff"
"""Editors on Windows write it at the start of a file. TOML has no such character."""


def user_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return ``$XDG_CONFIG_HOME/ralph/config.toml``, or the one below ``~/.config``."""
    given = environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else home / ".config") / "ralph" / "config.toml"


def project_file(directory: Path, home: Path) -> Path | None:
    """Return the nearest ``ralph.toml`` from ``directory`` up to its git root, never above ``home``."""
    last = project_places(directory, home)[-1]
    return last if os.path.lexists(last) else None


def project_places(directory: Path, home: Path) -> tuple[Path, ...]:
    """Return the paths at which ``ralph.toml`` is looked for, up to the one that is used."""
    directory, home = directory.resolve(), home.resolve()
    above = [directory, *directory.parents]
    root = next((path for path in above if (path / ".git").exists()), directory)
    paths = []
    for path in above:
        paths.append(path / PROJECT_FILE)
        if path in (root, home) or os.path.lexists(paths[-1]):
            break
    return tuple(paths)


def layer(path: Path, directory: Path | None, home: Path, *, users_own: bool) -> Layer:
    """Read a file; an empty layer if it does not exist. A file that others may write is a fault."""
    shown = path.name if directory is not None and path.parent == directory.resolve() else str(path)
    try:
        text = _read(path)
    except FileNotFoundError:
        return Layer()
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        return Layer(faults=[ConfigFault(f"{shown}:{line}", "", "is not UTF-8 text")])
    except (OSError, ValueError) as why:
        text = f"cannot be read: {why.strerror}" if isinstance(why, OSError) else f"{why}; it is not used"
        return Layer(faults=[ConfigFault(shown, "", text)])
    read = layer_of(text, path, home, users_own=users_own, shown=shown)
    for hook, origin in () if users_own else read.webhooks.values():
        if hook.secret_file and not _is_secret(hook.secret_file):
            what = f"{hook.secret_file} has to hold a secret of the form {SECRET_PREFIX}…"
            read.faults.append(ConfigFault(origin.text, "webhooks.secret_file", what))
    return read


def _is_secret(file: str) -> bool:
    # A repository names it: a signature by the text of any other file would let receivers guess that text.
    try:
        return read_plain(Path(file), MAX_FILE_BYTES).startswith(SECRET_PREFIX.encode())
    except OSError as fault:
        return isinstance(fault, FileNotFoundError)  # which is reported when it is used


def distrust(status: os.stat_result, path: Path, *, uid: int, private_group: int | None) -> str | None:
    """Return why a file is not trusted, with what to do about it; None when it is.

    It has to be a regular file of ``uid`` or root that nobody else can write. A user's private group without
    other members counts as the user: many systems create files writable for it.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    if status.st_uid not in (uid, 0):
        return f"belongs to another user (uid {status.st_uid}): make it yours with `chown {uid} {path}`"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != private_group):
        return f"can be written by other users: `chmod go-w {path}`"
    return f"is larger than {MAX_FILE_BYTES} bytes" if status.st_size > MAX_FILE_BYTES else None


def _read(path: Path) -> str:
    """Return the text of a file. Raise OSError, and ValueError for one that is not UTF-8 or not trusted."""
    # O_NONBLOCK: a FIFO in place of the file must not block the daemon
    with Descriptor(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        if why := distrust(os.fstat(fd), path, uid=os.geteuid(), private_group=_private_group()):
            raise ValueError(why)
        if (mode := path.parent.stat().st_mode) & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ValueError(f"is in a directory that other users can write: `chmod o-w {path.parent}`")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read().decode("utf-8")


def _private_group() -> int | None:
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return None
    alone = group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
    return user.pw_gid if alone else None


def layer_of(text: str, path: Path, home: Path, *, users_own: bool, shown: str = "") -> Layer:
    """Return the layer of a file with this text; nothing is read. ``shown`` names the file in faults."""
    shown, text = shown or path.name, text.removeprefix(BYTE_ORDER_MARK)
    if deep := _TOO_DEEP.search(text):  # reading a key takes the square of the number of its dots
        line = text.count("\n", 0, deep.start()) + 1
        return Layer(faults=[ConfigFault(f"{shown}:{line}", "", f"has a key of more than {MOST_DOTS} dots")])
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        return Layer(faults=[ConfigFault(shown, "", "is nested too deeply")])
    except ValueError as fault:
        return Layer(faults=[_not_toml(str(fault), text, shown)])
    lines = key_lines(text)

    def place(key: KeyPath) -> str:
        while key and key not in lines:
            key = key[:-1]
        return f"{shown}:{lines[key]}" if key else shown

    def resolve(named: str) -> str:
        return str(home / named[2:] if named.startswith("~/") else path.parent / named)

    return tree_layer(tree, place, users_own=users_own, resolve=resolve)


def _not_toml(why: str, text: str, shown: str) -> ConfigFault:
    where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", why)
    if where is None:
        return ConfigFault(shown, "", f"is not TOML: {why}")
    line = where[1] or text.count("\n") + 1
    return ConfigFault(f"{shown}:{line}", "", f"is not TOML: {why[: where.start()]}")
