"""The terms of the loop: its rules, its state, its events and its orders.

Every pass of the loop is one ``step`` (``core/loop/step``): an event comes in, the next ``Loop`` and the
orders come out. ``ralphd/loop`` saves the new state before it carries the orders out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import GateNews, RevertNotice
from ralphd.core.limits import UserLimits
from ralphd.core.time import Moment

# These three at run time: the codec of the state files reads the annotations.
from ralphd.dataclass import dataclass

if TYPE_CHECKING:
    from ralphd.core.failures.classify import Classification
    from ralphd.core.gate.verdict import Verdict
    from ralphd.core.plan import Plan, Task
    from ralphd.core.supervision.model import Next

# What the loop keeps between its runs: the record of each task, the agents' cooldowns, the checkpoint.


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
    multiplies the time limit of its next attempt, by any agent. ``attempts`` counts all that were started;
    ``last_attempt``, ``last_agent`` and ``last_lines`` (of its output) are those of the last failure.
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
    attempts: int = 0
    last_attempt: int = 0
    last_agent: str = ""
    last_lines: tuple[str, ...] = ()


Ledger: TypeAlias = Mapping[str, TaskRecord]
"""The records by task id. Never changed in place."""


@dataclass(frozen=True, slots=True)
class Cooldown:
    """An agent that is not asked. ``until`` None: until you act. ``probes``: tries so far.

    ``back``: it returned to the pool, and stays listed until it has worked once, so that the next wait for an
    unknown reset is longer. ``guessed``: the service named no reset. ``for_slot``: all slots of its account
    are in use, and ``until`` is when to ask again at the latest.
    """

    agent: str
    reason: str
    until: Moment | None = None
    probes: int = 0
    back: bool = False
    guessed: bool = False
    for_slot: bool = False


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
    verdict was applied last. ``notes_read`` is the id of the last note of a person that an agent got, and
    ``tasks`` how many are done, and how many there are, for readers too.
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
    notes_read: int = 0
    tasks: tuple[int, int] | None = None


# The checkpoint: where a loop was, and why it waits or ended. Written by the loop, read by everyone.

CHECKPOINT_VERSION = 1


class PauseReason(StrEnum):
    """Why a checkpoint was saved. For ``error`` the checkpoint's ``why`` gives the details."""

    ITERATION_BOUNDARY = "iteration_boundary"
    USAGE_LIMIT = "usage_limit"
    RATE_LIMIT = "rate_limit"
    OUTAGE = "outage"
    RESOURCES = "resources"
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
    """``checkpoint.json``, key by key. ``head_commit``, ``uncommitted_files``, ``snapshot_ref``: see git.

    ``resumes_session`` False: the session is named for people only; the next attempt starts a new one.
    """

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
    resumes_session: bool = True
    total_cost_usd: float = 0.0
    why: str = ""

    @property
    def waits_for_limit(self) -> bool:
        """Return whether the loop ended to wait for a limit; without ``resume_at`` another took over."""
        return self.pause_reason is PauseReason.USAGE_LIMIT and self.resume_at is not None


@dataclass(frozen=True, slots=True)
class LoopPolicy(UserLimits):
    """The rules of one loop, from its pinned configuration. Defaults are the configuration's.

    ``agents`` may be asked, the primary first: in this order (L2), or with ``rotates`` in turns, an iteration
    each, and a failure ends the turn (L3). ``reviews``: a task is done when its review says so (L14).
    ``pause_when_exhausted``: with no agent left before a reset the loop ends with 75 instead of waiting.
    """

    agents: tuple[str, ...] = ("claude",)
    rotates: bool = False
    reviews: bool = False
    retries_before_fallback: int = 2
    max_task_failures: int = 5
    timeout_s: float = 600.0
    iteration_timeout_s: float = 900.0
    same_agent_base_s: float = 2.0
    transient_retries: int = 3
    base_s: float = 1.0
    max_s: float = 60.0
    jitter: float = 0.1
    rate_limit_s: float = 60.0
    max_rate_limit_wait_s: float = 3600.0
    reset_margin_s: float = 60.0
    outage_max_wait_s: float = 900.0
    pause_when_exhausted: bool = False


class PendingRequest(StrEnum):
    """A request that takes effect at the next boundary, if there is one."""

    NONE = "none"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Previous:
    """The previous attempt, for the prompt of the next one.

    ``attempt`` counts all attempts at the task; 0: the number and the agent are not known.
    """

    attempt: int
    agent: str
    kind: FailureKind
    why: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration:
    """The iteration in progress.

    ``attempt`` counts its attempts, ``nth`` all attempts at its task, ``tries`` the failures of the present
    agent that count (L2), ``transient_tries`` its retries after transient ones. ``passed`` are the agents
    that had their turn, ``shaky`` those with only transient failures: when all agents of the pool are, it is
    an outage, and ``outage`` counts its waits. ``rate_waited_s``: all waits for the agent's rate limits.
    ``reverted`` is the revert of the task's last commits (R9). ``last_session`` is the last attempt's, worth
    resuming or not. ``commits`` counts those of all its attempts, ``made`` those of the last one.
    """

    number: int
    task: Task
    agent: str
    attempt: int = 0
    tries: int = 0
    transient_tries: int = 0
    outage: int = 0
    rate_waited_s: float = 0.0
    passed: tuple[str, ...] = ()
    shaky: tuple[str, ...] = ()
    session: str | None = None
    previous: Previous | None = None
    commits: int = 0
    made: int = 0
    reverted: RevertNotice | None = None
    nth: int = 0
    last_session: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """The loop has not begun."""


@dataclass(frozen=True, slots=True)
class Attempting:
    """An agent runs."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Resting:
    """Nothing runs until a moment. ``for_an_agent``: until an agent returns, else until the next attempt.

    ``why`` is the reason in words.
    """

    iteration: Iteration
    since: Moment
    until: Moment
    reason: PauseReason
    for_an_agent: bool = False
    why: str = field(default="", compare=False)

    @property
    def lasts_s(self) -> float:
        """Return the length of the whole wait."""
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class AwaitingVerdict:
    """The iteration is reported (L9). ``promised``: the agent declared that everything is done.

    ``did_another``: it succeeded, but did another task than the one that it was given.
    """

    iteration: Iteration
    promised: bool
    did_another: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The loop has ended with an exit code (L11)."""

    code: int


Stage: TypeAlias = Begin | Attempting | Resting | AwaitingVerdict | Finished


@dataclass(frozen=True, slots=True)
class Loop:
    """The state of the loop. ``plan`` is the last readable list; None: there is none.

    ``failing`` counts the failed iterations in a row. ``shaky`` are the agents of the last turns with only
    transient failures (L3). ``pause_why`` is why the Regent requests a pause, if no person does. ``losses``
    are the last iterations in a row that lost the task list.
    """

    memory: LoopState = field(default_factory=LoopState)
    ledger: Ledger = field(default_factory=dict)
    plan: Plan | None = None
    stage: Stage = field(default_factory=Begin)
    request: PendingRequest = PendingRequest.NONE
    failing: int = 0
    shaky: tuple[str, ...] = ()
    pause_why: str = ""
    losses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Fact:
    at: Moment


@dataclass(frozen=True, slots=True)
class Began(_Fact):
    """The loop begins, at the checkpoint ``resumed`` if there is one."""

    plan: Plan | None
    resumed: Checkpoint | None = None
    gate: GateNews = GateNews()


@dataclass(frozen=True, slots=True)
class AttemptOver(_Fact):
    """An attempt has ended and its tree is gone. ``plan`` is the current list; ``chance`` is random.

    ``worked``: its session is worth resuming; ``promised``: its last message has the promise. ``halted`` says
    why a person has to act before anything continues, whether the attempt succeeded or not. ``notes_read`` is
    the id of the last note of a person in its prompt. ``lost`` says how the attempt lost the task list, which
    has been restored since.
    """

    finding: Classification
    plan: Plan | None
    commits: int = 0
    cost_usd: float = 0.0
    session: str | None = None
    worked: bool = False
    promised: bool = False
    lines: tuple[str, ...] = ()
    chance: float = 0.5
    halted: str = ""
    notes_read: int = 0
    lost: str = ""


@dataclass(frozen=True, slots=True)
class HeldBack(_Fact):
    """The attempt did not start: its account has a limit, no free slot, or a probe (Q2, Q3, Q6).

    ``brief``: a matter of minutes, for which a loop never ends with 75. ``for_slot``: only a slot is missing.
    """

    until: Moment
    why: str
    brief: bool = False
    for_slot: bool = False


@dataclass(frozen=True, slots=True)
class AccountFreed(_Fact):
    """What held the agent's account back has changed: it may be asked for a permit again."""

    agent: str


class LoopWoke(_Fact):
    """The wait may be over."""


class Skipped(_Fact):
    """A person ends the wait, at their own risk (L12)."""


@dataclass(frozen=True, slots=True)
class Judged(_Fact):
    """The answer to a finished iteration. ``unheard``: the loop stopped waiting before the verdict (R9)."""

    next: Next
    plan: Plan | None
    verdict: Verdict | None = None
    unheard: bool = False


class PauseAsked(_Fact):
    """Pause after this iteration (L12)."""


class StopAsked(_Fact):
    """End after this iteration."""


LoopEvent: TypeAlias = (
    Began | AttemptOver | HeldBack | AccountFreed | LoopWoke | Skipped | Judged | PauseAsked | StopAsked
)


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write the checkpoint, before any later order is carried out."""

    reason: PauseReason
    iteration: Iteration | None
    resume_at: Moment | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClearCheckpoint:
    """Remove the checkpoint: the task is done."""


@dataclass(frozen=True, slots=True)
class StartIteration:
    """Report the iteration, and pull if configured."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class StartAttempt:
    """Run the iteration's agent on its task.

    ``timeout_s`` bounds one agent process, ``budget_s`` the attempt with its phases; 0: no limit.
    """

    iteration: Iteration
    timeout_s: float
    budget_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReportAttempt:
    """Report the end of an attempt, and what comes ``next``, in words; ``until`` is the end of a wait."""

    iteration: Iteration
    kind: FailureKind | None
    rule: str
    why: str
    next: str
    until: Moment | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Report an attempt that was cut off with its loop: its end and its cost are not known."""

    lost: InFlight


@dataclass(frozen=True, slots=True)
class ReportAgentOut:
    """Report an agent's cooldown; None: until you act."""

    agent: str
    reason: str
    until: Moment | None


@dataclass(frozen=True, slots=True)
class ReportAgentBack:
    """Report the return of an agent to the pool."""

    agent: str


@dataclass(frozen=True, slots=True)
class Handoff:
    """Append a note for the next agent (``handoff.md``); an empty one clears them."""

    note: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait until then at the latest; report why. ``logged``: the line of the failed attempt has it."""

    until: Moment
    reason: PauseReason
    why: str
    logged: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class EndRest:
    """Report the end of the wait."""


@dataclass(frozen=True, slots=True)
class FinishIteration:
    """Report a boundary, bring back the answer, and push (L9)."""

    iteration: Iteration
    failed: bool
    complete: bool
    summary: str


@dataclass(frozen=True, slots=True)
class EndLoop:
    """End the loop with ``code`` (L11); ``reason`` is a word, ``why`` a sentence for people."""

    code: int
    reason: str
    why: str
    resume_at: Moment | None = None
    logged: bool = False


ReportOrder: TypeAlias = (
    ReportAttempt | ReportLost | ReportAgentOut | ReportAgentBack | Rest | EndRest | EndLoop
)
"""The orders that only report."""
LoopOrder: TypeAlias = (
    SaveCheckpoint | ClearCheckpoint | StartIteration | StartAttempt | Handoff | FinishIteration | ReportOrder
)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """The loop after an event, and the orders to carry out in this sequence."""

    loop: Loop
    orders: tuple[LoopOrder, ...] = ()

    def preceded_by(self, *orders: LoopOrder) -> LoopStep:
        """Return the step with ``orders`` before its own."""
        return LoopStep(self.loop, (*orders, *self.orders))
