"""Two items of a fleet land on the base of a repository whose ralph.toml says so."""

import json
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole import test_fleet
from tests.whole.harness import Daemon
from tests.whole.test_fleet import LIMIT_S, World, git, ralphctl

world = test_fleet.world

RULES = """\
[ralph]
command = ["./tasks.sh"]
[regent]
test_command = "while [ -e {slow} ]; do sleep 0.1; done; test -e task-3 && git rev-parse HEAD >> {green}"
[landing]
mode = "auto"
"""


@pytest.fixture
def green(world: World, tmp_path: Path) -> Path:
    """A file with the commits that passed the tests. They wait for as long as there is a file ``slow``."""
    seed, green = tmp_path / "seed", tmp_path / "green"
    (seed / "ralph.toml").write_text(RULES.format(green=green, slow=tmp_path / "slow"))
    script = seed / "tasks.sh"  # two items never make the same commit
    script.write_text(script.read_text().replace('"task $i"', '"task $i $(git branch --show-current)"'))
    git(seed, "commit", "--quiet", "--all", "-m", "landing")
    git(seed, "push", "--quiet", "origin", "HEAD:main")
    git(world.remote, "config", "core.logAllRefUpdates", "always")
    return green


def tips(world: World) -> list[str]:
    return git(world.remote, "log", "--walk-reflogs", "--format=%H", "main").split()


def test_two_items_land_on_main(world: World, green: Path) -> None:
    world.hold.touch()  # both begin before one has landed
    ralphctl(world.one, "fleet", "submit", str(world.remote), "--count", "2")
    wait_for(
        lambda: [each["state"] for each in world.items()] == ["working", "working"],
        timeout_s=LIMIT_S,
        what="two items that are worked on",
    )
    world.hold.unlink()
    wait_for(
        lambda: [each["state"] for each in world.items()] == ["done", "done"],
        timeout_s=LIMIT_S,
        what="two items that have landed",
    )

    items = world.items()
    assert set(tips(world)) <= set(green.read_text().split()), "each commit of main was tested before"
    for item in items:
        # Not always a tip: one machine may land both in one push.
        git(world.remote, "merge-base", "--is-ancestor", item["landed"], "main")
        git(world.remote, "merge-base", "--is-ancestor", item["branch"], "main")
        assert f"landed on main as {item['landed']}" in ralphctl(world.two, "fleet", "items")
    git(world.remote, "fsck", "--strict", "--connectivity-only")
    assert "refs/ralph/lease/main" in world.branches()


def open_candidates(daemon: Daemon) -> list[str]:
    [queue] = json.loads(ralphctl(daemon, "queue", "--json"))["queues"]
    return [each["state"] for each in queue["candidates"] if each["state"] in ("queued", "waiting")]


def test_what_a_dead_machine_tested_lands_once(world: World, green: Path, tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    ralphctl(world.one, "fleet", "submit", str(world.remote))
    item = world.becomes("landing")
    dead = world.by_name(str(item["holder"]))
    survivor = world.two if dead is world.one else world.one
    wait_for(lambda: "refs/ralph/lease/main" in world.branches(), timeout_s=LIMIT_S, what="its turn")
    dead.kill()
    (tmp_path / "slow").unlink()

    def landed() -> bool:
        items = json.loads(ralphctl(survivor, "fleet", "items", "--json"))["items"]
        return [each["state"] for each in items] == ["done"]

    wait_for(landed, timeout_s=LIMIT_S, what="the other machine has landed it")
    dead.start()
    wait_for(lambda: dead.events("fleet.fenced"), timeout_s=LIMIT_S, what="the first machine knows it")
    wait_for(lambda: not open_candidates(dead), timeout_s=LIMIT_S, what="nothing of it is queued")
    assert len(tips(world)) == 1
    assert set(tips(world)) <= set(green.read_text().split())
