"""Move a branch with its work tree from one commit to another, and keep all that is not committed (R5, R6).

``git reset --keep`` would stop in the middle, and overwrites ignored files. Here the paths that differ are
checked first, and a move that fails or is cut off is rolled back.
"""

# Theory of operation
#
# Order: journal, files and index (read-tree), submodules, branch. The branch moves last, by compare-and-swap
# (update-ref with the old value), so a commit made at this very moment is never lost: the update fails, and
# files and index go back.
#
# A crash
#   before the journal leaves nothing but a temporary file;
#   between journal and branch leaves HEAD at the old commit and some paths as in the new one: the journal
#     says which, and the next act restores exactly these, unless one is neither as before nor as after;
#     then a person has changed it since, and all is refused until they decide;
#   after the branch leaves HEAD elsewhere than the journal's old commit: it was carried out, and the journal
#     is deleted.
# So a move is either carried out or never begun, and every act may be repeated.
#
# Refused: a path to be written that is uncommitted, untracked or ignored work (git itself replaces ignored
# files); files that go through a filter, which would have to run; submodules with work of their own.

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut, Moved, Refused
from ralphd.core.text import short_sha
from ralphd.dataclass import dataclass
from ralphd.git import tree_diff
from ralphd.git.diagnostics import trouble_of
from ralphd.git.facts import Uncommitted, uncommitted
from ralphd.git.locks import wait_for_lock
from ralphd.git.runner import SHOWN, GitRunner, HasMoved, NotDone, WasKilled, error_text, name_list, readable
from ralphd.git.tree_diff import TreeChange
from ralphd.plain_files import open_plain

HEADS: Final = "refs/heads/"
_ATTEMPTS: Final = 3
_JOURNAL: Final = "journal"
_MOST_BEGUN_BYTES: Final = 64 << 20
Done: TypeAlias = CarriedOut | Refused | Moved
_SUBMODULE_BRANCH: Final = "refs/ralph/branch"
"""In a submodule, a symbolic ref to the branch that HEAD was on."""


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a branch (a full ref); ``reason`` is for its reflog.

    The files at ``settled`` are already as in the new commit: only their index entries change.
    """

    branch: str
    old: str
    new: str
    reason: str = ""
    settled: frozenset[bytes] = frozenset()

    def changes(self, git: GitRunner) -> tuple[TreeChange, ...]:
        """Return what the move changes in the work tree."""
        every = tree_diff.changes(git, self.old, self.new)
        return tuple(each for each in every if each.path not in self.settled)


def with_settled(git: GitRunner, to: Move) -> Move:
    """Return the move with the files that are already as in the new commit, and are not staged otherwise."""
    every = tree_diff.changes(git, to.old, to.new)
    staged = tree_diff.staged_at(git, [each.path for each in every])

    def is_settled(each: TreeChange) -> bool:
        if staged.get(each.path) not in (each.old, each.new) or tree_diff.has_submodule(each.old, each.new):
            return False
        if each.new is None:
            return not os.path.lexists(git.path(each.path))
        return tree_diff.is_exactly(git, each.path, each.new)

    return replace(to, settled=frozenset(each.path for each in every if is_settled(each)))


def carry_out(directory: Path, act: Callable[[GitRunner], str]) -> Done:
    """Carry out an act that returns the new HEAD, exclusively and after ``recover``.

    An act that collided with somebody else's git, which held the lock of the index, is repeated.
    """
    try:
        git = GitRunner(directory)
        with git.exclusive():
            return CarriedOut(_attempt(git, act, _ATTEMPTS))
    except HasMoved as why:
        return Moved(str(why))
    except (NotDone, OSError) as why:
        return Refused(error_text(why))


def _attempt(git: GitRunner, act: Callable[[GitRunner], str], left: int) -> str:
    try:
        recover(git)
        return act(git)
    except (NotDone, FileExistsError) as why:
        is_final = isinstance(why, HasMoved | WasKilled) or left == 1
        if is_final or (isinstance(why, NotDone) and "ended with 128" not in str(why)):
            raise
    wait_for_lock(git.repository.git)
    return _attempt(git, act, left - 1)


def branch_and_head(git: GitRunner) -> tuple[str, str]:
    """Return the branch, a full ref, and the sha of HEAD. Raises NotDone without either."""
    if (known := git.repository.branch_and_head()) is not None:
        return known
    branch = git.branch()
    if branch is None or not branch.startswith(HEADS):
        raise NotDone("HEAD is on no branch: git switch BRANCH")
    if (head := git.commit("HEAD")) is None:
        raise NotDone("the repository has no commit yet")
    return branch, head


def refuse_trouble(git: GitRunner) -> Uncommitted:
    """Return what is uncommitted. Raises NotDone for anything half done, locked or unmerged (R8)."""
    dirty = uncommitted(git)
    if trouble := trouble_of(git, dirty.unmerged):
        raise NotDone(trouble)
    return dirty


def refuse_filtered(git: GitRunner, names: Sequence[bytes]) -> None:
    """Raise NotDone for files that go through a filter (LFS is one): it would have to be run."""
    if filtered := git.filtered(names):
        raise NotDone(f"files go through a filter (LFS or the like), which is not run: {name_list(filtered)}")


def move(git: GitRunner, to: Move) -> None:
    """Carry out a move. Raises NotDone, and HasMoved where HEAD is not at ``old``; all is unchanged then."""
    if branch_and_head(git) != (to.branch, to.old):
        raise HasMoved(f"HEAD is not at {short_sha(to.old)} of {to.branch.removeprefix(HEADS)} any more")
    if trouble := trouble_of(git, ()):
        raise NotDone(trouble)
    paths = to.changes(git)
    without = _refuse_overlap(git, paths)
    refuse_filtered(git, [each.path for each in paths])
    attributes = [each for each in paths if each.path.rpartition(b"/")[2] == b".gitattributes"]
    for each in attributes if git.filters else ():
        shas = [entry.sha for entry in (each.old, each.new) if entry is not None]
        if any(b"filter=" in git.output("cat-file", "blob", sha) for sha in shas):
            raise NotDone(f"{readable(each.path)} changes which files go through a filter")
    _refuse_submodules(git, paths)
    _write_journal(git, to, without)
    diagnostics.reach("guard.move.begun")
    try:
        if to.settled:
            new = {each.path: each.new for each in tree_diff.changes(git, to.old, to.new)}
            tree_diff.put_entries(git, [(path, new[path]) for path in to.settled])
        _read_tree(git, to)
        diagnostics.reach("guard.move.tree")
        _move_submodules(git, paths)
        diagnostics.reach("guard.move.submodules")
        if branch_and_head(git) != (to.branch, to.old):
            raise HasMoved("HEAD was moved in the meantime")
        git.update_refs(f"update {to.branch} {to.new} {to.old}", reason=to.reason)
        diagnostics.reach("guard.move.branch")
    except NotDone as why:
        git.allow_rollback(why)
        _take_back(git, to, paths, without)
        _forget_journal(git)
        raise
    _forget_journal(git)


def _refuse_overlap(git: GitRunner, paths: Sequence[TreeChange]) -> frozenset[bytes]:
    """Raise NotDone where a path to be written holds work that is in no commit.

    Compares index and files themselves, since git's status hides some changes (assume-unchanged,
    skip-worktree). Return what a sparse work tree leaves out.
    """
    changed = tree_diff.differing(git, [(each.path, each.old) for each in paths if each.old])
    without = tree_diff.sparse(git, changed)
    staged = tree_diff.staged_at(git, [each.path for each in paths])
    overlap = {each.path for each in paths if staged.get(each.path) != each.old}
    if any(tree_diff.has_submodule(each.old, each.new) for each in paths):
        overlap |= {each.path for each in paths}.intersection(uncommitted(git).names)
    if overlap := overlap | (changed - without):
        raise NotDone(f"changes that are not committed are in the way: {name_list(overlap)}")
    removed = {each.path for each in paths if each.old}
    if untracked := {name for each in paths if each.new for name in _untracked(git, each, removed)}:
        raise NotDone(f"untracked or ignored files are in the way: {name_list(untracked)}")
    return without


def _untracked(git: GitRunner, change: TreeChange, removed: set[bytes]) -> Iterator[bytes]:
    """Yield the untracked files where a path is to be written, above it or below."""
    for each in tree_diff.above(change.path):
        if tree_diff.is_file(git.path(each)):
            if each not in removed:
                yield each
            return
    if change.old is not None:
        return
    if tree_diff.is_file(git.path(change.path)):
        yield change.path
    below = (name for name in tree_diff.files_below(git, change.path) if name not in removed)
    # Git leaves the files of a submodule when it is removed, and when it comes back.
    is_left = tree_diff.has_submodule(change.new) and os.path.lexists(git.path(change.path + b"/.git"))
    yield from () if is_left else islice(below, SHOWN + 1)


def _read_tree(git: GitRunner, to: Move) -> None:
    words = ("read-tree", "-m", "-u", to.old, to.new)
    if git.run(*words)[0] == 0:
        return
    # Git refuses a file whose times differ from the index, though its content is equal: refresh, try again.
    git.run("update-index", "-q", "--refresh")
    code, _ = git.run(*words)
    if code != 0 and (conflicts := uncommitted(git).unmerged):
        raise NotDone(trouble_of(git, conflicts))
    if code != 0:
        raise NotDone(f"git read-tree ended with {code}: is the disk full, or a file in the way?")


# Recovery.


def recover(git: GitRunner) -> None:
    """Roll back a move that was cut off. Call within ``GitRunner.exclusive``.

    Raises NotDone where somebody has changed the files since; they are left alone then.
    """
    if (journal := _read_journal(git)) is None:
        return
    to, without = journal
    if (git.branch(), git.commit("HEAD")) != (to.branch, to.old):
        _forget_journal(git)  # the move was carried out, or somebody has continued from there
        return
    wait_for_lock(git.repository.git)
    if (lock := git.repository.git / "index.lock").exists():
        raise NotDone(f"a revert was cut off, and its git may still be at work: {lock} is there")
    paths = to.changes(git)
    if changed := _edited(git, paths):
        raise NotDone(f"a revert was cut off, and files changed since: git restore {name_list(changed)}")
    _take_back(git, to, paths, without)
    _forget_journal(git)


def _take_back(git: GitRunner, to: Move, paths: Sequence[TreeChange], without: frozenset[bytes]) -> None:
    """Roll the paths back, except those that a commit has changed by now: it took them from the index.

    A commit may come while they are rolled back: then they become as it has them.
    """
    head = git.commit("HEAD") or to.old
    theirs = {each.path for each in tree_diff.changes(git, to.old, head)}
    back = [each for each in paths if each.path not in theirs]
    _roll_back(git, back, without)
    if (newer := git.commit("HEAD") or head) != head:
        taken = {each.path: each.new for each in tree_diff.changes(git, head, newer)}
        again = [TreeChange(each.path, taken[each.path], each.old) for each in back if each.path in taken]
        _roll_back(git, again, without)


def _edited(git: GitRunner, paths: Sequence[TreeChange]) -> set[bytes]:
    """Return the paths whose files are neither as before nor as after: somebody has changed them since.

    Not the files that a git has written in part: it was killed, or the disk is full.
    """
    edited = {each.path for each in paths if tree_diff.is_there(git, each.path)}
    for side in ([(each.path, each.old) for each in paths], [(each.path, each.new) for each in paths]):
        entries = {path: entry for path, entry in side if entry is not None}
        edited -= entries.keys() - tree_diff.differing(git, list(entries.items()))
    return {each.path for each in paths if each.path in edited and not _is_begun(git, each)}


def _is_begun(git: GitRunner, change: TreeChange) -> bool:
    if change.new is None or change.new.is_submodule:
        return False
    try:
        with open_plain(Path(os.fsdecode(git.path(change.path)))) as file:
            return git.output("cat-file", "blob", change.new.sha).startswith(file.read(_MOST_BEGUN_BYTES))
    except OSError:
        return False


def _roll_back(git: GitRunner, paths: Sequence[TreeChange], without: frozenset[bytes]) -> None:
    """Restore files and index. Of a file that somebody has changed since, only the index."""
    _move_submodules(git, [TreeChange(each.path, each.new, each.old) for each in paths])
    edited = _edited(git, paths)
    tree_diff.put_entries(git, [(each.path, each.old) for each in paths if each.path in edited])
    wanted = [(each.path, each.old) for each in paths if each.path not in edited]
    changed = tree_diff.differing(git, [(path, entry) for path, entry in wanted if entry is not None])
    staged = tree_diff.staged_at(git, [path for path, _ in wanted])
    tree_diff.put_paths(git, wanted, changed - without, staged)
    if without:
        git.output("update-index", "-z", "--skip-worktree", "--stdin", given=without)


def _write_journal(git: GitRunner, to: Move, without: frozenset[bytes]) -> None:
    path = git.work / "tmp-journal"
    left_out, settled = (sorted(map(os.fsdecode, names)) for names in (without, to.settled))
    journal = {"branch": to.branch, "old": to.old, "new": to.new, "left_out": left_out, "settled": settled}
    with path.open("w") as file:
        json.dump(journal, file)
        file.flush()
        os.fsync(file.fileno())
    path.replace(git.work / _JOURNAL)


def _read_journal(git: GitRunner) -> tuple[Move, frozenset[bytes]] | None:
    try:
        journal = json.loads((git.work / _JOURNAL).read_text())
        settled = frozenset(map(os.fsencode, journal.get("settled", ())))
        to = Move(str(journal["branch"]), str(journal["old"]), str(journal["new"]), settled=settled)
        return to, frozenset(os.fsencode(name) for name in journal["left_out"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_journal(git: GitRunner) -> None:
    (git.work / _JOURNAL).unlink(missing_ok=True)


# Submodules follow to the commit that their repository records, so that tests see what it describes.


def _refuse_submodules(git: GitRunner, paths: Sequence[TreeChange]) -> None:
    """Raise NotDone where a submodule cannot be moved."""
    for name, submodule, old, new in _submodules(git, paths):
        if submodule.commit(new) is None:
            raise NotDone(f"the submodule {name} lacks {short_sha(new)}: git submodule update {name}")
        # A detached HEAD is usual in a submodule, and not in the way.
        dirty = uncommitted(submodule)
        trouble = trouble_of(submodule, dirty.unmerged)
        if dirty.names or (trouble and not trouble.startswith("HEAD is detached")):
            raise NotDone(f"the submodule {name} has work that is not committed, or half done")
        inner = tree_diff.changes(submodule, old, new)
        if any(tree_diff.has_submodule(each.old, each.new) for each in inner):
            raise NotDone(f"the submodule {name} has submodules that differ")


def _move_submodules(git: GitRunner, paths: Sequence[TreeChange]) -> None:
    """Move each submodule that is at its old commit to its new one. Raises NotDone."""
    for _, submodule, old, new in _submodules(git, paths):
        if submodule.commit("HEAD") == old:
            submodule.output("read-tree", "-m", "-u", old, new)
            _put_head(submodule, new)


def _put_head(git: GitRunner, commit: str) -> None:
    """Set HEAD to a commit: back on the branch that an earlier move left, if that is there, else detached."""
    left = git.line("symbolic-ref", "--quiet", _SUBMODULE_BRANCH)
    if left is not None and git.commit(left) == commit:
        git.output("symbolic-ref", "-m", "ralph: back on its branch", "HEAD", left, env=git.identity)
        git.output("symbolic-ref", "--delete", _SUBMODULE_BRANCH)
        return
    if branch := git.branch():
        git.output("symbolic-ref", _SUBMODULE_BRANCH, branch)
    git.output("update-ref", "-m", "ralph: moved", "--no-deref", "HEAD", commit, env=git.identity)


def _submodules(git: GitRunner, paths: Sequence[TreeChange]) -> Iterator[tuple[str, GitRunner, str, str]]:
    """Yield name, git, old and new commit of each submodule that changes and is checked out."""
    for each in paths:
        if each.old is None or each.new is None or not (each.old.is_submodule and each.new.is_submodule):
            continue
        top = Path(os.fsdecode(git.path(each.path)))
        if (top / ".git").exists():
            yield readable(each.path), GitRunner(top, limit_s=git.remaining_s), each.old.sha, each.new.sha
