"""How often git is started for a verdict, and what is read from git's files instead of asking it."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Position
from ralphd.git import repo
from ralphd.git.facts import boundary, position
from ralphd.git.repo import Repository
from ralphd.git.rewrite.revert import forget_old, revert, reverted
from ralphd.git.rewrite.stash import put_back, set_aside
from ralphd.git.runner import GitRunner, NotDone
from tests.git.guard_world import carried_out, committed, everything, head, refusal, write
from tests.git.work_tree import WorkTree

LABEL = "my-ralph/3"


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    committed(tree, "first", a="a\n", b="b\n")
    return tree


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of git that were made, by their first word that is no setting."""
    made: list[str] = []
    started = repo.started

    def counted(directory: Path, *words: str, **how: object) -> object:
        made.append(next(word for before, word in zip(("", *words), words) if "-c" not in (word, before)))  # noqa: B905
        return started(directory, *words, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(repo, "started", counted)
    return made


def calls_of(asked: list[str], act: Callable[[], object]) -> int:
    asked.clear()
    act()
    return len(asked)


def test_a_verdict_takes_few_calls_of_git_and_no_more_for_more_files(
    tree: WorkTree, asked: list[str]
) -> None:
    before = position(tree.path)
    bad = committed(tree, "bad", a="bad\n", **{f"new{number}": "new" for number in range(30)})
    write(tree, "b", "not committed\n")
    facts = calls_of(asked, lambda: boundary(tree.path, before))
    aside = calls_of(asked, lambda: carried_out(set_aside(tree.path, LABEL)))
    back = calls_of(asked, lambda: carried_out(put_back(tree.path, LABEL)))
    away = calls_of(asked, lambda: carried_out(revert(tree.path, [bad], head=bad, label=LABEL)))

    assert (facts, aside, back, away) == (4, 6, 5, 9)
    assert calls_of(asked, lambda: position(tree.path)) == 0
    assert (tree.path / "b").read_text() == "not committed\n"


def test_files_that_were_only_touched_are_reverted_all_the_same(tree: WorkTree) -> None:
    bad = committed(tree, "bad", a="bad\n", b="bad\n")
    for name in ("a", "b"):
        os.utime(tree.path / name, (1_000_000_000,) * 2)

    carried_out(revert(tree.path, [bad], head=bad, label=LABEL))

    assert (tree.path / "a").read_text() == "a\n"
    assert tree.git("status", "--porcelain") == ""


def test_what_the_daemon_writes_stays_readable_for_others(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo, "umask", 0o022)
    bad = committed(tree, "bad", a="bad\n", b="bad\n")
    write(tree, "new/file", "not committed\n")
    tree.git("add", "new/file")
    umask = os.umask(0o077)  # the daemon's
    try:
        carried_out(set_aside(tree.path, LABEL))
        carried_out(put_back(tree.path, LABEL))
        carried_out(revert(tree.path, [bad], head=bad, label=LABEL))
    finally:
        os.umask(umask)

    branch = tree.git("symbolic-ref", "HEAD").strip()
    modes = [stat.S_IMODE((tree.path / each).stat().st_mode) for each in ("a", "new", f".git/{branch}")]
    assert list(map(oct, modes)) == ["0o644", "0o755", "0o644"]


def test_a_link_that_a_run_puts_in_the_place_of_a_folder_gives_nobody_a_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repo, "umask", 0o022)
    (secret := tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(secret)

    repo.give_mode(tmp_path / "link", 0o755)

    assert stat.S_IMODE(secret.stat().st_mode) == 0o700
    repo.give_mode(secret, 0o755)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o755


def test_what_is_only_to_be_added_is_set_aside_and_comes_back(tree: WorkTree) -> None:
    write(tree, "new", "new\n")
    tree.git("add", "--intent-to-add", "new")
    write(tree, "a", "changed\n")
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))
    alone = tree.git("status", "--porcelain", "-uno")
    carried_out(put_back(tree.path, LABEL))

    assert (alone, everything(tree)) == ("", before)


def test_work_of_which_nothing_is_staged_comes_back_though_the_index_is_not_kept(tree: WorkTree) -> None:
    write(tree, "a", "changed\n")
    (tree.path / "b").unlink()
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))
    kept = tree.git("ls-tree", "--name-only", f"refs/ralph/aside/{LABEL}^2").split()
    alone = tree.git("status", "--porcelain")
    carried_out(put_back(tree.path, LABEL))

    assert (kept, alone) == (["file-000000", "files.json"], "")
    assert everything(tree) == before


def test_odd_names_links_and_folders_that_became_files_come_back_when_nothing_is_staged(
    tree: WorkTree,
) -> None:
    odd = ['"quoted" \\ back', "line\nend", " blank", "é\t"]
    for name in (*odd, "folder/inner", "run"):
        write(tree, name, f"{name}\n")
    (tree.path / "link").symlink_to("a")
    tree.git("add", "-A")
    tree.git("commit", "-q", "-m", "odd")
    for name in odd:
        write(tree, name, f"{name} changed\n")
    (tree.path / "folder" / "inner").unlink()
    (tree.path / "folder").rmdir()
    (tree.path / "run").chmod(0o755)
    (tree.path / "link").unlink()
    (tree.path / "link").symlink_to("b")
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))
    alone = tree.git("status", "--porcelain")
    tree.git("diff", "--quiet", "HEAD")
    kept = tree.git("diff", "--name-status", "-z", "HEAD", f"refs/ralph/aside/{LABEL}").split("\0")
    carried_out(put_back(tree.path, LABEL))

    assert alone == ""
    assert dict(zip(kept[1::2], kept[::2], strict=False)) == {
        **dict.fromkeys(odd, "M"), "folder/inner": "D", "run": "M", "link": "M",
    }  # fmt: skip
    assert everything(tree) == before


def test_where_head_is_git_is_asked_when_its_files_do_not_tell(tree: WorkTree, asked: list[str]) -> None:
    tree.git("pack-refs", "--all")
    packed = calls_of(asked, lambda: position(tree.path))
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    tree.git("symbolic-ref", "HEAD", "refs/heads/alias")
    alias = calls_of(asked, lambda: position(tree.path))
    tree.git("checkout", "-q", "--detach")

    assert (packed, alias) == (1, 1)
    assert position(tree.path) == Position(head(tree), None)


@pytest.mark.parametrize(
    "also", ["[core]\n\tworktree = ../elsewhere\n", "[extensions]\n\tworktreeConfig = true\n"]
)
def test_a_work_tree_that_is_configured_to_be_elsewhere_is_found_where_it_is(
    tree: WorkTree, also: str
) -> None:
    elsewhere = tree.path / "elsewhere"
    elsewhere.mkdir()
    with (tree.path / ".git" / "config").open("a") as file:
        file.write(also)
    if "worktreeConfig" in also:
        tree.git("config", "--worktree", "core.worktree", "../elsewhere")

    repository = Repository.find(tree.path)

    assert repository is not None and repository.top is None
    assert GitRunner(tree.path).top == elsewhere.resolve()


@pytest.mark.parametrize("lock", ["HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_that_a_killed_git_has_left_is_named_with_what_to_do(tree: WorkTree, lock: str) -> None:
    bad = committed(tree, "bad", a="bad\n")
    before = everything(tree)
    (tree.path / ".git" / lock).touch()

    why = refusal(revert(tree.path, [bad], head=bad, label=LABEL))
    (tree.path / ".git" / lock).unlink()

    assert f".git/{lock} is there" in why and "Remove it only when no git runs here" in why
    assert everything(tree) == before
    carried_out(revert(tree.path, [bad], head=bad, label=LABEL))


def test_refs_of_the_newest_reverts_are_kept_and_what_is_spared(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphd.git.rewrite.revert.KEPT", 2)
    for number in range(4):
        bad = committed(tree, f"bad {number}", a=f"bad {number}\n")
        carried_out(revert(tree.path, [bad], head=bad, label=f"my-ralph/{number}"))
    carried_out(revert(tree.path, [committed(tree, "bad", a="bad\n")], head=head(tree), label="other/0"))

    forget_old(tree.path, "my-ralph", spared=["my-ralph/0"])

    left = tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert [name.removeprefix("refs/ralph/reverts/") for name in left if "reverts/" in name] == [
        "my-ralph/0", "my-ralph/2", "my-ralph/3", "other/0",
    ]  # fmt: skip
    assert len(left) == 8 and reverted(tree.path, "my-ralph/1") == ()
    forget_old(tree.path, "my-ralph", spared=["my-ralph/0"])
    assert tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split() == left


def test_a_work_tree_elsewhere_is_refused(tree: WorkTree, tmp_path: Path) -> None:
    other = WorkTree.new(tmp_path / "other")
    committed(other, "theirs", a="a\n")
    tree.git("config", "core.worktree", str(other.path))

    with pytest.raises(NotDone, match=f"core.worktree of git names {other.path}, outside of {tree.path}"):
        _ = GitRunner(tree.path).top
    tree.git("config", "core.worktree", str(tree.path))
    below = tree.path / "below"
    below.mkdir()
    assert GitRunner(below).top == tree.path


def test_who_is_refused_the_lock_removes_no_file(tree: WorkTree) -> None:
    working, refused = GitRunner(tree.path), GitRunner(tree.path)
    with working.exclusive():
        index = working.work / "tmp-index"
        index.touch()
        with pytest.raises(NotDone, match="another ralphd"), refused.exclusive():
            pass
        assert index.exists()
    assert not working.work.exists()


@pytest.mark.parametrize("is_link", [True, False])
def test_what_is_in_place_of_the_guards_folder_is_left_alone(
    tree: WorkTree, tmp_path: Path, is_link: bool
) -> None:
    outside = tmp_path / "outside"
    (outside / "tmp-project").mkdir(parents=True)
    (outside / "tmp-notes").touch()
    guard = tree.path / ".git" / "ralph-guard"
    guard.symlink_to(outside) if is_link else guard.touch()

    kind = "a symbolic link" if is_link else "a file"
    with pytest.raises(NotDone, match=f"ralph-guard is {kind}"), GitRunner(tree.path).exclusive():
        pass

    assert sorted(each.name for each in outside.iterdir()) == ["tmp-notes", "tmp-project"]
    guard.unlink()
    with GitRunner(tree.path).exclusive():
        pass


def test_files_of_a_killed_act_are_removed_and_links_not_followed(tree: WorkTree, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    guard = tree.path / ".git" / "ralph-guard"
    (guard / "tmp-folder").mkdir(parents=True)
    (guard / "tmp-folder" / "file").touch()
    (guard / "tmp-file").touch()
    (guard / "tmp-link").symlink_to(tmp_path / "outside")
    (guard / "journal").touch()

    with GitRunner(tree.path).exclusive():
        assert [each.name for each in guard.iterdir()] == ["journal"]

    assert (tmp_path / "outside").is_dir()


@pytest.mark.parametrize(
    "link", ["refs/ralph", "refs/ralph/aside", "refs/heads", "logs/refs/ralph", "logs/refs/heads/x"]
)
def test_no_ref_is_written_through_a_link(tree: WorkTree, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tree.path / ".git" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "moved")
        outside = tmp_path / "moved"
    place.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    git = GitRunner(tree.path)
    sha = tree.git("hash-object", "-t", "tree", "-w", "/dev/null").strip()
    ref = "refs/heads/x" if "heads" in link else "refs/ralph/aside/x"

    with pytest.raises(NotDone, match=f"{link} is a symbolic link"):
        git.update_refs(f"create {ref} {sha}")
    with pytest.raises(NotDone, match=f"{link} is a symbolic link"):
        git.output("update-ref", ref, sha)

    assert sorted(outside.rglob("*")) == before


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotDone, match=f"^{tmp_path}/gone is missing$"):
        GitRunner(tmp_path / "gone")
