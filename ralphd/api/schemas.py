"""What replies look like to OpenAPI.

Replies themselves are bytes, made by their owners; tests compare the keys. Views whose fields are those of a
dataclass are made from it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import BaseModel, Field, create_model

from ralphd import wire
from ralphd.core.delivery import StoredEvent
from ralphd.core.explanation import Explanation, Figure
from ralphd.core.supervision.model import ReportedTask
from ralphd.store.state import LastExit
from ralphd.store.webhooks import Gone

if TYPE_CHECKING:
    from ralphd.config.configuration import Difference


def _of(keys: Mapping[str, Any], **instead: Any) -> type[BaseModel]:
    """Return a model with the keys of a table in ``wire``; ``instead`` has the shapes of the objects."""
    return create_model("Keys", **{key: instead.get(key, (kind, ...)) for key, kind in keys.items()})


def _like(shape: type, *left_out: str, **instead: Any) -> type[BaseModel]:
    """Return the same for the fields of a dataclass; ``instead`` has the types that differ in the reply."""
    return _of({key: kind for key, kind in get_type_hints(shape).items() if key not in left_out}, **instead)


class WaitView(BaseModel):
    """Nothing runs until a moment, or the run that lives waits until then; None when a person has to act."""

    reason: str
    until: str | None


class TaskView(_like(ReportedTask)):  # type: ignore[misc]
    """The task that the run says it works on."""


class LastExitView(_like(LastExit, at=(str, ...))):  # type: ignore[misc]
    """How the last run ended. ``code`` and ``signal`` are both null when the run was lost."""


class DriftView(BaseModel):
    """A key whose value in the files is not the pinned one, as TOML; or a fault that a reload would meet."""

    key: str | None = None
    pinned: str | None = None
    now: str | None = None
    origin: str | None = None
    fault: str | None = None


class CheckpointView(BaseModel):
    """Where the built-in loop continues; ``uncommitted`` counts the files that were not committed."""

    created_at: str | None
    iteration: int | None
    task: TaskView | None
    attempt: int | None
    agent: str | None
    pause_reason: str | None
    resume_at: str | None
    uncommitted: int
    snapshot_ref: str | None


class AgentView(_of(wire.POOL_AGENT_KEYS)):  # type: ignore[misc]
    """An agent of the pool: in, or out until then for that reason (null: until you act).

    ``last``: it was asked last.
    """


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
    Commits of earlier runs after ``unjudged_since`` have no final verdict yet.
    ``reverted`` is the last verdict by which something was reverted, unless it was undone.
    """

    baseline: Literal["green", "red", "unknown"]
    since: str | None
    testing_since: str | None
    boundaries: bool
    unjudged_since: str | None
    verdict: VerdictView | None
    reverted: VerdictView | None


class LastChangeView(BaseModel):
    """The last thing that got anywhere: an iteration finished, a commit kept."""

    what: str
    at: str


class IncidentView(_of(wire.INCIDENT_KEYS)):  # type: ignore[misc]
    """What a person was called for, as long as it is open.

    `held_back` further calls were not told, `latest` is what the last of them said; `needs` is what it takes,
    `do` the command to type. `told_at` is the last message, which `reminders` others came before.
    """


class SandboxView(BaseModel):
    """The sandbox in effect, as tested from inside the run; `reason` says why there is none."""

    level: str
    means: str | None
    reason: str | None


_PARTS = {
    "sandbox": (SandboxView | None, ...),
    "pool": (PoolView | None, ...),
    "task": (TaskView | None, ...),
    "tasks": (dict[Literal["done", "total"], int] | None, ...),
    "wait": (WaitView | None, ...),
    "last_exit": (LastExitView | None, ...),
    "command": (list[str], ...),
    "checkpoint": (CheckpointView | None, ...),
    "drift": (list[DriftView], ...),
    "guard": (GuardView | None, ...),
    "landing": ("RalphLandingView | None", ...),
    "notes": (list[str], ...),
    "last_change": (LastChangeView | None, ...),
    "incident": (IncidentView | None, ...),
    "seen": (dict[str, Any] | None, ...),
    "resources": (dict[str, Any] | None, None),
}


class RalphView(_of(wire.VIEW_KEYS, **_PARTS)):  # type: ignore[misc]
    """One ralph: the keys of ``regent-state.json``, where it is and what it runs."""


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


class WorktreesView(BaseModel):
    """Every worktree of ralphd, with its `name`, `path`, `branch`, `source`, `port_base` and `used_at`.

    `state` is its ralph's, null without one, `word` the same for people; `stage` is `making`, `preparing`,
    `ready` or `deleted`. `ahead` and `behind` count commits against the branch `target`, `dirty` files that
    are not committed, `unlanded` commits that no other branch and no remote has. `keeps` are the reasons why
    it would not be removed.
    """

    trees: list[dict[str, Any]]


class RemovedWorktreeView(BaseModel):
    """A worktree that was removed; ``kept_as`` is the ref that has what was in it."""

    name: str
    path: str
    branch: str
    kept_as: str | None


class RunsView(BaseModel):
    """Runs from the history, newest first."""

    runs: list[dict[str, Any]]


class IterationsView(BaseModel):
    """Iterations from the history, newest first, each with its attempts."""

    iterations: list[dict[str, Any]]


class VerdictsView(BaseModel):
    """Verdicts and repairs from the history, newest first."""

    verdicts: list[dict[str, Any]]
    repairs: list[dict[str, Any]]


class QuotaWindowView(BaseModel):
    """A window of the plan as its CLI reported it: the used share, from 0 to 1.

    ``limit`` is its name for people. ``ends_at`` is when it is used up at the present pace; null if it resets
    before.
    """

    name: str
    limit: str
    used: float
    resets_at: str | None
    ends_at: str | None
    seen_at: str


class QuotaAccountView(BaseModel):
    """An account: ``state`` is open, limited or probing. ``source`` is what met the ``limit``.

    That is a ralph, or ``host NAME`` of the fleet; so is ``probing``. ``reserved`` is the window of which
    only ``keep_free`` is left. ``waiting`` is in the order of turns.
    """

    account: str
    agent: str
    state: Literal["open", "limited", "probing"]
    until: str | None
    limit: str | None
    source: str | None
    guessed: bool
    probing: str | None
    reserved: str | None
    windows: list[QuotaWindowView]
    working: list[str]
    waiting: list[str]
    slots: int
    keep_free: float


class QuotaView(BaseModel):
    """The accounts of the agents, by name."""

    accounts: list[QuotaAccountView]


class FleetView(BaseModel):
    """The fleet as this machine sees it. Not ``connected``: as last known, at ``as_of``."""

    host: str
    connected: bool
    problem: str
    as_of: str | None
    hosts: list[dict[str, Any]]
    items: list[dict[str, Any]]
    limits: list[dict[str, Any]]


class FleetRalphsView(BaseModel):
    """The ralphs of the machines other than ``host``, which answers: views, named ``MACHINE/NAME``.

    If it could not be read now, it is as at its ``as_of``; its state is ``unknown`` if it never was read.
    """

    host: str
    ralphs: list[dict[str, Any]]


class ExplainedItemView(BaseModel):
    """An item, what it waits for, and for each machine the needs that it does not meet."""

    item: dict[str, Any]
    waits_for: str | None
    hosts: list[dict[str, Any]]


class OrderedView(BaseModel):
    """What became of a request to a machine of the fleet."""

    done: bool = True
    host: str | None = None
    draining: bool | None = None
    ralph: dict[str, Any] | None = None


class InboxView(BaseModel):
    """The tasks that people added, done or not, and the notes that no agent has got."""

    tasks: list[dict[str, Any]]
    notes: list[dict[str, Any]]


class LandingCandidateView(BaseModel):
    """A branch in the queue. ``commit`` is what the target got, ``undoes`` the landing that it reverts."""

    number: int
    ralph: str
    branch: str
    head: str
    state: Literal["queued", "waiting", "landed", "pushed", "refused"]
    why: str
    tries: int
    commit: str | None
    undoes: str | None
    queued_at: str
    ended_at: str | None
    next: str


class QueuedCandidateView(LandingCandidateView):
    """A branch in the list of the queue. ``copies``: its commits, each with its copy, if it was rebased."""

    copies: list[tuple[str, str]]


class RalphLandingView(LandingCandidateView):
    """The last branch of a ralph in a landing queue. ``blocked`` says why nothing lands."""

    target: str
    blocked: str | None


class LandingBatchView(BaseModel):
    """The candidates that are worked on together now."""

    numbers: list[int]
    doing: Literal["merging", "testing", "checking", "baseline", "moving", "pushing"]


class LandingQueueView(BaseModel):
    """The queue of one repository. ``blocked`` says why nothing lands."""

    repository: str
    target: str
    remote: str | None
    mode: Literal["off", "ask", "auto", "branch"]
    blocked: str | None
    batch: LandingBatchView | None
    candidates: list[QueuedCandidateView]


class LandingView(BaseModel):
    """Every landing queue."""

    queues: list[LandingQueueView]


class QueuedView(LandingQueueView):
    """The queue, and the number that the request got in it."""

    number: int


class CommitView(BaseModel):
    """A commit by its full sha."""

    sha: str
    subject: str


class UndoneView(BaseModel):
    """What is back: ``commits`` as they were, ``made`` the commits that do it, both newest first.

    ``unjudged`` are those of an unfinished iteration, of which no verdict is said any more. Of a ``repair``
    that was undone, ``ref`` keeps the repaired branch.
    """

    iteration: int | None
    task: TaskView | None
    commits: list[CommitView]
    made: list[CommitView]
    unjudged: list[CommitView]
    head: str | None
    repair: int | None = None
    ref: str | None = None
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


# Webhooks.


class SecretView(BaseModel):
    """Where a webhook's secret is, never what it is. ``made``: generated by ralphd, ``name`` is its file."""

    origin: Literal["file", "environment", "made", "command"]
    name: str


class GoneView(_like(Gone, at=(str, ...))):  # type: ignore[misc]
    """The receiver said that it wants nothing more; that holds until a test arrives, or it is added again."""


class ToldView(_like(StoredEvent, "run_id", "data")):  # type: ignore[misc]
    """The event of a delivery."""


class DeliveryView(BaseModel):
    """One message to one webhook. ``next_at`` is null when it is not sent again; ``why`` it failed last.

    ``given_up`` is kept too, as long as its event; ``message_id`` is the ``webhook-id`` of every try.
    """

    id: int
    webhook: str
    name: str | None
    where: str | None
    message_id: str
    event: ToldView
    state: Literal["pending", "delivered", "given_up"]
    queued_at: str
    failures: int
    next_at: str | None
    why: str | None
    done_at: str | None


class WebhookView(BaseModel):
    """One webhook. ``where`` is the URL without its path, which may be a token; ``last`` is the last message.

    ``origin`` is ``added`` for a webhook added over the API; else ``place`` is the file and line, and
    ``ralphs`` are those whose files name it (null: it gets the events of all).
    """

    id: str
    name: str
    where: str
    on: list[str]
    format: Literal["json", "slack", "ntfy"]
    allow_private: bool
    secret: SecretView | None
    origin: Literal["file", "added"]
    place: str | None
    ralphs: list[str] | None
    added_at: str | None
    gone: GoneView | None
    last: DeliveryView | None


class AddedView(WebhookView):
    """The webhook that was added. ``secret_made``: its secret was generated now, in the file that it names.

    ``replaced``: it had been added before, with the same URL.
    """

    secret_made: bool
    replaced: bool


class WebhooksView(BaseModel):
    """Every webhook."""

    webhooks: list[WebhookView]


class DeliveriesView(BaseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]


class TestedView(BaseModel):
    """The result of a test. ``status`` is null without an answer; ``back``: it had answered 410 before."""

    id: str
    name: str
    where: str
    arrived: bool
    status: int | None
    why: str | None
    took_s: float
    back: bool


# Replies to reports, and explanations.


class VerdictReply(BaseModel):
    """What became of an iteration's commits, and why.

    ``commits`` and ``reverted`` are full shas, newest first. ``task`` is the one whose work was judged,
    ``tail`` the end of what the tests printed that failed.
    """

    kind: Literal["kept", "reverted", "untested"]
    why: str
    commits: list[str]
    reverted: list[str]
    task: TaskView | None
    tail: str


class ReportAnswerView(BaseModel):
    """What to do next, and the verdict on the iteration, where there is one."""

    id: str
    next: Literal["continue", "stop", "pause"]
    verdict: VerdictReply | None


class FigureView(_like(Figure)):  # type: ignore[misc]
    """One thing that was looked at: what was seen, and what it is held against."""


class SilenceView(_like(Explanation, "silence", figures=(list[FigureView], ...))):  # type: ignore[misc]
    """The patience with a run that said nothing: the same as an explanation, without another one inside."""


class ExplanationView(SilenceView):
    """Why the last thing was done to a ralph; of a run that lives, the state of the watch over it.

    ``rule`` is the mark of a rule, ``because`` its words. ``evidence`` is what was saved of a silent run,
    ``verdict`` why the commits of the last iteration that was judged were kept, reverted or neither,
    ``request`` the last request that was carried out, ``{at, action, by}``, ``repair`` the last repair.
    """

    at: str | None = None
    silence: SilenceView | None
    run_id: str | None
    living: bool
    evidence: dict[str, Any] | None
    verdict: SilenceView | None = None
    request: dict[str, Any] | None = None
    repair: dict[str, Any] | None = None


def _text(description: str, *media_types: str) -> dict[str, Any]:
    content = {media_type: {"schema": {"type": "string"}} for media_type in media_types}
    return {"description": description, "content": content}


LOG = _text("The lines, as text or as one JSON object a line.", "text/plain", "application/x-ndjson")
_EVENT = {name: {"type": "string"} for name in ("id", "event", "data")} | {"retry": {"type": "integer"}}
EVENTS: dict[str, Any] = {
    "description": "Server-sent events; ``data`` is JSON.",
    "content": {"text/event-stream": {"itemSchema": {"type": "object", "properties": _EVENT}}},
}
METRICS = _text("The Prometheus text format.", "text/plain")
PROBLEM: dict[str, Any] = {
    "description": "What went wrong, why, and what to do.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
FAULTS: dict[int | str, dict[str, Any]] = {422: PROBLEM, "default": PROBLEM}
"""What every route may answer besides."""


def answers(model: type[BaseModel], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the entry of OpenAPI for a reply: its model, and the first line of the docstring."""
    return {status: {"model": model, "description": (model.__doc__ or "").partition("\n")[0]}}


ACCEPTED = answers(RalphView, 202)


def change_object(change: "Difference") -> dict[str, str | None]:
    """A difference as a reload tells it."""
    return {"key": change.key, "was": change.pinned, "becomes": change.now, "origin": change.origin}
