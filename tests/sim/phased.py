"""An attempt in phases: plan, implement, review, address. Real is what follows what (``core/loop/phases``).

Made up: what a review finds, how often that has to be addressed, and what a triage dismisses.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import phases as core
from ralphd.core.loop.phases import Phase, PhasePolicy, PhaseStep
from ralphd.core.loop.review import Review, ReviewFinding
from tests.sim.world import Due

if TYPE_CHECKING:
    from tests.sim.agents import Attempt
    from tests.sim.night import Night

WORK: Final = (Phase.IMPLEMENT, Phase.ADDRESS)
REVIEW_S: Final = 40.0
POLICY: Final = PhasePolicy(phase_retry_count=1, phase_3_retry_count=1, has_review=True, max_address_rounds=2)


class PhasedWork:
    """One attempt's way through its phases; the position is on the disk before anything is ordered."""

    def __init__(self, night: Night, attempt: Attempt) -> None:
        self._night, self._attempt = night, attempt
        self._policy = replace(POLICY, findings_fail=night.script.setting.findings_fail)
        self._at: PhaseStep | None = None
        self._last: Classification | None = None
        self._promised = False
        self._open: dict[str, int] = {}
        self._due: Due | None = None

    def begins(self) -> None:
        """Where the last attempt at this task has ended, or with the plan."""
        self._night.checks.phases_begin(self._attempt.task)
        self._take(core.begin(self._attempt.task, self._night.disk.phases, self._policy))

    def dies(self) -> None:
        """With its loop."""
        if self._due is not None:
            self._due.call_off()

    @property
    def is_in_review(self) -> bool:
        """Whether no agent runs."""
        return self._due is not None

    def _take(self, at: PhaseStep) -> None:
        night, self._at = self._night, at
        night.disk.phases = at.phases
        night.loop_may_die("after phases.json")
        night.checks.phase_follows(at, self._policy)
        if at.message:
            night.tell("the loop", at.message)
        match at.order:
            case core.AskAgent(phase=phase):
                self._attempt.begins_phase(does_work=phase in WORK, factor=at.phases.timeout_factor)
            case core.RunReview():
                self._due = night.agenda.after(REVIEW_S, self._reviewed)
            case core.PhasesOver():
                self._over(at.order)
            case core.NoReview():
                self._unreviewed(at.order)

    def agent_over(self, finding: Classification, *, promised: bool) -> None:
        """The agent of the phase has ended."""
        assert self._at is not None
        phase, self._last = self._at.phases.phase, finding
        if finding.asked:
            self._attempt.conclude(finding, promised=False)
            return
        if finding.kind is None and phase in WORK:
            self._promised = self._promised or promised
            self._worked(phase)
        self._night.checks.phase_is_over(phase, finding.kind)
        event = core.AgentDone(finding.kind, self._answer(phase))
        self._take(self._night.steps.phases(self._at.phases, event, self._policy))

    def _worked(self, phase: Phase) -> None:
        if phase is Phase.ADDRESS:
            self._open = {name: left - 1 for name, left in self._open.items() if left != 1}
            return
        number = len(self._night.disk.runs) * 1000 + int(self._night.clock.awake_s)
        count = max(round(4 * self._night.noise()) - 2, 0)  # none of most reviews, else 1 or 2
        self._open = {f"f{number}-{each}": round(3 * self._night.noise()) for each in range(count)}

    def _answer(self, phase: Phase) -> str:
        """A plan; or the findings that are wrong, and that no work makes go away."""
        wrong = [name for name, left in self._open.items() if left <= 0]
        if phase is not Phase.TRIAGE:
            return "do it"
        self._night.checks.triage_dismisses(wrong)
        return json.dumps({"dismiss": wrong, "why": "wrong"})

    def _reviewed(self) -> None:
        assert self._at is not None
        if self._attempt.is_stuck:
            return
        self._due = None
        found = tuple(ReviewFinding(name, f"wrong is {name}") for name in self._open)
        review = Review(found)
        if self._night.review_fails > 0:
            self._night.review_fails -= 1
            review = Review(trouble="it ran into its time limit", timed_out=True)
        self._night.checks.review_is_over(review)
        self._take(self._night.steps.phases(self._at.phases, core.Reviewed(review), self._policy))

    def _over(self, order: core.PhasesOver) -> None:
        if order.remaining:
            kind = FailureKind.AGENT_INCOMPLETE if order.failed else None
            finding = Classification(kind, "simulated", core.left_words(order))
        elif order.failed and self._last is not None:
            finding = self._last
        else:
            finding = Classification(None, "simulated", "all phases are over")
        self._attempt.conclude(finding, promised=self._promised)

    def _unreviewed(self, order: core.NoReview) -> None:
        halted = f"nothing could be reviewed: {order.why}" if order.fatal else ""
        finding = Classification(None, "simulated", "not reviewed")
        self._attempt.conclude(finding, promised=self._promised, halted=halted)
