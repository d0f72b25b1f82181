"""What differs between two commits, path by path, and whether files are what a commit says of them."""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

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


Wanted: TypeAlias = tuple[bytes, Entry | None]
"""A path, and what is to be there."""


@dataclass(frozen=True, slots=True)
class Change:
    """A path that is to change, from what to what; None: there is nothing."""

    path: bytes
    old: Entry | None
    new: Entry | None

    def reversed(self) -> "Change":
        """The way back."""
        return Change(self.path, self.new, self.old)


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


def is_there(calls: Calls, path: bytes) -> bool:
    """Whether there is a file at a path of the work tree, links above it not followed."""
    return all(is_folder(calls.path(each)) for each in above(path)) and is_file(calls.path(path))


def differing(calls: Calls, entries: Sequence[tuple[bytes, Entry]]) -> set[bytes]:
    """The paths whose files are not what an entry says, in content, mode or kind; submodules are left out.

    To be called within ``Calls.alone``. Raises NotDone.
    """
    lines = _lines([(path, entry) for path, entry in entries if not entry.is_submodule])
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


def committed_at(calls: Calls, paths: Collection[bytes], commit: str) -> dict[bytes, Entry]:
    """What a commit has at these paths. Raises NotDone."""
    return _told(calls.printed("ls-tree", "-r", "-z", commit), paths, 2)


def staged_at(calls: Calls, paths: Collection[bytes]) -> dict[bytes, Entry]:
    """What the index has at these paths. Raises NotDone."""
    return _told(calls.printed("ls-files", "-s", "-z"), paths, 1)


def _told(printed: bytes, paths: Collection[bytes], place: int) -> dict[bytes, Entry]:
    """From lines with the mode first, the object at a place, and the path after a tab."""
    wanted, found = set(paths), {}
    for line in printed.split(b"\0"):
        about, _, path = line.partition(b"\t")
        if path in wanted:
            fields = about.split()
            found[path] = Entry(fields[0], fields[place].decode())
    return found


def left_out(calls: Calls, paths: set[bytes]) -> frozenset[bytes]:
    """Those that a sparse work tree leaves out: the index says so, and there is no file. Raises NotDone."""
    if not paths:
        return frozenset()
    entries = calls.printed("ls-files", "-t", "-z").split(b"\0")
    return frozenset(
        entry[2:]
        for entry in entries
        if entry.startswith(b"S ") and entry[2:] in paths and not is_there(calls, entry[2:])
    )


def put_entries(calls: Calls, wanted: Sequence[Wanted]) -> None:
    """Have the index say this of these paths, and nothing of those that are None. Raises NotDone."""
    gone = b"".join(path + b"\0" for path, entry in wanted if entry is None)
    if gone:
        calls.printed("update-index", "-z", "--force-remove", "--stdin", given=gone)
    lines = _lines([(path, entry) for path, entry in wanted if entry is not None])
    if lines:
        calls.printed("update-index", "-z", "--index-info", given=lines)


def put_paths(calls: Calls, wanted: Sequence[Wanted], *, without: frozenset[bytes] = frozenset()) -> None:
    """Index and files of these paths, as ``put_entries``; no other path is touched.

    What is right already is not written; those of ``without`` have no file. Raises NotDone, OSError.
    """
    changed = differing(calls, [(path, entry) for path, entry in wanted if entry is not None]) - without
    for path, entry in wanted:
        if entry is None and is_there(calls, path):
            calls.remove(path)
    staged = staged_at(calls, [path for path, _ in wanted])
    put_entries(calls, [(path, entry) for path, entry in wanted if staged.get(path) != entry])
    if changed:
        given = b"".join(path + b"\0" for path in changed)
        calls.printed("checkout-index", "-f", "-q", "-z", "--stdin", given=given)
    if without:
        given = b"".join(path + b"\0" for path in without)
        calls.printed("update-index", "-z", "--skip-worktree", "--stdin", given=given)
    calls.call("update-index", "-q", "--refresh")


def _lines(entries: Sequence[tuple[bytes, Entry]]) -> bytes:
    """For ``update-index -z --index-info``."""
    return b"".join(b"%b %b\t%b\0" % (entry.mode, entry.sha.encode(), path) for path, entry in entries)
