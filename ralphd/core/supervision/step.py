"""The supervision of one ralph as a pure function: a fact comes in, the next state and the actions come out.

``step`` decides what happens to a ralph (E1 to E5, C1 to C4, G1 to G3). Every pair of state and event is
listed in ``docs/states.md``, which is generated from it.
"""

from dataclasses import replace

from ralphd.core.backoff import after_a_set_back_clock
from ralphd.core.supervision import events, gate_events, reports, requests, transitions
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
    Step,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment


def step(current: Supervision, event: events.Event, policy: Policy) -> Step:
    """Answer one event. An event that changes nothing gives the same supervision and no actions."""
    if (refusal := requests.why_not(current, event)) is not None:
        return Step(current, refusal=refusal)
    match event:
        case events.StartRequested():
            return requests.start(current, event.at)
        case events.StopRequested():
            return requests.stop(replace(current, goal=Goal.STOPPED), event.at, policy, kill=event.now)
        case events.PauseRequested():
            return requests.pause(replace(current, goal=Goal.PAUSED), event.at, policy)
        case events.ResumeRequested():
            return requests.resume(current)
        case events.RestartRequested():
            return requests.restart(replace(current, goal=Goal.RUNNING), event.at, policy)
        case events.SkipWaitRequested():
            return requests.skip_wait(current, event.at)
        case events.DaemonStopping():
            return _end_with_daemon(current, event.at, policy, kill=event.now)
        case events.DaemonStarted():
            return _recover(current, event, policy)
        case events.Spawned():
            return _spawned(current, event, policy)
        case events.SpawnFailed():
            return _spawn_failed(current, event.why)
        case events.SpawnPostponed():
            return _spawn_postponed(current, event, policy)
        case events.RunEnded():
            return run_ended(current, event.ending, policy)
        case Reported():
            return reports.reported(current, event, policy)
        case events.GateRunBegan():
            return gate_events.began(current, event)
        case events.VerdictReached():
            return gate_events.over(current, event, policy)
        case events.BaselineTested():
            return gate_events.baseline(current, event)
        case events.CommitsRestored() | events.LeftBehind():
            return Step(current, gate_events.announced(event))
        case events.FellSilent():
            return _fell_silent(current, event)
        case events.Overran():
            return _overran(current, event, policy)
        case events.Committed():
            return _committed(current, event, policy)
        case events.GraceOver():
            return _grace_over(current, event, policy)
        case events.Woke():
            return _woke(current, event.at)


def _end_with_daemon(current: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """End the run with the daemon and keep the goal: the next daemon starts it again (G2)."""
    match current.state:
        case Pausing(run_id=run_id):  # a pause is a pause still
            return Step(current, (KillTree(run_id),) if kill else ())
        case Running() | Stopping():
            return transitions.ask_to_end(current, at, policy, kill=kill)
        case _:
            return Step(current)


def _recover(current: Supervision, event: events.DaemonStarted, policy: Policy) -> Step:
    if event.living is not None:
        return _adopt(current, event.living, event.at, policy)
    match current.state:
        case Waiting(until=until) | Paused(resume_at=float() as until):
            return Step(current, (WakeAt(until),))
        case Idle() | Starting() | Stopped() if current.goal is Goal.RUNNING:
            return transitions.spawn(current)
        case Starting():
            return _unborn(current)
        case Stopping():  # how it ended is still to be told
            return Step(replace(current, state=_followed(current, current.state)))
        case _:
            return Step(current)


def _unborn(current: Supervision) -> Step:
    """No run came of the order to start, and none is wanted now."""
    if current.goal is Goal.PAUSED:
        return Step(replace(current, state=Paused("requested")), (transitions.PAUSED_ON_REQUEST,))
    return Step(replace(current, state=Stopped()), (transitions.STOPPED,))


def _adopt(current: Supervision, run_id: RunId, at: Moment, policy: Policy) -> Step:
    """Take over a run that lives, and finish what an earlier daemon has ordered."""
    # A daemon may have died before it had written down that the run was born.
    actions = (
        (transitions.STARTED, transitions.ADOPTED)
        if isinstance(current.state, Starting)
        else (transitions.ADOPTED,)
    )
    match current.state:
        case Stopping(kill_at=kill_at) | Pausing(kill_at=kill_at) if current.state.run_id == run_id:
            orders = (*_ask_again(current, kill_at, at, policy), *_await_reported(current))
            return Step(replace(current, state=_followed(current, current.state)), (*actions, *orders))
        case Running(overdue=Overdue()) if current.state.run_id == run_id:
            return Step(
                current, (*actions, *overdue_orders(current.state, policy), *_await_reported(current))
            )
        case Running() if current.state.run_id == run_id and current.said.wait is not None:
            return Step(current, (*actions, *_await_reported(current)))
        case Running() if current.state.run_id == run_id:
            answer = _as_wanted(current, run_id, at, policy)
        case _:  # another one has said what was said
            answer = _as_wanted(replace(current, said=RunReports()), run_id, at, policy)
    return Step(answer.supervision, (*actions, *answer.actions))


def _followed(current: Supervision, state: Pausing | Stopping) -> Pausing | Stopping:
    """A running goal means that an earlier daemon ended it for its own end: the next run follows."""
    if current.goal is not Goal.RUNNING or current.said.limit is not None:  # a limit ends it for good
        return state
    return transitions.ending(state, again=True)


def _await_reported(current: Supervision) -> tuple[Action, ...]:
    return () if current.said.wait is None else (WakeAt(current.said.wait.until),)


def _ask_again(
    current: Supervision, kill_at: Moment | None, at: Moment, policy: Policy
) -> tuple[Action, ...]:
    assert isinstance(current.state, Stopping | Pausing)
    run_id = current.state.run_id
    if kill_at is not None:
        left_s = min(max(kill_at - at, 0.0), policy.stop_timeout_s)
        return transitions.ask(run_id, left_s) if current.state.asked else (KillAfter(run_id, left_s),)
    if not current.said.signals:  # the reply at its next boundary ends it
        return ()
    # The order before may have been lost, or heard: a second SIGTERM would end a working agent at once, a
    # second wish to pause changes nothing. Either way it ends at its boundary, and then as it was asked to.
    return (PassOn(run_id, ControlSignal.PAUSE),)


def _as_wanted(current: Supervision, run_id: RunId, at: Moment, policy: Policy) -> Step:
    """Apply to a run that is there now what was requested while it started."""
    running = replace(current, state=Running(run_id))
    match current.goal:
        case Goal.RUNNING:
            return Step(running)
        case Goal.PAUSED:
            return requests.pause(running, at, policy)
        case Goal.STOPPED:
            kill = isinstance(current.state, Starting) and current.state.kill
            return transitions.ask_to_end(running, at, policy, kill=kill)


def _spawned(current: Supervision, event: events.Spawned, policy: Policy) -> Step:
    answer = _as_wanted(current, event.run_id, event.at, policy)
    return Step(answer.supervision, (transitions.STARTED, *answer.actions))


def _spawn_failed(current: Supervision, why: str) -> Step:
    """E5: undo the request and report the fault; without a request, at night, escalate."""
    match current.state:
        case Starting(before=None):
            text = f"Ralph cannot be started: {why}"
            return Step(replace(current, state=Failed(text)), (Escalate(text), Announce("ralph.failed")))
        case Starting(before=Waiting() | Paused()) if current.goal is not Goal.RUNNING:
            return _unborn(current)  # a stop or a pause that was asked meanwhile outlasts it
        case Starting(before=Waiting() as before):
            return Step(replace(current, state=before), (WakeAt(before.until),))
        case Starting(before=Paused(resume_at=float() as until) as before):
            return Step(replace(current, state=before), (WakeAt(until),))
        case Starting(before=Paused() as before):
            return Step(replace(current, goal=Goal.PAUSED, state=before))
        case Starting(before=before) if before is not None:
            return Step(replace(current, goal=Goal.STOPPED, state=before))
        case _:
            return Step(current)


def _spawn_postponed(current: Supervision, event: events.SpawnPostponed, policy: Policy) -> Step:
    """Try again after the backoff: lack of memory or disk is nobody's failure, and passes."""
    if not isinstance(current.state, Starting):
        return Step(current)
    if current.goal is not Goal.RUNNING:
        return _unborn(current)
    wait = Waiting(Reason.RESOURCES, event.at, event.at + max(policy.retry_backoff_s, 1.0))
    actions = Announce(
        "wait.started", f"Ralph cannot be started just now: {event.why}", wait_until=wait.until
    )
    return Step(replace(current, state=wait), (actions, WakeAt(wait.until)))


def _grace_over(current: Supervision, event: events.GraceOver, policy: Policy) -> Step:
    """Kill the tree. A run that was only told at its boundary gets SIGTERM first."""
    match current.state:
        case Pausing() | Stopping() if current.state.run_id != event.run_id or current.state.kill_at is None:
            return Step(current)
        case Pausing(asked=False) | Stopping(asked=False):
            asked = replace(current.state, asked=True, kill_at=event.at + policy.stop_timeout_s)
            return Step(replace(current, state=asked), transitions.ask(event.run_id, policy.stop_timeout_s))
        case Pausing() | Stopping():
            return Step(current, (KillTree(event.run_id),))
        case Running(run_id=run_id, overdue=Overdue()) if run_id == event.run_id:
            return Step(current, (KillTree(run_id),))
        case _:
            return Step(current)


def _fell_silent(current: Supervision, event: events.FellSilent) -> Step:
    if not (isinstance(current.state, HAS_A_RUN) and current.state.run_id == event.run_id):
        return Step(current)
    return Step(current, (Announce("ralph.stall_warning", event.text),))


def _overran(current: Supervision, event: events.Overran, policy: Policy) -> Step:
    """H4: kill a hanging tree; terminate one that only took too long. Its end is explained by this."""
    if not (
        policy.supervised and isinstance(current.state, HAS_A_RUN) and current.state.run_id == event.run_id
    ):
        return Step(current)
    if isinstance(
        current.state, Stopping | Pausing
    ):  # it was to end at its boundary, and will not come to it
        return _end_before_boundary(current, current.state, event, policy)
    if current.state.overdue is not None:
        return Step(current)
    state = Running(event.run_id, event.overdue)
    actions = Announce("ralph.stalled", event.text, data=(("failure_kind", event.overdue.value),))
    orders = overdue_orders(state, policy)
    return Step(replace(current, state=state), (actions, *orders))


def _end_before_boundary(
    current: Supervision, state: Pausing | Stopping, event: events.Overran, policy: Policy
) -> Step:
    if event.overdue is Overdue.STALL:
        return Step(current, (KillTree(event.run_id),))
    if state.kill_at is not None:
        return Step(current)
    asked = replace(state, asked=True, kill_at=event.at + policy.stop_timeout_s)
    return Step(replace(current, state=asked), transitions.ask(event.run_id, policy.stop_timeout_s))


def overdue_orders(state: Running, policy: Policy) -> tuple[Action, ...]:
    """Return the actions against a run that is overdue."""
    if state.overdue is Overdue.STALL:
        return (KillTree(state.run_id),)
    return transitions.ask(state.run_id, policy.stop_timeout_s)


def _committed(current: Supervision, event: events.Committed, policy: Policy) -> Step:
    """Count the commits of a command that reports no iterations as its iterations."""
    reports_them = current.said.iterates or policy.mode is Mode.ITERATION
    if reports_them or not isinstance(current.state, HAS_A_RUN) or current.state.run_id != event.run_id:
        return Step(current)
    tally = replace(current.tally, iteration=current.tally.iteration + event.commits)
    return Step(replace(current, tally=tally))


def _woke(current: Supervision, at: Moment) -> Step:
    match current.state:
        case Waiting():
            wait = after_a_set_back_clock(current.state, at)
            if at < wait.until:
                return Step(replace(current, state=wait), (WakeAt(wait.until),))
            actions = () if wait.reason is Reason.ITERATION_PAUSE else (transitions.RESTARTING,)
            return transitions.spawn(transitions.counted(current, at), *actions)
        case Running() | Pausing() | Stopping() if current.said.wait is not None:
            return (
                reports.end_wait(current)
                if at >= current.said.wait.until
                else Step(current, (WakeAt(current.said.wait.until),))
            )
        case Paused(resume_at=float() as resume_at):
            if at < resume_at:
                return Step(current, (WakeAt(resume_at),))
            return transitions.spawn(current, transitions.RESUMED)
        case _:
            return Step(current)
