"""``make upgrades``: 0.1.0, then 100 upgrades in a row under load, by two copies of the present code in turn.

SEED=N repeats the choices. In a clone without the commit of 0.1.0, the first daemon is of the present code.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.upgrades import versions
from tests.upgrades.proof import figures_of
from tests.upgrades.stage import Ctl, Scene, cast, rotation
from tests.whole.harness import Daemon, daemon_in

STOP_S = 120.0


def ctl_of(copy: versions.Copy, daemon: Daemon) -> Ctl:
    """Return what runs the ``ralphctl`` of a copy for a daemon."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        environment = {name: text for name, text in daemon.environment.items() if name != "PYTHONPATH"}
        return copy.run("ralphctl", *words, environment=environment)

    return run


def main() -> int:
    """Return 1 if something was lost or done twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrades")
    parser.add_argument("--upgrades", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--seconds", type=float, default=7200.0, help="begin no further upgrade after this time"
    )
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ralphd-upgrades-") as scratch:
        place = Path(scratch)
        new = [versions.present_version(name, place / name) for name in ("a", "b")]
        first = versions.first_version(place / "first") or versions.present_version("c", place / "c")
        with daemon_in(place / "daemon") as daemon:
            scene = Scene(daemon, cast(), random.Random(options.seed))
            scene.begin(ctl_of(first, daemon))
            ctls = rotation([ctl_of(copy, daemon) for copy in new])
            for _ in range(options.upgrades):
                time.sleep(scene.rng.uniform(0.5, 3))
                scene.upgrade(next(ctls))
                if time.monotonic() - began > options.seconds:
                    break
            scene.rest()
            last = next(ctls)
            figures = figures_of(scene)
            ended = last("regent", "stop", "--now", "--wait-timeout", f"{STOP_S:.0f}")
            assert ended.returncode == 0, ended
            left = daemon.leftovers()
    figures.problems += [f"left behind: {left}"] if left else []
    times = sorted(scene.took_s)
    took = f"{(time.monotonic() - began) / 60:.1f} min"
    print(f"{len(times)} upgrades in {took}, the first from {first.name}, seed {options.seed}")
    print(", ".join(f"{count} by {way}" for way, count in sorted(Counter(scene.ways).items())))
    compared = f"{figures.lines} lines compared, {figures.commits} commits, {figures.iterations} iterations"
    print(f"{len(scene.members)} ralphs: {figures.runs} runs, {figures.ends} ends, {compared}")
    print(f"until the next daemon answered: median {times[len(times) // 2]:.2f} s, most {times[-1]:.2f} s")
    print("\n".join(figures.problems) or "nothing was lost, nothing was done twice")
    return 1 if figures.problems else 0


if __name__ == "__main__":
    sys.exit(main())
