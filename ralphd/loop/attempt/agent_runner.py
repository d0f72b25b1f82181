"""Runs the processes of an attempt, one at a time: an agent by its prompt, or the review command (L15)."""

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from ralphd.agents.agent import LaunchSpec
from ralphd.core.failures.classify import Classification, OurDoing, Rules, classify
from ralphd.core.loop.model import Iteration, PauseReason
from ralphd.core.loop.prompt import prompt
from ralphd.core.loop.review import Review, read_review
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError, in_one_line
from ralphd.git.diagnostics import present_trouble
from ralphd.loop.attempt.agent_run import AgentResult, AgentRun, AgentRunSpec
from ralphd.loop.attempt.output import Pump
from ralphd.loop.attempt.termination import Termination, TerminationRequest, exit_code, supervise, terminate
from ralphd.loop.console import Console, span
from ralphd.loop.workdir_files import read_prompt
from ralphd.process.agent_process import AgentCommand, AgentNotStarted, AgentProcess, start
from ralphd.process.machine import local_zone
from ralphd.store.history import EVIDENCE_FILE

if TYPE_CHECKING:
    from ralphd.core.failures.agent_events import RetryingItself
    from ralphd.core.plan import Plan
    from ralphd.core.time import Moment
    from ralphd.loop.settings import LoopContext

SaveIteration: TypeAlias = Callable[[Iteration, PauseReason, str], Awaitable[None]]

# Runs the review command of an attempt, and reads its findings (L15).

OUTPUT_BYTES: Final = 4 << 20
"""How much of its output is read; of more, the end."""


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
            review = Review(trouble=request.why, timed_out=True) if is_timeout else None
            return ReviewResult(review, survivors)
        out, err = (reader.tail.data().decode(errors="replace") for reader in (pump.out, pump.err))
        return ReviewResult(read_review(exit_code(process), out, err, cut=pump.out.tail.is_cut), survivors)

    def end(self) -> None:
        """End it now; ``run`` then returns."""
        self._termination.end(TerminationRequest(OurDoing.ASKED, "asked to"))

    async def _until_ended(self, process: AgentProcess) -> TerminationRequest | None:
        timer = None
        if limit_s := self._timeout_s:
            request = TerminationRequest(OurDoing.TIMEOUT, f"it ran into its time limit of {span(limit_s)}")
            timer = asyncio.get_running_loop().call_later(limit_s, self._termination.end, request)
        try:
            if (reason := await self._termination.wait(process)) is not None:
                await terminate(process, reason)
            return reason
        finally:
            if timer is not None:
                timer.cancel()


def _ignore(_lines: list[str]) -> None:
    """Review output is read as a whole when the command has ended."""


LEAD_S = 0.4
"""A long wait ends this much earlier, so that the agent is prepared and starts when it is over."""
ATTEMPTS_KEPT = 30
_REASONS = {OurDoing.TIMEOUT: PauseReason.TIMEOUT, OurDoing.STALL: PauseReason.STALL}


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The result of an agent's process, and what it means."""

    result: AgentResult
    finding: Classification


class AgentRunner:
    """Runs agents and reviews. ``save`` writes the checkpoint of an iteration.

    No agent starts before ``not_before``.
    """

    def __init__(self, context: "LoopContext", save: SaveIteration) -> None:
        self.context = context
        self.prompts = PromptBuilder(context)
        self.not_before: Moment = 0.0
        self._save = save
        self._process: AgentRun | ReviewRun | None = None
        self._is_ended = False

    def begin(self) -> None:
        """Begin an attempt: a former request to end does not count."""
        self._is_ended = False

    def end(self) -> None:
        """End what runs now, and what would follow it in this attempt."""
        self._is_ended = True
        if self._process is not None:
            self._process.end()

    async def ask(
        self, iteration: Iteration, text: str, timeout_s: float, session: str | None, label: str = ""
    ) -> AgentAnswer:
        """Run an agent to its end. ``label`` names its phase within the attempt; empty: no phases."""
        settings, agent = self.context.settings, self.context.settings.agents[iteration.agent]
        await asyncio.to_thread(self.context.store.keep_prompt, text)
        id_, keep = self._names(iteration, label)
        spec = AgentRunSpec(
            id=id_,
            agent=agent,
            order=LaunchSpec(text, self.context.store.prompt_file, session),
            directory=settings.directory,
            keep=keep,
            timeout_s=timeout_s,
            limits=replace(settings.configuration.silence_limits(), max_run_s=0.0),
            exit_grace_s=settings.configuration.agents.exit_grace_seconds,
            crash_grace_s=settings.configuration.agents.crash_pattern_grace_seconds,
            lost_grace_s=settings.configuration.agents.transient_pattern_grace_seconds,
            environment=settings.environment,
            on_quota=partial(self.context.accounts.news, iteration.agent),
        )

        async def save(reason: PauseReason, why: str) -> None:
            await self._save(replace(iteration, session=run.session or session), reason, why)

        run = AgentRun(spec, ConsoleObserver(self.context.console, agent.name, save))
        await asyncio.sleep(min(max(self.not_before - time.time(), 0.0), LEAD_S))
        with self._current(run):
            result = await run.run()
        await asyncio.to_thread(_prune, settings.keep)
        rules = Rules(agent.name, agent.patterns, agent.exits, agent.has_verdict, local_zone())
        return AgentAnswer(result, classify(result.evidence, rules, now=time.time()))

    async def review(self, iteration: Iteration, command: str, timeout_s: float, label: str) -> ReviewResult:
        """Run the review command to its end. ``timeout_s`` 0: no limit."""
        id_, keep = self._names(iteration, label)
        settings = self.context.settings
        argv, environment = ("/bin/sh", "-c", command), {**os.environ, **settings.environment}
        process = AgentCommand(id_, argv, settings.directory, environment, has_stdin=False)
        run = ReviewRun(process, keep, timeout_s)
        with self._current(run):
            return await run.run()

    @contextmanager
    def _current(self, process: AgentRun | ReviewRun) -> Iterator[None]:
        self._process = process
        if self._is_ended:  # the request came before there was a process
            process.end()
        try:
            yield
        finally:
            self._process = None

    def _names(self, iteration: Iteration, label: str) -> tuple[str, Path]:
        """Return the beginning of the RALPH_ATTEMPT_ID, and the directory of the raw output."""
        settings, end = self.context.settings, f"-{label}" if label else ""
        id_ = f"{settings.run_id or settings.name}-{iteration.number}-{iteration.attempt}{end}"
        return id_, settings.keep / f"{iteration.number:05d}-{iteration.attempt:02d}{end}"


def _prune(keep: Path) -> None:
    """Remove the raw output of all attempts but the last ones."""
    with suppress(OSError):
        by_attempt: dict[tuple[str, ...], list[Path]] = {}
        for directory in sorted(keep.iterdir()):
            by_attempt.setdefault(tuple(directory.name.split("-")[:2]), []).append(directory)
        for directories in list(by_attempt.values())[:-ATTEMPTS_KEPT]:
            for old in directories:
                if not (old / EVIDENCE_FILE).exists():  # of a hang, which `explain` shows
                    shutil.rmtree(old, ignore_errors=True)


class ConsoleObserver:
    """Logs what happens while ``agent`` runs. ``save`` writes the checkpoint."""

    def __init__(
        self, console: Console, agent: str, save: Callable[[PauseReason, str], Awaitable[None]]
    ) -> None:
        self._console, self._agent, self._save = console, agent, save
        self.show = console.show
        self.warn = console.say

    def retrying(self, event: "RetryingItself") -> None:
        """Log that the agent retries after an error."""
        count = f" ({event.attempt} of {event.most})" if event.attempt and event.most else ""
        soon = f", in {span(event.delay_s)}" if event.delay_s else ""
        why = f": {event.reason}" if event.reason else ""
        self._console.say(f"{self._agent} tries again by itself{count}{soon}{why}")

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """Save the checkpoint before an agent is ended for time or silence."""
        self._console.say(why)
        if ours in _REASONS:
            await self._save(_REASONS[ours], why)
            self._console.say("the checkpoint is saved; the agent and all that it started are ended now")


class PromptBuilder:
    """The prompts of one loop. If the user's file becomes unreadable, its last text is used (L4)."""

    def __init__(self, context: "LoopContext") -> None:
        self._context = context
        self._own = ""
        self.notes_read = 0
        """The id of the last note of a person that a prompt had."""

    async def load(self) -> None:
        """Read the user's prompt. Raise ConfigFaults if it cannot be used."""
        settings = self._context.settings
        file = settings.configuration.ralph.prompt_file
        self._own = await asyncio.to_thread(read_prompt, settings.directory, file)

    def _trouble(self) -> tuple[str, ...]:
        context = self._context
        return (*present_trouble(context.settings.directory), *context.store.weakened_tests())

    async def of(self, iteration: Iteration, plan: "Plan | None", previous: str) -> str:
        """Return the prompt of an attempt; ``previous`` is the section on the one before it."""
        try:
            await self.load()
        except RalphdError as fault:
            self._context.console.say(f"the last known prompt is used: {in_one_line(fault)}")
        notes = await asyncio.to_thread(self._context.store.notes)
        self.notes_read = max((int(note.id) for note in notes), default=self.notes_read)
        return prompt(
            self._own,
            task=iteration.task,
            plan=plan,
            handoff=await asyncio.to_thread(self._context.store.handoff),
            trouble=await asyncio.to_thread(self._trouble),
            previous_attempt_context=previous,
            reverted=iteration.reverted,
            notes=[note.text for note in notes],
        )
