"""Push to the upstream and pull by rebase: never forced, never asking, and as it was where it fails (L9)."""

import os
import time
from pathlib import Path

import pytest

from ralphd.git import remote
from ralphd.git.remote import pull_rebase, push
from tests.git.work_tree import WorkTree
from tests.helpers import is_alive, wait_for

REBASE_AS = {f"GIT_{who}_{what}": "ralph" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture(autouse=True)
def nobodys_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git finds an identity, and nothing else of the machine's configuration."""
    for name, value in {**REBASE_AS, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def origin(tmp_path: Path) -> WorkTree:
    """A bare repository that takes pushes, with one commit on ``main``."""
    seed = WorkTree.new(tmp_path / "seed")
    seed.commit("first")
    seed.git("clone", "--quiet", "--bare", str(seed.path), str(tmp_path / "origin.git"))
    return WorkTree(tmp_path / "origin.git")


@pytest.fixture
def tree(origin: WorkTree, tmp_path: Path) -> WorkTree:
    """A clone, whose branch ``main`` has an upstream."""
    return WorkTree.clone(origin, tmp_path / "tree")


def other(origin: WorkTree, tmp_path: Path, subject: str, *, file: str | None = None) -> None:
    """Somebody else pushes a commit."""
    clone = WorkTree.clone(origin, tmp_path / f"other-{subject}")
    clone.commit(subject, file=file)
    clone.git("push", "--quiet")


def subjects(tree: WorkTree, revision: str = "HEAD") -> list[str]:
    return tree.git("log", "--format=%s", revision).splitlines()


def state(tree: WorkTree) -> tuple[str, str, bytes]:
    """Branch, files as git sees them, and the index."""
    index = (tree.path / ".git" / "index").read_bytes()
    return tree.git("symbolic-ref", "HEAD"), tree.git("status", "--porcelain=v2", "--branch"), index


# Push


def test_what_is_not_pushed_goes_to_the_upstream(tree: WorkTree, origin: WorkTree) -> None:
    tree.commit("second")

    assert push(tree.path) == "pushed 1 commit to origin/main"
    assert subjects(origin, "main") == ["second", "first"]
    assert push(tree.path) == "nothing to push to origin/main"


def test_a_push_goes_to_the_upstream_of_another_name_and_nowhere_else(
    tree: WorkTree, origin: WorkTree
) -> None:
    tree.git("checkout", "--quiet", "-b", "mine", "--track", "origin/main")
    tree.git("tag", "mine")
    tree.git("config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
    tree.commit("second")

    assert push(tree.path) == "pushed 1 commit to origin/main"
    assert origin.git("branch", "--list").split() == ["*", "main"]
    assert subjects(origin, "main") == ["second", "first"]


def test_a_push_that_would_need_force_fails_and_forces_nothing(
    tree: WorkTree, origin: WorkTree, tmp_path: Path
) -> None:
    other(origin, tmp_path, "theirs")
    tree.commit("mine")

    why = "rejected, since the upstream has commits that are not here: git pull --rebase"
    assert push(tree.path) == f"not pushed: git push: {why}"
    assert subjects(origin, "main") == ["theirs", "first"]


def test_without_an_upstream_nothing_is_pushed_and_it_is_said_how_to_set_one(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "-b", "mine", "--no-track")
    tree.commit("second")

    words = "mine has no upstream: git push -u origin mine sets one"
    assert push(tree.path) == f"not pushed: {words}"
    assert pull_rebase(tree.path) == f"not pulled: {words}"


def test_on_no_branch_and_in_no_repository_nothing_is_done(tree: WorkTree, tmp_path: Path) -> None:
    tree.git("checkout", "--quiet", "--detach")
    (tmp_path / "plain").mkdir()

    assert push(tree.path) == "not pushed: HEAD is on no branch: git switch BRANCH"
    assert push(tmp_path / "plain") == "not pushed: this is not a git repository"
    assert pull_rebase(tmp_path / "plain") == "not pulled: this is not a git repository"


def test_an_upstream_in_the_same_repository_is_none_to_push_to(tree: WorkTree) -> None:
    tree.git("checkout", "--quiet", "-b", "mine", "--track", "main")
    tree.commit("second")

    assert push(tree.path) == "not pushed: the upstream of mine is a branch of this repository"
    assert subjects(tree, "main") == ["first"]


def test_the_users_hooks_run_and_one_that_refuses_is_told(tree: WorkTree, origin: WorkTree) -> None:
    hook = tree.path / ".git" / "hooks" / "pre-push"
    hook.write_text("#!/bin/sh\necho 'error: tests are red'\nexit 1\n")
    hook.chmod(0o755)
    tree.commit("second")

    assert push(tree.path) == "not pushed: git push: error: tests are red"
    assert subjects(origin, "main") == ["first"]


def test_a_hook_that_hangs_is_ended_in_time_with_all_it_started(tree: WorkTree, tmp_path: Path) -> None:
    hook, pids = tree.path / ".git" / "hooks" / "pre-push", tmp_path / "pids"
    hook.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > '{pids}'\nwait\n")
    hook.chmod(0o755)
    tree.commit("second")
    began = time.monotonic()

    found = push(tree.path, limit_s=1.0)

    assert found == "not pushed: git push did not end within 1 s"
    assert time.monotonic() - began < 1.0 + 10.0
    wait_for(lambda: not is_alive(int(pids.read_text())), what="its end")


def test_nobody_is_asked_for_a_password_and_none_is_told(tree: WorkTree) -> None:
    tree.git("remote", "set-url", "origin", "http://ralph:secret@127.0.0.1:9/x.git")
    tree.commit("second")

    found = push(tree.path, limit_s=20.0)

    assert found.startswith("not pushed: git push: ")
    assert "secret" not in found
    assert "127.0.0.1" in found


def test_ssh_is_told_not_to_ask_and_keeps_the_users_own_options(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh, seen = tmp_path / "bin" / "ssh", tmp_path / "seen"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\necho \"$@\" > '{seen}'\necho 'fatal: no way' >&2\nexit 1\n")
    ssh.chmod(0o755)
    tree.git("remote", "set-url", "origin", "ssh://git@host.invalid/x.git")
    tree.git("config", "core.sshCommand", f"{ssh} -i key")
    tree.commit("second")

    assert push(tree.path).startswith("not pushed: git push: ")
    assert seen.read_text().startswith("-i key -o BatchMode=yes ")

    monkeypatch.setenv("GIT_SSH_COMMAND", f"'{ssh}' -v")
    assert push(tree.path).startswith("not pushed: git push: ")
    assert seen.read_text().startswith("-v -o BatchMode=yes ")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Warning: Permanently added 'h'.\ngit@h: Permission denied (publickey).", "Permission denied (pub"),
        ("ssh: Could not resolve hostname h: Name or service not known", "ssh: Could not resolve hostname h"),
        ("remote:\nremote: ====\nremote: no such project\nremote:\nremote: ====", "remote: no such project"),
        ("", "fatal: Could not read from remote repository."),
    ],
)
def test_what_ssh_or_the_server_says_is_the_reason(
    output: str, reason: str, tree: WorkTree, tmp_path: Path
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nprintf '%s\\n' \"{output}\" >&2\nexit 255\n")
    ssh.chmod(0o755)
    tree.git("remote", "set-url", "origin", "ssh://git@host.invalid/x.git")
    tree.git("config", "core.sshCommand", str(ssh))
    tree.commit("second")

    assert reason in push(tree.path)


# Pull


def test_what_others_pushed_comes_below_what_is_not_pushed(
    tree: WorkTree, origin: WorkTree, tmp_path: Path
) -> None:
    other(origin, tmp_path, "theirs")
    tree.commit("mine")
    (tree.path / "untracked").write_text("stays")

    assert pull_rebase(tree.path) == "pulled 1 commit of origin/main"
    assert subjects(tree) == ["mine", "theirs", "first"]
    assert (tree.path / "untracked").read_text() == "stays"
    assert pull_rebase(tree.path) == "nothing new on origin/main"


def test_tracked_changes_keep_a_pull_out(tree: WorkTree, origin: WorkTree, tmp_path: Path) -> None:
    other(origin, tmp_path, "theirs")
    (tree.path / "first").write_text("changed")
    before = state(tree)

    assert pull_rebase(tree.path) == "not pulled: tracked files have changes that are not committed"
    assert state(tree) == before


def test_a_conflict_leaves_the_repository_as_it_was(tree: WorkTree, origin: WorkTree, tmp_path: Path) -> None:
    other(origin, tmp_path, "theirs", file="both")
    tree.commit("one", file="one")
    tree.commit("mine", file="both")
    head, files = tree.git("rev-parse", "HEAD"), sorted(os.listdir(tree.path))

    found = pull_rebase(tree.path)

    assert found.startswith("not pulled: git rebase: ")
    assert "both" in found and "the branch is as it was" in found
    assert tree.git("rev-parse", "HEAD") == head
    assert tree.git("symbolic-ref", "--short", "HEAD").strip() == "main"
    assert tree.git("status", "--porcelain") == ""
    assert sorted(os.listdir(tree.path)) == files


def test_an_untracked_file_in_the_way_is_not_written_over(
    tree: WorkTree, origin: WorkTree, tmp_path: Path
) -> None:
    other(origin, tmp_path, "theirs", file="both")
    (tree.path / "both").write_text("mine, untracked")

    assert pull_rebase(tree.path).startswith("not pulled: git rebase: ")
    assert (tree.path / "both").read_text() == "mine, untracked"
    assert subjects(tree) == ["first"]


def test_a_rebase_that_hangs_is_ended_and_undone(tree: WorkTree, origin: WorkTree, tmp_path: Path) -> None:
    other(origin, tmp_path, "theirs")
    tree.commit("mine")
    hook = tree.path / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\n[ -e '{tmp_path}/once' ] && exit 0\ntouch '{tmp_path}/once'\nsleep 600\n")
    hook.chmod(0o755)
    head = tree.git("rev-parse", "HEAD")

    found = pull_rebase(tree.path, limit_s=2.0)

    assert found.startswith("not pulled: git rebase did not end within ")
    assert tree.git("rev-parse", "main") == head
    assert tree.git("status", "--porcelain") == ""
    assert not (tree.path / ".git" / "index.lock").exists()


def test_in_the_middle_of_something_nothing_is_pulled(tree: WorkTree) -> None:
    (tree.path / ".git" / "MERGE_HEAD").write_text(tree.git("rev-parse", "HEAD"))

    assert pull_rebase(tree.path) == "not pulled: a merge is half done: git merge --continue, or --abort"


def test_a_remote_that_is_away_is_told(tree: WorkTree, tmp_path: Path) -> None:
    (tmp_path / "origin.git").rename(tmp_path / "away.git")
    before = state(tree)

    found = pull_rebase(tree.path)

    assert found.startswith("not pulled: git fetch: fatal: ")
    assert state(tree) == before


def test_a_merge_of_ones_own_is_still_one_after_a_pull(
    tree: WorkTree, origin: WorkTree, tmp_path: Path
) -> None:
    tree.git("checkout", "--quiet", "-b", "side")
    tree.commit("side")
    tree.git("checkout", "--quiet", "main")
    tree.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    other(origin, tmp_path, "theirs")

    assert pull_rebase(tree.path) == "pulled 1 commit of origin/main"
    assert tree.git("rev-list", "--count", "--merges", "HEAD").strip() == "1"


def test_a_git_that_is_not_there_is_said(tree: WorkTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_upstream", lambda _: remote._Upstream("b", "n", "t", "r", "x", 1, 0))
    monkeypatch.setenv("PATH", "/nowhere")

    assert push(tree.path) == "not pushed: git cannot be started (No such file or directory)"
