"""How a ralph stands now: what blocks it, who has to act, when it goes on; and how its task list stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ralphd.core.night_entries import count, moment, text, wait_reason
from ralphd.core.night_times import Living
from ralphd.core.plan import Plan, TaskStatus
from ralphd.core.time import Moment

HAS_A_RUN: Final = frozenset({"starting", "running", "testing", "pausing", "stopping"})
_ASKED: Final = frozenset({"requested", "user_requested"})


@dataclass(frozen=True, slots=True)
class Standing:
    """What is so now. ``waits_for`` is the reason of a wait, ``goes_on_at`` when it is over by itself.

    ``needs_person``: nothing goes on before somebody acts. ``agents_out`` are not asked before somebody does.
    """

    state: str
    runs: bool
    waits_for: str | None
    goes_on_at: Moment | None
    needs_person: bool
    agents_out: tuple[str, ...] = ()

    @property
    def is_blocked(self) -> bool:
        """Whether something keeps it from working."""
        return self.waits_for is not None or self.needs_person


@dataclass(frozen=True, slots=True)
class OpenTask:
    """A task that is not done. ``failures`` are those that count against it; ``used_up``: it is not tried."""

    id: str
    title: str
    failures: int
    why: str
    used_up: bool


@dataclass(frozen=True, slots=True)
class Tasks:
    """The task list: ``done`` of ``total``. ``file`` None: known by what the loop remembers alone."""

    file: str | None
    total: int
    done: int
    open: tuple[OpenTask, ...]


def standing(view: Mapping[str, Any]) -> Standing:
    """How it stands, by its state as it is shown; anything may be missing there."""
    state = text(view.get("state"))
    held = view.get("wait")
    wait = held if isinstance(held, Mapping) else {}
    waits_for = wait_reason(wait.get("reason")) if wait else None
    goes_on_at = moment(wait.get("until"))
    blocked = state == "failed" or (state == "paused" and goes_on_at is None)
    needs_person = blocked and text(view.get("pause_reason")) not in _ASKED
    return Standing(
        state, state in HAS_A_RUN, waits_for, goes_on_at, needs_person, tuple(_out(view.get("pool")))
    )


def living(view: Mapping[str, Any], now: Standing) -> Living:
    """The same for the sums of the time."""
    runs = now.runs and text(view.get("run_id"))
    return Living(
        text(view.get("run_id")) if runs else None,
        moment(view.get("started_at")) if runs else None,
        now.waits_for,
        now.needs_person,
    )


def tasks_of(plan: Plan | None, ledger: Mapping[str, Any], *, most_failures: int) -> Tasks | None:
    """The list as it stands, by what it says and what the loop remembers of its tasks; None: there is none.

    A ticked task counts as open where its commits were reverted, or its review is still to come.
    """
    records = {id_: each for id_, each in ledger.items() if isinstance(each, Mapping)}
    if plan is not None and plan.tasks:
        listed = [(task.id, task.title, task.status is TaskStatus.DONE) for task in plan.tasks]
    else:
        listed = [
            (id_, text(each.get("title")), each.get("status") == "complete") for id_, each in records.items()
        ]
        listed = [each for each in listed if each[0] != "prompt"]
    if not listed:
        return None
    open_ = tuple(
        _open(id_, title, records.get(id_, {}), most_failures)
        for id_, title, ticked in listed
        if not ticked or _is_reopened(records.get(id_, {}))
    )
    file = plan.file if plan is not None and plan.tasks else None
    return Tasks(file, len(listed), len(listed) - len(open_), open_)


def _is_reopened(record: Mapping[str, Any]) -> bool:
    return record.get("reopened") is True or record.get("unreviewed") is True


def _open(id_: str, title: str, record: Mapping[str, Any], most_failures: int) -> OpenTask:
    failures = max(count(record.get("failure_count")) or 0, 0)
    used_up = 0 < most_failures <= failures
    return OpenTask(id_, title or id_, failures, text(record.get("last_failure")), used_up)


def _out(pool: object) -> list[str]:
    agents = pool.get("agents") if isinstance(pool, Mapping) else None
    if not isinstance(agents, list):
        return []
    out = (each for each in agents if isinstance(each, Mapping) and each.get("in") is False)
    return [text(each.get("name")) for each in out if each.get("until") is None and text(each.get("name"))]
