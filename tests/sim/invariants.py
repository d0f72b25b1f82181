"""What must hold of every night. Each promise is checked as soon as it can be broken, after every event.

Nothing here asks the core what is right: it is held against what is so in this world.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ralphd.core.loop.pool import LONGEST_PROBE_S
from ralphd.core.quota.model import SLOT_LOOK_S
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Done,
    Failed,
    Goal,
    Paused,
    Pausing,
    Reason,
    RunId,
    Starting,
    State,
    Step,
    Stopped,
    Stopping,
    Supervision,
    Waiting,
)
from tests.sim.agents import COST_USD, LIMITS
from tests.sim.checking import LOOKED_AT_EVERY_S, SLACK_S, Broken, crowded
from tests.sim.faults import What
from tests.sim.loop_checks import LoopChecks
from tests.sim.world import Entry, RunRecord

if TYPE_CHECKING:
    from tests.sim.loop_hands import LoopHands
    from tests.sim.night import Night

MOST_RUNS_A_MINUTE: Final = 15
FAILURES: Final = ("failed", "lost", "stalled", "timeout")
_GOALS: Final = {
    What.STOP: Goal.STOPPED,
    What.STOP_NOW: Goal.STOPPED,
    What.PAUSE: Goal.PAUSED,
    What.START: Goal.RUNNING,
    What.RESUME: Goal.RUNNING,
    What.RESTART: Goal.RUNNING,
}


class Checks(LoopChecks):
    """What was seen so far, and what must not be."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._runs_at: deque[float] = deque()
        self._goals = {Goal.STOPPED}
        self._asked: set[What] = set()
        self._acts: set[What] = set()
        self._attempts: set[tuple[object, ...]] = set()
        self._told_ends = 0
        self._unheard: list[RunRecord] = []
        self._failures = 0
        self._has_failed = False
        self._restarts_at: deque[float] = deque()
        self._by_person = True
        self._is_put_off = False
        self._is_called = False
        self._waits: tuple[Waiting, float] | None = None
        self._ending: tuple[RunId, float] | None = None

    # people and clocks

    def asked(self, what: What) -> None:
        """Somebody asks for what fits; a daemon that is killed now may have heard it, or not."""
        self._asked.add(what)
        self._called_for = ""
        goal = _GOALS.get(what)
        if goal is not None:
            self._goals = {*self._goals, goal}
        self._by_person = self._by_person or goal is Goal.RUNNING or what is What.SKIP_WAIT
        if what is What.RESUME:
            self._is_called = False
        if what is What.SKIP_WAIT:
            self._out.clear()
        self._acts.add(what)
        self._may_be_asked(what)
        if what in (What.START, What.RESTART):
            self._failures = 0
            self._restarts_at.clear()
            self._is_called = False

    def _may_be_asked(self, what: What) -> None:
        """Whom a run that a person begins may ask: who waits for one, and whose reset nobody named."""
        if what in (What.START, What.RESTART):
            self._out = {agent: out for agent, out in self._out.items() if out[0] is not None}
        if what in (What.START, What.RESTART, What.RESUME):
            self._out = {agent: out for agent, out in self._out.items() if self._is_named(out[0])}

    def answered(self, what: What) -> None:
        """It was carried out."""
        if what in _GOALS:
            self._goals = {_GOALS[what]}

    def person_has_to_look(self) -> None:
        """Judged commits are gone for good: that pauses it."""
        self._goals = {*self._goals, Goal.PAUSED}

    def call_may_come_again(self) -> None:
        """A daemon died before it had written down that a person was called."""
        self._is_called = False

    def run_is_obeyed(self, word: str) -> None:
        """A run asked for something, and got it: nobody has permitted that."""
        self.broken("a run commands nothing", f"it asked for {word}, and was not refused")

    def clock_jumped(self) -> None:
        """What is counted by the wall begins anew."""
        self._clock_was_set = True
        self._restarts_at.clear()

    # runs

    def run_begins(self, run: RunRecord) -> None:
        """One at most, and not too many."""
        if self._night.loop is not None:
            self.broken("one run", f"{run.run_id} is born while {self._night.loop.run.run_id} lives")
        policy = self._night.policy
        if Goal.RUNNING not in self._goals:
            self.broken("the goal is kept", f"{run.run_id} is born, and asked for was {self._goals}")
        if not self._by_person:
            self._runs_at.append(self._now_s)
            if crowded(self._runs_at, MOST_RUNS_A_MINUTE, 60.0):
                self.broken("restarts are bounded", f"over {MOST_RUNS_A_MINUTE} runs in a minute")
        if not self._by_person and self._has_failed:
            if self._failures >= policy.max_retries:
                self.broken("restarts are bounded", f"started again after {self._failures} failures running")
            if policy.max_restarts_per_hour and not self._is_put_off:
                self._restarts_at.append(self._wall)
                if crowded(self._restarts_at, policy.max_restarts_per_hour, 3600.0 - 1.0):
                    self.broken("restarts are bounded", f"over {policy.max_restarts_per_hour} in an hour")
        before = self._night.disk.runs[-2:-1]
        if self._was_pausing and before and (before[0].exit is None or before[0].exit.code is None):
            self._may_be_asked(What.RESUME)  # killed between two writes: its checkpoint is that of a pause
        self._was_pausing = False
        for what in self._acts:  # one that was asked for while a run lived is carried out now
            self._may_be_asked(what)
        self._acts.clear()
        self._by_person = self._is_put_off = False
        self._unheard.append(run)

    def start_is_put_off(self) -> None:
        """A restart was counted when it was tried, and comes later: its hour is not known here."""
        self._is_put_off = True

    def tree_is_killed(self, hands: LoopHands, supervision: Supervision) -> None:
        """Only what hangs, what was to be killed, or what had its time to end."""
        daemon, state = self._night.daemon, supervision.state
        is_late = isinstance(state, Stopping | Pausing) and state.kill_at is not None
        asked = What.STOP_NOW in self._asked or (daemon is not None and daemon.is_ending)
        if not (hands.is_hung or is_late or asked):
            self.broken("no working agent is killed", f"the tree of {hands.run.run_id} is killed at work")

    def run_is_overdue(self, run: RunRecord) -> None:
        """The Regent ends a run for its silence."""
        hands = self._night.loop
        silent_s = self._wall - (run.last_output_at or 0.0)
        limit_s = LIMITS.hang_timeout_s - SLACK_S
        if hands is None or not hands.is_hung or (silent_s < limit_s and not self._clock_was_set):
            self.broken(
                "no working agent is killed", f"{run.run_id} is ended for a silence of {silent_s:.0f} s"
            )

    def entered(self, entry: Entry) -> None:
        """An entry of the record."""
        if entry.kind == "run":
            self._run_is_entered(entry)
        if entry.kind == "iteration" and not entry.data["failed"]:
            self._failures = 0
        if entry.kind == "attempt":
            # A loop that was killed between two writes may use a number again.
            run_id, number, task = entry.key.split("/")[0], entry.data["attempt"], str(entry.data["task"])
            why = entry.data["why"] if entry.data["outcome"] == "lost" else ""
            key = (run_id, entry.data["iteration"], number, task, why)
            if key in self._attempts:
                self.broken("recorded once", f"an attempt was entered twice: {key[1:]}")
            self._attempts.add(key)

    def _run_is_entered(self, entry: Entry) -> None:
        run = next(run for run in self._night.disk.runs if run.run_id == entry.data["run_id"])
        truth = (None, None) if run.exit is None else (run.exit.code, run.exit.signal)
        said, meant = (entry.data["code"], entry.data["signal"]), entry.data["outcome"]
        if run.lives:
            self.broken("no outcome is invented", f"{run.run_id} lives, and its end is entered")
        if said != truth:
            self.broken("no outcome is invented", f"{run.run_id} ended with {truth}, entered is {said}")
        if meant == "done" and truth != (0, None):
            self.broken("no outcome is invented", f"{run.run_id} ended with {truth}, and is called done")
        self._has_failed = meant in FAILURES
        lived_s = (run.last_output_at or 0.0) - (run.born_at or 0.0)
        is_healthy = self._night.script.setting.command and lived_s > self._night.policy.healthy_after_s
        has_worked = (self._night.commits > run.commits_before or is_healthy) and meant != "stalled"
        if self._has_failed:
            self._failures = 1 if has_worked else self._failures + 1
        elif meant not in ("asked",) or has_worked:
            self._failures = 0

    def told(self, kind: str, text: str | None) -> None:
        """An event goes out."""
        if kind == "ralph.escalated" and not self.is_call_of_verdict():
            if self._is_called:
                self.broken("a person is called once", f"again, and nobody has acted since: {text}")
            self._is_called = True
        if kind == "ralph.exited":
            self._told_ends += 1

    # the Regent

    def regent_stepped(self, before: Supervision, fact: Event, answered: Step) -> None:
        """What the Regent decided."""
        state = answered.supervision.state
        if isinstance(state, Waiting) and state is not before.state:
            self._waiting_begins(state)
        if isinstance(state, Paused) and state.resume_at is not None and state is not before.state:
            latest = max(self._resets, default=self._wall) + self._night.policy.reset_margin_s
            if state.resume_at > max(latest, self._wall + LONGEST_PROBE_S) + SLACK_S:
                self.broken("no wait is too long", f"paused until {self._night.local(state.resume_at)}")
        if isinstance(state, Failed | Stopped | Done) and state is not before.state:
            self._settles(answered.supervision)

    def _waiting_begins(self, wait: Waiting) -> None:
        policy = self._night.policy
        most_s = {
            Reason.CRASH: max(
                policy.retry_backoff_s, policy.retry_backoff_max_s * (policy.retry_backoff_factor > 1)
            ),
            Reason.RESTART_LIMIT: 3600.0,
            Reason.RESOURCES: SLOT_LOOK_S if wait.queued_at else max(policy.retry_backoff_s, 1.0),
            Reason.USAGE_LIMIT: max(
                LONGEST_PROBE_S, max(self._resets, default=0.0) + policy.reset_margin_s - wait.since
            ),
        }.get(wait.reason, policy.iteration_pause_s)
        if wait.until - wait.since > most_s + SLACK_S:
            words = f"{wait.reason}: {wait.until - wait.since:.0f} s, {most_s:.0f} s at most"
            self.broken("no wait is too long", words)

    def _settles(self, now: Supervision) -> None:
        """Nothing more will happen by itself: that needs a reason that is so."""
        is_iteration = self._night.script.setting.iteration
        if is_iteration and now.state == Done("complete") and not self._night.is_work_done:
            self.broken("no outcome is invented", f"done, it says, and open are {self._night.list.open}")
        is_lost = self._night.list.open and self._knows_of_list
        if isinstance(now.state, Stopped) and now.state.why and is_lost:
            self.broken("no task is lost", f"stopped: {now.state.why}, and open are {self._night.list.open}")
        if isinstance(now.state, Stopped) and now.state.why:
            self._goals = {Goal.STOPPED}

    # always

    def after_event(self) -> None:
        """What holds whenever nothing is being carried out."""
        night, daemon = self._night, self._night.daemon
        if self._agent is not None and night.loop is None:
            self.broken("one agent", f"{self._agent.agent} outlives its loop")
        if daemon is None or not daemon.is_started:
            self._waits = self._ending = None
            return
        now, run = daemon.supervision, None if night.loop is None else night.loop.run
        if now.goal not in self._goals:
            self.broken("the goal is kept", f"{now.goal} is wanted, it says; asked for was {self._goals}")
        self._goals = {now.goal}
        if isinstance(now.state, Starting) and not (daemon.gate.tests_baseline or daemon.is_ending):
            self.broken("nothing is forgotten", "a start was ordered and nothing came of it")
        if run is not None and not (isinstance(now.state, HAS_A_RUN) and now.state.run_id == run.run_id):
            self.broken("nothing runs unwatched", f"{run.run_id} lives, and the ralph is {now.state.kind}")
        if isinstance(now.state, HAS_A_RUN) and daemon.living != now.state.run_id:
            self.broken("nothing is forgotten", f"it waits for {now.state.run_id}, which nobody watches")
        if isinstance(now.state, Stopped) and now.goal is Goal.RUNNING and not daemon.is_ending:
            self.broken("no task is lost", "stopped, and nobody asked for it")
        if self._unheard:
            self._ends_are_entered(daemon.living)
        self._wait_is_kept(now.state)
        self._end_is_near(now.state)

    def _ends_are_entered(self, living: RunId | None) -> None:
        over = [run for run in self._unheard if not run.lives and run.run_id != living]
        for run in over:
            if run.run_id not in self._night.disk.history:
                self.broken("recorded once", f"the end of {run.run_id} is not in the record")
        self._unheard = [run for run in self._unheard if run not in over]

    def _wait_is_kept(self, state: State) -> None:
        if not isinstance(state, Waiting):
            self._waits = None
            return
        if self._waits is None or self._waits[0].since != state.since:
            self._waits = (state, self._now_s)
        began, since_s = self._waits
        lasts_s = max(began.until - began.since, state.until - state.since)
        if self._wall >= state.since:  # it follows the wall clock (H5), and is longer if that was set back
            lasts_s += max((self._now_s - since_s) - (self._wall - state.since), 0.0)
        if self._now_s - since_s > lasts_s + LOOKED_AT_EVERY_S + SLACK_S:
            self.broken(
                "no wait is too long", f"{state.reason}: {self._now_s - since_s:.0f} s, {lasts_s:.0f} meant"
            )

    def _end_is_near(self, state: State) -> None:
        """A run that has its time to end has ended by then, whatever it does."""
        is_due = isinstance(state, Stopping | Pausing) and state.kill_at is not None
        if not is_due or self._night.loop is None:
            self._ending = None
            return
        run_id = self._night.loop.run.run_id
        if self._ending is None or self._ending[0] != run_id:
            self._ending = run_id, self._now_s
        graces_s = 2 * self._night.policy.stop_timeout_s  # it is told first, where it was not
        if self._now_s - self._ending[1] > graces_s + LOOKED_AT_EVERY_S + SLACK_S:
            self.broken("a stop is carried out", f"{run_id} outlives its time to end")

    # the morning

    def seen_to(self, state: State) -> None:
        """A person looks at what has settled, and starts it again."""
        is_lost = self._night.list.open and self._knows_of_list
        if isinstance(state, Done) and state.why == "complete" and is_lost:
            self.broken("no outcome is invented", f"done, it says, and open are {self._night.list.open}")

    @property
    def nothing_more_can_be_done(self) -> bool:
        """Whether it ends as the rules of the night have it, though work is left."""
        daemon, setting = self._night.daemon, self._night.script.setting
        assert daemon is not None
        state = daemon.supervision.state
        spent = COST_USD * self._judged
        if isinstance(state, Done) and state.why == "limit" and setting.max_cost_usd:
            return spent >= setting.max_cost_usd  # it ends there again until more is allowed
        return isinstance(state, Done) and state.why == "complete" and not setting.tasks

    def at_the_end(self) -> None:
        """The night is over."""
        self.all_kept_is_there()
        self.landing_at_the_end()
        entered = sum(entry.kind == "run" for entry in self._night.disk.history.values())
        born = sum(run.born_at is not None for run in self._night.disk.runs)
        if entered != born:
            self.broken("recorded once", f"{born} runs, {entered} ends in the record")
        if self._told_ends > born:
            self.broken("recorded once", f"{born} runs, {self._told_ends} ends were told")


__all__ = ["Broken", "Checks"]
