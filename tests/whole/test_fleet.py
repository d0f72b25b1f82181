"""A fleet typed by hand: a hub, two machines with daemons of their own, one repository."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import wait_for
from tests.whole.harness import Daemon, daemon_in

LIMIT_S = 60.0
CONFIGURATION = """
[fleet]
allow_repos = ["{folder}/*"]
slots = 2
lease_seconds = 2
takeover_wait_seconds = 2
offline_push_seconds = 2
"""
TASKS = """\
#!/bin/sh
save() { git add $1; git -c user.name=r -c user.email=r@example.com commit -qm "$2"; }
for i in 1 2 3; do
  [ -f task-$i ] || { echo $i > task-$i; save task-$i "task $i"; } || exit 1
done
while [ -e "$HOLD" ] && [ "$(git rev-list --count HEAD)" -gt 1 ]; do sleep 0.1; done
"""


def ralphctl(daemon: Daemon, *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "ralphctl", *words]
    done = subprocess.run(
        command, env=daemon.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    command = ("git", "-C", str(directory), *identity, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def a_hub(daemon: Daemon) -> Iterator[None]:
    """Make a hub on this machine with ``ralphctl``, and run it in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    listen = ("--port", port, "--listen", "127.0.0.1")
    ralphctl(daemon, "fleet", "init", "127.0.0.1", "--name", "h1", *listen)
    command = [sys.executable, "-m", "ralphctl", "fleet", "hub"]
    with subprocess.Popen(command, env=daemon.environment, stderr=subprocess.PIPE, text=True) as hub:
        try:
            assert hub.stderr is not None and any("Server is ready" in line for line in hub.stderr)
            yield
        finally:
            hub.send_signal(signal.SIGINT)
            assert hub.wait(LIMIT_S) == 0


def joins(hub: Daemon, daemon: Daemon, name: str) -> str:
    """Have a machine join; return its token."""
    command = [sys.executable, "-m", "ralphctl", "fleet", "token", "--yes"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=hub.environment, stdout=pipe, stderr=pipe, text=True) as inviting:
        try:
            assert inviting.stdout is not None and inviting.stderr is not None
            token = inviting.stdout.readline().strip()
            ralphctl(daemon, "fleet", "join", token, "--name", name)
            assert inviting.wait(LIMIT_S) == 0
            assert f"{name} has joined" in inviting.stderr.read()
        finally:
            inviting.kill()
    return token


@dataclass
class World:
    """Two machines, and a remote with a task list that a script works on."""

    one: Daemon
    two: Daemon
    remote: Path
    hold: Path

    def by_name(self, name: str) -> Daemon:
        return {"h1": self.one, "h2": self.two}[name]

    def items(self) -> list[Mapping[str, Any]]:
        items: list[Mapping[str, Any]] = json.loads(ralphctl(self.one, "fleet", "items", "--json"))["items"]
        return items

    def becomes(self, state: str) -> Mapping[str, Any]:
        def reached() -> list[Mapping[str, Any]]:
            return [each for each in self.items() if each["state"] == state]

        return wait_for(reached, timeout_s=LIMIT_S, what=f"an item that is {state}")[0]

    def branches(self) -> dict[str, str]:
        lines = git(self.remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    remote, seed, hold = tmp_path / "app.git", tmp_path / "seed", tmp_path / "hold"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(remote))
    git(tmp_path, "clone", "--quiet", str(remote), str(seed))
    (seed / "tasks.sh").write_text(TASKS.replace("$HOLD", str(hold)))
    (seed / "tasks.sh").chmod(0o755)
    (seed / "ralph.toml").write_text('[ralph]\ncommand = ["./tasks.sh"]\n')
    git(seed, "add", ".")
    git(seed, "commit", "--quiet", "-m", "first")
    git(seed, "push", "--quiet", "origin", "HEAD:main")
    with daemon_in(tmp_path / "one") as one, daemon_in(tmp_path / "two") as two, a_hub(one):
        joins(one, two, "h2")
        for daemon in (one, two):
            daemon.configure(CONFIGURATION.format(folder=tmp_path))
            daemon.start()
        hosts = {"h1", "h2"}
        wait_for(
            lambda: {each["host"] for each in _fleet(one)["hosts"] if each["state"] == "up"} == hosts,
            timeout_s=LIMIT_S,
            what="two machines that see each other",
        )
        yield World(one, two, remote, hold)


def _fleet(daemon: Daemon) -> dict[str, Any]:
    fleet: dict[str, Any] = json.loads(ralphctl(daemon, "fleet", "status", "--json"))
    return fleet


def test_an_item_is_worked_on_and_pushed(world: World) -> None:
    ralphctl(world.two, "fleet", "submit", str(world.remote))
    item = world.becomes("done")

    branch = f"refs/heads/{item['branch']}"
    assert git(world.remote, "log", "--format=%s", branch).split("\n") == [
        "task 3",
        "task 2",
        "task 1",
        "first",
    ]
    assert f"refs/ralph/lease/{item['branch']}" in world.branches()
    assert item["repo"] in ralphctl(world.one, "fleet", "status")


def test_a_remote_that_takes_branches_only_has_its_leases_there(world: World) -> None:
    hook = world.remote / "hooks" / "update"
    hook.write_text("#!/bin/sh\ncase $1 in refs/heads/*) ;; *) exit 1;; esac\n")
    hook.chmod(0o755)
    ralphctl(world.two, "fleet", "submit", str(world.remote))
    item = world.becomes("done")
    assert git(world.remote, "log", "-1", "--format=%s", f"refs/heads/{item['branch']}") == "task 3"
    assert {f"refs/heads/ralph-lease/{item['branch']}", "refs/heads/main"} <= world.branches().keys()
    assert all(name.startswith("refs/heads/") for name in world.branches())


def test_a_dead_machine_loses_its_item_and_no_work(world: World) -> None:
    world.hold.touch()
    ralphctl(world.one, "fleet", "submit", str(world.remote))
    item = world.becomes("working")
    dead = str(item["holder"])
    survivor = world.two if dead == "h1" else world.one
    wait_for(lambda: world.by_name(dead).view(str(item["id"]))["state"] == "running", what="the ralph runs")
    world.by_name(dead).kill()

    def taken() -> bool:
        items = json.loads(ralphctl(survivor, "fleet", "items", "--json"))["items"]
        return any(each["state"] == "working" and each["holder"] != dead for each in items)

    wait_for(taken, timeout_s=LIMIT_S, what="the other machine has it")
    world.by_name(dead).start()
    stale = f"refs/ralph/stale/{item['branch']}/1"
    wait_for(lambda: stale in world.branches(), timeout_s=LIMIT_S, what="the work of the first machine")
    assert git(world.remote, "log", "-1", "--format=%s", stale) == "task 3"
    world.hold.unlink()
    done = world.becomes("done")
    assert git(world.remote, "log", "-1", "--format=%s", f"refs/heads/{done['branch']}") == "task 3"
    assert done["tries"] == 1
    [fenced] = world.by_name(dead).events("fleet.fenced")
    assert fenced["data"]["is_saved"]


def test_what_belongs_to_others_is_refused(world: World) -> None:
    """The key of another fleet, orders without a role, and a machine that was forgotten."""
    key = world.two.state / "fleet" / "host.seed"
    before = key.read_bytes()
    ralphctl(world.two, "fleet", "init", "127.0.0.1", "--name", "h2", code=1)
    assert key.read_bytes() == before
    assert not (world.two.state / "hub").exists()

    ralphctl(world.two, "fleet", "drain", "h1", code=1)
    ralphctl(world.two, "fleet", "stop", "h1/demo", code=1)
    ralphctl(world.one, "fleet", "stop", "h2/demo", code=4)  # h2 has no such ralph
    ralphctl(world.one, "fleet", "drain", "h2")
    assert [each["state"] for each in _fleet(world.two)["hosts"] if each["host"] == "h1"] == ["up"]

    ralphctl(world.two, "fleet", "doctor")
    assert "is locked out;" in ralphctl(world.one, "fleet", "forget", "h2")
    ralphctl(world.two, "fleet", "doctor", code=1)
    assert "has left" in ralphctl(world.two, "fleet", "leave")
    ralphctl(world.two, "fleet", "leave", code=4)


def test_a_machine_outside_of_a_fleet_says_so(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as one:
        one.start()
        ralphctl(one, "fleet", "status", code=3)
        loaded = Path(f"/proc/{one.pid}/maps").read_text()
        assert "nacl" not in loaded
