"""What differs between two commits, path by path, and whether files are what a commit says of them."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.git.runner import GitRunner

LINK: Final = b"120000"
SUBMODULE: Final = b"160000"
_ABSENT: Final = b"000000"
_MOST_READ_BYTES: Final = 32 << 20
_MOST_ASKED: Final = 500
_MOST_ASKED_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """What a commit or an index has at a path."""

    mode: bytes
    sha: str

    @property
    def is_submodule(self) -> bool:
        return self.mode == SUBMODULE


@dataclass(frozen=True, slots=True)
class Sides:
    """What HEAD and the index have at a path; None: nothing."""

    committed: TreeEntry | None
    staged: TreeEntry | None


Wanted: TypeAlias = tuple[bytes, TreeEntry | None]
"""A path, and what is to be there."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A path that is to change, from what to what; None: there is nothing."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None

    def reversed(self) -> "TreeChange":
        """The way back."""
        return TreeChange(self.path, self.new, self.old)


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


def files_below(calls: GitRunner, path: bytes) -> Iterator[bytes]:
    """The files and links in the folder at a path and below; none where there is a link to a folder."""
    full, top = calls.path(path), os.fsencode(calls.top)
    for place, folders, names in os.walk(full) if is_folder(full) else ():
        inside = (b"%b/%b" % (place, name) for name in (*names, *folders))
        yield from (os.path.relpath(each, top) for each in inside if is_file(each))


def above(path: bytes) -> Iterator[bytes]:
    """The folders that lead to a path, the outermost first."""
    parts = path.split(b"/")
    return (b"/".join(parts[:count]) for count in range(1, len(parts)))


def changes(calls: GitRunner, old: str, new: str) -> tuple[TreeChange, ...]:
    """What differs between two commits. Raises NotDone."""
    words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none")
    fields = calls.printed(*words, old, new, "--").split(b"\0")
    found = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        modes_and_shas = about.removeprefix(b":").split(b" ")
        was, now = zip(modes_and_shas[:2], modes_and_shas[2:4], strict=True)
        found.append(TreeChange(path, entry_of(*was), entry_of(*now)))
    return tuple(found)


def entry_of(mode: bytes, sha: bytes) -> TreeEntry | None:
    """What git tells by a mode and an object; a mode of zeros is nothing."""
    return None if mode == _ABSENT else TreeEntry(mode, sha.decode())


def is_there(calls: GitRunner, path: bytes) -> bool:
    """Whether there is a file at a path of the work tree, links above it not followed."""
    return all(is_folder(calls.path(each)) for each in above(path)) and is_file(calls.path(path))


def differing(calls: GitRunner, entries: Sequence[tuple[bytes, TreeEntry]]) -> set[bytes]:
    """The paths whose files are not what an entry says, in content, mode or kind; submodules are left out.

    What is so to the byte is seen without git, which is asked of the others: it converts line ends. To be
    called within ``Calls.alone``. Raises NotDone.
    """
    lines = _lines(
        [
            (path, entry)
            for path, entry in entries
            if not (entry.is_submodule or is_plainly(calls, path, entry))
        ]
    )
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


def is_plainly(calls: GitRunner, path: bytes, entry: TreeEntry) -> bool:
    """Whether a file is what an entry says to the byte: nothing is lost with it, whatever git converts."""
    if not all(is_folder(calls.path(each)) for each in above(path)):
        return False
    full = calls.path(path)
    try:
        found = os.lstat(full)
        if found.st_size > _MOST_READ_BYTES:
            return False
        if entry.mode == LINK and stat.S_ISLNK(found.st_mode):
            return blob_id(os.readlink(full), like=entry.sha) == entry.sha  # noqa: PTH115 - bytes are no Path
        if not stat.S_ISREG(found.st_mode) or entry.mode != _mode_of(found.st_mode):
            return False
        return blob_id(Path(os.fsdecode(full)).read_bytes(), like=entry.sha) == entry.sha
    except OSError:
        return False


def _mode_of(mode: int) -> bytes:
    return b"100755" if mode & stat.S_IXUSR else b"100644"


def blob_id(data: bytes, *, like: str) -> str:
    """The name that git gives to a content, of the kind (SHA-1 or SHA-256) that another has."""
    digest = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return digest(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def staged_at(calls: GitRunner, paths: Collection[bytes]) -> dict[bytes, TreeEntry]:
    """What the index has at these paths. Raises NotDone."""
    if not paths:
        return {}
    few = len(paths) <= _MOST_ASKED and sum(map(len, paths)) <= _MOST_ASKED_BYTES
    asked = [os.fsdecode(path) for path in paths] if few else []  # of many all is told: no command is so long
    wanted, found = set(paths), {}
    for line in calls.printed("ls-files", "-s", "-z", "--", *asked).split(b"\0"):
        about, _, path = line.partition(b"\t")
        if path in wanted:
            mode, sha, _ = about.split()
            found[path] = TreeEntry(mode, sha.decode())
    return found


def left_out(calls: GitRunner, paths: set[bytes]) -> frozenset[bytes]:
    """Those that a sparse work tree leaves out: the index says so, and there is no file. Raises NotDone."""
    if not paths:
        return frozenset()
    entries = calls.printed("ls-files", "-t", "-z").split(b"\0")
    return frozenset(
        entry[2:]
        for entry in entries
        if entry.startswith(b"S ") and entry[2:] in paths and not is_there(calls, entry[2:])
    )


def put_entries(calls: GitRunner, wanted: Sequence[Wanted]) -> None:
    """Have the index say this of these paths, and nothing of those that are None. Raises NotDone."""
    gone = b"".join(path + b"\0" for path, entry in wanted if entry is None)
    if gone:
        calls.printed("update-index", "-z", "--force-remove", "--stdin", given=gone)
    lines = _lines([(path, entry) for path, entry in wanted if entry is not None])
    if lines:
        calls.printed("update-index", "-z", "--index-info", given=lines)


def put_paths(
    calls: GitRunner,
    wanted: Sequence[Wanted],
    changed: set[bytes],
    staged: Mapping[bytes, TreeEntry],
    *,
    without: frozenset[bytes] = frozenset(),
    writes_over: bool = True,
) -> None:
    """Index and files of these paths, as ``put_entries``; no other path is touched.

    ``staged`` is what the index has. Only the files of ``changed`` are written, not ``writes_over``: where
    there is none; those of ``without`` have no file. Raises NotDone, OSError.
    """
    for path, entry in wanted:
        if entry is None and is_there(calls, path):
            calls.remove(path)
    put = [(path, entry) for path, entry in wanted if staged.get(path) != entry]
    put_entries(calls, put)
    if changed:
        given = b"".join(path + b"\0" for path in changed)
        how = ("-f", "-q") if writes_over else ()  # -q would pass over a file that is there
        calls.printed("checkout-index", *how, "-u", "-z", "--stdin", given=given)
    if without:
        given = b"".join(path + b"\0" for path in without)
        calls.printed("update-index", "-z", "--skip-worktree", "--stdin", given=given)
    if any(entry is not None and path not in changed for path, entry in put):
        calls.call("update-index", "-q", "--refresh")  # the index knows nothing of these files yet


def _lines(entries: Sequence[tuple[bytes, TreeEntry]]) -> bytes:
    """For ``update-index -z --index-info``."""
    return b"".join(b"%b %b\t%b\0" % (entry.mode, entry.sha.encode(), path) for path, entry in entries)
