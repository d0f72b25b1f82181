"""The guard, whole (R1 to R9, C4): a real daemon, real git, and a loop that reports its iterations."""

import pytest

from tests.whole.guarded import TESTS, Guarded
from tests.whole.harness import Daemon


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


def test_a_good_commit_stays_a_bad_one_goes_and_the_loop_is_told(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "good")
    assert guarded.told(1)["next"] == "continue"
    kept = guarded.verdict(1)
    assert (kept["kind"], kept["why"], kept["reverted"]) == ("kept", "the tests pass", [])
    assert kept["commits"] == [guarded.git("rev-parse", "HEAD")]
    guarded.does(2, "broken")
    gone = guarded.verdict(2)
    assert (gone["kind"], gone["task"]) == ("reverted", {"id": "t2", "title": ""})
    assert guarded.subjects() == ['Revert "broken"', "broken", "good", "first"]
    assert daemon.view("demo")["reverts"] == 1
    assert guarded.git("status", "--porcelain", "--untracked-files=no") == ""
    short = [sha[:7] for sha in (kept["commits"][0], gone["commits"][0])]
    assert guarded.said() == [
        f"Tests passed ✅ — commit {short[0]} kept",
        f"Tests failed ❌ — reverting commit {short[1]}",
    ]
    # three commits, of which the first is the bad one: newest first, and no more than needed
    guarded.does(3, "broken2", "second", "third", script="git rm -q good && git commit -q -m gone")
    guarded.does(4)
    assert guarded.verdict(4) == guarded.verdict(4) | {"kind": "kept", "why": "there is no new commit"}
    history = guarded.judged(3)
    assert [entry["verdict"] for entry in history] == ["kept", "reverted", "kept"]
    assert history[1]["tests"] == ["red", "green"]
    assert (history[1]["iteration"], history[1]["task"]["id"]) == (2, "t2")
    refs = guarded.git("for-each-ref", "--format=%(refname)", "refs/ralph").splitlines()
    assert sorted([*history[1]["refs"], "refs/ralph/judged/demo"]) == refs


def test_of_three_commits_the_bad_one_and_those_after_it_are_reverted(
    daemon: Daemon, guarded: Guarded
) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "broken", "second", "third")
    gone = guarded.verdict(1)
    assert (gone["kind"], len(gone["reverted"])) == ("reverted", 3)
    assert guarded.subjects()[:3] == ['Revert "broken"', 'Revert "second"', 'Revert "third"']
    guarded.does(2, "fine", "broken", ends="echo more >>first")
    assert guarded.verdict(2)["kind"] == "reverted"
    assert guarded.subjects()[:3] == ['Revert "broken"', "broken", "fine"]
    assert guarded.git("status", "--porcelain", "-uno") == "M first"
    guarded.does(3, script="git commit -qam 'what was left'; touch red", ends="git add red")
    assert guarded.verdict(3)["kind"] == "kept"


def test_r4_a_red_tree_is_told_once_and_nothing_is_blamed_before_it_is_green(
    daemon: Daemon, guarded: Guarded
) -> None:
    guarded.commit("broken")
    daemon.start()
    guarded.register()
    guarded.does(1, "one")
    assert guarded.verdict(1)["kind"] == "untested"
    assert any("not green" in note for note in daemon.view("demo")["notes"])
    guarded.does(2, script="git rm -q broken && git commit -qm mended")
    assert guarded.verdict(2)["kind"] == "kept"
    assert not any("not green" in note for note in daemon.view("demo")["notes"])
    guarded.does(3, "broken")
    assert guarded.verdict(3)["kind"] == "reverted"
    told = [line for line in guarded.said() if "before Ralph starts" in line]
    assert told == ["The tests fail before Ralph starts: commits are not judged until they pass"]
    assert daemon.events("ralph.escalated") == []


def test_r3_a_time_limit_of_0_is_none(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.register(regent__test_timeout_seconds=0)
    guarded.does(1, "one")
    assert guarded.verdict(1)["why"] == "the tests pass"


def test_r3_what_is_no_red_test_reverts_nothing(daemon: Daemon, guarded: Guarded) -> None:
    """Flaky, hanging, not to be found, and red only with what is not committed."""
    flag = daemon.root / "flaky"
    code = 'test -e dirty && exit "$(cat dirty)"'
    tests = f"{code}; test -e slow && sleep 60; rm {flag} 2>/dev/null && exit 1; {TESTS}"
    daemon.start()
    guarded.register(tests=tests, regent__test_retries=1, regent__test_timeout_seconds=0.4)
    guarded.does(1, "one", ends=f"touch {flag}")
    assert guarded.verdict(1)["why"] == "the tests pass, at a second run"
    guarded.does(2, script="echo 0 >dirty; git add dirty", ends="git commit -qm two; echo 1 >dirty")
    dirty = guarded.verdict(2)
    assert (dirty["kind"], dirty["why"]) == (
        "untested",
        "dirty: the tests pass without what is not committed: dirty",
    )
    assert (guarded.place / "dirty").read_text() == "1\n"
    guarded.does(3, script="echo 127 >dirty; git commit -qam three")
    assert "cannot be run" in guarded.verdict(3)["why"]
    guarded.does(4, "slow", script="git rm -q dirty")
    assert guarded.verdict(4)["why"] == "the tests did not end in time, twice"
    assert guarded.subjects() == ["slow", "three", "two", "one", "first"]
    [call], [held_back] = daemon.events("ralph.escalated"), daemon.events("incident.held_back")
    assert "cannot be run" in call["data"]["message"] and "in time, twice" in held_back["data"]["message"]
    assert daemon.view("demo")["incident"]["do"] == "ralphctl verdicts demo"
    assert daemon.leftovers() and not any("sleep" in line for _, line in daemon.leftovers())
