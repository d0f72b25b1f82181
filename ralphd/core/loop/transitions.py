"""Steps that several decisions of the loop take: the next attempt, a wait, the end."""

from dataclasses import replace

from ralphd.core.loop import model, tasks
from ralphd.core.loop.model import EndLoop, Iteration, Loop, LoopPolicy, LoopStep, PauseReason, Rest
from ralphd.core.loop.pool import Pool
from ralphd.core.supervision.backoff import attempt_budget_s, attempt_limit_s
from ralphd.core.time import Moment

SHORTEST_TIMEOUT_S = 1.0


def pool_of(loop: Loop, policy: LoopPolicy) -> Pool:
    """Return the agents and their cooldowns."""
    return Pool(policy.agents, loop.memory.out)


def pool_after(loop: Loop, policy: LoopPolicy, last: str | None) -> Pool:
    """Return the pool in the order that follows ``last``: in a rotation the agent after it comes first."""
    pool = pool_of(loop, policy)
    return pool.turned(last) if policy.rotates else pool


def with_pool(loop: Loop, pool: Pool) -> Loop:
    """Return the loop with the cooldowns of ``pool``."""
    return replace(loop, memory=replace(loop.memory, out=pool.out))


def handed_to(agent: str, iteration: Iteration) -> Iteration:
    """Return the iteration assigned to ``agent``; a new agent starts with fresh counts and no session."""
    if agent == iteration.agent:
        return iteration
    return replace(iteration, agent=agent, tries=0, transient_tries=0, rate_waited_s=0.0, session=None)


def attempt(loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy) -> LoopStep:
    """Start the next attempt by the iteration's agent. Agents whose cooldown is over return to the pool."""
    pool = pool_of(loop, policy)
    back = pool.returned(at)
    for agent in back:
        pool = pool.let_in(agent)
    agent, task = iteration.agent, iteration.task
    loop = replace(loop, ledger=tasks.attempted(loop.ledger, task, 1))
    nth = tasks.record_of(task, loop.ledger).attempts
    iteration = replace(iteration, attempt=iteration.attempt + 1, nth=nth)
    in_flight = model.InFlight(iteration.number, iteration.attempt, agent, task.id, task.title, at)
    memory = replace(loop.memory, out=pool.out, last_agent=agent, in_flight=in_flight)
    loop = replace(loop, memory=memory, stage=model.Attempting(iteration))
    factor = tasks.record_of(task, loop.ledger).timeout_factor
    timeout_s = attempt_limit_s(policy.timeout_s, policy.iteration_timeout_s) * factor
    limits = [timeout_s, attempt_budget_s(timeout_s, policy.iteration_timeout_s)]
    if policy.max_runtime_s and memory.began_at is not None:
        left_s = max(memory.began_at + policy.max_runtime_s - at, SHORTEST_TIMEOUT_S)
        limits = [min(limit_s or left_s, left_s) for limit_s in limits]
    return LoopStep(loop, (*map(model.ReportAgentBack, back), model.StartAttempt(iteration, *limits)))


def rest(
    loop: Loop, iteration: Iteration, at: Moment, wait: Rest, policy: LoopPolicy, *,
    for_an_agent: bool = False,
) -> LoopStep:  # fmt: skip
    """Wait, with the wait in the checkpoint. It does not outlast ``max_runtime_seconds``."""
    resume_at = None if wait.reason is PauseReason.RESOURCES else wait.until  # a slot is free at any time
    saved = model.SaveCheckpoint(wait.reason, iteration, resume_at, wait.why)
    if policy.max_runtime_s and loop.memory.began_at is not None:
        wait = replace(wait, until=min(wait.until, loop.memory.began_at + policy.max_runtime_s))
    stage = model.Resting(iteration, at, wait.until, wait.reason, for_an_agent, wait.why)
    return LoopStep(replace(loop, stage=stage), (saved, wait))


def exhausted(
    loop: Loop, iteration: Iteration, at: Moment, policy: LoopPolicy, *, brief: bool = False
) -> LoopStep:
    """Wait for the first agent that returns, pause until then, or end: no agent is available now.

    ``brief``: the wait is a matter of minutes, and no reason to pause.
    """
    pool = pool_of(loop, policy)
    first = pool.next_return()
    if first is None or first.until is None:
        reasons = "; ".join(f"{each.agent}: {each.reason}" for each in pool.out if each.agent in pool.agents)
        why = f"no agent is available: {reasons or 'none is configured'}"
        saved = model.SaveCheckpoint(PauseReason.ERROR, iteration, None, why)
        return ended(loop, EndLoop(1, "no_agent", why), saved)
    if first.for_slot:
        wait = Rest(first.until, PauseReason.RESOURCES, first.reason)
        return rest(loop, iteration, at, wait, policy, for_an_agent=True)
    kind = "" if "usage limit" in first.reason.lower() else "usage limit: "
    why = f"{first.agent}: {kind}{first.reason}"
    if policy.pause_when_exhausted and not brief and first.until - policy.reset_margin_s > at:
        saved = model.SaveCheckpoint(PauseReason.USAGE_LIMIT, iteration, first.until, why)
        return ended(loop, EndLoop(75, PauseReason.USAGE_LIMIT, why, first.until), saved)
    wait = Rest(first.until, PauseReason.USAGE_LIMIT, why)
    return rest(loop, iteration, at, wait, policy, for_an_agent=True)


def held_back(loop: Loop, iteration: Iteration, event: model.HeldBack, policy: LoopPolicy) -> LoopStep:
    """Let another agent continue, or wait: the account of the iteration's agent gave no permit (Q2, Q6)."""
    iteration = replace(iteration, attempt=max(iteration.attempt - 1, 0))
    ledger = tasks.attempted(loop.ledger, iteration.task, -1)
    loop = replace(loop, ledger=ledger, memory=replace(loop.memory, in_flight=None))
    if over := end_now(loop, iteration, event.at, policy):
        return over
    pool = pool_of(loop, policy).hold(iteration.agent, event.why, event.until, for_slot=event.for_slot)
    loop = with_pool(loop, pool)
    agent = pool_after(loop, policy, iteration.agent).first(event.at, but=iteration.passed)
    if agent is not None:
        after = attempt(loop, handed_to(agent, iteration), event.at, policy)
    else:
        after = exhausted(loop, iteration, event.at, policy, brief=event.brief)
    out = () if event.brief else (model.ReportAgentOut(iteration.agent, event.why, event.until),)
    return after.preceded_by(*out)


def end_now(loop: Loop, iteration: Iteration | None, at: Moment, policy: LoopPolicy) -> LoopStep | None:
    """End the loop where a limit of the user's is reached or an end was requested; else return None.

    The limit comes first: at the same limit the Regent requests a stop, and the exit code is to say why.
    """
    memory = loop.memory
    if limit := policy.reached(memory.iteration, memory.cost_usd, memory.began_at, at):
        saved = model.SaveCheckpoint(PauseReason.ITERATION_BOUNDARY, iteration, None, limit)
        return ended(loop, EndLoop(5, "limit", limit), saved)
    return None if loop.request is model.PendingRequest.NONE else end_by_request(loop, iteration)


def end_by_request(loop: Loop, iteration: Iteration | None) -> LoopStep:
    """End with a checkpoint to resume from (L12): as a pause where one was requested, else as a stop."""
    code, reason, why = 130, PauseReason.INTERRUPTED, "stopped as requested"
    if loop.request is model.PendingRequest.PAUSE:
        code, reason, why = 75, PauseReason.USER_REQUESTED, loop.pause_why or "paused as requested"
    return ended(loop, EndLoop(code, reason, why), model.SaveCheckpoint(reason, iteration, None, why))


def ended(loop: Loop, end: EndLoop, *before: model.LoopOrder) -> LoopStep:
    """Return the finished loop, with ``before`` ordered first."""
    return LoopStep(replace(loop, stage=model.Finished(end.code)), (*before, end))
