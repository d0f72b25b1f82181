"""``ralphctl vault``: list the copies of repositories, and restore from them without overwriting anything."""

import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.ctl.conftest import Ctl
from tests.git.test_vault import Place


@pytest.fixture
def place(tmp_path: Path, environment: dict[str, str]) -> Place:
    """A repository with a copy in the vault, and a ralph that works there."""
    place = Place(tmp_path, home=tmp_path / "state" / "vaults")
    place.take()
    home = tmp_path / "state" / "ralphs" / "demo"
    home.mkdir(parents=True)
    (home / "ralph.json").write_text(json.dumps({"directory": str(place.top)}))
    return place


def test_copies_are_listed_with_ralphs_and_files(place: Place, ctl: Ctl) -> None:
    shown = ctl("vault", "list").stdout.splitlines()
    assert [word for word in shown[1].split() if word in (str(place.top), "demo", "all", ".env.local")]
    assert len(shown) == 2
    (copy,) = json.loads(ctl("vault", "list", "--json").stdout)["vaults"]
    assert copy["bytes"] > 1000
    assert copy["taken_at"].endswith("Z")
    assert {key: copy[key] for key in ("directory", "git", "ralphs", "commits", "files", "vault")} == {
        "directory": str(place.top),
        "git": str(place.top / ".git"),
        "ralphs": ["demo"],
        "commits": "all",
        "files": [".env.local"],
        "vault": str(place.vault.path),
    }


def test_without_copies_the_list_names_their_origin(ctl: Ctl) -> None:
    done = ctl("vault", "list")
    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "no copies yet")


def test_a_removed_repository_and_its_files_are_restored(place: Place, ctl: Ctl) -> None:
    shutil.rmtree(place.top / ".git")
    (place.top / ".env.local").unlink()
    done = ctl("vault", "restore", "repo")
    assert done.stdout.splitlines() == [f"restored {place.top}/.git", "restored .env.local"], done
    assert place.git("rev-parse", "HEAD") == place.second
    assert place.git("status", "--porcelain") == "A  staged"
    assert (place.top / ".env.local").read_text() == "SECRET=1\n"


def test_a_removed_directory_is_restored_with_its_repository(place: Place, ctl: Ctl) -> None:
    shutil.rmtree(place.top)
    assert ctl("vault", "restore", str(place.top), "--yes").returncode == 0
    place.git("restore", ".")
    assert (place.top / "b").read_text() == "b"
    assert (place.top / "staged").exists()


def test_a_broken_repository_is_moved_aside(place: Place, ctl: Ctl) -> None:
    (place.top / ".git" / "HEAD").write_text("garbage")
    done = json.loads(ctl("vault", "restore", "--json", cwd=place.top).stdout)
    assert (Path(done["left"]) / "HEAD").read_text() == "garbage"
    assert (done["git"], done["files"]) == (str(place.top / ".git"), [])
    assert place.git("rev-parse", "HEAD") == place.second


def test_what_is_there_is_never_overwritten(place: Place, ctl: Ctl, tmp_path: Path) -> None:
    (place.top / ".env.local").write_text("mine")
    new = place.commit("new")
    done = ctl("vault", "restore", cwd=place.top)
    assert (done.returncode, "needs nothing" in done.stdout) == (0, True)
    done = ctl("vault", "restore", "--file", ".env.local", cwd=place.top)
    assert (done.returncode, "not overwritten" in done.stderr) == (1, True)
    done = ctl("vault", "restore", "--to", str(place.top), cwd=place.top)
    assert (done.returncode, "not an empty directory" in done.stderr) == (1, True)
    assert (place.top / ".env.local").read_text() == "mine"
    assert place.git("rev-parse", "HEAD") == new


def test_one_kept_file_is_restored(place: Place, ctl: Ctl, tmp_path: Path) -> None:
    (place.top / ".env.local").unlink()
    (place.top / ".git" / "HEAD").write_text("garbage")
    assert ctl("vault", "restore", "repo", "--file", ".env.local").stdout == "restored .env.local\n"
    assert (place.top / ".git" / "HEAD").read_text() == "garbage"
    assert ctl("vault", "restore", "repo", "--file", ".env.local", "--to", "other").returncode == 0
    assert [path.name for path in (tmp_path / "other").iterdir()] == [".env.local"]
    done = ctl("vault", "restore", "repo", "--file", "nothing")
    assert (done.returncode, "it keeps .env.local" in done.stderr) == (4, True)


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_repository_is_restored_elsewhere(place: Place, ctl: Ctl, tmp_path: Path, is_linked: bool) -> None:
    source = place.top
    if is_linked:
        source = tmp_path / "linked"
        place.git("worktree", "add", "-q", str(source), "side")
        place.top = source
        place.take()
    done = ctl("vault", "restore", str(source), "--to", "elsewhere")
    assert "next: git -C" in done.stdout, done
    place.top = tmp_path / "elsewhere"
    place.git("restore", ".")
    assert place.git("rev-parse", "HEAD") == (place.first if is_linked else place.second)
    assert place.git("rev-parse", "main", "side").split() == [place.second, place.first]
    assert (place.top / "a").read_text() == "a"
    assert (source / ".git").exists()


def test_a_repository_in_use_is_not_restored(place: Place, ctl: Ctl) -> None:
    shutil.rmtree(place.top / ".git")
    descriptor = os.open(place.top, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        done = ctl("vault", "restore", "--yes", cwd=place.top)
        assert (done.returncode, "is supervised already" in done.stderr) == (1, True)
        assert not (place.top / ".git").exists()
    finally:
        os.close(descriptor)


def test_a_run_may_not_restore(place: Place, ctl: Ctl) -> None:
    (place.top / ".env.local").unlink()
    done = ctl("vault", "restore", "--yes", cwd=place.top, more={"RALPH_RUN_ID": "r1-0"})
    assert (done.returncode, "continue with your task" in done.stderr) == (77, True)
    assert not (place.top / ".env.local").exists()


def test_a_directory_without_a_copy_is_named(ctl: Ctl, tmp_path: Path) -> None:
    done = ctl("vault", "restore", str(tmp_path))
    assert (done.returncode, "there is no copy of" in done.stderr) == (4, True)
