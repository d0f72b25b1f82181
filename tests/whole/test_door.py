"""The socket's door (A3): a run may read and report for itself; it does not stop its own supervision."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.notify.receiver import receiving
from tests.players import player
from tests.whole.builds import build_in
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.test_demo import performance
from tests.whole.witnesses import Witness

REFUSAL = "error: refused: this is a supervised run; continue with your task"
MUTINY = (
    "stop --now", "pause", "restart", "reload", "skip-wait", "undo", "rm demo", "ack",
    "tasks add Rest", "note Rest", "webhooks add http://127.0.0.1:9/",
    "regent stop --now", "regent restart", "regent reload", "regent uninstall",
    "config set regent.test_command true", "config set --user regent.runs_may all",
    "config edit", "config edit --user",
    "start .. -- true", "start .", "start . -- true", "start . --replace -- true", "start . --branch night",
)  # fmt: skip


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def types(person: Person, *commands: str, name: str = "demo", then: str = "sleep 600") -> list[str]:
    """Have a run type these commands; the exit code and the output of each, once the last one has ended."""
    daemon = person.daemon
    directory, told = person.directory(name), daemon.root / f"{name}-told"
    daemon.ask(
        "POST",
        "/v1/ralphs",
        {
            "directory": str(directory),
            "name": name,
            "command": ["/bin/sh", "-c", f"{typing(told, *commands)}\n{then}"],
            "environment": person.environment,
        },
    )
    return replies_in(told)


def typing(told: Path, *commands: str) -> str:
    """A script that types these commands, and keeps the exit code and the output of each in a file."""
    lines = [f"{each} >out 2>&1; printf '%s %s\\n' $? \"$(tr '\\n' '~' <out)\" >>{told}" for each in commands]
    return "\n".join([*lines, f"echo end >>{told}"])


def replies_in(told: Path) -> list[str]:
    """What such a script kept, once its last command has ended."""
    wait_for(lambda: told.exists() and told.read_text().endswith("end\n"), timeout_s=40, what="the commands")
    return told.read_text().splitlines()[:-1]


def refusals(daemon: Daemon) -> list[View]:
    return [event["data"] for event in daemon.events("agent.refused")]


def test_a_run_cannot_stop_or_change_its_supervision(daemon: Daemon, person: Person) -> None:
    daemon.start()

    replies = types(person, *(f"ralphctl {each}" for each in MUTINY))

    assert replies == [f"77 {REFUSAL}~"] * len(MUTINY), list(zip(MUTINY, replies, strict=False))
    view = daemon.view("demo")
    assert (view["state"], view["goal"], view["run_id"]) == (
        "running",
        "running",
        daemon.run_directories("demo")[-1].name,
    )
    assert {each["action"] for each in refusals(daemon)} >= {"stop", "pause", "reload", "regent stop", "rm"}
    assert not (person.directory() / "ralph.toml").exists()


def test_the_run_of_a_build_cannot_stop_it_either(daemon: Daemon, person: Person) -> None:
    commands = [
        *(f"ralphctl {each}" for each in MUTINY),
        'env -i setsid -w $(command -v ralphctl) --socket "$RALPHD_SOCKET" stop demo',
    ]
    told, go = daemon.root / "told", daemon.root / "go"
    goes_on = f"echo heard; until test -e {go}; do sleep 0.05; done; echo went on"
    with build_in(daemon) as build:
        build.start("--", "/bin/sh", "-c", f"{typing(told, *commands)}\n{goes_on}")
        replies = replies_in(told)
        build.says("heard")

        assert replies == [f"77 {REFUSAL}~"] * len(commands), list(zip(commands, replies, strict=False))
        status = person("status", "--json", cwd=build.directory)
        [view] = json.loads(status.stdout)["ralphs"]
        assert (view["state"], view["goal"]) == ("running", "running")
        events = person("events", "--json", cwd=build.directory).stdout.splitlines()
        refused = [each for each in map(json.loads, events) if each["type"] == "agent.refused"]
        assert {each["data"]["action"] for each in refused} >= {
            "stop",
            "pause",
            "reload",
            "regent stop",
            "rm",
        }
        assert {each["run_id"] for each in refused} == {view["run_id"]}
        go.touch()
        assert build.ends_leaving_nothing() == 0
    assert build.out().count("went on") == 1
    assert not (build.directory / "ralph.toml").read_text().count("test_command")


def test_the_runs_of_the_demo_cannot_stop_it_either(tmp_path: Path) -> None:
    temporary, programs, told = tmp_path / "temporary", tmp_path / "programs", tmp_path / "told"
    temporary.mkdir()
    programs.mkdir()
    commands = [f"ralphctl {each}" for each in ("stop project --now", "pause project", "regent stop --now")]
    once = f'test "$RALPH_NAME" = project && mkdir {tmp_path}/once 2>/dev/null'
    (programs / "git").write_text(  # its loop commits, with what is on PATH
        f"#!/bin/sh\nif {once}; then (cd {programs}\n{typing(told, *commands)})\nfi\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    (programs / "git").chmod(0o755)

    with performance(temporary, PATH=f"{programs}:{os.environ['PATH']}") as process:
        said, _ = process.communicate(timeout=100)

    assert process.returncode == 0, said
    assert "All checks passed" in said
    assert replies_in(told) == [f"77 {REFUSAL}~"] * len(commands)


def test_a_run_reads_and_reports_for_itself(daemon: Daemon, person: Person) -> None:
    daemon.start()

    replies = types(person, "ralphctl status --json", "ralphctl notify cost 0.5", "ralphctl logs")

    assert [each.partition(" ")[0] for each in replies] == ["0", "0", "0"], replies
    assert daemon.view("demo")["total_cost_usd"] == 0.5
    assert refusals(daemon) == []


def test_refusals_are_reported_once_a_minute_with_the_process(daemon: Daemon, person: Person) -> None:
    daemon.start()

    types(person, *["ralphctl pause"] * 3)

    [refusal] = refusals(daemon)
    run = daemon.view("demo")["run_id"]
    assert (refusal["action"], refusal["count"]) == ("pause", 1)
    assert refusal["by"]["run_id"] == run
    assert refusal["by"]["uid"] == os.geteuid()
    assert "ralphctl pause" in refusal["by"]["command"]
    [event] = daemon.events("agent.refused")
    assert (event["ralph"], event["run_id"]) == ("demo", run)
    assert f"Refused: ralphctl pause demo from within run {run}" in (daemon.state / "ralphd.log").read_text()


@pytest.mark.parametrize(
    "disguise",
    ["env -i", "env -i setsid", "setsid -w env -u RALPH_RUN_ID", "sh -c '(exec \"$@\" &) ; sleep 5' -"],
)
def test_a_disguise_does_not_help(daemon: Daemon, person: Person, disguise: str) -> None:
    socket = daemon.state / "ralphd.sock"
    ctl = f"{daemon.state}/bin/ralphctl --socket {socket} stop demo --now"
    daemon.start()

    types(person, f"{disguise} {ctl}")

    wait_for(lambda: refusals(daemon), what="a refusal")
    assert daemon.view("demo")["state"] == "running"


@pytest.mark.parametrize(
    ("may", "command", "state"),
    [("stop-self", "stop", "stopped"), ("pause-self", "pause", "paused"), ("all", "stop", "stopped")],
)
def test_the_users_own_file_permits_more(
    daemon: Daemon, person: Person, may: str, command: str, state: str
) -> None:
    daemon.configure(f'[regent]\nruns_may = ["{may}"]\n')
    daemon.start()
    Witness.of(daemon, "other").register()

    [reply] = types(person, "ralphctl stop other", then=f"ralphctl {command}; sleep 600")

    assert reply.startswith("0 " if may == "all" else "77 "), reply
    daemon.becomes("demo", state, timeout_s=60)


def test_runs_may_is_the_users_alone(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory(toml='[regent]\nruns_may = ["all"]\n')

    said = person("start", str(place), "--", "true")

    assert said.returncode == 78
    assert "regent.runs_may: can only be set in the user's own file" in said.stderr


def test_a_report_for_another_ralph_is_refused(daemon: Daemon, person: Person) -> None:
    daemon.start()
    run = Witness.of(daemon, "other").register()["run_id"]
    forged = f"env RALPH_NAME=other RALPH_RUN_ID={run} ralphctl notify cost 9999"

    [reply] = types(person, forged)

    assert reply.startswith(("77 ", "1 ")), reply
    assert "refused" in reply
    assert daemon.view("other")["total_cost_usd"] == 0


def test_a_report_from_outside_of_the_run_is_refused(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    run = witness.register()["run_id"]
    body = {"run_id": run, "id": "1", "kind": "cost", "usd": 9999}

    reply = daemon.api("POST", "/v1/ralphs/demo/reports", body, from_outside=True)

    assert (reply.status, reply.body["type"]) == (403, "urn:ralphd:problem:forbidden")
    assert daemon.view("demo")["total_cost_usd"] == 0


def test_a_run_of_an_earlier_daemon_is_still_one(daemon: Daemon, person: Person, tmp_path: Path) -> None:
    daemon.start()
    go = tmp_path / "go"
    told = tmp_path / "told"
    script = f"until test -e {go}; do sleep 0.05; done; ralphctl stop demo; echo $? > {told}; sleep 600"
    person.starts(person.directory(), ["/bin/sh", "-c", script])
    daemon.restart()

    go.touch()

    wait_for(lambda: told.exists() and told.read_text() == "77\n", what="the refusal")
    assert daemon.view("demo")["state"] == "running"


def test_the_tests_of_the_gate_are_within_too(daemon: Daemon, person: Person, tmp_path: Path) -> None:
    from tests.whole.guarded import Guarded

    guarded, told = Guarded.of(daemon), tmp_path / "told"
    daemon.start()
    test = f"{daemon.state}/bin/ralphctl --socket {daemon.state}/ralphd.sock stop demo; echo $? > {told}"
    flags = {"regent.rollback_on_test_failure": True, "regent.test_command": test}

    daemon.ask(
        "POST",
        "/v1/ralphs",
        {
            "directory": str(guarded.place),
            "name": "demo",
            "command": [*player("sleeper")],
            "environment": person.environment,
            "flags": flags,
        },
    )

    wait_for(lambda: told.exists() and told.read_text() == "77\n", what="the refusal")
    assert json.loads(json.dumps(daemon.becomes("demo", "running")["goal"])) == "running"


def test_a_request_is_recorded_with_who_sent_it(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), list(player("sleeper")))

    assert person("stop", "demo").returncode == 0

    entry = daemon.history("demo", "request")[-1]
    by = entry["by"]
    assert (entry["action"], by["uid"], by["run_id"]) == ("stop", os.geteuid(), None)
    assert by["pid"] > 0
    assert f"demo: stop requested by pid {by['pid']}" in (daemon.state / "ralphd.log").read_text()
    explained = person("explain", "demo")
    assert f"request   stop by pid {by['pid']}" in explained.stdout, explained
    assert f"uid {os.geteuid()}" in explained.stdout


@pytest.mark.parametrize(
    ("command", "caused"),
    [
        ("stop --now", {"ralph.exited", "ralph.stopped"}),
        ("pause", {"ralph.exited", "ralph.paused"}),
        ("restart", {"ralph.exited", "ralph.started"}),
    ],
)
def test_an_event_names_whose_request_caused_it(
    daemon: Daemon, person: Person, command: str, caused: set[str]
) -> None:
    daemon.start()
    person.starts(person.directory(), list(player("sleeper")))
    before = daemon.events()
    verb, *options = command.split()

    assert person(verb, "demo", *options).returncode == 0
    wait_for(lambda: caused <= {each["type"] for each in daemon.events()[len(before) :]}, what="the events")

    by = {each["type"]: each["data"]["by"] for each in daemon.events() if "by" in each["data"]}
    assert {"ralph.registered", "ralph.started", *caused} <= set(by)
    for each in caused:
        assert (by[each]["uid"], by[each]["run_id"]) == (os.geteuid(), None)
        assert f" {verb} demo" in by[each]["command"]
    shown = [json.loads(line) for line in person("events", "--json").stdout.splitlines()]
    assert {each["type"] for each in shown if "by" in each["data"]} >= caused


def test_what_nobody_requested_has_nobody(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), ["/bin/sh", "-c", "sleep 0.2; exit 3"])

    wait_for(lambda: daemon.events("ralph.retrying"), what="the end of the first run")
    assert "by" in daemon.events("ralph.started")[0]["data"]
    assert "by" not in daemon.events("ralph.exited")[0]["data"]
    assert "by" not in daemon.events("ralph.retrying")[0]["data"]


def test_requests_without_an_event_of_their_own_get_one(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), list(player("sleeper")))

    for words in (["reload", "demo"], ["webhooks", "add", "--name", "w", "http://127.0.0.1:9/"]):
        person(*words)
    person("webhooks", "remove", "w")
    person("regent", "reload")
    person("regent", "stop", "--now")

    daemon.exit_code()
    daemon.start()
    accepted = {each["data"]["action"]: each["data"]["by"] for each in daemon.events("request.accepted")}
    assert set(accepted) >= {"reload", "regent reload"}
    assert " reload demo" in accepted["reload"]["command"]
    assert "regent stop" in daemon.events("daemon.stopping")[0]["data"]["by"]["command"]


def test_a_run_that_may_have_ended_the_daemon_is_reported(
    daemon: Daemon, person: Person, tmp_path: Path
) -> None:
    asked, path = tmp_path / "asked", tmp_path / "bin"
    path.mkdir()
    (path / "systemctl").write_text(f"#!/bin/sh\ntouch {asked}\nsleep 600\n")
    (path / "systemctl").chmod(0o755)
    person.configures("[notify]\nallow_private = true\n")
    with receiving() as receiver:
        daemon.start()
        Witness.of(daemon, "other").register()
        assert person("webhooks", "add", "--allow-private", receiver.url).returncode == 0
        run = person.starts(person.directory(), [f"{path}/systemctl", "--user", "stop", "ralphd"])["run_id"]
        wait_for(asked.exists, what="systemctl")

        daemon.send(signal.SIGTERM)
        daemon.exit_code()
        [message] = receiver.received

    text = f"ralphd received SIGTERM while run {run} ran "
    assert text in json.loads(message.body)["data"]["data"]["message"]
    assert f"WARNING demo: {text}" in (daemon.state / "ralphd.log").read_text()
    daemon.start()
    [event] = daemon.events("ralph.escalated")
    assert (event["ralph"], event["data"]["message"].startswith(text)) == ("demo", True)


def test_an_end_that_no_run_can_have_caused_escalates_nothing(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), list(player("sleeper")))

    daemon.send(signal.SIGTERM)

    assert daemon.exit_code() == 0
    daemon.start()
    assert daemon.events("ralph.escalated") == []


def test_a_refusal_names_the_command_that_was_typed(daemon: Daemon, person: Person) -> None:
    daemon.start()

    types(person, "ralphctl regent stop --now")

    [refusal] = refusals(daemon)
    assert refusal["action"] == "regent stop"
    assert refusal["message"].startswith("Refused: ralphctl regent stop from within run ")
