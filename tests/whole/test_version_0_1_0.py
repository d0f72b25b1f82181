"""A state directory that version 0.1.0 left behind, with a run that still lives, under this version's daemon.

``tests/data/v0_1_0`` was written by that version: a paused built-in loop with a kept and a reverted commit,
and a command that was running when the daemon was killed. Its shim is kept there too, to run that command.
"""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, daemon_in

KEPT = Path(__file__).parent.parent / "data" / "v0_1_0"
STARTS = "import sys; sys.path.insert(0, sys.argv[1]); import shim; shim.main(sys.argv[2:])"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def put_back(daemon: Daemon) -> None:
    """Lay the kept state directory and both working directories below the daemon's root."""
    shutil.copytree(KEPT / "state", daemon.state, dirs_exist_ok=True)
    for path in daemon.state.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if path.is_file():
            text = path.read_text().replace("@STATE@", str(daemon.state)).replace("@ROOT@", str(daemon.root))
            path.write_text(text.replace("@PYTHON@", sys.executable))
    with closing(sqlite3.connect(daemon.state / "events.db")) as events:
        events.executescript((daemon.state / "events.sql").read_text())
    (daemon.state / "events.db").chmod(0o600)
    (daemon.state / "events.sql").unlink()
    shop, web = daemon.root / "shop", daemon.root / "web"
    for directory in (shop, web):
        directory.mkdir()
    shutil.copy2(KEPT / "loop.sh", web)
    subprocess.run(["git", "init", "-q", "-b", "main", str(shop)], check=True)
    with (KEPT / "shop.git-export").open("rb") as commits:
        subprocess.run(["git", "-C", str(shop), "fast-import", "--quiet"], stdin=commits, check=True)
    subprocess.run(["git", "-C", str(shop), "reset", "-q", "--hard"], check=True)
    (shop / "notes.txt").write_text("draft\n")


def start_old_shim(daemon: Daemon) -> subprocess.Popen[bytes]:
    """Run web's command under the shim of 0.1.0, by the intent that the daemon of 0.1.0 wrote."""
    [run] = daemon.run_directories("web")
    intent = json.loads((run / "intent.json").read_text())
    (run / "intent.json").write_text(json.dumps(intent | {"boot_id": BOOT_ID, "cgroup": None}))
    shutil.copy2(KEPT / "shim.py.txt", daemon.root / "shim.py")
    lock = os.open(run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    working = os.open(daemon.root / "web", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    ready, told = os.pipe()
    fcntl.flock(lock, fcntl.LOCK_EX)
    fcntl.flock(working, fcntl.LOCK_EX)
    with (run / "shim.err").open("wb") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                "-ISE",
                "-c",
                STARTS,
                str(daemon.root),
                str(run),
                *map(str, (lock, told, working)),
            ],
            pass_fds=[lock, told, working],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
    for descriptor in (lock, working, told):
        os.close(descriptor)
    with os.fdopen(ready, "rb") as words:
        assert words.read().splitlines()[-1] == b"ready", (run / "shim.err").read_text()
    return process


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as daemon:
        put_back(daemon)
        yield daemon


def test_a_living_run_of_0_1_0_is_adopted(old: Daemon) -> None:
    shim = start_old_shim(old)
    pid = wait_for(lambda: old.run_record("web").get("pid"), what="the command of the old shim")
    old.start()
    view = old.becomes("web", "running")

    assert view["ralph_pid"] == pid and is_alive(pid)
    before = old.ask("GET", "/v1/ralphs/web/logs?tail=1").decode()
    wait_for(lambda: old.ask("GET", "/v1/ralphs/web/logs?tail=1").decode() != before, what="a further line")

    old.ask("POST", "/v1/ralphs/web/stop", {"now": True})
    assert old.becomes("web", "stopped")["last_exit"]["signal"] == 9
    assert shim.wait(10) == 0 and not is_alive(pid)


def test_state_checkpoint_and_history_of_0_1_0_are_read(old: Daemon) -> None:
    old.start()
    wait_for(lambda: old.view("shop")["checkpoint"], what="a look at the checkpoint")
    view = old.view("shop")

    assert (view["state"], view["goal"], view["iteration"], view["reverts"]) == ("paused", "paused", 2, 1)
    assert (view["checkpoint"]["iteration"], view["checkpoint"]["uncommitted"]) == (3, 1)
    attempts = [entry["outcome"] for entry in old.history("shop", "attempt")]
    assert attempts[:2] == ["ok", "ok"]
    iterations = old.ask("GET", "/v1/ralphs/shop/iterations")["iterations"]
    assert [each["iteration"] for each in iterations][-2:] == [2, 1]


def test_the_gate_of_0_1_0_continues(old: Daemon) -> None:
    old.start()
    verdicts = old.ask("GET", "/v1/ralphs/shop/verdicts")["verdicts"]
    assert [each["verdict"] for each in verdicts] == ["reverted", "kept"]
    assert old.view("shop")["guard"]["baseline"] == "green"

    done = old.ask("POST", "/v1/ralphs/shop/undo", {})
    assert [each["subject"] for each in done["commits"]] == ["second task breaks the tests"]
    assert (old.root / "shop" / "value").read_text() == "broken\n"
    assert (old.root / "shop" / "notes.txt").read_text() == "draft\n"


def test_events_of_0_1_0_are_replayed(old: Daemon) -> None:
    old.start()
    types = [event["type"] for event in old.events()]
    assert types[0] == "daemon.started"
    for type_ in ("ralph.registered", "iteration.finished", "commit.kept", "commit.reverted", "ralph.paused"):
        assert type_ in types
