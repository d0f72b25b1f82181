"""What a person's request does to a ralph (G1, G2)."""

from dataclasses import replace

from ralphd.core.supervision import reports, transitions
from ralphd.core.supervision.events import Event, PauseRequested, ResumeRequested, SkipWaitRequested
from ralphd.core.supervision.model import (
    SETTLED,
    ControlSignal,
    Done,
    Failed,
    Goal,
    Idle,
    PassOn,
    Paused,
    Pausing,
    Policy,
    Running,
    Starting,
    Step,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Waiting,
)
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment


def why_not(current: Supervision, event: Event) -> str | None:
    """Return why a request does not fit the state of the ralph, or None."""
    settled = isinstance(current.state, SETTLED)
    match event:
        case PauseRequested() if settled:
            return f"it is {current.state.kind}: there is nothing to pause"
        case ResumeRequested() if settled:
            return f"it is {current.state.kind}, not paused: start it instead"
        case ResumeRequested() if current.goal is Goal.STOPPED:
            return f"it is {current.state.kind} and was asked to stop: start it instead"
        case SkipWaitRequested() if isinstance(current.state, Running) and current.said.wait is not None:
            return (
                None if current.said.signals else "its command waits by itself, and does not know our signals"
            )
        case SkipWaitRequested() if not _waits(current):
            return f"it is {current.state.kind} and not waiting for a moment"
        case Reported():
            return reports.why_not(current, event)
        case _:
            return None


def _waits(current: Supervision) -> bool:
    return isinstance(current.state, Waiting) or (
        isinstance(current.state, Paused) and current.state.resume_at is not None
    )


def start(current: Supervision, at: Moment) -> Step:
    """Start a settled ralph afresh, resume a paused one, follow an ending run with another."""
    wanted = replace(current, goal=Goal.RUNNING)
    match current.state:
        case Idle() | Stopped() | Failed() | Done():
            return transitions.spawn(replace(wanted, tally=Tally(began_at=at)), before=current.state)
        case Paused():
            return resume(current)
        case Pausing() | Stopping():
            fresh = replace(wanted, tally=Tally(began_at=at))
            return Step(replace(fresh, state=transitions.ending(current.state, again=True)))
        case Starting(before=before):
            return Step(replace(wanted, state=Starting(before)))
        case _:
            return Step(wanted)


def stop(current: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """End the run, or the wait; a settled ralph stays as it is."""
    match current.state:
        case Running() | Pausing() | Stopping():
            return transitions.ask_to_end(current, at, policy, kill=kill)
        case Waiting() | Paused():
            return Step(replace(current, state=Stopped()), (transitions.STOPPED,))
        case Starting(before=before):
            return Step(replace(current, state=Starting(before, kill)))
        case _:
            return Step(current)


def pause(current: Supervision, at: Moment, policy: Policy) -> Step:
    """End the run, and start none until someone resumes the ralph."""
    match current.state:
        case Running(run_id=run_id) if transitions.has_boundaries(current):
            pausing = Pausing(run_id, since=at, kill_at=None, asked=current.said.signals)
            wish = (PassOn(run_id, ControlSignal.PAUSE),) if current.said.signals else ()
            return Step(replace(current, state=pausing), (transitions.PAUSING_AT_BOUNDARY, *wish))
        case Running(run_id=run_id):
            pausing = Pausing(run_id, since=at, kill_at=at + policy.stop_timeout_s)
            return Step(
                replace(current, state=pausing),
                (transitions.PAUSING, *transitions.ask(run_id, policy.stop_timeout_s)),
            )
        case Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):
            return Step(replace(current, state=Pausing(run_id, since, kill_at, asked)))
        case Waiting():
            return Step(replace(current, state=Paused("requested")), (transitions.PAUSED_ON_REQUEST,))
        case Paused(reason=reason):
            return Step(replace(current, state=Paused(reason)))  # a person's pause outlasts a limit's reset
        case _:
            return Step(current)


def resume(current: Supervision) -> Step:
    wanted = replace(current, goal=Goal.RUNNING)
    match current.state:
        case Paused():
            return transitions.spawn(wanted, transitions.RESUMED, before=current.state)
        case Pausing():
            return Step(replace(wanted, state=transitions.ending(current.state, again=True)))
        case Starting(before=before):
            return Step(replace(wanted, state=Starting(before)))
        case _:
            return Step(current)


def restart(current: Supervision, at: Moment, policy: Policy) -> Step:
    """Stop, then start, with the count of failures at 0."""
    fresh = replace(current, tally=replace(current.tally, consecutive_errors=0, restarted_at=()))
    match current.state:
        case Running():
            return transitions.ask_to_end(fresh, at, policy, again=True)
        case Pausing() | Stopping():
            return Step(replace(fresh, state=transitions.ending(current.state, again=True)))
        case Starting(before=before):
            return Step(replace(fresh, state=Starting(before)))
        case Waiting() | Paused():
            return transitions.spawn(fresh, transitions.RESTARTING, before=current.state)
        case Idle() | Stopped() | Failed() | Done():
            return transitions.spawn(
                replace(current, tally=Tally(began_at=at)), transitions.RESTARTING, before=current.state
            )


def skip_wait(current: Supervision, at: Moment) -> Step:
    if isinstance(current.state, Running):
        return Step(current, (PassOn(current.state.run_id, ControlSignal.SKIP_WAIT),))
    assert isinstance(current.state, Waiting | Paused)
    wanted = replace(current, goal=Goal.RUNNING)
    return transitions.spawn(transitions.counted(wanted, at), transitions.RESTARTING, before=current.state)
