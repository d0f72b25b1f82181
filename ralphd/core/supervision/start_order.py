"""Who starts, and why the others wait: goal, schedule, places, memory, priority, then who waited longest.

One function decides for all ralphs at once, so that a free place goes to the first of them and not to the
first that looks. What it needs of the world (running ralphs, free memory, time, zone) comes in as values.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import tzinfo

from ralphd.core.limits import UNLIMITED, RunLimits, is_scheduled, next_scheduled
from ralphd.core.supervision.model import Goal, Reason
from ralphd.core.text import first_names
from ralphd.core.time import Moment


@dataclass(frozen=True, slots=True)
class Applicant:
    """A ralph that has no run and waits for a start since ``queued_at``.

    ``unscheduled_until``: its schedule does not apply before then, since a person skipped the wait for it.
    """

    name: str
    queued_at: Moment
    goal: Goal = Goal.RUNNING
    limits: RunLimits = UNLIMITED
    priority: int = 0
    schedule: str = ""
    unscheduled_until: Moment | None = None

    def is_scheduled(self, at: Moment, zone: tzinfo | None) -> bool:
        """Return whether it may work now."""
        is_skipped = self.unscheduled_until is not None and at < self.unscheduled_until
        return is_skipped or is_scheduled(self.schedule, at, zone)


@dataclass(frozen=True, slots=True)
class StartHold:
    """Why a start waits. ``until`` is when that ends, where it is known."""

    reason: Reason
    why: str
    until: Moment | None = None


def start_order(
    applicants: Iterable[Applicant], running: int, free_memory: float, at: Moment, zone: tzinfo | None
) -> dict[str, StartHold | None]:
    """Return why each applicant waits, first come first; None: it starts now (admission, A11).

    While one waits for a place, those after it get none, even where their own ``max_running`` is larger. One
    that needs no place, or waits for its schedule or for memory, holds nobody up.
    """
    wanted = [each for each in applicants if each.goal is Goal.RUNNING]
    why: str | None
    order: dict[str, StartHold | None] = {}
    ahead: list[str] = []
    for each in sorted(wanted, key=lambda each: (-each.priority, each.queued_at, each.name)):
        if not each.is_scheduled(at, zone):
            why = f"outside its schedule, {each.schedule} ([ralph] schedule)"
            order[each.name] = StartHold(Reason.SCHEDULE, why, next_scheduled(each.schedule, at, zone))
        elif (why := each.limits.no_place(running, first_names(ahead))) is not None:
            order[each.name] = StartHold(Reason.RESOURCES, why)
            ahead.append(each.name)
        elif (why := each.limits.no_memory(free_memory)) is not None:
            order[each.name] = StartHold(Reason.RESOURCES, why)
        else:
            order[each.name] = None
            running += 1
    return order
