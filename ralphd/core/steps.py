"""What the answers to several facts have in common: start a run, ask one to end, count a restart."""

from dataclasses import dataclass, replace

from ralphd.core.actions import Action, Announce, KillAfter, KillTree, Spawn, Terminate
from ralphd.core.model import (
    Moment,
    Pausing,
    Policy,
    Reason,
    Rest,
    RunId,
    Running,
    Starting,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.patience import within_an_hour

STARTED = Announce("ralph.started")
STOPPED = Announce("ralph.stopped", "Ralph stopped")
PAUSING = Announce("ralph.paused", "Pausing: Ralph was asked to end")
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
    """Terminate, and kill after the grace; asked again, the first deadline stays, ``kill`` kills now (G1)."""
    match now.state:
        case Running(run_id=run_id):
            grace_s = 0.0 if kill else policy.stop_timeout_s
            stopping = Stopping(run_id, since=at, kill_at=at + grace_s, again=again)
            orders = (KillTree(run_id),) if kill else ask(run_id, grace_s)
            return Step(replace(now, state=stopping), orders)
        case Pausing(run_id=run_id) | Stopping(run_id=run_id):
            stopping = ending(now.state, again=again)
            if not kill:
                return Step(replace(now, state=stopping))
            killed = replace(stopping, kill_at=min(stopping.kill_at, at))
            return Step(replace(now, state=killed), (KillTree(run_id),))
        case _:
            return Step(now)


def ask(run_id: RunId, grace_s: float) -> tuple[Action, ...]:
    """Terminate now, kill when the grace is over."""
    return (Terminate(run_id), KillAfter(run_id, grace_s))


def ending(state: Pausing | Stopping, *, again: bool) -> Stopping:
    """What a state that is ending becomes when something else is wanted; the deadline stays."""
    return Stopping(state.run_id, state.since, state.kill_at, again)
