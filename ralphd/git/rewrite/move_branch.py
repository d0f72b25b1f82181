"""Move a branch from one commit to another with its work tree, and keep all that is not committed (R5, R6).

What differs between the two is checked first: nothing of it may be uncommitted, untracked or ignored work.
A journal in the git directory says what is under way; whoever finds one puts the work tree as it was before,
so a move that was cut off anywhere was either carried out or never begun.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.git.facts import Uncommitted, trouble_of, uncommitted, unmerged
from ralphd.git.locks import remove_left_by_ours, wait_for_lock
from ralphd.git.rewrite.tree_diff import (
    TreeChange,
    above,
    changes,
    differing,
    files_below,
    is_file,
    is_there,
    left_out,
    put_paths,
    staged_at,
)
from ralphd.git.runner import SHOWN, GitRunner, HasMoved, NotDone, WasKilled, readable, shown

# Submodules follow where the commit of their repository leads, so that tests see what it says.

_LEFT: Final = "refs/ralph/branch"
"""In a submodule, a symbolic ref to the branch that HEAD was on."""


def refuse_submodules(calls: GitRunner, found: Iterable[TreeChange]) -> None:
    """Raises NotDone where a submodule cannot be moved."""
    for each in found:
        if (below := _checked_out(calls, each)) is None or each.new is None:
            continue
        name = readable(each.path)
        if below.looked_up("rev-parse", "--verify", "--quiet", f"{each.new.sha}^{{commit}}") is None:
            raise NotDone(f"the submodule {name} lacks {each.new.sha[:7]}: git submodule update {name}")
        if uncommitted(below).names or _half_done(below):
            raise NotDone(f"the submodule {name} has work that is not committed, or half done")
        if each.old and any(_is_nested(change) for change in changes(below, each.old.sha, each.new.sha)):
            raise NotDone(f"the submodule {name} has submodules that differ")


def move_submodules(calls: GitRunner, found: Sequence[TreeChange]) -> None:
    """Bring each from the old commit to the new one; those that stand elsewhere stay. Raises NotDone."""
    for each in found:
        below = _checked_out(calls, each)
        if below is None or each.old is None or each.new is None:
            continue
        if below.looked_up("rev-parse", "--verify", "--quiet", "HEAD") != each.old.sha:
            continue
        below.printed("read-tree", "-m", "-u", each.old.sha, each.new.sha)
        _put_head(below, each.new.sha)


def _put_head(calls: GitRunner, commit: str) -> None:
    """HEAD at a commit: on the branch that was left for this before, where that is at it, else detached."""
    left = calls.looked_up("symbolic-ref", "--quiet", _LEFT)
    if left is not None and calls.looked_up("rev-parse", "--verify", "--quiet", left) == commit:
        calls.printed("symbolic-ref", "-m", "ralph: back on its branch", "HEAD", left, also=calls.identity)
        calls.printed("symbolic-ref", "--delete", _LEFT)
        return
    if branch := calls.looked_up("symbolic-ref", "--quiet", "HEAD"):
        calls.printed("symbolic-ref", _LEFT, branch)
    calls.printed("update-ref", "-m", "ralph: moved", "--no-deref", "HEAD", commit, also=calls.identity)


def _checked_out(calls: GitRunner, change: TreeChange) -> GitRunner | None:
    """Git in a submodule that changes from one commit to another, where it is checked out."""
    if change.old is None or change.new is None:
        return None
    if not (change.old.is_submodule and change.new.is_submodule):
        return None
    place = Path(os.fsdecode(calls.path(change.path)))
    return GitRunner(place, limit_s=calls.left_s) if (place / ".git").exists() else None


def _is_nested(change: TreeChange) -> bool:
    return any(entry is not None and entry.is_submodule for entry in (change.old, change.new))


def _half_done(calls: GitRunner) -> bool:
    """Whether more is in the way than a detached HEAD, which is usual in a submodule."""
    trouble = trouble_of(calls.directory, unmerged(calls))
    return bool(trouble) and not trouble.startswith("HEAD is detached")


HEADS: Final = "refs/heads/"
_JOURNAL: Final = "journal"


@dataclass(frozen=True, slots=True)
class Move:
    """From where to where a branch (a ref, in full) is moved; ``reason`` is for its reflog."""

    branch: str
    old: str
    new: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A move that is under way, and the paths that a sparse work tree leaves out."""

    to: Move
    left_out: frozenset[bytes]


def standing(calls: GitRunner) -> tuple[str, str]:
    """The branch, a ref in full, and the sha of HEAD. Raises NotDone without either."""
    if (known := calls.repository.standing()) is not None:
        return known
    branch = calls.looked_up("symbolic-ref", "--quiet", "HEAD")
    if branch is None or not branch.startswith(HEADS):
        raise NotDone("HEAD is on no branch: git switch BRANCH")
    head = calls.looked_up("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head is None:
        raise NotDone("there is no commit yet")
    return branch, head


def refuse_trouble(calls: GitRunner) -> Uncommitted:
    """Raises NotDone where something is half done, locked, detached or unmerged (R8); else what is dirty."""
    found = uncommitted(calls)
    if trouble := trouble_of(calls.directory, found.unmerged):
        raise NotDone(trouble)
    return found


def move(calls: GitRunner, to: Move) -> None:
    """Carry it out. Raises NotDone, HasMoved where HEAD is not at ``old``; all is as it was then."""
    if standing(calls) != (to.branch, to.old):
        raise HasMoved(f"HEAD is not at {to.old[:7]} of {to.branch.removeprefix(HEADS)} any more")
    if trouble := trouble_of(calls.directory, ()):
        raise NotDone(trouble)
    found = changes(calls, to.old, to.new)
    without = _refuse_overlap(calls, found)
    _refuse_filters(calls, found)
    refuse_submodules(calls, found)
    _write_journal(calls, _Begun(to, without))
    diagnostics.reach("guard.move.begun")
    try:
        _carried_out(calls, to, found)
    except NotDone as why:
        calls.allow_way_back()
        if isinstance(why, WasKilled):
            remove_left_by_ours(calls)
        _as_it_was(calls, found, without)
        _forget_journal(calls)
        raise
    _forget_journal(calls)


def _carried_out(calls: GitRunner, to: Move, found: Sequence[TreeChange]) -> None:
    _read_tree(calls, to)
    diagnostics.reach("guard.move.tree")
    move_submodules(calls, found)
    diagnostics.reach("guard.move.submodules")
    if standing(calls) != (to.branch, to.old):
        raise HasMoved("HEAD was moved in the meantime")
    given = f"update {to.branch} {to.new} {to.old}\n".encode(errors="surrogateescape")
    calls.printed("update-ref", "-m", to.reason, "--stdin", given=given, also=calls.identity)
    diagnostics.reach("guard.move.branch")


def _read_tree(calls: GitRunner, to: Move) -> None:
    """Raises NotDone. Refused for files that were only touched, it is tried again with these known."""
    words = ("read-tree", "-m", "-u", to.old, to.new)
    if calls.call(*words)[0] == 0:
        return
    calls.call("update-index", "-q", "--refresh")
    code, _ = calls.call(*words)
    if code != 0 and (conflicts := unmerged(calls)):
        raise NotDone(trouble_of(calls.directory, conflicts))
    if code != 0:
        raise NotDone(f"git read-tree ended with {code}: is the disk full, or a file in the way?")


def recover(calls: GitRunner) -> None:
    """Put the work tree as it was before a move that was cut off. To be called within ``Calls.alone``.

    Raises NotDone where somebody changed the files in the meantime, which are left alone then.
    """
    begun = _journal(calls)
    if begun is None:
        return
    to = begun.to
    at = calls.looked_up("rev-parse", "--verify", "--quiet", "HEAD")
    if (calls.looked_up("symbolic-ref", "--quiet", "HEAD"), at) != (to.branch, to.old):
        _forget_journal(calls)  # it was carried out, or somebody went on from there
        return
    wait_for_lock(calls.repository)
    if (lock := calls.repository.git / "index.lock").exists():
        raise NotDone(f"a revert was cut off, and its git may still be at work: {lock} is there")
    found = changes(calls, to.old, to.new)
    if changed := _changed_since(calls, found):
        raise NotDone(f"a revert was cut off, and files changed since: git restore {shown(changed)}")
    _as_it_was(calls, found, begun.left_out)
    _forget_journal(calls)


def _changed_since(calls: GitRunner, found: Sequence[TreeChange]) -> set[bytes]:
    """The paths that are neither as before the move, nor as after it, nor gone."""
    there = {each.path for each in found if is_there(calls, each.path)}
    not_old = differing(calls, [(each.path, each.old) for each in found if each.old])
    not_new = differing(calls, [(each.path, each.new) for each in found if each.new])
    is_old = {each.path for each in found if each.old and each.path not in not_old}
    is_new = {each.path for each in found if each.new and each.path not in not_new}
    return there - is_old - is_new


def _as_it_was(calls: GitRunner, found: Sequence[TreeChange], without: frozenset[bytes]) -> None:
    """Index and files of these paths as before the move; others are not touched. Raises NotDone."""
    move_submodules(calls, [each.reversed() for each in found])
    was = [(each.path, each.old) for each in found]
    changed = differing(calls, [(path, entry) for path, entry in was if entry is not None])
    staged = staged_at(calls, [path for path, _ in was])
    put_paths(calls, was, changed - without, staged, without=without)


def _refuse_overlap(calls: GitRunner, found: Sequence[TreeChange]) -> frozenset[bytes]:
    """Raises NotDone where a path that would be written holds work that is in no commit.

    The index and the files are looked at themselves: changes may be hidden from git's status
    (assume-unchanged, skip-worktree). What a sparse work tree leaves out is answered.
    """
    changed = differing(calls, [(each.path, each.old) for each in found if each.old])
    without = left_out(calls, changed)
    staged = staged_at(calls, [each.path for each in found])
    overlap = {each.path for each in found if staged.get(each.path) != each.old}
    if any(entry is not None and entry.is_submodule for each in found for entry in (each.old, each.new)):
        overlap |= {each.path for each in found}.intersection(uncommitted(calls).names)
    if overlap := overlap | (changed - without):
        raise NotDone(f"changes that are not committed are in the way: {shown(overlap)}")
    goes = {each.path for each in found if each.old}
    way = {name for each in found if each.new for name in _in_the_way(calls, each, goes)}
    if way:
        raise NotDone(f"untracked or ignored files are in the way: {shown(way)}")
    return without


def _in_the_way(calls: GitRunner, change: TreeChange, goes: set[bytes]) -> Iterator[bytes]:
    """What git does not know at a path that is to be written: git itself would replace what is ignored."""
    for each in above(change.path):
        if is_file(calls.path(each)):
            if each not in goes:
                yield each
            return
    if change.old is not None:
        return
    if is_file(calls.path(change.path)):
        yield change.path
    yield from islice((name for name in files_below(calls, change.path) if name not in goes), SHOWN + 1)


def _refuse_filters(calls: GitRunner, found: Sequence[TreeChange]) -> None:
    """Raises NotDone for files that go through a filter, and for a change of which files do."""
    refuse_filtered(calls, [each.path for each in found])
    for each in found if calls.filters else ():
        if each.path.rpartition(b"/")[2] == b".gitattributes" and _names_filter(calls, each):
            raise NotDone(f"{readable(each.path)} changes which files go through a filter")


def refuse_filtered(calls: GitRunner, names: Sequence[bytes]) -> None:
    """Raises NotDone for files that go through a filter (LFS is one): it would have to be run."""
    if not calls.filters or not names:
        return
    given = b"".join(name + b"\0" for name in names)
    printed = calls.printed("check-attr", "-z", "--stdin", "filter", given=given).split(b"\0")
    drivers = {name.encode(errors="surrogateescape") for name in calls.filters}
    filtered = {path for path, value in zip(printed[::3], printed[2::3], strict=False) if value in drivers}
    if filtered:
        raise NotDone(f"files go through a filter (LFS or the like), which is not run: {shown(filtered)}")


def _names_filter(calls: GitRunner, change: TreeChange) -> bool:
    sides = (entry for entry in (change.old, change.new) if entry is not None)
    return any(b"filter=" in calls.printed("cat-file", "blob", entry.sha) for entry in sides)


def _write_journal(calls: GitRunner, begun: _Begun) -> None:
    path = calls.work / "tmp-journal"
    names = sorted(os.fsdecode(name) for name in begun.left_out)
    to = begun.to
    with path.open("w") as file:
        json.dump({"branch": to.branch, "old": to.old, "new": to.new, "left_out": names}, file)
        file.flush()
        os.fsync(file.fileno())
    path.replace(calls.work / _JOURNAL)


def _journal(calls: GitRunner) -> _Begun | None:
    try:
        found = json.loads((calls.work / _JOURNAL).read_text())
        to = Move(str(found["branch"]), str(found["old"]), str(found["new"]))
        return _Begun(to, frozenset(os.fsencode(name) for name in found["left_out"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_journal(calls: GitRunner) -> None:
    with suppress(FileNotFoundError):
        (calls.work / _JOURNAL).unlink()
