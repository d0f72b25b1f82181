"""How long the loop waits before another attempt, and how long one may take (L2, 002-US-006, 000-T7)."""

FIRST_OUTAGE_WAIT_S = 60.0
TIMEOUT_GROWTH = 1.5
LONGEST_TIMEOUT_FACTOR = 4.0
ITERATION_SHARE = 1.5
_MOST_DOUBLINGS = 40  # beyond it every cap is reached, and no float overflows


def doubled_s(base_s: float, tries: int, *, most_s: float) -> float:
    """``base_s`` before the first try, then twice as long each time, ``most_s`` at most."""
    return min(base_s * 2.0 ** min(max(tries - 1, 0), _MOST_DOUBLINGS), most_s)


def jittered_s(wait_s: float, *, jitter: float, chance: float, most_s: float) -> float:
    """A wait, give or take the share ``jitter``; ``chance`` from 0 to 1 says where in between."""
    return min(wait_s * (1 + jitter * (2 * chance - 1)), most_s)


def outage_s(step: int, *, most_s: float) -> float:
    """The wait before the ``step``-th look whether an outage is over: 1, 2, 4, … minutes."""
    return doubled_s(min(FIRST_OUTAGE_WAIT_S, most_s), step, most_s=most_s)


def grown(factor: float) -> float:
    """What the next attempt's time is multiplied by after one that took too long (000-T7)."""
    return min(factor * TIMEOUT_GROWTH, LONGEST_TIMEOUT_FACTOR)


def attempt_limit_s(timeout_s: float, iteration_timeout_s: float) -> float:
    """How long an agent's process may take: its own limit, or the iteration's where it has none (L6).

    The iteration's is in effect never under 1.5 times its own, so that it cuts no attempt short. 0: no limit.
    """
    if not timeout_s or not iteration_timeout_s:
        return timeout_s or iteration_timeout_s
    return min(timeout_s, max(iteration_timeout_s, ITERATION_SHARE * timeout_s))
