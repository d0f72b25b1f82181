"""What a person's request (G1, G2) and a gate run with its verdict (R1 to R9) do to a ralph."""

from dataclasses import replace

from ralphd.core.gate.verdict import LEFT, Result, Verdict, VerdictKind, short
from ralphd.core.supervision import events, model, reports, transitions
from ralphd.core.supervision.events import Event, PauseRequested, ResumeRequested, SkipWaitRequested
from ralphd.core.supervision.model import Announce, Goal, Policy, Step, Supervision
from ralphd.core.supervision.reports import Reported, task_data
from ralphd.core.supervision.transitions import GUARD, has_boundaries
from ralphd.core.text import commit_names, normalized
from ralphd.core.time import Moment

# What a person's request does to a ralph (G1, G2).


def why_not(current: Supervision, event: Event) -> str | None:
    """Return why a request does not fit the state of the ralph, or None."""
    settled = isinstance(current.state, model.SETTLED)
    is_paused = isinstance(current.state, model.Paused) and current.state.resume_at is not None
    waits_itself = isinstance(current.state, model.Running) and current.said.wait is not None
    match event:
        case PauseRequested() if settled:
            return f"it is {current.state.kind}: there is nothing to pause"
        case ResumeRequested() if settled:
            return f"it is {current.state.kind}, not paused: start it instead"
        case ResumeRequested() if current.goal is Goal.STOPPED:
            return f"it is {current.state.kind} and was asked to stop: start it instead"
        case SkipWaitRequested() if waits_itself:
            its_own = "its command waits on its own and does not support skip-wait"
            return None if current.said.signals else its_own
        case SkipWaitRequested() if not (is_paused or isinstance(current.state, model.Waiting)):
            return f"it is {current.state.kind} and not waiting"
        case Reported():
            return reports.why_not(current, event)
        case _:
            return None


def start(current: Supervision, at: Moment, *, continues: bool) -> Step:
    """Start a settled ralph afresh, resume a paused one, follow an ending run with another.

    With ``continues`` costs, iterations and time count on toward their limits.
    """
    wanted = replace(current, goal=Goal.RUNNING)
    tally = current.tally if continues else model.Tally(began_at=at)
    match current.state:
        case model.Idle() | model.Stopped() | model.Failed() | model.Done():
            return transitions.spawn(replace(wanted, tally=tally), before=current.state)
        case model.Paused() | model.Starting():
            return resume(current)
        case model.Pausing() | model.Stopping():
            return replace(wanted, tally=tally).enter(transitions.ending(current.state, again=True))
        case _:
            return Step(wanted)


def stop(current: Supervision, at: Moment, policy: Policy, *, kill: bool) -> Step:
    """End the run, or the wait; a settled ralph stays as it is."""
    match current.state:
        case model.Running() | model.Pausing() | model.Stopping():
            return transitions.ask_to_end(current, at, policy, kill=kill)
        case model.Waiting() | model.Paused():
            return current.enter(model.Stopped(), transitions.STOPPED)
        case model.Starting():
            return current.enter(replace(current.state, kill=kill))
        case _:
            return Step(current)


def pause(current: Supervision, at: Moment, policy: Policy) -> Step:
    """End the run, and start none until someone resumes the ralph."""
    match current.state:
        case model.Running(run_id=run_id) if transitions.has_boundaries(current):
            pausing = model.Pausing(run_id, since=at, kill_at=None, asked=current.said.signals)
            wish = (model.PassOn(run_id, model.ControlSignal.PAUSE),) if current.said.signals else ()
            return current.enter(pausing, transitions.PAUSING_AT_BOUNDARY, *wish)
        case model.Running(run_id=run_id):
            pausing = model.Pausing(run_id, since=at, kill_at=at + policy.stop_timeout_s)
            orders = transitions.ask(run_id, policy.stop_timeout_s)
            return current.enter(pausing, transitions.PAUSING, *orders)
        case model.Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):
            return current.enter(model.Pausing(run_id, since, kill_at, asked))
        case model.Waiting():
            return current.enter(model.Paused("requested"), transitions.PAUSED_ON_REQUEST)
        case model.Paused(reason=reason):
            return current.enter(model.Paused(reason))  # a person's pause outlasts a limit's reset
        case _:
            return Step(current)


def resume(current: Supervision) -> Step:
    wanted = replace(current, goal=Goal.RUNNING)
    match current.state:
        case model.Paused():
            return transitions.spawn(wanted, transitions.RESUMED, before=current.state)
        case model.Pausing():
            return wanted.enter(transitions.ending(current.state, again=True))
        case model.Starting():
            return wanted.enter(replace(current.state, kill=False))
        case _:
            return Step(current)


def restart(current: Supervision, at: Moment, policy: Policy) -> Step:
    """Stop, then start, with the count of failures at 0."""
    fresh = replace(current, tally=replace(current.tally, consecutive_errors=0, restarted_at=()))
    match current.state:
        case model.Running():
            return transitions.ask_to_end(fresh, at, policy, again=True)
        case model.Pausing() | model.Stopping():
            return fresh.enter(transitions.ending(current.state, again=True))
        case model.Starting():
            return fresh.enter(replace(current.state, kill=False))
        case model.Waiting() | model.Paused():
            return transitions.spawn(fresh, transitions.RESTARTING, before=current.state)
        case model.Idle() | model.Stopped() | model.Failed() | model.Done():
            afresh = replace(current, tally=model.Tally(began_at=at))
            return transitions.spawn(afresh, transitions.RESTARTING, before=current.state)


def skip_wait(current: Supervision, at: Moment, policy: Policy) -> Step:
    if isinstance(current.state, model.Running):
        return Step(current, (model.PassOn(current.state.run_id, model.ControlSignal.SKIP_WAIT),))
    assert isinstance(current.state, model.Waiting | model.Paused)
    tally = current.tally
    if isinstance(current.state, model.Waiting) and current.state.reason is model.Reason.SCHEDULE:
        tally = replace(tally, unscheduled_until=current.state.until)
    counted = transitions.counted(replace(current, goal=Goal.RUNNING, tally=tally), at, policy)
    return transitions.spawn(counted, transitions.RESTARTING, before=current.state, skips=True)


def end_with_schedule(current: Supervision, event: events.ScheduleEnded, policy: Policy) -> Step:
    """End the run at its next boundary, as a pause does. The next one starts when it is scheduled again.

    A run without boundaries continues: it may be in the middle of its work.
    """
    is_whole = policy.mode is model.Mode.ITERATION or not has_boundaries(current)
    is_meant = current.goal is Goal.RUNNING and current.has_run(event.run_id)
    if is_whole or not (is_meant and isinstance(current.state, model.Running)):
        return Step(current)
    paused = pause(current, event.at, policy)
    assert isinstance(paused.supervision.state, model.Pausing)
    state = transitions.ending(paused.supervision.state, again=True)
    noted = replace(current, said=replace(current.said, off_schedule=True))
    return noted.enter(state, transitions.OFF_SCHEDULE, *paused.actions[1:])


def cost_seen(current: Supervision, event: events.CostSeen, policy: Policy) -> Step:
    """Count the cost, and end the run at ``max_cost_usd``: it may report no iterations at which to do that.

    A run that sends reports is expected to report its costs, too.
    """
    more_usd = event.usd - current.said.seen_usd
    if more_usd <= 0 or current.said.answered or not current.has_run(event.run_id):
        return Step(current)
    counted = reports.spent(replace(current, said=replace(current.said, seen_usd=event.usd)), more_usd)
    only_cost = replace(policy, max_iterations=0, max_runtime_s=0.0)
    limit = reports.limit_reached(counted.tally, event.at, only_cost)
    if limit is None or not policy.supervised or current.state != model.Running(event.run_id):
        return Step(counted)
    limited = replace(counted, said=replace(counted.said, limit=limit))
    return transitions.ask_to_end(limited, event.at, policy)


MOST_LINE_CHARS = 160
UNFIT = "the tests cannot be run: test_command is not found or not executable"


def began(current: Supervision, event: events.GateRunBegan) -> Step:
    """Expect no sign of life until the tests have ended (H5). A request for a start is answered by now."""
    testing = replace(current, said=replace(current.said, testing=True))
    match current.state:
        case model.Starting() if event.run_id is None:
            return testing.enter(replace(current.state, before=None))
        case _ if event.run_id is not None and current.has_run(event.run_id):
            return Step(testing)
        case _:
            return Step(current)


def baseline(current: Supervision, event: events.BaselineTested) -> Step:
    """R4: the first run starts, whatever the tests say of the tree, unless they cannot be run at all."""
    if not isinstance(current.state, model.Starting):
        return Step(current)
    current = replace(current, said=replace(current.said, testing=False))
    if current.goal is not Goal.RUNNING:
        return transitions.unborn(current)
    data = (("baseline", True), ("tests", None if event.result is None else event.result.value))
    match event.result:
        case None:
            return Step(current, (model.Spawn(),))
        case Result.GREEN:
            return Step(current, (Announce("tests.passed", data=data), model.Spawn()))
        case Result.CANNOT_RUN:
            return transitions.give_up(current, f"Ralph is not started: {UNFIT} ({event.how})")
        case Result.RED:
            return Step(current, (_not_green("fail", data), model.Spawn()))
        case Result.TIMED_OUT | Result.ENDED:
            return Step(current, (_not_green(f"give no result ({event.how})", data), model.Spawn()))


def _not_green(what: str, data: tuple[tuple[str, object], ...]) -> Announce:
    text = f"The tests {what} before Ralph starts: commits are not judged until they pass"
    return Announce("tests.failed", text, data=data)


def over(
    current: Supervision, event: events.VerdictReached | events.HistoryRewritten, policy: Policy
) -> Step:
    """Announce a verdict or a repair, once, and pause where a person has to look first (R2, R6, R8)."""
    if isinstance(event, events.HistoryRewritten):
        return _rewritten(current, event, policy)
    verdict, tally = event.verdict, current.tally
    if verdict.boundary_id and current.said.judged == verdict.boundary_id:
        return Step(current)
    reverted = verdict.kind is VerdictKind.REVERTED
    is_news = verdict.calls and verdict.why != tally.called
    tally = replace(tally, reverts=tally.reverts + reverted, called=verdict.why if verdict.calls else None)
    said = replace(current.said, testing=False, judged=verdict.boundary_id, reverted=reverted)
    current = replace(current, tally=tally, said=said)
    weakened = Announce("tests.weakened", f"Tests weakened: {verdict.why}", data=data_of(verdict))
    actions = (*_verdict_actions(verdict, calls=is_news), *((weakened,) if verdict.weakened else ()))
    if not verdict.pauses:
        return Step(current, actions)
    return _paused(current, event.at, verdict.why, actions, policy)


def _rewritten(current: Supervision, event: events.HistoryRewritten, policy: Policy) -> Step:
    data, text = rewritten_data(event), rewritten_text(event)
    if event.why:
        # It may happen again before the pause that the first one led to.
        calls = () if current.said.guard == text else (model.Escalate(text),)
        actions = (Announce("guard.blocked", text, data=data), *calls)
        current = replace(current, said=replace(current.said, guard=text))
        return _paused(current, event.at, text, actions, policy)
    text += f". To undo this while Ralph is paused: {event.undo}"
    return Step(current, (Announce("repository.repaired", text, data=data),))


def rewritten_text(event: events.HistoryRewritten) -> str:
    """Return what became of a branch that lost commits."""
    lost = commit_names(event.lost) if event.lost else "commits"
    if event.why:
        more = f". To restore: git merge {event.lost[0]}" if event.lost else ""
        return f"Branch {event.branch} lost {lost}, not restored: {event.why}{more}"
    text = f"Branch {event.branch} had lost {lost}: restored"
    if event.reapplied:
        text += f", new {commit_names(event.reapplied)} re-applied on top"
    if event.conflicts:
        text += f", new {commit_names(event.conflicts)} not re-applied because of conflicts"
    return text


def rewritten_data(event: events.HistoryRewritten) -> tuple[tuple[str, object], ...]:
    """Return what events and the history keep of it, by their names."""
    names = ("branch", "lost", "reapplied", "conflicts", "ref", "why", "number", "undo")
    values = ((name, getattr(event, name)) for name in names)
    return tuple((name, [*value] if isinstance(value, tuple) else value) for name, value in values)


def announced(event: events.CommitsRestored | events.LeftBehind) -> tuple[Announce, ...]:
    """Announce a change of the repository that changes nothing for the ralph."""
    return _left_behind(event) if isinstance(event, events.LeftBehind) else _restored(event)


def _left_behind(event: events.LeftBehind) -> tuple[Announce, ...]:
    repaired = Announce("state.recovered", f"Repaired what the run left behind: {'; '.join(event.done)}")
    left = Announce("guard.blocked", f"The run left something unfinished: {'; '.join(event.told)}")
    return (*((repaired,) if event.done else ()), *((left,) if event.told else ()))


def _restored(event: events.CommitsRestored) -> tuple[Announce, ...]:
    of = "" if event.number is None else f" of iteration {event.number}"
    text = f"Re-applied, as requested — {commit_names(event.commits)}{of}"
    text += "; the tests run before the next start"
    if event.repair is not None:
        text = f"Repair {event.repair} undone, as requested; the repaired branch is kept under {event.ref}"
    return (Announce("commit.restored", text, data=restored_data(event)),)


def restored_data(event: events.CommitsRestored) -> tuple[tuple[str, object], ...]:
    """Return what events and the history keep of it, by their names."""
    commits = (("commits", [*event.commits]), ("made", [*event.made]))
    repair = (("repair", event.repair), ("ref", event.ref)) if event.repair is not None else ()
    return (("iteration", event.number), ("task", event.task), *commits, *repair)


def _paused(
    current: Supervision, at: Moment, why: str, actions: tuple[model.Action, ...], policy: Policy
) -> Step:
    if current.goal is Goal.STOPPED:
        return Step(current, actions)
    current = replace(current, goal=Goal.PAUSED, said=replace(current.said, guard=why))
    match current.state:
        case model.Running(run_id=run_id) if has_boundaries(current):  # the reply it waits for has it
            return current.enter(model.Pausing(run_id, at, None, asked=False), *actions)
        case model.Running():
            asked = pause(current, at, policy)
            return Step(asked.supervision, (*actions, *asked.actions))
        case model.Stopping(run_id=run_id, since=since, kill_at=kill_at, asked=asked):  # for another run
            return current.enter(model.Pausing(run_id, since, kill_at, asked), *actions)
        case model.Waiting() | model.Paused():
            return current.enter(model.Paused(GUARD, None, why), *actions)
        case _:
            return Step(current, actions)


def _verdict_actions(verdict: Verdict, *, calls: bool) -> tuple[model.Action, ...]:
    """Return the lines of C4 and their events; with ``calls`` a person is called."""
    data, commits, reverted = data_of(verdict), short(verdict.commits), short(verdict.reverted)
    match verdict.kind:
        case VerdictKind.KEPT if not verdict.tests:
            return ()
        case VerdictKind.KEPT if not commits:  # a repair has taken the last one off the branch
            return (Announce("tests.passed", "Tests passed ✅ — no commit to keep", data=data),)
        case VerdictKind.KEPT:
            text = f"Tests passed ✅ — {commit_names(commits)} kept"
            return (Announce("tests.passed", data=data), Announce("commit.kept", text, data=data))
        case VerdictKind.REVERTED:
            text = f"Tests failed ❌ — reverting {commit_names(reverted)}"
            if any(ref.startswith(LEFT) for ref in verdict.refs):
                text = f"Tests failed ❌ — taking {commit_names(reverted)} off the branch"
            called = (model.Escalate(f"{text}; {verdict.why}"),) if calls else ()
            word = last_line(verdict.tail)
            failed = Announce("tests.failed", f"The tests' last line: {word}" if word else None, data=data)
            return (failed, Announce("commit.reverted", text, data=data), *called)
        case VerdictKind.UNTESTED:
            stays = f"{commit_names(commits[:1])} stays" if commits else "the iteration stays"
            if reverted:  # where a revert could not be taken back, or somebody has moved HEAD since
                stays = f"{commit_names(reverted)} stay{'s' if len(reverted) == 1 else ''} reverted"
            text = f"Not judged — {stays}: {verdict.why}"
            if verdict.pauses or calls:  # the call says it: one line of the log is enough
                return (Announce("guard.blocked", data=(("message", text), *data)), model.Escalate(text))
            return (Announce("guard.blocked", text, data=data),)


def last_line(printed: str) -> str:
    """Return the last line that the tests printed, shortened."""
    lines = [" ".join(line.split()) for line in normalized(printed).splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return last if len(last) <= MOST_LINE_CHARS else last[: MOST_LINE_CHARS - 1] + "…"


def data_of(verdict: Verdict) -> tuple[tuple[str, object], ...]:
    """Return what events and the history keep of a verdict, by their names."""
    iteration = (("iteration", verdict.number), ("task", task_data(verdict.task)))
    result = (("verdict", verdict.kind.value), ("why", verdict.why))
    commits = (("commits", [*short(verdict.commits)]), ("reverted", [*short(verdict.reverted)]))
    return (*iteration, *result, *commits, ("tests", [*verdict.tests]), ("refs", [*verdict.refs]))
