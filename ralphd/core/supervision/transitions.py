"""What the answers to several facts have in common: start a run, ask one to end, count a restart."""

from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to an event: what is so now, and what to do about it, in this order."""

    supervision: Supervision
    actions: tuple[Action, ...] = ()


def spawn(now: Supervision, *told: Announce, before: Rest | None = None) -> Step:
    """Order a run, after what is ``told`` first. ``before``: what it is now, when a person asks."""
    return Step(replace(now, state=Starting(before)), (*told, Spawn()))


def counted(now: Supervision, at: Moment) -> Supervision:
    """The same with the coming restart counted, when it is one after a failure."""
    if not (isinstance(now.state, Waiting) and now.state.reason in (Reason.CRASH, Reason.RESTART_LIMIT)):
        return now
    recent = (*within_an_hour(now.tally.restarted_at, at), at)
    return replace(now, tally=replace(now.tally, restarts=now.tally.restarts + 1, restarted_at=recent))


def ask_to_end(
    now: Supervision, at: Moment, policy: Policy, *, kill: bool = False, again: bool = False
) -> Step:
    """Terminate, and kill after the grace; asked again, the first deadline stays, ``kill`` kills now (G1).

    A run with boundaries ends at the next one: there it is told; one that knows our signals is told now.
    """
    assert isinstance(now.state, HAS_A_RUN)
    match now.state:
        case Running(run_id=run_id) if kill:
            return Step(replace(now, state=Stopping(run_id, at, kill_at=at)), (KillTree(run_id),))
        case Running(run_id=run_id) if has_boundaries(now):
            stopping = Stopping(run_id, at, kill_at=None, again=again, asked=now.said.signals)
            return Step(replace(now, state=stopping), (Terminate(run_id),) if now.said.signals else ())
        case Running(run_id=run_id):
            stopping = Stopping(run_id, since=at, kill_at=at + policy.stop_timeout_s, again=again)
            return Step(replace(now, state=stopping), ask(run_id, policy.stop_timeout_s))
        case Pausing(run_id=run_id) | Stopping(run_id=run_id):
            stopping = ending(now.state, again=again)
            if not kill:
                return Step(replace(now, state=stopping))
            kill_at = at if stopping.kill_at is None else min(stopping.kill_at, at)
            return Step(replace(now, state=replace(stopping, kill_at=kill_at)), (KillTree(run_id),))


def has_boundaries(now: Supervision) -> bool:
    """Whether the run that lives can end between two iterations: it reports them, or knows our signals.

    One that we have ended ourselves is not waited for.
    """
    overdue = isinstance(now.state, Running) and now.state.overdue is not None
    return not overdue and (now.said.iterates or now.said.signals)


def ask(run_id: RunId, grace_s: float) -> tuple[Action, ...]:
    """Terminate now, kill when the grace is over."""
    return (Terminate(run_id), KillAfter(run_id, grace_s))


def ending(state: Pausing | Stopping, *, again: bool) -> Stopping:
    """What a state that is ending becomes when something else is wanted; the deadline stays."""
    return Stopping(state.run_id, state.since, state.kill_at, again, state.asked)
