"""`[ralph] priority` and `[ralph] schedule` with a real daemon, at a local time of the test's choice."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.loops import loop_in, open_tasks, release
from tests.whole.person import Person

LONG_S = 30.0
NIGHT = '[ralph]\nschedule = "23:00-07:00"\n'
WHY = "outside its schedule, 23:00-07:00 ([ralph] schedule)"


class Clockwork(Daemon):
    """A daemon in a time zone in which it is now noon, or the ``hour`` that is set before its start."""

    hour = 12

    @property
    def environment(self) -> dict[str, str]:
        west_s = round(time.time()) % 86400 - self.hour * 3600
        west_s -= 86400 if west_s > 43200 else 0
        hours, rest = divmod(abs(west_s), 3600)
        zone = f"TEST{'-' if west_s < 0 else '+'}{hours}:{rest // 60}:{rest % 60}"
        return super().environment | {"TZ": zone}

    def starts_at(self, hour: int) -> None:
        self.kill()
        self.hour = hour
        self.start(as_child=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Clockwork]:
    daemon = Clockwork(tmp_path / "one")
    try:
        yield daemon
    finally:
        daemon.clean_up()


@pytest.fixture
def person(daemon: Clockwork) -> Person:
    return Person(daemon)


def in_a_line(text: str) -> str:
    return " ".join(text.split())


def reason_of(daemon: Daemon, name: str) -> str | None:
    return (daemon.view(name)["wait"] or {}).get("reason")


def test_a_free_place_goes_to_the_largest_priority(daemon: Clockwork, person: Person) -> None:
    person.configures("[limits]\nmax_running = 1\n[regent]\nretry_backoff_seconds = 600\n")
    daemon.start()
    person.starts(person.directory("first"), player("stubborn"))
    person("start", str(person.directory("low")), "--", *player("stubborn"))
    high = person.directory("high", toml="[ralph]\npriority = 5\n")
    person("start", str(high), "--", *player("stubborn"))

    why = "1 of 1 ralphs are running ([limits] max_running)"
    assert f"{why} " in in_a_line(person("status", "high").stdout) + " "
    wait_for(lambda: daemon.view("low")["message"] == f"{why}; next after high", what="the order of starts")
    for words in (("status", "low"), ("explain", "low")):
        assert f"{why}; next after high" in in_a_line(person(*words).stdout), words

    assert person("stop", "--now", "first").returncode == 0
    daemon.becomes("high", "running")
    assert daemon.view("low")["state"] == "waiting_for_retry"
    assert person("stop", "--now", "high").returncode == 0
    daemon.becomes("low", "running")


def test_who_waited_longest_is_first_after_a_restart_of_the_daemon(daemon: Clockwork, person: Person) -> None:
    person.configures("[limits]\nmax_running = 1\n[regent]\nretry_backoff_seconds = 600\n")
    daemon.start()
    person.starts(person.directory("first"), player("stubborn"))
    for name in ("z", "a"):
        person("start", str(person.directory(name)), "--", *player("stubborn"))
    daemon.restart()

    assert person("stop", "--now", "first").returncode == 0
    daemon.becomes("z", "running")
    assert daemon.view("a")["message"].endswith("are running ([limits] max_running)")


def test_a_start_outside_the_schedule_waits_until_it_and_can_be_skipped(
    daemon: Clockwork, person: Person
) -> None:
    daemon.starts_at(12)
    directory = person.directory(toml=NIGHT)

    said = person("start", str(directory), "--", *player("stubborn"))

    assert said.returncode == 0, said
    assert WHY in in_a_line(said.stdout), said
    assert "waiting until " in said.stdout, said
    assert "a command that reports none is not ended" in in_a_line(said.stdout + said.stderr)
    view = daemon.view("demo")
    assert (view["state"], view["wait"]["reason"]) == ("waiting_for_retry", "schedule")
    assert WHY in in_a_line(person("explain", "demo").stdout)
    assert not daemon.run_directories("demo")

    assert person("skip-wait", "demo").returncode == 0
    daemon.becomes("demo", "running")


def test_a_schedule_that_is_changed_by_a_reload_starts_what_waits(daemon: Clockwork, person: Person) -> None:
    daemon.starts_at(12)
    directory = person.directory(toml=NIGHT)
    person("start", str(directory), "--", *player("stubborn"))
    assert reason_of(daemon, "demo") == "schedule"

    (directory / "ralph.toml").write_text('[ralph]\nschedule = "23:00-07:00, 09:00-17:00"\n')

    assert person("reload", "demo").returncode == 0
    daemon.becomes("demo", "running", timeout_s=LONG_S)


def test_when_the_schedule_ends_the_loop_ends_after_its_iteration_and_an_opaque_run_goes_on(
    daemon: Clockwork, person: Person
) -> None:
    daemon.starts_at(2)
    directory = loop_in(daemon, "rest")
    (directory / "ralph.toml").write_text((directory / "ralph.toml").read_text() + NIGHT)
    assert person("start", str(directory)).returncode == 0
    person.starts(person.directory("blind", toml=NIGHT), player("stubborn"))
    logs = "/v1/ralphs/demo/logs?tail=all"
    wait_for(lambda: b"resting" in daemon.ask("GET", logs), timeout_s=LONG_S, what="an agent at work")

    daemon.starts_at(12)
    daemon.becomes("demo", "stopping", timeout_s=LONG_S)
    assert open_tasks(directory) == 2
    release(daemon)

    wait_for(lambda: reason_of(daemon, "demo") == "schedule", timeout_s=LONG_S, what="a wait")
    view = daemon.view("demo")
    assert (view["iteration"], open_tasks(directory), view["goal"]) == (1, 1, "running")
    assert view["checkpoint"] is not None
    assert daemon.view("blind")["state"] == "running"

    daemon.starts_at(2)
    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["iteration"], open_tasks(directory)) == (2, 0)


def test_a_loop_that_finishes_its_work_as_the_schedule_ends_is_done(
    daemon: Clockwork, person: Person
) -> None:
    daemon.starts_at(2)
    directory = loop_in(daemon, "rest", tasks=1)
    (directory / "ralph.toml").write_text((directory / "ralph.toml").read_text() + NIGHT)
    assert person("start", str(directory)).returncode == 0
    logs = "/v1/ralphs/demo/logs?tail=all"
    wait_for(lambda: b"resting" in daemon.ask("GET", logs), timeout_s=LONG_S, what="an agent at work")

    daemon.starts_at(12)
    view = daemon.becomes("demo", "stopping", timeout_s=LONG_S)
    assert "finished: outside its schedule" in view["message"]
    assert "finished: outside its schedule" in in_a_line(person("status", "demo").stdout)
    release(daemon)

    daemon.becomes("demo", "done", timeout_s=LONG_S)


def test_a_skipped_wait_lasts_until_the_next_time_of_the_schedule(daemon: Clockwork, person: Person) -> None:
    daemon.starts_at(12)
    directory = loop_in(daemon, "rest")
    (directory / "ralph.toml").write_text((directory / "ralph.toml").read_text() + NIGHT)
    assert person("start", str(directory)).returncode == 0
    assert reason_of(daemon, "demo") == "schedule"

    assert person("skip-wait", "demo").returncode == 0
    release(daemon)

    view = daemon.becomes("demo", "done", timeout_s=LONG_S)
    assert (view["iteration"], len(daemon.run_directories("demo"))) == (2, 1)


def test_in_iteration_mode_the_next_iteration_waits_for_the_schedule(
    daemon: Clockwork, person: Person
) -> None:
    daemon.starts_at(2)
    directory = person.directory(toml=f'{NIGHT}mode = "iteration"\niteration_pause_seconds = 0\n')
    script = "echo working; while ! rm go 2>/dev/null; do sleep 0.05; done"
    person.starts(directory, ("/bin/sh", "-c", script))
    daemon.starts_at(12)
    assert daemon.view("demo")["state"] == "running"

    (directory / "go").touch()

    wait_for(lambda: reason_of(daemon, "demo") == "schedule", timeout_s=LONG_S, what="a wait")
    assert daemon.view("demo")["iteration"] == 1
    assert len(daemon.run_directories("demo")) == 1


@pytest.mark.parametrize("schedule", ["23-07", "23:00-23:00"])
def test_a_schedule_that_cannot_be_read_is_refused_with_its_place(
    daemon: Clockwork, person: Person, schedule: str
) -> None:
    daemon.start()
    directory = person.directory(toml=f'[ralph]\nschedule = "{schedule}"\n')

    said = person("start", str(directory), "--", *player("stubborn"))

    assert said.returncode == 78
    assert "ralph.toml:2: ralph.schedule: " in said.stderr, said
    assert f"'{schedule}'" in said.stderr, said


def test_a_place_that_becomes_free_as_the_daemon_ends_goes_to_nobody(
    daemon: Clockwork, person: Person
) -> None:
    person.configures("[limits]\nmax_running = 2\n[regent]\nstop_timeout_seconds = 2\n")
    daemon.start()
    person.starts(person.directory("quick"), player("polite"))
    person.starts(person.directory("slow"), player("stubborn"))
    person("start", str(person.directory("third")), "--", *player("polite"))
    person.says_lines("quick", 1)

    daemon.send(signal.SIGTERM)

    assert daemon.exit_code() == 0
    assert not daemon.run_directories("third")
