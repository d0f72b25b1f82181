"""What was seen of one that is silent, a run or an agent: kept with it, for people and programs (H4)."""

from dataclasses import dataclass

from ralphd.core.explain import Explanation
from ralphd.core.model import Moment


@dataclass(frozen=True, slots=True)
class Seen:
    """A process of the tree as the latest look saw it; what it did is that of the time since the look before.

    ``cpu_s`` and ``io_bytes`` include its reaped children. None is what is not known, as for a process that
    may not be read. ``command`` is cut to 200 characters.
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
    """The verdict with its figures, the processes, the last lines."""

    at: Moment
    explanation: Explanation
    processes: tuple[Seen, ...]
    last_lines: tuple[str, ...]
