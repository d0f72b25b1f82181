"""A daemon that is killed costs nothing (P1): the same process goes on, and nothing is told twice."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

from ralphd.store.history import RECENT_KEYS
from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness


def logged_bytes(run: Path) -> int:
    """How many bytes of output the segments of a run hold, without what is the log's own."""
    records = b"".join(path.read_bytes() for path in sorted(run.glob("log.*"))).splitlines(keepends=True)
    pieces = [record.split(b" ", 3) for record in records]
    return sum(len(text) - (kind == b"P") for _, _, kind, text in pieces)


def test_a_run_goes_on_as_the_same_process_when_the_daemon_is_killed(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    assert is_alive(pid)
    daemon.start()
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("running", pid)
    assert [event["data"]["pid"] for event in daemon.events("ralph.adopted")] == [pid]
    witness.end(0)
    daemon.becomes("demo", "done")
    assert len(witness.starts()) == 1
    witness.account_is_true(0)


def test_an_end_that_no_daemon_saw_is_told_by_the_next_one_with_its_true_time(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    witness.end(0)
    wait_for(lambda: not is_alive(pid), what="the end of the run")
    ended_before = time.time()
    daemon.start()
    view = daemon.becomes("demo", "done")
    assert view["ralph_pid"] is None
    witness.account_is_true(0)
    assert daemon.events("ralph.exited")[0]["at"] == daemon.history("demo")[0]["at"] == view["finished_at"]
    assert daemon.history("demo")[0]["at"] < time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended_before + 1)
    )


def test_the_end_of_an_old_run_is_entered_once_however_long_the_history_is(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    for number in range(2):
        witness.register() if number == 0 else daemon.api("POST", "/v1/ralphs/demo/start", {})
        witness.end(0)
        daemon.becomes("demo", "done")
    daemon.kill()
    history = daemon.state / "ralphs/demo/history.jsonl"
    with history.open("a") as file:
        file.writelines(f'{{"kind":"cost","key":"{number}","usd":0.1}}\n' for number in range(RECENT_KEYS))

    daemon.restart()

    ends = [
        entry["key"] for entry in map(json.loads, history.read_text().splitlines()) if entry["kind"] == "run"
    ]
    assert len(ends) == len(set(ends)) == 2


def test_a_crash_that_no_daemon_saw_counts_and_is_followed_by_one_restart(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    first = witness.register()["ralph_pid"]
    daemon.kill()
    witness.end(-9)
    wait_for(lambda: not is_alive(first), what="the end of the run")
    daemon.start()
    second = witness.started(2)
    view = daemon.becomes("demo", "running")
    assert (view["ralph_pid"], view["consecutive_errors"], view["restarts"]) == (second, 1, 1)
    witness.account_is_true(-9)


def test_ten_megabytes_a_second_lose_no_byte_when_the_daemon_is_killed(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.configure("[logs]\nrun_bytes = 1_000_000_000\n")
    daemon.start()
    pid = witness.register("--output", 10_000_000)["ralph_pid"]
    [run] = daemon.run_directories("demo")
    for _ in range(2):
        before = witness.written(run)
        daemon.restart()
        wait_for(lambda before=before: witness.written(run) > before + 5_000_000, what="more output")  # type: ignore[misc]
        assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    counted = witness.written(run)
    assert counted == logged_bytes(run) == json.loads((run / "exit.json").read_text())["log_bytes"]
    witness.account_is_true(0)


def test_a_stop_is_carried_to_its_end_by_the_next_daemon(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register("--stubborn", stop_timeout_seconds=1)["ralph_pid"]
    assert daemon.ask("POST", "/v1/ralphs/demo/stop", {})["state"] == "stopping"
    daemon.restart()
    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)
    witness.account_is_true(-9)
    assert daemon.history("demo")[0]["outcome"] == "asked"
    daemon.restart()
    assert daemon.view("demo")["state"] == "stopped"
    assert len(witness.starts()) == 1


def test_a_stop_whose_run_ended_unseen_was_still_asked_for(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register("--stubborn", stop_timeout_seconds=30)["ralph_pid"]
    daemon.ask("POST", "/v1/ralphs/demo/stop", {})
    daemon.kill()
    witness.end(3)
    wait_for(lambda: not is_alive(pid), what="the end of the run")
    daemon.start()
    daemon.becomes("demo", "stopped")
    witness.account_is_true(3)
    assert [entry["outcome"] for entry in daemon.history("demo")] == ["asked"]


def test_a_pause_is_carried_to_its_end_by_the_next_daemon(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register("--stubborn", stop_timeout_seconds=1)
    daemon.ask("POST", "/v1/ralphs/demo/pause")
    daemon.restart()
    daemon.becomes("demo", "paused")
    daemon.restart()
    assert daemon.view("demo")["state"] == "paused"
    daemon.ask("POST", "/v1/ralphs/demo/resume")
    witness.started(2)
    witness.account_is_true(-9)


def test_a_restart_is_carried_to_its_end_by_the_next_daemon(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    first = witness.register("--stubborn", stop_timeout_seconds=1)["ralph_pid"]
    daemon.ask("POST", "/v1/ralphs/demo/restart")
    daemon.restart()
    second = witness.started(2)
    assert not is_alive(first)
    assert daemon.becomes("demo", "running")["ralph_pid"] == second
    witness.account_is_true(-9)


def test_a_backoff_goes_on_to_the_same_moment_and_is_not_counted_again(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(retry_backoff_seconds=60)
    witness.end(1)
    wait = daemon.becomes("demo", "waiting_for_retry")["wait"]
    daemon.restart()
    view = daemon.view("demo")
    assert (view["state"], view["wait"], view["consecutive_errors"]) == ("waiting_for_retry", wait, 1)
    assert len(witness.starts()) == 1
    daemon.ask("POST", "/v1/ralphs/demo/skip-wait")
    witness.started(2)
    witness.account_is_true(1)


def test_a_backoff_ends_by_itself_under_another_daemon_and_not_before_its_time(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(retry_backoff_seconds=3)
    witness.end(1)
    wait = daemon.becomes("demo", "waiting_for_retry")["wait"]
    daemon.restart()
    witness.started(2)
    assert daemon.becomes("demo", "running")["started_at"] >= wait["until"]
    witness.account_is_true(1)


def test_a_backoff_that_ran_out_while_no_daemon_lived_is_over_at_once(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register(retry_backoff_seconds=0.6)
    witness.end(1)
    daemon.becomes("demo", "waiting_for_retry")
    daemon.kill()
    time.sleep(0.7)  # the fact that is waited for is the clock's own
    daemon.start()
    witness.started(2)
    assert daemon.becomes("demo", "running")["restarts"] == 1
    witness.account_is_true(1)


def test_goals_outlive_a_daemon_that_was_killed_while_it_ended_its_runs(
    daemon: Daemon, witness: Witness
) -> None:
    """SIGTERM to the daemon stops the runs and leaves the goals (G2), even if it does not get to the end."""
    daemon.start()
    first = witness.register("--stubborn", stop_timeout_seconds=1)["ralph_pid"]
    daemon.send(signal.SIGTERM)
    wait_for(
        lambda: json.loads((daemon.files("demo") / "regent-state.json").read_text())["state"] == "stopping",
        what="a stop that is written down",
    )
    daemon.restart()
    second = witness.started(2)
    assert not is_alive(first)
    assert daemon.becomes("demo", "running")["ralph_pid"] == second
    witness.account_is_true(-9)


def test_kills_at_any_moment_of_a_crashing_loop_lose_and_double_nothing(
    daemon: Daemon, witness: Witness
) -> None:
    dice = random.Random(20)
    daemon.start()
    witness.register(max_retries=100, max_restarts_per_hour=1000, retry_backoff_seconds=0.02)
    for count in range(1, 6):
        witness.started(count)
        witness.end(7)
        time.sleep(dice.uniform(0.0, 0.12))  # a moment that nobody chose is the point here
        daemon.restart()
    witness.started(6)
    witness.end(0)
    assert daemon.becomes("demo", "done")["restarts"] == 5
    witness.account_is_true(*[7] * 5, 0)


def test_a_directory_with_a_living_run_is_refused_to_another_daemon(
    daemon: Daemon, witness: Witness, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", witness.directory], check=True)
    daemon.start()
    pid = witness.register()["ralph_pid"]
    with daemon_in(tmp_path / "two") as other:
        other.start()
        for is_alone in (False, True):
            if is_alone:
                daemon.kill()
            subprocess.run(["git", "-C", witness.directory, "clean", "-fdxq"], check=True)
            reply = other.api("POST", "/v1/ralphs", witness.registration() | {"name": "mine"})
            assert reply.status == 409
            named = [int(word) for word in reply.body["why"].replace(",", " ").split() if word.isdigit()]
            assert named and all(is_alive(each) for each in named), reply.body
            assert other.status()["ralphs"] == []
            assert other.status()["daemon"]["status"] == "ok"
        other.kill()
        other.start()
        assert other.status()["ralphs"] == []
        daemon.start()
        assert daemon.view("demo")["ralph_pid"] == pid
        witness.end(0)
        daemon.becomes("demo", "done")
        reply = other.api("POST", "/v1/ralphs", witness.registration() | {"name": "mine"})
        assert reply.status == 201, "the directory is free once the run is over"
        witness.started(2)
