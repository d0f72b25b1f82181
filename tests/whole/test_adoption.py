"""A daemon that is killed costs nothing (P1): the same process goes on, and nothing is told twice."""

from tests.whole.harness import Daemon, Witness


def test_a_run_goes_on_as_the_same_process_when_the_daemon_is_killed(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.restart()
    assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    assert len(witness.starts()) == 1
