"""What the loop remembers beside the user's plan: how each task stands, and which agents are out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice
from ralphd.core.time import Moment


class TaskState(StrEnum):
    """How a task stands, by what was tried."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task in ``tasks.json``. ``reopened``: its commits were reverted, so it is open again.

    ``reverted`` says what and why, until its commits are kept. ``unjudged``: it was done, and no verdict on
    that was heard yet, so what it has failed so far is not forgotten (R9).
    ``unreviewed``: it is worked on, and not done before its review says so, whatever the list says (L14).
    ``timeout_factor`` is what its next attempt's time is multiplied by, whoever makes it (000-T7).
    """

    id: str
    title: str = ""
    standing: TaskState = TaskState.PENDING
    failure_count: int = 0
    last_kind: FailureKind | None = None
    last_failure: str = ""
    reopened: bool = False
    timeout_factor: float = 1.0
    unreviewed: bool = False
    unjudged: bool = False
    reverted: RevertNotice | None = None


Ledger: TypeAlias = Mapping[str, TaskRecord]
"""The records by the tasks' ids. Never changed in place."""


@dataclass(frozen=True, slots=True)
class Cooldown:
    """An agent not to be asked. ``until`` None: not before a person acts. ``probes``: tries so far.

    ``back``: it was let in again, and stays on the list until it has worked once, so that the next unknown
    limit is waited for longer.
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
    """``loop.json``: what the next run of the loop goes on from, beside tasks and checkpoint.

    ``iteration`` counts those that are finished, ``idle_successes`` the last ones running that ended well
    without a commit (L10). ``last_agent`` was asked last. ``agents`` and ``rotates`` say who may be asked and
    in what way, for those who look at the pool. ``under_way`` outlives a loop that was killed, and so
    does ``list_file``: the task list that it had, whatever an agent has made of it since. ``judged`` is the
    boundary whose verdict was acted upon last.
    """

    iteration: int = 0
    cost_usd: float = 0.0
    began_at: Moment | None = None
    idle_successes: int = 0
    out: tuple[Cooldown, ...] = ()
    last_agent: str | None = None
    agents: tuple[str, ...] = ()
    rotates: bool = False
    under_way: InFlight | None = None
    list_file: str | None = None
    judged: str | None = None


# The checkpoint: where a loop was, and why it rests (002-US-002). Written by the loop, read by everyone.

CHECKPOINT_VERSION = 1


class PauseReason(StrEnum):
    """Why a checkpoint was saved; an error is told in its own words instead."""

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
    """The task under way; ``attempt`` counts from 1, 0: none was made yet."""

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
