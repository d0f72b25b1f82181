"""The earlier versions of test files are shown for one run of the tests, and nobody's work is lost (A9)."""

import os
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Ran, Result, Shown
from ralphd.git.rewrite.old_tests import show_old
from ralphd.git.rewrite.stash import put_back
from tests.git.guard_world import carried_out, committed, everything, head, refusal, write
from tests.git.work_tree import WorkTree

LABEL = "my-ralph/3"


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    long = "".join(f"line {number}\n" for number in range(30))
    committed(tree, "first", code="1\n", test_a__py="", tests__test_deleted="")
    names = {
        "tests/test_changed.py": "old\n",
        "tests/test_deleted.py": "old\n",
        "tests/test_emptied.py": "old\n",
    }
    names |= {
        "tests/test_moved.py": long,
        "tests/test_renamed.py": f"{long}old\n",
        "tests/test_out.py": f"x\n{long}",
    }
    names |= {"tests/test_same.py": "same\n", "deep/er/test_alone.py": "old\n"}
    for name, text in names.items():
        write(tree, name, text)
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "-m", "tests")
    return tree


def weaken(tree: WorkTree) -> str:
    """Commit one of each change; the commit before."""
    before = head(tree)
    write(tree, "tests/test_changed.py", "new\n")
    (tree.path / "tests/test_changed.py").chmod(0o640)
    (tree.path / "tests/test_deleted.py").unlink()
    (tree.path / "deep/er/test_alone.py").unlink()
    (tree.path / "deep/er").rmdir()
    write(tree, "tests/test_emptied.py", " \n")
    tree.git("mv", "tests/test_moved.py", "tests/test_moved_here.py")
    tree.git("mv", "tests/test_renamed.py", "tests/test_renamed_too.py")
    with (tree.path / "tests/test_renamed_too.py").open("a") as file:
        file.write("new\n")
    tree.git("mv", "tests/test_out.py", "tests/out.txt")
    write(tree, "tests/test_new.py", "new\n")
    write(tree, "code", "2\n")
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "-m", "weaker")
    return before


def test_each_kind_of_change_is_shown_and_put_back(tree: WorkTree) -> None:
    before = weaken(tree)
    write(tree, "tests/test_changed.py", "a person's, not committed\n")
    write(tree, "tests/test_staged.py", "staged\n")
    tree.git("add", "tests/test_staged.py")
    was = everything(tree)

    shown = show_old(tree.path, LABEL, before, ())

    assert isinstance(shown, Shown)
    gone = {"deep/er/test_alone.py", "tests/test_out.py", "tests/test_deleted.py", "tests/test_emptied.py"}
    assert set(shown.gone) == gone
    assert set(shown.changed) == gone | {"tests/test_changed.py", "tests/test_renamed_too.py"}
    for name in ("changed", "deleted", "emptied"):
        assert (tree.path / f"tests/test_{name}.py").read_text() == "old\n", name
    assert (tree.path / "tests/test_renamed_too.py").read_text().endswith("old\n")
    assert not (tree.path / "tests/test_moved.py").exists(), "moved, but not changed"
    assert (tree.path / "tests/test_new.py").read_text() == "new\n"
    assert (tree.path / "code").read_text() == "2\n"
    assert show_old(tree.path, LABEL, before, ()) == shown, "carried out twice it is the same"

    assert carried_out(put_back(tree.path, LABEL)) == head(tree)
    assert everything(tree) == was
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_a_crash_between_two_files_is_continued_or_put_back(tree: WorkTree) -> None:
    before = weaken(tree)
    was = everything(tree)
    show_old(tree.path, LABEL, before, ())
    (tree.path / "tests/test_changed.py").write_text("new\n")
    (tree.path / "tests/test_changed.py").chmod(0o640)
    (tree.path / "tests/test_deleted.py").unlink()

    assert isinstance(show_old(tree.path, LABEL, before, ()), Shown)
    carried_out(put_back(tree.path, LABEL))
    assert everything(tree) == was


def test_a_file_that_somebody_writes_is_never_overwritten(tree: WorkTree) -> None:
    before = weaken(tree)
    show_old(tree.path, LABEL, before, ())
    write(tree, "tests/test_emptied.py", "a person's\n")

    carried_out(put_back(tree.path, LABEL))
    assert (tree.path / "tests/test_emptied.py").read_text() == "a person's\n"


def test_no_changed_test_file_needs_no_run(tree: WorkTree) -> None:
    before = head(tree)
    committed(tree, "code", code="2\n", tests__test_new="x")

    assert show_old(tree.path, LABEL, before, ()) == Ran(Result.GREEN)
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_the_first_commit_has_no_earlier_tests(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "new")
    committed(tree, "first", code="1\n", test_a__py="1\n")
    assert show_old(tree.path, LABEL, "", (), "./t.sh") == Ran(Result.GREEN)


def test_a_folder_that_became_a_link_is_not_followed(tree: WorkTree, tmp_path: Path) -> None:
    before = head(tree)
    (tmp_path / "outside").mkdir()
    (tree.path / "deep/er/test_alone.py").unlink()
    (tree.path / "deep/er").rmdir()
    os.symlink(tmp_path / "outside", tree.path / "deep/er")
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "-m", "a link")

    assert "in the way: deep/er" in refusal(show_old(tree.path, LABEL, before, ()))
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_script_is_shown_as_it_was_at_the_start(tree: WorkTree) -> None:
    write(tree, "t.sh", "exit 1\n")
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "-m", "a script")
    start = head(tree)
    write(tree, "t.sh", "exit 0\n")
    tree.git("commit", "--quiet", "-a", "-m", "replaced")
    before = head(tree)
    committed(tree, "code", code="2\n")
    was = everything(tree)

    assert show_old(tree.path, LABEL, before, (), start=start) == Ran(Result.GREEN), "it is no test file"
    shown = show_old(tree.path, LABEL, before, (), "sh ./t.sh", start=start)

    assert shown == Shown(("t.sh",), ())
    assert (tree.path / "t.sh").read_text() == "exit 1\n"
    carried_out(put_back(tree.path, LABEL))
    assert everything(tree) == was
    assert show_old(tree.path, LABEL, before, (), "sh ./t.sh", start="0" * 40) == Ran(Result.GREEN)


def test_a_new_module_that_hides_the_runner_is_named(tree: WorkTree) -> None:
    before = head(tree)
    write(tree, "unittest.py", "")
    tree.git("add", "-A")
    tree.git("commit", "--quiet", "-m", "hides")

    shown = show_old(tree.path, LABEL, before, (), "python -m unittest")
    assert shown == Shown((), (), ("unittest.py",))
    assert tree.git("for-each-ref", "refs/ralph") == ""
