"""What follows a failed attempt: the same agent again, the next one, a wait, or the end (L2, L8, 000-T7)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ralphd.core import backoff
from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.loop import tasks
from ralphd.core.loop.model import (
    AttemptOver,
    AwaitingVerdict,
    FinishIteration,
    Handoff,
    Iteration,
    Loop,
    LoopOrder,
    LoopPolicy,
    LoopStep,
    Previous,
    Rotation,
    SaveCheckpoint,
    TellAgentOut,
    TellAttempt,
)
from ralphd.core.loop.state import PauseReason, TaskState
from ralphd.core.loop.transitions import (
    attempt,
    end_now,
    exhausted,
    handed_to,
    pool_after,
    pool_of,
    rest,
    with_pool,
)
from ralphd.core.time import Moment

LINES_KEPT = 50
"""Of what a failed attempt printed, for the next prompt (000-T2)."""

RESUMED: Final = (
    FailureKind.RATE_LIMIT,
    FailureKind.USAGE_LIMIT,
    FailureKind.TRANSIENT,
    FailureKind.TIMEOUT,
    FailureKind.STALL,
)
"""After these the same agent goes on in its session, where it had begun to work."""

_AT_ONCE: Final = (FailureKind.AGENT_INCOMPLETE, FailureKind.CONTEXT)
_CRASHED: Final = (FailureKind.AGENT_CRASH, FailureKind.UNKNOWN, FailureKind.TRANSIENT, *tasks.TOO_LONG)
_REASONS: Final[Mapping[FailureKind, PauseReason]] = {
    FailureKind.RATE_LIMIT: PauseReason.RATE_LIMIT,
    FailureKind.USAGE_LIMIT: PauseReason.USAGE_LIMIT,
    FailureKind.TIMEOUT: PauseReason.TIMEOUT,
    FailureKind.STALL: PauseReason.STALL,
}


def failed(
    loop: Loop, iteration: Iteration, event: AttemptOver, kind: FailureKind, why: str, policy: LoopPolicy
) -> LoopStep:
    """The loop after an attempt that failed: told, noted, checkpointed, and then acted upon."""
    previous = Previous(iteration.attempt, iteration.agent, kind, why, event.lines[-LINES_KEPT:])
    session = event.session if kind in RESUMED and event.worked else None
    iteration = replace(iteration, previous=previous, session=session)
    loop = replace(loop, ledger=tasks.failed_once(loop.ledger, iteration.task, kind, why))
    if over := end_now(loop, iteration, event.at, policy):
        after, next_words = over, "the end"
    else:
        after, next_words = _follow(loop, iteration, event, kind, policy)
    told = TellAttempt(iteration, kind, event.finding.rule, why, next_words)
    note = (Handoff(f"Previous rotation crashed: {why}"),) if kind in _CRASHED else ()
    saved = SaveCheckpoint(_REASONS.get(kind, PauseReason.ERROR), iteration, None, why)
    return LoopStep(after.loop, _saved_first(saved, (told, *note, *after.orders)))


def _saved_first(saved: SaveCheckpoint, orders: tuple[LoopOrder, ...]) -> tuple[LoopOrder, ...]:
    """One checkpoint, before anything else: the one that says most, where what follows has its own."""
    own = [order for order in orders if isinstance(order, SaveCheckpoint)]
    others = [order for order in orders if not isinstance(order, SaveCheckpoint)]
    return (own[-1] if own else saved, *others)


def _follow(
    loop: Loop, iteration: Iteration, event: AttemptOver, kind: FailureKind, policy: LoopPolicy
) -> tuple[LoopStep, str]:
    match kind:
        case FailureKind.RATE_LIMIT:
            return _rate_limited(loop, iteration, event, policy)
        case FailureKind.USAGE_LIMIT:
            return _usage_limited(loop, iteration, event, policy)
        case FailureKind.TRANSIENT:
            return _transient(loop, iteration, event, policy)
        case FailureKind.FATAL:
            why = event.finding.why
            return _without(loop, iteration, event.at, policy, why, None)
        case _:
            steady = replace(iteration, outage=0, transient_tries=0, shaky=())
            return _again(loop, steady, event.at, kind, policy)


def _rate_limited(
    loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy
) -> tuple[LoopStep, str]:
    """Wait what it says, and go on with the same agent and task: nobody's failure [000-T5]."""
    reset = event.finding.reset
    told_s = None if reset is None else reset.until - event.at
    wait_s = backoff.rate_limit_s(told_s, waited_s=iteration.rate_waited_s, unknown_s=policy.rate_limit_s)
    waited_s = iteration.rate_waited_s + wait_s
    if waited_s > policy.max_rate_limit_wait_s:
        return _usage_limited(loop, replace(iteration, rate_waited_s=0.0), event, policy)
    iteration = replace(iteration, rate_waited_s=waited_s, outage=0, transient_tries=0, shaky=())
    why = f"rate limit of {iteration.agent}" + ("" if reset is None else f" ({reset.source})")
    after = rest(loop, iteration, event.at, event.at + wait_s, PauseReason.RATE_LIMIT, why, policy)
    return after, f"{iteration.agent} again when the rate limit is over"


def _usage_limited(
    loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy
) -> tuple[LoopStep, str]:
    """The agent is out until its reset, with a margin; where that is unknown, until the next probe."""
    reset, why = event.finding.reset, event.finding.why
    if reset is None or reset.until <= event.at:
        until = event.at + pool_of(loop, policy).probe_s(iteration.agent)
        why = f"{why.rstrip('.')}; when it resets is not known"
    else:
        until = reset.until + policy.reset_margin_s
    return _without(loop, iteration, event.at, policy, why, until)


def _without(
    loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy, why: str, until: Moment | None
) -> tuple[LoopStep, str]:
    """The agent is out of the pool: the next one goes on with the task, or nobody can."""
    pool = pool_of(loop, policy).put_out(iteration.agent, why, until)
    loop = with_pool(loop, pool)
    out = TellAgentOut(iteration.agent, why, until)
    agent = pool_after(loop, policy, iteration.agent).first(at, but=iteration.passed)
    if agent is not None:
        after = attempt(loop, handed_to(agent, iteration), at, policy)
        return LoopStep(after.loop, (out, *after.orders)), f"{agent} goes on"
    if pool.present(at):  # those had their turn with this task, and failed
        after = _give_up_task(loop, iteration)
        return LoopStep(after.loop, (out, *after.orders)), "the task is put back"
    after = exhausted(loop, iteration, at, policy)
    return LoopStep(after.loop, (out, *after.orders)), "no agent is left now"


def _transient(
    loop: Loop, iteration: Iteration, event: AttemptOver, policy: LoopPolicy
) -> tuple[LoopStep, str]:
    """Up to ``transient_retries`` tries, then the next agent; all at hand so: an outage, waited out."""
    if iteration.outage:
        return _outage(loop, iteration, event.at, policy)
    if policy.rotates and len(pool_of(loop, policy).present(event.at)) > 1:
        return _transient_turn(loop, iteration, event.at, policy)
    tries = iteration.transient_tries + 1
    iteration = replace(iteration, transient_tries=tries)
    if tries <= policy.transient_retries:
        base_s = backoff.doubled_s(policy.base_s, tries, most_s=policy.max_s)
        wait_s = backoff.jittered_s(base_s, jitter=policy.jitter, chance=event.chance, most_s=policy.max_s)
        why = f"retry {tries} of {policy.transient_retries}: {event.finding.why}"
        after = rest(loop, iteration, event.at, event.at + wait_s, PauseReason.ERROR, why, policy)
        return (
            after,
            f"{iteration.agent} again in {wait_s:.1f} s (retry {tries} of {policy.transient_retries})",
        )
    shaky = (*iteration.shaky, iteration.agent)
    iteration = replace(iteration, shaky=shaky)
    agent = pool_of(loop, policy).first(event.at, but=(*iteration.passed, *shaky))
    if agent is None:
        return _outage(loop, iteration, event.at, policy)
    return attempt(loop, handed_to(agent, iteration), event.at, policy), f"{agent} goes on"


def _transient_turn(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> tuple[LoopStep, str]:
    """A rotation at once; an outage when all at hand had their turn and none reached its service [003]."""
    iteration = replace(iteration, shaky=(*iteration.shaky, iteration.agent))
    if all(each in iteration.shaky for each in pool_of(loop, policy).present(at)):
        return _outage(loop, iteration, at, policy)
    loop = replace(loop, ledger=tasks.ended(loop.ledger, iteration.task, TaskState.PENDING))
    return _turn_over(loop, iteration, at, policy)


def _rotate(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> tuple[LoopStep, str]:
    """The turn is over: the next agent goes on with the task, until all had it in hand (L3, 003)."""
    failures = tasks.record_of(iteration.task, loop.ledger).failure_count
    a_round = max(len(policy.agents), 1 + policy.retries_before_fallback)
    standing = TaskState.PENDING if failures % a_round else TaskState.FAILED
    loop = replace(loop, ledger=tasks.ended(loop.ledger, iteration.task, standing), failing=loop.failing + 1)
    after, told = _turn_over(loop, iteration, at, policy)
    return after, told if standing is TaskState.PENDING else f"the task is put back, {told}"


def _turn_over(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> tuple[LoopStep, str]:
    rotation = Rotation(iteration.task.id, iteration.previous, iteration.shaky)
    after = _finish(replace(loop, rotation=rotation), iteration)
    agent = pool_after(loop, policy, iteration.agent).first(at)
    return after, f"rotation: {agent or 'whoever comes back first'} goes on"


def _outage(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> tuple[LoopStep, str]:
    """Nobody can be reached: look again after 1, 2, 4, … minutes, each agent in turn, until it works."""
    step = iteration.outage + 1
    at_hand = [each for each in pool_of(loop, policy).present(at) if each not in iteration.passed]
    agent = at_hand[(step - 1) % len(at_hand)] if at_hand else iteration.agent
    iteration = replace(handed_to(agent, iteration), outage=step)
    wait_s = backoff.outage_s(step, base_s=policy.base_s, most_s=policy.outage_max_wait_s)
    why = "no agent can reach its service" if len(at_hand) > 1 else f"{agent} cannot reach its service"
    after = rest(loop, iteration, at, at + wait_s, PauseReason.OUTAGE, why, policy)
    return after, f"an outage: {agent} looks again in {wait_s:.0f} s"


def _again(
    loop: Loop, iteration: Iteration, at: Moment, kind: FailureKind, policy: LoopPolicy
) -> tuple[LoopStep, str]:
    """The same agent again, then the next one, then the task is put back (L2) [000-T1]."""
    record = tasks.record_of(iteration.task, loop.ledger)
    if policy.max_task_failures and record.failure_count >= policy.max_task_failures:
        return _give_up_task(loop, iteration), f"{iteration.task.id} has failed too often and is left alone"
    if policy.rotates:
        return _rotate(loop, iteration, at, policy)
    tries = iteration.tries + meaning(kind).toward_fallback
    iteration = replace(iteration, tries=tries)
    if tries <= policy.retries_before_fallback:
        if kind in _AT_ONCE:
            return attempt(loop, iteration, at, policy), f"{iteration.agent} again at once"
        wait_s = backoff.doubled_s(policy.same_agent_base_s, tries, most_s=policy.max_s)
        count = f"try {tries} of {policy.retries_before_fallback}"
        why = f"{iteration.agent} failed ({kind.replace('_', ' ')}), {count} follows"
        after = rest(loop, iteration, at, at + wait_s, PauseReason.ERROR, why, policy)
        return after, f"{iteration.agent} again in {wait_s:g} s"
    iteration = replace(iteration, passed=(*iteration.passed, iteration.agent))
    agent = pool_of(loop, policy).first(at, but=iteration.passed)
    if agent is None:
        return _give_up_task(loop, iteration), "the task is put back"
    return attempt(loop, handed_to(agent, iteration), at, policy), f"{agent} goes on"


def _give_up_task(loop: Loop, iteration: Iteration) -> LoopStep:
    """The iteration failed: the task waits until all others were tried."""
    ledger = tasks.ended(loop.ledger, iteration.task, TaskState.FAILED)
    return _finish(replace(loop, ledger=ledger, failing=loop.failing + 1), iteration)


def _finish(loop: Loop, iteration: Iteration) -> LoopStep:
    memory = replace(loop.memory, iteration=loop.memory.iteration + 1, idle_successes=0)
    loop = replace(loop, memory=memory, stage=AwaitingVerdict(iteration, promised=False))
    record = tasks.record_of(iteration.task, loop.ledger)
    summary = f"{iteration.task.id} failed: {record.last_failure}"
    return LoopStep(loop, (FinishIteration(iteration, failed=True, complete=False, summary=summary),))
