"""The quota clock of an account for the whole fleet: one limit, and one probe for each reset (Q2, Q3).

Each host has a clock of its own too (core/quota/clock.py), which queues its ralphs. The caller writes what a
function here returns by compare-and-swap, and asks again where another host was faster.
"""

from dataclasses import replace
from typing import Any, Final

from ralphd.core.fleet.model import AccountLimit, HostName
from ralphd.core.quota.model import LONGEST_LIMIT_S, PROBE_S
from ralphd.core.time import Moment, rfc3339

OPEN: Final = "open"
LIMITED: Final = "limited"
PROBING: Final = "probing"


def limit_met(known: AccountLimit | None, met: AccountLimit, now: Moment) -> AccountLimit | None:
    """Return the limit to write after a host met one; None if the later end is known already."""
    until = min(met.until or 0.0, now + LONGEST_LIMIT_S)
    if until <= max(_until(known, now), now):
        return None
    return replace(met, state=LIMITED, until=until, probed_at=None)


def is_limited(limit: AccountLimit | None, now: Moment) -> bool:
    """Whether no host can use the account now: its reset has not come."""
    return now < _until(limit, now)


def turn(
    limit: AccountLimit | None, host: HostName, now: Moment, unchanged_s: float
) -> AccountLimit | str | None:
    """Decide whether a host may start an attempt on an account.

    None: yes. A limit: yes, as the probe, once that is written. A text: no, for this reason. For
    ``unchanged_s`` this host has seen this value, by its monotonic clock: hosts' clocks may differ by hours.
    """
    if limit is None or limit.state == OPEN:
        return None
    if is_limited(limit, now):
        return f"{limit.agent} {limit.account}: limited until {rfc3339(_until(limit, now))}"
    if limit.state == PROBING and limit.by == host:
        return None
    if limit.state == PROBING and unchanged_s < PROBE_S:
        return f"{limit.agent} {limit.account}: {limit.by} tries it first"
    return replace(limit, state=PROBING, by=host, probed_at=now)


def answered(limit: AccountLimit | None, host: HostName, began_at: Moment) -> AccountLimit | None:
    """Return the open account after a model answered the probe, or an attempt from after the reset.

    None: there is nothing to write.
    """
    if limit is None or limit.state == OPEN:
        return None
    is_probe = limit.state == PROBING and limit.by == host
    if not is_probe and began_at < (limit.until or 0.0):
        return None
    return replace(limit, state=OPEN, until=None, by=host, probed_at=None)


def limit_view(limit: AccountLimit) -> dict[str, Any]:
    """Return an account's limit for people and programs."""
    return {
        "agent": limit.agent,
        "account": limit.account,
        "state": limit.state,
        "until": None if limit.until is None else rfc3339(limit.until),
        "by": limit.by,
    }


def _until(limit: AccountLimit | None, now: Moment) -> Moment:
    """Return the end of a limit, 0 without one. What ends later than any limit does is not believed."""
    until = limit.until if limit is not None and limit.state != OPEN else None
    return until if until is not None and until <= now + LONGEST_LIMIT_S else 0.0
