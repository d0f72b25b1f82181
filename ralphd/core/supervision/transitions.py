"""Transitions that several events share: start a run, end one, count a restart."""

from dataclasses import replace

from ralphd.core.supervision import model
from ralphd.core.supervision.backoff import within_an_hour
from ralphd.core.supervision.model import Announce, Policy, Step, Supervision
from ralphd.core.time import Moment

GUARD = "guard"
"""Why a ralph is paused whose repository a person has to look at first."""
STARTED = Announce("ralph.started")
STOPPED = Announce("ralph.stopped", "Ralph stopped")
PAUSING = Announce("ralph.pausing", "Pausing: sent SIGTERM to Ralph")
PAUSING_AT_BOUNDARY = Announce("ralph.pausing", "Pausing after current iteration...")
OFF_SCHEDULE = Announce("ralph.pausing", "Outside its schedule: pausing after current iteration...")
PAUSED_ON_REQUEST = Announce("ralph.paused", "Ralph paused, as requested")
RESUMED = Announce("ralph.resumed", "Resuming Ralph...")
RESTARTING = Announce("wait.ended", "Restarting Ralph...")
ADOPTED = Announce("ralph.adopted", "Ralph kept running: the restarted daemon adopted it")


def spawn(
    current: Supervision, *actions: Announce, before: model.Rest | None = None, skips: bool = False
) -> Step:
    """Order a run, after ``actions``. ``before``: the state to return to if it cannot be started."""
    queued_at = current.state.queued_at if isinstance(current.state, model.Waiting) else None
    return current.enter(model.Starting(before, queued_at=queued_at, skips=skips), *actions, model.Spawn())


def unborn(current: Supervision) -> Step:
    """No run came of the order to start, and none is wanted now."""
    if current.goal is model.Goal.PAUSED:
        return current.enter(model.Paused("requested"), PAUSED_ON_REQUEST)
    return current.enter(model.Stopped(), STOPPED)


def give_up(current: Supervision, text: str) -> Step:
    """Fail, and escalate."""
    return current.enter(model.Failed(text), model.Escalate(text), Announce("ralph.failed"))


def counted(current: Supervision, at: Moment, policy: Policy) -> Supervision:
    """Count the coming restart, if it follows a failure; keep the times that the limit of an hour needs."""
    reason = current.state.reason if isinstance(current.state, model.Waiting) else None
    if reason not in (model.Reason.CRASH, model.Reason.RESTART_LIMIT):
        return current
    tally, limit = current.tally, policy.max_restarts_per_hour
    recent = (*within_an_hour(tally.restarted_at, at), at)[-limit:] if limit else ()
    return replace(current, tally=replace(tally, restarts=tally.restarts + 1, restarted_at=recent))


def ask_to_end(
    current: Supervision, at: Moment, policy: Policy, *, kill: bool = False, again: bool = False
) -> Step:
    """Terminate, and kill after the grace; asked again, the first deadline stays, ``kill`` kills now (G1).

    A run with boundaries ends at its next one; a run that handles our signals is signalled at once.
    """
    assert isinstance(current.state, model.HAS_A_RUN)
    match current.state:
        case model.Running(run_id=run_id) if kill:
            return current.enter(model.Stopping(run_id, at, kill_at=at), model.KillTree(run_id))
        case model.Running(run_id=run_id) if has_boundaries(current):
            stopping = model.Stopping(run_id, at, kill_at=None, again=again, asked=current.said.signals)
            return current.enter(stopping, *((model.Terminate(run_id),) if current.said.signals else ()))
        case model.Running(run_id=run_id):
            stopping = model.Stopping(run_id, since=at, kill_at=at + policy.stop_timeout_s, again=again)
            return current.enter(stopping, *ask(run_id, policy.stop_timeout_s))
        case model.Pausing(run_id=run_id) | model.Stopping(run_id=run_id):
            stopping = ending(current.state, again=again)
            if not kill:
                return current.enter(stopping)
            kill_at = at if stopping.kill_at is None else min(stopping.kill_at, at)
            return current.enter(replace(stopping, kill_at=kill_at), model.KillTree(run_id))


def has_boundaries(current: Supervision) -> bool:
    """Whether the run can end between two iterations: it reports them, or handles our signals.

    An overdue run cannot: it will not come to its boundary.
    """
    overdue = isinstance(current.state, model.Running) and current.state.overdue is not None
    return not overdue and (current.said.iterates or current.said.signals)


def ask(run_id: model.RunId, grace_s: float) -> tuple[model.Action, ...]:
    """Terminate now, kill when the grace is over."""
    return (model.Terminate(run_id), model.KillAfter(run_id, grace_s))


def ending(state: model.Pausing | model.Stopping, *, again: bool) -> model.Stopping:
    """Turn a state that is ending into a stop; its deadline stays."""
    return model.Stopping(state.run_id, state.since, state.kill_at, again, state.asked)
