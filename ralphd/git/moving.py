"""Move a branch from one commit to another with its work tree, and keep all that is not committed (R5, R6).

What differs between the two is checked first: nothing of it may be uncommitted, untracked or ignored work.
A journal in the git directory says what is under way; whoever finds one puts the work tree as it was before,
so a move that was cut off anywhere was either carried out or never begun.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ralphd import failpoint
from ralphd.git.calls import SHOWN, Calls, HasMoved, NotDone, WasKilled, readable, shown
from ralphd.git.entries import (
    Change,
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
from ralphd.git.facts import Uncommitted, trouble_of, uncommitted, unmerged
from ralphd.git.locks import remove_left_by_ours, wait_for_lock
from ralphd.git.submodules import move_submodules, refuse_submodules

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


def standing(calls: Calls) -> tuple[str, str]:
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


def refuse_trouble(calls: Calls) -> Uncommitted:
    """Raises NotDone where something is half done, locked, detached or unmerged (R8); else what is dirty."""
    found = uncommitted(calls)
    if trouble := trouble_of(calls.directory, found.unmerged):
        raise NotDone(trouble)
    return found


def move(calls: Calls, to: Move) -> None:
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
    failpoint.reach("guard.move.begun")
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


def _carried_out(calls: Calls, to: Move, found: Sequence[Change]) -> None:
    _read_tree(calls, to)
    failpoint.reach("guard.move.tree")
    move_submodules(calls, found)
    failpoint.reach("guard.move.submodules")
    if standing(calls) != (to.branch, to.old):
        raise HasMoved("HEAD was moved in the meantime")
    given = f"update {to.branch} {to.new} {to.old}\n".encode(errors="surrogateescape")
    calls.printed("update-ref", "-m", to.reason, "--stdin", given=given, also=calls.identity)
    failpoint.reach("guard.move.branch")


def _read_tree(calls: Calls, to: Move) -> None:
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


def recover(calls: Calls) -> None:
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


def _changed_since(calls: Calls, found: Sequence[Change]) -> set[bytes]:
    """The paths that are neither as before the move, nor as after it, nor gone."""
    there = {each.path for each in found if is_there(calls, each.path)}
    not_old = differing(calls, [(each.path, each.old) for each in found if each.old])
    not_new = differing(calls, [(each.path, each.new) for each in found if each.new])
    is_old = {each.path for each in found if each.old and each.path not in not_old}
    is_new = {each.path for each in found if each.new and each.path not in not_new}
    return there - is_old - is_new


def _as_it_was(calls: Calls, found: Sequence[Change], without: frozenset[bytes]) -> None:
    """Index and files of these paths as before the move; others are not touched. Raises NotDone."""
    move_submodules(calls, [each.reversed() for each in found])
    was = [(each.path, each.old) for each in found]
    changed = differing(calls, [(path, entry) for path, entry in was if entry is not None])
    staged = staged_at(calls, [path for path, _ in was])
    put_paths(calls, was, changed - without, staged, without=without)


def _refuse_overlap(calls: Calls, found: Sequence[Change]) -> frozenset[bytes]:
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


def _in_the_way(calls: Calls, change: Change, goes: set[bytes]) -> Iterator[bytes]:
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


def _refuse_filters(calls: Calls, found: Sequence[Change]) -> None:
    """Raises NotDone for files that go through a filter, and for a change of which files do."""
    refuse_filtered(calls, [each.path for each in found])
    for each in found if calls.filters else ():
        if each.path.rpartition(b"/")[2] == b".gitattributes" and _names_filter(calls, each):
            raise NotDone(f"{readable(each.path)} changes which files go through a filter")


def refuse_filtered(calls: Calls, names: Sequence[bytes]) -> None:
    """Raises NotDone for files that go through a filter (LFS is one): it would have to be run."""
    if not calls.filters or not names:
        return
    given = b"".join(name + b"\0" for name in names)
    printed = calls.printed("check-attr", "-z", "--stdin", "filter", given=given).split(b"\0")
    drivers = {name.encode(errors="surrogateescape") for name in calls.filters}
    filtered = {path for path, value in zip(printed[::3], printed[2::3], strict=False) if value in drivers}
    if filtered:
        raise NotDone(f"files go through a filter (LFS or the like), which is not run: {shown(filtered)}")


def _names_filter(calls: Calls, change: Change) -> bool:
    sides = (entry for entry in (change.old, change.new) if entry is not None)
    return any(b"filter=" in calls.printed("cat-file", "blob", entry.sha) for entry in sides)


def _write_journal(calls: Calls, begun: _Begun) -> None:
    path = calls.work / "tmp-journal"
    names = sorted(os.fsdecode(name) for name in begun.left_out)
    to = begun.to
    with path.open("w") as file:
        json.dump({"branch": to.branch, "old": to.old, "new": to.new, "left_out": names}, file)
        file.flush()
        os.fsync(file.fileno())
    path.replace(calls.work / _JOURNAL)


def _journal(calls: Calls) -> _Begun | None:
    try:
        found = json.loads((calls.work / _JOURNAL).read_text())
        to = Move(str(found["branch"]), str(found["old"]), str(found["new"]))
        return _Begun(to, frozenset(os.fsencode(name) for name in found["left_out"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_journal(calls: Calls) -> None:
    with suppress(FileNotFoundError):
        (calls.work / _JOURNAL).unlink()
