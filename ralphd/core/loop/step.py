"""Ralph's own decisions: which task, which agent, what an attempt was, is it done (L1 to L13).

``step`` answers each event with the loop as it is then and the orders to carry out. What follows a failure
is in ``core/loop/failures``; nothing here knows a clock, a file or a process.
"""

from dataclasses import replace

from ralphd.core import backoff
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict import VerdictKind
from ralphd.core.gate.verdict_views import VerdictMessage
from ralphd.core.loop import tasks
from ralphd.core.loop.failures import failed
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    Begin,
    ClearCheckpoint,
    EndLoop,
    EndRest,
    Finished,
    FinishIteration,
    Handoff,
    Iteration,
    Judged,
    Loop,
    LoopEvent,
    LoopOrder,
    LoopPolicy,
    LoopStep,
    LoopWoke,
    PauseAsked,
    PendingRequest,
    Rest,
    Resting,
    Resumed,
    SaveCheckpoint,
    Skipped,
    StartIteration,
    StopAsked,
    TellAttempt,
    TellLost,
)
from ralphd.core.loop.state import PauseReason, TaskState
from ralphd.core.loop.transitions import (
    attempt,
    end_by_wish,
    end_now,
    ended,
    exhausted,
    handed_to,
    pool_after,
    pool_of,
    rest,
    with_pool,
)
from ralphd.core.plan import Task
from ralphd.core.supervision.model import Next
from ralphd.core.time import Moment

# The waits of the loop: before an iteration, until one is over, and when a person or a clock ends them.

_WAITS = (PauseReason.RATE_LIMIT, PauseReason.OUTAGE)
_SET_BACK = " (the clock was set back)"


def first_wait(
    loop: Loop, resumed: Resumed | None, agent: str, at: Moment, policy: LoopPolicy
) -> Rest | None:
    """What is waited for before an iteration's first attempt.

    It is the rest of the wait in which the loop was killed, or a pause after iterations that failed running,
    without which a loop whose tasks may fail as often as they like would never come to rest.
    """
    if resumed is not None and (until := _wait_left(resumed, agent, at, policy)):
        return Rest(until, resumed.reason, resumed.why)
    wait_s = backoff.between_s(loop.failing, base_s=policy.same_agent_base_s, most_s=policy.max_s)
    why = f"the last {loop.failing} iterations failed"
    return Rest(at + wait_s, PauseReason.ERROR, why) if wait_s else None


def _wait_left(resumed: Resumed, agent: str, at: Moment, policy: LoopPolicy) -> Moment | None:
    """The end of the wait in which the loop was killed: its agent is not asked before it. None: it is over.

    An agent that is out until its reset is known to the pool. What is further off than such a wait can be,
    was not written by a loop with this clock and these rules. By a clock that was set back since, the wait is
    worth its own length at most (H5).
    """
    if resumed.reason not in _WAITS or agent != resumed.agent or resumed.resume_at is None:
        return None
    until = resumed.resume_at
    if resumed.saved_at is not None:
        until = min(until, at + max(until - resumed.saved_at, 0.0))
    longest_s = max(policy.max_rate_limit_wait_s, policy.outage_max_wait_s)
    return until if at < until <= at + longest_s else None


def rested(loop: Loop, was: Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    """A wait is over: the next attempt, by the same agent or by the one that came back."""
    if over := end_now(loop, was.iteration, at, policy):
        return LoopStep(over.loop, (EndRest(), *over.orders))
    iteration = was.iteration
    if was.for_an_agent:
        agent = pool_after(loop, policy, loop.memory.last_agent).first(at)
        if agent is None:
            after = exhausted(loop, iteration, at, policy)
            return LoopStep(after.loop, (EndRest(), *after.orders))
        iteration = handed_to(agent, iteration)
    after = attempt(loop, iteration, at, policy)
    return LoopStep(after.loop, (EndRest(), *after.orders))


def waited_anew(loop: Loop, was: Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    """The clock was set back: the wait is as long as it was; but an agent is back when it said (H5)."""
    until = was.until if was.for_an_agent else at + was.lasts_s
    why = was.why if was.why.endswith(_SET_BACK) else f"{was.why}{_SET_BACK}"
    return rest(loop, was.iteration, at, until, was.reason, why, policy, for_an_agent=was.for_an_agent)


def skipped(loop: Loop, was: Resting, at: Moment, policy: LoopPolicy) -> LoopStep:
    """A person ends a wait: who was waited for may be asked, and only what was waited counts."""
    pool = pool_of(loop, policy)
    if was.for_an_agent and (out := pool.next_return()):
        loop = with_pool(loop, pool.due(out.agent, at))
    if was.reason is PauseReason.RATE_LIMIT:
        waited_s = max(was.iteration.rate_waited_s - max(was.until - at, 0.0), 0.0)
        was = replace(was, iteration=replace(was.iteration, rate_waited_s=waited_s))
    return rested(loop, was, at, policy)


IDLE_SUCCESSES = 2
"""Without a task list, so many iterations running that end well and commit nothing are the end (L10)."""
SET_BACK_S = 1.0
"""A clock that tells a moment so long before a wait began was set back."""
_TURN_OVER = (PauseReason.ERROR, PauseReason.TIMEOUT, PauseReason.STALL)


def step(loop: Loop, event: LoopEvent, policy: LoopPolicy) -> LoopStep:
    """Answer one event. What changes nothing in the present stage leaves the loop as it is."""
    match loop.stage, event:
        case Finished(), _:
            return LoopStep(loop)
        case _, PauseAsked():
            return _asked(loop, PendingRequest.PAUSE)
        case _, StopAsked():
            return _asked(loop, PendingRequest.STOP)
        case Begin(), Began() as event:
            return _begin(loop, event, policy)
        case Attempting(iteration=iteration), AttemptOver() as event:
            return _attempt_over(loop, iteration, event, policy)
        case Resting(until=until) as rest, LoopWoke(at=at) if at >= until:
            return rested(loop, rest, at, policy)
        case Resting(since=since) as rest, LoopWoke(at=at) if at < since - SET_BACK_S:
            return waited_anew(loop, rest, at, policy)
        case Resting() as rest, Skipped(at=at):
            return skipped(loop, rest, at, policy)
        case AwaitingVerdict() as judging, Judged() as event:
            return _judged(loop, judging, event, policy)
        case _:
            return LoopStep(loop)


def _asked(loop: Loop, wish: PendingRequest) -> LoopStep:
    """A pause or a stop: at once where nothing runs, else when what runs is over (L12)."""
    wished = replace(loop, wish=PendingRequest.STOP if PendingRequest.STOP in (wish, loop.wish) else wish)
    if isinstance(loop.stage, Resting):
        over = end_by_wish(wished, loop.stage.iteration)
        return LoopStep(over.loop, (EndRest(), *over.orders))
    return LoopStep(wished)


def _begin(loop: Loop, event: Began, policy: LoopPolicy) -> LoopStep:
    plan = tasks.initial_plan(event.plan, loop.memory.list_file, loop.ledger)
    if plan is not None and plan.fault is not None:
        why = f"the task list cannot be used: {plan.fault}"
        return ended(loop, EndLoop(78, "configuration", why))
    began_at = event.at if loop.memory.began_at is None else loop.memory.began_at
    told = () if loop.memory.under_way is None else (TellLost(loop.memory.under_way),)
    memory = replace(loop.memory, began_at=began_at, agents=policy.agents, rotates=policy.rotates)
    list_file = plan.file if plan is not None and tasks.has_tasks(plan) else None
    memory = replace(memory, under_way=None, list_file=list_file)
    ledger = loop.ledger if policy.reviews else tasks.without_reviews(loop.ledger)
    ledger = tasks.sync_with_plan(ledger, plan)
    loop = replace(loop, plan=plan, ledger=ledger, memory=memory)
    if event.verdict is not None and event.verdict.boundary != memory.judged:
        loop = _with_verdict(loop, event.verdict, policy)
    loop = replace(loop, ledger=tasks.put_back(loop.ledger, event.undone))
    after = _iterate(loop, event.at, policy, event.resumed)
    return LoopStep(after.loop, (*told, *after.orders))


def _iterate(loop: Loop, at: Moment, policy: LoopPolicy, resumed: Resumed | None = None) -> LoopStep:
    """The next iteration, or the end."""
    if tasks.has_tasks(loop.plan) and not tasks.open_tasks(loop.plan, loop.ledger):
        return ended(loop, EndLoop(0, "complete", "all tasks are done"), ClearCheckpoint())
    if over := end_now(loop, None, at, policy):
        return over
    task = _resumed_task(loop, resumed, policy)
    if task is None:
        resumed = None
        choice = tasks.choose(loop.plan, loop.ledger, max_task_failures=policy.max_task_failures)
        if choice.task is None:
            return _used_up(loop, choice.used_up)
        task = choice.task
    if resumed is not None and _had_its_turn(loop, resumed, at, policy):
        resumed = None
    return _start(loop, task, at, policy, resumed)


def _had_its_turn(loop: Loop, resumed: Resumed, at: Moment, policy: LoopPolicy) -> bool:
    """Whether a failure ended the turn of the checkpoint's agent before the loop ended: the next one goes on.

    One that was cut off in the middle, or waits for its limit, has its turn still.
    """
    last = loop.memory.last_agent
    if not policy.rotates or resumed.agent != last or resumed.reason not in _TURN_OVER:
        return False
    return pool_after(loop, policy, last).first(at) != last


def _resumed_task(loop: Loop, resumed: Resumed | None, policy: LoopPolicy) -> Task | None:
    """The task that the checkpoint names, if it is still open, not put back, and has not failed too often."""
    if resumed is None or resumed.task_id is None:
        return None
    may_be = tasks.may_be_tried(loop.plan, loop.ledger, max_task_failures=policy.max_task_failures)
    task = next((task for task in may_be if task.id == resumed.task_id), None)
    if task is None or tasks.record_of(task, loop.ledger).standing is TaskState.FAILED:
        return None
    return task


def _used_up(loop: Loop, used_up: tuple[Task, ...]) -> LoopStep:
    told = "; ".join(
        f"{task.id} failed {_times(record.failure_count)}, last: {record.last_failure or record.last_kind}"
        for task in used_up[:3]
        for record in [tasks.record_of(task, loop.ledger)]
    )
    more = f"; and {len(used_up) - 3} more" if len(used_up) > 3 else ""
    return ended(loop, EndLoop(1, "tasks_failed", f"no task is left to try: {told}{more}"))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _start(loop: Loop, task: Task, at: Moment, policy: LoopPolicy, resumed: Resumed | None) -> LoopStep:
    pool = pool_after(loop, policy, loop.memory.last_agent)
    agent = pool.first(at)
    if resumed is not None and resumed.agent in pool.present(at):
        agent = resumed.agent
    iteration = _iteration(loop, task, agent or pool.agents[0])
    loop = replace(loop, ledger=tasks.began(loop.ledger, task, reviewed=policy.reviews), rotation=None)
    if resumed is not None:
        session = resumed.session if agent == resumed.agent else None
        iteration = replace(iteration, attempt=resumed.attempt, session=session)
    begun = StartIteration(iteration)
    if agent is None:
        after = exhausted(loop, iteration, at, policy)
    elif waits := first_wait(loop, resumed, agent, at, policy):
        after = rest(loop, iteration, at, waits.until, waits.reason, waits.why, policy)
    else:
        after = attempt(loop, iteration, at, policy)
        after = LoopStep(
            after.loop, (SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration), *after.orders)
        )
    saved, *others = after.orders
    return LoopStep(after.loop, (saved, begun, *others))


def _iteration(loop: Loop, task: Task, agent: str) -> Iteration:
    """The next iteration, with what is known of the last attempt at its task."""
    number, previous = loop.memory.iteration + 1, tasks.previous(loop.ledger, task)
    reverted = tasks.record_of(task, loop.ledger).reverted
    if (last := loop.rotation) is None:
        return Iteration(number, task, agent, previous=previous, reverted=reverted)
    if last.task_id == task.id:
        previous = last.previous
    return Iteration(number, task, agent, previous=previous, shaky=last.shaky, reverted=reverted)


def _attempt_over(loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy) -> LoopStep:
    before = {each.id for each in tasks.open_tasks(loop.plan, {})} - {iteration.task.id}
    plan = tasks.latest(loop.plan, event.plan)
    if heir := tasks.renamed(iteration.task, loop.plan, plan):
        loop = replace(loop, ledger=tasks.moved(loop.ledger, iteration.task, heir))
        iteration = replace(iteration, task=heir)
    memory = replace(loop.memory, cost_usd=round(loop.memory.cost_usd + event.cost_usd, 6), under_way=None)
    loop = replace(loop, memory=memory, plan=plan)
    iteration = replace(iteration, commits=iteration.commits + event.commits)
    finding = event.finding
    if finding.asked:
        told = TellAttempt(iteration, None, finding.rule, finding.why, "ended as asked")
        over = end_by_wish(loop, replace(iteration, session=event.session if event.worked else None))
        return LoopStep(over.loop, (told, *over.orders))
    if event.halted:
        return _halted(loop, iteration, event)
    if finding.kind is not None:
        return failed(loop, iteration, event, finding.kind, finding.why, policy)
    if why := _left_open(loop, before, iteration, event):
        return failed(loop, iteration, event, FailureKind.AGENT_INCOMPLETE, why, policy)
    return _done(loop, iteration, event, policy)


def _halted(loop: Loop, iteration: Iteration, event: AttemptOver) -> LoopStep:
    """The end, with all that is there to go on from: another attempt would come to the same."""
    finding = event.finding
    saved = SaveCheckpoint(PauseReason.ERROR, iteration, None, event.halted)
    told = TellAttempt(iteration, finding.kind, finding.rule, finding.why, "the end: a person has to act")
    return ended(loop, EndLoop(78, "review", event.halted), saved, told)


def _left_open(loop: Loop, before: set[str], iteration: Iteration, event: AttemptOver) -> str | None:
    """Why an attempt that ended well has got nothing done; None when it has, be it another task."""
    if not tasks.has_tasks(loop.plan):
        return None
    task, now = iteration.task, {each.id for each in tasks.open_tasks(loop.plan, {})}
    if task.id not in now and tasks.record_of(task, loop.ledger).reverted and not iteration.commits:
        return f"the commits of {task.id} were reverted, and no new one was made"
    if task.id not in now or before - now:
        return None
    if event.plan is None or not event.plan.tasks:
        gone = "it is gone" if event.plan is None else event.plan.fault or f"{event.plan.file} lists nothing"
        return f"the agent ended well, but the task list cannot be read any more: {gone}"
    if event.promised:
        count = len(now)
        return f"the agent promised that all is done while {count} task{'s are' if count > 1 else ' is'} open"
    return f"the agent ended well, but {task.id} is still open in {event.plan.file}"


def _done(loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy) -> LoopStep:
    """An attempt that got something done: the iteration is finished."""
    pool = pool_of(loop, policy).worked(iteration.agent)
    is_open = iteration.task.id in {task.id for task in tasks.open_tasks(loop.plan, {})}
    has_list = tasks.has_tasks(loop.plan)
    complete = not (has_list and is_open)
    ledger = tasks.ended(loop.ledger, iteration.task, TaskState.COMPLETE if complete else TaskState.PENDING)
    idle = 0 if iteration.commits or has_list else loop.memory.idle_successes + 1
    memory = replace(loop.memory, iteration=loop.memory.iteration + 1, idle_successes=idle)
    ledger = tasks.unjudged(loop.ledger, tasks.sync_with_plan(ledger, loop.plan))
    loop = replace(loop, ledger=ledger, memory=memory)
    loop = replace(with_pool(loop, pool), stage=AwaitingVerdict(iteration, event.promised), failing=0)
    summary = _summary(iteration.task.id, complete=complete, has_list=has_list)
    told = TellAttempt(iteration, None, event.finding.rule, event.finding.why, "the iteration is finished")
    rest: tuple[LoopOrder, ...] = (ClearCheckpoint(),) if complete else ()
    finish = FinishIteration(iteration, failed=False, complete=complete, summary=summary)
    return LoopStep(loop, (told, Handoff(""), *rest, finish))


def _summary(task: str, *, complete: bool, has_list: bool) -> str:
    if not has_list:
        return "the agent ended well"
    return f"{task} is done" if complete else f"another task than {task} was done"


def _judged(loop: Loop, judging: AwaitingVerdict, event: Judged, policy: LoopPolicy) -> LoopStep:
    plan = tasks.latest(loop.plan, event.plan)
    loop = replace(loop, plan=plan, ledger=tasks.sync_with_plan(loop.ledger, plan))
    if not event.unheard:
        loop = _with_verdict(loop, event.verdict, policy)
    loop = _with_answer(loop, event)
    if not tasks.has_tasks(plan) and (event.verdict is None or event.verdict.note is None):
        if judging.promised:
            return ended(
                loop, EndLoop(0, "complete", "the agent promised that all is done"), ClearCheckpoint()
            )
        if loop.memory.idle_successes >= IDLE_SUCCESSES:
            why = f"the last {loop.memory.idle_successes} iterations ended well and committed nothing"
            return ended(loop, EndLoop(0, "no_progress", why), ClearCheckpoint())
    return _iterate(loop, event.at, policy)


def _with_verdict(loop: Loop, verdict: VerdictMessage | None, policy: LoopPolicy) -> Loop:
    """The loop that has heard what became of its commits; None: nobody judges (R9)."""
    a_round = max(len(policy.agents), 1 + policy.retries_before_fallback)
    ledger = tasks.judged(loop.ledger, verdict, a_round=a_round)
    boundary = loop.memory.judged if verdict is None else verdict.boundary
    return replace(loop, ledger=ledger, memory=replace(loop.memory, judged=boundary))


def _with_answer(loop: Loop, event: Judged) -> Loop:
    """What the Regent wants holds, but for a stop that was asked for; why it pauses is in the verdict."""
    wishes = {Next.STOP: PendingRequest.STOP, Next.PAUSE: PendingRequest.PAUSE}
    if event.next not in wishes or loop.wish is PendingRequest.STOP:
        return loop
    why = loop.pause_why
    if (
        loop.wish is PendingRequest.NONE
        and event.verdict is not None
        and event.verdict.kind is VerdictKind.UNTESTED
    ):
        why = f"a person has to look at it: {event.verdict.why}"
    return replace(loop, wish=wishes[event.next], pause_why=why)
