"""Any order of ends, waits, wishes and answers: what must hold of the loop after each (L1 to L13)."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.loop.model import (
    AccountFreed,
    Attempting,
    AwaitingVerdict,
    Began,
    ClearCheckpoint,
    EndLoop,
    Finished,
    FinishIteration,
    HeldBack,
    Loop,
    LoopPolicy,
    LoopWoke,
    PauseAsked,
    PendingRequest,
    ReportAgentBack,
    ReportAgentOut,
    ReportAttempt,
    ReportLost,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
    TaskState,
)
from ralphd.core.loop.pool import LONGEST_PROBE_S
from ralphd.core.supervision.model import Next
from tests.core.loop.scenes import START, Play, reset_in, resumed_at

KINDS = [kind for kind in FailureKind if kind is not FailureKind.AGENT_INCOMPLETE]
LONGEST_RESET_S = 5000.0


class Nights(RuleBasedStateMachine):
    """A loop with three tasks and up to three agents, against a model that only counts."""

    @initialize(
        agents=st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]),
        retries=st.integers(0, 3),
        most=st.integers(0, 4),
        pause=st.booleans(),
        iterations=st.sampled_from([0, 0, 4]),
        rotates=st.booleans(),
    )
    def begin(
        self, agents: tuple[str, ...], retries: int, most: int, pause: bool, iterations: int, rotates: bool
    ) -> None:
        """A list of three tasks."""
        self.policy = LoopPolicy(
            agents=agents,
            rotates=rotates,
            retries_before_fallback=retries,
            max_task_failures=most,
            pause_when_exhausted=pause,
            max_rate_limit_wait_s=200.0,
            max_iterations=iterations,
        )
        self.play = Play("A", "B", "C", policy=self.policy)
        self.failed = dict.fromkeys(self.play.ids, 0)
        self.out: set[str] = set()
        self.at_once = self.finished = self.held = 0
        self.check()

    def attempting(self) -> bool:
        """An agent runs."""
        return isinstance(self.play.loop.stage, Attempting)

    def resting(self) -> bool:
        """The loop waits."""
        return isinstance(self.play.loop.stage, Resting)

    @precondition(attempting)
    @rule(
        kind=st.sampled_from(KINDS), reset_s=st.none() | st.floats(1.0, LONGEST_RESET_S), cost=st.floats(0, 9)
    )
    def it_fails(self, kind: FailureKind, reset_s: float | None, cost: float) -> None:
        """The agent fails, for whatever reason."""
        task = self.play.task
        reset = None if reset_s is None else reset_in(reset_s, self.play.now)
        self.failed[task] += meaning(kind).for_the_task
        self.play.fails(kind, reset=reset, cost_usd=cost, session="s", worked=True)
        self.check()

    @precondition(attempting)
    @rule(promised=st.booleans(), commits=st.integers(0, 2))
    def it_claims(self, promised: bool, commits: int) -> None:
        """The agent says that it is done, and is not."""
        self.failed[self.play.task] += 1
        self.play.succeeds(ticks=False, judged=False, promised=promised, commits=commits)
        self.check()

    @precondition(attempting)
    @rule()
    def it_works(self) -> None:
        """The agent does its task."""
        self.failed[self.play.task] = 0
        self.play.succeeds(judged=False)
        self.check()

    @precondition(attempting)
    @rule(grows=st.booleans())
    def it_does_another_task(self, grows: bool) -> None:
        """The agent does one that is not its own, or adds one to the list and does nothing."""
        others = [task for task in self.play.ids if task not in {*self.play.done, self.play.task}]
        if grows and len(self.play.ids) < 6:
            self.play.ids = (f"T{len(self.play.ids)}", *self.play.ids)
            self.failed[self.play.ids[0]] = 0
            self.failed[self.play.task] += 1
        elif others:
            self.play.done.add(others[0])
            self.failed[others[0]] = 0
        else:
            return
        self.play.succeeds(ticks=False, judged=False)
        self.check()

    @precondition(lambda self: not isinstance(self.play.loop.stage, Finished))
    @rule(later_s=st.floats(0.0, 100.0))
    def the_loop_dies(self, later_s: float) -> None:
        """And goes on from what it had saved."""
        play = self.play
        self.at_once = 0  # its Regent waits before it starts another one
        kept = [order for order in play.orders if isinstance(order, SaveCheckpoint | ClearCheckpoint)][-1]
        resumed = None
        if isinstance(kept, SaveCheckpoint) and (at := kept.iteration) is not None:
            when = kept.resume_at
            resumed = resumed_at(at.task.id, at.attempt, at.agent, at.session, kept.reason, kept.why, when)
        play.now += later_s
        play.loop = Loop(play.loop.memory, play.loop.ledger)
        play.feed(Began(play.now, play.plan, resumed))
        self.check()

    @precondition(lambda self: isinstance(self.play.loop.stage, AwaitingVerdict))
    @rule(answer=st.sampled_from([Next.CONTINUE, Next.CONTINUE, Next.CONTINUE, Next.PAUSE, Next.STOP]))
    def it_is_judged(self, answer: Next) -> None:
        """The boundary is answered."""
        self.play.judged(answer)
        self.check()

    @precondition(resting)
    @rule(skip=st.booleans())
    def the_wait_ends(self, skip: bool) -> None:
        """By the clock, or by a person."""
        if skip:
            self.play.feed(Skipped(self.play.now))
        else:
            self.play.wakes()
        self.check()

    @precondition(attempting)
    @rule(lasts_s=st.floats(1.0, 500.0), brief=st.booleans())
    def its_account_gives_no_permit(self, lasts_s: float, brief: bool) -> None:
        """Another ralph met the limit of the account, or has its last slot."""
        self.held += 1
        self.play.feed(HeldBack(self.play.now, self.play.now + lasts_s, "account x: usage limit", brief))
        self.check()

    @precondition(resting)
    @rule(agent=st.sampled_from(["a", "b"]))
    def an_account_is_freed(self, agent: str) -> None:
        """What held an agent back has changed."""
        self.play.feed(AccountFreed(self.play.now, agent))
        self.check()

    @precondition(resting)
    @rule(share=st.floats(0.0, 0.99))
    def it_wakes_too_early(self, share: float) -> None:
        """Somebody looked at the clock in between."""
        assert isinstance(self.play.loop.stage, Resting)
        before = self.play.loop
        self.play.feed(
            LoopWoke(self.play.now + share * max(self.play.loop.stage.until - self.play.now, 0.0) - 0.001)
        )
        assert self.play.loop == before

    @rule(stop=st.booleans(), likely=st.integers(0, 5))
    def somebody_wishes(self, stop: bool, likely: int) -> None:
        """A pause or a stop, now and then."""
        if likely == 0:
            self.play.feed(StopAsked(self.play.now) if stop else PauseAsked(self.play.now))
            self.check()

    def check(self) -> None:
        """What holds of each answer."""
        play, stage = self.play, self.play.loop.stage
        started = play.ordered(StartAttempt)
        self.out = (self.out | {out.agent for out in play.ordered(ReportAgentOut)}) - {
            back.agent for back in play.ordered(ReportAgentBack)
        }
        self.finished += len(play.ordered(FinishIteration))
        assert play.loop.memory.iteration == self.finished
        went_on = any(not order.failed for order in play.ordered(FinishIteration))
        self.at_once = 0 if play.ordered(Rest) or went_on else self.at_once + len(started)
        most_at_once = 3 * len(self.policy.agents) * (self.policy.retries_before_fallback + 2)
        assert self.at_once <= most_at_once, "it never rests"
        assert len(started) <= 1, "two at once"
        assert bool(started) <= isinstance(stage, Attempting)
        assert len(play.ordered(EndLoop)) == isinstance(stage, Finished) * (bool(play.latest))
        if started:
            assert play.loop.request is PendingRequest.NONE, "nothing is begun that was asked to end"
            iteration = started[0].iteration
            assert iteration.agent in self.policy.agents
            assert iteration.agent not in self.out, "who is asked was told to be back"
            assert not 0 < self.policy.max_iterations <= play.loop.memory.iteration
            most = self.policy.max_task_failures
            assert not most or self.failed[iteration.task.id] <= most, "it has failed too often"
            assert 600.0 <= started[0].timeout_s <= 2400.0
            assert iteration.task.id not in play.done, "a task is done twice"
        if any(isinstance(order, StartIteration | Rest | EndLoop) for order in play.latest):
            ended_well = any(end.code == 0 or end.reason == "tasks_failed" for end in play.ordered(EndLoop))
            assert play.ordered(SaveCheckpoint) or ended_well, "no checkpoint"
        for rest in play.ordered(Rest):
            longest = max(LONGEST_RESET_S + 60.0, LONGEST_PROBE_S, 900.0)
            assert 0 <= rest.until - play.now <= longest

    @invariant()
    def every_attempt_is_told_once(self) -> None:
        """Of each attempt that ended, what it was."""
        if hasattr(self, "play"):
            started = len(self.play.ordered(StartAttempt, ever=True))
            told = len(self.play.ordered(ReportAttempt, ever=True))
            lost = len(self.play.ordered(ReportLost, ever=True))
            assert started - told - lost - self.held == isinstance(self.play.loop.stage, Attempting)

    @invariant()
    def failures_are_counted_where_they_are_the_tasks_fault(self) -> None:
        """And only there; of what was done they are kept until its verdict."""
        if hasattr(self, "play"):
            ledger = self.play.loop.ledger
            tried = {task: ledger[task] for task in self.play.ids if task in ledger}
            counted = {task: 0 if each.unjudged else each.failure_count for task, each in tried.items()}
            assert {task: counted.get(task, 0) for task in self.play.ids} == self.failed
            assert not any(each.unjudged for each in tried.values() if each.state is not TaskState.COMPLETE)

    @invariant()
    def what_is_ticked_is_complete(self) -> None:
        """Whoever ticked it."""
        if hasattr(self, "play"):
            ledger = self.play.loop.ledger
            assert all(ledger[task].state is TaskState.COMPLETE for task in self.play.done)

    def teardown(self) -> None:
        """When the agents are well again, what is left gets done, if no task failed too often."""
        if not hasattr(self, "play"):
            return
        play = self.play
        for _ in range(60):
            stage = play.loop.stage
            if isinstance(stage, Finished):
                break
            if isinstance(stage, Attempting):
                play.succeeds()
            elif isinstance(stage, Resting):
                play.wakes()
            else:
                play.judged()
        assert isinstance(play.loop.stage, Finished), "the loop never ends"
        if play.end.code == 0:
            assert play.done == set(play.ids)
        assert play.now < START + 60 * LONGEST_PROBE_S * 10


TestNights = Nights.TestCase
