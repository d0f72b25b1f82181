"""Merges as objects, and a target that moves only where nobody's work changes (M2, M3)."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.landing.model import (
    BranchPushed,
    Hindered,
    LandingCandidate,
    LandingQueue,
    MergeDone,
    Standing,
    Target,
    TargetMoved,
    TargetTaken,
)
from ralphd.core.loop.inbox import Inbox
from ralphd.core.worktrees.rules import Worktree
from ralphd.git.landing.follow import planned
from ralphd.git.landing.merge import Tip, ToMerge, changed_paths, merge_batch
from ralphd.git.landing.target import (
    NETWORK_RETRY_S,
    REJECTED_RETRY_S,
    Follow,
    TargetBranch,
    find_target,
)
from ralphd.git.landing.tree import is_ours, prepare
from ralphd.git.runner import GitRunner, NotDone, WasKilled


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


def test_branches_that_were_merged_crosswise_can_land(place: Place) -> None:
    a = place.branch("a", a="a\n").head
    place("commit", "-q", "--allow-empty", "-m", "on main")
    old = place("rev-parse", "main")
    place("merge", "-q", "--no-edit", a)
    place("switch", "-q", "a")
    place("merge", "-q", "--no-edit", old)
    head = place.commit("more", c="c\n")
    assert len(place("merge-base", "--all", "main", head).split()) == 2
    assert changed_paths(place.git, place("rev-parse", "main"), head) == ("c",)


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


def test_a_commit_that_is_queued_twice_is_merged_once(place: Place) -> None:
    a = place.branch("a", a="a\n")
    again = ToMerge(a.id + 1, a.name, a.head)
    done = merge_batch(place.git, place.tip(), (a, again), own_list="auto")
    assert [each.id for each in done.merged] == [a.id]
    assert (done.conflicts, done.present) == ({}, ())


def test_neighbouring_ticks_are_no_conflict(place: Place) -> None:
    a = place.branch("a", TASKS="- [x] one\n- [ ] two\n")
    b = place.branch("b", TASKS="- [ ] one\n- [x] two\n")
    mine, dead = (place.path / f".git/ralph-landing-index.{pid}.0.lock" for pid in (os.getpid(), 99999999))
    for index in (mine, dead):
        index.touch()
    commit = merged(place, a, b)
    assert place("show", f"{commit}:TASKS.md") == "- [x] one\n- [x] two"
    assert list((place.path / ".git").glob("ralph-landing-index*")) == [mine]


def test_a_branch_opens_no_task_that_is_done_on_the_target(place: Place) -> None:
    a = place.branch("a", TASKS="- [x] one\n- [ ] two\n")
    place("merge", "-q", "a")
    place("switch", "-q", "-c", "b", a.head)
    head = place.commit("an old side of the list", TASKS="- [ ] one\n- [x] two\n", b="b\n")
    place("switch", "-q", "main")
    commit = merged(place, ToMerge(7, "b", head))
    assert place("show", f"{commit}:TASKS.md") == "- [x] one\n- [x] two"


def test_a_task_that_was_reopened_on_the_target_stays_open(place: Place) -> None:
    done = place.commit("one is done", TASKS="- [x] one\n- [ ] two\n")
    b = place.branch("b", TASKS="- [x] one\n- [x] two\n")
    place.commit("one is not done", TASKS="- [ ] one\n- [ ] two\n")
    assert place("merge-base", "main", b.head) == done
    assert place("show", f"{merged(place, b)}:TASKS.md") == "- [ ] one\n- [x] two"


def test_an_undo_leaves_the_ticks_of_later_landings(place: Place) -> None:
    first = merged(place, place.branch("a", TASKS="- [x] one\n- [ ] two\n", a="a\n"))
    place("merge", "-q", "--ff-only", first)
    place.commit("later", TASKS="- [x] one\n- [x] two\n")
    undone = merged(place, ToMerge(9, "a", first, (first,)))
    assert place("show", f"{undone}:TASKS.md") == "- [ ] one\n- [x] two"
    assert place("ls-tree", "--name-only", undone).split() == ["TASKS.md", "shared"]
    later = place.commit("in the way", a="b\n")
    done = merge_batch(place.git, Tip(later), [ToMerge(9, "a", first, (first,))], own_list="auto")
    assert done.conflicts == {9: f"conflict of {first[:7]} with later changes in a"}


def without_author(place: Place, commit: str) -> str:
    """The commit with an empty author's name, which git itself refuses to make."""
    raw = place("cat-file", "commit", commit).replace("author A <", "author  <") + "\n"
    words = ("git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin")
    done = subprocess.run(words, cwd=place.path, input=raw, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_odd_commit_is_the_conflict_of_its_branch_alone(place: Place) -> None:
    odd, good = place.branch("odd", odd="1\n"), place.branch("good", good="1\n")
    place.commit("main moves", m="1\n")
    head = without_author(place, odd.head)
    done = rebasing(place, replace(odd, head=head), good)
    assert [each.id for each in done.merged] == [good.id]
    assert done.conflicts == {odd.id: f"git cannot copy the commit: git log -1 --format=fuller {head[:7]}"}


def test_a_repository_that_cannot_be_written_blames_no_branch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = place.branch("a", a="a\n")

    def full(*_: object, **__: object) -> str:
        raise NotDone("the disk is full")

    monkeypatch.setattr(GitRunner, "commit_tree", full)
    with pytest.raises(NotDone, match="the disk is full"):
        merge_batch(place.git, place.tip(), [a], own_list="auto")


def test_a_batch_that_takes_long_is_tested_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = place.branch("a", a="a\n"), place.branch("b", b="b\n")
    monkeypatch.setattr("ralphd.git.landing.merge.BATCH_S", -1.0)
    done = merge_batch(place.git, place.tip(), [a, b], own_list="auto")
    assert ([each.id for each in done.merged], done.conflicts, done.present) == ([a.id], {}, ())


def test_a_slow_branch_holds_up_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = place.branch("a", a="a\n"), place.branch("b", b="b\n")
    run = GitRunner.run

    def slow(git: GitRunner, *words: str, **options: Any) -> tuple[int, bytes]:
        if words[0] == "merge-tree" and a.head in words:
            raise WasKilled("git merge-tree did not end in time")
        return run(git, *words, **options)

    monkeypatch.setattr(GitRunner, "run", slow)
    done = merge_batch(place.git, place.tip(), [a, b], own_list="auto")
    assert ([each.id for each in done.merged], done.conflicts) == ([b.id], {})
    with pytest.raises(WasKilled):
        merge_batch(place.git, place.tip(), [a], own_list="auto")


def test_a_conflict_with_what_landed_since_is_told_apart(place: Place) -> None:
    a = place.branch("a", shared="a\n")
    for name, after in (("b", a.head), ("c", "main")):
        place("switch", "-q", "-c", name, after)
        place.commit(name, shared=f"{name}\n")
    place("switch", "-q", "main")
    place.commit("person", shared="person\n")
    wanted = [ToMerge(at, name, place("rev-parse", name), refused_at=a.head) for at, name in enumerate("bc")]
    done = merge_batch(place.git, place.tip(), wanted, own_list="auto")
    assert (set(done.conflicts), done.resolved) == ({0, 1}, (0,))


def test_two_merges_at_once_do_not_share_an_index(place: Place) -> None:
    a = place.branch("a", TASKS="- [x] one\n- [ ] two\n")
    b = place.branch("b", TASKS="- [ ] one\n- [x] two\n", other="b\n")
    place("merge", "-q", "a")
    with ThreadPoolExecutor(8) as pool:
        commits = {*pool.map(lambda _: merged(place, b), range(16))}
    trees = {place("rev-parse", f"{commit}^{{tree}}") for commit in commits}
    assert len(trees) == 1, a
    assert place("show", f"{commits.pop()}:TASKS.md") == "- [x] one\n- [x] two"


def test_a_landing_is_undone_by_a_commit(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    assert isinstance(place.target.advance(place.git, place.tip(), commit), TargetMoved)
    undone = merged(place, ToMerge(9, "a", commit, (commit,)))
    assert place("ls-tree", "--name-only", undone).split() == ["TASKS.md", "shared"]


def test_a_clean_checkout_follows(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert place("rev-parse", "main") == commit
    assert (place.path / "a").read_text() == "a\n"
    assert place("status", "--porcelain") == ""
    assert place.target.advance(place.git, Tip(place("rev-parse", "main~1")), commit) == TargetMoved()


def test_the_checkout_of_a_submodule_follows(place: Place, tmp_path: Path) -> None:
    """Git lists its git directory as the work tree."""
    place("init", "-q", str(tmp_path / "outer"))
    (place.path / ".git").rename(tmp_path / "outer/.git/inner")
    place.path.rename(tmp_path / "outer/inner")
    place.path = tmp_path / "outer/inner"
    (place.path / ".git").write_text("gitdir: ../.git/inner\n")
    place("config", "core.worktree", "../../inner")
    commit = merged(place, place.branch("a", a="a\n"))
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert (place.path / "a").exists() and place("status", "--porcelain") == ""


@pytest.mark.parametrize("act", ["merge", "commit", "old index"])
def test_a_person_who_moves_at_the_same_time_wins(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    commit, tip = merged(place, place.branch("a", a="a\n")), place.tip()

    def person(name: str) -> None:
        if name == "guard.move.tree" and act == "merge":
            place("merge", "-q", "--ff-only", commit)
        elif name == "guard.move.tree" and act == "commit":
            place("commit", "-q", "-m", "person")
        elif name == "guard.move.tree":
            place("update-ref", "HEAD", place("commit-tree", "-p", "HEAD", "-m", "person", "HEAD^{tree}"))

    monkeypatch.setattr("ralphd.diagnostics.reach", person)
    place.target.advance(place.git, tip, commit)
    assert place("log", "-1", "--format=%s", "main") == ("Merge branch 'a'" if act == "merge" else "person")
    assert place("status", "--porcelain") == ""


def test_a_dirty_checkout_is_not_touched(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    before = place("rev-parse", "main")
    (place.path / "shared").write_text("my work\n")
    moved = place.target.advance(place.git, place.tip(), commit)
    assert isinstance(moved, TargetMoved)
    assert "not committed" in moved.note
    assert (place("rev-parse", "main"), place("rev-parse", "ralph/landed")) == (before, commit)
    assert (place.path / "shared").read_text() == "my work\n"
    assert place.target.follow(place.git) is Follow.WAITS

    second = merged(place, _branch_beside(place))
    assert isinstance(place.target.advance(place.git, place.tip(), second), TargetMoved)
    assert place("rev-parse", "ralph/landed") == second

    before_seen = place.target.signature(place.path / ".git")
    assert place.target.signature(place.path / ".git") == before_seen
    place("restore", "shared")
    assert place.target.signature(place.path / ".git") != before_seen
    assert place.target.follow(place.git) is Follow.DONE
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


def test_a_checkout_that_is_gone_is_waited_for_until_it_is_pruned(place: Place, tmp_path: Path) -> None:
    commit, tip = merged(place, place.branch("a", a="a\n")), place.tip()
    place("switch", "-q", "a")
    place("worktree", "add", "-q", str(tmp_path / "gone"), "main")
    (tmp_path / "gone").rename(tmp_path / "away")
    moved = place.target.advance(place.git, tip, commit)
    assert isinstance(moved, TargetMoved) and "gone for good: git worktree prune" in moved.note
    place("worktree", "prune")
    assert place.target.follow(place.git) is Follow.DONE
    assert place("rev-parse", "main") == commit


def test_a_branch_that_is_checked_out_nowhere_moves(place: Place) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    place("switch", "-q", "a")
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert place("rev-parse", "main") == commit


@pytest.mark.parametrize("work", ["", "shared", "a"])
def test_a_checkout_that_comes_to_the_branch_as_it_moves_follows(
    place: Place, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    commit = merged(place, place.branch("a", a="a\n"))
    place("switch", "-q", "--detach")
    update_refs = GitRunner.update_refs

    def beaten(git: GitRunner, *commands: str, reason: str = "") -> None:
        update_refs(git, *commands, reason=reason)
        if commands[0].startswith("update refs/heads/main "):  # a switch that read the commit before
            place("symbolic-ref", "HEAD", "refs/heads/main")
            if work:
                (place.path / work).write_text("my work\n")

    monkeypatch.setattr(GitRunner, "update_refs", beaten)
    assert place.target.advance(place.git, place.tip(), commit) == TargetMoved()
    assert place("rev-parse", "HEAD") == commit
    if work:
        assert (place.path / work).read_text() == "my work\n"
    assert place("status", "--porcelain") == {"": "", "shared": "M shared", "a": "D  a\n?? a"}[work]


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


def test_a_branch_is_pushed_and_never_forced(place: Place, tmp_path: Path) -> None:
    remote, a = Remote(place, tmp_path), place.branch("a", a="a\n")
    assert remote.target.publish(place.git, "refs/heads/a", a.head) == BranchPushed()
    assert remote.target.publish(place.git, "refs/heads/a", a.head) == BranchPushed()
    assert place("ls-remote", "origin", "a").split()[0] == a.head
    place("branch", "-f", "a", "main")
    other = place.branch("other", a="other\n")
    assert remote.target.publish(place.git, "refs/heads/b", "0" * 40) == BranchPushed(
        "the commit 0000000 is not in the repository any more"
    )
    done = remote.target.publish(place.git, "refs/heads/a", other.head)
    assert isinstance(done, BranchPushed)
    assert "rejected, since the upstream has commits that are not here" in done.rejected
    assert place("ls-remote", "origin", "a").split()[0] == a.head


def test_a_hook_of_the_remote_is_quoted(place: Place, tmp_path: Path) -> None:
    remote, a = Remote(place, tmp_path), place.branch("a", a="a\n")
    hook = remote.bare / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no ticket is named >&2\nexit 1\n")
    hook.chmod(0o755)
    done = remote.target.publish(place.git, "refs/heads/a", a.head)
    assert isinstance(done, BranchPushed)
    assert "(pre-receive hook declined)" in done.rejected
    assert done.rejected.endswith("; remote: no ticket is named")
    moved = remote.target.advance(place.git, place.tip(), merged(place, a))
    assert isinstance(moved, Hindered)
    assert "no ticket is named" in moved.why
    assert moved.retry_after_s == REJECTED_RETRY_S


def test_hooks_of_the_repository_do_not_run(place: Place, tmp_path: Path) -> None:
    remote, a = Remote(place, tmp_path), place.branch("a", a="a\n")
    for name in ("pre-push", "reference-transaction", "post-checkout", "pre-merge-commit", "pre-commit"):
        hook = place.path / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\nexit 1\n")
        hook.chmod(0o755)
    commit = merged(place, a)
    place("config", "core.hooksPath", "hooks")
    (place.path / ".git/info/exclude").write_text("hooks\n")
    tip = remote.target.read(place.git, fetches=True)
    assert remote.target.advance(place.git, tip, commit) == TargetMoved()
    assert remote.target.publish(place.git, "refs/heads/a", a.head) == BranchPushed()
    assert place("rev-parse", "main") == remote.tip() == commit
    assert not list(tmp_path.glob("ran-*"))


def test_a_remote_that_is_gone_is_tried_later(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    a = place.branch("a", a="a\n")
    remote.bare.rename(tmp_path / "away")
    done = remote.target.publish(place.git, "refs/heads/a", a.head)
    assert isinstance(done, Hindered)
    assert done.retry_after_s == NETWORK_RETRY_S
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


def test_a_conflict_with_what_landed_is_one_task(place: Place) -> None:
    mine = place.branch("ralph/a", shared="a\n").head
    common = str((place.path / ".git").resolve())
    tree = Worktree("a", str(place.path), common, str(place.path), "ralph/a", mine, 0.0, 0)
    queue, kept = LandingQueue(common, str(place.path), Target("main")), Inbox()
    for number in (1, 2):
        place("switch", "-q", "main")
        commit = place.commit(f"landed {number}", shared=f"main {number}\n")
        landed = LandingCandidate(
            number, "b", "refs/heads/ralph/b", commit, 0.0, Standing.LANDED, commit=commit, ended_at=number
        )
        place("switch", "-q", "ralph/a")
        queue = replace(queue, candidates=(landed,))
        merge = planned(tree, place.path, queue, "auto")
        assert merge is not None and not merge.move.new
        kept = merge.with_task(merge.with_task(kept, 1.0), 2.0)
    assert [each.text.split(": ")[0] for each in kept.tasks] == [
        f"main {commit[:7]} does not merge into ralph/a"
    ]
    refused = LandingCandidate(9, "a", "refs/heads/ralph/a", mine, 0.0, Standing.REFUSED)
    assert planned(tree, place.path, replace(queue, candidates=(landed, refused)), "auto") is None


def rebasing(place: Place, *wanted: ToMerge) -> MergeDone:
    every = [replace(each, copied=each.copied or ()) for each in wanted]
    return merge_batch(place.git, place.tip(), every, own_list="auto")


def test_a_rebase_copies_each_commit(place: Place) -> None:
    a, b = (
        place.branch("a", TASKS="- [x] one\n- [ ] two\n", a="1\n"),
        place.branch("b", TASKS="- [ ] one\n- [x] two\n"),
    )
    place("switch", "-q", "a")
    place("commit", "-q", "--allow-empty", "-m", "empty")
    head = place.commit("more", a="2\n")
    place("switch", "-q", "main")
    done = rebasing(place, replace(a, head=head), b)
    commit = done.merged[-1].commit
    assert place("log", "--format=%s %an", commit).splitlines() == ["b A", "more A", "a A", "base A"]
    assert place("show", f"{commit}:TASKS.md") == "- [x] one\n- [x] two"
    assert [place("log", "-1", "--format=%s", old) for old, _ in done.merged[0].copies] == ["a", "more"]
    assert done.merged[0].commit == done.merged[0].copies[-1][1]
    place("merge", "-q", "--ff-only", commit)
    a = replace(a, copied=((head, done.merged[0].commit),))
    assert rebasing(place, replace(a, head=head), b).present == (a.id, b.id)
    place("switch", "-q", "a")
    again = rebasing(place, replace(a, head=place.commit("again", a="3\n"))).merged[0]
    assert len(again.copies) == 1 and place("show", f"{again.commit}:a") == "3"
    place("switch", "-q", "main")
    place("reset", "-q", "--hard", "main~3")  # by a person: no copy is there any more
    assert len(rebasing(place, replace(a, head=head)).merged[0].copies) == 2


@pytest.mark.parametrize("has", ["merge", "remote"])
def test_what_others_may_have_is_merged_not_rebased(place: Place, has: str) -> None:
    a = place.branch("a", a="1\n")
    old = place.commit("on main", m="m\n")
    if has == "merge":
        place("switch", "-q", "a")
        place("merge", "-q", "--no-edit", "main")
        a = replace(a, head=place.commit("more", a="2\n"))
        place("switch", "-q", "main")
        place.commit("more on main", m="2\n")
    else:
        place("update-ref", "refs/remotes/origin/a", a.head)
    done = rebasing(place, a)
    assert not done.merged[0].copies
    assert place("log", "-1", "--format=%s", done.merged[0].commit) == "Merge branch 'a'"
    assert old in place("rev-list", done.merged[0].commit)


def test_copies_that_were_undone_do_not_land_with_another_branch(place: Place) -> None:
    a = place.branch("a", bad="1\n")
    place("switch", "-q", "-c", "b", a.head)
    b = ToMerge(7, "b", place.commit("b", b="1\n"))
    place("switch", "-q", "main")
    place.commit("main moves", m="1\n")
    landed = rebasing(place, a).merged[0]
    place("merge", "-q", "--ff-only", landed.commit)
    undone = merged(place, ToMerge(9, "a", landed.commit, (landed.commit,)))
    place("merge", "-q", "--ff-only", undone)
    known = ((a.head, landed.commit),)  # of any branch
    again = rebasing(place, replace(b, copied=known)).merged[0]
    assert len(again.copies) == 1
    assert place("ls-tree", "--name-only", again.commit).split() == ["TASKS.md", "b", "m", "shared"]


def test_a_rebase_that_conflicts_names_its_files(place: Place) -> None:
    a = place.branch("a", shared="a\n")
    place.commit("mine", shared="mine\n")
    assert rebasing(place, a).conflicts == {a.id: "conflict in shared"}


def test_a_branch_that_was_copied_follows_to_the_target(place: Place) -> None:
    a = place.branch("a", shared="a\n")
    place.commit("first", first="1\n")
    merged = rebasing(place, a).merged[0]
    place("merge", "-q", "--ff-only", merged.commit)
    later = place.commit("the same line again", shared="b\n")  # would conflict with the branch
    place("switch", "-q", "a")
    landed = LandingCandidate(
        1, "a", "refs/heads/a", a.head, 0.0, Standing.LANDED, commit=merged.commit, ended_at=1.0,
        copies=merged.copies,
    )  # fmt: skip
    queue = LandingQueue(str(place.path / ".git"), str(place.path), Target("main"), candidates=(landed,))
    tree = Worktree("a", str(place.path), str(place.path / ".git"), str(place.path), "a", later, 0.0, 0)
    plan = planned(tree, place.path, queue, "auto")
    assert plan is not None and plan.move.new == later
    plan.carry_out()
    assert place("rev-parse", "a") == later and place("status", "--porcelain") == ""


def test_a_checkout_of_ralph_landed_is_not_moved_under_its_user(place: Place, tmp_path: Path) -> None:
    a, b = place.branch("a", a="a\n"), place.branch("b", b="b\n")
    (place.path / "shared").write_text("my work\n")  # so that landings go to ralph/landed
    first = merged(place, a)
    target = replace(place.target, landed=(first,))
    assert isinstance(target.advance(place.git, Tip(place("rev-parse", "main")), first), TargetMoved)
    look = tmp_path / "look"
    place("worktree", "add", "-q", str(look), "ralph/landed")  # a person looks at what landed

    tip = place.target.read(place.git, fetches=False)
    second = merge_batch(place.git, tip, [b], own_list="auto").merged[-1].commit
    target = replace(place.target, landed=(first, second))
    with pytest.raises(NotDone, match=f"ralph/landed is checked out: git -C {look} switch --detach"):
        target.advance(place.git, tip, second)

    assert subprocess.run(["git", "-C", str(look), "diff", "--quiet", "HEAD"], check=False).returncode == 0
    assert place("rev-parse", "ralph/landed") == first


def test_a_new_task_with_a_known_title_stays_open(place: Place) -> None:
    place("switch", "-q", "main")
    place.commit("list", TASKS="# v1\n- [ ] write tests\n")
    a = place.branch("a", TASKS="# v2\n- [ ] build it\n- [ ] write tests\n\n# v1\n- [ ] write tests\n")
    place.commit("ticked", TASKS="# v1\n- [x] write tests\n")

    expected = "# v2\n- [ ] build it\n- [ ] write tests\n\n# v1\n- [x] write tests"
    assert place("show", f"{merged(place, a)}:TASKS.md") == expected
