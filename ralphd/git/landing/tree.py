"""What a queue has in the repository: its own work tree, where the tests run (M2), and refs against gc.

The work tree is a linked one, in the data directory, with a detached HEAD, locked against the clean-up of
other tools (W2). What tests leave in it is removed before the next run, but for ignored files: caches and
installed packages.
"""

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from ralphd.git.landing.merge import KEPT_REFS
from ralphd.git.rewrite.move_branch import refuse_filtered
from ralphd.git.rewrite.reapply import REBASED
from ralphd.git.runner import GitRunner, NotDone

LIMIT_S: Final = 600.0
REASON: Final = "ralphd: the landing queue"


def prepare(
    repository: Path,
    work_tree: Path,
    tree: Path,
    commit: str,
    *,
    old: Path | None = None,
    is_whole: bool = False,
) -> None:
    """Have ``tree`` hold exactly ``commit``; make it, and remove ``old``, if it is not there.

    ``is_whole``: without ignored files. Blocks. Raises NotDone, OSError.
    """
    if not is_ours(tree, repository):
        for each in filter(None, (old, tree)):
            _remove(work_tree, each)
        tree.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = ("worktree", "add", "--detach", "--no-checkout", "--lock", "--reason", REASON)
        GitRunner(work_tree, limit_s=LIMIT_S).output(*words, str(tree), commit)
        if not is_ours(tree, repository):
            raise NotDone(f"{tree} is not a work tree of {repository}")
    git = GitRunner(tree, limit_s=LIMIT_S)
    names = git.output("ls-tree", "-r", "-z", "--name-only", commit).split(b"\0") if git.filters else []
    refuse_filtered(git, list(filter(None, names)))
    if any(line.startswith("160000 ") for line in git.text("ls-tree", "-r", commit).split("\n")):
        raise NotDone("the repository has submodules, which the landing queue does not check out")
    (git.repository.git / "index.lock").unlink(
        missing_ok=True
    )  # of a git that was killed; nobody else works here
    git.output("read-tree", "--reset", "-u", commit)
    git.output("update-ref", "--no-deref", "-m", "ralph: tested", "HEAD", commit, env=git.identity)
    git.output("clean", "-ffdqx" if is_whole else "-ffdq")


def is_ours(tree: Path, repository: Path) -> bool:
    """Whether ``tree`` itself is a linked work tree of this repository, and not a directory below another."""
    try:
        git = GitRunner(tree)
        is_whole = (tree / ".git").is_file() and git.top == tree.resolve()
        return is_whole and git.repository.common.resolve() == repository.resolve()
    except NotDone:
        return False


def _remove(work_tree: Path, tree: Path) -> None:
    git = GitRunner(work_tree, limit_s=LIMIT_S)
    shutil.rmtree(tree, ignore_errors=True)  # only this module writes there
    git.run("worktree", "unlock", str(tree))
    git.run("worktree", "prune")


def discard(work_tree: Path, tree: Path) -> None:
    """Remove a queue's work tree and what it kept from gc; all of it can be made again. Raises NotDone."""
    git = GitRunner(work_tree)
    _remove(work_tree, tree)
    refs = git.text("for-each-ref", "--format=%(refname)", KEPT_REFS).split()
    if refs:
        git.update_refs(*(f"delete {ref}" for ref in refs))


def keep_rebased(git: GitRunner, heads: Iterable[str]) -> None:
    """Keep branches that landed as copies. Raises NotDone."""
    if commands := [f"update {REBASED}{head} {head}" for head in heads]:
        git.update_refs(*commands)


def keep(work_tree: Path, id: int, head: str, known: Collection[int]) -> None:
    """Keep a candidate's commit from gc, and no longer those that the queue has forgotten. Raises NotDone."""
    git = GitRunner(work_tree)
    refs = git.text("for-each-ref", "--format=%(refname)", KEPT_REFS).split()
    numbers = {ref: ref.removeprefix(KEPT_REFS) for ref in refs}
    old = [ref for ref, number in numbers.items() if number.isdigit() and int(number) not in known]
    git.update_refs(f"update {KEPT_REFS}{id} {head}", *(f"delete {ref}" for ref in old))
