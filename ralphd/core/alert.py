"""The facts that a message carries besides its event: host, directory, task, last output, cost tonight.

They are collected when a message is sent, which delays no decision. History entries and events come in newest
first; any key may be missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from ralphd.core.delivery import StoredEvent
from ralphd.core.text import one_line
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

MOST_LINES: Final = 8
MOST_LINE_CHARS: Final = 200
EVENING_HOUR: Final = 18


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """The facts of one event, named as ``json`` receivers get them; None where nothing is known."""

    host: str
    directory: str | None = None
    task: Mapping[str, Any] | None = None
    cost_tonight_usd: float | None = None
    cost_since: str | None = None
    last_lines: tuple[str, ...] = ()
    link: str | None = None
    """The page of the ralph (`[web]`)."""


def evening_before(at: Moment) -> Moment:
    """Return the last 18:00 before ``at``, in the machine's time zone: the beginning of its night."""
    then = datetime.fromtimestamp(at)
    evening = then.replace(hour=EVENING_HOUR, minute=0, second=0, microsecond=0)
    return (evening if evening <= then else evening - timedelta(days=1)).timestamp()


def spent(entries: Iterable[Mapping[str, Any]], since: Moment, until: Moment) -> float | None:
    """Return the US dollars that history entries name in this period; None if no entry names any."""
    first, last, costs = rfc3339(since), rfc3339(until), list[float]()
    for entry in entries:
        at, usd = str(entry.get("at")), entry.get("usd", entry.get("cost_usd"))
        if at < first:
            break
        if at <= last and isinstance(usd, int | float):
            costs.append(usd)
    return round(sum(costs), 6) if costs else None


def task_of(event: StoredEvent, events: Iterable[StoredEvent]) -> Mapping[str, Any] | None:
    """Return the task that the event's run worked on when it happened."""
    for each in events:
        is_of_run = each.ralph == event.ralph and each.run_id == event.run_id and each.id <= event.id
        if is_of_run and isinstance(task := each.data.get("task"), Mapping):
            return task
    return None


def shown_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines that are not empty, bounded, without control characters."""
    shown = (one_line(line[: 8 * MOST_LINE_CHARS], MOST_LINE_CHARS) for line in lines)
    return tuple(line for line in shown if line)[-MOST_LINES:]
