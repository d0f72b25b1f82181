"""A git that is slow, or a script that starts the real one: it is given up in time, and leaves nothing."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from ralphd.git import repo, worktree_scan
from ralphd.git.worktree_scan import HeadWatch, Listing
from tests.git.work_tree import WorkTree
from tests.helpers import is_alive, wait_for


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``git`` is a script whose child does not end by itself; the pids of such children are in this file."""
    path = tmp_path / "pids"
    a_git(tmp_path, monkeypatch, f"sleep 600 &\necho $! >> '{path}'\nwait")
    return path


def a_git(place: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """From now on what is found as ``git`` is this script of a shell."""
    script = place / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")


def children(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_what_git_has_started_ends_with_it(tmp_path: Path, pids: Path) -> None:
    began = time.monotonic()

    assert repo.answer(tmp_path, "rev-parse", limit_s=1.0) is None
    assert time.monotonic() - began < 1.0 + 5.0
    (child,) = children(pids)
    wait_for(lambda: not is_alive(child), what="its end")


@pytest.mark.parametrize("limit_s", [-0.001, 0.0, 0.1])
def test_the_end_of_a_git_is_awaited_once_and_no_longer_than_its_limit(
    tmp_path: Path, pids: Path, limit_s: float
) -> None:
    git = repo.started(
        tmp_path, "rev-parse", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired) as late:
            git.wait(limit_s)
        assert late.value.timeout == 0.0, "it has waited for its limit already"
        assert git.poll() is None
    finally:
        repo.ended(git)
    assert git.wait(60.0) == -signal.SIGKILL


def test_a_list_that_is_given_up_leaves_nothing_running(tmp_path: Path, pids: Path) -> None:
    listing = Listing(tmp_path)
    (child,) = wait_for(lambda: children(pids), what="git's child")

    assert listing.is_complete(wait_s=0.0) is False
    listing.close()
    wait_for(lambda: not is_alive(child), what="its end")


def test_a_git_that_cannot_tell_what_it_ignores_hides_no_work(
    tmp_path: Path, pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphd.git.worktree_scan.IGNORED_S", 0.5)
    watched = worktree_scan.WorkTree(tmp_path)

    assert b"name" not in watched._ignored([b"name"])
    assert watched._git_free_at > time.monotonic()
    wait_for(lambda: not any(map(is_alive, children(pids))), what="the end of all")


def test_a_git_that_fails_slowly_rests_before_it_is_asked_for_head_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = WorkTree.new(tmp_path / "work")
    tree.commit("one")
    asked = tmp_path / "asked"
    a_git(tmp_path, monkeypatch, f"echo >> '{asked}'; sleep 0.5; exit 1")
    head = HeadWatch(tree.path)

    assert [head.moved() for _ in range(100)] == [False] * 100
    assert len(asked.read_text()) == 1, "after the commit, once: the branch is in HEAD"
