"""What differs between two commits, path by path, and whether files are what a commit says of them."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ralphd.git.calls import Calls

LINK: Final = b"120000"
SUBMODULE: Final = b"160000"
_ABSENT: Final = b"000000"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a commit or an index has at a path."""

    mode: bytes
    sha: str

    @property
    def is_submodule(self) -> bool:
        return self.mode == SUBMODULE


@dataclass(frozen=True, slots=True)
class Change:
    """A path that is to change, from what to what; None: there is nothing."""

    path: bytes
    old: Entry | None
    new: Entry | None

    def reversed(self) -> "Change":
        """The way back."""
        return Change(self.path, self.new, self.old)

    def old_line(self) -> bytes:
        """For ``update-index -z --index-info``: what was there."""
        if self.old is None:
            assert self.new is not None
            return _line(self.path, b"0", self.new.sha)  # mode 0: not in the index
        return _line(self.path, self.old.mode, self.old.sha)


def _line(path: bytes, mode: bytes, sha: str) -> bytes:
    return b"%b %b\t%b\0" % (mode, sha.encode(), path)


def is_file(path: bytes) -> bool:
    """Whether there is anything but a folder at a path: a file, a link, a pipe."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def is_folder(path: bytes) -> bool:
    """Whether there is a folder at a path, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def above(path: bytes) -> Iterator[bytes]:
    """The folders that lead to a path, the outermost first."""
    parts = path.split(b"/")
    return (b"/".join(parts[:count]) for count in range(1, len(parts)))


def changes(calls: Calls, old: str, new: str) -> tuple[Change, ...]:
    """What differs between two commits. Raises NotDone."""
    words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none")
    fields = calls.printed(*words, old, new, "--").split(b"\0")
    found = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        modes_and_shas = about.removeprefix(b":").split(b" ")
        was, now = zip(modes_and_shas[:2], modes_and_shas[2:4], strict=True)
        found.append(Change(path, _entry(*was), _entry(*now)))
    return tuple(found)


def _entry(mode: bytes, sha: bytes) -> Entry | None:
    return None if mode == _ABSENT else Entry(mode, sha.decode())


def differing(calls: Calls, entries: Sequence[tuple[bytes, Entry]]) -> set[bytes]:
    """The paths whose files are not what an entry says, in content, mode or kind; submodules are left out.

    To be called within ``Calls.alone``. Raises NotDone.
    """
    lines = b"".join(_line(path, entry.mode, entry.sha) for path, entry in entries if not entry.is_submodule)
    if not lines:
        return set()
    index = calls.work / "tmp-index"
    also = {"GIT_INDEX_FILE": os.fspath(index)}
    try:
        calls.printed("update-index", "-z", "--index-info", given=lines, also=also)
        calls.call("update-index", "-q", "--refresh", also=also)
        found = calls.printed("diff-files", "-z", "--name-only", "--no-renames", also=also)
    finally:
        index.unlink(missing_ok=True)
    return {path for path in found.split(b"\0") if path}
