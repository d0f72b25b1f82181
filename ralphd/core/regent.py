"""The supervision of one ralph: a fact comes in, the next state and the orders come out.

``step`` is the only place where it is decided what happens to a ralph (design section 5: E1 to E5, C1 to C4,
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
    HAS_A_RUN,
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
    if not isinstance(now.state, HAS_A_RUN):
        return Step(now)
    return ask_to_end(now, at, policy, kill=kill)


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
        case _:
            return Step(now)


def _unborn(now: Supervision) -> Step:
    """No run came of the order to start, and none is wanted any more."""
    if now.goal is Goal.PAUSED:
        return Step(replace(now, state=Paused("requested")), (PAUSED_ON_REQUEST,))
    return Step(replace(now, state=Stopped()), (STOPPED,))


def _adopt(now: Supervision, run_id: RunId, at: Moment, policy: Policy) -> Step:
    """A run that lives is taken over as what it was asked to be; the rest of an old order is carried out."""
    match now.state:
        case Stopping(kill_at=kill_at) | Pausing(kill_at=kill_at) if now.state.run_id == run_id:
            left_s = min(max(kill_at - at, 0.0), policy.stop_timeout_s)
            # With the goal still running it was an earlier daemon's own end that asked: the next run follows.
            state = ending(now.state, again=True) if now.goal is Goal.RUNNING else now.state
            return Step(replace(now, state=state), (ADOPTED, *ask(run_id, left_s)))
        case _ if now.goal is not Goal.RUNNING:
            running = replace(now, state=Running(run_id))
            asked = requests.pause if now.goal is Goal.PAUSED else _stop_asked
            answer = asked(running, at, policy)
            return Step(answer.supervision, (ADOPTED, *answer.actions))
        case Starting():  # the daemon died before it had written down that the run was born
            return Step(replace(now, state=Running(run_id)), (STARTED, ADOPTED))
        case _:
            return Step(replace(now, state=Running(run_id)), (ADOPTED,))


def _stop_asked(now: Supervision, at: Moment, policy: Policy) -> Step:
    return ask_to_end(now, at, policy)


def _spawned(now: Supervision, event: Spawned, policy: Policy) -> Step:
    running = replace(now, state=Running(event.run_id))
    if now.goal is Goal.RUNNING:
        return Step(running, (STARTED,))
    # Asked otherwise while it was being born.
    answer = (requests.pause if now.goal is Goal.PAUSED else _stop_asked)(running, event.at, policy)
    return Step(answer.supervision, (STARTED, *answer.actions))


def _spawn_failed(now: Supervision, why: str) -> Step:
    """E5: told to whoever asked; where nobody did (a restart at night), a person is called."""
    if not isinstance(now.state, Starting):
        return Step(now)
    text = f"Ralph cannot be started: {why}"
    failed = replace(now, state=Failed(text))
    told = () if now.state.asked else (Escalate(text),)
    return Step(failed, (*told, Announce("ralph.failed", text)))


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
