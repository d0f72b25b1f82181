"""An explanation for people and programs: a rule, its figures, what was missing, what followed.

A module of its own, so that whatever explains itself (a run, an agent, a verdict) imports nothing else.
"""

from ralphd.core.time import Moment, in_units
from ralphd.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One value that was checked, and the limit it was compared with."""

    name: str
    seen: str
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something was done. ``rule`` is its mark in docs/rules.md.

    ``missing`` would have changed the decision and was absent; ``done`` is what followed.
    ``silence`` explains the stall detection, if the run was silent for long enough.
    """

    rule: str
    title: str
    because: str
    figures: tuple[Figure, ...] = ()
    missing: tuple[str, ...] = ()
    done: str = ""
    silence: "Explanation | None" = None


NOTHING_YET = Explanation("", "Nothing was done yet", "it has never been started")
NOT_WATCHED = Explanation("P6", "Ralph runs without supervision", "enabled = false: started and logged only")
NOT_KNOWN = Explanation("", "Not known", "no explanation was saved with its last run")


def in_seconds(duration_s: float, *, units_from: int = 2) -> str:
    """Format a duration: ``0.4 s``, ``42 s``, ``5 min 10 s``, ``2 h 5 min``.

    Minutes and hours are used where there are at least ``units_from`` of them.
    """
    duration_s = max(0.0, duration_s)  # less than 0 where the clock was set back
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    if seconds < units_from * 60:
        return f"{seconds} s"
    if seconds < units_from * 3600:
        return in_units(seconds // 60, "min", seconds % 60, "s")
    return in_units(seconds // 3600, "h", seconds % 3600 // 60, "min")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process of a silent tree. Its activity is that since the probe before.

    ``cpu_s`` and ``io_bytes`` include its reaped children; None: it could not be read. ``command`` holds at
    most 200 characters.
    """

    pid: int
    parent: int
    state: str
    command: str
    age_s: float
    cpu_s: float | None
    io_bytes: int | None
    switches_per_s: float | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """The evidence of a stall, kept with the run (H4): the finding, the processes, the last lines."""

    at: Moment
    explanation: Explanation
    processes: tuple[Seen, ...]
    last_lines: tuple[str, ...]
