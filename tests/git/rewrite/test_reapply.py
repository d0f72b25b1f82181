"""The refs that keep former states: what is new stays, what is old goes, what can be undone stays."""

import subprocess
from pathlib import Path

import pytest

from ralphd.core.gate.git_repair import RewriteAction
from ralphd.git.facts import position
from ralphd.git.rewrite import reapply
from ralphd.git.rewrite.reapply import KEPT_S, forget_old
from tests.git.work_tree import WorkTree

NOW = 1_800_000_000.0
SPACES = ("left", "repaired", "undone", "aside")


def refs(tree: WorkTree) -> set[str]:
    return set(tree.git("for-each-ref", "--format=%(refname)", "refs/ralph/").split())


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    return tree


def made_at(tree: WorkTree, at: float) -> str:
    """A commit with this date."""
    who = f"x <x@example.invalid> {int(at)} +0000"
    (tree.path / "commit").write_text(
        f"tree {tree.git('rev-parse', 'HEAD^{tree}').strip()}\nauthor {who}\ncommitter {who}\n\nx\n"
    )
    return tree.git("hash-object", "-t", "commit", "-w", "commit").strip()


def test_old_refs_go_and_new_ones_stay(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reapply, "KEPT", 2)
    old, young = made_at(tree, NOW - KEPT_S - 60), made_at(tree, NOW - KEPT_S + 60)
    commits = {"r000001-a": old, "r000002-b": old, "r000003-c": young, "r000004-d": young, "r000005-e": young}
    for space in SPACES:
        for label, sha in commits.items():
            tree.git("update-ref", f"refs/ralph/{space}/demo/{label}", sha)
    tree.git("update-ref", "refs/ralph/left/other/r000001-a", old)
    tree.git("update-ref", "refs/ralph/left/demo/r000000\u2028y", old)
    asked: list[str] = []

    def spared() -> list[str]:
        asked.append("once")
        return ["refs/ralph/left/demo/r000002-b/rewritten"]

    forget_old(tree.path, "demo", NOW, spared)
    kept = {f"refs/ralph/{space}/demo/{label}" for space in SPACES for label in commits if label[6] != "1"}
    assert refs(tree) == kept | {"refs/ralph/left/other/r000001-a"}
    forget_old(tree.path, "demo", NOW, spared)
    assert len(asked) == 2


def test_the_newest_stay_however_old(tree: WorkTree) -> None:
    for number in range(5):
        tree.git("update-ref", f"refs/ralph/aside/demo/r{number}", made_at(tree, 1_000_000_000 + number))
    before = refs(tree)
    forget_old(tree.path, "demo", NOW, list)
    assert refs(tree) == before


def test_a_branch_whose_name_cannot_be_told_is_not_made_up(tree: WorkTree) -> None:
    """Its name as a position has it is not UTF-8's: no such branch exists, and none is lost."""
    subprocess.run(["git", "switch", "-q", "-c", b"caf\xe9"], cwd=tree.path, check=True)
    tree.commit("second")
    before = tree.git("for-each-ref", "--format=%(objectname)")
    assert reapply.restore_judged(tree.path, position(tree.path), label="demo/r1", pauses=False) is None
    assert tree.git("for-each-ref", "--format=%(objectname)") == before


def test_where_git_refuses_the_repository_no_loss_is_claimed(tree: WorkTree) -> None:
    good = position(tree.path)
    tree.git("config", "core.repositoryFormatVersion", "99")

    done = reapply.restore_judged(tree.path, good, label="demo/r1", pauses=False)

    assert done is not None
    assert done.action is RewriteAction.LEAVE
    assert "try it: git -C" in done.why
