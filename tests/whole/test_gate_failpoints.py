"""A judgement that is cut off at any step is brought to its end by the next daemon, once (R3 to R7)."""

from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon

PLACES = (
    "gate.run_tests.ordered",
    "gate.tests_run",
    "gate.set_aside.done",
    "gate.put_back.ordered",
    "guard.move.tree",
    "gate.revert.done",
    "gate.push.done",
    "gate.say.done",
)


def test_a_bad_commit_goes_once_wherever_the_daemon_dies(daemon: Daemon) -> None:
    guarded = Guarded.of(daemon)
    guarded.git("init", "-q", "--bare", "../origin")
    guarded.git("remote", "add", "origin", "../origin")
    guarded.git("push", "-q", "-u", "origin", "main")
    guarded.commit("mine")
    (guarded.place / "mine").write_text("not committed\n")
    daemon.start(failpoints=[PLACES[0]], unarmed=True)
    guarded.register()
    for number, place in enumerate(PLACES, start=1):
        before = guarded.git("rev-parse", "HEAD")
        daemon.arm()
        guarded.does(number, "broken", ends="git push -q")
        daemon.died()
        daemon.start(failpoints=PLACES[number : number + 1], unarmed=True)

        assert guarded.verdict(number)["kind"] == "reverted", place
        assert guarded.subjects()[:3] == ['Revert "broken"', "broken", guarded.subject(before)], place
        assert guarded.git("rev-parse", "HEAD~2") == before, place
        assert guarded.git("rev-parse", "origin/main") == guarded.git("rev-parse", "HEAD"), place
        assert guarded.git("status", "--porcelain") == "M mine", place
        assert (guarded.place / "mine").read_text() == "not committed\n"
    count = len(PLACES)
    assert guarded.git("stash", "list") == ""
    assert daemon.view("demo")["reverts"] == count
    assert [entry["verdict"] for entry in guarded.judged(count)] == ["reverted"] * count
    assert len(daemon.events("commit.reverted")) == count
    assert daemon.events("ralph.escalated") == []
