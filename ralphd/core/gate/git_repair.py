"""Decide whether a branch that lost commits during an iteration is accepted or restored.

Amend, squash and rebase are honest work: a new history is accepted if it has every change of the old one.
Otherwise the branch returns to its last good tip, and the new commits are re-applied on top.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from ralphd.core.gate.verdict import Change
from ralphd.core.gate.verdict_views import ToUndo, undoable
from ralphd.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RewrittenBranch:
    """A branch whose last good tip is ``good``, and what is there now.

    ``lost`` are the commits that only ``good`` has, ``new`` those of the present tip's first parents that
    ``good`` lacks; both oldest first. ``in_the_way`` is what is half done in the repository, ``pulled``
    whether new commits came by fetch or pull,
    ``by_other`` whether all that was lost was rewritten by somebody else, and made by no run.
    """

    good: str
    good_tree: str
    lost: tuple[Change, ...]
    new: tuple[Change, ...]
    in_the_way: str = ""
    pulled: bool = False
    by_other: bool = False


class RewriteAction(StrEnum):
    """What becomes of a branch at a boundary."""

    ACCEPT = "accept"
    LEAVE = "leave"
    REPAIR = "repair"
    PAUSE = "pause"


def decide(branch: RewrittenBranch, *, pauses: bool) -> tuple[RewriteAction, str]:
    """Return what becomes of a branch, and for ``LEAVE`` and ``PAUSE`` why.

    ``pauses``: ``[git] rewritten = "pause"``.
    """
    if not branch.lost or branch.by_other or is_preserved(branch):
        return RewriteAction.ACCEPT, ""
    if branch.in_the_way:
        return RewriteAction.LEAVE, branch.in_the_way
    if branch.pulled:
        return RewriteAction.PAUSE, "commits came by fetch or pull in the same iteration"
    if pauses:
        return RewriteAction.PAUSE, 'git.rewritten = "pause"'
    return RewriteAction.REPAIR, ""


def is_preserved(branch: RewrittenBranch) -> bool:
    """Return whether every lost change is in the new history.

    Either a new commit has the tree of the good tip (amend, squash), or each lost commit has a new one with
    its patch-id (rebase, also onto other commits).
    """
    if any(each.tree == branch.good_tree for each in branch.new):
        return True
    patches = {each.patch for each in branch.new}
    return all(each.patch and each.patch in patches for each in branch.lost)


def to_reapply(branch: RewrittenBranch) -> tuple[Change, ...]:
    """Return the new commits that the good tip lacks, oldest first; copies of lost commits are not needed."""
    known = {each.patch for each in branch.lost if each.patch}
    return tuple(each for each in branch.new if each.patch not in known)


# Repairs for their readers: the history, ``ralphctl verdicts``, ``ralphctl undo --repair``.

REPAIR_VERSION: Final = 2
MOST_REPAIRS: Final = 1000
_ABOUT: Final = ("at", "run_id", "key")
_TEXTS: Final = ("what", "message", "branch", "why", "left", "undo")
_LISTS: Final = ("lost", "reapplied", "conflicts", "files", "refs")


def repair_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a repair in its one shape; ``entry`` may be of version 1, which had two, or an event's data."""
    texts = {key: text if isinstance(text := entry.get(key), str) else "" for key in _TEXTS}
    listed = {"refs": [entry["ref"]] if entry.get("ref") else [], **entry}
    given = {key: each if isinstance(each := listed.get(key), list | tuple) else () for key in _LISTS}
    lists = {key: [*map(str, each)] for key, each in given.items()}
    texts["what"] = texts["what"] or ("guard.blocked" if texts["why"] else "repository.repaired")
    lost = f"branch {texts['branch']} lost {', '.join(lists['lost'])}"
    became = f"{texts['why'] and 'not restored: '}{texts['why'] or 'restored'}"
    texts["message"] = texts["message"] or f"{lost}; {became}"
    number = number if isinstance(number := entry.get("number"), int) else None
    return {"version": REPAIR_VERSION, "number": number, **texts, **lists}


def repairs(newest_first: Iterable[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the last repairs, newest first, each with whether it was undone."""
    return [
        {name: entry.get(name) for name in _ABOUT} | repair_of(entry) | {"undone": is_undone}
        for entry, is_undone in islice(undoable(newest_first, "repair"), limit)
    ]


def repair_number(newest_first: Iterable[Mapping[str, Any]], key: str) -> int:
    """Return the number of the repair with this key, else that of the next repair."""
    numbers = {each["key"]: each["number"] or 0 for each in repairs(newest_first, MOST_REPAIRS)}
    return numbers.get(key) or 1 + max(numbers.values(), default=0)


def repair_to_undo(newest_first: Iterable[Mapping[str, Any]], number: int) -> ToUndo | str:
    """Return the repair of this number, the last one for 0; or why it cannot be undone, in words."""
    why = ""
    for each in repairs(newest_first, MOST_REPAIRS):
        if each["number"] is None or number not in (0, each["number"]):
            continue
        if not each["undone"] and each["branch"] and each["refs"]:
            boundary_id = str(each["key"]).removesuffix("/repair")
            return ToUndo(boundary_id, str(each["run_id"]), None, None, (), each["number"], each["branch"])
        how = "moved no branch" + (f": {each['undo']}" if each["undo"] else "")
        why = why or f"repair {each['number']} {'is undone already' if each['undone'] else how}"
    return why or (f"repair {number} is not in the history" if number else "nothing was repaired so far")
