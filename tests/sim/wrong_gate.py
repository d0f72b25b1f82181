"""The gate, decided wrong on purpose."""

from dataclasses import replace

from ralphd.core.gate import range as ranges
from ralphd.core.gate import step as gate_core
from ralphd.core.gate import verdict as gate
from ralphd.core.gate.range import GateState
from ralphd.core.gate.verdict import (
    Baseline,
    GateEvent,
    GatePolicy,
    GateRun,
    Owner,
    Position,
    Result,
    Verdict,
)
from ralphd.core.supervision import step as regent_core
from ralphd.core.supervision.events import Event, VerdictReached
from ralphd.core.supervision.model import Policy, Step, Supervision
from tests.sim.cores import Steps
from tests.sim.repository import BASE, BRANCH


def _believes_one_red(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    return gate_core.step(run, event, replace(policy, test_retries=0))


def _keeps_what_is_red(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    is_red = isinstance(event, gate.Ran) and event.result is Result.RED
    return gate_core.step(run, gate.Ran(Result.GREEN) if is_red else event, policy)


def _blames_all(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    """Whoever made a commit, it may be reverted."""
    commits = tuple(replace(each, owner=Owner.RUN) for each in run.boundary.commits)
    return gate_core.step(replace(run, boundary=replace(run.boundary, commits=commits)), event, policy)


def _leaves_its_reverts(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    """Where the reverts did not help, they are not taken back."""
    after = gate_core.step(run, event, policy)
    if isinstance(after.order, gate.Restore) and after.planned is not None:
        return replace(after, order=gate.Say(after.planned), planned=None)
    return after


def _trusts_new_tests(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    return gate_core.step(run, event, replace(policy, protect_tests="off"))


def _never_ends_a_range(state: GateState, verdict: Verdict, head: Position) -> GateState:
    return replace(ranges.after_verdict(state, verdict, head), before=state.before)


def _reverts_all(run: GateRun, event: GateEvent, policy: GatePolicy) -> GateRun:
    return gate_core.step(run, event, replace(policy, minimal=False))


def _judges_what_is_restored(state: GateState, boundary_id: str, head: Position) -> GateState:
    """What a person wants back is judged again, with all that was there."""
    after = ranges.after_undo(state, boundary_id, head)
    return replace(after, before=Position(BASE, BRANCH), is_open=True, baseline=Baseline.GREEN)


def _calls_for_each_verdict(now: Supervision, event: Event, policy: Policy) -> Step:
    if isinstance(event, VerdictReached):
        now = replace(now, tally=replace(now.tally, called=None))
    return regent_core.step(now, event, policy)


GATE = {
    "the gate believes one red run of the tests": (Steps(gate=_believes_one_red), ("what is kept stays",)),
    "the gate keeps what is red": (Steps(gate=_keeps_what_is_red), ("nothing red is kept",)),
    "the gate reverts what a person made": (Steps(gate=_blames_all), ("nobody else's work is reverted",)),
    "the gate leaves reverts that did not help": (Steps(gate=_leaves_its_reverts), ("what is kept stays",)),
    "the gate trusts the tests that an agent left": (Steps(gate=_trusts_new_tests), ("nothing red is kept",)),
    "the gate never ends a range": (
        Steps(gate=_reverts_all, after_verdict=_never_ends_a_range),
        ("what is kept stays",),
    ),
    "the gate judges again what a person restored": (
        Steps(after_undo=_judges_what_is_restored),
        ("what is kept stays",),
    ),
    "the Regent calls for each verdict": (Steps(_calls_for_each_verdict), ("a person is called once",)),
}
"""Each with the rules by which a night may say so."""
