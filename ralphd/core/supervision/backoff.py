"""Backoff: the waits before a restart (C1 to C3) and before the loop's next attempt (L2); time budgets."""

from dataclasses import replace

from ralphd.core.supervision.model import ExitFacts, Outcome, Policy, Reason, RunReports, Tally, Waiting
from ralphd.core.time import Moment

HOUR_S = 3600.0


def backoff_s(policy: Policy, failures: int) -> float:
    """Seconds to wait after the ``failures``-th failure in a row (C1). Constant unless a factor is set."""
    if policy.retry_backoff_factor <= 1:
        return policy.retry_backoff_s
    most = max(policy.retry_backoff_s, policy.retry_backoff_max_s)
    try:
        return min(policy.retry_backoff_s * policy.retry_backoff_factor ** (failures - 1), most)
    except OverflowError:
        return most


def was_healthy(policy: Policy, ending: ExitFacts, said: RunReports, meant: Outcome) -> bool:
    """Whether a run got something done, so that the failures before it count no longer (C3).

    That is a commit, unless the last verdict on them was to revert, or, for a command that does not report,
    signs of life for longer than ``healthy_after_s``. A run that was ended as a stall never did.
    """
    if meant is Outcome.STALLED:
        return False
    if ending.committed and not said.reverted:
        return True
    if said.hello or said.iterates or ending.started_at is None or ending.last_sign_at is None:
        return False
    return ending.last_sign_at - ending.started_at > policy.healthy_after_s


def crash_wait(policy: Policy, tally: Tally, failures: int, at: Moment) -> Waiting:
    """The wait after a failure: the backoff, or longer where the restarts of an hour are used up (C3)."""
    until = at + backoff_s(policy, failures)
    recent = within_an_hour(tally.restarted_at, at)
    limit = policy.max_restarts_per_hour
    if limit and len(recent) >= limit and recent[-limit] + HOUR_S > until:
        return Waiting(Reason.RESTART_LIMIT, at, recent[-limit] + HOUR_S)
    return Waiting(Reason.CRASH, at, until)


def within_an_hour(moments: tuple[Moment, ...], at: Moment) -> tuple[Moment, ...]:
    """Those of ``moments`` that lie in the hour before ``at``."""
    return tuple(moment for moment in moments if at - HOUR_S < moment <= at)


def after_a_set_back_clock(wait: Waiting, at: Moment) -> Waiting:
    """The same wait, counted from ``at``, when the clock now tells a time before the wait began."""
    return wait if at >= wait.since else replace(wait, since=at, until=at + (wait.until - wait.since))


OUTAGE_SHARE = 60.0
TIMEOUT_GROWTH = 1.5
LONGEST_TIMEOUT_FACTOR = 4.0
SHORTEST_REST_S = 1.0
"""What may come round again and again is waited for that long at least, where a configuration says 0."""
_MOST_DOUBLINGS = 40  # beyond it every cap is reached, and no float overflows


def doubled_s(base_s: float, tries: int, *, most_s: float) -> float:
    """``base_s`` before the first try, then twice as long each time, ``most_s`` at most."""
    return min(base_s * 2.0 ** min(max(tries - 1, 0), _MOST_DOUBLINGS), most_s)


def jittered_s(wait_s: float, *, jitter: float, chance: float, most_s: float) -> float:
    """A wait, give or take the share ``jitter``; ``chance`` from 0 to 1 says where in between."""
    return min(wait_s * (1 + jitter * (2 * chance - 1)), most_s)


def outage_s(step: int, *, base_s: float, most_s: float) -> float:
    """The wait before the ``step``-th look whether an outage is over: 1, 2, 4, … minutes.

    That is 60 times the first wait after a transient failure, ``base_s``: who wants to wait for less there
    does so here.
    """
    most_s = most_s or SHORTEST_REST_S
    first_s = max(OUTAGE_SHARE * base_s, SHORTEST_REST_S)
    return doubled_s(min(first_s, most_s), step, most_s=most_s)


def between_s(failed: int, *, base_s: float, most_s: float) -> float:
    """The wait before the next iteration after so many that failed running: none after the first one."""
    if failed < 2:
        return 0.0
    return doubled_s(base_s or SHORTEST_REST_S, failed - 1, most_s=most_s or SHORTEST_REST_S)


def rate_limit_s(told_s: float | None, *, waited_s: float, unknown_s: float) -> float:
    """How long to wait for a rate limit: what it says, else ``unknown_s``.

    A limit that is over within a second, or already, is tried again after 1, 1, 2, 4, … s: an agent that
    keeps reporting a reset in the past must not be started in a busy loop.
    """
    unknown_s = unknown_s or SHORTEST_REST_S
    if told_s is None:
        return unknown_s
    if told_s >= SHORTEST_REST_S:
        return told_s
    return max(told_s, min(max(waited_s, SHORTEST_REST_S), unknown_s))


def grown(factor: float) -> float:
    """What the next attempt's time is multiplied by after a timeout."""
    return min(factor * TIMEOUT_GROWTH, LONGEST_TIMEOUT_FACTOR)


def attempt_budget_s(timeout_s: float, iteration_timeout_s: float) -> float:
    """How long an attempt with its phases may take: 1.5 times one agent's time at least (L6). 0: no limit."""
    if not timeout_s or not iteration_timeout_s:
        return 0.0
    return max(iteration_timeout_s, TIMEOUT_GROWTH * timeout_s)


def raised_words(timeout_s: float, iteration_timeout_s: float) -> str:
    """Return a note where an iteration's limit has no effect, since it is too short for its agent's."""
    budget_s = attempt_budget_s(timeout_s, iteration_timeout_s)
    if budget_s == iteration_timeout_s or not budget_s:
        return ""
    return (
        f"iteration_timeout_seconds = {iteration_timeout_s:g} is less than 1.5 × timeout_seconds"
        f" ({timeout_s:g}): the limit of an iteration is {budget_s:g} s"
    )


def attempt_limit_s(timeout_s: float, iteration_timeout_s: float) -> float:
    """How long an agent's process may take: its own limit, or the iteration's where it has none (L6).

    The iteration's is in effect never under 1.5 times its own, so it cuts none short. 0: no limit.
    """
    return timeout_s or iteration_timeout_s
