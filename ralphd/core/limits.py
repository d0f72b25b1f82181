"""Limits of a run's memory, processes and CPU time, when a start waits for resources (A11), and schedules."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime, tzinfo
from functools import cache
from itertools import count
from typing import Final

from ralphd.dataclass import dataclass

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?(?:([KMGTP])iB|B)?")
NO_SLOT: Final = "slots are in use"
"""In the words of each wait for a slot of an account; ``ralphd.overview`` recognises it by them (Q6)."""


def size_in_bytes(value: object) -> object:
    """Return a size such as "8GiB" or "1.5 MiB" in bytes; any other value, which is not a size, unchanged."""
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    whole, part, unit = found.groups(default="")
    return int(whole) * _UNITS[unit] + int(part or 0) * _UNITS[unit] // 10 ** len(part)


def size_text(size: int) -> str:
    """Return a size in the largest unit that gives a whole number: ``8GiB``."""
    unit = next((unit for unit in "PTGMK" if size and size % _UNITS[unit] == 0), "")
    return f"{size // _UNITS[unit]}{unit}iB" if unit else str(size)


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of one run, named as the keys of ``[limits]``; 0: not limited."""

    max_memory_bytes: int = 0
    max_processes: int = 0
    cpu_weight: int = 0
    require_cgroup: bool = False
    min_free_memory: float = 0.0
    max_running: int = 0

    def files(self) -> Mapping[str, str]:
        """Return what to write into which file of the run's control group."""
        numbers = (self.max_memory_bytes, self.max_processes, self.cpu_weight)
        given = zip(("memory.max", "pids.max", "cpu.weight"), numbers, strict=True)
        return {name: str(number) for name, number in given if number}

    def controllers(self) -> list[str]:
        """Return the controllers that these limits need."""
        return [name.partition(".")[0] for name in self.files()]

    def unavailable(self, enabled: Collection[str] | None) -> str | None:
        """Return a warning for limits without effect; ``enabled`` None: there is no control group."""
        missing = [name for name in self.controllers() if name not in (enabled or ())]
        if not missing:
            return None
        if enabled is None:
            return "[limits] has no effect: ralphd cannot create control groups (v2) here"
        names = " and ".join(missing)
        return f"[limits] is not in effect for {names}: ralphd's control group does not delegate {names}"

    def why_wait(self, free_memory: float, running: int) -> str | None:
        """Return why a start has to wait: the share of free memory, or the number of living runs."""
        return self.no_place(running) or self.no_memory(free_memory)

    def no_place(self, running: int, ahead: str = "") -> str | None:
        """Return that no place is free, or that the free ones belong to those ``ahead``; None if one is."""
        if not self.max_running or (running < self.max_running and not ahead):
            return None
        after = f"; next after {ahead}" if ahead else ""
        return f"{running} of {self.max_running} ralphs are running ([limits] max_running){after}"

    def no_memory(self, free_memory: float) -> str | None:
        """Return that too small a share of the memory is free, or None."""
        if free_memory >= self.min_free_memory:
            return None
        free, least = f"{100 * free_memory:.1f} %", f"{100 * self.min_free_memory:g} %"
        return f"{free} of the memory is free, less than {least} ([limits] min_free_memory)"


UNLIMITED: Final = RunLimits()


@dataclass(frozen=True, slots=True)
class UserLimits:
    """When a ralph ends by the keys of ``[ralph]``; 0: not limited."""

    max_iterations: int = 0
    max_cost_usd: float = 0.0
    max_runtime_s: float = 0.0

    def reached(self, iteration: int, cost_usd: float, began_at: float | None, at: float) -> str | None:
        """Return the user's own limit that is reached now, in words, or None (E4, L10)."""
        if self.max_iterations and iteration >= self.max_iterations:
            return f"max_iterations = {self.max_iterations} reached"
        if self.max_cost_usd and cost_usd >= self.max_cost_usd:
            return f"${cost_usd:.2f} of ${self.max_cost_usd:.2f} spent (max_cost_usd)"
        if self.max_runtime_s and began_at is not None and at - began_at >= self.max_runtime_s:
            return f"{at - began_at:.0f} s of {self.max_runtime_s:.0f} s used (max_runtime_seconds)"
        return None


# Schedules: the times of day at which a ralph works, as ``23:00-07:00``, several with commas.

_WINDOW: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d) ?- ?(?:([01]?\d|2[0-3]):([0-5]\d)|24:00)")


@cache
def windows_of(schedule: str) -> tuple[tuple[int, int], ...]:
    """Return the first minute of the day of each window, and the one after its last. Raise ValueError."""
    windows = []
    for part in schedule.split(",") if schedule.strip() else ():
        if (window := _WINDOW.fullmatch(part.strip())) is None:
            rule = 'has to be times of day as "23:00-07:00", several with commas'
            raise ValueError(f"{rule}; {part.strip()!r} is none")
        hour, minute, end_hour, end_minute = map(int, window.groups("0"))
        start, end = 60 * hour + minute, 60 * end_hour + end_minute if window[3] else 24 * 60
        if start == end:
            raise ValueError(f"{part.strip()!r} begins and ends at the same time; leave it empty for always")
        windows.append((start, end))
    return tuple(windows)


def is_scheduled(schedule: str, at: float, zone: tzinfo | None) -> bool:
    """Return whether a schedule lets a ralph work at this moment (``core.time``); an empty one always."""
    local = datetime.fromtimestamp(at, zone)
    now, windows = 60 * local.hour + local.minute, windows_of(schedule)
    within = (start <= now < end if start < end else not end <= now < start for start, end in windows)
    return not windows or any(within)


def next_scheduled(schedule: str, at: float, zone: tzinfo | None) -> float:
    """Return the first full minute after ``at`` that is scheduled.

    Asking each minute needs no rule for a change of the clocks: no window is empty on two days running.
    """
    minutes = (60.0 * (at // 60 + ahead) for ahead in count(1))
    return next(minute for minute in minutes if is_scheduled(schedule, minute, zone))
