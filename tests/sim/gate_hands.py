"""The gate of a simulated night: opens ranges, carries out the orders of a gate run, holds what waits for it.

Real are every decision (``core/gate``), in the order of ``daemon/gate``. Made up: git, and what tests show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from ralphd.core.gate import range as ranges
from ralphd.core.gate import step as gate
from ralphd.core.gate import verdict as orders
from ralphd.core.gate.range import AtEnd, GateState
from ralphd.core.gate.verdict import Baseline, GateRun, Position, Result, Verdict
from ralphd.core.gate.weakened import TestCheck, TestCounts
from ralphd.core.supervision import reports
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    DaemonStopping,
    Event,
    GateRunBegan,
    StopRequested,
    VerdictReached,
)
from ralphd.core.supervision.model import HAS_A_RUN, Goal, Mode, ReportedTask, RunId, Starting
from tests.sim.repository import BRANCH
from tests.sim.world import Due, RunRecord

if TYPE_CHECKING:
    from tests.sim.daemon_hands import DaemonHands
    from tests.sim.night import Night

ORDER_S: Final = 0.2
STILL_S: Final = 1.0
ENDED: Final = "everything was to end at once"


class GateHands:
    """The gate of one life of the daemon; what it knows is on the disk."""

    def __init__(self, night: Night, daemon: DaemonHands) -> None:
        self._night, self._daemon = night, daemon
        self._repository = night.repository
        self._dice = Random(night.script.seed ^ len(night.disk.runs) ^ 0x6A7E)
        self.is_on = night.script.setting.gate
        self.is_busy = self.tests_baseline = False
        self._idle: list[Callable[[], None]] = []
        self._due: Due | None = None

    def dies(self) -> None:
        """With its daemon; the tests live on."""
        if self._due is not None:
            self._due.call_off()

    @property
    def _state(self) -> GateState:
        return self._night.disk.gate

    @property
    def _run(self) -> GateRun:
        assert self._state.judging is not None
        return self._state.judging

    def _save(self, state: GateState) -> None:
        self._night.disk.gate = state
        self._night.daemon_may_die("after gate.json")

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        self.dies()
        self._due = self._night.agenda.after(delay_s, act)

    def when_idle(self, act: Callable[[], None]) -> None:
        """Do it as soon as nothing is being judged."""
        if self.is_busy:
            self._idle.append(act)
        else:
            act()

    # before a run

    def prepare(self) -> bool:
        """Open the range of the run about to start. Whether the tests run first (R4)."""
        if not self.is_on:
            return False
        state, head = self._state, self._repository.position
        descends = state.knows_run and state.before is not None
        is_iteration = self._night.policy.mode is Mode.ITERATION
        self._save(ranges.before_run(state, head, is_iteration=is_iteration, descends=descends))
        if ranges.needs_baseline(self._state):
            self.tests_baseline = True
            self._test(self._baseline_is_tested)
            return True
        return False

    def _baseline_is_tested(self, result: Result | None, counts: TestCounts | None) -> None:
        self.tests_baseline = False
        state = ranges.with_baseline(self._state, result)
        if result is Result.GREEN:
            state = ranges.with_counts(state, counts, self._repository.position)
        run_id = self._state.test_run or RunId("none")
        self._night.disk.gate = state
        if result is None and self._daemon.is_ending:
            self._daemon.may_be_gone()
            return
        self._daemon.tell(BaselineTested(self._night.clock.wall(), run_id, result))
        self._save(replace(self._state, test_run=None))

    # boundaries

    def judges(self, run_id: RunId, letter_id: str, report: reports.Report) -> bool:
        """Whether the answer to a report waits for a verdict, as ``Gate.on_report``."""
        if isinstance(report, reports.IterationStarted) and ranges.opens_with_iteration(self._state):
            head = Position(report.head, report.branch) if report.head else self._repository.position
            before = self._state.before
            descends = before is not None and before.branch == head.branch
            self._save(ranges.at_iteration(self._state, head, descends=descends))
        if not isinstance(report, reports.IterationFinished):
            return False
        boundary_id = f"{run_id}/{letter_id}"
        if self._is_judged(boundary_id):
            return False
        return self._judge(boundary_id, run_id, report.number, report.task)

    def _is_judged(self, boundary_id: str) -> bool:
        return self._state.last is not None and self._state.last.boundary_id == boundary_id

    def verdict_on(self, boundary_id: str) -> Verdict | None:
        """What the loop gets at that boundary."""
        last = ranges.last_verdict(self._state)
        return last if last is not None and last.boundary_id == boundary_id else None

    def judges_end(self, run: RunRecord, *, seen: bool) -> bool:
        """Whether the end of a run waits for a verdict (R1)."""
        if not self.is_on or self._state.before is None:
            return False
        head, code = self._repository.position, None if run.exit is None else run.exit.code
        is_foreign = not seen and self._is_foreign(run)
        current, is_iteration = self._daemon.supervision, self._night.policy.mode is Mode.ITERATION
        found = ranges.at_end(
            self._state, head, code=code, is_foreign=is_foreign, is_iteration=is_iteration,
            reports_boundaries=current.said.iterates and self._has_boundaries,
        )  # fmt: skip
        if found is AtEnd.FOREIGN:
            self._save(ranges.dropped(self._state, head))
        if found is not AtEnd.JUDGE or self._is_judged(run.run_id):
            return False
        return self._judge(run.run_id, run.run_id, current.tally.iteration + is_iteration)

    @property
    def _has_boundaries(self) -> bool:
        policy = self._night.policy
        is_opaque = policy.mode is Mode.LOOP and not policy.own_loop
        iterates = self._daemon.supervision.said.iterates
        return ranges.has_boundaries(self._state, is_opaque=is_opaque, iterates=iterates, passed_by=False)

    def _is_foreign(self, run: RunRecord) -> bool:
        ended_at = self._night.clock.wall() if run.exit is None else run.exit.at
        return self._night.person_committed_at > ended_at + 1

    def note_left(self) -> None:
        """Where a run has left HEAD."""
        if self.is_on and self._state.before is not None:
            self._save(ranges.left_at(self._state, self._repository.position))

    def _judge(
        self, boundary_id: str, run_id: RunId, number: int | None = None, task: ReportedTask | None = None
    ) -> bool:
        state = self._state
        if state.before is None:
            self._save(replace(state, before=self._repository.position))
            return False
        found = self._repository.boundary(state.before)
        self._repository.surprised = 0
        run = gate.begin(
            ranges.attributed(found, knows_run=state.knows_run), state.baseline,
            boundary_id=boundary_id, run_id=run_id, number=number, task=task, excused=state.excused,
            check=TestCheck(before=state.counts_before, start_commit=state.start_commit),
        )  # fmt: skip
        self._open(run)
        return True

    def resume(self) -> None:
        """What an earlier daemon has left under way."""
        if self.is_on and self._state.judging is not None:
            self._open(self._state.judging)

    def _open(self, run: GateRun) -> None:
        self.is_busy = True
        if run is not self._state.judging:
            self._save(replace(self._state, judging=run))
        if not isinstance(run.order, orders.Say):
            self._daemon.handle(GateRunBegan(self._night.clock.wall(), run.run_id))
        self._after(0.0, self._work)

    def undo(self) -> None:
        """A person wants back what was reverted last; not while anything runs (``daemon/gate/undo``)."""
        night, state, current = self._night, self._state, self._daemon.supervision
        is_working = self.is_busy or self.tests_baseline or isinstance(current.state, (*HAS_A_RUN, Starting))
        last = state.reverted
        if not self.is_on or is_working or last is None:
            return
        self._save(replace(state, baseline=Baseline.UNKNOWN))
        back = self._repository.take_back(last.boundary_id)
        night.commits += 1
        night.list_follows_repository()
        night.daemon_may_die("after the commits are back")
        self._save(night.steps.after_undo(self._state, last.boundary_id, self._repository.position))
        night.tell("people", f"{len(back)} commits are back")
        night.checks.commits_are_restored(back)
        at = night.clock.wall()
        self._daemon.handle(
            CommitsRestored(at, last.boundary_id, last.run_id, commits=orders.short(tuple(back)))
        )

    # one order after the other

    def _work(self) -> None:
        run, repository = self._run, self._repository
        if isinstance(run.order, orders.Say):
            verdict = run.finished(self._night.clock.wall(), ())
            self._conclude(run, verdict)
        elif run.is_stale:
            found = ranges.attributed(
                repository.boundary(run.boundary.before), knows_run=self._state.knows_run
            )
            again = gate.retaken(run, found, repository.reverts(run.boundary_id))
            self._take(again)
        elif isinstance(run.order, orders.RunTests):
            self._test(self._tests_ended)
        else:
            event = repository.carry_out(run.order, run)
            self._night.daemon_may_die("after " + type(run.order).__name__)
            self._takes(event)

    def _test(self, heard: Callable[[Result | None, TestCounts | None], None]) -> None:
        """Run the tests, or wait for those that an earlier daemon has started."""
        night = self._night
        if self._state.test_run is None:
            self._save(replace(self._state, test_run=RunId(f"t{night.clock.awake_s:.1f}")))
            night.tests_end_s = night.clock.awake_s + 15.0 + 200.0 * self._dice.random() ** 2
        self._heard = heard
        self._after(night.tests_end_s - night.clock.awake_s, lambda: heard(*self._repository.test()))

    def cut(self) -> None:
        """End the tests: nobody waits for them any longer."""
        if self._state.test_run is not None and (self.is_busy or self.tests_baseline):
            self._after(0.0, lambda: self._heard(None, None))

    def on_event(self, event: Event) -> None:
        """As ``Gate.on_event``."""
        current = self._daemon.supervision
        kills = isinstance(event, StopRequested | DaemonStopping) and event.now
        unwanted = current.goal is not Goal.RUNNING or isinstance(event, DaemonStopping)
        if kills or (self.tests_baseline and isinstance(current.state, Starting) and unwanted):
            self.cut()

    def _tests_ended(self, result: Result | None, counts: TestCounts | None) -> None:
        run = self._run
        if result is None:
            self._takes(orders.Cut(ENDED))
            return
        ran = orders.TestRun(self._state.test_run or RunId("t"), result, 60.0)
        run = run.tested(ran, "FAILED", counts)
        self._night.disk.gate = replace(self._state, judging=run)
        self._takes(run.moved(self._repository.position) or orders.Ran(result))

    def _takes(self, event: orders.GateEvent) -> None:
        self._take(self._night.steps.gate(self._run, event, self._night.script.setting.gate_policy()))

    def _take(self, run: GateRun) -> None:
        self._save(replace(self._state, judging=run, test_run=None))
        self._after(STILL_S if run.is_stale else ORDER_S, self._work)

    def _conclude(self, run: GateRun, verdict: Verdict) -> None:
        night = self._night
        night.tell("the gate", f"{verdict.kind}: {verdict.why}")
        night.checks.verdict_is_reached(verdict, is_blind=not self._state.knows_run)
        night.list_follows_repository()
        try:
            self._daemon.handle(VerdictReached(verdict))
        finally:
            night.checks.verdict_is_told()
        is_there = Position(run.head, BRANCH)
        head = self._repository.position if verdict.pauses else is_there
        self._save(night.steps.after_verdict(self._state, verdict, head))
        self.is_busy = False
        waiting, self._idle = self._idle, []
        for act in waiting:
            self.when_idle(act)
        self._daemon.may_be_gone()
