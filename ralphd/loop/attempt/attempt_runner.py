"""Runs the attempts of the loop, plain or in phases, and brings back what each of them was."""

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict import Position
from ralphd.core.loop.model import AttemptOver, Iteration, StartAttempt
from ralphd.core.loop.prompt import previous_of
from ralphd.core.plan import Plan, is_promised
from ralphd.core.time import Moment
from ralphd.git.diagnostics import has_locks, in_the_way
from ralphd.git.facts import Made, made, position, present_head
from ralphd.git.quarantine import put_away, uncommitted_paths
from ralphd.git.repair import RepairMode, repair
from ralphd.loop.attempt.agent_runner import AgentAnswer, AgentRequest
from ralphd.loop.attempt.phases import Ended, PhaseContext, PhasedAttempt
from ralphd.loop.console import Console
from ralphd.loop.reporter import limit_words
from ralphd.loop.settings import LoopSettings
from ralphd.loop.store import LoopStore
from ralphd.loop.workdir_files import PlanReader

# What an agent has left in the repository, looked at when its tree is gone.


@dataclass(frozen=True, slots=True)
class BeforeAttempt:
    """How the repository was before an attempt. ``uncommitted`` None: not known, or nothing is set aside."""

    at: Moment
    position: Position
    uncommitted: frozenset[bytes] | None


class PostAttemptRepair:
    """Looks after the repository between the attempts of one loop."""

    def __init__(self, settings: LoopSettings, console: Console, desk: LoopStore) -> None:
        self._settings = settings
        self._console = console
        self._desk = desk
        self._mode = RepairMode(settings.configuration.git.repair)

    async def before(self) -> BeforeAttempt:
        """Look how it is, before an agent is started."""
        return await asyncio.to_thread(self._before)

    def _before(self) -> BeforeAttempt:
        directory = self._settings.directory
        aborts = self._mode is RepairMode.ABORT
        uncommitted = uncommitted_paths(directory) if aborts else None
        return BeforeAttempt(time.time(), position(directory), uncommitted)

    async def after(self, before: BeforeAttempt, iteration: Iteration, answer: AgentAnswer) -> None:
        """Mend what is to be mended after an attempt; the next agent is told, and the log.

        After a good one too: whoever did the task on a detached HEAD has done it, and its commits can be
        judged once they are on the branch.
        """
        if not self._settings.configuration.regent.enabled:
            return
        for line in await asyncio.to_thread(self._mended, before, iteration, answer):
            self._console.say(line)
            await asyncio.to_thread(self._desk.hand_over, line)

    def _mended(self, before: BeforeAttempt, iteration: Iteration, answer: AgentAnswer) -> tuple[str, ...]:
        settings = self._settings
        lines: list[str] = []
        where, branch = settings.directory, before.position.branch
        label = f"{settings.name}/{settings.run_id or 'run'}-{iteration.number}-{iteration.attempt}"
        if in_the_way(where) or has_locks(where):
            ended_at, began_at = answer.result.ended_at, before.at
            lines += repair(
                where, self._mode, ended_at=ended_at, began_at=began_at, label=label, branch=branch
            ).done
        if answer.finding.kind is FailureKind.AGENT_CRASH and before.uncommitted is not None:
            lines.append(put_away(where, before.uncommitted, label, scratch=settings.home).words)
        return tuple(filter(None, lines))


class AttemptRunner:
    """One attempt after the other. ``latest`` is the last agent's answer, with what the attempt was."""

    def __init__(self, hands: PhaseContext, plans: PlanReader) -> None:
        self._hands = hands
        self._plans = plans
        self._aftermath = PostAttemptRepair(hands.settings, hands.console, hands.desk)
        self.is_running = False
        self.latest: AgentAnswer | None = None

    def end(self) -> None:
        """Have the attempt ended now."""
        self._hands.asker.end()

    async def run(self, order: StartAttempt, plan: Plan | None) -> AttemptOver:
        """Run an attempt; ``plan`` is what the task list said last."""
        hands, iteration = self._hands, order.iteration
        hands.scribe.working(iteration.agent)
        limit_s = order.budget_s if hands.settings.configuration.phases.enabled else order.timeout_s
        hands.console.say(f"attempt {iteration.attempt} by {iteration.agent}" + limit_words(limit_s))
        before = await self._aftermath.before()
        hands.asker.begin()
        self.is_running = True
        try:
            ended = await self._run(order, plan)
        finally:
            self.is_running = False
        self.latest = ended.answer
        await self._aftermath.after(before, iteration, ended.answer)
        return await self._over(ended, before.position.head, plan)

    async def _run(self, order: StartAttempt, plan: Plan | None) -> Ended:
        if self._hands.settings.configuration.phases.enabled:
            return await PhasedAttempt(self._hands, order, plan).run()
        iteration = order.iteration
        text = await self._hands.prompts.of(iteration, plan, previous_of(iteration))
        answer = await self._hands.asker.ask(
            AgentRequest(iteration, text, order.timeout_s, iteration.session)
        )
        promised = is_promised(answer.result.last_message.splitlines())
        return Ended(answer, answer.result.session, answer.result.cost_usd or 0.0, promised)

    async def _over(self, ended: Ended, before: str | None, plan: Plan | None) -> AttemptOver:
        result = ended.answer.result
        commits = await asyncio.to_thread(_made_since, self._hands.settings.directory, before)
        self._hands.scribe.commits += tuple(commit.sha for commit in reversed(commits.commits))
        return AttemptOver(
            at=time.time(),
            finding=ended.answer.finding,
            plan=await self._plans.read(plan),
            commits=commits.count,
            cost_usd=ended.cost_usd,
            session=ended.session,
            worked=result.worked or (result.phase is None and bool(commits.count)),
            promised=ended.promised,
            lines=result.lines,
            chance=random.random(),  # noqa: S311 - jitter
            halted=ended.halted,
        )


def _made_since(directory: Path, before: str | None) -> Made:
    return made(directory, before, present_head(directory))
