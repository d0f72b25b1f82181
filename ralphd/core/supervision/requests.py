"""What a person's request does to a ralph (G1, G2)."""

from dataclasses import replace

from ralphd.core.supervision import reports
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
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Waiting,
)
from ralphd.core.supervision.reports import Reported
from ralphd.core.supervision.transitions import (
    PAUSED_ON_REQUEST,
    PAUSING,
    PAUSING_AT_BOUNDARY,
    RESTARTING,
    RESUMED,
    STOPPED,
    Step,
    ask,
    ask_to_end,
    counted,
    ending,
    has_boundaries,
    spawn,
)
from ralphd.core.time import Moment


def why_not(now: Supervision, event: Event) -> str | None:
    """Why a person's request does not fit what the ralph is doing, or None when it does."""
    settled = isinstance(now.state, SETTLED)
    match event:
        case PauseRequested() if settled:
            return f"it is {now.state.kind}: there is nothing to pause"
        case ResumeRequested() if settled:
            return f"it is {now.state.kind}, not paused: start it instead"
        case ResumeRequested() if now.goal is Goal.STOPPED:
            return f"it is {now.state.kind} and was asked to stop: start it instead"
        case SkipWaitRequested() if isinstance(now.state, Running) and now.said.wait is not None:
            return None if now.said.signals else "its command waits by itself, and does not know our signals"
        case SkipWaitRequested() if not _waits(now):
            return f"it is {now.state.kind} and not waiting for a moment"
        case Reported():
            return reports.why_not(now, event)
        case _:
            return None


def _waits(now: Supervision) -> bool:
    return isinstance(now.state, Waiting) or (
        isinstance(now.state, Paused) and now.state.resume_at is not None
    )


def start(now: Supervision, at: Moment) -> Step:
    """Run: a settled ralph starts afresh, a paused one goes on, one that is ending starts again."""
    wanted = replace(now, goal=Goal.RUNNING)
    match now.state:
        case Idle() | Stopped() | Failed() | Done():
            return spawn(replace(wanted, tally=Tally(began_at=at)), before=now.state)
        case Paused():
            return resume(now)
        case Pausing() | Stopping():
            fresh = replace(wanted, tally=Tally(began_at=at))
            return Step(replace(fresh, state=ending(now.state, again=True)))
        case Starting(before=before):
            return Step(replace(wanted, state=Starting(before)))
        case _:
            return Step(wanted)


def stop(now: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """End the run, or the wait; a ralph that is settled stays what it is."""
    match now.state:
        case Running() | Pausing() | Stopping():
            return ask_to_end(now, at, policy, kill=kill)
        case Waiting() | Paused():
            return Step(replace(now, state=Stopped()), (STOPPED,))
        case Starting(before=before):
            return Step(replace(now, state=Starting(before, kill)))
        case _:
            return Step(now)


def pause(now: Supervision, at: Moment, policy: Policy) -> Step:
    """End the run and keep it from starting until someone resumes it."""
    match now.state:
        case Running(run_id=run_id) if has_boundaries(now):
            pausing = Pausing(run_id, since=at, kill_at=None, asked=now.said.signals)
            wish = (PassOn(run_id, ControlSignal.PAUSE),) if now.said.signals else ()
            return Step(replace(now, state=pausing), (PAUSING_AT_BOUNDARY, *wish))
        case Running(run_id=run_id):
            pausing = Pausing(run_id, since=at, kill_at=at + policy.stop_timeout_s)
            return Step(replace(now, state=pausing), (PAUSING, *ask(run_id, policy.stop_timeout_s)))
        case Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):
            return Step(replace(now, state=Pausing(run_id, since, kill_at, asked)))
        case Waiting():
            return Step(replace(now, state=Paused("requested")), (PAUSED_ON_REQUEST,))
        case Paused(reason=reason):
            return Step(replace(now, state=Paused(reason)))  # a person's pause outlasts a limit's reset
        case _:
            return Step(now)


def resume(now: Supervision) -> Step:
    """Go on after a pause."""
    wanted = replace(now, goal=Goal.RUNNING)
    match now.state:
        case Paused():
            return spawn(wanted, RESUMED, before=now.state)
        case Pausing():
            return Step(replace(wanted, state=ending(now.state, again=True)))
        case Starting(before=before):
            return Step(replace(wanted, state=Starting(before)))
        case _:
            return Step(now)


def restart(now: Supervision, at: Moment, policy: Policy) -> Step:
    """Stop, then start; the count of failures begins anew."""
    fresh = replace(now, tally=replace(now.tally, consecutive_errors=0, restarted_at=()))
    match now.state:
        case Running():
            return ask_to_end(fresh, at, policy, again=True)
        case Pausing() | Stopping():
            return Step(replace(fresh, state=ending(now.state, again=True)))
        case Starting(before=before):
            return Step(replace(fresh, state=Starting(before)))
        case Waiting() | Paused():
            return spawn(fresh, RESTARTING, before=now.state)
        case Idle() | Stopped() | Failed() | Done():
            return spawn(replace(now, tally=Tally(began_at=at)), RESTARTING, before=now.state)


def skip_wait(now: Supervision, at: Moment) -> Step:
    """Do not wait any longer."""
    if isinstance(now.state, Running):
        return Step(now, (PassOn(now.state.run_id, ControlSignal.SKIP_WAIT),))
    assert isinstance(now.state, Waiting | Paused)
    wanted = replace(now, goal=Goal.RUNNING)
    return spawn(counted(wanted, at), RESTARTING, before=now.state)
