"""What a night is made of: its rules and its faults, by a seed. The same seed is the same night, always."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any, Final

from ralphd.core.gate.verdict import GatePolicy
from ralphd.core.loop.model import LoopPolicy
from ralphd.core.supervision.model import Mode, Policy, Restart

NIGHT_S: Final = 8 * 3600.0
"""From eight in the evening to four in the morning."""
AGENTS: Final = ("claude", "codex", "gemini")


class What(StrEnum):
    """What can go wrong, or what a person can ask for."""

    # with the attempt under way, or the next one
    CRASH = "the agent crashes"
    CRASH_AFTER_TICK = "the agent ticks its task off, then crashes"
    HANG = "the agent hangs"
    SILENCE = "the agent works without a word"
    BUSY_WAIT = "the agent burns CPU and nothing else"
    SLOW = "the agent takes very long"
    RATE_LIMIT = "a rate limit"
    TRANSIENT = "the connection breaks"
    INCOMPLETE = "the agent ends well and leaves its task open"
    PROMISE = "the agent promises what is not so"
    CONTEXT = "the prompt is too long"
    UNKNOWN = "nobody knows what it was"
    OTHER_TASK = "the agent does another task than its own"
    MORE_TASKS = "the agent adds a task to the list"
    EMPTIES_LIST = "the agent empties the list"
    # of an agent's service, for a while
    USAGE_LIMIT = "a usage limit"
    OUTAGE = "no service can be reached"
    FATAL = "nobody is logged in"
    BROKEN = "each attempt crashes at once"
    # with the machine
    LOOP_KILLED = "the loop is killed"
    LOOP_HANGS = "the loop hangs"
    RUN_LOST = "the run's shim is gone"
    DAEMON_KILLED = "the daemon is killed"
    DAEMON_ENDS = "the daemon ends with its runs"
    DAEMON_LEAVES = "the daemon is restarted, its runs are left"
    REBOOT = "the machine goes down"
    SUSPEND = "the machine sleeps"
    CLOCK_BACK = "the clock is set back"
    CLOCK_AHEAD = "the clock is set ahead"
    NO_RESOURCES = "nothing can be started"
    RALPH_DELETED = ".ralph is deleted"
    # of an agent that turns on its supervision
    ASKS_TO_STOP = "the agent stops its own loop"
    REWRITES = "the agent rewrites judged commits"
    DESTROYS = "the agent destroys judged commits"
    WEAKENS = "the agent weakens its tests"
    # people
    STOP = "somebody stops it"
    STOP_NOW = "somebody stops it now"
    START = "somebody starts it"
    PAUSE = "somebody pauses it"
    RESUME = "somebody resumes it"
    RESTART = "somebody restarts it"
    SKIP_WAIT = "somebody skips the wait"
    ADD_TASK = "somebody adds a task"
    NOTE = "somebody writes a note"
    # drawn apart from all above, so that a seed keeps what it had
    MEDDLES = "the agent asks the daemon for all it can do"
    FORGES = "the agent reports what is not so"
    REVIEW_HANGS = "the review does not end in time"
    BREAKS = "the agent breaks the tests"
    LEAVES_DIRT = "the agent leaves what breaks the tests uncommitted"
    COMMITS = "somebody commits"
    BREAKS_TOO = "somebody commits what breaks the tests"
    UNDOES = "somebody restores what was reverted last"
    TESTS_FLAKE = "the tests fail once, without a reason"
    TESTS_HANG = "the tests do not end in time"
    TESTS_DIE = "the tests are ended from outside"


_OF_AGENT: Final = tuple(What)[: tuple(What).index(What.USAGE_LIMIT)]
OF_SERVICE: Final = (What.USAGE_LIMIT, What.OUTAGE, What.FATAL, What.BROKEN)
OF_PEOPLE: Final = tuple(What)[tuple(What).index(What.STOP) : tuple(What).index(What.MEDDLES)]
OF_TESTS: Final = (*tuple(What)[tuple(What).index(What.BREAKS) :], What.WEAKENS)
_DRAWN: Final = tuple(What)[: tuple(What).index(What.ADD_TASK)]
OF_THE_NEXT_ATTEMPT: Final = frozenset(_OF_AGENT)
_LASTS_S: Final[Mapping[What, Sequence[float]]] = {
    What.RATE_LIMIT: (0.0, 0.0, 20.0, 90.0, 700.0, 5000.0),
    What.USAGE_LIMIT: (300.0, 1800.0, 7200.0, 14000.0),
    What.OUTAGE: (30.0, 200.0, 1500.0, 6000.0),
    What.FATAL: (600.0, 7200.0, NIGHT_S),
    What.BROKEN: (20.0, 300.0, 2500.0),
    What.DAEMON_KILLED: (0.5, 5.0, 80.0, 900.0),
    What.DAEMON_ENDS: (0.5, 20.0, 900.0),
    What.DAEMON_LEAVES: (0.5, 5.0),
    What.REBOOT: (30.0, 120.0, 2000.0),
    What.SUSPEND: (20.0, 700.0, 5000.0),
    What.CLOCK_BACK: (5.0, 600.0, 7200.0),
    What.CLOCK_AHEAD: (5.0, 600.0, 7200.0),
    What.NO_RESOURCES: (5.0, 100.0, 1000.0),
}
_COUNTED: Final = (What.LOOP_KILLED, What.DAEMON_KILLED)
STORMY: Final = 0.25
"""The share of nights in which one thing happens again and again."""
GATED: Final = 0.16
"""The share with a gate: tests at each boundary."""
LANDED: Final = 0.13
"""The share in which branches land."""
FOREIGN: Final = 0.12
"""The share with a command of the user's own."""
PHASED: Final = 0.15
"""The share with phases."""
SHARED: Final = 0.18
"""The share in which other ralphs use the same accounts."""
CROWDED: Final = 0.12
"""The share in which several people, or programs, command at once."""
MEDDLED: Final = 0.25
"""The share in which people add to the work, or an agent sends commands."""
_RARE: Final = (What.FATAL, What.DAEMON_ENDS, What.EMPTIES_LIST, What.CLOCK_BACK, What.CLOCK_AHEAD)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens, ``at_s`` seconds into the night, and for how long.

    ``agent``: whose service it is. ``told``: a limit says until when it lasts. ``count``: what is killed is
    killed not at once, but at the so many-th thing that it writes or does from then on.
    """

    at_s: float
    what: What
    agent: str | None = None
    lasts_s: float = 0.0
    told: bool = True
    count: int = 0


@dataclass(frozen=True, slots=True)
class Setting:
    """The rules of a night. ``tasks`` 0: there is no list, and the prompt is worth ``work`` iterations."""

    tasks: int = 6
    work: int = 4
    agents: int = 2
    rotates: bool = False
    retries: int = 2
    max_task_failures: int = 5
    pause_when_exhausted: bool = False
    max_iterations: int = 0
    max_cost_usd: float = 0.0
    max_runtime_s: float = 0.0
    restart: Restart = Restart.ON_FAILURE
    max_retries: int = 3
    max_restarts_per_hour: int = 10
    backoff_s: float = 30.0
    backoff_factor: float = 1.0
    timeout_s: float = 1800.0
    gate: bool = False
    minimal: bool = True
    protects: str = "off"
    branches: int = 0
    command: bool = False
    iteration: bool = False
    phases: bool = False
    findings_fail: bool = True
    neighbours: int = 0
    slots: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The agents, the primary first."""
        return AGENTS[: self.agents]

    def policy(self) -> Policy:
        """The Regent's rules."""
        return Policy(
            restart=self.restart,
            max_iterations=self.max_iterations,
            max_cost_usd=self.max_cost_usd,
            max_runtime_s=self.max_runtime_s,
            max_retries=self.max_retries,
            retry_backoff_s=self.backoff_s,
            retry_backoff_factor=self.backoff_factor,
            max_restarts_per_hour=self.max_restarts_per_hour,
            own_loop=not self.command,
            mode=Mode.ITERATION if self.iteration else Mode.LOOP,
        )

    def gate_policy(self) -> GatePolicy:
        """The gate's."""
        return GatePolicy(minimal=self.minimal, protect_tests=self.protects)

    def loop_policy(self) -> LoopPolicy:
        """The loop's."""
        return LoopPolicy(
            agents=self.names,
            rotates=self.rotates,
            retries_before_fallback=self.retries,
            max_task_failures=self.max_task_failures,
            timeout_s=self.timeout_s,
            reviews=self.phases,
            pause_when_exhausted=self.pause_when_exhausted,
            max_iterations=self.max_iterations,
            max_cost_usd=self.max_cost_usd,
            max_runtime_s=self.max_runtime_s,
        )


@dataclass(frozen=True, slots=True)
class Script:
    """A whole night, as it is saved and replayed. ``seed`` also gives how long each attempt takes."""

    seed: int
    setting: Setting
    faults: tuple[Fault, ...]

    def to_json(self) -> str:
        """As it is saved."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Script":
        """What ``to_json`` gave."""
        found: dict[str, Any] = json.loads(text)
        setting = {**found["setting"], "restart": Restart(found["setting"]["restart"])}
        faults = tuple(Fault(**{**each, "what": What(each["what"])}) for each in found["faults"])
        return cls(found["seed"], Setting(**setting), faults)


def script_of(seed: int) -> Script:
    """The night of a seed."""
    dice = Random(seed)
    setting = _setting(dice)
    setting = _shared(Random(seed ^ 0xACC), setting)
    if (lands := Random(seed ^ 0x1A4D)).random() < LANDED:
        restart = Restart.ON_FAILURE if setting.restart is Restart.ALWAYS else setting.restart
        setting = replace(setting, branches=lands.randint(2, 7), restart=restart)
    theme = dice.sample(_DRAWN, 4)
    faults = [_fault(dice, theme, setting) for _ in range(dice.choice((1, 3, 6, 10, 15, 22)))]
    if dice.random() < STORMY:
        faults += _storm(dice, faults[0])
    faults += _of_others(Random(seed ^ 0xC0DE))
    if setting.phases:
        hangs = Random(seed ^ 0x9E51)
        for _ in range(hangs.choice((0, 0, 1, 2))):
            at_s = round(6000.0 * hangs.random(), 1)
            faults.append(Fault(at_s, What.REVIEW_HANGS, count=hangs.choice((1, 2, 3))))
    if setting.gate or setting.branches:
        faults += _of_tests(Random(seed ^ 0x7E57))
    if setting.neighbours:
        faults += _limits(Random(seed ^ 0x11417), setting)
    return Script(seed, setting, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _storm(dice: Random, fault: Fault) -> list[Fault]:
    """The same again and again, within the hour or so."""
    if dice.random() < 0.5:
        fault = replace(fault, what=dice.choice((What.LOOP_KILLED, What.RUN_LOST, What.CRASH)), lasts_s=0.0)
    gap_s, count = dice.choice((40.0, 200.0, 600.0)), dice.randint(3, 12)
    return [
        replace(
            fault,
            at_s=round(fault.at_s + gap_s * (number + dice.random()), 1),
            lasts_s=min(fault.lasts_s, 120.0),
        )
        for number in range(1, count)
    ]


def _foreign(setting: Setting, *, is_iteration: bool) -> Setting:
    """A command of the user's own."""
    restart = Restart.ON_FAILURE if is_iteration else setting.restart
    return replace(setting, command=True, iteration=is_iteration, restart=restart)


def _shared(dice: Random, setting: Setting) -> Setting:
    """Other ralphs that use the accounts of this one, in some nights."""
    if dice.random() < GATED:
        minimal, protects = dice.random() < 0.7, dice.choice(("off", "report", "revert"))
        gated = replace(setting, gate=True, minimal=minimal, protects=protects)
        return _foreign(gated, is_iteration=True) if dice.random() < 0.25 else gated
    if dice.random() < FOREIGN:
        return _foreign(setting, is_iteration=dice.random() < 0.5)
    if dice.random() < PHASED:
        return replace(setting, phases=True, findings_fail=dice.random() < 0.6)
    if dice.random() >= SHARED:
        return setting
    return replace(setting, neighbours=dice.randint(1, 3), slots=dice.choice((0, 1, 1, 2)))


def _limits(dice: Random, setting: Setting) -> list[Fault]:
    """Limits early in the night, while several ralphs work with one account."""
    return [
        Fault(
            at_s=round(7200.0 * dice.random(), 1),
            what=dice.choice((What.USAGE_LIMIT, What.USAGE_LIMIT, What.RATE_LIMIT)),
            agent=dice.choice((setting.names[0], dice.choice(setting.names))),
            lasts_s=round(dice.choice((20.0, 90.0, 300.0, 1800.0, 7200.0)) * (0.7 + 0.6 * dice.random()), 1),
            told=dice.random() < 0.6,
        )
        for _ in range(dice.randint(0, 3))
    ]


def _of_tests(dice: Random) -> list[Fault]:
    """What happens to the tests, early, while there is work."""
    more = tuple(What)[tuple(What).index(What.BREAKS) :]
    often = (What.BREAKS, What.BREAKS, What.WEAKENS, What.COMMITS)
    at_s = round(3000.0 * dice.random(), 1)
    both = [Fault(at_s, What.BREAKS), Fault(at_s, What.LEAVES_DIRT)] if dice.random() < 0.3 else []
    both += [
        Fault(round(4000.0 * dice.random(), 1), what)
        for what in (What.WEAKENS, What.TESTS_FLAKE)
        if dice.random() < 0.5
    ]
    if dice.random() < 0.4:  # somebody looks at what was reverted
        at_s = round(1500.0 * dice.random(), 1)
        looks = ((0.0, What.BREAKS), (1900.0, What.PAUSE), (4000.0, What.UNDOES), (4060.0, What.START))
        both += [Fault(at_s + later_s, what) for later_s, what in looks]
    return both + [
        Fault(round(9000.0 * dice.random(), 1), dice.choice(often if dice.random() < 0.5 else more))
        for _ in range(dice.randint(1, 7))
    ]


def _of_others(dice: Random) -> list[Fault]:
    """What people and programs send besides: several at once, without knowing of each other."""
    faults = []
    if dice.random() < CROWDED:
        at_s, gap_s = NIGHT_S * dice.random() ** 2, dice.choice((0.05, 1.0, 20.0, 300.0))
        for _ in range(dice.randint(4, 14)):
            at_s += gap_s * dice.expovariate(1.0)
            faults.append(Fault(round(at_s, 2), dice.choice(OF_PEOPLE)))
    if dice.random() < MEDDLED:
        more = (What.ADD_TASK, What.NOTE, What.MEDDLES, What.FORGES)
        times = (round(NIGHT_S * dice.random() ** 2, 1) for _ in range(dice.randint(1, 4)))
        faults += [Fault(at_s, dice.choice(more)) for at_s in times]
    return faults


def _setting(dice: Random) -> Setting:
    limit = dice.choice(("", "", "", "iterations", "cost", "runtime"))
    return Setting(
        tasks=dice.choice((0, 1, 3, 5, 8, 12)),
        work=dice.randint(2, 6),
        agents=dice.randint(1, 3),
        rotates=dice.random() < 0.4,
        retries=dice.choice((0, 1, 2, 2)),
        max_task_failures=dice.choice((1, 3, 5, 5, 5, 0)),
        pause_when_exhausted=dice.random() < 0.25,
        max_iterations=dice.choice((2, 5, 12)) if limit == "iterations" else 0,
        max_cost_usd=dice.choice((1.0, 4.0)) if limit == "cost" else 0.0,
        max_runtime_s=dice.choice((1800.0, 10_000.0)) if limit == "runtime" else 0.0,
        restart=dice.choice((Restart.ON_FAILURE,) * 6 + (Restart.NEVER, Restart.ALWAYS)),
        max_retries=dice.choice((0, 1, 3, 3, 20, 20)),
        max_restarts_per_hour=dice.choice((2, 2, 10)),
        backoff_s=dice.choice((1.0, 30.0, 30.0)),
        backoff_factor=dice.choice((1.0, 2.0)),
        timeout_s=dice.choice((600.0, 1800.0, 3600.0)),
    )


def _fault(dice: Random, theme: Sequence[What], setting: Setting) -> Fault:
    what = dice.choice(theme) if dice.random() < 0.6 else dice.choice(_DRAWN)
    if what in _RARE and dice.random() < 0.6:
        what = dice.choice(_OF_AGENT)
    lasts_s = dice.choice(_LASTS_S[what]) * (0.7 + 0.6 * dice.random()) if what in _LASTS_S else 0.0
    return Fault(
        at_s=round(NIGHT_S * dice.random() ** 2, 1),
        what=what,
        agent=dice.choice(setting.names),
        lasts_s=round(lasts_s, 1),
        told=dice.random() < 0.6,
        count=dice.choice((0, 0, *range(1, 9))) if what in _COUNTED else 0,
    )
