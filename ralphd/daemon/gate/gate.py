"""The gate of one ralph: no iteration's commits stay that break the tests (R1 to R9).

From where on a ralph's commits are judged, when, and what the tests say before there are any.
"""

import asyncio
from dataclasses import replace
from typing import Any, Final

from ralphd import diagnostics
from ralphd.core.gate.verdict import Baseline, Position, Result
from ralphd.core.supervision.events import BaselineTested, DaemonStopping, Event, StopRequested
from ralphd.core.supervision.model import HAS_A_RUN, Goal, Mode, RunId, Starting, Supervision
from ralphd.core.supervision.reports import (
    IterationFinished,
    IterationStarted,
    Reported,
    boundary_id,
    is_known,
    task_data,
    why_not,
)
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.gate.git_effects import PostRunRepair
from ralphd.daemon.gate.judge import Ask, Begin, BoundaryReport, GateWorker
from ralphd.daemon.gate.undo import Undo
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.services import Services
from ralphd.process.rundir import ExitRecord
from ralphd.store.gate import GateState, LastVerdict

# What a ralph's view tells of its guard.

_SHORT = 7


def guard_view(state: GateState, *, testing_since: Moment | None, has_boundaries: bool) -> dict[str, Any]:
    """The guard of a ralph as the API shows it."""
    return {
        "baseline": state.baseline.value,
        "since": _text(state.since),
        "testing_since": _text(testing_since),
        "boundaries": has_boundaries,
        "verdict": _verdict(state.last),
        "reverted": _verdict(state.reverted),
    }


def _verdict(last: LastVerdict | None) -> dict[str, Any] | None:
    if last is None:
        return None
    return {
        "iteration": last.number,
        "task": task_data(last.task),
        "verdict": last.verdict.value,
        "why": last.why,
        "commits": [sha[:_SHORT] for sha in last.commits],
        "reverted": [sha[:_SHORT] for sha in last.reverted],
        "at": rfc3339(last.at),
    }


def _text(moment: Moment | None) -> str | None:
    return None if moment is None else rfc3339(moment)


RED_BEFORE: Final = "the tests are not green: commits are not judged until they are"
NO_BOUNDARY: Final = (
    "no commit is judged: the command reports no end of an iteration at which it waits. One line in its "
    "loop does: ralphctl notify iteration-finished --wait"
)
UNJUDGED: Final = (
    "what was committed after {since} is not judged: its run ended before the iteration did. The first "
    "verdict of the next run is for it too"
)
SHORT: Final = 7
_BASELINES: Final = {
    Result.GREEN: Baseline.GREEN,
    None: Baseline.UNKNOWN,
    Result.CANNOT_RUN: Baseline.UNKNOWN,
}


class Gate:
    """Judges what a ralph commits. ``ask`` has its Regent carry out a fact, ``begin`` owns its tasks."""

    def __init__(self, account: RalphRecord, services: Services, *, ask: Ask, begin: Begin) -> None:
        self._account = account
        self._services = services
        self._ask = ask
        self._judge = GateWorker(account, services, ask=ask, begin=begin)
        self._memory = self._judge.memory
        self._mending = PostRunRepair(account)
        self.undoing = Undo(account, services, self._judge.hands, self._memory)
        self._tests_baseline = False
        self._is_passed_by = False

    # --- what is so -----------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether commits are judged: it is asked for, and there is a repository."""
        regent = self._account.configuration.regent
        wanted = regent.enabled and regent.rollback_on_test_failure and bool(regent.test_command)
        return wanted and self._judge.hands.has_repository()

    @property
    def is_busy(self) -> bool:
        """Whether tests run, or something is done to the repository."""
        return self._judge.is_at_work or self._tests_baseline

    @property
    def test_run(self) -> RunId | None:
        """The run of the tests that is under way."""
        return self._memory.state.test_run

    def notes(self) -> tuple[str, ...]:
        """What a person should know of it."""
        if not self.is_on:
            return ()
        notes = [] if self._has_boundaries else [NO_BOUNDARY]
        if self._memory.state.baseline is Baseline.RED:
            notes.append(RED_BEFORE)
        if since := self._unjudged_since:
            notes.append(UNJUDGED.format(since=since[:SHORT]))
        return tuple(notes)

    @property
    def _unjudged_since(self) -> str:
        """The commit after which no verdict was said of what came, where nothing runs; else empty."""
        state = self._memory.state
        if isinstance(self._account.supervision.state, HAS_A_RUN) or self.is_busy or not state.is_open:
            return ""
        before, left = state.before, state.left
        if before is None or left is None or left == before or not self._has_boundaries:
            return ""
        return before.head or "the beginning"

    @property
    def _has_boundaries(self) -> bool:
        """Whether there will be something to judge, as far as anybody can tell (R1)."""
        now = self._account.supervision
        is_opaque = self._account.policy.mode is Mode.LOOP and not self._account.policy.own_loop
        unjudged = is_opaque and self._memory.state.last is None
        return not (unjudged and (self._is_passed_by or not now.said.iterates))

    def same(self) -> tuple[object, ...]:
        """What its part of a view is made of."""
        state, is_on = self._memory.state, self.is_on
        known = (state.baseline, state.since, state.last, state.reverted, self._judge.tests.since)
        return (is_on, is_on and self._has_boundaries, *known)

    def view(self) -> dict[str, Any] | None:
        """What the ralph's view tells of it; None where it is off."""
        if not self.is_on:
            return None
        since = self._judge.tests.since
        return guard_view(self._memory.state, testing_since=since, has_boundaries=self._has_boundaries)

    # --- the life of a run ----------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """A run is about to begin: know from where on it is judged. Whether the tests run first (R4).

        Where HEAD has moved since a run ended in the middle of an iteration, somebody else has worked here,
        and none of it is judged.
        """
        self._judge.tests.allow()
        if not self.is_on:
            if self._memory.state.before is not None:
                known = self._memory.state
                await self._memory.save(
                    GateState(last=known.last, reverted=known.reverted, undone=known.undone)
                )
            return False
        now, state = await asyncio.to_thread(self._judge.hands.position), self._memory.state
        if state.is_open and state.left != now:
            state = replace(state, is_open=False, baseline=Baseline.UNKNOWN)
        if not state.is_open:
            state = replace(state, before=now, is_open=self._account.policy.mode is Mode.ITERATION)
        await self._memory.save(replace(state, left=now))
        self._tests_baseline = state.baseline is Baseline.UNKNOWN
        return self._tests_baseline

    async def test_baseline(self) -> None:
        """Run the tests before the first run, in place, and tell what they said (R4)."""
        try:
            ran = await self._judge.run_tests()
        finally:
            self._tests_baseline = False
        self._memory.state = replace(self._memory.state, baseline=_BASELINES.get(ran.result, Baseline.RED))
        if ran.result is None:
            await self._memory.save(replace(self._memory.state, test_run=None))
            if self._services.stopping.is_set():
                return  # the next daemon begins anew
        diagnostics.reach("gate.baseline.done")
        at = self._services.clock.now()
        await self._ask(BaselineTested(at, ran.run_id, ran.result, ran.how))
        if ran.result is not None:  # only now: told anew by the next daemon it has the same id
            await self._memory.save(replace(self._memory.state, test_run=None))

    async def iteration_began(self, head: str | None, branch: str | None) -> None:
        """An iteration begins where its run says, or where HEAD is, unless an earlier one is still open."""
        if self._memory.state.is_open or self._memory.state.judging is not None or not self.is_on:
            return
        now = Position(head, branch) if head else await asyncio.to_thread(self._judge.hands.position)
        await self._memory.save(replace(self._memory.state, before=now, is_open=True))

    async def run_over(self, record: ExitRecord, *, seen: bool = True) -> None:
        """A run has ended: no end is told before what is judged is, nor an iteration of its own unjudged.

        ``seen``: a daemon was there. What was committed after an end that nobody saw is somebody else's.
        """
        await self._judge.settled()
        before = self._memory.state.before
        if (left := await self._mending.after(record, before.branch if before else None)) is not None:
            await self._ask(left)
        if not self.is_on or self._memory.state.before is None:
            return
        if not seen and await asyncio.to_thread(self._judge.hands.is_committed_after, record.ended_at + 1):
            now = await asyncio.to_thread(self._judge.hands.position)
            if now != self._memory.state.before:
                await self._memory.save(
                    replace(self._memory.state, before=now, is_open=False, baseline=Baseline.UNKNOWN)
                )
        elif record.code == 0:
            await self._judge_the_end(record)
        now = await asyncio.to_thread(self._judge.hands.position)
        is_open = self._memory.state.is_open or now != self._memory.state.before
        await self._memory.save(replace(self._memory.state, is_open=is_open, left=now))

    async def _judge_the_end(self, record: ExitRecord) -> None:
        """A run that ended well: its iteration, or what a loop has committed after its last boundary (R1)."""
        number = self._account.supervision.tally.iteration
        if self._account.policy.mode is Mode.ITERATION:
            await self._judge.judge(BoundaryReport(record.run_id, record.run_id, number + 1))
        elif self._account.supervision.said.iterates and self._has_boundaries:
            now = await asyncio.to_thread(self._judge.hands.position)
            if now != self._memory.state.before:
                await self._judge.judge(BoundaryReport(record.run_id, record.run_id, number))

    async def settled(self) -> None:
        """Wait until nothing is being judged. Raises ShuttingDown."""
        await self._judge.settled()

    async def hear(self, fact: Reported) -> LastVerdict | None:
        """Know of an iteration's begin, and judge at its end, where the run waits for the answer."""
        now = self._account.supervision
        if why_not(now, fact) is not None:
            return None
        match fact.report:
            case IterationStarted(head=head, branch=branch):
                await self.iteration_began(head, branch)
            case IterationFinished(waits=True) as report:
                id_ = boundary_id(fact)
                if is_known(now, fact) or not (self.is_on or self._judge.is_at_work):
                    return self._judge.last_of(id_)
                return await self._judge.judge(BoundaryReport(id_, fact.run_id, report.number, report.task))
            case IterationFinished():
                self._is_passed_by = True
            case _:
                pass
        return None

    def heed(self, event: Event, now: Supervision) -> None:
        """End the tests where nobody wants to wait for them any more."""
        kills = isinstance(event, StopRequested | DaemonStopping) and event.now
        unwanted = now.goal is not Goal.RUNNING or isinstance(event, DaemonStopping)
        if kills or (self._tests_baseline and isinstance(now.state, Starting) and unwanted):
            self._judge.tests.cut()

    async def resume(self) -> None:
        """Go on with what an earlier daemon has left; the tests of one that was tied to somebody are over."""
        if self._services.tied is not None:
            self._judge.tests.cut()
        if self._memory.state.judging is not None:
            self._judge.resume()
        elif (run_id := self._memory.state.test_run) is not None:
            now = self._account.supervision
            if not (isinstance(now.state, Starting) and now.goal is Goal.RUNNING):
                await self._judge.tests.end(run_id)
                await self._memory.save(replace(self._memory.state, test_run=None))
