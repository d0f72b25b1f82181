"""What a report is made of: a span of a ralph's life, and what was done, undone, waited for and spent in it.

Times are whole microseconds and money whole millionths of a dollar, so that parts add up to their whole.
"""

from dataclasses import dataclass
from enum import StrEnum

from ralphd.core.time import Moment

MICRO = 1_000_000


class Doing(StrEnum):
    """What a stretch of the span went to; of what overlaps, the one that stands first here counts."""

    TESTS = "tests"
    """The guard's tests ran."""
    HANG = "hang"
    """An attempt that was ended for its silence or its time; of a run, its silence before that."""
    FAILURE = "failure"
    """Another attempt that failed, or a run that failed early and reported nothing."""
    UNDONE = "undone"
    """Work of which all commits were reverted."""
    WORK = "work"
    """An agent, or a command that reports nothing, at work."""
    WAIT = "wait"
    """Nothing was to run before a moment came."""
    BETWEEN = "between"
    """A loop's own time, between its attempts."""
    PERSON = "person"
    """Nothing ran, and nothing would have without a person."""
    OFF = "off"
    """Nothing ran: done, stopped, paused by a person, or no daemon was there."""


@dataclass(frozen=True, slots=True)
class Share:
    """What part of the span something took; ``reason`` is a wait's. ``times``: in how many stretches."""

    doing: Doing
    reason: str | None
    us: int
    times: int


@dataclass(frozen=True, slots=True)
class Money:
    """What attempts cost. ``unknown`` of them did not say, so that it is more than ``micro_usd``.

    ``estimated``: how many were worked out from tokens. ``attempts`` counts all.
    """

    micro_usd: int = 0
    unknown: int = 0
    estimated: int = 0
    attempts: int = 0

    def __add__(self, other: "Money") -> "Money":
        return Money(
            self.micro_usd + other.micro_usd,
            self.unknown + other.unknown,
            self.estimated + other.estimated,
            self.attempts + other.attempts,
        )


@dataclass(frozen=True, slots=True)
class AgentWork:
    """What an agent's attempts cost, and how many of them failed. ``agent`` None: none was named."""

    agent: str | None
    money: Money
    failures: int


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What became of a task in the span. ``id`` None: no task was named.

    ``done_at``: it was finished then, and its commits were not reverted since. Commits are abbreviated,
    oldest first. ``numbers`` are the iterations, by their runs' own counts.
    """

    id: str | None
    title: str
    done_at: Moment | None
    numbers: tuple[int, ...]
    kept: tuple[str, ...]
    reverted: tuple[str, ...]
    money: Money
    failures: int
    last_failure: str


@dataclass(frozen=True, slots=True)
class Undone:
    """Commits that were reverted, newest first, why, and the last lines of the tests.

    ``back_at``: a person has put them back then.
    """

    at: Moment
    number: int | None
    task_id: str | None
    title: str
    commits: tuple[str, ...]
    why: str
    tail: tuple[str, ...]
    back_at: Moment | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Attempts and runs that failed in one way; ``why`` is that of the last."""

    kind: str
    count: int
    why: str
    last_at: Moment


@dataclass(frozen=True, slots=True)
class Call:
    """A person was called."""

    at: Moment
    message: str


@dataclass(frozen=True, slots=True)
class Night:
    """All that a report tells of the record. ``since`` may be later than asked: before it nothing is known.

    ``shares`` add up to the span; the money of ``agents`` and that of ``tasks`` add up to ``money``.
    ``kept`` and ``reverted`` are commits, ``head_before`` is where the last run before the span has left the
    repository. ``unjudged`` counts iterations whose commits nobody could judge.
    """

    since: Moment
    until: Moment
    shares: tuple[Share, ...] = ()
    tasks: tuple[TaskWork, ...] = ()
    undone: tuple[Undone, ...] = ()
    agents: tuple[AgentWork, ...] = ()
    failures: tuple[Failure, ...] = ()
    calls: tuple[Call, ...] = ()
    money: Money = Money()
    iterations: int = 0
    attempts: int = 0
    runs: int = 0
    failed_runs: int = 0
    kept: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    unjudged: int = 0
    last_at: Moment | None = None
    head_before: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> tuple[TaskWork, ...]:
        """The tasks that were finished in the span and stay so, in that order."""
        found = [task for task in self.tasks if task.done_at is not None]
        return tuple(sorted(found, key=lambda task: task.done_at or 0.0))
