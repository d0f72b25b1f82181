"""The cores that a night is played with: the real ones, or a wrong one, to see that it is noticed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ralphd.core.gate import range as ranges
from ralphd.core.gate import step as gate_core
from ralphd.core.gate.range import GateState
from ralphd.core.gate.verdict import GateEvent, GatePolicy, GateRun, Position, Verdict
from ralphd.core.landing import step as landing_core
from ralphd.core.landing.model import LandingFact, LandingPolicy, LandingQueue
from ralphd.core.loop import phases as phases_core
from ralphd.core.loop import step as loop_core
from ralphd.core.loop.model import Loop, LoopEvent, LoopPolicy, LoopStep
from ralphd.core.loop.phases import PhaseEvent, PhasePolicy, Phases, PhaseStep
from ralphd.core.quota import clock as quota
from ralphd.core.quota.clock import Asked, Force
from ralphd.core.quota.model import AccountRules, QuotaClock, QuotaLimit
from ralphd.core.supervision import door
from ralphd.core.supervision import step as regent_core
from ralphd.core.supervision.door import Caller, RequestedAction
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import Policy, Step, Supervision
from ralphd.core.time import Moment

RegentStep: TypeAlias = Callable[[Supervision, Event, Policy], Step]
LoopStepper: TypeAlias = Callable[[Loop, LoopEvent, LoopPolicy], LoopStep]
GateStep: TypeAlias = Callable[[GateRun, GateEvent, GatePolicy], GateRun]
RangeEnd: TypeAlias = Callable[[GateState, Verdict, Position], GateState]
LandingStep: TypeAlias = Callable[[LandingQueue, LandingFact, LandingPolicy, Moment], LandingQueue]
PhaseStepper: TypeAlias = Callable[[Phases, PhaseEvent, PhasePolicy], PhaseStep]
Undone: TypeAlias = Callable[[GateState, str, Position], GateState]
LimitMet: TypeAlias = Callable[[QuotaClock, QuotaLimit], QuotaClock]
Answered: TypeAlias = Callable[[QuotaClock, str, Moment], QuotaClock]
Door: TypeAlias = Callable[[RequestedAction, Caller, Collection[str]], bool]


class Ask(Protocol):
    """Whether an attempt may begin with an account."""

    def __call__(
        self,
        clock: QuotaClock,
        by: str,
        at: Moment,
        rules: AccountRules,
        *,
        priority: int = 0,
        force: Force = Force.NOTHING,
        queued_at: Moment | None = None,
    ) -> Asked:
        """As ``quota.ask``."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The pure functions that decide in a night."""

    regent: RegentStep = regent_core.step
    loop: LoopStepper = loop_core.step
    door: Door = door.is_permitted
    ask: Ask = quota.ask
    limit_met: LimitMet = quota.limit_met
    answered: Answered = quota.answered
    gate: GateStep = gate_core.step
    after_verdict: RangeEnd = ranges.after_verdict
    after_undo: Undone = ranges.after_undo
    lands: LandingStep = landing_core.step
    phases: PhaseStepper = phases_core.step


REAL = Steps()
