"""A run that removes its repository, or what git ignores, gets both back; what a person does stays."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.helpers import wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person

PLACES = (
    *("vault.take.begin", "vault.take.fetched", "vault.take.staged", "vault.take.swapping"),
    *("vault.rebuild.objects", "vault.rebuild.built", "vault.rebuild.moved_aside"),
)


def prepared(daemon: Daemon) -> Guarded:
    """A guarded ralph with an ignored file of its owner, and a complete copy of its repository."""
    guarded = Guarded.of(daemon)
    (guarded.place / ".gitignore").write_text(".env*\n.ralph\n")
    guarded.git("add", ".gitignore")
    guarded.git("commit", "-q", "-m", "ignore")
    (guarded.place / ".env.local").write_text("SECRET=1\n")
    return guarded


def is_copied(daemon: Daemon) -> bool:
    return any((daemon.state / "vaults").glob("*.git/ralph/*/taken.json"))


def test_a_removed_repository_is_back_before_the_commits_are_judged(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, "good")
    assert guarded.verdict(1)["kind"] == "kept"
    guarded.does(2, script="rm -rf .git; rm .env.local; echo more >more")
    assert guarded.verdict(2)["kind"] == "kept"
    assert guarded.subjects() == ["good", "ignore", "first"]
    assert guarded.git("status", "--porcelain") == "?? more"
    assert (guarded.place / ".env.local").read_text() == "SECRET=1\n"
    guarded.does(3, "broken")
    assert guarded.verdict(3)["kind"] == "reverted"
    (repaired,) = daemon.events("repository.repaired")
    assert "from the vault: the git directory is missing" in repaired["data"]["message"]
    (restored,) = daemon.events("file.restored")
    assert restored["data"]["files"] == [".env.local"]
    assert [entry["what"] for entry in daemon.history("demo", "repair")] == [
        "repository.repaired",
        "file.restored",
    ]


def test_a_repository_that_was_made_again_is_set_aside(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    again = (
        "rm -rf .git; git init -q -b main; git config user.name R; git config user.email r@example.invalid"
    )
    guarded.does(1, "new", script=again)
    guarded.verdict(1)
    assert guarded.subjects() == ["ignore", "first"]
    (ref,) = daemon.events("repository.repaired")[0]["data"]["refs"]
    assert guarded.subject(ref) == "new"
    (left,) = (guarded.place / ".git" / "ralph-left").iterdir()
    assert f"The earlier git directory is in {left}" in (daemon.state / "ralphd.log").read_text()
    assert (guarded.place / "new").exists()


def test_what_its_owner_removes_between_runs_stays_removed(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, "good")
    guarded.verdict(1)
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    wait_for(lambda: daemon.view("demo")["state"] == "stopped", what="the stop")
    shutil.rmtree(guarded.place / ".git")
    (guarded.place / ".env.local").unlink()
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    guarded.does(2, script="true")
    guarded.told(2)
    assert not (guarded.place / ".git").exists()
    assert not (guarded.place / ".env.local").exists()
    assert daemon.events("repository.repaired") == daemon.events("file.restored") == []


def test_a_run_that_hides_its_id_may_not_restore_or_configure(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    hidden = f"env -u RALPH_RUN_ID RALPHD_STATE_DIR={daemon.state} {sys.executable} -m ralphctl"
    commands = (f"vault restore --to {daemon.root}/copy", "config set --user regent.max_retries 9")
    typed = (
        f"{hidden} {command} 2>{daemon.root}/refused; echo $? >>{daemon.root}/codes" for command in commands
    )
    guarded.does(1, "good", script="; ".join(typed))
    guarded.verdict(1)
    assert (daemon.root / "codes").read_text().split() == ["77", "77"]
    assert "this is a supervised run" in (daemon.root / "refused").read_text()
    person = Person(daemon)
    assert " demo " in person("vault", "list").stdout
    done = person("vault", "restore", str(guarded.place), "--to", str(daemon.root / "copy"), "--yes")
    assert done.returncode == 0, done
    (guarded.place / ".git" / "HEAD").write_text("garbage")
    done = person("vault", "restore", str(guarded.place), "--yes")
    assert (done.returncode, "is supervised already" in done.stderr) == (1, True), done
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    (guarded.place / ".git" / "HEAD").write_text("garbage")
    done = person("vault", "restore", str(guarded.place), "--yes")
    assert (done.returncode, "restored" in done.stdout) == (0, True), done
    assert guarded.subjects() == ["good", "ignore", "first"]


def test_without_room_for_the_vault_the_run_continues(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    (daemon.state / "vaults").write_text("not a directory: each write fails")
    daemon.start()
    guarded.register()
    guarded.does(1, "good")
    assert guarded.verdict(1)["kind"] == "kept"
    degraded = daemon.status()["daemon"]
    assert (degraded["status"], "vault of demo" in str(degraded)) == ("degraded", True)
    [note] = [each for each in daemon.view("demo")["notes"] if each.startswith("vault")]
    assert note.startswith("vault: no new copy of the repository: ")
    (daemon.state / "vaults").unlink()
    guarded.does(2, "more")
    assert guarded.verdict(2)["kind"] == "kept"
    wait_for(lambda: is_copied(daemon), what="a copy, since there is room")
    assert "vault" not in f"{daemon.status()['daemon']} {daemon.view('demo')['notes']}"


def test_a_vault_without_ralphs_is_removed_at_the_start(daemon: Daemon) -> None:
    old, new = daemon.state / "vaults" / "old.git", daemon.state / "vaults" / "new.git"
    for path in (old, new):
        path.mkdir(parents=True)
    (old / "unused-since").write_text("1")
    daemon.start()
    wait_for(lambda: not old.exists() and (new / "unused-since").exists(), what="the removal")
    assert [path.name for path in (daemon.state / "vaults").iterdir()] == ["new.git"]


PLANT = (
    "printf '#!/bin/sh\\n' >.git/hooks/post-commit; git config core.fsmonitor /x; git config user.name New"
)


def test_a_planted_hook_is_restored_and_a_setting_reported_once(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, script=PLANT)
    guarded.told(1)
    guarded.does(2, script="true")
    guarded.told(2)
    (note,) = [note for note in daemon.view("demo")["notes"] if "changed" in note]
    assert "git runs what an iteration changed: core.fsmonitor of" in note
    assert f"to undo: git config --file {guarded.place}/.git/config --unset-all core.fsmonitor" in note
    assert daemon.words().count("git runs what an iteration changed") == 1
    (restored,) = daemon.events("file.restored")
    assert restored["data"]["files"] == ["hooks/post-commit"]
    undo = shlex.split(restored["data"]["undo"])
    assert undo[2] == str(guarded.place / ".git" / "hooks" / "post-commit")
    assert not os.path.lexists(undo[2])
    subprocess.run(undo, check=True)
    assert os.path.lexists(undo[2])


REFUSES = "printf '#!/bin/sh\\nexit 1\\n' >{0}/prepare-commit-msg; chmod +x {0}/prepare-commit-msg"


def test_a_hook_that_refuses_commits_does_not_end_the_work(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, "one", ends=REFUSES.format(".git/hooks"))
    assert guarded.verdict(1)["kind"] == "kept"
    guarded.does(2, "two")
    assert guarded.verdict(2)["kind"] == "kept"
    assert guarded.subjects() == ["two", "one", "ignore", "first"]


def test_a_hooks_path_stays_until_it_refuses_commits(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, "one", ends=f"mkdir h; {REFUSES.format('h')}; git config core.hooksPath h")
    guarded.told(1)
    assert guarded.git("config", "core.hooksPath") == "h"
    assert daemon.events("file.restored") == []
    guarded.does(2, script="echo two >>one; git commit -qam two")
    guarded.told(2)
    (restored,) = daemon.events("file.restored")
    assert restored["data"]["files"] == ["core.hookspath"]
    guarded.does(3, script="git commit -qam two")
    assert guarded.verdict(3)["kind"] == "kept"
    assert guarded.subjects() == ["two", "one", "ignore", "first"]
    guarded.does(4, script="git config core.hooksPath h; echo four >>one; git commit -qam four")
    guarded.told(4)
    assert len(daemon.events("file.restored")) == 2
    guarded.does(5, script="git commit -qam four")
    assert guarded.verdict(5)["kind"] == "kept"


def test_a_planted_hook_is_restored_at_level_write(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    try:
        guarded.register(sandbox__level="write")
    except AssertionError as fault:
        if "the sandbox is not available" not in str(fault):
            raise
        pytest.skip("level write is not available here")
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, script=PLANT)
    guarded.told(1)
    (restored,) = daemon.events("file.restored")
    assert restored["data"]["files"] == ["hooks/post-commit", "core.fsmonitor"]
    assert not (guarded.place / ".git" / "hooks" / "post-commit").exists()
    assert "fsmonitor" not in guarded.git("config", "--list")
    assert guarded.git("config", "user.name") == "New"


def test_a_fifo_for_head_is_repaired(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, script="rm .git/HEAD; mkfifo .git/HEAD")
    guarded.told(1)
    (repaired,) = daemon.events("repository.repaired")
    assert "the git directory is missing or incomplete" in repaired["data"]["message"]
    assert guarded.subjects() == ["ignore", "first"]
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    (guarded.place / ".git" / "HEAD").unlink()
    os.mkfifo(guarded.place / ".git" / "HEAD")
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    guarded.does(2, script="true")
    guarded.told(2)
    assert daemon.events("repository.repaired") == [repaired], "its owner made this one"


@pytest.mark.parametrize("place", PLACES)
def test_a_daemon_that_dies_in_the_middle_leaves_nothing_lost(daemon: Daemon, place: str) -> None:
    guarded = prepared(daemon)
    daemon.start(failpoints=[place], unarmed=True)
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    wait_for(lambda: guarded.scripts.exists(), what="the loop")
    daemon.arm()
    damage = "echo garbage >.git/HEAD" if place.startswith("vault.rebuild") else ""
    guarded.does(1, script=f"echo one >one; git add one; git commit -q -m one; {damage}")
    daemon.died()
    daemon.start()
    assert guarded.verdict(1)["kind"] == "kept"
    assert guarded.subjects() == ["one", "ignore", "first"]
    assert (guarded.place / ".env.local").exists()
    assert not (guarded.place / ".git.ralph-new").exists()
    done = subprocess.run(["git", "fsck"], cwd=guarded.place, capture_output=True, check=False)
    assert done.returncode == 0


def test_done_names_the_files_that_were_not_committed(daemon: Daemon) -> None:
    guarded, person = prepared(daemon), Person(daemon)
    (guarded.place / "mine").write_text("untracked before the start")
    (guarded.place / "theirs").write_text("committed")
    guarded.git("add", "theirs")
    guarded.git("commit", "-q", "-m", "theirs")
    (guarded.place / "theirs").write_text("changed before the start; the gate sets it aside")
    daemon.start()
    guarded.register()
    guarded.does(1, "broken")
    assert guarded.verdict(1)["kind"] == "reverted"
    guarded.does(2, "good", ends="echo more >>first; mkdir -p .ralph; touch .ralph/own new")
    guarded.told(2)
    guarded.ends(0)
    daemon.becomes("demo", "done")
    left = "but 2 files were not committed: first, new; next: git status"
    assert daemon.view("demo")["message"] == left
    (event,) = daemon.events("ralph.done")
    assert event["data"]["message"] == f"Ralph is done, {left}"
    for command in ("status", "report"):
        words = " ".join(person(command, "demo").stdout.split())
        assert (f"ago, {left}" in words, words.count("not committed")) == (True, 1), words
    daemon.kill()
    assert left in " ".join(person("status", cwd=guarded.place).stdout.split())


def test_a_rewound_upstream_is_reported_once(daemon: Daemon) -> None:
    guarded = prepared(daemon)
    upstream = guarded.place.parent / "upstream.git"
    subprocess.run(["git", "init", "-q", "--bare", str(upstream)], check=True)
    guarded.git("remote", "add", "origin", str(upstream))
    guarded.git("push", "-q", "-u", "origin", "main")
    old = guarded.git("rev-parse", "HEAD")
    daemon.start()
    guarded.register()
    wait_for(lambda: is_copied(daemon), what="the first copy")
    guarded.does(1, "good", script="git push -q --force origin HEAD~1:main")
    assert guarded.verdict(1)["kind"] == "kept"
    (told,) = wait_for(lambda: daemon.events("guard.blocked"), what="the report")
    message = told["data"]["message"]
    assert message.startswith("origin/main lost 1 commit while Ralph worked;")
    assert "if it is rejected: git pull --rebase first" in message, "it may have other commits now"
    assert told["data"]["undo"] == f"git push origin {old}:refs/heads/main"
    guarded.does(2, "fine")
    assert guarded.verdict(2)["kind"] == "kept"
    assert len(daemon.events("guard.blocked")) == 1
    assert [entry["what"] for entry in daemon.history("demo", "repair")] == ["guard.blocked"]
    guarded.git(*told["data"]["undo"].split()[1:])
    assert guarded.git("rev-parse", "origin/main") == old
