"""Runs the attempts of the loop, plain or in phases, and repairs what an agent left in the repository."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop.model import AttemptOver, Iteration, StartAttempt
from ralphd.core.loop.prompt import previous_of
from ralphd.core.plan import is_promised
from ralphd.git import facts
from ralphd.git.diagnostics import has_locks, in_the_way
from ralphd.git.quarantine import put_away, uncommitted_paths
from ralphd.git.repair import RepairMode, repair
from ralphd.loop.attempt.agent_runner import AgentAnswer, AgentRequest, AgentRunner
from ralphd.loop.attempt.phases import AttemptOutcome, PhasedAttempt
from ralphd.loop.reporter import limit_words

if TYPE_CHECKING:
    from ralphd.core.gate.verdict import Position
    from ralphd.core.loop.state import PauseReason
    from ralphd.core.plan import Plan
    from ralphd.core.time import Moment
    from ralphd.loop.settings import LoopContext
    from ralphd.loop.workdir_files import PlanReader


@dataclass(frozen=True, slots=True)
class BeforeAttempt:
    """The repository before an attempt. ``uncommitted`` None: not known, or nothing will be set aside."""

    at: "Moment"
    position: "Position"
    uncommitted: frozenset[bytes] | None


class AttemptRunner:
    """One attempt after the other. ``latest`` is the last agent's answer, with the attempt's finding."""

    def __init__(
        self,
        context: "LoopContext",
        plans: "PlanReader",
        save: Callable[[Iteration, "PauseReason", str], Awaitable[None]],
    ) -> None:
        self._context = context
        self._plans = plans
        self._mode = RepairMode(context.settings.configuration.git.repair)
        self.agents = AgentRunner(context, save)
        self.is_running = False
        self.latest: AgentAnswer | None = None

    def end(self) -> None:
        """End the attempt now."""
        self.agents.end()

    async def run(self, order: StartAttempt, plan: "Plan | None") -> AttemptOver:
        """Run an attempt; ``plan`` is the task list as it was read last."""
        context, iteration = self._context, order.iteration
        context.reporter.working(iteration.agent)
        has_phases = context.settings.configuration.phases.enabled
        limit_s = order.budget_s if has_phases else order.timeout_s
        context.console.say(f"attempt {iteration.attempt} by {iteration.agent}" + limit_words(limit_s))
        before = await asyncio.to_thread(self._before)
        self.agents.begin()
        self.is_running = True
        try:
            if has_phases:
                outcome = await PhasedAttempt(self.agents, order, plan).run()
            else:
                outcome = await self._run_plain(order, plan)
        finally:
            self.is_running = False
        self.latest = outcome.answer
        await self._repair(before, iteration, outcome.answer)
        return await self._over(outcome, before.position.head, plan)

    async def _run_plain(self, order: StartAttempt, plan: "Plan | None") -> AttemptOutcome:
        iteration = order.iteration
        text = await self.agents.prompts.of(iteration, plan, previous_of(iteration))
        request = AgentRequest(iteration, text, order.timeout_s, iteration.session)
        answer = await self.agents.ask(request)
        promised = is_promised(answer.result.last_message.splitlines())
        return AttemptOutcome(answer, answer.result.session, answer.result.cost_usd or 0.0, promised)

    async def _over(self, outcome: AttemptOutcome, head: str | None, plan: "Plan | None") -> AttemptOver:
        result, directory = outcome.answer.result, self._context.settings.directory
        made = await asyncio.to_thread(lambda: facts.made(directory, head, facts.present_head(directory)))
        self._context.reporter.commits += tuple(commit.sha for commit in reversed(made.commits))
        return AttemptOver(
            at=time.time(),
            finding=outcome.answer.finding,
            plan=await self._plans.read(plan),
            commits=made.count,
            cost_usd=outcome.cost_usd,
            session=outcome.session,
            worked=result.worked or (result.phase is None and bool(made.count)),
            promised=outcome.promised,
            lines=result.lines,
            chance=random.random(),  # noqa: S311 - jitter
            halted=outcome.halted,
        )

    # The repository before and after an attempt: what an agent left half done must not trap the next one.

    def _before(self) -> BeforeAttempt:
        directory = self._context.settings.directory
        aborts = self._mode is RepairMode.ABORT
        uncommitted = uncommitted_paths(directory) if aborts else None
        return BeforeAttempt(time.time(), facts.position(directory), uncommitted)

    async def _repair(self, before: BeforeAttempt, iteration: Iteration, answer: AgentAnswer) -> None:
        """Repair the repository, with a line for the log and for the next agent.

        After a success too: commits on a detached HEAD can be judged once they are on the branch.
        """
        if self._context.settings.configuration.regent.enabled:
            for line in await asyncio.to_thread(self._repaired, before, iteration, answer):
                self._context.console.say(line)
                await asyncio.to_thread(self._context.store.hand_over, line)

    def _repaired(self, before: BeforeAttempt, iteration: Iteration, answer: AgentAnswer) -> list[str]:
        settings, lines = self._context.settings, list[str]()
        label = f"{settings.name}/{settings.run_id or 'run'}-{iteration.number}-{iteration.attempt}"
        if in_the_way(settings.directory) or has_locks(settings.directory):
            lines += repair(
                settings.directory,
                self._mode,
                ended_at=answer.result.ended_at,
                began_at=before.at,
                label=label,
                branch=before.position.branch,
            ).done
        if answer.finding.kind is FailureKind.AGENT_CRASH and before.uncommitted is not None:
            put = put_away(settings.directory, before.uncommitted, label, scratch=settings.home)
            lines.append(put.words)
        return [line for line in lines if line]
