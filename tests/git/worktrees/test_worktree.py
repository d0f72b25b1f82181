"""Worktrees by git: made, made again, examined, saved, removed (W1 to W5)."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.worktrees.rules import Worktree, why_kept
from ralphd.errors import RalphdError
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
    worktrees.remove(first)
    shutil.rmtree(path)

    assert not worktrees.facts_of(second).is_there
    worktrees.make(second)
    assert (path / "folder/file").exists()
    worktrees.unlock(second)
    worktrees.remove(second)

    assert not path.exists() and "ralph/second" not in main.git("branch")


def test_a_bare_repository_has_worktrees_where_it_has_a_work_tree(main: WorkTree, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    main.git("clone", "-q", "--bare", str(main.path), str(bare))
    with pytest.raises(RalphdError, match="not in a work tree of git") as refused:
        worktrees.source_of(bare, None)
    assert "worktree add PATH" in refused.value.mend
    main.git("-C", str(bare), "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    tree, inner = made(WorkTree(tmp_path / "linked"))
    assert worktrees.source_of(inner.path, None).name == "bare"
    worktrees.remove(tree)
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
    assert not why_kept(worktrees.facts_of(tree), "main")
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


def test_removal_refuses_what_git_refuses_and_locks_again(main: WorkTree) -> None:
    tree, inner = made(main)
    (inner.path / "new").touch()
    with pytest.raises(NotDone):
        worktrees.remove(tree)
    assert (inner.path / "new").exists()
    assert "locked ralphd: fix" in main.git("worktree", "list", "--porcelain")


def test_what_changes_after_it_was_saved_is_not_removed(main: WorkTree, tmp_path: Path) -> None:
    tree, inner = made(main)
    (inner.path / "new").write_text("saved")
    ref = worktrees.keep(tree, tmp_path)
    (inner.path / "new").write_text("changed since")
    with pytest.raises(NotDone, match="changed since they were saved"):
        worktrees.remove(tree, kept_as=ref, scratch=tmp_path)
    assert (inner.path / "new").read_text() == "changed since"

    second = worktrees.keep(tree, tmp_path)
    worktrees.remove(tree, kept_as=second, scratch=tmp_path)

    assert second == f"{ref}-2"
    assert main.git("show", f"{second}:new") == "changed since"
    assert not inner.path.exists() and "ralph/fix" not in main.git("branch")


def test_a_branch_that_was_there_before_stays(main: WorkTree) -> None:
    main.git("branch", "ralph/fix")
    tree, _ = made(main)
    worktrees.remove(replace(tree, has_branch=True))
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
