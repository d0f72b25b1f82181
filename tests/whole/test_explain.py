"""``ralphctl explain``: of a real ralph the rule, the figures seen, what was missing and what was done."""

import json
import os
import re
import subprocess
from typing import Any

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.witnesses import Witness

SHORT = "[regent]\nhang_timeout_seconds = 2.0\nstartup_grace_seconds = 0.0\nmax_retries = 1\n"


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def explained(daemon: Daemon) -> View:
    return dict(daemon.ask("GET", "/v1/ralphs/demo/explain"))


def figures(view: View) -> dict[str, str]:
    return {figure["name"]: figure["seen"] for figure in view["figures"]}


def test_one_that_was_never_started_is_told_as_such(daemon: Daemon, witness: Witness, person: Person) -> None:
    daemon.start()
    witness.register(start=False)

    said = person("explain", "demo")

    assert said.returncode == 0, said
    assert said.stdout == "demo  Nothing was done yet\n  rule      it has never been started\n"
    assert explained(daemon)["run_id"] is None


def test_a_run_that_works_is_told_as_one(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("says", "out:hello\\n", "wait:600"))
    person.says_lines("demo", 1)

    said = person("explain", "demo")

    assert said.returncode == 0, said
    assert "H1: last output" in said.stdout
    assert f"{daemon.view('demo')['run_id']}, running" in said.stdout
    assert explained(daemon)["living"] is True


def test_a_run_that_is_silent_and_works_is_told_with_what_it_does(daemon: Daemon, person: Person) -> None:
    daemon.start()
    toml = "[regent]\nhang_timeout_seconds = 10.0\nstartup_grace_seconds = 0.0\n"
    loop = "while :; do echo x >> file; sleep 0.1; done"
    person.starts(person.directory(toml=toml), ("/bin/sh", "-c", loop))

    def works() -> Any:
        view = explained(daemon)
        return view if view["rule"] == "H2" else None

    view = wait_for(works, timeout_s=60, what="evidence of work")

    assert "but is working" in view["title"]
    assert len(view["figures"]) >= 3
    assert "reached" in figures(view)["files changed"]
    assert "output" in view["missing"]
    said = person("explain", "demo")
    assert "H2: silence alone is not a hang" in said.stdout.replace("\n            ", " ")
    assert max(map(len, said.stdout.splitlines())) <= 80


def test_a_run_that_hung_is_told_with_rule_figures_and_what_was_saved(daemon: Daemon, person: Person) -> None:
    daemon.start()
    pid = person.starts(person.directory(toml=SHORT), player("says", "out:the last words\\n", "wait:600"))[
        "ralph_pid"
    ]
    view = daemon.becomes("demo", "failed", timeout_s=90)
    assert not is_alive(pid)

    found, said = explained(daemon), person("explain", "demo")

    assert (found["rule"], found["living"], found["run_id"]) == ("H4", False, view["run_id"])
    assert found["title"].startswith("Ralph hung: no sign of life for")
    assert len(found["figures"]) >= 3
    assert {"without strong evidence", "bytes read and written", "ended with"} <= set(figures(found))
    assert {"output", "files changed", "new commits"} <= set(found["missing"])
    assert "all its processes are killed" in found["done"]
    assert pid in [each["pid"] for each in found["evidence"]["processes"]]
    assert found["evidence"]["last_lines"] == ["the last words"]
    assert said.returncode == 0, said
    assert f"\n  {pid}" in said.stdout
    assert "\n  the last words\n" in said.stdout
    assert "H4: " in said.stdout
    run = daemon.run_directories("demo")[-1]
    assert {"evidence.json", "explanation.json"} <= {path.name for path in run.iterdir()}


def test_it_is_stored_with_the_run_and_outlives_the_daemon(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(toml=SHORT), player("sleeper"))
    daemon.becomes("demo", "failed", timeout_s=90)
    before = explained(daemon)

    daemon.restart()

    assert explained(daemon) == before


def test_a_failure_is_told_with_what_would_have_forgiven_it(
    daemon: Daemon, witness: Witness, person: Person
) -> None:
    daemon.start()
    witness.register(max_retries=2)
    witness.end(3)
    witness.started(2)
    daemon.becomes("demo", "running")
    witness.end(3)
    daemon.becomes("demo", "failed")

    found = explained(daemon)

    assert (found["rule"], found["title"]) == ("C2", "Ralph failed (exit 3)")
    assert figures(found)["consecutive failures"] == "2"
    assert "a new commit" in found["missing"]
    assert found["done"] == "you are alerted; nothing starts until you act"
    said = person("explain", "demo").stdout
    assert "consecutive failures" in said
    assert "gives up at 2" in said


def test_the_first_commit_of_a_repository_is_one(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    commit = "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m first"
    person.starts(place, ("/bin/sh", "-c", f"{commit} && sleep 0.1; exit 3"))
    daemon.becomes("demo", "waiting_for_retry")
    assert figures(explained(daemon))["commits"] == "at least one"


def test_what_a_person_did_since_is_told_beside_what_was_to_follow(
    daemon: Daemon, witness: Witness, person: Person
) -> None:
    daemon.start()
    witness.register(retry_backoff_seconds=600)
    witness.end(1)
    daemon.becomes("demo", "waiting_for_retry")
    assert person("pause", "demo").returncode == 0

    said = person("explain", "demo")

    assert "  action    the next run starts at" in said.stdout
    assert "  now       paused: as requested\n" in said.stdout
    assert "  request   pause by pid " in said.stdout


def test_a_stop_and_a_limit_are_told_too(daemon: Daemon, witness: Witness, person: Person) -> None:
    daemon.start()
    body = witness.registration()
    body["flags"]["ralph.max_iterations"] = 1
    run_id = daemon.ask("POST", "/v1/ralphs", body)["run_id"]
    witness.started(1)
    report = {"run_id": run_id, "id": "1", "kind": "iteration-finished"}
    assert daemon.ask("POST", "/v1/ralphs/demo/reports", report)["next"] == "stop"
    witness.end(0)
    daemon.becomes("demo", "done")

    found = explained(daemon)

    assert (found["rule"], found["because"]) == ("E4", "max_iterations = 1 reached")
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    witness.started(2)
    assert person("stop", "demo").returncode == 0
    assert explained(daemon)["rule"] == "E3"


def test_the_reply_is_printed_as_it_came(daemon: Daemon, witness: Witness, person: Person) -> None:
    daemon.start()
    witness.register()

    said = person("--json", "explain")

    assert said.returncode == 0, said
    assert json.loads(said.stdout)["living"] is True


def test_broken_files_of_a_run_cost_the_explanation_and_nothing_else(
    daemon: Daemon, witness: Witness, person: Person
) -> None:
    daemon.start()
    witness.register(max_retries=1)
    witness.end(1)
    daemon.becomes("demo", "failed")
    assert explained(daemon)["rule"] == "C2"
    run = daemon.run_directories("demo")[-1]
    (run / "explanation.json").write_text("[")
    (run / "evidence.json").write_text("7" * 10)

    said = person("explain", "demo")

    assert said.returncode == 0, said
    assert "no explanation was saved with its last run" in said.stdout
    assert os.path.exists(run / "exit.json")


def test_a_hang_stays_readable_after_the_next_run_and_without_a_daemon(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    toml = SHORT.replace("max_retries = 1", "max_retries = 3\nretry_backoff_seconds = 0.1")
    once = "test -e seen && exec sleep 600; touch seen; echo hello; exec sleep 600"
    where = person.directory(toml=toml)
    person.starts(where, ("/bin/sh", "-c", once))
    wait_for(lambda: daemon.view("demo")["restarts"] >= 1, timeout_s=30, what="the restart")

    lists = person("explain", "demo", "--list").stdout
    assert "Ralph hung" in lists
    assert "(ralphctl explain demo --run 1)" in lists
    first = person("explain", "demo", "--run", "1").stdout
    assert "signal" in first and "observed" in first and "threshold" in first
    assert "last lines of output" in first
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    assert re.search(r"last kill .*\(ralphctl explain demo --run", person("explain", "demo").stdout)
    daemon.kill()

    from_disk = person("explain", "demo", "--run", "1").stdout
    assert re.sub(r"\d+s ago", "", from_disk) == re.sub(r"\d+s ago", "", first)
    assert person("explain", "demo", "--run", "99").returncode == 2
    told = person("events", "demo", "--since", "1h", "--type", "ralph.stalled")
    assert "Ralph hung" in told.stdout
    assert person("events", "demo", "--since", "nonsense").returncode == 2
    assert person("logs", "demo").stdout.count("hello") == 1


def test_without_a_daemon_a_run_that_works_is_not_taken_for_the_one_before(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    person.starts(person.directory(), ("/bin/sh", "-c", "exec sleep 600"))
    person("stop", "demo", "--now")
    assert person("start", "demo").returncode == 0
    daemon.kill()

    said = person("explain", "demo")

    assert "nothing explains run r000002-" in said.stderr
    assert "r000001-" in said.stdout
