"""How a wait ends by two clocks: the one on the wall, which can be set, and one that cannot (H5)."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ralphd.core.loop.model import Iteration, Loop, LoopWoke, PauseReason, Resting
from ralphd.core.plan import Task, TaskStatus
from ralphd.loop import runner
from ralphd.loop.attempt.agent_runner import LEAD_S
from ralphd.loop.runner import LoopRunner

START = 1_700_000_000.0
WAIT_S = 900.0


@dataclass(slots=True)
class TwoClocks:
    """Time passes only in sleeps, on both clocks; after ``set_back_after_s`` the wall clock is set back."""

    set_back_after_s: float
    set_back_s: float
    awake_s: float = 50.0
    slept: list[float] = field(default_factory=list)

    def time(self) -> float:
        passed_s = sum(self.slept)
        return START + passed_s - (self.set_back_s if passed_s > self.set_back_after_s else 0.0)

    def monotonic(self) -> float:
        return self.awake_s + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Sleeping(asyncio.Queue[Any]):
    """Nothing ever comes; who waits for it has slept for as long as it was ready to wait."""

    async def get(self) -> Any:
        raise TimeoutError


def resting_runner(rest: Resting) -> LoopRunner:
    """A runner in a wait, with nothing else around it."""
    present = LoopRunner.__new__(LoopRunner)
    present._loop, present._events = Loop(stage=rest), Sleeping()
    present._rest, present._rest_ends_s = Loop().stage, 0.0
    console = SimpleNamespace(is_terminal=False, count_down=lambda text: None)
    vars(present).update(
        _console=console, _accounts=SimpleNamespace(waits=False),
        _attempts=SimpleNamespace(agents=SimpleNamespace(not_before=0.0)),
    )  # fmt: skip
    return present


def waited_s(monkeypatch: pytest.MonkeyPatch, rest: Resting, *, set_back_s: float) -> float:
    """Return how long a wait took by the clock that cannot be set."""
    clocks = TwoClocks(WAIT_S - 100.0, set_back_s)

    class Slept:
        def __init__(self, seconds: float) -> None:
            self._seconds = seconds

        async def __aenter__(self) -> None:
            await clocks.sleep(self._seconds)

        async def __aexit__(self, *fault: object) -> None:
            return None

    monkeypatch.setattr(runner, "time", clocks)
    monkeypatch.setattr(asyncio, "timeout", Slept)
    assert asyncio.run(resting_runner(rest)._next()) == LoopWoke(rest.until)
    return sum(clocks.slept)


def a_rest(*, for_an_agent: bool) -> Resting:
    iteration = Iteration(1, Task("A", "do A", TaskStatus.PENDING), "claude")
    return Resting(iteration, START, START + WAIT_S, PauseReason.OUTAGE, for_an_agent=for_an_agent)


@pytest.mark.parametrize("set_back_s", [0.0, 32.0, 600.0])
def test_night_4788_a_clock_that_is_set_back_makes_no_wait_longer(
    monkeypatch: pytest.MonkeyPatch, set_back_s: float
) -> None:
    waited = waited_s(monkeypatch, a_rest(for_an_agent=False), set_back_s=set_back_s)

    assert WAIT_S - LEAD_S <= waited <= WAIT_S


def test_the_moment_that_a_service_named_is_waited_for_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = waited_s(monkeypatch, a_rest(for_an_agent=True), set_back_s=32.0)

    assert WAIT_S + 32.0 - LEAD_S <= waited <= WAIT_S + 32.0
