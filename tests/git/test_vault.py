"""The copy of a repository in the state directory, and what is rebuilt from it."""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import zlib
from copy import copy
from pathlib import Path

import pytest

from ralphd.git import repo
from ralphd.git import vault as vaults
from ralphd.git.restore import Rebuilt, changed_commands, rebuild, restore_setting
from ralphd.git.runner import NotDone
from ralphd.git.vault import KEPT_PACKS, UNUSED_S, Vault, kept_names, remove_unused, size_of
from tests.git.test_guard_table import mounting

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

    def take(self, most: int = MOST, *, others_run: bool = False) -> None:
        vault = self.vault
        with vault.exclusive():
            vault.take(KEEP, most_bytes=most, others_run=others_run)

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

    def changed(self, *, restores: bool) -> dict[str, str]:
        vault = self.vault
        taken = vault.taken()
        assert taken is not None
        return {each.name: each.undo for each in changed_commands(vault, taken, lambda _: restores)}


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


@pytest.mark.parametrize("most", [MOST, 100_000])
def test_every_stash_of_a_removed_repository_is_rebuilt(place: Place, tmp_path: Path, most: int) -> None:
    if most != MOST:
        _with_remote(place, tmp_path)
    for number in range(3):
        (place.top / "a").write_text(f"mine {number}")
        place.git("stash", "push", "--quiet", "--message", f"number {number}", "--", "a")
    place.take(most)
    stashes = place.git("stash", "list", "--format=%H %gs")
    _removed(place.top / ".git")
    place.restore()
    assert place.git("stash", "list", "--format=%H %gs") == stashes != ""
    place.git("fsck", "--strict")
    place.git("stash", "pop", "--quiet", "stash@{2}")
    assert (place.top / "a").read_text() == "mine 0"


def test_stashes_are_rebuilt_from_the_copy_of_a_linked_work_tree(place: Place, tmp_path: Path) -> None:
    linked = copy(place)
    linked.top = tmp_path / "linked"
    place.git("worktree", "add", "--quiet", str(linked.top), "side")
    for number in range(2):
        (place.top / "a").write_text(f"mine {number}")
        place.git("stash", "push", "--quiet", "--", "a")
    stashes = place.git("stash", "list")
    linked.take()
    _removed(place.top / ".git")
    linked.restore()
    assert place.git("stash", "list") == stashes


def test_a_stash_whose_commit_is_gone_does_not_hinder_the_copy(place: Place) -> None:
    for number in range(2):
        (place.top / "a").write_text(f"mine {number}")
        place.git("stash", "push", "--quiet", "--", "a")
    sha = place.git("rev-parse", "stash@{1}")
    (place.top / ".git" / "objects" / sha[:2] / sha[2:]).unlink()
    place.take()
    assert place.vault.taken()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "garbage"])
def test_a_log_of_stashes_that_is_none_does_not_hinder_the_copy(place: Place, kind: str) -> None:
    log = place.top / ".git" / "logs" / "refs" / "stash"
    match kind:
        case "link":
            log.symlink_to(place.top / "a")
        case "pipe":
            os.mkfifo(log)
        case "folder":
            log.mkdir()
        case _:
            log.write_bytes(b"\xff \n a b c\nd  e\n" + b"0" * 40 + b" -x y\n")
    place.take()
    assert place.vault.taken()


def test_a_sha256_repository_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    test_a_destroyed_repository_is_rebuilt_as_it_was(Place(tmp_path), _removed)


def test_commits_of_a_repository_made_again_are_kept_under_a_ref(place: Place) -> None:
    place.take()
    shutil.rmtree(place.top / ".git")
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ralph")
    place.git("config", "user.email", "ralph@example.invalid")
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


def test_a_rebuilt_repository_has_the_modes_that_git_gives(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, git = tmp_path / "linked", place.top / ".git"
    place.git("worktree", "add", "-q", str(linked), "side")
    (git / "config").chmod(0o600)
    place.take()
    place.top = linked
    place.take()
    shutil.rmtree(git / "objects")
    (git / "hooks").chmod(0o752)  # as a run may have opened it to every user
    (linked / ".git").unlink()
    monkeypatch.setattr(repo, "umask", 0o022)
    former = os.umask(0o077)
    try:
        place.restore()
    finally:
        os.umask(former)
    names = ("", "refs", "packed-refs", "HEAD", "hooks", "config")
    modes = [path.stat().st_mode & 0o777 for path in (linked / ".git", *map(git.joinpath, names))]
    assert modes == [0o644, 0o755, 0o755, 0o644, 0o644, 0o750, 0o600]


def test_hooks_and_settings_of_a_linked_work_tree_stay(place: Place, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    place.git("worktree", "add", "-q", str(linked), "side")
    place.top, config = linked, place.top / ".git" / "config"
    before = config.read_text()
    place.take()
    assert place.changed(restores=True) == {}
    assert place.hook.exists() and config.read_text() == before
    place.hook.write_text("#!/bin/sh\nexit 1\n")
    assert [*place.changed(restores=True)] == ["hooks/pre-commit"]
    assert place.hook.read_text() == "#!/bin/sh\n"


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


def test_a_repository_over_the_bound_without_remotes_leaves_its_commits_out(place: Place) -> None:
    place.take(most=1)
    taken = place.vault.taken()
    assert taken is not None and not taken.is_whole and taken.refs["refs/heads/main"] == place.second
    assert not taken.has_unpushed
    assert not (place.vault.path / "objects").exists()
    (place.top / ".git" / "HEAD").write_text("garbage")
    place.restore()
    assert place.git("rev-parse", "main") == place.second, "its own objects are enough"
    _removed(place.top / ".git")
    with pytest.raises(NotDone, match=r"remotes had .remotes: none"):
        place.restore()


def _with_remote(place: Place, tmp_path: Path) -> Path:
    """Give the repository a large pushed file, and commits that were not pushed."""
    remote = tmp_path / "remote.git"
    (place.top / "large").write_bytes(os.urandom(200_000))
    place.commit("large-too")
    place.git("add", "large")
    place.git("commit", "-q", "-m", "large", "--", "large")
    place.git("init", "-q", "--bare", str(remote))
    place.git("remote", "add", "origin", str(remote))
    place.git("push", "-q", "origin", "main", "main:old")
    return remote


@pytest.mark.parametrize("name", ["there", "without a branch", "gone"])
def test_above_the_bound_unpushed_commits_are_kept(place: Place, tmp_path: Path, name: str) -> None:
    remote = _with_remote(place, tmp_path)
    place.second = place.commit("unpushed")
    place.take(most=100_000)
    place.second = place.commit("unpushed-too")
    place.take(most=100_000)
    taken = place.vault.taken()
    assert taken is not None and (taken.is_whole, taken.has_unpushed) == (False, True)
    assert size_of(place.vault.path / "objects") < 20_000
    status = place.git("status", "--porcelain")
    _removed(place.top / ".git")
    if name == "gone":
        shutil.rmtree(remote)
        with pytest.raises(NotDone, match=r"lacks the commits that remotes had .remotes: origin"):
            place.restore()
        return
    if name == "without a branch":
        subprocess.run(["git", "update-ref", "-d", "refs/heads/old"], cwd=remote, check=True)
    place.restore()
    assert place.git("rev-parse", "HEAD") == place.second
    assert place.git("status", "--porcelain") == status
    assert place.git("for-each-ref", "refs/fetched") == ""
    place.git("fsck", "--strict")
    assert place.fault() == ""


def test_unpushed_commits_above_the_bound_are_left_out(place: Place, tmp_path: Path) -> None:
    _with_remote(place, tmp_path)
    (place.top / "large").write_bytes(os.urandom(200_000))
    place.git("commit", "-q", "-m", "large", "--", "large")
    place.take(most=100_000)
    taken = place.vault.taken()
    assert taken is not None and not taken.has_unpushed


def test_old_packs_of_unpushed_commits_are_removed(place: Place, tmp_path: Path) -> None:
    _with_remote(place, tmp_path)
    for number in range(KEPT_PACKS + 2):
        place.commit(f"c{number}")
        place.take(most=100_000)
    assert len([*place.vault.path.glob("objects/pack/*.pack")]) == KEPT_PACKS
    _removed(place.top / ".git")
    place.restore()
    assert place.git("log", "-1", "--format=%s") == f"c{KEPT_PACKS + 1}"


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


def linked_to(place: Place, name: str) -> Place:
    """A second work tree of the same repository, in the same vault."""
    other = copy(place)
    other.top = place.top.with_name(name)
    place.git("worktree", "add", "-q", "--detach", str(other.top))
    return other


def test_what_all_work_trees_share_is_copied_from_a_linked_one(place: Place) -> None:
    linked = linked_to(place, "linked")
    linked.take()
    assert linked.changed(restores=True) == {}
    assert place.hook.exists() and place.git("config", "core.bare") == "false"
    _plant(place, "new hook")
    assert list(linked.changed(restores=True)) == ["hooks/post-commit"]
    shutil.rmtree(linked.vault.folder / "common")  # as earlier versions copied it
    assert linked.changed(restores=True) == {}
    assert place.hook.exists()


def test_what_was_accepted_at_one_work_tree_is_at_all(place: Place) -> None:
    linked = linked_to(place, "linked")
    linked.take()
    place.git("config", "core.editor", "mine")  # while nothing ran: the next start accepts it
    place.take()
    assert linked.changed(restores=True) == {}
    place.git("config", "core.editor", "planted")
    third = linked_to(place, "third")
    third.take(others_run=True)  # it may be planted: a start beside a run accepts nothing
    for each in (third, linked, place):
        assert list(each.changed(restores=False)) == ["core.editor"]
    third.take()
    assert [each.changed(restores=False) for each in (third, linked, place)] == [{}, {}, {}]


HARM = "printf '#!/bin/sh\\ntouch harm\\n'"


PLANTS = {
    "new hook": f"{HARM} >.git/hooks/post-commit; chmod +x .git/hooks/post-commit",
    "changed hook": f"{HARM} >.git/hooks/pre-commit",
    "removed hook": "rm .git/hooks/pre-commit",
    "removed hooks": "rm -r .git/hooks",
    "linked hook": f"{HARM} >x; ln -sf ../../x .git/hooks/pre-commit",
    "linked hooks": "mkdir x; mv .git/hooks/pre-commit x/; rm -r .git/hooks; ln -s ../x .git/hooks",
    "folder for a hook": "mkdir .git/hooks/prepare-commit-msg",
    "pipe for a hook": "mkfifo -m 755 .git/hooks/prepare-commit-msg",
    "file for hooks": f"rm -r .git/hooks; {HARM} >.git/hooks",
    "hooks path": "git config core.hooksPath /tmp/x",
    "monitor": "git config core.fsmonitor /tmp/x",
    "alias": "git config alias.st '!touch harm'",
    "linked config": "mv .git/config x; git config --file x core.pager y; ln -s ../x .git/config",
    "own config": "git config extensions.worktreeConfig true; git config --worktree core.editor x",
    "include": "git config --add include.path /tmp/a; git config --add include.path /tmp/b",
}


UNDONE = (
    *("new hook", "changed hook", "removed hook", "linked hook", "folder for a hook", "pipe for a hook"),
    *("hooks path", "monitor", "alias"),
)


def _plant(place: Place, name: str) -> None:
    assert place.hook.parent.is_dir()
    subprocess.run(["sh", "-ec", PLANTS[name]], cwd=place.top, check=True)


def _commands_of(place: Place) -> dict[str, tuple[str, bool]]:
    hooks = (path for path in place.hook.parent.glob("*") if path.suffix != ".sample")
    return {path.name: (path.read_text() if path.is_file() else "", path.is_symlink()) for path in hooks}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_command_is_set_aside(place: Place, name: str) -> None:
    place.take()
    before = _commands_of(place), place.git("config", "--list", "--local").splitlines()[:6]
    _plant(place, name)
    place.git("config", "user.name", "New")
    changed = place.changed(restores=True)
    assert changed, name
    after = place.git("config", "--list", "--local").splitlines()
    assert (_commands_of(place), after[:3]) == (before[0], before[1][:3])
    assert not {"core.hookspath", "core.fsmonitor", "include.path", "core.editor"} & {
        line.partition("=")[0] for line in after
    }
    if name != "linked config":
        assert "user.name=New" in after
    assert place.changed(restores=True) == {}
    for undo in changed.values():
        assert undo.startswith(("mv ", "rm ", "diff "))
    if name in ("changed hook", "linked hook"):
        subprocess.run(["sh", "-ec", *changed.values()], check=True)
        assert "harm" in place.hook.read_text()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_command_is_named_with_its_undo(place: Place, name: str) -> None:
    place.take()
    before = _commands_of(place)
    _plant(place, name)
    planted = _commands_of(place)
    changed = place.changed(restores=False)
    assert changed, name
    assert _commands_of(place) == planted
    if name in UNDONE:
        subprocess.run(["sh", "-ec", *changed.values()], check=True)
        assert (_commands_of(place), place.changed(restores=False)) == (before, {})
        return
    place.take()
    assert place.changed(restores=False) == {}, "a copy is the new baseline"


def test_folders_of_hooks_that_were_there_stay(place: Place) -> None:
    (place.hook.parent / "lib").mkdir()
    (place.hook.parent / "lib" / "common.sh").write_text("")
    place.take()
    assert place.changed(restores=True) == {}
    shutil.rmtree(place.top / ".git")
    place.restore()
    assert (place.hook.parent / "lib").is_dir()


def test_each_restored_version_has_its_own_folder(place: Place) -> None:
    place.take()
    for text in ("one", "two"):
        place.hook.write_text(text)
        assert place.changed(restores=True)
    left = (place.top / ".git" / "ralph-left").glob("*/hooks/pre-commit")
    assert sorted(path.read_text() for path in left) == ["one", "two"]


def test_a_setting_that_was_left_is_restored_later(place: Place) -> None:
    place.take()
    place.git("config", "core.hooksPath", "/tmp/x")
    vault = place.vault
    taken = vault.taken()
    assert taken is not None
    (left,) = changed_commands(vault, taken, lambda name: name.startswith("hooks"))
    place.take()
    done = restore_setting(left)
    assert done is not None and done.restored
    assert "hookspath" not in place.git("config", "--list", "--local")
    assert restore_setting(left) is None
    subprocess.run(shlex.split(done.undo), check=True)
    assert place.git("config", "core.hooksPath") == "/tmp/x"


def test_honest_changes_of_the_configuration_stay(place: Place) -> None:
    place.git("config", "core.hooksPath", ".husky")
    (place.top / ".git" / "hooks" / "pre-push").symlink_to("../../x")
    place.take()
    for key in ("remote.origin.url", "branch.main.merge", "user.email", "alias.st"):
        place.git("config", key, "status")
    assert place.changed(restores=True) == {}
    assert place.git("config", "alias.st") == "status"
    _removed(place.top / ".git")
    place.restore()
    assert (place.top / ".git" / "hooks" / "pre-push").is_symlink()
    assert place.git("config", "core.hooksPath") == ".husky"


def test_a_vault_without_ralphs_is_removed_after_30_days(place: Place, tmp_path: Path) -> None:
    place.take()
    path, day = place.vault.path, 86400.0
    for at in (0.0, day, UNUSED_S):
        remove_unused(place.home, [tmp_path / "other"], 1000.0 + at)
        assert path.is_dir()
    remove_unused(place.home, [], 1000.0 + UNUSED_S + day)
    assert [*place.home.iterdir()] == []
    remove_unused(place.home, [], 1000.0)
    remove_unused(tmp_path / "nowhere", [], 1000.0)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_vault_that_a_ralph_uses_is_not_removed(place: Place, is_there: bool) -> None:
    place.take()
    path, top = place.vault.path, place.top
    remove_unused(place.home, [], 1000.0)
    if not is_there:
        shutil.rmtree(top)
    remove_unused(place.home, [top / "sub"], 1000.0 + 2 * UNUSED_S)
    remove_unused(place.home, [], 1000.0 + 3 * UNUSED_S)
    assert path.is_dir(), "the 30 days begin again"


def test_many_loose_objects_of_a_vault_are_packed(place: Place) -> None:
    place.take()
    objects = place.vault.path / "objects"
    orphans = [sha for n in range(28 * 512) if (sha := loose_blob(objects, b"%d" % n, only="17"))]
    for _ in range(2):  # git packs what no ref leads to only where there is a pack
        remove_unused(place.home, [place.top], 1000.0)

    assert [path for path in objects.glob("??/*") if path.is_file()] == []
    assert all(git_has(place.vault.path, sha) for sha in orphans), "no ref leads to these"
    _removed(place.top / ".git")
    place.restore()
    assert place.git("rev-parse", "HEAD") == place.second
    place.git("fsck", "--strict")


def loose_blob(objects: Path, data: bytes, *, only: str) -> str:
    """Write a blob whose name begins with ``only``; empty for another one."""
    whole = b"blob %d\0%s" % (len(data), data)
    sha = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    if not sha.startswith(only):
        return ""
    (objects / only).mkdir(exist_ok=True)
    (objects / only / sha[2:]).write_bytes(zlib.compress(whole))
    return sha


def git_has(path: Path, sha: str) -> bool:
    return subprocess.run(["git", "cat-file", "-e", sha], cwd=path, check=False).returncode == 0


def test_a_clock_that_was_set_back_removes_nothing(place: Place) -> None:
    place.take()
    remove_unused(place.home, [], 9e9)
    remove_unused(place.home, [], 1000.0)
    remove_unused(place.home, [], 1000.0 + UNUSED_S)
    assert len([*place.home.iterdir()]) == 1


FILL = """\
set -e
mount -t tmpfs -o size=8m tmpfs "$1"
PYTHON -P - "$1" "$2" "$3" <<'END'
import shutil, sys
from pathlib import Path
from ralphd.git.restore import rebuild
from ralphd.git.runner import NotDone
from ralphd.git.vault import Vault
home, top, size = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
def take():
    vault = Vault.of(home, top)
    with vault.exclusive():
        return vault.take((), most_bytes=1 << 30)
def commit(name, data):
    import subprocess
    (top / name).write_bytes(data)
    subprocess.run(["git", "add", name], cwd=top, check=True)
    subprocess.run(["git", "commit", "-q", "-m", name, "--", name], cwd=top, check=True)
first = take()
(home / "ballast").write_bytes(bytes((7 << 20) - size))
commit("large", __import__("random").randbytes(2 << 20) if size else b"small")
if not size:
    with (home / "rest").open("wb", 0) as rest:
        try:
            while rest.write(bytes(4096)): pass
        except OSError: pass
try:
    take()
    print("taken")
except (NotDone, OSError):
    print("refused")
vault = Vault.of(home, top)
assert vault.taken() == first
(home / "ballast").unlink()
shutil.rmtree(top / ".git")
rebuild(vault, vault.taken(), "demo/r1")
END
git -C "$2" fsck --strict >/dev/null
git -C "$2" rev-parse HEAD
"""


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_full_disk_leaves_the_earlier_copy_whole(place: Place, tmp_path: Path, size: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if mounting('mount -t tmpfs tmpfs "$1"', str(disk)) is None:
        pytest.skip("no file system can be mounted here")
    script = FILL.replace("PYTHON", sys.executable)
    printed = mounting(script, str(disk), str(place.top), str(size))
    assert printed is not None
    assert printed.splitlines() == ["refused", place.second]


def test_a_deleted_vault_is_taken_again(place: Place) -> None:
    place.take()
    shutil.rmtree(place.home)
    third = place.commit("c")
    place.take()
    _removed(place.top / ".git")
    place.restore()
    assert place.git("rev-parse", "HEAD", "side").split() == [third, place.first]


def test_two_work_trees_share_a_vault(place: Place, tmp_path: Path) -> None:
    linked, main = tmp_path / "linked", place.top
    place.git("worktree", "add", "-q", "--detach", str(linked), "side")
    place.take()
    place.top = linked
    detached = place.commit("detached")
    (linked / "staged").write_text("of the linked one")
    place.git("add", "staged")
    place.take()
    place.top = main
    third = place.commit("c")
    place.take()
    assert len([*place.home.iterdir()]) == 1
    _removed(main / ".git")
    place.restore()
    assert place.git("rev-parse", "HEAD") == third
    place.top = linked
    assert place.git("rev-parse", "HEAD") == detached
    assert place.git("show", ":staged") == "of the linked one"
    assert place.fault() == ""


def test_a_lock_that_is_never_released_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vaults, "LOCK_LIMIT_S", 0.05)
    place.take()
    held = os.open(place.vault.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError, match="does not release the lock"), place.vault.exclusive():
        pass
    os.close(held)
    with place.vault.exclusive():
        assert place.vault.taken() is not None


# --- a linked work tree, beside a person in the main one ----------------------------------------------


class Linked(Place):
    """A ralph's work tree; in the main one a person is in the middle of a merge, with staged work."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.main, self.top = self.top, root / "linked"
        _in(self.main, "worktree", "add", "-q", str(self.top), "side")
        self.take()
        _in(self.main, "commit", "-q", "-m", "staged")
        _in(self.main, "branch", "topic")
        for branch in ("main", "topic"):
            _in(self.main, "switch", "-q", branch)
            (self.main / "a").write_text(branch)
            _in(self.main, "commit", "-q", "-m", branch, "--", "a")
        subprocess.run(["git", "merge", "-q", "main"], cwd=self.main, capture_output=True, check=False)
        (self.main / "new").write_text("staged by the person")
        _in(self.main, "add", "new")

    def of_person(self) -> tuple[str, ...]:
        merges = _in(self.main, "rev-parse", "MERGE_HEAD"), _in(self.main, "symbolic-ref", "HEAD")
        return (*merges, _in(self.main, "status", "--porcelain"), _in(self.main, "show", ":new"))


def _in(directory: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    return Linked(tmp_path)


@pytest.mark.parametrize("how", ["removed", "made anew", "another's", "its index"])
def test_a_person_in_the_main_work_tree_keeps_their_merge_when_a_linked_one_is_rebuilt(
    linked: Linked, how: str
) -> None:
    before, pointer, repository = linked.of_person(), linked.top / ".git", linked.main / ".git"
    text, identity = pointer.read_text(), repository.stat().st_ino
    if how == "its index":
        Path(linked.git("rev-parse", "--absolute-git-dir"), "index").write_text("garbage")
    else:
        pointer.unlink()
    if how == "made anew":
        linked.git("init", "-q")
    elif how == "another's":
        pointer.write_text(f"gitdir: {linked.main}/.git\n")
    assert linked.fault()

    done = linked.restore()

    assert linked.of_person() == before and "UU a" in before[2]
    if how == "its index":
        assert done.path == repository and done.left is not None
    else:  # nobody's repository is replaced for a file of 60 bytes
        assert done.path == pointer and repository.stat().st_ino == identity
        assert (done.left is None) is (how == "removed")
    assert pointer.read_text() == text and not linked.fault()
    assert linked.git("status", "--porcelain", "--untracked-files=no") == ""
    assert linked.git("symbolic-ref", "HEAD") == "refs/heads/side"


def test_a_pointer_that_is_removed_during_the_first_copy_is_known_all_the_same(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = linked.top / ".git"
    monkeypatch.setattr(Vault, "_fetch", lambda *_: pointer.unlink())
    linked.commit("more")
    linked.take()
    assert not pointer.exists()

    assert linked.restore().path == pointer and not linked.fault()


def test_a_rebuilt_index_of_a_linked_work_tree_is_that_of_its_own_branch(linked: Linked) -> None:
    (linked.top / "work").write_text("the ralph's")
    linked.git("add", "work")
    linked.git("commit", "-q", "-m", "work")
    linked.take()
    Path(linked.git("rev-parse", "--absolute-git-dir"), "index").write_bytes(b"")
    assert linked.fault()

    linked.restore()

    assert linked.git("status", "--porcelain") == ""


# --- names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\u2028b", "a\x85b", "version-d\udce9finitive"])
def test_a_ref_with_any_name_is_copied_and_restored(place: Place, name: str) -> None:
    place.git("tag", name)
    place.take()
    shutil.rmtree(place.top / ".git")

    place.restore()

    refs = subprocess.run(["git", "tag"], cwd=place.top, capture_output=True, check=True).stdout
    assert refs == os.fsencode(f"{name}\n")


def test_a_repository_below_one_that_has_a_vault_gets_a_vault_of_its_own(place: Place) -> None:
    place.take()
    inner = place.top / "inner"
    inner.mkdir()
    _in(inner, "init", "-q")
    found = Vault.of(place.home, inner)
    assert found is not None and found.top == inner and found.path != place.vault.path
    (folder := place.top / "folder").mkdir()
    outer = Vault.of(place.home, folder)
    assert outer is not None and outer.top == place.top


def test_a_sparse_checkout_keeps_its_patterns(place: Place) -> None:
    place.git("sparse-checkout", "set", "--no-cone", "/a")
    patterns = place.git("sparse-checkout", "list")
    place.take()
    shutil.rmtree(place.top / ".git")

    place.restore()

    assert place.git("sparse-checkout", "list") == patterns


def test_a_split_index_is_rebuilt_whole(place: Place) -> None:
    place.git("config", "core.splitIndex", "true")
    place.git("update-index", "--split-index")
    before = place.git("status", "--short")
    place.take()
    shutil.rmtree(place.top / ".git")

    place.restore()

    assert place.fault() == ""
    assert place.git("status", "--short") == before == "A  staged"


@pytest.mark.parametrize(
    "setting",
    [
        "[safe]\nbareRepository = explicit",
        "[protocol]\nversion = 0",
        "[transfer]\nfsckObjects = true",
        "[fetch]\nfsckObjects = true",
    ],
)
def test_no_setting_of_the_user_hinders_the_copy(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    padded = b"0100644 a\0" + bytes.fromhex(place.git("rev-parse", "HEAD:a"))  # as an old git wrote it
    words = ("git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
    tree = subprocess.run(words, cwd=place.top, input=padded, stdout=subprocess.PIPE, check=True).stdout
    place.git("update-ref", "refs/heads/old", place.git("commit-tree", "-m", "old", tree.decode().strip()))
    (tmp_path / ".gitconfig").write_text(setting)
    monkeypatch.setenv("HOME", str(tmp_path))
    place.take()
    shutil.rmtree(place.top / ".git")

    place.restore()

    assert place.fault() == ""
    assert place.git("rev-parse", "HEAD") == place.second


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_that_belongs_to_another_user_is_no_damage(place: Place) -> None:
    place.take()
    os.chown(place.top, 65534, -1)

    assert place.fault() == ""
