"""The table in ``situations.md``: each row is so, with real git, tests and origin."""

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ralphd.core.gate.verdict import CarriedOut
from ralphd.git import facts
from ralphd.git.rewrite import revert
from tests.git.guard_world import committed, everything, files, head, refusal
from tests.git.judge import LABEL, Judge, Judged
from tests.git.situations import ROWS, Situation, World, bad, prepare
from tests.git.work_tree import WorkTree

PAGE = Path(__file__).with_name("situations.md")
COLUMNS = 7


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.new(tmp_path_factory.mktemp("guard") / "world")


@pytest.fixture
def world(pattern: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of its own, with nothing of the machine's configuration."""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("ralphd.git.locks.LOCK_WAIT_S", 0.1)
    return World(Path(shutil.copytree(pattern.root, tmp_path / "world", symlinks=True)))


def rows() -> dict[str, list[str]]:
    """The rows of the page, by what they are called."""
    table = PAGE.read_text(encoding="utf-8")
    found = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {
        cells[0]: cells for cells in found if len(cells) == COLUMNS and cells[0] not in ("situation", "---")
    }


@contextmanager
def disk_that_takes(most_bytes: int | None, place: Path) -> Iterator[None]:
    """Files of git's larger than that are not written, as on a disk that is full."""
    limit, real = resource.getrlimit(resource.RLIMIT_FSIZE), shutil.which("git")
    if most_bytes is None:
        yield
        return
    (place / "bin").mkdir()
    (place / "bin" / "git").write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec '{real}' \"$@\"\n")
    (place / "bin" / "git").chmod(0o755)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limit[1]))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(place / "bin"), prepend=":")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_each_row_of_the_page_has_a_situation_that_is_tried() -> None:
    assert list(rows()) == list(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_it_is_as_the_table_says_and_nothing_else_is_touched(name: str, world: World) -> None:
    situation, tree = ROWS[name], world.tree
    prepare(world, name)
    before = facts.position(tree.path)
    situation.deed(world)
    at, had, status = head(tree), files(tree), tree.git("status", "--porcelain", "--ignored")
    refs, theirs = refs_of(tree), refs_of(origin_of(world))
    with disk_that_takes(situation.most_bytes, world.root):
        found = judge_of(world, situation).judge(before)

    row = rows()[name]
    told = shown(world, found, at, theirs)
    assert [row[2], *row[3:]] == told, f"| {name} | {row[1]} | {' | '.join(told)} |"
    expect_only_the_reverted_files_to_differ(tree, at, had)
    assert tree.git("status", "--porcelain", "--ignored") == status
    expect_other_refs_to_stand(world, refs, theirs)
    assert not (world.root / "a-hook-was-run").exists()
    assert not (tree.path / ".git" / "ralph-guard").exists()


def judge_of(world: World, situation: Situation) -> Judge:
    return Judge(world.tree.path, situation.tests, situation.limit_s, situation.baseline, situation.policy)


def origin_of(world: World) -> WorkTree:
    return world.origin if world.origin.path.exists() else WorkTree(world.root / "away")


def refs_of(tree: WorkTree) -> dict[str, str]:
    """All but ours; that of the stashes is one of them."""
    lines = tree.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return {name: sha for name, sha in map(str.split, lines) if not name.startswith("refs/ralph/")}


def shown(world: World, found: Judged, at: str, theirs: dict[str, str]) -> list[str]:
    """The verdict, HEAD, our refs, what Ralph does, and what is said, as the table has them."""
    kinds = sorted({ref.split("/")[2] for ref in ours(world.tree)})
    said = found.said.replace(str(world.tree.path), "DIR")
    said = re.sub(r"\b[0-9a-f]{7}\b", "abc1234", said)
    head_is = where(world, at, theirs)
    return [found.verdict.kind.value, head_is, ", ".join(kinds) or "-", found.ralph, said or "-"]


def ours(tree: WorkTree) -> list[str]:
    return tree.git("for-each-ref", "--format=%(refname)", "refs/ralph").splitlines()


def where(world: World, at: str, theirs: dict[str, str]) -> str:
    """Where HEAD is, seen from where it was at the boundary; and whether that was pushed."""
    now = head(world.tree)
    if now == at:
        return "stays"
    subjects = world.tree.git("log", "--format=%s", f"{at}..{now}").splitlines()
    count = sum(each.startswith('Revert "') for each in subjects)
    if count != len(subjects):
        return "theirs"
    is_pushed = refs_of(origin_of(world)) != theirs
    return f"{count} revert{'s' if count > 1 else ''} on top" + (", pushed" if is_pushed else "")


def expect_only_the_reverted_files_to_differ(
    tree: WorkTree, at: str, had: dict[str, tuple[int, bytes]]
) -> None:
    changed = tree.git("diff", "--name-only", "--no-renames", at, "HEAD").splitlines()
    now = files(tree)
    others = {name for name in had.keys() | now.keys() if not is_of(name.strip("'"), changed)}
    assert {name: now.get(name) for name in others} == {name: had.get(name) for name in others}
    for name in changed:
        path = tree.path / name
        listed = tree.git("ls-tree", "HEAD", "--", name)
        assert path.exists() == bool(listed), name
        assert not path.is_file() or path.read_text() == tree.git("show", f"HEAD:{name}")


def is_of(name: str, changed: list[str]) -> bool:
    """Whether it is one of these, or in a submodule that is."""
    return any(name == each or name.startswith(f"{each}/") for each in changed)


def expect_other_refs_to_stand(world: World, refs: dict[str, str], theirs: dict[str, str]) -> None:
    """But for the branch, and what a push moved: forward, never otherwise."""
    tree, origin = world.tree, origin_of(world)
    now = refs_of(tree)
    branch = f"refs/heads/{facts.position(tree.path).branch}"
    moving = {branch, "refs/remotes/origin/main", "refs/remotes/origin/HEAD"}  # made by git 2.48
    assert {name: sha for name, sha in now.items() if name not in moving} == {
        name: sha for name, sha in refs.items() if name not in moving
    }
    after = refs_of(origin)
    assert list(after) == list(theirs)
    if after != theirs:
        assert after["refs/heads/main"] == head(tree)
        origin.git("merge-base", "--is-ancestor", theirs["refs/heads/main"], after["refs/heads/main"])


def test_an_undo_that_conflicts_with_later_work_is_refused_and_all_is_as_it_was(world: World) -> None:
    before = facts.position(world.tree.path)
    committed(world.tree, "bad", code="bad\n")
    found = judge_of(world, ROWS["bad"]).judge(before)
    assert found.reverted == found.commits
    [undone] = revert.reverted(world.tree.path, LABEL)
    committed(world.tree, "later", code="fine, and later")
    all_ = everything(world.tree)

    why = refusal(revert.undo(world.tree.path, [undone.sha]))

    assert why == f"conflict of {undone.sha[:7]} with later changes in code"
    assert everything(world.tree) == all_


def test_what_was_reverted_is_there_again_after_an_undo(world: World) -> None:
    before = facts.position(world.tree.path)
    bad(world)
    at = everything(world.tree)
    judge_of(world, ROWS["bad"]).judge(before)
    reverts = [each.sha for each in revert.reverted(world.tree.path, LABEL)]

    assert isinstance(revert.undo(world.tree.path, reverts), CarriedOut)
    assert (everything(world.tree).files, everything(world.tree).staged) == (at.files, at.staged)


FILL = """\
set -e
mount -t tmpfs -o size=4m tmpfs "$1"
cp -a "$2" "$1/tree"
cat /dev/zero 2>/dev/null >"$1/fill" || true
PYTHON -P -c 'import sys; from pathlib import Path; from ralphd.git.rewrite.revert import revert
print(revert(Path(sys.argv[1]), [sys.argv[2]], head=sys.argv[2], label="demo/r1"))' "$1/tree" "$3"
rm "$1/fill"
cd "$1/tree"
git status --porcelain
git rev-parse HEAD
git for-each-ref refs/ralph
"""


def test_a_disk_without_room_is_told_in_words_and_all_is_as_it_was(world: World, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    bad(world)
    if mounting('mount -t tmpfs tmpfs "$1"', str(disk)) is None:
        pytest.skip("no file system can be mounted here")

    printed = mounting(
        FILL.replace("PYTHON", sys.executable), str(disk), str(world.tree.path), head(world.tree)
    )

    assert printed is not None
    told, *rest = printed.splitlines()
    assert "the disk is full" in told
    assert rest == [head(world.tree)]


def mounting(script: str, *words: str) -> str | None:
    """What a script prints that may mount for itself; None where it fails."""
    if shutil.which("unshare") is None:
        return None
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return None if done.returncode else done.stdout
