"""Compare commits, the index and files path by path, and write index entries and files.

``git status`` is not enough before files are overwritten: it hides paths that are assume-unchanged or
skip-worktree, and trusts the times in the index. So files are compared by content with the entry they should
have. ``git checkout`` and ``git reset`` are not used either: they write paths that nobody asked for.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.dataclass import dataclass
from ralphd.git.runner import GitRunner

LINK: Final = "120000"
_MOST_READ_BYTES: Final = 32 << 20
_MOST_ARGUMENTS: Final = 500
_MOST_ARGUMENT_BYTES: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """What a commit or an index has at a path."""

    mode: str
    sha: str

    @property
    def is_submodule(self) -> bool:
        return self.mode == "160000"


Entries: TypeAlias = Mapping[bytes, TreeEntry]
Wanted: TypeAlias = tuple[bytes, TreeEntry | None]
"""A path and its future entry; None removes it."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What HEAD and the index have at a path."""

    committed: TreeEntry | None
    staged: TreeEntry | None


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What two commits have at a path that differs between them."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


def entry_of(mode: bytes, sha: bytes) -> TreeEntry | None:
    """Return the entry for git's mode and sha; a mode of zeros means none."""
    return None if mode == b"000000" else TreeEntry(mode.decode(), sha.decode())


def has_submodule(*entries: TreeEntry | None) -> bool:
    """Return whether any of these entries is a submodule."""
    return any(entry is not None and entry.is_submodule for entry in entries)


def mode_of(st_mode: int) -> str:
    """Return git's mode of a regular file."""
    return "100755" if st_mode & stat.S_IXUSR else "100644"


def blob_id(data: bytes, *, like: str) -> str:
    """Return git's id of a content, in the hash (SHA-1 or SHA-256) of another id."""
    digest = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return digest(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


# Files.


def is_file(path: bytes) -> bool:
    """Return whether anything but a folder is at an absolute path: a file, a link, a pipe."""
    return os.path.lexists(path) and not is_folder(path)


def is_folder(path: bytes) -> bool:
    """Return whether a folder is at an absolute path; a link to one does not count."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def above(path: bytes) -> Iterator[bytes]:
    """Return the folders that lead to a path, the outermost first."""
    parts = path.split(b"/")
    return (b"/".join(parts[:count]) for count in range(1, len(parts)))


def has_folders(git: GitRunner, path: bytes) -> bool:
    """Return whether only real folders lead to a path: a link among them would lead out of the work tree."""
    return all(is_folder(git.path(each)) for each in above(path))


def is_there(git: GitRunner, path: bytes) -> bool:
    """Return whether a file is at a path of the work tree."""
    return has_folders(git, path) and is_file(git.path(path))


def files_below(git: GitRunner, path: bytes) -> Iterator[bytes]:
    """Return the files and links in a folder and below it; none where the path is a link to a folder."""
    full, top = git.path(path), os.fsencode(git.top)
    for folder, folders, names in os.walk(full) if is_folder(full) else ():
        inside = (b"%b/%b" % (folder, name) for name in (*names, *folders))
        yield from (os.path.relpath(each, top) for each in inside if is_file(each))


def obstructing(git: GitRunner, paths: Iterable[bytes], known: Collection[bytes]) -> set[bytes]:
    """Return the files that are not ``known`` and would have to go for files at these paths.

    That is a file where a path needs a folder, or anything below a path that is a folder now.
    """
    way: set[bytes] = set()
    for path in paths:
        way.update(each for each in above(path) if is_file(git.path(each)))
        way.update(files_below(git, path))
    return way - set(known)


def is_exactly(git: GitRunner, path: bytes, entry: TreeEntry) -> bool:
    """Return whether a file equals an entry byte for byte, whatever git would convert."""
    if not has_folders(git, path):
        return False
    full = git.path(path)
    try:
        status = os.lstat(full)
        if status.st_size > _MOST_READ_BYTES:
            return False
        if entry.mode == LINK and stat.S_ISLNK(status.st_mode):
            return blob_id(os.readlink(full), like=entry.sha) == entry.sha  # noqa: PTH115 - a Path takes no bytes
        if not stat.S_ISREG(status.st_mode) or entry.mode != mode_of(status.st_mode):
            return False
        return blob_id(Path(os.fsdecode(full)).read_bytes(), like=entry.sha) == entry.sha
    except OSError:
        return False


# Comparisons. All raise NotDone.


def changes(git: GitRunner, old: str, new: str) -> tuple[TreeChange, ...]:
    """Return what differs between two commits."""
    words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none")
    fields = git.output(*words, old, new, "--").split(b"\0")
    differences = []
    for header, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_sha, new_sha, _ = header.removeprefix(b":").split(b" ")
        differences.append(TreeChange(path, entry_of(old_mode, old_sha), entry_of(new_mode, new_sha)))
    return tuple(differences)


def differing(git: GitRunner, entries: Sequence[tuple[bytes, TreeEntry]]) -> set[bytes]:
    """Return the paths whose files differ from an entry in content, mode or kind; submodules never do.

    Call within ``GitRunner.exclusive``.
    """
    # Most files are equal to the byte. Git is asked about the others only: it converts line ends.
    lines = _index_info([each for each in entries if not (each[1].is_submodule or is_exactly(git, *each))])
    if not lines:
        return set()
    index = git.work / "tmp-index"
    index.unlink(missing_ok=True)  # an earlier call's
    env = {"GIT_INDEX_FILE": os.fspath(index)}
    git.output("update-index", "-z", "--index-info", given=lines, env=env)
    git.run("update-index", "-q", "--refresh", env=env)
    names = git.output("diff-files", "-z", "--name-only", "--no-renames", env=env)
    return {path for path in names.split(b"\0") if path}


def staged_at(git: GitRunner, paths: Collection[bytes]) -> dict[bytes, TreeEntry]:
    """Return what the index has at these paths."""
    return _entries_at(git, ("ls-files", "-s", "-z"), paths, sha_field=1)


def committed_at(git: GitRunner, paths: Collection[bytes], commit: str | None) -> dict[bytes, TreeEntry]:
    """Return what a commit has at these paths."""
    if commit is None:
        return {}
    return _entries_at(git, ("ls-tree", "-r", "-z", "--full-tree", commit), paths, sha_field=2)


def _entries_at(
    git: GitRunner, words: tuple[str, ...], paths: Collection[bytes], *, sha_field: int
) -> dict[bytes, TreeEntry]:
    if not paths:
        return {}
    # More arguments than a command line takes: list everything.
    few = len(paths) <= _MOST_ARGUMENTS and sum(map(len, paths)) <= _MOST_ARGUMENT_BYTES
    arguments = [os.fsdecode(path) for path in paths] if few else []
    wanted, entries = set(paths), {}
    for line in git.output(*words, "--", *arguments).split(b"\0"):
        header, _, path = line.partition(b"\t")
        if path in wanted:
            fields = header.split()
            entries[path] = TreeEntry(fields[0].decode(), fields[sha_field].decode())
    return entries


def sparse(git: GitRunner, paths: set[bytes]) -> frozenset[bytes]:
    """Return the paths that a sparse work tree leaves out: skip-worktree in the index, and without a file."""
    if not paths:
        return frozenset()
    lines = git.output("ls-files", "-t", "-z").split(b"\0")
    names = (line[2:] for line in lines if line.startswith(b"S "))
    return frozenset(name for name in names if name in paths and not is_there(git, name))


# Writes.


def put_entries(git: GitRunner, wanted: Sequence[Wanted]) -> None:
    """Set these paths in the index, and remove those without an entry. Raises NotDone."""
    if gone := [path for path, entry in wanted if entry is None]:
        git.output("update-index", "-z", "--force-remove", "--stdin", given=gone)
    if lines := _index_info([(path, entry) for path, entry in wanted if entry is not None]):
        git.output("update-index", "-z", "--index-info", given=lines)


def put_paths(
    git: GitRunner, wanted: Sequence[Wanted], changed: set[bytes], staged: Entries, *, overwrite: bool = True
) -> None:
    """Set these paths in the index and in the work tree; no other path is touched.

    ``staged`` is the present index, ``changed`` the files to write; without ``overwrite`` only where there is
    no file. Raises NotDone, OSError.
    """
    for path, entry in wanted:
        if entry is None and is_there(git, path):
            git.remove(path)
    updates = [(path, entry) for path, entry in wanted if staged.get(path) != entry]
    put_entries(git, updates)
    if changed:
        how = ("-f", "-q") if overwrite else ()  # with -q git would silently skip a file that exists
        git.output("checkout-index", *how, "-u", "-z", "--stdin", given=changed)
    if any(entry is not None and path not in changed for path, entry in updates):
        git.run("update-index", "-q", "--refresh")  # else git re-reads these files at each status


def _index_info(entries: Sequence[tuple[bytes, TreeEntry]]) -> bytes:
    """Return lines for ``update-index -z --index-info``."""
    return b"".join(f"{entry.mode} {entry.sha}\t".encode() + path + b"\0" for path, entry in entries)
