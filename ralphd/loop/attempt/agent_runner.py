"""Asks an agent: one process of it from its start to what its end was."""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ralphd.agents.agent import LaunchSpec
from ralphd.core.failures.classify import Classification, Rules, classify
from ralphd.core.loop.model import Iteration
from ralphd.core.loop.prompt import prompt
from ralphd.core.loop.state import PauseReason
from ralphd.core.plan import Plan
from ralphd.core.time import Moment
from ralphd.errors import RalphdError, in_one_line
from ralphd.git.diagnostics import present_trouble
from ralphd.loop.attempt.agent_run import AgentRun, AttemptPlan, AttemptResult
from ralphd.loop.attempt.observer import ConsoleObserver
from ralphd.loop.attempt.review import Reviewing, ReviewPlan, ReviewRun
from ralphd.loop.console import Console
from ralphd.loop.settings import LoopSettings
from ralphd.loop.store import LoopStore
from ralphd.loop.workdir_files import read_prompt
from ralphd.process.machine import local_zone

LEAD_S = 0.4
"""The end of a long wait is prepared for, so that the agent starts when it is over and no later."""
ATTEMPTS_KEPT = 30


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """What an agent is asked. ``label`` names its phase within the attempt; empty: there are none."""

    iteration: Iteration
    text: str
    timeout_s: float
    session: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What came of it, and what its end was."""

    result: AttemptResult
    finding: Classification


class AgentRunner:
    """Runs what an attempt consists of, one process at a time: agents, and reviews.

    ``save`` writes the checkpoint of an iteration. Nobody is started before ``not_before``.
    """

    def __init__(
        self,
        settings: LoopSettings,
        console: Console,
        desk: LoopStore,
        save: Callable[[Iteration, PauseReason, str], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._console = console
        self._desk = desk
        self._save = save
        self._present: AgentRun | ReviewRun | None = None
        self.not_before: Moment = 0.0
        self.is_ended = False

    def begin(self) -> None:
        """Another attempt: an end that was asked for is over."""
        self.is_ended = False

    def end(self) -> None:
        """Have what runs ended now, and what would follow it in this attempt."""
        self.is_ended = True
        if self._present is not None:
            self._present.end()

    async def ask(self, ask: AgentRequest) -> AgentAnswer:
        """Run an agent to its end."""
        await asyncio.to_thread(self._desk.keep_prompt, ask.text)
        agent = self._settings.agents[ask.iteration.agent]
        save = partial(self._save, ask.iteration)
        attempt = AgentRun(self._plan(ask), ConsoleObserver(self._console, agent.name, save))
        await asyncio.sleep(min(max(self.not_before - time.time(), 0.0), LEAD_S))
        with self._presently(attempt):
            result = await attempt.run()
        await asyncio.to_thread(_prune, self._settings.keep)
        rules = Rules(agent.name, agent.patterns, agent.exits, agent.has_verdict, local_zone())
        return AgentAnswer(result, classify(result.evidence, rules, now=time.time()))

    async def review(self, iteration: Iteration, command: str, timeout_s: float, label: str) -> Reviewing:
        """Run a review to its end."""
        id_, keep = self._names(iteration, label)
        settings = self._settings
        plan = ReviewPlan(id_, command, settings.directory, keep, timeout_s, settings.environment)
        run = ReviewRun(plan)
        with self._presently(run):
            return await run.run()

    @contextmanager
    def _presently(self, present: AgentRun | ReviewRun) -> Iterator[None]:
        """It is what an order to end is for; one that has come already is passed on."""
        self._present = present
        if self.is_ended:
            present.end()
        try:
            yield
        finally:
            self._present = None

    def _plan(self, ask: AgentRequest) -> AttemptPlan:
        settings, agents = self._settings, self._settings.configuration.agents
        id_, keep = self._names(ask.iteration, ask.label)
        return AttemptPlan(
            id=id_,
            agent=settings.agents[ask.iteration.agent],
            order=LaunchSpec(ask.text, self._desk.prompt_file, ask.session),
            directory=settings.directory,
            keep=keep,
            timeout_s=ask.timeout_s,
            limits=replace(settings.configuration.limits(), max_run_s=0.0),
            exit_grace_s=agents.exit_grace_seconds,
            crash_grace_s=agents.crash_pattern_grace_seconds,
            environment=settings.environment,
        )

    def _names(self, iteration: Iteration, label: str) -> tuple[str, Path]:
        """The beginning of its RALPH_ATTEMPT_ID, and where its raw output is kept."""
        end = f"-{label}" if label else ""
        who = self._settings.run_id or self._settings.name
        place = self._settings.keep / f"{iteration.number:05d}-{iteration.attempt:02d}{end}"
        return f"{who}-{iteration.number}-{iteration.attempt}{end}", place


def _prune(keep: Path) -> None:
    """Forget the raw output of all attempts but the last ones."""
    with suppress(OSError):
        by_attempt: dict[tuple[str, ...], list[Path]] = {}
        for place in sorted(keep.iterdir()):
            by_attempt.setdefault(tuple(place.name.split("-")[:2]), []).append(place)
        for places in list(by_attempt.values())[:-ATTEMPTS_KEPT]:
            for old in places:
                shutil.rmtree(old, ignore_errors=True)


# Puts prompts together: the user's own, as it is now, and what is known beside it (L4).


class PromptBuilder:
    """The prompts of one loop. Where the user's file cannot be read any more, its last text is used."""

    def __init__(self, settings: LoopSettings, console: Console, desk: LoopStore) -> None:
        self._settings = settings
        self._console = console
        self._desk = desk
        self._own = ""

    async def load(self) -> None:
        """Read the user's prompt. Raises ConfigFaults for one that cannot be used."""
        settings = self._settings
        self._own = await asyncio.to_thread(read_prompt, settings.directory, settings.prompt_file)

    async def of(self, iteration: Iteration, plan: Plan | None, previous: str) -> str:
        """The prompt of an attempt; ``previous`` is the section on the one before it."""
        try:
            await self.load()
        except RalphdError as fault:
            self._console.say(f"the last known prompt is used: {in_one_line(fault)}")
        return prompt(
            self._own,
            task=iteration.task,
            plan=plan,
            handoff=await asyncio.to_thread(self._desk.handoff),
            trouble=await asyncio.to_thread(present_trouble, self._settings.directory),
            previous_attempt_context=previous,
            reverted=iteration.reverted,
        )
