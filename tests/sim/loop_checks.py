"""What must hold of the loop and its agents: one at a time, none killed at work, nothing done twice."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ralphd.core.failures.kinds import FailureKind, meaning
from ralphd.core.loop.model import (
    AccountFreed,
    Attempting,
    AttemptOver,
    EndLoop,
    Loop,
    LoopEvent,
    LoopStep,
    PauseReason,
    ReportAgentBack,
    ReportAttempt,
    Rest,
    Resting,
    SaveCheckpoint,
    StartAttempt,
    StartIteration,
)
from ralphd.core.loop.pool import LONGEST_PROBE_S
from ralphd.core.quota.model import SLOT_LOOK_S
from ralphd.core.stall_detector import StallFinding
from ralphd.core.supervision.model import Pausing, Stopping
from tests.sim.agents import LIMITS, Attempt
from tests.sim.checking import LOOKED_AT_EVERY_S, SLACK_S, crowded
from tests.sim.phase_checks import PhaseChecks

if TYPE_CHECKING:
    from tests.sim.night import Night

MOST_ATTEMPTS_A_MINUTE: Final = 30


class LoopChecks(PhaseChecks):
    """What was seen of the loop so far, and what must not be."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._agent: Attempt | None = None
        self._attempts_at: deque[float] = deque()
        self._out: dict[str, tuple[float | None, float]] = {}
        """Until when an agent is out, by the clock on the wall and by one that nobody sets."""
        self._fatal: set[str] = set()
        self._judged = 0
        self._was_pausing = False
        self._knows_of_list = True
        self._rests_since_s: float | None = None
        self._notes_given: set[int] = set()
        self._notes_read: set[int] = set()

    # agents

    def agent_begins(self, attempt: Attempt) -> None:
        """One at most, of those that may be asked, and not too many."""
        if self._agent is not None:
            self.broken("one agent", f"{attempt.agent} begins while {self._agent.agent} works")
        self._agent = attempt
        self._attempts_at.append(self._now_s)
        if crowded(self._attempts_at, MOST_ATTEMPTS_A_MINUTE, 60.0):
            self.broken("restarts are bounded", f"over {MOST_ATTEMPTS_A_MINUTE} attempts in a minute")
        self._is_in(attempt.agent)
        if again := self._notes_read.intersection(attempt.notes):
            self.broken("nothing is done twice", f"notes {again} were read by an agent, and come again")
        self._notes_given |= {*attempt.notes}
        lost = {int(note.id) for note in self._night.disk.inbox.notes} - self._notes_given
        if lost:
            self.broken("no task is lost", f"an agent begins without the notes {lost}")

    def notes_are_read(self, notes: tuple[int, ...]) -> None:
        """An agent that ended well had these in its prompt, and the loop has noted it."""
        self._notes_read |= {*notes}

    def agent_is_gone(self, attempt: Attempt) -> None:
        """Nothing of it is left."""
        if self._agent is attempt:
            self._agent = None

    def _is_in(self, agent: str) -> None:
        if agent in self._out:
            until, until_s = self._out.pop(agent)
            if until is None or (self._wall < until - SLACK_S and self._now_s < until_s - SLACK_S):
                when = "a person acts" if until is None else self._night.local(until)
                self.broken("who is out is not asked", f"{agent} is out until {when}")

    def agent_is_out(self, agent: str, until: float | None) -> None:
        """The loop has said, and written down, that an agent is out."""
        self._out[agent] = until, self._now_s + (0.0 if until is None else until - self._wall)

    def agent_is_ended(self, attempt: Attempt, found: StallFinding) -> None:
        """The loop ends an agent for silence or for its time."""
        if found is StallFinding.STALL:
            # What it did in silence before anybody had looked at its files twice is not known (H1).
            if attempt.quiet_s < LIMITS.hang_timeout_s - LIMITS.warn_s - LIMITS.window_s - SLACK_S:
                words = (
                    f"{attempt.agent} {attempt.life} ({attempt.quiet_s:.0f} s quiet), and is ended as hanging"
                )
                self.broken("no working agent is killed", words)
            if attempt.quiet_s > 2 * LIMITS.hang_timeout_s + LIMITS.startup_grace_s + 60.0:
                self.broken("hangs are ended", f"{attempt.agent} was quiet for {attempt.quiet_s:.0f} s")
        elif self._now_s - attempt.began_s < attempt.limit_s - SLACK_S:
            self.broken("no working agent is killed", f"{attempt.agent} had time left, and is ended")

    def agent_is_stopped(self) -> None:
        """A second stop ends it at once: nobody but a person, or a deadline, may give it."""
        daemon = self._night.daemon
        state = None if daemon is None else daemon.supervision.state
        has_deadline = isinstance(state, Stopping | Pausing) and state.kill_at is not None
        if not has_deadline:
            self.broken(
                "no working agent is killed", "a stop at the boundary was sent twice, and ends it now"
            )

    # the loop

    def loop_stepped(self, before: Loop, event: LoopEvent, after: LoopStep) -> None:
        """What the loop decided."""
        if isinstance(event, AttemptOver) and isinstance(before.stage, Attempting):
            self._attempt_was_judged(before.stage.iteration.task.id, event, after)
        if isinstance(before.stage, Resting) and not isinstance(after.loop.stage, Resting):
            self._has_rested(before.stage)
        if isinstance(event, AccountFreed):
            self._out.pop(event.agent, None)
        began = saved = False
        for order in after.orders:
            match order:
                case StartIteration(iteration=iteration):
                    began = True
                    is_reviewed = self._night.script.setting.phases  # then a tick alone is not enough
                    if not is_reviewed and iteration.task.id in self._night.list.done - self.unticked:
                        self.broken("nothing is done twice", f"{iteration.task.id} is done, and begun again")
                case SaveCheckpoint():
                    saved = True
                case EndLoop(code=75):
                    self._was_pausing = True
                case ReportAgentBack(agent=agent):  # from now on it may be asked by any clock
                    self._is_in(agent)
                case Rest():
                    self._rests(order, after.loop)
        if sum(isinstance(order, StartAttempt) for order in after.orders) > 1:
            self.broken("one agent", "two attempts were ordered at once")
        if began and not saved:
            self.broken("a checkpoint comes first", "an iteration begins without one")
        if isinstance(after.loop.stage, Attempting | Resting) and not isinstance(before.stage, Attempting):
            self._rests_since_s = self._now_s

    def loop_reads_the_list(self, *, knows: bool) -> None:
        """A loop that a person starts while the list is empty has nothing but the prompt to go by."""
        self._knows_of_list = knows

    def _attempt_was_judged(self, task: str, event: AttemptOver, after: LoopStep) -> None:
        self._judged += 1
        tells = sum(isinstance(order, ReportAttempt) for order in after.orders)
        if tells != 1:
            self.broken("recorded once", f"the end of an attempt at {task} is told {tells} times")
        kind, reset = event.finding.kind, event.finding.reset
        if reset is not None:
            self.reset_is_named(reset.until)
        if kind is FailureKind.FATAL:
            self._fatal.add(str(event.session).split("-")[0])
        left_open = kind is None and task in (*self._night.list.open, *self._night.added_open)
        self._failed[task] += left_open if kind is None else meaning(kind).for_the_task

    def _rests(self, order: Rest, loop: Loop) -> None:
        """No wait is longer than what it is for."""
        policy, wait_s = self._night.loop_policy, order.until - self._wall
        reset_s = max((until - self._wall for until in self._resets), default=0.0)
        match order.reason:
            case PauseReason.RATE_LIMIT:
                most_s = min(max(reset_s, policy.rate_limit_s), policy.max_rate_limit_wait_s)
            case PauseReason.OUTAGE:
                most_s = policy.outage_max_wait_s
            case PauseReason.USAGE_LIMIT:
                most_s = max(reset_s + policy.reset_margin_s, LONGEST_PROBE_S)
                if self._known_resets_only(loop):
                    most_s = reset_s + policy.reset_margin_s
            case PauseReason.RESOURCES:
                most_s = SLOT_LOOK_S
            case _:
                most_s = policy.max_s * (1 + policy.jitter)
        if wait_s > most_s + SLACK_S:
            self.broken("no wait is too long", f"{wait_s:.0f} s for {order.reason}, {most_s:.0f} s at most")
        self._rests_since_s = self._now_s

    def _known_resets_only(self, loop: Loop) -> bool:
        return all(self._is_named(each.until) for each in loop.memory.out)

    def _is_named(self, until: float | None) -> bool:
        """Whether a service named that moment, or there is none."""
        resets = {round(each + self._night.loop_policy.reset_margin_s) for each in self._resets}
        return until is None or round(until) in resets

    def _has_rested(self, rest: Resting) -> None:
        if self._rests_since_s is None or (rest.for_an_agent and self._clock_was_set):
            return
        rested_s = self._now_s - self._rests_since_s
        if rested_s > rest.lasts_s + LOOKED_AT_EVERY_S + SLACK_S:
            words = f"{rest.reason}: {rested_s:.0f} s awake, {rest.lasts_s:.0f} s were meant"
            self.broken("no wait is too long", words)

    def loop_ends(self, end: EndLoop) -> None:
        """What the loop says of its end is so."""
        night, policy = self._night, self._night.loop_policy
        work = night.list
        loop = night.loop.loop if night.loop is not None else None
        added = () if loop is None or loop.plan is None else loop.plan.added
        match end.code, end.reason:
            case 0, "complete" if left := [each.id for each in added if each.id not in night.added_done]:
                self.broken("no outcome is invented", f"all done, it says, and nobody did {left}")
            case 0, "complete" if work.open and self._knows_of_list:
                self.broken("no outcome is invented", f"all done, it says, and open are {work.open}")
            case 1, "tasks_failed":
                setting = night.script.setting  # with these a task may be open although it is ticked
                alone = [] if work.titles and (setting.phases or setting.gate) else ["prompt"]
                for task in [*work.open, *night.added_open] or alone:
                    if task not in self.unticked and self._failed[task] <= policy.max_task_failures:
                        words = f"{task} is given up after {self._failed[task]} failures"
                        self.broken("no task is lost", words)
            case 1, "no_agent" if not self._fatal.issuperset(policy.agents):
                well = set(policy.agents) - self._fatal
                self.broken("no task is lost", f"no agent is left, it says; nothing was wrong with {well}")
            case 5, _ if not (policy.max_iterations or policy.max_cost_usd or policy.max_runtime_s):
                self.broken("no outcome is invented", "a limit is reached, and none is set")
