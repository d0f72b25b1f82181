"""Files as they were, to the byte, kept as git objects, and written back whole or not at all."""

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from ralphd.git.rewrite.tree_diff import TreeEntry, above, blob_id, is_folder
from ralphd.git.runner import GitRunner, NotDone, readable

SAID: Final = "what ralphd set aside"
SAID_BESIDE: Final = "index and list of what ralphd set aside"
_REPORTS: Final = "fast_import_crash_*"
"""What fast-import leaves where it fails."""
Trace: TypeAlias = tuple[int, int, int]


class PathKind(StrEnum):
    """What is at a path. A folder is nothing: git knows none."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class FileState:
    """A file: its permission bits and its content, that of a link being what it names."""

    kind: PathKind
    mode: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file as it was: its content as a blob; what HEAD and the index had there."""

    path: bytes
    kind: PathKind
    mode: int
    blob: str
    committed: TreeEntry | None
    staged: TreeEntry | None

    def is_as(self, now: FileState) -> bool:
        """Whether a file is as it was then."""
        if now.kind is not self.kind or (self.kind is PathKind.FILE and now.mode != self.mode):
            return False
        return self.kind is PathKind.ABSENT or blob_id(now.data, like=self.blob) == self.blob


@dataclass(frozen=True, slots=True)
class SavedState:
    """What was set aside: where HEAD was, the bytes of the index (a blob) with its time, and the files."""

    head: str
    index: str
    index_mtime_ns: int
    files: tuple[SavedFile, ...]

    def text(self) -> bytes:
        """To be read by ``read_kept``."""
        files = [
            [
                os.fsdecode(each.path),
                each.kind,
                each.mode,
                each.blob,
                _plain(each.committed),
                _plain(each.staged),
            ]
            for each in self.files
        ]
        about = {"version": 1, "head": self.head, "index": self.index, "index_mtime_ns": self.index_mtime_ns}
        return json.dumps({**about, "files": files}).encode()


def read_kept(text: bytes) -> SavedState:
    """What ``Kept.text`` wrote. Raises NotDone for anything else."""
    try:
        found = json.loads(text)
        files = tuple(
            SavedFile(
                os.fsencode(path), PathKind(kind), int(mode), str(blob), _entry(committed), _entry(staged)
            )
            for path, kind, mode, blob, committed, staged in found["files"]
        )
        return SavedState(str(found["head"]), str(found["index"]), int(found["index_mtime_ns"]), files)
    except (ValueError, KeyError, TypeError) as error:
        raise NotDone("what was set aside cannot be read") from error


def _plain(entry: TreeEntry | None) -> list[str] | None:
    return None if entry is None else [entry.mode.decode(), entry.sha]


def _entry(plain: list[str] | None) -> TreeEntry | None:
    return None if plain is None else TreeEntry(plain[0].encode(), plain[1])


def file_now(calls: GitRunner, path: bytes) -> FileState:
    """What is at a path now, links above it not followed. Raises NotDone for what can be no file of git's."""
    if not all(is_folder(calls.path(each)) for each in above(path)):
        return FileState(PathKind.ABSENT)
    return state_at(calls.path(path), path)


def state_at(full: bytes, path: bytes) -> FileState:
    """What is at a place; ``path`` is what it is called. Raises NotDone as ``file_now``."""
    try:
        found = os.lstat(full)
        if stat.S_ISLNK(found.st_mode):
            return FileState(PathKind.LINK, 0, os.readlink(full))  # noqa: PTH115 - bytes are no Path
        if stat.S_ISREG(found.st_mode):
            return FileState(PathKind.FILE, stat.S_IMODE(found.st_mode), Path(os.fsdecode(full)).read_bytes())
    except FileNotFoundError:
        return FileState(PathKind.ABSENT)
    except OSError as error:
        raise NotDone(f"{readable(path)} cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(found.st_mode):
        return FileState(PathKind.ABSENT)
    raise NotDone(f"{readable(path)} is neither a file nor a link")


def traces(calls: GitRunner, paths: Iterable[bytes]) -> dict[bytes, Trace]:
    """By what a file that is written to or replaced is known to be another one."""
    found: dict[bytes, Trace] = {}
    for path in paths:
        with suppress(OSError):
            now = os.lstat(calls.path(path))
            found[path] = (now.st_ino, now.st_size, now.st_mtime_ns)
    return found


def write_blobs(calls: GitRunner, states: Mapping[bytes, FileState]) -> dict[bytes, str]:
    """Keep contents as git objects: their names by path. Raises NotDone where one changes meanwhile."""
    plain = [
        path
        for path, state in states.items()
        if state.kind is PathKind.FILE
        and b"\n" not in path
        and not path.startswith(b'"')
        and path[-1:] != b"\r"
    ]
    given = b"".join(path + b"\n" for path in plain)
    words = ("hash-object", "-w", "--no-filters")
    blobs = dict(zip(plain, calls.text(*words, "--stdin-paths", given=given).split(), strict=True))
    for path, state in states.items():
        if path not in blobs:
            blobs[path] = calls.text(*words, "--stdin", given=state.data)
        if blobs[path] != blob_id(state.data, like=blobs[path]):
            raise NotDone(f"{readable(path)} changes while it is kept")
    return blobs


def keep_at_once(calls: GitRunner, kept: SavedState, states: Mapping[bytes, FileState], ref: str) -> None:
    """Contents, trees, commits and a ref that is not there yet, by one call of git. Raises NotDone.

    For what has nothing staged: as a tree the files are HEAD's, but for these, to the byte.
    """
    there = [(number, each) for number, each in enumerate(kept.files) if each.kind is not PathKind.ABSENT]
    who = (_plain_name(calls.identity[f"GIT_COMMITTER_{what}"]) for what in ("NAME", "EMAIL"))
    committer = b"committer %b <%b> now\n" % tuple(name.encode(errors="surrogateescape") for name in who)
    lists, beside = len(kept.files) + 1, len(kept.files) + 2
    given = [_blob(number + 1, states[each.path].data) for number, each in there]
    given += [_blob(lists, kept.text()), _began(ref, beside, committer, SAID_BESIDE)]
    given += [b"M 100644 :%d files.json\n" % lists]
    given += [b"M 100644 :%d file-%06d\n" % (number + 1, number) for number, _ in there]
    given += [
        _began(ref, beside + 1, committer, SAID),
        b"from %b\nmerge :%d\n" % (kept.head.encode(), beside),
    ]
    given += [b"D %b\n" % _quoted(each.path) for each in kept.files]
    given += [b"M %b :%d %b\n" % (_git_mode(each), number + 1, _quoted(each.path)) for number, each in there]
    reports = set(calls.repository.git.glob(_REPORTS))
    try:
        words = ("fast-import", "--quiet", "--done", "--date-format=now")
        calls.printed(*words, given=b"".join((*given, b"done\n")))
    except NotDone:
        for report in set(calls.repository.git.glob(_REPORTS)) - reports:
            report.unlink(missing_ok=True)
        raise


def _blob(mark: int, data: bytes) -> bytes:
    return b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(data), data)


def _began(ref: str, mark: int, committer: bytes, said: str) -> bytes:
    return b"commit %b\nmark :%d\n%bdata %d\n%b\n" % (ref.encode(), mark, committer, len(said), said.encode())


def _git_mode(file: SavedFile) -> bytes:
    if file.kind is PathKind.LINK:
        return b"120000"
    return b"100755" if file.mode & stat.S_IXUSR else b"100644"


def _quoted(path: bytes) -> bytes:
    """A path as fast-import reads it."""
    if b"\n" not in path and not path.startswith(b'"'):
        return path
    return b'"%b"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def _plain_name(name: str) -> str:
    return "".join(each for each in name if each not in "<>\n\r\0")


def read_blobs(calls: GitRunner, blobs: Sequence[str]) -> list[bytes]:
    """The contents of git objects, in this order. Raises NotDone."""
    if not blobs:
        return []
    printed = calls.printed("cat-file", "--batch", given="".join(f"{each}\n" for each in blobs).encode())
    found, at = [], 0
    for blob in blobs:
        end = printed.index(b"\n", at)
        about = printed[at:end].split()
        if about[:2] != [blob.encode(), b"blob"]:
            raise NotDone("an object of what was set aside is not there")
        at = end + 1 + int(about[2]) + 1
        found.append(printed[end + 1 : at - 1])
    return found


def write_file(calls: GitRunner, path: bytes, kind: PathKind, mode: int, data: bytes) -> None:
    """Put a file or a link at a path, in one step. Raises OSError."""
    full = calls.path(path)
    os.makedirs(os.path.dirname(full), exist_ok=True)  # noqa: PTH103, PTH120 - bytes are no Path
    beside = os.fsencode(calls.work / "tmp-file")
    _made(beside, kind, mode, data)
    try:
        os.replace(beside, full)  # noqa: PTH105
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = full + b".ralph-tmp"
        _made(near, kind, mode, data)
        os.replace(near, full)  # noqa: PTH105


def _made(place: bytes, kind: PathKind, mode: int, data: bytes) -> None:
    target = Path(os.fsdecode(place))
    target.unlink(missing_ok=True)
    if kind is PathKind.LINK:
        target.symlink_to(os.fsdecode(data))
        return
    target.write_bytes(data)
    target.chmod(mode)
