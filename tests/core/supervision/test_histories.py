"""Any order of requests, ends, clocks and daemon deaths, against a model of one fact: is there a process?"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ralphd.core.supervision.events import (
    Committed,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GraceOver,
    Overran,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    Idle,
    KillAfter,
    KillTree,
    Mode,
    Next,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    Restart,
    RunId,
    Running,
    RunReports,
    Spawn,
    Starting,
    Stopped,
    Stopping,
    Supervision,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    Cost,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    Reported,
    WaitingUntil,
    answer,
)
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import has_boundaries
from ralphd.core.time import Moment
from tests.core.supervision.scenes import NOW

POLICIES = [
    Policy(),
    Policy(max_retries=1_000, max_restarts_per_hour=2),
    Policy(restart=Restart.ALWAYS),
    Policy(restart=Restart.NEVER),
    Policy(mode=Mode.ITERATION, max_iterations=3),
    Policy(supervised=False),
    Policy(max_iterations=2, max_retries=1_000),
    Policy(max_cost_usd=1.0, restart=Restart.ALWAYS),
]
REPORTS: dict[str, Report] = {
    "hello": Hello(),
    "hello, and knows our signals": Hello(signals=True),
    "an iteration begins": IterationStarted(),
    "an iteration is finished": IterationFinished(),
    "an iteration has failed": IterationFinished(failed=True),
    "it lives": Heartbeat(),
    "it cost something": Cost(0.4),
    "no longer waiting": WaitingUntil(None),
}
REQUESTS: dict[str, Callable[[Moment], Event]] = {
    "start": StartRequested,
    "stop": StopRequested,
    "stop now": lambda at: StopRequested(at, now=True),
    "pause": PauseRequested,
    "resume": ResumeRequested,
    "restart": RestartRequested,
    "skip the wait": SkipWaitRequested,
}
ASKS = (
    StartRequested, StopRequested, PauseRequested, ResumeRequested, RestartRequested, SkipWaitRequested,
)  # fmt: skip
SETTLED = (Idle, Stopped, Failed, Done)
RESTING = {
    Goal.RUNNING: (Running, Waiting, Paused, Failed, Done),
    Goal.PAUSED: (Paused, Failed),
    Goal.STOPPED: (Idle, Stopped, Failed, Done),
}


@dataclass(slots=True)
class World:
    """What is so, whoever looks: one process at most, and what the ended ones left behind."""

    clock: Moment = NOW
    process: RunId | None = None
    born: int = 0

    def bear(self) -> RunId:
        """A process; to have two of them is what must never happen."""
        assert self.process is None, "a second Ralph"
        self.born += 1
        self.process = RunId(f"r{self.born:06}-00000000")
        return self.process


class Histories(RuleBasedStateMachine):
    """One ralph. What a step answers is on disk before any of its orders is carried out.

    The hands of the daemon are this class: they carry orders out one by one, and may die between any two.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.on_disk = Supervision()
        self.policy = Policy()
        self.is_up = True
        self.is_ending = False
        self.orders: list[Action] = []
        self.facts: list[Event] = []
        self.wake_ups: list[Moment] = []
        self.graces: list[RunId] = []
        self.may_start = False
        self.records: dict[RunId, ExitFacts] = {}
        self.exits_told: Counter[RunId] = Counter()
        self.errors_at_birth: dict[RunId, int] = {}
        self.reported = 0
        self.latest: tuple[Reported, Next] | None = None

    @initialize(policy=st.sampled_from(POLICIES), things=st.integers(0, 2))
    def a_ralph_is_registered_and_started(self, policy: Policy, things: int) -> None:
        self.policy = policy
        self.feed(StartRequested(self.world.clock))
        self.the_daemon_goes_on(things)

    def feed(self, event: Event) -> None:
        before = self.on_disk
        answer = step(before, event, self.policy)
        self.on_disk = answer.supervision
        if isinstance(event, ASKS) and why_not(before, event) is None:
            self.may_start = not isinstance(event, StopRequested | PauseRequested)
        assert self.may_start or Spawn() not in answer.actions, "a start that nobody wants"
        self.orders += [a for a in answer.actions if not isinstance(a, Announce | Escalate)]
        if isinstance(self.on_disk.state, HAS_A_RUN):
            errors = self.on_disk.tally.consecutive_errors
            self.errors_at_birth.setdefault(self.on_disk.state.run_id, errors)
        if isinstance(event, RunEnded) and event.ending.run_id == getattr(before.state, "run_id", None):
            self.judge(before, event.ending)
        if isinstance(event, RunEnded):
            told = sum(isinstance(a, Announce) and a.type == "ralph.exited" for a in answer.actions)
            self.exits_told[event.ending.run_id] += told
        called = sum(isinstance(a, Escalate) for a in answer.actions)
        assert called <= int(
            isinstance(answer.supervision.state, Failed) and before.state != self.on_disk.state
        )

    def judge(self, before: Supervision, ending: ExitFacts) -> None:
        """What an end must lead to, whatever else happened."""
        after = self.on_disk
        if isinstance(before.state, Running) and before.state.overdue is Overdue.STALL and ending.code != 0:
            assert after.tally.consecutive_errors == self.errors_at_birth[ending.run_id] + 1, "C3"
        if isinstance(before.state, Stopping) and before.said.limit is not None and not before.state.again:
            assert isinstance(after.state, Done) and after.state.why == "limit"
        if isinstance(before.state, Pausing):
            assert isinstance(after.state, Paused)

    # the daemon's hands

    def carry_out(self, order: Action) -> None:
        match order:
            case Spawn():
                self.facts.append(Spawned(self.world.clock, self.world.bear()))
            case Terminate(run_id) | PassOn(run_id):
                assert run_id == self.world.process or run_id in self.records
            case KillTree(run_id):
                if run_id == self.world.process:
                    self.end(ExitFacts(run_id, self.world.clock, signal=9))
            case KillAfter(run_id, _):
                self.graces.append(run_id)
            case WakeAt(at):
                self.wake_ups.append(at)

    def end(self, ending: ExitFacts) -> None:
        assert self.world.process == ending.run_id
        self.world.process = None
        self.records[ending.run_id] = ending
        if self.is_up:
            self.facts.append(RunEnded(ending))

    def hear(self, fact: Event) -> None:
        """What is told twice, by an event and by what is on disk, is answered once."""
        self.feed(fact)
        if isinstance(fact, RunEnded):
            after = self.on_disk
            self.feed(fact)
            assert self.on_disk == after
        if self.is_ending and isinstance(fact, Spawned):
            self.feed(DaemonStopping(self.world.clock))  # born too late to have been asked before

    def go_on(self) -> bool:
        """Do the next thing there is to do: an order, else a fact. False when there is none."""
        if self.orders:
            self.carry_out(self.orders.pop(0))
        elif self.facts:
            self.hear(self.facts.pop(0))
        else:
            return False
        return True

    @precondition(lambda self: self.is_up and (self.orders or self.facts))
    @rule(things=st.integers(1, 4))
    def the_daemon_goes_on(self, things: int) -> None:
        for _ in range(things):
            self.go_on()

    @precondition(lambda self: self.is_up and self.orders and isinstance(self.orders[0], Spawn))
    @rule(why=st.sampled_from([SpawnFailed, SpawnPostponed]))
    def a_start_does_not_succeed(self, why: type[SpawnFailed] | type[SpawnPostponed]) -> None:
        self.orders.pop(0)
        self.facts.append(why(self.world.clock, "no such file"))

    # people

    @precondition(lambda self: self.is_up and not self.is_ending)
    @rule(what=st.sampled_from(sorted(REQUESTS)))
    def someone_asks(self, what: str) -> None:
        """What does not fit changes nothing, and then they start it."""
        before, request = self.on_disk, REQUESTS[what](self.world.clock)
        self.feed(request)
        if why_not(before, request) is not None or isinstance(before.state, SETTLED):
            self.feed(StartRequested(self.world.clock))

    # processes

    @precondition(lambda self: self.world.process)
    @rule(
        code=st.sampled_from([None, 0, 1, 2, 5, 75]),
        committed=st.booleans(),
        reset_s=st.sampled_from([None, 10.0, 3600.0]),
    )
    def the_run_ends(self, code: int | None, committed: bool, reset_s: float | None) -> None:
        assert self.world.process is not None
        at = self.world.clock
        resume_at = None if reset_s is None else at + reset_s
        self.end(
            ExitFacts(
                self.world.process, at, code=code, committed=committed,
                pause_reason="usage_limit", resume_at=resume_at,
            )
        )  # fmt: skip

    # what a run says, and what is seen of it

    @precondition(lambda self: self.is_up and self.world.process)
    @rule(what=st.sampled_from(sorted(REPORTS)))
    def the_run_reports(self, what: str) -> None:
        self.say(REPORTS[what])

    @precondition(lambda self: self.is_up and self.world.process)
    @rule(seconds=st.sampled_from([-10.0, 20.0, 7200.0]))
    def the_run_waits(self, seconds: float) -> None:
        self.say(WaitingUntil(self.world.clock + seconds))

    def say(self, report: Report) -> None:
        assert self.world.process is not None
        self.reported += 1
        event = Reported(self.world.clock, self.world.process, str(self.reported), repr(report), report)
        before, refused = self.on_disk, why_not(self.on_disk, event) is not None
        self.feed(event)
        if refused:
            assert self.on_disk == before
        else:
            self.latest = (event, answer(self.on_disk, event.id))
            self.the_last_report_is_sent_again()

    @precondition(lambda self: self.is_up and self.latest and self.latest[0].run_id == self.world.process)
    @rule()
    def the_last_report_is_sent_again(self) -> None:
        """After a restart of the daemon, too: it is acted upon once, and answered as it was."""
        assert self.latest is not None
        event, answered = self.latest
        before, orders = self.on_disk, list(self.orders)
        if why_not(before, event) is not None:  # its birth is not yet heard of
            return
        self.feed(event)
        assert (self.on_disk, self.orders) == (before, orders)
        if not isinstance(event.report, Heartbeat):
            assert answer(self.on_disk, event.id) is answered

    @precondition(lambda self: self.is_up and self.world.process)
    @rule(overdue=st.sampled_from(Overdue))
    def the_run_is_overdue(self, overdue: Overdue) -> None:
        assert self.world.process is not None
        self.feed(FellSilent(self.world.clock, self.world.process, "silent"))
        self.feed(Overran(self.world.clock, self.world.process, overdue, "hung"))

    @precondition(lambda self: self.is_up and self.world.process)
    @rule()
    def the_run_commits(self) -> None:
        assert self.world.process is not None
        before = self.on_disk
        self.feed(Committed(self.world.clock, self.world.process, 2))
        counts = isinstance(before.state, HAS_A_RUN) and not before.said.iterates
        counts = counts and self.policy.mode is Mode.LOOP
        assert self.on_disk.tally.iteration == before.tally.iteration + 2 * counts

    # clocks

    @precondition(
        lambda self: (
            not isinstance(self.on_disk.state, (Running, *SETTLED)) or self.on_disk.said.wait is not None
        )
    )
    @rule(seconds=st.sampled_from([0.5, 31.0, 4000.0, -5.0, -86_400.0]))
    def the_clock_tells_another_time(self, seconds: float) -> None:
        self.world.clock += seconds
        if self.is_up and not self.is_ending:
            self.wake_ups = [at for at in self.wake_ups if at > self.world.clock]
            self.feed(Woke(self.world.clock))

    @precondition(lambda self: self.is_up and self.graces)
    @rule()
    def a_grace_is_over(self) -> None:
        self.feed(GraceOver(self.world.clock, self.graces.pop(0)))

    # daemons

    @precondition(lambda self: self.is_up and not isinstance(self.on_disk.state, SETTLED))
    @rule()
    def the_daemon_is_killed(self) -> None:
        """Between any two orders; what was told and not yet heard goes with it."""
        self.is_up = self.is_ending = False
        self.orders, self.facts, self.wake_ups, self.graces = [], [], [], []

    @precondition(lambda self: self.is_up and not self.is_ending)
    @rule(now=st.booleans())
    def the_daemon_is_asked_to_end(self, now: bool) -> None:
        self.is_ending = True
        self.feed(DaemonStopping(self.world.clock, now))

    @precondition(lambda self: self.is_up and self.is_ending)
    @rule()
    def the_deadline_of_the_daemon_has_passed(self) -> None:
        """A run that ends at its boundary is waited for so long, and then killed."""
        self.feed(DaemonStopping(self.world.clock, now=True))

    @precondition(
        lambda self: (
            self.is_ending
            and not (self.orders or self.facts or self.graces)
            and not self.waits_for_a_boundary()
        )
    )
    @rule()
    def the_daemon_has_ended(self) -> None:
        assert not isinstance(self.on_disk.state, (*HAS_A_RUN, Starting))
        assert self.world.process is None
        self.the_daemon_is_killed()

    @precondition(lambda self: not self.is_up)
    @rule(ends_first=st.booleans())
    def a_daemon_starts(self, ends_first: bool) -> None:
        """A newborn that nobody has heard of is found by its directory, before anything else is done.

        What an end leads to that was missed is carried out, before it is told that a daemon has started.
        """
        self.is_up = True
        found = self.unheard_end()
        if isinstance(self.on_disk.state, Starting) and found:
            self.feed(Spawned(found.at, found.run_id))
            self.facts.clear()
            ends_first = True
        if found and ends_first:
            self.feed(RunEnded(found))
            while self.go_on():
                pass
        self.feed(DaemonStarted(self.world.clock, self.world.process))
        if found and not ends_first:
            self.feed(RunEnded(found))

    def unheard_end(self) -> ExitFacts | None:
        """The end of the newest run, where nobody was told of it."""
        newest = RunId(f"r{self.world.born:06}-00000000")
        return self.records.get(newest) if not self.exits_told[newest] else None

    def waits_for_a_boundary(self) -> bool:
        state = self.on_disk.state
        return isinstance(state, Pausing | Stopping) and state.kill_at is None

    # what holds at every moment

    @invariant()
    def nothing_runs_unwatched(self) -> None:
        if self.world.process is None:
            return
        unheard = any(isinstance(fact, Spawned) for fact in self.facts)
        watched = (
            isinstance(self.on_disk.state, HAS_A_RUN) and self.on_disk.state.run_id == self.world.process
        )
        assert watched or isinstance(self.on_disk.state, Starting)
        assert watched or unheard or not self.is_up

    @invariant()
    def nothing_is_watched_that_is_not_there(self) -> None:
        if self.is_up and isinstance(self.on_disk.state, HAS_A_RUN):
            unheard = any(isinstance(fact, RunEnded) for fact in self.facts)
            assert unheard or self.world.process == self.on_disk.state.run_id

    @invariant()
    def every_end_is_answered_once(self) -> None:
        assert all(times <= 1 for times in self.exits_told.values())
        if self.is_up and not self.facts:
            assert all(self.exits_told[run_id] == 1 for run_id in self.records)

    @invariant()
    def every_wait_has_its_wake_up_call(self) -> None:
        if not self.is_up or self.orders:
            return
        match self.on_disk.state:
            case Waiting(until=until) | Paused(resume_at=float() as until):
                assert until in self.wake_ups
            case Running() | Pausing() | Stopping() if self.on_disk.said.wait is not None:
                assert self.on_disk.said.wait.until in self.wake_ups

    @invariant()
    def nothing_is_said_but_by_the_run_that_lives(self) -> None:
        if not isinstance(self.on_disk.state, HAS_A_RUN):
            assert self.on_disk.said == RunReports()

    @invariant()
    def whoever_was_asked_to_end_will(self) -> None:
        if not self.is_up or self.orders or self.facts:
            return
        match self.on_disk.state:
            case Pausing(kill_at=None) | Stopping(kill_at=None):
                assert has_boundaries(self.on_disk)
            case Pausing(run_id=run_id) | Stopping(run_id=run_id) | Running(run_id=run_id, overdue=Overdue()):
                assert run_id in self.graces

    @invariant()
    def goal_and_state_agree_whenever_nothing_is_under_way(self) -> None:
        if not self.is_up or self.is_ending or self.orders or self.facts:
            return
        state, goal = self.on_disk.state, self.on_disk.goal
        if isinstance(state, Pausing | Stopping):
            return
        assert isinstance(state, RESTING[goal]), f"{goal} is wanted, and it rests as {state}"
        assert bool(self.world.process) is isinstance(state, Running)
        if goal is Goal.PAUSED and isinstance(state, Paused):
            assert state.resume_at is None
            assert why_not(self.on_disk, ResumeRequested(self.world.clock)) is None

    # and in the end

    def teardown(self) -> None:
        """Left alone, or to the next daemon, it comes to rest where goal and state agree."""
        self.come_to_rest()
        if self.is_ending:
            self.the_deadline_of_the_daemon_has_passed()
            self.come_to_rest()
            self.the_daemon_has_ended()
        if not self.is_up:
            self.a_daemon_starts(ends_first=self.world.born % 2 == 0)
            self.come_to_rest()
        assert not isinstance(self.on_disk.state, Pausing | Stopping | Starting)
        self.goal_and_state_agree_whenever_nothing_is_under_way()

    def come_to_rest(self) -> None:
        for _ in range(100):
            if not self.is_up or not (self.go_on() or self.graces or self.waits_for_a_boundary()):
                return
            if self.orders or self.facts:
                continue
            if self.graces:
                self.a_grace_is_over()
            elif self.waits_for_a_boundary():
                self.say(IterationFinished())
        raise AssertionError("it does not come to rest")

    @precondition(lambda self: self.is_up and not self.is_ending and isinstance(self.on_disk.state, Waiting))
    @rule()
    def a_wait_leads_to_a_run(self) -> None:
        """However the clock was set: the wait once more at most, and then a start."""
        for _ in range(2):
            if isinstance(self.on_disk.state, Waiting):
                self.feed(Woke(self.world.clock))
            if isinstance(self.on_disk.state, Waiting):
                self.world.clock = self.on_disk.state.until
        if isinstance(self.on_disk.state, Waiting):
            self.feed(Woke(self.world.clock))
        assert isinstance(self.on_disk.state, Starting)
        assert self.on_disk.goal is Goal.RUNNING


TestHistories = Histories.TestCase
