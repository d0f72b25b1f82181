"""Runs the loop: carries out the orders of ``core/loop/step``, and feeds back what came of them (L1 to L13).

Events are handled one after the other: each is answered by a pure step, the new state is saved, and then the
step's orders are carried out. This process may die between any two of these; the next one resumes from the
files.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import verdict_line
from ralphd.core.loop import model, tasks
from ralphd.core.loop.model import FinishIteration, Iteration, Loop, PauseReason
from ralphd.core.loop.step import SET_BACK_S, step
from ralphd.core.plan import AUTO, Plan
from ralphd.core.quota.clock import Force
from ralphd.core.quota.model import HoldKind
from ralphd.core.supervision.model import Next
from ralphd.core.text import one_line
from ralphd.errors import RalphdError
from ralphd.git.facts import position
from ralphd.git.remote import pull_rebase, push
from ralphd.loop.accounts import AttemptEnd, LoopAccounts
from ralphd.loop.attempt.agent_runner import LEAD_S
from ralphd.loop.attempt.attempt_runner import AttemptRunner
from ralphd.loop.console import Console, span
from ralphd.loop.report_client import RegentReply, Reports
from ralphd.loop.reporter import LIMITS, Reporter, begin_words, iteration_line
from ralphd.loop.settings import LoopContext, LoopSettings
from ralphd.loop.store import LoopStore
from ralphd.loop.workdir_files import PlanReader

ANSWER_PATIENCE_S = 60.0
AWAY_PATIENCE_S = 1.0
LOOK_S = 0.5
_WAITS_FOR_TESTS = "waiting for the verdict: the tests are running"
_WAITS_FOR_DAEMON = "waiting for the daemon: with the gate on, the loop continues only when a daemon answers"


class BoundaryClient:
    """Asks the Regent what to do after an iteration. Without a gate the loop does not wait for a daemon.

    The iteration's commits are pushed after the verdict, if configured (L9); those of a failed one wait for
    the next.
    """

    def __init__(self, context: LoopContext, reports: Reports) -> None:
        self._settings, self._console, self._reporter = context.settings, context.console, context.reporter
        self._reports = reports
        self._is_given_up = False
        self.is_waiting = False

    def give_up(self) -> None:
        """Wait no longer: the loop ends now, and the next one reads the verdict."""
        self._is_given_up = True

    async def answer(self, order: FinishIteration, late: Callable[[Next], None]) -> RegentReply | None:
        """Return what to do next: continue, where nobody answers in time; then ``late`` gets the answer.

        None: there is a verdict to come that the loop does not wait for any longer.
        """
        report = self._reporter.iteration_finished(order)
        answer = asyncio.wrap_future(report)
        self.is_waiting = True
        try:
            found = await self._patiently(answer)
        finally:
            self.is_waiting = False
        if found is None and self._settings.has_gate:
            report.cancel()
            return None
        if found is None:
            answer.add_done_callback(lambda done: None if done.cancelled() else late(done.result().next))
            found = RegentReply()
        if self._settings.configuration.git.auto_push and not order.failed and _may_be_pushed(found):
            self._console.say(f"push: {await asyncio.to_thread(push, self._settings.directory)}")
        return found

    async def _patiently(self, answer: "asyncio.Future[RegentReply]") -> RegentReply | None:
        """Return the answer; with a gate however long it takes (L9), else None after a limit."""
        waited_s, told = 0.0, ""
        while not answer.done() and not self._is_given_up:
            patience_s = AWAY_PATIENCE_S if self._reports.is_away else ANSWER_PATIENCE_S
            if waited_s >= patience_s and not self._settings.has_gate:
                return None
            waits = _WAITS_FOR_DAEMON if self._reports.is_away else _WAITS_FOR_TESTS
            if waited_s and self._settings.has_gate and waits != told:
                told = waits
                self._console.say(waits)
            await asyncio.wait([answer], timeout=LOOK_S)
            waited_s += LOOK_S
        return answer.result() if answer.done() and not answer.cancelled() else None


def _may_be_pushed(found: RegentReply) -> bool:
    """Not what was reverted, and nothing that a person has to look at first."""
    if found.verdict is None:
        return True
    is_paused = found.next is Next.PAUSE and found.verdict.kind is VerdictKind.UNTESTED
    return found.verdict.kind is not VerdictKind.REVERTED and not is_paused


LONGEST_SLEEP_S = 30.0
"""Waits follow the wall clock, which can be set: it is read this often (H5)."""
LONG_REST_S = 3.0
LAST_WORDS_S = 60.0
"""A daemon that is being replaced is back within this time."""
MOST_REQUESTS = 16
"""More signals than this, before anything can be done, change nothing."""
MOST_WHY_CHARS = 120
FOR_ACCOUNT = (PauseReason.RATE_LIMIT, PauseReason.USAGE_LIMIT, PauseReason.RESOURCES)


class LoopRunner:
    """One loop, from reading the tasks to its exit code."""

    def __init__(self, settings: LoopSettings, console: Console, store: LoopStore) -> None:
        self._settings, self._console, self._store = settings, console, store
        self._reports = settings.reports(console.say)
        self._reporter = Reporter(self._reports, settings)
        self._accounts = LoopAccounts(settings, console.say)
        context = LoopContext(settings, console, store, self._reporter, self._accounts)
        self._boundary = BoundaryClient(context, self._reports)
        tasks_file = settings.configuration.ralph.tasks or AUTO
        self._plans = PlanReader(settings.directory, tasks_file, store.added, self._own_part)
        self._attempts = AttemptRunner(context, self._plans, self._save_before_kill)
        self._loop = Loop()
        self._events: asyncio.Queue[model.LoopEvent] = asyncio.Queue(2 * MOST_REQUESTS)
        self._work: asyncio.Task[None] | None = None
        self._rest, self._rest_ends_s = self._loop.stage, 0.0
        self._stop_asked = False
        self._bug: Exception | None = None

    def _own_part(self, plan: Plan) -> Plan:
        return self._store.own_part(plan, self._loop.ledger)

    async def run(self, *, resume: bool) -> int:
        """Run iterations until there is nothing to do; return the exit code (L11)."""
        heart = asyncio.create_task(self._beat())
        try:
            event: model.LoopEvent = await self._begin(resume)
            while not isinstance(self._loop.stage, model.Finished):
                after = step(self._loop, event, self._settings.policy)
                await self._tell_accounts(event, after)
                await self._carry_out_all(after)
                if not isinstance(self._loop.stage, model.Finished):
                    event = await self._next()
                if isinstance(self._loop.stage, model.Resting):  # a person may have changed the list
                    plan = tasks.latest(self._loop.plan, await self._plans.read(self._loop.plan))
                    self._loop = replace(self._loop, plan=plan)
                if self._bug is not None:
                    raise self._bug
            return self._loop.stage.code
        except RalphdError as fault:
            self._reporter.ending(model.EndLoop(78, "configuration", f"{fault.what}: {fault.why}"))
            raise
        finally:
            heart.cancel()
            if self._work is not None and not self._work.done():
                self._work.cancel()
                with suppress(asyncio.CancelledError):
                    await self._work
            await asyncio.to_thread(self._accounts.leave)
            await asyncio.to_thread(self._reports.close, LAST_WORDS_S)

    def on_signal(self, number: signal.Signals) -> None:
        """Act on a signal: now, or after this iteration."""
        match number:
            case signal.SIGUSR1:
                if not self._settings.is_supervised:  # else the Regent's line is in the same log
                    self._console.say("Pausing after current iteration...")
                self._put(model.PauseAsked(time.time()))
            case signal.SIGUSR2:
                self._put(model.Skipped(time.time()))
            case _ if number is signal.SIGQUIT or self._stop_asked:
                self._end_at_once()
            case _:
                self._stop_asked = True
                if self._attempts.is_running:
                    self._console.say("stopping after this iteration; repeat the request to stop now")
                elif self._boundary.is_waiting:
                    self._console.say("stopping after the verdict; repeat the request to stop now")
                self._put(model.StopAsked(time.time()))

    def _end_at_once(self) -> None:
        self._put(model.StopAsked(time.time()))
        if self._attempts.is_running:
            self._attempts.agents.end()
        self._boundary.give_up()

    def _put(self, request: model.LoopEvent) -> None:
        if self._events.qsize() < MOST_REQUESTS:  # the rest of the queue is room for results
            self._events.put_nowait(request)

    async def _begin(self, resume: bool) -> model.Began:
        self._reporter.working(self._settings.policy.agents[0])
        await self._attempts.agents.prompts.load()
        plan = await self._plans.first()
        memory, ledger, resumed = await asyncio.to_thread(self._store.load, time.time(), resume=resume)
        self._loop = Loop(memory, ledger)
        counts = tasks.initial_plan(plan, memory.list_file, ledger)
        if counts != plan:
            self._console.say("the task list can no longer be read; its last content is used")
        for line in (*self._store.news(), *begin_words(counts, ledger, self._settings)):
            self._console.say(line)
        if resumed is not None:
            task = f", task {resumed.task.title or resumed.task.id}" if resumed.task else ""
            self._console.say(f"resuming from the checkpoint: iteration {memory.iteration + 1}{task}")
        news = await asyncio.to_thread(self._store.gate_news, memory, ledger)
        if news.verdict is not None:
            self._console.say(f"{verdict_line(news.verdict)} (from the previous run)")
        return model.Began(time.time(), plan, resumed, news)

    async def _tell_accounts(self, event: model.LoopEvent, after: model.LoopStep) -> None:
        """Share what the event means for the accounts, before anything else is done (Q2)."""
        match self._loop.stage, event:
            case model.Attempting(iteration=iteration), model.AttemptOver():
                end = self._attempt_end(iteration.agent, event, after)
                await asyncio.to_thread(self._accounts.ended, end)
            case model.Resting(reason=reason), model.Skipped() if reason in FOR_ACCOUNT:
                self._accounts.force = Force.ALL
            case model.Begin(), model.Began(resumed=model.Checkpoint() as resumed):
                if self._settings.policy.pause_when_exhausted and resumed.waits_for_limit:
                    self._accounts.force = Force.GUESSES

    def _attempt_end(self, agent: str, event: model.AttemptOver, after: model.LoopStep) -> AttemptEnd:
        """Return what the attempt's end means for its account; until when, as the step has decided."""
        finding, kind, policy = event.finding, event.finding.kind, self._settings.policy
        if kind is None or kind not in LIMITS:
            return AttemptEnd(agent, answered=event.worked or (kind is None and not finding.asked))
        guessed = finding.reset is None or finding.reset.until <= event.at
        until = next((each.until for each in after.orders if isinstance(each, model.ReportAttempt)), None)
        if until is None:
            known = None if finding.reset is None else finding.reset.until + policy.reset_margin_s
            until = event.at + policy.rate_limit_s if guessed or known is None else known
        why = one_line(finding.why, MOST_WHY_CHARS).rstrip(".")
        return AttemptEnd(agent, False, why, until, guessed, kind is FailureKind.RATE_LIMIT)

    async def _carry_out_all(self, after: model.LoopStep) -> None:
        """Save the new state, then carry out the orders."""
        before, self._loop = self._loop, after.loop
        await asyncio.to_thread(self._store.remember, before, after.loop)
        self._say_news()
        for order in after.orders:
            await self._carry_out(order)

    def _say_news(self) -> None:
        for line in self._store.news():
            self._console.say(line)

    async def _next(self) -> model.LoopEvent:
        """Wait for the next event; during a wait its end is one, and a clock that was set back."""
        while isinstance(rest := self._loop.stage, model.Resting) and self._events.empty():
            if (now := time.time()) < rest.since - SET_BACK_S:
                return model.LoopWoke(now)
            if rest is not self._rest:
                self._rest, self._rest_ends_s = rest, time.monotonic() + rest.lasts_s
            # A clock that is set back makes no wait longer, except for a moment that a service named.
            left_s = min(rest.until - now, inf if rest.for_an_agent else self._rest_ends_s - time.monotonic())
            lead_s = LEAD_S if rest.lasts_s > LONG_REST_S else 0.0
            if left_s <= lead_s:
                self._attempts.agents.not_before = rest.until
                return model.LoopWoke(rest.until)
            sleep_s = 1.0 if self._console.is_terminal else LONGEST_SLEEP_S
            if rest.reason in FOR_ACCOUNT and self._accounts.waits:
                if (agent := await asyncio.to_thread(self._accounts.freed, now)) is not None:
                    return model.AccountFreed(now, agent)
                sleep_s = LOOK_S
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s - lead_s, sleep_s)):
                    return await self._events.get()
            words = f"{rest.reason.replace('_', ' ')}: continues in {span(left_s)}"
            self._console.count_down("waiting for a slot" if rest.reason is PauseReason.RESOURCES else words)
        return await self._events.get()

    async def _carry_out(self, order: model.LoopOrder) -> None:
        match order:
            case model.SaveCheckpoint():
                await asyncio.to_thread(self._store.save_checkpoint, order, self._loop.memory, time.time())
                self._say_news()
            case model.ClearCheckpoint():
                await asyncio.to_thread(self._store.clear_checkpoint)
            case model.StartIteration(iteration=iteration):
                task, directory = iteration.task, self._settings.directory
                self._console.say(f"iteration {iteration.number}: {task.title or task.id}")
                if self._settings.configuration.git.auto_pull_rebase:
                    self._console.say(f"pull: {await asyncio.to_thread(pull_rebase, directory)}")
                # HEAD after our own pull: the commits of the iteration are judged from there on (R2).
                head = await asyncio.to_thread(position, directory) if self._settings.is_supervised else None
                self._reporter.iteration_started(iteration, head)
            case model.StartAttempt():
                self._start(self._attempt(order))
            case model.FinishIteration():
                if not order.failed:
                    await asyncio.to_thread(self._store.clear_phases)
                self._start(self._await_verdict(order))
            case model.Handoff(note=note):
                await asyncio.to_thread(self._store.hand_over, note)
            case _:
                self._reporter.report_order(order, self._attempts.latest, self._console)

    async def _save_before_kill(self, iteration: Iteration, reason: PauseReason, why: str) -> None:
        await self._carry_out(model.SaveCheckpoint(reason, iteration, None, why))

    async def _attempt(self, order: model.StartAttempt) -> None:
        """Run the attempt if its account permits it (Q2)."""
        agent, now = order.iteration.agent, time.time()
        at = max(now, min(self._attempts.agents.not_before, now + LEAD_S))
        if (hold := await asyncio.to_thread(self._accounts.ask, agent, at)) is not None:
            for_slot = hold.kind is HoldKind.SLOTS
            self._events.put_nowait(model.HeldBack(now, hold.until, hold.why, hold.brief, for_slot))
            return
        self._events.put_nowait(await self._attempts.run(order, self._loop.plan))

    async def _await_verdict(self, order: model.FinishIteration) -> None:
        """Report the boundary and bring back the answer (L9)."""
        known = self._loop.plan
        before = await asyncio.to_thread(self._plans.content, known)
        answer = await self._boundary.answer(order, self._late)
        self._console.say(iteration_line(order, None if answer is None else answer.verdict))
        reply = answer or RegentReply()
        if reply.verdict is not None and reply.verdict.kind is VerdictKind.REVERTED:
            await self._attempts.restore_list(known)  # the revert may have left its removal
            commits = reply.verdict.reverted
            if known and (line := await asyncio.to_thread(self._plans.restore_tasks, known, before, commits)):
                self._console.say(line)
        plan = await self._plans.read(known)  # as it is after a revert
        event = model.Judged(time.time(), reply.next, plan, reply.verdict, unheard=answer is None)
        self._events.put_nowait(event)

    def _late(self, answer: Next) -> None:
        """Act on an answer that came after the loop had stopped waiting for it."""
        if answer is Next.STOP:
            self._put(model.StopAsked(time.time()))
        elif answer is Next.PAUSE:
            self._put(model.PauseAsked(time.time()))

    async def _beat(self) -> None:
        every_s = max(self._settings.configuration.agents.heartbeat_seconds, 0.1)
        while True:
            await asyncio.sleep(every_s)
            self._reporter.heartbeat()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as bug:  # raised by ``run``: the loop must not wait for a result that never comes
            self._bug = bug
            self._put(model.LoopWoke(time.time()))
