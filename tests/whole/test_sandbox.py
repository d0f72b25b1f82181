"""Runs of a real daemon in their sandbox, and what people read of it (A1)."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.core.sandbox import SIGNALS_ABI
from ralphd.process import shim
from ralphd.process.sandbox.box import why_unavailable
from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.person import Person

pytestmark = pytest.mark.skipif(
    shim.landlock_abi() < SIGNALS_ABI, reason=f"Landlock ABI {shim.landlock_abi()} restricts no signals"
)
TRIES = """#!/bin/sh
for pid in $PPID $(cat "$STATE/lock"); do
  kill -9 $pid 2> /dev/null && echo reached $pid
done
touch "$STATE/../tried"
sleep 600
"""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


@pytest.fixture
def loop(daemon: Daemon) -> Path:
    """A command that tries to kill its supervisors."""
    place = daemon.root / "work"
    place.mkdir()
    script = place / "loop.sh"
    script.write_text(TRIES.replace("$STATE", str(daemon.state)))
    script.chmod(0o755)
    return place


def test_a_run_kills_neither_its_shim_nor_the_daemon(daemon: Daemon, person: Person, loop: Path) -> None:
    daemon.start()
    assert person("start", "--name", "demo", "--", "./loop.sh", cwd=loop).returncode == 0
    wait_for(lambda: (daemon.root / "tried").exists(), timeout_s=30, what="the kills")

    view = daemon.view("demo")

    assert view["sandbox"] == {"level": "signals", "means": "landlock", "reason": None}
    assert view["state"] == "running"
    assert is_alive(daemon.pid)
    assert is_alive(daemon.run_record("demo")["shim_pid"])
    assert "no sandbox" not in person("status", "demo").stdout
    assert person("stop", "demo").returncode == 0
    assert daemon.becomes("demo", "stopped")["sandbox"] is None


def test_a_new_daemon_shows_the_sandbox_of_a_run_that_it_adopts(
    daemon: Daemon, person: Person, loop: Path
) -> None:
    daemon.start()
    person("start", "--name", "demo", "--", "sleep", "600", cwd=loop)
    daemon.kill()
    daemon.start()

    assert daemon.view("demo")["sandbox"]["level"] == "signals"


def test_ralph_toml_cannot_lower_the_level_and_the_users_file_can(
    daemon: Daemon, person: Person, loop: Path
) -> None:
    (loop / "ralph.toml").write_text('[sandbox]\nlevel = "none"\n')
    daemon.start()
    refused = person("start", "--name", "demo", "--", "sleep", "600", cwd=loop)
    assert refused.returncode == 78
    assert 'ralph.toml:2: sandbox.level: cannot be lower than "auto" here' in refused.stderr

    daemon.configure('[sandbox]\nlevel = "none"\n')
    assert person("start", "--name", "demo", "--", "sleep", "600", cwd=loop).returncode == 0
    assert daemon.view("demo")["sandbox"] == {"level": "none", "means": None, "reason": None}
    assert daemon.events("sandbox.degraded") == []


CHOICE = """
import asyncio
from ralphd.process.sandbox.probe import SandboxProbe
choice = asyncio.run(SandboxProbe().choose("auto"))
print(choice.level, choice.reason)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="becomes another user")
@pytest.mark.parametrize(("code", "level"), [(0, "none"), (1, "signals")])
def test_auto_leaves_passwordless_sudo_to_a_user(code: int, level: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        (Path(place) / "sudo").write_text(f"#!/bin/sh\nexit {code}\n")
        (Path(place) / "sudo").chmod(0o755)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        environment = {"PATH": f"{place}:{os.defpath}", "PYTHONPATH": os.pathsep.join(sys.path)}
        told = subprocess.run(
            [*user, sys.executable, "-c", CHOICE],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert told.stdout.split()[:1] == [level], told.stderr
    assert ("sudo works without a password" in told.stdout) is (code == 0)


USER = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"]
MODULES = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path[1:]])}
ATTACK = "kill -9 {pid} && echo killed; ralphctl notify cost 1; grep NoNewPrivs /proc/self/status; echo end"


def users_python() -> str | None:
    """Return an interpreter that another user can run, with our packages."""
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        words = [*USER, "/bin/sh", "-c", f"exec {path} -c 'import click, ralphd.app, ralphd.api.app'"]
        if subprocess.run(words, env=MODULES, capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.fixture
def users_daemon() -> Iterator[Daemon]:
    """A daemon of another user, to be started by ``start_as_user``."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root becomes another user")
    with tempfile.TemporaryDirectory(prefix="ralphd-user-") as place, daemon_in(Path(place)) as daemon:
        yield daemon


def start_as_user(daemon: Daemon, level: str) -> None:
    """Start it at this level."""
    if (python := users_python()) is None:
        pytest.skip("another user cannot run this Python")
    daemon.configure(f'[sandbox]\nlevel = "{level}"\n')
    (daemon.home / "demo").mkdir()
    for path in (daemon.root, *daemon.root.rglob("*")):
        os.chown(path, 4242, 4242)
    with (daemon.root / "stderr").open("ab") as stderr:
        environment = daemon.environment | MODULES
        words = [*USER, python, "-m", "ralphd"]
        daemon._process = subprocess.Popen(words, env=environment, stderr=stderr, cwd=daemon.root)
    wait_for(daemon._is_up, timeout_s=20, what="an answer of the daemon")


@pytest.mark.parametrize("level", ["signals", "box"])
def test_a_normal_user_gets_the_sandbox(users_daemon: Daemon, level: str) -> None:
    daemon, seen = users_daemon, users_daemon.home / "demo" / "seen"
    if level == "box" and (why := why_unavailable()) is not None:
        pytest.skip(why)
    start_as_user(daemon, level)
    script = f"({ATTACK.format(pid=daemon.pid)}) > seen 2>&1; sleep 600"
    body = {"directory": str(seen.parent), "command": ["/bin/sh", "-c", script]}
    daemon.ask("POST", "/v1/ralphs", body | {"environment": daemon.environment | MODULES})

    wait_for(lambda: seen.exists() and seen.read_text().endswith("end\n"), timeout_s=30, what="the run")

    assert "killed" not in seen.read_text()
    assert "NoNewPrivs:\t1" in seen.read_text()
    view = daemon.view("demo")
    assert (view["sandbox"]["level"], view["total_cost_usd"]) == (level, 1), seen.read_text()
    assert is_alive(daemon.run_record("demo")["shim_pid"])
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")
    assert not [line for _, line in daemon.leftovers() if "sleep 600" in line]
