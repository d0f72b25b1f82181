"""The copies in ``.ralph/`` of a working directory, for people and programs to read.

An agent may delete or replace any of it at any time; nothing here is believed, and no link is followed.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.errors import DirectoryUnusable, NewerState
from ralphd.store.files import write_whole

NAME = ".ralph"
STATE_FILE = "regent-state.json"
HISTORY_FILE = "history.jsonl"
LOCK_FILE = "lock"
STATE_VERSION = 1
"""The version of ``ralph.json`` and ``regent-state.json``."""


class Mirror:
    """``.ralph/`` in ``directory``: 0700, ignored by git. All methods block."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def exists(self) -> bool:
        """Whether there is one. Raises DirectoryUnusable for something else in its place."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no directory"
            raise DirectoryUnusable(
                f"{self.path} is {kind}",
                why="ralphd keeps its files for people there and follows no link to elsewhere",
                mend=f"mv {self.path} {self.path}.old",
            )
        return True

    def make(self) -> Path:
        """Have one. Raises DirectoryUnusable when something else is in its place or it cannot be made."""
        try:
            if not self.exists():
                self.path.mkdir(mode=0o700)
            if _size(self.path / ".gitignore") is None:
                write_whole(self.path / ".gitignore", b"*\n", durable=False)
        except OSError as fault:
            raise DirectoryUnusable(
                f"{self.path} cannot be written",
                why=fault.strerror or str(fault),
                mend=f"ls -ld {self.path.parent} {self.path}; df -h {self.path.parent}",
            ) from fault
        return self.path

    def refuse_newer(self) -> None:
        """Raise NewerState for copies that a newer ralphd made: they are not written over (F2)."""
        try:
            found = json.loads((self.path / STATE_FILE).read_bytes())
            version = found.get("version")
        except (OSError, ValueError, AttributeError, RecursionError):
            return
        if isinstance(version, int) and version > STATE_VERSION:
            raise newer(self.path / STATE_FILE, version)

    def renew(self, contents: Mapping[str, bytes], state: Path, history: Path) -> None:
        """Write ``contents`` by name, and what differs from the originals. Raises as ``make``, OSError."""
        self.make()
        for name, data in contents.items():
            write_whole(self.path / name, data, durable=False)
        if _size(self.path / STATE_FILE) is None and state.exists():
            write_whole(self.path / STATE_FILE, state.read_bytes(), durable=False)
        self._renew_history(history)

    def _renew_history(self, history: Path) -> None:
        """Add what is new; a copy that is missing, longer or something else is made anew."""
        copy = self.path / HISTORY_FILE
        wanted, have = _size(history), _size(copy)
        if wanted is None or wanted == have:
            return
        with history.open("rb") as original:
            if have is None or have > wanted:
                write_whole(copy, original.read(), durable=False)
                return
            original.seek(have)
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(copy, flags), "ab") as file:
                file.write(original.read())

    def is_whole(self, history: Path) -> bool:
        """Whether the copies are there, as far as a few looks can tell."""
        if _size(self.path / STATE_FILE) is None:
            return False
        return _size(self.path / HISTORY_FILE) == _size(history)

    def remove(self) -> None:
        """Take our files away again, and the directory when nothing else is in it."""
        for name in (STATE_FILE, HISTORY_FILE, LOCK_FILE, ".gitignore"):
            with suppress(OSError):
                (self.path / name).unlink()
        with suppress(OSError):
            self.path.rmdir()


def newer(path: Path, version: int) -> NewerState:
    """The error for a file of a version that this ralphd does not know."""
    return NewerState(
        f"{path} was written by a newer ralphd (version {version}, this one knows {STATE_VERSION})",
        why="it is left as it is",
        mend="install the newer ralphd again, or move the file away",
    )


def _size(path: Path) -> int | None:
    """The size of a regular file; None for anything else, and for nothing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


# Copies in ``.ralph/`` of the files that the built-in loop keeps in the ralph's own directory.

CHECKPOINT_FILE: Final = "checkpoint.json"
TASKS_FILE: Final = "tasks.json"
HANDOFF_FILE: Final = "handoff.md"
LOOP_FILES: Final = (CHECKPOINT_FILE, TASKS_FILE, HANDOFF_FILE)
MAX_BYTES: Final = 8 << 20
"""Of a larger one there is no copy."""


def put(directory: Path, name: str, data: bytes) -> None:
    """Write a copy below ``directory``."""
    with suppress(OSError, DirectoryUnusable):
        write_whole(Mirror(directory).make() / name, data, durable=False)


def drop(directory: Path, name: str) -> None:
    """Remove a copy: there is no original any more."""
    mirror = Mirror(directory)
    with suppress(OSError, DirectoryUnusable):
        if mirror.exists():
            (mirror.path / name).unlink()


def are_whole(home: Path, directory: Path, *, at_rest: bool) -> bool:
    """Whether the copies are as ``renew`` would have them, as far as a few looks can tell."""
    return not _due(home, Mirror(directory).path, at_rest=at_rest)


def renew(home: Path, directory: Path, *, at_rest: bool = True) -> None:
    """Make the copies that are missing. Unless the loop is ``at_rest``, older ones too, and none is left of
    what is gone: the files of a directory in which nothing runs may be another daemon's by now.
    """
    mirror = Mirror(directory)
    for name in _due(home, mirror.path, at_rest=at_rest):
        with suppress(OSError, DirectoryUnusable):
            if _stat(home / name) is None:
                drop(directory, name)
            else:
                copy(home / name, mirror.make() / name)


def copy(original: Path, to: Path) -> None:
    """Make a copy with the time of its original. Raises OSError."""
    descriptor = os.open(original, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        data = file.read(MAX_BYTES + 1)
    write_whole(to, data, durable=False)
    os.utime(to, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def _due(home: Path, place: Path, *, at_rest: bool) -> list[str]:
    return [name for name in LOOP_FILES if is_due(home / name, place / name, at_rest=at_rest)]


def is_due(original: Path, copied: Path, *, at_rest: bool) -> bool:
    """Whether the copy is not as it should be."""
    wanted, have = _stat(original), _stat(copied)
    if wanted is None:
        return have is not None and not at_rest
    if wanted.st_size > MAX_BYTES:
        return False
    if have is None or at_rest:
        return have is None
    return have.st_mtime_ns < wanted.st_mtime_ns or have.st_size != wanted.st_size


def _stat(path: Path) -> os.stat_result | None:
    """Of a regular file; None for anything else, and for nothing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
