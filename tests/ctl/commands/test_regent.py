"""regent: starting, ending and replacing the daemon, with a fake ``ralphd`` that is a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ralphd
from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view
from tests.ctl.golden_files import Golden, without_remark
from tests.helpers import is_alive, wait_for
from tests.terminal import Terminal

# Stands in for `python -m ralphd --background`: the parent returns when the daemon answers.
BACKGROUND = """
import os, socket, subprocess, sys, time
if os.environ.get("FAKE_FAILS"):
    print("error: another ralphd owns the state directory (pid 17)", file=sys.stderr)
    sys.exit(75)
assert sys.argv[1:] == ["--background"] and "RALPH_RUN_ID" not in os.environ
path = os.environ.get("RALPHD_SOCKET") or os.environ["RALPHD_STATE_DIR"] + "/ralphd.sock"
child = subprocess.Popen([sys.executable, "-m", "tests.ctl.fake", path], cwd=os.environ["FAKE_TREE"],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
with open(os.environ["FAKE_PIDS"], "a") as pids:
    print(child.pid, file=pids)
held = os.open(os.path.dirname(path), os.O_PATH)
for _ in range(500):
    try:
        socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{held}/{os.path.basename(path)}")
        sys.exit(0)
    except OSError:
        time.sleep(0.01)
sys.exit(1)
"""


@pytest.fixture
def fake_ralphd(tmp_path: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Put a ``ralphd`` with a ``__main__`` of ours before the real one; gives the file of its pids."""
    package = tmp_path / "path" / "ralphd"
    package.mkdir(parents=True)
    real = next(iter(ralphd.__path__))
    (package / "__init__.py").write_text(f"__version__ = '0'\n__path__.append({real!r})\n")
    (package / "__main__.py").write_text(BACKGROUND)
    pids = tmp_path / "pids"
    environment |= {
        "PYTHONPATH": str(package.parent),
        "FAKE_TREE": str(Path(__file__).parents[3]),
        "FAKE_PIDS": str(pids),
    }
    yield pids
    for pid in map(int, pids.read_text().split() if pids.exists() else ()):
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def pids_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


def test_start_brings_the_daemon_up_and_says_so_and_again_it_changes_nothing(
    ctl: Ctl, fake_ralphd: Path, golden: Golden
) -> None:
    reply = ctl("regent", "start", more={"RALPH_RUN_ID": "r000001-aa"})
    assert reply.returncode == 0, reply.stderr
    [pid] = pids_in(fake_ralphd)
    again = ctl("regent", "start")
    golden(reply, again, hide={pid: "PID"})
    assert again.returncode == 0


def test_what_the_daemon_says_when_it_cannot_start_is_shown_and_its_code_is_ours(
    ctl: Ctl, fake_ralphd: Path, golden: Golden
) -> None:
    reply = ctl("regent", "start", more={"FAKE_FAILS": "1"})
    golden(reply)
    assert reply.returncode == 75


def test_start_of_a_ralph_starts_the_daemon_and_says_so(ctl: Ctl, fake_ralphd: Path, golden: Golden) -> None:
    reply = ctl("start", "api", more={"FAKE_VIEWS": json.dumps({"api": view()})})
    assert reply.returncode == 0, reply.stderr
    golden(reply, hide={pids_in(fake_ralphd)[0]: "PID"})


def test_a_socket_that_is_given_is_the_one_that_is_started(
    ctl: Ctl, fake_ralphd: Path, tmp_path: Path
) -> None:
    there = tmp_path / "other.sock"
    assert ctl("--socket", "other.sock", "regent", "start").returncode == 0
    assert there.is_socket()
    assert ctl("status", "--socket", str(there)).returncode == 0
    assert ctl("status").returncode == 3


def test_stop_waits_until_the_process_is_gone(ctl: Ctl, fake_ralphd: Path, golden: Golden) -> None:
    ctl("regent", "start")
    [pid] = pids_in(fake_ralphd)
    reply = ctl("regent", "stop")
    assert reply.returncode == 0, reply.stderr
    assert not is_alive(pid)
    golden(without_remark(reply), hide={pid: "PID"})


def test_stop_of_nothing_is_no_failure(ctl: Ctl, golden: Golden) -> None:
    reply = ctl("regent", "stop")
    golden(reply)
    assert reply.returncode == 0


@pytest.mark.parametrize(("word", "runs"), [("--now", "now"), ("--leave-runs", "leave"), (None, "finish")])
def test_what_becomes_of_the_runs_is_said_to_the_daemon(
    word: str | None, runs: str, daemon: FakeDaemon, ctl: Ctl
) -> None:
    daemon.on("POST /v1/shutdown", lambda _: Answer({}, 202))
    reply = ctl("regent", "stop", *([word] if word else []), "--wait-timeout", "0")
    assert daemon.body_of("POST /v1/shutdown") == {"runs": runs}
    assert reply.returncode == 124


def test_a_long_end_is_explained_with_who_it_waits_for_and_how_to_force_it(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(), "web": view("web", state="stopped")}
    reply = ctl("regent", "stop", "--wait-timeout", "0.4")
    golden(reply)
    assert reply.returncode == 124


def test_restart_leaves_the_runs_and_says_which_were_adopted(
    ctl: Ctl, fake_ralphd: Path, golden: Golden
) -> None:
    views = {"api": view(), "web": view("web")}
    ctl("regent", "start", more={"FAKE_VIEWS": json.dumps(views)})
    ending = {"run_id": "r1-a", "code": 3, "signal": None, "outcome": "failed", "at": "2026-11-21T07:00:00Z"}
    views["web"] = view("web", state="waiting_for_retry", last_exit=ending)
    reply = ctl("regent", "restart", more={"FAKE_VIEWS": json.dumps(views)})
    assert reply.returncode == 0, reply.stderr
    first, second = pids_in(fake_ralphd)
    assert not is_alive(first)
    golden(without_remark(reply), hide={first: "OLD-PID", second: "PID"})


def test_status_tells_where_things_are_and_3_when_none_runs(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    reply = ctl("regent", "status")
    golden(reply)
    assert reply.returncode == 0
    daemon.stop()
    assert ctl("regent", "status").returncode == 3


def test_logs_shows_the_daemons_own_log_also_without_a_daemon(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    nothing = ctl("regent", "logs")
    assert nothing.returncode == 4
    (tmp_path / "state" / "ralphd.log").write_text("".join(f"line {i}\n" for i in range(100)))
    golden(nothing, ctl("regent", "logs", "-n", "2"))


def test_logs_on_a_terminal_are_in_the_zone_of_the_reader(
    environment: dict[str, str], tmp_path: Path
) -> None:
    log = "2026-11-21T22:30:00.123Z INFO ready: pid 7\nTraceback (most recent call last):\nalone\n"
    (tmp_path / "state" / "ralphd.log").write_text(log)
    zone = environment | {"TZ": "Asia/Seoul", "TERM": "xterm"}
    command = [sys.executable, "-P", "-m", "ralphctl", "regent", "logs"]
    with Terminal(command, cwd=tmp_path, environment=zone) as terminal:
        assert terminal.exit_code() == 0
        terminal.shows("2026-11-22 07:30:00 INFO ready: pid 7")
        terminal.shows("Traceback (most recent call last):")
    piped = subprocess.run(command, env=zone, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert piped.stdout == log


def test_logs_follows_through_a_rotation(environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "state" / "ralphd.log"
    log.write_text("first\n")
    follow = subprocess.Popen(
        [sys.executable, "-P", "-m", "ralphctl", "regent", "logs", "-f"],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert follow.stdout is not None
        assert follow.stdout.readline() == "first\n"
        log.rename(log.with_suffix(".log.1"))
        log.write_text("second\n")
        assert follow.stdout.readline() == "second\n"
    finally:
        follow.send_signal(signal.SIGINT)
        follow.communicate(timeout=10)
    assert wait_for(lambda: follow.returncode == 130)
