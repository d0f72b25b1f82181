"""Any order of ends, waits, wishes and answers: what must hold of the loop after each (L1 to L13)."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ralphd.core.failure import FailureKind, meaning
from ralphd.core.ledger import Standing
from ralphd.core.loop_model import (
    Attempting,
    End,
    Judging,
    LoopPolicy,
    Over,
    PauseAsked,
    Rest,
    Resting,
    SaveCheckpoint,
    Skipped,
    StartAttempt,
    StartIteration,
    StopAsked,
    TellAttempt,
    Wish,
    Woke,
)
from ralphd.core.model import Next
from ralphd.core.pool import LONGEST_PROBE_S
from tests.core.loop_scenes import START, Play, reset_in

KINDS = [kind for kind in FailureKind if kind is not FailureKind.AGENT_INCOMPLETE]
LONGEST_RESET_S = 5000.0


class Nights(RuleBasedStateMachine):
    """A loop with three tasks and up to three agents, against a model that only counts."""

    @initialize(
        agents=st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]),
        retries=st.integers(0, 3),
        most=st.integers(0, 4),
        pause=st.booleans(),
    )
    def begin(self, agents: tuple[str, ...], retries: int, most: int, pause: bool) -> None:
        """A list of three tasks."""
        self.policy = LoopPolicy(
            agents=agents,
            retries_before_fallback=retries,
            max_task_failures=most,
            pause_when_exhausted=pause,
            max_rate_limit_wait_s=200.0,
        )
        self.play = Play("A", "B", "C", policy=self.policy)
        self.failed = dict.fromkeys(self.play.ids, 0)
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

    @precondition(lambda self: isinstance(self.play.loop.stage, Judging))
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

    @precondition(resting)
    @rule(share=st.floats(0.0, 0.99))
    def it_wakes_too_early(self, share: float) -> None:
        """Somebody looked at the clock in between."""
        assert isinstance(self.play.loop.stage, Resting)
        before = self.play.loop
        self.play.feed(
            Woke(self.play.now + share * max(self.play.loop.stage.until - self.play.now, 0.0) - 0.001)
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
        assert len(started) <= 1, "two at once"
        assert bool(started) <= isinstance(stage, Attempting)
        assert len(play.ordered(End)) == isinstance(stage, Over) * (bool(play.latest))
        if started:
            assert play.loop.wish is Wish.NONE, "nothing is begun that was asked to end"
            iteration = started[0].iteration
            assert iteration.agent in self.policy.agents
            assert 1.0 <= iteration.timeout_factor <= 4.0
            assert iteration.task.id not in play.done, "a task is done twice"
        if play.ordered(StartIteration) or play.ordered(Rest) or play.ordered(End):
            ended_well = any(end.code == 0 or end.reason == "tasks_failed" for end in play.ordered(End))
            assert play.ordered(SaveCheckpoint) or ended_well, "no checkpoint"
        for rest in play.ordered(Rest):
            longest = max(LONGEST_RESET_S + 60.0, LONGEST_PROBE_S, 900.0)
            assert 0 <= rest.until - play.now <= longest

    @invariant()
    def every_attempt_is_told_once(self) -> None:
        """Of each attempt that ended, what it was."""
        if hasattr(self, "play"):
            started = len(self.play.ordered(StartAttempt, ever=True))
            told = len(self.play.ordered(TellAttempt, ever=True))
            assert started - told == isinstance(self.play.loop.stage, Attempting)

    @invariant()
    def failures_are_counted_where_they_are_the_tasks_fault(self) -> None:
        """And only there."""
        if hasattr(self, "play"):
            counted = {task: self.play.failures(task) for task in self.play.ids}
            assert counted == self.failed

    @invariant()
    def the_iterations_are_counted(self) -> None:
        """As many as were finished; and what is ticked is complete."""
        if hasattr(self, "play"):
            ledger = self.play.loop.ledger
            assert all(ledger[task].standing is Standing.COMPLETE for task in self.play.done)

    def teardown(self) -> None:
        """When the agents are well again, what is left gets done, if no task failed too often."""
        if not hasattr(self, "play"):
            return
        play = self.play
        for _ in range(60):
            stage = play.loop.stage
            if isinstance(stage, Over):
                break
            if isinstance(stage, Attempting):
                play.succeeds()
            elif isinstance(stage, Resting):
                play.wakes()
            else:
                play.judged()
        assert isinstance(play.loop.stage, Over), "the loop never ends"
        if play.end.code == 0:
            assert play.done == set(play.ids)
        assert play.now < START + 60 * LONGEST_PROBE_S * 10


TestNights = Nights.TestCase
