"""The watch over one run, by a clock that the test holds: sleep and set clocks are no silence (H5)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ralphd.core.stall_detector import SilenceLimits
from ralphd.core.supervision.events import Event, FellSilent
from ralphd.core.supervision.model import Policy, RunId, RunReports, Wait
from ralphd.core.time import Moment
from ralphd.daemon.ralph.live_run import LiveRun
from ralphd.process import shim, tree
from ralphd.process.log.log import RalphLog
from ralphd.process.machine import Clock
from ralphd.process.rundir import RunDirectory, RunRecord
from ralphd.process.spawn import Run
from tests.helpers import eventually

NOON = 1_790_000_000.0
RUN = RunId("r000001-0badcafe")
HOUR_S, DAY_S = 3600.0, 86400.0


class HeldClock(Clock):
    """Stands still until the test lets time pass, sets it, or puts the machine to sleep."""

    def __init__(self) -> None:
        self.wall, self.awake, self.asleep = NOON, 50.0, 0.0

    def now(self) -> Moment:
        return self.wall

    def awake_s(self) -> float:
        return self.awake

    def asleep_s(self) -> float:
        return self.asleep

    def run_for(self, seconds: float) -> None:
        self.wall += seconds
        self.awake += seconds

    def sleep_for(self, seconds: float) -> None:
        """The machine is suspended: the clock on the wall and that of the boot go on."""
        self.wall += seconds
        self.asleep += seconds

    def set_by(self, seconds: float) -> None:
        self.wall += seconds


class Scene:
    """A silent run, watched."""

    def __init__(self, place: Path) -> None:
        self.clock = HeldClock()
        self.told: list[Event] = []
        self.said = RunReports()
        me = os.getpid()
        ticks = tree.start_ticks(me) or 0
        record = RunRecord(RUN, me, ticks, me, ticks, shim.boot_id(), "subreaper", None, NOON)
        run = place / "runs" / RUN
        run.mkdir(parents=True)
        account: Any = SimpleNamespace(
            definition=SimpleNamespace(directory=place, runs_own_loop=False),
            configuration=SimpleNamespace(silence_limits=SilenceLimits),
            policy=Policy(),
            supervision=self,
        )
        account.in_force = account
        live = LiveRun(
            Run(RunDirectory(run)),
            record,
            account,
            log=RalphLog(place / "runs"),
            clock=self.clock,
            post=self.told.append,
        )
        self.watching = live.watching

    async def glances(self) -> None:
        """Have it look now, and wait until it has."""
        seen, self.clock.awake = self.watching.watch, self.clock.awake + 0.001
        self.watching.hurry()
        await eventually(lambda: self.watching.watch.age_s > seen.age_s, what="a glance")


@asynccontextmanager
async def watched(place: Path) -> AsyncIterator[Scene]:
    scene = Scene(place)
    task = asyncio.create_task(scene.watching.run())
    await asyncio.sleep(0)
    try:
        yield scene
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_h5_the_sleep_of_the_machine_is_no_silence(tmp_path: Path) -> None:
    async with watched(tmp_path) as scene:
        scene.clock.run_for(10)
        await scene.glances()
        scene.clock.sleep_for(8 * HOUR_S)
        scene.clock.run_for(5)
        await scene.glances()
        assert 15 <= scene.watching.watch.silent_s < 16
        assert scene.watching.watch.slept_s == 8 * HOUR_S
        assert scene.told == []


async def test_h5_a_clock_that_is_set_is_no_silence_either(tmp_path: Path) -> None:
    async with watched(tmp_path) as scene:
        for step_s in (DAY_S, -HOUR_S, -DAY_S, HOUR_S):
            scene.clock.set_by(step_s)
            scene.clock.run_for(5)
            await scene.glances()
        assert 20 <= scene.watching.watch.silent_s < 21
        assert scene.told == []


async def test_h1_after_three_missed_heartbeats_it_is_told(tmp_path: Path) -> None:
    async with watched(tmp_path) as scene:
        scene.clock.run_for(89)
        await scene.glances()
        assert scene.told == []
        scene.clock.run_for(1)
        await scene.glances()
        await eventually(lambda: scene.told, what="a warning")
        (told,) = scene.told
        assert isinstance(told, FellSilent) and "silent for 90 s" in told.text


async def test_h5_a_reported_wait_is_no_silence_until_its_moment_on_the_wall(tmp_path: Path) -> None:
    async with watched(tmp_path) as scene:
        scene.said = RunReports(wait=Wait("usage_limit", NOON + HOUR_S))
        scene.clock.run_for(HOUR_S - 1)
        await scene.glances()
        assert scene.watching.watch.silent_s == 0
        scene.clock.run_for(2)
        await scene.glances()
        assert 0 < scene.watching.watch.silent_s < 3
        assert scene.told == []
