"""The copies in ``.ralph/`` of a working directory, for people and programs to read.

An agent may delete or replace any of it at any time; nothing here is believed, and no link is followed.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

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
