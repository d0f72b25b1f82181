"""What the loop keeps between its runs: the record of each task, the agents' cooldowns, the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

# The codec of the state files reads these annotations at run time.
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.time import Moment


class TaskState(StrEnum):
    """The state of a task, by what was tried."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task in ``tasks.json``.

    ``reopened``: its commits were reverted, so it is open again; ``reverted`` says what and why, until new
    commits are kept. ``unjudged``: it was done, and its failures are forgotten only after the verdict (R9).
    ``unreviewed``: it is not done before its review says so, whatever the list says (L14). ``timeout_factor``
    multiplies the time limit of its next attempt, by any agent.
    """

    id: str
    title: str = ""
    state: TaskState = TaskState.PENDING
    failure_count: int = 0
    last_kind: FailureKind | None = None
    last_failure: str = ""
    reopened: bool = False
    timeout_factor: float = 1.0
    unreviewed: bool = False
    unjudged: bool = False
    reverted: RevertNotice | None = None


Ledger: TypeAlias = Mapping[str, TaskRecord]
"""The records by task id. Never changed in place."""


@dataclass(frozen=True, slots=True)
class Cooldown:
    """An agent that is not asked. ``until`` None: until a person acts. ``probes``: tries so far.

    ``back``: it returned to the pool, and stays listed until it has worked once, so that the next wait for an
    unknown reset is longer.
    """

    agent: str
    reason: str
    until: Moment | None = None
    probes: int = 0
    back: bool = False


@dataclass(frozen=True, slots=True)
class InFlight:
    """The attempt that was started last, as long as its end is not known."""

    iteration: int
    attempt: int
    agent: str
    task_id: str
    title: str
    began_at: Moment


@dataclass(frozen=True, slots=True)
class LoopState:
    """``loop.json``: from what the next run of the loop continues, besides tasks and checkpoint.

    ``iteration`` counts the finished ones, ``idle_successes`` the last successful ones in a row without a
    commit (L10). ``agents`` and ``rotates`` are there for readers of the pool. ``in_flight`` and
    ``list_file``, the task list of the loop, outlive a loop that was killed. ``judged`` is the boundary whose
    verdict was applied last.
    """

    iteration: int = 0
    cost_usd: float = 0.0
    began_at: Moment | None = None
    idle_successes: int = 0
    out: tuple[Cooldown, ...] = ()
    last_agent: str | None = None
    agents: tuple[str, ...] = ()
    rotates: bool = False
    in_flight: InFlight | None = None
    list_file: str | None = None
    judged: str | None = None


# The checkpoint: where a loop was, and why it waits or ended. Written by the loop, read by everyone.

CHECKPOINT_VERSION = 1


class PauseReason(StrEnum):
    """Why a checkpoint was saved. For ``error`` the checkpoint's ``why`` gives the details."""

    ITERATION_BOUNDARY = "iteration_boundary"
    USAGE_LIMIT = "usage_limit"
    RATE_LIMIT = "rate_limit"
    OUTAGE = "outage"
    TIMEOUT = "timeout"
    STALL = "stall"
    ERROR = "error"
    USER_REQUESTED = "user_requested"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """The task in progress; ``attempt`` counts from 1, 0: none was made yet."""

    id: str
    title: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``checkpoint.json``, key by key. ``head_commit``, ``uncommitted_files``, ``snapshot_ref``: see git."""

    created_at: Moment
    iteration: int
    pause_reason: PauseReason
    max_iterations: int = 0
    task: CheckpointTask | None = None
    agent: str | None = None
    resume_at: Moment | None = None
    uncommitted_files: tuple[str, ...] = ()
    head_commit: str | None = None
    snapshot_ref: str | None = None
    session_id: str | None = None
    total_cost_usd: float = 0.0
    why: str = ""
