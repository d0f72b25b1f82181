"""The facts that a Regent is told. ``at`` is the moment of the fact, not of its arrival."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from ralphd.core.gate.verdict import Result, Verdict
from ralphd.core.supervision.model import ExitFacts, Overdue, ReportedTask, RunId
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment


@dataclass(frozen=True, slots=True)
class StartRequested:
    """Someone wants the ralph to run."""

    at: Moment


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Someone wants it stopped: asked first, or with ``now`` killed at once (G1)."""

    at: Moment
    now: bool = False


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Someone wants it paused (G2)."""

    at: Moment


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Someone wants a paused ralph to go on."""

    at: Moment


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """Someone wants a stop, then a start (G2)."""

    at: Moment


@dataclass(frozen=True, slots=True)
class SkipWaitRequested:
    """Someone does not want to wait."""

    at: Moment


@dataclass(frozen=True, slots=True)
class DaemonStopping:
    """The daemon ends and takes its runs along; the goals stay (G2)."""

    at: Moment
    now: bool = False


@dataclass(frozen=True, slots=True)
class DaemonStarted:
    """A daemon has read this ralph from disk. ``living`` is the run that is still alive, if any (P1)."""

    at: Moment
    living: RunId | None = None


@dataclass(frozen=True, slots=True)
class Spawned:
    """The command runs."""

    at: Moment
    run_id: RunId


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """The command could not be started (E5)."""

    at: Moment
    why: str


@dataclass(frozen=True, slots=True)
class SpawnPostponed:
    """The machine could not start anything just now: no space, no memory, no descriptors (F3)."""

    at: Moment
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over, and nothing of its tree is alive."""

    ending: ExitFacts

    @property
    def at(self) -> Moment:
        """When it ended, by its exit record."""
        return self.ending.at


@dataclass(frozen=True, slots=True)
class JudgementBegan:
    """The tests of an iteration begin; the run that finished it, or has ended with it, waits for them.

    Without a run it is the tree that is tested, before there is one (R4).
    """

    at: Moment
    run_id: RunId | None


@dataclass(frozen=True, slots=True)
class BaselineTested:
    """The tests that come before the first run are over (R4); ``result`` None: they were not to go on.

    ``id`` is the same when a daemon that died tells it anew; ``how`` is their end in words.
    """

    at: Moment
    id: str
    result: Result | None
    how: str = ""


@dataclass(frozen=True, slots=True)
class JudgementOver:
    """A verdict was reached, and what it asked for is done.

    ``commits`` are those of the iteration and ``reverted`` those that were reverted, abbreviated and newest
    first; ``number`` and ``task`` are the iteration's. ``tests`` says how often they ran and how that ended,
    ``tests_s`` how long each took; ``tail`` is the end of what the red ones printed. ``refs`` keep what was
    reverted. ``id`` is the boundary's, the same when a daemon that died tells it anew.
    """

    at: Moment
    run_id: RunId | None
    verdict: Verdict
    number: int | None = None
    task: ReportedTask | None = None
    commits: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    tests_s: tuple[float, ...] = ()
    refs: tuple[str, ...] = ()
    tail: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class CommitsRestored:
    """What a verdict had reverted was put back, since a person asked for it.

    ``id`` is the boundary of that verdict, ``number`` and ``task`` its iteration's. ``commits`` are back, by
    the commits ``made``, of which there are none where they were back already; all are abbreviated.
    """

    at: Moment
    id: str
    run_id: RunId
    number: int | None = None
    task: dict[str, Any] | None = None
    commits: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A run that has ended left something half done in the repository.

    A line each for what was mended (``done``) and for what a person has to look at (``told``).
    """

    at: Moment
    run_id: RunId
    done: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FellSilent:
    """A run has given no sign for so long that its whole tree is looked at from now on (H1)."""

    at: Moment
    run_id: RunId
    text: str


@dataclass(frozen=True, slots=True)
class Overran:
    """A run is to be ended: it hangs (H4), or is longer than it may be."""

    at: Moment
    run_id: RunId
    overdue: Overdue
    text: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Commits were made in the working directory while a run lived."""

    at: Moment
    run_id: RunId
    commits: int


@dataclass(frozen=True, slots=True)
class GraceOver:
    """The time that a run was given to end by itself has passed, by a clock that nobody can set."""

    at: Moment
    run_id: RunId


@dataclass(frozen=True, slots=True)
class Woke:
    """A moment that was asked for has come, or a clock was looked at in between."""

    at: Moment


Event: TypeAlias = (
    StartRequested
    | StopRequested
    | PauseRequested
    | ResumeRequested
    | RestartRequested
    | SkipWaitRequested
    | DaemonStopping
    | DaemonStarted
    | Spawned
    | SpawnFailed
    | SpawnPostponed
    | RunEnded
    | Reported
    | JudgementBegan
    | BaselineTested
    | LeftBehind
    | JudgementOver
    | CommitsRestored
    | FellSilent
    | Overran
    | Committed
    | GraceOver
    | Woke
)
