"""Carries out an attempt, plain or in the phases that ``core/loop/phases`` orders (L14, L15).

The position is saved before anything is started: whatever ends the attempt, be it an error, a stop or the
death of this process, the next attempt at the task resumes there.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from ralphd.core.failures.agent_events import Figures
from ralphd.core.failures.classify import Classification, Evidence
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import phases as core
from ralphd.core.loop.failures import LINES_KEPT
from ralphd.core.loop.model import AttemptOver, Iteration, Previous, ReportAttempt, StartAttempt
from ralphd.core.loop.phases import Phase, Phases, PhaseStep
from ralphd.core.loop.prompt import previous_attempt, previous_of
from ralphd.core.plan import Plan, is_promised
from ralphd.core.text import one_line
from ralphd.dataclass import dataclass
from ralphd.git import facts
from ralphd.git.diagnostics import has_locks, in_the_way
from ralphd.git.repair import RepairMode, put_away, repair, uncommitted_paths
from ralphd.loop.attempt.agent_run import AgentResult
from ralphd.loop.attempt.agent_runner import AgentAnswer, AgentRunner, SaveIteration
from ralphd.loop.console import span
from ralphd.loop.reporter import limit_words

if TYPE_CHECKING:
    from ralphd.core.gate.verdict import Position
    from ralphd.core.time import Moment
    from ralphd.loop.settings import LoopContext
    from ralphd.loop.workdir_files import PlanReader


SHORTEST_PHASE_S = 1.0
"""No phase is started with less than this of the attempt's time left."""
MOST_SHOWN_CHARS = 100
_MAY_PROMISE = (Phase.IMPLEMENT, Phase.ADDRESS)


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """The end of an attempt: its last agent's answer with the attempt's finding, and the cost of all agents.

    ``session`` may be resumed by the next attempt. ``halted``: why a person has to act first.
    """

    answer: AgentAnswer
    session: str | None
    cost_usd: float
    promised: bool
    halted: str = ""


class PhasedAttempt:
    """One attempt that goes through its phases. ``plan`` is the task list."""

    def __init__(self, agents: AgentRunner, order: StartAttempt, plan: Plan | None) -> None:
        self._agents, self._order, self._plan = agents, order, plan
        self._policy, self._store = agents.context.settings.phases, agents.context.store
        self._began_at = time.time()
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + order.budget_s if order.budget_s else None
        self._labels = Counter[Phase]()
        self._answer: AgentAnswer | None = None
        self._previous = previous_of(order.iteration)
        self._session = order.iteration.session
        self._cost_usd = 0.0
        self._promised = False

    async def run(self) -> AttemptOutcome:
        """Go through the phases. To be called once; raises nothing for what agents and reviews do."""
        at = core.begin(self._order.iteration.task.id, self._store.phases, self._policy)
        if not isinstance(at.order, core.AskAgent):
            self._session = None
        while True:
            await asyncio.to_thread(self._store.save_phases, at.phases)
            for line in self._store.news():
                self._say(line)
            self._say(at.message + self._because(at))
            event: core.AgentDone | core.Reviewed | Classification
            match at.order:
                case core.AskAgent():
                    event = await self._ask(at.phases, at.order)
                case core.RunReview():
                    event = await self._review(at.phases)
                case core.PhasesOver():
                    return self._over(at.order)
                case core.NoReview():
                    return self._unreviewed(at.order)
            if isinstance(event, Classification):
                return self._ended(event)
            at = core.step(at.phases, event, self._policy)

    def _because(self, at: PhaseStep) -> str:
        # Why the agent before failed, where another one follows it.
        if self._answer is None or self._answer.finding.kind is None:
            return ""
        return f": {self._answer.finding.why}" if isinstance(at.order, core.AskAgent) else ""

    def _say(self, text: str) -> None:
        if text:
            self._agents.context.console.say(text)

    # Agents

    async def _ask(self, phases: Phases, order: core.AskAgent) -> core.AgentDone | Classification:
        """Run the agent of a phase; return a finding where the attempt ends with it."""
        limit_s = self._limit_s(phases)
        if limit_s < 0:
            return self._used_up(order.phase)
        self._report_last(order)
        iteration, phase = self._order.iteration, order.phase
        text = await self._agents.prompts.of(iteration, self._plan, self._previous)
        self._say(core.invoking(order) + limit_words(limit_s))
        text, label = core.phase_prompt(text, phases), self._label(phase)
        answer = await self._agents.ask(iteration, text, limit_s, self._session, label)
        self._answer = AgentAnswer(replace(answer.result, phase=phase), answer.finding)
        self._session = None
        result, finding = answer.result, answer.finding
        self._cost_usd += result.figures.cost_usd or 0.0
        if finding.asked:
            return finding
        self._previous = ""
        if finding.kind is not None:
            why = f"{core.in_words(phase)}: {finding.why}"
            failure = Previous(0, "", finding.kind, why, result.lines[-LINES_KEPT:])
            self._previous = previous_attempt(failure, 0)
        elif phase in _MAY_PROMISE:
            self._promised = self._promised or is_promised(result.last_message.splitlines())
        return core.AgentDone(finding.kind, result.last_message, not_started=not result.was_started)

    def _report_last(self, order: core.AskAgent) -> None:
        # The loop itself reports the attempt's last agent only.
        if (last := self._answer) is None:
            return
        again = last.finding.kind is not None and last.result.phase == order.phase
        follows = f"{core.in_words(order.phase)} again" if again else f"{order.phase} follows"
        finding, iteration = last.finding, replace(self._order.iteration, made=0)
        report = ReportAttempt(iteration, finding.kind, finding.rule, finding.why, follows)
        self._agents.context.reporter.attempt_finished(report, last.result, finding)
        self._answer = None

    # Reviews

    async def _review(self, phases: Phases) -> core.Reviewed | Classification:
        limit_s = self._limit_s(phases)
        if limit_s < 0:
            return self._used_up(phases.phase)
        is_cut_short = limit_s != self._order.timeout_s * phases.timeout_factor
        command = self._agents.context.settings.configuration.phases.review_command
        self._say(f"review: {one_line(command, MOST_SHOWN_CHARS)}{limit_words(limit_s)}")
        began, label = self._clock(), self._label(Phase.REVIEW)
        done = await self._agents.review(self._order.iteration, command, limit_s, label)
        if done.survivors:
            self._say(f"the review left what no SIGKILL ends: {', '.join(done.survivors)}")
        if done.review is None:
            return Classification(None, "ours: asked", "its review was stopped on request", asked=True)
        if done.review.timed_out and is_cut_short:
            return self._used_up(phases.phase)
        self._say(f"the review took {span(self._clock() - began)}")
        return core.Reviewed(done.review)

    # Limits and names

    def _limit_s(self, phases: Phases) -> float:
        """Return the time limit of the next phase; 0: no limit, below 0: the time is used up."""
        timeout_s = self._order.timeout_s * phases.timeout_factor
        if self._deadline is None:
            return timeout_s
        left_s = self._deadline - self._clock()
        return core.phase_limit_s(timeout_s, left_s=left_s) if left_s > SHORTEST_PHASE_S else -1.0

    def _used_up(self, phase: Phase) -> Classification:
        why = f"the {span(self._order.budget_s)} of the attempt were used up in {core.in_words(phase)}"
        return Classification(FailureKind.TIMEOUT, "attempt's time", why)

    def _label(self, phase: Phase) -> str:
        self._labels[phase] += 1
        return phase.value if self._labels[phase] == 1 else f"{phase}-{self._labels[phase]}"

    # The end

    def _over(self, order: core.PhasesOver) -> AttemptOutcome:
        if order.remaining:
            left = core.left_words(order)
            if order.failed:
                return self._ended(Classification(FailureKind.AGENT_INCOMPLETE, "findings left", left))
            return self._warned("findings left", left)
        if not order.failed or self._answer is None or self._answer.result.phase is None:
            return self._ended(None)
        phase, finding = Phase(self._answer.result.phase), self._answer.finding
        return self._ended(replace(finding, why=f"{core.in_words(phase)}: {finding.why}"))

    def _unreviewed(self, order: core.NoReview) -> AttemptOutcome:
        if not order.fatal:
            return self._warned("not reviewed", f"not reviewed: {order.why}")
        what_to_do = "fix [phases] review_command in ralph.toml, then start it again"
        return self._ended(None, halted=f"nothing could be reviewed: {order.why}; {what_to_do}")

    def _warned(self, rule: str, text: str) -> AttemptOutcome:
        self._say(f'{text}; that is a warning (on_findings_remaining = "warn")')
        return self._ended(Classification(None, rule, f"{text}; that is a warning"))

    def _ended(self, finding: Classification | None, *, halted: str = "") -> AttemptOutcome:
        """Return the outcome; ``finding`` None: that of the last agent, or success if there was none."""
        last = self._answer
        if last is None:  # a review and nothing else
            why = "the work was done before, and there are no findings"
            result = AgentResult(Evidence(), self._began_at, time.time(), Figures(0.0), phase=Phase.REVIEW)
            last = AgentAnswer(result, Classification(None, "review", why))
        # If the attempt failed for a reason that is not its last agent's, that session is not worth resuming.
        session = last.result.session if finding is None or finding.rule == last.finding.rule else None
        if finding is not None:
            last = replace(last, finding=finding)
        return AttemptOutcome(last, session, self._cost_usd, self._promised, halted)


# Runs the attempts of the loop, plain or in phases, and repairs what an agent left in the repository.


@dataclass(frozen=True, slots=True)
class BeforeAttempt:
    """The repository before an attempt. ``uncommitted`` None: not known, or nothing will be set aside."""

    at: "Moment"
    position: "Position"
    uncommitted: frozenset[bytes] | None


class AttemptRunner:
    """One attempt after the other. ``latest`` is the last agent's answer, with the attempt's finding."""

    def __init__(self, context: "LoopContext", plans: "PlanReader", save: SaveIteration) -> None:
        self._context, self._plans = context, plans
        self._mode = RepairMode(context.settings.configuration.git.repair)
        self.agents = AgentRunner(context, save)
        self.is_running = False
        self.latest: AgentAnswer | None = None

    async def run(self, order: StartAttempt, plan: Plan | None) -> AttemptOver:
        """Run an attempt; ``plan`` is the task list as it was read last."""
        context, iteration = self._context, order.iteration
        context.reporter.working(iteration.agent)
        has_phases = context.settings.configuration.phases.enabled
        limit_s = order.budget_s if has_phases else order.timeout_s
        context.console.say(f"{iteration.agent}: attempt {iteration.attempt}" + limit_words(limit_s))
        before = await asyncio.to_thread(self._before)
        await asyncio.to_thread(self._plans.remember, plan, before.position.head)
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

    async def _run_plain(self, order: StartAttempt, plan: Plan | None) -> AttemptOutcome:
        iteration = order.iteration
        text = await self.agents.prompts.of(iteration, plan, previous_of(iteration))
        answer = await self.agents.ask(iteration, text, order.timeout_s, iteration.session)
        promised = is_promised(answer.result.last_message.splitlines())
        return AttemptOutcome(answer, answer.result.session, answer.result.figures.cost_usd or 0.0, promised)

    async def _over(self, outcome: AttemptOutcome, head: str | None, plan: Plan | None) -> AttemptOver:
        result, directory = outcome.answer.result, self._context.settings.directory
        made = await asyncio.to_thread(lambda: facts.made(directory, head, facts.position(directory).head))
        self._context.reporter.commits += tuple(reversed(made.shas))
        lost = await self.restore_list(plan)
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
            notes_read=self.agents.prompts.notes_read,
            lost=lost,
        )

    async def restore_list(self, plan: Plan | None) -> str:
        """Restore the task list if the attempt lost it, with a line for the log and for the next agent.

        Return what became of it.
        """
        lost, line = await asyncio.to_thread(self._plans.restore, await self._plans.read(plan))
        if line:
            self._context.console.say(line)
            await asyncio.to_thread(self._context.store.hand_over, line)
        return lost

    # The repository before and after an attempt: what an agent left half done must not trap the next one.

    def _before(self) -> BeforeAttempt:
        directory = self._context.settings.directory
        uncommitted = uncommitted_paths(directory) if self._mode is RepairMode.ABORT else None
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
        directory, branch, ended_at = settings.directory, before.position.branch, answer.result.ended_at
        if in_the_way(directory) or has_locks(directory):
            lines += repair(
                directory, self._mode, ended_at=ended_at, began_at=before.at, label=label, branch=branch
            ).done
        if answer.finding.kind is FailureKind.AGENT_CRASH and before.uncommitted is not None:
            lines.append(put_away(directory, before.uncommitted, label, scratch=settings.home))
        return [line for line in lines if line]
