"""Uncommitted work is kept as a git object, and neither the work tree nor the index is touched (L1)."""

import os
import stat
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.git import snapshot as module
from ralphd.git.snapshot import KEPT, Snapshot, snapshot
from tests.git.work_tree import WorkTree
from tests.helpers import is_alive, wait_for

EXECUTABLE = stat.S_IXUSR


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    """A repository with three files and something ignored."""
    tree = WorkTree.new(tmp_path / "tree")
    (tree.path / ".gitignore").write_text("*.log\nbuild/\n")
    (tree.path / "src").mkdir()
    for name in ("kept", "src/code", "gone"):
        (tree.path / name).write_text(name)
    tree.git("add", ".")
    tree.git("commit", "--quiet", "-m", "first")
    return tree


def taken(tree: WorkTree, label: str = "iteration 1") -> Snapshot:
    """A snapshot without trouble."""
    found = snapshot(tree.path, label)
    assert found.trouble == ""
    return found


def commit_of(found: Snapshot) -> str:
    assert found.commit is not None
    return found.commit


def content(tree: WorkTree, revision: str) -> dict[str, str]:
    """What a commit holds: mode and content by name."""
    entries = [
        entry.split("\t", 1) for entry in tree.git("ls-tree", "-r", "-z", revision).split("\0") if entry
    ]
    return {name: f"{about.split()[0]} {_blob(tree, about)}" for about, name in entries}


def _blob(tree: WorkTree, about: str) -> str:
    _, kind, sha = about.split()
    return tree.git("cat-file", "blob", sha) if kind == "blob" else sha


def untouched(tree: WorkTree) -> tuple[object, ...]:
    """All that a snapshot must not change, byte for byte."""
    index = tree.path / ".git" / "index"
    staged = index.read_bytes() if index.exists() else None
    files = {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, _bytes(path))
        for path in sorted(tree.path.rglob("*"))
        if ".git" not in path.relative_to(tree.path).parts
    }
    told = tree.git("--no-optional-locks", "status", "--porcelain", "-z", "--ignored")
    return staged, tree.git("ls-files", "-s", "-z"), told, files, tree.git("branch", "--list", "-v")


def _bytes(path: Path) -> bytes | None:
    if path.is_symlink():
        return os.fsencode(os.readlink(path))
    return path.read_bytes() if path.is_file() else None


# What is kept


def test_changes_additions_and_deletions_are_kept_staged_or_not(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    (tree.path / "gone").unlink()
    (tree.path / "src" / "staged").write_text("staged")
    tree.git("add", "src/staged")
    (tree.path / "new").mkdir()
    (tree.path / "new" / "file").write_text("untracked")
    before = untouched(tree)

    found = taken(tree)

    assert content(tree, commit_of(found)) == {
        ".gitignore": "100644 *.log\nbuild/\n",
        "kept": "100644 changed",
        "new/file": "100644 untracked",
        "src/code": "100644 src/code",
        "src/staged": "100644 staged",
    }
    assert found.ref == "refs/ralph/checkpoints/000001"
    assert sorted(found.files) == ["gone", "kept", "new/file", "src/staged"]
    assert tree.git("rev-parse", found.ref, f"{found.ref}^").split() == [found.commit, found.head]
    assert found.head == tree.git("rev-parse", "HEAD").strip()
    assert untouched(tree) == before


def test_what_is_ignored_is_never_kept(tree: WorkTree) -> None:
    (tree.path / "secret.log").write_text("x")
    (tree.path / "build").mkdir()
    (tree.path / "build" / "out").write_text("x")

    assert taken(tree) == Snapshot(head=tree.git("rev-parse", "HEAD").strip())
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_links_modes_and_names_of_any_bytes_are_kept(tree: WorkTree) -> None:
    (tree.path / "link").symlink_to("/etc/passwd")
    (tree.path / "src" / "code").chmod(0o755)
    for name in (b"two\nlines", b"not \xff unicode", b":(top)magic", b'quo"ted', b"-dash"):
        Path(os.fsdecode(os.fsencode(tree.path) + b"/" + name)).write_bytes(name)
    before = untouched_bytes(tree)

    found = taken(tree)

    kept = ls_tree(tree, commit_of(found))
    assert kept[b"link"] == b"120000"
    assert kept[b"src/code"] == b"100755"
    assert {b"two\nlines", b"not \xff unicode", b":(top)magic", b'quo"ted', b"-dash"} <= set(kept)
    assert "not � unicode" in found.files
    assert untouched_bytes(tree) == before


def ls_tree(tree: WorkTree, revision: str) -> dict[bytes, bytes]:
    """Modes by names, as bytes."""
    words = ["git", "ls-tree", "-r", "-z", revision]
    printed = subprocess.run(words, cwd=tree.path, capture_output=True, check=True, timeout=60).stdout
    return {entry.split(b"\t", 1)[1]: entry.split()[0] for entry in printed.split(b"\0") if entry}


def untouched_bytes(tree: WorkTree) -> tuple[bytes, list[str]]:
    names = [repr(path) for path in tree.path.rglob("*") if ".git" not in path.parts]
    return (tree.path / ".git" / "index").read_bytes(), sorted(names)


def test_a_folder_whose_place_a_link_took_is_gone_though_its_files_can_be_reached(
    tree: WorkTree, tmp_path: Path
) -> None:
    (tree.path / "src").rename(tmp_path / "elsewhere")
    (tree.path / "src").symlink_to(tmp_path / "elsewhere")

    kept = content(tree, commit_of(taken(tree)))

    assert kept["src"] == f"120000 {tmp_path / 'elsewhere'}"
    assert "src/code" not in kept


def test_a_large_file_is_named_and_not_kept(tree: WorkTree) -> None:
    with (tree.path / "movie").open("wb") as file:
        file.truncate(module.LARGE_BYTES + 1)
    alone = taken(tree)
    (tree.path / "kept").write_text("changed")

    found = taken(tree)

    assert alone.ref is None
    assert alone.skipped_large == found.skipped_large == ("movie",)
    assert alone.files == ("movie",)
    assert "movie" not in content(tree, commit_of(found))


def test_a_large_file_in_an_empty_repository_is_no_trouble(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    with (tree.path / "movie").open("wb") as file:
        file.truncate(module.LARGE_BYTES + 1)
    (tree.path / "small").write_text("small")

    assert content(tree, commit_of(taken(tree))) == {"small": "100644 small"}


def test_files_without_end_are_not_kept_and_that_is_said(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree.path / "some").write_bytes(b"x" * (1 << 20))
    monkeypatch.setattr(module, "MOST_BYTES", 1000)

    found = snapshot(tree.path, "x")

    assert found.ref is None
    assert found.trouble == (
        "uncommitted work could not be kept: 1 MiB are not committed; add generated files to .gitignore"
    )


def test_names_are_bounded_and_counted(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 3)
    for number in range(5):
        (tree.path / f"{number}").write_text("x")

    found = taken(tree)

    assert len(found.files) == 3
    assert len(content(tree, commit_of(found))) == 5 + 4


def test_a_file_of_the_same_size_written_in_the_tick_of_the_index_is_seen(tree: WorkTree) -> None:
    index = tree.path / ".git" / "index"
    (tree.path / "kept").write_text("KEPT")
    tick = (index.stat().st_mtime_ns - 10**9,) * 2
    tree.git("config", "core.trustctime", "false")
    os.utime(tree.path / "kept", ns=tick)
    tree.git("add", "kept")
    (tree.path / "kept").write_text("SAME")
    for path in (tree.path / "kept", index):
        os.utime(path, ns=tick)

    assert content(tree, commit_of(taken(tree)))["kept"] == "100644 SAME"


# When nothing changed


def test_a_clean_tree_needs_no_snapshot(tree: WorkTree) -> None:
    assert taken(tree) == Snapshot(head=tree.git("rev-parse", "HEAD").strip())


def test_an_unchanged_tree_gives_the_same_object_and_no_new_ref(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")

    first, again = taken(tree, "iteration 1"), taken(tree, "iteration 2")

    assert first == again
    assert len(tree.git("for-each-ref", "refs/ralph").splitlines()) == 1


def test_the_last_twenty_are_kept(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("0")
    first = commit_of(taken(tree))
    for number in range(1, KEPT + 4):
        tree.git("update-ref", f"refs/ralph/checkpoints/{number:06}", first)
    (tree.path / "kept").write_text("1")

    found = taken(tree)

    refs = tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert found.ref == f"refs/ralph/checkpoints/{KEPT + 4:06}" == refs[-1]
    assert refs[0] == "refs/ralph/checkpoints/000005"
    assert len(refs) == KEPT


# Repositories of every sort


def test_without_a_repository_that_is_said(tmp_path: Path) -> None:
    assert snapshot(tmp_path, "x").trouble == (
        "this is not a git repository, so uncommitted work is not saved"
    )


def test_a_repository_without_a_commit_has_a_snapshot_without_a_parent(tmp_path: Path) -> None:
    tree = WorkTree.new(tmp_path / "tree")
    assert taken(tree) == Snapshot()
    (tree.path / "first").write_text("first")

    found = taken(tree)

    assert content(tree, commit_of(found)) == {"first": "100644 first"}
    assert found.head is None
    assert tree.git("rev-list", "--count", commit_of(found)).strip() == "1"
    assert taken(tree) == found


def test_a_detached_head_is_like_any_other(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "--detach")
    (tree.path / "kept").write_text("changed")

    assert content(tree, commit_of(taken(tree)))["kept"] == "100644 changed"


def test_files_with_conflicts_are_kept_as_they_are_and_stay_in_conflict(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "-b", "other")
    tree.commit("theirs", file="kept")
    tree.git("checkout", "--quiet", "main")
    tree.commit("ours", file="kept")
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("merge", "other")
    before = untouched(tree)

    found = taken(tree)

    assert content(tree, commit_of(found))["kept"].count("<<<<<<<") == 1
    assert untouched(tree) == before
    assert "UU kept" in tree.git("status", "--porcelain")


def test_an_index_that_is_locked_is_no_hindrance(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    (tree.path / ".git" / "index.lock").touch()

    assert content(tree, commit_of(taken(tree)))["kept"] == "100644 changed"
    assert (tree.path / ".git" / "index.lock").exists()


def test_a_split_index_stays_as_it_is(tree: WorkTree) -> None:
    tree.git("update-index", "--split-index")
    (tree.path / "kept").write_text("changed")
    before = untouched(tree), sorted((tree.path / ".git").glob("sharedindex.*"))

    assert content(tree, commit_of(taken(tree)))["kept"] == "100644 changed"
    assert (untouched(tree), sorted((tree.path / ".git").glob("sharedindex.*"))) == before


def test_a_linked_worktree_has_snapshots_of_its_own(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "--quiet", str(tmp_path / "linked"))
    linked = WorkTree(tmp_path / "linked")
    for each in (tree, linked):
        (each.path / "kept").write_text(each.path.name)

    here, there = taken(tree), taken(linked)

    assert content(linked, commit_of(there))["kept"] == "100644 linked"
    assert content(tree, commit_of(here))["kept"] == "100644 tree"
    assert here.ref == "refs/ralph/checkpoints/000001"
    assert there.ref is not None and there.ref != here.ref
    assert there.ref.endswith("/000001")
    assert taken(tree) == here


def test_from_below_its_root_the_whole_work_tree_is_kept(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    (tree.path / "src" / "new").write_text("new")

    found = taken(WorkTree(tree.path / "src"))

    assert sorted(found.files) == ["kept", "src/new"]
    assert {"kept", "src/new"} <= set(content(tree, commit_of(found)))


def test_repositories_within_keep_their_own_work(tree: WorkTree, tmp_path: Path) -> None:
    other = WorkTree.new(tmp_path / "other")
    other.commit("one")
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.path), "module")
    tree.git("commit", "--quiet", "-m", "a submodule")
    WorkTree.new(tree.path / "empty").path.joinpath("file").write_text("x")
    WorkTree.new(tree.path / "nested").commit("inner")
    (tree.path / "module" / "one").write_text("dirty")
    assert taken(tree).ref is None
    WorkTree(tree.path / "module").commit("two")

    found = taken(tree)

    kept = content(tree, commit_of(found))
    assert kept["module"] == "160000 " + WorkTree(tree.path / "module").git("rev-parse", "HEAD").strip()
    assert not {"nested", "empty"} & set(kept)


def test_what_cannot_be_read_does_not_keep_the_rest_out(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    (tree.path / "src" / "code").unlink()
    os.mkfifo(tree.path / "src" / "code")

    found = snapshot(tree.path, "x")

    assert content(tree, commit_of(found))["kept"] == "100644 changed"
    assert found.trouble == "git could not read src/code: not kept"


# Nothing of the repository's own is run


def test_no_hook_no_filter_and_no_signing_program_is_run(tree: WorkTree, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho ran >> '{witness}'\ncat\n")
    script.chmod(0o755)
    for name in ("reference-transaction", "post-index-change", "pre-commit", "fsmonitor-watchman"):
        (tree.path / ".git" / "hooks" / name).symlink_to(script)
    (tree.path / ".gitattributes").write_text("* filter=evil diff=evil\nsrc/* filter=a.b=c\n")
    for key, value in {
        "filter.evil.clean": str(script),
        "filter.evil.required": "true",
        "filter.a.b=c.process": str(script),
        "diff.evil.textconv": str(script),
        "core.fsmonitor": str(script),
        "gpg.program": str(script),
        "commit.gpgSign": "true",
        "user.useConfigOnly": "true",
    }.items():
        tree.git("config", key, value)
    (tree.path / "kept").write_text("changed")
    (tree.path / "src" / "code").write_text("changed")

    kept = content(tree, commit_of(taken(tree)))

    assert (kept["kept"], kept["src/code"]) == ("100644 changed", "100644 changed")
    assert not witness.exists()


def test_a_slow_git_is_given_up_in_time_and_said(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids, script = tmp_path / "pids", tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >> '{pids}'\nwait\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=":")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(module, "LIMIT_S", 0.5)
    began = time.monotonic()

    found = snapshot(tree.path, "x", scratch=scratch)

    assert found == Snapshot(trouble=found.trouble)
    assert found.trouble.endswith("not be kept: git config did not end in time, or could not be started")
    assert time.monotonic() - began < 0.5 + 5.0
    assert list(scratch.iterdir()) == []
    wait_for(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()), what="the end of all")


def test_a_scratch_place_that_takes_nothing_is_said(tree: WorkTree, tmp_path: Path) -> None:
    assert "No such file or directory" in snapshot(tree.path, "x", scratch=tmp_path / "not").trouble


def test_files_that_come_and_go_meanwhile_do_no_harm(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            path = tree.path / f"moving-{number % 7}"
            path.write_bytes(b"x" * (number % 100_000))
            (tree.path / f"moving-{(number + 3) % 7}").unlink(missing_ok=True)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshots = [snapshot(tree.path, "x") for _ in range(5)]
    finally:
        is_over.set()
        writer.join()

    kept = [content(tree, commit_of(found)) for found in snapshots]
    assert all(each["kept"] == "100644 changed" for each in kept)


# Getting it back


def test_what_a_person_is_told_to_type_brings_back_what_was_lost(tree: WorkTree) -> None:
    (tree.path / "kept").write_text("changed")
    (tree.path / "new").write_text("new")
    found = taken(tree)
    assert found.ref is not None
    tree.git("reset", "--quiet", "--hard")
    tree.git("clean", "-fdxq")
    tree.commit("later")

    shown = tree.git("show", "--stat", found.ref)
    tree.git("restore", "--overlay", f"--source={found.ref}", "--", ":/")

    assert "new" in shown and "kept" in shown
    assert (tree.path / "kept").read_text() == "changed"
    assert (tree.path / "new").read_text() == "new"
    assert (tree.path / "later").read_text() == "later"


# Whatever is done to the tree

NAMES = st.sampled_from(["kept", "gone", "src/code", "new", "src/new", "a.log", "deep/er/file"])
DEEDS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "stage", "run", "link", "unstage"]), NAMES), max_size=6
)


@given(deeds=DEEDS)
@settings(max_examples=8)
def test_a_snapshot_holds_the_work_tree_and_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[str, str]]
) -> None:
    tree = WorkTree.new(tmp_path_factory.mktemp("property") / "tree")
    (tree.path / ".gitignore").write_text("*.log\n")
    (tree.path / "src").mkdir()
    for name in ("kept", "src/code", "gone"):
        (tree.path / name).write_text(name)
    tree.git("add", ".")
    tree.git("commit", "--quiet", "-m", "first")
    for deed, name in deeds:
        done(tree, deed, name)
    before = untouched(tree)

    found = taken(tree)

    assert untouched(tree) == before
    assert content(tree, found.commit or "HEAD") == on_disk(tree)


def done(tree: WorkTree, deed: str, name: str) -> None:
    """Do something to a file, as an agent may."""
    path = tree.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    match deed:
        case "write":
            path.unlink(missing_ok=True)
            path.write_text(f"{name} anew")
        case "remove":
            path.unlink(missing_ok=True)
        case "run" if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ EXECUTABLE)
        case "link":
            path.unlink(missing_ok=True)
            path.symlink_to("kept")
        case "stage":
            tree.git("add", "-A")
        case "unstage":
            tree.git("reset", "--quiet")
        case _:
            pass


def on_disk(tree: WorkTree) -> Mapping[str, str]:
    """The files of the work tree that are not ignored, as git would tell them."""
    found = {}
    for path in tree.path.rglob("*"):
        name = str(path.relative_to(tree.path))
        if name.startswith(".git/") or name == ".git" or name.endswith(".log"):
            continue
        if path.is_symlink():
            found[name] = f"120000 {os.readlink(path)}"
        elif path.is_file():
            mode = "100755" if path.stat().st_mode & EXECUTABLE else "100644"
            found[name] = f"{mode} {path.read_text()}"
    return found
