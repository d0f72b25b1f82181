"""Any order of requests, ends, clocks and daemon deaths, against a model of one fact: is there a process?"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ralphd.core.actions import Action, Announce, Escalate, KillAfter, KillTree, Spawn, Terminate, WakeAt
from ralphd.core.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    GraceOver,
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
from ralphd.core.model import (
    HAS_A_RUN,
    Done,
    Ending,
    Failed,
    Goal,
    Idle,
    Mode,
    Moment,
    Paused,
    Pausing,
    Policy,
    Restart,
    RunId,
    Running,
    Starting,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from ralphd.core.regent import step
from ralphd.core.requests import why_not
from tests.core.scenes import NOW

POLICIES = [
    Policy(),
    Policy(max_retries=1_000, max_restarts_per_hour=2),
    Policy(restart=Restart.ALWAYS),
    Policy(restart=Restart.NEVER),
    Policy(mode=Mode.ITERATION, max_iterations=3),
    Policy(supervised=False),
]
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
        self.records: dict[RunId, Ending] = {}
        self.exits_told: Counter[RunId] = Counter()

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
        if isinstance(event, RunEnded):
            told = sum(isinstance(a, Announce) and a.type == "ralph.exited" for a in answer.actions)
            self.exits_told[event.ending.run_id] += told
        called = sum(isinstance(a, Escalate) for a in answer.actions)
        assert called <= int(
            isinstance(answer.supervision.state, Failed) and before.state != self.on_disk.state
        )

    # the daemon's hands

    def carry_out(self, order: Action) -> None:
        match order:
            case Spawn():
                self.facts.append(Spawned(self.world.clock, self.world.bear()))
            case Terminate(run_id):
                assert run_id == self.world.process or run_id in self.records
            case KillTree(run_id):
                if run_id == self.world.process:
                    self.end(Ending(run_id, self.world.clock, signal=9))
            case KillAfter(run_id, _):
                self.graces.append(run_id)
            case WakeAt(at):
                self.wake_ups.append(at)

    def end(self, ending: Ending) -> None:
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
        hello=st.booleans(),
        reset_s=st.sampled_from([None, 10.0, 3600.0]),
    )
    def the_run_ends(self, code: int | None, hello: bool, reset_s: float | None) -> None:
        assert self.world.process is not None
        at = self.world.clock
        resume_at = None if reset_s is None else at + reset_s
        self.end(
            Ending(
                self.world.process, at, code=code, said_hello=hello,
                pause_reason="usage_limit", resume_at=resume_at,
            )
        )  # fmt: skip

    # clocks

    @precondition(lambda self: not isinstance(self.on_disk.state, (Running, *SETTLED)))
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

    @precondition(lambda self: self.is_ending and not self.orders and not self.facts and not self.graces)
    @rule()
    def the_daemon_has_ended(self) -> None:
        assert not isinstance(self.on_disk.state, (*HAS_A_RUN, Starting))
        assert self.world.process is None
        self.the_daemon_is_killed()

    @precondition(lambda self: not self.is_up)
    @rule(ends_first=st.booleans())
    def a_daemon_starts(self, ends_first: bool) -> None:
        """A newborn that nobody has heard of is found by its directory, before anything else is done."""
        self.is_up = True
        started = DaemonStarted(self.world.clock, self.world.process)
        found = self.unheard_end()
        if isinstance(self.on_disk.state, Starting) and found:
            self.feed(Spawned(found.at, found.run_id))
            self.facts.clear()
            ends_first = True
        ends: list[Event] = [RunEnded(found)] if found else []
        for event in [*ends, started] if ends_first else [started, *ends]:
            self.feed(event)

    def unheard_end(self) -> Ending | None:
        """The end of the newest run, where nobody was told of it."""
        newest = RunId(f"r{self.world.born:06}-00000000")
        return self.records.get(newest) if not self.exits_told[newest] else None

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

    @invariant()
    def whoever_was_asked_to_end_will(self) -> None:
        if not self.is_up or self.orders or self.facts:
            return
        if isinstance(self.on_disk.state, Pausing | Stopping):
            assert self.on_disk.state.run_id in self.graces

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
            self.the_daemon_has_ended()
        if not self.is_up:
            self.a_daemon_starts(ends_first=self.world.born % 2 == 0)
            self.come_to_rest()
        assert not isinstance(self.on_disk.state, Pausing | Stopping | Starting)
        self.goal_and_state_agree_whenever_nothing_is_under_way()

    def come_to_rest(self) -> None:
        for _ in range(100):
            if not self.is_up or not (self.go_on() or self.graces):
                return
            if not self.orders and not self.facts and self.graces:
                self.a_grace_is_over()
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
