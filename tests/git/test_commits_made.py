"""Which commits were made between two heads."""

from pathlib import Path

import pytest

from ralphd.git import facts as module
from ralphd.git.facts import Made, made, position
from tests.git.work_tree import WorkTree


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    return tree


def head(tree: WorkTree) -> str:
    found = position(tree.path).head
    assert found is not None
    return found


def test_the_commits_are_told_newest_first_with_short_shas(tree: WorkTree) -> None:
    before = head(tree)
    tree.commit("second")
    tree.commit("third\ttab é")

    found = made(tree.path, before, head(tree))

    assert list(found.shas) == tree.git("log", "--format=%h", "-2").split()
    assert found.count == 2


def test_a_first_commit_counts(tree: WorkTree) -> None:
    assert made(tree.path, None, head(tree)).count == 1


def test_many_are_counted_and_some_named(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMED", 2)
    for number in range(4):
        tree.commit(f"{number}")

    found = made(tree.path, None, head(tree))

    assert (len(found.shas), found.count) == (2, 5)


def test_what_was_taken_away_by_a_reset_is_nothing_made(tree: WorkTree) -> None:
    tree.commit("second")
    before = head(tree)
    tree.git("reset", "--quiet", "--hard", "HEAD~1")

    assert made(tree.path, before, head(tree)) == Made()


@pytest.mark.parametrize("before", ["--all", "HEAD", "0" * 40, "", "x" * 40])
def test_what_is_no_commit_of_the_repository_gives_nothing(tree: WorkTree, before: str) -> None:
    assert made(tree.path, before, head(tree)) == Made()


def test_without_a_commit_or_a_repository_there_is_no_head(tmp_path: Path) -> None:
    assert position(tmp_path).head is None
    assert position(WorkTree.new(tmp_path / "empty").path).head is None
    assert made(tmp_path, None, None) == Made()
    assert made(tmp_path, None, "1" * 40) == Made()
