"""Copies in ``.ralph/`` of the files that the built-in loop keeps in the ralph's own directory.

For people and programs to read. A working directory that takes none (full, read-only, gone) costs the copies
and nothing else. A copy of an older original is known by its time.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd.errors import DirectoryUnusable
from ralphd.store.files import write_whole
from ralphd.store.mirror import Mirror

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
