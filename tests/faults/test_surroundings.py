"""File systems without inodes or gone, a network that swallows all, git and the log under pressure."""

import errno
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.faults.stage import FaultyDaemon, nothing_is_lost
from tests.helpers import is_alive, wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon, daemon_in
from tests.whole.witnesses import Witness


def private_mounts() -> None:
    """Skip where a mount would be one of the machine's."""
    outer = os.environ.get("OUTER_MOUNTS", "")
    if os.geteuid() != 0 or not outer or os.readlink("/proc/self/ns/mnt") == outer:
        pytest.skip("mounts need root and a mount namespace of their own: make faults")


@contextmanager
def mounted(place: Path, options: str) -> Iterator[None]:
    """A tmpfs at ``place``."""
    private_mounts()
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_state_directory_without_inodes_heals(tmp_path: Path) -> None:
    state = tmp_path / "small" / "state"
    with mounted(state, "size=8m,nr_inodes=120,mode=700"), daemon_in(tmp_path / "small") as daemon:
        witness = Witness.of(daemon)
        daemon.start()
        pid = witness.register(retry_backoff_seconds=0.2)["ralph_pid"]
        taken = []
        with pytest.raises(OSError) as raised:
            for number in range(1000):
                (state / f"taken{number}").touch()
                taken.append(state / f"taken{number}")
        assert raised.value.errno == errno.ENOSPC
        assert is_alive(pid)
        witness.end(3)
        wait_for(lambda: daemon.view("demo")["state"] != "running", what="the end")
        wait_for(lambda: (daemon.view("demo")["wait"] or {}).get("reason") == "resources", what="a wait")
        wait_for(lambda: daemon.status()["daemon"]["problems"], timeout_s=20, what="the problem")
        for path in taken:
            path.unlink()
        witness.started(2)
        wait_for(lambda: not daemon.status()["daemon"]["problems"], timeout_s=20, what="no problem")
        witness.end(0)
        daemon.becomes("demo", "done")
        witness.account_is_true(3, 0)
        daemon.clean_up()


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """``place`` on a mount that is read-only; a file that is open there stays writable."""
    private_mounts()
    subprocess.run(["mount", "--bind", str(place), str(place)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(place)], check=True)
        with pytest.raises(OSError) as raised:
            (place / "probe").touch()
        assert raised.value.errno == errno.EROFS
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_state_directory_that_becomes_read_only_costs_no_run_and_heals(daemon: Daemon) -> None:
    witness = Witness.of(daemon)
    daemon.start()
    pid = witness.register(retry_backoff_seconds=0.2)["ralph_pid"]
    with read_only(daemon.state):
        witness.end(3)
        wait_for(lambda: not is_alive(pid), what="the end")
        wait_for(lambda: daemon.status()["daemon"]["problems"], timeout_s=25, what="the problem")
        assert daemon.view("demo")["ralph_pid"] in (None, pid)
        assert len(witness.starts()) == 1
        assert "read-only" in json.dumps(daemon.status()["daemon"]["problems"]).lower()
    witness.started(2)
    wait_for(lambda: not daemon.status()["daemon"]["problems"], timeout_s=25, what="no problem")
    witness.end(0)
    daemon.becomes("demo", "done")
    assert [entry["code"] for entry in daemon.history("demo")] == [3, 0]


def test_a_read_only_state_directory_is_refused_in_words_and_costs_no_run(daemon: Daemon) -> None:
    witness = Witness.of(daemon)
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    with read_only(daemon.state):
        daemon.start(wait=False)
        assert daemon.exit_code() > 0
        assert "Traceback" not in daemon.words()
        assert "read-only" in daemon.words().lower()
        assert is_alive(pid)
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid


def test_an_unmounted_directory_is_reported_and_nothing_starts_in_its_place(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon, ExitStack() as mounts:
        witness = Witness.of(daemon)
        private_mounts()
        disk = tmp_path / "disk"
        disk.mkdir()
        mounts.enter_context(mounted(disk, "size=8m"))
        subprocess.run(["mount", "--bind", str(disk), str(witness.directory)], check=True)
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
            who = ["-c", "user.name=Ralph", "-c", "user.email=ralph@example.invalid"]
            subprocess.run(["git", *who, *words], cwd=witness.directory, env=daemon.environment, check=True)
        daemon.start()
        pid = witness.register(retry_backoff_seconds=0.2)["ralph_pid"]
        wait_for(lambda: list((daemon.state / "vaults").glob("*/*")), what="a vault")
        subprocess.run(["umount", "-l", str(witness.directory)], check=True)
        wait_for(lambda: daemon.status()["daemon"]["problems"], timeout_s=25, what="the problem")
        assert is_alive(pid)
        witness.end(3)
        wait_for(lambda: (daemon.view("demo")["wait"] or {}).get("reason") == "resources", what="a wait")
        assert "mount it again" in daemon.view("demo")["message"]
        assert not (witness.directory / ".git").exists()
        subprocess.run(["mount", "--bind", str(disk), str(witness.directory)], check=True)
        witness.started(2)
        wait_for(lambda: not daemon.status()["daemon"]["problems"], timeout_s=25, what="no problem")
        witness.end(0)
        daemon.becomes("demo", "done")
        witness.account_is_true(3, 0)
        subprocess.run(["umount", "-l", str(witness.directory)], check=True)


def test_a_webhook_that_no_name_leads_to_is_kept_and_delivered_later(
    faulty: FaultyDaemon, ends: Witness
) -> None:
    got: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        url = f"http://localhost:{port}/hook"
        text = f'[[webhooks]]\nname = "mine"\nurl = "{url}"\nallow_private = true\non = ["ralph.done"]\n'
        faulty.configure(text)
        faulty.break_(f"lookup {errno.EAGAIN} -")
        faulty.begin()
        assert faulty.problems() == [], faulty.problems()
        ends.register()
        ends.end(0)
        faulty.becomes("ends", "done")
        worker = Witness.of(faulty, "other")
        worker.register()
        worker.end(0)
        faulty.becomes("other", "done")
        faulty.heal()
        server.settimeout(60)
        while len(got) < 2:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(10)
                got.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        assert all(each.startswith(b"POST /hook") for each in got)


def test_a_receiver_that_never_answers_holds_up_no_ralph(faulty: FaultyDaemon, ends: Witness) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1)) as hole:
        url = f"http://127.0.0.1:{hole.getsockname()[1]}/"
        text = f'[[webhooks]]\nname = "mine"\nurl = "{url}"\nallow_private = true\non = ["ralph.started"]\n'
        faulty.configure(text)
        faulty.begin()
        ends.register(retry_backoff_seconds=0.05)
        for count in (2, 3, 4):
            ends.end(3)
            ends.started(count)
        assert faulty.becomes("ends", "running")["restarts"] == 3
        ends.end(0)
        faulty.becomes("ends", "done")
        ends.account_is_true(3, 3, 3, 0)


def test_git_gc_and_repack_meanwhile_cost_no_commit(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        guarded = Guarded.of(daemon)
        daemon.start()
        guarded.register()
        # Without --prune=now, which removes what a commit of the agent has just written (git-gc, NOTES).
        gc = "while ! test -e {0}/OVER; do git gc -q; git repack -q -a -d; done"
        busy = subprocess.Popen(
            ["sh", "-c", gc.format(guarded.scripts)],
            cwd=guarded.place, env=daemon.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            for number, name in enumerate(("one", "broken", "two"), start=1):
                guarded.does(number, name)
                kind = guarded.verdict(number)["kind"]
                assert kind == ("reverted" if name == "broken" else "kept")
        finally:
            (guarded.scripts / "OVER").touch()
            busy.wait(60)
        assert guarded.subjects() == ["two", 'Revert "broken"', "broken", "one", "first"]
        assert guarded.git("fsck", "--connectivity-only") == ""
        guarded.ends(0)
        daemon.becomes("demo", "done")


def test_a_flood_of_output_delays_no_other_ralph(faulty: FaultyDaemon, ends: Witness, stays: Witness) -> None:
    with nothing_is_lost(faulty, ends, stays):
        flood = Witness.of(faulty, "flood")
        flood.register("--output", 100_000_000)
        began = time.monotonic()
        ends.end(3)
        ends.started(2)
        assert time.monotonic() - began < 10
        faulty.ask("POST", "/v1/ralphs/flood/stop", {"now": True})
        faulty.becomes("flood", "stopped")


@pytest.mark.parametrize("part", ["daemon", "shim", "command"])
def test_a_part_that_is_stopped_for_an_hour_goes_on(
    faulty: FaultyDaemon, ends: Witness, stays: Witness, part: str
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        record = faulty.run_record("ends")
        pid = {"daemon": faulty.pid, "shim": record["shim_pid"], "command": record["pid"]}[part]
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", what="T")
        faulty.break_("real 3600 -")
        ends.end(3)
        os.kill(pid, signal.SIGCONT)


def test_many_quick_starts_of_the_daemon_make_one_run(daemon: Daemon) -> None:
    witness = Witness.of(daemon)
    daemon.start()
    pid = witness.register()["ralph_pid"]
    for number in range(15):
        daemon.kill()
        daemon.start(wait=number % 3 == 0)
    daemon.restart()
    assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


def test_processes_that_cannot_be_seen_cost_nothing(
    faulty: FaultyDaemon, ends: Witness, stays: Witness
) -> None:
    with nothing_is_lost(faulty, ends, stays):
        faulty.break_(f"use {errno.EACCES} /proc/")
        ends.end(3)
        wait_for(
            lambda: (
                len(ends.starts()) == 2
                or (faulty.view("ends")["wait"] or {}).get("reason") == "resources"
                or faulty.problems()
            ),
            timeout_s=20,
            what="what became of the end",
        )


def test_a_control_group_that_vanishes_is_no_end(daemon: Daemon) -> None:
    witness = Witness.of(daemon)
    daemon.start()
    pid = witness.register()["ralph_pid"]
    record = daemon.run_record("demo")
    if record["cgroup"] is None:
        pytest.skip("runs have no control group of their own here")
    group = Path(record["cgroup"])
    for each in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(each)
    group.rmdir()
    daemon.restart()
    assert daemon.view("demo")["ralph_pid"] == pid
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)
