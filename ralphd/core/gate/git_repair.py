"""Decide whether a branch that lost commits during an iteration is accepted or restored.

Amend, squash and rebase are honest work: a new history is accepted if it has every change of the old one.
Otherwise the branch returns to its last good tip, and the new commits are re-applied on top.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Change:
    """A commit. ``patch`` is its patch-id, empty for a merge; equal patch-ids are the same change."""

    sha: str
    tree: str
    patch: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class RewrittenBranch:
    """A branch whose last good tip is ``good``, and what is there now.

    ``lost`` are the commits that only ``good`` has, ``new`` those of the present tip's first parents that
    ``good`` lacks; both oldest first. ``in_the_way`` is what is half done in the repository, ``pulled``
    whether new commits came by fetch or pull.
    """

    good: str
    good_tree: str
    lost: tuple[Change, ...]
    new: tuple[Change, ...]
    in_the_way: str = ""
    pulled: bool = False


class RewriteAction(StrEnum):
    """What becomes of a branch at a boundary."""

    ACCEPT = "accept"
    LEAVE = "leave"
    REPAIR = "repair"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class RewriteDecision:
    """What to do, and for ``LEAVE`` and ``PAUSE`` why."""

    action: RewriteAction
    why: str = ""


def decide(branch: RewrittenBranch, *, pauses: bool) -> RewriteDecision:
    """Return what becomes of a branch; ``pauses``: ``[git] rewritten = "pause"``."""
    if not branch.lost or is_preserved(branch):
        return RewriteDecision(RewriteAction.ACCEPT)
    if branch.in_the_way:
        return RewriteDecision(RewriteAction.LEAVE, branch.in_the_way)
    if branch.pulled:
        return RewriteDecision(RewriteAction.PAUSE, "commits came by fetch or pull in the same iteration")
    if pauses:
        return RewriteDecision(RewriteAction.PAUSE, 'git.rewritten = "pause"')
    return RewriteDecision(RewriteAction.REPAIR)


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
