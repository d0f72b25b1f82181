"""The nouns of the loop: what it is held to, where it is, what happens to it, and the orders it gives.

Every pass of the loop is one ``step`` (``core/loop/step``): an event comes in, the next ``Loop`` and the
orders go out. ``ralphd/loop`` saves the new state before it carries them out.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.gate.verdict_views import RevertNotice, VerdictMessage
from ralphd.core.loop.state import InFlight, Ledger, LoopState, PauseReason
from ralphd.core.plan import Plan, Task
from ralphd.core.supervision.model import Next
from ralphd.core.time import Moment


@dataclass(frozen=True, slots=True)
class LoopPolicy:
    """The rules of one loop, from its pinned configuration. Defaults are the configuration's.

    ``agents`` are those who may be asked, the primary first. ``pause_when_exhausted``: when none is left
    before a limit resets the loop ends with 75 instead of waiting. ``rotates``: each iteration is the turn of
    the next of them, and one that fails ends it (L3); else they are asked in this order (L2). ``reviews``: a
    task is done when its review says so (L14).
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
    max_iterations: int = 0
    max_cost_usd: float = 0.0
    max_runtime_s: float = 0.0


class PendingRequest(StrEnum):
    """What was asked of the loop: nothing, to pause, to end."""

    NONE = "none"
    PAUSE = "pause"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Previous:
    """The attempt before this one, for the prompt of the next (000-T2).

    Of one in an earlier iteration or run nothing is known but what the ledger remembers: no number, no agent.
    """

    attempt: int
    agent: str
    kind: FailureKind
    why: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Iteration:
    """The iteration under way.

    ``attempt`` counts all attempts at it, ``tries`` the failures of the present agent that count (L2),
    ``transient_tries`` its retries after transient ones. ``passed`` are the agents that had their turn,
    ``shaky`` those that had only transient failures: when all at hand are, it is an outage, and ``outage``
    counts its waits. ``rate_waited_s`` is what was waited for the present agent's rate limits in all.
    ``reverted`` is what became of the task's last commits, where they did not stay (R9).
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
    reverted: RevertNotice | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a failed turn leaves to the next agent: the task's last attempt.

    ``shaky`` are those who had the last turns running and met only transient failures.
    """

    task_id: str
    previous: Previous | None
    shaky: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """Nothing was done yet."""


@dataclass(frozen=True, slots=True)
class Attempting:
    """An agent runs."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Resting:
    """Nothing runs until a moment. ``for_an_agent``: for one to come back, else for the next attempt.

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
        """How long the whole wait is."""
        return self.until - self.since


@dataclass(frozen=True, slots=True)
class AwaitingVerdict:
    """The iteration is reported, and its verdict awaited (L9). ``promised``: the agent says all is done."""

    iteration: Iteration
    promised: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The loop has ended with an exit code (L11)."""

    code: int


Stage: TypeAlias = Begin | Attempting | Resting | AwaitingVerdict | Finished


@dataclass(frozen=True, slots=True)
class Loop:
    """All that the loop knows. ``plan`` is the last one that could be read; None where there is no list.

    ``failing`` counts the iterations running that failed. ``rotation`` is there after a failed turn (L3).
    ``pause_why`` is why the Regent wants a pause, where a person did not.
    """

    memory: LoopState = field(default_factory=LoopState)
    ledger: Ledger = field(default_factory=dict)
    plan: Plan | None = None
    stage: Stage = field(default_factory=Begin)
    request: PendingRequest = PendingRequest.NONE
    failing: int = 0
    rotation: Rotation | None = None
    pause_why: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a checkpoint of ``saved_at`` says that the loop was; why it waited there, until ``resume_at``."""

    task_id: str | None
    attempt: int = 0
    agent: str | None = None
    session: str | None = None
    reason: PauseReason = PauseReason.ITERATION_BOUNDARY
    why: str = ""
    resume_at: Moment | None = None
    saved_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """The loop begins. ``verdict``: one that no loop heard. ``undone``: boundaries a person has put back."""

    at: Moment
    plan: Plan | None
    resumed: Resumed | None = None
    verdict: VerdictMessage | None = None
    undone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """An attempt has ended and its tree is gone. ``plan`` is what the list says now; ``chance`` is a die.

    ``worked``: its session is worth resuming; ``promised``: it gave the promise in its last message.
    ``halted`` says why nothing can go on before a person acts, be the attempt's own end good or bad.
    """

    at: Moment
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


@dataclass(frozen=True, slots=True)
class LoopWoke:
    """The clock may have reached the end of a wait."""

    at: Moment


@dataclass(frozen=True, slots=True)
class Skipped:
    """A person does not want to wait any longer, at their own risk (L12)."""

    at: Moment


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer to a finished iteration. ``unheard``: nobody waits any more for the verdict (R9)."""

    at: Moment
    next: Next
    plan: Plan | None
    verdict: VerdictMessage | None = None
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """Pause after this iteration (L12)."""

    at: Moment


@dataclass(frozen=True, slots=True)
class StopAsked:
    """End after this iteration."""

    at: Moment


LoopEvent: TypeAlias = Began | AttemptOver | LoopWoke | Skipped | Judged | PauseAsked | StopAsked


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write the checkpoint, before whatever is ordered after it."""

    reason: PauseReason
    iteration: Iteration | None
    resume_at: Moment | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClearCheckpoint:
    """The task is done: nothing is to be resumed."""


@dataclass(frozen=True, slots=True)
class StartIteration:
    """An iteration begins: tell the Regent, pull where that is wanted."""

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
    """An attempt was judged: tell the Regent what it was and what comes ``next``, in words."""

    iteration: Iteration
    kind: FailureKind | None
    rule: str
    why: str
    next: str


@dataclass(frozen=True, slots=True)
class ReportLost:
    """An attempt was cut off with the loop that ran it: nobody knows how it ended, or what it cost."""

    lost: InFlight


@dataclass(frozen=True, slots=True)
class ReportAgentOut:
    """An agent is out of the pool until then; None: until a person acts."""

    agent: str
    reason: str
    until: Moment | None


@dataclass(frozen=True, slots=True)
class ReportAgentBack:
    """An agent may be asked again."""

    agent: str


@dataclass(frozen=True, slots=True)
class Handoff:
    """Leave a note for the next agent (``handoff.md``); empty: there is nothing to say any more."""

    note: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait, and wake up then at the latest; tell the Regent and whoever reads the log why."""

    until: Moment
    reason: PauseReason
    why: str


@dataclass(frozen=True, slots=True)
class EndRest:
    """The wait is over before its time."""


@dataclass(frozen=True, slots=True)
class FinishIteration:
    """A boundary: report it, bring back the answer, and push (L9)."""

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


LoopOrder: TypeAlias = (
    SaveCheckpoint
    | ClearCheckpoint
    | StartIteration
    | StartAttempt
    | ReportAttempt
    | ReportLost
    | ReportAgentOut
    | ReportAgentBack
    | Handoff
    | Rest
    | EndRest
    | FinishIteration
    | EndLoop
)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """The loop as it is after an event, and what is to be done about it, in this order."""

    loop: Loop
    orders: tuple[LoopOrder, ...] = ()

    def preceded_by(self, *orders: LoopOrder) -> "LoopStep":
        """Return the step with ``orders`` before its own."""
        return LoopStep(self.loop, (*orders, *self.orders))
