"""Eight ralphs, a person and a daemon that is killed: what landed is green, and nothing is lost (M8)."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.whole.harness import daemon_in
from tests.whole.landing_proof import Figures, Proof
from tests.whole.landing_stage import Pace, Scene

LIMIT_S = 400.0
SEED, TORTURE_S = int(os.environ.get("SEED", "1")), float(os.environ.get("TORTURE_S", "0"))
SHORT = Pace(branches=8, play_s=4.0, kill_s=1.2)
LONG = Pace(branches=38, play_s=60.0, kill_s=5.0)


def played(place: Path, seed: int, pace: Pace) -> Figures:
    """Return the figures of a scene, after which no process is left."""
    with daemon_in(place) as daemon:
        scene = Scene(daemon, seed, pace)
        scene.play()
        assert scene.faults == [], f"seed {seed}:\n" + "\n".join(scene.faults)
        figures = Proof(scene).figures()
    print(figures, file=sys.stderr)
    assert figures.faults == (), f"seed {seed}:\n" + "\n".join(figures.faults)
    return figures


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("seed", [1, 2], ids=["remote", "local"])
def test_what_lands_is_green_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    figures = played(tmp_path / "scene", seed, SHORT)
    assert figures.landed > 0 and figures.kills > 0 and figures.persons_commits > 0


@pytest.mark.skipif(not TORTURE_S, reason="make torture")
@pytest.mark.timeout(TORTURE_S + LIMIT_S)
def test_what_lands_is_green_in_any_order(tmp_path: Path) -> None:
    ends_at, seed = time.monotonic() + TORTURE_S, SEED
    while time.monotonic() < ends_at:
        played(tmp_path / str(seed), seed, LONG)
        shutil.rmtree(tmp_path / str(seed))
        seed += 1
