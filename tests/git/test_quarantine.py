"""What a crashed agent has left half written is kept, and taken out; what was there before it stays."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ralphd.git import repair
from ralphd.git.repair import put_away, uncommitted_paths
from tests.git.guard_world import committed, head, write
from tests.git.work_tree import WorkTree

REF = "refs/ralph/left/my-ralph/r1-2-1/files"
STAGED = "refs/ralph/left/my-ralph/r1-2-1/staged"
STILL_THERE = "what the attempt before has left half written is still there: "


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository in which a person has uncommitted work: a change, a staged change, a new file."""
    tree = WorkTree.new(tmp_path / "tree")
    committed(
        tree, "first", code="one\n", mine="one\n", staged="one\n", gone="x\n", **{".gitignore": "out/\n"}
    )
    write(tree, "mine", "two\n")
    write(tree, "staged", "two\n")
    tree.git("add", "staged")
    write(tree, "notes", "new\n")
    return tree


def before(tree: WorkTree) -> frozenset[bytes]:
    found = uncommitted_paths(tree.path)
    assert found is not None and set(found) == {b"mine", b"staged", b"notes"}
    return found


def away(tree: WorkTree, was: frozenset[bytes]) -> str:
    return put_away(tree.path, was, "my-ralph/r1-2-1", scratch=tree.path.parent)


def test_what_came_with_the_attempt_goes_under_a_ref_and_what_was_there_stays(tree: WorkTree) -> None:
    was, commit, status = before(tree), head(tree), tree.git("status", "--porcelain")
    write(tree, "code", "half of")
    write(tree, "new/deep.py", "def later(:")
    write(tree, "out/built", "ignored")
    write(tree, "mine", "two, and the agent was here\n")
    (tree.path / "gone").unlink()
    os.symlink("code", tree.path / "link")
    tree.git("add", "new/deep.py")

    found = away(tree, was)

    assert found == (
        "what the attempt before had not committed when it crashed was set aside: "
        f"code, gone, link and 1 more. See it: git show --stat {REF}. "
        f"Take back what is good: git checkout {REF} -- FILE"
    )
    assert tree.git("show", f"{REF}:code") == "half of"
    assert tree.git("show", f"{REF}:new/deep.py") == "def later(:"
    assert tree.git("show", f"{REF}:mine") == "two, and the agent was here\n"
    assert (tree.path / "code").read_text() == "one\n" and (tree.path / "gone").read_text() == "x\n"
    assert not (tree.path / "new").exists() and not (tree.path / "link").is_symlink()
    assert (tree.path / "mine").read_text() == "two, and the agent was here\n"
    assert (tree.path / "out" / "built").read_text() == "ignored"
    assert (tree.git("status", "--porcelain"), head(tree)) == (status, commit)
    tree.git("checkout", REF, "--", "new/deep.py")
    assert (tree.path / "new" / "deep.py").read_text() == "def later(:"


def test_nothing_new_is_nothing(tree: WorkTree) -> None:
    refs = tree.git("for-each-ref")
    assert away(tree, before(tree)) == ""
    assert tree.git("for-each-ref") == refs


@pytest.mark.parametrize("what", ["large", "merge", "lock"])
def test_where_it_cannot_all_be_kept_nothing_is_touched_and_that_is_said(tree: WorkTree, what: str) -> None:
    was = before(tree)
    write(tree, "code", "half of")
    match what:
        case "large":
            with (tree.path / "core.dump").open("wb") as file:
                file.truncate(11 << 20)
        case "merge":
            (tree.path / ".git" / "MERGE_HEAD").write_text(head(tree) + "\n")
        case _:
            (tree.path / ".git" / "index.lock").touch()

    found = away(tree, was)

    words = {"large": "core.dump is too large", "merge": "a merge is half done", "lock": "index.lock"}
    assert found.startswith(STILL_THERE) and words[what] in found
    assert (tree.path / "code").read_text() == "half of"


def test_before_the_first_commit_new_files_are_kept_too(tmp_path: Path) -> None:
    tree = WorkTree(tmp_path / "young")
    tree.path.mkdir()
    tree.git("init", "--quiet")
    write(tree, "notes", "mine\n")
    was = uncommitted_paths(tree.path)
    assert was is not None and set(was) == {b"notes"}
    write(tree, "half.py", "def")

    found = away(tree, was)

    assert ": half.py. See it" in found and not (tree.path / "half.py").exists()
    assert tree.git("show", f"{REF}:half.py") == "def"
    assert (tree.path / "notes").read_text() == "mine\n"


def test_what_was_ignored_before_stays_whatever_became_of_the_list(tree: WorkTree) -> None:
    """A person's own settings, say; and a repository inside, whose ``.git`` went."""
    write(tree, "out/secret", "mine\n")
    write(tree, "inside/file", "mine\n")
    WorkTree.new(tree.path / "inside")
    was = uncommitted_paths(tree.path)
    assert was is not None and {b"out/", b"inside/"} <= was
    write(tree, ".gitignore", "")
    shutil.rmtree(tree.path / "inside" / ".git")

    found = away(tree, was)

    assert ": .gitignore. See it" in found and (tree.path / ".gitignore").read_text() == "out/\n"
    assert (tree.path / "out" / "secret").exists() and (tree.path / "inside" / "file").exists()


@pytest.mark.parametrize("what", ["ignored file", "ignored folder", "repository"])
def test_what_git_does_not_keep_is_not_lost_for_a_file_of_heads(tree: WorkTree, what: str) -> None:
    committed(tree, "second", dir__file="x\n")
    (tree.path / ".git" / "info" / "exclude").write_text("dir\nhere\n")
    match what:
        case "ignored file":
            shutil.rmtree(tree.path / "dir")
            kept = tree.path / "dir"
        case "ignored folder":
            (tree.path / "code").unlink()
            kept = tree.path / "code" / "here"
        case _:
            (tree.path / "code").unlink()
            WorkTree.new(tree.path / "code")
            kept = tree.path / "code" / "work"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("precious")

    found = away(tree, frozenset())

    assert kept.read_text() == "precious"
    assert found.startswith(f"{STILL_THERE}what git does not keep is in the way")


def test_a_folder_that_became_a_link_is_not_followed(tree: WorkTree) -> None:
    was, outside = before(tree), tree.path.parent / "outside"
    write(tree, "dir/file", "half of")
    tree.git("add", "dir")
    shutil.move(tree.path / "dir", outside)
    os.symlink(outside, tree.path / "dir")

    found = away(tree, was)

    assert ": dir, dir/file. See it" in found and not (tree.path / "dir").is_symlink()
    assert (outside / "file").read_text() == "half of"


def test_what_was_staged_and_is_in_no_file_is_kept_beside(tree: WorkTree) -> None:
    was = before(tree)
    write(tree, "code", "half of")
    write(tree, "new", "whole\n")
    tree.git("add", "new")
    (tree.path / "new").unlink()

    found = away(tree, was)

    assert ": code, new. See it" in found and f"(and, as it was staged: {STAGED})" in found
    assert tree.git("show", f"{STAGED}:new") == "whole\n"


def test_what_a_person_saves_at_that_very_moment_stays(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, act = before(tree), repair._set_to_head
    write(tree, "code", "half of")
    write(tree, "new", "half of")

    def saved(*given: Any) -> None:
        write(tree, "code", "a person's\n")
        write(tree, "new", "a person's\n")
        act(*given)

    monkeypatch.setattr(repair, "_set_to_head", saved)
    away(tree, was)

    assert (tree.path / "code").read_text() == (tree.path / "new").read_text() == "a person's\n"
    assert tree.git("show", f"{REF}:code") == "half of"
