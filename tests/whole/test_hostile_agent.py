"""An agent that turns on its supervision and on the repository (A12): nothing is lost, the night goes on."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ralphd.core.sandbox import SIGNALS_ABI
from ralphd.process import shim
from tests.players import player
from tests.whole import hostile_stage
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon, daemon_in

USER = 4242
"""Nobody's on a usual machine."""
LIMIT_S = 280.0
SEED, TORTURE_S = int(os.environ.get("SEED", "1")), float(os.environ.get("TORTURE_S", "0"))


def why_not(user: int, place: Path) -> str:
    """Return why no hostile program may run here; empty where it may."""
    if shim.landlock_abi() < SIGNALS_ABI:
        return f"Landlock ABI {shim.landlock_abi()} restricts no signals"
    if missing := [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]:
        return f"needs {', '.join(missing)}"
    if user != os.geteuid() != 0:
        return "only root becomes another user"
    tried = hostile_stage.run(place, user, [sys.executable, "-c", "import ralphd"], 60)
    return f"no namespaces here: {tried.stderr[-300:]}" if tried.returncode else ""


def played(place: Path, user: int, seed: int) -> dict[str, Any]:
    """Return what became of a daemon, its ralphs and the repository after all lives of a hostile agent."""
    place.mkdir()
    if reason := why_not(user, place):
        pytest.skip(reason)
    outer = os.readlink(hostile_stage.OUTER)
    command = [sys.executable, "-m", "tests.whole.hostile_stage", str(seed), outer]
    with daemon_in(place):  # at the end: no process and no control group is left
        done = hostile_stage.run(place, user, command, LIMIT_S)
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    return dict(json.loads(done.stdout))


def is_withstood(facts: dict[str, Any]) -> None:
    """Check what has to hold after any order of ACTS."""
    assert facts["after"] == facts["before"], "a process of others was killed"
    assert not {int(line.split()[0]) for line in facts["reached"]} & set(facts["ours"])
    others = [facts["views"][name] for name in hostile_stage.OTHERS]
    assert [(view["state"], view["restarts"]) for view in others] == [("running", 0)] * 2
    *answers, last = facts["answers"]
    assert (answers, last.split()[:2]) == (["403"] * 5, ["ralphctl", "77"]), last
    ends_are_reported(facts)
    assert {"agent.refused", "repository.repaired", "file.restored"} <= set(facts["types"])
    assert not {"ralph.paused", "ralph.failed", "ralph.done"} & set(facts["types"])
    assert facts["files"] == {"mine": True, ".env.local": True}
    assert (facts["branch"], facts["lost"]) == ("main", [])
    assert facts["kept"] > 0
    assert [line for line in facts["hooks"] if line.endswith("nobody")] == [], "a hook ran outside of a run"
    assert (facts["stopped"], facts["after_stop"]) == ("stopped", {})
    assert (facts["exit_code"], facts["after_all"]) == (0, {})
    assert "Traceback" not in facts["words"]


def ends_are_reported(facts: dict[str, Any]) -> None:
    """Each end was reported with its cause; without a directory to write it to, as lost."""
    acts = defaultdict(list)
    for run_id, _, act in (line.partition(" ") for line in facts["acts"]):
        acts[run_id].append(act)
    ends = {run_id: data for ralph, run_id, data in facts["exits"] if ralph == "demo"}
    lives = dict(line.split() for line in facts["lives"])
    assert list(ends) == list(lives)
    for run_id, data in ends.items():
        end = data["code"] if data["signal"] is None else -data["signal"]
        is_lost = data["outcome"] == "lost" and "remove the state" in acts[run_id]
        assert is_lost or str(end) == lives[run_id], (run_id, data, lives[run_id], acts[run_id])


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("user", [os.geteuid(), USER], ids=["own", "another"])
def test_a_hostile_agent_ends_no_night(tmp_path: Path, user: int) -> None:
    is_withstood(played(tmp_path / "one", user, SEED + user))


@pytest.mark.skipif(not TORTURE_S, reason="make torture")
@pytest.mark.timeout(TORTURE_S + LIMIT_S + 60)
def test_a_hostile_agent_ends_no_night_in_any_order(tmp_path: Path) -> None:
    ends_at, seed = time.monotonic() + TORTURE_S, SEED
    while time.monotonic() < ends_at:
        user = (os.geteuid(), USER)[seed % 2 if os.geteuid() == 0 else 0]
        print(f"SEED={seed} as user {user}", file=sys.stderr)
        is_withstood(played(tmp_path / str(seed), user, seed))
        shutil.rmtree(tmp_path / str(seed))
        seed += 1


def test_the_hostile_agent_refuses_to_play_outside(tmp_path: Path) -> None:
    outer = os.readlink(hostile_stage.OUTER)
    environment = {"RALPHD_SOCKET": str(tmp_path / "none"), "RALPH_NAME": "x", "RALPH_RUN_ID": "x"}
    refused = subprocess.run(
        player("hostile", tmp_path, 1, outer), env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert "plays only in a pid namespace of its own" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def guarded(daemon: Daemon) -> Guarded:
    return Guarded.of(daemon)


GARBAGE = {
    "index": "printf garbage >.git/index",
    "core.bare": "git config core.bare true",
}


@pytest.mark.parametrize("what", GARBAGE)
def test_an_index_or_a_configuration_that_git_cannot_use_is_restored(
    daemon: Daemon, guarded: Guarded, what: str
) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "one")
    guarded.told(1)
    (guarded.place / "mine").write_text("mine\n")
    guarded.does(2, "two", ends=GARBAGE[what])
    assert guarded.told(2)["next"] == "continue"
    guarded.does(3, "three")
    assert guarded.verdict(3)["kind"] == "kept"
    assert guarded.subjects() == ["three", "two", "one", "first"]
    assert guarded.git("status", "--porcelain") == "?? mine"
    assert len(daemon.events("repository.repaired")) == 1


def test_a_revert_survives_a_removed_git_directory(daemon: Daemon, guarded: Guarded) -> None:
    daemon.start()
    guarded.register()
    guarded.does(1, "one")
    guarded.told(1)
    guarded.does(2, "broken")
    assert guarded.verdict(2)["kind"] == "reverted"
    tip = guarded.git("rev-parse", "HEAD")
    guarded.does(3, script="rm -rf .git; git init -q -b main; git add .; git commit -q -m fresh")
    assert guarded.told(3)["next"] == "continue"
    assert guarded.git("rev-parse", "HEAD") == tip
