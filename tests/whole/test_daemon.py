"""The daemon as a process: alone in its state directory, ready when it says so, gone when told to go."""

import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ralphctl.client import transport
from ralphd.errors import DaemonBusy
from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.template import ralphctl
from tests.whole.harness import Daemon
from tests.whole.person import Person, Said
from tests.whole.witnesses import Witness

SOON_S = 20.0
"""For what takes less than a second on a machine that has nothing else to do."""
ENDED_S = 10.0


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def ralphd(daemon: Daemon, *words: str, **variables: str) -> Said:
    """``ralphd`` with these words, in the daemon's own environment; back when it has ended or detached."""
    return subprocess.run(
        [sys.executable, "-m", "ralphd", *words],
        env=daemon.environment | variables,
        cwd=daemon.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def its_pid(daemon: Daemon) -> int:
    """Of the daemon that answers, whoever started it."""
    return int(daemon.status()["daemon"]["pid"])


def inode(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


# --- one daemon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--background",)])
def test_a_second_daemon_gives_way_at_once_and_names_the_first(
    words: tuple[str, ...], daemon: Daemon
) -> None:
    daemon.start()
    before = inode(daemon.state / "ralphd.sock")
    began = time.monotonic()
    second = ralphd(daemon, *words)
    assert time.monotonic() - began < SOON_S
    assert second.returncode == 75, second
    assert f"another ralphd (pid {daemon.pid}) owns {daemon.state}" in second.stderr
    assert "try: " in second.stderr
    assert "Traceback" not in second.stderr
    assert inode(daemon.state / "ralphd.sock") == before
    assert its_pid(daemon) == daemon.pid
    assert daemon.words().count("ready: pid") == 1


def test_start_names_a_daemon_that_listens_on_another_socket(daemon: Daemon, person: Person) -> None:
    daemon.start()
    elsewhere = person.environment | {"RALPHD_SOCKET": str(daemon.root / "other.sock")}
    reply = ralphctl(["regent", "start"], elsewhere, daemon.home, SOON_S)
    assert reply.returncode == 75, reply
    assert f"another ralphd (pid {daemon.pid}) owns {daemon.state}" in reply.stderr


def test_a_deleted_lock_file_lets_no_second_daemon_in_and_is_restored(daemon: Daemon) -> None:
    daemon.start()
    lock, log, commands = daemon.state / "lock", daemon.state / "ralphd.log", daemon.state / "bin"
    lock.unlink()
    log.unlink()
    shutil.rmtree(commands)
    second = ralphd(daemon, RALPHD_SOCKET=str(daemon.root / "other.sock"))
    assert second.returncode == 75, second
    assert f"another ralphd (pid {daemon.pid}) owns {daemon.state}" in second.stderr
    wait_for(lambda: lock.exists() and (commands / "ralphctl").exists(), what="the restored files")
    assert lock.read_text() == f"{daemon.pid}\n"
    assert f"{lock} was deleted; it is restored" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_events_of_an_open_mode_are_private_again(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    (daemon.state / "events.db").chmod(0o644)
    daemon.start()
    assert (daemon.state / "events.db").stat().st_mode & 0o777 == 0o600


def test_a_person_that_starts_it_twice_is_told_that_it_runs(daemon: Daemon, person: Person) -> None:
    daemon.start()
    said = person("regent", "start")
    assert said.returncode == 0, said
    assert f"ralphd is already running (pid {daemon.pid})" in said.stdout


def test_two_daemons_that_start_at_once_become_one(daemon: Daemon) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "ralphd", "--background"],
            env=daemon.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    assert sorted(process.wait(30) for process in both) == [0, 75]
    assert len(daemon.leftovers()) == 1
    assert its_pid(daemon) == daemon.leftovers()[0][0]


# --- in the background --------------------------------------------------------------------------------


def test_in_the_background_it_answers_when_its_parent_returns(daemon: Daemon) -> None:
    said = ralphd(daemon, "--background")
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    assert daemon.api("GET", "/v1/ready").status == 200
    pid = its_pid(daemon)
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)} == {"/dev/null"}
    assert "ready: pid" in (daemon.state / "ralphd.log").read_text()


def test_closed_streams_do_not_become_files_of_its_own(daemon: Daemon, person: Person) -> None:
    log = daemon.state / "ralphd.log"
    command = ["sh", "-c", 'exec "$0" -m ralphd <&- >&- 2>&-', sys.executable]
    started = subprocess.Popen(command, env=daemon.environment, cwd=daemon.root)
    try:
        wait_for(lambda: log.exists() and "ready: pid" in log.read_text(), what="it is ready")
        assert {os.readlink(f"/proc/{started.pid}/fd/{number}") for number in range(3)} == {os.devnull}
        person("regent", "stop")
        assert started.wait(ENDED_S) == 0
    finally:
        started.kill()
        started.wait()


def test_in_the_background_it_has_adopted_when_its_parent_returns(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    assert ralphd(daemon, "--background").returncode == 0
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"]) == ("running", pid)


def test_a_background_start_that_fails_says_why(daemon: Daemon) -> None:
    (daemon.state / "ralphd.sock").mkdir()
    said = ralphd(daemon, "--background")
    assert said.returncode == 1, said
    assert f"cannot listen at {daemon.state}/ralphd.sock" in said.stderr
    assert "another file is in its place, and it is not a socket" in said.stderr
    assert "Traceback" not in said.stderr
    assert not daemon.leftovers()


@pytest.mark.parametrize("words", [(), ("--background",)])
def test_a_state_directory_that_cannot_be_is_told_in_words(words: tuple[str, ...], daemon: Daemon) -> None:
    (daemon.root / "file").touch()
    said = ralphd(daemon, *words, RALPHD_STATE_DIR=str(daemon.root / "file" / "state"))
    assert said.returncode not in (0, None), said
    assert str(daemon.root / "file") in said.stderr
    assert "Traceback" not in said.stderr, said.stderr


def test_regent_start_passes_on_why_it_did_not_start(daemon: Daemon, person: Person) -> None:
    (daemon.state / "ralphd.sock").mkdir()
    said = person("regent", "start")
    assert said.returncode == 1, said
    assert "it is not a socket" in said.stderr
    assert "Traceback" not in said.stderr


def test_start_starts_the_daemon_and_says_so(daemon: Daemon, person: Person) -> None:
    said = person("start", str(person.directory()), "--", *player("sleeper"))
    assert said.returncode == 0, said
    assert f"started ralphd (pid {its_pid(daemon)})" in said.stderr
    assert daemon.view("demo")["state"] == "running"
    said = person("start", str(person.directory("other")), "--", *player("sleeper"))
    assert "started ralphd" not in said.stderr


def test_regent_stop_leaves_nothing(daemon: Daemon, person: Person) -> None:
    assert person("regent", "start").returncode == 0
    pid = its_pid(daemon)
    person.starts(person.directory(), player("double_forker", "stay"))
    person.says_lines("demo", 1)
    said = person("regent", "stop")
    assert said.returncode == 0, said
    assert f"ralphd (pid {pid}) has ended" in said.stdout
    assert not is_alive(pid)
    assert not daemon.leftovers()
    assert not (daemon.state / "ralphd.sock").exists()
    after = person("status")
    assert (after.returncode, "demo  stopped" in after.stdout) == (0, True), after


def test_regent_restart_replaces_the_daemon_and_keeps_the_run(daemon: Daemon, person: Person) -> None:
    assert person("regent", "start").returncode == 0
    first = its_pid(daemon)
    view = person.starts(person.directory(), player("sleeper"))
    said = person("regent", "restart")
    assert said.returncode == 0, said
    assert "1 run adopted: demo" in said.stdout
    assert its_pid(daemon) != first
    assert daemon.view("demo")["ralph_pid"] == view["ralph_pid"]
    assert is_alive(view["ralph_pid"])
    assert not is_alive(first)


def test_a_daemon_that_hangs_is_replaced_by_the_commands_that_are_named(
    daemon: Daemon, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert person("regent", "start").returncode == 0
    first = its_pid(daemon)
    view = person.starts(person.directory(), player("sleeper"))
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setenv("RALPHD_STATE_DIR", str(daemon.state))
    with pytest.raises(DaemonBusy) as hung:
        transport.get([str(daemon.state / "ralphd.sock")], "/status", timeout_s=0.2)
    logs, kill, start = hung.value.mend.splitlines()
    assert (logs, start) == ("ralphctl regent logs", "ralphctl regent start")
    subprocess.run(["sh", "-c", kill.partition("  (")[0]], check=True, timeout=10)
    wait_for(lambda: not is_alive(first), what="its end")
    assert person("regent", "start").returncode == 0
    assert daemon.view("demo")["ralph_pid"] == view["ralph_pid"]


# --- its socket ---------------------------------------------------------------------------------------


def test_the_socket_and_all_that_it_writes_are_private(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    socket_mode = (daemon.state / "ralphd.sock").stat().st_mode
    assert (stat.S_ISSOCK(socket_mode), stat.S_IMODE(socket_mode)) == (True, 0o600)
    for place in (daemon.state, daemon.files("demo"), witness.directory / ".ralph"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700, place
    shared = [
        path
        for place in (daemon.state, witness.directory / ".ralph")
        for path in place.rglob("*")
        if path.lstat().st_mode & 0o077
    ]
    assert not shared


def test_a_socket_that_was_removed_is_made_anew(daemon: Daemon) -> None:
    daemon.start()
    path = daemon.state / "ralphd.sock"
    path.unlink()
    wait_for(path.exists, timeout_s=ENDED_S, what="a new socket")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert its_pid(daemon) == daemon.pid


def test_a_stale_socket_is_replaced(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    assert (daemon.state / "ralphd.sock").exists()
    daemon.start()
    assert its_pid(daemon) == daemon.pid


def test_a_long_path_to_the_socket_is_no_hindrance(daemon: Daemon, person: Person) -> None:
    daemon.state = daemon.root / ("d" * 60) / ("e" * 60) / "state"
    daemon.start()
    assert its_pid(daemon) == daemon.pid
    assert person("status").returncode == 0
    assert person.starts(person.directory(), player("sleeper"))["state"] == "running"
    assert person("logs", "demo").returncode == 0


# --- its end ------------------------------------------------------------------------------------------


def test_open_streams_end_with_the_daemon(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("sleeper"))
    person.says_lines("demo", 1)
    with (
        Stream(daemon, "/v1/events") as events,
        Stream(daemon, "/v1/ralphs/demo/logs?follow=true&tail=all") as log,
        person.watching("logs", "-f", "demo") as follower,
    ):
        assert follower.stdout is not None
        assert follower.stdout.readline(), "the follower is there"
        began = time.monotonic()
        assert person("regent", "stop", timeout_s=ENDED_S).returncode == 0
        assert time.monotonic() - began < SOON_S
        assert daemon.exit_code() == 0, daemon.words()
        for each in (events, log):
            while each.recv(1 << 16):
                pass
    assert not [line for line in daemon.words().splitlines() if "ERROR" in line or "Traceback" in line]
    assert not daemon.leftovers()


def test_an_idle_connection_does_not_hold_up_the_end(daemon: Daemon) -> None:
    daemon.start()
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(daemon.state / "ralphd.sock"))
        idle.sendall(b"GET /v1/status HTTP/1.1\r\n")  # and never more
        began = time.monotonic()
        daemon.send(signal.SIGTERM)
        assert daemon.exit_code() == 0, daemon.words()
        assert time.monotonic() - began < SOON_S


def test_a_daemon_on_its_way_out_takes_no_new_work(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(), player("stubborn"))
    person.says_lines("demo", 2)
    daemon.send(signal.SIGTERM)
    daemon.becomes("demo", "stopping")
    said = person("start", str(person.directory("late")), "--", *player("sleeper"))
    assert said.returncode == 75, said
    assert "shutting down" in said.stderr
    assert not (daemon.home / "late" / ".ralph").exists()
    daemon.send(signal.SIGQUIT)
    assert daemon.exit_code() == 0


class Stream:
    """A request whose reply goes on; what comes is read with ``recv``."""

    def __init__(self, daemon: Daemon, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ENDED_S)
        self._socket.connect(str(daemon.state / "ralphd.sock"))
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: ralphd\r\n\r\n".encode())

    def __enter__(self) -> socket.socket:
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._socket.recv(1 << 16)
        assert head.startswith(b"HTTP/1.1 200"), head
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()


# --- as the first process of a container --------------------------------------------------------------

FIRST = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of one's own needs root")


class Container:
    """A daemon that is pid 1 of a pid namespace of its own."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        with (daemon.root / "stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                [
                    "unshare",
                    "--pid",
                    "--fork",
                    "--mount-proc",
                    "--kill-child=KILL",
                    sys.executable,
                    "-m",
                    "ralphd",
                ],
                env=daemon.environment,
                cwd=daemon.root,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        wait_for(self._answers, timeout_s=20.0, what="an answer of the daemon")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.daemon.words()
        try:
            return self.daemon.api("GET", "/v1/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False

    @property
    def first(self) -> int:
        """Pid 1 of it, as we see it."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def children(self) -> int:
        """How many children pid 1 has, those that it has not reaped included."""
        return len(Path(f"/proc/{self.first}/task/{self.first}/children").read_text().split())


@FIRST
def test_as_pid_1_it_serves_reaps_strangers_and_ends_cleanly(daemon: Daemon, person: Person) -> None:
    container = Container(daemon)
    try:
        assert its_pid(daemon) != 1
        place = person.directory()
        body = {
            "directory": str(place),
            "command": list(player("sleeper")),
            "environment": {"PATH": os.defpath},
        }
        assert daemon.ask("POST", "/v1/ralphs", body)["state"] == "running"
        shim = json.loads((daemon.run_directories("demo")[0] / "run.json").read_text())["shim_pid"]
        assert shim > 1
        entered = ["nsenter", "--target", str(container.first), "--pid", "--mount"]
        subprocess.run([*entered, "/bin/sh", "-c", "(sleep 0.5 &)"], check=True, timeout=10)
        wait_for(lambda: container.children() > 1, what="an orphan below pid 1")
        wait_for(lambda: container.children() == 1, what="an end of the orphan, reaped")
        daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
        daemon.becomes("demo", "stopped")
        first = container.first
        os.kill(first, signal.SIGTERM)
        assert container.process.wait(ENDED_S) == 0, daemon.words()
        assert not daemon.leftovers()
    finally:
        container.process.kill()
        container.process.wait()


@FIRST
def test_as_pid_1_it_takes_its_runs_along_and_starts_them_again(daemon: Daemon, person: Person) -> None:
    container = Container(daemon)
    try:
        place = person.directory()
        body = {
            "directory": str(place),
            "command": list(player("polite", 3)),
            "environment": {"PATH": os.defpath},
        }
        daemon.ask("POST", "/v1/ralphs", body)
        person.says_lines("demo", 1)
        os.kill(container.first, signal.SIGTERM)
        assert container.process.wait(ENDED_S) == 0, daemon.words()
        assert json.loads((daemon.run_directories("demo")[0] / "exit.json").read_text())["code"] == 3
        daemon.start()
        assert daemon.becomes("demo", "running")["ralph_pid"]
    finally:
        container.process.kill()
        container.process.wait()
