"""The supervision of one ralph: a fact comes in, the next state and the orders come out.

``step`` is the only place where it is decided what happens to a ralph (E1 to E5, C1 to C4,
G1 to G3). Every pair of state and event is listed in ``docs/states.md``, which is written from it.
"""

from dataclasses import replace

from ralphd.core.backoff import after_a_set_back_clock
from ralphd.core.supervision import gate_events, reports, requests
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    Committed,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GraceOver,
    JudgementBegan,
    JudgementOver,
    LeftBehind,
    Overran,
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
from ralphd.core.supervision.exit_policy import run_ended
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    ControlSignal,
    Escalate,
    Failed,
    Goal,
    Idle,
    KillAfter,
    KillTree,
    Mode,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    Reason,
    RunId,
    Running,
    RunReports,
    Starting,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import Reported
from ralphd.core.supervision.transitions import (
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
from ralphd.core.time import Moment


def step(now: Supervision, event: Event, policy: Policy) -> Step:
    """Answer one event. News that changes nothing here gives the same supervision and no actions."""
    if requests.why_not(now, event) is not None:
        return Step(now)
    match event:
        case StartRequested():
            return requests.start(now, event.at)
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
        case Reported():
            return reports.reported(now, event, policy)
        case JudgementBegan():
            return gate_events.began(now, event)
        case JudgementOver():
            return gate_events.over(now, event, policy)
        case BaselineTested():
            return gate_events.baseline(now, event)
        case CommitsRestored() | LeftBehind():
            return Step(now, gate_events.told(event))
        case FellSilent():
            return _fell_silent(now, event)
        case Overran():
            return _overran(now, event, policy)
        case Committed():
            return _committed(now, event, policy)
        case GraceOver():
            return _grace_over(now, event, policy)
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
        case Stopping():  # how it ended is still to be told
            return Step(replace(now, state=_followed(now, now.state)))
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
            orders = (*_ask_again(now, kill_at, at, policy), *_await_reported(now))
            return Step(replace(now, state=_followed(now, now.state)), (*told, *orders))
        case Running(overdue=Overdue()) if now.state.run_id == run_id:
            return Step(now, (*told, *overdue_orders(now.state, policy), *_await_reported(now)))
        case Running() if now.state.run_id == run_id and now.said.wait is not None:
            return Step(now, (*told, *_await_reported(now)))
        case Running() if now.state.run_id == run_id:
            answer = _as_wanted(now, run_id, at, policy)
        case _:  # another one has said what was said
            answer = _as_wanted(replace(now, said=RunReports()), run_id, at, policy)
    return Step(answer.supervision, (*told, *answer.actions))


def _followed(now: Supervision, state: Pausing | Stopping) -> Pausing | Stopping:
    """With the goal still running it was an earlier daemon's own end that asked, and the next run follows."""
    if now.goal is not Goal.RUNNING or now.said.limit is not None:  # a limit ends it for good
        return state
    return ending(state, again=True)


def _await_reported(now: Supervision) -> tuple[Action, ...]:
    return () if now.said.wait is None else (WakeAt(now.said.wait.until),)


def _ask_again(now: Supervision, kill_at: Moment | None, at: Moment, policy: Policy) -> tuple[Action, ...]:
    """The rest of an earlier daemon's order to end."""
    assert isinstance(now.state, Stopping | Pausing)
    run_id = now.state.run_id
    if kill_at is not None:
        left_s = min(max(kill_at - at, 0.0), policy.stop_timeout_s)
        return ask(run_id, left_s) if now.state.asked else (KillAfter(run_id, left_s),)
    if not now.said.signals:  # it is told at its next boundary
        return ()
    # The order before may have been lost, or heard: a second SIGTERM would end a working agent at once, a
    # second wish to pause changes nothing. Either way it ends at its boundary, and then as it was asked to.
    return (PassOn(run_id, ControlSignal.PAUSE),)


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
            return Step(replace(now, state=before), (WakeAt(before.until),))
        case Starting(before=Paused(resume_at=float() as until) as before):
            return Step(replace(now, state=before), (WakeAt(until),))
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


def _grace_over(now: Supervision, event: GraceOver, policy: Policy) -> Step:
    """Kill; but who was only told so far, at a boundary, is asked first."""
    match now.state:
        case Pausing() | Stopping() if now.state.run_id != event.run_id or now.state.kill_at is None:
            return Step(now)
        case Pausing(asked=False) | Stopping(asked=False):
            asked = replace(now.state, asked=True, kill_at=event.at + policy.stop_timeout_s)
            return Step(replace(now, state=asked), ask(event.run_id, policy.stop_timeout_s))
        case Pausing() | Stopping():
            return Step(now, (KillTree(event.run_id),))
        case Running(run_id=run_id, overdue=Overdue()) if run_id == event.run_id:
            return Step(now, (KillTree(run_id),))
        case _:
            return Step(now)


def _fell_silent(now: Supervision, event: FellSilent) -> Step:
    if not (isinstance(now.state, HAS_A_RUN) and now.state.run_id == event.run_id):
        return Step(now)
    return Step(now, (Announce("ralph.stall_warning", event.text),))


def _overran(now: Supervision, event: Overran, policy: Policy) -> Step:
    """H4: a hanging tree is killed; what only took too long is asked first. Its end is judged by this."""
    if not (policy.supervised and isinstance(now.state, HAS_A_RUN) and now.state.run_id == event.run_id):
        return Step(now)
    if isinstance(now.state, Stopping | Pausing):  # it was to end at its boundary, and will not come to it
        return _end_before_boundary(now, now.state, event, policy)
    if now.state.overdue is not None:
        return Step(now)
    state = Running(event.run_id, event.overdue)
    told = Announce("ralph.stalled", event.text, data=(("failure_kind", event.overdue.value),))
    orders = overdue_orders(state, policy)
    return Step(replace(now, state=state), (told, *orders))


def _end_before_boundary(now: Supervision, state: Pausing | Stopping, event: Overran, policy: Policy) -> Step:
    if event.overdue is Overdue.STALL:
        return Step(now, (KillTree(event.run_id),))
    if state.kill_at is not None:
        return Step(now)
    asked = replace(state, asked=True, kill_at=event.at + policy.stop_timeout_s)
    return Step(replace(now, state=asked), ask(event.run_id, policy.stop_timeout_s))


def overdue_orders(state: Running, policy: Policy) -> tuple[Action, ...]:
    """What is done to a run that we end ourselves."""
    if state.overdue is Overdue.STALL:
        return (KillTree(state.run_id),)
    return ask(state.run_id, policy.stop_timeout_s)


def _committed(now: Supervision, event: Committed, policy: Policy) -> Step:
    """The commits of a command that does not report are its iterations."""
    reports_them = now.said.iterates or policy.mode is Mode.ITERATION
    if reports_them or not isinstance(now.state, HAS_A_RUN) or now.state.run_id != event.run_id:
        return Step(now)
    tally = replace(now.tally, iteration=now.tally.iteration + event.commits)
    return Step(replace(now, tally=tally))


def _woke(now: Supervision, at: Moment) -> Step:
    match now.state:
        case Waiting():
            wait = after_a_set_back_clock(now.state, at)
            if at < wait.until:
                return Step(replace(now, state=wait), (WakeAt(wait.until),))
            told = () if wait.reason is Reason.ITERATION_PAUSE else (RESTARTING,)
            return spawn(counted(now, at), *told)
        case Running() | Pausing() | Stopping() if now.said.wait is not None:
            return (
                reports.end_wait(now)
                if at >= now.said.wait.until
                else Step(now, (WakeAt(now.said.wait.until),))
            )
        case Paused(resume_at=float() as resume_at):
            if at < resume_at:
                return Step(now, (WakeAt(resume_at),))
            return spawn(now, RESUMED)
        case _:
            return Step(now)
