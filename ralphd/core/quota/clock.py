"""The decisions of a quota clock: who may start, who probes, what a limit or an answer changes (Q2 to Q6).

``open | limited | probing`` per account. A caller reads the clock, asks a function here, and writes the clock
that it returns, all under one lock: that makes ``ask`` a compare-and-swap.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from ralphd.core.limits import NO_SLOT
from ralphd.core.quota import model
from ralphd.core.quota.model import AccountRules, AccountUser, Hold, HoldKind, QuotaClock, QuotaWindow
from ralphd.core.text import first_names
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

SET_BACK_S = 1.0
"""A moment this far in the future was noted before the clock was set back."""


class Force(StrEnum):
    """What a person overrides: nothing, a limit whose length was guessed, or every wait."""

    NOTHING = "nothing"
    GUESSES = "guesses"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Asked:
    """The clock after a question. Without a ``hold`` the attempt may start now."""

    clock: QuotaClock
    hold: Hold | None = None


def ask(
    clock: QuotaClock, by: str, at: Moment, rules: AccountRules, *,
    priority: int = 0, force: Force = Force.NOTHING, queued_at: Moment | None = None,
) -> Asked:  # fmt: skip
    """Decide whether ``by`` may start an attempt; note it as working or waiting (Q2, Q3, Q6).

    After a limit's end exactly one ralph gets the permit, as the probe. ``queued_at``: it waits since then,
    at first to be started.
    """
    clock = forced(at_present(clock, at), at, force)
    me = _waiter(clock, by, at if queued_at is None else min(at, queued_at), priority)
    others = replace(clock, waiting=_without(clock.waiting, by), rules=rules)
    queued = replace(others, waiting=(*others.waiting, me))
    hold = None if force is Force.ALL else hold_of(queued, by, at, rules, priority=priority)
    if hold is not None:
        return Asked(queued, hold)
    worker = AccountUser(by, at, priority)
    probe = worker if clock.limit is not None else None
    return Asked(replace(others, working=(*_without(others.working, by), worker), probe=probe))


def forced(clock: QuotaClock, at: Moment, force: Force) -> QuotaClock:
    """End the limit now, if a person overrides it; the next attempt is its probe.

    Once it has ended, another ralph may be its probe: only ``Force.ALL`` pushes that one aside.
    """
    limit = clock.limit
    if limit is None or force is Force.NOTHING:
        return clock
    if force is Force.GUESSES and (not limit.guessed or limit.until <= at):
        return clock
    return replace(clock, limit=replace(limit, until=min(limit.until, at)), probe=None, fleet_turn=None)


def hold_of(clock: QuotaClock, by: str, at: Moment, rules: AccountRules, *, priority: int = 0) -> Hold | None:
    """Return what holds ``by`` back; None if its attempt may start. Changes nothing."""
    clock, account = at_present(clock, at), clock.account
    limit, probe = clock.limit, clock.probe
    if limit is not None and at < limit.until:
        by_whom = "" if limit.source == by else f" (met by {limit.met_by})"
        return Hold(HoldKind.LIMIT, limit.until, f"account {account}: {limit.name}{by_whom}", limit.brief)
    if (turn := _turn_elsewhere(clock, at)) is not None:
        why = f"account {account}: usage limit over; {turn.who} tries it first"
        return Hold(HoldKind.PROBE, turn.since + model.PROBE_S, why)
    if limit is not None and probe is not None and probe.by != by and at < probe.since + model.PROBE_S:
        why = f"account {account}: usage limit over; {short_name(probe.by)} tries it first"
        return Hold(HoldKind.PROBE, probe.since + model.PROBE_S, why)
    if (window := reserved(clock, at, rules)) is not None and window.resets_at is not None:
        used = f"{100 * window.used:.0f} % of the {window.limit} used"
        why = f"account {account}: {used}, usage limit by keep_free = {rules.keep_free:g}"
        return Hold(HoldKind.RESERVED, window.resets_at, why, brief=False)
    return _slot_hold(clock, by, at, rules, priority)


def _turn_elsewhere(clock: QuotaClock, at: Moment) -> model.FleetTurn | None:
    """Return the turn of another host, which begins with the reset, unless its time is over."""
    turn, limit = clock.fleet_turn, clock.limit
    if turn is None or limit is None or at < limit.until:
        return None
    turn = replace(turn, since=max(turn.since, limit.until))
    return turn if at < turn.since + model.PROBE_S else None


def _slot_hold(clock: QuotaClock, by: str, at: Moment, rules: AccountRules, priority: int) -> Hold | None:
    """Q6: at most ``slots`` at once; a free one goes to the largest priority, then to who waited longest."""
    if not rules.slots:
        return None
    free = rules.slots - len(_without(clock.working, by))
    me = _waiter(clock, by, at, priority)
    queue = sorted(_without(clock.waiting, by), key=_rank)
    before = [short_name(each.by) for each in queue if _rank(each) < _rank(me)]
    return None if len(before) < free else _after(_no_slot(clock, rules.slots, at), before)


def _no_slot(clock: QuotaClock, slots: int, at: Moment) -> Hold:
    """Return the hold of one that gets no slot: each is in use, or those before it take it next."""
    why = f"account {clock.account}: {slots} of {slots} {NO_SLOT}"
    return Hold(HoldKind.SLOTS, at + model.SLOT_LOOK_S, why)


def _after(hold: Hold, before: Sequence[str]) -> Hold:
    return replace(hold, why=f"{hold.why}; next after {first_names(before)}") if before else hold


def start_hold(
    clock: QuotaClock, me: AccountUser, at: Moment, rules: AccountRules, others: Sequence[AccountUser] = ()
) -> Hold | None:
    """Return why a ralph without a process is not started; None: it would be the next to work.

    The next one is started although no slot is free: only a loop that asks gets a slot before one that
    continues. After a limit's end one is started, as the probe. ``others`` are not in the clock: started and
    have not asked yet, or held back as well.
    """
    clock = at_present(clock, at)
    queue = sorted((*clock.waiting, *others), key=_rank)
    before = [short_name(each.by) for each in queue if _rank(each) < _rank(me)]
    hold = hold_of(clock, me.by, at, replace(rules, slots=0))
    slots = 1 if clock.limit is not None else rules.slots
    if hold is None and slots and len(before) >= max(slots - len(clock.working), 1):
        hold = _no_slot(clock, slots, at)
        if clock.limit is not None:
            hold = Hold(HoldKind.PROBE, at + model.PROBE_S, f"account {clock.account}: usage limit over")
    return None if hold is None else _after(hold, before)


def reserved(clock: QuotaClock, at: Moment, rules: AccountRules) -> QuotaWindow | None:
    """Return the window of which only the share for a person is left, the last one to reset (Q4)."""
    if not rules.keep_free:
        return None
    most = 1 - rules.keep_free
    full = (each for each in clock.windows if each.used >= most - 1e-9 and (each.resets_at or 0.0) > at)
    return max(full, key=lambda each: each.resets_at or 0.0, default=None)


def limit_met(clock: QuotaClock, met: model.QuotaLimit) -> QuotaClock:
    """Note a limit that an attempt met (Q2). A later reset that is known holds; a guess yields to it."""
    clock, at = at_present(clock, met.since), met.since
    met, before = replace(met, until=min(met.until, at + model.LONGEST_LIMIT_S)), clock.limit
    if before is not None and before.until > at and (met.guessed or not before.guessed):
        is_same = met.brief is before.brief and met.until <= before.until + model.SAME_RESET_S
        if is_same or met.until <= before.until:  # several attempts met one limit: it is news once
            met = replace(before, until=max(before.until, met.until))
    return replace(clock, limit=met, probe=None)


def answered(clock: QuotaClock, by: str, at: Moment) -> QuotaClock:
    """Open the account: a model answered its probe, or an attempt from after the limit's end (Q3)."""
    limit, probes = clock.limit, clock.probe is not None and clock.probe.by == by
    began_at = next((each.since for each in clock.working if each.by == by), 0.0)
    if limit is None or (began_at < limit.until and not (began_at and probes)):
        return clock
    return replace(clock, limit=None, opened_at=at, probe=None)


def ended(clock: QuotaClock, by: str) -> QuotaClock:
    """Free the slot of an attempt that has ended. A probe without an answer keeps its turn."""
    return replace(clock, working=_without(clock.working, by))


def reported(clock: QuotaClock, windows: tuple[QuotaWindow, ...]) -> QuotaClock:
    """Keep what a CLI reported of its windows (Q4)."""
    known = {each.name: each for each in clock.windows}
    for each in windows:
        known[each.name] = each.after(known.get(each.name))
    newest = sorted(known.values(), key=lambda each: each.seen_at)[-model.MOST_WINDOWS :]
    return replace(clock, windows=tuple(sorted(newest, key=lambda each: each.name)))


def named(clock: QuotaClock, agent: str, *, is_stable: bool) -> QuotaClock:
    """Return the clock with the agent whose account it is, and whether its name is the same everywhere."""
    return replace(clock, agent=agent, is_stable=is_stable)


def at_present(clock: QuotaClock, at: Moment) -> QuotaClock:
    """Return the clock for a time that may have been set back (H5).

    A guessed wait keeps its length; a reset that the service named stays, and so does a share. Who waits
    keeps its place in the queue. A probe of the future begins now.
    """
    limit, probe = clock.limit, clock.probe
    if limit is not None and limit.since > at + SET_BACK_S:
        length_s = limit.until - limit.since
        until = min(limit.until, at + model.LONGEST_LIMIT_S)
        until = at + length_s if limit.guessed or limit.brief else until
        limit = replace(limit, since=at, until=until)
    if probe is not None and probe.since > at + SET_BACK_S:
        probe = replace(probe, since=at)
    working, waiting = _set_back(clock.working, at), _set_back(clock.waiting, at)
    return replace(clock, limit=limit, probe=probe, working=working, waiting=waiting)


def _set_back(users: tuple[AccountUser, ...], at: Moment) -> tuple[AccountUser, ...]:
    ahead_s = max((each.since for each in users), default=at) - at
    moved = (replace(each, since=each.since - ahead_s) for each in users)
    return tuple(moved) if ahead_s > SET_BACK_S else users


def short_name(by: str) -> str:
    """Return the ralph's own name."""
    return by.rpartition(".")[0] or by


def state_of(clock: QuotaClock, at: Moment) -> str:
    """Return ``open``, ``limited`` or ``probing``. Once reset, an account that nobody uses is open."""
    if clock.limit is None:
        return "open"
    if at < clock.limit.until:
        return "limited"
    is_probed_here = clock.probe is not None and at < clock.probe.since + model.PROBE_S
    if is_probed_here or _turn_elsewhere(clock, at) is not None:
        return "probing"
    return "limited" if clock.waiting or clock.working else "open"


def news_of(clock: QuotaClock) -> tuple[str, str, dict[str, Any]] | None:
    """Return the event about the last change of an account: type, key and data; None if there was none."""
    about = {"account": clock.account, "agent": clock.agent}
    if (limit := clock.limit) is not None:
        until, by = rfc3339(limit.until), limit.met_by
        message = f"account {clock.account}: {limit.name}, met by {by}; nobody starts before {until}"
        data = {"message": message, **about, "until": until, "met_by": by}
        return "quota.limited", f"{clock.account} {limit.since}", data
    if clock.opened_at is None:
        return None
    message = f"account {clock.account}: the limit is over, work continues"
    return "quota.open", f"{clock.account} {clock.opened_at}", {"message": message, **about}


def view_of(clock: QuotaClock, at: Moment) -> dict[str, Any]:
    """Return the account as people and programs see it (Q5)."""
    clock = at_present(clock, at)
    limit, probe, full = clock.limit, clock.probe, reserved(clock, at, clock.rules)
    turn = _turn_elsewhere(clock, at)
    return {
        "account": clock.account,
        "agent": clock.agent,
        "state": state_of(clock, at),
        "until": None if limit is None else rfc3339(limit.until),
        "limit": None if limit is None else limit.name,
        "source": None if limit is None else limit.met_by,
        "guessed": limit is not None and limit.guessed,
        "probing": turn.who if turn else None if probe is None else short_name(probe.by),
        "reserved": None if full is None else full.name,
        "windows": [_window_view(each, at) for each in clock.windows],
        "working": [short_name(each.by) for each in clock.working],
        "waiting": [short_name(each.by) for each in sorted(clock.waiting, key=_rank)],
        "slots": clock.rules.slots,
        "keep_free": clock.rules.keep_free,
    }


def _window_view(window: QuotaWindow, at: Moment) -> dict[str, Any]:
    ends_at, resets_at = window.ends_at(), window.resets_at
    if at - window.seen_at > model.FRESH_S:
        ends_at = None
    is_over = resets_at is not None and resets_at <= at
    return {
        "name": window.name,
        "limit": window.limit,
        "used": 0.0 if is_over else round(window.used, 4),
        "resets_at": None if resets_at is None or is_over else rfc3339(resets_at),
        "ends_at": None if ends_at is None or is_over or ends_at <= at else rfc3339(ends_at),
        "seen_at": rfc3339(window.seen_at),
    }


def _waiter(clock: QuotaClock, by: str, at: Moment, priority: int) -> AccountUser:
    since = next((each.since for each in clock.waiting if each.by == by), at)
    return AccountUser(by, min(since, at), priority)


def _rank(user: AccountUser) -> tuple[int, Moment, str]:
    return -user.priority, user.since, user.by


def _without(users: tuple[AccountUser, ...], by: str) -> tuple[AccountUser, ...]:
    return tuple(each for each in users if each.by != by)
