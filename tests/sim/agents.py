"""The agents of a night: what an attempt does, what befalls it, and the watch that the loop keeps over it.

The watch is the real one (``core/stall_detector``); made up is only what each look would see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ralphd.core import stall_detector as patience
from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.failures.resets import Reset
from ralphd.core.loop.inbox import ADDED, unread
from ralphd.core.loop.model import StartAttempt
from ralphd.core.stall_detector import Glance, SilenceLimits, Window
from ralphd.core.time import Moment
from tests.sim.faults import Fault, What
from tests.sim.phased import PhasedWork
from tests.sim.world import Due

if TYPE_CHECKING:
    from tests.sim.loop_hands import LoopHands
    from tests.sim.night import Night

PRINTS_EVERY_S: Final = 20.0
COST_USD: Final = 0.25
LONGEST_WORK_S: Final = 1500.0
LIMITS: Final = SilenceLimits()
SHORT_RATE_LIMIT_S: Final = 30.0
_KINDS: Final = {
    What.CRASH: FailureKind.AGENT_CRASH,
    What.CRASH_AFTER_TICK: FailureKind.AGENT_CRASH,
    What.TRANSIENT: FailureKind.TRANSIENT,
    What.CONTEXT: FailureKind.CONTEXT,
    What.UNKNOWN: FailureKind.UNKNOWN,
    What.USAGE_LIMIT: FailureKind.USAGE_LIMIT,
    What.RATE_LIMIT: FailureKind.RATE_LIMIT,
    What.OUTAGE: FailureKind.TRANSIENT,
    What.FATAL: FailureKind.FATAL,
    What.BROKEN: FailureKind.AGENT_CRASH,
}


class Life(StrEnum):
    """What an agent shows of itself."""

    PRINTS = "prints"
    STRONG = "changes files"
    WEAK = "burns CPU"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A service does not work until then, by its own time."""

    what: What
    agent: str | None
    until: float
    told: bool


class Services:
    """What is so of the agents' services."""

    def __init__(self) -> None:
        self._troubles: list[Trouble] = []

    def begin(self, what: What, agent: str | None, until: float, *, told: bool) -> None:
        """It does not work from now on."""
        self._troubles.append(Trouble(what, agent, until, told))

    def of(self, agent: str, true: float) -> Trouble | None:
        """What is wrong with an agent's service now."""
        self._troubles = [each for each in self._troubles if each.until > true]
        return next((each for each in self._troubles if each.agent in (None, agent)), None)

    def heal(self) -> None:
        """All is well again."""
        self._troubles.clear()


class Attempt:
    """One agent process. It is there from its making until ``gone``."""

    def __init__(self, night: Night, hands: LoopHands, order: StartAttempt) -> None:
        clock = night.clock
        self._night, self._hands, self.order = night, hands, order
        self.agent, self.task = order.iteration.agent, order.iteration.task.id
        self.began_s = self._looked_s = self._quiet_since_s = clock.awake_s
        self._slept_s = clock.slept_s
        self._window_s: float | None = None
        self._has_changed_files = False
        self.life = Life.PRINTS
        self._printed_s = clock.awake_s
        self._printed_at = clock.wall()
        self._limits = replace(LIMITS, max_run_s=order.timeout_s)
        self._watch = patience.begun(clock.wall(), clock.wall(), None, 0.0)
        self._planned_s = 0.0
        self._ticks: str | None = self.task
        self._promises = self._added = False
        self._commits = 0
        self._dues: list[Due] = []
        self._look: Due | None = None
        self.gone = False
        self.notes: tuple[int, ...] = ()
        self.limit_s = order.timeout_s
        self._phased = PhasedWork(night, self) if night.script.setting.phases else None

    def starts(self) -> None:
        """Its agent begins, or that of its first phase."""
        if self._phased is not None:
            self._phased.begins()
        else:
            self._begins()

    def _begins(self) -> None:
        """Each prompt has the notes that nobody has read."""
        notes = unread(self._night.disk.inbox.notes, self._hands.loop.memory.notes_read)
        self.notes = tuple(int(note.id) for note in notes)
        self._night.checks.agent_begins(self)
        self._plan_work()

    @property
    def is_stuck(self) -> bool:
        """Whether its loop hangs, or is dead."""
        return self.gone or self._hands.is_stuck

    def begins_phase(self, *, does_work: bool, factor: float) -> None:
        """Another agent, with nothing of the one before."""
        clock = self._night.clock
        self.began_s = self._looked_s = self._quiet_since_s = self._printed_s = clock.awake_s
        self._slept_s, self._window_s, self.life = clock.slept_s, None, Life.PRINTS
        self._printed_at = clock.wall()
        self.limit_s = self.order.timeout_s * factor
        self._limits = replace(LIMITS, max_run_s=self.limit_s)
        self._watch = patience.begun(clock.wall(), clock.wall(), None, 0.0)
        self._ticks, self._promises = self.task if does_work else None, False
        self._begins()

    # what it does

    def _plan_work(self) -> None:
        night = self._night
        if night.list.is_empty:
            night.list.is_empty = False
            night.tell(self.agent, "puts the list back as it was")
        trouble = night.services.of(self.agent, night.clock.true())
        if trouble is not None:
            self._later(2.0, lambda: self._meets(trouble))
            return self._plan_look()
        if night.accounts.is_shared:
            self._later(1.5, lambda: night.accounts.answers(self.agent, self._hands.by))
        takes_s = 60.0 + (LONGEST_WORK_S - 60.0) * night.noise() ** 2
        self._later(takes_s - 1.0, self._works)
        self._later(takes_s, self._ends_well)
        if night.waiting:
            fault = night.waiting.popleft()
            self._later(5.0, lambda: self.befall(fault))
        return self._plan_look()

    def _works(self) -> None:
        """It ticks its task off and commits."""
        if self._ticks is not None:
            self._commits += 1
            self._night.commits += 1
            self._night.tick(self._ticks, self.agent)

    def _ends_well(self) -> None:
        promised = self._promises or self._night.is_list_done
        words = "ends well" + (" and promises that all is done" if promised else "")
        self._night.tell(self.agent, words)
        self._over(Classification(None, "simulated", "it ended well"), promised=promised)

    def _meets(self, trouble: Trouble) -> None:
        reset = None
        if trouble.told and trouble.what in (What.USAGE_LIMIT, What.RATE_LIMIT):
            reset = Reset(trouble.until, "simulated", Confidence.EXACT)
        self._fails(trouble.what, reset)

    def _fails(self, what: What, reset: Reset | None = None) -> None:
        kind = _KINDS[what]
        until = "" if reset is None else f", until {self._night.local(reset.until)}"
        self._night.tell(self.agent, f"fails: {what}{until}")
        self._over(Classification(kind, "simulated", str(what), reset))

    def befall(self, fault: Fault) -> None:
        """Something happens to it now."""
        if self.gone or (self._phased is not None and self._phased.is_in_review):
            self._night.waiting.append(fault)
            return
        what, night = fault.what, self._night
        night.tell("the night", f"{what} ({self.agent} at {self.task})")
        match what:
            case What.HANG:
                self._only(Life.NONE)
            case What.BUSY_WAIT:
                self._only(Life.WEAK)
            case What.SILENCE:
                self._only(Life.STRONG)
                self._later(2400.0, self._works)
                self._later(2401.0, self._ends_well)
            case What.SLOW:
                self._call_off()
                self._later(self.order.timeout_s * 1.2 or LONGEST_WORK_S, self._works)
                self._later(self.order.timeout_s * 1.2 + 1.0, self._ends_well)
                self._looked()  # the watch does not begin again
            case What.RATE_LIMIT:
                until = night.clock.true() + (fault.lasts_s or SHORT_RATE_LIMIT_S)
                told = fault.told and bool(fault.lasts_s)
                night.services.begin(what, self.agent, until, told=told)
                self._meets(Trouble(what, self.agent, until, told))
            case What.EMPTIES_LIST if self._commits or self._added:
                pass  # nobody has read yet what it ticked off or added, and nobody could know it then
            case What.INCOMPLETE | What.PROMISE | What.EMPTIES_LIST:
                self._ticks, self._promises = None, what is What.PROMISE
                night.list.is_empty = what is What.EMPTIES_LIST
                self._ends_well()
            case What.OTHER_TASK:
                self._ticks = next((each for each in night.list.open if each != self.task), self.task)
            case What.MORE_TASKS:
                night.list.add()
                self._added = True
            case What.CRASH_AFTER_TICK:
                self._works()
                self._fails(what)
            case _:
                self._fails(what)

    def meets_now(self) -> None:
        """Its service has just stopped working."""
        trouble = self._night.services.of(self.agent, self._night.clock.true())
        is_in_review = self._phased is not None and self._phased.is_in_review
        if trouble is not None and self.life is Life.PRINTS and not is_in_review:
            self._call_off()
            self._later(1.0, lambda: self._meets(trouble))

    def _only(self, life: Life) -> None:
        """From now on nothing else is seen of it, and it does not end by itself."""
        self._call_off()
        if self.life in (Life.PRINTS, Life.STRONG):
            self._quiet_since_s = self._night.clock.awake_s
        self._has_changed_files |= self.life is Life.STRONG  # since the last look
        if self.life is Life.PRINTS:
            self._printed_s = self._quiet_since_s = self._last_print_s()
            self._printed_at = self._night.clock.wall_at(self._printed_s)  # as it was written down then
        self.life = life
        self._glance(None)
        self._plan_look()

    # the watch over it

    @property
    def quiet_s(self) -> float:
        """How long there has been no evidence in truth."""
        if self.life in (Life.PRINTS, Life.STRONG):
            return 0.0
        return self._night.clock.awake_s - self._quiet_since_s

    def _last_print_s(self) -> float:
        if self.life is not Life.PRINTS:
            return self._printed_s
        age_s = self._night.clock.awake_s - self.began_s
        return self.began_s + age_s - age_s % PRINTS_EVERY_S

    def _last_print_at(self) -> Moment:
        if self.life is not Life.PRINTS:
            return self._printed_at
        return self._night.clock.wall_at(self._last_print_s())

    def _plan_look(self) -> None:
        """The next look; while it prints every look finds just that, so the next one is at its limit."""
        if self._look is not None:
            self._look.call_off()
            self._look = None
        self._planned_s = patience.next_look_s(self._watch, self._limits)
        if self.life is Life.PRINTS:
            left_s = max(self._limits.max_run_s - self._watch.age_s, patience.SHORTEST_REST_S)
            self._planned_s = left_s if self._limits.max_run_s else float("inf")
        if self._planned_s != float("inf"):
            self._look = self._later(self._planned_s, self._looked)

    def _glance(self, window: Window | None) -> None:
        clock = self._night.clock
        glance = Glance(
            now=clock.wall(),
            elapsed_s=clock.awake_s - self._looked_s,
            planned_s=self._planned_s,
            last_output_at=self._last_print_at(),
            slept_s=clock.slept_s - self._slept_s,
            window=window,
        )
        self._looked_s, self._slept_s = clock.awake_s, clock.slept_s
        self._watch = patience.looked(self._watch, glance, self._limits)

    def _window(self) -> Window | None:
        if not patience.is_watched(self._watch, self._limits):
            self._window_s = None
            return None
        now_s = self._night.clock.awake_s
        elapsed_s = 0.0 if self._window_s is None else now_s - self._window_s
        self._window_s = now_s
        has_changed = (self._has_changed_files or self.life is Life.STRONG) and elapsed_s > 0
        self._has_changed_files = False
        return Window(
            elapsed_s=elapsed_s,
            processes=1,
            changed_files=int(has_changed),
            cpu_s=elapsed_s if self.life is Life.WEAK else 0.0,
        )

    def _looked(self) -> None:
        self._glance(self._window())
        found = patience.finding(self._watch, self._limits)
        if found is patience.StallFinding.WARN:
            self._watch = patience.warned(self._watch)
        if found in (patience.StallFinding.STALL, patience.StallFinding.TOO_LONG):
            self._night.checks.agent_is_ended(self, found)
            kind = FailureKind.STALL if found is patience.StallFinding.STALL else FailureKind.TIMEOUT
            self._night.tell("the loop", f"ends {self.agent}: {kind}")
            self._hands.save_before_kill(self.order.iteration, kind, f"ended for {kind}")
            self._over(Classification(kind, "simulated", f"ended for {kind}"))
        else:
            self._plan_look()

    # its end

    def end_as_asked(self) -> None:
        """A second stop: it is ended now."""
        self._over(Classification(None, "simulated", "ended as requested", asked=True))

    def dies(self) -> None:
        """With its loop."""
        self._call_off()
        if self._phased is not None:
            self._phased.dies()
        self.gone = True
        self._night.checks.agent_is_gone(self)

    def _over(self, finding: Classification, *, promised: bool = False) -> None:
        if self._phased is None:
            self.conclude(finding, promised=promised)
        else:
            self._call_off()
            self._night.checks.agent_is_gone(self)
            self._phased.agent_over(finding, promised=promised)

    def conclude(self, finding: Classification, *, promised: bool, halted: str = "") -> None:
        """All of it is over."""
        self.dies()
        if self.task.startswith(ADDED) and (self._commits or promised):
            self._night.added_done.add(self.task)
        self._hands.attempt_is_over(self, finding, self._commits, promised=promised, halted=halted)

    def _later(self, delay_s: float, act: object) -> Due:
        assert callable(act)
        due = self._night.agenda.after(delay_s, lambda: None if self._hands.is_stuck else act())
        self._dues.append(due)
        return due

    def _call_off(self) -> None:
        for due in self._dues:
            due.call_off()
        self._dues.clear()
