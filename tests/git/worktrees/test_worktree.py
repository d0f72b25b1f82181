"""Worktrees by git: made, made again, examined, saved, removed (W1 to W5)."""

import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.worktrees.rules import Worktree, why_kept
from ralphd.errors import RalphdError, UsageError
from ralphd.git import repo
from ralphd.git.runner import NotDone
from ralphd.git.worktrees import include
from ralphd.git.worktrees import worktree as worktrees
from tests.git.work_tree import WorkTree


@pytest.fixture
def main(tmp_path: Path) -> WorkTree:
    main = WorkTree.new(tmp_path / "demo")
    (main.path / "folder").mkdir()
    main.commit("first", file="folder/file")
    return main


def tree_of(main: WorkTree, name: str = "fix") -> Worktree:
    source = worktrees.source_of(main.path, None)
    path = main.path.parent / "trees" / name
    return Worktree(
        name, str(path), str(source.common), str(source.top), f"ralph/{name}", source.start, 0.0, 20_000,
        target=source.branch,
    )  # fmt: skip


def made(main: WorkTree, name: str = "fix") -> tuple[Worktree, WorkTree]:
    tree = tree_of(main, name)
    worktrees.make(tree)
    return replace(tree, stage="ready"), WorkTree(Path(tree.path))


def remove(tree: Worktree, **kept: Any) -> None:
    worktrees.remove(tree, worktrees.facts_of(tree), **kept)


def test_a_source_in_a_subdirectory_and_a_worktree(main: WorkTree) -> None:
    source = worktrees.source_of(main.path / "folder", None)
    assert (source.name, source.inside, source.branch) == ("demo", "folder", "main")
    _, inner = made(main)
    again = worktrees.source_of(inner.path, None)
    assert (again.name, again.common, again.branch) == ("demo", source.common, "ralph/fix")


def test_what_is_there_is_not_made_twice(main: WorkTree) -> None:
    tree, inner = made(main)
    (inner.path / "folder/file").write_text("changed")

    worktrees.make(tree)

    assert (inner.path / "folder/file").read_text() == "changed"
    assert main.git("worktree", "list").count("\n") == 2


def test_a_half_made_worktree_is_completed(main: WorkTree) -> None:
    tree = tree_of(main)
    main.git("branch", tree.branch)
    main.git("worktree", "add", "-q", "--no-checkout", tree.path, tree.branch)

    worktrees.make(tree)

    assert (Path(tree.path) / "folder/file").read_text() == "first"
    assert "locked ralphd: fix" in main.git("worktree", "list", "--porcelain")


def test_a_staged_file_survives_the_deletion_of_its_worktree(main: WorkTree) -> None:
    tree, inner = made(main)
    (inner.path / "staged").write_text("staged")
    inner.git("add", "staged")
    os.rename(inner.path, inner.path.with_name("away"))

    worktrees.make(tree)

    assert (inner.path / "staged").read_text() == "staged"
    assert inner.git("status", "--porcelain") == "A  staged\n"


def test_a_worktree_that_git_has_forgotten_is_added_again(main: WorkTree) -> None:
    tree, inner = made(main)
    inner.commit("work")
    main.git("worktree", "unlock", tree.path)
    main.git("worktree", "remove", tree.path)

    worktrees.make(tree)

    assert (inner.path / "work").read_text() == "work"


def test_a_worktree_outlives_the_one_it_was_made_from(main: WorkTree) -> None:
    first, outer = made(main, "first")
    source = worktrees.source_of(outer.path, None)
    assert source.top == outer.path
    path = outer.path.with_name("second")
    second = replace(first, name="second", path=str(path), source=str(source.top), branch="ralph/second")
    worktrees.make(replace(second, stage="making"))
    remove(first)
    shutil.rmtree(path)

    assert not worktrees.facts_of(second).is_there
    worktrees.make(second)
    assert (path / "folder/file").exists()
    worktrees.unlock(second)
    remove(second)

    assert not path.exists() and "ralph/second" not in main.git("branch")


def test_a_bare_repository_has_worktrees_where_it_has_a_work_tree(main: WorkTree, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    main.git("clone", "-q", "--bare", str(main.path), str(bare))
    (tmp_path / "around").mkdir()
    (tmp_path / "around/.git").write_text("gitdir: ../bare.git\n")
    for directory in (bare, tmp_path / "around"):
        with pytest.raises(RalphdError, match="not in a work tree of git") as refused:
            worktrees.source_of(directory, None)
        assert "worktree add PATH" in refused.value.mend
    main.git("-C", str(bare), "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    tree, inner = made(WorkTree(tmp_path / "linked"))
    assert worktrees.source_of(inner.path, None).name == "bare"
    remove(tree)
    assert not inner.path.exists()


def test_a_bare_repository_beside_its_work_trees_is_none_of_them(main: WorkTree, tmp_path: Path) -> None:
    """In a common layout the folder around them has a ``.git`` that leads to the bare repository."""
    main.git("clone", "-q", "--bare", str(main.path), str(tmp_path / "all/.bare"))
    (tmp_path / "all/.git").write_text("gitdir: ./.bare\n")
    for name in ("main", "from"):
        add = ("worktree", "add", "-q", str(tmp_path / "all" / name))
        main.git("-C", str(tmp_path / "all"), *add, *(("main",) if name == "main" else ()))
    tree, inner = made(WorkTree(tmp_path / "all/from"))
    main.git("-C", str(tmp_path / "all"), "worktree", "remove", "from")
    remove(tree)
    assert not inner.path.exists()


def test_a_branch_that_is_gone_is_not_made_from_an_old_commit(main: WorkTree) -> None:
    tree, _ = made(main)
    main.git("worktree", "remove", "--force", "--force", tree.path)
    main.git("branch", "-D", tree.branch)
    with pytest.raises(RalphdError, match="is gone"):
        worktrees.make(tree)


def test_something_in_the_way_stays(main: WorkTree) -> None:
    tree = tree_of(main)
    Path(tree.path).mkdir(parents=True)
    (Path(tree.path) / "mine").touch()
    with pytest.raises(RalphdError, match="in the way"):
        worktrees.make(tree)
    assert (Path(tree.path) / "mine").exists()


def test_facts_count_what_is_nowhere_else(main: WorkTree) -> None:
    tree, inner = made(main)
    assert not why_kept(worktrees.facts_of(tree))
    inner.commit("work")
    main.commit("other")
    (inner.path / "new").touch()
    facts = worktrees.facts_of(tree)
    assert (facts.ahead, facts.behind, facts.unlanded, facts.dirty) == (1, 1, 1, ("new",))
    inner.git("switch", "-q", "--detach")
    inner.commit("detached")
    assert worktrees.facts_of(tree).unlanded == 2
    head = inner.git("rev-parse", "HEAD").strip()
    main.git("update-ref", "refs/remotes/origin/x", head)
    assert worktrees.facts_of(tree).unlanded == 0
    main.git("update-ref", "-d", "refs/remotes/origin/x")
    main.git("update-ref", f"refs/ralph/rebased/{head}", head)  # landed as copies
    assert worktrees.facts_of(tree).unlanded == 0


def test_what_another_branch_has_is_not_only_here(main: WorkTree) -> None:
    main.git("switch", "-q", "-c", "feature")
    tree, inner = made(main)
    inner.commit("work")
    assert tree.target == "feature" and worktrees.facts_of(tree).unlanded == 1
    main.git("branch", "-f", "main", "ralph/fix")  # it landed
    assert worktrees.facts_of(tree).unlanded == 0
    assert worktrees.facts_of(tree).ahead == 1


def test_removal_refuses_what_git_refuses_and_locks_again(main: WorkTree) -> None:
    tree, inner = made(main)
    judged = worktrees.facts_of(tree)
    (inner.path / "new").touch()
    with pytest.raises(NotDone, match="not committed: new"):
        worktrees.remove(tree, judged)
    assert (inner.path / "new").exists()
    assert "locked ralphd: fix" in main.git("worktree", "list", "--porcelain")


def test_what_changes_after_it_was_saved_is_not_removed(main: WorkTree, tmp_path: Path) -> None:
    tree, inner = made(main)
    (inner.path / "new").write_text("saved")
    ref = worktrees.keep(tree, tmp_path)
    (inner.path / "new").write_text("changed since")
    with pytest.raises(NotDone, match="changed since they were saved"):
        remove(tree, kept_as=ref, scratch=tmp_path)
    assert (inner.path / "new").read_text() == "changed since"

    second = worktrees.keep(tree, tmp_path)
    remove(tree, kept_as=second, scratch=tmp_path)

    assert second == f"{ref}-2"
    assert main.git("show", f"{second}:new") == "changed since"
    assert not inner.path.exists() and "ralph/fix" not in main.git("branch")


@pytest.mark.parametrize("folder", ["lib", "folder"])
def test_a_repository_within_is_neither_saved_nor_removed(
    main: WorkTree, tmp_path: Path, folder: str
) -> None:
    tree, inner = made(main)
    (inner.path / folder).mkdir(exist_ok=True)
    inner.git("init", "-q", folder)
    lib = WorkTree(inner.path / folder)
    lib.git("commit", "-q", "--allow-empty", "-m", "its own")

    with pytest.raises(NotDone, match=f"{folder} is a repository of its own"):
        worktrees.keep(tree, tmp_path)
    with pytest.raises(NotDone, match=f"{folder} is a repository of its own"):
        remove(tree)
    with pytest.raises(NotDone, match=f"{folder} is a repository of its own"):
        remove(tree, kept_as="main", scratch=tmp_path)

    assert "its own" in lib.git("log")
    assert "refs/ralph/trees" not in main.git("for-each-ref")


def test_a_repository_that_git_ignores_goes_with_the_worktree(main: WorkTree, tmp_path: Path) -> None:
    main.git("commit", "-q", "--allow-empty", "-m", "second")
    (main.path / ".git/info/exclude").write_text("built/\n")
    tree, inner = made(main)
    inner.git("init", "-q", "built/lib")
    remove(tree, kept_as=worktrees.keep(tree, tmp_path), scratch=tmp_path)
    assert not inner.path.exists()


def test_files_of_a_submodule_without_its_git_are_not_lost(main: WorkTree, tmp_path: Path) -> None:
    tree, inner = made(main)
    (inner.path / "lib").mkdir()
    inner.git("update-index", "--add", "--cacheinfo", f"160000,{tree.start},lib")
    inner.git("commit", "-q", "-m", "a link")
    (inner.path / "lib/file").write_text("work")
    with pytest.raises(NotDone, match="lib is a repository of its own"):
        worktrees.keep(tree, tmp_path)
    with pytest.raises(NotDone, match="lib is a repository of its own"):
        remove(tree)
    assert (inner.path / "lib/file").exists()


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_no_flag_of_the_index_hides_work(main: WorkTree, tmp_path: Path, flag: str) -> None:
    tree, inner = made(main)
    judged = worktrees.facts_of(tree)
    inner.git("update-index", flag, "folder/file")
    assert worktrees.facts_of(tree).dirty == ()
    (inner.path / "folder/file").write_text("work!")

    assert worktrees.facts_of(tree).dirty == ("folder/file",)
    with pytest.raises(NotDone, match="not committed: folder/file"):
        worktrees.remove(tree, judged)
    assert (inner.path / "folder/file").read_text() == "work!"
    ref = worktrees.keep(tree, tmp_path)
    assert main.git("show", f"{ref}:folder/file") == "work!"
    remove(tree, kept_as=ref, scratch=tmp_path)
    assert not inner.path.exists()


def test_what_a_sparse_checkout_leaves_out_is_not_work(main: WorkTree, tmp_path: Path) -> None:
    tree, inner = made(main)
    inner.git("sparse-checkout", "set", "--no-cone", "nothing")
    assert not (inner.path / "folder").exists()
    assert worktrees.facts_of(tree).dirty == ()
    (inner.path / "new").write_text("work")
    ref = worktrees.keep(tree, tmp_path)
    assert main.git("show", f"{ref}:folder/file", f"{ref}:new") == "firstwork"


@pytest.mark.parametrize("is_detached", [False, True])
def test_commits_made_since_it_was_judged_stay(main: WorkTree, is_detached: bool) -> None:
    tree, inner = made(main)
    if is_detached:
        inner.git("switch", "-q", "--detach")
    judged = worktrees.facts_of(tree)
    inner.commit("late")
    with pytest.raises(NotDone, match="commits were made in it meanwhile"):
        worktrees.remove(tree, judged)
    assert (inner.path / "late").exists()
    assert "locked ralphd: fix" in main.git("worktree", "list", "--porcelain")


def test_a_branch_that_moves_during_the_removal_stays(
    main: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, _ = made(main)
    main.git("switch", "-q", "--detach")
    main.commit("late")

    def moved(name: str) -> None:
        if name == "worktree.removed":
            main.git("update-ref", "refs/heads/ralph/fix", "HEAD")

    monkeypatch.setattr(worktrees, "reach", moved)
    with pytest.raises(NotDone):
        remove(tree)
    assert "late" in main.git("log", "ralph/fix")
    assert worktrees.facts_of(tree).unlanded == 1


def test_detached_commits_of_a_deleted_worktree_count(main: WorkTree) -> None:
    tree, inner = made(main)
    inner.git("switch", "-q", "--detach")
    inner.commit("work")
    shutil.rmtree(inner.path)
    assert worktrees.facts_of(tree).unlanded == 1


@pytest.mark.parametrize("is_later", [False, True])
def test_a_worktree_behind_a_link_is_removed_whole(main: WorkTree, tmp_path: Path, is_later: bool) -> None:
    (main.path / ".worktreeinclude").write_text(".env\n")
    (main.path / ".git/info/exclude").write_text(".env\n")
    main.git("add", ".worktreeinclude")
    main.git("commit", "-q", "-m", "files")
    (main.path / ".env").touch()
    if not is_later:
        (tmp_path / "big").mkdir()
        (tmp_path / "trees").symlink_to("big")
    tree, inner = made(main)
    if is_later:
        (tmp_path / "trees").rename(tmp_path / "big")
        (tmp_path / "trees").symlink_to("big")

    worktrees.make(tree)
    assert include.include(Path(tree.source), Path(tree.path)) == ([".env"], [])
    remove(tree)

    assert not (tmp_path / "big/fix").exists() and not inner.path.exists()
    assert "ralph/fix" not in main.git("branch") and main.git("worktree", "list").count("\n") == 1


def test_a_worktree_that_git_does_not_know_stays(main: WorkTree) -> None:
    tree, inner = made(main)
    away = inner.path.with_name("away")
    inner.path.rename(away)
    main.git("worktree", "unlock", tree.path)
    main.git("worktree", "repair", str(away))
    shutil.copytree(away, inner.path)
    with pytest.raises(NotDone, match="git does not know"):
        remove(tree)
    assert inner.path.exists() and "ralph/fix" in main.git("branch")


@pytest.mark.parametrize("branch", ["ralph/landed", "ralph/landed/x"])
def test_the_branch_of_the_landing_queue_is_reserved(main: WorkTree, branch: str) -> None:
    source = worktrees.source_of(main.path, None)
    with pytest.raises(UsageError, match="landing queue's"):
        worktrees.has_branch(source, branch, None, main.path.parent / "x")


def test_the_advice_for_submodules_makes_a_clone_with_them(main: WorkTree) -> None:
    (main.path / ".gitmodules").touch()
    main.commit("modules")
    with pytest.raises(UsageError, match="has submodules") as refused:
        worktrees.source_of(main.path, None)
    assert refused.value.mend == f"git clone --recurse-submodules {main.path} {main.path}-2"
    main.git(*shlex.split(refused.value.mend)[1:])


def test_a_branch_that_was_there_before_stays(main: WorkTree) -> None:
    main.git("branch", "ralph/fix")
    tree, _ = made(main)
    remove(replace(tree, has_branch=True))
    assert "ralph/fix" in main.git("branch")


def test_a_shallow_clone_has_worktrees(main: WorkTree, tmp_path: Path) -> None:
    main.commit("second")
    main.git("clone", "-q", "--depth", "1", f"file://{main.path}", str(tmp_path / "shallow"))
    _, inner = made(WorkTree(tmp_path / "shallow"))
    assert (inner.path / "second").read_text() == "second"


# --- .worktreeinclude -----------------------------------------------------------------------------------


def test_included_files_are_copied_as_git_matches_them(main: WorkTree) -> None:
    (main.path / ".worktreeinclude").write_text(".env*\n!.env.old\ncache/\n")
    (main.path / "cache").mkdir()
    for name in (".env", ".env.old", "cache/x", "other"):
        (main.path / name).write_text(name)
    (main.path / ".env").chmod(0o600)
    (main.path / "cache/link").symlink_to("x")
    tree, inner = made(main)

    copied, left_out = include.include(Path(tree.source), Path(tree.path))

    assert (sorted(copied), left_out) == ([".env", "cache/link", "cache/x"], [])
    assert (inner.path / ".env").read_text() == ".env"
    assert (inner.path / ".env").stat().st_mode & 0o777 == 0o600
    assert (inner.path / "cache/link").readlink() == Path("x")
    assert not (inner.path / "other").exists()


def test_a_worktree_is_as_readable_as_a_clone(main: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    (main.path / ".worktreeinclude").write_text("cache/\n")
    (main.path / "cache/in").mkdir(parents=True)
    (main.path / "cache/in/x").touch()
    monkeypatch.setattr(repo, "umask", 0o022)
    umask = os.umask(0o077)  # the daemon's
    try:
        tree, inner = made(main)
        include.include(Path(tree.source), Path(tree.path))
    finally:
        os.umask(umask)

    modes = {
        name: oct((inner.path / name).stat().st_mode & 0o777) for name in (".", "cache/in", "folder/file")
    }
    assert modes == {".": "0o755", "cache/in": "0o755", "folder/file": "0o644"}


def test_no_file_of_the_worktree_is_replaced(main: WorkTree) -> None:
    (main.path / ".worktreeinclude").write_text(".env\n")
    (main.path / ".env").write_text("new")
    tree, inner = made(main)
    (inner.path / ".env").write_text("own")
    assert include.include(Path(tree.source), Path(tree.path)) == ([], [])
    include.remove_included(tree)
    assert (inner.path / ".env").read_text() == "own"


def test_what_is_too_large_or_no_file_is_left_out(main: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(include, "INCLUDED_BYTES", 3)
    monkeypatch.setattr(include, "_FICLONE", 0)
    (main.path / ".worktreeinclude").write_text("in*\n")
    (main.path / "in-1").write_text("1234")
    (main.path / "in-2").write_text("12")
    tree, inner = made(main)
    assert include.include(Path(tree.source), Path(tree.path)) == (["in-2"], ["in-1"])
    assert sorted(each.name for each in inner.path.iterdir()) == [".git", "folder", "in-2"]


def test_a_folder_that_leads_outside_gets_no_copy(main: WorkTree, tmp_path: Path) -> None:
    (main.path / ".worktreeinclude").write_text("out/\n")
    (main.path / "out").mkdir()
    (main.path / "out/x").touch()
    tree, inner = made(main)
    (tmp_path / "outside").mkdir()
    (inner.path / "out").symlink_to(tmp_path / "outside")
    assert include.include(Path(tree.source), Path(tree.path)) == ([], ["out/x"])
    assert list((tmp_path / "outside").iterdir()) == []
