"""An agent that resets, amends or rebases judged commits away: what was lost comes back, once (A8)."""

import shlex
import subprocess
import sys
from typing import Any

import pytest

from tests.pages import ROOT
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person

RESET = "git reset -q --hard HEAD~2"
PLACES = (
    "rewritten.kept",
    "guard.move.tree",
    "rewritten.moved",
    "events.before_commit",
    "account.before_state",
)


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


def begun(guarded: Guarded, **settings: Any) -> Guarded:
    """Two judged commits, and a file of a person's that is in no commit."""
    guarded.register(**settings)
    guarded.does(1, "one")
    guarded.told(1)
    guarded.does(2, "two")
    guarded.told(2)
    (guarded.place / "note").write_text("mine\n")
    return guarded


@pytest.mark.parametrize("gate", [True, False])
def test_commits_that_were_reset_away_come_back_below_the_new_one(
    daemon: Daemon, guarded: Guarded, gate: bool
) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=gate)
    two = guarded.git("rev-parse", "HEAD")
    guarded.does(3, "three", script=RESET, ends="git reflog expire --expire=now --all; git gc -q --prune=now")
    assert guarded.told(3)["next"] == "continue"
    assert guarded.subjects() == ["three", "two", "one", "first"]
    assert guarded.git("rev-parse", "HEAD~1") == two
    assert (guarded.git("status", "--porcelain"), (guarded.place / "note").read_text()) == (
        "?? note",
        "mine\n",
    )
    [event] = daemon.events("repository.repaired")
    assert (len(event["data"]["lost"]), len(event["data"]["reapplied"])) == (2, 1)
    assert guarded.subject(event["data"]["ref"]) == "three"
    assert "restored, new commit" in event["data"]["message"]
    guarded.does(4, "four")
    guarded.told(4)
    assert guarded.subjects() == ["four", "three", "two", "one", "first"]
    assert len(daemon.history("demo", "repair")) == 1


def test_a_bad_commit_is_reverted_after_it_was_reapplied(daemon: Daemon, guarded: Guarded) -> None:
    """The copy of a run's commit is the run's: else it would count as a person's, and stay."""
    daemon.start()
    begun(guarded)
    guarded.does(3, "broken", script=RESET)
    verdict = guarded.told(3)["verdict"]
    assert (verdict["kind"], verdict["why"]) == ("reverted", "the tests failed, and pass without it")
    assert guarded.subjects() == ['Revert "broken"', "broken", "two", "one", "first"]


def test_a_daemon_that_dies_anywhere_repairs_and_reports_once(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start(failpoints=[PLACES[0]], unarmed=True)
    begun(guarded)
    for number, place in enumerate(PLACES, start=1):
        before = guarded.git("rev-parse", "HEAD")
        guarded.does(
            number + 2, f"new{number}", script=f"git reset -q --hard HEAD~2; touch {daemon.root}/armed"
        )
        daemon.died()
        daemon.start(failpoints=PLACES[number : number + 1], unarmed=True)
        assert guarded.told(number + 2)["next"] == "continue", place
        assert guarded.git("rev-parse", "HEAD~1") == before, place
        assert guarded.subject("HEAD") == f"new{number}", place
        assert guarded.git("status", "--porcelain") == "?? note", place
        assert len(daemon.events("repository.repaired")) == number, place
        assert len(daemon.history("demo", "repair")) == number, place


def test_a_new_commit_that_conflicts_is_kept_under_its_ref(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded)
    before = guarded.git("rev-parse", "HEAD")
    guarded.does(3, "good", script=f"{RESET}; echo other >one; git add one; git commit -qm clash")
    verdict = guarded.told(3)["verdict"]
    assert (verdict["kind"], "conflict with the restored" in verdict["why"]) == ("reverted", True)
    assert list(map(guarded.subject, verdict["reverted"])) == ["clash"]
    assert guarded.git("rev-parse", "HEAD~1") == before
    assert guarded.subject("HEAD") == "good"
    [event] = daemon.events("repository.repaired")
    [conflict] = event["data"]["conflicts"]
    assert guarded.subject(conflict) == "clash"
    assert "not re-applied because of conflicts" in event["data"]["message"]
    assert guarded.git("show", f"{event['data']['ref']}:one") == "other"


GONE = "git reflog expire --expire=now --all; git gc -q --prune=now"
MADE = "echo made >made; git add made; git commit -qm made"
OTHERS = {
    "another branch": f"git checkout -qf -b other HEAD~2; {MADE}; git branch -f main HEAD",
    "a deleted branch": f"{MADE}; git checkout -qf -b other HEAD~2; git branch -qD main",
    "a renamed branch": f"{MADE}; git branch -m renamed",
    "a detached HEAD": f"git checkout -qf --detach HEAD~2; {MADE}; git branch -f main HEAD",
    "a deleted ref": "git update-ref -d refs/heads/main",
}


@pytest.mark.parametrize("script", OTHERS.values(), ids=OTHERS.keys())
def test_a_branch_that_is_not_checked_out_or_gone_comes_back(
    daemon: Daemon, guarded: Guarded, script: str
) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    two = guarded.git("rev-parse", "HEAD")
    guarded.does(3, script=script)
    guarded.told(3)
    assert guarded.git("merge-base", two, "main") == two
    assert len(daemon.events("repository.repaired")) == 1
    assert MADE not in script or "made" in guarded.git("log", "--all", "--format=%s").splitlines()
    assert (guarded.place / "note").read_text() == "mine\n"
    guarded.does(4, script="true")
    guarded.told(4)
    assert len(daemon.history("demo", "repair")) == 1


REPORTED = ("events.before_commit", "account.before_state", "account.state_saved", "regent.before_answer")
DELETIONS = {
    "git checkout -q -B other; git branch -qD main": ("vault.take.fetched", "rewritten.recreated", *REPORTED),
    "git update-ref -d refs/heads/main": ("vault.rebuild.built", "vault.rebuild.moved_aside", *REPORTED),
}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_deleted_branch_comes_back_wherever_the_daemon_dies(
    daemon: Daemon, guarded: Guarded, deletion: str, gate: bool
) -> None:
    places = DELETIONS[deletion]
    daemon.start(failpoints=places[:1], unarmed=True)
    begun(guarded, regent__rollback_on_test_failure=gate)
    for number, place in enumerate(places, start=1):
        judged, new = 2 * number + 1, 2 * number + 2
        guarded.does(judged, f"judged{number}", script="git checkout -qf main")
        guarded.told(judged)
        subjects = guarded.subjects()
        guarded.does(new, f"new{number}", ends=f"{deletion}; touch {daemon.root}/armed")
        daemon.died()
        daemon.start(failpoints=places[number : number + 1], unarmed=True)
        assert guarded.told(new)["next"] == "continue", place
        assert guarded.git("log", "--format=%s", "main").splitlines() == subjects, place
        if "rewritten.recreated" in places:  # no such promise for a repository from the vault
            assert len(daemon.events("repository.repaired")) == number, place
            assert len(daemon.history("demo", "repair")) == number, place
        assert (guarded.place / f"new{number}").read_text() == f"new{number}\n", place
        assert (guarded.place / "note").read_text() == "mine\n", place


def test_a_branch_of_another_work_tree_is_not_moved(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    guarded.does(3, script=f"{RESET}; git checkout -q -b other; git worktree add -q ../linked main")
    assert guarded.told(3)["next"] == "pause"
    assert guarded.subject("main") == "first"


def test_objects_that_are_gone_come_from_the_vault(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    two = guarded.git("rev-parse", "HEAD")
    refs = "git for-each-ref --format='delete %(refname)' refs/ralph | git update-ref --stdin"
    guarded.does(3, "three", script=f"{RESET}; {refs}", ends=GONE)
    guarded.told(3)
    assert guarded.git("rev-parse", "main") == two
    assert "three" in guarded.git("log", "--glob=refs/ralph/left", "--format=%s").splitlines()
    assert guarded.git("fsck", "--connectivity-only") == ""


def test_nothing_is_repaired_during_a_merge_that_was_there_before(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    merges = (
        "git checkout -qb side HEAD~2; echo x >one; git add one; git commit -qm side; git checkout -q main"
    )
    guarded.does(3, "three", script=merges, ends="git merge -q side")
    guarded.told(3)
    guarded.does(4, script="git update-ref refs/heads/main HEAD~3")
    assert guarded.told(4)["next"] == "continue"
    assert guarded.subject("main") == "first"
    assert (guarded.place / ".git" / "MERGE_HEAD").exists()
    assert daemon.events("repository.repaired") == []


def test_an_upstream_that_was_rewound_gets_all_by_the_next_push(daemon: Daemon, guarded: Guarded) -> None:
    guarded.git("init", "-q", "--bare", "-b", "main", "../origin")
    guarded.git("remote", "add", "origin", "../origin")
    guarded.git("push", "-q", "-u", "origin", "main")
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    guarded.does(3, script="git push -q; git push -qf origin HEAD~2:main")
    guarded.told(3)
    assert guarded.git("--git-dir=../origin", "log", "--format=%s", "main") == "first"
    assert guarded.subjects() == ["two", "one", "first"]
    guarded.git("push", "-q")
    assert guarded.git("--git-dir=../origin", "log", "--format=%s", "main").split() == ["two", "one", "first"]


def test_honest_rewriting_is_accepted(daemon: Daemon, guarded: Guarded) -> None:
    guarded.git("init", "-q", "--bare", "-b", "main", "../origin")
    guarded.git("remote", "add", "origin", "../origin")
    guarded.git("push", "-q", "-u", "origin", "main")
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    guarded.does(3, script="git commit -q --amend -m better")
    guarded.told(3)
    guarded.does(4, "four", script="git reset -q --soft HEAD~2; git commit -qm squashed")
    guarded.told(4)
    others = (
        "git clone -q ../origin ../others; cd ../others; git config user.name x; git config user.email x@x"
    )
    theirs = f"({others}; touch theirs; git add .; git commit -qm theirs; git push -q)"
    guarded.does(5, script=f"{theirs} && git pull -q --rebase")
    guarded.told(5)
    assert guarded.subjects() == ["four", "squashed", "theirs", "first"]
    assert daemon.events("repository.repaired") == []


def test_a_rebase_that_drops_a_commit_is_repaired(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    before = guarded.git("rev-parse", "HEAD")
    guarded.does(3, "three", script="git rebase -q --onto HEAD~2 HEAD~1")
    guarded.told(3)
    assert guarded.subjects() == ["three", "two", "one", "first"]
    assert guarded.git("rev-parse", "HEAD~1") == before


def test_a_person_decides_if_the_configuration_says_so(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, git__rewritten="pause", regent__rollback_on_test_failure=False)
    guarded.does(3, "three", script=RESET)
    assert guarded.told(3)["next"] == "pause"
    view = daemon.becomes("demo", "paused")
    assert "lost commits" in view["message"]
    assert guarded.subjects() == ["three", "first"]
    guarded.does(4, "four")
    daemon.ask("POST", "/v1/ralphs/demo/resume", {})
    assert guarded.told(4)["next"] == "continue"
    assert guarded.subjects() == ["four", "three", "first"], "a person has accepted it by resume"


def test_uncommitted_work_in_the_way_stays_and_pauses(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded)
    guarded.does(3, script=f"{RESET}; echo precious >two")
    assert guarded.told(3)["next"] == "pause"
    assert (guarded.place / "two").read_text() == "precious\n"
    [event] = [each for each in daemon.events("guard.blocked") if "not restored" in each["data"]["message"]]
    assert "in the way: two" in event["data"]["message"]


def test_what_a_mixed_reset_leaves_is_not_in_the_way(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start(failpoints=["guard.move.tree"], unarmed=True)
    guarded.commit("old")
    begun(guarded)
    guarded.does(3, script="echo more >>one; git rm -q old; git commit -qam third; cd .")
    guarded.told(3)
    good = guarded.git("rev-parse", "HEAD")
    guarded.does(4, "four", script=f"git reset -q HEAD~3; touch {daemon.root}/armed")
    daemon.died()
    assert (guarded.place / "two").read_text() == "two\n"
    daemon.start()
    assert guarded.told(4)["next"] == "continue"
    assert (guarded.git("rev-parse", "HEAD~1"), guarded.subject("HEAD")) == (good, "four")
    assert guarded.git("status", "--porcelain") == "?? note"
    assert len(daemon.events("repository.repaired")) == 1


def paused_after_repair(daemon: Daemon, guarded: Guarded, *, script: str = RESET) -> str:
    """Repair a reset, and pause; the tip that the repair made."""
    begun(guarded)
    guarded.does(3, "three", script=script)
    guarded.told(3)
    guarded.ends(75)
    daemon.becomes("demo", "paused")
    return guarded.git("rev-parse", "HEAD")


def test_a_person_sees_a_repair_and_undoes_it_for_good(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    person = Person(daemon)
    repaired = paused_after_repair(daemon, guarded)
    command = "ralphctl undo demo --repair 1"
    [entry] = daemon.history("demo", "repair")
    assert (entry["version"], entry["number"], entry["what"]) == (2, 1, "repository.repaired")
    for page in ("verdicts", "report", "explain"):
        shown = person(page, "demo").stdout
        assert "had lost commits" in shown, page
        assert command in " ".join(shown.split()), page
        assert entry["refs"][0] in shown.replace("\n", "").replace(" ", ""), page
    guarded.commit("later")
    (guarded.place / "one").write_text("mine\n")
    refused = person("undo", "demo", "--repair").stderr
    assert "in the way: one" in refused and f"try: {command}    (when that is resolved)" in refused
    guarded.git("checkout", "-q", "--", "one")

    told = person("undo", "demo", "1", "--repair")

    assert "repair 1 undone" in told.stdout, told
    assert guarded.subjects() == ["later", "three", "first"]
    ref = guarded.git("for-each-ref", "--format=%(refname)", "refs/ralph/undone/")
    assert ref in told.stdout
    assert guarded.git("rev-parse", f"{ref}~1") == repaired
    assert (guarded.place / "note").read_text() == "mine\n"
    assert "undone by ralphctl undo" in person("verdicts", "demo").stdout
    assert "repair 1 is undone already" in person("undo", "demo", "--repair").stderr
    assert person("resume", "demo").returncode == 0
    guarded.does(4, "four")
    guarded.told(4)
    assert guarded.subjects() == ["four", "later", "three", "first"]
    assert len(daemon.history("demo", "repair")) == 1


def test_an_undo_that_conflicts_names_what_does_it_by_hand(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    paused_after_repair(daemon, guarded)
    [entry] = daemon.history("demo", "repair")
    (guarded.place / "one").write_text("later\n")
    guarded.git("commit", "-q", "-am", "later")

    told = Person(daemon)("undo", "demo", "--repair")

    assert "which came since then; nothing was changed" in told.stderr
    words = shlex.split(told.stderr.partition("try: ")[2])
    assert words[:3] == ["git", "-C", str(guarded.place)]
    with pytest.raises(subprocess.CalledProcessError):  # it stops at the conflict, on what was left
        guarded.git(*words[3:])
    assert guarded.git("rev-parse", "HEAD") == guarded.git("rev-parse", entry["refs"][0])
    assert guarded.git("status", "--porcelain").startswith("DU one")


@pytest.mark.parametrize("place", ["undo.noted", "repair.undo.kept", "guard.move.tree", "undo.done"])
def test_a_killed_undo_of_a_repair_is_completed_without_a_daemon(
    daemon: Daemon, guarded: Guarded, place: str
) -> None:
    daemon.start(failpoints=[place], unarmed=True)
    repaired = paused_after_repair(daemon, guarded)
    daemon.arm()
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/undo", {"repair": 1})
    daemon.died()
    told = Person(daemon)("undo", "demo", "--repair")
    assert "repair 1 undone" in told.stdout, told
    assert guarded.subjects() == ["three", "first"]
    assert guarded.git("rev-parse", guarded.git("for-each-ref", "--format=%(refname)", "refs/ralph/undone/"))
    assert guarded.git("merge-base", repaired, "HEAD") == guarded.git("rev-parse", "HEAD~1")
    daemon.start()
    assert len(daemon.events("commit.restored")) == len(daemon.history("demo", "undo")) == 1
    assert (guarded.place / "note").read_text() == "mine\n"


def test_a_run_undoes_no_repair(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded)
    guarded.does(3, "three", script=RESET)
    guarded.told(3)
    asks = f"{sys.executable} -m ralphctl undo demo --repair"
    guarded.does(4, "four", script=f"(cd {ROOT} && {asks}; echo $? >{daemon.root}/refused)")
    guarded.told(4)
    assert (daemon.root / "refused").read_text().strip() == "77"
    assert guarded.subjects() == ["four", "three", "two", "one", "first"]


def test_what_a_person_resets_between_runs_stays(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    begun(guarded, regent__rollback_on_test_failure=False)
    guarded.ends(0)
    daemon.becomes("demo", "done")
    guarded.git("reset", "-q", "--hard", "HEAD~1")
    guarded.does(3, "mine")
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    guarded.told(3)
    assert guarded.subjects() == ["mine", "one", "first"]
    assert daemon.events("repository.repaired") == []
    assert "was removed from main while nothing ran" in str(daemon.view("demo")["notes"])
    assert daemon.words().count("was removed from main while nothing ran") == 1
