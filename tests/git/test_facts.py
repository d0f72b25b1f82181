"""What an iteration has made of a repository, and what of it came from elsewhere (R1, R2, R8)."""

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Boundary, Position
from ralphd.git import facts
from ralphd.git.facts import boundary, position
from tests.git.guard_world import clone_with_upstream, committed, head, others_push, write
from tests.git.work_tree import WorkTree


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    return tree


@pytest.fixture
def pair(tmp_path: Path) -> tuple[WorkTree, WorkTree]:
    return clone_with_upstream(tmp_path)


def pulled(found: Boundary) -> list[bool]:
    assert found.trouble == ""
    return [commit.pulled for commit in found.commits]


# Where it stands


def test_a_position_is_the_full_sha_and_the_branch(tree: WorkTree, tmp_path: Path) -> None:
    assert position(tree.path) == Position(head(tree), "main")
    tree.git("checkout", "--quiet", "-b", "deep/er")
    assert position(tree.path) == Position(head(tree), "deep/er")
    tree.git("checkout", "--quiet", "--detach")
    assert position(tree.path) == Position(head(tree), None)
    assert position(WorkTree.new(tmp_path / "empty").path) == Position(None, "main")
    assert position(tmp_path) == Position(None, None)


# Commits of a run


AS_RUN = ("-c", facts.RUN_SETTING.strip("'"))


def of_run(tree: WorkTree, name: str) -> str:
    """A commit as the git of a run makes it."""
    write(tree, name, name)
    tree.git("add", name)
    tree.git(*AS_RUN, "commit", "--quiet", "-m", name)
    return head(tree)


def test_the_setting_of_a_run_is_added_to_those_that_it_inherits() -> None:
    assert facts.run_setting("") == "'core.looseCompression=2'"
    assert facts.run_setting("'user.name=A'") == "'user.name=A' 'core.looseCompression=2'"


def test_commits_of_a_run_are_marked_and_those_of_a_person_are_not(tree: WorkTree) -> None:
    before = position(tree.path)
    committed(tree, "mine", mine="x")
    sha = of_run(tree, "runs")
    tree.git("revert", "--no-edit", sha)

    found = boundary(tree.path, before)

    assert [each.by_run for each in found.commits] == [False, True, False]
    assert [each.reverts for each in found.commits] == [sha, "", ""]
    tree.git("config", "core.compression", "5")
    assert [each.by_run for each in boundary(tree.path, before).commits] == [None] * 3
    tree.git("config", "--unset", "core.compression")
    tree.git("gc", "--quiet", "--prune=now")
    assert [each.by_run for each in boundary(tree.path, before).commits] == [None] * 3


def test_a_person_may_amend_where_the_range_began_and_a_run_may_not(tree: WorkTree) -> None:
    committed(tree, "mine", mine="x")
    before = position(tree.path)
    tree.git("commit", "--quiet", "--amend", "-m", "mine, amended")
    of_run(tree, "runs")
    found = boundary(tree.path, before)
    assert (found.descends, found.rewritten) == (False, True)

    at = position(tree.path)
    tree.git(*AS_RUN, "commit", "--quiet", "--amend", "-m", "the run's, amended")
    assert not boundary(tree.path, at).rewritten
    committed(tree, "mine again", again="x")
    at = position(tree.path)
    tree.git(*AS_RUN, "commit", "--quiet", "--amend", "-m", "amended by the run")
    assert not boundary(tree.path, at).rewritten


# The range


def test_without_a_new_commit_there_is_nothing_whatever_is_dirty(tree: WorkTree) -> None:
    before = position(tree.path)
    write(tree, "first", "dirty")

    assert boundary(tree.path, before) == Boundary(before, before)


def test_the_range_is_the_new_commits_newest_first_with_what_is_dirty(tree: WorkTree) -> None:
    before = position(tree.path)
    shas = [committed(tree, "one\ttab"), committed(tree, "two é", a="a", b="b")]
    write(tree, "a", "changed")
    write(tree, "untracked", "x")
    write(tree, "new\nline", "staged")
    tree.git("rm", "--quiet", "--cached", "b")
    tree.git("add", "--", "new\nline")

    found = boundary(tree.path, before)

    assert [(commit.sha, commit.subject) for commit in found.commits] == [
        (shas[1], "two é"),
        (shas[0], "one\ttab"),
    ]
    assert found.descends and found.trouble == "" and found.doubt == ""
    assert sorted(found.dirty) == ["a", "b", "new?line"]
    assert not any(commit.upstream or commit.pulled for commit in found.commits)


def test_a_merge_is_one_commit_of_the_range(tree: WorkTree) -> None:
    before = position(tree.path)
    tree.git("checkout", "--quiet", "-b", "side")
    committed(tree, "on the side", side="x")
    tree.git("checkout", "--quiet", "main")
    committed(tree, "ahead", ahead="x")
    tree.git("merge", "--quiet", "--no-edit", "side")

    found = boundary(tree.path, before)

    assert [commit.subject for commit in found.commits] == ["Merge branch 'side'", "ahead"]
    assert found.descends and pulled(found) == [False, False]


def test_amend_reset_and_switch_are_seen_and_nothing_is_to_be_reverted(tree: WorkTree) -> None:
    base = position(tree.path)
    committed(tree, "second", second="x")
    before = position(tree.path)
    tree.git("commit", "--quiet", "--amend", "-m", "amended")
    assert not boundary(tree.path, before).descends

    tree.git("reset", "--quiet", "--hard", str(base.head))
    gone = boundary(tree.path, before)
    assert (gone.descends, gone.commits) == (False, ())

    tree.git("checkout", "--quiet", "-b", "other")
    committed(tree, "third")
    switched = boundary(tree.path, base)
    assert switched.doubt == "the branch is another: it was main, now it is other"


def test_what_is_gone_or_cannot_be_told_is_no_ancestor(tree: WorkTree, tmp_path: Path) -> None:
    gone = boundary(tree.path, Position("1" * 40, "main"))
    nowhere = boundary(tmp_path, Position("1" * 40, "main"))

    assert (gone.descends, gone.commits, gone.trouble) == (False, (), "")
    assert nowhere.trouble == f"git does not tell where HEAD is: git -C {tmp_path} status"


def test_a_merge_that_has_what_was_before_as_its_second_parent_is_in_doubt(tree: WorkTree) -> None:
    tree.git("branch", "other")
    committed(tree, "mine", mine="x")
    before = position(tree.path)
    tree.git("checkout", "--quiet", "other")
    committed(tree, "theirs", theirs="x")
    tree.git("merge", "--quiet", "--no-edit", "main")
    tree.git("checkout", "--quiet", "main")
    tree.git("merge", "--quiet", "--ff-only", "other")

    found = boundary(tree.path, before)

    assert not found.descends, "to revert the merge would take away what was there before"


def test_the_first_commit_of_a_repository_is_in_doubt(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    before = position(tree.path)
    committed(tree, "first", a="a")

    found = boundary(tree.path, before)

    assert [commit.subject for commit in found.commits] == ["first"]
    assert found.doubt != "" and found.trouble == ""


def test_a_range_without_end_is_a_trouble(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_COMMITS", 2)
    before = position(tree.path)
    for number in range(3):
        committed(tree, f"{number}")

    found = boundary(tree.path, before)

    assert len(found.commits) == 2
    assert found.trouble == "more than 2 commits came in one iteration: nothing is judged"


# Where commits came from


def test_what_was_made_here_is_not_pulled_though_it_was_pushed(pair: tuple[WorkTree, WorkTree]) -> None:
    tree, _ = pair
    before = position(tree.path)
    committed(tree, "pushed", a="a")
    tree.git("push", "--quiet")
    tree.git("fetch", "--quiet")
    committed(tree, "not yet", b="b")

    found = boundary(tree.path, before)

    assert pulled(found) == [False, False]
    assert [commit.upstream for commit in found.commits] == [False, True]


@pytest.mark.parametrize("how", ["pull --ff-only", "pull --rebase", "pull --no-rebase", "fetch+merge", "url"])
def test_what_others_pushed_is_pulled_however_it_comes(
    pair: tuple[WorkTree, WorkTree], tmp_path: Path, how: str
) -> None:
    tree, origin = pair
    before = position(tree.path)
    theirs = others_push(tmp_path, origin, "theirs")
    match how:
        case "pull --ff-only":
            tree.git("pull", "--quiet", "--ff-only")
        case "url":
            tree.git("remote", "remove", "origin")
            tree.git("pull", "--quiet", "--ff-only", str(origin.path), "main")
        case "fetch+merge":
            tree.git("fetch", "--quiet")
            committed(tree, "mine", mine="x")
            tree.git("merge", "--quiet", "--no-edit", "origin/main")
        case _:
            committed(tree, "mine", mine="x")
            tree.git(*how.split(), "--quiet", "--no-edit") if "no-rebase" in how else tree.git(*how.split())
    committed(tree, "later", later="x")

    found = boundary(tree.path, before)

    told = dict(zip([commit.subject for commit in found.commits], pulled(found), strict=True))
    assert told.pop("later") is False
    assert told.pop("mine", False) is False
    assert told and all(told.values()), "theirs, or the merge of theirs"
    assert theirs in tree.git("rev-list", "HEAD").split()
    assert found.doubt == ""


def test_what_another_work_tree_made_is_not_of_this_one(
    pair: tuple[WorkTree, WorkTree], tmp_path: Path
) -> None:
    tree, _ = pair
    before = position(tree.path)
    tree.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    committed(WorkTree(tmp_path / "linked"), "in the other", side="x")
    tree.git("push", "--quiet", "origin", "side")
    tree.git("fetch", "--quiet")
    tree.git("merge", "--quiet", "--ff-only", "side")
    assert pulled(boundary(tree.path, before)) == [True]

    tree.git("worktree", "remove", str(tmp_path / "linked"))
    tree.git("branch", "--quiet", "-d", "side")
    tree.git("push", "--quiet", "origin", "main")
    tree.git("remote", "set-head", "origin", "main")
    assert pulled(boundary(tree.path, before)) == [True], "its reflogs are gone"


@pytest.mark.timeout(60)
def test_a_pipe_in_the_git_directory_blocks_nothing(pair: tuple[WorkTree, WorkTree], tmp_path: Path) -> None:
    tree, origin = pair
    others_push(tmp_path, origin, "theirs")
    before = position(tree.path)
    tree.git("pull", "--quiet", "--rebase")
    for name in ("FETCH_HEAD", "logs/HEAD"):
        (tree.path / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(tree.path / ".git" / name)

    assert [commit.subject for commit in boundary(tree.path, before).commits]


def test_a_local_merge_that_brings_in_what_was_fetched_is_pulled(
    pair: tuple[WorkTree, WorkTree], tmp_path: Path
) -> None:
    tree, origin = pair
    before = position(tree.path)
    others_push(tmp_path, origin, "theirs", branch="feature")
    tree.git("fetch", "--quiet")
    tree.git("checkout", "--quiet", "-b", "side", "--no-track", "origin/feature")
    committed(tree, "on top", side="x")
    tree.git("checkout", "--quiet", "main")
    tree.git("merge", "--quiet", "--no-ff", "--no-edit", "side")

    assert pulled(boundary(tree.path, before)) == [True]


def test_without_reflogs_what_is_in_a_remote_counts_as_pulled(pair: tuple[WorkTree, WorkTree]) -> None:
    tree, _ = pair
    tree.git("config", "core.logAllRefUpdates", "false")
    for name in ("logs/HEAD", "logs/refs/heads/main", "logs/refs/remotes/origin/HEAD"):
        (tree.path / ".git" / name).unlink(missing_ok=True)
    before = position(tree.path)
    committed(tree, "pushed", a="a")
    tree.git("push", "--quiet")
    committed(tree, "not pushed", b="b")

    assert pulled(boundary(tree.path, before)) == [False, True]


# What stands in the way


def test_a_merge_left_half_done_is_a_trouble_with_its_files(tree: WorkTree) -> None:
    before = position(tree.path)
    tree.git("checkout", "--quiet", "-b", "other")
    committed(tree, "theirs", first="theirs")
    tree.git("checkout", "--quiet", "main")
    committed(tree, "ours", first="ours")
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("merge", "other")

    assert boundary(tree.path, before).trouble == (
        "a merge is half done: git merge --continue, or --abort; files with conflicts: first"
    )


def test_a_lock_is_waited_for_and_one_that_stays_is_told(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = position(tree.path)
    committed(tree, "second")
    lock = tree.path / ".git" / "index.lock"
    lock.touch()
    threading.Timer(0.2, lock.unlink).start()
    assert boundary(tree.path, before).trouble == ""

    lock.touch()
    monkeypatch.setattr("ralphd.git.locks.LOCK_WAIT_S", 0.1)
    assert "index.lock is there" in boundary(tree.path, before).trouble


def test_nothing_of_the_repository_is_run_and_nothing_is_changed(tree: WorkTree, tmp_path: Path) -> None:
    before = position(tree.path)
    committed(tree, "second", filtered="x")
    ran = tmp_path / "ran"
    (tree.path / ".git" / "info").mkdir(exist_ok=True)
    (tree.path / ".git" / "info" / "attributes").write_text("filtered filter=bad\n")
    for key in ("filter.bad.clean", "core.fsmonitor", "core.sshCommand", "diff.external"):
        tree.git("config", key, f"touch {ran}; cat")
    os.utime(tree.path / "filtered", (time.time() - 100,) * 2)
    index = (tree.path / ".git" / "index").read_bytes()

    assert boundary(tree.path, before).trouble == ""
    assert not ran.exists()
    assert (tree.path / ".git" / "index").read_bytes() == index


def test_in_a_folder_below_and_in_a_linked_work_tree_it_is_the_same(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    linked = WorkTree(tmp_path / "linked")
    before = position(linked.path)
    committed(linked, "in a folder", folder__file="x")
    write(linked, "folder/file", "dirty")

    found = boundary(linked.path / "folder", before)

    assert [commit.subject for commit in found.commits] == ["in a folder"]
    assert found.dirty == ("folder/file",)
    assert found.doubt == "" and pulled(found) == [False]
