"""Set aside what is not committed, so that the commit can be tested alone, and put it back to the byte (R3).

What is kept under ``refs/ralph/aside/LABEL`` is a commit with the tracked files as they were, from which a
person can take them too, and as its second parent one with the index and a list of the files. Untracked files
stay where they are. Where anything was changed in the meantime, nothing is put back and the ref stays.
"""

import errno
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.git.facts import Uncommitted, trouble_of
from ralphd.git.locks import remove_left_by_ours
from ralphd.git.rewrite.file_snapshots import (
    SAID,
    SAID_BESIDE,
    FileState,
    PathKind,
    SavedFile,
    SavedState,
    Trace,
    file_now,
    keep_at_once,
    read_blobs,
    read_kept,
    state_at,
    traces,
    write_blobs,
    write_file,
)
from ralphd.git.rewrite.move_branch import refuse_filtered, refuse_trouble, standing
from ralphd.git.rewrite.revert import Done, acted, ref_name
from ralphd.git.rewrite.tree_diff import (
    TreeEntry,
    above,
    blob_id,
    changes,
    differing,
    files_below,
    is_file,
    is_folder,
    is_plainly,
    is_there,
    put_entries,
    put_paths,
    staged_at,
)
from ralphd.git.runner import LIMIT_S, GitRunner, NotDone, WasKilled, readable, shown

# Files moved out of the way in one step each: who saves one at that very moment loses nothing by it.


class DisplacedFiles:
    """What was moved into the guard's own directory, and is there until the act is over."""

    def __init__(self, calls: GitRunner) -> None:
        self._calls = calls
        self._moved: list[tuple[SavedFile, bytes]] = []
        self.is_whole = True
        """False where a file is on another disk than the repository: it stays, to be written over."""

    def take(self, files: Sequence[SavedFile]) -> None:
        """Move files away, and the folders that they leave empty. Raises NotDone, OSError.

        Refused where one is not as it was kept any more. What was moved until then is to be brought back.
        """
        for number, each in enumerate(files):
            full, beside = self._calls.path(each.path), self._beside(number)
            if is_there(self._calls, each.path):
                if self._is_moved(full, beside):
                    self._moved.append((each, beside))
                    self._calls.prune(each.path)
            elif is_folder(full):
                for place, _, _ in os.walk(full, topdown=False):
                    with suppress(OSError):
                        os.rmdir(place)  # noqa: PTH106 - bytes are no Path
        self.check()

    def check(self) -> None:
        """Raises NotDone where one was not as it was kept, or was written to since it was opened before."""
        for each, beside in self._moved:
            if not each.is_as(state_at(beside, each.path)):
                raise NotDone(f"{readable(each.path)} changed meanwhile")

    def bring_back(self, kept: SavedState) -> set[bytes]:
        """All as it was, but for what somebody else has put there, whose paths are answered.

        Raises NotDone, OSError.
        """
        theirs = self._theirs(kept)
        for each, beside in self._moved:
            if each.path not in theirs:
                full = self._calls.path(each.path)
                os.makedirs(os.path.dirname(full), exist_ok=True)  # noqa: PTH103, PTH120
                os.replace(beside, full)  # noqa: PTH105
        changed = {each.path for each, _ in self._moved if not each.is_as(file_now(self._calls, each.path))}
        return theirs | changed

    def _theirs(self, kept: SavedState) -> set[bytes]:
        """What is neither as it was kept nor HEAD's, nor the beginning of that: git was cut off there."""
        there = [each for each in kept.files if is_there(self._calls, each.path)]
        others = [each for each in there if not each.is_as(file_now(self._calls, each.path))]
        entries = {each.path: each.committed for each in others if each.committed is not None}
        strange = differing(self._calls, list(entries.items()))
        asked = sorted(path for path in strange if not entries[path].is_submodule)
        whole = read_blobs(self._calls, [entries[path].sha for path in asked])
        begun = {
            path
            for path, data in zip(asked, whole, strict=True)
            if (now := file_now(self._calls, path)).kind is PathKind.FILE and data.startswith(now.data)
        }
        return (strange - begun) | {each.path for each in others if each.committed is None}

    def _beside(self, number: int) -> bytes:
        return os.fsencode(self._calls.work / f"tmp-away-{number:06}")

    def _is_moved(self, full: bytes, beside: bytes) -> bool:
        try:
            os.rename(full, beside)  # noqa: PTH104
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.is_whole = False
            return False
        return True


ASIDE: Final = "refs/ralph/aside/"
MOST_BYTES: Final = 256 << 20
MOST_FILES: Final = 20_000


def set_aside(directory: Path, label: str, *, limit_s: float = LIMIT_S) -> Done:
    """Keep what is not committed of tracked files under a ref, and put files and index as HEAD has them."""

    def act(calls: GitRunner) -> str:
        _, head = standing(calls)
        ref = ASIDE + ref_name(label)
        kept = _kept(calls, ref)
        if kept is None:
            found = refuse_trouble(calls)
            if not found.entries:
                return head
            index = _index_now(calls)
            states = _states(calls, found)
            kept = _taken(calls, head, found, states, index)
            _refuse_loss(calls, kept)
            if kept.index:
                _keep(calls, kept, index, ref)
            else:
                keep_at_once(calls, kept, states, ref)
        elif kept.head != head:
            raise NotDone(f"other work is still set aside under {ref}")
        diagnostics.reach("guard.aside.kept")
        _refuse_changed(calls, kept, ref)
        staged = staged_at(calls, [each.path for each in kept.files])
        _refuse_changed_index(calls, kept, head, ref, staged)
        _as_committed(calls, kept, ref, staged)
        return head

    return acted(directory, act, limit_s)


def put_back(directory: Path, label: str, *, limit_s: float = LIMIT_S) -> Done:
    """Put back what was set aside under a label: files and index; nothing where nothing is set aside.

    HEAD may have moved meanwhile, as long as the commits between did not change these files. Refused, with
    all kept under its ref, where files or index were changed meanwhile.
    """

    def act(calls: GitRunner) -> str:
        _, head = standing(calls)
        ref = ASIDE + ref_name(label)
        kept = _kept(calls, ref)
        if kept is None:
            return head
        _free_lock(calls, kept)
        if trouble := trouble_of(calls.directory, ()):  # of conflicts only those in its paths are in the way
            raise NotDone(trouble)
        seen = traces(calls, [each.path for each in kept.files])
        _refuse_changed(calls, kept, ref)
        staged = staged_at(calls, [each.path for each in kept.files])
        _refuse_changed_index(calls, kept, head, ref, staged)
        try:
            _put_files(calls, kept, seen=seen)
            diagnostics.reach("guard.aside.files")
            _put_index(calls, kept, head, staged)
        except OSError as error:
            raise NotDone(f"{error.strerror}; what was set aside is kept under {ref}") from error
        diagnostics.reach("guard.aside.index")
        calls.printed("update-ref", "-d", ref)
        return head

    return acted(directory, act, limit_s)


def _kept(calls: GitRunner, ref: str) -> SavedState | None:
    if calls.ref(ref) is None:
        return None
    return read_kept(calls.printed("cat-file", "blob", f"{ref}^2:files.json"))


def _index_now(calls: GitRunner) -> tuple[bytes, int]:
    """The bytes of the index and its time."""
    index = calls.repository.git / "index"
    mtime_ns = index.stat().st_mtime_ns
    return index.read_bytes(), mtime_ns


def _states(calls: GitRunner, found: Uncommitted) -> dict[bytes, FileState]:
    """The files that are to be set aside, as they are. Raises NotDone for what cannot be."""
    names = found.names
    if len(names) > MOST_FILES:
        raise NotDone(f"{len(names)} tracked files are not committed: too many to set aside")
    _refuse_large(calls, names)
    refuse_filtered(calls, names)
    if modules := {
        name
        for name, sides in found.entries.items()
        if any(entry is not None and entry.is_submodule for entry in (sides.committed, sides.staged))
    }:
        raise NotDone(f"a submodule stands at another commit: {shown(modules)}")
    return {name: file_now(calls, name) for name in sorted(names)}


def _taken(
    calls: GitRunner,
    head: str,
    found: Uncommitted,
    states: Mapping[bytes, FileState],
    index: tuple[bytes, int],
) -> SavedState:
    """What is to be set aside. The index is kept whole where anything is staged; its objects are there then.

    Otherwise the index is as HEAD is, and is not changed. Raises NotDone.
    """
    is_staged = any(sides.committed != sides.staged for sides in found.entries.values())
    if is_staged:
        blobs = write_blobs(calls, states)
    else:
        blobs = {name: blob_id(now.data, like=head) for name, now in states.items()}
    files = [
        SavedFile(name, now.kind, now.mode, blobs[name], *_sides(found, name)) for name, now in states.items()
    ]
    data, mtime_ns = index
    blob = calls.text("hash-object", "-w", "--no-filters", "--stdin", given=data) if is_staged else ""
    return SavedState(head, blob, mtime_ns, tuple(files))


def _sides(found: Uncommitted, name: bytes) -> tuple[TreeEntry | None, TreeEntry | None]:
    return found.entries[name].committed, found.entries[name].staged


def _refuse_large(calls: GitRunner, names: Sequence[bytes]) -> None:
    total = sum(os.lstat(calls.path(name)).st_size for name in names if is_file(calls.path(name)))
    if total > MOST_BYTES:
        raise NotDone(f"{total >> 20} MiB of tracked files are not committed: too much to set aside")


def _refuse_loss(calls: GitRunner, kept: SavedState) -> None:
    """Raises NotDone where a file of HEAD's would take the place of something that is not kept."""
    paths = {each.path for each in kept.files}
    way = set()
    for each in kept.files:
        if each.committed is None:
            continue
        way |= {name for name in above(each.path) if is_file(calls.path(name)) and name not in paths}
        way |= set(files_below(calls, each.path)) - paths
    if way:
        raise NotDone(f"untracked files are in the way: {shown(way)}")


def _keep(calls: GitRunner, kept: SavedState, index: tuple[bytes, int], ref: str) -> None:
    staged, as_it_was = _trees(calls, kept, index)
    about = calls.text("hash-object", "-w", "--stdin", "--no-filters", given=kept.text())
    entries = [
        f"100644 blob {about}\tfiles.json",
        *(f"100644 blob {each.blob}\tfile-{number:06}" for number, each in enumerate(kept.files)),
    ]
    entries += [f"100644 blob {kept.index}\tindex", f"040000 tree {staged}\tstaged"]
    tree = calls.text("mktree", given="".join(f"{entry}\n" for entry in entries).encode())
    beside = _commit(calls, tree, SAID_BESIDE)
    commit = _commit(calls, as_it_was, SAID, kept.head, beside)
    calls.printed("update-ref", "--stdin", given=f"create {ref} {commit}\n".encode())


def _commit(calls: GitRunner, tree: str, said: str, *parents: str) -> str:
    given = (word for parent in parents for word in ("-p", parent))
    return calls.text("commit-tree", tree, *given, "--no-gpg-sign", "-m", said, also=calls.identity)


def _trees(calls: GitRunner, kept: SavedState, index: tuple[bytes, int]) -> tuple[str, str]:
    """What was staged, and the tracked files as they were, as trees; made in an index beside the real one."""
    beside = calls.work / "tmp-tree"
    beside.write_bytes(index[0])
    os.utime(beside, ns=(index[1], index[1]))
    also = {"GIT_INDEX_FILE": os.fspath(beside)}
    staged = calls.text("write-tree", also=also)
    given = b"".join(each.path + b"\0" for each in kept.files)
    calls.printed("update-index", "-z", "--add", "--remove", "--replace", "--stdin", given=given, also=also)
    return staged, calls.text("write-tree", also=also)


def _refuse_changed(calls: GitRunner, kept: SavedState, ref: str) -> None:
    """Raises NotDone where a file is neither as it was, nor as HEAD had it then, nor gone."""
    now = {each.path: file_now(calls, each.path) for each in kept.files}
    others = [
        each
        for each in kept.files
        if not (each.is_as(now[each.path]) or now[each.path].kind is PathKind.ABSENT)  # cut off, maybe
    ]
    changed = differing(calls, [(each.path, each.committed) for each in others if each.committed])
    changed |= {each.path for each in others if each.committed is None and is_file(calls.path(each.path))}
    if changed:
        raise NotDone(f"{shown(changed)} changed meanwhile; what was set aside is kept under {ref}")


def _as_committed(calls: GitRunner, kept: SavedState, ref: str, staged: Mapping[bytes, TreeEntry]) -> None:
    """Files and index of these paths as HEAD has them; where git fails, they are put back.

    ``staged`` is what the index has. No others are written: changes may be hidden from git's status
    (assume-unchanged), and are not kept here.
    """
    wanted = [(each.path, each.committed) for each in kept.files]
    changed = {path for path, entry in wanted if entry is not None and not is_plainly(calls, path, entry)}
    away = DisplacedFiles(calls)
    try:
        away.take([each for each in kept.files if each.committed is None or each.path in changed])
        diagnostics.reach("guard.aside.moved")
        put_paths(calls, wanted, changed, staged, writes_over=not away.is_whole)
        away.check()
    except (NotDone, OSError) as why:
        calls.allow_way_back()
        if isinstance(why, WasKilled):
            remove_left_by_ours(calls)
        left = away.bring_back(kept)
        _put_files(calls, kept, without=left)
        _put_index(calls, kept, kept.head, staged_at(calls, [each.path for each in kept.files]))
        if left:
            raise NotDone(f"{shown(left)} changed meanwhile; what was there is kept under {ref}") from why
        calls.printed("update-ref", "-d", ref)
        raise


def _refuse_changed_index(
    calls: GitRunner, kept: SavedState, head: str, ref: str, now: Mapping[bytes, TreeEntry]
) -> None:
    """Raises NotDone where these paths were staged or committed meanwhile; ``now`` is what is staged."""
    paths = {each.path for each in kept.files}
    committed = {each.path for each in changes(calls, kept.head, head)} if head != kept.head else set()
    staged = {each.path for each in kept.files if now.get(each.path) not in (each.committed, each.staged)}
    if changed := (paths & committed) | staged:
        raise NotDone(
            f"{shown(changed)} was committed or staged meanwhile; what was set aside is kept under {ref}"
        )


def _put_files(
    calls: GitRunner,
    kept: SavedState,
    *,
    without: Collection[bytes] = (),
    seen: Mapping[bytes, Trace] | None = None,
) -> None:
    """The files as they were: first those that go, since one may be in the place of another's folder.

    With what was ``seen`` of them, each is looked at again right before: OSError where it is another.
    """
    files = [each for each in kept.files if each.path not in without]
    for each in files:
        if each.kind is PathKind.ABSENT and is_file(calls.path(each.path)):
            _refuse_other(calls, each.path, seen)
            calls.remove(each.path)
    left = [each for each in files if not each.is_as(file_now(calls, each.path))]
    for each, data in zip(left, read_blobs(calls, [each.blob for each in left]), strict=True):
        _refuse_other(calls, each.path, seen)
        write_file(calls, each.path, each.kind, each.mode, data)


def _refuse_other(calls: GitRunner, path: bytes, seen: Mapping[bytes, Trace] | None) -> None:
    """Raises OSError where somebody has saved a file since it was seen."""
    now = traces(calls, [path]).get(path)
    if seen is not None and is_file(calls.path(path)) and seen.get(path) != now:
        raise OSError(errno.EBUSY, f"{readable(path)} changed meanwhile")


def _put_index(calls: GitRunner, kept: SavedState, head: str, now: Mapping[bytes, TreeEntry]) -> None:
    """The index as it was: whole where nothing else is staged, otherwise the entries of these paths.

    ``now`` is what it has.
    """
    if all(now.get(each.path) == each.staged for each in kept.files):
        return
    is_kept_whole = kept.index and head == kept.head
    if is_kept_whole and calls.call("diff-index", "--cached", "--quiet", head, "--")[0] == 0:
        _put_whole_index(calls, kept)
        return
    put_entries(calls, [(each.path, each.staged) for each in kept.files])
    calls.call("update-index", "-q", "--refresh")


def _put_whole_index(calls: GitRunner, kept: SavedState) -> None:
    """With its time, by which git knows which files may have changed within the same tick."""
    index, lock = calls.repository.git / "index", calls.repository.git / "index.lock"
    data = calls.printed("cat-file", "blob", kept.index)
    with lock.open("xb") as file:
        file.write(data)
    lock.chmod(stat.S_IMODE(index.stat().st_mode))
    os.utime(lock, ns=(kept.index_mtime_ns, kept.index_mtime_ns))
    diagnostics.reach("guard.aside.lock")
    lock.replace(index)


def _free_lock(calls: GitRunner, kept: SavedState) -> None:
    """Remove the lock of the index where it is ours, from a call that was cut off: it holds what we wrote."""
    lock = calls.repository.git / "index.lock"
    if not kept.index:
        return
    try:
        is_ours = blob_id(lock.read_bytes(), like=kept.index) == kept.index
    except OSError:
        return
    if is_ours:
        lock.unlink(missing_ok=True)
