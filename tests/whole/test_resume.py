"""A paused loop under the daemon: what status says, what a start does with the checkpoint (L12, L13)."""

import json

import pytest

from tests.whole.harness import Daemon
from tests.whole.loops import loop_in, open_tasks, release
from tests.whole.person import Person


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody at a terminal."""
    return Person(daemon)


def test_a_pause_names_the_way_on_and_resume_finishes(daemon: Daemon, person: Person) -> None:
    daemon.start()
    directory = loop_in(daemon, "rest")
    assert person("start", str(directory), "--max-iterations", "9").returncode == 0
    person.says_lines("demo", 3)
    asked = person("pause", "demo", "--no-wait")
    assert "Pausing after current iteration..." in asked.stderr
    release(daemon)
    daemon.becomes("demo", "paused", timeout_s=60)

    status = person("status", "demo")
    assert status.returncode == 75
    assert status.stdout.startswith("demo  paused: as requested\n")
    assert "checkpoint   iteration 2 of 9\n               as requested, saved " in status.stdout
    assert "next         ralphctl resume demo  (resume)" in status.stdout

    assert person("resume", "demo").returncode == 0
    daemon.becomes("demo", "done", timeout_s=60)
    assert open_tasks(directory) == 0


def test_a_start_without_the_checkpoint_keeps_it_aside(daemon: Daemon, person: Person) -> None:
    daemon.start()
    directory = loop_in(daemon, "usage 7200", agents='on_exhausted = "pause"\n')
    assert person("start", str(directory)).returncode == 0
    daemon.becomes("demo", "paused", timeout_s=60)
    held = json.loads((daemon.files("demo") / "checkpoint.json").read_text())
    assert held["pause_reason"] == "usage_limit"
    status = person("status", "demo").stdout
    assert "demo  limited until " in status
    assert "next         ralphctl resume demo  (resume now)" in status
    assert "Needs you" not in person("status", "--all").stdout

    said = person("start", "demo", "--no-resume")

    assert said.returncode == 0, said
    assert f"kept as checkpoint.discarded-*.json in {daemon.files('demo')}" in said.stderr
    [kept] = daemon.files("demo").glob("checkpoint.discarded-*.json")
    assert json.loads(kept.read_text()) == held


def test_a_new_daemon_goes_on_from_what_a_build_has_left(daemon: Daemon, person: Person) -> None:
    directory = loop_in(daemon, "usage 7200")
    assert person("build", cwd=directory, timeout_s=60).returncode == 75
    daemon.start()

    said = person("start", cwd=directory)

    assert said.returncode == 0, said
    assert "resuming from the checkpoint: iteration 1, task task 0" in said.stderr
    daemon.becomes("demo", "done", timeout_s=60)  # the other ralphd's moods are its own: the agent may work
    assert open_tasks(directory) == 0
