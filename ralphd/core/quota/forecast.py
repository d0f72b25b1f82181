"""What the open tasks are likely to take, from what finished tasks of the same repository took (Q7)."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any, Final, TypeAlias

from ralphd.core.quota.model import WINDOWS, QuotaClock, QuotaWindow
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

History: TypeAlias = Sequence[Mapping[str, Any]]
Likely: TypeAlias = tuple[float, float]

LEAST_TASKS: Final = 3
"""Fewer finished tasks say nothing about the others."""
_NO_TASK: Final = "prompt"
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The median to the 90th percentile of the ``finished`` tasks, times ``open`` tasks.

    ``usd`` None: the price is not known. ``hours`` None: too few finished tasks. ``crosses``: how often the
    account's ``window`` may be used up meanwhile; 0 if never, or if that is not known.
    """

    open: int
    finished: int
    usd: Likely | None = None
    hours: Likely | None = None
    crosses: int = 0
    window: str = ""

    def words(self) -> str:
        """Return ``likely 14 to 31 USD, 5 to 9 h, may cross the 5-hour limit twice``."""
        if self.hours is None:
            return f"no forecast yet: {self.finished} task{'' if self.finished == 1 else 's'} done"
        factor, unit = (1, "h") if self.hours[1] >= 1 else (60, "min")
        cost = "cost unknown" if self.usd is None else f"{_span(self.usd, 1, 2)} USD"
        often = {1: "once", 2: "twice"}.get(self.crosses, f"{self.crosses} times")
        crossing = f", may cross the {self.window} limit {often}" if self.crosses else ""
        return f"likely {cost}, {_span(self.hours, factor, 1)} {unit}{crossing}"


def forecast(
    histories: Sequence[History], open_tasks: int, ralphs: int, clocks: Iterable[QuotaClock], at: Moment
) -> Forecast:
    """Return the forecast for ``open_tasks`` that ``ralphs`` work on in parallel.

    ``histories`` are those of the repository's ralphs, newest entry first.
    """
    tasks = [task for history in histories for task in _finished(history)]
    if len(tasks) < LEAST_TASKS:
        return Forecast(open_tasks, len(tasks))
    prices = [usd for usd, _ in tasks if usd is not None]
    is_priced = len(prices) >= max(LEAST_TASKS, len(tasks) / 2)
    hours = _likely([took_s for _, took_s in tasks], open_tasks / max(ralphs, 1) / _HOUR_S)
    usd = _likely(prices, open_tasks) if is_priced else None
    crossings = (_crossing(each, hours[1], at) for each in _windows(histories, clocks))
    return Forecast(open_tasks, len(tasks), usd, hours, *max(crossings, default=(0, "")))


def _finished(history: History) -> list[tuple[float | None, float]]:
    """Return cost and time of each task that was finished and kept, with all its attempts and tests."""
    usd: dict[str, list[float | None]] = {}
    took_s: dict[str, float] = {}
    done, reverted = dict[str, str](), set[str]()
    for entry in history:
        task, key = entry.get("task"), str(entry.get("key"))
        id_ = str(task.get("id")) if isinstance(task, dict) else _NO_TASK
        match entry:
            case {"kind": "attempt", "cost_usd": cost, "cost_source": source, "duration_s": lasted_s}:
                is_known = cost is not None and source != "unknown" and (cost or source)
                usd.setdefault(id_, []).append(cost if is_known else None)
                took_s[id_] = took_s.get(id_, 0.0) + (lasted_s or 0.0)
            case {"kind": "iteration", "complete": True}:
                done[key] = id_
            case {"kind": "verdict"}:
                took_s[id_] = took_s.get(id_, 0.0) + sum(entry.get("tests_s") or ())
                reverted |= {key.removesuffix("/verdict")} if entry.get("reverted") else set()
    kept = {id_ for key, id_ in done.items() if key not in reverted and id_ in usd} - {_NO_TASK}
    return [(None if None in usd[id_] else sum(filter(None, usd[id_])), took_s[id_]) for id_ in kept]


def _windows(histories: Iterable[History], clocks: Iterable[QuotaClock]) -> tuple[QuotaWindow, ...]:
    """Return the windows of the account that worked last; none if several accounts could be meant."""
    attempts = [next((each for each in history if each.get("agent")), {}) for history in histories]
    agent = max(attempts, key=lambda entry: str(entry.get("at"))).get("agent")
    meant = [each for each in clocks if agent in (each.account, "@" not in each.account and each.agent)]
    return meant[0].windows if len(meant) == 1 else ()


def _crossing(window: QuotaWindow, hours: float, at: Moment) -> tuple[int, str]:
    """Return how often a window is used up at its present pace, and its name."""
    pace, (name, length_h) = window.pace() or 0.0, WINDOWS.get(window.name, ("", 0))
    if pace * length_h * _HOUR_S <= 1:
        return 0, ""  # it resets before it is used up, or its length is not known
    used = window.used if (window.resets_at or 0.0) > at else 0.0
    return floor(used + pace * hours * _HOUR_S), name


def _likely(values: list[float], factor: float) -> Likely:
    """Return the median and the 90th percentile, each times ``factor``."""
    values = sorted(values)
    return values[ceil(len(values) / 2) - 1] * factor, values[ceil(0.9 * len(values)) - 1] * factor


def _span(likely: Likely, factor: float, digits: int) -> str:
    low, high = (f"{each * factor:.{0 if each * factor >= 10 else digits}f}" for each in likely)
    return low if low == high else f"{low} to {high}"
