"""What is so, whoever looks: the clocks, what comes due, the disk, the processes, the user's list.

The disk survives everything. Processes survive a daemon's death and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from ralphd.core.gate.range import GateState
from ralphd.core.landing.model import LandingQueue, Target
from ralphd.core.loop.inbox import Inbox
from ralphd.core.loop.model import Ledger, LoopState, PauseReason
from ralphd.core.loop.phases import Phases
from ralphd.core.plan import Plan, Task, TaskStatus
from ralphd.core.supervision.model import Goal, RunId, Supervision
from ralphd.core.time import Moment
from tests.core.supervision.scenes import NOW

LIST = "TASKS.md"
EMPTY_QUEUE = LandingQueue("/r/.git", "/r", Target("main"))


class Clock:
    """``awake_s`` passes while the machine is awake; the wall also shows its sleep, and what was set."""

    __slots__ = ("_jumps", "ahead_s", "awake_s", "slept_s")

    def __init__(self) -> None:
        self.awake_s = self.slept_s = self.ahead_s = 0.0
        self._jumps: list[tuple[float, float]] = []

    def wall(self) -> Moment:
        """What the clock on the wall says now."""
        return NOW + self.awake_s + self.slept_s + self.ahead_s

    def true(self) -> Moment:
        """What it would say if nobody had set it: the services' time."""
        return NOW + self.awake_s + self.slept_s

    def wall_at(self, awake_s: float) -> Moment:
        """What it said then."""
        later_s = sum(by_s for at_s, by_s in self._jumps if at_s > awake_s)
        return NOW + awake_s + self.slept_s + self.ahead_s - later_s

    def sleep(self, seconds: float) -> None:
        """The machine sleeps."""
        self.slept_s += seconds
        self._jumps.append((self.awake_s, seconds))

    def set(self, by_s: float) -> None:
        """Somebody sets the clock on the wall."""
        self.ahead_s += by_s
        self._jumps.append((self.awake_s, by_s))


@dataclass(slots=True)
class Due:
    """Something that happens at a moment, unless it is called off."""

    act: Callable[[], None] | None

    def call_off(self) -> None:
        """It does not happen."""
        self.act = None


class Agenda:
    """What comes due, in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Due]] = []
        self._count = 0

    def after(self, delay_s: float, act: Callable[[], None]) -> Due:
        """Have it done when so many seconds have passed, awake."""
        due = Due(act)
        self._count += 1
        heappush(self._heap, (self._clock.awake_s + max(delay_s, 0.0), self._count, due))
        return due

    def next_s(self) -> float | None:
        """When the next thing happens."""
        while self._heap and self._heap[0][2].act is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Callable[[], None]:
        """It happens now."""
        at_s, _, due = heappop(self._heap)
        self._clock.awake_s = max(self._clock.awake_s, at_s)
        assert due.act is not None
        return due.act


@dataclass(frozen=True, slots=True)
class Exit:
    """``exit.json``."""

    at: Moment
    code: int | None = None
    signal: int | None = None


@dataclass(slots=True)
class RunRecord:
    """A run's directory, and whether its processes live. ``born_at`` None: the spawn was cut off."""

    run_id: RunId
    intended_at: Moment
    born_at: Moment | None = None
    exit: Exit | None = None
    lives: bool = False
    last_output_at: Moment | None = None
    commits_before: int = 0


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """What the loop's ``checkpoint.json`` holds, of what matters to a loop that goes on."""

    iteration: int
    reason: PauseReason
    task_id: str | None
    attempt: int
    agent: str | None
    session: str | None
    resume_at: Moment | None
    why: str
    cost_usd: float
    saved_at: Moment


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of ``history.jsonl``."""

    kind: str
    key: str
    data: dict[str, object]


@dataclass(slots=True)
class Disk:
    """What every process finds. ``goal`` is in the definition, which is written before the state."""

    goal: Goal = Goal.STOPPED
    supervision: Supervision = field(default_factory=Supervision)
    facts_run_id: RunId | None = None
    history: dict[str, Entry] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    memory: LoopState = field(default_factory=LoopState)
    ledger: Ledger = field(default_factory=dict)
    checkpoint: Checkpointed | None = None
    phases: Phases | None = None
    inbox: Inbox = field(default_factory=Inbox)
    gate: GateState = field(default_factory=GateState)
    landing: LandingQueue = EMPTY_QUEUE
    began_at_of_runs: dict[RunId, Moment | None] = field(default_factory=dict)


class UserList:
    """The user's list in the repository. Agents tick it, add to it, and sometimes empty it."""

    def __init__(self, count: int) -> None:
        self.titles = {f"T{number}": f"do T{number}" for number in range(1, count + 1)}
        self.done: set[str] = set()
        self.is_empty = False
        self._plan: Plan | None = None

    @property
    def open(self) -> list[str]:
        """What is not ticked, by what the list was before anybody emptied it."""
        return [task for task in self.titles if task not in self.done]

    def tick(self, task: str) -> None:
        """A task is done."""
        if task in self.titles:
            self.done.add(task)
        self._plan = None

    def follow(self, done: set[str]) -> None:
        """It is a file of the repository, which has been changed."""
        self.done = done & self.titles.keys()
        self._plan = None

    def add(self) -> str:
        """One more, at the top; its name."""
        name = f"X{len(self.titles) + 1}"
        self.titles = {name: f"do {name}", **self.titles}
        self._plan = None
        return name

    def plan(self, *, known: bool) -> Plan | None:
        """As ``ralph/_read_plan`` has it: an empty one is a list only where one was known before."""
        if not self.titles:
            return None
        if self.is_empty:
            return Plan(LIST) if known else None
        if self._plan is None:
            self._plan = Plan(LIST, tuple(self._task(name) for name in self.titles))
        return self._plan

    def _task(self, name: str) -> Task:
        return Task(name, self.titles[name], TaskStatus.DONE if name in self.done else TaskStatus.PENDING)


Teller: TypeAlias = Callable[[str, str], None]
"""Hears who did what: only where a story is wanted."""
