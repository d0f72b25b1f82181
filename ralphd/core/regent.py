"""The supervision of one ralph: a fact comes in, the next state and the orders come out.

``step`` is the only place where it is decided what happens to a ralph (E1 to E5, C1 to C4,
G1 to G3). Every pair of state and event is listed in ``docs/states.md``, which is written from it.
"""

from dataclasses import replace

from ralphd.core import requests
from ralphd.core.actions import Announce, Escalate, KillTree, WakeAt
from ralphd.core.ends import run_ended
from ralphd.core.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    GraceOver,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.model import (
    Failed,
    Goal,
    Idle,
    Moment,
    Paused,
    Pausing,
    Policy,
    Reason,
    RunId,
    Running,
    Starting,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.patience import after_a_set_back_clock
from ralphd.core.steps import (
    ADOPTED,
    PAUSED_ON_REQUEST,
    RESTARTING,
    RESUMED,
    STARTED,
    STOPPED,
    Step,
    ask,
    ask_to_end,
    counted,
    ending,
    spawn,
)


def step(now: Supervision, event: Event, policy: Policy) -> Step:
    """Answer one event. News that changes nothing here gives the same supervision and no actions."""
    if requests.why_not(now, event) is not None:
        return Step(now)
    match event:
        case StartRequested():
            return requests.start(now)
        case StopRequested():
            return requests.stop(replace(now, goal=Goal.STOPPED), event.at, policy, kill=event.now)
        case PauseRequested():
            return requests.pause(replace(now, goal=Goal.PAUSED), event.at, policy)
        case ResumeRequested():
            return requests.resume(now)
        case RestartRequested():
            return requests.restart(replace(now, goal=Goal.RUNNING), event.at, policy)
        case SkipWaitRequested():
            return requests.skip_wait(now, event.at)
        case DaemonStopping():
            return _end_with_daemon(now, event.at, policy, kill=event.now)
        case DaemonStarted():
            return _recover(now, event, policy)
        case Spawned():
            return _spawned(now, event, policy)
        case SpawnFailed():
            return _spawn_failed(now, event.why)
        case SpawnPostponed():
            return _spawn_postponed(now, event, policy)
        case RunEnded():
            return run_ended(now, event.ending, policy)
        case GraceOver():
            return _grace_over(now, event.run_id)
        case Woke():
            return _woke(now, event.at)


def _end_with_daemon(now: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """The run ends with the daemon, the goal stays: the next daemon starts it again (G2)."""
    match now.state:
        case Pausing(run_id=run_id):  # a pause is a pause still
            return Step(now, (KillTree(run_id),) if kill else ())
        case Running() | Stopping():
            return ask_to_end(now, at, policy, kill=kill)
        case _:
            return Step(now)


def _recover(now: Supervision, event: DaemonStarted, policy: Policy) -> Step:
    if event.living is not None:
        return _adopt(now, event.living, event.at, policy)
    match now.state:
        case Waiting(until=until) | Paused(resume_at=float() as until):
            return Step(now, (WakeAt(until),))
        case Idle() | Starting() | Stopped() if now.goal is Goal.RUNNING:
            return spawn(now)
        case Starting():
            return _unborn(now)
        case Stopping() if now.goal is Goal.RUNNING:  # how it ended is still to be told
            return Step(replace(now, state=ending(now.state, again=True)))
        case _:
            return Step(now)


def _unborn(now: Supervision) -> Step:
    """No run came of the order to start, and none is wanted any more."""
    if now.goal is Goal.PAUSED:
        return Step(replace(now, state=Paused("requested")), (PAUSED_ON_REQUEST,))
    return Step(replace(now, state=Stopped()), (STOPPED,))


def _adopt(now: Supervision, run_id: RunId, at: Moment, policy: Policy) -> Step:
    """A run that lives is taken over as what it was asked to be; the rest of an old order is carried out."""
    # A daemon may have died before it had written down that the run was born.
    told = (STARTED, ADOPTED) if isinstance(now.state, Starting) else (ADOPTED,)
    match now.state:
        case Stopping(kill_at=kill_at) | Pausing(kill_at=kill_at) if now.state.run_id == run_id:
            left_s = min(max(kill_at - at, 0.0), policy.stop_timeout_s)
            # With the goal still running it was an earlier daemon's own end that asked: the next run follows.
            state = ending(now.state, again=True) if now.goal is Goal.RUNNING else now.state
            return Step(replace(now, state=state), (*told, *ask(run_id, left_s)))
        case _:
            answer = _as_wanted(now, run_id, at, policy)
            return Step(answer.supervision, (*told, *answer.actions))


def _as_wanted(now: Supervision, run_id: RunId, at: Moment, policy: Policy) -> Step:
    """A run that is there now, whatever was asked while it was being born."""
    running = replace(now, state=Running(run_id))
    match now.goal:
        case Goal.RUNNING:
            return Step(running)
        case Goal.PAUSED:
            return requests.pause(running, at, policy)
        case Goal.STOPPED:
            kill = isinstance(now.state, Starting) and now.state.kill
            return ask_to_end(running, at, policy, kill=kill)


def _spawned(now: Supervision, event: Spawned, policy: Policy) -> Step:
    answer = _as_wanted(now, event.run_id, event.at, policy)
    return Step(answer.supervision, (STARTED, *answer.actions))


def _spawn_failed(now: Supervision, why: str) -> Step:
    """E5: whoever asked is told, and nothing has changed; where nobody did, at night, a person is called."""
    match now.state:
        case Starting(before=None):
            text = f"Ralph cannot be started: {why}"
            return Step(replace(now, state=Failed(text)), (Escalate(text), Announce("ralph.failed")))
        case Starting(before=Waiting() | Paused()) if now.goal is not Goal.RUNNING:
            return _unborn(now)  # a stop or a pause that was asked meanwhile outlasts it
        case Starting(before=Waiting() as before):
            return Step(replace(now, goal=Goal.RUNNING, state=before), (WakeAt(before.until),))
        case Starting(before=Paused(resume_at=float() as until) as before):
            return Step(replace(now, goal=Goal.RUNNING, state=before), (WakeAt(until),))
        case Starting(before=Paused() as before):
            return Step(replace(now, goal=Goal.PAUSED, state=before))
        case Starting(before=before) if before is not None:
            return Step(replace(now, goal=Goal.STOPPED, state=before))
        case _:
            return Step(now)


def _spawn_postponed(now: Supervision, event: SpawnPostponed, policy: Policy) -> Step:
    """What the machine lacks comes back by itself: tried again after the backoff, nobody's failure."""
    if not isinstance(now.state, Starting):
        return Step(now)
    if now.goal is not Goal.RUNNING:
        return _unborn(now)
    wait = Waiting(Reason.RESOURCES, event.at, event.at + max(policy.retry_backoff_s, 1.0))
    told = Announce("wait.started", f"Ralph cannot be started just now: {event.why}", wait_until=wait.until)
    return Step(replace(now, state=wait), (told, WakeAt(wait.until)))


def _grace_over(now: Supervision, run_id: RunId) -> Step:
    if isinstance(now.state, Pausing | Stopping) and now.state.run_id == run_id:
        return Step(now, (KillTree(run_id),))
    return Step(now)


def _woke(now: Supervision, at: Moment) -> Step:
    match now.state:
        case Waiting():
            wait = after_a_set_back_clock(now.state, at)
            if at < wait.until:
                return Step(replace(now, state=wait), (WakeAt(wait.until),))
            told = () if wait.reason is Reason.ITERATION_PAUSE else (RESTARTING,)
            return spawn(counted(now, at), *told)
        case Paused(resume_at=float() as resume_at):
            if at < resume_at:
                return Step(now, (WakeAt(resume_at),))
            return spawn(now, RESUMED)
        case _:
            return Step(now)
