"""What a run can write (settings, refs, the queue's tree) does not decide what lands, and where (M2, M3)."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.landing.model import (
    BranchPushed,
    LandingCandidate,
    LandingQueue,
    Standing,
    Target,
    TargetMoved,
)
from ralphd.git.landing import tree as queue_tree
from ralphd.git.landing.merge import Tip, merge_batch
from ralphd.git.landing.target import Follow, TargetBranch, find_target, recorded
from ralphd.git.landing.tree import is_ours, keep_rebased, prepare
from ralphd.git.runner import NotDone
from tests.git.landing.test_merge_and_target import Place, Remote, merged

RULES = '[regent]\ntest_command = "make test"\n'
WEAK = '[regent]\ntest_command = "true"\n'
FLAGS = ("--skip-worktree", "--assume-unchanged")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HOME", str(tmp_path))
    return Place(tmp_path)


class Tree:
    """The queue's tree of a place whose main has rules, a script, an ignored folder and a link."""

    def __init__(self, place: Place, root: Path) -> None:
        self.place, self.path = place, root / "tree"
        (place.path / "ralph.toml").write_text(RULES)
        (place.path / "t").mkdir()
        (place.path / "t/test.sh").write_text("exit 1\n")
        (place.path / "link").symlink_to("t")
        (place.path / ".gitignore").write_text("cache/\n*.o\n")
        self.commit = place.commit("rules")
        self.prepare()
        self.exact = self.files()

    def prepare(self, *, is_whole: bool = False) -> None:
        common = self.place.path / ".git"
        prepare(common, self.place.path, self.path, self.commit, is_whole=is_whole)

    def git(self, *words: str) -> None:
        subprocess.run(["git", "-C", self.path, *words], check=True, capture_output=True)

    def files(self) -> dict[str, tuple[int, bytes | str]]:
        """Mode and content of everything in the tree, but for its .git."""
        every = (path for path in self.path.rglob("*") if path != self.path / ".git")
        return {str(path.relative_to(self.path)): (path.lstat().st_mode, content(path)) for path in every}


def content(path: Path) -> bytes | str:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else ""


@pytest.fixture
def tree(place: Place, tmp_path: Path) -> Tree:
    return Tree(place, tmp_path)


def poison_flag(tree: Tree, flag: str) -> None:
    tree.git("update-index", flag, "ralph.toml", "t/test.sh")
    (tree.path / "ralph.toml").write_text(WEAK)
    (tree.path / "t/test.sh").write_text("exit 0\n")


def poison_excludes(tree: Tree) -> None:
    (tree.place.path / ".git/info/exclude").write_text("*\n")
    tree.place("config", "core.excludesFile", "/etc/passwd")
    (tree.path / "t/conftest.py").write_text("x\n")


def poison_own_ignore(tree: Tree) -> None:
    for folder in ("t", "new", "new/deep"):
        (tree.path / folder).mkdir(exist_ok=True)
        (tree.path / folder / ".gitignore").write_text("*\n")
        (tree.path / folder / "conftest.py").write_text("x\n")


def poison_sparse(tree: Tree) -> None:
    tree.git("sparse-checkout", "set", "--no-cone", "/t/")
    (tree.path / "ralph.toml").write_text(WEAK)


def poison_attributes(tree: Tree) -> None:
    (tree.place.path / ".git/info/attributes").write_text("* working-tree-encoding=UTF-16\n")
    (tree.path / ".gitattributes").write_text("* working-tree-encoding=UTF-16\n")
    (tree.path / "ralph.toml").write_text(RULES, "utf-16")


def poison_own_attributes(tree: Tree) -> None:
    tree.commit = tree.place.commit("attributes", **{".gitattributes": "*.png binary\n"})
    tree.prepare()
    tree.exact |= tree.files()
    (tree.path / ".gitattributes").write_text("* working-tree-encoding=UTF-16\n")
    (tree.path / "ralph.toml").write_text(RULES, "utf-16")
    (tree.path / "shared").write_bytes(b"1\n".decode().encode("utf-16"))


def poison_modes(tree: Tree) -> None:
    (tree.path / "t/test.sh").chmod(0o4755)
    (tree.path / "ralph.toml").chmod(0)
    (tree.path / "locked").mkdir()
    (tree.path / "locked/file").touch()
    (tree.path / "locked").chmod(0)
    (tree.path / "t").chmod(0o555)


def poison_nested(tree: Tree) -> None:
    for folder in ("t", "lib"):
        subprocess.run(["git", "init", "-q", tree.path / folder], check=True)
    (tree.path / "lib/file").touch()


def poison_links(tree: Tree) -> None:
    outside = tree.path.parent / "outside"
    (tree.path / "t").rename(outside)
    (outside / "test.sh").write_text("exit 0\n")
    (tree.path / "t").symlink_to(outside)
    (tree.path / "link").unlink()
    (tree.path / "link").mkdir()
    (tree.path / "shared").unlink()
    os.link(tree.place.path / "shared", tree.path / "shared")


def poison_index(tree: Tree) -> None:
    git = Path((tree.path / ".git").read_text().removeprefix("gitdir: ").strip())
    (git / "index").unlink()
    (git / "index").mkdir()
    (git / "index.lock").touch()
    (git / "HEAD.lock").touch()
    (tree.path / "ralph.toml").write_text(WEAK)


@pytest.mark.parametrize(
    "poison",
    [
        *(lambda tree, flag=flag: poison_flag(tree, flag) for flag in FLAGS),
        *(poison_excludes, poison_own_ignore, poison_sparse, poison_attributes, poison_modes),
        poison_own_attributes,
        *(poison_nested, poison_links, poison_index),
    ],
)
def test_nothing_that_tests_leave_changes_the_next_tree(tree: Tree, poison: object) -> None:
    assert callable(poison)
    poison(tree)
    tree.prepare()
    assert tree.files() == tree.exact
    assert (
        subprocess.run(["git", "-C", tree.path, "status", "--porcelain"], capture_output=True).stdout == b""
    )


def test_ignored_files_and_the_times_of_files_stay(tree: Tree) -> None:
    for name in (
        "cache/deep/file",
        "built/a.o",
        "t/b.o",
        ":(top)*.o",
        "built/left",
        "ralph.toml/x",
        "built/ralph.toml",
    ):
        if name.startswith("ralph.toml"):
            (tree.path / "ralph.toml").unlink()
        (tree.path / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.path / name).write_text("1\n")
    before = (tree.path / "t/test.sh").stat()
    tree.prepare()
    assert {*tree.files()} - {*tree.exact} == {
        *("cache", "cache/deep", "cache/deep/file", "built", "built/a.o", "t/b.o", ":(top)*.o")
    }
    assert (tree.path / "t/test.sh").stat().st_mtime_ns == before.st_mtime_ns
    tree.prepare(is_whole=True)
    assert tree.files() == tree.exact


def test_an_ignored_configuration_does_not_survive(tree: Tree) -> None:
    tree.place("rm", "-q", "ralph.toml")
    tree.commit = tree.place.commit("no rules", **{".gitignore": "*.toml\n"})
    tree.prepare()
    (tree.path / "ralph.toml").write_text(WEAK)
    tree.prepare()
    assert not (tree.path / "ralph.toml").exists()


def test_a_folder_of_any_depth_is_removed(tree: Tree) -> None:
    deep = f"import os\nfor _ in range(1200):\n    os.mkdir({'d' * 20!r})\n    os.chdir({'d' * 20!r})\n"
    subprocess.run([sys.executable, "-c", deep], cwd=tree.path, check=True)
    try:
        tree.prepare()
        assert {path.name for path in tree.path.iterdir()} == {
            ".git",
            *(n for n in tree.exact if "/" not in n),
        }
    finally:
        subprocess.run(["rm", "-rf", tree.path / ("d" * 20)], check=True)  # pytest's own clean-up cannot


def test_files_that_are_converted_are_written_each_time(tree: Tree) -> None:
    tree.commit = tree.place.commit("crlf", **{".gitattributes": "shared eol=crlf\n"})
    tree.prepare()
    assert (tree.path / "shared").read_bytes() == b"1\r\n"
    (tree.path / "shared").write_bytes(b"1\n")
    tree.prepare()
    assert (tree.path / "shared").read_bytes() == b"1\r\n"


@pytest.mark.parametrize("left", [b"1\r\n", b"2\n"])
def test_files_are_compared_byte_by_byte(tree: Tree, left: bytes) -> None:
    """Git itself takes other line ends for the same; the tests have left the file its time."""
    tree.commit = tree.place.commit("text", **{".gitattributes": "* text=auto\n"})
    tree.prepare()
    before = (tree.path / "shared").stat()
    (tree.path / "shared").write_bytes(left)
    os.utime(tree.path / "shared", ns=(before.st_atime_ns, before.st_mtime_ns))
    tree.prepare()
    assert (tree.path / "shared").read_bytes() == b"1\n"


def test_files_are_written_by_the_attributes_of_their_own_commit(tree: Tree) -> None:
    """The first file that is written shows git the attributes, and .gitattributes itself is not the first."""
    for end, rules in ((b"\n", "*.png -text\n"), (b"\r\n", "shared eol=crlf\n"), (b"\n", "\n")):
        tree.commit = tree.place.commit("rules", **{".gitattributes": rules, ".editorconfig": rules})
        tree.prepare()
        assert (tree.path / "shared").read_bytes() == b"1" + end


def test_files_with_the_line_ends_of_the_commit_keep_their_times(tree: Tree) -> None:
    tree.commit = tree.place.commit("lf", **{".gitattributes": "* text=auto eol=lf\n"})
    tree.prepare()
    before = (tree.path / "shared").stat()
    tree.prepare()
    after = (tree.path / "shared").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_filter_is_refused_whatever_the_tree_says(tree: Tree) -> None:
    tree.place("config", "filter.lfs.clean", "cat")
    (tree.path / ".gitattributes").write_text("* filter=lfs\n")  # by a test
    tree.prepare()
    tree.commit = tree.place.commit("lfs", **{".gitattributes": "shared filter=lfs\n"})
    with pytest.raises(NotDone, match=r"LFS or the like.*: shared"):
        tree.prepare()


@pytest.mark.parametrize("how", ["file", "link"])
def test_another_work_tree_is_never_taken_for_the_queues(tree: Tree, how: str) -> None:
    work = tree.path.parent / "work"
    tree.place("worktree", "add", "-q", "-b", "work", str(work))
    (work / "shared").write_text("not committed\n")
    if how == "file":
        (tree.path / ".git").write_bytes((work / ".git").read_bytes())
    else:
        tree.path.rename(tree.path.parent / "away")
        tree.path.symlink_to(work)
    assert not is_ours(tree.path, tree.place.path / ".git")
    tree.prepare()
    assert (work / "shared").read_text() == "not committed\n"
    assert tree.place("-C", str(work), "symbolic-ref", "HEAD") == "refs/heads/work"
    assert tree.files() == tree.exact


# --- the network


def redirect(place: Place, remote: Remote, evil: Path) -> None:
    place("init", "-q", "--bare", str(evil))
    place("push", "-q", str(evil), "main")
    place("config", f"url.{evil}.pushInsteadOf", str(remote.bare))
    place("config", f"url.{evil}.insteadOf", str(remote.bare))
    place("config", "push.followTags", "true")
    place("config", f"remote.{remote.bare}.uploadpack", f"touch {evil}/ran; git-upload-pack")
    place("config", f"remote.{remote.bare}.receivepack", f"touch {evil}/ran; git-receive-pack")


def test_settings_of_the_repository_do_not_redirect_a_push(place: Place, tmp_path: Path) -> None:
    remote, a, evil = Remote(place, tmp_path), place.branch("a", a="a\n"), tmp_path / "evil"
    target = replace(remote.target, scratch=tmp_path / "scratch")
    (tmp_path / "scratch/git.99999999.x").mkdir(parents=True)
    redirect(place, remote, evil)
    place("tag", "-a", "v9", "-m", "by an agent", a.head)
    tip = target.read(place.git, fetches=True)
    commit = merge_batch(place.git, tip, [a], own_list="auto").merged[-1].commit
    assert target.advance(place.git, tip, commit) == TargetMoved()
    assert target.publish(place.git, "refs/heads/a", a.head) == BranchPushed()
    listed = place("-C", str(remote.bare), "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    assert listed == [f"refs/heads/a {a.head}", f"refs/heads/main {commit}"]
    assert place("-C", str(evil), "rev-parse", "main") == tip.tip
    assert not (evil / "ran").exists() and not [*(tmp_path / "scratch").iterdir()]


def test_programs_of_the_repository_do_not_run(place: Place, tmp_path: Path) -> None:
    place("config", "core.sshCommand", f"touch {tmp_path}/ran;")
    place("config", "protocol.ext.allow", "always")
    place("config", "url.ext::sh -c touch%20x.insteadOf", "nowhere:")
    target = TargetBranch(Target("main", "origin", "ssh://nowhere.invalid/x"), place.path)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/users-own\nexit 1\n")
    (tmp_path / "bin/ssh").chmod(0o755)
    with pytest.raises(NotDone, match="git fetch"):
        replace(target, environment=environment).read(place.git, fetches=True)
    assert (tmp_path / "users-own").exists() and not (tmp_path / "ran").exists()


def test_the_users_own_settings_count(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(place, tmp_path)
    (tmp_path / "own").write_text(f'[includeIf "gitdir:{place.path}/"]\npath = {tmp_path}/work\n')
    (tmp_path / "work").write_text(f'[url "{remote.bare}"]\ninsteadOf = work:\n')
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(tmp_path / "own")}
    target = TargetBranch(Target("main", "origin", "work:"), place.path, environment=environment)
    assert target.read(place.git, fetches=True).tip == remote.tip()


def test_a_fetch_brings_what_is_new_into_the_repository(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    other = tmp_path / "other"
    place("clone", "-q", "-b", "main", str(remote.bare), str(other))
    (other / "new").write_text("1\n")
    for words in (("add", "-A"), ("-c", "user.name=B", "-c", "user.email=b@b", "commit", "-q", "-m", "new")):
        place("-C", str(other), *words)
    place("-C", str(other), "push", "-q")
    place("update-ref", "refs/ralph/landing/remote", "main")
    tip = remote.target.read(place.git, fetches=True).tip
    assert tip == remote.tip() == place("rev-parse", "refs/ralph/landing/remote")
    assert place("log", "-1", "--format=%s", tip) == "new"


def test_a_pushed_branch_is_known_to_be_pushed(place: Place, tmp_path: Path) -> None:
    remote, a = Remote(place, tmp_path), place.branch("ralph/a", a="a\n")
    assert remote.target.publish(place.git, "refs/heads/ralph/a", a.head) == BranchPushed()
    assert place("rev-parse", "refs/remotes/origin/ralph/a") == a.head


# --- the target


def test_a_remote_stays_as_it_was_pinned(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    known = remote.target.target
    remote.bare.rename(tmp_path / "moved")
    with pytest.raises(NotDone) as away:
        remote.target.read(place.git, fetches=True)
    assert "another address" not in str(away.value)
    place("remote", "set-url", "origin", str(tmp_path / "moved"))
    assert find_target(place.path, "main", known=known) == known
    with pytest.raises(NotDone, match=r"another address since then.*queue\.json"):
        remote.target.read(place.git, fetches=True)


def test_a_target_may_exist_at_the_remote_only(place: Place, tmp_path: Path) -> None:
    remote = Remote(place, tmp_path)
    place("push", "-q", "origin", "main:staging")
    target = find_target(place.path, "staging")
    assert target == Target("staging", "origin", str(remote.bare))
    assert TargetBranch(target, place.path).read(place.git, fetches=True).tip == place("rev-parse", "main")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("typo", "no branch typo here or at origin, as of the last git fetch"),
        *((name, f"{name!r} cannot be the name of a branch") for name in ("a..b", "../x", "", "-x", "a b")),
    ],
)
def test_an_unknown_target_is_refused_by_its_key(place: Place, name: str, why: str) -> None:
    with pytest.raises(NotDone) as refused:
        find_target(place.path, name)
    assert str(refused.value) == f"[landing] target: {why}"


# --- ralph/landed


def waiting(place: Place) -> tuple[TargetBranch, str]:
    """Something has landed, and waits since the checkout of main is dirty."""
    commit = merged(place, place.branch("a", a="a\n"))
    (place.path / "shared").write_text("my work\n")
    target = replace(place.target, landed=())
    moved = target.advance(place.git, place.tip(), commit)
    assert isinstance(moved, TargetMoved) and moved.note
    candidate = LandingCandidate(
        1, "a", "refs/heads/a", "", 0.0, Standing.LANDED, moved.note, commit=commit, ended_at=1.0
    )
    queue = LandingQueue("", "", Target("main"), candidates=(candidate, replace(candidate, id=2, why="")))
    assert recorded(queue) == (commit,)
    return replace(target, landed=recorded(queue)), commit


def test_what_an_agent_adds_to_ralph_landed_does_not_land(place: Place) -> None:
    target, commit = waiting(place)
    evil = place("commit-tree", "-p", commit, "-m", "untested", f"{commit}^{{tree}}")
    place("branch", "-f", "ralph/landed", evil)
    assert target.read(place.git, fetches=True).landed == commit
    again = place("commit-tree", "-p", commit, "-m", "next", f"{commit}^{{tree}}")
    with pytest.raises(NotDone, match="not the queue's: git branch -m ralph/landed"):
        target.advance(place.git, place.tip(), again)
    place("restore", "shared")
    assert target.follow(place.git) is Follow.DONE
    assert place("rev-parse", "main") == commit
    assert place("rev-parse", "ralph/landed") == evil


def test_a_ralph_called_landed_keeps_its_branch(place: Place, tmp_path: Path) -> None:
    place("worktree", "add", "-q", "-b", "ralph/landed", str(tmp_path / "work"))
    target = replace(place.target, landed=(place("rev-parse", "main"),))
    commit = merged(place, place.branch("a", a="a\n"))
    assert target.advance(place.git, Tip(place("rev-parse", "main")), commit) == TargetMoved()
    assert place("rev-parse", "main") == commit
    assert place("-C", str(tmp_path / "work"), "log", "-1", "--format=%s") == "base"


def test_a_killed_landing_is_the_queues(place: Place) -> None:
    target, commit = waiting(place)
    assert isinstance(replace(target, landed=()).advance(place.git, place.tip(), commit), TargetMoved)
    assert place("rev-parse", "ralph/landed") == commit


def test_rebased_branches_are_kept_for_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_tree, "KEPT_REBASED", 2)
    heads = [place("commit-tree", "-m", f"{at}", "main^{tree}") for at in range(4)]
    for head in heads:
        keep_rebased(place.git, [head])
    kept = place("for-each-ref", "--format=%(objectname)", "refs/ralph/rebased/").split()
    assert len(kept) == 2 and heads[-1] in kept
