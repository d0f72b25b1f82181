"""What a run reports (H6, G1, C3, E2, E4): acted upon once, whatever happens to the daemon in between."""

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon, Reply, View
from tests.whole.person import Person
from tests.whole.witnesses import Witness

PLACES = ("account.before_state", "account.state_saved", "regent.before_answer")
HANG_S = 3.0


@dataclass(frozen=True, slots=True)
class Reporter:
    """Says what the run that lives would say, as the route takes it."""

    daemon: Daemon
    name: str = "demo"

    def body(self, kind: str, report_id: str, **words: object) -> View:
        return {"run_id": self.daemon.view(self.name)["run_id"], "id": report_id, "kind": kind, **words}

    def send(self, body: Mapping[str, Any]) -> Reply:
        return self.daemon.api("POST", f"/v1/ralphs/{self.name}/reports", body)

    def __call__(self, kind: str, report_id: str | None = None, **words: object) -> str:
        """Report, which has to go well; what to do next."""
        reply = self.send(self.body(kind, report_id or os.urandom(6).hex(), **words))
        assert reply.status == 200, reply
        assert reply.body["verdict"] is None
        return str(reply.body["next"])


@pytest.fixture
def report(daemon: Daemon) -> Reporter:
    return Reporter(daemon)


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def register(witness: Witness, *arguments: object, **flags: object) -> View:
    """Register the witness with flags of any section, and wait for its start."""
    body = witness.registration(*arguments)
    body["flags"] |= {name.replace("__", "."): value for name, value in flags.items()}
    view = dict(witness.daemon.ask("POST", "/v1/ralphs", body))
    witness.started(1)
    return view


def output(daemon: Daemon, name: str = "demo") -> list[str]:
    text: bytes = daemon.ask("GET", f"/v1/ralphs/{name}/logs?tail=all&stream=stdout")
    return text.decode().splitlines()


def limit_told(daemon: Daemon) -> str:
    """Wait until it is done for a limit; what was told of it, once."""
    view = daemon.becomes("demo", "done", timeout_s=60)
    assert "limit" in view["message"]
    [told] = daemon.events("ralph.done")
    return str(told["data"]["message"])


def seconds_later(seconds: float) -> None:
    """Nothing is to happen meanwhile."""
    began = time.monotonic()
    wait_for(lambda: time.monotonic() - began >= seconds, timeout_s=seconds + 60)


# --- once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["account.report_entered", *PLACES])
def test_an_iteration_is_counted_once_though_the_daemon_dies_before_it_answers(
    daemon: Daemon, witness: Witness, report: Reporter, place: str
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    daemon.start(failpoints=[place], unarmed=True)
    body = report.body("iteration-finished", "the-first", iteration=1, summary="parsed")
    daemon.arm()
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/reports", body)
    daemon.start()

    replies = [report.send(body) for _ in range(2)]

    assert [(reply.status, reply.body) for reply in replies] == [
        (200, {"id": "the-first", "next": "continue", "verdict": None})
    ] * 2
    view = daemon.view("demo")
    assert (view["iteration"], view["ralph_pid"], view["state"]) == (1, pid, "running")
    [entry] = daemon.history("demo", "iteration")
    assert (entry["iteration"], entry["failed"], entry["summary"]) == (1, False, "parsed")
    assert entry["run_id"] == view["run_id"]
    [event] = daemon.events("iteration.finished")
    assert event["data"] == {
        "iteration": 1, "failed": False, "summary": "parsed", "task": None, "complete": False, "commits": [],
    }  # fmt: skip


@pytest.mark.parametrize("place", ["account.report_entered", *PLACES])
def test_the_cost_of_an_attempt_is_counted_once_though_the_daemon_dies_before_it_answers(
    daemon: Daemon, witness: Witness, report: Reporter, place: str
) -> None:
    daemon.start()
    witness.register()
    daemon.kill()
    daemon.start(failpoints=[place], unarmed=True)
    body = report.body(
        "attempt-finished", "a1", agent="claude", outcome="failed", failure_kind="timeout", cost_usd=0.5
    )
    daemon.arm()
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/reports", body)
    daemon.start()

    assert report.send(body).status == 200
    assert report("cost", usd=0.25) == "continue"

    assert daemon.view("demo")["total_cost_usd"] == 0.75
    [entry] = daemon.history("demo", "attempt")
    assert (entry["agent"], entry["kind"], entry["cost_usd"]) == ("claude", "attempt", 0.5)
    assert entry["failure_kind"] == "timeout"
    [event] = daemon.events("attempt.finished")
    assert event["data"]["failure_kind"] == "timeout"


@pytest.mark.parametrize("place", PLACES)
def test_a_limit_that_a_report_reaches_is_told_once_though_the_daemon_dies_before_it_answers(
    daemon: Daemon, witness: Witness, report: Reporter, place: str
) -> None:
    daemon.start()
    register(witness, ralph__max_iterations=1)
    daemon.kill()
    daemon.start(failpoints=[place], unarmed=True)
    body = report.body("iteration-finished", "last")
    daemon.arm()
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/reports", body)
    daemon.start()

    assert report.send(body).body["next"] == "stop"

    witness.end(0)
    assert limit_told(daemon) == "Ralph stopped: max_iterations = 1 reached"
    assert daemon.view("demo")["iteration"] == 1


def test_one_id_stands_for_one_report(daemon: Daemon, witness: Witness, report: Reporter) -> None:
    daemon.start()
    witness.register()
    assert report("cost", "one", usd=1) == "continue"
    assert report("cost", "one", usd=1) == "continue"

    other = report.send(report.body("cost", "one", usd=2))

    assert other.status == 409
    assert other.body["type"] == "urn:ralphd:problem:stale-report"
    assert daemon.view("demo")["total_cost_usd"] == 1.0


def test_a_report_of_a_run_that_is_over_is_refused(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    witness.register()
    old = report.body("iteration-finished", "late")
    witness.end(1)
    witness.started(2)
    daemon.becomes("demo", "running")

    replies = [report.send(body) for body in (old, {**old, "run_id": "r000009-00000000"})]

    assert [reply.status for reply in replies] == [409, 403]  # the other run is not known here
    assert old["run_id"] in replies[0].body["why"]
    assert daemon.view("demo")["iteration"] == 0
    assert daemon.history("demo", "iteration") == []


# --- hello --------------------------------------------------------------------------------------------


def test_signals_reach_a_command_only_when_its_hello_said_so(daemon: Daemon, person: Person) -> None:
    daemon.start()
    report = Reporter(daemon)
    person.starts(person.directory(toml="[regent]\nstop_timeout_seconds = 1.0\n"), player("hearer"))
    person.says_lines("demo", 1)
    report("hello", agent="claude")

    said = person("pause", "demo")

    assert said.returncode == 0, said
    heard = output(daemon)[1:]
    assert set(heard) <= {"SIGTERM", "SIGCONT"} and heard, "no boundaries, no signals: asked, then killed"
    assert daemon.view("demo")["state"] == "paused"
    assert person("resume", "demo").returncode == 0
    wait_for(lambda: sum("ready" in line for line in output(daemon)) == 2, what="the second run")
    daemon.becomes("demo", "running")
    report("hello", signals=True)
    daemon.restart()  # what it said outlives the daemon

    said = person("pause", "demo", "--wait-timeout", "1")

    assert said.returncode == 124, said
    assert "waiting for demo to finish its iteration, since" in said.stderr
    assert "to force it: ralphctl stop --now demo" in said.stderr
    wait_for(lambda: output(daemon)[-1] == "SIGUSR1", what="the pause")
    assert output(daemon)[len(heard) + 2 :] == ["SIGUSR1"]
    assert daemon.view("demo")["state"] == "pausing"
    assert "ends when its iteration is finished, requested" in person("status", "demo").stdout
    assert person("stop", "--now", "demo").returncode == 0


def test_a_wait_is_skipped_by_a_signal_where_hello_said_so_and_refused_elsewhere(
    daemon: Daemon, person: Person, report: Reporter
) -> None:
    daemon.start()
    person.starts(person.directory(), player("hearer"))
    person.says_lines("demo", 1)
    report("waiting", until="2100-01-01T00:00:00Z", reason="the moon")

    refused = person("skip-wait", "demo")

    assert refused.returncode == 1
    assert "does not support skip-wait" in refused.stderr
    report("hello", signals=True)
    assert person("skip-wait", "demo").returncode == 0
    wait_for(lambda: output(daemon)[1:] == ["SIGUSR2"], what="the skipped wait")
    assert person("stop", "--now", "demo").returncode == 0


@pytest.mark.parametrize(
    ("code", "state", "message"),
    [(5, "done", "limit"), (2, "failed", "refused"), (78, "failed", "refused")],
)
def test_codes_that_a_hello_agreed_to_mean_something_only_after_it(
    daemon: Daemon, witness: Witness, report: Reporter, code: int, state: str, message: str
) -> None:
    daemon.start()
    witness.register()
    witness.end(code)
    witness.started(2)  # nothing was agreed to: a failure like any other
    daemon.becomes("demo", "running")
    report("hello")

    witness.end(code)

    view = daemon.becomes("demo", state)
    assert message in view["message"]
    assert [entry["outcome"] for entry in witness.ended(2)] == [
        "failed",
        "limit" if code == 5 else "refused",
    ]
    assert len(daemon.events("ralph.escalated")) == (0 if code == 5 else 1)


# --- boundaries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "then", "rest"), [("stop", "stop", "stopped"), ("pause", "pause", "paused")])
def test_a_run_that_reports_its_iterations_ends_at_the_next_boundary(
    daemon: Daemon, witness: Witness, person: Person, report: Reporter, how: str, then: str, rest: str
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    assert report("iteration-started", iteration=1, task={"id": "US-1", "title": "Parse"}) == "continue"
    assert "task Parse" in person("status", "demo").stdout

    said = person(how, "demo", "--wait-timeout", "0.5")

    assert said.returncode == 124, said
    assert "still waiting for demo to finish its iteration" in said.stderr
    assert "try: ralphctl stop --now demo" in said.stderr
    assert is_alive(pid)
    if how == "pause":
        assert "Pausing after current iteration..." in person("logs", "demo", "--stream", "regent").stdout
    daemon.restart()  # what was asked outlives the daemon
    view = daemon.view("demo")
    assert view["message"].startswith("ends when its iteration is finished; asked at 2")
    assert report("iteration-finished", iteration=1) == then
    witness.end(0)
    view = daemon.becomes("demo", rest)
    assert view["iteration"] == 1
    [entry] = witness.ended(1)
    assert (entry["outcome"], entry["code"]) == ("asked", 0)


def test_stop_now_does_not_wait_for_the_boundary(
    daemon: Daemon, witness: Witness, person: Person, report: Reporter
) -> None:
    daemon.start()
    pid = witness.register("--stubborn")["ralph_pid"]
    report("iteration-started")
    assert person("stop", "demo", "--no-wait").returncode == 0
    assert is_alive(pid)

    assert person("stop", "--now", "demo").returncode == 0

    assert not is_alive(pid)
    assert daemon.view("demo")["state"] == "stopped"


def test_a_loop_that_goes_on_when_it_was_told_to_stop_is_asked_and_then_killed(
    daemon: Daemon, person: Person, report: Reporter
) -> None:
    daemon.start()
    pid = person.starts(person.directory(toml="[regent]\nstop_timeout_seconds = 4.0\n"), player("hearer"))[
        "ralph_pid"
    ]
    person.says_lines("demo", 1)
    report("iteration-started")
    assert person("stop", "demo", "--no-wait").returncode == 0
    assert report("iteration-finished") == "stop"
    assert output(daemon)[1:] == []

    assert report("iteration-started") == "stop"

    wait_for(lambda: "SIGTERM" in output(daemon), what="the request to end")
    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)


def test_a_loop_that_never_comes_back_from_its_boundary_is_ended(
    daemon: Daemon, person: Person, report: Reporter
) -> None:
    daemon.start()
    pid = person.starts(person.directory(toml="[regent]\nstop_timeout_seconds = 0.5\n"), player("hearer"))[
        "ralph_pid"
    ]
    person.says_lines("demo", 1)
    report("iteration-started")
    assert person("stop", "demo", "--no-wait").returncode == 0

    assert report("iteration-finished") == "stop"

    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)
    assert "SIGTERM" in output(daemon)


def test_a_finished_iteration_starts_the_count_of_failures_anew(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    witness.register(max_retries=3)
    for number in (2, 3):
        witness.end(1)
        witness.started(number)
    assert daemon.becomes("demo", "running")["consecutive_errors"] == 2

    report("iteration-finished", failed=True)
    assert daemon.view("demo")["consecutive_errors"] == 2, "one that came to nothing does not count (C3)"
    report("iteration-finished")

    view = daemon.view("demo")
    assert (view["consecutive_errors"], view["iteration"]) == (0, 2)
    witness.end(1)
    witness.started(4)
    assert daemon.becomes("demo", "running")["consecutive_errors"] == 1


# --- limits -------------------------------------------------------------------------------------------


def test_a_limit_on_iterations_ends_a_run_that_reports_them(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    register(witness, ralph__max_iterations=2)
    assert report("iteration-finished") == "continue"

    assert report("iteration-finished") == "stop"

    witness.end(3)  # however it ends: it was told to
    assert limit_told(daemon) == "Ralph stopped: max_iterations = 2 reached"
    assert daemon.view("demo")["iteration"] == 2
    [entry] = witness.ended(1)
    assert entry["outcome"] == "limit"


def test_a_limit_on_costs_ends_a_run_at_its_next_boundary(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    register(witness, ralph__max_cost_usd=2.0)
    assert report("cost", usd=1.5) == "continue"
    assert report("iteration-finished") == "continue"
    assert report("attempt-finished", agent="claude", outcome="done", cost_usd=0.5) == "continue"

    assert report("iteration-finished") == "stop"

    witness.end(0)
    assert limit_told(daemon) == "Ralph stopped: $2.00 of $2.00 spent (max_cost_usd)"


def test_a_loop_that_ignores_its_limit_is_ended(daemon: Daemon, witness: Witness, report: Reporter) -> None:
    daemon.start()
    pid = register(witness, ralph__max_iterations=1, regent__stop_timeout_seconds=0.5)["ralph_pid"]

    assert report("iteration-finished") == "stop"

    assert limit_told(daemon) == "Ralph stopped: max_iterations = 1 reached"
    assert not is_alive(pid)


def test_in_iteration_mode_each_run_is_one_and_its_reports_count_no_other(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    register(witness, ralph__mode="iteration", ralph__max_iterations=3, ralph__iteration_pause_seconds=0.05)
    for number in (1, 2, 3):
        witness.started(number)
        daemon.becomes("demo", "running")
        report("iteration-started", iteration=number)
        report("iteration-finished", iteration=number)
        witness.end(0)

    assert limit_told(daemon) == "Ralph stopped: max_iterations = 3 reached"
    view = daemon.view("demo")
    assert (view["iteration"], view["mode"]) == (3, "iteration")
    assert len(witness.starts()) == 3
    assert len(daemon.history("demo", "iteration")) == 3


# --- waits and heartbeats -----------------------------------------------------------------------------


def test_a_wait_is_shown_with_its_countdown_until_it_is_over(
    daemon: Daemon, witness: Witness, person: Person, report: Reporter
) -> None:
    daemon.start()
    witness.register()
    report("waiting", until="2100-01-01T00:00:00Z", reason="usage limit of claude")

    view = daemon.view("demo")

    assert view["state"] == "running"
    assert view["wait"]["reason"] == "usage limit of claude"
    month_s = 31 * 86400
    assert view["wait"]["until"] < time.strftime("%Y-%m-%dT", time.gmtime(time.time() + month_s + 86400))
    assert "demo  limited until " in person("status", "demo").stdout
    [told] = daemon.events("wait.started")
    assert told["data"]["message"] == "Ralph is waiting: usage limit of claude"
    daemon.restart()
    assert daemon.view("demo")["wait"] == view["wait"]
    report("waiting", until=None)
    assert daemon.view("demo")["wait"] is None
    assert len(daemon.events("wait.ended")) == 1
    report("waiting", until="2001-01-01T00:00:00Z")
    assert daemon.view("demo")["wait"] is None
    assert len(daemon.events("wait.started")) == 1


def test_a_wait_ends_by_the_clock(daemon: Daemon, witness: Witness, report: Reporter) -> None:
    daemon.start()
    witness.register()
    soon = time.time() + 3.0

    report("waiting", until=datetime.fromtimestamp(soon, UTC).isoformat())

    wait_for(lambda: daemon.view("demo")["wait"] is None, what="the end of the wait")
    assert time.time() >= soon
    wait_for(lambda: daemon.events("wait.ended"), what="its event")


def test_a_wait_suspends_the_watch_and_silence_counts_from_its_end(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    pid = register(witness, regent__hang_timeout_seconds=HANG_S, regent__startup_grace_seconds=0.0)[
        "ralph_pid"
    ]
    report("waiting", until="2100-01-01T00:00:00Z", reason="a limit")

    seconds_later(3 * HANG_S)

    assert is_alive(pid)
    assert daemon.view("demo")["run_id"] == daemon.run_directories("demo")[-1].name
    over = time.monotonic()
    report("waiting", until=None)
    wait_for(lambda: not is_alive(pid), timeout_s=60, what="the end of a run that hangs after its wait")
    assert time.monotonic() - over >= HANG_S - 0.5
    assert witness.ended(1)[0]["kind"] == "run"
    assert witness.ended(1)[0]["outcome"] == "stalled"


def test_a_run_is_not_ended_for_silence_while_it_sends_heartbeats(
    daemon: Daemon, witness: Witness, report: Reporter
) -> None:
    daemon.start()
    pid = register(witness, regent__hang_timeout_seconds=HANG_S, regent__startup_grace_seconds=0.0)[
        "ralph_pid"
    ]
    report("heartbeat")

    seconds_later(3 * HANG_S)  # a minute more than the time-out is its due (H6)

    assert is_alive(pid)
    assert report("heartbeat") == "continue"
    assert daemon.events("ralph.exited") == []


def test_what_was_reported_is_in_the_state_file(daemon: Daemon, witness: Witness, report: Reporter) -> None:
    daemon.start()
    witness.register()
    report("hello", agent="claude")
    report("iteration-started", iteration=7, task={"id": "US-7", "title": "Print"})

    state = json.loads((witness.directory / ".ralph" / "regent-state.json").read_text())

    assert (state["agent"], state["task"]) == ("claude", {"id": "US-7", "title": "Print"})
    [told] = daemon.events("iteration.started")
    assert told["data"] == {"iteration": 7, "task": {"id": "US-7", "title": "Print"}}


# --- notify, in a loop --------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "own-loop.md"
[LOOP] = re.findall(r"^```bash\n(#!.*?)^```", PAGE.read_text(), re.M | re.S)
LOOP_WITH_SIGNALS = (PAGE.parent / "examples" / "loop_with_signals.sh").read_text()
"""The loops of the page, as they stand; their agent is played by a script of that name."""
AGENT = '#!/bin/sh\necho iteration >> "$RECORD"\n'


SLOW_AGENT = """\
#!/bin/sh
echo begun >> "$RECORD"
while [ ! -e "$RECORD.go" ]; do sleep 0.05; done
echo finished >> "$RECORD"
"""


def start_loop(daemon: Daemon, person: Person, text: str, agent_text: str = AGENT, **flags: object) -> Path:
    """A ralph that runs a shell script; where the script keeps its record."""
    directory, record = person.directory(), daemon.root / "record"
    (directory / "PROMPT.md").touch()
    (daemon.root / "bin").mkdir()
    script, agent = directory / "loop.sh", daemon.root / "bin" / "claude"
    for path, content in ((script, text), (agent, agent_text)):
        path.write_text(content)
        path.chmod(0o755)
    found = os.pathsep.join(
        [str(agent.parent), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    daemon.ask(
        "POST",
        "/v1/ralphs",
        {
            "directory": str(directory),
            "command": [str(script)],
            "environment": {
                "PATH": found,
                "RECORD": str(record),
            },
            "flags": {name.replace("__", "."): value for name, value in flags.items()},
        },
    )
    return record


def test_one_line_gives_a_loop_boundaries(daemon: Daemon, person: Person) -> None:
    daemon.start()

    record = start_loop(daemon, person, LOOP, ralph__max_iterations=3)

    view = daemon.becomes("demo", "done", timeout_s=60)
    assert view["iteration"] == 3
    assert record.read_text() == "iteration\n" * 3
    assert output(daemon) == ["continue", "continue", "stop"]
    [entry] = daemon.history("demo")
    assert (entry["code"], entry["outcome"]) == (0, "limit")


def test_a_loop_is_stopped_between_two_iterations(daemon: Daemon, person: Person) -> None:
    daemon.start()
    record = start_loop(daemon, person, LOOP)
    wait_for(lambda: daemon.view("demo")["iteration"] >= 1, timeout_s=30, what="an iteration")

    said = person("stop", "demo")

    assert said.returncode == 0, said
    view = daemon.view("demo")
    assert (view["state"], view["last_exit"]["code"]) == ("stopped", 0)
    assert record.read_text().count("\n") == view["iteration"]


def is_reporting(daemon: Daemon) -> bool:
    """Whether the loop has a report under way, which waits for an answer while no daemon lives."""
    return any("notify iteration-finished" in line for _, line in daemon.leftovers())


def test_a_loop_outlives_the_daemon_and_no_iteration_is_lost_or_counted_twice(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    record = start_loop(daemon, person, LOOP)
    for _ in range(3):
        done = daemon.view("demo")["iteration"]
        wait_for(lambda done=done: daemon.view("demo")["iteration"] > done, timeout_s=30)  # type: ignore[misc]
        daemon.kill()
        written = record.stat().st_size
        wait_for(lambda: is_reporting(daemon), what="the loop, which waits for a daemon at a report")
        assert record.stat().st_size - written <= len("iteration\n")
        daemon.start(failpoints=["account.state_saved"], unarmed=True)
        daemon.arm()  # until then it answers, and the loop goes on as fast as the machine lets it
        daemon.died()
        written = record.stat().st_size
        wait_for(lambda: is_reporting(daemon), what="the loop, which waits for a daemon at a report")
        assert record.stat().st_size - written <= len("iteration\n")
        daemon.start()
    wait_for(lambda: record.read_text().count("\n") >= 8, timeout_s=60, what="eight iterations")

    assert person("stop", "demo").returncode == 0

    view = daemon.view("demo")
    assert record.read_text().count("\n") == view["iteration"]
    assert len(daemon.history("demo", "iteration")) == view["iteration"]
    assert len(daemon.events("iteration.finished")) == view["iteration"]
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["asked"]


@pytest.mark.parametrize(("how", "rest"), [("stop", "stopped"), ("pause", "paused")])
def test_a_loop_that_knows_our_signals_finishes_its_iteration(
    daemon: Daemon, person: Person, how: str, rest: str
) -> None:
    daemon.start()
    record = start_loop(daemon, person, LOOP_WITH_SIGNALS, SLOW_AGENT)
    wait_for(record.exists, timeout_s=30, what="an agent at work")

    assert person(how, "demo", "--wait-timeout", "0.5").returncode == 124
    assert record.read_text() == "begun\n"
    record.with_suffix(".go").touch()

    view = daemon.becomes("demo", rest, timeout_s=30)
    assert record.read_text() == "begun\nfinished\n"
    assert (view["iteration"], view["last_exit"]["code"]) == (1, 0)


FULL_LOOP = """\
#!/bin/bash
set -e
ralphctl notify hello --agent claude
ralphctl notify iteration-started --iteration 1 --task US-1 --title "Parse the list"
ralphctl notify heartbeat
ralphctl notify attempt-finished --agent claude --failure-kind rate_limit --exit-code 1 --cost 0.5
ralphctl notify waiting --until +2h --reason "rate limit"
ralphctl notify waiting --until over
ralphctl notify cost 0.25
ralphctl notify iteration-finished --iteration 1 --summary "parsed
in two lines"
touch "$RECORD"
exit 5
"""


def test_every_kind_is_reported_from_a_script(daemon: Daemon, person: Person) -> None:
    daemon.start()

    record = start_loop(daemon, person, FULL_LOOP)

    view = daemon.becomes("demo", "done", timeout_s=60)
    assert record.exists(), output(daemon)
    assert limit_told(daemon) == "Ralph stopped: your limit was reached"
    assert (view["iteration"], view["total_cost_usd"]) == (1, 0.75)
    [attempt] = daemon.history("demo", "attempt")
    assert (attempt["outcome"], attempt["failure_kind"]) == ("failed", "rate_limit")
    [iteration] = daemon.history("demo", "iteration")
    assert iteration["summary"] == "parsed\nin two lines"
    [waited] = daemon.history("demo", "wait")
    assert waited["reason"] == "rate limit"
    assert output(daemon) == []
    kinds = {event["type"] for event in daemon.events() if event["run_id"] == view["run_id"]}
    assert {"iteration.started", "attempt.finished", "wait.started", "wait.ended"} <= kinds
