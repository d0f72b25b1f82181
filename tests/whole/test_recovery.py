"""What a daemon rebuilds at its start, what it lets go, and what it leaves alone (F2)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.witnesses import Witness

HOLDER = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"


def changed(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def recovered(daemon: Daemon) -> list[View]:
    return [event["data"] for event in daemon.events("state.recovered")]


@pytest.mark.parametrize(("order", "state"), [("stop", "stopped"), ("pause", "paused")])
def test_what_was_asked_last_outlasts_a_definition_that_cannot_be_used(
    daemon: Daemon, witness: Witness, order: str, state: str
) -> None:
    daemon.start()
    witness.register()
    daemon.ask("POST", f"/v1/ralphs/demo/{order}", {} if order == "stop" else None)
    daemon.becomes("demo", state)
    daemon.kill()
    path = daemon.files("demo") / "ralph.json"
    changed(path, configuration={})
    daemon.start()
    view = daemon.view("demo")
    assert (view["state"], view["goal"]) == (state, state)
    assert [found["file"] for found in recovered(daemon)] == ["ralph.json"]
    wait_for(lambda: path.exists() and json.loads(path.read_text())["goal"] == state, what="ralph.json")
    daemon.restart()
    assert daemon.view("demo")["state"] == state
    assert len(recovered(daemon)) == len(witness.starts()) == 1


def test_a_definition_by_another_name_is_not_this_ralphs(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    changed(daemon.files("demo") / "ralph.json", name="other")
    daemon.start()
    assert [(view["name"], view["ralph_pid"]) for view in daemon.status()["ralphs"]] == [("demo", pid)]


def test_a_state_that_was_rebuilt_is_written_at_once(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    path = daemon.files("demo") / "regent-state.json"
    path.unlink()
    daemon.start()
    assert json.loads(path.read_text())["ralph_pid"] == pid


def test_a_run_whose_record_was_broken_is_stopped_like_any_other(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    [run] = daemon.run_directories("demo")
    before = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text("{")
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid
    [told] = recovered(daemon)
    assert told["file"] == "run.json"
    assert Path(told["kept_as"]).read_text() == "{"
    after = daemon.run_record("demo")
    assert (after["pid"], after["shim_pid"], after["cgroup"]) == (pid, before["shim_pid"], before["cgroup"])
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)
    daemon.restart()
    assert len(recovered(daemon)) == 1


def test_a_run_that_does_not_answer_keeps_no_daemon_waiting_and_is_told_until_it_does(
    daemon: Daemon, witness: Witness
) -> None:
    """Somebody holds its lock, and nothing tells who: it is watched by its lock alone."""
    daemon.start()
    witness.register(max_retries=1)
    daemon.kill()
    [run] = daemon.run_directories("demo")
    shim = json.loads((run / "run.json").read_text())["shim_pid"]
    os.kill(shim, signal.SIGKILL)
    (run / "run.json").write_text("")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        holder.stdout.readline()
        daemon.start()
        problems = daemon.status()["daemon"]["problems"]
        assert problems == ["ralph demo: its last run does not answer"]
        assert daemon.view("demo")["state"] == "running"
        holder.stdin.close()
    daemon.becomes("demo", "failed")
    assert daemon.status()["daemon"]["problems"] == []
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["lost"]


def test_a_ralph_that_cannot_be_loaded_costs_no_other_one_its_regent(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(start=False)
    beside = Witness.of(daemon, "other").register()["ralph_pid"]
    daemon.kill()
    home = daemon.files("demo")
    (home / "ralph.json").unlink()
    (home / "runs").rmdir()
    (home / "runs").write_text("no directory")
    daemon.start()
    assert daemon.view("other")["ralph_pid"] == beside
    reply = daemon.api("GET", "/v1/ralphs/demo")
    assert (reply.status, reply.body["type"]) == (409, "urn:ralphd:problem:unusable-state")
    assert "demo cannot be used" in reply.body["detail"]
    assert daemon.status()["daemon"]["status"] == "degraded"
    assert "Traceback" in (daemon.state / "ralphd.log").read_text() + daemon.words()


def test_a_ralph_that_cannot_be_caught_up_with_costs_no_other_one_its_regent(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(start=False)
    beside = Witness.of(daemon, "other").register()["ralph_pid"]
    daemon.kill()
    (daemon.files("demo") / "runs").rmdir()
    (daemon.files("demo") / "runs").write_text("no directory")
    daemon.start()
    assert daemon.view("other")["ralph_pid"] == beside
    [problem] = daemon.status()["daemon"]["problems"]
    assert problem.startswith("ralph demo: it is not watched: NotADirectoryError")


def test_a_ralph_with_runs_of_which_none_tells_what_it_was_is_left_as_it_is_and_that_is_told(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    [run] = daemon.run_directories("demo")
    (run / "intent.json").write_text("{}")
    (daemon.files("demo") / "ralph.json").write_text("{}")
    daemon.start()
    reply = daemon.api("POST", "/v1/ralphs", witness.registration())
    assert (reply.status, reply.body["type"]) == (409, "urn:ralphd:problem:unusable-state")
    assert "no run tells what it was" in reply.body["why"]
    assert "regent restart" in reply.body["try"]
    assert is_alive(pid)


def test_the_way_out_of_a_newer_version_is_told(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register(start=False)
    daemon.kill()
    path = daemon.files("demo") / "regent-state.json"
    changed(path, version=99)
    daemon.start()
    for reply in (daemon.api("GET", "/v1/ralphs/demo"), daemon.api("GET", "/v1/ralphs/demo")):
        assert (reply.status, reply.body["type"]) == (409, "urn:ralphd:problem:newer-state")
        assert "version 99" in reply.body["why"]
        hint = f"install the newer ralphd again, or move the file away: mv {path} {path}.newer"
        assert reply.body["try"] == hint


def test_what_is_left_of_a_ralph_that_never_ran_is_kept_and_told_once(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(start=False)
    daemon.kill()
    path = daemon.files("demo") / "ralph.json"
    path.write_text("{")
    daemon.start()
    daemon.restart()
    [told] = recovered(daemon)
    assert Path(told["kept_as"]).read_text() == "{"
    assert daemon.status()["ralphs"] == []
    assert daemon.status()["daemon"]["problems"] == []


def test_a_registration_that_was_cut_off_is_forgotten(daemon: Daemon, witness: Witness) -> None:
    daemon.start(failpoints=["write.ralph.json.before_rename"])
    daemon.ask_the_dying("POST", "/v1/ralphs", witness.registration())
    assert daemon.files("demo").exists()
    daemon.start()
    assert not daemon.files("demo").exists()
    assert recovered(daemon) == []


def test_an_environment_that_is_no_list_of_texts_is_put_aside(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register(start=False)
    daemon.kill()
    path = daemon.files("demo") / "env"
    changed(path, NUMBER=7)
    daemon.start()
    [told] = recovered(daemon)
    assert json.loads(Path(told["kept_as"]).read_text())["NUMBER"] == 7
    daemon.ask("POST", "/v1/ralphs/demo/start", {})
    witness.started(1)


def test_soon_after_a_start_old_runs_are_deleted_and_a_deleted_file_of_webhooks_is_there_again(
    daemon: Daemon,
) -> None:
    """A daemon that is killed again and again within a minute kept all runs."""
    (place := daemon.root / "place").mkdir()
    daemon.start()
    daemon.ask("POST", "/v1/ralphs", {"directory": str(place), "name": "demo", "command": player("exits", 0)})
    daemon.becomes("demo", "done")
    [run] = daemon.run_directories("demo")
    daemon.kill()
    for number in range(2, 122):
        shutil.copytree(run, run.with_name(f"r{number:06}-00000000"))
    daemon.start()
    daemon.ask("POST", "/v1/webhooks", {"url": "https://hooks.example/"})
    (webhooks := daemon.state / "webhooks.json").unlink()

    wait_for(lambda: len(daemon.run_directories("demo")) == 100, timeout_s=25.0, what="fewer runs")
    wait_for(webhooks.exists, what="the file of the webhooks")

    assert not run.exists()
