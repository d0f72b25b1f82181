"""What counts as a change of a working directory, what does not, and what it costs to find out (H2)."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.core.stall_detector import Changes
from ralphd.git import worktree_scan
from ralphd.git.worktree_scan import WorkTree as Watched
from tests.git.work_tree import WorkTree
from tests.helpers import is_alive, wait_for

NOTHING = Changes()


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with some files of every sort, that has rested for an hour."""
    tree = WorkTree.new(tmp_path / "tree")
    for name in ("kept.txt", "src/deep/code.py", "src/other.py"):
        path = tree.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tree.path / ".gitignore").write_text("*.log\nbuild/\n")
    tree.commit("first")
    for name in ("untracked.txt", "out.log", "build/result", ".ralph/lock"):
        path = tree.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    (tree.path / ".ralph" / ".gitignore").write_text("*\n")
    settled(tree.path)
    return tree


def settled(root: Path) -> None:
    """Let all below have been there for an hour, as far as it can be told."""
    hour_ago = time.time() - 3600
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, (hour_ago, hour_ago))


@pytest.fixture
def watched(tree: WorkTree) -> Iterator[Watched]:
    """The repository, watched from now on."""
    yield from begun(tree.path)


def begun(path: Path) -> Iterator[Watched]:
    """A directory that is watched from now on."""
    watch = Watched(path, since=time.time() + 0.05)
    try:
        assert watch.changes() == NOTHING
        wait_for(lambda: watch.changes() == NOTHING, what="rest")
        yield watch
    finally:
        watch.close()


def test_nothing_changes_by_looking(tree: WorkTree, watched: Watched) -> None:
    before = (tree.path / ".git" / "index").stat()

    assert [watched.changes() for _ in range(5)] == [NOTHING] * 5
    assert (tree.path / ".git" / "index").stat() == before
    assert not list((tree.path / ".git").glob("*.lock"))


@pytest.mark.parametrize("name", ["kept.txt", "src/deep/code.py", "untracked.txt", ".gitignore"])
def test_a_file_that_is_written_over_is_a_change_once(tree: WorkTree, watched: Watched, name: str) -> None:
    (tree.path / name).write_text("something else")

    assert watched.changes() == Changes(files=1, file=name)
    assert watched.changes() == NOTHING


def test_a_file_that_is_touched_replaced_or_removed_is_a_change(tree: WorkTree, watched: Watched) -> None:
    (tree.path / "kept.txt").touch()
    assert watched.changes() == Changes(files=1, file="kept.txt")

    (tree.path / "new").write_text("kept.txt")
    (tree.path / "new").replace(tree.path / "kept.txt")
    assert watched.changes() == Changes(files=1, file="kept.txt")

    (tree.path / "kept.txt").unlink()
    assert watched.changes() == Changes(files=1, file="kept.txt")


def test_new_files_are_changes_wherever_they_lie(tree: WorkTree, watched: Watched) -> None:
    (tree.path / "src" / "deep" / "new.py").write_text("")
    assert watched.changes() == Changes(files=1, file="src/deep/new.py")

    (tree.path / "a" / "b" / "c").mkdir(parents=True)
    assert watched.changes() == NOTHING
    (tree.path / "a" / "b" / "c" / "new.py").write_text("")
    found = wait_for(lambda: seen if (seen := watched.changes()).files else None)
    assert found == Changes(files=1, file="a/b/c/new.py")

    (tree.path / "a" / "b" / "c" / "new.py").write_text("more")
    assert watched.changes() == Changes(files=1, file="a/b/c/new.py")


def test_what_git_ignores_is_no_change_new_or_old(tree: WorkTree, watched: Watched) -> None:
    (tree.path / "out.log").write_text("more")
    (tree.path / "new.log").write_text("new")
    (tree.path / "build" / "result").write_text("more")
    (tree.path / "build" / "deep").mkdir()
    (tree.path / "build" / "deep" / "new").write_text("new")
    (tree.path / "cache").mkdir()
    (tree.path / "cache" / ".gitignore").write_text("*\n")
    (tree.path / "cache" / "entry").write_text("new")

    assert [watched.changes() for _ in range(3)] == [NOTHING] * 3


def test_what_the_regent_and_git_write_themselves_is_no_change(tree: WorkTree, watched: Watched) -> None:
    (tree.path / ".ralph" / "regent-state.json").write_text("{}")
    (tree.path / ".ralph" / ".gitignore").unlink()
    (tree.path / "src" / ".ralph").mkdir()
    (tree.path / "src" / ".ralph" / "lock").write_text("1")
    tree.git("status")

    assert [watched.changes() for _ in range(3)] == [NOTHING] * 3


def test_ignored_names_that_come_all_the_time_do_not_hide_work(tree: WorkTree, watched: Watched) -> None:
    def work_is_seen(number: int) -> bool:
        (tree.path / f"{number}.log").write_text("")
        (tree.path / "src" / f"{number}.py").write_text("")
        return bool(wait_for(lambda: watched.changes().file == f"src/{number}.py"))

    assert all(work_is_seen(number) for number in range(3))


def test_a_commit_is_told_by_its_name(tree: WorkTree, watched: Watched) -> None:
    tree.commit("second")
    changes = watched.changes()

    assert changes.committed
    assert not watched.changes().committed


def test_a_moved_head_is_told_whichever_way(tree: WorkTree, watched: Watched) -> None:
    tree.git("commit", "--quiet", "--amend", "-m", "again")
    assert watched.changes().committed
    tree.git("checkout", "--quiet", "-b", "other")
    assert not watched.changes().committed
    tree.git("commit", "--quiet", "--allow-empty", "-m", "third")
    assert watched.changes().committed
    tree.git("pack-refs", "--all")
    assert not watched.changes().committed
    tree.git("checkout", "--quiet", "--detach", "HEAD~1")
    assert watched.changes().committed


def test_a_linked_worktree_is_watched_for_itself(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    side = WorkTree(tmp_path / "side")
    for watched in begun(side.path):
        tree.commit("elsewhere")
        assert watched.changes() == NOTHING
        side.git("commit", "--quiet", "--allow-empty", "-m", "here")
        assert watched.changes() == Changes(committed=True)
        (side.path / "kept.txt").write_text("here")
        assert watched.changes() == Changes(files=1, file="kept.txt")


def test_a_directory_below_the_root_is_watched_alone(tree: WorkTree) -> None:
    for watched in begun(tree.path / "src"):
        (tree.path / "kept.txt").write_text("above")
        assert watched.changes() == NOTHING
        (tree.path / "src" / "other.py").write_text("here")
        assert watched.changes() == Changes(files=1, file="other.py")


def test_a_repository_inside_counts_with_all_its_files(tree: WorkTree) -> None:
    inner = WorkTree.new(tree.path / "vendor" / "inner")
    inner.commit("inner")
    settled(tree.path)
    for watched in begun(tree.path):
        (inner.path / "inner").write_text("changed")
        assert watched.changes() == Changes(files=1, file="vendor/inner/inner")
        (inner.path / "new").write_text("new")
        assert watched.changes() == Changes(files=1, file="vendor/inner/new")
        inner.git("status")
        assert watched.changes() == NOTHING


def test_a_submodule_counts_with_its_files(tree: WorkTree, tmp_path: Path) -> None:
    other = WorkTree.new(tmp_path / "other")
    other.commit("other")
    allow = ("-c", "protocol.file.allow=always")
    tree.git(*allow, "submodule", "--quiet", "add", str(other.path), "part")
    tree.git("commit", "--quiet", "-m", "part")
    settled(tree.path)
    for watched in begun(tree.path):
        (tree.path / "part" / "other").write_text("changed")
        assert watched.changes() == Changes(files=1, file="part/other")


def test_outside_of_a_repository_every_file_counts(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "deep").mkdir(parents=True)
    (plain / "deep" / "out.log").write_text("")
    (plain / ".ralph").mkdir()
    settled(plain)
    for watched in begun(plain):
        (plain / "deep" / "out.log").write_text("more")
        assert watched.changes() == Changes(files=1, file="deep/out.log")
        (plain / "deep" / "er").mkdir()
        (plain / "deep" / "er" / "new").write_text("new")
        assert watched.changes() == Changes(files=1, file="deep/er/new")
        (plain / ".ralph" / "lock").write_text("1")
        assert watched.changes() == NOTHING


def test_a_repository_that_is_made_meanwhile_is_noticed_by_its_first_commit(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for watched in begun(plain):
        made = WorkTree.new(plain)
        assert not watched.changes().committed
        made.commit("first")
        assert watched.changes().committed


def test_what_changed_before_the_first_look_but_after_the_silence_began_is_a_change(tree: WorkTree) -> None:
    silent_since = time.time() - 1
    (tree.path / "kept.txt").write_text("changed")
    watched = Watched(tree.path, since=silent_since)
    later = Watched(tree.path, since=time.time() + 1)
    try:
        assert watched.changes().files >= 1
        assert later.changes() == NOTHING
    finally:
        watched.close()
        later.close()


def test_special_files_links_and_loops_cost_nothing(tree: WorkTree, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tree.path / "loop").symlink_to(tree.path, target_is_directory=True)
    (tree.path / "away").symlink_to(tmp_path / "outside", target_is_directory=True)
    (tree.path / "broken").symlink_to("nowhere")
    os.mkfifo(tree.path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tree.path / "socket"))
        for watched in begun(tree.path):
            (tmp_path / "outside" / "new").write_text("new")
            os.mkfifo(tree.path / "fifo2")
            assert [watched.changes() for _ in range(3)] == [NOTHING] * 3
            (tree.path / "broken").unlink()
            (tree.path / "broken").symlink_to("elsewhere")
            assert watched.changes() == Changes(files=1, file="broken")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_may_not_be_read_is_neither_change_nor_error(tree: WorkTree) -> None:
    for watched in begun(tree.path):
        (tree.path / "src").chmod(0)
        try:
            assert [watched.changes() for _ in range(3)] == [NOTHING] * 3
        finally:
            (tree.path / "src").chmod(0o755)


def test_a_directory_that_vanishes_is_a_change_and_no_error(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "file").write_text("")
    settled(plain)
    for watched in begun(plain):
        plain.rename(tmp_path / "moved")
        assert watched.changes() == Changes(files=1, file="file")
        assert watched.changes() == NOTHING


def test_a_name_that_is_no_text_is_told_all_the_same(tree: WorkTree) -> None:
    odd = os.fsencode(tree.path) + b"/od\xffd\n name"
    for watched in begun(tree.path):
        with open(odd, "wb"):
            pass
        assert watched.changes() == Changes(files=1, file="od\ufffdd\n name")


def test_a_git_that_is_missing_or_hangs_is_done_without(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (None, "exit 1", "exec sleep 60"):
        place = tmp_path / f"bin{body and body[:6]}"
        place.mkdir()
        if body:
            (place / "git").write_text(f"#!/bin/sh\n{body}\n")
            (place / "git").chmod(0o755)
        monkeypatch.setattr("ralphd.git.worktree_scan.LISTING_S", 0.1)
        monkeypatch.setattr("ralphd.git.worktree_scan.IGNORED_S", 0.1)
        monkeypatch.setattr("ralphd.git.repo.TIME_LIMIT_S", 0.1)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", f"{place}:/usr/bin:/bin" if body else str(place))
            for watched in begun(tree.path):
                (tree.path / "kept.txt").write_text(f"changed by {body}")
                assert wait_for(lambda watched=watched: watched.changes().file == "kept.txt")  # type: ignore[misc]


def test_a_git_that_is_still_at_work_ends_with_the_watch(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = f'case "$*" in *ls-files*) echo $$ > {tmp_path}/pid;; esac'
    (tmp_path / "git").write_text(f"#!/bin/sh\n{listing}\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("ralphd.git.repo.TIME_LIMIT_S", 0.1)
    watched = Watched(tree.path, since=time.time())
    assert watched.changes() == NOTHING
    pid = int(wait_for((tmp_path / "pid").read_text))
    assert is_alive(pid)
    watched.close()

    assert not is_alive(pid)


def test_a_look_takes_its_share_of_time_however_large_the_directory(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in small: 10,000 files, of which a look has time for some hundred."""
    for number in range(100):
        folder = tree.path / "many" / str(number)
        folder.mkdir(parents=True)
        for name in range(100):
            (folder / str(name)).touch()
    settled(tree.path)
    monkeypatch.setattr(worktree_scan, "LOOK_S", 0.002)
    watched = Watched(tree.path, since=time.time() + 0.05)
    try:
        looks = []
        for _ in range(200):
            began = time.thread_time()
            assert watched.changes() == NOTHING
            looks.append(time.thread_time() - began)
        changed = tree.path / "many" / "99" / "99"
        changed.write_text("changed")
        assert wait_for(lambda: watched.changes() == Changes(files=1, file="many/99/99"))
        changed.write_text("changed again")
        assert watched.changes() == Changes(files=1, file="many/99/99")
    finally:
        watched.close()

    assert sorted(looks)[100] < 0.02
