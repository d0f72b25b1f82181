"""The copy of a repository in the state directory, and what is rebuilt from it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ralphd.git.restore import Rebuilt, rebuild
from ralphd.git.vault import Vault, kept_names

MOST = 2 << 30
KEEP = (".env*", "*.local")


class Place:
    """A repository with two commits, a hook, staged work and ignored files, and its vault."""

    def __init__(self, root: Path, home: Path | None = None) -> None:
        self.home, self.top = home or root / "vaults", root / "repo"
        self.top.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ralph")
        self.git("config", "user.email", "ralph@example.invalid")
        (self.top / ".gitignore").write_text(".env*\nbuild/\n")
        self.first = self.commit("a")
        self.second = self.commit("b")
        self.git("branch", "side", self.first)
        self.hook = self.top / ".git" / "hooks" / "pre-commit"
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.write_text("#!/bin/sh\n")
        self.hook.chmod(0o755)
        (self.top / "staged").write_text("staged\n")
        self.git("add", "staged")
        (self.top / ".env.local").write_text("SECRET=1\n")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.top, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, name: str) -> str:
        (self.top / name).write_text(name)
        self.git("add", "--", name, ".gitignore")
        self.git("commit", "-q", "-m", name, "--", name, ".gitignore")
        return self.git("rev-parse", "HEAD")

    @property
    def vault(self) -> Vault:
        vault = Vault.of(self.home, self.top)
        assert vault is not None
        return vault

    def take(self, most: int = MOST) -> None:
        vault = self.vault
        with vault.exclusive():
            vault.take(KEEP, most_bytes=most)

    def fault(self) -> str:
        taken = self.vault.taken()
        assert taken is not None
        return self.vault.fault(taken)

    def restore(self) -> Rebuilt:
        vault = self.vault
        taken = vault.taken()
        assert taken is not None
        with vault.exclusive():
            return rebuild(vault, taken, "demo/r1")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _removed(git: Path) -> None:
    shutil.rmtree(git)


def _garbage_head(git: Path) -> None:
    (git / "HEAD").write_text("garbage\n")


def _no_refs(git: Path) -> None:
    shutil.rmtree(git / "refs" / "heads")
    (git / "packed-refs").unlink(missing_ok=True)


def _no_objects(git: Path) -> None:
    for folder in (git / "objects").glob("??"):
        shutil.rmtree(folder)


def _truncated(git: Path) -> None:
    for path in [*git.rglob("*")]:
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(b"")


def _broken_config(git: Path) -> None:
    (git / "config").write_text("[core\n")


@pytest.mark.parametrize(
    "damage", [_removed, _garbage_head, _no_refs, _no_objects, _truncated, _broken_config]
)
def test_a_destroyed_repository_is_rebuilt_as_it_was(place: Place, damage: object) -> None:
    place.take()
    assert place.fault() == ""
    status = place.git("status", "--porcelain")
    config = (place.top / ".git" / "config").read_text()
    damage(place.top / ".git")  # type: ignore[operator]
    assert place.fault()
    rebuilt = place.restore()
    assert place.fault() == ""
    assert place.git("rev-parse", "main", "side").split() == [place.second, place.first]
    assert place.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert place.git("status", "--porcelain") == status
    assert (place.top / ".git" / "config").read_text() == config
    assert os.access(place.hook, os.X_OK)
    place.git("fsck", "--strict")
    assert (rebuilt.left is None) is (damage is _removed)
    assert rebuilt.left is None or rebuilt.left.is_dir()


def test_commits_of_a_repository_made_again_are_kept_under_a_ref(place: Place) -> None:
    place.take()
    shutil.rmtree(place.top / ".git")
    place.git("init", "-q", "-b", "main")
    new = place.commit("new")
    assert "is gone" in place.fault()
    rebuilt = place.restore()
    assert place.git("rev-parse", "HEAD") == place.second
    assert rebuilt.refs == ("refs/ralph/left/demo/r1/main",)
    assert place.git("rev-parse", rebuilt.refs[0]) == new
    assert (place.top / "new").read_text() == "new"


def test_commits_after_the_last_copy_stay_on_their_branch(place: Place) -> None:
    place.take()
    third = place.commit("c")
    place.git("branch", "other")
    (place.top / ".git" / "HEAD").write_text("garbage\n")
    status = place.git("--git-dir=.git/../.git", "version")
    assert place.fault() and status
    assert place.restore().refs == ()
    assert place.git("rev-parse", "HEAD", "other").split() == [third, third]
    assert place.git("status", "--porcelain") == "A  staged"


@pytest.mark.parametrize("name", ["detach", "orphan", "gone branch", "reset"])
def test_what_people_do_is_not_damage(place: Place, name: str) -> None:
    place.take()
    words = {
        "detach": ("checkout", "-q", "--detach", "HEAD~1"),
        "orphan": ("checkout", "-q", "--orphan", "new"),
        "gone branch": ("branch", "-D", "side"),
        "reset": ("reset", "-q", "--hard", "HEAD~1"),
    }
    place.git(*words[name])
    assert place.fault() == ""


def test_a_linked_work_tree_and_its_repository_are_rebuilt(place: Place, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    place.git("worktree", "add", "-q", str(linked), "side")
    main = place.top
    place.take()
    place.top = linked
    place.take()
    assert len(list(place.home.iterdir())) == 1
    shutil.rmtree(main / ".git")
    (linked / ".git").unlink()
    assert place.fault()
    place.restore()
    assert place.git("rev-parse", "HEAD") == place.first
    assert place.git("symbolic-ref", "HEAD") == "refs/heads/side"
    place.top = main
    place.git("fsck")
    assert place.git("rev-parse", "main") == place.second


def test_an_unchanged_repository_is_not_copied_again(place: Place) -> None:
    place.take()
    before = place.vault.folder.stat().st_ino
    place.take()
    assert place.vault.folder.stat().st_ino == before
    place.commit("c")
    place.take()
    assert place.vault.folder.stat().st_ino != before
    taken = place.vault.taken()
    assert taken is not None and taken.head == place.git("rev-parse", "HEAD")


def test_objects_are_copied_not_linked(place: Place) -> None:
    place.take()
    files = [path for path in (place.vault.path / "objects").rglob("*") if path.is_file()]
    assert files and all(path.stat().st_nlink == 1 for path in files)
    assert not (place.vault.path / "objects" / "info" / "alternates").exists()
    assert place.vault.path.stat().st_mode & 0o077 == 0


def test_a_repository_over_the_bound_leaves_its_commits_out(place: Place) -> None:
    place.take(most=1)
    taken = place.vault.taken()
    assert taken is not None and not taken.is_whole and taken.refs["refs/heads/main"] == place.second
    assert not (place.vault.path / "objects").exists()


def test_a_kept_file_is_restored_once(place: Place) -> None:
    place.take()
    secret = place.top / ".env.local"
    secret.chmod(0o600)
    place.take()
    secret.unlink()
    for restored in ([".env.local"], []):
        taken = place.vault.taken()
        assert taken is not None
        assert place.vault.restore_kept(taken) == restored
        assert secret.exists() is bool(restored)
        if restored:
            assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("SECRET=1\n", 0o600)
        place.take()
        secret.unlink(missing_ok=True)


def test_links_and_large_files_are_not_kept(place: Place, tmp_path: Path) -> None:
    (place.top / ".env").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("not ours")
    (place.top / ".env.large").write_bytes(b"x" * ((1 << 20) + 1))
    os.link(place.top / ".env.local", place.top / ".env.twice")
    place.take()
    taken = place.vault.taken()
    assert taken is not None and dict(taken.kept) == {}


def test_a_kept_file_is_not_restored_through_a_link(place: Place, tmp_path: Path) -> None:
    (place.top / "sub").mkdir()
    (place.top / "sub" / ".env").write_text("A=1")
    (place.top / "sub" / "tracked").write_text("")
    place.git("add", "sub/tracked")
    place.take()
    shutil.rmtree(place.top / "sub")
    (tmp_path / "out").mkdir()
    (place.top / "sub").symlink_to(tmp_path / "out")
    taken = place.vault.taken()
    assert taken is not None and "sub/.env" in taken.kept
    assert place.vault.restore_kept(taken) == []
    assert list((tmp_path / "out").iterdir()) == []


def test_patterns_match_names_and_paths() -> None:
    ignored = ["build/", ".env", "a/.env.test", "x.local", "a/other", "conf/own.ini"]
    assert kept_names(ignored, KEEP) == [".env", "a/.env.test", "x.local"]
    assert kept_names(ignored, ["conf/*"]) == ["conf/own.ini"]
