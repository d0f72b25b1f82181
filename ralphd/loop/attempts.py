"""Runs the attempts of the loop, plain or in phases, and brings back what each of them was."""

import asyncio
import random
import time
from pathlib import Path

from ralphd.core.loop_model import AttemptOver, StartAttempt
from ralphd.core.plan import Plan, is_promised
from ralphd.core.prompt import previous_of
from ralphd.git.range import Made, made, present_head
from ralphd.loop.aftermath import Aftermath
from ralphd.loop.asking import Answer, Ask
from ralphd.loop.phases import Ended, Hands, PhasedAttempt
from ralphd.loop.plan import Plans
from ralphd.loop.telling import limit_words


class Attempts:
    """One attempt after the other. ``latest`` is the last agent's answer, with what the attempt was."""

    def __init__(self, hands: Hands, plans: Plans) -> None:
        self._hands = hands
        self._plans = plans
        self._aftermath = Aftermath(hands.settings, hands.console, hands.desk)
        self.is_running = False
        self.latest: Answer | None = None

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
        answer = await self._hands.asker.ask(Ask(iteration, text, order.timeout_s, iteration.session))
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
