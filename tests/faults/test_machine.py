"""A machine that lacks memory or processes, whose clocks jump, whose parts are killed or replaced."""

import fcntl
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.faults.stage import FaultyDaemon, leaf, nothing_is_lost
from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness

DAY_S = 24 * 3600


def size_of(pid: int) -> int:
    """The address space of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def test_a_daemon_without_memory_goes_on_when_there_is_some(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        before = resource.prlimit(faulty.pid, resource.RLIMIT_AS)
        resource.prlimit(faulty.pid, resource.RLIMIT_AS, (size_of(faulty.pid) >> 1, before[1]))
        try:
            ends.end(3)
            shim = faulty.run_record("ends")["shim_pid"]
            wait_for(lambda: not is_alive(shim), what="the end of the run")
            wait_for(lambda: (faulty.run_directories("ends")[0] / "exit.json").exists(), what="its record")
        finally:
            resource.prlimit(faulty.pid, resource.RLIMIT_AS, before)


def test_a_shim_without_memory_costs_at_most_what_it_watched(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    faulty.begin()
    ends.register(retry_backoff_seconds=0.2)
    worker = stays.register()["ralph_pid"]
    shim = faulty.run_record("ends")["shim_pid"]
    resource.prlimit(shim, resource.RLIMIT_AS, (size_of(shim), resource.RLIM_INFINITY))
    ends.end(3)
    pid = ends.started(2)
    assert faulty.becomes("ends", "running")["ralph_pid"] == pid
    [end] = faulty.history("ends")
    assert (end["code"], end["outcome"]) in ((3, "failed"), (None, "lost")), "what nobody saw is not invented"
    assert faulty.view("stays")["ralph_pid"] == worker
    assert faulty.problems() == []


def test_no_process_and_no_thread_can_be_started(faulty: FaultyDaemon, ends: Witness, stays: Witness) -> None:
    with nothing_is_lost(faulty, ends, stays), leaf("pids", {"pids.max": "max"}) as group:
        before = Path(f"/proc/{faulty.pid}/cgroup").read_text()
        (group / "cgroup.procs").write_text(str(faulty.pid))
        tasks = len(os.listdir(f"/proc/{faulty.pid}/task"))
        (group / "pids.max").write_text(str(tasks))
        try:
            ends.end(3)
            wait_for(
                lambda: (faulty.view("ends")["wait"] or {}).get("reason") == "resources" or faulty.problems(),
                timeout_s=20,
                what="a wait",
            )
            assert len(ends.starts()) == 1
        finally:
            (group / "pids.max").write_text("max")
            ends.started(2)
            _move_back(group, before)


def _move_back(group: Path, before: str) -> None:
    name = next(line for line in before.splitlines() if ":pids:" in line or line.startswith("0::"))
    home = group.parent / name.rpartition(":")[2].lstrip("/") / "cgroup.procs"
    for pid in (group / "cgroup.procs").read_text().split():
        home.write_text(pid)


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S], ids=["forward", "back"])
def test_a_clock_that_is_set_ends_no_run_and_loses_no_restart(
    faulty: FaultyDaemon, ends: Witness, stays: Witness, seconds: int
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        faulty.break_(f"real {seconds} -")
        ends.end(3)
        wait_for(lambda: len(ends.starts()) == 2, timeout_s=60, what="the restart")  # a look every 30 s
        faulty.becomes("ends", "running")


def test_a_wait_is_over_when_the_clock_says_so(faulty: FaultyDaemon, ends: Witness) -> None:
    faulty.begin()
    ends.register(retry_backoff_seconds=3600)
    ends.end(3)
    faulty.becomes("ends", "waiting_for_retry")
    faulty.break_(f"real {DAY_S} -")
    wait_for(lambda: len(ends.starts()) == 2, timeout_s=40, what="the restart")
    faulty.heal()
    ends.end(0)
    faulty.becomes("ends", "done")
    ends.account_is_true(3, 0)


def test_a_clock_that_went_back_makes_no_wait_longer(faulty: FaultyDaemon, ends: Witness) -> None:
    faulty.begin()
    ends.register(retry_backoff_seconds=20)
    ends.end(3)
    faulty.becomes("ends", "waiting_for_retry")
    faulty.break_(f"real -{DAY_S} -")
    wait_for(lambda: len(ends.starts()) == 2, timeout_s=60, what="the restart")
    faulty.heal()
    ends.end(0)
    faulty.becomes("ends", "done")


def test_a_sleep_of_the_machine_is_no_stall(faulty: FaultyDaemon, stays: Witness) -> None:
    faulty.begin()
    worker = stays.register(hang_timeout_seconds=60)["ralph_pid"]
    faulty.break_(f"real {DAY_S} -\nboot {DAY_S} -")
    time_of_a_look = time.monotonic() + 9
    wait_for(lambda: time.monotonic() > time_of_a_look, timeout_s=12, what="a look at it")
    assert (faulty.view("stays")["state"], faulty.view("stays")["ralph_pid"]) == ("running", worker)
    assert not faulty.events("ralph.stalled")


def test_events_that_break_under_the_daemon_are_set_aside_and_go_on(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    faulty.begin()
    ends.register(retry_backoff_seconds=0.2)
    for path in faulty.state.glob("events.db*"):
        with path.open("r+b") as file:
            file.write(b"\0not a database\0" * (path.stat().st_size // 16))
    ends.end(3)
    pid = ends.started(2)
    assert faulty.becomes("ends", "running")["ralph_pid"] == pid
    faulty.kill()
    faulty.begin()
    assert faulty.view("ends")["ralph_pid"] == pid
    ends.end(0)
    faulty.becomes("ends", "done")
    assert [entry["code"] for entry in faulty.history("ends")] == [3, 0]
    faulty.well()


def test_events_that_another_process_locks_are_written_when_it_lets_go(
    faulty: FaultyDaemon, ends: Witness
) -> None:
    faulty.begin()
    ends.register(retry_backoff_seconds=0.2)
    faulty.kill()
    with closing(sqlite3.connect(faulty.state / "events.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        faulty.begin()
        ends.end(3)
        ends.started(2)
        wait_for(lambda: faulty.problems(), timeout_s=20, what="the problem")
        assert "locked" in faulty.problems()[0]
    faulty.well()
    ends.end(0)
    faulty.becomes("ends", "done")
    ends.account_is_true(3, 0)


def test_a_stolen_lock_file_lets_no_second_daemon_in(faulty: FaultyDaemon, ends: Witness) -> None:
    faulty.begin()
    ends.register()
    (faulty.state / "lock").unlink()
    with (faulty.state / "lock").open("w") as stolen:
        fcntl.flock(stolen, fcntl.LOCK_EX)
        second = Daemon(faulty.root)
        second.start(as_child=True, wait=False)
        assert second.exit_code() > 0
        assert "owns" in second.words()
        assert faulty.view("ends")["state"] == "running"
    ends.end(0)
    faulty.becomes("ends", "done")
    ends.account_is_true(0)


@pytest.mark.parametrize("part", ["pid", "shim_pid"])
def test_a_part_that_the_kernel_kills_is_followed_by_one_run(
    faulty: FaultyDaemon, ends: Witness, stays: Witness, part: str
) -> None:
    faulty.begin()
    worker = stays.register()["ralph_pid"]
    ends.register(retry_backoff_seconds=0.2)
    with leaf("memory", {"memory.max": str(16 << 20)}) as group:
        pid = faulty.run_record("ends")[part]
        hog = subprocess.Popen(
            [sys.executable, "-S", "-c", "import os; os.read(0, 1); x = b'1' * (64 << 20)"],
            stdin=subprocess.PIPE,
        )
        for each in (pid, hog.pid):
            (group / "cgroup.procs").write_text(str(each))
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        assert hog.stdin is not None
        hog.stdin.write(b"1")
        hog.stdin.close()
        wait_for(lambda: hog.poll() is not None or not is_alive(pid), what="a kill by the kernel")
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
        hog.kill()
        hog.wait()
        ends.started(2)
    assert faulty.becomes("ends", "running")["ralph_pid"] == ends.starts()[1][0]
    assert faulty.view("stays")["ralph_pid"] == worker
    [end] = faulty.history("ends")
    assert end["outcome"] == ("failed" if part == "pid" else "lost")
    assert end["code"] is None


def test_a_daemon_that_the_kernel_kills_costs_no_run(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    faulty.begin()
    pids = [each.register()["ralph_pid"] for each in (ends, stays)]
    killed = faulty.pid
    with leaf("memory", {"memory.max": str(96 << 20)}) as group:
        (group / "cgroup.procs").write_text(str(killed))
        Path(f"/proc/{killed}/oom_score_adj").write_text("1000")
        hog = subprocess.Popen([sys.executable, "-S", "-c", "x = b'1' * (1 << 30)"], preexec_fn=enter(group))
        wait_for(lambda: not is_alive(killed), what="a kill by the kernel")
        hog.kill()
        hog.wait()
    assert faulty.exit_code() == -signal.SIGKILL
    ends.end(0)
    wait_for(lambda: not is_alive(pids[0]), what="an end that no daemon sees")
    faulty.begin()
    faulty.becomes("ends", "done")
    ends.account_is_true(0)
    assert faulty.view("stays")["ralph_pid"] == pids[1]


def enter(group: Path) -> Callable[[], object]:
    """Return what moves the process that calls it into a control group."""
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))


def test_a_command_that_is_replaced_under_its_run_is_used_from_the_next_run_on(daemon: Daemon) -> None:
    daemon.start()
    place = daemon.home / "demo"
    place.mkdir()
    told = daemon.root / "told"

    def install(version: int) -> None:
        new = place / "agent.new"
        wait = f"while ! test -e {told}.{version}; do sleep 0.02; done"
        new.write_text(f"#!/bin/sh\necho {version} >> {told}\n{wait}\nexit 3\n")
        new.chmod(0o755)
        new.rename(place / "agent")

    install(1)
    flags = {"regent.retry_backoff_seconds": 0.05}
    body = {"directory": str(place), "command": ["./agent"], "name": "demo", "flags": flags, "start": True}
    pid = daemon.ask("POST", "/v1/ralphs", body | {"environment": {"PATH": os.environ["PATH"]}})["ralph_pid"]
    wait_for(lambda: told.exists() and told.read_text() == "1\n", what="the first run")
    install(2)
    assert is_alive(pid)
    Path(f"{told}.1").touch()
    wait_for(lambda: told.read_text() == "1\n2\n", what="the second run")
    assert [each["code"] for each in daemon.history("demo")] == [3]


def test_an_interpreter_that_is_replaced_under_the_daemon_is_waited_for(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        witness = Witness.of(daemon)
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        real = Path(os.path.realpath(sys.executable))
        python.symlink_to(real)
        (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {real.parent}\n")
        own = OwnPython(daemon.root)
        own.python = python
        own.start(as_child=True)
        pid = Witness.of(own).register(retry_backoff_seconds=0.1)["ralph_pid"]
        python.rename(python.with_name("away"))
        assert is_alive(pid)
        witness = Witness.of(own)
        witness.end(3)
        witness.ended(1)
        wait_for(lambda: (own.view("demo")["wait"] or {}).get("reason") == "resources", what="a wait for it")
        python.with_name("away").rename(python)
        witness.started(2)
        witness.end(0)
        own.becomes("demo", "done")
        witness.account_is_true(3, 0)
        own.kill()


class OwnPython(Daemon):
    """A daemon with an interpreter that can be taken away."""

    python = Path(sys.executable)

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start(self, **how: object) -> None:
        given, sys.executable = sys.executable, str(self.python)
        try:
            super().start(as_child=True)
        finally:
            sys.executable = given


def test_another_locale_and_zone_change_no_time_and_no_name(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        witness = Witness.of(daemon, "demo")
        first = Elsewhere(daemon.root)
        first.said = {"LANG": "C", "LC_ALL": "C", "TZ": "Asia/Tokyo"}
        first.start(as_child=True)
        place = first.home / "ünïcode ✓"
        place.mkdir()
        witness = Witness(first, place, witness.record)
        pid = witness.register(retry_backoff_seconds=0.1)["ralph_pid"]
        first.kill()
        second = Elsewhere(daemon.root)
        second.said = {"LC_ALL": "C.UTF-8", "TZ": "America/St_Johns"}
        second.start(as_child=True)
        witness = Witness(second, place, witness.record)
        assert second.view("demo")["ralph_pid"] == pid
        assert second.view("demo")["directory"] == str(place)
        witness.end(3)
        witness.started(2)
        witness.end(0)
        second.becomes("demo", "done")
        witness.account_is_true(3, 0)
        ended = [entry["at"] for entry in second.history("demo")]
        now = time.strftime("%Y-%m-%dT%H", time.gmtime())
        assert all(each.endswith("Z") for each in ended) and ended == sorted(ended)
        assert ended[-1][:13] in (now, time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 60)))
        second.kill()


class Elsewhere(Daemon):
    """A daemon in another locale and zone."""

    said: Mapping[str, str] = MappingProxyType({})

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **self.said}
