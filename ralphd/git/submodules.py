"""Submodules follow where the commit of their repository leads, so that tests see what it says.

A submodule is moved only where it stands at the commit it should, has no changes, and has the other commit.
A branch that is left for that is remembered in it, and taken up again on the way back.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ralphd.git.calls import Calls, NotDone, readable
from ralphd.git.entries import Change, changes
from ralphd.git.facts import trouble_of, uncommitted, unmerged

_LEFT: Final = "refs/ralph/branch"
"""In a submodule, a symbolic ref to the branch that HEAD was on."""


def refuse_submodules(calls: Calls, found: Iterable[Change]) -> None:
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


def move_submodules(calls: Calls, found: Sequence[Change]) -> None:
    """Bring each from the old commit to the new one; those that stand elsewhere stay. Raises NotDone."""
    for each in found:
        below = _checked_out(calls, each)
        if below is None or each.old is None or each.new is None:
            continue
        if below.looked_up("rev-parse", "--verify", "--quiet", "HEAD") != each.old.sha:
            continue
        below.printed("read-tree", "-m", "-u", each.old.sha, each.new.sha)
        _put_head(below, each.new.sha)


def _put_head(calls: Calls, commit: str) -> None:
    """HEAD at a commit: on the branch that was left for this before, where that is at it, else detached."""
    left = calls.looked_up("symbolic-ref", "--quiet", _LEFT)
    if left is not None and calls.looked_up("rev-parse", "--verify", "--quiet", left) == commit:
        calls.printed("symbolic-ref", "-m", "ralph: back on its branch", "HEAD", left, also=calls.identity)
        calls.printed("symbolic-ref", "--delete", _LEFT)
        return
    if branch := calls.looked_up("symbolic-ref", "--quiet", "HEAD"):
        calls.printed("symbolic-ref", _LEFT, branch)
    calls.printed("update-ref", "-m", "ralph: moved", "--no-deref", "HEAD", commit, also=calls.identity)


def _checked_out(calls: Calls, change: Change) -> Calls | None:
    """Git in a submodule that changes from one commit to another, where it is checked out."""
    if change.old is None or change.new is None:
        return None
    if not (change.old.is_submodule and change.new.is_submodule):
        return None
    place = Path(os.fsdecode(calls.path(change.path)))
    return Calls(place, limit_s=calls.left_s) if (place / ".git").exists() else None


def _is_nested(change: Change) -> bool:
    return any(entry is not None and entry.is_submodule for entry in (change.old, change.new))


def _half_done(calls: Calls) -> bool:
    """Whether more is in the way than a detached HEAD, which is usual in a submodule."""
    trouble = trouble_of(calls.directory, unmerged(calls))
    return bool(trouble) and not trouble.startswith("HEAD is detached")
