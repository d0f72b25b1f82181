"""What the guard has reverted is put back: a real daemon, real git, and a person who types."""

from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.person import Person

WRONG_STATE, NOT_UNDONE = "urn:ralphd:problem:wrong-state", "urn:ralphd:problem:not-undone"


def refused(daemon: Daemon, iteration: int | None = None) -> dict[str, object]:
    reply = daemon.api("POST", "/v1/ralphs/demo/undo", {"iteration": iteration})
    assert reply.status == 409, reply
    return dict(reply.body)


def everything(guarded: Guarded) -> tuple[str, ...]:
    """What no refusal may change: HEAD and its branch, index, refs, files."""
    return (
        (guarded.place / ".git" / "HEAD").read_text(),
        guarded.git("ls-files", "-s"),
        guarded.git("for-each-ref"),
        guarded.git("status", "--porcelain"),
        guarded.git("diff"),
    )


def test_a_reverted_commit_is_seen_put_back_and_tested_before_ralph_goes_on(daemon: Daemon) -> None:
    guarded = Guarded.of(daemon)
    daemon.start()
    person = Person(daemon)
    guarded.register()
    assert "does not report the end of an iteration" in person("verdicts", "demo").stdout
    guarded.does(1, "good")
    guarded.told(1)
    assert refused(daemon)["type"] == WRONG_STATE, "a run lives"
    guarded.does(2, "broken")
    assert guarded.verdict(2)["kind"] == "reverted"
    shown = person("verdicts", "demo").stdout
    lines = [line.split()[1:3] for line in shown.splitlines() if line[:1].isdigit()]
    assert lines == [["2", "reverted"], ["1", "kept"]]
    explained = person("explain", "demo").stdout
    assert "test guard: Commits were reverted" in explained
    guarded.does(3, script="touch dirty")
    daemon.ask("POST", "/v1/ralphs/demo/pause", {})
    daemon.becomes("demo", "paused")
    assert "of iteration 2" in person("status", "demo").stdout

    # refused: nothing to undo there, work in the way, a branch that is not there
    before = everything(guarded)
    nothing = refused(daemon, 1)
    assert (nothing["type"], "it is kept" in str(nothing["why"])) == (NOT_UNDONE, True)
    assert everything(guarded) == before
    (guarded.place / "broken").write_text("mine\n")
    before = everything(guarded)
    told = person("undo", "demo")
    assert (told.returncode, "broken" in told.stderr) == (1, True), told
    assert (everything(guarded), (guarded.place / "broken").read_text()) == (before, "mine\n")
    (guarded.place / "broken").unlink()
    guarded.git("checkout", "-q", "--detach")
    before = everything(guarded)
    assert "on no branch" in str(refused(daemon)["why"])
    assert everything(guarded) == before
    guarded.git("checkout", "-q", "main")
    assert daemon.view("demo")["guard"]["baseline"] == "green"

    # put back, told once, and once only
    told = person("undo", "demo", "2")
    assert told.returncode == 0, told
    assert "restored 1 commit of iteration 2" in told.stdout
    assert "next: ralphctl resume demo" in told.stdout
    assert guarded.subjects() == ['Reapply "broken"', 'Revert "broken"', "broken", "good", "first"]
    assert (guarded.place / "broken").exists()
    [event] = daemon.events("commit.restored")
    [entry] = daemon.history("demo", "undo")
    assert event["data"]["made"] == entry["made"] == [guarded.git("rev-parse", "HEAD")[:7]]
    assert "put back already" in str(refused(daemon)["why"])
    assert daemon.view("demo")["last_commit"] == guarded.git("rev-parse", "--short", "HEAD")
    guard = daemon.view("demo")["guard"]
    assert (guard["baseline"], guard["reverted"]) == ("unknown", None)
    [_, again, *_] = daemon.ask("GET", "/v1/ralphs/demo/verdicts?limit=3")["verdicts"][::-1]
    assert (again["iteration"], again["undone"]) == (2, True)

    # the tests are asked anew: what a person wants there is blamed on nobody
    runs = guarded.runs_of_tests()
    assert person("resume", "demo").returncode == 0
    guarded.does(4, "more")
    assert guarded.verdict(4)["kind"] == "untested"
    assert guarded.runs_of_tests() > runs + 1
    assert "red since" in person("status", "demo").stdout
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})


def test_an_undo_that_a_dead_daemon_began_is_brought_to_its_end_once(daemon: Daemon) -> None:
    guarded = Guarded.of(daemon)
    daemon.start(failpoints=["undo.done"])
    guarded.register()
    guarded.does(1, "broken")
    assert guarded.verdict(1)["kind"] == "reverted"
    guarded.ends(75)
    daemon.becomes("demo", "paused")
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/undo", {})
    daemon.died()
    daemon.start()
    assert guarded.subjects()[0] == 'Reapply "broken"'
    assert daemon.history("demo", "undo") == []
    undone = daemon.ask("POST", "/v1/ralphs/demo/undo", {})
    assert (undone["iteration"], undone["made"]) == (1, [])
    assert guarded.subjects() == ['Reapply "broken"', 'Revert "broken"', "broken", "first"]
    assert len(daemon.events("commit.restored")) == len(daemon.history("demo", "undo")) == 1
    assert refused(daemon)["type"] == NOT_UNDONE


def test_without_a_daemon_it_is_put_back_as_by_one_and_a_conflict_names_the_git_command(
    daemon: Daemon,
) -> None:
    guarded, person = Guarded.of(daemon), Person(daemon)
    daemon.start()
    guarded.register()
    guarded.does(1, "broken")
    assert guarded.verdict(1)["kind"] == "reverted"
    assert person("undo", "demo").returncode == 1, "a run lives"
    guarded.ends(75)
    daemon.becomes("demo", "paused")
    daemon.kill()

    # a conflict: nothing is changed, and what a person can type is named
    (guarded.place / "broken").write_text("mine\n")
    guarded.git("add", "broken")
    guarded.git("commit", "-qm", "mine")
    before = everything(guarded)
    told = person("undo", "demo")
    revert = guarded.git("rev-parse", "--short=7", "HEAD~1")
    assert told.returncode == 1
    assert "cannot re-apply iteration 1" in told.stderr
    assert "in broken; nothing was changed" in told.stderr
    assert f"git -C {guarded.place} revert {revert}" in told.stderr
    assert everything(guarded) == before
    guarded.git("reset", "-q", "--hard", "HEAD~1")

    # a file in the way: the same command helps only when it is gone
    (guarded.place / "broken").write_text("mine\n")
    told = person("undo", "demo")
    assert "in the way: broken; nothing was changed" in told.stderr
    assert "try: ralphctl undo demo 1    (when that is resolved)" in told.stderr
    (guarded.place / "broken").unlink()

    # put back, written down, and seen by the next daemon
    told = person("undo", "demo", "1")
    assert told.returncode == 0, told
    assert "restored 1 commit of iteration 1" in told.stdout
    assert guarded.subjects()[0] == 'Reapply "broken"'
    kept = person("events", "demo", "--type", "commit.*").stdout
    assert [line.split()[3] for line in kept.splitlines()] == ["commit.reverted", "commit.restored"]
    daemon.start()
    assert len(daemon.events("commit.restored")) == len(daemon.history("demo", "undo")) == 1


def test_while_a_run_outlives_its_daemon_nothing_is_put_back(daemon: Daemon) -> None:
    guarded, person = Guarded.of(daemon), Person(daemon)
    daemon.start()
    guarded.register()
    guarded.does(1, "broken")
    assert guarded.verdict(1)["kind"] == "reverted"
    daemon.kill()
    before = everything(guarded)

    told = person("undo", "demo")

    assert told.returncode == 1, told
    assert everything(guarded) == before
    daemon.start()
