"""The checkpoint: where a loop was, and why it rests (002-US-002). Written by the loop, read by everyone."""

from dataclasses import dataclass
from enum import StrEnum

from ralphd.core.model import Moment

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
