"""Commits are taken back and brought back, and nothing else is touched (R5, R6)."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import Refused
from ralphd.git.rewrite.revert import restore, revert, reverted, undo
from ralphd.git.runner import GitRunner, ref_name
from tests.git.guard_world import (
    carried_out,
    clone_with_upstream,
    committed,
    everything,
    files,
    head,
    movement,
    refusal,
    subjects,
    write,
)
from tests.git.work_tree import WorkTree

LABEL = "my-ralph/3"


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with dependencies that are ignored, as work trees have them."""
    tree = WorkTree.new(tmp_path / "tree")
    tree.git("config", "user.name", "Someone")
    tree.git("config", "user.email", "someone@example.invalid")
    committed(
        tree, "first", **{".gitignore": "node_modules/\n*.env\n", "kept": "kept\n", "src__code": "1\n2\n3\n"}
    )
    write(tree, "node_modules/dep/index.js", "ignored")
    return tree


def taken_back(tree: WorkTree, *commits: str, label: str = LABEL) -> str:
    return carried_out(revert(tree.path, commits, head=head(tree), label=label))


# Revert


def test_one_commit_is_reverted_as_git_revert_would(tree: WorkTree) -> None:
    base, before = head(tree), files(tree)
    bad = committed(tree, 'bad " é', src__code="broken\n", new="new", kept=None)

    now = taken_back(tree, bad)

    assert head(tree) == now
    assert head(tree, "HEAD^{tree}") == head(tree, f"{base}^{{tree}}")
    assert head(tree, "HEAD^") == bad
    assert tree.git("log", "-1", "--format=%an <%ae>|%B") == (
        f'Someone <someone@example.invalid>|Revert "bad " é"\n\nThis reverts commit {bad}.\n\n'
    )
    assert files(tree) == before
    assert tree.git("status", "--porcelain") == ""
    assert head(tree, "refs/ralph/reverts/my-ralph/3") == now
    assert head(tree, "refs/ralph/reverted/my-ralph/3") == bad
    assert tree.git("worktree", "list").count("\n") == 1


def test_several_are_reverted_newest_first_one_by_one_or_at_once(tree: WorkTree) -> None:
    base = head(tree)
    shas = [committed(tree, f"c{number}", src__code=f"{number}\n") for number in range(3)]

    first = taken_back(tree, shas[2])
    taken_back(tree, shas[1], shas[0])

    assert head(tree, "HEAD^{tree}") == head(tree, f"{base}^{{tree}}")
    assert subjects(tree)[:3] == ['Revert "c0"', 'Revert "c1"', 'Revert "c2"']
    assert [each.reverts for each in reverted(tree.path, LABEL)] == shas
    assert reverted(tree.path, LABEL)[-1].sha == first
    assert reverted(tree.path, "another") == ()


def test_a_merge_is_reverted_by_its_first_parent(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "-b", "side")
    committed(tree, "on the side", side="x")
    tree.git("checkout", "--quiet", "main")
    ahead = committed(tree, "ahead", ahead="x")
    tree.git("merge", "--quiet", "--no-edit", "side")
    merge = head(tree)

    taken_back(tree, merge)

    assert head(tree, "HEAD^{tree}") == head(tree, f"{ahead}^{{tree}}")
    assert f"This reverts commit {merge}, reversing\nchanges made to {ahead}.\n" in tree.git(
        "log", "-1", "--format=%B"
    )
    assert [each.reverts for each in reverted(tree.path, LABEL)] == [merge]


def test_work_that_is_not_committed_stays_staged_or_not(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    write(tree, "kept", "staged")
    tree.git("add", "kept")
    write(tree, "kept", "and more")
    write(tree, "added", "new file")
    tree.git("add", "-N", "added")
    write(tree, "untracked", "x")
    before = everything(tree, refs=False)

    taken_back(tree, bad)

    after = everything(tree, refs=False)
    assert after.status == before.status
    assert {n: f for n, f in after.files.items() if "code" not in n} == {
        n: f for n, f in before.files.items() if "code" not in n
    }
    assert tree.git("diff", "--cached", "--name-only").split() == ["kept"]


def dirty(tree: WorkTree) -> None:
    write(tree, "src/code", "mine")


def staged(tree: WorkTree) -> None:
    dirty(tree)
    tree.git("add", "-A")


def removed(tree: WorkTree) -> None:
    (tree.path / "src" / "code").unlink()


def untracked(tree: WorkTree) -> None:
    write(tree, "gone", "mine")


def ignored(tree: WorkTree) -> None:
    write(tree, "secret.env", "mine")


def folder(tree: WorkTree) -> None:
    write(tree, "gone/deep/file", "mine")


def in_place_of_folder(tree: WorkTree) -> None:
    (tree.path / "was").rmdir()
    write(tree, "was", "mine")


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        (dirty, "changes that are not committed are in the way: src/code"),
        (staged, "changes that are not committed are in the way: src/code"),
        (untracked, "untracked or ignored files are in the way: gone"),
        (ignored, "untracked or ignored files are in the way: secret.env"),
        (folder, "untracked or ignored files are in the way: gone/deep/file"),
        (in_place_of_folder, "untracked or ignored files are in the way: was"),
    ],
)
def test_an_overlap_is_refused_and_all_is_as_it_was(
    tree: WorkTree, deed: Callable[[WorkTree], None], why: str
) -> None:
    write(tree, "secret.env", "tracked once")
    tree.git("add", "-f", "secret.env")
    committed(tree, "more", gone="gone", was__in__a="folder")
    bad = committed(
        tree, "bad", **{"src__code": "broken\n", "gone": None, "was__in__a": None, "secret.env": None}
    )
    deed(tree)
    before = everything(tree)

    assert refusal(revert(tree.path, [bad], head=bad, label=LABEL)) == why
    assert everything(tree) == before
    assert reverted(tree.path, LABEL) == ()


def test_a_deletion_that_is_not_committed_is_in_the_way_too(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    removed(tree)
    before = everything(tree)

    assert "src/code" in refusal(revert(tree.path, [bad], head=bad, label=LABEL))
    assert everything(tree) == before


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_are_hidden_from_git_are_in_the_way_and_stay(tree: WorkTree, flag: str) -> None:
    bad = committed(tree, "bad", src__code="broken\n", new="x")
    tree.git("update-index", flag, "src/code", "kept")
    write(tree, "src/code", "mine")
    write(tree, "kept", "mine")
    before = everything(tree)

    why = refusal(revert(tree.path, [bad], head=bad, label=LABEL))

    assert why == "changes that are not committed are in the way: src/code"
    assert everything(tree) == before
    write(tree, "src/code", "broken\n")
    before, flags = everything(tree), tree.git("ls-files", "-v")
    os.utime(tree.path / "src" / "code", (1_000_000_000,) * 2)
    refusal(revert(tree.path, [bad], head=bad, label=LABEL))  # git will not look into it
    assert (everything(tree), tree.git("ls-files", "-v")) == (before, flags)


def test_a_conflict_with_a_later_commit_is_refused_and_all_is_as_it_was(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="1\nbroken\n3\n")
    late = committed(tree, "late", src__code="1\nbroken too\n3\n")
    before = everything(tree)

    assert refusal(revert(tree.path, [bad], head=late, label=LABEL)) == (
        f"conflict of {bad[:7]} with later changes in src/code"
    )
    assert everything(tree) == before


def test_an_earlier_commit_is_merged_out_where_that_goes(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n2\n3\n", other="x")
    committed(tree, "late", late="x")
    tree.git("mv", "src/code", "src/renamed")
    committed(tree, "renamed", later="x")

    taken_back(tree, bad)

    assert (tree.path / "src" / "renamed").read_text() == "1\n2\n3\n"
    assert not (tree.path / "other").exists()
    assert tree.git("status", "--porcelain") == ""


def test_what_changes_nothing_any_more_counts_as_reverted(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    empty = committed(tree, "empty")
    committed(tree, "mended by hand", src__code="1\n2\n3\n")
    at = head(tree)

    assert taken_back(tree, empty) == at
    assert taken_back(tree, bad) == at
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_a_head_elsewhere_is_told_and_nothing_is_done(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    somebodys = committed(tree, "somebody's", other="x")
    before = everything(tree)

    why = movement(revert(tree.path, [bad], head=bad, label=LABEL))

    assert why == f"HEAD is at {somebodys[:7]}, not at {bad[:7]}"
    assert everything(tree) == before


@pytest.mark.parametrize("commit", ["HEAD", "--all", "0" * 40, "", "a" * 40])
def test_what_is_no_commit_of_the_branch_is_refused(tree: WorkTree, commit: str) -> None:
    before = everything(tree)
    assert isinstance(revert(tree.path, [commit], head=head(tree), label=LABEL), Refused)
    tree.git("checkout", "--quiet", "--orphan", "alone")
    tree.git("commit", "--quiet", "-m", "alone")
    alone = head(tree)
    tree.git("checkout", "--quiet", "main")

    assert "not in the branch" in refusal(revert(tree.path, [alone], head=head(tree), label=LABEL))
    tree.git("branch", "-D", "alone")
    assert everything(tree) == before


def test_where_something_is_in_the_way_it_is_refused(tree: WorkTree, tmp_path: Path) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    (tree.path / ".git" / "BISECT_LOG").touch()
    assert "bisect" in refusal(revert(tree.path, [bad], head=bad, label=LABEL))
    (tree.path / ".git" / "BISECT_LOG").unlink()
    tree.git("checkout", "--quiet", "--detach")

    assert (
        refusal(revert(tree.path, [bad], head=bad, label=LABEL)) == "HEAD is on no branch: git switch BRANCH"
    )
    assert refusal(undo(tmp_path, [bad])) == "this is not a git repository"
    empty = WorkTree.new(tmp_path / "empty").path
    assert refusal(revert(empty, [bad], head=bad, label=LABEL)) == "the repository has no commit yet"


def test_names_of_any_bytes_links_modes_and_kinds_come_back(tree: WorkTree) -> None:
    for name in (b"two\nlines", b"not \xff unicode", b":(top)magic", b'"quo"ted', b"-dash"):
        Path(os.fsdecode(os.fsencode(tree.path) + b"/" + name)).write_bytes(name)
    (tree.path / "link").symlink_to("kept")
    (tree.path / "run").write_text("x")
    (tree.path / "run").chmod(0o755)
    committed(tree, "odd", folder__a="a")
    before = files(tree)
    for path in tree.path.iterdir():
        if path.is_file() and path.name not in (".gitignore", "kept"):
            path.unlink()
    (tree.path / "kept").unlink()
    (tree.path / "kept").symlink_to("link")
    (tree.path / "folder" / "a").unlink()
    (tree.path / "folder").rmdir()
    bad = committed(tree, "bad", folder="a file now")

    taken_back(tree, bad)

    assert files(tree) == before
    assert tree.git("status", "--porcelain") == ""


def test_hooks_filters_drivers_and_other_programs_of_the_repository_are_not_run(
    tree: WorkTree, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    committed(
        tree, "attributes", **{".gitattributes": "*.odd merge=odd\n*.lfs filter=lfs\n", "a.odd": "1\n2\n3\n"}
    )
    bad = committed(tree, "bad", **{"a.odd": "broken\n2\n3\n"})
    late = committed(tree, "late", **{"a.odd": "broken\n2\n4\n", "big.lfs": "pointer"})
    for name in ("post-merge", "post-checkout", "post-index-change", "reference-transaction", "post-commit"):
        hook = tree.path / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "merge.odd.driver", "filter.lfs.smudge", "filter.lfs.clean", "gpg.program"):
        tree.git("config", key, f"touch {ran}; cat")
    tree.git("config", "commit.gpgSign", "true")
    tree.git("config", "submodule.recurse", "true")
    before = everything(tree)
    ran.unlink(missing_ok=True)

    driver = refusal(revert(tree.path, [bad], head=late, label=LABEL))
    lfs = refusal(revert(tree.path, [late], head=late, label=LABEL))

    assert driver == f"conflict of {bad[:7]} with later changes in a.odd"
    assert lfs == "files go through a filter (LFS or the like), which is not run: big.lfs"
    assert not ran.exists()
    assert everything(tree) == before


def test_a_change_of_which_files_go_through_a_filter_is_refused(tree: WorkTree) -> None:
    tree.git("config", "filter.lfs.smudge", "false")
    bad = committed(tree, "bad", **{".gitattributes": "big filter=lfs\n"})
    before = everything(tree)

    assert "changes which files go through a filter" in refusal(
        revert(tree.path, [bad], head=bad, label=LABEL)
    )
    assert everything(tree) == before


def test_without_a_name_of_the_users_it_is_ours(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.git("config", "--unset", "user.name")
    tree.git("config", "--unset", "user.email")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tree.path.parent))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tree.path.parent))
    bad = committed(tree, "bad", src__code="broken\n")

    taken_back(tree, bad)

    assert tree.git("log", "-1", "--format=%an <%ae> %cn") == "ralphd <ralphd@localhost> ralphd\n"


def test_a_disk_that_fills_up_in_the_middle_leaves_all_as_it_was(tree: WorkTree) -> None:
    committed(tree, "large", **{f"f{number}": "small" for number in range(5)}, z="x" * 200_000)
    bad = committed(tree, "bad", **{f"f{number}": "changed" for number in range(5)}, z=None)
    write(tree, "kept", "dirty")
    before = everything(tree)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        why = refusal(revert(tree.path, [bad], head=bad, label=LABEL))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert why.startswith("git read-tree")
    assert everything(tree) == before
    assert carried_out(revert(tree.path, [bad], head=bad, label=LABEL)) == head(tree)


def test_a_git_that_does_not_end_is_given_up_and_all_is_as_it_was(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = committed(tree, "bad", src__code="broken\n", added="x")
    write(tree, "kept", "dirty")
    before, real = everything(tree), shutil.which("git")
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    slow = f"'{real}' \"$@\"; touch '{tree.path}/.git/index.lock'; sleep 600"
    script.write_text(f'#!/bin/sh\ncase "$*" in *"read-tree -m"*) {slow};; esac\nexec \'{real}\' "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")

    monkeypatch.setitem(GitRunner.__init__.__kwdefaults__, "limit_s", 2.0)  # type: ignore[arg-type]
    why = refusal(revert(tree.path, [bad], head=bad, label=LABEL))

    assert "did not end in time" in why
    monkeypatch.undo()
    assert everything(tree) == before


# Restore


def test_reverts_are_taken_back_and_the_refs_stay(tree: WorkTree) -> None:
    good, bad = committed(tree, "good", good="x"), committed(tree, "bad", src__code="broken\n")
    write(tree, "kept", "staged")
    tree.git("add", "kept")
    before = everything(tree)
    expected = taken_back(tree, bad, good)

    assert carried_out(restore(tree.path, bad, expected=expected, label=LABEL)) == bad
    assert everything(tree) == before
    assert head(tree, "refs/ralph/reverts/my-ralph/3") == expected
    assert carried_out(restore(tree.path, bad, expected=expected, label=LABEL)) == bad


def test_what_anybody_did_meanwhile_is_not_taken_back(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    expected = taken_back(tree, bad)
    write(tree, "src/code", "mine")
    assert "src/code" in refusal(restore(tree.path, bad, expected=expected, label=LABEL))
    theirs = committed(tree, "theirs")

    assert theirs[:7] in movement(restore(tree.path, bad, expected=expected, label=LABEL))
    why = refusal(restore(tree.path, bad, expected=theirs, label=LABEL))
    assert why == f"between {bad[:7]} and {theirs[:7]} there is more than our own reverts"
    assert head(tree) == theirs


# Undo


def test_what_was_reverted_comes_back_on_top_of_later_commits(tree: WorkTree) -> None:
    shas = [committed(tree, "one", one="1"), committed(tree, "two", src__code="two\n")]
    taken_back(tree, *reversed(shas))
    committed(tree, "later", later="x")
    reverts = [each.sha for each in reverted(tree.path, LABEL)]

    now = carried_out(undo(tree.path, reverts))

    assert (tree.path / "one").read_text() == "1"
    assert (tree.path / "src" / "code").read_text() == "two\n"
    assert subjects(tree)[:3] == ['Reapply "two"', 'Reapply "one"', "later"]
    assert carried_out(undo(tree.path, reverts)) == now, "it is back already"


def test_an_undo_that_conflicts_or_overlaps_is_refused_and_all_is_as_it_was(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    (made,) = [taken_back(tree, bad)]
    write(tree, "src/code", "dirty")
    before = everything(tree)
    assert "not committed are in the way: src/code" in refusal(undo(tree.path, [made]))
    assert everything(tree) == before
    committed(tree, "otherwise")
    before = everything(tree)

    assert refusal(undo(tree.path, [made])).startswith("conflict")
    assert everything(tree) == before


# Repositories of every sort


def test_a_linked_work_tree_and_a_folder_below_work_the_same(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    linked = WorkTree(tmp_path / "linked")
    base, before = head(linked), everything(tree, refs=False)
    bad = committed(linked, "bad", src__code="broken\n")

    carried_out(revert(linked.path / "src", [bad], head=bad, label=LABEL))

    assert head(linked, "HEAD^{tree}") == head(tree, f"{base}^{{tree}}")
    assert (linked.path / "src" / "code").read_text() == "1\n2\n3\n"
    assert everything(tree, refs=False) == before


@pytest.mark.parametrize("sort", ["sha256", "shallow", "partial", "sparse", "split"])
def test_repositories_of_other_sorts_are_served(tree: WorkTree, tmp_path: Path, sort: str) -> None:
    other = WorkTree(tmp_path / "other")
    url = f"file://{tree.path}"
    tree.git("config", "uploadpack.allowFilter", "true")
    committed(tree, "second", second="2", folder__x="x")
    match sort:
        case "sha256":
            other.path.mkdir()
            other.git("init", "--quiet", "-b", "main", "--object-format=sha256")
            committed(other, "first", src__code="1\n2\n3\n", second="2")
        case "shallow":
            tree.git("clone", "--quiet", "--depth=1", url, str(other.path))
        case "partial":
            tree.git("clone", "--quiet", "--filter=blob:none", url, str(other.path))
        case "sparse":
            tree.git("clone", "--quiet", url, str(other.path))
            other.git("sparse-checkout", "set", "src")
        case _:
            tree.git("clone", "--quiet", url, str(other.path))
            other.git("update-index", "--split-index")
    before = files(other)
    bad = committed(other, "bad", src__code="broken\n", added="x", second=None)

    taken_back(other, bad)

    assert files(other) == before
    assert other.git("status", "--porcelain") == ""


def with_submodule(tree: WorkTree, tmp_path: Path) -> WorkTree:
    library = WorkTree.new(tmp_path / "library")
    committed(library, "library 1", code="1")
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "sub")
    committed(tree, "a submodule")
    return WorkTree(tree.path / "sub")


def test_a_submodule_follows_and_goes_back_to_its_branch(tree: WorkTree, tmp_path: Path) -> None:
    sub = with_submodule(tree, tmp_path)
    sub.git("checkout", "--quiet", "-B", "work")
    one, two = head(sub), committed(sub, "library 2", code="2")
    bad = committed(tree, "bad: newer library", src__code="broken\n")
    before = everything(tree), everything(sub)

    expected = taken_back(tree, bad)

    assert head(sub) == one
    assert (sub.path / "code").read_text() == "1"
    assert tree.git("status", "--porcelain") == ""
    assert sub.git("rev-parse", "work").strip() == two
    carried_out(restore(tree.path, bad, expected=expected, label=LABEL))
    assert (everything(tree), everything(sub)) == before


def test_an_added_submodule_comes_back_over_its_own_files(tree: WorkTree, tmp_path: Path) -> None:
    sub = with_submodule(tree, tmp_path)
    write(sub, "mine", "not committed\n")
    added, before = head(tree), (everything(tree, refs=False), everything(sub))

    expected = taken_back(tree, added)

    assert (sub.path / "code").read_text() == "1", "as git leaves them"
    carried_out(restore(tree.path, added, expected=expected, label=LABEL))
    assert (everything(tree, refs=False), everything(sub)) == before
    again = carried_out(revert(tree.path, [added], head=added, label="my-ralph/4"))
    carried_out(undo(tree.path, [again]))
    assert tree.git("status", "--porcelain", "--ignore-submodules=untracked") == ""
    assert everything(sub) == before[1]


def test_files_where_a_submodule_comes_back_are_in_the_way(tree: WorkTree, tmp_path: Path) -> None:
    sub = with_submodule(tree, tmp_path)
    expected, added = taken_back(tree, head(tree)), head(tree, "HEAD^")
    (sub.path / ".git").unlink()
    assert "files are in the way: sub/code" in refusal(
        restore(tree.path, added, expected=expected, label=LABEL)
    )


def test_a_submodule_with_work_in_it_is_refused_and_stays(tree: WorkTree, tmp_path: Path) -> None:
    sub = with_submodule(tree, tmp_path)
    committed(sub, "library 2", code="2")
    bad = committed(tree, "bad: newer library")
    write(sub, "code", "dirty")
    before = everything(tree), everything(sub)

    assert refusal(revert(tree.path, [bad], head=bad, label=LABEL)) == (
        "the submodule sub has work that is not committed, or half done"
    )
    assert (everything(tree), everything(sub)) == before


def test_the_upstream_is_not_touched_and_a_push_is_a_plain_one(tmp_path: Path) -> None:
    tree, origin = clone_with_upstream(tmp_path)
    bad = committed(tree, "bad", bad="x")
    tree.git("push", "--quiet")

    carried_out(revert(tree.path, [bad], head=bad, label=LABEL))

    assert subjects(origin, "main") == ["bad", "first"]
    tree.git("push", "--quiet")
    assert subjects(origin, "main") == ['Revert "bad"', "bad", "first"]
    assert "refs/ralph" not in origin.git("for-each-ref")


def test_a_label_is_a_ref_whatever_is_in_it(tree: WorkTree) -> None:
    for label in ("a b", "..", "x.lock", "-x", "é", "a//b/", "", "@{1}"):
        tree.git("check-ref-format", f"refs/ralph/reverts/{ref_name(label)}")
    names = {ref_name(label) for label in ("a b", "a%b", "a.b", "a-b")}
    assert len(names) == 4


def test_two_acts_at_once_are_not_possible(tree: WorkTree) -> None:
    bad = committed(tree, "bad", src__code="broken\n")
    holder = subprocess.Popen(
        ["flock", str(tree.path / ".git"), "sh", "-c", "echo held; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        why = refusal(revert(tree.path, [bad], head=bad, label=LABEL))
        holder.stdin.close()
        holder.wait(10)

    assert why == "another ralphd reverts or sets aside in this repository"
    assert head(tree) == bad
