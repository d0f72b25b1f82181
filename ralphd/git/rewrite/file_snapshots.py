"""Save files and the index to the byte as git objects, and write files back in one step each.

Objects are used, not copies in a folder: git shares them with its history, checks them by their hash, and
keeps them for as long as a ref names them; a person reaches them with ``git show REF:FILE``.
"""

# Theory of operation
#
# The ref names a commit whose tree is the user's work (HEAD's files, with the saved ones in their place), for
# people. Its second parent is for ``stash``: ``files.json`` lists mode, kind and blob of each file, and
# what HEAD and the index had there, since a git tree knows neither the permission bits nor a file that is
# absent; ``file-000000`` and so on hold the contents in that order, without conversion of line ends.
#
# Nothing staged: the index is as HEAD has it and can be made again. Something staged: the index is saved too,
# whole, and with its time, by which git knows which files may have changed within the same tick; and the tree
# of what is staged, so that its objects are not pruned.
#
# One fast-import writes all of it, the ref last. A crash before that leaves loose objects, which git's gc
# removes. Contents come from memory, not from the files again: what is compared later is what was saved.

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.dataclass import dataclass
from ralphd.git import repo
from ralphd.git.runner import GitRunner, NotDone, readable
from ralphd.git.tree_diff import LINK, Sides, TreeEntry, blob_id, has_folders, mode_of

_MESSAGE: Final = "what ralphd set aside"
_LIST_MESSAGE: Final = "index and list of what ralphd set aside"
_CRASH_REPORTS: Final = "fast_import_crash_*"
Trace: TypeAlias = tuple[int, int, int]


class PathKind(StrEnum):
    """What is at a path. A folder counts as absent: git records none."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class FileState:
    """A file: its permission bits and its content; for a link its target."""

    kind: PathKind
    mode: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A saved file: its content as a blob; what HEAD and the index had there."""

    path: bytes
    kind: PathKind
    mode: int
    blob: str
    committed: TreeEntry | None
    staged: TreeEntry | None

    @classmethod
    def of(cls, path: bytes, state: FileState, sides: Sides, *, like: str) -> "SavedFile":
        """Return the file as it is saved; the id of its blob has the form of ``like``."""
        blob = blob_id(state.data, like=like)
        return cls(path, state.kind, state.mode, blob, sides.committed, sides.staged)

    def equals(self, state: FileState) -> bool:
        """Return whether a file is in the saved state, to the byte."""
        if state.kind is not self.kind or (self.kind is PathKind.FILE and state.mode != self.mode):
            return False
        return self.kind is PathKind.ABSENT or blob_id(state.data, like=self.blob) == self.blob


@dataclass(frozen=True, slots=True)
class SavedState:
    """What was set aside. ``index`` is a blob with its bytes, empty where nothing was staged."""

    head: str
    index: str
    index_mtime_ns: int
    files: tuple[SavedFile, ...]

    @property
    def paths(self) -> list[bytes]:
        return [each.path for each in self.files]

    def to_json(self) -> bytes:
        files = [(os.fsdecode(path), *others) for path, *others in map(astuple, self.files)]
        header = {"version": 1, "head": self.head, "index": self.index, "index_mtime_ns": self.index_mtime_ns}
        return json.dumps({**header, "files": files}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "SavedState":
        """Raise NotDone for anything that ``to_json`` did not write."""
        try:
            saved = json.loads(text)
            files = []
            for path, kind, mode, blob, *sides in saved["files"]:
                entries = (plain and TreeEntry(*plain) for plain in sides)
                files.append(SavedFile(os.fsencode(path), PathKind(kind), int(mode), str(blob), *entries))
            return cls(str(saved["head"]), str(saved["index"]), int(saved["index_mtime_ns"]), tuple(files))
        except (ValueError, KeyError, TypeError) as error:
            raise NotDone("what was set aside cannot be read") from error


def state_of(git: GitRunner, path: bytes) -> FileState:
    """Return what is at a path now. Raises NotDone for what git cannot record, such as a pipe."""
    return state_at(git.path(path), path) if has_folders(git, path) else FileState(PathKind.ABSENT)


def state_at(full: bytes, name: bytes) -> FileState:
    """Return what is at an absolute path; ``name`` is for messages. Raises NotDone as ``state_of``."""
    try:
        status = os.lstat(full)
        if stat.S_ISLNK(status.st_mode):
            return FileState(PathKind.LINK, 0, os.readlink(full))  # noqa: PTH115 - a Path takes no bytes
        if stat.S_ISREG(status.st_mode):
            data = Path(os.fsdecode(full)).read_bytes()
            return FileState(PathKind.FILE, stat.S_IMODE(status.st_mode), data)
    except FileNotFoundError:
        return FileState(PathKind.ABSENT)
    except OSError as error:
        raise NotDone(f"{readable(name)} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        return FileState(PathKind.ABSENT)
    raise NotDone(f"{readable(name)} is neither a file nor a link")


def traces(git: GitRunner, paths: Iterable[bytes]) -> dict[bytes, Trace]:
    """Return values that differ once a file was written to or replaced; none for absent files."""
    seen: dict[bytes, Trace] = {}
    for path in paths:
        with suppress(OSError):
            status = os.lstat(git.path(path))
            seen[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return seen


# Saving.


def save(
    git: GitRunner, saved: SavedState, states: Mapping[bytes, FileState], index: bytes, ref: str
) -> None:
    """Write contents, trees, commits and the ref by one call of fast-import. Raises NotDone."""
    present = [(mark, each) for mark, each in enumerate(saved.files, 1) if each.kind is not PathKind.ABSENT]
    top = len(saved.files)
    list_mark, index_mark, listing, work = top + 1, top + 2, top + 3, top + 4
    stream = [_blob(mark, states[each.path].data) for mark, each in present]
    stream += [_blob(list_mark, saved.to_json()), *([_blob(index_mark, index)] if saved.index else [])]
    stream += [_commit(git, ref, listing, _LIST_MESSAGE), b"M 100644 :%d files.json\n" % list_mark]
    stream += [b"M 100644 :%d file-%06d\n" % (mark, mark - 1) for mark, _ in present]
    if saved.index:
        copy = git.work / "tmp-tree"
        copy.write_bytes(index)
        staged = git.text("write-tree", env={"GIT_INDEX_FILE": os.fspath(copy)})
        stream.append(b"M 100644 :%d index\nM 040000 %b staged\n" % (index_mark, staged.encode()))
    stream.append(_commit(git, ref, work, _MESSAGE))
    stream.append(b"from %b\nmerge :%d\n" % (saved.head.encode(), listing))
    stream += [b"D %b\n" % _quoted(each.path) for each in saved.files]
    for mark, each in present:
        mode = LINK if each.kind is PathKind.LINK else mode_of(each.mode)
        stream.append(b"M %b :%d %b\n" % (mode.encode(), mark, _quoted(each.path)))
    reports = set(git.repository.git.glob(_CRASH_REPORTS))
    try:
        words = ("fast-import", "--quiet", "--done", "--date-format=now")
        git.output(*words, given=b"".join((*stream, b"done\n")))
    except NotDone:
        for report in set(git.repository.git.glob(_CRASH_REPORTS)) - reports:
            report.unlink(missing_ok=True)
        raise


def _blob(mark: int, data: bytes) -> bytes:
    return b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(data), data)


def _commit(git: GitRunner, ref: str, mark: int, message: str) -> bytes:
    unfit = str.maketrans("", "", "<>\n\r\0")
    name, mail = (git.identity[f"GIT_COMMITTER_{what}"].translate(unfit) for what in ("NAME", "EMAIL"))
    header = f"commit {ref}\nmark :{mark}\ncommitter {name} <{mail}> now\ndata {len(message)}\n{message}\n"
    return header.encode(errors="surrogateescape")


def _quoted(path: bytes) -> bytes:
    """Return a path as fast-import reads it."""
    if b"\n" not in path and not path.startswith(b'"'):
        return path
    return b'"%b"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


# Restoring.


def read_blobs(git: GitRunner, blobs: Sequence[str]) -> list[bytes]:
    """Return the contents of objects, in this order. Raises NotDone."""
    if not blobs:
        return []
    output = git.output("cat-file", "--batch", given="".join(f"{each}\n" for each in blobs).encode())
    contents, at = [], 0
    for blob in blobs:
        end = output.index(b"\n", at)
        header = output[at:end].split()
        if header[:2] != [blob.encode(), b"blob"]:
            raise NotDone("an object of what was set aside is not there")
        at = end + 1 + int(header[2]) + 1
        contents.append(output[end + 1 : at - 1])
    return contents


def write_file(git: GitRunner, path: bytes, kind: PathKind, mode: int, data: bytes) -> None:
    """Put a file or a link at a path by rename, so that no reader sees half of it. Raises OSError."""
    full = git.path(path)
    repo.make_folders(Path(os.fsdecode(full)).parent)
    try:
        _write_and_rename(os.fsencode(git.work / "tmp-file"), full, kind, mode, data)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The folder is on another disk than the repository: write next to the file.
        _write_and_rename(full + b".ralph-tmp", full, kind, mode, data)


def _write_and_rename(temporary: bytes, full: bytes, kind: PathKind, mode: int, data: bytes) -> None:
    target = Path(os.fsdecode(temporary))
    target.unlink(missing_ok=True)
    if kind is PathKind.LINK:
        target.symlink_to(os.fsdecode(data))
    else:
        target.write_bytes(data)
        target.chmod(mode)
    os.replace(temporary, full)  # noqa: PTH105
