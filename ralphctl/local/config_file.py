"""A file of configuration that is changed in one key, with all else in it as a person wrote it.

The new text is read once more before it is written, and compared: an edit that would change another key, or
that brings a new fault, is refused.
"""

from __future__ import annotations

import copy
import os
import secrets
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphd.config import files
from ralphd.config.configuration import home_of
from ralphd.config.layers import ConfigFault, KeyPath, dotted
from ralphd.errors import ConfigFaults, DirectoryUnusable, RalphdError, UsageError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


class ChangedMeanwhile(RalphdError):
    """Somebody wrote the file between our reading and our writing of it."""

    slug, exit_code = "changed-meanwhile", 75


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that can be read and believed. ``text`` is empty where there is none; ``path`` is no link."""

    path: Path
    shown: Path
    text: str
    tree: Mapping[str, Any]
    faults: tuple[ConfigFault, ...]
    home: Path
    users_own: bool

    @classmethod
    def read(cls, path: Path, environ: Mapping[str, str], *, users_own: bool) -> ConfigFile:
        """Raises ConfigFaults for a file that is broken, or that is not ours alone to write."""
        home = home_of(environ)
        layer = files.layer(path, path.parent, home, users_own=users_own)
        if broken := [fault for fault in layer.faults if not fault.key]:
            raise ConfigFaults(
                f"{path.name} cannot be changed: nothing was written",
                why="\n".join(map(str, broken)),
                mend=f"correct it by hand: {path}",
            )
        try:
            text = path.read_bytes().decode()
        except FileNotFoundError:
            text = ""
        real = Path(os.path.realpath(path))
        return cls(real, path, text, tomllib.loads(text), tuple(layer.faults), home, users_own)

    def change(self, path: KeyPath, value: object) -> None:
        """Write the file with this value at ``path``, None for none there.

        Raises ConfigFaults, UsageError, ChangedMeanwhile and DirectoryUnusable; then nothing was written.
        """
        text = self.text_with(path, value)
        self._check(text)
        self._write(text)

    def text_with(self, path: KeyPath, value: object) -> str:
        """The text after the edit. Raises UsageError where tomlkit would change more than this one key."""
        import tomlkit

        wanted = copy.deepcopy(dict(self.tree))
        try:
            _change(wanted, path, value, table=dict, tables=list)
        except IndexError as fault:
            raise UsageError(
                f"there is no {dotted(path)}: nothing was written",
                why=f"{self.shown.name} has {fault} of them, counted from 0",
                mend=f"{path[0]}[{fault}] is a new one",
            ) from None
        except (KeyError, TypeError, AttributeError):
            raise self._unchangeable(path) from None
        try:
            document: TOMLDocument = tomlkit.parse(self.text + ("" if self.text.endswith("\n") else "\n"))
            _change(document, path, value, table=tomlkit.table, tables=tomlkit.aot)
            if value_at(self.tree, path) is None:
                _move_up(document, path)
            text = _spaced(self.text, tomlkit.dumps(document))
            is_right = tomllib.loads(text) == wanted
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # what tomlkit knows not
            is_right, text = False, ""
        if not is_right:
            raise self._unchangeable(path)
        return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in self.text else text

    def _unchangeable(self, path: KeyPath) -> UsageError:
        return UsageError(
            f"{dotted(path)} cannot be changed in {self.shown.name} by a program: nothing was written",
            why="the file is written in a way in which another key would change too",
            mend=f"correct it by hand: {self.shown}",
        )

    def _check(self, text: str) -> None:
        """Raise ConfigFaults for faults that were not there before."""
        known = {(fault.key, fault.text) for fault in self.faults}
        after = files.layer_of(text, self.shown, self.home, users_own=self.users_own).faults
        if new := [fault for fault in after if (fault.key, fault.text) not in known]:
            raise refused([ConfigFault("", fault.key, fault.text) for fault in new])

    def _write(self, text: str) -> None:
        """Put the text in the place of the old one, with the mode and the owner that it had."""
        try:
            if self.users_own:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self.path, self.text.encode(), text.encode(), 0o600 if self.users_own else 0o644)
        except OSError as fault:
            raise DirectoryUnusable(
                f"{self.shown} cannot be written: nothing was changed",
                why=fault.strerror or str(fault),
                mend=f"ls -ld {self.path.parent} {self.path}",
            ) from fault


def refused(faults: list[ConfigFault]) -> ConfigFaults:
    """Faults, in the words of ``check``, for which nothing is written."""
    return ConfigFaults("nothing was written", why="\n".join(map(str, faults)))


def _spaced(before: str, after: str) -> str:
    """The text ``after`` an edit, with a blank line where a new table touches what stands around it."""
    old, new = before.splitlines(), after.splitlines(keepends=True)
    bare = [line.rstrip("\r\n") for line in new]
    start = next((at for at, pair in enumerate(zip(old, bare, strict=False)) if pair[0] != pair[1]), len(old))
    pairs = zip(reversed(old[start:]), reversed(bare[start:]), strict=False)
    same = next((at for at, pair in enumerate(pairs) if pair[0] != pair[1]), len(old) - start)
    end = len(new) - min(same, len(new) - start)
    if not any(line.startswith("[") for line in bare[start:end]):
        return after
    if end < len(new) and bare[end] and bare[end - 1]:
        new.insert(end, "\n")
    if start > 0 and bare[start] and bare[start - 1]:
        new.insert(start, "\n")
    return "".join(new)


def value_at(tree: Mapping[str, Any], path: KeyPath) -> Any:
    """What lies there; None where nothing does."""
    found: Any = tree
    for part in path:
        try:
            found = found[part]
        except (KeyError, IndexError, TypeError):
            return None
    return found


def _change(tree: Any, path: KeyPath, value: object, *, table: Any, tables: Any) -> None:
    """Set or, with None, remove what lies at ``path``; tables on the way are made. Raises LookupError."""
    for part, inner in pairwise(path):
        if isinstance(part, int) and part == len(tree):
            tree.append(table())
        elif isinstance(part, str) and part not in tree:
            tree[part] = tables() if isinstance(inner, int) else table()
        if isinstance(part, int) and part >= len(tree):
            raise IndexError(len(tree))
        tree = tree[part]
    if value is None:
        del tree[path[-1]]
    else:
        tree[path[-1]] = value


def _move_up(document: Any, path: KeyPath) -> None:
    """Put a new key right below the last one of its table: a comment at a table's end belongs to the next."""
    from tomlkit.items import AoT, Table

    table = document
    for part in path[:-1]:
        table = table[part]
    if not isinstance(table, Table):
        return  # an inline one, or one in several places
    body = table.value.body
    mine = next((at for at, (key, _) in enumerate(body) if key is not None and key.key == path[-1]), None)
    others = [
        at
        for at, (key, item) in enumerate(body)
        if key is not None and at != mine and not isinstance(item, Table | AoT)
    ]
    if mine is not None and others and others[-1] < mine:
        body.insert(others[-1] + 1, body.pop(mine))


def _replace(path: Path, old: bytes, new: bytes, mode: int) -> None:
    """Whole, or not at all (F1). Raises ChangedMeanwhile, OSError."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            _as_it_was(path, descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        if (path.read_bytes() if path.exists() else b"") != old:
            raise ChangedMeanwhile(
                f"{path} was changed meanwhile: nothing was written", mend="the same again"
            )
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _as_it_was(path: Path, descriptor: int, mode: int) -> None:
    """Give a new file the mode and, where we may, the owner of the one that it replaces."""
    with suppress(FileNotFoundError):
        before = path.stat()
        mode = stat.S_IMODE(before.st_mode)
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, mode)
