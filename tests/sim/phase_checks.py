"""What must hold of the phases of an attempt: rounds and tries are bounded, no review is ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.loop import phases as core
from ralphd.core.loop.phases import Phase, PhasePolicy, PhaseStep
from ralphd.core.loop.review import Review
from tests.sim.landing_checks import LandingChecks

if TYPE_CHECKING:
    from tests.sim.night import Night


class PhaseChecks(LandingChecks):
    """What the agents and the reviews of an attempt did, against what follows."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._rounds = self._tries = 0
        self._tried: Phase | None = None
        self._is_reviewed = True
        self._found: frozenset[str] = frozenset()
        self._dismissed: set[str] = set()
        self._planned: str | None = None
        self._attempted: str | None = None

    def phases_begin(self, task: str) -> None:
        """An attempt at a task."""
        self._rounds = self._tries = 0
        self._tried, self._is_reviewed, self._found = None, True, frozenset()
        self._dismissed = set()
        if task != self._attempted:
            self._planned = None
        self._attempted = task

    def plan_is_used_up(self) -> None:
        """The iteration has ended well: the next one plans anew."""
        self._planned = None

    def phase_is_over(self, phase: Phase, kind: FailureKind | None) -> None:
        """An agent has ended."""
        if kind is None and phase in (Phase.IMPLEMENT, Phase.ADDRESS):
            self._is_reviewed = False
        if kind is None:
            self._tries, self._tried = 0, None
        if kind is None and phase is Phase.PLAN:
            self._planned = self._attempted
        self._rounds += phase is Phase.ADDRESS and kind is None

    def review_is_over(self, review: Review) -> None:
        """A review has ended; what was dismissed is no finding any more."""
        self._is_reviewed = True  # one that fails is reported, by a warning or by the end
        self._found = frozenset(each.id for each in review.findings) - self._dismissed

    def triage_dismisses(self, names: list[str]) -> None:
        """An agent has looked at the findings: these need no work."""
        self._dismissed |= {*names}
        self._found -= self._dismissed

    def phase_follows(self, at: PhaseStep, policy: PhasePolicy) -> None:
        """The next order."""
        match at.order:
            case core.AskAgent(phase=phase):
                self._tries = self._tries + 1 if phase is self._tried else 1
                self._tried = phase
                if self._tries > core.tries_of(phase, policy):
                    self.broken("restarts are bounded", f"{self._tries} tries of {phase}")
                if phase is Phase.ADDRESS and self._rounds >= policy.max_address_rounds:
                    self.broken("restarts are bounded", f"findings are addressed {self._rounds + 1} times")
                if phase is Phase.PLAN and self._planned == self._attempted:
                    self.broken("nothing is done twice", f"{self._attempted} is planned again")
            case core.PhasesOver(failed=False, remaining=left):
                open_ones = self._found - {each.id for each in left}
                if not self._is_reviewed:
                    self.broken("no outcome is invented", "an attempt ends well without a review")
                if open_ones:
                    self.broken("no outcome is invented", f"an attempt ends well in spite of {open_ones}")
                if left and policy.findings_fail:
                    self.broken("no outcome is invented", f"an attempt ends well, and left are {len(left)}")
            case _:
                pass
