"""Five machines, a hub and faults of each in any order: git alone shows that no work is lost (fleet 12 c)."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.whole.fleet_proof import Figures, Proof
from tests.whole.fleet_stage import FleetScene, Pace

LIMIT_S = 600.0
SEED, TORTURE_S = int(os.environ.get("SEED", "1")), float(os.environ.get("TORTURE_S", "0"))
SHORT = Pace(hosts=5, items=5, steps=9, play_s=15.0, fault_s=0.9)
LONG = Pace(hosts=5, items=10, steps=20, play_s=60.0, fault_s=0.9)


def played(place: Path, seed: int, pace: Pace) -> Figures:
    """Return the figures of a scene, after which no process is left."""
    place.mkdir()
    scene = FleetScene(place, seed, pace)
    with scene.running():
        scene.play()
        figures = Proof(scene).figures()
    print(figures, file=sys.stderr)
    assert figures.faults == (), f"seed {seed}:\n" + "\n".join(figures.faults)
    return figures


@pytest.mark.timeout(LIMIT_S)
def test_no_fault_of_a_fleet_loses_work(tmp_path: Path) -> None:
    figures = played(tmp_path / "scene", 4, SHORT)
    assert figures.pushes > 0 and figures.troubles


@pytest.mark.skipif(not TORTURE_S, reason="make torture")
@pytest.mark.timeout(TORTURE_S + LIMIT_S)
def test_no_fault_of_a_fleet_loses_work_in_any_order(tmp_path: Path) -> None:
    ends_at, seed = time.monotonic() + TORTURE_S, SEED
    while time.monotonic() < ends_at:
        played(tmp_path / str(seed), seed, LONG)
        shutil.rmtree(tmp_path / str(seed))
        seed += 1
