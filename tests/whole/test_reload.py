"""A configuration that is changed under a ralph: shown, and taken up when a person says so."""

import os
import resource
import signal
from pathlib import Path

import pytest

from tests.daemon.test_metrics import judged, value
from tests.helpers import wait_for
from tests.players import player
from tests.template import ralphctl
from tests.whole.harness import Daemon, View
from tests.whole.person import ANSWER_S, Person

LOOK_ROUND_S = 30.0
"""A look round is due every 8 s; more on a busy machine."""
ONCE = "[regent]\nmax_retries = 1\nretry_backoff_seconds = 0.05\n"
OFTEN = "[regent]\nmax_retries = 9\nretry_backoff_seconds = 0.05\n"
SLEEPER = player("sleeper")


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody at a terminal, beside a daemon that runs."""
    daemon.start()
    return Person(daemon)


def kill_run(daemon: Daemon) -> View:
    """End the run that lives as a crash would; the ralph before that."""
    view = daemon.view("demo")
    os.kill(view["ralph_pid"], signal.SIGKILL)
    return view


def test_a_start_again_brings_the_environment_of_its_shell(daemon: Daemon, person: Person) -> None:
    place = person.directory()
    person.starts(place, ["/bin/sh", "-c", 'echo "key: $KEY"'])
    daemon.becomes("demo", "done")
    for words in (["start"], ["start", str(place)], ["start", "demo"]):
        key = f"after {words[-1]}"
        said = ralphctl(words, person.environment | {"KEY": key}, place, ANSWER_S)
        assert said.returncode == 0, said
        daemon.becomes("demo", "done")
        assert person("logs", "demo", "--stream", "stdout").stdout.splitlines()[-1] == f"key: {key}"


def test_a_run_that_lives_goes_on_by_its_own_rules_even_under_the_next_daemon(
    daemon: Daemon, person: Person
) -> None:
    place = person.directory(toml=ONCE)
    person.starts(place, SLEEPER)
    (place / "ralph.toml").write_text(OFTEN)

    said = person("reload", "demo")
    assert said.returncode == 0, said
    assert said.stdout.splitlines()[:2] == [
        "demo: 1 change, from the next run on",
        "  regent.max_retries (ralph.toml:2) = 9, was 1",
    ]
    daemon.restart()
    assert "from the next run on: regent.max_retries = 9 (now 1)" in person("status", "demo").stdout

    kill_run(daemon)
    daemon.becomes("demo", "failed")  # max_retries was 1 when it was started
    assert not [note for note in daemon.view("demo")["notes"] if "next run" in note]

    assert person("start", "demo").returncode == 0
    before = kill_run(daemon)
    wait_for(lambda: daemon.view("demo")["run_id"] != before["run_id"], what="a restart")
    assert daemon.becomes("demo", "running")["restarts"] == 1


def test_the_run_after_a_crash_gets_the_new_rules(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=OFTEN)
    person.starts(place, SLEEPER)
    (place / "ralph.toml").write_text(OFTEN + "stop_timeout_seconds = 3\n")
    assert person("reload", "demo").returncode == 0
    before = kill_run(daemon)

    wait_for(lambda: daemon.view("demo")["run_id"] != before["run_id"], what="a restart")
    assert not [note for note in daemon.becomes("demo", "running")["notes"] if "next run" in note]
    assert person("reload", "demo").stdout == "demo: nothing has changed\n"


def test_a_broken_file_is_told_and_changes_nothing(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=ONCE)
    person.starts(place, SLEEPER)
    (place / "ralph.toml").write_text("[regent]\nmax_retires = 9\nstop_timeout_seconds = -1\n")
    before = (daemon.files("demo") / "ralph.json").read_bytes()

    said = person("reload", "demo")

    assert said.returncode == 78
    assert "demo is not reloaded: 2 faults in the configuration" in said.stderr
    assert "ralph.toml:2: regent.max_retires: unknown key, did you mean max_retries?" in said.stderr
    assert "ralph.toml:3: regent.stop_timeout_seconds" in said.stderr
    assert (daemon.files("demo") / "ralph.json").read_bytes() == before

    wait_for(lambda: daemon.view("demo")["drift"], timeout_s=LOOK_ROUND_S, what="drift")
    shown = person("status", "demo").stdout
    assert "the configuration has changed and is invalid; until it is fixed, nothing changes:" in shown
    assert "max_retires: unknown key" in shown
    assert daemon.status()["daemon"]["status"] == "ok"
    assert len(daemon.events("config.drifted")) == 1


def test_drift_is_shown_with_what_to_do_and_is_gone_after_a_reload(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=ONCE)
    person.starts(place, SLEEPER)
    (place / "ralph.toml").write_text(OFTEN)

    wait_for(lambda: daemon.view("demo")["drift"], timeout_s=LOOK_ROUND_S, what="drift")
    shown = person("status", "demo").stdout
    assert "ralphctl reload demo" in shown
    assert "regent.max_retries (ralph.toml:2) = 9, was 1" in shown
    assert person("reload", cwd=place).returncode == 0
    assert daemon.view("demo")["drift"] == []


def test_metrics_tell_of_a_real_daemon(daemon: Daemon, person: Person) -> None:
    person.starts(person.directory(), SLEEPER)

    samples = judged(daemon.ask("GET", "/metrics").decode())

    assert value(samples, "ralphd_ralphs", state="running") == 1
    assert value(samples, "ralphd_ralph_up", ralph="demo") == 1
    assert value(samples, "ralphd_events_total", type="ralph.started") == 1
    assert (value(samples, "ralphd_resident_memory_bytes") or 0) > 10_000_000
    assert (value(samples, "ralphd_cpu_seconds_total") or 0) > 0
    assert 0 < (value(samples, "ralphd_open_fds") or 0) < (value(samples, "ralphd_max_fds") or 0)


def test_the_users_own_file_is_read_again_on_request_and_by_sighup(daemon: Daemon, person: Person) -> None:
    daemon.configure("[logs]\ntotal_bytes = 3145728\n[regent]\nmax_retries = 4\n")
    said = person("regent", "reload")
    assert said.returncode == 0, said
    assert "logs.total_bytes (" in said.stdout and "= 3145728, was 2147483648" in said.stdout
    assert "ralphctl reload NAME" in said.stdout  # max_retries is the ralphs'
    assert "nothing has changed" in person("regent", "reload").stdout

    daemon.configure("[logs]\ntotal_bytes = 1\nrun_byte = 2\n")
    said = person("regent", "reload")
    assert said.returncode == 78
    assert "total_bytes" in said.stderr and "did you mean run_bytes?" in said.stderr
    assert daemon.status()["daemon"]["status"] == "degraded"

    daemon.configure("[logs]\ntotal_bytes = 4194304\n")
    daemon.send(signal.SIGHUP)
    wait_for(lambda: daemon.status()["daemon"]["status"] == "ok", what="a daemon that has read it")
    assert "nothing has changed" in person("regent", "reload").stdout


def test_the_daemon_may_open_more_files_and_its_runs_as_many_as_before(
    daemon: Daemon, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 500 if hard == resource.RLIM_INFINITY else min(500, hard - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        daemon.start(as_child=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    person = Person(daemon)

    person.starts(person.directory(), ["sh", "-c", "ulimit -Sn; ulimit -Hn; exec sleep 600"])

    of_run = person.says_lines("demo", 2)
    assert of_run[0] == str(few)
    assert of_run[1] == ("unlimited" if hard == resource.RLIM_INFINITY else str(hard))
    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (hard, hard)
