"""The quota clock of an account for the whole fleet: one limit, and one probe for each reset (Q2, Q3).

Each host has a clock of its own too (core/quota/clock.py), which queues its ralphs. The caller writes what a
function here returns by compare-and-swap, and asks again where another host was faster. A reset is a time of
day, so a host whose clock differs from most others corrects it.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from ralphd.core.fleet.model import AccountLimit, HostName
from ralphd.core.quota.clock import SET_BACK_S
from ralphd.core.quota.model import LONGEST_LIMIT_S, PROBE_S, FleetTurn, QuotaClock, QuotaLimit
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

OPEN: Final = "open"
LIMITED: Final = "limited"
PROBING: Final = "probing"
TOLERATED_S: Final = 5.0
"""Clocks that differ by less are the same."""
UNUSED_S: Final = 600.0
"""So long after a reset each host tries by itself: nobody has waited for it."""


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """An account's value in the fleet as one host knows it.

    ``stored_at`` is by this host's clock. For ``unchanged_s`` it has seen this value, by its monotonic clock.
    ``is_applied``: its own clock of the account has had this limit.
    """

    limit: AccountLimit | None
    stored_at: Moment = 0.0
    unchanged_s: float = 0.0
    is_applied: bool = False


@dataclass(frozen=True, slots=True)
class HostTime:
    """The clock of a host, and by how much it is ahead of most clocks of its fleet."""

    name: HostName
    at: Moment
    ahead_s: float = 0.0

    @property
    def in_fleet(self) -> Moment:
        """The time by the clocks of most hosts."""
        return self.at - self.ahead_s


def ahead_s(own_s: float, every_s: Collection[float]) -> float:
    """Return by how much a clock is ahead of most. The values are relative to the hub's, which counts too."""
    clocks = sorted((0.0, *every_s))
    low, high = clocks[(len(clocks) - 1) // 2], clocks[len(clocks) // 2]  # both medians of an even number
    difference_s = own_s - min(max(own_s, low), high)
    return difference_s if abs(difference_s) > TOLERATED_S else 0.0


def applied(clock: QuotaClock, shared: SharedLimit, host: HostTime, keeper: str) -> QuotaClock:
    """Return a host's clock of an account with what the fleet knows. ``keeper`` is the daemon in it."""
    limit, met = shared.limit, clock.limit
    if limit is None:
        return replace(clock, fleet_turn=None)
    if limit.state == OPEN:
        if met is not None and (met.host or met.since <= shared.stored_at):
            clock = replace(clock, limit=None, opened_at=host.at, probe=None)
        return replace(clock, fleet_turn=None)
    has_turn = limit.state == PROBING and limit.by == host.name
    is_over = _is_unused(limit, host.in_fleet, shared.unchanged_s)
    if is_over or (met is None and (shared.is_applied or has_turn)):
        return replace(clock, fleet_turn=None)  # a model that answered here opens the account for all
    until = (limit.until or 0.0) + host.ahead_s
    if met is None or (abs(met.until - until) >= 1.0 and _yields(met, limit, host)):
        since, by = min(shared.stored_at, host.at), limit.by or ""
        met = QuotaLimit(until, since, limit.window, "", limit.guessed, limit.brief, by)
    elsewhere = None
    if turn(limit, host.name, host.in_fleet, shared.unchanged_s) is not None:
        who = f"host {limit.by}" if limit.state == PROBING else "one host of the fleet"
        elsewhere = _renewed(clock.fleet_turn, FleetTurn(keeper, host.at, who))
    return replace(clock, limit=met, fleet_turn=elsewhere)


def _yields(met: QuotaLimit, limit: AccountLimit, host: HostTime) -> bool:
    """Whether the fleet's limit replaces one that is known here: it is later, or this one is a guess."""
    is_guess = met.guessed and not limit.guessed and is_limited(limit, host.in_fleet)
    return bool(met.host) or _end_in_fleet(met, host) <= (limit.until or 0.0) or is_guess


def _end_in_fleet(met: QuotaLimit, host: HostTime) -> Moment:
    """A reset that the service named is right whatever the clock here is; a guess is only a length."""
    return met.until - (host.ahead_s if met.guessed or met.brief else 0.0)


def _renewed(before: FleetTurn | None, turn: FleetTurn) -> FleetTurn:
    """Keep a turn that is not old, so that a file is not written all the time."""
    is_same = before is not None and (before.by, before.who) == (turn.by, turn.who)
    age_s = turn.since - before.since if before is not None else 0.0
    return before if before is not None and is_same and -SET_BACK_S <= age_s < PROBE_S / 2 else turn


def to_write(
    clock: QuotaClock, name: str, shared: SharedLimit, host: HostTime, *, is_wanted: bool
) -> AccountLimit | None:
    """Return what a host has to write about its account ``name``; None: nothing.

    That is a limit that it met, the answer of a model, or, where an attempt ``is_wanted``, its turn to probe.
    """
    limit, met = shared.limit, clock.limit
    if met is None:
        has_turn = limit is not None and limit.state == PROBING and limit.by == host.name
        is_news = clock.opened_at is not None and (shared.is_applied or has_turn)
        return opened(limit, host.name) if is_news else None
    if not met.host and host.at < met.until:
        until = _end_in_fleet(met, host)
        own = AccountLimit(
            clock.agent, name, LIMITED, until, met.window, host.name, guessed=met.guessed, brief=met.brief
        )
        if (new := limit_met(limit, own, host.in_fleet)) is not None:
            return new
    probing = turn(limit, host.name, host.in_fleet, shared.unchanged_s) if is_wanted else None
    return probing if isinstance(probing, AccountLimit) else None


def limit_met(known: AccountLimit | None, met: AccountLimit, now: Moment) -> AccountLimit | None:
    """Return the limit to write after a host met one; None if the later end is known already.

    A guess yields to a reset that the service named.
    """
    until, end = min(met.until or 0.0, now + LONGEST_LIMIT_S), _until(known, now)
    if until <= now:
        return None
    is_guess = known is not None and known.guessed
    if end > now and is_guess != met.guessed:
        return None if met.guessed else replace(met, state=LIMITED, until=until, probed_at=None)
    return None if until <= end else replace(met, state=LIMITED, until=until, probed_at=None)


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
    if _is_unused(limit, now, unchanged_s):
        return None
    if limit.state == PROBING and unchanged_s < PROBE_S:
        return None if limit.by == host else f"{limit.agent} {limit.account}: {limit.by} tries it first"
    return replace(limit, state=PROBING, by=host, probed_at=now)


def _is_unused(limit: AccountLimit, now: Moment, unchanged_s: float) -> bool:
    return now >= _until(limit, now) + UNUSED_S and (limit.state == LIMITED or unchanged_s >= PROBE_S)


def opened(limit: AccountLimit | None, host: HostName) -> AccountLimit | None:
    """Return the open account after a model answered; None: there is nothing to write."""
    if limit is None or limit.state == OPEN:
        return None
    return replace(limit, state=OPEN, until=None, by=host, probed_at=None)


def limit_view(limit: AccountLimit) -> dict[str, Any]:
    """Return an account's limit for people and programs."""
    return {
        "agent": limit.agent, "account": limit.account, "state": limit.state,
        "until": None if limit.until is None else rfc3339(limit.until), "by": limit.by,
    }  # fmt: skip


def _until(limit: AccountLimit | None, now: Moment) -> Moment:
    """Return the end of a limit, 0 without one. What ends later than any limit does is not believed."""
    until = limit.until if limit is not None and limit.state != OPEN else None
    return until if until is not None and until <= now + LONGEST_LIMIT_S else 0.0
