"""What the guard cannot do in a repository is told at the start, not by its first verdict (R8)."""

from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.config.configuration import Configuration
from ralphd.daemon.registration import notes_on_gate
from ralphd.errors import ConfigFaults
from tests.git.work_tree import WorkTree


def guarded(tests: str = "make test", *, is_on: bool = True) -> Configuration:
    regent = replace(Configuration().regent, rollback_on_test_failure=is_on, test_command=tests)
    return replace(Configuration(), regent=regent)


def test_where_it_would_pause_at_the_first_commit_it_says_so_before(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    assert notes_on_gate(tree.path, guarded()) == []
    tree.git("checkout", "--quiet", "--detach")
    [note] = notes_on_gate(tree.path, guarded())
    assert note.startswith("the guard will pause Ralph at a commit: HEAD is detached at ")
    assert notes_on_gate(tree.path, guarded(is_on=False)) == []


def test_without_tests_it_is_refused_and_without_a_repository_it_is_off(tmp_path: Path) -> None:
    with pytest.raises(ConfigFaults, match="test_command is not"):
        notes_on_gate(tmp_path, guarded(" "))
    [note] = notes_on_gate(tmp_path, guarded())
    assert note.startswith("the guard is off")
