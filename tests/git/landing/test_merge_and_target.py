"""Merges as objects, and a target that moves only where nobody's work changes (M2, M3)."""

import subprocess
from pathlib import Path

import pytest

from ralphd.core.landing.model import Hindered, Target, TargetMoved, TargetTaken
from ralphd.git.landing.merge import Tip, ToMerge, changed_paths, merge_batch
from ralphd.git.landing.target import TargetBranch, find_target
from ralphd.git.landing.tree import is_ours, prepare
from ralphd.git.runner import GitRunner, NotDone


class Place:
    """A repository with branches, each with a commit."""

    def __init__(self, root: Path, name: str = "repo") -> None:
        self.path = root / name
        self.path.mkdir()
        self("init", "-q", "-b", "main")
        self("config", "user.name", "A")
        self("config", "user.email", "a@example.invalid")
        self.commit("base", TASKS="- [ ] one\n- [ ] two\n", shared="1\n")

    def __call__(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, subject: str, **files: str) -> str:
        for name, text in files.items():
            (self.path / (f"{name}.md" if name.isupper() else name)).write_text(text)
        self("add", "-A")
        self("commit", "-q", "-m", subject)
        return self("rev-parse", "HEAD")

    def branch(self, name: str, **files: str) -> ToMerge:
        self("switch", "-q", "-c", name, "main")
        head = self.commit(name, **files)
        self("switch", "-q", "main")
        return ToMerge(len(self("branch").splitlines()), name, head)

    @property
    def git(self) -> GitRunner:
        return GitRunner(self.path)

    @property
    def target(self) -> TargetBranch:
        return TargetBranch(Target("main"), self.path)

    def tip(self) -> Tip:
        return self.target.read(self.git, fetches=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def merged(place: Place, *wanted: ToMerge) -> str:
    done = merge_batch(place.git, place.tip(), wanted, own_list="auto")
    assert not done.conflicts
    return done.merged[-1].commit


def test_candidates_are_merged_one_after_the_other(place: Place) -> None:
    a, b = place.branch("a", a="a\n"), place.branch("b", b="b\n")
    before = place("status", "--porcelain"), place("rev-parse", "main")
    commit = merged(place, a, b)
    assert place("log", "--format=%s", "--first-parent", commit).splitlines() == [
        "Merge branch 'b'", "Merge branch 'a'", "base",
    ]  # fmt: skip
    assert place("ls-tree", "--name-only", commit).split() == ["TASKS.md", "a", "b", "shared"]
    assert (place("status", "--porcelain"), place("rev-parse", "main")) == before
    assert changed_paths(place.git, place.tip().tip, a.head) == ("a",)


def test_a_conflict_names_its_files(place: Place) -> None:
    a = place.branch("a", shared="a\n")
    place.commit("mine", shared="mine\n")
    done = merge_batch(place.git, place.tip(), [a], own_list="auto")
    assert (done.merged, done.conflicts) == ((), {a.id: "conflict in shared"})


def test_two_that_conflict_with_each_other_land_in_two_batches(place: Place) -> None:
    a, b = place.branch("a", shared="a\n"), place.branch("b", shared="b\n")
    done = merge_batch(place.git, place.tip(), [a, b], own_list="auto")
    assert ([each.id for each in done.merged], done.conflicts) == ([a.id], {})


def test_what_the_target_has_is_not_merged_again(place: Place) -> None:
    a = place.branch("a", a="a\n")
    place("merge", "-q", "a")
    assert merge_batch(place.git, place.tip(), [a], own_list="auto").present == (a.id,)


def test_neighbouring_ticks_are_no_conflict(place: Place) -> None:
    a = place.branch("a", TASKS="- [x] one\n- [ ] two\n")
    b = place.branch("b", TASKS="- [ ] one\n- [x] two\n")
    (place.path / ".git/ralph-landing-index.99999999.lock").touch()  # of a daemon that was killed
    commit = merged(place, a, b)
    assert place("show", f"{commit}:TASKS.md") == "- [x] one\n- [x] two"
    assert not list((place.path / ".git").glob("ralph-landing-index*"))


def test_a_landing_is_undone_by_a_commit(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    assert isinstance(place.target.advance(place.git, place.tip(), commit), TargetMoved)
    undone = merged(place, ToMerge(9, "a", commit, commit))
    assert place("ls-tree", "--name-only", undone).split() == ["TASKS.md", "shared"]


def test_a_clean_checkout_follows(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert place("rev-parse", "main") == commit
    assert (place.path / "a").read_text() == "a\n"
    assert place("status", "--porcelain") == ""
    assert place.target.advance(place.git, Tip(place("rev-parse", "main~1")), commit) == TargetMoved()


def test_a_dirty_checkout_is_not_touched(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    before = place("rev-parse", "main")
    (place.path / "shared").write_text("my work\n")
    moved = place.target.advance(place.git, place.tip(), commit)
    assert isinstance(moved, TargetMoved)
    assert "not committed" in moved.note
    assert (place("rev-parse", "main"), place("rev-parse", "ralph/landed")) == (before, commit)
    assert (place.path / "shared").read_text() == "my work\n"
    assert place.target.follow(place.git) is False

    second = merged(place, _branch_beside(place))
    assert isinstance(place.target.advance(place.git, place.tip(), second), TargetMoved)
    assert place("rev-parse", "ralph/landed") == second

    place("restore", "shared")
    assert place.target.follow(place.git) is True
    assert place("rev-parse", "main") == second
    assert place("branch", "--list", "ralph/landed") == ""
    assert (place.path / "a").exists()


def _branch_beside(place: Place) -> ToMerge:
    """A branch made without a checkout."""
    tree = place("rev-parse", "main^{tree}")
    blob = place("hash-object", "-w", ".git/HEAD")
    listed = place("ls-tree", tree) + f"\n100644 blob {blob}\tb\n"
    made = subprocess.run(
        ["git", "mktree"], cwd=place.path, input=listed, capture_output=True, text=True, check=True
    ).stdout.strip()
    return ToMerge(8, "b", place("commit-tree", made, "-p", "main", "-m", "b"))


def test_a_directory_in_which_a_run_lives_is_not_touched(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    target = TargetBranch(Target("main"), place.path, {place.path})
    moved = target.advance(place.git, place.tip(), commit)
    assert moved == TargetMoved(f"on ralph/landed: a ralph works in {place.path}")
    assert not (place.path / "a").exists()


def test_a_branch_that_is_checked_out_nowhere_moves(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    place("switch", "-q", "a")
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert place("rev-parse", "main") == commit


def test_a_target_that_moved_is_not_overwritten(place: Place) -> None:
    tip, commit = place.tip(), merged(place, place.branch("a", a="a\n"))
    mine = place.commit("mine", mine="1\n")
    assert place.target.advance(place.git, tip, commit) == TargetTaken()
    assert place("rev-parse", "main") == mine
    assert isinstance(place.target.advance(place.git, Tip(commit), mine), Hindered)


class Remote:
    """The place with a bare remote, and a clone of somebody else."""

    def __init__(self, place: Place, root: Path) -> None:
        self.place = place
        place("init", "-q", "--bare", "../origin")
        place("remote", "add", "origin", "../origin")
        place("push", "-q", "-u", "origin", "main")
        self.target = TargetBranch(find_target(place.path, "main"), place.path)
        self.bare = root / "origin"

    def tip(self) -> str:
        done = subprocess.run(
            ["git", "rev-parse", "main"], cwd=self.bare, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


def test_with_a_remote_its_branch_is_the_target(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    assert remote.target.target == Target("main", "origin", str(remote.bare))
    commit = merged(place, place.branch("a", a="a\n"))
    tip = remote.target.read(place.git, fetches=True)
    (place.path / "shared").write_text("my work\n")
    assert remote.target.advance(place.git, tip, commit) == TargetMoved()
    assert remote.tip() == place("rev-parse", "origin/main") == commit
    assert place("rev-parse", "main") == tip.tip
    assert (place.path / "shared").read_text() == "my work\n"
    assert remote.target.advance(place.git, tip, commit) == TargetMoved()


def test_a_clean_local_branch_follows_its_remote(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    commit = merged(place, place.branch("a", a="a\n"))
    assert (
        remote.target.advance(place.git, remote.target.read(place.git, fetches=True), commit) == TargetMoved()
    )
    assert place("rev-parse", "main") == commit


def test_a_push_in_between_is_normal(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    tip = remote.target.read(place.git, fetches=True)
    commit = merged(place, place.branch("a", a="a\n"))
    theirs = place.commit("theirs", theirs="1\n")
    place("push", "-q")
    assert remote.target.advance(place.git, tip, commit) == TargetTaken()
    assert remote.tip() == theirs


def test_a_remote_that_is_gone_is_tried_later(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    remote.bare.rename(tmp_path / "away")
    with pytest.raises(NotDone, match="git fetch"):
        remote.target.read(place.git, fetches=True)


def test_the_tree_holds_exactly_the_commit(place: Place, tmp_path: Path) -> None:
    common, tree = place.path / ".git", tmp_path / "state" / "tree"
    a = place.branch("a", a="a\n")
    prepare(common, place.path, tree, a.head)
    assert (tree / "a").read_text() == "a\n"
    assert is_ours(tree, common)
    (tree / "a").write_text("changed by a test\n")
    (tree / "left").write_text("left by a test\n")
    prepare(common, place.path, tree, place("rev-parse", "main"))
    assert sorted(path.name for path in tree.iterdir()) == [".git", "TASKS.md", "shared"]
    refused = subprocess.run(
        ["git", "worktree", "remove", "--force", str(tree)], cwd=place.path, capture_output=True, check=False
    )
    assert refused.returncode != 0


def test_a_tree_without_its_git_is_made_again(place: Place, tmp_path: Path) -> None:
    outer = Place(tmp_path, "outer")  # a repository around the state directory must stay as it is
    mine = outer.commit("outer", outer="1\n")
    (outer.path / "mine").write_text("not committed\n")
    common, tree = place.path / ".git", outer.path / "state" / "tree"
    head = place("rev-parse", "main")
    prepare(common, place.path, tree, head)
    (tree / ".git").unlink()
    prepare(common, place.path, tree, head)
    assert is_ours(tree, common)
    assert (outer.path / "mine").read_text() == "not committed\n"
    assert outer("rev-parse", "HEAD") == mine
