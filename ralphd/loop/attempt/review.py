"""Runs the review command of an attempt, and reads its findings (L15).

It is a process of the loop, like an agent: its tree ends with it, its output is bounded, and its only limit
is that of time.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphd.core.failures.classify import OurDoing
from ralphd.core.loop.review import Review, read_review
from ralphd.loop.attempt.output import Pump
from ralphd.loop.attempt.termination import Termination, TerminationRequest, exit_code, supervise, terminate
from ralphd.loop.console import span
from ralphd.process.agent_process import AgentCommand, AgentNotStarted, AgentProcess, start

OUTPUT_BYTES: Final = 4 << 20
"""How much of its output is read; of more, the end."""
GRACES: Final = {OurDoing.TIMEOUT: 2.0, OurDoing.ASKED: 0.5}


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """A review that has ended. ``review`` None: it was ended on request."""

    review: Review | None
    survivors: tuple[str, ...] = ()


class ReviewRun:
    """One process of the review command. ``timeout_s`` 0: no limit. ``keep``: a directory for its output."""

    def __init__(self, command: AgentCommand, keep: Path, timeout_s: float) -> None:
        self._command, self._keep, self._timeout_s = command, keep, timeout_s
        self._termination = Termination()

    async def run(self) -> ReviewResult:
        """Run it; return when nothing of its tree is left. To be called once, in the main thread.

        Raises nothing for what the command does. Cancelled, it ends the tree first.
        """
        if self._termination.request is not None:
            return ReviewResult(None)
        try:
            process = await start(self._command)
        except AgentNotStarted as fault:
            return ReviewResult(Review(trouble=f"it could not be started: {fault.why or fault.what}"))
        except OSError as fault:
            return ReviewResult(Review(trouble=f"it could not be started: {fault.strerror or fault}"))
        pump = Pump(process.pipes, b"", out=_ignore, err=_ignore, keep_bytes=OUTPUT_BYTES)
        request, swept = await supervise(process, pump, self._termination, self._until_ended(process))
        await asyncio.to_thread(pump.keep, self._keep)
        survivors = tuple(f"{name} (pid {pid})" for pid, name in swept.survivors.items())
        if request is not None:
            is_timeout = request.ours is OurDoing.TIMEOUT
            return ReviewResult(
                Review(trouble=request.why, timed_out=True) if is_timeout else None, survivors
            )
        out, err = (reader.tail.data().decode(errors="replace") for reader in (pump.out, pump.err))
        return ReviewResult(read_review(exit_code(process), out, err, cut=pump.out.tail.is_cut), survivors)

    def end(self) -> None:
        """End it now; ``run`` then returns."""
        self._termination.end(TerminationRequest(OurDoing.ASKED, "asked to"))

    async def _until_ended(self, process: AgentProcess) -> TerminationRequest | None:
        timer = None
        if limit_s := self._timeout_s:
            why = f"it ran into its time limit of {span(limit_s)}"
            request = TerminationRequest(OurDoing.TIMEOUT, why)
            timer = asyncio.get_running_loop().call_later(limit_s, self._termination.end, request)
        try:
            reason = await self._termination.wait(process)
            if reason is not None:
                await terminate(process, GRACES[reason.ours])
            return reason
        finally:
            if timer is not None:
                timer.cancel()


def _ignore(_lines: list[str]) -> None:
    """Review output is read as a whole when the command has ended."""
