"""Return a branch that lost commits to its last good tip, and re-apply the new commits on top."""

# Theory of operation
#
# ``refs/ralph/judged/NAME`` holds the last good tip, so that gc keeps its objects after a reset; the daemon
# has the tip in its own state as well, and trusts only that.
#
# Order: objects (cherry-picks by merge-tree and commit-tree), refs, move of the branch (move_branch). A crash
# before the refs leaves loose objects. A crash between refs and move leaves the branch rewritten: the
# repeated act makes the commits again. After the move, ``refs/ralph/repaired/LABEL`` is in the branch: the
# repeated act changes nothing and returns the same result, so that it is reported once.
#
# A commit that conflicts is left out, and those after it are applied without it: all of them stay under
# ``refs/ralph/left/LABEL/…``. Uncommitted work stays, and is a reason to refuse where it overlaps.

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ralphd import diagnostics
from ralphd.core.gate.git_repair import RewriteAction, RewrittenBranch, decide, to_reapply
from ralphd.core.gate.verdict import LEFT, Change, Position
from ralphd.core.incidents import shell_word
from ralphd.core.text import short_sha
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.git.diagnostics import trouble_of
from ralphd.git.facts import LOG, RUN_MARK, log_entries, made_by_run, pulled, rewritten_by_other, uncommitted
from ralphd.git.rewrite import move_branch
from ralphd.git.rewrite.move_branch import HEADS, Done, Move, branch_and_head, carry_out, move
from ralphd.git.rewrite.revert import KEPT, merge_trees
from ralphd.git.rewrite.stash import ASIDE
from ralphd.git.runner import GitRunner, NotDone, error_text, ref_name

JUDGED: Final = "refs/ralph/judged/"
REPAIRED: Final = "refs/ralph/repaired/"
UNDONE: Final = "refs/ralph/undone/"
REBASED: Final = "refs/ralph/rebased/"
"""What landed as copies: these commits count as landed, and verdicts still name them (M2)."""
KEPT_S: Final = 30 * 86_400.0
MOST_COMPARED: Final = 1000
"""How many lost or new commits are compared; more are left to a person."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What was done about a rewritten branch; ``ref`` keeps the rewritten tip.

    ``conflicts`` are the new commits that could not be re-applied. ``why`` is why nothing was changed,
    ``undo`` a git command that undoes it.
    """

    action: RewriteAction
    branch: str = ""
    lost: tuple[Change, ...] = ()
    reapplied: tuple[Change, ...] = ()
    conflicts: tuple[Change, ...] = ()
    ref: str = ""
    why: str = ""
    undo: str = ""


def keep_judged(directory: Path, ralph: str, good: Position) -> None:
    """Keep the last good tip of a ralph's branch from gc. Raises NotDone."""
    git = GitRunner(directory)
    ref = JUDGED + ref_name(ralph)
    if good.head is not None and git.repository.value(ref) != good.head:
        git.update_refs(f"update {ref} {good.head}")


def forget_old(directory: Path, ralph: str, now: Moment, spared: Callable[[], Iterable[str]]) -> None:
    """Delete old refs of a ralph that keep former states, except those of the labels of ``spared`` refs.

    The newest ``KEPT`` in each folder stay, and younger ones than ``KEPT_S``. Raises NotDone.
    """
    git, old = GitRunner(directory), list[str]()
    words = ("for-each-ref", "--sort=-committerdate", "--format=%(committerdate:unix) %(refname)")
    folders = [f"{space}{ref_name(ralph)}/" for space in (LEFT, REPAIRED, UNDONE, ASIDE)]
    lines = git.text(*words, *folders).split("\n")
    for folder in folders:
        refs = [line.split(" ", 1) for line in lines if f" {folder}" in line]
        old += [ref for at, ref in refs[KEPT:] if at.isdigit() and now - int(at) > KEPT_S]
    labels = {"".join(each.split("/")[4:5]) for each in spared()} if old else set()
    if gone := [f"delete {ref}" for ref in old if ref.split("/")[4] not in labels]:
        git.update_refs(*gone)


def restore_judged(directory: Path, good: Position, *, label: str, pauses: bool) -> RewriteResult | None:
    """Restore the commits that ``good`` has and its branch lacks. Return what was done; None without a loss.

    The branch may be deleted, or not be checked out. May be repeated with the same label.
    Raises nothing for what it finds.
    """
    if good.head is None or good.branch is None or "\ufffd" in good.branch:  # not its whole name
        return None
    branch, name = HEADS + good.branch, ref_name(label)
    try:
        git = GitRunner(directory)
        tip = git.commit(branch)
        repaired = git.ref(REPAIRED + name) or git.ref(f"{LEFT}{name}/deleted")
        if tip is not None and repaired is None and git.commit(good.head) and _has(git, tip, good.head):
            return None
        with git.exclusive():
            move_branch.recover(git)
            if git.commit(good.head) is None:
                # Fails where git refuses the whole repository, as it does with another user's.
                git.text("rev-parse", "--git-dir")
                why = f"the commits are not in the repository any more; the last one was {good.head}"
                return RewriteResult(RewriteAction.PAUSE, good.branch, why=why)
            tip = git.commit(branch)
            if tip is None or git.ref(f"{LEFT}{name}/deleted"):
                return _recreate(git, branch, tip, good.head, name)
            return _restore(git, branch, tip, good.head, label, pauses=pauses)
    except (NotDone, OSError) as why:
        return RewriteResult(RewriteAction.LEAVE, good.branch, why=error_text(why))


def _recreate(git: GitRunner, branch: str, tip: str | None, good: str, name: str) -> RewriteResult:
    """Create a deleted branch at its last good tip. What HEAD's reflog knows of its later commits is kept."""
    ref = f"{LEFT}{name}/deleted"
    if tip is None:
        seen = git.line("log", "-g", "-z", "--format=%H", "--max-count=200", "HEAD", "--") or ""
        newest = next((sha for sha in seen.split("\0") if sha and _has(git, sha, good)), good)
        git.update_refs(f"update {ref} {newest}", f"create {branch} {good}", reason="ralph: restored")
        diagnostics.reach("rewritten.recreated")
    name = branch.removeprefix(HEADS)
    return RewriteResult(RewriteAction.REPAIR, name, ref=ref, undo=f"git branch -D {name}")


def _restore(
    git: GitRunner, branch: str, tip: str, good: str, label: str, *, pauses: bool
) -> RewriteResult | None:
    is_here = git.branch() == branch
    ref, repaired_ref = left_refs(label)
    repaired = git.ref(repaired_ref)
    is_repaired = repaired is not None and _has(git, tip, repaired)
    rewritten = git.ref(ref) if is_repaired else tip
    if rewritten is None or _has(git, rewritten, good):
        return None
    facts = _facts(git, good, rewritten, is_here=is_here)
    action, reason = decide(facts, pauses=pauses)
    short_name = branch.removeprefix(HEADS)
    if not is_repaired and action is RewriteAction.ACCEPT:
        return None
    if not is_repaired and action is not RewriteAction.REPAIR:
        return RewriteResult(action, short_name, facts.lost, why=reason)
    new_tip, reapplied, conflicts = _reapply(git, good, to_reapply(facts))
    if not is_repaired:
        git.update_refs(f"update {ref} {rewritten}", f"update {repaired_ref} {new_tip}")
        diagnostics.reach("rewritten.kept")
        try:
            to = Move(branch, tip, new_tip, f"ralph: restored {short_sha(good)}")
            to = move_branch.with_settled(git, to) if is_here else to  # a mixed reset leaves the files
            move(git, to) if is_here else _move_elsewhere(git, to)
        except (NotDone, OSError) as why:
            return RewriteResult(RewriteAction.PAUSE, short_name, facts.lost, ref=ref, why=error_text(why))
        diagnostics.reach("rewritten.moved")
    return RewriteResult(RewriteAction.REPAIR, short_name, facts.lost, reapplied, conflicts, ref)


def left_refs(label: str) -> tuple[str, str]:
    """Return the refs of a label: what its branch left, and where it was moved to."""
    return f"{LEFT}{ref_name(label)}/rewritten", REPAIRED + ref_name(label)


def undone_ref(label: str) -> str:
    """Return the ref that keeps the branch as it was before its repair was undone."""
    return UNDONE + ref_name(label)


def take_back(directory: Path, label: str, branch: str) -> Done:
    """Move a repaired branch back to where an iteration left it, with the later commits on top.

    What the repair restored stays under ``undone_ref``. May be repeated.
    """
    (ref, repaired_ref), undone = left_refs(label), undone_ref(label)
    by_hand = f"by hand: git -C {shell_word(str(directory))}"

    def act(git: GitRunner) -> str:
        current, tip = branch_and_head(git)
        if current != HEADS + branch:
            raise NotDone(f"branch {branch} is not checked out: git switch {branch}")
        left, repaired = git.ref(ref), git.ref(repaired_ref)
        if left is None or repaired is None:
            raise NotDone(f"{ref} is not there: the refs of old repairs are removed")
        if git.ref(undone) is not None and _has(git, tip, left):
            return tip
        if not _has(git, tip, repaired):
            raise NotDone(f"branch {branch} does not have the restored commits any more")
        later = _listed(git, tip, repaired)
        if any(len(each.parents) > 1 for each in later):
            raise NotDone(f"a merge came since then; {by_hand} merge {ref}")
        new_tip, _, conflicts = _reapply(git, left, later)
        if conflicts:
            why = f"conflict of {short_sha(conflicts[0].sha)}, which came since then"
            raise NotDone(f"{why}; {by_hand} rebase --onto {ref} {repaired_ref}")
        git.update_refs(f"update {undone} {tip}")
        diagnostics.reach("repair.undo.kept")
        move(git, Move(current, tip, new_tip, "ralph: undo of a repair"))
        return new_tip

    return carry_out(directory, act)


def _has(git: GitRunner, tip: str, commit: str) -> bool:
    code, _ = git.run("merge-base", "--is-ancestor", commit, tip)
    if code not in (0, 1):
        raise NotDone(f"git merge-base ended with {code}: parts of the history are missing")
    return code == 0


def _move_elsewhere(git: GitRunner, to: Move) -> None:
    """Move a branch that is not checked out. Raises NotDone where another work tree has it."""
    if place := git.line("for-each-ref", "--format=%(worktreepath)", to.branch):
        raise NotDone(f"the branch is checked out in {place}")
    git.update_refs(f"update {to.branch} {to.new} {to.old}", reason=to.reason)


def _facts(git: GitRunner, good: str, tip: str, *, is_here: bool) -> RewrittenBranch:
    lost, new = _listed(git, good, tip), _listed(git, tip, good, "--first-parent")
    patches = _patches(git, [each.sha for each in (*lost, *new)])
    line = new[::-1]
    trouble = trouble_of(git, uncommitted(git).unmerged).split("; ")
    in_the_way = "; ".join(each for each in trouble if is_here or not each.startswith("HEAD is detached"))
    came = bool(line) and bool(pulled(git, line, before=None))
    lost = tuple(replace(each, patch=patches.get(each.sha, "")) for each in lost)
    new = tuple(replace(each, patch=patches.get(each.sha, "")) for each in new)
    tree = git.text("rev-parse", f"{good}^{{tree}}")
    return RewrittenBranch(good, tree, lost, new, in_the_way, came, rewritten_by_other(git, good, tip, line))


def _listed(git: GitRunner, tip: str, without: str, *options: str) -> tuple[Change, ...]:
    """Return the commits of ``tip`` that are not in ``without``, oldest first, without their patch-ids."""
    words = (*LOG, "--topo-order", "--reverse", "--format=%H %T %P%x09%s", *options, tip, f"^{without}", "--")
    entries = log_entries(git.output(*words))
    if len(entries) > MOST_COMPARED:
        raise NotDone(f"{len(entries)} commits are too many to compare")
    return tuple(Change(sha, tree, "", subject, tuple(parents)) for (sha, tree, *parents), subject in entries)


def _patches(git: GitRunner, shas: Sequence[str]) -> dict[str, str]:
    """Return the patch-ids of commits; merges and commits without changes have none."""
    words = ("diff-tree", "--stdin", "-p", "--root", "--full-index", "--no-ext-diff", "--no-textconv")
    diffs = git.output(*words, given="".join(f"{sha}\n" for sha in shas).encode())
    lines = git.text("patch-id", "--stable", given=diffs).splitlines()
    return {sha: patch for patch, _, sha in (line.partition(" ") for line in lines)}


def _reapply(
    git: GitRunner, head: str, commits: Sequence[Change]
) -> tuple[str, tuple[Change, ...], tuple[Change, ...]]:
    """Cherry-pick ``commits`` onto ``head``. Return the tip, the commits applied, and the conflicts."""
    tree = git.text("rev-parse", f"{head}^{{tree}}")
    applied, conflicts = [], []
    for each in commits:
        parent = git.line("rev-parse", "--verify", "--quiet", f"{each.sha}^{{commit}}^1^{{tree}}")
        after, _ = merge_trees(git, base=parent or git.text("mktree"), ours=tree, theirs=each.tree)
        if after is None:
            conflicts.append(each)
        elif after != tree:
            head, tree = copy_commit(git, each.sha, after, head), after
            applied.append(Change(head, after, each.patch, each.subject))
    return head, tuple(applied), tuple(conflicts)


def copy_commit(git: GitRunner, commit: str, tree: str, parent: str) -> str:
    """Return a commit with the author, date and message of ``commit``; a run's has its mark, too."""
    words = (*LOG, "-1", "--date=raw", "--format=%an%n%ae%n%ad%n%B")
    mark = {} if made_by_run(git, commit) is False else RUN_MARK
    name, email, date, message = git.text(*words, commit).split("\n", 3)
    author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": f"@{date}"} | mark
    return git.commit_tree(tree, message.rstrip("\n\0") + "\n", parent, identity={**git.identity, **author})
