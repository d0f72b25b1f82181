"""A daemon that ends at the worst places (style: any line may be the last), and the one that comes after it.

A failpoint ends the daemon by SIGKILL where it is named; see ``ralphd/diagnostics.py``.
"""

import errno
import json

import pytest

from tests.helpers import is_alive
from tests.whole.harness import Daemon
from tests.whole.witnesses import Witness

SPAWN = ("spawn.after_intent", "spawn.after_popen")
DEFINITION = ("write.ralph.json.before_rename", "write.ralph.json.after_rename")
STATE = ("write.regent-state.json.before_rename", "write.regent-state.json.after_rename")
END = ("regent.end_seen", "account.end_entered")


@pytest.mark.parametrize("place", [*SPAWN, *DEFINITION, *STATE, "write.env.before_rename"])
def test_a_registration_that_is_cut_off_leaves_a_whole_ralph_or_none(
    daemon: Daemon, witness: Witness, place: str
) -> None:
    daemon.start(failpoints=[place])
    daemon.ask_the_dying("POST", "/v1/ralphs", witness.registration())
    daemon.start()
    assert daemon.status()["daemon"]["problems"] == []
    known = {view["name"]: view["state"] for view in daemon.status()["ralphs"]}
    if known.get("demo") not in ("running", "starting"):
        daemon.ask("POST", "/v1/ralphs", witness.registration())
    pid = witness.started(1)
    assert daemon.becomes("demo", "running")["ralph_pid"] == pid
    daemon.restart()
    assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)
    assert len(witness.starts()) == 1
    assert len(daemon.events("ralph.started")) == 1


@pytest.mark.parametrize("place", [*SPAWN, *DEFINITION, *STATE])
def test_a_start_that_is_cut_off_leads_to_one_run(daemon: Daemon, witness: Witness, place: str) -> None:
    daemon.start()
    witness.register(start=False)
    daemon.restart(failpoints=[place])
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/start", {})
    daemon.start()
    if daemon.view("demo")["state"] == "idle":
        assert place == DEFINITION[0], "the order was written down, and has to be carried out"
        daemon.ask("POST", "/v1/ralphs/demo/start", {})
    pid = witness.started(1)
    assert daemon.becomes("demo", "running")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)
    assert len(witness.starts()) == 1


@pytest.mark.parametrize("place", [*END, *STATE, *SPAWN])
def test_an_end_that_is_cut_off_is_told_once_and_followed_by_one_run(
    daemon: Daemon, witness: Witness, place: str
) -> None:
    daemon.start()
    witness.register()
    daemon.restart(failpoints=[place])
    witness.end(3)
    daemon.died()
    daemon.start()
    pid = witness.started(2)
    view = daemon.becomes("demo", "running")
    assert (view["ralph_pid"], view["consecutive_errors"], view["restarts"]) == (pid, 1, 1)
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(3, 0)


def test_a_start_that_lacked_room_while_no_daemon_ran_is_repeated(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    daemon.restart(failpoints=["spawn.after_intent"])
    witness.end(3)
    daemon.died()
    before, after = daemon.run_directories("demo")
    lack = {"errno": errno.ENOSPC, "text": "run.json: No space left on device"}
    record = json.loads((before / "exit.json").read_text()) | {"run_id": after.name, "error": lack}
    (after / "exit.json").write_text(json.dumps(record))

    daemon.start()

    pid = witness.started(2)
    assert daemon.becomes("demo", "running")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    assert [entry["code"] for entry in daemon.history("demo")] == [3, 0], "no end of what never ran"


@pytest.mark.parametrize("place", [*END, *STATE, *DEFINITION])
def test_a_stop_that_is_cut_off_is_carried_out_or_was_never_asked(
    daemon: Daemon, witness: Witness, place: str
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.restart(failpoints=[place])
    daemon.ask_the_dying("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.start()
    if daemon.view("demo")["state"] == "running":
        assert place == DEFINITION[0], "the order was written down, and has to be carried out"
        assert daemon.view("demo")["ralph_pid"] == pid
        daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["asked"]
    assert len(daemon.events("ralph.stopped")) == 1
    assert len(daemon.events("ralph.exited")) == 1
    assert len(witness.starts()) == 1


def test_a_daemon_that_dies_while_it_adopts_is_followed_by_one_that_does(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    for _ in range(2):
        daemon.start(failpoints=["events.before_commit"], wait=False)
        daemon.died()
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


def test_the_last_failure_is_escalated_once_over_any_death_of_the_daemon(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(max_retries=1)
    daemon.restart(failpoints=["account.end_entered"])
    witness.end(1)
    daemon.died()
    for place in ("events.before_commit", "write.regent-state.json.before_rename"):
        daemon.start(failpoints=[place], wait=False)
        daemon.died()
    daemon.start()
    daemon.becomes("demo", "failed")
    daemon.restart()
    assert daemon.view("demo")["state"] == "failed"
    assert len(daemon.events("ralph.escalated")) == 1
    assert len(daemon.events("ralph.failed")) == 1
    assert len(daemon.history("demo", "escalation")) == 1
    witness.account_is_true(1)


def test_writers_that_were_cut_off_leave_no_litter(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    for _ in range(2):
        daemon.restart(failpoints=["write.regent-state.json.before_rename"])
        daemon.ask_the_dying("POST", "/v1/ralphs/demo/restart")
    daemon.start()
    daemon.becomes("demo", "running")
    places = (daemon.state, daemon.files("demo"), witness.directory / ".ralph")
    litter = [path.name for place in places for path in place.iterdir() if "tmp" in path.name]
    assert litter == []
