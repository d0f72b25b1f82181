"""The Regent of a simulated night: records what ``core/supervision/step`` answers, then carries it out.

Real are every decision and the keys by which history and events know what they have. The rest is made up,
as small as possible, in the order of the real parts: the order of writes (``RalphRecord.write_down``), the
processes, and what a new daemon finds of them (``recovery.catch_up``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ralphd.core.gate.verdict_views import heard
from ralphd.core.record import entry_of
from ralphd.core.stall_detector import SilenceLimits
from ralphd.core.supervision.events import (
    DaemonStarted,
    DaemonStopping,
    Event,
    GateRunBegan,
    GraceOver,
    RunEnded,
    Spawned,
    SpawnPostponed,
    Woke,
)
from ralphd.core.supervision.exit_policy import TRY_AGAIN_LATER, outcome
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    ControlSignal,
    Done,
    Escalate,
    ExitFacts,
    KillAfter,
    KillTree,
    Mode,
    PassOn,
    Paused,
    RunId,
    Running,
    RunReports,
    Spawn,
    Starting,
    Step,
    Supervision,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import IterationFinished, Reported, answer, is_known
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.start_order import Applicant, StartHold, start_order
from ralphd.core.time import rfc3339
from ralphd.daemon.ralph.journal import event_key
from ralphd.loop.report_client import RegentReply
from ralphd.store.state import SUPERVISION, Facts
from tests.sim.gate_hands import GateHands
from tests.sim.landing import LandingHands
from tests.sim.mail import Letter
from tests.sim.run_watch import RunWatch
from tests.sim.world import Due, Entry, RunRecord

if TYPE_CHECKING:
    from tests.sim.night import Night

LIMITS: Final = SilenceLimits()
STOP_DEADLINE_S: Final = 60.0
KILL_LIMIT_S: Final = 20.0
LONGEST_SLEEP_S: Final = 30.0


class DaemonHands:
    """One life of the daemon, with the one ralph of this night."""

    def __init__(self, night: Night) -> None:
        self._night = night
        found = SUPERVISION.load(SUPERVISION.dump(night.disk.supervision))
        self.supervision = replace(found, goal=night.disk.goal)
        self._facts_run_id = night.disk.facts_run_id
        self.living: RunId | None = None
        self.is_ending = False
        self._facts: deque[Event] = deque()
        self._wake: Due | None = None
        self._grace: Due | None = None
        self._watch: RunWatch | None = None
        self._dues: list[Due] = []
        self.gate = GateHands(night, self)
        self.landing = LandingHands(night)
        self.is_started = False

    def starts(self) -> None:
        """What happened while nobody watched is told first, then that a daemon has started."""
        self.gate.resume()
        self._catches_up(self._missed())

    def _catches_up(self, missed: Iterator[tuple[Event, RunRecord | None]]) -> None:
        """An end is answered when its commits are judged."""
        for event, run in missed:
            if run is not None:
                self.gate.when_idle(partial(self._judged_end, run, missed))
                return
            self.handle(event)
        self.is_started = True
        self.landing.nudge()
        self.handle(DaemonStarted(self._now(), self.living))
        self.may_be_gone()

    def _judged_end(self, run: RunRecord, missed: Iterator[tuple[Event, RunRecord | None]]) -> None:
        def goes_on() -> None:
            self.gate.note_left()
            self.handle(RunEnded(self._ending_of(run)))
            self._catches_up(missed)

        self.gate.judges_end(run, seen=False)
        self.gate.when_idle(goes_on)

    def dies(self) -> None:
        """Nothing of it is left."""
        for due in (*self._dues, self._wake, self._grace):
            if due is not None:
                due.call_off()
        if self._watch is not None:
            self._watch.stop()
        self.gate.dies()
        self.landing.dies()

    def _now(self) -> float:
        return self._night.clock.wall()

    # being told

    def handle(self, event: Event) -> str | None:
        """Answer an event, and what carrying that out leads to. Why it was refused, or None."""
        if (reason := why_not(self.supervision, event)) is not None:
            return reason
        facts = deque([event])
        while facts:
            fact = facts.popleft()
            before = self.supervision
            answered = self._night.steps.regent(before, fact, self._night.policy)
            self._night.checks.regent_stepped(before, fact, answered)
            self._write_down(before, fact, answered)
            self.gate.on_event(fact)
            for action in answered.actions:
                if (news := self._carry_out(action)) is not None:
                    facts.append(news)
                self._night.daemon_may_die("after " + type(action).__name__)
        if isinstance(self.supervision.state, Done):
            self._night.landing.proposes(self._night.commits)
        return None

    def hear(self, run_id: RunId, letter: Letter) -> RegentReply | None:
        """A report: its answer. One that is refused is not sent again; one that is to be judged waits."""
        event = Reported(self._now(), run_id, letter.id, repr(letter.report), letter.report)
        if self.gate.is_on and why_not(self.supervision, event) is None:
            is_boundary = isinstance(letter.report, IterationFinished)
            if (is_boundary and self.gate.is_busy) or (
                not is_known(self.supervision, event) and self.gate.judges(run_id, letter.id, letter.report)
            ):
                self.gate.when_idle(lambda: self._hears_again(run_id, letter))
                return None
        refused = self.handle(event)
        self._night.daemon_may_die("before it answers")
        if refused:
            return RegentReply()
        verdict = self.gate.verdict_on(f"{run_id}/{letter.id}")
        return RegentReply(answer(self.supervision, letter.id), verdict and heard(verdict))

    def _hears_again(self, run_id: RunId, letter: Letter) -> None:
        hands = self._night.loop
        if hands is not None and hands.run.run_id == run_id:
            reply = self.hear(run_id, letter)
            if reply is not None:
                hands.mail.is_answered(letter, reply)

    def is_told_to_end(self) -> None:
        """SIGTERM: it takes its runs along, by their next boundary or its deadline."""
        self.is_ending = True
        self._tell(DaemonStopping(self._now()))
        if self._night.daemon is not self:
            return
        self._later(STOP_DEADLINE_S, lambda: self.handle(DaemonStopping(self._now(), now=True)))
        self._later(STOP_DEADLINE_S + KILL_LIMIT_S, lambda: self._night.daemon_is_gone("gives up waiting"))

    @property
    def is_busy(self) -> bool:
        """Whether a run lives, or its end has not been answered yet."""
        is_judging = self.gate.is_busy or self.gate.tests_baseline
        return isinstance(self.supervision.state, HAS_A_RUN) or is_judging

    # writing down

    def _write_down(self, before: Supervision, fact: Event, answered: Step) -> None:
        night, disk = self._night, self._night.disk
        if isinstance(fact, RunEnded) and answered.exit_meaning is not None:
            self._enter_end(fact.ending, answered.exit_meaning.value)
        if (
            isinstance(fact, Reported)
            and not is_known(before, fact)
            and (entry := entry_of(fact, before.said)) is not None
        ):
            self._enter(Entry(entry[0], f"{fact.run_id}/{fact.id}", entry[1]))
        for action in answered.actions:
            if isinstance(action, Announce | Escalate):
                self._announce(action, fact)
        night.daemon_may_die("before the state is saved")
        disk.goal = answered.supervision.goal
        disk.supervision = answered.supervision
        disk.facts_run_id = self._facts_run_id
        night.daemon_may_die("after the state was saved")
        self.supervision = answered.supervision

    def _enter_end(self, ending: ExitFacts, meant: str) -> None:
        data: dict[str, object] = {
            "run_id": ending.run_id,
            "code": ending.code,
            "signal": ending.signal,
            "outcome": meant,
        }
        self._enter(Entry("run", ending.run_id, data))

    def _enter(self, entry: Entry) -> None:
        if entry.key not in self._night.disk.history:
            self._night.disk.history[entry.key] = entry
            self._night.checks.entered(entry)
            self._night.daemon_may_die(f"after the {entry.kind} was entered")

    def _announce(self, action: Announce | Escalate, fact: Event) -> None:
        kind = "ralph.escalated" if isinstance(action, Escalate) else action.type
        key = event_key(kind, fact, Facts(run_id=self._facts_run_id))
        if isinstance(action, Escalate):
            key = key or f"{kind}/{rfc3339(fact.at)}"
        if key is not None and key in self._night.disk.told:
            return
        if key is not None:
            self._night.disk.told[key] = kind
        self._night.checks.told(kind, action.text)
        if action.text is not None:
            self._night.tell("the Regent", action.text)

    # carrying out

    def _carry_out(self, action: Action) -> Event | None:
        match action:
            case Spawn():
                return self._spawn()
            case Terminate() | PassOn() | KillTree() if self.living is not None:
                self._later(0.0, lambda run_id=self.living: self._signal(run_id, action))
            case WakeAt(at=at):
                self._wake_at(at)
            case KillAfter(run_id=run_id, delay_s=delay_s):
                if self._grace is not None:
                    self._grace.call_off()
                self._grace = self._night.agenda.after(
                    delay_s, lambda: self._tell(GraceOver(self._now(), run_id))
                )
            case _:
                pass
        return None

    def _spawn(self) -> Event:
        night = self._night
        if night.lacks_resources:
            night.checks.start_is_put_off()
            return SpawnPostponed(self._now(), "no space left")
        if (hold := self._start_hold()) is not None:
            night.checks.start_is_put_off()
            return hold
        if self.gate.prepare():
            night.checks.start_is_put_off()
            return GateRunBegan(self._now(), None)
        run = night.intend_run()
        night.daemon_may_die("after the intent")
        state = self.supervision.state
        night.bear(run, self.supervision.tally.began_at, state if isinstance(state, Starting) else None)
        night.daemon_may_die("after the birth")
        assert run.born_at is not None
        self._adopt(run)
        return Spawned(run.born_at, run.run_id)

    def _applicant(self, queued_at: float) -> Applicant:
        accounts, state = self._night.accounts, self.supervision.state
        asked = isinstance(state, Starting) and (state.skips or isinstance(state.before, Paused))
        needs = {} if asked else dict.fromkeys(self._night.script.setting.names, accounts.rules)
        return Applicant("me", queued_at, self.supervision.goal, accounts=needs)

    def _start_holds(self, mine: Applicant) -> StartHold | None:
        accounts = self._night.accounts
        clocks = {account: accounts.peek(account) for account in accounts.clocks}
        return start_order([mine], 0, 1.0, self._now(), None, clocks).get("me")

    def _start_hold(self) -> SpawnPostponed | None:
        """As ``Regent._postponed``: what the accounts of its agents say of a start."""
        if not self._night.accounts.is_shared or self._night.script.setting.command:
            return None
        state = self.supervision.state
        queued_at = state.queued_at if isinstance(state, Starting) else None
        mine = self._applicant(self._now() if queued_at is None else queued_at)
        hold = self._start_holds(mine)
        if hold is None:
            return None
        return SpawnPostponed(self._now(), hold.why, hold.reason, hold.until, mine.queued_at)

    def retries_start(self) -> None:
        """A start that waits for its turn is tried again."""
        state = self.supervision.state
        if self.is_ending or not isinstance(state, Waiting) or state.queued_at is None:
            return
        if self._start_holds(self._applicant(state.queued_at)) is None:
            self._tell(Woke(self._now(), is_free=True))

    def _adopt(self, run: RunRecord) -> None:
        self.living = self._facts_run_id = run.run_id
        self.look_at_run()

    def _signal(self, run_id: RunId | None, action: Action) -> None:
        hands = self._night.loop
        if hands is None or hands.run.run_id != run_id:
            return
        match action:
            case Terminate():
                hands.asked_to_end()
            case PassOn(wish=ControlSignal.PAUSE):
                hands.asked_to_pause()
            case PassOn():
                hands.asked_to_skip()
            case KillTree():
                self._night.checks.tree_is_killed(hands, self.supervision)
                self._night.run_exits(hands.run, signal=9)

    def look_at_run(self) -> None:
        """A loop that lives beats, and every look finds just that; one that hangs is watched in earnest."""
        hands = self._night.loop
        if self._watch is None and hands is not None and hands.is_hung and hands.run.run_id == self.living:
            self._watch = RunWatch(self._night, self, hands.run)

    # time

    def _wake_at(self, at: float) -> None:
        if self._wake is not None:
            self._wake.call_off()
        state, delay_s = self.supervision.state, at - self._now()
        if isinstance(state, Waiting) and state.since > self._now():  # counted by a clock that was set back
            delay_s = min(delay_s, LONGEST_SLEEP_S)
        self._wake = self._night.agenda.after(delay_s, self._woke)

    def _woke(self) -> None:
        self._wake = None
        if not self.is_ending:
            self._tell(Woke(self._now()))

    def clock_jumped(self) -> None:
        """The clock is looked at every 30 s."""
        if self._wake is not None:
            self._wake.call_off()
            self._wake = self._night.agenda.after(LONGEST_SLEEP_S, self._woke)

    def _later(self, delay_s: float, act: object) -> None:
        assert callable(act)
        self._dues.append(self._night.agenda.after(delay_s, act))

    def _tell(self, fact: Event) -> None:
        self.handle(fact)
        self.may_be_gone()

    def may_be_gone(self) -> None:
        """It ends as soon as nothing is left to wait for."""
        if self.is_ending and not self.is_busy and self._night.daemon is self:
            self._night.daemon_is_gone("has ended")

    def tell(self, fact: Event) -> None:
        """Something was seen of the run."""
        self._tell(fact)

    # ends

    def run_is_over(self, run: RunRecord) -> None:
        """The shim is gone: its record is read, and answered."""
        if self.living == run.run_id:
            if self._watch is not None:
                self._watch.stop()
                self._watch = None
            self.gate.when_idle(lambda: self._after_run(run))

    def _after_run(self, run: RunRecord) -> None:
        self.gate.judges_end(run, seen=True)
        self.gate.when_idle(lambda: self._run_is_judged(run))

    def _run_is_judged(self, run: RunRecord) -> None:
        self.gate.note_left()
        self.living = None
        self._tell(RunEnded(self._ending_of(run)))

    def _ending_of(self, run: RunRecord) -> ExitFacts:
        end, checkpoint = run.exit, self._night.disk.checkpoint
        reason, resume_at = None, None
        if end is not None and end.code == TRY_AGAIN_LATER and checkpoint is not None:
            reason, resume_at = checkpoint.reason.value, checkpoint.resume_at
        return ExitFacts(
            run_id=run.run_id,
            at=self._now() if end is None else end.at,
            code=None if end is None else end.code,
            signal=None if end is None else end.signal,
            started_at=run.born_at,
            last_sign_at=run.last_output_at,
            committed=self._night.commits > run.commits_before,
            complete=self._night.policy.mode is Mode.ITERATION and self._night.is_work_done,
            pause_reason=reason,
            resume_at=resume_at,
        )

    def _missed(self) -> Iterator[tuple[Event, RunRecord | None]]:
        """``recovery.catch_up``: the facts that the runs hold and the state does not, oldest first."""
        for run in self._night.disk.runs:
            believed = getattr(self.supervision.state, "run_id", None) == run.run_id
            if run.run_id in self._night.disk.history and not believed:
                continue
            if run.lives:
                self._adopt(run)
                continue
            if run.born_at is None:
                continue
            if isinstance(self.supervision.state, Starting):
                self._facts_run_id = run.run_id
                yield Spawned(run.born_at, run.run_id), None
            elif not believed:
                ending = self._ending_of(run)
                self._enter_end(ending, outcome(Running(run.run_id), ending, RunReports()).value)
                continue
            yield RunEnded(self._ending_of(run)), run
        state = self.supervision.state
        if self.living is None and isinstance(state, HAS_A_RUN):
            yield RunEnded(ExitFacts(state.run_id, self._now())), None
