"""What stands in the way in a repository is told to whoever works there next."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from ralphd.git.diagnostics import left_uncommitted, present_trouble, uncommitted_digests
from tests.git.work_tree import WorkTree


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with a branch that does not go together with ``main``."""
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first", file="both")
    tree.git("checkout", "--quiet", "-b", "other")
    tree.commit("theirs", file="both")
    tree.git("checkout", "--quiet", "main")
    tree.commit("ours", file="both")
    return tree


def conflict(tree: WorkTree, *words: str) -> None:
    """Git stops at a conflict."""
    with pytest.raises(subprocess.CalledProcessError):
        tree.git(*words)


def test_where_all_is_well_nothing_is_said(tree: WorkTree, tmp_path: Path) -> None:
    (tree.path / "untracked").write_text("x")

    assert present_trouble(tree.path) == ()
    assert present_trouble(tmp_path) == ()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("merge", "other"), "a merge is half done: git merge --continue, or --abort"),
        (("rebase", "other"), "a rebase is half done: git rebase --continue, or --abort"),
        (("rebase", "--apply", "other"), "a rebase is half done: git rebase --continue, or --abort"),
        (("cherry-pick", "other"), "a cherry-pick is half done: git cherry-pick --continue, or --abort"),
        (("revert", "--no-edit", "HEAD~1"), "a revert is half done: git revert --continue, or --abort"),
    ],
)
def test_what_is_half_done_is_told_with_the_way_out(
    tree: WorkTree, words: tuple[str, ...], line: str
) -> None:
    conflict(tree, *words)

    assert present_trouble(tree.path) == (line, "files with conflicts: both")


def test_a_conflict_without_more_is_told(tree: WorkTree) -> None:
    (tree.path / "both").write_text("stashed")
    tree.git("stash", "--quiet")
    tree.commit("again", file="both")
    conflict(tree, "stash", "pop")

    assert present_trouble(tree.path) == ("files with conflicts: both",)


def test_a_detached_head_and_a_bisect_are_told(tree: WorkTree) -> None:
    sha = tree.git("rev-parse", "HEAD").strip()
    tree.git("checkout", "--quiet", "--detach")
    (told,) = present_trouble(tree.path)
    tree.git("bisect", "start")

    assert told.startswith(f"HEAD is detached at {sha[:7]}: ")
    assert present_trouble(tree.path) == ("a bisect is under way: git bisect reset ends it",)


def test_a_lock_is_told_in_a_linked_worktree_too(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    (tree.path / ".git" / "worktrees" / "linked" / "index.lock").touch()

    (told,) = present_trouble(tmp_path / "linked")

    assert "index.lock is there: a git is at work, or was killed" in told
    assert present_trouble(tree.path) == ()


def test_files_that_were_not_committed_are_listed(tree: WorkTree, tmp_path: Path) -> None:
    (tree.path / "both").write_text("changed")
    (tree.path / "new\n\x1b").write_text("")
    (tree.path / ".ralph").mkdir()
    (tree.path / ".ralph" / "lock").write_text("")
    (tree.path / "staged").write_text("")
    tree.git("add", "staged")
    os.utime(tree.path / "new\n\x1b", (1, 1))

    assert sorted(left_uncommitted(tree.path, 0.0, {})) == ["both", "new??", "staged"]
    assert left_uncommitted(tree.path, time.time() + 60, {}) == ()
    (tree.path / "both").unlink()
    assert left_uncommitted(tree.path, time.time() + 60, {}) == ("both",)
    assert left_uncommitted(tmp_path, 0.0, {}) == ()


def test_a_file_with_a_known_digest_was_not_left_by_a_run(tree: WorkTree) -> None:
    (tree.path / "deleted").write_text("x")
    (tree.path / "large").write_text("x")
    (tree.path / "link").write_text("x")
    tree.git("add", ".")
    tree.git("commit", "--quiet", "-m", "more")
    (tree.path / "link").unlink()
    (tree.path / "link").symlink_to("nowhere")
    (tree.path / "both").write_text("theirs")
    (tree.path / "deleted").unlink()
    (tree.path / "large").write_bytes(b"x" * (2 << 20))
    known = uncommitted_digests(tree.path)
    assert sorted(known) == ["both", "deleted", "link"]

    (tree.path / "link").rename(tree.path / "moved")
    (tree.path / "moved").rename(tree.path / "link")
    (tree.path / "both").unlink()
    (tree.path / "both").write_text("theirs")
    assert left_uncommitted(tree.path, 0.0, known) == ("large",)
    (tree.path / "both").write_text("changed")
    (tree.path / "deleted").write_text("again")
    (tree.path / "link").unlink()
    (tree.path / "link").symlink_to("elsewhere")
    assert left_uncommitted(tree.path, 0.0, known) == ("both", "deleted", "large", "link")
