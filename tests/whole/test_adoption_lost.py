"""A run whose shim is gone, and records that speak of processes of others (S6, S8)."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

ANOTHER_BOOT = "00000000-0000-4000-8000-000000000000"


@contextmanager
def bystander(cookie: str | None = None) -> Iterator[int]:
    """The pid of a process that is nobody's business; if wanted, with the cookie of a run."""
    environment = {} if cookie is None else {"RALPH_RUN_ID": cookie}
    process = subprocess.Popen(player("sleeper"), stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def rewrite(run: Path, **changes: Any) -> dict[str, Any]:
    """``run.json`` as it was, after ``changes`` were written into it."""
    before = dict(json.loads((run / "run.json").read_text()))
    (run / "run.json").write_text(json.dumps(before | changes))
    return before


def signals_received(pid: int) -> dict[str, str]:
    """What tells that a signal is pending for, or has stopped, a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = dict(line.split(":\t", 1) for line in lines if line.startswith(("ShdPnd", "SigPnd", "State")))
    return told | {"State": "stopped" if told["State"].startswith(("T", "t")) else "not stopped"}


def test_a_run_whose_shim_was_killed_is_lost_and_followed_by_one_that_is_alone(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    os.kill(daemon.run_record("demo")["shim_pid"], signal.SIGKILL)
    second = witness.started(2)
    assert not is_alive(pid)
    view = daemon.becomes("demo", "running")
    assert (view["ralph_pid"], view["consecutive_errors"]) == (second, 1)
    [entry] = daemon.history("demo")
    assert (entry["outcome"], entry["code"], entry["signal"]) == ("lost", None, None)
    assert len(daemon.events("ralph.exited")) == 1


def test_daemon_and_shim_killed_together_leave_one_lost_run_and_one_new_one(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    shim = daemon.run_record("demo")["shim_pid"]
    daemon.kill()
    os.kill(shim, signal.SIGKILL)
    wait_for(lambda: not is_alive(shim) and not is_alive(pid), what="the end of both")
    daemon.start()
    second = witness.started(2)
    assert daemon.becomes("demo", "running")["ralph_pid"] == second
    [entry] = daemon.history("demo")
    assert (entry["outcome"], entry["code"], entry["signal"]) == ("lost", None, None)
    daemon.restart()
    assert daemon.view("demo")["ralph_pid"] == second
    assert len(daemon.history("demo")) == len(daemon.events("ralph.exited")) == 1


@pytest.mark.parametrize("with_daemon", [True, False])
def test_what_a_lost_run_leaves_is_ended_before_the_next_begins(
    daemon: Daemon, witness: Witness, with_daemon: bool
) -> None:
    """The command has forked a server into a session of its own, which no death of a parent ends (S6)."""
    daemon.start()
    script = f"{' '.join(player('double_forker', 'quiet'))} > {witness.record}/orphan; exec sleep 600"
    body = witness.registration() | {"command": ["/bin/sh", "-c", script]}
    daemon.ask("POST", "/v1/ralphs", body)
    told = witness.record / "orphan"
    wait_for(lambda: told.exists() and told.read_text().endswith("\n"), what="an orphan")
    orphan = int(told.read_text().split()[1])
    shim = daemon.run_record("demo")["shim_pid"]
    if not with_daemon:
        daemon.kill()
    os.kill(shim, signal.SIGKILL)
    if not with_daemon:
        wait_for(lambda: not is_alive(shim), what="the end of the shim")
        daemon.start()
    wait_for(lambda: len(daemon.run_directories("demo")) == 2, what="the next run")
    assert not is_alive(orphan)
    [entry] = daemon.history("demo")
    assert entry["outcome"] == "lost"
    assert orphan in [each["pid"] for each in entry["swept"]]


def test_nothing_in_a_record_of_another_boot_is_ever_signalled(daemon: Daemon, witness: Witness) -> None:
    """After a reboot the pids, and even the cookie, of an old record are those of somebody else."""
    daemon.start()
    record = witness.register() and daemon.run_record("demo")
    [run] = daemon.run_directories("demo")
    daemon.kill()
    os.kill(record["shim_pid"], signal.SIGKILL)
    wait_for(lambda: not is_alive(record["pid"]), what="the end of the run")
    with bystander(cookie=run.name) as carrier, bystander() as other:
        rewrite(run, boot_id=ANOTHER_BOOT, pid=carrier, shim_pid=other)
        daemon.start()
        second = witness.started(2)
        assert daemon.becomes("demo", "running")["ralph_pid"] == second, "what was to run runs again (G2)"
        daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
        daemon.becomes("demo", "stopped")
        assert is_alive(carrier) and is_alive(other)
    assert daemon.history("demo")[0]["outcome"] == "lost"


@pytest.mark.parametrize("changed", ["start_ticks", "pid"])
def test_a_pid_that_was_used_again_is_never_signalled(daemon: Daemon, witness: Witness, changed: str) -> None:
    daemon.start()
    record = witness.register() and daemon.run_record("demo")
    [run] = daemon.run_directories("demo")
    daemon.kill()
    os.kill(record["shim_pid"], signal.SIGKILL)
    wait_for(lambda: not is_alive(record["pid"]), what="the end of the run")
    with bystander() as other:
        ticks = 1 if changed == "start_ticks" else record["start_ticks"]
        rewrite(run, pid=other, start_ticks=ticks, shim_pid=other, shim_start_ticks=ticks)
        daemon.start()
        witness.started(2)
        daemon.becomes("demo", "running")
        assert is_alive(other)


def test_a_living_run_under_a_false_record_is_known_by_its_processes(
    daemon: Daemon, witness: Witness
) -> None:
    """Its shim holds the locks, so it lives and is of this boot; whom the file names is not signalled."""
    daemon.start()
    pid = witness.register()["ralph_pid"]
    [run] = daemon.run_directories("demo")
    daemon.kill()
    with bystander() as other:
        before = rewrite(run, boot_id=ANOTHER_BOOT, pid=other, shim_pid=other)
        quiet = signals_received(other)
        daemon.start()
        assert is_alive(pid) and is_alive(before["shim_pid"])
        daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
        daemon.becomes("demo", "stopped")
        assert not is_alive(pid) and not is_alive(before["shim_pid"])
        assert is_alive(other) and signals_received(other) == quiet
    assert len(witness.starts()) == 1


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [os.mkfifo, _dangling, Path.mkdir, Path.touch])
def test_a_run_whose_lock_was_replaced_is_adopted(
    daemon: Daemon, witness: Witness, put: Callable[[Path], None]
) -> None:
    """The run itself, or a cleaner of files, can have done that: the shim lives all the same."""
    daemon.start()
    pid = witness.register()["ralph_pid"]
    [run] = daemon.run_directories("demo")
    daemon.kill()
    (run / "lock").unlink()
    put(run / "lock")
    daemon.start()
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("running", pid)
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


def _empty(run: Path) -> None:
    for path in run.iterdir():
        path.unlink()


@pytest.mark.parametrize("remove", [shutil.rmtree, _empty])
def test_a_run_whose_directory_was_removed_is_adopted(
    daemon: Daemon, witness: Witness, remove: Callable[[Path], None]
) -> None:
    """Somebody cleans up the state while no daemon runs: the run is watched again, and ends as it does."""
    daemon.start()
    pid = witness.register()["ralph_pid"]
    [run] = daemon.run_directories("demo")
    daemon.kill()
    remove(run)
    daemon.start()
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("running", pid)
    [recovered] = daemon.events("state.recovered")
    assert recovered["data"]["file"] == "run.json"
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


def test_a_run_whose_ralph_was_removed_is_refused_with_the_command_that_ends_it(
    daemon: Daemon, witness: Witness
) -> None:
    """Nothing tells what its ralph was, so no daemon can supervise it."""
    daemon.start()
    pid = witness.register()["ralph_pid"]
    shim = daemon.run_record("demo")["shim_pid"]
    daemon.kill()
    shutil.rmtree(daemon.files("demo"))
    daemon.start()
    refused = daemon.api("POST", "/v1/ralphs", witness.registration())
    assert (refused.status, f"kill {shim} " in refused.body["try"]) == (409, True)
    os.kill(shim, signal.SIGTERM)
    wait_for(lambda: not is_alive(pid) and not is_alive(shim), what="the end of the run")
    witness.register()
    assert daemon.becomes("demo", "running")["ralph_pid"] == witness.started(2)
