"""The phases of an attempt, decided wrong on purpose."""

from dataclasses import replace

from ralphd.core.loop import phases as core
from ralphd.core.loop.phases import PhaseEvent, PhasePolicy, Phases, PhaseStep, Reviewed
from ralphd.core.loop.review import Review
from tests.sim.cores import Steps


def _skips_reviews(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    after = core.step(phases, event, policy)
    return replace(after, order=core.PhasesOver()) if isinstance(after.order, core.RunReview) else after


def _ignores_findings(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    return core.step(phases, Reviewed(Review()) if isinstance(event, Reviewed) else event, policy)


def _addresses_for_ever(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    return core.step(phases, event, replace(policy, max_address_rounds=99))


def _forgives_the_rest(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    return core.step(phases, event, replace(policy, findings_fail=False))


def _tries_for_ever(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    return core.step(phases, event, replace(policy, phase_retry_count=99))


def _plans_again(phases: Phases, event: PhaseEvent, policy: PhasePolicy) -> PhaseStep:
    """It does not note that a plan is there."""
    after = core.step(phases, event, policy)
    if isinstance(after.order, core.PhasesOver) and after.order.failed:
        return replace(after, phases=Phases(phases.task_id))
    return after


PHASES = {
    "the phases skip a review": (Steps(phases=_skips_reviews), ("no outcome is invented",)),
    "the phases ignore findings": (Steps(phases=_ignores_findings), ("no outcome is invented",)),
    "the phases address findings for ever": (Steps(phases=_addresses_for_ever), ("restarts are bounded",)),
    "the phases forgive what is left": (Steps(phases=_forgives_the_rest), ("no outcome is invented",)),
    "the phases try one for ever": (Steps(phases=_tries_for_ever), ("restarts are bounded",)),
    "the phases plan again after a failure": (Steps(phases=_plans_again), ("nothing is done twice",)),
}
"""Each with the rules by which a night may say so."""
