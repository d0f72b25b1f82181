"""Ralph himself: carries out the orders of ``core/loop``, and tells it what came of them (L1 to L13).

One event after the other: each is answered by a pure step, what the step remembers is saved, and then its
orders are carried out. This process may die between any two of these; the next one goes on from the files.
"""

import asyncio
import logging
import random
import shutil
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ralphd.agents.agent import Order
from ralphd.agents.zone import local_zone
from ralphd.core import tasks
from ralphd.core.checkpoint import PauseReason
from ralphd.core.classify import Finding, OurDoing, Rules, classify
from ralphd.core.loop import step
from ralphd.core.loop_model import (
    Attempting,
    AttemptOver,
    Began,
    ClearCheckpoint,
    End,
    FinishIteration,
    Handoff,
    Iteration,
    Judged,
    Loop,
    LoopEvent,
    LoopOrder,
    LoopStep,
    Over,
    PauseAsked,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
    Woke,
)
from ralphd.core.model import Moment, Next
from ralphd.core.plan import Plan, is_promised
from ralphd.core.prompt import previous_of, prompt
from ralphd.errors import RalphdError, in_one_line
from ralphd.git.range import Made, made, present_head
from ralphd.git.trouble import present_trouble
from ralphd.loop.attempt import Attempt, AttemptPlan, AttemptResult
from ralphd.loop.boundary import Boundary
from ralphd.loop.console import Console, span
from ralphd.loop.desk import Desk
from ralphd.loop.link import Reports
from ralphd.loop.plan import AUTO, read_plan
from ralphd.loop.prompt_file import read_prompt
from ralphd.loop.remote import Remote
from ralphd.loop.scribe import Scribe
from ralphd.loop.settings import Settings
from ralphd.loop.telling import Teller, limit_words, list_words
from ralphd.loop.witness import Witness

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


class Ralph:
    """One loop, from its first look at the tasks to its exit code."""

    def __init__(self, settings: Settings, console: Console, desk: Desk) -> None:
        self._now: Callable[[], Moment] = time.time
        self._settings = settings
        self._console = console
        self._desk = desk
        self._reports: Reports = settings.reports(console.say)
        self._scribe = Scribe(self._reports, settings)
        self._remote = Remote(settings, console)
        self._boundary = Boundary(settings, console, self._scribe, self._reports, self._remote)
        self._teller = Teller(console, self._scribe, self._now)
        self._loop = Loop()
        self._list = settings.tasks
        self._events: asyncio.Queue[LoopEvent] = asyncio.Queue(2 * MOST_WISHES)
        self._attempt: Attempt | None = None
        self._work: asyncio.Task[None] | None = None
        self._result: tuple[AttemptResult, Finding] | None = None
        self._stop_asked = False
        self._not_before: Moment = 0.0
        self._bug: Exception | None = None
        self._prompt = ""

    async def run(self, *, resume: bool) -> int:
        """Go through iterations until there is nothing to do; the exit code (L11)."""
        heart = asyncio.create_task(self._beat())
        try:
            event: LoopEvent = await self._begin(resume)
            while not isinstance(self._loop.stage, Over):
                await self._answer(step(self._loop, event, self._settings.policy))
                if not isinstance(self._loop.stage, Over):
                    event = await self._next()
                if self._bug is not None:
                    raise self._bug
            return self._loop.stage.code
        except RalphdError as fault:
            self._scribe.ending(End(78, "configuration", f"{fault.what}: {fault.why}"))
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
                if self._attempt is not None:
                    self._console.say("ends when this iteration is finished; the same again ends it now")
                self._put(StopAsked(self._now()))

    def _end_at_once(self) -> None:
        self._put(StopAsked(self._now()))
        if self._attempt is not None:
            self._attempt.end(OurDoing.ASKED)

    def _put(self, wish: LoopEvent) -> None:
        """Queue a wish; results have room beside as many wishes as wait."""
        if self._events.qsize() < MOST_WISHES:
            self._events.put_nowait(wish)

    async def _begin(self, resume: bool) -> Began:
        self._scribe.hello()
        self._prompt = await asyncio.to_thread(
            read_prompt, self._settings.directory, self._settings.prompt_file
        )
        plan = await self._read_plan()
        if plan is not None and plan.tasks:
            self._list = plan.file
        memory, ledger, resumed = await asyncio.to_thread(self._desk.load, self._now(), resume=resume)
        self._loop = Loop(memory, ledger)
        for line in self._desk.news():
            self._console.say(line)
        self._console.say(list_words(plan))
        if resumed is not None:
            task = f", task {resumed.task_id}" if resumed.task_id else ""
            self._console.say(f"a checkpoint is there: iteration {memory.iteration + 1}{task}")
        return Began(self._now(), plan, resumed)

    async def _read_plan(self) -> Plan | None:
        plan = await asyncio.to_thread(read_plan, self._settings.directory, self._list)
        if plan is not None and self._settings.tasks == AUTO and not plan.tasks and plan.fault is None:
            return None if not tasks.has_tasks(self._loop.plan) else plan
        return plan

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
            left_s = rest.until - self._now()
            lead_s = LEAD_S if rest.lasts_s > LONG_REST_S else 0.0
            if left_s <= lead_s:
                self._not_before = rest.until
                return Woke(rest.until)
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
                self._scribe.iteration_started(iteration)
            case StartAttempt():
                self._start(self._attempt_it(order))
            case FinishIteration():
                self._console.say(f"iteration {order.iteration.number} is over: {order.summary}")
                self._start(self._await_verdict(order))
            case Handoff(note=note):
                await asyncio.to_thread(self._desk.hand_over, note)
            case _:
                self._teller.tell(order, self._result)

    async def _save_checkpoint(self, order: SaveCheckpoint) -> None:
        loop, limit = self._loop, self._settings.policy.max_iterations
        await asyncio.to_thread(self._desk.save_checkpoint, order, loop.memory, self._now(), limit)
        for line in self._desk.news():
            self._console.say(line)

    async def _attempt_it(self, order: StartAttempt) -> None:
        """Run an attempt, and bring back what it was."""
        iteration = order.iteration
        agent = self._settings.agents[iteration.agent]
        self._scribe.working(agent.name)
        self._console.say(f"attempt {iteration.attempt} by {agent.name}" + limit_words(order.timeout_s))
        before = await asyncio.to_thread(present_head, self._settings.directory)
        text = await self._prompt_of(order)
        place = self._settings.keep / f"{iteration.number:05d}-{iteration.attempt:02d}"
        plan = AttemptPlan(
            id=f"{self._settings.run_id or self._settings.name}-{iteration.number}-{iteration.attempt}",
            agent=agent,
            order=Order(text, self._desk.prompt_file, iteration.session),
            directory=self._settings.directory,
            keep=place,
            timeout_s=order.timeout_s,
            limits=replace(self._settings.configuration.limits(), max_run_s=0.0),
            exit_grace_s=self._settings.configuration.agents.exit_grace_seconds,
            crash_grace_s=self._settings.configuration.agents.crash_pattern_grace_seconds,
            environment=self._settings.environment,
        )
        save = partial(self._save_before_kill, iteration)
        self._attempt = Attempt(plan, Witness(self._console, agent.name, save))
        await asyncio.sleep(min(max(self._not_before - self._now(), 0.0), LEAD_S))
        try:
            result = await self._attempt.run()
        finally:
            self._attempt = None
        await asyncio.to_thread(_prune, self._settings.keep)
        self._events.put_nowait(await self._over(result, agent.name, before))

    async def _save_before_kill(self, iteration: Iteration, reason: PauseReason, why: str) -> None:
        await self._save_checkpoint(SaveCheckpoint(reason, iteration, None, why))

    async def _prompt_of(self, order: StartAttempt) -> str:
        iteration, directory = order.iteration, self._settings.directory
        try:
            self._prompt = await asyncio.to_thread(read_prompt, directory, self._settings.prompt_file)
        except RalphdError as fault:
            self._console.say(f"the last known prompt is used: {in_one_line(fault)}")
        text = prompt(
            self._prompt,
            task=iteration.task,
            plan=self._loop.plan,
            handoff=await asyncio.to_thread(self._desk.handoff),
            trouble=await asyncio.to_thread(present_trouble, directory),
            previous_attempt_context=previous_of(iteration),
        )
        await asyncio.to_thread(self._desk.keep_prompt, text)
        return text

    async def _over(self, result: AttemptResult, name: str, before: str | None) -> AttemptOver:
        agent = self._settings.agents[name]
        rules = Rules(name, agent.patterns, agent.exits, agent.has_verdict, local_zone())
        finding = classify(result.evidence, rules, now=self._now())
        self._result = result, finding
        commits = await asyncio.to_thread(_made_since, self._settings.directory, before)
        self._scribe.commits += tuple(commit.sha for commit in reversed(commits.commits))
        assert isinstance(self._loop.stage, Attempting)
        return AttemptOver(
            at=self._now(),
            finding=finding,
            plan=await self._read_plan(),
            commits=commits.count,
            cost_usd=result.cost_usd or 0.0,
            session=result.session,
            worked=result.worked or bool(commits.count),
            promised=is_promised(result.last_message.splitlines()),
            lines=result.lines,
            chance=random.random(),  # noqa: S311 - jitter
        )

    async def _await_verdict(self, order: FinishIteration) -> None:
        """Report the boundary and bring back the answer (L9)."""
        answer = await self._boundary.answer(order, self._late)
        self._events.put_nowait(Judged(self._now(), answer, await self._read_plan()))

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
            self._put(Woke(self._now()))

    async def _end_work(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            with suppress(asyncio.CancelledError):
                await self._work


def _made_since(directory: Path, before: str | None) -> Made:
    return made(directory, before, present_head(directory))


def _prune(keep: Path) -> None:
    """Forget the raw output of all attempts but the last ones."""
    with suppress(OSError):
        for old in sorted(keep.iterdir())[:-ATTEMPTS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
