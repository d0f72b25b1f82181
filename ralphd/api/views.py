"""What replies look like, for OpenAPI. The replies themselves are bytes, made by their owners."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from ralphd.config import Difference


class WaitView(BaseModel):
    """Nothing runs until a moment, or the run that lives waits until then; None when a person has to act."""

    reason: str
    until: str | None


class TaskView(BaseModel):
    """The task that the run says it works on."""

    id: str
    title: str


class LastExitView(BaseModel):
    """How the last run ended. ``code`` and ``signal`` are both null when the run was lost."""

    run_id: str
    code: int | None
    signal: int | None
    outcome: str
    at: str


class DriftView(BaseModel):
    """A key whose value in the files is not the pinned one, as TOML; or a fault that a reload would meet."""

    key: str | None = None
    pinned: str | None = None
    now: str | None = None
    origin: str | None = None
    fault: str | None = None


class CheckpointView(BaseModel):
    """What the built-in loop goes on from; ``uncommitted`` counts the files that were not committed."""

    created_at: str | None
    iteration: int | None
    task: TaskView | None
    attempt: int | None
    agent: str | None
    pause_reason: str | None
    resume_at: str | None
    uncommitted: int
    snapshot_ref: str | None


class AgentView(BaseModel):
    """An agent of the pool: in, or out until then for that reason (null: until a person acts).

    ``last``: it was asked last.
    """

    name: str
    is_in: bool = Field(alias="in")
    until: str | None
    reason: str | None
    last: bool


class PoolView(BaseModel):
    """Whom the built-in loop may ask, in order: each iteration the next (``rotate``), or ``fallback``."""

    strategy: Literal["rotate", "fallback"]
    agents: list[AgentView]


class VerdictView(BaseModel):
    """What was said last of an iteration's commits; they are abbreviated, and newest first."""

    iteration: int | None
    task: TaskView | None
    verdict: Literal["kept", "reverted", "untested"]
    why: str
    commits: list[str]
    reverted: list[str]
    at: str


class GuardView(BaseModel):
    """Where the guard stands. ``baseline``: what the tests said before what is under way, ``since`` when.

    ``boundaries`` is false where the command reports no end of an iteration, so that nothing is judged.
    ``reverted`` is the last verdict by which something was reverted, unless it was undone.
    """

    baseline: Literal["green", "red", "unknown"]
    since: str | None
    testing_since: str | None
    boundaries: bool
    verdict: VerdictView | None
    reverted: VerdictView | None


class LastChangeView(BaseModel):
    """The last thing that got anywhere: an iteration finished, a commit kept."""

    what: str
    at: str


class IncidentView(BaseModel):
    """What a person was called for, as long as it is open.

    `held_back` further calls were not told, `latest` is what the last of them said; `needs` is what it takes,
    `do` the command to type. `told_at` is the last message, which `reminders` others came before.
    """

    opened_at: str
    message: str
    needs: str
    do: str
    held_back: int
    latest: str | None
    reminders: int
    told_at: str
    acknowledged_at: str | None


class RalphView(BaseModel):
    """One ralph: the keys of ``regent-state.json``, where it is and what it runs."""

    ralph_pid: int | None
    iteration: int
    consecutive_errors: int
    last_output_at: str | None
    last_commit: str | None
    total_cost_usd: float
    version: int
    name: str
    state: str
    goal: str
    mode: str
    branch: str | None
    started_at: str | None
    finished_at: str | None
    passed: bool | None
    agent: str | None
    pool: PoolView | None
    task: TaskView | None
    wait: WaitView | None
    restarts: int
    reverts: int
    last_exit: LastExitView | None
    pause_reason: str | None
    run_id: str | None
    directory: str
    command: list[str]
    tree_means: str | None
    checkpoint: CheckpointView | None
    drift: list[DriftView]
    guard: GuardView | None
    notes: list[str]
    message: str | None
    last_change: LastChangeView | None
    incident: IncidentView | None
    resources: dict[str, Any] | None = None


class ChangeView(BaseModel):
    """What a reload changed, as TOML; null for what is not set."""

    key: str
    was: str | None
    becomes: str | None
    origin: str


class ReloadedRalphView(BaseModel):
    """A ralph, what its reload changed, and when that holds: ``now``, or from the ``next_run`` on."""

    ralph: RalphView
    changes: list[ChangeView]
    when: str


class RalphsView(BaseModel):
    """Every ralph that is known."""

    ralphs: list[RalphView]


class RunsView(BaseModel):
    """Runs from the history, newest first."""

    runs: list[dict[str, Any]]


class IterationsView(BaseModel):
    """Iterations from the history, newest first, each with its attempts."""

    iterations: list[dict[str, Any]]


class VerdictsView(BaseModel):
    """Verdicts from the history, newest first."""

    verdicts: list[dict[str, Any]]


class CommitView(BaseModel):
    """A commit by its full sha."""

    sha: str
    subject: str


class UndoneView(BaseModel):
    """What is back: ``commits`` as they were, ``made`` the commits that do it, both newest first.

    ``unjudged`` are those of an unfinished iteration, of which no verdict is said any more.
    """

    iteration: int | None
    task: TaskView | None
    commits: list[CommitView]
    made: list[CommitView]
    unjudged: list[CommitView]
    head: str | None
    ralph: RalphView


class DaemonView(BaseModel):
    """The daemon itself."""

    pid: int
    version: str
    started_at: str
    state_directory: str
    socket: str
    status: str
    problems: list[str]
    tree_means: str
    ralphs: int


class ReloadedView(BaseModel):
    """The daemon, and what changed in the user's own configuration."""

    daemon: DaemonView
    changes: list[ChangeView]


class StatusView(BaseModel):
    """The daemon and its ralphs."""

    version: str
    daemon: DaemonView
    ralphs: list[RalphView]


class HealthView(BaseModel):
    """``degraded`` is alive too: something is missing, and ``problems`` says what (F3)."""

    status: str
    problems: list[str]


class ReadyView(BaseModel):
    """The daemon has read its state, adopted what lives, and takes requests."""

    ready: bool


class Problem(BaseModel):
    """RFC 9457, with the reason and what to do next in words."""

    type: str = Field(examples=["urn:ralphd:problem:unknown-ralph"])
    title: str
    status: int
    detail: str
    why: str
    next_step: str = Field(alias="try")
    errors: list[dict[str, str]] = Field(default_factory=list)


RALPH: dict[str, Any] = {"model": RalphView, "description": "The ralph."}
RALPHS: dict[str, Any] = {"model": RalphsView, "description": "The ralphs."}
RUNS: dict[str, Any] = {"model": RunsView, "description": "The runs."}
VERDICTS: dict[str, Any] = {"model": VerdictsView, "description": "The verdicts."}
UNDONE: dict[str, Any] = {"model": UndoneView, "description": "What is back, and the ralph."}
ITERATIONS: dict[str, Any] = {"model": IterationsView, "description": "The iterations."}
RELOADED_RALPH: dict[str, Any] = {"model": ReloadedRalphView, "description": "The ralph, and the changes."}
RELOADED: dict[str, Any] = {"model": ReloadedView, "description": "The daemon, and the changes."}
STATUS: dict[str, Any] = {"model": StatusView, "description": "The daemon and its ralphs."}
DAEMON: dict[str, Any] = {"model": DaemonView, "description": "The daemon."}
HEALTH: dict[str, Any] = {"model": HealthView, "description": "Alive."}
READY: dict[str, Any] = {"model": ReadyView, "description": "Ready."}

_TEXT = {"schema": {"type": "string"}}
LOG: dict[str, Any] = {
    "description": "The lines, as text or as one JSON object a line.",
    "content": {"text/plain": _TEXT, "application/x-ndjson": _TEXT},
}
EVENTS: dict[str, Any] = {"description": "Server-sent events.", "content": {"text/event-stream": _TEXT}}
PROBLEM: dict[str, Any] = {
    "description": "What went wrong, why, and what to do.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
FAULTS: dict[int | str, dict[str, Any]] = {422: PROBLEM, "default": PROBLEM}
"""What every route may answer besides."""


def change_object(change: Difference) -> dict[str, str | None]:
    """A difference as a reload tells it."""
    return {"key": change.key, "was": change.pinned, "becomes": change.now, "origin": change.origin}
