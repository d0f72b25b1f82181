"""Why and when an attempt is ended by us: the first reason counts (L6, L7)."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ralphd.core.explanation import Explanation, in_seconds
from ralphd.core.failures.classify import OurDoing
from ralphd.process.agent_process import AgentProcess


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """An attempt is to be ended. ``line`` is the crash line; ``evidence`` is still to be kept."""

    ours: OurDoing
    why: str
    line: str | None = None
    evidence: Explanation | None = None


class Termination:
    """Gathers what may end an attempt. Times are of the loop's clock, which stands still in sleep.

    An agent that has told its result is never ended for anything else than not going away afterwards.
    """

    def __init__(self, *, exit_grace_s: float, crash_grace_s: float) -> None:
        self.order: TerminationRequest | None = None
        self._exit_grace_s, self._crash_grace_s = exit_grace_s, crash_grace_s
        self._ordered = asyncio.Event()
        self._result: asyncio.TimerHandle | None = None
        self._crash: asyncio.TimerHandle | None = None

    async def ordered(self) -> TerminationRequest:
        """Wait for the first order."""
        await self._ordered.wait()
        assert self.order is not None
        return self.order

    def end(self, order: TerminationRequest) -> None:
        """Have it ended; where that has been ordered already, nothing changes."""
        if self.order is not None:
            return
        if self._result is not None and order.ours is not OurDoing.ASKED:
            order = self._after_result()
        self.order = order
        self._ordered.set()
        self.close()

    def result_told(self) -> None:
        """It has told its result: from now on it has ``exit_grace_s`` to end."""
        self.lived()
        if self.order is None and self._result is None:
            self._result = _later(self._exit_grace_s, lambda: self.end(self._after_result()))

    def went_on(self) -> None:
        """It works: again, where it has told a result already."""
        self.lived()
        if self._result is not None:
            self._result.cancel()
            self._result = None

    def complained(self, line: str) -> None:
        """A line of stderr after which this agent does not go on, as a rule."""
        if self.order is None and self._result is None and self._crash is None:
            why = f"it printed {line[:200]!r}" + _silence_words(self._crash_grace_s)
            order = TerminationRequest(OurDoing.CRASH_PATTERN, why, line=line)
            if self._crash_grace_s <= 0:
                self.end(order)
            else:
                self._crash = _later(self._crash_grace_s, lambda: self.end(order))

    def lived(self) -> None:
        """A sign of life: it goes on after all."""
        if self._crash is not None:
            self._crash.cancel()
            self._crash = None

    def close(self) -> None:
        """Let go of the timers."""
        self.went_on()

    def _after_result(self) -> TerminationRequest:
        grace = in_seconds(self._exit_grace_s)
        return TerminationRequest(
            OurDoing.AFTER_RESULT, f"it had told its result, and did not end within {grace}"
        )


def _later(delay_s: float, act: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, act)


def _silence_words(grace_s: float) -> str:
    return f", and nothing for {in_seconds(grace_s)} after it" if grace_s > 0 else " and is ended at once"


# The life of a process that this loop has started: until it ends by itself, or is asked to.

REAP_S: Final = 1.0
"""How often the orphans of a living process are reaped."""


async def over(process: AgentProcess, endings: Termination) -> TerminationRequest | None:
    """Wait for its end (None), or for an order to end it."""
    exited = asyncio.create_task(process.exited())
    ordered = asyncio.create_task(endings.ordered())
    both = {exited, ordered}
    try:
        while not (exited.done() or ordered.done()):
            await asyncio.wait(both, timeout=REAP_S, return_when=asyncio.FIRST_COMPLETED)
            process.reap_orphans()
    finally:
        for task in both:
            task.cancel()
    return None if process.has_exited else endings.order


async def ask(process: AgentProcess, grace_s: float) -> None:
    """Ask it to end, and give it the time for it."""
    process.ask()
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            await process.exited()
