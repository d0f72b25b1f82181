"""Merge what landed into the branch of another ralph, between two of its iterations (M7).

The merge is made of objects, like those of the landing queue, and the branch moves with the journal of
``move_branch``: a daemon that dies at any line leaves the old state or the new one.
"""

from dataclasses import replace
from pathlib import Path

from ralphd.core.landing.model import LandingQueue, Standing
from ralphd.core.loop.inbox import Inbox, with_task
from ralphd.core.text import short_sha, truncate
from ralphd.core.time import Moment
from ralphd.core.worktrees.rules import Worktree
from ralphd.dataclass import dataclass
from ralphd.git.landing.merge import Conflict, is_ancestor, merge_into
from ralphd.git.landing.target import TargetBranch, recorded
from ralphd.git.rewrite.move_branch import HEADS, Move, branch_and_head, move, recover, refuse_trouble
from ralphd.git.runner import GitRunner, NotDone


@dataclass(frozen=True, slots=True)
class FollowMerge:
    """The merge of ``tip`` into a worktree's branch; without ``move.new`` the two conflict.

    ``text`` states that it was merged. ``task`` is for the ralph: at a conflict, or where the tests fail.
    """

    directory: Path
    move: Move
    tip: str
    text: str
    task: str

    def carry_out(self) -> None:
        """Move the branch, its index and its files. Raises NotDone, OSError; then all is as it was."""
        git = GitRunner(self.directory)
        with git.exclusive():
            move(git, self.move)

    def with_task(self, kept: Inbox, at: Moment) -> Inbox:
        """Add the task to the inbox of a built-in loop, once, in place of those about earlier tips."""
        if any(each.text == self.task for each in kept.tasks):
            return kept
        kind = self.task.partition(": ")[0].split(" ", 2)[2]  # without the target and its tip
        others = tuple(each for each in kept.tasks if kind not in each.text)
        return with_task(replace(kept, tasks=others), at, self.task)


def planned(tree: Worktree, directory: Path, queue: LandingQueue, own_list: str) -> FollowMerge | None:
    """Return the merge that brings what landed last; None where the branch has it, or files hold work.

    Takes back first what a killed daemon has left half moved. Raises NotDone, where something is half done.
    """
    landed = [each for each in queue.standing(Standing.LANDED) if each.commit]
    git = GitRunner(directory)
    if str(git.repository.common.resolve()) != tree.repository:
        raise NotDone(f"{directory} belongs to another repository now")
    with git.exclusive():
        recover(git)
    branch, old = branch_and_head(git)
    if not landed or branch != HEADS + tree.branch or refuse_trouble(git).names:
        return None
    last = max(landed, key=lambda each: (each.ended_at or 0.0, each.id)).commit
    if is_ancestor(git, last, old):
        return None
    known = TargetBranch(queue.target, Path(queue.work_tree), landed=recorded(queue)).read(git, fetches=False)
    tip, name = known.landed or known.tip, queue.target.branch
    tip = tip if is_ancestor(git, last, tip) else last  # it was pushed, and not fetched since
    count = int(git.text("rev-list", "--count", tip, f"^{old}"))
    what = f"{name} {short_sha(tip)}"
    text = f"merged {what} ({count} commit{'s' * (count != 1)}) before the next iteration"
    task = f"{what} was merged into {tree.branch}, and the tests fail since then: find out why and fix it"
    copied = any(each.head == old and each.copies and is_ancestor(git, each.commit, tip) for each in landed)
    try:
        new = tip if copied or is_ancestor(git, old, tip) else merge_into(git, old, name, tip, own_list)
    except Conflict as why:
        mine = [each for each in queue.candidates if each.branch == branch]
        if mine and mine[-1].standing is Standing.REFUSED:
            return None  # its ralph has that task from the queue
        new, conflict = "", truncate(str(why), 80)
        task = f"{what} does not merge into {tree.branch}: {conflict}; git merge {tip[:12]}, fix it"
    return FollowMerge(directory, Move(branch, old, new, f"ralph: {text}"), tip, text, task)
