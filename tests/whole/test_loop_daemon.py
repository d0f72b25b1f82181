"""The built-in loop under a daemon: started, recorded, paused, resumed, killed; and its last word."""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.loops import loop_in, open_tasks, release
from tests.whole.person import Person
from tests.whole.test_reports import Reporter, register
from tests.whole.witnesses import Witness

LONG_S = 30.0


@pytest.fixture
def report(daemon: Daemon) -> Reporter:
    return Reporter(daemon)


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def registration(directory: Path, **words: object) -> View:
    return {
        "directory": str(directory),
        "environment": {"PATH": os.environ.get("PATH", os.defpath)},
        **words,
    }


def start(daemon: Daemon, directory: Path, **words: object) -> View:
    return dict(daemon.ask("POST", "/v1/ralphs", registration(directory, **words)))


def iterations(daemon: Daemon) -> list[View]:
    return list(daemon.ask("GET", "/v1/ralphs/demo/iterations?limit=9")["iterations"])


def works(daemon: Daemon) -> None:
    """Wait until an agent rests in the middle of its task."""
    wait_for(lambda: b"resting" in log(daemon), timeout_s=LONG_S, what="an agent at work")


def log(daemon: Daemon) -> bytes:
    return bytes(daemon.ask("GET", "/v1/ralphs/demo/logs?tail=all"))


def in_words(text: str) -> str:
    """A text that was broken into lines, as one."""
    return " ".join(text.split())


SECRET = "sk-3fa9c1d2-marker"


def test_an_agents_key_is_on_disk_in_env_alone(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures(f'[agents.moody]\nenv = {{ AGENT_KEY = "{SECRET}" }}\n')
    daemon.start()
    directory = loop_in(daemon, tasks=1)
    toml = (directory / "ralph.toml").read_text()
    before, _, after = toml.partition("command = [")
    check = f'test ${{#AGENT_KEY}} -eq {len(SECRET)} && exec "$@"'
    words = json.dumps(["/bin/sh", "-c", check, "sh"])[1:-1]
    (directory / "ralph.toml").write_text(f"{before}command = [{words}, {after}")

    def holders() -> list[str]:
        found = [path for path in daemon.state.rglob("*") if path.is_file() and not path.is_symlink()]
        found += [path for path in (directory / ".ralph").rglob("*") if path.is_file()]
        names = []
        for path in found:
            with suppress(FileNotFoundError):  # the lock of a run that has just ended
                names += [path.name] * (SECRET.encode() in path.read_bytes())
        return names

    assert person("start", str(directory)).returncode == 0
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert holders() == ["env"]

    daemon.kill()  # the next one has only the intent of the run, and the file env
    (daemon.files("demo") / "ralph.json").unlink()
    daemon.start()
    (directory / "TASKS.md").write_text("- [ ] another\n")
    assert person("start", "demo").returncode == 0
    wait_for(lambda: open_tasks(directory) == 0, timeout_s=LONG_S, what="the task")
    daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert holders() == ["env"]


def test_a_daemon_that_starts_knows_the_progress_of_the_loop(daemon: Daemon) -> None:
    daemon.start()
    start(daemon, loop_in(daemon))
    progress = daemon.becomes("demo", "done", timeout_s=LONG_S)["tasks"]
    assert progress == {"done": 2, "total": 2}

    daemon.restart()

    assert daemon.view("demo")["tasks"] == progress


# --- registration -------------------------------------------------------------------------------------


def test_without_a_command_the_built_in_loop_runs_and_its_record_is_whole(daemon: Daemon) -> None:
    daemon.start()
    directory = loop_in(daemon)

    view = start(daemon, directory)

    assert view["command"] == []
    assert "the task list is TASKS.md: 2 tasks, 2 open at the start" in view["notes"]
    assert any("not a git repository" in note for note in view["notes"])
    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["iteration"], view["checkpoint"], open_tasks(directory)) == (2, None, 0)
    home, [run] = daemon.files("demo"), daemon.run_directories("demo")
    argv = json.loads((run / "intent.json").read_text())["command"]
    assert argv == [sys.executable, "-P", "-m", "ralphd.loop", "--home", str(home)]
    newest, first = iterations(daemon)
    assert [(each["iteration"], each["complete"], each["failed"]) for each in (first, newest)] == [
        (1, True, False),
        (2, True, False),
    ]
    [attempt] = first["attempts"]
    assert (attempt["agent"], attempt["outcome"], attempt["code"], attempt["attempt"]) == (
        "moody",
        "ok",
        0,
        1,
    )
    assert attempt["cost_source"] == "unknown" and attempt["cost_usd"] is None
    assert attempt["task"]["title"] == "task 0"
    lines = (home / "progress.md").read_text().splitlines()
    assert [line.split(" · ")[1] for line in lines if line.startswith("- ")] == ["iteration 1", "iteration 2"]
    assert (directory / ".ralph" / "progress.md").read_text() == (home / "progress.md").read_text()
    [entry] = daemon.history("demo")
    assert (entry["outcome"], entry["reason"]) == ("done", "complete")
    [told] = daemon.events("ralph.done")
    assert told["data"]["message"].startswith("Ralph is done: ")
    assert len(daemon.events("attempt.finished")) == 2


def test_what_it_cannot_be_started_with_is_an_error_and_leaves_nothing(daemon: Daemon) -> None:
    daemon.start()
    directory = loop_in(daemon)
    (directory / "PROMPT.md").unlink()

    reply = daemon.api("POST", "/v1/ralphs", registration(directory))

    assert reply.status == 422
    assert "PROMPT.md" in reply.body["detail"] + reply.body["title"]
    assert daemon.status()["ralphs"] == []
    assert not (directory / ".ralph").exists()
    reply = daemon.api("POST", "/v1/ralphs", registration(directory, flags={"agent": "claud"}))
    assert reply.body["type"] == "urn:ralphd:problem:unknown-agent"


def test_a_known_one_is_not_started_without_its_prompt_and_stays_what_it_was(daemon: Daemon) -> None:
    daemon.start()
    directory = loop_in(daemon, tasks=1)
    start(daemon, directory)
    before = daemon.becomes("demo", "done", timeout_s=LONG_S)
    (directory / "PROMPT.md").write_text("")

    reply = daemon.api("POST", "/v1/ralphs/demo/start")

    assert reply.status == 422
    assert reply.body["why"] == "it is empty"
    assert daemon.view("demo")["finished_at"] == before["finished_at"]


# --- pause, resume, kill ------------------------------------------------------------------------------


def test_a_pause_is_after_the_iteration_and_a_resume_goes_on_with_what_is_open(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    directory = loop_in(daemon, "rest")
    start(daemon, directory)
    works(daemon)
    assert person("pause", "demo", "--no-wait").returncode == 0
    assert daemon.view("demo")["state"] == "pausing"

    release(daemon)

    view = daemon.becomes("demo", "paused", timeout_s=LONG_S)
    assert (view["iteration"], view["last_exit"]["code"], open_tasks(directory)) == (1, 75, 1)
    assert view["checkpoint"]["pause_reason"] == "user_requested"
    assert person("resume", "demo").returncode == 0
    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["iteration"], open_tasks(directory)) == (2, 0)


def test_c1_a_loop_that_is_killed_is_a_crash_and_goes_on_where_it_was(daemon: Daemon) -> None:
    daemon.start()
    directory = loop_in(daemon, "rest")
    pid = start(daemon, directory)["ralph_pid"]
    works(daemon)

    os.kill(pid, signal.SIGKILL)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["iteration"], view["restarts"], open_tasks(directory)) == (2, 1, 0)
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["failed", "done"]
    last, first = iterations(daemon)
    assert (last["iteration"], first["iteration"]) == (2, 1)
    lost, gone_on_with = first["attempts"]
    assert (lost["outcome"], lost["code"], lost["cost_usd"]) == ("lost", None, None)
    assert gone_on_with["outcome"] == "ok"


def test_a_stop_is_after_the_iteration_and_a_start_without_resume_puts_the_checkpoint_aside(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    directory = loop_in(daemon, "rest")
    start(daemon, directory)
    works(daemon)
    assert person("stop", "demo", "--no-wait").returncode == 0
    release(daemon)
    view = daemon.becomes("demo", "stopped", timeout_s=LONG_S)
    home = daemon.files("demo")
    held = (home / "checkpoint.json").read_bytes()
    assert view["checkpoint"]["iteration"] is not None
    assert open_tasks(directory) == 1

    refused = daemon.api("POST", "/v1/ralphs/demo/start", {"resume": False, "flags": {"agent": "claud"}})
    assert refused.status == 422
    assert (home / "checkpoint.json").read_bytes() == held

    daemon.ask("POST", "/v1/ralphs/demo/start", {"resume": False})

    [kept] = home.glob("checkpoint.discarded-*.json")
    assert kept.read_bytes() == held
    assert daemon.becomes("demo", "done", timeout_s=LONG_S)["iteration"] == 1


def test_a_limit_on_iterations_is_told_once_and_by_both(daemon: Daemon) -> None:
    daemon.start()
    directory = loop_in(daemon)

    start(daemon, directory, flags={"max-iterations": 1})

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert view["message"] == "a limit of yours was reached: max_iterations = 1 reached"
    assert (view["iteration"], open_tasks(directory)) == (1, 1)
    [told] = daemon.events("ralph.done")
    assert told["data"]["message"] == "Ralph stopped: max_iterations = 1 reached"
    [entry] = daemon.history("demo")
    assert entry["outcome"] == "limit"


def test_a_start_without_its_checkpoint_is_for_the_built_in_loop(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("exits", 0))
    daemon.becomes("demo", "done")

    reply = daemon.api("POST", "/v1/ralphs/demo/start", {"resume": False})

    assert (reply.status, reply.body["type"]) == (422, "urn:ralphd:problem:usage")


# --- its last word ------------------------------------------------------------------------------------


def ends(daemon: Daemon, witness: Witness, code: int, **words: Any) -> None:
    """Have a run say its last word and end so."""
    Reporter(daemon)("hello", signals=True)
    Reporter(daemon)("ending", code=code, **words)
    witness.end(code)


def test_a_run_that_gives_up_with_a_reason_is_failed_at_once_and_told_once(
    daemon: Daemon, witness: Witness, person: Person
) -> None:
    daemon.start()
    witness.register()

    ends(daemon, witness, 1, reason="no_agent", why="no agent is left: claude is not logged in")

    view = daemon.becomes("demo", "failed")
    assert view["message"].startswith("Ralph gave up: no agent is left: claude is not logged in")
    assert len(witness.starts()) == 1
    [told] = daemon.events("ralph.escalated")
    assert told["data"]["message"] == view["message"]
    [entry] = daemon.history("demo")
    assert (entry["outcome"], entry["failure_kind"], entry["reason"]) == ("gave_up", "fatal", "no_agent")
    assert "claude is not logged in" in in_words(person("explain", "demo").stdout)


def test_l10_a_run_that_gets_nowhere_is_stopped_and_no_new_daemon_starts_it(
    daemon: Daemon, witness: Witness, person: Person
) -> None:
    daemon.start()
    witness.register()

    ends(daemon, witness, 0, reason="no_progress", why="nothing was committed")

    view = daemon.becomes("demo", "stopped")
    assert (view["goal"], view["message"]) == ("stopped", "no progress: nothing was committed")
    assert view["passed"] is None
    daemon.restart()
    assert daemon.view("demo")["state"] == "stopped"
    assert len(witness.starts()) == 1
    assert "nothing was committed" in in_words(person("explain", "demo").stdout)


def test_e1_a_usage_limit_that_a_run_tells_is_over_by_itself(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    register(witness, retry__reset_margin_seconds=0.0)
    reset = time.time() + 6.0  # the run has to end before it: a reset in the past is not believed

    resume_at = datetime.fromtimestamp(reset, UTC).isoformat()
    ends(daemon, witness, 75, reason="usage_limit", why="claude is at its limit", resume_at=resume_at)

    view = daemon.becomes("demo", "paused")
    assert (view["pause_reason"], view["message"]) == ("usage_limit", "claude is at its limit")
    witness.started(2)
    assert time.time() >= reset


def test_an_agent_that_is_out_and_back_is_news(daemon: Daemon, witness: Witness, report: Reporter) -> None:
    daemon.start()
    witness.register()

    report("agent-exhausted", agent="claude", reason="weekly limit", until="2100-01-01T00:00:00Z")
    report("agent-returned", agent="claude")

    [out], [back] = daemon.events("agent.exhausted"), daemon.events("agent.returned")
    assert (out["data"]["agent"], out["data"]["reason"]) == ("claude", "weekly limit")
    assert out["data"]["until"].startswith("2100-01-01T00:00:00")
    assert back["data"]["agent"] == "claude"
