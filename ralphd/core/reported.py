"""What a run can report of itself (G1, H6, C3): the nouns. What they lead to is in ``core/reports``."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from ralphd.core.failure import hint, kind_of, meaning
from ralphd.core.model import LastWord, Moment, RunId, Task
from ralphd.core.moments import rfc3339

NO_REASON = "waiting"


@dataclass(frozen=True, slots=True)
class Hello:
    """A run's first report. ``signals``: it knows SIGUSR1 (pause) and SIGUSR2 (skip the wait)."""

    signals: bool = False
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class IterationStarted:
    """An iteration begins; ``number`` is the run's own count.

    ``head``, a full sha, and ``branch`` are where it begins; without them, where HEAD is when it is told.
    """

    number: int | None = None
    task: Task | None = None
    agent: str | None = None
    head: str | None = None
    branch: str | None = None


class CostSource(StrEnum):
    """Where a cost comes from: the agent told it, it was worked out, or nobody knows it."""

    TOLD = "told"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """One agent process has ended; ``kind`` is the failure kind, None for a success.

    ``rule`` and ``why`` tell how the kind was found, ``reset_at`` when the limit is over that it met,
    ``next`` what follows, in words. ``attempt`` counts those at one iteration, from 1; ``phase`` is which one
    of the attempt it was. A ``code`` below 0 is a signal. ``ended_at`` None: just before it was reported.
    """

    agent: str
    outcome: str
    kind: str | None = None
    code: int | None = None
    cost_usd: float | None = 0.0
    duration_s: float | None = None
    iteration: int | None = None
    task: Task | None = None
    attempt: int | None = None
    phase: str | None = None
    rule: str | None = None
    why: str | None = None
    cost_source: CostSource | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    model: str | None = None
    session: str | None = None
    reset_at: Moment | None = None
    commits: int | None = None
    next: str | None = None
    ended_at: Moment | None = None

    def data(self) -> Mapping[str, Any]:
        """What history and events keep of it, by their names; a cost that nobody knows is none."""
        kind = kind_of(self.kind)
        return {
            "iteration": self.iteration,
            "task": task_data(self.task),
            "attempt": self.attempt,
            "phase": self.phase,
            "agent": self.agent,
            "outcome": self.outcome,
            "failure_kind": self.kind,
            "category": None if kind is None else meaning(kind).category.value,
            "hint": None if kind is None else hint(kind, reset_known=self.reset_at is not None).value,
            "rule": self.rule,
            "why": self.why,
            "code": self.code,
            "cost_usd": None if self.cost_source is CostSource.UNKNOWN else self.cost_usd,
            "cost_source": None if self.cost_source is None else self.cost_source.value,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "model": self.model,
            "session": self.session,
            "duration_s": self.duration_s,
            "reset_at": None if self.reset_at is None else rfc3339(self.reset_at),
            "commits": self.commits,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class IterationFinished:
    """A boundary: the tree may be judged. Answered with what to do next.

    ``complete``: its task is done. ``commits`` are those made in it, abbreviated, oldest first. ``ended_at``
    as in an attempt. ``waits``: nobody works on before the answer, so that its commits can be judged now.
    """

    number: int | None = None
    failed: bool = False
    summary: str | None = None
    task: Task | None = None
    complete: bool = False
    commits: tuple[str, ...] = ()
    ended_at: Moment | None = None
    waits: bool = True

    def data(self) -> Mapping[str, Any]:
        """What history and events keep of it, by their names."""
        return {
            "iteration": self.number,
            "failed": self.failed,
            "summary": self.summary,
            "task": task_data(self.task),
            "complete": self.complete,
            "commits": list(self.commits),
        }


@dataclass(frozen=True, slots=True)
class WaitingUntil:
    """The run waits, for a limit for example, and is not to be judged meanwhile; None: no longer."""

    until: Moment | None
    reason: str = NO_REASON


@dataclass(frozen=True, slots=True)
class Cost:
    """What was spent since the last such report."""

    usd: float


@dataclass(frozen=True, slots=True)
class AgentExhausted:
    """An agent is not asked any more before ``until``; None: before a person acts (L3)."""

    agent: str
    reason: str
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class AgentReturned:
    """An agent may be asked again."""

    agent: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The run lives. A run that sends one is judged by them from then on (H6)."""


Report: TypeAlias = (
    Hello
    | IterationStarted
    | AttemptFinished
    | IterationFinished
    | WaitingUntil
    | Cost
    | AgentExhausted
    | AgentReturned
    | LastWord
    | Heartbeat
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A run told its Regent something. ``digest`` stands for the whole report, to know it again."""

    at: Moment
    run_id: RunId
    id: str
    digest: str
    report: Report


def task_data(task: Task | None) -> dict[str, str] | None:
    """A task as it is written down."""
    return None if task is None else {"id": task.id, "title": task.title}
