"""Runs of a real daemon in the box: level ``box`` (A2)."""

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ralphd.core.sandbox import SIGNALS_ABI
from ralphd.process import shim
from ralphd.process.sandbox.box import why_unavailable
from tests.helpers import is_alive, wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.loops import loop_in
from tests.whole.person import Person

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
LEVEL = '[sandbox]\nlevel = "box"\n'
BOXED = {"level": "box", "means": "bubblewrap", "reason": None}
LOOK = (
    f"test $(readlink /proc/self/ns/pid) = '{os.readlink('/proc/self/ns/pid')}' && echo pids; "
    "test -e {state}/lock && echo state; "
    "touch ~/x 2> /dev/null && echo home; echo end"
)
ALONE = ["end"]
"""What a command in the box prints of LOOK: own pids, no state directory, a home directory to read."""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    daemon.configure(LEVEL)
    return Person(daemon)


def start(person: Person, script: str, name: str = "demo", directory: Path | None = None) -> Path:
    """Start a ralph whose command is this script; its working directory."""
    place = directory or person.directory(name)
    body = {"directory": str(place), "name": name, "command": ["/bin/sh", "-c", script]}
    person.daemon.ask("POST", "/v1/ralphs", body | {"environment": person.environment})
    return place


def lines(file: Path) -> list[str]:
    """The lines of a file that a run ends with ``end``."""
    wait_for(lambda: file.exists() and file.read_text().endswith("end\n"), timeout_s=60, what=f"{file}")
    return file.read_text().splitlines()


def test_a_run_reports_and_reads_and_is_refused_as_any_other(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = start(
        person,
        f"(ralphctl notify cost 0.5; ralphctl stop demo; echo $?; {LOOK.format(state=daemon.state)})"
        " > seen 2>&1; sleep 600",
    )

    seen = lines(place / "seen")

    assert seen[-2:] == ["77", *ALONE], seen
    assert not (daemon.home / "x").exists()
    view = daemon.view("demo")
    assert (view["sandbox"], view["total_cost_usd"]) == (BOXED, 0.5)
    refused = daemon.events("agent.refused")
    assert [event["data"]["action"] for event in refused] == ["stop"]
    assert person("stop", "demo", cwd=place).returncode == 0
    daemon.becomes("demo", "stopped")
    assert not [line for _, line in daemon.leftovers() if "sleep 600" in line]


def test_an_adopted_run_reaches_the_next_daemon(daemon: Daemon, person: Person) -> None:
    daemon.start()
    waits = "touch ready; while ! test -e go; do sleep 0.1; done"
    place = start(person, f"{waits}; ralphctl notify cost 2; sleep 600")
    wait_for((place / "ready").exists, what="the run")
    pid = daemon.run_record("demo")["pid"]

    daemon.restart()
    (place / "go").touch()

    wait_for(lambda: daemon.view("demo")["total_cost_usd"] == 2, timeout_s=30, what="the report")
    assert daemon.view("demo")["sandbox"] == BOXED
    assert is_alive(pid)
    assert person("stop", "--now", "demo", cwd=place).returncode == 0
    daemon.becomes("demo", "stopped")
    assert not is_alive(pid)
    assert person("start", "demo", cwd=place).returncode == 0
    assert daemon.becomes("demo", "running")["sandbox"] == BOXED


def test_the_agents_and_reviews_of_the_built_in_loop_are_boxed(daemon: Daemon, person: Person) -> None:
    directory = loop_in(daemon, tasks=1)
    look = LOOK.format(state=daemon.state)
    work = (
        f"cat > /dev/null; ({look}) > in-agent 2>&1; test -s {daemon.state}/ralphs/demo/PROMPT-now.md && "
        "sed -i 's/- .*task/- [x] task/' TASKS.md; echo done"
    )
    (directory / "ralph.toml").write_text(
        f'[agents]\nprimary = "sh"\n[agents.sh]\ncommand = {json.dumps(["/bin/sh", "-c", work])}\n'
        f"[phases]\nenabled = true\nreview_command = {json.dumps(f'({look}) > in-review 2>&1')}\n"
    )
    daemon.start()
    body = {"directory": str(directory), "name": "demo", "environment": person.environment}
    daemon.ask("POST", "/v1/ralphs", body)

    assert lines(directory / "in-agent") == ALONE
    assert lines(directory / "in-review") == ALONE
    daemon.becomes("demo", "done", timeout_s=30)


def test_a_boxed_agent_over_its_time_is_asked_to_end(daemon: Daemon, person: Person) -> None:
    directory = loop_in(daemon, tasks=1)
    work = "trap 'echo asked > asked; exit 0' TERM; touch ready; while :; do sleep 0.05; done"
    (directory / "ralph.toml").write_text(
        '[agents]\nprimary = "sh"\ntimeout_seconds = 2\n'
        f"[agents.sh]\ncommand = {json.dumps(['/bin/sh', '-c', work])}\n"
    )
    daemon.start()
    body = {"directory": str(directory), "name": "demo", "environment": person.environment}
    daemon.ask("POST", "/v1/ralphs", body)

    wait_for((directory / "asked").exists, timeout_s=30, what="its answer to SIGTERM")
    assert person("stop", "--now", "demo", cwd=directory).returncode == 0
    daemon.becomes("demo", "stopped", timeout_s=30)


def test_the_tests_of_the_gate_are_boxed(daemon: Daemon, person: Person) -> None:
    guarded = Guarded.of(daemon)
    guarded.does(1, "good")
    daemon.start()
    look = LOOK.format(state=daemon.state)
    guarded.register(tests=f"({look}) > {guarded.place}/.git/seen 2>&1", sandbox__level="box")

    assert lines(guarded.place / ".git" / "seen") == ALONE


def test_a_box_that_cannot_be_made_refuses_the_start(
    daemon: Daemon, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = daemon.root / "fake" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    daemon.start()

    refused = person("start", "--", "true", cwd=person.directory())

    assert refused.returncode == 1
    assert "the sandbox is not available" in refused.stderr
    assert '[sandbox] level = "box": bwrap: No permissions' in refused.stderr
    assert '[sandbox] level = "auto"' in refused.stderr
    assert daemon.run_directories("demo") == []
    assert "bwrap: No permissions" in person("doctor", cwd=person.directory()).stdout


BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(folder + "/pkg-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pkg-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: pkg\\nVersion: 1\\n")
        wheel.writestr("pkg-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n")
        wheel.writestr("pkg-1.dist-info/RECORD", "")
    return "pkg-1-py3-none-any.whl"
"""
INSTALLS = """
set -ex
git add -A; git -c user.name=a -c user.email=a@b commit -qm work
! command -v npm || npm ci --offline --no-audit --no-fund
{python} -m venv v && v/bin/pip install -q --no-index ./pkg
touch ~/.profile && exit 9
touch ~/.cache/mine
"""
WORK = f"""{INSTALLS}
git config user.name evil && exit 9
touch $(git rev-parse --git-path hooks)/pre-commit && exit 9
true
"""


def write_packages(place: Path) -> None:
    """What INSTALLS installs: a package of npm and one of Python, which need no network."""
    (place / "dep").mkdir()
    (place / "dep/package.json").write_text('{"name": "dep", "version": "1.0.0"}')
    package = {"name": "x", "version": "1.0.0", "dependencies": {"dep": "file:dep"}}
    (place / "package.json").write_text(json.dumps(package))
    link = {"resolved": "dep", "link": True}
    packages = {"": package, "dep": {"version": "1.0.0"}, "node_modules/dep": link}
    lock = {"name": "x", "version": "1.0.0", "lockfileVersion": 3, "packages": packages}
    (place / "package-lock.json").write_text(json.dumps(lock))
    (place / "pkg").mkdir()
    (place / "pkg/backend.py").write_text(BACKEND)
    (place / "pkg/pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )


@pytest.mark.parametrize("linked", [False, True])
def test_commits_and_installs_work_inside(daemon: Daemon, person: Person, *, linked: bool) -> None:
    place = person.directory("demo")
    run = {"cwd": place, "check": True, "env": person.environment}
    subprocess.run(["git", "init", "-q", "."], **run)  # type: ignore[call-overload]
    if linked:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x", "--allow-empty"], **run
        )  # type: ignore[call-overload]
        subprocess.run(["git", "worktree", "add", "-q", "../linked"], **run)  # type: ignore[call-overload]
        place = place.parent / "linked"
    write_packages(place)
    daemon.start()
    script = WORK.format(python=shlex.quote(sys.executable))
    start(person, f"({script}) > seen 2>&1; echo $? >> seen; echo end >> seen", directory=place)

    seen = lines(place / "seen")

    assert seen[-2] == "0", "\n".join(seen)
    assert not (place / ".git" / "config.lock").exists()


def test_the_domain_of_signals_is_around_the_box(daemon: Daemon, person: Person) -> None:
    if shim.landlock_abi() < SIGNALS_ABI:
        pytest.skip("Landlock restricts no signals here")
    daemon.start()
    name = f"ralphd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        place = start(
            person,
            f'{shlex.quote(sys.executable)} -c "import socket; socket.socket(socket.AF_UNIX)'
            f".connect('\\0{name}')\" > seen 2>&1; echo end >> seen; sleep 600",
        )
        assert "PermissionError" in "\n".join(lines(place / "seen"))


PAUSES = """
trap 'echo paused > seen; echo end >> seen; exit 75' USR1
ralphctl notify hello --signals
touch ready
while :; do sleep 0.1; done
"""


def test_a_boxed_run_that_handles_signals_is_paused_and_resumed(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = start(person, PAUSES)
    wait_for((place / "ready").exists, timeout_s=30, what="the run")

    assert person("pause", "demo", cwd=place).returncode == 0
    daemon.becomes("demo", "paused", timeout_s=30)

    assert lines(place / "seen") == ["paused", "end"]
    (place / "ready").unlink()
    assert person("resume", "demo", cwd=place).returncode == 0
    wait_for((place / "ready").exists, timeout_s=30, what="the next run")
    assert daemon.view("demo")["sandbox"] == BOXED


def test_a_silent_boxed_run_is_seen_to_work_and_its_processes_are_named(
    daemon: Daemon, person: Person
) -> None:
    toml = "[regent]\nhang_timeout_seconds = {}\nstartup_grace_seconds = 0.0\nmax_retries = 1\n"
    daemon.start()
    start(
        person,
        "while :; do echo x >> file; sleep 0.1; done",
        "busy",
        person.directory("busy", toml=toml.format(10)),
    )
    place = person.directory("idle", toml=toml.format(2))
    start(person, "sleep 600 & wait", "idle", place)

    daemon.becomes("idle", "failed", timeout_s=90)

    found = daemon.ask("GET", "/v1/ralphs/idle/explain")
    assert (found["rule"], found["living"]) == ("H4", False)
    named = " ".join(each["command"] for each in found["evidence"]["processes"])
    assert "bwrap" in named and "sleep" in named, named
    wait_for(
        lambda: daemon.ask("GET", "/v1/ralphs/busy/explain")["rule"] == "H2", timeout_s=60, what="its work"
    )
    assert not [line for _, line in daemon.leftovers() if "sleep 600" in line]


def test_the_users_file_says_what_a_box_reaches(daemon: Daemon, person: Person) -> None:
    extra = daemon.home / "extra"
    extra.mkdir()
    (daemon.home / "demo").mkdir()
    daemon.configure(
        LEVEL + 'net = false\nproxy = "http://127.0.0.1:1"\nwritable = ["~/extra", "~/demo/link"]\n'
    )
    (daemon.home / "demo" / "link").symlink_to(daemon.root)  # as a run would make it
    daemon.start()
    place = start(
        person,
        "(echo $https_proxy; grep -c : /proc/net/dev; touch ~/extra/x link/x; "
        "env | grep -c 'RALPH_BOX=\\|TMPDIR='; echo end) > seen 2> /dev/null",
    )

    assert lines(place / "seen") == ["http://127.0.0.1:1", "1", "0", "end"]
    assert (extra / "x").exists()
    assert not (daemon.root / "x").exists()
