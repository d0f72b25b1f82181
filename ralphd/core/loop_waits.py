"""The waits of the loop: before an iteration, until one is over, and when a person or a clock ends them."""

from dataclasses import replace

from ralphd.core import ladders
from ralphd.core.checkpoint import PauseReason
from ralphd.core.loop_model import EndRest, Loop, LoopPolicy, LoopStep, Rest, Resting, Resumed
from ralphd.core.loop_steps import (
    attempt,
    end_now,
    exhausted,
    handed_to,
    pool_after,
    pool_of,
    rest,
    with_pool,
)
from ralphd.core.model import Moment

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
    wait_s = ladders.between_s(loop.failing, base_s=policy.same_agent_base_s, most_s=policy.max_s)
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
