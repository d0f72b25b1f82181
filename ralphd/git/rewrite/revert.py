"""Revert commits on the present branch, take reverts back, and undo them later (R5, R6).

A label names one run of the gate. ``refs/ralph/reverts/LABEL`` is the last revert, and
``refs/ralph/reverted/LABEL`` where the branch was before. Every act may be repeated; where it is refused,
branch, index and files are unchanged.
"""

# Theory of operation
#
# The reverts are made as objects alone (merge-tree, commit-tree): no work tree and no index take part, so a
# conflict is known before anything is touched, and a crash leaves loose objects only. ``git revert`` would
# work in the user's tree and stop there half done.
#
# Order: objects, refs, move of the branch (move_branch). A crash between refs and move leaves the reverts
# under their ref: the repeated act finds them, checks that they revert the same commits, and only moves the
# branch, so a revert has one sha however often it is attempted. If the move is refused, the refs are
# restored: nothing then claims a revert that is not in the branch.
#
# Refused: commits that are not in the branch, a conflict with later changes, a partial clone that lacks an
# object. A commit that changes nothing any more counts as reverted, without a new commit.

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from ralphd import diagnostics
from ralphd.core.gate.verdict import Change
from ralphd.core.text import short_sha
from ralphd.git.facts import LOG, first_parents, log_entries
from ralphd.git.repo import FULL_SHA
from ralphd.git.rewrite.move_branch import Done, Move, branch_and_head, carry_out, move
from ralphd.git.runner import GitRunner, HasMoved, NotDone, ref_name

MOST: Final = 1000
REVERTS: Final = "refs/ralph/reverts/"
REVERTED: Final = "refs/ralph/reverted/"
KEPT: Final = 100
"""How many labels of a ralph have refs: as many as there are runs in its history."""


def revert(directory: Path, commits: Sequence[str], *, head: str, label: str) -> Done:
    """Revert these commits, newest first, by one commit each; HEAD must be at ``head``.

    Like ``git revert --no-edit``; a merge is reverted to its first parent. Uncommitted work stays, and is a
    reason to refuse where it overlaps.
    """

    def act(git: GitRunner) -> str:
        branch, present = branch_and_head(git)
        tip = git.ref(REVERTS + ref_name(label))
        reverts = tip if tip is not None and _is_revert_of(git, commits, head, tip) else None
        if reverts is not None and present == reverts:
            return present
        if present != head:
            raise HasMoved(f"HEAD is at {short_sha(present)}, not at {short_sha(head)}")
        if reverts is None:
            reverts = make_reverts(git, commits, head)
            if reverts == head:
                return head
            name = ref_name(label)
            # Where the label's last revert is in the branch, this one continues from there.
            continues = tip is not None and git.run("merge-base", "--is-ancestor", tip, head)[0] == 0
            base = [] if continues else [f"update {REVERTED}{name} {head}"]
            git.update_refs(f"update {REVERTS}{name} {reverts}", *base)
        diagnostics.reach("guard.reverts_kept")
        try:
            move(git, Move(branch, head, reverts, f"revert: {len(commits)} by ralphd"))
        except NotDone:
            _forget(git, reverts, head, label, tip)
            raise
        return reverts

    return carry_out(directory, act)


def restore(directory: Path, head: str, *, expected: str, label: str, keeps: Sequence[str] = ()) -> Done:
    """Take the reverts of a label back: move HEAD from ``expected`` to ``head``. The refs stay.

    With ``keeps``, updates of refs that keep all of it, anything may be between the two.
    """

    def act(git: GitRunner) -> str:
        branch, present = branch_and_head(git)
        if present == head:
            return head
        if present != expected:
            raise HasMoved(f"HEAD is at {short_sha(present)}, not at {short_sha(expected)}")
        # Only reverts of this label may go; anything else between the two is somebody's work.
        tip = git.ref(REVERTS + ref_name(label))
        between = set(git.text("rev-list", expected, f"^{head}").split())
        reverts = {each.sha for each in _reverted(git, tip, head)} if tip else set()
        if not keeps and (not between or between - reverts):
            two = f"{short_sha(head)} and {short_sha(expected)}"
            raise NotDone(f"between {two} there is more than our own reverts")
        if keeps:
            git.update_refs(*keeps)
            diagnostics.reach("guard.left_kept")
        move(git, Move(branch, expected, head, f"reset: moving to {head}"))
        return head

    return carry_out(directory, act)


def undo(directory: Path, reverts: Sequence[str]) -> Done:
    """Revert these reverts, newest first, by one commit each on top of HEAD.

    What is back already counts as done. Refused at a conflict, and where uncommitted work overlaps.
    """

    def act(git: GitRunner) -> str:
        branch, present = branch_and_head(git)
        reapplied = make_reverts(git, reverts, present)
        if reapplied != present:
            move(git, Move(branch, present, reapplied, f"revert: undo {len(reverts)} by ralphd"))
        return reapplied

    return carry_out(directory, act)


def reverted(directory: Path, label: str) -> tuple[Change, ...]:
    """Return the reverts made under a label, the last one first; empty if the label is unknown."""
    try:
        git = GitRunner(directory)
        tip, base = git.ref(REVERTS + ref_name(label)), git.ref(REVERTED + ref_name(label))
        return _reverted(git, tip, base) if tip and base else ()
    except NotDone:
        return ()


def forget_old(directory: Path, ralph: str, *, spared: Collection[str] = ()) -> None:
    """Delete the refs of all but the newest labels of a ralph, except ``spared``.

    A ralph's labels begin with its name and a slash. Commits in the branch stay there. Ignores failures.
    """
    with suppress(NotDone):
        git = GitRunner(directory)
        words = ("for-each-ref", "--sort=-refname", "--sort=-committerdate", "--format=%(refname)")
        refs = git.text(*words, f"{REVERTS}{ref_name(ralph)}/").split()
        stays = {ref_name(label) for label in spared}
        old = [name for ref in refs[KEPT:] if (name := ref.removeprefix(REVERTS)) not in stays]
        if old:
            git.update_refs(*(f"delete {space}{name}" for name in old for space in (REVERTS, REVERTED)))


# The refs of a label.


def _is_revert_of(git: GitRunner, commits: Sequence[str], head: str, tip: str) -> bool:
    """Return whether ``tip`` was made by an earlier call for the same commits, all or some of them."""
    if tip == head:
        return False
    commits_reverted = [each.reverts for each in reversed(_reverted(git, tip, head))]
    in_order = iter(commits)
    return bool(commits_reverted) and all(sha in in_order for sha in commits_reverted)


def _forget(git: GitRunner, reverts: str, head: str, label: str, last: str | None) -> None:
    """Restore the refs of a label to their state before ``revert``; ``last`` was its last revert."""
    name = ref_name(label)
    commands = [f"update {REVERTS}{name} {last if last not in (None, reverts) else head} {reverts}"]
    if git.ref(REVERTED + name) == head:
        commands = [f"delete {REVERTS}{name} {reverts}", f"delete {REVERTED}{name} {head}"]
    git.run("update-ref", "--stdin", given="".join(f"{each}\n" for each in commands).encode())


def _reverted(git: GitRunner, tip: str, base: str) -> tuple[Change, ...]:
    with suppress(NotDone):  # commits that are lost are reverted again
        return tuple(each for each in first_parents(git, base, tip)[:MOST] if each.reverts)
    return ()


# Reverts as objects.


class MergeTrees(Protocol):
    """Return the merged tree; None, with the names of the files, at a conflict. Raises NotDone."""

    def __call__(
        self, git: GitRunner, *, base: str, ours: str, theirs: str
    ) -> tuple[str | None, tuple[str, ...]]: ...


def make_reverts(
    git: GitRunner, commits: Sequence[str], head: str, *, merged: MergeTrees | None = None
) -> str:
    """Return the last of the reverts on top of ``head``; ``head`` where none changes anything.

    ``merged`` is used in place of ``merge_trees``.
    """
    if len(commits) > MOST:
        raise NotDone(f"{len(commits)} commits are too many to revert")
    _refuse_strangers(git, commits, head)
    read = _read_commits(git, (head, *commits))
    tree = read[head].tree
    for sha in commits:
        commit = read[sha]
        before = read[commit.parents[0]].tree if commit.parents else git.text("mktree")
        after = _tree_without(git, commit, before, tree, merged or merge_trees)
        if after != tree:
            head, tree = git.commit_tree(after, _message(commit), head), after
    return head


def _refuse_strangers(git: GitRunner, commits: Sequence[str], head: str) -> None:
    for commit in commits:
        if not FULL_SHA.fullmatch(commit):
            raise NotDone(f"{commit[:20]!r} is not a commit")
    if tuple(commits) == (head,):
        return
    if commits and git.commit(commits[-1]) is None:
        raise NotDone(f"the commit {short_sha(commits[-1])} is not there")
    given = "".join(f"{each}\n" for each in (*commits, f"^{head}")).encode()
    if strangers := git.text("rev-list", "--stdin", given=given):
        raise NotDone(f"the commit {short_sha(strangers)} is not in the branch")


def _read_commits(git: GitRunner, shas: Sequence[str]) -> dict[str, Change]:
    """Return commits and their parents. Raises NotDone for what is not a commit, and for an absent parent."""
    words = (*LOG, "--no-walk=unsorted", "--stdin", "--format=%H %T %P%x09%s")
    given = "".join(f"{sha}\n{sha}^@\n" for sha in shas).encode()
    entries = log_entries(git.output(*words, given=given), "surrogateescape")
    read = {sha: Change(sha, tree, "", subject, tuple(parents)) for (sha, tree, *parents), subject in entries}
    for parent in (parent for sha in shas for parent in read[sha].parents[:1]):
        if parent not in read:
            raise NotDone(f"the commit {short_sha(parent)} is not there")
    return read


def _tree_without(git: GitRunner, commit: Change, before: str, tree: str, merged: MergeTrees) -> str:
    """Return ``tree`` without the changes of a commit, whose parent has the tree ``before``.

    Raises NotDone at a conflict.
    """
    if tree == commit.tree:
        return before
    if commit.tree == before:
        return tree
    after, names = merged(git, base=commit.tree, ours=tree, theirs=before)
    if after is None:
        raise NotDone(f"conflict of {short_sha(commit.sha)} with later changes in {', '.join(names[:3])}")
    return after


def commit_sides(git: GitRunner, *, base: str, ours: str, theirs: str) -> tuple[str, str]:
    """Return commits of two trees on top of a third: git before 2.40 has no ``merge-tree --merge-base``."""
    root = git.commit_tree(base, "x\n")
    return git.commit_tree(ours, "x\n", root), git.commit_tree(theirs, "x\n", root)


def merge_trees(git: GitRunner, *, base: str, ours: str, theirs: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the merged tree; None, with the names of the files, at a conflict. Raises NotDone."""
    sides = commit_sides(git, base=base, ours=ours, theirs=theirs)
    code, output = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", *sides)
    after, *names = output.decode(errors="replace").split("\0")
    if code == 0 and FULL_SHA.fullmatch(after.strip()):
        return after.strip(), ()
    if code != 1:
        raise NotDone(f"git merge-tree ended with {code} (git 2.38 is needed)")
    return None, tuple(filter(None, names))


def _message(commit: Change) -> str:
    """Return git's own message: a revert of a revert is a reapply."""
    title = f'Revert "{commit.subject}"'
    if commit.subject.startswith('Revert "') and not commit.subject.startswith('Revert "Revert "'):
        title = f'Reapply "{commit.subject[len("Revert ") + 1 :]}'
    merged = f", reversing\nchanges made to {commit.parents[0]}" if len(commit.parents) > 1 else ""
    return f"{title}\n\nThis reverts commit {commit.sha}{merged}.\n"
