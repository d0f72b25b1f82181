"""Ends the processes that the loop starts: why, when, and without a survivor (L5 to L7).

An agent and a review are ended in the same way: SIGTERM and a grace period for the leader, then the sweep of
its tree. ``Termination`` collects the reasons that may end an agent; the first one counts.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ralphd.core.explanation import Explanation, in_seconds
from ralphd.core.failures.classify import OurDoing
from ralphd.dataclass import dataclass

if TYPE_CHECKING:
    from ralphd.loop.attempt.output import Pump
    from ralphd.process.agent_process import AgentProcess, SweepResult

T = TypeVar("T")

REAP_S: Final = 1.0
"""How often the orphans of a living process are reaped."""
SWEEP_S: Final = 10.0
DRAIN_S: Final = 2.0
GRACE_S: Final = 2.0
"""How long an agent has after SIGTERM to save its session; then its tree is killed."""
_HASTY: Final = (OurDoing.CRASH_PATTERN, OurDoing.ASKED)
_HASTY_GRACE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """A process is to be ended. ``line`` is the crash line; ``evidence`` still has to be saved."""

    ours: OurDoing
    why: str
    line: str | None = None
    evidence: Explanation | None = None


class Termination:
    """The reasons to end one process. Times are of the event loop's clock, which stands still in sleep.

    After an agent has reported its result, it is ended for one reason only: that it does not exit.
    """

    def __init__(self, *, exit_grace_s: float = 0.0, crash_grace_s: float = 0.0) -> None:
        self.request: TerminationRequest | None = None
        self._exit_grace_s, self._crash_grace_s = exit_grace_s, crash_grace_s
        self._requested = asyncio.Event()
        self._result: asyncio.TimerHandle | None = None
        self._crash: asyncio.TimerHandle | None = None

    def end(self, request: TerminationRequest) -> None:
        """Request the end. The first request counts."""
        if self.request is not None:
            return
        if self._result is not None and request.ours is not OurDoing.ASKED:
            request = self._after_result()
        self.request = request
        self._requested.set()
        self.close()

    def result_reported(self) -> None:
        """Give the agent ``exit_grace_s`` to exit: it has reported its result."""
        self.alive()
        if self.request is None and self._result is None:
            self._result = _later(self._exit_grace_s, lambda: self.end(self._after_result()))

    def working(self) -> None:
        """Note that the agent works, perhaps again after a result."""
        self.alive()
        if self._result is not None:
            self._result.cancel()
            self._result = None

    def complained(self, line: str) -> None:
        """Note a line of stderr after which this agent usually hangs."""
        if self.request is None and self._result is None and self._crash is None:
            grace_s = self._crash_grace_s
            silence = f"nothing for {in_seconds(grace_s)} after it" if grace_s > 0 else "is ended at once"
            why = f"it printed {line[:200]!r}{',' if grace_s > 0 else ''} and {silence}"
            request = TerminationRequest(OurDoing.CRASH_PATTERN, why, line=line)
            if grace_s <= 0:
                self.end(request)
            else:
                self._crash = _later(grace_s, lambda: self.end(request))

    def alive(self) -> None:
        """Note a sign of life: the crash line was not the end."""
        if self._crash is not None:
            self._crash.cancel()
            self._crash = None

    def close(self) -> None:
        """Cancel the timers."""
        self.working()

    def _after_result(self) -> TerminationRequest:
        why = f"it reported its result, but did not exit within {in_seconds(self._exit_grace_s)}"
        return TerminationRequest(OurDoing.AFTER_RESULT, why)

    async def wait(self, process: "AgentProcess") -> TerminationRequest | None:
        """Wait until ``process`` exits (None) or its end is requested; reap its orphans in between."""
        exited = asyncio.create_task(process.exited())
        requested = asyncio.create_task(self._requested.wait())
        try:
            while not (exited.done() or requested.done()):
                await asyncio.wait({exited, requested}, timeout=REAP_S, return_when=asyncio.FIRST_COMPLETED)
                process.reap_orphans()
        finally:
            exited.cancel()
            requested.cancel()
        return None if process.has_exited else self.request


def _later(delay_s: float, act: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, act)


async def terminate(process: "AgentProcess", request: TerminationRequest) -> None:
    """Send SIGTERM, and wait for the exit, for a grace period at most."""
    process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(_HASTY_GRACE_S if request.ours in _HASTY else GRACE_S):
            await process.exited()


async def supervise(
    process: "AgentProcess", pump: "Pump", termination: Termination, until_ended: Coroutine[Any, Any, T]
) -> "tuple[T, SweepResult]":
    """Await ``until_ended``, then kill what is left of the tree and read the rest of its output.

    Cancelled, it leaves nothing of the tree either.
    """
    try:
        result = await until_ended
        swept = await asyncio.to_thread(process.end, SWEEP_S)
        await pump.drained(DRAIN_S)
        return result, swept
    finally:
        process.end(SWEEP_S)  # returns at once unless this was cancelled before the sweep
        pump.close()
        process.close()
        termination.close()


def exit_code(process: "AgentProcess") -> int | None:
    """Return the exit code, negative for a signal; None where the status is lost."""
    return None if process.status is None else os.waitstatus_to_exitcode(process.status)
