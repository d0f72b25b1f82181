"""Carries out the phases of an attempt, as ``core/loop/phases`` orders them (L14, L15, 004).

Where the attempt is is saved before anything is started: whatever ends it, an error, a stop or the end of
this process, the next attempt at the task goes on there.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace

from ralphd.core.failures.classify import Classification, Evidence
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import phases as core
from ralphd.core.loop.failures import LINES_KEPT
from ralphd.core.loop.model import Previous, StartAttempt, TellAttempt
from ralphd.core.loop.phases import (
    AgentDone,
    AskAgent,
    NoReview,
    Phase,
    Phases,
    PhasesOver,
    PhaseStep,
    Reviewed,
    RunReview,
    phase_prompt,
)
from ralphd.core.loop.prompt import previous_attempt, previous_of
from ralphd.core.plan import Plan, is_promised
from ralphd.loop.attempt.agent_run import AttemptResult
from ralphd.loop.attempt.agent_runner import AgentAnswer, AgentRequest, AgentRunner, PromptBuilder
from ralphd.loop.console import Console, span
from ralphd.loop.reporter import Reporter, limit_words
from ralphd.loop.settings import LoopSettings
from ralphd.loop.store import LoopStore

SHORTEST_PHASE_S = 1.0
"""With less than that of an attempt's time left, nothing is begun any more."""
MOST_SHOWN_CHARS = 100
_MAY_PROMISE = (Phase.IMPLEMENT, Phase.ADDRESS)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended: its last agent's answer with the attempt's finding, the cost of all agents.

    ``session`` is what the next attempt may go on in, where it begins with what this one ended with.
    ``halted``: why nothing can go on before a person acts.
    """

    answer: AgentAnswer
    session: str | None
    cost_usd: float
    promised: bool
    halted: str = ""


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """Who does what there is to do in an attempt."""

    settings: LoopSettings
    console: Console
    desk: LoopStore
    scribe: Reporter
    prompts: PromptBuilder
    asker: AgentRunner


class PhasedAttempt:
    """One attempt that goes through its phases. ``plan`` is what the task list says."""

    def __init__(self, hands: PhaseContext, order: StartAttempt, plan: Plan | None) -> None:
        self._hands, self._order, self._plan = hands, order, plan
        self._policy = hands.settings.phases
        self._began_at = time.time()
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + order.budget_s if order.budget_s else None
        self._labels = Counter[Phase]()
        self._answer: AgentAnswer | None = None
        self._previous = previous_of(order.iteration)
        self._session = order.iteration.session
        self._cost_usd = 0.0
        self._promised = False

    async def run(self) -> Ended:
        """Go through the phases. To be called once; raises nothing for what agents and reviews do."""
        desk, policy = self._hands.desk, self._policy
        at = core.begin(self._order.iteration.task.id, desk.phases, policy)
        if not isinstance(at.order, AskAgent):
            self._session = None
        while True:
            await self._save(at.phases)
            self._say(at.said + self._because(at))
            event: AgentDone | Reviewed | Classification
            match at.order:
                case AskAgent():
                    event = await self._ask(at.phases, at.order)
                case RunReview():
                    event = await self._review(at.phases)
                case PhasesOver():
                    return self._over(at.order)
                case NoReview():
                    return self._unreviewed(at.order)
            if isinstance(event, Classification):
                return self._ended(event)
            at = core.step(at.phases, event, policy)

    async def _save(self, phases: Phases) -> None:
        await asyncio.to_thread(self._hands.desk.save_phases, phases)
        for line in self._hands.desk.news():
            self._say(line)

    def _because(self, at: PhaseStep) -> str:
        """What went wrong with the agent before, where there is another one after it."""
        if self._answer is None or self._answer.finding.kind is None or not isinstance(at.order, AskAgent):
            return ""
        return f": {self._answer.finding.why}"

    def _say(self, text: str) -> None:
        if text:
            self._hands.console.say(text)

    # agents

    async def _ask(self, phases: Phases, order: AskAgent) -> AgentDone | Classification:
        """Run the agent of a phase; a finding, where the attempt ends with it."""
        limit_s = self._limit_s()
        if limit_s < 0:
            return self._used_up(order.phase)
        self._tell_last(order)
        iteration, phase = self._order.iteration, order.phase
        text = await self._hands.prompts.of(iteration, self._plan, self._previous)
        self._say(core.invoking(order) + limit_words(limit_s))
        label = self._label(phase)
        answer = await self._hands.asker.ask(
            AgentRequest(iteration, phase_prompt(text, phases), limit_s, self._session, label)
        )
        self._answer = replace(answer, result=replace(answer.result, phase=phase))
        self._session = None
        return self._answered(phase, self._answer)

    def _answered(self, phase: Phase, answer: AgentAnswer) -> AgentDone | Classification:
        result, finding = answer.result, answer.finding
        self._cost_usd += result.cost_usd or 0.0
        if finding.asked:
            return finding
        self._previous = ""
        if finding.kind is not None:
            why = f"{core.in_words(phase)}: {finding.why}"
            lines = result.lines[-LINES_KEPT:]
            self._previous = previous_attempt(Previous(0, "", finding.kind, why, lines), 0)
        elif phase in _MAY_PROMISE:
            self._promised = self._promised or is_promised(result.last_message.splitlines())
        return AgentDone(finding.kind, result.last_message, not_started=not result.was_started)

    def _tell_last(self, order: AskAgent) -> None:
        """Report the agent before: the loop itself tells the last one only."""
        if (last := self._answer) is None:
            return
        again = last.finding.kind is not None and last.result.phase == order.phase
        follows = f"{core.in_words(order.phase)} again" if again else f"{order.phase} follows"
        finding, iteration = last.finding, replace(self._order.iteration, commits=0)
        told = TellAttempt(iteration, finding.kind, finding.rule, finding.why, follows)
        self._hands.scribe.attempt_finished(told, last.result, finding)
        self._answer = None

    # reviews

    async def _review(self, phases: Phases) -> Reviewed | Classification:
        limit_s = self._limit_s()
        if limit_s < 0:
            return self._used_up(phases.phase)
        is_cut_short = limit_s != self._order.timeout_s
        command = self._hands.settings.configuration.phases.review_command
        shown = " ".join(command.split())
        self._say(f"review: {shown[:MOST_SHOWN_CHARS]}{limit_words(limit_s)}")
        began = self._clock()
        done = await self._hands.asker.review(
            self._order.iteration, command, limit_s, self._label(Phase.REVIEW)
        )
        if done.survivors:
            self._say(f"the review left what no SIGKILL ends: {', '.join(done.survivors)}")
        if done.review is None:
            return Classification(
                None, "ours: asked", "its review was ended as it was asked to end", asked=True
            )
        if done.review.timed_out and is_cut_short:
            return self._used_up(phases.phase)
        self._say(f"the review took {span(self._clock() - began)}")
        return Reviewed(done.review)

    # limits and names

    def _limit_s(self) -> float:
        """How long the next phase may take; 0: no limit, below 0: there is no time left."""
        if self._deadline is None:
            return self._order.timeout_s
        left_s = self._deadline - self._clock()
        return core.phase_limit_s(self._order.timeout_s, left_s=left_s) if left_s > SHORTEST_PHASE_S else -1.0

    def _used_up(self, phase: Phase) -> Classification:
        why = f"the {span(self._order.budget_s)} of the attempt were used up in {core.in_words(phase)}"
        return Classification(FailureKind.TIMEOUT, "attempt's time", why)

    def _label(self, phase: Phase) -> str:
        self._labels[phase] += 1
        return phase.value if self._labels[phase] == 1 else f"{phase}-{self._labels[phase]}"

    # the end

    def _over(self, order: PhasesOver) -> Ended:
        if not order.remaining:
            return self._ended(self._last_finding() if order.failed else None)
        left = core.left_words(order)
        if order.failed:
            return self._ended(Classification(FailureKind.AGENT_INCOMPLETE, "findings left", left))
        self._say(f'{left}; that is a warning (on_findings_remaining = "warn")')
        return self._ended(Classification(None, "findings left", f"{left}; that is a warning"))

    def _unreviewed(self, order: NoReview) -> Ended:
        if order.fatal:
            why = f"nothing could be reviewed: {order.why}"
            mend = "put [phases] review_command right in ralph.toml, then start it again"
            return self._ended(None, halted=f"{why}; {mend}")
        self._say(f'not reviewed: {order.why}; that is a warning (on_findings_remaining = "warn")')
        return self._ended(
            Classification(None, "not reviewed", f"not reviewed: {order.why}; that is a warning")
        )

    def _last_finding(self) -> Classification | None:
        """The last agent's, in which phase it was."""
        if self._answer is None or self._answer.result.phase is None:
            return None
        phase, finding = Phase(self._answer.result.phase), self._answer.finding
        return replace(finding, why=f"{core.in_words(phase)}: {finding.why}")

    def _ended(self, finding: Classification | None, *, halted: str = "") -> Ended:
        """``finding`` None: as its last agent ended; where none was asked, well."""
        last = self._answer or self._without_agent()
        # An end that is not the last agent's own is not one in whose session another could go on.
        session = last.result.session if finding is None or finding.rule == last.finding.rule else None
        if finding is not None:
            last = replace(last, finding=finding)
        return Ended(last, session, self._cost_usd, self._promised, halted)

    def _without_agent(self) -> AgentAnswer:
        """There was a review and nothing else."""
        result = AttemptResult(Evidence(), self._began_at, time.time(), cost_usd=0.0, phase=Phase.REVIEW)
        return AgentAnswer(
            result, Classification(None, "review", "the work was done before, and there are no findings")
        )
