"""The two files: where they are, whether they may be believed, and what they say."""

import grp
import os
import pwd
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphd.config.layers import Fault, KeyPath, Layer, tree_layer
from ralphd.config.places import key_lines

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
        return Layer(faults=[Fault(shown, "", f"cannot be read: {fault.strerror}")])
    except Untrusted as fault:
        return Layer(faults=[Fault(shown, "", f"{fault}; it is not used")])
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        return Layer(faults=[Fault(f"{shown}:{line}", "", "is not UTF-8 text")])
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
        return Layer(faults=[Fault(f"{shown}:{line}", "", f"has a key of more than {MOST_DOTS} dots")])
    try:
        tree: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        return Layer(faults=[Fault(shown, "", "is nested too deeply")])
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


def _not_toml(why: str, text: str, shown: str) -> Fault:
    where = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", why)
    if where is None:
        return Fault(shown, "", f"is not TOML: {why}")
    line = where[1] or text.count("\n") + 1
    return Fault(f"{shown}:{line}", "", f"is not TOML: {why[: where.start()]}")
