"""Set aside what is not committed, so that the commit can be tested alone, and put it back to the byte (R3).

Promise 1 rests on it: a person's work is equal before and after, whatever happens in between. Tracked files
are saved under ``refs/ralph/aside/LABEL`` (see file_snapshots); untracked files stay where they are.
"""

# Theory of operation
#
# Why not ``git stash``: it applies filters and line ends, loses permission bits and intent-to-add entries,
# can stop half done at a conflict, and its stack is one for all worktrees, so a person's ``git stash pop``
# could take ours.
#
# Set aside: save under the ref, move the changed files away (rename), write index and files as HEAD has them,
# look at the moved files again.
# Put back: compare, write the files, write the index, delete the ref.
#
# A person, or a program they left running, may save a file at any moment:
#   while it is read: its content does not match its blob, or it no longer equals the saved state when the
#     moved file is compared; then all is brought back;
#   after the rename: their file is at the path, git refuses to overwrite it, and all but theirs is brought
#     back;
#   through a descriptor opened before the rename: they write to the moved file, which the second look finds;
#   while the work is put back: each file's inode, size and time are compared again right before the rename
#     that replaces it.
# In each case the act is refused, their bytes win at that path, and ours stay under the ref.
#
# A crash
#   before the ref leaves loose objects;
#   after it leaves each file either as saved, as HEAD has it, or absent (moved away: its copy is deleted, the
#     content is in the ref). The repeated act accepts these three, and refuses for anything else;
#   while put back leaves some files as saved already, and perhaps our index.lock, which has the content that
#     was to be the index: by that it is recognized and removed.
# The ref is deleted last. As long as it exists the work is not lost, and it is never overwritten.
#
# Put back leaves out the paths that were changed, staged or committed in the meantime: theirs is newer, and
# what was set aside there stays under a ref of its own.
#
# Refused: submodules at another commit, filtered files, too much, an untracked file where HEAD has one.

import errno
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut
from ralphd.core.text import short_sha
from ralphd.git import repo, tree_diff
from ralphd.git.diagnostics import trouble_of
from ralphd.git.facts import Uncommitted
from ralphd.git.locks import wait_for_lock
from ralphd.git.rewrite import file_snapshots
from ralphd.git.rewrite.file_snapshots import PathKind, SavedFile, SavedState, Trace
from ralphd.git.rewrite.move_branch import Done, branch_and_head, carry_out, refuse_filtered, refuse_trouble
from ralphd.git.runner import GitRunner, HasMoved, NotDone, WasKilled, name_list, readable, ref_name
from ralphd.git.tree_diff import TreeEntry, has_submodule

ASIDE: Final = "refs/ralph/aside/"
MOST_BYTES: Final = 256 << 20
MOST_FILES: Final = 20_000
_ATTEMPTS: Final = 3


def set_aside(directory: Path, label: str) -> Done:
    """Save the uncommitted work in tracked files under a ref, and set files and index to HEAD."""

    def act(git: GitRunner) -> str:
        head, ref, saved = load(git, label)
        is_new = saved is None
        if saved is None:
            dirty = refuse_trouble(git)
            if not dirty.entries:
                return head
            saved = _save(git, head, dirty, ref)
        elif saved.head != head:
            raise NotDone(f"other work is still set aside under {ref}")
        diagnostics.reach("guard.aside.kept")
        staged, changed = changes(git, saved, head)
        if changed and is_new:  # every file is still as it was saved by its owner
            git.output("update-ref", "-d", ref)
            raise HasMoved(f"{name_list(changed)} changed meanwhile")
        if changed:
            raise NotDone(f"{name_list(changed)} changed meanwhile; what was set aside is kept under {ref}")
        _reset(git, saved, ref, staged)
        return head

    return carry_out(directory, act)


def put_back(directory: Path, label: str) -> Done:
    """Restore files and index from what was set aside under a label; do nothing where nothing was.

    HEAD may have moved. A path that was changed, staged or committed in the meantime stays as it is; the
    note of the result names it, and the ref that keeps what was set aside.
    """
    notes: list[str] = []

    def act(git: GitRunner) -> str:
        head, ref, saved = load(git, label)
        if saved is None:
            return head
        # Remove the lock that a crashed ``_put_index`` has left: its content is the saved index.
        lock = git.repository.git / "index.lock"
        with suppress(OSError):
            if saved.index and tree_diff.blob_id(lock.read_bytes(), like=saved.index) == saved.index:
                lock.unlink(missing_ok=True)
        if trouble := trouble_of(git, ()):  # conflicts count in these paths only, see below
            raise NotDone(trouble)
        for attempt in range(_ATTEMPTS):
            seen = file_snapshots.traces(git, saved.paths)
            staged, changed = changes(git, saved, head)
            ours = _without(saved, changed)
            try:
                _put_files(git, ours, seen=seen)
                diagnostics.reach("guard.aside.files")
                _put_index(git, ours, head, staged)
                break
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EEXIST) or attempt + 1 == _ATTEMPTS:
                    raise NotDone(f"{error.strerror}; what was set aside is kept under {ref}") from error
                wait_for_lock(git.repository.git)
        diagnostics.reach("guard.aside.index")
        kept = f"{ref}-{short_sha(git.ref(ref) or '')}"
        if changed:
            notes.append(f"{name_list(changed)} changed meanwhile; the earlier content is kept under {kept}")
            git.output("update-ref", kept, ref)
        git.output("update-ref", "-d", ref)
        return head

    done = carry_out(directory, act)
    return replace(done, note="; ".join(notes)) if isinstance(done, CarriedOut) else done


# Saving.


def load(git: GitRunner, label: str) -> tuple[str, str, SavedState | None]:
    """Return HEAD, the ref for a label, and what is set aside under it."""
    _, head = branch_and_head(git)
    ref = ASIDE + ref_name(label)
    if git.ref(ref) is None:
        return head, ref, None
    return head, ref, SavedState.from_json(git.output("cat-file", "blob", f"{ref}^2:files.json"))


def _save(git: GitRunner, head: str, dirty: Uncommitted, ref: str) -> SavedState:
    """Save the work under the ref. Raises NotDone for what cannot be set aside."""
    # The time before the content: if git writes the index in between, it only trusts fewer entries.
    file = git.repository.git / "index"
    index_mtime_ns, index = file.stat().st_mtime_ns, file.read_bytes()
    names = sorted(dirty.names)
    if len(names) > MOST_FILES:
        raise NotDone(f"{len(names)} tracked files are not committed: too many to set aside")
    total = sum(os.lstat(git.path(name)).st_size for name in names if tree_diff.is_file(git.path(name)))
    if total > MOST_BYTES:
        raise NotDone(f"{total >> 20} MiB of tracked files are not committed: too much to set aside")
    refuse_filtered(git, names)
    modules = [path for path, each in dirty.entries.items() if has_submodule(each.committed, each.staged)]
    if modules:
        raise NotDone(f"a submodule stands at another commit: {name_list(modules)}")
    states = {name: file_snapshots.state_of(git, name) for name in names}
    is_staged = any(sides.committed != sides.staged for sides in dirty.entries.values())
    files = [SavedFile.of(path, state, dirty.entries[path], like=head) for path, state in states.items()]
    index_blob = tree_diff.blob_id(index, like=head) if is_staged else ""
    saved = SavedState(head, index_blob, index_mtime_ns, tuple(files))
    committed = [each.path for each in files if each.committed is not None]
    if way := tree_diff.obstructing(git, committed, states):
        raise NotDone(f"untracked files are in the way: {name_list(way)}")
    file_snapshots.save(git, saved, states, index if is_staged else b"", ref)
    return saved


def _without(saved: SavedState, changed: Collection[bytes]) -> SavedState:
    """Return the saved state without some paths; its index cannot be restored whole then."""
    if not changed:
        return saved
    return replace(saved, index="", files=tuple(each for each in saved.files if each.path not in changed))


def changes(git: GitRunner, saved: SavedState, head: str) -> tuple[dict[bytes, TreeEntry], set[bytes]]:
    """Return what the index has at the saved paths, and those that were changed since.

    These are files that are neither as saved, nor as HEAD had them, nor absent (a crash leaves them so), and
    paths that were staged or committed.
    """
    states = ((each, file_snapshots.state_of(git, each.path)) for each in saved.files)
    others = [each for each, state in states if state.kind is not PathKind.ABSENT and not each.equals(state)]
    changed = tree_diff.differing(git, [(each.path, each.committed) for each in others if each.committed])
    new = (each.path for each in others if each.committed is None)
    changed |= {path for path in new if tree_diff.is_file(git.path(path))}
    staged = tree_diff.staged_at(git, saved.paths)
    sides = {each.path: (each.committed, each.staged) for each in saved.files}
    changed |= {path for path, known in sides.items() if staged.get(path) not in known}
    if head != saved.head:
        changed |= {each.path for each in tree_diff.changes(git, saved.head, head)}.intersection(saved.paths)
    return staged, changed


# Setting files and index to HEAD.


class DisplacedFiles:
    """Files renamed into ralphd's own directory, where they stay until the act is over.

    A rename takes a file whole: a program that saves at this moment writes either the moved file or a new
    one, and both are noticed.
    """

    def __init__(self, git: GitRunner) -> None:
        self._git = git
        self._moved: list[tuple[SavedFile, bytes]] = []
        self.is_complete = True
        """False where a file is on another disk than the repository: it stays, to be overwritten."""

    def take(self, files: Sequence[SavedFile]) -> None:
        """Move files away, with the folders that they leave empty. Raises NotDone, OSError.

        Refused where one differs from its saved state. The caller then brings back what was moved.
        """
        for number, each in enumerate(files):
            full = self._git.path(each.path)
            moved = os.fsencode(self._git.work / f"tmp-away-{number:06}")
            if tree_diff.is_there(self._git, each.path):
                try:
                    os.rename(full, moved)  # noqa: PTH104 - a Path takes no bytes
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    self.is_complete = False
                    continue
                self._moved.append((each, moved))
                self._git.prune(each.path)
            elif tree_diff.is_folder(full):
                for folder, _, _ in os.walk(full, topdown=False):
                    with suppress(OSError):
                        os.rmdir(folder)  # noqa: PTH106
        self.check()

    def check(self) -> None:
        """Raise NotDone where a moved file is not as saved: somebody wrote to it around the rename."""
        for each, moved in self._moved:
            if not each.equals(file_snapshots.state_at(moved, each.path)):
                raise HasMoved(f"{readable(each.path)} changed meanwhile")

    def bring_back(self, saved: SavedState, *, is_cut_off: bool) -> set[bytes]:
        """Move all back, except over other people's files. Return the paths that are not as saved.

        ``is_cut_off``: a git was killed, or the disk is full, so the beginning of a file may be git's.

        Raises NotDone, OSError.
        """
        # Theirs: neither as saved nor HEAD's, nor the beginning of HEAD's, which a killed git leaves.
        present = [each for each in saved.files if tree_diff.is_there(self._git, each.path)]
        others = {each.path: each.committed for each in _unlike_saved(self._git, present)}
        entries = {path: entry for path, entry in others.items() if entry is not None}
        strange = tree_diff.differing(self._git, list(entries.items()))
        asked = sorted(path for path in strange if is_cut_off and not entries[path].is_submodule)
        contents = file_snapshots.read_blobs(self._git, [entries[path].sha for path in asked])
        for path, data in zip(asked, contents, strict=True):
            state = file_snapshots.state_of(self._git, path)
            if state.kind is PathKind.FILE and data.startswith(state.data):
                strange.remove(path)
        theirs = strange | (others.keys() - entries.keys())
        for each, moved in self._moved:
            if each.path not in theirs:
                full = self._git.path(each.path)
                repo.make_folders(Path(os.fsdecode(full)).parent)
                os.replace(moved, full)  # noqa: PTH105
        return theirs | {each.path for each in _unlike_saved(self._git, [each for each, _ in self._moved])}


def _unlike_saved(git: GitRunner, files: Sequence[SavedFile]) -> list[SavedFile]:
    return [each for each in files if not each.equals(file_snapshots.state_of(git, each.path))]


def _reset(git: GitRunner, saved: SavedState, ref: str, staged: Mapping[bytes, TreeEntry]) -> None:
    """Set files and index of the saved paths to HEAD; if git fails, put them back.

    ``git reset`` would write other paths too: changes hidden from git's status (assume-unchanged) are not
    saved.
    """
    wanted = [(each.path, each.committed) for each in saved.files]
    changed = {path for path, entry in wanted if entry and not tree_diff.is_exactly(git, path, entry)}
    displaced = DisplacedFiles(git)
    try:
        displaced.take([each for each in saved.files if each.committed is None or each.path in changed])
        diagnostics.reach("guard.aside.moved")
        tree_diff.put_paths(git, wanted, changed, staged, overwrite=not displaced.is_complete)
        displaced.check()
    except (NotDone, OSError) as why:
        git.allow_rollback(why)
        is_cut_off = not isinstance(why, NotDone) or isinstance(why, WasKilled) or "disk is full" in str(why)
        theirs = displaced.bring_back(saved, is_cut_off=is_cut_off)
        _put_files(git, _without(saved, theirs))
        _put_index(git, saved, saved.head, tree_diff.staged_at(git, saved.paths))
        if theirs:
            kept = f"{ref}-{short_sha(git.ref(ref) or '')}"
            git.output("update-ref", kept, ref)
            git.output("update-ref", "-d", ref)
            note = f"what was there is kept under {kept}"
            raise HasMoved(f"{name_list(theirs)} changed meanwhile; {note}") from why
        git.output("update-ref", "-d", ref)
        raise


# Putting back.


def _put_files(git: GitRunner, saved: SavedState, *, seen: Mapping[bytes, Trace] | None = None) -> None:
    """Write the files as saved. Raises OSError where one is not as ``seen`` right before."""
    # Removals first: a file may be where another one needs its folder.
    for each in saved.files:
        if each.kind is PathKind.ABSENT and tree_diff.is_file(git.path(each.path)):
            _refuse_other(git, each.path, seen)
            git.remove(each.path)
    left = _unlike_saved(git, saved.files)
    for each, data in zip(left, file_snapshots.read_blobs(git, [each.blob for each in left]), strict=True):
        _refuse_other(git, each.path, seen)
        file_snapshots.write_file(git, each.path, each.kind, each.mode, data)


def _refuse_other(git: GitRunner, path: bytes, seen: Mapping[bytes, Trace] | None) -> None:
    if seen is None or not tree_diff.is_file(git.path(path)):
        return
    if seen.get(path) != file_snapshots.traces(git, [path]).get(path):
        raise OSError(errno.EBUSY, f"{readable(path)} changed meanwhile")


def _put_index(git: GitRunner, saved: SavedState, head: str, staged: Mapping[bytes, TreeEntry]) -> None:
    """Restore the index: whole where nothing else is ``staged`` now, otherwise the entries of these paths."""
    if all(staged.get(each.path) == each.staged for each in saved.files):
        return
    can_be_whole = saved.index and head == saved.head
    if can_be_whole and git.run("diff-index", "--cached", "--quiet", head, "--")[0] == 0:
        index, lock = git.repository.git / "index", git.repository.git / "index.lock"
        data = git.output("cat-file", "blob", saved.index)
        with lock.open("xb") as file:
            file.write(data)
        lock.chmod(stat.S_IMODE(index.stat().st_mode))
        # Its old time tells git which files may have changed within the same tick.
        os.utime(lock, ns=(saved.index_mtime_ns, saved.index_mtime_ns))
        diagnostics.reach("guard.aside.lock")
        lock.replace(index)
        return
    tree_diff.put_entries(git, [(each.path, each.staged) for each in saved.files])
    git.run("update-index", "-q", "--refresh")
