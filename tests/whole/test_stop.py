"""A stop leaves nothing of a run's tree (G1), and what was wanted outlives the daemon (G2)."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.witnesses import Witness

GONE_S = 5.0
SLEEPERS = 500
HOPPERS = 20
SHORT_GRACE = "[regent]\nstop_timeout_seconds = 1.0\n"


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def carriers(daemon: Daemon, name: str = "demo") -> list[int]:
    """The living processes of a ralph's newest run, by its cookie."""
    cookie = f"RALPH_RUN_ID={daemon.run_directories(name)[-1].name}\0".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if carries(pid, cookie)]


def carries(pid: int, cookie: bytes) -> bool:
    try:
        return cookie in Path(f"/proc/{pid}/environ").read_bytes() + b"\0" and is_alive(pid)
    except OSError:
        return False


def exit_record(daemon: Daemon, name: str = "demo") -> View:
    return dict(json.loads((daemon.run_directories(name)[-1] / "exit.json").read_text()))


def pids(lines: list[str]) -> dict[str, int]:
    """``NAME PID`` a line, as ``family.py`` tells them."""
    return {name: int(pid) for name, pid in (line.split() for line in lines)}


def test_nothing_of_a_hostile_tree_is_alive_5_s_after_stop_now(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("family"))
    family = pids(person.says_lines("demo", 6))
    assert set(family) == {"leader", "child", "setsid", "double", "stubborn", "cleared"}
    began = time.monotonic()
    said = person("stop", "--now", "demo")
    assert said.returncode == 0, said
    assert not [name for name, pid in family.items() if is_alive(pid)]
    assert not carriers(daemon)
    assert time.monotonic() - began < GONE_S
    ended = exit_record(daemon)
    assert (ended["code"], ended["signal"]) == (None, signal.SIGKILL)
    assert {each["pid"] for each in ended["swept"]} == {
        pid for name, pid in family.items() if name != "leader"
    }
    assert all("family.py" in each["command"] or "sleep" in each["command"] for each in ended["swept"])
    assert ended["survivors"] == []
    [entry] = daemon.history("demo")
    assert entry["swept"] == ended["swept"]


def test_nothing_of_a_fork_storm_is_alive_after_stop_now(daemon: Daemon, person: Person) -> None:
    daemon.start()
    began = time.monotonic()
    person.starts(person.directory(), player("fork_storm", SLEEPERS, HOPPERS))
    person.says_lines("demo", 1)
    assert len(carriers(daemon)) >= SLEEPERS
    there_at = time.monotonic()
    # A machine that others use, too, takes longer for its beginning as well.
    limit_s = max(GONE_S, 3 * (there_at - began))
    assert person("stop", "--now", "demo").returncode == 0
    wait_for(lambda: not carriers(daemon), timeout_s=limit_s, what="an end of the storm")
    assert time.monotonic() - there_at < limit_s
    ended = exit_record(daemon)
    assert len(ended["swept"]) >= SLEEPERS
    assert ended["survivors"] == []


def test_a_stop_gives_the_command_its_grace_and_then_kills_its_tree(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(toml=SHORT_GRACE), player("stubborn"))
    both = pids(person.says_lines("demo", 2))
    began = time.monotonic()
    said = person("stop", "demo")
    assert said.returncode == 0, said
    assert 1.0 <= time.monotonic() - began < GONE_S
    assert "waiting for demo to end its run, since" in said.stderr
    assert "ralphctl stop --now demo" in said.stderr
    assert not [pid for pid in both.values() if is_alive(pid)]
    assert exit_record(daemon)["signal"] == signal.SIGKILL
    assert daemon.view("demo")["state"] == "stopped"


def test_a_command_that_ends_within_its_grace_is_not_killed(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("polite", 3))
    person.says_lines("demo", 1)
    said = person("stop", "demo")
    assert said.returncode == 0, said
    assert exit_record(daemon)["code"] == 3
    [entry] = daemon.history("demo")
    assert (entry["code"], entry["outcome"]) == (3, "asked")
    assert daemon.view("demo")["state"] == "stopped"
    assert not daemon.events("ralph.escalated")


def test_what_a_polite_command_leaves_behind_is_swept_and_named(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("double_forker", "stay"))
    orphan = int(person.says_lines("demo", 1)[0].split()[1])
    assert person("stop", "demo").returncode == 0
    assert not is_alive(orphan)
    assert [each["pid"] for each in exit_record(daemon)["swept"]] == [orphan]


def test_a_stopped_tree_is_continued_so_that_it_can_end(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("polite"))
    pid = int(person.says_lines("demo", 1)[0])
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert person("stop", "demo").returncode == 0
    assert time.monotonic() - began < GONE_S
    assert exit_record(daemon)["code"] == 0
    assert "got SIGTERM" in person("logs", "demo").stdout


@pytest.mark.parametrize("words", [("stop", "demo"), ("stop", "--now", "demo")])
def test_a_stopped_shim_does_not_keep_its_run_from_being_stopped(
    words: tuple[str, ...], daemon: Daemon, person: Person
) -> None:
    daemon.start()
    pid = person.starts(person.directory(), player("sleeper"))["ralph_pid"]
    os.kill(daemon.run_record("demo")["shim_pid"], signal.SIGSTOP)
    assert person(*words).returncode == 0
    assert not is_alive(pid)
    assert not carriers(daemon)


def test_stop_now_hurries_a_stop_that_waits(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("stubborn"))
    person.says_lines("demo", 2)
    said = person("stop", "demo", "--wait-timeout", "0.5")
    assert said.returncode == 124, said
    assert "ralphctl stop --now demo" in said.stderr
    assert daemon.view("demo")["state"] == "stopping"
    assert person("stop", "--now", "demo").returncode == 0
    assert daemon.view("demo")["state"] == "stopped"
    assert not carriers(daemon)


def test_a_second_stop_changes_nothing(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("sleeper"))
    assert [person("stop", "demo").returncode for _ in range(2)] == [0, 0]
    assert len(daemon.history("demo")) == 1


def test_a_resume_of_a_stopped_ralph_names_the_start(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("family"))
    assert person("stop", "--now", "demo").returncode == 0
    refused = person("resume", "demo")
    assert refused.returncode == 1
    assert "it is stopped, not paused" in refused.stderr and "try: ralphctl start demo" in refused.stderr
    skipped = person("skip-wait", "demo")
    assert "try: ralphctl status demo" in skipped.stderr


def test_a_pause_ends_the_run_and_a_resume_starts_the_next(
    daemon: Daemon, person: Person, witness: Witness
) -> None:
    daemon.start()
    first = witness.register()["ralph_pid"]
    assert person("pause", "demo").returncode == 0
    assert not is_alive(first)
    view = daemon.view("demo")
    assert (view["state"], view["goal"]) == ("paused", "paused")
    assert person("status", "demo").returncode == 75
    daemon.restart()
    assert daemon.view("demo")["state"] == "paused", "a pause outlives the daemon"
    assert person("resume", "demo").returncode == 0
    assert witness.started(2) != first
    assert daemon.view("demo")["goal"] == "running"


def test_a_restart_is_a_stop_and_a_start(daemon: Daemon, person: Person, witness: Witness) -> None:
    daemon.start()
    first = witness.register()["ralph_pid"]
    said = person("restart", "demo")
    assert said.returncode == 0, said
    assert not is_alive(first)
    second = witness.started(2)
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("running", second)
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["asked"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_to_be_running_runs_again_at_the_next_start(
    how: signal.Signals, daemon: Daemon, person: Person, witness: Witness
) -> None:
    daemon.start()
    witness.register()
    if how is signal.SIGKILL:  # the machine went down: daemon, shim and run
        record = daemon.run_record("demo")
        daemon.kill()
        os.kill(record["shim_pid"], signal.SIGKILL)
        wait_for(lambda: not is_alive(record["pid"]), what="an end of the run")
    else:
        daemon.send(how)
        assert daemon.exit_code() == 0, daemon.words()
    assert not carriers(daemon)
    daemon.start()
    pid = witness.started(2)
    assert daemon.becomes("demo", "running")["ralph_pid"] == pid


def test_what_was_stopped_stays_stopped(daemon: Daemon, person: Person, witness: Witness) -> None:
    daemon.start()
    witness.register()
    assert person("stop", "demo").returncode == 0
    daemon.restart()
    assert daemon.view("demo")["state"] == "stopped"
    assert person("start", "demo").returncode == 0
    witness.started(2)
