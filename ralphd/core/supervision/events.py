"""The facts that reach a Regent. ``at`` is the moment of the fact, not of its arrival."""

from typing import Any, TypeAlias

from ralphd.core.gate.verdict import Result, Verdict
from ralphd.core.supervision.model import ExitFacts, Overdue, Reason, RunId
from ralphd.core.supervision.reports import Reported
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened at this moment."""

    at: Moment


@dataclass(frozen=True, slots=True)
class RunFact(Fact):
    """Something that happened to this run."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class StartRequested(Fact):
    """Someone wants the ralph to run. ``continues``: ralphd does, within the limits of the last start."""

    continues: bool = False


@dataclass(frozen=True, slots=True)
class StopRequested(Fact):
    """Someone wants it stopped: asked first, or with ``now`` killed at once (G1)."""

    now: bool = False


class PauseRequested(Fact):
    """Someone wants it paused (G2)."""


class ResumeRequested(Fact):
    """Someone wants a paused ralph to continue."""


class RestartRequested(Fact):
    """Someone wants a stop, then a start (G2)."""


class SkipWaitRequested(Fact):
    """Someone does not want to wait."""


@dataclass(frozen=True, slots=True)
class DaemonStopping(Fact):
    """The daemon ends and takes its runs along; the goals stay (G2)."""

    now: bool = False


@dataclass(frozen=True, slots=True)
class DaemonStarted(Fact):
    """A daemon has read this ralph from disk. ``living`` is the run that is still alive, if any (P1)."""

    living: RunId | None = None


class Spawned(RunFact):
    """The command runs."""


@dataclass(frozen=True, slots=True)
class SpawnFailed(Fact):
    """The command could not be started (E5)."""

    why: str


@dataclass(frozen=True, slots=True)
class SpawnPostponed(Fact):
    """Nothing can be started just now: no space, no memory, no descriptors (F3); or it is not its turn.

    ``until``: when that ends, where it is known. ``queued_at``: since when it waits for its turn.
    """

    why: str
    reason: Reason = Reason.RESOURCES
    until: Moment | None = None
    queued_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over, and nothing of its tree is alive."""

    ending: ExitFacts

    @property
    def at(self) -> Moment:
        return self.ending.at


@dataclass(frozen=True, slots=True)
class GateRunBegan(Fact):
    """The tests of an iteration begin, and the run that finished it waits for them.

    Without a run the tree is tested before there is one (R4).
    """

    run_id: RunId | None


@dataclass(frozen=True, slots=True)
class BaselineTested(Fact):
    """The tests before the first run have ended (R4); ``result`` is None where they were cut off.

    ``id`` stays the same when a later daemon announces it again; ``how`` is their end in words.
    """

    id: str
    result: Result | None
    how: str = ""


@dataclass(frozen=True, slots=True)
class VerdictReached:
    """A gate run is over, and what its verdict asked for is done."""

    verdict: Verdict

    @property
    def at(self) -> Moment:
        return self.verdict.at


@dataclass(frozen=True, slots=True)
class CommitsRestored(Fact):
    """A person had the commits that a verdict reverted put back.

    ``id`` is the boundary of that verdict, ``number`` and ``task`` are its iteration's. ``commits`` are back,
    by the commits ``made``, which is empty where they were back already; all are abbreviated. With ``repair``
    the repair of this number was undone, and ``ref`` keeps the repaired branch.
    """

    id: str
    run_id: RunId
    number: int | None = None
    task: dict[str, Any] | None = None
    commits: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    repair: int | None = None
    ref: str = ""


@dataclass(frozen=True, slots=True)
class LeftBehind(RunFact):
    """A run has ended and left something half done in the repository.

    One line for each thing that was repaired (``done``) and for each that a person has to fix (``told``).
    """

    done: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryRewritten(RunFact):
    """A branch lost commits during the iteration that ended at the boundary ``id``.

    The ``lost`` ones are on the branch again, with the new commits ``reapplied`` on top; ``conflicts`` are
    only under ``ref``. All are abbreviated, newest first. ``why``: nothing was changed, and a person has to
    look. ``undo`` is the command that undoes the repair.
    """

    id: str
    branch: str
    lost: tuple[str, ...] = ()
    reapplied: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    ref: str = ""
    why: str = ""
    number: int = 0
    undo: str = ""


@dataclass(frozen=True, slots=True)
class FellSilent(RunFact):
    """A run has shown no activity for so long that its whole tree is probed from now on (H1)."""

    text: str


@dataclass(frozen=True, slots=True)
class Overran(RunFact):
    """A run is to be ended: it hangs (H4), or is longer than it may be."""

    overdue: Overdue
    text: str


@dataclass(frozen=True, slots=True)
class Committed(RunFact):
    """Commits were made in the working directory while a run lived."""

    commits: int


@dataclass(frozen=True, slots=True)
class CostSeen(RunFact):
    """What the output of a run shows that its agents have cost so far; only where it is trusted (Q2)."""

    usd: float


class ScheduleEnded(RunFact):
    """A run lives outside its ralph's schedule."""


class GraceOver(RunFact):
    """The time that a run was given to end has passed, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Woke(Fact):
    """A requested moment has come, or the clock was looked at before it.

    ``is_free``: what a start waits for is there (A11), whatever the clock shows.
    """

    is_free: bool = False


Starts: TypeAlias = StartRequested | ResumeRequested | RestartRequested | SkipWaitRequested
"""Someone wants the ralph to work."""
_Ends: TypeAlias = StopRequested | PauseRequested | DaemonStopping | ScheduleEnded | GraceOver | Overran
_OfRun: TypeAlias = Spawned | SpawnFailed | SpawnPostponed | RunEnded | Reported | FellSilent | CostSeen
_OfGate: TypeAlias = GateRunBegan | BaselineTested | VerdictReached | CommitsRestored | HistoryRewritten
Event: TypeAlias = Starts | _Ends | _OfRun | _OfGate | LeftBehind | Committed | DaemonStarted | Woke
