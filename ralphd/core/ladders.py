"""How long the loop waits before another attempt, and how long one may take (L2, 002-US-006, 000-T7)."""

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

    One that is over within a second, or over already, is looked at after 1, 1, 2, 4, … s: an agent that goes
    on telling a moment that has passed is not asked without a pause.
    """
    unknown_s = unknown_s or SHORTEST_REST_S
    if told_s is None:
        return unknown_s
    if told_s >= SHORTEST_REST_S:
        return told_s
    return max(told_s, min(max(waited_s, SHORTEST_REST_S), unknown_s))


def grown(factor: float) -> float:
    """What the next attempt's time is multiplied by after one that took too long (000-T7)."""
    return min(factor * TIMEOUT_GROWTH, LONGEST_TIMEOUT_FACTOR)


def attempt_budget_s(timeout_s: float, iteration_timeout_s: float) -> float:
    """How long an attempt with its phases may take: 1.5 times one agent's time at least (L6). 0: no limit."""
    if not timeout_s or not iteration_timeout_s:
        return 0.0
    return max(iteration_timeout_s, TIMEOUT_GROWTH * timeout_s)


def attempt_limit_s(timeout_s: float, iteration_timeout_s: float) -> float:
    """How long an agent's process may take: its own limit, or the iteration's where it has none (L6).

    The iteration's is in effect never under 1.5 times its own, so it cuts none short. 0: no limit.
    """
    return timeout_s or iteration_timeout_s
