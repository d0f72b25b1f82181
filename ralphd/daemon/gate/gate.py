"""The gate of one ralph: no iteration's commits stay that break the tests (R1 to R9).

The Regent hands over one gate run at a time, and ``post`` brings it one message when that is decided: the
verdict. ``core/gate/range`` decides which commits are judged, ``core/gate/step`` what becomes of them;
here git is asked, the answer saved, and the orders carried out.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ralphd import diagnostics
from ralphd.core.gate import range as ranges
from ralphd.core.gate.range import AtEnd, GateState
from ralphd.core.gate.step import begin
from ralphd.core.gate.verdict import Baseline, GateRun, Position, Result, Say, Verdict, label_of
from ralphd.core.gate.weakened import TestCheck
from ralphd.core.supervision import events, reports
from ralphd.core.supervision.model import HAS_A_RUN, Goal, Mode, ReportedTask, RunId, Starting, Supervision
from ralphd.core.supervision.requests import data_of
from ralphd.core.time import rfc3339
from ralphd.daemon.gate.git_effects import GitEffects, HistoryRepair, PostRunRepair
from ralphd.daemon.gate.test_runs import GateTestResult, GateTests
from ralphd.daemon.gate.undo import Undo
from ralphd.daemon.gate.worker import GateMemory, GateWorker
from ralphd.errors import ShuttingDown
from ralphd.git.diagnostics import WILL_PAUSE, in_the_way
from ralphd.git.runner import NotDone

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services
    from ralphd.git.landing.follow import FollowMerge
    from ralphd.process.rundir import ExitRecord

logger = logging.getLogger(__name__)

RED_BEFORE: Final = "the tests are not green: commits are not judged until they are"
NO_BOUNDARY: Final = (
    "commits are judged only if the command reports the end of each iteration and waits: "
    "ralphctl notify iteration-finished --wait"
)
UNJUDGED: Final = "what was committed after {since} is not judged yet: the next verdict is for it too"


class Gate:
    """Judges what a ralph commits, for its Regent alone. ``post`` queues the results of its tasks."""

    def __init__(
        self, account: "RalphRecord", services: "Services", post: Callable[[events.Event], None]
    ) -> None:
        self._account, self._services, self._post = account, services, post
        self._memory = GateMemory(account, services)
        self._git = GitEffects(account.definition.directory, account.files.load_environment)
        self._tests = GateTests(account, services)
        self.worker = GateWorker(account, services, self._memory, self._git, self._tests, post)
        self._repair = PostRunRepair(account)
        self._history = HistoryRepair(account, services, self._memory)
        self.undoing = Undo(account, services, self._git, self._memory)
        self._tests_baseline = self._passed_by = self._is_closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    # --- views ------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether commits are judged: it is configured, and there is a repository."""
        regent = self._account.configuration.regent
        wanted = regent.enabled and regent.rollback_on_test_failure and bool(regent.test_command)
        return wanted and self._git.has_repository()

    @property
    def is_busy(self) -> bool:
        """Whether tests run, or git is at work on the repository."""
        return self._tests_baseline or not self._idle.is_set()

    @property
    def is_interrupted(self) -> bool:
        """Whether commits wait for a verdict that an earlier daemon did not finish, or this one works on."""
        return self._memory.state.judging is not None

    @property
    def test_run(self) -> RunId | None:
        """The run of the tests that is under way."""
        return self._memory.state.test_run

    def verdict_on(self, boundary_id: str) -> Verdict | None:
        """Return what the loop gets at a boundary, if it is the last one."""
        last = ranges.last_verdict(self._memory.state)
        return last if last is not None and last.boundary_id == boundary_id else None

    def _is_judged(self, boundary_id: str) -> bool:
        last = self._memory.state.last
        return last is not None and last.boundary_id == boundary_id

    def notes(self) -> tuple[str, ...]:
        """Return the warnings that ``status`` shows."""
        if not self.is_on:
            return self._history.notes
        state, has_boundaries = self._memory.state, self._has_boundaries
        notes = [*self._history.notes, *(() if has_boundaries else (NO_BOUNDARY,))]
        if state.baseline is Baseline.RED:
            notes.append(RED_BEFORE)
        at_rest = not (isinstance(self._account.supervision.state, HAS_A_RUN) or self.is_busy)
        if at_rest and has_boundaries and (since := ranges.unjudged_since(state)):
            notes.append(UNJUDGED.format(since=since))
        return tuple(notes)

    @property
    def _has_boundaries(self) -> bool:
        policy = self._account.policy
        return ranges.has_boundaries(
            self._memory.state,
            is_opaque=policy.mode is Mode.LOOP and not policy.own_loop,
            iterates=self._account.supervision.said.iterates,
            passed_by=self._passed_by,
        )

    def same(self) -> tuple[object, ...]:
        """Return what ``view`` is made of: as long as it is equal, so is the view."""
        state, is_on = self._memory.state, self.is_on
        known = (state.baseline, state.since, state.last, state.reverted, self._tests.since)
        return (is_on, is_on and self._has_boundaries, ranges.unjudged_since(state), *known)

    def view(self) -> dict[str, Any] | None:
        """Return the gate's part of the ralph's view; None where it is off."""
        if not self.is_on:
            return None
        state, testing_since = self._memory.state, self._tests.since
        return {
            "baseline": state.baseline.value,
            "since": None if state.since is None else rfc3339(state.since),
            "testing_since": None if testing_since is None else rfc3339(testing_since),
            "boundaries": self._has_boundaries,
            "unjudged_since": ranges.unjudged_since(state) or None,
            "verdict": _shown(state.last),
            "reverted": _shown(state.reverted),
        }

    # --- before a run -----------------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """Open the range of the run about to start. Return whether the tests run first (R4)."""
        self._tests.allow()
        await self._history.note(anew=True)  # what a person did between runs stays
        state = self._memory.state
        if not self.is_on:
            if (off := ranges.switched_off(state)) is not state:
                await self._memory.save(off)
            return False
        await self._note_in_the_way()
        is_iteration = self._account.policy.mode is Mode.ITERATION
        position = asyncio.to_thread(self._git.position)
        head, _ = await asyncio.gather(position, self._account.note_uncommitted())
        descends = state.knows_run and await asyncio.to_thread(self._git.descends, state.before, head)
        opened = ranges.before_run(self._memory.state, head, is_iteration=is_iteration, descends=descends)
        await self._memory.save(opened)
        self._tests_baseline = ranges.needs_baseline(self._memory.state)
        if self._tests_baseline:
            await self._account.note_head()  # `start` says which branch gets the commits
        return self._tests_baseline

    async def _has_chosen_sandbox(self) -> bool:
        is_auto = self._account.configuration.sandbox.level == "auto"
        return is_auto and (await self._services.sandbox.choose("auto")).level != "none"

    @property
    def is_bare(self) -> bool:
        """Whether the tests were green only without the sandbox."""
        return self._memory.state.is_bare

    # --- between two iterations: what others landed (M7) ---------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether there may be commits without a verdict."""
        return self.is_interrupted or (self.is_on and self._memory.state.is_open)

    @property
    def is_unsure(self) -> bool:
        """Whether a killed daemon may have moved the branch, and the tests have to run again."""
        state = self._memory.state
        return self.is_on and not self.is_open and state.before is not None and ranges.needs_baseline(state)

    async def follow(self, merge: "FollowMerge | None", *, tests: bool) -> Result | None:
        """Have ``merge`` move the branch, begin the next range there, and run the tests (R4) if ``tests``.

        None: finish what a killed daemon began. Raise NotDone, OSError; then the branch is as it was.
        """
        state, name = self._memory.state, self._account.definition.name
        self._idle.clear()
        try:
            if merge is not None:
                # First this: a branch that moved, and tests that count as green, would blame the next commit.
                await self._memory.save(replace(state, baseline=Baseline.UNKNOWN))
                diagnostics.reach("follow.noted")
                try:
                    await asyncio.to_thread(merge.carry_out)
                except (NotDone, OSError):
                    await self._memory.save(state)
                    raise
                diagnostics.reach("follow.merged")
                logger.info("%s", merge.text, extra={"ralph": name})
                data = {"message": merge.text, "branch": merge.move.branch, "head": merge.move.new}
                await self._services.news.tell("landing.followed", data, ralph=name)
            head = await asyncio.to_thread(self._git.position)
            await self._history.note()
            if not self.is_on:
                return None
            start = merge.tip if merge and state.start_commit else state.start_commit
            await self._memory.save(replace(ranges.dropped(self._memory.state, head), start_commit=start))
            if not tests:
                return None
            ran = await self.worker.run_tests()
            await self._memory.save(replace(await self._tested(ran), test_run=None))
            return ran.result
        finally:
            self._tests.allow()
            self._idle.set()

    async def _tested(self, ran: GateTestResult, *, is_first: bool = False) -> GateState:
        state = ranges.with_baseline(self._memory.state, ran.result, is_first=is_first)
        if ran.result is not Result.GREEN:
            return state
        return ranges.with_counts(state, ran.counts, await asyncio.to_thread(self._git.position))

    async def test_baseline(self) -> None:
        """Run the tests in place, before the first run; ``BaselineTested`` is posted (R4)."""
        try:
            ran = await self.worker.run_tests()
            is_first = self._account.facts.started_at is None
            again = ranges.without_sandbox(self._memory.state, ran.result, is_first=is_first)
            if again is not None and await self._has_chosen_sandbox():
                await self._memory.save(again)
                ran = await self.worker.run_tests()
        finally:
            self._tests_baseline = False
        self._memory.state = await self._tested(ran, is_first=is_first)
        if ran.result is None:
            await self._memory.save(replace(self._memory.state, test_run=None))
            if self._services.stopping.is_set():
                return  # the next daemon starts them again
        diagnostics.reach("gate.baseline.done")
        self._post(events.BaselineTested(self._services.clock.now(), ran.run_id, ran.result, ran.how))

    # --- boundaries: which commits are judged -------------------------------------------------------------

    async def on_report(self, fact: reports.Reported) -> GateRun | None:
        """Return the gate run that a report calls for: an iteration ended, and its command waits.

        At an iteration's start, note where its range begins.
        """
        current = self._account.supervision
        if reports.why_not(current, fact) is not None:
            return None
        match fact.report:
            case reports.IterationStarted(head=head, branch=branch):
                await self._history.note()
                if self.is_on and ranges.opens_with_iteration(self._memory.state):
                    at = Position(head, branch) if head else await asyncio.to_thread(self._git.position)
                    descends = await asyncio.to_thread(self._git.descends, self._memory.state.before, at)
                    await self._memory.save(ranges.at_iteration(self._memory.state, at, descends=descends))
            case reports.IterationFinished(waits=False):
                self._passed_by = True
            case reports.IterationFinished() as report if not reports.is_known(current, fact):
                await self.idle()
                id_ = reports.boundary_id(fact)
                if self.is_on and not self._is_judged(id_):
                    return await self._new_run(id_, fact.run_id, report.number, report.task)
        return None

    async def restore_history(self, fact: reports.Reported) -> events.HistoryRewritten | None:
        """Restore what the iteration that ended lost of the branch, before anything is judged."""
        current = self._account.supervision
        if reports.why_not(current, fact) is not None or reports.is_known(current, fact):
            return None
        await self.idle()
        id_ = reports.boundary_id(fact)
        if self._is_judged(id_):
            return None
        report = fact.report if isinstance(fact.report, reports.IterationFinished) else None
        return await self._history.restore(fact.run_id, id_, report)

    async def restore_at_end(self, record: "ExitRecord", *, seen: bool) -> events.HistoryRewritten | None:
        """Restore what a run lost of the branch, unless somebody may have moved HEAD after its end."""
        if record.survivors or self._is_judged(record.run_id):
            return None
        if not seen and await asyncio.to_thread(self._git.is_moved_after, record.ended_at + 1):
            return None
        return await self._history.restore(record.run_id, record.run_id)

    async def repair(self, record: "ExitRecord") -> events.LeftBehind | None:
        """Repair what a run has left half done in the repository. Return what to report of it."""
        before = self._memory.state.before
        return await self._repair.after(record, before.branch if before else None)

    async def at_end(self, record: "ExitRecord", *, seen: bool) -> GateRun | None:
        """Return the gate run that a run's end calls for. ``seen``: a daemon was there at that end."""
        if not self.is_on or self._memory.state.before is None:
            return None
        is_foreign = not seen and await asyncio.to_thread(self._git.is_committed_after, record.ended_at + 1)
        head = await asyncio.to_thread(self._git.position)
        current, is_iteration = self._account.supervision, self._account.policy.mode is Mode.ITERATION
        match ranges.at_end(
            self._memory.state,
            head,
            code=record.code,
            is_foreign=is_foreign,
            is_iteration=is_iteration,
            reports_boundaries=current.said.iterates and self._has_boundaries,
        ):
            case AtEnd.FOREIGN:
                await self._memory.save(ranges.dropped(self._memory.state, head))
            case AtEnd.JUDGE if not self._is_judged(record.run_id):
                last, number = self._memory.state.last, current.tally.iteration + is_iteration
                run = await self._new_run(record.run_id, record.run_id, number)
                return None if run and ranges.is_said_again(last, run.verdict, run.run_id) else run
        return None

    async def note_left(self) -> None:
        """Note where a run that has ended, and was judged, has left HEAD."""
        await self._history.note()
        await self._history.forget_old()
        if self.is_on:
            await self._note_in_the_way()
        if self.is_on and self._memory.state.before is not None:
            head = await asyncio.to_thread(self._git.position)
            await self._memory.save(ranges.left_at(self._memory.state, head))

    async def _note_in_the_way(self) -> None:
        lines = await asyncio.to_thread(in_the_way, self._account.definition.directory)
        others = [each for each in self._account.notes if not each.startswith(WILL_PAUSE)]
        self._account.notes = [*others, *(WILL_PAUSE + line for line in lines)]

    async def _new_run(
        self, boundary_id: str, run_id: RunId, number: int | None, task: ReportedTask | None = None
    ) -> GateRun | None:
        """Return a run for what was committed since the range began; None where that is not known."""
        state = self._memory.state
        if state.before is None:
            await self._memory.save(replace(state, before=await asyncio.to_thread(self._git.position)))
            return None
        found = await asyncio.to_thread(self._git.boundary, state.before)
        return begin(
            ranges.attributed(found, knows_run=state.knows_run),
            state.baseline,
            boundary_id=boundary_id,
            run_id=run_id,
            number=number,
            task=task,
            excused=state.excused,
            check=TestCheck(before=state.counts_before, start_commit=state.start_commit),
        )

    # --- a gate run: handed over, worked on, concluded ---------------------------------------------------

    async def open(self, run: GateRun) -> bool:
        """Take ``run`` over, on disk. Return whether it has orders to carry out; ``worker.work`` does so."""
        self._idle.clear()
        if run is not self._memory.state.judging:  # else an earlier daemon's
            await self._memory.save(replace(self._memory.state, judging=run))
        return not isinstance(run.order, Say)

    async def conclude(self, event: events.VerdictReached | events.BaselineTested) -> None:
        """Forget what was under way, now that its result is in the history and in the state."""
        if isinstance(event, events.BaselineTested):
            # Only now: a daemon that dies before this announces the result again, under the same id.
            if event.result is not None:
                await self._memory.save(replace(self._memory.state, test_run=None))
            return
        diagnostics.reach("gate.say.done")
        verdict, name = event.verdict, self._account.definition.name
        try:
            judged = self._memory.state.judging
            if judged is None or verdict.pauses:
                head = await asyncio.to_thread(self._git.position)
            else:  # what came since then is for the next verdict
                head = Position(judged.head, judged.boundary.now.branch)
            await self._memory.save(ranges.after_verdict(self._memory.state, verdict, head))
            if verdict.reverted:
                label = label_of(name, verdict.run_id, verdict.boundary_id)
                await asyncio.to_thread(self._git.forget_old, name, label)
        finally:
            await self._history.note()
            self._tests.allow()
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing is being judged. Raise ShuttingDown where that is left to the next daemon."""
        await self._idle.wait()
        if self._is_closed:
            raise ShuttingDown("ralphd is shutting down; the next one continues with the verdict")

    def on_event(self, event: events.Event, current: Supervision) -> None:
        """Cut the tests off where nobody waits for them any longer; a start trusts their present scripts."""
        starts = isinstance(event, events.StartRequested) and isinstance(current.state, Starting)
        if starts or isinstance(event, events.RestartRequested):
            self._memory.state = replace(self._memory.state, start_commit="")
        kills = isinstance(event, events.StopRequested | events.DaemonStopping) and event.now
        unwanted = current.goal is not Goal.RUNNING or isinstance(event, events.DaemonStopping)
        if kills or (self._tests_baseline and isinstance(current.state, Starting) and unwanted):
            self._tests.cut()

    # --- across daemons ---------------------------------------------------------------------------------

    async def resume(self) -> GateRun | None:
        """Return the gate run that an earlier daemon has left under way: the gate is busy from now on.

        The tests of a daemon that was tied to a terminal are cut off, and those that no start waits for.
        """
        if self._services.tied is not None:
            self._tests.cut()
        state, current = self._memory.state, self._account.supervision
        is_awaited = isinstance(current.state, Starting) and current.goal is Goal.RUNNING
        if state.judging is not None:
            self._idle.clear()
        elif state.test_run is not None and not is_awaited:
            await self._tests.end(state.test_run)
            await self._memory.save(replace(self._memory.state, test_run=None))
        return state.judging

    def let_go(self) -> None:
        """Leave what is under way to the next daemon; who waits in ``idle`` gets ShuttingDown."""
        self._is_closed = True
        self._idle.set()


def _shown(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    shown = {key: value for key, value in data_of(verdict) if key not in ("tests", "refs")}
    return {**shown, "at": rfc3339(verdict.at)}
