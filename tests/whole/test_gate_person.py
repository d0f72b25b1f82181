"""The guard as a person meets it: refused or told at the start, said to a script, left to the next daemon."""

import signal
import sys
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.guarded import TESTS, Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person

SLOW = f"if test -e ../slow; then touch ../testing; while test -e ../slow; do sleep 0.05; done; fi; {TESTS}"
LOOP = """\
touch ../slow
echo broken >broken && git add broken && git commit -qm broken
PYTHON -P -m ralphctl notify iteration-finished --wait >../answer 2>../verdict
echo $? >../code
"""


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


def test_a_guard_without_tests_or_without_a_repository_is_told_at_the_start(
    daemon: Daemon, guarded: Guarded, tmp_path: Path
) -> None:
    daemon.start()
    person = Person(daemon)
    (guarded.place / "ralph.toml").write_text("[regent]\nrollback_on_test_failure = true\n")
    refused = person("start", str(guarded.place), "--", "true")
    assert refused.returncode == 78
    assert "test_command is not" in refused.stderr
    assert daemon.status()["ralphs"] == []
    place = person.directory(
        "plain", toml='[regent]\nrollback_on_test_failure = true\ntest_command = "true"\n'
    )
    told = person("start", str(place), "--", "sleep", "60")
    assert "the guard is off: this is not a git repository" in told.stderr
    assert daemon.becomes("plain", "running")["reverts"] == 0
    assert "test_command" not in str(daemon.view("plain")["notes"])
    (guarded.place / "ralph.toml").write_text('[regent]\ntest_command = "touch ../ran"\n')
    assert person("start", str(guarded.place), "--", "true").returncode == 0
    daemon.becomes("demo", "done")
    assert not (daemon.home / "ran").exists(), "with the guard off no tests are run"


def test_the_note_about_boundaries_is_a_condition(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    (guarded.place / "ralph.toml").write_text(
        '[regent]\nrollback_on_test_failure = true\ntest_command = "true"\n'
    )
    started = Person(daemon)("start", str(guarded.place), "--", "sleep", "600")
    said = " ".join(started.stderr.split())
    assert "commits are judged only if the command reports the end of each iteration and waits: " in said
    assert "no commit is judged" not in said


def test_tests_that_cannot_be_run_keep_ralph_from_being_started(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.register(tests="no-such-program --all")
    view = daemon.becomes("demo", "failed", timeout_s=30)
    assert "the tests cannot be run" in view["message"]
    assert daemon.run_directories("demo") == []
    assert len(daemon.events("ralph.escalated")) == 1


def test_a_script_hears_the_verdict_and_a_new_daemon_goes_on_with_the_tests(
    daemon: Daemon, guarded: Guarded
) -> None:
    script = daemon.root / "loop.sh"
    script.write_text(LOOP.replace("PYTHON", sys.executable))
    toml = f'[regent]\nrollback_on_test_failure = true\ntest_command = "{SLOW}"\n'
    (guarded.place / "ralph.toml").write_text(toml)
    daemon.start()
    person = Person(daemon)
    started = person("start", str(guarded.place), "--", "sh", str(script))
    assert started.returncode == 0, started
    wait_for(lambda: (daemon.home / "testing").exists(), timeout_s=30, what="tests that run")
    runs = guarded.runs_of_tests()
    daemon.send(signal.SIGUSR2)
    assert daemon.exit_code() == 0
    daemon.start()
    assert daemon.view("demo")["state"] == "testing"
    (daemon.home / "slow").unlink()
    wait_for(lambda: (daemon.home / "code").exists(), timeout_s=60, what="the loop's answer")
    assert (daemon.home / "answer").read_text() == "continue\n"
    [verdict] = guarded.judged(1)
    assert verdict["tests"] == ["red", "red", "green"]
    assert guarded.runs_of_tests() == runs + 2, "the tests that ran were adopted"
    said = (daemon.home / "verdict").read_text().splitlines()
    assert said[-1] == f"reverted {verdict['reverted'][0]}: the tests failed, and pass without it"
    assert daemon.becomes("demo", "done", timeout_s=30)["reverts"] == 1


def test_r8_what_is_in_doubt_pauses_and_calls_and_a_crash_leaves_its_commits_to_the_next_verdict(
    daemon: Daemon, guarded: Guarded
) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "half", ends=f"rm {guarded.scripts}/1; kill -9 $PPID")
    guarded.does(2, "other")
    kept = guarded.verdict(1)
    assert (kept["kind"], len(kept["commits"])) == ("kept", 2)
    guarded.does(3, "broken", script="git switch -q -c elsewhere")
    assert guarded.told(2)["next"] == "pause"
    assert "the branch is another" in guarded.verdict(2)["why"]
    view = daemon.becomes("demo", "paused")
    assert (view["pause_reason"], view["reverts"]) == ("guard", 0)
    assert "the branch is another" in view["message"]
    assert guarded.subjects() == ["broken", "other", "half", "first"]
    [call] = daemon.events("ralph.escalated")
    assert "the branch is another" in call["data"]["message"]
    guarded.git("switch", "-q", "main")
    guarded.does(4, script=f"rm {guarded.scripts}/4; touch .git/index.lock; kill -9 $PPID")
    guarded.does(5, "good")
    daemon.ask("POST", "/v1/ralphs/demo/resume", {})
    assert guarded.verdict(3)["kind"] == "kept"
    [mended] = daemon.events("state.recovered")
    assert "index.lock" in mended["data"]["message"]


@pytest.mark.parametrize("repairs", [False, True])
def test_a_pause_at_the_last_boundary_is_reported_once(
    daemon: Daemon, guarded: Guarded, repairs: bool
) -> None:
    """The loop ends with 0 then, as the one of the page does; what was repaired since is judged."""
    script = daemon.root / "loop.sh"
    begin = "PYTHON -P -m ralphctl notify iteration-started; git checkout -q --detach"
    script.write_text(LOOP.replace("touch ../slow", begin).replace("PYTHON", sys.executable))
    toml = f'[regent]\nrollback_on_test_failure = true\ntest_command = "{TESTS}"\n'
    (guarded.place / "ralph.toml").write_text(toml + '[git]\nrepair = "abort"\n' * repairs)
    daemon.start()
    person = Person(daemon)
    assert person("start", str(guarded.place), "--", "sh", str(script)).returncode == 0
    wait_for(lambda: (daemon.home / "code").exists(), timeout_s=30, what="the loop's answer")
    person("wait", "demo")
    assert daemon.view("demo")["state"] == "paused"
    assert (daemon.home / "answer").read_text() == "pause\n"
    kinds = [entry["verdict"] for entry in daemon.history("demo", "verdict")]
    assert kinds == ["untested", *["reverted"] * repairs]


def test_what_is_not_in_the_way_any_more_is_not_noted(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.git("checkout", "-q", "--detach")
    guarded.register()
    guarded.does(1, "lost")
    assert "HEAD is detached" in guarded.verdict(1)["why"]
    daemon.becomes("demo", "paused")
    assert "will pause Ralph at a commit: HEAD is detached" in str(daemon.view("demo")["notes"])
    guarded.git("switch", "-q", "-C", "main")
    guarded.does(2, "good")
    daemon.ask("POST", "/v1/ralphs/demo/resume", {})
    assert guarded.verdict(2)["kind"] == "kept"
    assert "will pause" not in str(daemon.view("demo")["notes"])


def test_a_persons_commits_stay_above_and_below_those_of_the_run(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    go = guarded.scripts / "GO"
    waits = f"while ! test -e {go}; do sleep 0.05; done; rm {go}"
    guarded.does(1, "below-mine", "broken", ends=waits)
    guarded.register()
    wait_for(lambda: "broken" in guarded.subjects(), timeout_s=30, what="the run's commits")
    mine = guarded.commit("mine")
    go.touch()
    verdict = guarded.verdict(1)
    assert (verdict["kind"], len(verdict["commits"])) == ("reverted", 2)
    assert guarded.subjects() == ['Revert "broken"', "mine", "broken", "below-mine", "first"]
    assert guarded.git("rev-parse", "HEAD~1") == mine

    guarded.does(2, "good", ends=waits)
    wait_for(lambda: "good" in guarded.subjects(), timeout_s=30, what="the run's commits")
    red = guarded.commit("broken")
    go.touch()
    verdict = guarded.verdict(2)
    assert verdict["kind"] == "untested"
    assert f"it did not make {red[:7]}: look there first" in verdict["why"]
    assert guarded.told(2)["next"] == "continue"
    guarded.does(3, "still-red")
    assert guarded.verdict(3)["why"] == verdict["why"]
    [_] = daemon.events("ralph.escalated")
    guarded.git("rm", "-q", "broken")
    guarded.git("commit", "-q", "-m", "fixed")
    guarded.does(4, "later")
    verdict = guarded.verdict(4)
    assert (verdict["kind"], len(verdict["commits"])) == ("kept", 3)
