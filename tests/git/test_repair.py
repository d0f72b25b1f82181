"""What a killed tree of processes has left in a repository is mended, told, or kept; nothing is lost."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ralphd.git import locks
from ralphd.git.diagnostics import unsupported
from ralphd.git.repair import Repaired, RepairMode, repair
from tests.git.guard_world import committed, everything, head, write
from tests.git.work_tree import WorkTree
from tests.helpers import wait_for


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with a branch that does not go together with ``main``."""
    tree = WorkTree.new(tmp_path / "tree")
    committed(tree, "first", both="first\n", other="x\n")
    tree.git("checkout", "--quiet", "-b", "other")
    committed(tree, "theirs", both="theirs\n")
    tree.git("checkout", "--quiet", "main")
    committed(tree, "fine", more="x\n")
    committed(tree, "ours", both="ours\n")
    return tree


def mended(tree: WorkTree, mode: RepairMode = RepairMode.ABORT, branch: str | None = None) -> Repaired:
    return repair(
        tree.path, mode, ended_at=time.time() + 1, began_at=0.0, label="my-ralph/run", branch=branch
    )


# Locks


def test_locks_older_than_the_end_are_removed_and_younger_ones_stay(tree: WorkTree) -> None:
    git = tree.path / ".git"
    old = [git / name for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock", "packed-refs.lock")]
    for lock in old:
        lock.touch()
        os.utime(lock, (time.time() - 60,) * 2)
    young = git / "config.lock"
    young.touch()

    found = repair(
        tree.path, RepairMode.TELL, ended_at=time.time() - 30, began_at=0.0, label="x", branch=None
    )

    assert not any(lock.exists() for lock in old) and young.exists()
    assert len(found.done) == 4 and found.told == ()
    assert f"removed {git}/index.lock, which a killed git had left" in found.done


def test_a_lock_of_a_git_that_is_at_work_stays(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a person who has an editor open for a message."""
    monkeypatch.setattr(locks, "LOCK_WAIT_S", 0.0)
    lock = tree.path / ".git" / "index.lock"
    write(tree, "both", "more\n")
    editor = "touch began; exec sleep 60"
    git = subprocess.Popen(
        [
            "git",
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "-c",
            f"core.editor=sh -c '{editor}'",
            "commit",
            "-a",
        ],
        cwd=tree.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={
            name: value
            for name, value in os.environ.items()
            if name not in ("GIT_EDITOR", "VISUAL", "EDITOR")
        },
    )
    try:
        wait_for(lambda: (tree.path / "began").exists() and lock.exists(), what="the editor")
        found = mended(tree)
        assert lock.exists()
        assert f"git works here (process {git.pid}): it is left alone" in found.told[0]
    finally:
        os.killpg(git.pid, 9)
        git.wait(10)


def test_a_lock_that_all_work_trees_share_stays_while_a_git_works_in_another(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "LOCK_WAIT_S", 0.0)
    tree.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "other")
    lock = tree.path / ".git" / "packed-refs.lock"
    lock.touch()
    words = ["git", "-C", str(tmp_path / "linked"), "cat-file", "--batch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as git:
        assert git.stdin is not None and git.stdout is not None
        git.stdin.write(b"HEAD\n")
        git.stdin.flush()
        git.stdout.readline()  # it is at work
        found = mended(tree)
        git.communicate(timeout=10)

    assert lock.exists() and f"(process {git.pid})" in found.told[0]


@pytest.mark.parametrize(("age_s", "stays"), [(60.0, False), (0.0, True)])
def test_a_git_that_is_younger_than_a_lock_does_not_own_it(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: float, stays: bool
) -> None:
    """In the sandbox of a run, the directory of a git outside of it is unknown."""
    monkeypatch.setattr(locks, "LOCK_WAIT_S", 0.0)
    lock = tree.path / ".git" / "index.lock"
    words = ["git", "-C", str(WorkTree.new(tmp_path / "elsewhere").path), "cat-file", "--batch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as git:
        known = Path.readlink

        def readlink(path: Path) -> Path:
            if path == Path("/proc", str(git.pid), "cwd"):
                raise PermissionError
            return known(path)

        monkeypatch.setattr(Path, "readlink", readlink)
        wait_for(lambda: Path("/proc", str(git.pid), "comm").read_text() == "git\n", what="git")
        lock.touch()
        os.utime(lock, (time.time() - age_s,) * 2)
        found = mended(tree)
        git.communicate(timeout=10)
    assert (lock.exists(), bool(found.told), bool(found.done)) == (stays, stays, not stays)


def test_the_end_of_a_git_is_awaited(tree: WorkTree) -> None:
    lock = tree.path / ".git" / "index.lock"
    lock.touch()
    words = ["git", "-C", str(tree.path), "cat-file", "--batch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as git:
        wait_for(lambda: Path("/proc", str(git.pid), "comm").read_text() == "git\n", what="git")
        timer = threading.Timer(0.2, lambda: git.communicate(timeout=10))
        timer.start()
        found = mended(tree)
        timer.join(10)
    assert not lock.exists() and found.done


# Half done


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "other"),
        ("rebase", "other"),
        ("rebase", "--apply", "other"),
        ("cherry-pick", "other"),
        ("revert", "--no-edit", "HEAD~2"),
    ],
)
def test_what_was_left_half_done_is_told_or_aborted_with_all_kept(
    tree: WorkTree, words: tuple[str, ...]
) -> None:
    before = everything(tree)
    with pytest.raises(subprocess.CalledProcessError):
        tree.git(*words)
    write(tree, "both", "the agent's answer\n")
    left, at = everything(tree), head(tree)

    told = mended(tree, RepairMode.TELL)
    assert everything(tree) == left
    assert told.done == () and f"{words[0]} is half done" in told.told[0]

    found = mended(tree)

    assert everything(tree) == before
    assert found.told == ()
    assert found.done[0].startswith(
        f"git {words[0]} --abort: what was there is kept under refs/ralph/left/my-ralph/run/"
    )
    assert head(tree, f"refs/ralph/left/my-ralph/run/{at[:12]}") == at
    assert tree.git("show", "refs/ralph/checkpoints/000001:both") == "the agent's answer\n"
    assert mended(tree) == Repaired()


def test_what_a_person_began_before_is_left_to_them(tree: WorkTree) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("rebase", "other")
    before, now = everything(tree), time.time() + 5

    found = repair(
        tree.path, RepairMode.ABORT, ended_at=now, began_at=now, label="my-ralph/run", branch="main"
    )
    assert everything(tree) == before and found.done == () and "a rebase is half done" in found.told[0]

    tree.git("rebase", "--abort")
    tree.git("checkout", "--quiet", "--detach")
    before = everything(tree)
    found = repair(tree.path, RepairMode.ABORT, ended_at=now, began_at=now, label="my-ralph/run", branch=None)
    assert everything(tree) == before and found.done == () and "HEAD is detached" in found.told[0]


def test_a_bisect_is_ended(tree: WorkTree) -> None:
    before = everything(tree)
    tree.git("bisect", "start", "HEAD", "HEAD~2")

    found = mended(tree)

    assert everything(tree) == before and found.told == ()
    assert found.done[0].startswith("git bisect reset")


def test_nothing_is_aborted_that_could_not_be_kept(tree: WorkTree) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("merge", "other")
    (tree.path / "both").write_bytes(b"x" * (11 << 20))
    before = everything(tree)

    found = mended(tree)

    assert everything(tree) == before and found.done == ()
    assert found.told[0] == (
        "both is too large to be kept, so nothing is aborted; do it yourself: git merge --abort"
    )


# HEAD on no branch


def test_commits_of_no_branch_come_to_it_by_fast_forward_and_files_stay(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "--detach")
    made = committed(tree, "made on no branch", made="x")
    write(tree, "both", "staged")
    tree.git("add", "both")
    write(tree, "both", "and more")
    before = everything(tree, refs=False)

    told = mended(tree, RepairMode.TELL)
    found = mended(tree)

    assert told.done == () and "HEAD is detached" in told.told[0]
    assert found == Repaired(("HEAD was on no branch: it is on main again, with its commits",))
    assert head(tree, "main") == made
    after = everything(tree, refs=False)
    assert (after.files, after.staged, after.branch) == (before.files, before.staged, "refs/heads/main\n")


def test_commits_that_do_not_go_onto_it_are_kept_under_a_ref(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "--detach", "other")
    made = committed(tree, "made on no branch", made="x")
    write(tree, "other", "not committed")

    found = mended(tree, branch="main")

    ref = f"refs/ralph/left/my-ralph/run/{made[:12]}"
    assert found.done == (f"HEAD was on no branch: it is on main again; its commits are kept under {ref}",)
    assert head(tree, ref) == made
    assert tree.git("status", "--porcelain", "--branch") == "## main\n M other\n"


def test_where_work_is_in_the_way_head_stays_and_it_is_told(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "--detach", "other")
    write(tree, "both", "not committed")
    before = everything(tree)

    found = mended(tree)

    assert everything(tree) == before and found.done == ()
    assert found.told[0] == ("HEAD is on no branch, and what is not committed is in the way: git switch main")


def test_a_branch_that_another_work_tree_has_is_left_alone(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("checkout", "--quiet", "--detach")
    tree.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "main")
    before = everything(tree)

    assert mended(tree).told[0] == "HEAD is on no branch, and main is checked out in another work tree"
    assert everything(tree) == before


def test_where_all_is_well_nothing_is_done(tree: WorkTree, tmp_path: Path) -> None:
    write(tree, "both", "dirty")
    before = everything(tree)

    assert mended(tree) == Repaired()
    assert everything(tree) == before
    assert mended(WorkTree(tmp_path)).told == ("this is not a git repository",)


# What is not supported


def test_an_ordinary_repository_lacks_nothing(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    shallow = WorkTree(tmp_path / "shallow")
    tree.git("clone", "--quiet", "--depth=1", f"file://{tree.path}", str(shallow.path))

    assert unsupported(tree.path) == unsupported(shallow.path) == unsupported(tmp_path) == ()


def test_filters_partial_clones_and_lost_reflogs_are_told_in_words(tree: WorkTree, tmp_path: Path) -> None:
    committed(tree, "attributes", **{".gitattributes": "*.bin filter=lfs\n", "a.bin": "x", "b.bin": "x"})
    partial = WorkTree(tmp_path / "partial")
    tree.git("config", "uploadpack.allowFilter", "true")
    tree.git("clone", "--quiet", "--filter=blob:none", f"file://{tree.path}", str(partial.path))
    tree.git("config", "filter.lfs.clean", "git-lfs clean -- %f")
    tree.git("config", "core.logAllRefUpdates", "false")

    assert unsupported(tree.path) == (
        "2 files go through a filter (lfs), which is not run: a commit that changes one is not reverted",
        "core.logAllRefUpdates is off: a commit that is in a remote counts as pulled, and is not reverted",
    )
    assert unsupported(partial.path) == (
        "this is a partial clone: nothing is fetched for a revert, which is refused where files are missing",
    )
