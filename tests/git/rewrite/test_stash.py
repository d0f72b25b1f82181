"""What is not committed is set aside, and put back to the byte (R3)."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Any, TextIO

import pytest

from ralphd.core.gate.verdict import CarriedOut, Moved, Refused
from ralphd.git import repo, tree_diff
from ralphd.git.rewrite import file_snapshots, stash
from ralphd.git.rewrite.stash import DisplacedFiles, put_back, set_aside
from tests.git.guard_world import carried_out, committed, everything, files, head, refusal, write
from tests.git.work_tree import WorkTree

LABEL = "my-ralph/3"
REF = "refs/ralph/aside/my-ralph/3"


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    tree = WorkTree.new(tmp_path / "tree")
    names = ("changed", "staged", "both", "gone", "dropped", "folder__file", "run", "kept")
    committed(tree, "first", **{name: f"{name}\n" for name in names}, **{".gitignore": "*.env\n"})
    return tree


def everything_uncommitted(tree: WorkTree) -> None:
    """One of each that a work tree can have."""
    write(tree, "changed", "not staged")
    write(tree, "staged", "staged")
    write(tree, "both", "staged")
    (tree.path / "run").chmod(0o750)
    write(tree, "new\nstaged", "new")
    (tree.path / "link").symlink_to("nowhere")
    Path(os.fsdecode(os.fsencode(tree.path) + b"/not \xff unicode")).write_bytes(b"\r\n\0")
    write(tree, "return\r", "new")
    tree.git("add", "staged", "both", "new\nstaged", "return\r", "link", ":(glob)not*")
    write(tree, "both", "and more")
    write(tree, "meant", "to add")
    tree.git("add", "-N", "meant")
    (tree.path / "gone").unlink()
    tree.git("rm", "--quiet", "--cached", "dropped")
    write(tree, "dropped", "not tracked any more")
    (tree.path / "folder" / "file").unlink()
    (tree.path / "folder").rmdir()
    write(tree, "folder", "a file now")
    tree.git("add", "folder", "folder/file")
    write(tree, "untracked", "x")
    write(tree, "some.env", "ignored")


def test_all_sorts_of_changes_are_set_aside_and_come_back(tree: WorkTree) -> None:
    everything_uncommitted(tree)
    before = everything(tree)

    assert carried_out(set_aside(tree.path, LABEL)) == head(tree)

    assert tree.git("status", "--porcelain", "-z") == "?? untracked\0"
    assert (tree.path / "changed").read_text() == "changed\n"
    assert (tree.path / "folder" / "file").exists() and not (tree.path / "link").is_symlink()
    assert (tree.path / "some.env").exists() and (tree.path / "untracked").exists()
    aside_ = everything(tree)
    assert carried_out(set_aside(tree.path, LABEL)) == head(tree), "carried out twice it is the same"
    assert everything(tree) == aside_

    assert carried_out(put_back(tree.path, LABEL)) == head(tree)
    assert everything(tree) == before
    assert tree.git("for-each-ref", "refs/ralph") == ""
    assert carried_out(put_back(tree.path, LABEL)) == head(tree), "there is nothing to put back any more"
    assert everything(tree) == before


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_are_hidden_from_git_stay_where_they_are(tree: WorkTree, flag: str) -> None:
    tree.git("update-index", flag, "kept")
    write(tree, "kept", "hidden")
    write(tree, "changed", "mine")
    flags = tree.git("ls-files", "-v")
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))
    assert (tree.path / "kept").read_text() == "hidden"
    carried_out(put_back(tree.path, LABEL))

    assert everything(tree) == before
    assert tree.git("ls-files", "-v") == flags


def test_a_clean_tree_has_nothing_to_set_aside(tree: WorkTree) -> None:
    write(tree, "untracked", "x")
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))

    assert everything(tree) == before
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_a_person_can_take_it_from_the_ref(tree: WorkTree) -> None:
    write(tree, "changed", "mine")
    (tree.path / "gone").unlink()
    carried_out(set_aside(tree.path, LABEL))

    tree.git("restore", f"--source={REF}", "--", ":/")

    assert tree.git("status", "--porcelain").splitlines() == [" M changed", " D gone"]


@pytest.mark.parametrize(
    ("deed", "why"),
    [
        ("file", "changed changed meanwhile"),
        ("staged", "changed changed meanwhile"),
        ("index", "changed changed meanwhile"),
        ("commit", "changed changed meanwhile"),
        ("untracked", "new changed meanwhile"),
    ],
)
def test_what_changed_meanwhile_is_not_written_over_and_the_work_is_kept(
    tree: WorkTree, deed: str, why: str
) -> None:
    write(tree, "changed", "mine")
    write(tree, "new", "mine")
    tree.git("add", "new")
    write(tree, "staged", "mine")
    carried_out(set_aside(tree.path, LABEL))
    match deed:
        case "file":
            write(tree, "changed", "theirs")
        case "staged":
            write(tree, "changed", "theirs")
            tree.git("add", "changed")
        case "index":
            write(tree, "changed", "theirs")
            tree.git("add", "changed")
            write(tree, "changed", "changed\n")
        case "commit":
            committed(tree, "theirs", changed="theirs")
        case _:
            write(tree, "new", "theirs")
    before = everything(tree)

    done = put_back(tree.path, LABEL)

    assert isinstance(done, CarriedOut)
    said, _, kept = done.note.rpartition(" ")
    assert said == f"{why}; the earlier content is kept under"
    theirs = "new" if deed == "untracked" else "changed"
    assert files(tree)[repr(theirs)] == before.files[repr(theirs)]
    assert (tree.path / "staged").read_text() == "mine", "all else is back"
    assert tree.git("show", f"{kept}:{theirs}") == "mine"
    assert tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split() == [kept]


@pytest.mark.parametrize(
    ("module", "name"), [(DisplacedFiles, "take"), (tree_diff, "put_paths"), (file_snapshots, "read_blobs")]
)
def test_what_a_person_saves_at_that_very_moment_is_there_afterwards(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """Before it is moved, after that, and right before it is put back."""
    act = getattr(module, name)

    def saved(*given: Any, **named: Any) -> Any:
        write(tree, "saved", "theirs")
        (tree.path / "saved").rename(tree.path / "changed")
        return act(*given, **named)

    write(tree, "changed", "mine")
    (tree.path / "gone").unlink()
    monkeypatch.setattr(module, name, saved)

    done = (set_aside(tree.path, LABEL), put_back(tree.path, LABEL))

    told = [
        each.why if isinstance(each, Moved) else each.note for each in done if not isinstance(each, Refused)
    ]
    assert any("changed changed meanwhile" in each for each in told)
    assert (tree.path / "changed").read_text() == "theirs"
    for ref in tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        assert tree.git("show", f"{ref}:changed") == "mine"


def test_a_file_that_a_person_is_just_writing_is_not_replaced(
    tree: WorkTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor has opened the file and written its beginning when the set-aside writes HEAD's version."""
    put = tree_diff.put_paths

    def saving(*given: Any, **named: Any) -> Any:
        opened.append((tree.path / "changed").open("x"))
        return put(*given, **named)

    opened: list[TextIO] = []
    write(tree, "changed", "mine")
    monkeypatch.setattr(tree_diff, "put_paths", saving)

    done = set_aside(tree.path, LABEL)

    with opened[0] as file:
        file.write("theirs")
    assert isinstance(done, Moved)
    assert (tree.path / "changed").read_text() == "theirs"
    [kept] = tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert tree.git("show", f"{kept}:changed") == "mine"


def test_after_another_commit_it_is_put_back_where_that_goes(tree: WorkTree) -> None:
    write(tree, "changed", "mine")
    write(tree, "staged", "mine")
    write(tree, "new", "mine")
    tree.git("add", "staged", "new")
    status = tree.git("status", "--porcelain")
    carried_out(set_aside(tree.path, LABEL))
    theirs = committed(tree, "theirs", kept="theirs")

    assert carried_out(put_back(tree.path, LABEL)) == theirs
    assert tree.git("status", "--porcelain") == status
    assert (tree.path / "changed").read_text() == "mine"


def test_what_tests_left_elsewhere_is_no_hindrance(tree: WorkTree) -> None:
    write(tree, "changed", "mine")
    carried_out(set_aside(tree.path, LABEL))
    write(tree, "kept", "written by the tests")
    write(tree, "report.xml", "written by the tests")

    carried_out(put_back(tree.path, LABEL))

    assert tree.git("status", "--porcelain").splitlines() == [" M changed", " M kept", "?? report.xml"]


def test_a_file_put_back_is_newer_than_what_was_built_without_it(tree: WorkTree) -> None:
    write(tree, "changed", "mine")
    os.utime(tree.path / "changed", (1_000_000_000,) * 2)
    carried_out(set_aside(tree.path, LABEL))
    built = (tree.path / "changed").stat().st_mtime

    carried_out(put_back(tree.path, LABEL))

    assert (tree.path / "changed").stat().st_mtime >= built, "make would take it for built already"


def test_what_would_be_lost_is_refused_and_all_is_as_it_was(tree: WorkTree) -> None:
    (tree.path / "changed").unlink()
    write(tree, "changed/untracked", "mine")
    before = everything(tree)

    assert refusal(set_aside(tree.path, LABEL)) == "untracked files are in the way: changed/untracked"
    assert everything(tree) == before
    assert tree.git("for-each-ref", "refs/ralph") == ""


def test_a_link_to_a_folder_is_no_folder_and_is_not_lost_in_one(tree: WorkTree, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tree.path / "changed").unlink()
    (tree.path / "changed").symlink_to(tmp_path / "elsewhere")
    before = everything(tree)
    carried_out(set_aside(tree.path, LABEL))
    carried_out(put_back(tree.path, LABEL))
    assert everything(tree) == before

    (tree.path / "changed").unlink()
    (tree.path / "changed").mkdir()
    (tree.path / "changed" / "mine").symlink_to(tmp_path / "elsewhere")
    assert refusal(set_aside(tree.path, LABEL)) == "untracked files are in the way: changed/mine"
    assert (tree.path / "changed" / "mine").is_symlink()


def test_pipes_large_files_and_filters_are_refused(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree.path / "changed").unlink()
    os.mkfifo(tree.path / "changed")
    assert refusal(set_aside(tree.path, LABEL)) == "changed is neither a file nor a link"
    (tree.path / "changed").unlink()
    write(tree, "changed", "x" * (2 << 20))
    monkeypatch.setattr(stash, "MOST_BYTES", 1 << 20)
    assert refusal(set_aside(tree.path, LABEL)) == (
        "2 MiB of tracked files are not committed: too much to set aside"
    )
    monkeypatch.undo()
    tree.git("config", "filter.lfs.clean", "false")
    (tree.path / ".git" / "info" / "attributes").write_text("changed filter=lfs\n")

    assert refusal(set_aside(tree.path, LABEL)) == (
        "files go through a filter (LFS or the like), which is not run: changed"
    )
    assert (tree.path / "changed").stat().st_size == 2 << 20


def test_a_submodule_at_another_commit_is_refused(tree: WorkTree, tmp_path: Path) -> None:
    library = WorkTree.new(tmp_path / "library")
    committed(library, "library 1", code="1")
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "sub")
    committed(tree, "a submodule")
    committed(WorkTree(tree.path / "sub"), "library 2", code="2")
    before = everything(tree)

    assert refusal(set_aside(tree.path, LABEL)) == "a submodule stands at another commit: sub"
    assert everything(tree) == before


def test_conflicts_and_other_work_under_the_label_are_refused(tree: WorkTree) -> None:
    write(tree, "changed", "first")
    carried_out(set_aside(tree.path, LABEL))
    committed(tree, "later", kept="x")
    assert refusal(set_aside(tree.path, LABEL)) == f"other work is still set aside under {REF}"

    write(tree, "kept", "stashed")
    tree.git("stash", "--quiet")
    committed(tree, "again", kept="again")
    with pytest.raises(subprocess.CalledProcessError):
        tree.git("stash", "pop")
    before = everything(tree)
    assert "files with conflicts: kept" in refusal(set_aside(tree.path, "other"))
    assert everything(tree) == before


def test_line_ends_that_git_converts_come_back_to_the_byte(tree: WorkTree) -> None:
    committed(tree, "attributes", **{".gitattributes": "*.txt text eol=crlf\n", "a.txt": "one\n"})
    (tree.path / "a.txt").write_bytes(b"mixed\r\nends\n")
    before = everything(tree)

    carried_out(set_aside(tree.path, LABEL))
    assert (tree.path / "a.txt").read_bytes() == b"one\r\n"
    carried_out(put_back(tree.path, LABEL))

    assert everything(tree) == before


def test_many_files_are_one_call_of_git_not_one_each(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(tree, "many", **{f"f{number}": "x" for number in range(60)})
    for number in range(60):
        write(tree, f"f{number}", f"{number}")
    before, calls = everything(tree), []
    answer = repo.answer

    def counted(directory: Path, *words: str, **more: Any) -> tuple[int, bytes] | None:
        calls.append(words)
        return answer(directory, *words, **more)

    monkeypatch.setattr(repo, "answer", counted)
    carried_out(set_aside(tree.path, LABEL))
    carried_out(put_back(tree.path, LABEL))

    assert everything(tree) == before
    assert len(calls) < 50


def test_a_disk_that_is_full_keeps_the_work_and_says_where(tree: WorkTree) -> None:
    committed(tree, "large", staged="x" * 200_000)
    write(tree, "changed", "mine")
    write(tree, "staged", "mine")
    before = everything(tree)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        refusal(set_aside(tree.path, LABEL))
        assert everything(tree) == before
        assert tree.git("for-each-ref", "refs/ralph") == ""
        committed(tree, "small", staged="small")
        write(tree, "staged", "mine " * 10_000)
        before = everything(tree)
        carried_out(set_aside(tree.path, LABEL))
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limit[1]))
        why = refusal(put_back(tree.path, LABEL))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert why == f"File too large; what was set aside is kept under {REF}"
    carried_out(put_back(tree.path, LABEL))
    assert everything(tree) == before


def test_on_no_branch_nothing_is_set_aside(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "--detach")
    write(tree, "changed", "mine")

    assert refusal(set_aside(tree.path, LABEL)) == "HEAD is on no branch: git switch BRANCH"
