"""A loop that is played by hand: its stage, the orders it gave, a clock, a list of tasks that agents tick."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import Reset
from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.loop.model import (
    Attempting,
    AttemptOver,
    AwaitingVerdict,
    Began,
    Checkpoint,
    CheckpointTask,
    EndLoop,
    FinishIteration,
    Judged,
    Ledger,
    Loop,
    LoopEvent,
    LoopOrder,
    LoopPolicy,
    LoopState,
    LoopWoke,
    PauseReason,
    Resting,
    StartAttempt,
)
from ralphd.core.loop.step import step
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.model import Next, ReportedTask
from ralphd.core.time import Moment

T = TypeVar("T", bound=LoopOrder)
TWO = LoopPolicy(agents=("claude", "codex"), jitter=0.0)
START: Moment = 1_800_000_000.0
FAR = START + 1e6


def plan_of(*ids: str, done: Iterable[str] = (), file: str = "prd.json") -> Plan:
    """A list of these tasks, some of them done."""
    ticked = set(done)
    return Plan(
        file,
        tuple(
            Task(id_, f"do {id_}", TaskStatus.DONE if id_ in ticked else TaskStatus.PENDING) for id_ in ids
        ),
    )


def verdict_of(
    boundary: str,
    kind: VerdictKind,
    why: str,
    task: str | None = None,
    commits: tuple[str, ...] = (),
    reverted: tuple[str, ...] = (),
    tail: tuple[str, ...] = (),
    *,
    is_open: bool = False,
) -> Verdict:
    """A verdict as a loop receives it."""
    return Verdict(
        kind,
        why,
        is_open=is_open,
        boundary_id=boundary,
        task=None if task is None else ReportedTask(task),
        commits=commits,
        reverted=reverted,
        tail="\n".join(tail),
    )


def resumed_at(
    task: str | None,
    attempt: int = 0,
    agent: str | None = None,
    session: str | None = None,
    reason: PauseReason = PauseReason.ITERATION_BOUNDARY,
    why: str = "",
    resume_at: Moment | None = None,
    saved_at: Moment = 0.0,
) -> Checkpoint:
    """A checkpoint from which a loop resumes."""
    return Checkpoint(
        created_at=saved_at,
        iteration=1,
        pause_reason=reason,
        task=None if task is None else CheckpointTask(task, "", attempt),
        agent=agent,
        resume_at=resume_at,
        session_id=session,
        why=why,
    )


def reset_in(seconds: float, at: Moment) -> Reset:
    """A limit that is over then."""
    return Reset(at + seconds, "test", Confidence.EXACT)


class Play:
    """One loop under a clock that only the test moves."""

    def __init__(self, *ids: str, policy: LoopPolicy | None = None, begin: bool = True) -> None:
        self.policy = policy or LoopPolicy(jitter=0.0)
        self.ids = ids
        self.done: set[str] = set()
        self.now = START
        self.loop = Loop()
        self.orders: list[LoopOrder] = []
        self.latest: tuple[LoopOrder, ...] = ()
        if begin:
            self.feed(Began(self.now, self.plan))

    @property
    def plan(self) -> Plan | None:
        """What the list says now."""
        return plan_of(*self.ids, done=self.done) if self.ids else None

    def feed(self, event: LoopEvent) -> None:
        """Have the loop answer an event."""
        after = step(self.loop, event, self.policy)
        self.loop, self.latest = after.loop, after.orders
        self.orders += after.orders

    def ordered(self, kind: type[T], *, ever: bool = False) -> list[T]:
        """The orders of a kind that the last event led to, or all so far."""
        return [order for order in (self.orders if ever else self.latest) if isinstance(order, kind)]

    @property
    def attempt(self) -> StartAttempt:
        """The attempt that was ordered last; one has to be under way."""
        assert isinstance(self.loop.stage, Attempting), self.loop.stage
        return self.ordered(StartAttempt, ever=True)[-1]

    @property
    def agent(self) -> str:
        """Who works."""
        return self.attempt.iteration.agent

    @property
    def task(self) -> str:
        """At what."""
        return self.attempt.iteration.task.id

    @property
    def end(self) -> EndLoop:
        """How the loop ended."""
        (end,) = self.ordered(EndLoop, ever=True)
        return end

    @property
    def wait_s(self) -> float:
        """How long the loop rests from now on."""
        assert isinstance(self.loop.stage, Resting), self.loop.stage
        return self.loop.stage.until - self.now

    def failures(self, task: str) -> int:
        """How often a task has failed, by the ledger."""
        return self.loop.ledger[task].failure_count

    def fails(
        self, kind: FailureKind, *, reset: Reset | None = None, took_s: float = 1.0, **facts: object
    ) -> None:
        """The attempt under way fails."""
        self.now += took_s
        assert isinstance(self.loop.stage, Attempting), self.loop.stage
        over = AttemptOver(self.now, Classification(kind, "rule", f"a {kind} failure", reset), self.plan)
        self.feed(replace(over, **facts))  # type: ignore[arg-type]  # of whatever type the field has

    def succeeds(self, *, ticks: bool = True, judged: bool = True, **facts: object) -> None:
        """The attempt under way ends well, its task is ticked, and the boundary is answered: go on."""
        self.now += 1.0
        if ticks and self.ids:
            self.done.add(self.task)
        over = AttemptOver(self.now, Classification(None, "rule", "it ended well"), self.plan, commits=1)
        self.feed(replace(over, **facts))  # type: ignore[arg-type]  # of whatever type the field has
        if judged and isinstance(self.loop.stage, AwaitingVerdict):
            self.judged()

    def judged(self, answer: Next = Next.CONTINUE, *, reopened: tuple[str, ...] = ()) -> None:
        """The boundary is answered."""
        self.judged_with(self.plan, answer, reopened=reopened)

    def judged_with(
        self, plan: Plan | None, answer: Next = Next.CONTINUE, *, reopened: tuple[str, ...] = ()
    ) -> None:
        """The boundary is answered, while the list says something else."""
        assert self.ordered(FinishIteration, ever=True)
        verdict = None
        if reopened:
            (task,) = reopened
            shas = ("abc1234",)
            where, why = f"r1/{len(self.orders)}", "the tests failed"
            verdict = verdict_of(where, VerdictKind.REVERTED, why, task, shas, shas, ("1 failed",))
        self.feed(Judged(self.now, answer, plan, verdict))

    def wakes(self) -> None:
        """The wait is over."""
        assert isinstance(self.loop.stage, Resting), self.loop.stage
        self.now = max(self.now, self.loop.stage.until)
        self.feed(LoopWoke(self.now))


def begun(
    *tasks: str,
    policy: LoopPolicy = TWO,
    done: tuple[str, ...] = (),
    memory: LoopState | None = None,
    ledger: Ledger | None = None,
    failing: int = 0,
    resumed: Checkpoint | None = None,
) -> Play:
    """A loop that begins with what an earlier one left behind."""
    play = Play(*tasks, policy=policy, begin=False)
    play.done = set(done)
    play.loop = Loop(memory or LoopState(), ledger or {}, failing=failing)
    play.feed(Began(play.now, play.plan, resumed))
    return play
