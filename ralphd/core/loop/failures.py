"""What follows a failed attempt: the same agent again, the next one, a wait, or the end (L2, L3, L8).

Each kind of failure has its own path. An answer is a ``LoopStep`` and, in a few words for the report of the
attempt, what happens next.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.loop import model, tasks, transitions
from ralphd.core.loop.model import AttemptOver, Iteration, Loop, LoopPolicy, LoopStep, PauseReason, Rest
from ralphd.core.loop.prompt import MOST_LINE_CHARS
from ralphd.core.loop.transitions import attempt, exhausted, handed_to, pool_after, pool_of, rest
from ralphd.core.supervision import backoff
from ralphd.core.time import Moment

LINES_KEPT = 50
"""Of the output of a failed attempt, for the next prompt."""

_NAMED: Final = (FailureKind.RATE_LIMIT, FailureKind.USAGE_LIMIT, *tasks.TOO_LONG)
"""A checkpoint after one of these has its name as the reason."""
RESUMED: Final = (*_NAMED, FailureKind.TRANSIENT)
"""After these the same agent resumes its session, if it had begun to work."""

_AT_ONCE: Final = (FailureKind.AGENT_INCOMPLETE, FailureKind.CONTEXT)
_CRASHED: Final = (FailureKind.AGENT_CRASH, FailureKind.UNKNOWN, FailureKind.TRANSIENT, *tasks.TOO_LONG)
_ENDS: Final[Mapping[model.Stage, str]] = {model.Finished(75): "pausing", model.Finished(1): "the loop ends"}

_Sequel: TypeAlias = tuple[LoopStep, str]


def failures_per_round(policy: LoopPolicy) -> int:
    """Return how many failures of a task in a row put it back behind the other tasks."""
    return max(len(policy.agents), 1 + policy.retries_before_fallback)


def failed(
    loop: Loop, iteration: Iteration, event: AttemptOver, kind: FailureKind, why: str, policy: LoopPolicy
) -> LoopStep:
    """Save, report and note a failed attempt, then act on it."""
    lines = tuple(line[:MOST_LINE_CHARS] for line in event.lines[-LINES_KEPT:])
    previous = model.Previous(iteration.nth, iteration.agent, kind, why, lines)
    session = event.session if kind in RESUMED and event.worked else None
    task = tasks.as_listed(iteration.task, loop.plan) or iteration.task
    iteration = replace(iteration, task=task, previous=previous, session=session)
    loop = replace(loop, ledger=tasks.failed_once(loop.ledger, iteration.task, previous))
    is_done = iteration.commits and not tasks.is_open(task, loop.ledger)  # it failed only after that
    over = transitions.end_now(loop, iteration, event.at, policy)
    after, next_words = (over, "the loop ends") if over else _sequel(loop, iteration, event, kind, policy)
    if is_done:
        out = [each for each in after.orders if isinstance(each, model.ReportAgentOut)]
        loop = transitions.with_pool(replace(loop, failing=0), pool_of(after.loop, policy))
        after = finished(loop, iteration, "done", complete=True).preceded_by(*out)
        next_words = "its task is done"
    # One checkpoint, before anything else: that of the sequel says more, where it has one.
    own = [order for order in after.orders if isinstance(order, model.SaveCheckpoint)]
    others = [_logged(order) for order in after.orders if not isinstance(order, model.SaveCheckpoint)]
    reason = PauseReason(kind.value) if kind in _NAMED else PauseReason.ERROR
    saved = model.SaveCheckpoint(reason, iteration, None, why)
    until = next((each.until for each in others if isinstance(each, model.ReportAgentOut | Rest)), None)
    report = model.ReportAttempt(iteration, kind, event.finding.rule, why, next_words, until)
    note = (model.Handoff(f"Previous rotation crashed: {why}"),) if kind in _CRASHED else ()
    return LoopStep(after.loop, (own[-1] if own else saved, report, *note, *others))


def _logged(order: model.LoopOrder) -> model.LoopOrder:
    """Mark a wait, or a pause until a reset: the line of the failed attempt reports it."""
    if isinstance(order, Rest) or (isinstance(order, model.EndLoop) and order.resume_at is not None):
        return replace(order, logged=True)
    return order


def _sequel(
    loop: Loop, iteration: Iteration, event: AttemptOver, kind: FailureKind, policy: LoopPolicy
) -> _Sequel:
    match kind:
        case FailureKind.RATE_LIMIT:
            return _rate_limited(loop, iteration, event, policy)
        case FailureKind.USAGE_LIMIT:
            return _usage_limited(loop, iteration, event, policy)
        case FailureKind.TRANSIENT:
            return _transient(loop, iteration, event, policy)
        case FailureKind.FATAL if isinstance(loop.stage, model.Attempting) and loop.stage.iteration.session:
            # What is wrong may be the session that it resumed: lost, or one that its service refuses.
            words = f"{iteration.agent} again now, in a new session"
            return attempt(loop, iteration, event.at, policy), words
        case FailureKind.FATAL:
            return _without(loop, iteration, event.at, policy, event.finding.why, None)
        case _:
            steady = replace(iteration, outage=0, transient_tries=0, shaky=())
            return _again(loop, steady, event.at, kind, policy)


def _rate_limited(loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy) -> _Sequel:
    """Wait as long as the service says, then resume with the same agent and task: no failure is counted."""
    reset = event.finding.reset
    reset_s = None if reset is None else reset.until - event.at
    wait_s = backoff.rate_limit_s(reset_s, waited_s=iteration.rate_waited_s, unknown_s=policy.rate_limit_s)
    waited_s = iteration.rate_waited_s + wait_s
    if waited_s > policy.max_rate_limit_wait_s:
        return _usage_limited(loop, replace(iteration, rate_waited_s=0.0), event, policy)
    iteration = replace(iteration, rate_waited_s=waited_s, outage=0, transient_tries=0, shaky=())
    why = f"rate limit of {iteration.agent}" + ("" if reset is None else f" ({reset.source})")
    wait = Rest(event.at + wait_s, PauseReason.RATE_LIMIT, why)
    return rest(loop, iteration, event.at, wait, policy), f"{iteration.agent} again in {wait_s:.0f} s"


def _usage_limited(loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy) -> _Sequel:
    """Start a cooldown until the reset plus a margin; without a known reset, until the next probe."""
    reset, why = event.finding.reset, event.finding.why
    if is_guessed := reset is None or reset.until <= event.at:
        until = event.at + pool_of(loop, policy).probe_s(iteration.agent)
        why = f"{why.rstrip('.')}, reset not known"
    else:
        until = reset.until + policy.reset_margin_s
    return _without(loop, iteration, event.at, policy, why, until, guessed=is_guessed)


def _without(
    loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy, why: str, until: Moment | None, *,
    guessed: bool = False,
) -> _Sequel:  # fmt: skip
    pool = pool_of(loop, policy).put_out(iteration.agent, why, until, guessed=guessed)
    loop = transitions.with_pool(loop, pool)
    agent = pool_after(loop, policy, iteration.agent).first(at, but=iteration.passed)
    if agent is not None:
        after, words = attempt(loop, handed_to(agent, iteration), at, policy), f"{agent} continues"
    elif pool.present(at):  # these had their turn with this task, and failed
        after, words = _give_up_task(loop, iteration), "the task is put back"
    else:
        after = exhausted(loop, iteration, at, policy)
        words = f"no other agent is available; {_ENDS.get(after.loop.stage, 'waiting')}"
    if until is None:
        words += f"; {iteration.agent} is not used until you act"
    return after.preceded_by(model.ReportAgentOut(iteration.agent, why, until)), words


def _transient(loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy) -> _Sequel:
    """Retry, then use the next agent; when no agent reaches its service, it is an outage.

    In a rotation with several agents every failure ends the turn.
    """
    pool = pool_of(loop, policy)
    if iteration.outage:
        return _outage(loop, iteration, event.at, policy)
    if policy.rotates and len(pool.present(event.at)) > 1:
        is_again = iteration.agent in iteration.shaky  # the others have no free slot
        iteration = replace(iteration, shaky=(*iteration.shaky, iteration.agent))
        if is_again or all(each in iteration.shaky for each in pool.present(event.at)):
            return _outage(loop, iteration, event.at, policy)
        loop = replace(loop, ledger=tasks.ended(loop.ledger, iteration.task, model.TaskState.PENDING))
        return _turn_over(loop, iteration, event.at, policy)
    tries = iteration.transient_tries + 1
    iteration = replace(iteration, transient_tries=tries)
    if tries <= policy.transient_retries:
        base_s = backoff.doubled_s(policy.base_s, tries, most_s=policy.max_s)
        wait_s = backoff.jittered_s(base_s, jitter=policy.jitter, chance=event.chance, most_s=policy.max_s)
        count = f"retry {tries} of {policy.transient_retries}"
        wait = Rest(event.at + wait_s, PauseReason.ERROR, f"{count}: {event.finding.why}")
        words = f"{iteration.agent} again in {wait_s:.1f} s ({count})"
        return rest(loop, iteration, event.at, wait, policy), words
    iteration = replace(iteration, shaky=(*iteration.shaky, iteration.agent))
    agent = pool.first(event.at, but=(*iteration.passed, *iteration.shaky))
    if agent is None:
        return _outage(loop, iteration, event.at, policy)
    return attempt(loop, handed_to(agent, iteration), event.at, policy), f"{agent} continues"


def _turn_over(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> _Sequel:
    after = finished(replace(loop, shaky=iteration.shaky), iteration)
    agent = pool_after(loop, policy, iteration.agent).first(at)
    return after, f"rotation: {agent or 'the first agent available'} continues"


def _outage(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> _Sequel:
    """Try again after 1, 2, 4, … minutes, each agent in turn, until one reaches its service."""
    step = iteration.outage + 1
    available = [each for each in pool_of(loop, policy).present(at) if each not in iteration.passed]
    agent = available[(step - 1) % len(available)] if available else iteration.agent
    iteration = replace(handed_to(agent, iteration), outage=step)
    wait_s = backoff.outage_s(step, base_s=policy.base_s, most_s=policy.outage_max_wait_s)
    why = "no agent can reach its service" if len(available) > 1 else f"{agent} cannot reach its service"
    wait = Rest(at + wait_s, PauseReason.OUTAGE, why)
    return rest(loop, iteration, at, wait, policy), f"outage: {agent} again in {wait_s:.0f} s"


def _again(loop: Loop, iteration: Iteration, at: Moment, kind: FailureKind, policy: LoopPolicy) -> _Sequel:
    """Retry with the same agent, then with the next one, then put the task back (L2); or rotate (L3)."""
    failures = tasks.record_of(iteration.task, loop.ledger).failure_count
    if tasks.is_used_up(failures, policy.max_task_failures):
        return _give_up_task(loop, iteration), f"the task is given up after {failures} failures"
    if policy.rotates:
        is_put_back = failures % failures_per_round(policy) == 0
        state = model.TaskState.FAILED if is_put_back else model.TaskState.PENDING
        loop = replace(loop, ledger=tasks.ended(loop.ledger, iteration.task, state), failing=loop.failing + 1)
        after, words = _turn_over(loop, iteration, at, policy)
        return after, f"the task is put back; {words}" if is_put_back else words
    tries = iteration.tries + meaning(kind).toward_fallback
    iteration = replace(iteration, tries=tries)
    if tries <= policy.retries_before_fallback:
        if kind in _AT_ONCE:
            return attempt(loop, iteration, at, policy), f"{iteration.agent} again now"
        wait_s = backoff.doubled_s(policy.same_agent_base_s, tries, most_s=policy.max_s)
        count = f"retry {tries} of {policy.retries_before_fallback}"
        why = f"{count}: {iteration.agent} failed ({kind.replace('_', ' ')})"
        wait = Rest(at + wait_s, PauseReason.ERROR, why)
        return rest(loop, iteration, at, wait, policy), f"{iteration.agent} again in {wait_s:g} s"
    iteration = replace(iteration, passed=(*iteration.passed, iteration.agent))
    if (agent := pool_of(loop, policy).first(at, but=iteration.passed)) is None:
        return _give_up_task(loop, iteration), "the task is put back"
    return attempt(loop, handed_to(agent, iteration), at, policy), f"{agent} continues"


def _give_up_task(loop: Loop, iteration: Iteration) -> LoopStep:
    ledger = tasks.ended(loop.ledger, iteration.task, model.TaskState.FAILED)
    return finished(replace(loop, ledger=ledger, failing=loop.failing + 1), iteration)


def finished(loop: Loop, iteration: Iteration, words: str = "", *, complete: bool = False) -> LoopStep:
    """Report the end of an iteration in ``words``; without any, it failed as its last attempt did."""
    memory = replace(loop.memory, iteration=loop.memory.iteration + 1, idle_successes=0)
    ledger = tasks.unjudged(loop.ledger, tasks.sync_with_plan(loop.ledger, loop.plan))
    stage = model.AwaitingVerdict(iteration, promised=False)
    said = words or f"failed: {ledger[iteration.task.id].last_failure}"
    finish = model.FinishIteration(iteration, failed=not words, complete=complete, summary=said)
    return LoopStep(replace(loop, ledger=ledger, memory=memory, stage=stage), (finish,))
