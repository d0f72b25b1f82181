"""Ralph himself: carries out the orders of ``core/loop/step``, and tells it what came of them (L1 to L13).

One event after the other: each is answered by a pure step, what the step remembers is saved, and then its
orders are carried out. This process may die between any two of these; the next one goes on from the files.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from ralphd.core.loop import tasks
from ralphd.core.loop.model import (
    Began,
    ClearCheckpoint,
    EndLoop,
    Finished,
    FinishIteration,
    Handoff,
    Iteration,
    Judged,
    Loop,
    LoopEvent,
    LoopOrder,
    LoopStep,
    LoopWoke,
    PauseAsked,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
)
from ralphd.core.loop.state import PauseReason
from ralphd.core.loop.step import SET_BACK_S, step
from ralphd.core.supervision.model import Next
from ralphd.core.time import Moment
from ralphd.errors import RalphdError
from ralphd.git.facts import position
from ralphd.loop.attempt.agent_runner import AgentRunner, PromptBuilder
from ralphd.loop.attempt.attempt_runner import AttemptRunner
from ralphd.loop.attempt.phases import PhaseContext
from ralphd.loop.boundary import BoundaryClient, Remote
from ralphd.loop.console import Console, span
from ralphd.loop.report_client import RegentReply, Reports
from ralphd.loop.reporter import OrderReporter, Reporter, begin_words
from ralphd.loop.settings import LoopSettings
from ralphd.loop.store import LoopStore
from ralphd.loop.workdir_files import PlanReader

logger = logging.getLogger(__name__)

LONGEST_SLEEP_S = 30.0
"""Waits follow the wall clock, and a clock can be set: it is looked at this often (H5)."""
LONG_REST_S, LEAD_S = 3.0, 0.4
"""The end of a long wait is prepared for, so that the agent starts when it is over and no later."""
LAST_WORDS_S = 60.0
"""A daemon that is being replaced is back by then."""
ATTEMPTS_KEPT = 30
MOST_WISHES = 16
"""Who asks more often than that, before anything can be done, has been heard."""


class LoopRunner:
    """One loop, from its first look at the tasks to its exit code."""

    def __init__(self, settings: LoopSettings, console: Console, desk: LoopStore) -> None:
        self._now: Callable[[], Moment] = time.time
        self._settings = settings
        self._console = console
        self._desk = desk
        self._reports: Reports = settings.reports(console.say)
        self._scribe = Reporter(self._reports, settings)
        self._remote = Remote(settings, console)
        self._boundary = BoundaryClient(settings, console, self._scribe, self._reports, self._remote)
        self._teller = OrderReporter(console, self._scribe, self._now)
        self._prompts = PromptBuilder(settings, console, desk)
        self._asker = AgentRunner(settings, console, desk, self._save_before_kill)
        hands = PhaseContext(settings, console, desk, self._scribe, self._prompts, self._asker)
        self._plans = PlanReader(settings.directory, settings.tasks)
        self._attempts = AttemptRunner(hands, self._plans)
        self._loop = Loop()
        self._events: asyncio.Queue[LoopEvent] = asyncio.Queue(2 * MOST_WISHES)
        self._work: asyncio.Task[None] | None = None
        self._stop_asked = False
        self._bug: Exception | None = None

    async def run(self, *, resume: bool) -> int:
        """Go through iterations until there is nothing to do; the exit code (L11)."""
        heart = asyncio.create_task(self._beat())
        try:
            event: LoopEvent = await self._begin(resume)
            while not isinstance(self._loop.stage, Finished):
                await self._answer(step(self._loop, event, self._settings.policy))
                if not isinstance(self._loop.stage, Finished):
                    event = await self._next()
                if self._bug is not None:
                    raise self._bug
            return self._loop.stage.code
        except RalphdError as fault:
            self._scribe.ending(EndLoop(78, "configuration", f"{fault.what}: {fault.why}"))
            raise
        finally:
            heart.cancel()
            await self._end_work()
            await asyncio.to_thread(self._reports.close, LAST_WORDS_S)

    def hear(self, number: signal.Signals) -> None:
        """A signal: what it asks for, now or after this iteration."""
        match number:
            case signal.SIGUSR1:
                self._console.say("Pausing after current iteration...")
                self._put(PauseAsked(self._now()))
            case signal.SIGUSR2:
                self._put(Skipped(self._now()))
            case signal.SIGQUIT:
                self._end_at_once()
            case _ if self._stop_asked:
                self._end_at_once()
            case _:
                self._stop_asked = True
                if self._attempts.is_running:
                    self._console.say("ends when this iteration is finished; the same again ends it now")
                elif self._boundary.is_waiting:
                    self._console.say("ends when the verdict is known; the same again ends it now")
                self._put(StopAsked(self._now()))

    def _end_at_once(self) -> None:
        self._put(StopAsked(self._now()))
        if self._attempts.is_running:
            self._attempts.end()
        self._boundary.give_up()

    def _put(self, wish: LoopEvent) -> None:
        """Queue a wish; results have room beside as many wishes as wait."""
        if self._events.qsize() < MOST_WISHES:
            self._events.put_nowait(wish)

    async def _begin(self, resume: bool) -> Began:
        self._scribe.hello()
        await self._prompts.load()
        plan = await self._plans.first()
        memory, ledger, resumed = await asyncio.to_thread(self._desk.load, self._now(), resume=resume)
        self._loop = Loop(memory, ledger)
        counts = tasks.initial_plan(plan, memory.list_file, ledger)
        if counts != plan:
            self._console.say("the task list cannot be read any more: it counts as it was")
        for line in (*self._desk.news(), *begin_words(counts, ledger, self._settings)):
            self._console.say(line)
        if resumed is not None:
            task = f", task {resumed.task_id}" if resumed.task_id else ""
            self._console.say(f"a checkpoint is there: iteration {memory.iteration + 1}{task}")
        if (verdict := await asyncio.to_thread(self._desk.unheard, memory, ledger)) is not None:
            self._console.say(f"{verdict.words} (the loop before did not hear it)")
        return Began(self._now(), plan, resumed, verdict, await asyncio.to_thread(self._desk.undone))

    async def _answer(self, after: LoopStep) -> None:
        """Remember what the step says, then do what it orders."""
        before, self._loop = self._loop, after.loop
        await asyncio.to_thread(self._desk.remember, before, after.loop)
        for line in self._desk.news():
            self._console.say(line)
        for order in after.orders:
            await self._carry_out(order)

    async def _next(self) -> LoopEvent:
        """The next thing that happens; during a wait at the latest its end, or a look at the clock."""
        while isinstance(rest := self._loop.stage, Resting) and self._events.empty():
            if (now := self._now()) < rest.since - SET_BACK_S:
                return LoopWoke(now)
            left_s = rest.until - now
            lead_s = LEAD_S if rest.lasts_s > LONG_REST_S else 0.0
            if left_s <= lead_s:
                self._asker.not_before = rest.until
                return LoopWoke(rest.until)
            sleep_s = 1.0 if self._console.is_terminal else LONGEST_SLEEP_S
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s - lead_s, sleep_s)):
                    return await self._events.get()
            self._console.count_down(f"{rest.reason.replace('_', ' ')}: goes on in {span(left_s)}")
        return await self._events.get()

    async def _carry_out(self, order: LoopOrder) -> None:
        match order:
            case SaveCheckpoint():
                await self._save_checkpoint(order)
            case ClearCheckpoint():
                await asyncio.to_thread(self._desk.clear_checkpoint)
            case StartIteration(iteration=iteration):
                title = f"{iteration.task.id} {iteration.task.title}".strip()
                self._console.say(f"iteration {iteration.number}: {title}")
                await self._remote.pull()
                await self._tell_started(iteration)
            case StartAttempt():
                self._start(self._attempt_it(order))
            case FinishIteration():
                self._console.say(f"iteration {order.iteration.number} is over: {order.summary}")
                if not order.failed:
                    await asyncio.to_thread(self._desk.clear_phases)
                self._start(self._await_verdict(order))
            case Handoff(note=note):
                await asyncio.to_thread(self._desk.hand_over, note)
            case _:
                self._teller.tell(order, self._attempts.latest)

    async def _save_checkpoint(self, order: SaveCheckpoint) -> None:
        loop, limit = self._loop, self._settings.policy.max_iterations
        await asyncio.to_thread(self._desk.save_checkpoint, order, loop.memory, self._now(), limit)
        for line in self._desk.news():
            self._console.say(line)

    async def _attempt_it(self, order: StartAttempt) -> None:
        """Run an attempt, and bring back what it was."""
        self._events.put_nowait(await self._attempts.run(order, self._loop.plan))

    async def _save_before_kill(self, iteration: Iteration, reason: PauseReason, why: str) -> None:
        await self._save_checkpoint(SaveCheckpoint(reason, iteration, None, why))

    async def _await_verdict(self, order: FinishIteration) -> None:
        """Report the boundary and bring back the answer (L9)."""
        answer = await self._boundary.answer(order, self._late)
        plan = await self._plans.read(self._loop.plan)  # as it is after a revert
        reply = answer or RegentReply()
        self._events.put_nowait(Judged(self._now(), reply.next, plan, reply.verdict, unheard=answer is None))

    async def _tell_started(self, iteration: Iteration) -> None:
        """Where HEAD is after our own pull: the commits of the iteration are judged from there on (R2)."""
        is_heard = self._settings.is_supervised
        place = await asyncio.to_thread(position, self._settings.directory) if is_heard else None
        self._scribe.iteration_started(iteration, place)

    def _late(self, answer: Next) -> None:
        """The answer to a boundary that nobody waited for: what it asks for holds all the same."""
        wishes: dict[Next, type[PauseAsked | StopAsked]] = {Next.STOP: StopAsked, Next.PAUSE: PauseAsked}
        if (wish := wishes.get(answer)) is not None:
            self._put(wish(self._now()))

    async def _beat(self) -> None:
        every_s = max(self._settings.configuration.agents.heartbeat_seconds, 0.1)
        while True:
            await asyncio.sleep(every_s)
            self._scribe.heartbeat()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes wrong in the background is a bug that ends the loop, and is not waited for in vain."""
        try:
            await work
        except Exception as bug:
            self._bug = bug
            self._put(LoopWoke(self._now()))

    async def _end_work(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work
