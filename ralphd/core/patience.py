"""How long to wait before the next run, and when the count of failures starts anew (C1 to C3)."""

from ralphd.core.model import Ending, Moment, Outcome, Policy, Reason, Said, Tally, Waiting

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


def was_healthy(policy: Policy, ending: Ending, said: Said, meant: Outcome) -> bool:
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
    if at >= wait.since:
        return wait
    return Waiting(wait.reason, at, at + (wait.until - wait.since))
