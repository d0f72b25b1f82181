"""The supervision of one ralph as a pure function: a fact comes in, the next state and the actions come out.

``step`` decides what happens to a ralph (E1 to E5, C1 to C4, G1 to G3). Every pair of state and event is
listed in ``docs/states.md``, which is generated from it.
"""

from dataclasses import replace

from ralphd.core.supervision import events, model, reports, requests, transitions
from ralphd.core.supervision.backoff import after_a_set_back_clock
from ralphd.core.supervision.exit_policy import run_ended
from ralphd.core.supervision.model import Announce, Goal, Policy, Step, Supervision
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment


def step(current: Supervision, event: events.Event, policy: Policy) -> Step:
    """Answer one event. An event that changes nothing gives the same supervision and no actions."""
    if (refusal := requests.why_not(current, event)) is not None:
        return Step(current, refusal=refusal)
    match event:
        case events.StartRequested():
            return requests.start(current, event.at, continues=event.continues)
        case events.StopRequested():
            return requests.stop(replace(current, goal=Goal.STOPPED), event.at, policy, kill=event.now)
        case events.PauseRequested():
            return requests.pause(replace(current, goal=Goal.PAUSED), event.at, policy)
        case events.ResumeRequested():
            return requests.resume(current)
        case events.RestartRequested():
            return requests.restart(replace(current, goal=Goal.RUNNING), event.at, policy)
        case events.SkipWaitRequested():
            return requests.skip_wait(current, event.at, policy)
        case events.DaemonStopping():
            return _end_with_daemon(current, event.at, policy, kill=event.now)
        case events.DaemonStarted():
            return _recover(current, event, policy)
        case events.Spawned():
            answer = _as_wanted(current, event.run_id, event.at, policy)
            return Step(answer.supervision, (transitions.STARTED, *answer.actions))
        case events.SpawnFailed():
            return _spawn_failed(current, event.why)
        case events.SpawnPostponed():
            return _spawn_postponed(current, event, policy)
        case events.RunEnded():
            return run_ended(current, event.ending, policy)
        case Reported():
            return reports.reported(current, event, policy)
        case events.GateRunBegan():
            return requests.began(current, event)
        case events.VerdictReached() | events.HistoryRewritten():
            return requests.over(current, event, policy)
        case events.BaselineTested():
            return requests.baseline(current, event)
        case events.CommitsRestored() | events.LeftBehind():
            return Step(current, requests.announced(event))
        case events.FellSilent():
            return _fell_silent(current, event)
        case events.Overran() | events.ScheduleEnded():
            return _overran(current, event, policy)
        case events.Committed() | events.CostSeen():
            return _counted(current, event, policy)
        case events.GraceOver():
            return _grace_over(current, event, policy)
        case events.Woke():
            return _woke(current, event, policy)


def _end_with_daemon(current: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """End the run with the daemon and keep the goal: the next daemon starts it again (G2)."""
    match current.state:
        case model.Pausing(run_id=run_id):  # a pause is a pause still
            return Step(current, (model.KillTree(run_id),) if kill else ())
        case model.Running() | model.Stopping():
            return transitions.ask_to_end(current, at, policy, kill=kill)
        case _:
            return Step(current)


def _recover(current: Supervision, event: events.DaemonStarted, policy: Policy) -> Step:
    if event.living is not None:
        return _adopt(current, event.living, event.at, policy)
    match current.state:
        case model.Waiting(until=until) | model.Paused(resume_at=float() as until):
            return Step(current, (model.WakeAt(until),))
        case model.Idle() | model.Starting() | model.Stopped() if current.goal is Goal.RUNNING:
            return transitions.spawn(current)
        case model.Starting():
            return transitions.unborn(current)
        case model.Stopping():  # how it ended is still to be told
            return current.enter(_followed(current, current.state))
        case _:
            return Step(current)


def _adopt(current: Supervision, run_id: model.RunId, at: Moment, policy: Policy) -> Step:
    """Take over a run that lives, and finish what an earlier daemon has ordered."""
    # A daemon may have died before it had written down that the run was born.
    started = (transitions.STARTED,) if isinstance(current.state, model.Starting) else ()
    actions, is_its = (*started, transitions.ADOPTED), current.has_run(run_id)
    match current.state:
        case model.Stopping(kill_at=kill_at) | model.Pausing(kill_at=kill_at) if is_its:
            orders = (*_ask_again(current, kill_at, at, policy), *_await_reported(current))
            return current.enter(_followed(current, current.state), *actions, *orders)
        case model.Running(overdue=model.Overdue()) if is_its:
            orders = (*overdue_orders(current.state, policy), *_await_reported(current))
            return Step(current, (*actions, *orders))
        case model.Running() if is_its and current.said.wait is not None:
            return Step(current, (*actions, *_await_reported(current)))
        case model.Running() if is_its:
            answer = _as_wanted(current, run_id, at, policy)
        case _:  # another one has said what was said
            answer = _as_wanted(replace(current, said=model.RunReports()), run_id, at, policy)
    return Step(answer.supervision, (*actions, *answer.actions))


def _followed(current: Supervision, state: model.Pausing | model.Stopping) -> model.Pausing | model.Stopping:
    """A running goal means that an earlier daemon ended it for its own end: the next run follows."""
    if current.goal is not Goal.RUNNING or current.said.limit is not None:  # a limit ends it for good
        return state
    return transitions.ending(state, again=True)


def _await_reported(current: Supervision) -> tuple[model.Action, ...]:
    return () if current.said.wait is None else (model.WakeAt(current.said.wait.until),)


def _ask_again(
    current: Supervision, kill_at: Moment | None, at: Moment, policy: Policy
) -> tuple[model.Action, ...]:
    assert isinstance(current.state, model.Stopping | model.Pausing)
    run_id = current.state.run_id
    if kill_at is not None:
        left_s = min(max(kill_at - at, 0.0), policy.stop_timeout_s)
        return transitions.ask(run_id, left_s) if current.state.asked else (model.KillAfter(run_id, left_s),)
    if not current.said.signals:  # the reply at its next boundary ends it
        return ()
    # The order before may have been lost, or heard: a second SIGTERM would end a working agent at once, a
    # second wish to pause changes nothing. Either way it ends at its boundary, and then as it was asked to.
    return (model.PassOn(run_id, model.ControlSignal.PAUSE),)


def _as_wanted(current: Supervision, run_id: model.RunId, at: Moment, policy: Policy) -> Step:
    """Apply to a run that is there now what was requested while it started."""
    earlier = isinstance(current.state, model.HAS_A_RUN) and current.state.run_id != run_id
    said = model.RunReports() if earlier else current.said  # reports are of the run that sent them
    running = replace(current, state=model.Running(run_id), said=said)
    match current.goal:
        case Goal.RUNNING:
            return Step(running)
        case Goal.PAUSED:
            return requests.pause(running, at, policy)
        case Goal.STOPPED:
            kill = isinstance(current.state, model.Starting) and current.state.kill
            return transitions.ask_to_end(running, at, policy, kill=kill)


def _spawn_failed(current: Supervision, why: str) -> Step:
    """E5: undo the request and report the fault; without a request, at night, escalate."""
    match current.state:
        case model.Starting(before=None):
            return transitions.give_up(current, f"Ralph cannot be started: {why}")
        case model.Starting(before=model.Waiting() | model.Paused()) if current.goal is not Goal.RUNNING:
            return transitions.unborn(current)  # a stop or a pause that was asked meanwhile outlasts it
        case model.Starting(before=model.Waiting() as before):
            return current.enter(before, model.WakeAt(before.until))
        case model.Starting(before=model.Paused(resume_at=float() as until) as before):
            return current.enter(before, model.WakeAt(until))
        case model.Starting(before=model.Paused() as before):
            return Step(replace(current, goal=Goal.PAUSED, state=before))
        case model.Starting(before=before) if before is not None:
            return Step(replace(current, goal=Goal.STOPPED, state=before))
        case _:
            return Step(current)


def _spawn_postponed(current: Supervision, event: events.SpawnPostponed, policy: Policy) -> Step:
    """Try again at its time, else after the backoff: lack of memory or disk is no failure, and passes."""
    if not isinstance(current.state, model.Starting):
        return Step(current)
    if current.goal is not Goal.RUNNING:
        return transitions.unborn(current)
    until = event.until or event.at + max(policy.retry_backoff_s, 1.0)
    wait = model.Waiting(event.reason, event.at, until, event.why, event.queued_at)
    ends_at = model.Wait(wait.reason, until).ends_at
    announcement = Announce("wait.started", f"Ralph cannot be started yet: {event.why}", wait_until=ends_at)
    return current.enter(wait, announcement, model.WakeAt(until))


def _grace_over(current: Supervision, event: events.GraceOver, policy: Policy) -> Step:
    """Kill the tree. A run that was only told at its boundary gets SIGTERM first."""
    match current.state:
        case model.Pausing() | model.Stopping() if (
            current.state.run_id != event.run_id or current.state.kill_at is None
        ):
            return Step(current)
        case model.Pausing(asked=False) | model.Stopping(asked=False):
            return _ask_now(current, current.state, event.at, policy)
        case model.Pausing() | model.Stopping():
            return Step(current, (model.KillTree(event.run_id),))
        case model.Running(run_id=run_id, overdue=model.Overdue()) if run_id == event.run_id:
            return Step(current, (model.KillTree(run_id),))
        case _:
            return Step(current)


def _fell_silent(current: Supervision, event: events.FellSilent) -> Step:
    warning = Announce("ralph.stall_warning", event.text)
    return Step(current, (warning,) if current.has_run(event.run_id) else ())


def _overran(current: Supervision, event: events.Overran | events.ScheduleEnded, policy: Policy) -> Step:
    """H4: kill a hanging tree, terminate a tree that only took too long. Its end is explained by this."""
    if isinstance(event, events.ScheduleEnded):
        return requests.end_with_schedule(current, event, policy)
    if not (policy.supervised and current.has_run(event.run_id)):
        return Step(current)
    match current.state:
        # It was to end at its boundary, and will not come to it.
        case model.Stopping() | model.Pausing() if event.overdue is model.Overdue.STALL:
            return Step(current, (model.KillTree(event.run_id),))
        case model.Stopping(kill_at=None) | model.Pausing(kill_at=None):
            return _ask_now(current, current.state, event.at, policy)
        case model.Running(overdue=None):
            state = model.Running(event.run_id, event.overdue)
            stalled = Announce("ralph.stalled", event.text, data=(("failure_kind", event.overdue.value),))
            return current.enter(state, stalled, *overdue_orders(state, policy))
        case _:
            return Step(current)


def _ask_now(current: Supervision, state: model.Pausing | model.Stopping, at: Moment, policy: Policy) -> Step:
    asked = replace(state, asked=True, kill_at=at + policy.stop_timeout_s)
    return current.enter(asked, *transitions.ask(state.run_id, policy.stop_timeout_s))


def overdue_orders(state: model.Running, policy: Policy) -> tuple[model.Action, ...]:
    """Return the actions against a run that is overdue."""
    if state.overdue is model.Overdue.STALL:
        return (model.KillTree(state.run_id),)
    return transitions.ask(state.run_id, policy.stop_timeout_s)


def _counted(current: Supervision, event: events.Committed | events.CostSeen, policy: Policy) -> Step:
    """Count the commits of a command that reports no iterations as its iterations, and seen costs."""
    if isinstance(event, events.CostSeen):
        return requests.cost_seen(current, event, policy)
    reports_them = current.said.iterates or policy.mode is model.Mode.ITERATION
    if reports_them or not current.has_run(event.run_id):
        return Step(current)
    tally = replace(current.tally, iteration=current.tally.iteration + event.commits)
    return Step(replace(current, tally=tally))


def _woke(current: Supervision, event: events.Woke, policy: Policy) -> Step:
    at = event.at
    match current.state:
        case model.Waiting(reason=reason) if event.is_free and reason in model.ADMISSION:
            return transitions.spawn(current, transitions.RESTARTING)
        case model.Waiting():
            wait = after_a_set_back_clock(current.state, at)
            if at < wait.until:
                return current.enter(wait, model.WakeAt(wait.until))
            actions = () if wait.reason is model.Reason.ITERATION_PAUSE else (transitions.RESTARTING,)
            return transitions.spawn(transitions.counted(current, at, policy), *actions)
        case model.Running() | model.Pausing() | model.Stopping() if current.said.wait is not None:
            is_over = at >= current.said.wait.until
            return reports.end_wait(current) if is_over else Step(current, _await_reported(current))
        case model.Paused(resume_at=float() as resume_at):
            if at < resume_at:
                return Step(current, (model.WakeAt(resume_at),))
            return transitions.spawn(current, transitions.RESUMED)
        case _:
            return Step(current)
