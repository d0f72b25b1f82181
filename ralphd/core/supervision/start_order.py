"""Who starts, and why the others wait: goal, schedule, accounts, disk, places, memory, priority, then time.

One function decides for all ralphs at once, so that a free place goes to the first of them and not to the
first that looks. What it needs of the world (running ralphs, free memory, clocks, time) comes in as values.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import tzinfo

from ralphd.core.limits import UNLIMITED, RunLimits, is_scheduled, next_scheduled
from ralphd.core.quota.clock import start_hold
from ralphd.core.quota.model import AccountRules, AccountUser, Hold, HoldKind, QuotaClock
from ralphd.core.supervision.model import Goal, Reason
from ralphd.core.text import first_names
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Applicant:
    """A ralph that has no run and waits for a start since ``queued_at``.

    ``unscheduled_until``: its schedule does not apply before then, since a person skipped the wait for it.
    ``accounts`` are those of its agents; empty if it needs none. ``no_room``: why its worktree has to wait.
    """

    name: str
    queued_at: Moment
    goal: Goal = Goal.RUNNING
    limits: RunLimits = UNLIMITED
    priority: int = 0
    schedule: str = ""
    unscheduled_until: Moment | None = None
    accounts: Mapping[str, AccountRules] = field(default_factory=dict)
    no_room: str = ""

    def is_scheduled(self, at: Moment, zone: tzinfo | None) -> bool:
        """Return whether it may work now."""
        is_skipped = self.unscheduled_until is not None and at < self.unscheduled_until
        return is_skipped or is_scheduled(self.schedule, at, zone)


@dataclass(frozen=True, slots=True)
class StartHold:
    """Why a start waits. ``until`` is when that ends, if known; ``accounts`` are those that it needs."""

    reason: Reason
    why: str
    until: Moment | None = None
    accounts: tuple[str, ...] = ()


def start_order(
    applicants: Iterable[Applicant], running: int, free_memory: float, at: Moment, zone: tzinfo | None,
    clocks: Mapping[str, QuotaClock] | None = None, begun: Collection[Applicant] = (),
) -> dict[str, StartHold | None]:  # fmt: skip
    """Return why each applicant waits, first come first; None: it starts now (admission, A11).

    While one waits for a place, those after it get none, even where their own ``max_running`` is larger. One
    that needs no place, or waits for anything else, holds nobody up. ``begun`` were started and have not
    asked for their accounts yet.
    """
    wanted = [each for each in applicants if each.goal is Goal.RUNNING]
    others = list(begun)
    why: str | None
    order: dict[str, StartHold | None] = {}
    ahead: list[str] = []
    for each in sorted(wanted, key=lambda each: (-each.priority, each.queued_at, each.name)):
        if not each.is_scheduled(at, zone):
            why = f"outside its schedule, {each.schedule} ([ralph] schedule)"
            order[each.name] = StartHold(Reason.SCHEDULE, why, next_scheduled(each.schedule, at, zone))
        elif (hold := _account_hold(each, clocks or {}, others, at)) is not None:
            order[each.name] = hold
            others.append(each)
        elif each.no_room:
            order[each.name] = StartHold(Reason.RESOURCES, each.no_room)
        elif (why := each.limits.no_place(running, first_names(ahead))) is not None:
            order[each.name] = StartHold(Reason.RESOURCES, why)
            ahead.append(each.name)
        elif (why := each.limits.no_memory(free_memory)) is not None:
            order[each.name] = StartHold(Reason.RESOURCES, why)
        else:
            order[each.name] = None
            running += 1
            others.append(each)
    return order


def _account_hold(
    each: Applicant, clocks: Mapping[str, QuotaClock], others: Collection[Applicant], at: Moment
) -> StartHold | None:
    """Return why no agent of a ralph can work; None if one can, or would be the next (Q2, Q3, Q6)."""
    holds: list[Hold] = []
    for account, rules in each.accounts.items():
        users = [_user(other) for other in others if account in other.accounts]
        hold = start_hold(clocks.get(account) or QuotaClock(account), _user(each), at, rules, users)
        if hold is None:
            return None
        holds.append(hold)
    if not holds:
        return None
    first = min(holds, key=lambda hold: hold.until)
    reason = Reason.RESOURCES if first.kind is HoldKind.SLOTS else Reason.USAGE_LIMIT
    return StartHold(reason, first.why, first.until, tuple(each.accounts))


def _user(each: Applicant) -> AccountUser:
    return AccountUser(each.name, each.queued_at, each.priority)
