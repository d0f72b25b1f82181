"""The copies in ``.ralph/`` of a working directory, for people and programs to read.

An agent may delete or replace any of them at any time: no copy is believed, and no link is followed. A
working directory that takes no copies (full, read-only, gone) costs the copies and nothing else.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.errors import DirectoryUnusable
from ralphd.plain_files import open_plain, peek, read_plain, status_of
from ralphd.store.files import refuse_newer, write_whole

NAME: Final = ".ralph"
STATE_FILE: Final = "regent-state.json"
HISTORY_FILE: Final = "history.jsonl"
LOCK_FILE: Final = "lock"
CHECKPOINT_FILE: Final = "checkpoint.json"
TASKS_FILE: Final = "tasks.json"
HANDOFF_FILE: Final = "handoff.md"
LOOP_FILES: Final = (CHECKPOINT_FILE, TASKS_FILE, HANDOFF_FILE)
"""The files of the built-in loop that have a copy."""
STATE_VERSION: Final = 1
"""The version of ``ralph.json`` and ``regent-state.json``."""
MAX_COPIED_BYTES: Final = 8 << 20


class Mirror:
    """``.ralph/`` in ``directory``: 0700, ignored by git. All methods block."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / NAME
        self._state, self._history = self.path / STATE_FILE, self.path / HISTORY_FILE

    def exists(self) -> bool:
        """Return whether the directory is there. Raises DirectoryUnusable for anything else in its place."""
        if not os.path.lexists(self.path):
            return False
        if self.path.is_symlink() or not self.path.is_dir():
            kind = "a symbolic link" if self.path.is_symlink() else "no directory"
            why = "ralphd keeps its files for people there and follows no link to elsewhere"
            raise DirectoryUnusable(f"{self.path} is {kind}", why=why, mend=f"mv {self.path} {self.path}.old")
        return True

    def make(self) -> Path:
        """Make the directory where it is missing. Raises DirectoryUnusable if it cannot be made or used."""
        try:
            if not self.exists():
                self.path.mkdir(mode=0o700)
            if status_of(self.path / ".gitignore") is None:
                write_whole(self.path / ".gitignore", b"*\n", durable=False)
        except OSError as fault:
            why, parent = fault.strerror or str(fault), self.path.parent
            mend = f"ls -ld {parent} {self.path}; df -h {parent}"
            raise DirectoryUnusable(f"{self.path} cannot be written", why=why, mend=mend) from fault
        return self.path

    def refuse_newer(self) -> None:
        """Raise NewerState for copies of a newer ralphd: they are not overwritten (F2)."""
        refuse_newer(self._state, (peek(self._state) or {}).get("version"), STATE_VERSION)

    def renew(self, contents: Mapping[str, bytes], state: Path, history: Path) -> None:
        """Write ``contents`` by name, and what differs from the originals. Raises as ``make``, OSError."""
        self.make()
        for name, data in contents.items():
            write_whole(self.path / name, data, durable=False)
        if status_of(self._state) is None and state.exists():
            write_whole(self._state, read_plain(state, MAX_COPIED_BYTES), durable=False)
        wanted, have = self._history_sizes(history)
        if wanted is None or wanted == have:
            return
        with open_plain(history) as original:
            if have is None or have > wanted:
                write_whole(self._history, original.read(), durable=False)
                return
            original.seek(have)
            with open_plain(self._history, os.O_WRONLY | os.O_APPEND) as file:
                file.write(original.read())

    def is_whole(self, history: Path) -> bool:
        """Return whether the copies are there, as far as their sizes show."""
        wanted, have = self._history_sizes(history)
        return status_of(self._state) is not None and wanted == have

    def _history_sizes(self, history: Path) -> tuple[int | None, int | None]:
        wanted, have = status_of(history), status_of(self._history)
        if have is not None and have.st_nlink > 1:  # somebody's other file: replace it, append nothing
            have = None
        return wanted and wanted.st_size, have and have.st_size

    def remove(self) -> None:
        """Remove our files, and the directory if nothing else is in it."""
        for name in (STATE_FILE, HISTORY_FILE, LOCK_FILE, ".gitignore"):
            with suppress(OSError):
                (self.path / name).unlink()
        with suppress(OSError):
            self.path.rmdir()


def put(directory: Path, name: str, data: bytes) -> None:
    """Write a copy below ``directory``."""
    with suppress(OSError, DirectoryUnusable):
        write_whole(Mirror(directory).make() / name, data, durable=False)


def drop(directory: Path, name: str) -> None:
    """Remove the copy of a file that was removed."""
    mirror = Mirror(directory)
    with suppress(OSError, DirectoryUnusable):
        if mirror.exists():
            (mirror.path / name).unlink()


def renew(home: Path, directory: Path, *, at_rest: bool = True) -> None:
    """Make the missing copies of the loop's files; unless the loop is ``at_rest``, replace older ones too and
    remove those without an original: the files of a directory where nothing runs may be another daemon's.
    """
    for name in due(home, directory, at_rest=at_rest):
        with suppress(OSError, DirectoryUnusable):
            if status_of(home / name) is None:
                drop(directory, name)
            else:
                copy(home / name, Mirror(directory).make() / name)


def due(home: Path, directory: Path, *, at_rest: bool) -> list[str]:
    """Return the files that ``renew`` would copy, or whose copy it would remove, as far as stats show."""
    copies = Mirror(directory).path
    return [name for name in LOOP_FILES if is_due(home / name, copies / name, at_rest=at_rest)]


def is_due(original: Path, copied: Path, *, at_rest: bool) -> bool:
    """Return whether the copy has to be made, replaced or removed. A larger file than 8 MiB has none."""
    wanted, have = status_of(original), status_of(copied)
    if wanted is None:
        return have is not None and not at_rest
    if wanted.st_size > MAX_COPIED_BYTES:
        return False
    if have is None or at_rest:
        return have is None
    return have.st_mtime_ns < wanted.st_mtime_ns or have.st_size != wanted.st_size


def copy(original: Path, to: Path) -> None:
    """Make a copy with the time of its original, by which ``is_due`` knows it. Raises OSError."""
    with open_plain(original) as file:
        about = os.fstat(file.fileno())
        data = file.read(MAX_COPIED_BYTES + 1)
    write_whole(to, data, durable=False)
    os.utime(to, ns=(about.st_atime_ns, about.st_mtime_ns), follow_symlinks=False)
