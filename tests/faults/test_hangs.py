"""A working directory that does not answer, as on a network file system whose server is gone."""

import signal

from tests.faults.stage import FaultyDaemon, nothing_is_lost
from tests.helpers import is_alive, wait_for
from tests.whole.witnesses import Witness


def test_a_directory_that_hangs_blocks_no_other_ralph(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        other = Witness.of(faulty, "other")
        other.register()
        faulty.break_("hang 0 /home/ends")
        ends.end(3)
        other.end(1)
        other.started(2)
        wait_for(lambda: faulty.told("/home/ends does not answer"), timeout_s=20, what="the problem")
        assert len(ends.starts()) == 1
        other.end(0)
        faulty.becomes("other", "done")
        assert not [each for each in faulty.problems() if "/other" in each]


def test_a_daemon_starts_and_ends_beside_a_directory_that_hangs(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    faulty.begin()
    hangs, worker = ends.register()["ralph_pid"], stays.register()["ralph_pid"]
    faulty.kill()
    faulty.break_("hang 0 /home/ends")
    faulty.begin()
    assert faulty.view("stays")["ralph_pid"] == worker
    wait_for(lambda: any("ends" in each for each in faulty.problems()), timeout_s=20, what="the problem")
    faulty.send(signal.SIGUSR2)
    assert faulty.exit_code() == 0
    assert is_alive(hangs) and is_alive(worker)
    faulty.heal()
    faulty.begin()
    assert faulty.becomes("ends", "running")["ralph_pid"] == hangs
    faulty.well()
    ends.end(0)
    faulty.becomes("ends", "done")
    ends.account_is_true(0)


def test_a_ralph_whose_directory_hangs_can_be_stopped(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    faulty.begin()
    hangs, worker = ends.register()["ralph_pid"], stays.register()["ralph_pid"]
    faulty.break_("hang 0 /home/ends")
    wait_for(lambda: faulty.told("/home/ends does not answer"), timeout_s=20, what="the problem")
    faulty.ask("POST", "/v1/ralphs/ends/stop", {"now": True})
    wait_for(lambda: not is_alive(hangs), what="the end of the run")
    faulty.heal()
    faulty.becomes("ends", "stopped", timeout_s=20)
    faulty.well()
    assert [entry["outcome"] for entry in faulty.history("ends")] == ["asked"]
    assert is_alive(worker)
