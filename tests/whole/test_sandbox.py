"""Runs of a real daemon in their sandbox, and what people read of it (A1)."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.core.sandbox import NEEDS_NONE, SIGNALS_ABI
from ralphd.process import shim
from ralphd.process.sandbox.box import why_unavailable
from tests.helpers import is_alive, wait_for
from tests.template import ralphctl
from tests.whole.harness import Daemon, daemon_in
from tests.whole.person import Person
from tests.whole.test_box import INSTALLS, lines, write_packages

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


WRITES = """#!/bin/sh
exec 2> /dev/null
for place in . .git ~/.cache "$TMPDIR" /dev "$STATE" "$STATE/ralphs/demo" ~ "$STATE/.."; do
  touch "$place/made" && echo "$place" >> written
done
git add -A && git commit --quiet -m made && git log --format=%s | head -1 >> written
sed -i 's/- \\[ \\]/- [x]/' TASKS.md
echo done
sleep "${REST:-0}"
"""
WRITTEN = [".", ".git", "~/.cache", "$TMPDIR", "made"]


class Restricted(Person):
    """Types commands with a TMPDIR that does not hold the state directory."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TMPDIR": str(self.daemon.root / "temporary")}


@pytest.fixture
def restricted(daemon: Daemon) -> tuple[Restricted, Path]:
    """A repository with a program that tries to write; what a run may write exists."""
    (daemon.home / ".cache").mkdir()
    (daemon.root / "temporary").mkdir()
    person = Restricted(daemon)
    place = person.directory()
    script = place / "writes.sh"
    script.write_text(WRITES.replace("$STATE", str(daemon.state)))
    script.chmod(0o755)
    (place / "TASKS.md").write_text("- [ ] one\n")
    for words in (
        ["init", "-q"],
        ["config", "user.name", "R"],
        ["config", "user.email", "r@example.invalid"],
    ):
        subprocess.run(["git", *words], cwd=place, check=True, env=person.environment)
    return person, place


def written(daemon: Daemon, place: Path) -> list[str]:
    lines = (place / "written").read_text()
    for path, word in ((daemon.home, "~"), (daemon.root / "temporary", "$TMPDIR")):
        lines = lines.replace(str(path), word)
    return list(dict.fromkeys(lines.splitlines()))  # a loop may start its agent again


def test_a_command_at_the_level_write_changes_only_its_own_directories(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    (place / "ralph.toml").write_text('[sandbox]\nlevel = "write"\n')
    daemon.start()
    started = person("start", "--name", "demo", "--", "env", "REST=600", "./writes.sh", cwd=place)
    assert started.returncode == 0, started.stderr
    wait_for(lambda: "[x]" in (place / "TASKS.md").read_text(), timeout_s=30, what="the tries")

    assert daemon.view("demo")["sandbox"] == {"level": "write", "means": "landlock", "reason": None}
    assert written(daemon, place) == WRITTEN


def test_commits_and_installs_work_at_the_level_write(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    (place / "ralph.toml").write_text('[sandbox]\nlevel = "write"\n')
    write_packages(place)
    script = INSTALLS.format(python=shlex.quote(sys.executable))
    script = f"({script}) > seen 2>&1; echo $? >> seen; echo end >> seen"
    daemon.start()
    started = person("start", "--name", "demo", "--", "sh", "-c", script, cwd=place)
    assert started.returncode == 0, started.stderr

    seen = lines(place / "seen")

    assert seen[-2] == "0", "\n".join(seen)
    assert daemon.run_record("demo")["sandbox"] == "write"
    assert (place / "node_modules/dep").exists() == (shutil.which("npm") is not None)
    assert list(place.glob("v/lib/python*/site-packages/pkg-1.dist-info"))


def test_an_agent_is_restricted_and_its_loop_keeps_its_state(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    (place / "PROMPT.md").write_text("Do the task.\n")
    (place / "ralph.toml").write_text(
        '[sandbox]\nlevel = "write"\n[agents]\nprimary = "own"\n[agents.own]\ncommand = ["./writes.sh"]\n'
    )
    daemon.start()
    started = person("start", "--name", "demo", cwd=place)
    assert started.returncode == 0, started.stderr
    daemon.becomes("demo", "done", timeout_s=60)

    assert written(daemon, place) == WRITTEN
    assert (daemon.state / "ralphs" / "demo" / "tasks.json").exists()


def test_tests_of_a_restricted_ralph_are_restricted(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    (place / "ralph.toml").write_text(
        '[sandbox]\nlevel = "write"\n[regent]\nrollback_on_test_failure = true\n'
        'test_command = "./writes.sh"\n'
    )
    daemon.start()
    started = person("start", "--name", "demo", "--", "sleep", "600", cwd=place)
    assert started.returncode == 0, started.stderr
    daemon.becomes("demo", "running", timeout_s=60)

    assert written(daemon, place) == WRITTEN


def test_tests_that_need_no_sandbox_switch_off_what_auto_chose(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    daemon.start()
    (place / "ralph.toml").write_text(
        f"[regent]\nrollback_on_test_failure = true\ntest_command = '! test -e red && kill -0 {daemon.pid}'\n"
    )
    person("start", "--name", "demo", "--", "sleep", "600", cwd=place)
    view = daemon.becomes("demo", "running", timeout_s=60)

    assert view["guard"]["baseline"] == "green"
    assert view["sandbox"] == {"level": "none", "means": None, "reason": NEEDS_NONE}
    assert NEEDS_NONE in person("status", "demo").stdout
    assert [event["data"]["reason"] for event in daemon.events("sandbox.degraded")] == [NEEDS_NONE]


def test_tests_that_are_red_without_a_sandbox_too_change_nothing(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    daemon.start()
    (place / "ralph.toml").write_text("[regent]\nrollback_on_test_failure = true\ntest_command = 'false'\n")
    person("start", "--name", "demo", "--", "sleep", "600", cwd=place)
    view = daemon.becomes("demo", "running", timeout_s=60)

    assert view["guard"]["baseline"] == "red"
    assert view["sandbox"]["level"] == "signals"


def test_write_is_refused_where_the_state_directory_would_be_writable(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    (place / "ralph.toml").write_text('[sandbox]\nlevel = "write"\n')
    environment = person.environment | {"TMPDIR": str(daemon.root)}
    daemon.start()
    refused = ralphctl(("start", "--name", "demo", "--", "sleep", "600"), environment, place, 30)

    assert refused.returncode == 1
    assert f"the run has to write {daemon.root}, and the state directory" in refused.stderr
    assert "another TMPDIR" in refused.stderr
    assert daemon.run_directories("demo") == []


def test_a_git_directory_that_an_agent_names_is_not_writable(
    daemon: Daemon, restricted: tuple[Restricted, Path]
) -> None:
    person, place = restricted
    other = person.directory("other")
    subprocess.run(["git", "init", "-q"], cwd=other, check=True, env=person.environment)
    shutil.rmtree(place / ".git")
    (place / ".git").write_text(f"gitdir: {other}/.git\n")
    (place / "ralph.toml").write_text('[sandbox]\nlevel = "write"\n')
    daemon.start()
    refused = person("start", "--name", "demo", "--", "sleep", "600", cwd=place)

    assert refused.returncode == 1
    assert f".git leads to {other}/.git, which belongs elsewhere" in refused.stderr


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


CHOICE = """
import asyncio
from ralphd.process.sandbox.probe import SandboxProbe
choice = asyncio.run(SandboxProbe().choose("auto"))
print(choice.level, choice.reason)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="becomes another user")
@pytest.mark.parametrize(("code", "level"), [(0, "none"), (1, "signals")])
def test_auto_leaves_passwordless_sudo_to_a_user(code: int, level: str) -> None:
    if (python := users_python()) is None:
        pytest.skip("another user cannot read this copy")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        (Path(place) / "sudo").write_text(f"#!/bin/sh\nexit {code}\n")
        (Path(place) / "sudo").chmod(0o755)
        told = subprocess.run(
            [*USER, python, "-c", CHOICE],
            env={"PATH": f"{place}:{os.defpath}", **MODULES}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert told.stdout.split()[:1] == [level], told.stderr
    assert ("sudo works without a password" in told.stdout) is (code == 0)


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
