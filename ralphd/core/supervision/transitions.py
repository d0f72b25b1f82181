"""Transitions that several events share: start a run, end one, count a restart."""

from dataclasses import replace

from ralphd.core.backoff import within_an_hour
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    KillAfter,
    KillTree,
    Pausing,
    Policy,
    Reason,
    Rest,
    RunId,
    Running,
    Spawn,
    Starting,
    Step,
    Stopping,
    Supervision,
    Terminate,
    Waiting,
)
from ralphd.core.time import Moment

GUARD = "guard"
"""Why a ralph is paused whose repository a person has to look at first."""
STARTED = Announce("ralph.started")
STOPPED = Announce("ralph.stopped", "Ralph stopped")
PAUSING = Announce("ralph.paused", "Pausing: Ralph was asked to end")
PAUSING_AT_BOUNDARY = Announce("ralph.paused", "Pausing after current iteration...")
PAUSED_ON_REQUEST = Announce("ralph.paused", "Ralph paused, as asked")
RESUMED = Announce("ralph.resumed", "Resuming Ralph...")
RESTARTING = Announce("wait.ended", "Restarting Ralph...")
ADOPTED = Announce("ralph.adopted", "Ralph goes on: taken over after a restart of the daemon")


def spawn(current: Supervision, *actions: Announce, before: Rest | None = None) -> Step:
    """Order a run, after ``actions``. ``before``: the state to return to if it cannot be started."""
    return Step(replace(current, state=Starting(before)), (*actions, Spawn()))


def counted(current: Supervision, at: Moment) -> Supervision:
    """Count the coming restart, if it follows a failure."""
    if not (
        isinstance(current.state, Waiting) and current.state.reason in (Reason.CRASH, Reason.RESTART_LIMIT)
    ):
        return current
    recent = (*within_an_hour(current.tally.restarted_at, at), at)
    return replace(
        current, tally=replace(current.tally, restarts=current.tally.restarts + 1, restarted_at=recent)
    )


def ask_to_end(
    current: Supervision, at: Moment, policy: Policy, *, kill: bool = False, again: bool = False
) -> Step:
    """Terminate, and kill after the grace; asked again, the first deadline stays, ``kill`` kills now (G1).

    A run with boundaries ends at its next one; one that handles our signals is signalled at once.
    """
    assert isinstance(current.state, HAS_A_RUN)
    match current.state:
        case Running(run_id=run_id) if kill:
            return Step(replace(current, state=Stopping(run_id, at, kill_at=at)), (KillTree(run_id),))
        case Running(run_id=run_id) if has_boundaries(current):
            stopping = Stopping(run_id, at, kill_at=None, again=again, asked=current.said.signals)
            return Step(
                replace(current, state=stopping), (Terminate(run_id),) if current.said.signals else ()
            )
        case Running(run_id=run_id):
            stopping = Stopping(run_id, since=at, kill_at=at + policy.stop_timeout_s, again=again)
            return Step(replace(current, state=stopping), ask(run_id, policy.stop_timeout_s))
        case Pausing(run_id=run_id) | Stopping(run_id=run_id):
            stopping = ending(current.state, again=again)
            if not kill:
                return Step(replace(current, state=stopping))
            kill_at = at if stopping.kill_at is None else min(stopping.kill_at, at)
            return Step(replace(current, state=replace(stopping, kill_at=kill_at)), (KillTree(run_id),))


def has_boundaries(current: Supervision) -> bool:
    """Whether the run can end between two iterations: it reports them, or handles our signals.

    An overdue run cannot: it will not come to its boundary.
    """
    overdue = isinstance(current.state, Running) and current.state.overdue is not None
    return not overdue and (current.said.iterates or current.said.signals)


def ask(run_id: RunId, grace_s: float) -> tuple[Action, ...]:
    """Terminate now, kill when the grace is over."""
    return (Terminate(run_id), KillAfter(run_id, grace_s))


def ending(state: Pausing | Stopping, *, again: bool) -> Stopping:
    """Turn a state that is ending into a stop; its deadline stays."""
    return Stopping(state.run_id, state.since, state.kill_at, again, state.asked)
