"""Silence is no hang: who works is let alone, who hangs is ended, and it is told why (H1 to H6)."""

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from ralphd.core.time import parse_rfc3339
from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.person import Person

T = 6
WORKING = ("watch_writer", "watch_mover", "watch_starter", "watch_receiver")
"""Silent, but for what only a look at the tree shows."""
PATIENT = f"[regent]\nhang_timeout_seconds = {T}\nstartup_grace_seconds = 0\nmax_retries = 1\n"
LATE_S = 5.0
"""How much later than it may be a verdict is let come in here: other tests share the machine."""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    daemon.start()
    return Person(daemon)


def start(person: Person, name: str, command: Sequence[str], toml: str = PATIENT) -> None:
    place = person.directory(name, toml=toml)
    person.starts(place, command)


def pass_time(seconds: float) -> None:
    """Let a time pass that is itself what is tested."""
    until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, timeout_s=seconds + 1)


def end_of(daemon: Daemon, name: str, *, timeout_s: float) -> View:
    """The end of a ralph's first run."""
    return wait_for(lambda: daemon.history(name) if has_ended(daemon, name) else [], timeout_s=timeout_s)[0]


def lived_s(daemon: Daemon, end: View) -> float:
    """How long a run lived, from before its command began; ``duration_s`` begins when that is on the disk."""
    (path,) = daemon.state.glob(f"ralphs/*/runs/{end['run_id']}/run.json")
    record = json.loads(path.read_text())
    return parse_rfc3339(end["at"]) - parse_rfc3339(record["started_at"])


def has_ended(daemon: Daemon, name: str) -> bool:
    with suppress(FileNotFoundError):
        return bool(daemon.history(name))
    return False


def names(events: Sequence[View]) -> set[str]:
    return {event["ralph"] for event in events}


def test_who_works_in_silence_lives_for_five_time_outs_and_who_does_nothing_for_one(
    daemon: Daemon, person: Person
) -> None:
    for name in WORKING:
        start(person, name.replace("_", "-"), player(name, 5 * T))
    start(person, "burner", player("watch_burner", 20 * T))
    start(person, "timer", player("watch_timer", 20 * T))

    idle = end_of(daemon, "timer", timeout_s=T * 1.2 + LATE_S)
    assert (idle["outcome"], idle["failure_kind"]) == ("stalled", "stall")
    assert T <= lived_s(daemon, idle) <= T * 1.2 + LATE_S
    busy = end_of(daemon, "burner", timeout_s=T * 1.2 + LATE_S)
    assert busy["outcome"] == "stalled"
    assert 2 * T <= lived_s(daemon, busy) <= T * 2.2 + LATE_S
    for name in WORKING:
        end = end_of(daemon, name.replace("_", "-"), timeout_s=5 * T)
        assert (end["outcome"], lived_s(daemon, end) >= 5 * T) == ("done", True), name
    warned = {"burner", "timer", *(name.replace("_", "-") for name in WORKING)}
    assert names(daemon.events("ralph.stall_warning")) == warned, "each is told before anything is done"
    assert names(daemon.events("ralph.stalled")) == {"burner", "timer"}


def test_a_daemon_that_was_stopped_for_longer_than_the_time_out_judges_nobody_for_it(
    daemon: Daemon, person: Person
) -> None:
    for name in WORKING:
        start(person, name.replace("_", "-"), player(name, 20 * T))
    wait_for(lambda: len(daemon.events("ralph.stall_warning")) == len(WORKING), timeout_s=T + LATE_S)
    daemon.send(signal.SIGSTOP)
    pass_time(T + 2)
    daemon.send(signal.SIGCONT)
    pass_time(T)
    assert daemon.events("ralph.stalled") == []
    # The machine slept, as far as a test can play that: nobody has run for longer than the time-out.
    leaders = [daemon.view(name.replace("_", "-"))["ralph_pid"] for name in WORKING]
    daemon.send(signal.SIGSTOP)
    for leader in leaders:
        os.killpg(leader, signal.SIGSTOP)
    pass_time(T + 2)
    for leader in leaders:
        os.killpg(leader, signal.SIGCONT)
    daemon.send(signal.SIGCONT)
    pass_time(T)
    assert daemon.events("ralph.stalled") == []
    assert [daemon.view(name.replace("_", "-"))["ralph_pid"] for name in WORKING] == leaders


def test_a_loop_that_works_for_a_while_and_hangs_three_times_is_given_up(
    daemon: Daemon, person: Person
) -> None:
    toml = (
        "[regent]\nhang_timeout_seconds = 2\nstartup_grace_seconds = 0\nhealthy_after_seconds = 0.5\n"
        "retry_backoff_seconds = 0.1\n"
    )
    works = "for n in 1 2 3 4 5 6; do echo step $n; sleep 0.2; done; sleep 1000"
    start(person, "demo", ["/bin/sh", "-c", works], toml)
    view = daemon.becomes("demo", "failed", timeout_s=30 + LATE_S)
    assert view["consecutive_errors"] == 3
    assert [end["failure_kind"] for end in daemon.history("demo")] == ["stall"] * 3
    assert len(daemon.events("ralph.escalated")) == 1
    evidence = json.loads((daemon.run_directories("demo")[0] / "evidence.json").read_text())
    assert evidence["last_lines"][-1] == "step 6"
    assert any("sleep 1000" in process["command"] for process in evidence["processes"])
    said = person("explain", "demo").stdout
    assert "H4" in said and "hang_timeout_seconds = 2" in said and "step 6" in said


def test_a_run_that_is_too_long_is_asked_to_end_and_counts_as_a_failure(
    daemon: Daemon, person: Person
) -> None:
    toml = "[regent]\nmax_run_seconds = 1\nmax_retries = 1\n"
    start(person, "demo", ["/bin/sh", "-c", "while :; do echo busy; sleep 0.1; done"], toml)
    daemon.becomes("demo", "failed", timeout_s=1 + LATE_S)
    (end,) = daemon.history("demo")
    assert (end["outcome"], end["failure_kind"], end["signal"]) == ("timeout", "timeout", signal.SIGTERM)
    assert lived_s(daemon, end) >= 0.9, "its age is the process's own, counted in ticks"
    assert "max_run_seconds = 1" in person("explain", "demo").stdout


def test_p6_a_ralph_that_is_not_supervised_is_not_watched(daemon: Daemon, person: Person) -> None:
    unwatched = "[regent]\nenabled = false\nhang_timeout_seconds = 1\nstartup_grace_seconds = 0\n"
    unwatched += "max_run_seconds = 1\n"
    start(person, "demo", player("watch_timer", 4), unwatched)
    daemon.becomes("demo", "done", timeout_s=4 + LATE_S)
    assert daemon.events("ralph.stall_warning") == []
    assert [end["code"] for end in daemon.history("demo")] == [0]


def test_a_run_that_was_silent_for_long_is_looked_at_before_it_is_judged_by_a_new_daemon(
    daemon: Daemon, person: Person
) -> None:
    start(person, "demo", player("watch_writer", 20 * T))
    wait_for(lambda: daemon.events("ralph.stall_warning"), timeout_s=T + LATE_S)
    pid = daemon.view("demo")["ralph_pid"]
    daemon.kill()
    pass_time(T + 1)
    daemon.start()
    pass_time(T)
    assert daemon.view("demo")["ralph_pid"] == pid
    assert daemon.events("ralph.stalled") == []
    assert "but is working" in person("explain", "demo").stdout
