"""An explanation for people and programs: a rule, its figures, what was missing, what followed.

A module of its own, so that whatever explains itself (a run, an agent, a verdict) imports nothing else.
"""

from dataclasses import dataclass

from ralphd.core.time import Moment


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
NOT_WATCHED = Explanation(
    "P6", "Ralph runs, and is not watched", "enabled = false: started and logged, no more"
)
NOT_KNOWN = Explanation("", "Not known", "no explanation is kept with its last run")


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
