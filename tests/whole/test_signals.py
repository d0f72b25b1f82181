"""The table of signals (docs/signals.md): for each its exit code, and what is left running."""

import json
import os
import signal
import time

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.person import Person
from tests.whole.witnesses import Witness

POLITE_ENDS = [signal.SIGTERM, signal.SIGINT]
QUIET_S = 0.3
"""Long enough for a signal to have been passed on, had it been."""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def exit_record(daemon: Daemon, name: str = "demo") -> View:
    return dict(json.loads((daemon.run_directories(name)[0] / "exit.json").read_text()))


def signal_shim(daemon: Daemon, number: signal.Signals) -> None:
    os.kill(daemon.run_record("demo")["shim_pid"], number)


# --- the daemon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", POLITE_ENDS)
def test_a_daemon_asked_to_end_stops_its_runs_as_stop_does(
    number: signal.Signals, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    pid = person.starts(person.directory(), player("polite", 3))["ralph_pid"]
    person.says_lines("demo", 1)
    daemon.send(number)
    assert daemon.exit_code() == 0, daemon.words()
    assert not is_alive(pid)
    assert exit_record(daemon)["code"] == 3
    assert json.loads((daemon.files("demo") / "ralph.json").read_text())["goal"] == "running"
    assert not daemon.leftovers()
    assert not (daemon.state / "ralphd.sock").exists()


@pytest.mark.parametrize("number", POLITE_ENDS)
def test_a_daemon_asked_twice_kills_what_still_runs(
    number: signal.Signals, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    person.starts(person.directory(), player("stubborn"))
    person.says_lines("demo", 2)
    daemon.send(number)
    daemon.becomes("demo", "stopping")
    began = time.monotonic()
    daemon.send(number)
    assert daemon.exit_code() == 0, daemon.words()
    assert time.monotonic() - began < 5.0
    assert exit_record(daemon)["signal"] == signal.SIGKILL
    assert not daemon.leftovers()


def test_a_sigint_after_a_sigterm_is_a_second_asking_too(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("stubborn"))
    person.says_lines("demo", 2)
    daemon.send(signal.SIGTERM)
    daemon.becomes("demo", "stopping")
    began = time.monotonic()
    daemon.send(signal.SIGINT)
    assert daemon.exit_code() == 0, daemon.words()
    assert time.monotonic() - began < 5.0
    assert not daemon.leftovers()


def test_trees_that_outlast_the_deadline_are_killed(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory(toml="[regent]\nstop_timeout_seconds = 60\nstop_deadline_seconds = 0.5\n")
    person.starts(place, player("stubborn"))
    person.says_lines("demo", 2)
    began = time.monotonic()
    daemon.send(signal.SIGTERM)
    assert daemon.exit_code() == 0, daemon.words()
    assert time.monotonic() - began < 6.0
    assert exit_record(daemon)["signal"] == signal.SIGKILL
    assert not daemon.leftovers()


def test_sigquit_kills_the_trees_and_ends_the_daemon(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("family"))
    person.says_lines("demo", 6)
    daemon.send(signal.SIGQUIT)
    assert daemon.exit_code() == 0, daemon.words()
    assert exit_record(daemon)["signal"] == signal.SIGKILL
    assert len(exit_record(daemon)["swept"]) == 5
    assert not daemon.leftovers()


def test_sigquit_hurries_a_daemon_that_waits_for_its_runs(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("stubborn"))
    person.says_lines("demo", 2)
    daemon.send(signal.SIGTERM)
    daemon.becomes("demo", "stopping")
    daemon.send(signal.SIGQUIT)
    assert daemon.exit_code() == 0, daemon.words()
    assert not daemon.leftovers()


def test_sigusr2_ends_the_daemon_and_leaves_the_runs(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.send(signal.SIGUSR2)
    assert daemon.exit_code() == 0, daemon.words()
    assert is_alive(pid)
    assert {pid, daemon.run_record("demo")["shim_pid"]} == {found for found, _ in daemon.leftovers()}
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid
    assert daemon.view("demo")["state"] == "running"
    assert not daemon.history("demo") if (daemon.files("demo") / "history.jsonl").exists() else True


def test_sighup_is_survived_and_reads_the_users_configuration_again(
    daemon: Daemon, person: Person, witness: Witness
) -> None:
    person.configures("[logs]\nrun_bites = 1\n")
    daemon.start()
    pid = witness.register(start=False)["ralph_pid"]
    assert daemon.status()["daemon"]["status"] == "degraded"
    assert "run_bites" in json.dumps(daemon.status()["daemon"]["problems"])
    person.configures("[logs]\nrun_bytes = 1048576\n")
    daemon.send(signal.SIGHUP)
    wait_for(lambda: daemon.status()["daemon"]["status"] == "ok", what="an end of the trouble")
    assert daemon.status()["daemon"]["pid"] == daemon.pid
    assert daemon.view("demo")["ralph_pid"] == pid


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGPIPE])
def test_other_signals_mean_nothing_to_the_daemon(
    number: signal.Signals, daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.send(number)
    time.sleep(QUIET_S)
    assert daemon.status()["daemon"]["pid"] == daemon.pid
    assert daemon.view("demo")["ralph_pid"] == pid


# --- the shim -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", POLITE_ENDS)
def test_a_shim_asked_to_end_asks_its_command_and_lets_it_go_on(
    number: signal.Signals, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    view = person.starts(person.directory(), player("hearer"))
    person.says_lines("demo", 1)
    signal_shim(daemon, number)
    assert set(person.says_lines("demo", 3)[1:]) == {"SIGTERM", "SIGCONT"}
    assert daemon.view("demo")["ralph_pid"] == view["ralph_pid"]
    assert is_alive(daemon.run_record("demo")["shim_pid"])


def test_an_end_that_the_regent_did_not_ask_for_is_a_failure(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    signal_shim(daemon, signal.SIGTERM)
    witness.started(2)
    [entry] = daemon.history("demo")
    assert (entry["signal"], entry["outcome"]) == (signal.SIGTERM, "failed")


def test_sigquit_to_a_shim_kills_the_tree_and_the_exit_is_recorded(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(toml="[regent]\nmax_retries = 1\n"), player("family"))
    lines = person.says_lines("demo", 6)
    shim = daemon.run_record("demo")["shim_pid"]
    signal_shim(daemon, signal.SIGQUIT)
    daemon.becomes("demo", "failed")
    assert not [line for line in lines if is_alive(int(line.split()[1]))]
    assert not is_alive(shim)
    assert exit_record(daemon)["signal"] == signal.SIGKILL
    assert len(exit_record(daemon)["swept"]) == 5


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTSTP])
def test_other_signals_to_the_shim_of_a_run_without_a_hello_do_nothing(
    number: signal.Signals, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    view = person.starts(person.directory(), player("hearer"))
    person.says_lines("demo", 1)
    signal_shim(daemon, number)
    time.sleep(QUIET_S)
    assert len(person.says_lines("demo", 1)) == 1
    after = daemon.view("demo")
    assert (after["state"], after["ralph_pid"]) == ("running", view["ralph_pid"])
    assert is_alive(daemon.run_record("demo")["shim_pid"])


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_run_that_said_it_knows_signals_gets_them(
    number: signal.Signals, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    person.starts(person.directory(), player("hearer"))
    person.says_lines("demo", 1)
    (daemon.run_directories("demo")[-1] / "signals").touch()
    signal_shim(daemon, number)
    assert person.says_lines("demo", 2)[1:] == [number.name]
