"""The guard where a run is an iteration, where a run crashes, and where somebody asks it to stop."""

import signal

import pytest

from tests.helpers import wait_for
from tests.whole.guarded import TESTS, Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person

SLOW = f"if test -e ../slow; then touch ../testing; sleep 60; fi; {TESTS}"


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


def is_testing(daemon: Daemon) -> None:
    """Wait until the tests are in their slow part."""
    wait_for(lambda: (daemon.home / "testing").exists(), timeout_s=30, what="tests that run")
    (daemon.home / "testing").unlink()


def nothing_sleeps(daemon: Daemon) -> bool:
    return not any("sleep 60" in line for _, line in daemon.leftovers())


def test_e4_a_run_that_is_an_iteration_is_judged_before_the_next_begins(
    daemon: Daemon, guarded: Guarded
) -> None:
    daemon.start()
    guarded.does(1, "good")
    guarded.does(2, "broken")
    guarded.does(3, "half", ends="exit 3")  # a crash: judged with the next
    guarded.does(4, "broken")
    guarded.register("once", ralph__mode="iteration", regent__max_retries=3)
    verdicts = guarded.judged(3)
    assert [entry["verdict"] for entry in verdicts] == ["kept", "reverted", "reverted"]
    assert [len(entry["commits"]) for entry in verdicts] == [1, 1, 2]
    assert guarded.subjects()[:4] == ['Revert "broken"', "broken", "half", 'Revert "broken"']
    wait_for(lambda: daemon.view("demo")["iteration"] == 3, what="three iterations")
    view = daemon.view("demo")
    assert (view["reverts"], view["consecutive_errors"]) == (2, 1)  # C3: what was reverted clears nothing
    # the end of a run that no daemon saw
    wait_for(lambda: len(daemon.run_directories("demo")) > 4, what="a fifth run")
    directory = daemon.run_directories("demo")[4]
    wait_for((directory / "run.json").exists, what="a fifth run")
    daemon.kill()
    guarded.does(5, "broken", "after")
    wait_for((directory / "exit.json").exists, timeout_s=30, what="the end of the fifth run")
    daemon.start()
    assert guarded.judged(4)[3]["verdict"] == "reverted"
    assert guarded.subjects()[:3] == ['Revert "broken"', 'Revert "after"', "after"]
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")


def test_stop_now_ends_the_tests_and_the_commits_are_judged_after_the_next_start(
    daemon: Daemon, guarded: Guarded
) -> None:
    daemon.start()
    guarded.does(1, "broken", ends="touch ../slow")
    guarded.register("once", tests=SLOW, ralph__mode="iteration")
    is_testing(daemon)
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("testing", None)
    daemon.ask("POST", "/v1/ralphs/demo/stop", {})
    view = daemon.view("demo")
    assert view["state"] == "stopping"
    assert "tests of its iteration" in view["message"]
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    assert nothing_sleeps(daemon)
    [entry] = guarded.judged(1)
    assert entry["verdict"] == "untested"
    assert "next iteration" in entry["why"]
    assert guarded.subjects() == ["broken", "first"]
    (daemon.home / "slow").unlink()
    guarded.does(2, "two")
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    assert guarded.judged(2)[1]["verdict"] == "reverted"
    assert guarded.subjects() == ['Revert "broken"', 'Revert "two"', "two", "broken", "first"]
    # what a person commits where nothing runs is nobody's iteration
    guarded.does(3, "half", ends="exit 75")
    daemon.becomes("demo", "paused")
    guarded.commit("broken")
    guarded.does(4, "three")
    daemon.ask("POST", "/v1/ralphs/demo/resume", {})
    assert guarded.judged(3)[2]["verdict"] == "untested"
    assert guarded.subjects()[:3] == ["three", "broken", "half"]
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})


def test_r4_before_the_first_run_a_stop_ends_the_tests_and_nothing_starts(
    daemon: Daemon, guarded: Guarded
) -> None:
    (daemon.home / "slow").touch()
    daemon.start()
    assert guarded.register(tests=SLOW)["state"] == "testing"
    is_testing(daemon)
    daemon.ask("POST", "/v1/ralphs/demo/stop", {})
    daemon.becomes("demo", "stopped")
    assert nothing_sleeps(daemon)
    assert daemon.run_directories("demo") == []
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    is_testing(daemon)
    daemon.send(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert nothing_sleeps(daemon)
    (daemon.home / "slow").unlink()
    daemon.start()
    guarded.does(1, "good")
    assert guarded.verdict(1)["kind"] == "kept"


def test_what_a_loop_commits_after_its_last_boundary_is_judged_at_its_good_end_else_told(
    daemon: Daemon, guarded: Guarded
) -> None:
    daemon.start()
    guarded.does(1, "good")
    guarded.register(regent__max_retries=1)
    guarded.told(1)
    guarded.commit("broken", as_run=True)
    guarded.ends(0)
    daemon.becomes("demo", "done")
    [_, last] = guarded.judged(2)
    assert (last["verdict"], last["iteration"]) == ("reverted", 1)
    assert guarded.subjects() == ['Revert "broken"', "broken", "good", "first"]
    assert not [note for note in daemon.view("demo")["notes"] if "is not judged" in note]

    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    daemon.becomes("demo", "running")
    since = guarded.git("rev-parse", "HEAD")[:7]
    guarded.commit("later")
    guarded.ends(1)
    daemon.becomes("demo", "failed")
    view = daemon.view("demo")
    [note] = [note for note in view["notes"] if "is not judged" in note]
    assert note.startswith(f"what was committed after {since} is not judged yet")
    assert (view["guard"]["baseline"], view["guard"]["unjudged_since"]) == ("green", since)

    # with an undo below it, it gets no verdict of its own: that is said
    undone = Person(daemon)("undo", "demo")
    assert undone.returncode == 0, undone
    later = guarded.git("rev-parse", "--short=7", "HEAD~1")
    assert f"  {later} had no verdict and will get none" in undone.stdout
    assert not [note for note in daemon.view("demo")["notes"] if "is not judged" in note]

    # without a daemon the verdicts are read from the history
    shown = Person(daemon)("verdicts", "demo", cwd=guarded.place)
    daemon.kill()
    kept = Person(daemon)("verdicts", cwd=guarded.place)
    assert (kept.returncode, kept.stdout) == (0, shown.stdout)
    assert kept.stderr == "no daemon is running; verdicts kept on disk:\n"
    assert Person(daemon)("verdicts", "other", cwd=guarded.place).returncode == 3
