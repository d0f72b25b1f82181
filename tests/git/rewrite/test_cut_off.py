"""An act of the guard that is cut off anywhere ends the same when it is called again, and leaves nothing."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut
from ralphd.git.repair import RepairMode, repair
from ralphd.git.rewrite import move_branch
from ralphd.git.rewrite.move_branch import Move
from ralphd.git.rewrite.revert import restore, revert, reverted, undo
from ralphd.git.rewrite.stash import put_back, set_aside
from ralphd.git.runner import GitRunner
from ralphd.git.tree_diff import TreeChange
from tests.git.guard_world import (
    Everything,
    carried_out,
    committed,
    everything,
    head,
    movement,
    refusal,
    write,
)
from tests.git.work_tree import WorkTree

LABEL = "my-ralph/3"
MOVES = ["guard.move.begun", "guard.move.tree", "guard.move.submodules", "guard.move.branch"]


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """Three commits, of which the last two are bad, and work that is not committed."""
    tree = WorkTree.new(tmp_path / "tree")
    committed(tree, "first", a="a\n", b="b\n", c="c\n", kept="kept\n", folder__d="d\n")
    committed(tree, "bad 1", a="bad\n", new__file="new")
    committed(tree, "bad 2", b=None, folder__d=None, folder="a file")
    write(tree, "kept", "staged\n")
    tree.git("add", "kept")
    write(tree, "kept", "and more\n")
    write(tree, "untracked", "x")
    return tree


def killed_at(place: str, act: Callable[[], object]) -> None:
    """Begin an act in a process that is killed when it comes to a place."""
    pid = os.fork()
    if pid == 0:
        diagnostics._ARMED[place] = "kill"
        try:
            act()
        finally:
            os._exit(3)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"it never came to {place}"


def expect_no_remains(tree: WorkTree) -> None:
    own = {path.name for path in (tree.path / ".git").rglob("*")}
    assert not {"ralph-guard", "index.lock", "worktrees"} & own


def bad(tree: WorkTree) -> list[str]:
    return [head(tree, "main"), head(tree, "main~1")]


@pytest.mark.parametrize("place", ["guard.reverts_kept", *MOVES])
def test_a_revert_goes_on_where_it_was_cut_off(tree: WorkTree, place: str) -> None:
    before, commits = everything(tree, refs=False), bad(tree)

    def act() -> object:
        return revert(tree.path, commits, head=commits[0], label=LABEL)

    killed_at(place, act)
    now = carried_out(act())

    assert carried_out(act()) == now == head(tree) == head(tree, f"refs/ralph/reverts/{LABEL}")
    assert head(tree, "HEAD^{tree}") == head(tree, f"{commits[1]}~1^{{tree}}")
    assert [each.reverts for each in reverted(tree.path, LABEL)] == commits[::-1]
    assert everything(tree, refs=False).status == before.status
    expect_no_remains(tree)


@pytest.mark.parametrize("place", MOVES[1::2])
def test_what_takes_reverts_back_goes_on_where_it_was_cut_off(tree: WorkTree, place: str) -> None:
    before, commits = everything(tree), bad(tree)
    expected = carried_out(revert(tree.path, commits, head=commits[0], label=LABEL))

    def act() -> object:
        return restore(tree.path, commits[0], expected=expected, label=LABEL)

    killed_at(place, act)

    assert carried_out(act()) == commits[0]
    assert everything(tree) == before
    expect_no_remains(tree)


@pytest.mark.parametrize("place", MOVES[1::2])
def test_an_undo_that_was_cut_off_is_done_once(tree: WorkTree, place: str) -> None:
    before, commits = everything(tree, refs=False), bad(tree)
    carried_out(revert(tree.path, commits, head=commits[0], label=LABEL))
    reverts = [each.sha for each in reverted(tree.path, LABEL)]

    killed_at(place, lambda: undo(tree.path, reverts))
    carried_out(undo(tree.path, reverts))

    assert tree.git("rev-list", "--count", f"{commits[0]}..HEAD").strip() == "4"
    assert everything(tree, refs=False) == before
    expect_no_remains(tree)


@pytest.mark.parametrize(
    "place",
    ["guard.aside.kept", "guard.aside.moved", "guard.aside.files", "guard.aside.lock", "guard.aside.index"],
)
def test_what_is_set_aside_comes_back_wherever_it_was_cut_off(tree: WorkTree, place: str) -> None:
    write(tree, "c", "not staged\n")
    before = everything(tree)

    def acts() -> None:
        carried_out(set_aside(tree.path, LABEL))
        carried_out(put_back(tree.path, LABEL))

    killed_at(place, acts)
    if place in ("guard.aside.kept", "guard.aside.moved"):
        carried_out(set_aside(tree.path, LABEL))
        assert tree.git("status", "--porcelain") == "?? untracked\n"
    carried_out(put_back(tree.path, LABEL))

    assert everything(tree) == before
    assert tree.git("for-each-ref", "refs/ralph") == ""
    expect_no_remains(tree)


@pytest.mark.parametrize("done", ["nothing", "one written", "one gone"])
def test_a_git_that_was_killed_too_leaves_files_half_way_and_they_are_set_right(
    tree: WorkTree, done: str
) -> None:
    commits = bad(tree)
    killed_at("guard.move.begun", lambda: revert(tree.path, commits, head=commits[0], label=LABEL))
    (tree.path / ".git" / "index.lock").touch()
    if done != "nothing":
        (tree.path / "a").unlink()
        (tree.path / "new" / "file").unlink()
    if done == "one written":
        write(tree, "a", "a\n")

    why = _refused_for_the_lock(tree, commits)
    ended = time.time() + 1
    mended = repair(tree.path, RepairMode.TELL, ended_at=ended, began_at=0.0, label="run-1", branch=None)
    now = carried_out(revert(tree.path, commits, head=commits[0], label=LABEL))

    assert "index.lock is there" in why
    assert mended.told == () and "which a killed git had left" in mended.done[0]
    assert head(tree) == now
    assert tree.git("status", "--porcelain") == "MM kept\n?? untracked\n"


def _refused_for_the_lock(tree: WorkTree, commits: list[str]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ralphd.git.locks.LOCK_WAIT_S", 0.1)
        return refusal(revert(tree.path, commits, head=commits[0], label=LABEL))


def test_a_file_that_somebody_wrote_after_the_kill_is_left_alone(tree: WorkTree) -> None:
    commits = bad(tree)

    def act() -> object:
        return revert(tree.path, commits, head=commits[0], label=LABEL)

    killed_at("guard.move.tree", act)
    write(tree, "a", "somebody's\n")

    assert refusal(act()) == "a revert was cut off, and files changed since: git restore a"
    assert (tree.path / "a").read_text() == "somebody's\n"
    tree.git("restore", "--staged", "--worktree", "a")
    carried_out(act())
    assert (tree.path / "a").read_text() == "a\n"


def test_a_commit_that_somebody_made_after_the_kill_is_left_alone(tree: WorkTree) -> None:
    commits = bad(tree)
    killed_at("guard.move.tree", lambda: revert(tree.path, commits, head=commits[0], label=LABEL))
    theirs = committed(tree, "theirs")
    before = everything(tree)

    found = revert(tree.path, commits, head=commits[0], label=LABEL)

    assert not isinstance(found, CarriedOut)
    assert everything(tree) == before and head(tree) == theirs
    expect_no_remains(tree)


def test_a_commit_while_files_are_taken_back_has_its_files(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = bad(tree)
    killed_at("guard.move.tree", lambda: revert(tree.path, commits, head=commits[0], label=LABEL))
    roll_back, calls = move_branch._roll_back, list[object]()

    def beaten(git: GitRunner, paths: Sequence[TreeChange], without: frozenset[bytes]) -> None:
        if not calls:
            tree.git("commit", "-q", "-m", "what the index has now")
        calls.append(paths)
        roll_back(git, paths, without)

    monkeypatch.setattr(move_branch, "_roll_back", beaten)
    movement(revert(tree.path, commits, head=commits[0], label=LABEL))
    assert tree.git("status", "--porcelain").splitlines() == [" M kept", "?? untracked"]
    assert tree.git("log", "-1", "--format=%s").strip() == "what the index has now"
    expect_no_remains(tree)


def test_an_edit_just_before_the_files_are_moved_stays(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, read_tree = bad(tree), move_branch._read_tree

    def beaten(git: GitRunner, to: Move) -> None:
        (tree.path / "a").write_text("bad\nmy work\n")
        read_tree(git, to)

    monkeypatch.setattr(move_branch, "_read_tree", beaten)
    refusal(revert(tree.path, commits, head=commits[0], label=LABEL))
    assert (tree.path / "a").read_text() == "bad\nmy work\n"
    assert head(tree) == commits[0] and tree.git("diff", "--cached", "--name-only").split() == ["kept"]
    expect_no_remains(tree)


def test_another_branch_that_somebody_went_to_after_the_kill_is_left_alone(tree: WorkTree) -> None:
    commits = bad(tree)
    tree.git("branch", "other")
    killed_at("guard.move.begun", lambda: revert(tree.path, commits, head=commits[0], label=LABEL))
    tree.git("checkout", "--quiet", "other")
    before = everything(tree)

    refused = undo(tree.path, ["0" * 40])

    assert not isinstance(refused, CarriedOut)
    assert everything(tree) == before
    expect_no_remains(tree)


def test_in_a_sparse_work_tree_what_is_left_out_stays_so(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "sparse")
    committed(tree, "first", inside__a="a\n", outside__b="b\n")
    at = committed(tree, "bad", inside__a="bad\n", outside__b="bad\n")
    tree.git("sparse-checkout", "set", "inside")
    flags = tree.git("ls-files", "-t")

    def act() -> object:
        return revert(tree.path, [at], head=at, label=LABEL)

    killed_at("guard.move.tree", act)
    carried_out(act())

    assert tree.git("status", "--porcelain") == "" and tree.git("ls-files", "-t") == flags
    assert not (tree.path / "outside").exists()
    assert (tree.path / "inside" / "a").read_text() == "a\n"


# Whatever is done to the tree

NAMES = st.sampled_from(["a", "b", "kept", "folder", "folder/d", "new/file", "new", "x.env", "other"])
DEEDS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "stage", "run", "link", "unstage", "untrack"]), NAMES),
    max_size=5,
)


@given(deeds=DEEDS, count=st.integers(1, 2))
@settings(max_examples=5)
def test_every_act_is_carried_out_or_refused_and_the_way_back_leads_to_where_it_was(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, str]], count: int
) -> None:
    tree = WorkTree.new(tmp_path_factory.mktemp("property") / "tree")
    committed(tree, "first", a="a\n", b="b\n", kept="kept\n", folder__d="d\n", **{".gitignore": "*.env\n"})
    committed(tree, "bad 1", a="bad\n", new__file="new")
    at = committed(tree, "bad 2", b=None, folder__d=None, **{"x": "x"})
    for deed, name in deeds:
        done(tree, deed, name)
    before = everything(tree)

    if isinstance(set_aside(tree.path, LABEL), CarriedOut):
        assert tree.git("status", "--porcelain", "-uno") == ""
        carried_out(put_back(tree.path, LABEL))
    assert everything(tree) == before

    commits = [at, head(tree, "HEAD~1")][:count]
    found = revert(tree.path, commits, head=at, label=LABEL)
    if isinstance(found, CarriedOut):
        assert head(tree, "HEAD^{tree}") == head(tree, f"HEAD~{2 * count}^{{tree}}")
        expect_the_rest_untouched(tree, before, at)
        carried_out(restore(tree.path, at, expected=head(tree), label=LABEL))
    assert everything(tree) == before
    expect_no_remains(tree)


def expect_the_rest_untouched(tree: WorkTree, before: Everything, at: str) -> None:
    """Files and index are as before, but for what the commits had changed."""
    names = tree.git("diff", "--name-only", "--no-renames", at, "HEAD").split()
    assert names

    def rest(found: Everything) -> tuple[object, ...]:
        staged = [line for line in found.staged.splitlines() if line.partition("\t")[2] not in names]
        return staged, {name: each for name, each in found.files.items() if name.strip("'") not in names}

    assert rest(everything(tree)) == rest(before)


def done(tree: WorkTree, deed: str, name: str) -> None:
    """Do something to a file, as an agent may, where that goes."""
    path = tree.path / name
    if any(above.is_file() or above.is_symlink() for above in path.parents if tree.path in above.parents):
        return
    if path.is_dir() and not path.is_symlink():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    match deed:
        case "write":
            path.unlink(missing_ok=True)
            path.write_text(f"{name} anew")
        case "remove":
            path.unlink(missing_ok=True)
        case "run" if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ 0o111)
        case "link":
            path.unlink(missing_ok=True)
            path.symlink_to("kept")
        case "stage":
            tree.git("add", "-A")
        case "unstage":
            tree.git("reset", "--quiet")
        case "untrack":
            tree.git("rm", "--quiet", "--cached", "-f", "--ignore-unmatch", name)
        case _:
            pass
