"""Runs the review command of an attempt, and says what it found (L15, S9).

It is a process of the loop, like an agent: its tree is its own and ends with it, its output is bounded, and
the only limit that it is held to is that of its time.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ralphd.core.failures.classify import OurDoing
from ralphd.core.loop.review import Review, read_review
from ralphd.loop.attempt.output import KEEP_BYTES, Pump
from ralphd.loop.attempt.termination import Termination, TerminationRequest, ask, over
from ralphd.loop.console import span
from ralphd.process.agent_process import AgentCommand, AgentNotStarted, AgentProcess, start
from ralphd.store.files import write_whole

OUTPUT_BYTES: Final = 4 << 20
"""How much of its output is read: of more the end."""
SWEEP_S: Final = 10.0
DRAIN_S: Final = 2.0
GRACES: Final = {OurDoing.TIMEOUT: 2.0, OurDoing.ASKED: 0.5}


@dataclass(frozen=True, slots=True)
class ReviewPlan:
    """What is to be run, for ``/bin/sh -c``. ``id`` begins its RALPH_ATTEMPT_ID; ``timeout_s`` 0: no limit.

    ``keep`` is a directory for the last of what it prints.
    """

    id: str
    command: str
    directory: Path
    keep: Path
    timeout_s: float
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Reviewing:
    """A review that has ended. ``review`` None: it was ended as somebody asked."""

    review: Review | None
    survivors: tuple[str, ...] = ()


class ReviewRun:
    """One life of the review command."""

    def __init__(self, plan: ReviewPlan) -> None:
        self._plan = plan
        self._endings = Termination(exit_grace_s=0.0, crash_grace_s=0.0)

    async def run(self) -> Reviewing:
        """Run it; returns when nothing of its tree is left. To be called once, in the main thread.

        Raises nothing for what the command does. Cancelled, it ends the tree first.
        """
        plan = self._plan
        if self._endings.order is not None:
            return Reviewing(None)
        argv = ("/bin/sh", "-c", plan.command)
        environment = {**os.environ, **plan.environment}
        try:
            process = await start(AgentCommand(plan.id, argv, plan.directory, environment, has_stdin=False))
        except AgentNotStarted as fault:
            return Reviewing(Review(trouble=f"it could not be started: {fault.why or fault.what}"))
        except OSError as fault:
            return Reviewing(Review(trouble=f"it could not be started: {fault.strerror or fault}"))
        return await self._lived(process)

    def end(self) -> None:
        """Have it ended now; ``run`` then returns."""
        self._endings.end(TerminationRequest(OurDoing.ASKED, "asked to"))

    async def _lived(self, process: AgentProcess) -> Reviewing:
        pump = Pump(process.pipes, b"", out=_pass_over, err=_pass_over, keep_bytes=OUTPUT_BYTES)
        try:
            order = await self._followed(process)
            swept = await asyncio.to_thread(process.end, SWEEP_S)
            await pump.drained(DRAIN_S)
        finally:
            process.end(SWEEP_S)
            pump.close()
            process.close()
            self._endings.close()
        await asyncio.to_thread(self._keep_output, pump)
        survivors = tuple(f"{name} (pid {pid})" for pid, name in swept.survivors.items())
        return Reviewing(self._meant(process, pump, order), survivors)

    async def _followed(self, process: AgentProcess) -> TerminationRequest | None:
        """Until it has ended; why it was ended, where that was our doing."""
        timer = None
        if limit_s := self._plan.timeout_s:
            order = TerminationRequest(OurDoing.TIMEOUT, f"it ran into its time limit of {span(limit_s)}")
            timer = asyncio.get_running_loop().call_later(limit_s, self._endings.end, order)
        try:
            ordered = await over(process, self._endings)
            if ordered is not None:
                await ask(process, GRACES[ordered.ours])
            return ordered
        finally:
            if timer is not None:
                timer.cancel()

    def _meant(self, process: AgentProcess, pump: Pump, order: TerminationRequest | None) -> Review | None:
        if order is not None and order.ours is OurDoing.ASKED:
            return None
        if order is not None:
            return Review(trouble=order.why, timed_out=True)
        code = None if process.status is None else os.waitstatus_to_exitcode(process.status)
        out, err = (reader.tail.data().decode(errors="replace") for reader in (pump.out, pump.err))
        return read_review(code, out, err, cut=pump.out.tail.is_cut)

    def _keep_output(self, pump: Pump) -> None:
        """For people who want to see what was said; a full disk costs only that."""
        with suppress(OSError):
            self._plan.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, reader in (("stdout", pump.out), ("stderr", pump.err)):
                write_whole(self._plan.keep / name, reader.tail.data()[-KEEP_BYTES:], durable=False)


def _pass_over(_lines: list[str]) -> None:
    """It is read when it is whole."""
