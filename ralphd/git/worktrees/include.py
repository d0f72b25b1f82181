"""Copy files that git does not track, and that work in a worktree needs, such as .env (W3).

``.worktreeinclude`` lists them; git matches the names, so that its syntax is that of .gitignore. Blocks are
shared with the original where the file system can.
"""

import fcntl
import filecmp
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from ralphd.core.worktrees.rules import Worktree
from ralphd.git import repo
from ralphd.git.runner import GitRunner, name_list
from ralphd.plain_files import open_plain

LIMIT_S: Final = 60.0
INCLUDE: Final = ".worktreeinclude"
INCLUDED_BYTES: Final = 1 << 30
"""The most that is copied where the file system cannot share the blocks of two files."""
_FICLONE: Final = 0x40049409


def include(source: Path, path: Path, *, renews: bool = False) -> tuple[list[str], list[str]]:
    """Copy the files that ``.worktreeinclude`` lists and git does not track to another work tree (W3).

    What is there stays; with ``renews``, only what git tracks there.

    Return the names of the copies, and of what was left out because it is too large or not a plain file.
    Blocks on the same file system share their blocks where that is possible.
    """
    left_bytes, copied, left_out = INCLUDED_BYTES, [], []
    if (names := _included(source)) and renews:
        tracked = GitRunner(path, limit_s=LIMIT_S).output("ls-files", "-z").split(b"\0")
        stays = set(map(os.fsdecode, tracked)).__contains__
    for name in names:
        if stays(name) if renews else os.path.lexists(path / name):
            continue
        try:
            left_bytes -= _copy(source / name, path / name, path, left_bytes)
            copied.append(name)
        except OSError:
            left_out.append(name)
    return copied, left_out


def _included(source: Path) -> list[str]:
    """Return the names of untracked files that ``.worktreeinclude`` lists, as git matches them."""
    if not (source / INCLUDE).is_file():
        return []
    words = ("ls-files", "--others", "--ignored", f"--exclude-from={source / INCLUDE}", "-z")
    names = map(os.fsdecode, GitRunner(source, limit_s=LIMIT_S).output(*words).split(b"\0"))
    return [name for name in names if name and ".ralph" not in name.split("/")]


def remove_included(tree: Worktree) -> None:
    """Remove the copies that ``include`` has made, unless they were changed since. Raise NotDone, OSError."""
    for name in _included(Path(tree.source)):
        copy = Path(tree.path) / name
        with suppress(FileNotFoundError):
            if not copy.is_symlink() and filecmp.cmp(Path(tree.source) / name, copy, shallow=False):
                copy.unlink()


def _copy(old: Path, new: Path, top: Path, most_bytes: int) -> int:
    """Copy a file and return the bytes that it takes: none where the file system shares them."""
    if not new.parent.resolve().is_relative_to(top.resolve()):
        raise OSError(f"{new.parent} leads outside")
    repo.make_folders(new.parent)
    if old.is_symlink():
        new.unlink(missing_ok=True)
        new.symlink_to(old.readlink())
        return 0
    with open_plain(old) as source:
        about = os.fstat(source.fileno())
        part = new.with_name(f".{new.name[:200]}.ralphd-part")
        part.unlink(missing_ok=True)
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as copy:
                os.fchmod(copy.fileno(), about.st_mode & 0o777)
                size = _filled(source, copy, about.st_size, most_bytes)
            part.rename(new)  # the name is there only with the whole content
        finally:
            part.unlink(missing_ok=True)
    return size


def _filled(source: BinaryIO, copy: BinaryIO, size: int, most_bytes: int) -> int:
    try:
        fcntl.ioctl(copy, _FICLONE, source.fileno())
    except OSError as fault:
        if size > most_bytes:
            raise OSError("too large") from fault
        shutil.copyfileobj(source, copy)
        return size
    return 0


def in_words(left_out: list[str]) -> str:
    """Return a note on files that were not copied."""
    return f"not copied (too large, or not plain files): {name_list(map(os.fsencode, left_out))}"
