"""What is known of a repository without asking git: that something moved, how many commits were made."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Position
from ralphd.git import repo
from ralphd.git.facts import position
from ralphd.git.repo import READ_BYTES, Commits, ReflogMark, Repository
from tests.git.work_tree import WorkTree


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with one commit."""
    tree = WorkTree.new(tmp_path / "tree")
    tree.commit("first")
    return tree


def found(tree: WorkTree) -> Repository:
    """The repository of a work tree."""
    repository = Repository.find(tree.path)
    assert repository is not None
    return repository


def mark_of(repository: Repository) -> ReflogMark:
    """Where its reflog ends."""
    mark = repository.mark()
    assert mark is not None
    return mark


def made(repository: Repository, since: ReflogMark) -> int:
    """How many commits were made since."""
    commits = repository.commits_made(since)
    assert commits is not None
    return commits.made


# Where the repository is


def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    assert Repository.find(tmp_path) is None
    assert Repository.find(tmp_path / "not" / "there") is None


def test_it_is_found_from_any_directory_below_its_root(tree: WorkTree) -> None:
    below = tree.path / "src" / "deep"
    below.mkdir(parents=True)
    repository = Repository.find(below)
    assert repository is not None
    mark = mark_of(repository)

    tree.commit("second")

    assert made(repository, mark) == 1


def test_a_linked_worktree_has_a_head_and_commits_of_its_own(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "-b", "other", str(tmp_path / "linked"))
    linked = WorkTree(tmp_path / "linked")
    here, there = found(tree), found(linked)
    marks = mark_of(here), mark_of(there)
    before = here.signature(), there.signature()

    linked.commit("in the linked one")

    assert made(here, marks[0]) == 0
    assert made(there, marks[1]) == 1
    assert here.signature() == before[0]
    assert there.signature() != before[1]


def test_a_submodule_is_a_repository_of_its_own(tree: WorkTree, tmp_path: Path) -> None:
    outer = WorkTree.new(tmp_path / "outer")
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", str(tree.path), "sub")
    outer.commit("with a submodule")
    inner = WorkTree(outer.path / "sub")
    repositories = found(outer), found(inner)
    marks = [mark_of(each) for each in repositories]

    inner.commit("inside")

    assert [made(each, mark) for each, mark in zip(repositories, marks, strict=True)] == [0, 1]


def test_only_a_git_directory_that_points_back_is_proven(tree: WorkTree, tmp_path: Path) -> None:
    outer, victim = WorkTree.new(tmp_path / "outer"), WorkTree.new(tmp_path / "victim")
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", str(tree.path), "sub")
    tree.git("worktree", "add", "-b", "other", str(tmp_path / "linked"))
    own = tree.path / ".git"
    assert found(tree).proven() == (own,)
    assert found(WorkTree(tmp_path / "linked")).proven() == (own, own / "worktrees" / "linked")
    inner = outer.path / ".git" / "modules" / "sub"
    assert set(found(WorkTree(outer.path / "sub")).proven()) == {inner}

    forged = tmp_path / "forged"
    forged.mkdir()
    for there in (own, own / "worktrees" / "linked"):
        (forged / ".git").write_text(f"gitdir: {there}\n")
        assert found(WorkTree(forged)).proven() == (), there
    for link in (tmp_path / "linked", outer.path / "sub"):  # a run leads them elsewhere
        (link / ".git").write_text(f"gitdir: {victim.path}/.git\n")
        assert found(WorkTree(link)).proven() == ()
    (own / "commondir").write_text(f"{victim.path}/.git\n")
    assert found(tree).proven() == ()
    (outer.path / ".git").rename(outer.path / "moved")
    (outer.path / ".git").symlink_to(victim.path / ".git")
    assert found(outer).proven() == ()


def test_an_empty_git_directory_does_not_hide_the_repository_around_it(tree: WorkTree) -> None:
    (tree.path / "sub" / ".git").mkdir(parents=True)
    repository = Repository.find(tree.path / "sub")

    assert repository is not None
    assert repository.signature() == found(tree).signature()


@pytest.mark.parametrize(
    "text", ["", "gitdir:", "gitdir: /nowhere", "gitdir: a\0b", "junk", "gitdir: " + "x" * 9000]
)
def test_a_git_file_that_names_nothing_is_no_repository(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)

    assert Repository.find(tmp_path) is None


def test_a_pipe_in_the_place_of_the_git_file_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")

    assert Repository.find(tmp_path) is None


# That something has moved


def test_nothing_moved_nothing_differs(tree: WorkTree) -> None:
    repository = found(tree)
    before = repository.signature()
    (tree.path / "file").write_text("changed, not committed")
    tree.git("add", ".")

    assert repository.signature() == before


@pytest.mark.parametrize(
    "words",
    [
        ("commit", "--allow-empty", "-m", "second"),
        ("commit", "--amend", "-m", "again"),
        ("checkout", "-b", "other"),
        ("checkout", "--detach"),
        ("branch", "-m", "renamed"),
        ("update-ref", "-d", "HEAD"),
        ("pack-refs", "--all"),
    ],
    ids=" ".join,
)
def test_a_move_of_head_or_its_branch_differs(tree: WorkTree, words: tuple[str, ...]) -> None:
    repository = found(tree)
    before = repository.signature()
    assert repository.signature() == before

    tree.git(*words)
    after = repository.signature()

    assert after != before
    assert repository.signature() == after


def test_a_commit_on_a_branch_that_was_changed_to_since_differs(tree: WorkTree) -> None:
    repository = found(tree)
    repository.signature()
    tree.git("config", "core.logAllRefUpdates", "false")
    (tree.path / ".git" / "logs" / "HEAD").unlink()  # git goes on with one that is there
    tree.git("checkout", "-b", "other")
    before = repository.signature()

    tree.commit("second")

    assert repository.signature() != before


def test_a_repository_that_is_gone_has_no_trace_and_one_made_anew_differs(tree: WorkTree) -> None:
    repository = found(tree)
    before = repository.signature()
    (tree.path / ".git").rename(tree.path / "hidden")
    gone = repository.signature()
    again = WorkTree.new(tree.path)
    again.commit("anew")

    assert gone[0] is None
    assert set(gone) == {None}
    assert repository.signature() not in (before, gone)


@pytest.mark.parametrize(
    "head", [b"", b"ref: ../../../etc/passwd", b"ref: refs/heads/\0", b"\xff\xfe", b"ref:"]
)
def test_a_head_that_is_nonsense_still_has_a_signature(tree: WorkTree, head: bytes) -> None:
    repository = found(tree)
    (tree.path / ".git" / "HEAD").write_bytes(head)

    assert repository.signature()[0] is not None


# How many commits were made


def test_commits_are_counted_from_the_mark_on(tree: WorkTree) -> None:
    repository = found(tree)
    start = mark_of(repository)
    tree.commit("second")
    tree.commit("third")
    middle = repository.commits_made(start)
    assert middle is not None
    tree.commit("fourth")

    assert middle.made == 2
    assert made(repository, middle.until) == 1
    assert made(repository, start) == 3
    assert made(repository, mark_of(repository)) == 0


def test_the_first_commit_of_a_repository_counts(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "new")
    repository = found(tree)
    mark = mark_of(repository)
    assert repository.commits_made(mark) is None

    tree.commit("first")

    assert made(repository, mark) == 1


def test_merges_cherry_picks_and_reverts_are_commits_made_here(tree: WorkTree) -> None:
    tree.git("checkout", "-b", "side")
    tree.commit("aside")
    tree.git("checkout", "main")
    tree.commit("on main")
    repository = found(tree)
    mark = mark_of(repository)

    tree.git("merge", "--no-edit", "side")
    tree.git("revert", "--no-edit", "HEAD~1")
    tree.git("checkout", "-b", "picks", "HEAD~2")
    tree.git("cherry-pick", "side")

    assert made(repository, mark) == 3


def test_a_merge_that_had_a_conflict_counts_when_it_is_committed(tree: WorkTree) -> None:
    tree.git("checkout", "-b", "side")
    tree.commit("aside", file="same")
    tree.git("checkout", "main")
    tree.commit("on main", file="same")
    repository = found(tree)
    mark = mark_of(repository)
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("merge", "side")
    assert made(repository, mark) == 0

    tree.commit("both", file="same")

    assert made(repository, mark) == 1


def test_a_mail_that_is_applied_counts(tree: WorkTree, tmp_path: Path) -> None:
    tree.commit("second")
    mail = tmp_path / "mail"
    mail.write_text(tree.git("format-patch", "-1", "--stdout"))
    tree.git("reset", "--hard", "HEAD~1")
    repository = found(tree)
    mark = mark_of(repository)

    tree.git("am", str(mail))

    assert made(repository, mark) == 1


def test_a_pull_that_merges_counts_and_one_that_goes_forward_does_not(tree: WorkTree, tmp_path: Path) -> None:
    clone = WorkTree.clone(tree, tmp_path / "clone")
    repository = found(clone)
    mark = mark_of(repository)
    tree.commit("elsewhere")
    clone.git("pull", "--no-rebase", "--no-edit")
    forward = made(repository, mark)
    tree.commit("elsewhere again")
    clone.commit("here")
    clone.git("pull", "--no-rebase", "--no-edit")

    assert forward == 0
    assert made(repository, mark) == 2


def test_what_only_moves_head_is_no_commit_made(tree: WorkTree) -> None:
    tree.git("checkout", "-b", "side")
    tree.commit("aside")
    tree.git("checkout", "main")
    repository = found(tree)
    mark = mark_of(repository)

    tree.git("merge", "side")  # a fast-forward
    tree.git("commit", "--amend", "-m", "in other words")
    tree.git("reset", "--hard", "HEAD~1")
    tree.git("cherry-pick", "--ff", "side")
    tree.git("branch", "-m", "renamed")
    (tree.path / "first").write_text("set aside")
    tree.git("stash")
    tree.git("stash", "pop")

    assert made(repository, mark) == 0


def test_a_rebase_makes_no_commit(tree: WorkTree) -> None:
    tree.git("checkout", "-b", "side")
    tree.commit("aside")
    tree.commit("aside again")
    tree.git("checkout", "main")
    tree.commit("on main")
    tree.git("checkout", "side")
    repository = found(tree)
    mark = mark_of(repository)

    tree.git("rebase", "main")

    assert tree.git("rev-list", "--count", "HEAD").strip() == "4"
    assert made(repository, mark) == 0


def test_a_subject_that_looks_like_something_else_changes_nothing(tree: WorkTree) -> None:
    repository = found(tree)
    mark = mark_of(repository)

    tree.commit("rebase (pick): not really\tcommit: no")

    assert made(repository, mark) == 1


def test_a_mark_survives_json(tree: WorkTree) -> None:
    repository = found(tree)
    mark = ReflogMark(**json.loads(json.dumps(asdict(mark_of(repository)))))

    tree.commit("second")

    assert made(repository, mark) == 1


def test_a_garbage_collection_loses_no_count(tree: WorkTree) -> None:
    repository = found(tree)
    tree.commit("second")
    mark = mark_of(repository)
    tree.commit("third")
    reflog = tree.path / ".git" / "logs" / "HEAD"
    lines = reflog.read_bytes().splitlines(keepends=True)

    reflog.write_bytes(b"".join(lines[1:]))  # as when the oldest expires
    tree.git("gc", "--quiet")
    tree.commit("fourth")

    assert made(repository, mark) == 2


@pytest.mark.parametrize("left", [b"", b"junk\n" * 1000])
def test_a_mark_that_is_gone_from_the_reflog_tells_nothing(tree: WorkTree, left: bytes) -> None:
    repository = found(tree)
    mark = mark_of(repository)
    (tree.path / ".git" / "logs" / "HEAD").write_bytes(left)

    assert repository.commits_made(mark) is None


def test_without_a_reflog_nothing_is_told(tree: WorkTree) -> None:
    repository = found(tree)
    mark = mark_of(repository)
    (tree.path / ".git" / "logs" / "HEAD").unlink()

    assert repository.commits_made(mark) is None
    assert repository.mark() == ReflogMark()


def test_a_pipe_in_the_place_of_head_starts_no_git(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    head = tree.path / ".git" / "HEAD"
    head.unlink()
    os.mkfifo(head)
    monkeypatch.setattr(repo, "started", lambda *words, **options: pytest.fail(f"git {words} would block"))
    assert Repository.find(tree.path) is None
    assert repo.head(tree.path) is None
    assert position(tree.path) == Position(None, None)


def test_a_pipe_in_the_place_of_the_reflog_tells_nothing_and_holds_nobody(tree: WorkTree) -> None:
    repository = found(tree)
    mark = mark_of(repository)
    reflog = tree.path / ".git" / "logs" / "HEAD"
    reflog.unlink()
    os.mkfifo(reflog)

    assert repository.commits_made(mark) is None
    assert repository.mark() is None


def test_a_line_that_is_only_half_written_is_counted_when_it_is_whole(tree: WorkTree) -> None:
    repository = found(tree)
    mark = mark_of(repository)
    tree.commit("second")
    reflog = tree.path / ".git" / "logs" / "HEAD"
    whole = reflog.read_bytes()
    reflog.write_bytes(whole[:-10])
    half = repository.commits_made(mark)
    reflog.write_bytes(whole)

    assert half == Commits(0, mark)
    assert made(repository, half.until) == 1


def test_a_long_reflog_is_counted_in_several_calls(tree: WorkTree) -> None:
    repository = found(tree)
    mark = mark_of(repository)
    line = b"%040x %040x somebody <mail> 1790000000 +0000\tcommit: more\n"
    count = READ_BYTES // len(line % (1, 2)) + 100
    with (tree.path / ".git" / "logs" / "HEAD").open("ab") as reflog:
        reflog.writelines(line % (number, number + 1) for number in range(count))
    first = repository.commits_made(mark)
    assert first is not None

    assert 0 < first.made < count
    assert first.made + made(repository, first.until) == count
