"""`[limits]` with a real daemon: who waits, what is refused, what a run gets."""

from pathlib import Path

from ralphd.process.tree import enabled_controllers
from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.person import Person


def test_a_start_beyond_max_running_waits_for_a_free_place_and_then_starts(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures("[limits]\nmax_running = 1\n[regent]\nretry_backoff_seconds = 600\n")
    daemon.start()
    person.starts(person.directory("first"), player("stubborn"))
    person("start", str(person.directory("second")), "--", *player("stubborn"))
    assert daemon.view("second")["wait"]["reason"] == "resources"
    person("start", str(person.directory("third")), "--", *player("stubborn"))
    why = "1 of 1 ralphs are running ([limits] max_running)"
    for words in (("events", "second"), ("status", "second"), ("explain", "second")):
        assert why in " ".join(person(*words).stdout.split()), words
    assert person("stop", "--now", "first").returncode == 0
    wait_for(lambda: daemon.view("second")["state"] == "running", what="the second run")
    assert daemon.view("third")["state"] == "waiting_for_retry"
    assert person("stop", "--now", "second").returncode == 0
    wait_for(lambda: daemon.view("third")["state"] == "running", what="the third run")
    assert [len(daemon.events(kind)) for kind in ("wait.started", "wait.ended")] == [2, 2], "no retries"


def test_two_free_places_start_two_ralphs_at_once(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures("[limits]\nmax_running = 2\n[regent]\nretry_backoff_seconds = 600\n")
    daemon.start()
    for name in ("a", "b", "c", "d"):
        person("start", str(person.directory(name)), "--", *player("stubborn"))
    assert [daemon.view(name)["state"] for name in "cd"] == ["waiting_for_retry"] * 2
    person("stop", "--now", "a", "b")
    wait_for(lambda: {daemon.view(name)["state"] for name in "cd"} == {"running"}, what="both runs")


def test_a_start_without_memory_is_tried_again_within_seconds(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures("[limits]\nmin_free_memory = 1.0\n[regent]\nretry_backoff_seconds = 600\n")
    daemon.start()
    person("start", str(person.directory("demo")), "--", *player("stubborn"))
    assert "of the memory is free, less than 100 %" in person("status", "demo").stdout
    person.configures("[regent]\nretry_backoff_seconds = 600\n")
    assert person("reload", "demo").returncode == 0
    wait_for(lambda: daemon.view("demo")["state"] == "running", timeout_s=20.0, what="the run")


def test_require_cgroup_and_limits_without_a_control_group_are_answered_at_the_start(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures('[limits]\nrequire_cgroup = true\nmax_memory_bytes = "8GiB"\n')
    daemon.start()
    said = person("start", str(person.directory("demo")), "--", *player("stubborn"))
    enabled = enabled_controllers()
    assert ("require_cgroup" in said.stderr) is (enabled is None), said
    if enabled is not None:
        assert ("not in effect for memory" in said.stdout + said.stderr) is ("memory" not in enabled), said


def test_out_of_memory_the_kernel_ends_runs_before_shims_and_the_daemon(daemon: Daemon) -> None:
    person = Person(daemon)
    daemon.start()
    person.starts(person.directory("demo"), player("stubborn"))
    pid = daemon.view("demo")["ralph_pid"]
    assert score_of(pid) == 500
    stat = Path(f"/proc/{pid}/stat").read_text()
    assert score_of(int(stat.rpartition(")")[2].split()[1])) == score_of(daemon.pid)


def score_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_a_repository_cannot_set_limits(daemon: Daemon) -> None:
    person = Person(daemon)
    daemon.start()
    directory = person.directory("demo", toml='[limits]\nmax_memory_bytes = "1GiB"\n')
    said = person("start", str(directory), "--", *player("stubborn"))
    assert said.returncode == 78 and "the user's own file" in said.stderr, said
