"""Ralph's own decisions: which task, which agent, what an attempt achieved, when the loop ends (L1 to L13).

``step`` answers each event with the next state of the loop and the orders to carry out. Nothing here knows a
clock, a file or a process, so every rule can be tested by calling one function. What follows a failed attempt
is in ``core/loop/failures``; steps that both modules take are in ``core/loop/transitions``.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.loop import model, tasks, transitions
from ralphd.core.loop.failures import failed, failures_per_round, finished
from ralphd.core.loop.model import Checkpoint, EndLoop, Iteration, Loop, LoopPolicy, LoopStep, PauseReason
from ralphd.core.loop.pool import Pool
from ralphd.core.plan import Task
from ralphd.core.supervision import backoff
from ralphd.core.supervision.model import Next
from ralphd.core.time import Moment

IDLE_SUCCESSES = 2
"""Without a task list, this many successful iterations in a row without a commit end the loop (L10)."""
MOST_LISTED = 3
"""Different reasons of failed tasks, in one line."""
LOSSES = 3
"""This many iterations in a row that lose the task list end in a pause."""
SET_BACK_S = 1.0
"""A clock that shows a time this long before a wait began was set back."""
_SET_BACK = " (the clock was set back)"
_TURN_OVER = (PauseReason.ERROR, PauseReason.TIMEOUT, PauseReason.STALL)
_WAITS = (PauseReason.RATE_LIMIT, PauseReason.OUTAGE)


def step(loop: Loop, event: model.LoopEvent, policy: LoopPolicy) -> LoopStep:
    """Answer one event. An event without a meaning in the present stage leaves the loop as it is."""
    match loop.stage, event:
        case model.Finished(), _:
            return LoopStep(loop)
        case _, model.PauseAsked():
            return _requested(loop, model.PendingRequest.PAUSE)
        case _, model.StopAsked():
            return _requested(loop, model.PendingRequest.STOP)
        case model.Begin(), model.Began() as event:
            return _begin(loop, event, policy)
        case model.Attempting(iteration=iteration), model.AttemptOver() as event:
            return _attempt_over(loop, iteration, event, policy)
        case model.Attempting(iteration=iteration), model.HeldBack() as event:
            return transitions.held_back(loop, iteration, event, policy)
        case (
            model.Resting(for_an_agent=True) | model.Resting(reason=PauseReason.RATE_LIMIT) as stage,
            model.AccountFreed(at=at, agent=agent),
        ):
            pool = transitions.pool_of(loop, policy).due(agent, at)
            return _rested(transitions.with_pool(loop, pool), stage, at, policy)
        case model.Resting(until=until) as stage, model.LoopWoke(at=at) if at >= until:
            return _rested(loop, stage, at, policy)
        case model.Resting(since=since) as stage, model.LoopWoke(at=at) if at < since - SET_BACK_S:
            return _wait_restarted(loop, stage, at, policy)
        case model.Resting() as stage, model.Skipped(at=at):
            return _wait_skipped(loop, stage, at, policy)
        case model.AwaitingVerdict() as stage, model.Judged() as event:
            return _judged(loop, stage, event, policy)
        case _:
            return LoopStep(loop)


def _requested(loop: Loop, request: model.PendingRequest) -> LoopStep:
    """End a wait at once; a running attempt finishes first (L12). A pause does not replace a stop."""
    if loop.request is not model.PendingRequest.STOP:
        loop = replace(loop, request=request)
    if isinstance(loop.stage, model.Resting):
        return transitions.end_by_request(loop, loop.stage.iteration).preceded_by(model.EndRest())
    return LoopStep(loop)


# Waits: before an iteration, until a wait is over, and when a person or a clock ends it.


def _first_wait(
    loop: Loop, resumed: Checkpoint | None, agent: str, at: Moment, policy: LoopPolicy
) -> model.Rest | None:
    """Return the wait before an iteration's first attempt.

    It is the remaining wait of a loop that was killed, or a pause after several failed iterations, without
    which a loop whose tasks may fail without limit would never rest.
    """
    if resumed is not None and (until := _wait_left(resumed, agent, at, policy)):
        return model.Rest(until, resumed.pause_reason, resumed.why)
    wait_s = backoff.between_s(loop.failing, base_s=policy.same_agent_base_s, most_s=policy.max_s)
    why = f"the last {loop.failing} iterations failed"
    return model.Rest(at + wait_s, PauseReason.ERROR, why) if wait_s else None


def _wait_left(resumed: Checkpoint, agent: str, at: Moment, policy: LoopPolicy) -> Moment | None:
    # A usage limit is not looked at here: the pool knows until when its agent is out.
    if resumed.pause_reason not in _WAITS or agent != resumed.agent or resumed.resume_at is None:
        return None
    # If the clock was set back since, the wait keeps its own length (H5).
    until = min(resumed.resume_at, at + max(resumed.resume_at - resumed.created_at, 0.0))
    # A wait longer than these rules allow was not written by a loop with this clock and this configuration.
    longest_s = max(policy.max_rate_limit_wait_s, policy.outage_max_wait_s)
    return until if at < until <= at + longest_s else None


def _rested(loop: Loop, was: model.Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    pool = transitions.pool_after(loop, policy, loop.memory.last_agent)
    agent = pool.first(at) if was.for_an_agent else was.iteration.agent
    task = tasks.as_listed(was.iteration.task, loop.plan)
    is_gone = task is None or not tasks.is_open(task, loop.ledger)
    if is_gone and tasks.is_open(was.iteration.task, loop.ledger):  # by a person's hand, during the wait
        words = "its task is not in the list any more" if task is None else "done"
        after = finished(loop, was.iteration, words, complete=task is not None)
    elif (over := transitions.end_now(loop, was.iteration, at, policy)) is not None:
        after = over
    elif agent is None:
        after = transitions.exhausted(loop, was.iteration, at, policy)
    else:
        after = transitions.attempt(loop, transitions.handed_to(agent, was.iteration), at, policy)
    return after.preceded_by(model.EndRest())


def _wait_restarted(loop: Loop, was: model.Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    """Wait the same length from now on; but an agent returns at the moment that its service named (H5)."""
    pool = transitions.pool_of(loop, policy)
    if was.reason is PauseReason.RESOURCES:  # a slot has no known end: ask for it again
        return _rested(transitions.with_pool(loop, pool.without_slots()), was, at, policy)
    out, until = pool.next_return(), at + was.lasts_s
    if was.for_an_agent and out is not None and out.guessed:
        until = at + (out.until or was.until) - was.since  # max_runtime_seconds may have cut the wait
        loop = transitions.with_pool(loop, pool.due(out.agent, until))
    elif was.for_an_agent:
        until = was.until
    wait = model.Rest(until, was.reason, f"{was.why.removesuffix(_SET_BACK)}{_SET_BACK}")
    return transitions.rest(loop, was.iteration, at, wait, policy, for_an_agent=was.for_an_agent)


def _wait_skipped(loop: Loop, was: model.Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    pool = transitions.pool_of(loop, policy)
    if was.for_an_agent and (out := pool.next_return()):
        loop = transitions.with_pool(loop, pool.due(out.agent, at))
    if was.reason is PauseReason.RATE_LIMIT:  # only the time that was waited counts toward the limit
        waited_s = max(was.iteration.rate_waited_s - max(was.until - at, 0.0), 0.0)
        was = replace(was, iteration=replace(was.iteration, rate_waited_s=waited_s))
    return _rested(loop, was, at, policy)


# From the beginning of the loop to that of an attempt.


def _begin(loop: Loop, event: model.Began, policy: LoopPolicy) -> LoopStep:
    plan, memory = tasks.initial_plan(event.plan, loop.memory.list_file, loop.ledger), loop.memory
    if plan is not None and plan.fault is not None:
        end = EndLoop(78, "configuration", f"the task list cannot be used: {plan.fault}")
        return transitions.ended(loop, end)
    resumed = event.resumed
    lost = () if memory.in_flight is None else (model.ReportLost(memory.in_flight),)
    if memory.in_flight and resumed is not None and resumed.task is not None:  # its number is used up
        resumed = replace(resumed, task=replace(resumed.task, attempt=memory.in_flight.attempt))
    began_at = event.at if memory.began_at is None else memory.began_at
    list_file = plan.file if plan is not None and plan.tasks else None
    memory = replace(memory, began_at=began_at, in_flight=None, list_file=list_file)
    out = Pool(policy.agents, memory.out).without_slots().out
    memory = replace(memory, agents=policy.agents, rotates=policy.rotates, out=out)
    ledger = loop.ledger if policy.reviews else tasks.without_reviews(loop.ledger)
    taken = {
        id_ for id_ in tasks.unticked(plan) if id_ in ledger and ledger[id_].state is model.TaskState.COMPLETE
    }
    loop = replace(loop, plan=plan, ledger=tasks.sync_with_plan(ledger, plan), memory=memory)
    news = event.gate
    if news.verdict is not None and news.verdict.boundary_id != memory.judged:
        loop = _with_verdict(loop, news.verdict, policy, taken)
    if news.settled:  # what was done before, and never judged, is done: no later verdict is about it
        loop = _with_verdict(loop, None, policy)
    loop = replace(loop, ledger=tasks.put_back(loop.ledger, news.undone))
    loop = loop if lost else _asked_once(loop, resumed, event.at, policy)  # else it was killed
    return _iterate(loop, event.at, policy, resumed).preceded_by(*lost)


def _iterate(loop: Loop, at: Moment, policy: LoopPolicy, resumed: Checkpoint | None = None) -> LoopStep:
    """Start the next iteration, or end the loop."""
    if tasks.has_tasks(loop.plan) and not tasks.open_tasks(loop.plan, loop.ledger):
        end = EndLoop(0, "complete", tasks.complete_words(loop.plan))
        return transitions.ended(loop, end, model.ClearCheckpoint())
    if over := transitions.end_now(loop, None, at, policy):
        return over
    if (task := _resumed_task(loop, resumed, policy)) is None:
        resumed = None
        choice = tasks.choose(loop.plan, loop.ledger, max_task_failures=policy.max_task_failures)
        if choice.task is None:
            return _used_up(loop, choice.used_up)
        task = choice.task
    if resumed is not None and _had_its_turn(loop, resumed, at, policy):
        resumed = None
    return _start(loop, task, at, policy, resumed)


def _asked_once(loop: Loop, resumed: Checkpoint | None, at: Moment, policy: LoopPolicy) -> Loop:
    """End a guessed cooldown before its time: a person resumes, and may have bought more [002-US-008]."""
    if resumed is None or not resumed.waits_for_limit or at >= (resumed.resume_at or 0.0):
        return loop
    pool = transitions.pool_of(loop, policy)
    for out in pool.out:
        if out.guessed and policy.pause_when_exhausted:
            pool = pool.due(out.agent, at)
    return transitions.with_pool(loop, pool)


def _had_its_turn(loop: Loop, resumed: Checkpoint, at: Moment, policy: LoopPolicy) -> bool:
    """Return whether a failure ended the turn of the checkpoint's agent, so that the next agent is due.

    An agent that was interrupted, or that waits for its limit, still has its turn.
    """
    last = loop.memory.last_agent
    is_over = policy.rotates and resumed.agent == last and resumed.pause_reason in _TURN_OVER
    return is_over and transitions.pool_after(loop, policy, last).first(at) != last


def _resumed_task(loop: Loop, resumed: Checkpoint | None, policy: LoopPolicy) -> Task | None:
    """Return the checkpoint's task if it is open, was not put back, and has not failed too often."""
    if resumed is None or resumed.task is None:
        return None
    candidates = tasks.may_be_tried(loop.plan, loop.ledger, max_task_failures=policy.max_task_failures)
    task = next((task for task in candidates if task.id == resumed.task.id), None)
    is_put_back = task is not None and tasks.record_of(task, loop.ledger).state is model.TaskState.FAILED
    return None if is_put_back else task


def _used_up(loop: Loop, used_up: tuple[Task, ...]) -> LoopStep:
    records = [tasks.record_of(task, loop.ledger) for task in used_up]
    whys = Counter(str(record.last_failure or record.last_kind or "unknown") for record in records)
    _, total = tasks.progress(loop.plan, loop.ledger) or (0, len(used_up))
    count = f"{len(records)} of {total} tasks failed" if total > 1 else "the task failed"
    if len(whys) == 1:
        why = f"{count}{', all' if len(records) > 1 else ''} with: {next(iter(whys))}"
    else:
        listed = (f"{times} with: {why}" for why, times in whys.most_common(MOST_LISTED))
        more = ("…",) if len(whys) > MOST_LISTED else ()
        why = f"{count}; {'; '.join((*listed, *more))}"
    return transitions.ended(loop, EndLoop(1, "tasks_failed", why))


def _start(loop: Loop, task: Task, at: Moment, policy: LoopPolicy, resumed: Checkpoint | None) -> LoopStep:
    pool = transitions.pool_after(loop, policy, loop.memory.last_agent)
    agent = resumed.agent if resumed and resumed.agent in pool.present(at) else pool.first(at)
    iteration = _iteration(loop, task, agent or pool.agents[0])
    loop = replace(loop, ledger=tasks.began(loop.ledger, task, reviewed=policy.reviews), shaky=())
    if resumed is not None and resumed.task is not None:
        session = resumed.session_id if resumed.resumes_session and agent == resumed.agent else None
        iteration = replace(iteration, attempt=resumed.task.attempt, session=session)
    if agent is None:
        after = transitions.exhausted(loop, iteration, at, policy)
    elif wait := _first_wait(loop, resumed, agent, at, policy):
        after = transitions.rest(loop, iteration, at, wait, policy)
    else:
        saved = model.SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration)
        after = transitions.attempt(loop, iteration, at, policy).preceded_by(saved)
    checkpoint, *others = after.orders  # it is on the disk before anybody hears of the iteration
    return LoopStep(after.loop, (checkpoint, model.StartIteration(iteration), *others))


def _iteration(loop: Loop, task: Task, agent: str) -> Iteration:
    """Return the next iteration, with what is known of the last attempt at its task."""
    known = tasks.record_of(task, loop.ledger)
    previous, number = tasks.previous(loop.ledger, task), loop.memory.iteration + 1
    return Iteration(number, task, agent, previous=previous, shaky=loop.shaky, reverted=known.reverted)


# The end of an attempt, and of an iteration.


def _attempt_over(loop: Loop, iteration: Iteration, event: model.AttemptOver, policy: LoopPolicy) -> LoopStep:
    lost = event.lost or tasks.lost(loop.plan, event.plan)
    losses = tasks.lost_again(loop.losses, iteration.number) if lost else loop.losses
    plan = tasks.latest(loop.plan, event.plan)
    others = (each for each in (loop.plan.open if loop.plan else ()) if each.id != iteration.task.id)
    open_before = {each.id for each in others if not tasks.renamed(each, loop.plan, plan)}
    if heir := tasks.renamed(iteration.task, loop.plan, plan):
        loop = replace(loop, ledger=tasks.moved(loop.ledger, iteration.task, heir))
        iteration = replace(iteration, task=heir)
    memory = replace(loop.memory, cost_usd=round(loop.memory.cost_usd + event.cost_usd, 6), in_flight=None)
    # An account that had no free slot before this attempt may have one now.
    memory = replace(memory, out=Pool(policy.agents, memory.out).without_slots().out)
    if event.worked or event.finding.kind is None or meaning(event.finding.kind).for_the_task:
        memory = replace(memory, notes_read=max(memory.notes_read, event.notes_read))
    loop = replace(loop, memory=memory, plan=plan, losses=losses)
    session, commits = event.session or iteration.last_session, iteration.commits + event.commits
    iteration = replace(iteration, commits=commits, made=event.commits, last_session=session)
    finding = event.finding
    if finding.asked:
        report = model.ReportAttempt(iteration, None, finding.rule, finding.why, "ended as requested")
        iteration = replace(iteration, session=event.session if event.worked else None)
        return transitions.end_by_request(loop, iteration).preceded_by(report)
    if event.halted:  # another attempt would come to the same end
        follows = "the loop ends until you act"
        report = model.ReportAttempt(iteration, finding.kind, finding.rule, finding.why, follows)
        saved = model.SaveCheckpoint(PauseReason.ERROR, iteration, None, event.halted)
        return transitions.ended(loop, EndLoop(78, "review", event.halted), saved, report)
    if lost and len(losses) >= LOSSES:
        return _list_lost(loop, iteration, event, lost)
    if finding.kind is not None:
        return failed(loop, iteration, event, finding.kind, finding.why, policy)
    if why := _left_open(loop, open_before, iteration, event):
        return failed(loop, iteration, event, FailureKind.AGENT_INCOMPLETE, why, policy)
    if iteration.commits:
        loop = replace(loop, ledger=tasks.redone(loop.ledger, open_before - tasks.unticked(plan)))
    return _done(loop, iteration, event, policy)


def _list_lost(loop: Loop, iteration: Iteration, event: model.AttemptOver, lost: str) -> LoopStep:
    """Pause: another iteration would lose the list again, and each costs as much as real work."""
    why = f"the task list was lost in {len(loop.losses)} iterations in a row: {lost}"
    kind = event.finding.kind or FailureKind.AGENT_INCOMPLETE
    report = model.ReportAttempt(iteration, kind, event.finding.rule, why, "the loop pauses until you act")
    saved = model.SaveCheckpoint(PauseReason.ERROR, iteration, None, why)
    return transitions.ended(loop, EndLoop(75, "task_list", why), saved, report)


def _left_open(
    loop: Loop, open_before: set[str], iteration: Iteration, event: model.AttemptOver
) -> str | None:
    """Return why a successful attempt got nothing done; None if it finished its task, or another one."""
    task = iteration.task
    if not (tasks.has_tasks(loop.plan) or task.added):
        return None
    still_open = tasks.unticked(loop.plan) | ({task.id} if task.added else set())
    is_done = task.id not in still_open or (task.added and (iteration.commits or event.promised))
    if is_done and tasks.record_of(task, loop.ledger).reverted and not iteration.commits:
        return "its commits were reverted, and no new one was made"
    if is_done or (open_before - still_open and not task.added):
        return None
    if task.added:
        return "the agent finished, but made no commit and did not declare the task done"
    plan = event.plan
    if event.lost:
        return f"the agent finished, but lost the task list, which was restored: {event.lost}"
    if plan is None or not plan.tasks:
        gone = (plan.fault or f"{plan.file} lists nothing") if plan and plan.file else "it is gone"
        return f"the agent finished, but the task list can no longer be read: {gone}"
    if event.promised:
        count = len(still_open)
        return f"the agent declared that all is done while {count} task{'s are' if count > 1 else ' is'} open"
    return f"the agent finished, but the task is not checked off in {plan.file}"


def _done(loop: Loop, iteration: Iteration, event: model.AttemptOver, policy: LoopPolicy) -> LoopStep:
    pool, task = transitions.pool_of(loop, policy).worked(iteration.agent), iteration.task
    has_list = tasks.has_tasks(loop.plan) or task.added
    complete = not has_list or task.added or task.id not in tasks.unticked(loop.plan)
    ledger = tasks.ended(loop.ledger, task, model.TaskState.COMPLETE if complete else model.TaskState.PENDING)
    idle = 0 if iteration.commits or has_list else loop.memory.idle_successes + 1
    memory = replace(loop.memory, iteration=loop.memory.iteration + 1, idle_successes=idle)
    ledger = tasks.unjudged(loop.ledger, tasks.sync_with_plan(ledger, loop.plan))
    loop = transitions.with_pool(replace(loop, ledger=ledger, memory=memory, failing=0), pool)
    summary = "the agent finished" if not has_list else "done" if complete else "another task was done"
    stage = model.AwaitingVerdict(iteration, event.promised and not task.added, did_another=not complete)
    report = model.ReportAttempt(iteration, None, event.finding.rule, event.finding.why, "the iteration ends")
    cleared = (model.ClearCheckpoint(),) if complete else ()
    is_done = complete and (has_list or event.promised)  # the prompt alone only if the agent declared it
    finish = model.FinishIteration(iteration, failed=False, complete=is_done, summary=summary)
    return LoopStep(replace(loop, stage=stage), (report, model.Handoff(""), *cleared, finish))


def _judged(loop: Loop, stage: model.AwaitingVerdict, event: model.Judged, policy: LoopPolicy) -> LoopStep:
    plan = tasks.latest(loop.plan, event.plan)
    before = set() if loop.plan is None else {task.id for task in loop.plan.tasks} - tasks.unticked(loop.plan)
    taken = tasks.unticked(plan) & before
    loop = replace(loop, plan=plan, ledger=tasks.sync_with_plan(loop.ledger, plan))
    if not event.unheard:
        loop = _with_verdict(loop, event.verdict, policy, taken, did_another=stage.did_another)
    loop = _with_answer(loop, event)
    is_reverted = event.verdict is not None and event.verdict.kind is VerdictKind.REVERTED
    candidates = tasks.may_be_tried(plan, loop.ledger, max_task_failures=policy.max_task_failures)
    if not (tasks.has_tasks(plan) or is_reverted or any(task.added for task in candidates)):
        end = EndLoop(0, "complete", "the agent declared that all is done") if stage.promised else None
        if end is None and loop.memory.idle_successes >= IDLE_SUCCESSES:
            why = f"the last {loop.memory.idle_successes} iterations succeeded without a commit"
            end = EndLoop(0, "no_progress", why)
        if end is not None:
            if given_up := tuple(task for task in tasks.open_tasks(plan, loop.ledger) if task.added):
                return _used_up(loop, given_up)
            return transitions.ended(loop, end, model.ClearCheckpoint())
    return _iterate(loop, event.at, policy)


def _with_verdict(
    loop: Loop, verdict: Verdict | None, policy: LoopPolicy, taken: Collection[str] = (), *,
    did_another: bool = False,
) -> Loop:  # fmt: skip
    """Apply the verdict on the loop's commits; None: no gate is configured (R9)."""
    a_round = failures_per_round(policy)
    ledger = tasks.judged(loop.ledger, verdict, a_round=a_round, taken=taken, did_another=did_another)
    boundary = loop.memory.judged if verdict is None else verdict.boundary_id
    return replace(loop, ledger=ledger, memory=replace(loop.memory, judged=boundary))


def _with_answer(loop: Loop, event: model.Judged) -> Loop:
    """Apply the Regent's request, unless a stop was requested already. The verdict says why it pauses."""
    requests = {Next.STOP: model.PendingRequest.STOP, Next.PAUSE: model.PendingRequest.PAUSE}
    if event.next not in requests or loop.request is model.PendingRequest.STOP:
        return loop
    why, verdict = loop.pause_why, event.verdict
    if loop.request is model.PendingRequest.NONE and verdict and verdict.kind is VerdictKind.UNTESTED:
        why = f"needs your review: {verdict.why}"
    return replace(loop, request=requests[event.next], pause_why=why)
