"""Steps that several decisions of the loop take: the next attempt, a wait, the end."""

from dataclasses import replace

from ralphd.core.backoff import attempt_budget_s, attempt_limit_s
from ralphd.core.loop import tasks
from ralphd.core.loop.model import (
    Attempting,
    EndLoop,
    Finished,
    Iteration,
    Loop,
    LoopOrder,
    LoopPolicy,
    LoopStep,
    PendingRequest,
    Rest,
    Resting,
    SaveCheckpoint,
    StartAttempt,
    TellAgentBack,
)
from ralphd.core.loop.pool import Pool
from ralphd.core.loop.state import InFlight, PauseReason
from ralphd.core.time import Moment

SHORTEST_TIMEOUT_S = 1.0


def pool_of(loop: Loop, policy: LoopPolicy) -> Pool:
    """The agents, and who of them is out."""
    return Pool(policy.agents, loop.memory.out)


def pool_after(loop: Loop, policy: LoopPolicy, last: str | None) -> Pool:
    """The agents in the order in which they are asked after ``last``: in a rotation whoever comes next."""
    pool = pool_of(loop, policy)
    return pool.turned(last) if policy.rotates else pool


def with_pool(loop: Loop, pool: Pool) -> Loop:
    """The loop with another pool."""
    return replace(loop, memory=replace(loop.memory, out=pool.out))


def handed_to(agent: str, iteration: Iteration) -> Iteration:
    """The iteration in the hands of an agent; another one's tries begin anew, in a session of its own."""
    if agent == iteration.agent:
        return iteration
    return replace(iteration, agent=agent, tries=0, transient_tries=0, rate_waited_s=0.0, session=None)


def attempt(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> LoopStep:
    """The next attempt by the iteration's agent. Whoever's time out is over by now is told to be back."""
    pool = pool_of(loop, policy)
    back = pool.returned(at)
    for agent in back:
        pool = pool.let_in(agent)
    iteration = replace(iteration, attempt=iteration.attempt + 1)
    loop = with_pool(loop, pool)
    begun = _under_way(iteration, at)
    memory = replace(loop.memory, last_agent=iteration.agent, under_way=begun)
    loop = replace(loop, memory=memory, stage=Attempting(iteration))
    told = tuple(TellAgentBack(agent) for agent in back)
    factor = tasks.record_of(iteration.task, loop.ledger).timeout_factor
    timeout_s = attempt_limit_s(policy.timeout_s, policy.iteration_timeout_s) * factor
    budget_s = attempt_budget_s(timeout_s, policy.iteration_timeout_s)
    limits = (_within_runtime(limit_s, loop, at, policy) for limit_s in (timeout_s, budget_s))
    return LoopStep(loop, (*told, StartAttempt(iteration, *limits)))


def _under_way(iteration: Iteration, at: Moment) -> InFlight:
    task = iteration.task
    return InFlight(iteration.number, iteration.attempt, iteration.agent, task.id, task.title, at)


def _within_runtime(limit_s: float, loop: Loop, at: Moment, policy: LoopPolicy) -> float:
    """A limit, within what is left of the whole time. 0: no limit."""
    if not policy.max_runtime_s or loop.memory.began_at is None:
        return limit_s
    left_s = max(loop.memory.began_at + policy.max_runtime_s - at, SHORTEST_TIMEOUT_S)
    return min(limit_s, left_s) if limit_s else left_s


def rest(
    loop: Loop,
    iteration: Iteration,
    at: Moment,
    until: Moment,
    reason: PauseReason,
    why: str,
    policy: LoopPolicy,
    *,
    for_an_agent: bool = False,
) -> LoopStep:
    """A wait, kept in the checkpoint. It does not outlast ``max_runtime_seconds``."""
    ends_at = until
    if policy.max_runtime_s and loop.memory.began_at is not None:
        ends_at = min(until, loop.memory.began_at + policy.max_runtime_s)
    loop = replace(loop, stage=Resting(iteration, at, ends_at, reason, for_an_agent, why))
    return LoopStep(loop, (SaveCheckpoint(reason, iteration, until, why), Rest(ends_at, reason, why)))


def exhausted(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> LoopStep:
    """No agent may be asked now: wait for the first that comes back, pause until then, or give up."""
    pool = pool_of(loop, policy)
    first = pool.next_return()
    if first is None or first.until is None:
        return _nobody_left(loop, iteration, pool)
    why = f"{first.agent} is out: {first.reason}"
    reset_at = first.until - policy.reset_margin_s  # whoever resumes by itself adds the margin (E1)
    if policy.pause_when_exhausted and reset_at > at:
        saved = SaveCheckpoint(PauseReason.USAGE_LIMIT, iteration, reset_at, why)
        return ended(loop, EndLoop(75, PauseReason.USAGE_LIMIT, why, reset_at), saved)
    return rest(loop, iteration, at, first.until, PauseReason.USAGE_LIMIT, why, policy, for_an_agent=True)


def _nobody_left(loop: Loop, iteration: Iteration, pool: Pool) -> LoopStep:
    reasons = "; ".join(f"{each.agent}: {each.reason}" for each in pool.out if each.agent in pool.agents)
    why = f"no agent is left that could work: {reasons or 'none is named'}"
    saved = SaveCheckpoint(PauseReason.ERROR, iteration, None, why)
    return ended(loop, EndLoop(1, "no_agent", why), saved)


def end_now(loop: Loop, iteration: Iteration | None, at: Moment, policy: LoopPolicy) -> LoopStep | None:
    """The end, where a limit of the user's own is reached or it was asked for; else None.

    The limit comes first: the Regent asks the loop to end at the same one.
    """
    if limit := limit_reached(loop, at, policy):
        saved = SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration, None, limit)
        return ended(loop, EndLoop(5, "limit", limit), saved)
    return None if loop.wish is PendingRequest.NONE else end_by_wish(loop, iteration)


def limit_reached(loop: Loop, at: Moment, policy: LoopPolicy) -> str | None:
    """The limit of the user's own that is reached, in words (L10)."""
    memory = loop.memory
    if policy.max_iterations and memory.iteration >= policy.max_iterations:
        return f"{memory.iteration} iteration{'' if memory.iteration == 1 else 's'}, as you asked"
    if policy.max_cost_usd and memory.cost_usd >= policy.max_cost_usd:
        return f"${memory.cost_usd:.2f} spent, of ${policy.max_cost_usd:.2f} allowed"
    if policy.max_runtime_s and memory.began_at is not None and at - memory.began_at >= policy.max_runtime_s:
        return f"it has run for {at - memory.began_at:.0f} s, of {policy.max_runtime_s:.0f} s allowed"
    return None


def end_by_wish(loop: Loop, iteration: Iteration | None) -> LoopStep:
    """The end that was asked for, with a checkpoint to go on from (L12): a stop where it was no pause."""
    if loop.wish is PendingRequest.PAUSE:
        why = loop.pause_why or "paused as you asked"
        saved = SaveCheckpoint(PauseReason.USER_REQUESTED, iteration, None, why)
        return ended(loop, EndLoop(75, PauseReason.USER_REQUESTED, why), saved)
    why = "stopped as you asked"
    saved = SaveCheckpoint(PauseReason.INTERRUPTED, iteration, None, why)
    return ended(loop, EndLoop(130, PauseReason.INTERRUPTED, why), saved)


def ended(loop: Loop, end: EndLoop, *before: LoopOrder) -> LoopStep:
    """The loop is over."""
    return LoopStep(replace(loop, stage=Finished(end.code)), (*before, end))
