"""The Regent of one ralph: carries out what ``core/supervision/step`` orders, and tells it what happened.

One task owns a ralph and is the only one to change it.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ralphd import diagnostics
from ralphd.core.supervision.events import (
    Committed,
    Event,
    JudgementBegan,
    RunEnded,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StopRequested,
)
from ralphd.core.supervision.exit_policy import outcome
from ralphd.core.supervision.explain import NOT_KNOWN, NOTHING_YET, explain_end
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    SETTLED,
    Action,
    ExitFacts,
    KillAfter,
    KillTree,
    Next,
    PassOn,
    RunId,
    Spawn,
    Supervision,
    Terminate,
    WakeAt,
)
from ralphd.core.supervision.reports import Hello, Report, Reported, answer, task_data
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.time import rfc3339
from ralphd.daemon.gate.gate import Gate
from ralphd.daemon.gate.undo import UndoResult, refuse_while_it_works
from ralphd.daemon.ralph.commits import CommitWatcher
from ralphd.daemon.ralph.incidents import Incidents
from ralphd.daemon.ralph.live_run import LiveRun, ending_of, spec_of
from ralphd.daemon.ralph.lock import DirectoryClaim
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.services import Services, Timers
from ralphd.errors import (
    CommandNotStartable,
    DirectoryBusy,
    DirectoryUnusable,
    InternalError,
    RalphdError,
    StaleReport,
    WrongState,
)
from ralphd.process.log.log import RalphLog
from ralphd.process.rundir import ExitRecord, RunRecord, next_run_directory
from ralphd.process.shim import command_line
from ralphd.process.spawn import Run
from ralphd.process.tree import Stranger, strangers
from ralphd.store.gate import LastVerdict
from ralphd.store.history import load, save_explanation

# What a report is answered: what to do next, and the verdict where there is one.


@dataclass(frozen=True, slots=True)
class ReportReply:
    """The answer to a report. ``verdict`` is what was said of the commits of its iteration."""

    next: Next
    verdict: LastVerdict | None = None


def verdict_view(last: LastVerdict | None) -> dict[str, Any] | None:
    """A verdict as whoever reported the boundary gets it."""
    if last is None:
        return None
    return {
        "kind": last.verdict.value,
        "why": last.why,
        "commits": list(last.commits),
        "reverted": list(last.reverted),
        "task": task_data(last.task),
        "tail": last.tail,
    }


logger = logging.getLogger(__name__)

INBOX_BOUND = 1000
SEEN_FOR_S = 1.0
STRANGERS_AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class _Envelope:
    """A fact in the inbox; ``answered`` is for whoever waits until it has been carried out."""

    event: Event
    answered: "asyncio.Future[None] | None" = None


class Regent:
    """Supervises one ralph. All public methods are called on the event loop."""

    def __init__(self, account: RalphRecord, services: Services) -> None:
        self.account = account
        self.log = RalphLog(account.files.runs)
        self.holds = DirectoryClaim(
            account.definition.directory,
            socket_path=services.socket_path,
            state_directory=services.state_directory,
        )
        self._services = services
        self._inbox: asyncio.Queue[_Envelope] = asyncio.Queue(INBOX_BOUND)
        self._life: LiveRun | None = None
        self._past: LiveRun | None = None
        self._headway = CommitWatcher(account)
        self._timers = Timers(services, self.tell)
        self.gate = Gate(account, services, ask=self.ask, begin=self._begin)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._alone = asyncio.Lock()
        self.incidents = Incidents(account, services, self._alone)
        self._spawn_fault: RalphdError | None = None
        self._shown: tuple[object, ...] = ()
        self._shown_bytes = b""
        self._looked = 0.0
        self._strangers: list[Stranger] = []

    @property
    def name(self) -> str:
        """The ralph's name."""
        return self.account.definition.name

    @property
    def living(self) -> RunId | None:
        """The run that lives."""
        return None if self._life is None else self._life.run_id

    @property
    def has_a_run(self) -> bool:
        """Whether a run lives, or its end has not been answered yet, or tests run."""
        return isinstance(self.account.supervision.state, HAS_A_RUN) or self.gate.is_busy

    def view(self) -> dict[str, Any]:
        """The ralph as the API shows it."""
        means = None if self._life is None else self._life.record.tree_means
        seen = [f"still in the directory: pid {each.pid} ({each.command})" for each in self._strangers]
        view = self.account.view()
        shown = view | {"tree_means": means, "guard": self.gate.view()}
        return shown | {"notes": [*view["notes"], *self.gate.notes(), *seen]}

    def view_bytes(self) -> bytes:
        """The same, its last output at most a second old; serialised once per change."""
        self._see_output()
        parts = (
            *self.account.same(),
            self.living,
            tuple(self.account.notes),
            tuple(self._strangers),
            self.gate.notes(),
            self.gate.same(),
        )
        if parts != self._shown:  # quick: what has not changed is the same object
            self._shown, self._shown_bytes = parts, json.dumps(self.view(), ensure_ascii=False).encode()
        return self._shown_bytes

    async def explain(self) -> dict[str, Any]:
        """Why the last thing was done, or what is thought of the run that lives: rule, figures, evidence."""
        run_id = self.living or self.account.facts.run_id
        if run_id is None:
            return {"run_id": None, "living": False, **asdict(NOTHING_YET), "evidence": None, "verdict": None}
        verdict = await asyncio.to_thread(self.account.records.explained) if self.gate.is_on else None
        explanation, evidence = await asyncio.to_thread(load, self.account.files.runs / run_id)
        if self._life is not None and self._life.run_id == run_id:
            now = rfc3339(self._services.clock.now())
            explanation = {"at": now, **asdict(self._life.explanation())}
        elif explanation is None:
            explanation = asdict(NOT_KNOWN)
        about = {"run_id": run_id, "living": self.living == run_id, "evidence": evidence, "verdict": verdict}
        return {**explanation, **about}

    # --- being told -----------------------------------------------------------------------------------

    async def ask(self, event: Event) -> None:
        """Have ``event`` carried out. Raises WrongState, or why the command cannot be started."""
        answered = asyncio.get_running_loop().create_future()
        await self._inbox.put(_Envelope(event, answered))
        await answered

    async def report(self, run_id: RunId, report_id: str, digest: str, report: Report) -> ReportReply:
        """Have a report of the run acted upon, once, and answer it; a boundary when its verdict is known.

        Raises StaleReport, and ShuttingDown where the next daemon will know it.
        """
        life = self._life
        fact = Reported(self._services.clock.now(), run_id, report_id, digest, report)
        verdict = await self.gate.hear(fact)
        await self.ask(replace(fact, at=self._services.clock.now()))
        if life is not None:
            if isinstance(report, Hello) and report.signals:
                with suppress(
                    OSError
                ):  # noted again where a daemon died before; a full disk costs the signals
                    life.run.directory.note_signals()
            life.hear()
        diagnostics.reach("regent.before_answer")
        return ReportReply(answer(self.account.supervision, report_id), verdict)

    async def undo(self, iteration: int | None) -> UndoResult:
        """Put back what was reverted of an iteration, else what was reverted last, while nothing begins.

        Raises WrongState, DirectoryBusy, NotUndone; cancelled, it is brought to its end.
        """
        done: UndoResult | RalphdError = await asyncio.shield(self._begin(self._undo(iteration)))
        if isinstance(done, RalphdError):
            raise done
        return done

    async def _undo(self, iteration: int | None) -> UndoResult | RalphdError:
        async with self._alone:
            try:
                refuse_while_it_works(self.name, self.account.supervision, is_busy=self.gate.is_busy)
                self.holds.take()  # another Regent, or one without a daemon, may work there
                done = await self.gate.undoing.undo(iteration)
                await self.account.note_head()
                await self._handle(done.fact)
            except RalphdError as fault:
                return fault
            finally:
                self._settle()
            return done

    def tell(self, event: Event) -> None:
        """Put ``event`` into the inbox and go on."""
        self._inbox.put_nowait(_Envelope(event))

    async def supervise(self) -> None:
        """Answer one fact after the other, until cancelled. Cancelled, it leaves the run alone."""
        self._begin(self.incidents.watch())
        try:
            while True:
                letter = await self._inbox.get()
                async with self._alone:
                    fault = await self._fault_in(letter.event)
                if letter.answered is None or letter.answered.done():
                    continue
                if fault is None:
                    letter.answered.set_result(None)
                else:
                    letter.answered.set_exception(fault)
        finally:
            self._let_go()

    async def _fault_in(self, event: Event) -> RalphdError | None:
        """Handle ``event``, and tell what a person can put right. A bug fails this ralph, not the daemon."""
        try:
            await self._handle(event)
        except RalphdError as fault:
            return fault
        except Exception:
            logger.exception("a bug in the supervision of a ralph", extra={"ralph": self.name})
            if self._life is not None:
                self._life.run.kill_tree()
            await self.account.fail("a bug in ralphd: its log has the traceback")
            return InternalError(f"the Regent of {self.name} failed", mend="ralphctl regent logs")
        return None

    async def _handle(self, event: Event) -> None:
        reason = why_not(self.account.supervision, event)
        if reason and isinstance(event, Reported):
            raise StaleReport(
                "the report was not acted upon", why=reason, mend=f"ralphctl status {self.name}"
            )
        if reason:
            raise WrongState(
                f"{self.name} cannot do that now", why=reason, mend=f"ralphctl status {self.name}"
            )
        self._spawn_fault = None
        facts = deque([event])
        while facts:
            fact = facts.popleft()
            before = self.account.supervision
            answered = step(before, fact, self.account.policy)
            if isinstance(fact, RunEnded):
                await self._explain(fact.ending, before, answered.supervision)
            await self.account.write_down(fact, answered)
            self.gate.heed(fact, self.account.supervision)
            for action in answered.actions:
                if (news := await self._carry_out(action)) is not None:
                    facts.append(news)
        self._settle()
        if self._spawn_fault is not None:
            raise self._spawn_fault

    # --- carrying out ---------------------------------------------------------------------------------

    async def _carry_out(self, action: Action) -> Event | None:
        match action:
            case Spawn():
                return await self._spawn()
            case Terminate() | PassOn() | KillTree() if self._life is not None:
                self._life.obey(action)
            case KillAfter(run_id=run_id, delay_s=delay_s):
                self._timers.kill_after(run_id, delay_s)
            case WakeAt(at=at):
                self._timers.wake_at(at)
            case _:
                pass  # told when it was written down
        return None

    async def _spawn(self) -> Event:
        """Start a run; the answer is what came of it."""
        now = self._services.clock.now
        try:
            lock = self.holds.take()
            self.account.take_up()
            if await self.gate.prepare():
                self._begin(self.gate.test_baseline())
                return JudgementBegan(now(), None)  # and when it is over, it is ordered again
            directory = await asyncio.to_thread(next_run_directory, self.account.files.runs)
            began = self._begin(self._headway.begin())  # beside the spawn: no command is as quick as that
            run = await Run.spawn(directory, spec_of(self.account, self._services, directory), lock)
        except (CommandNotStartable, DirectoryBusy, DirectoryUnusable) as fault:
            self._spawn_fault = fault
            return SpawnFailed(now(), f"{fault.what}: {fault.why}" if fault.why else fault.what)
        except OSError as fault:
            return SpawnPostponed(now(), fault.strerror or str(fault))
        if (born := await run.ready()) is None:
            raise InternalError(f"{directory.run_id} was started and left no record of it")
        await began
        self.adopt(run, born)
        return Spawned(born.started_at, born.run_id)

    def adopt(self, run: Run, record: RunRecord) -> None:
        """Watch a run, of our own or of an earlier daemon (P1)."""
        clock, tell = self._services.clock, self.tell
        life = self._life = LiveRun(run, record, self.account, log=self.log, clock=clock, tell=tell)
        self.account.note_run(record)
        self._begin(self._await_end(life, self._begin(life.watch())))

    async def _explain(self, ending: ExitFacts, before: Supervision, after: Supervision) -> None:
        """Keep with the run why its end leads to what it does."""
        if not isinstance(before.state, HAS_A_RUN) or before.state.run_id != ending.run_id:
            return
        silence = None if self._past is None or self._past.run_id != ending.run_id else self._past.silence()
        meant = outcome(before.state, ending, before.said)
        explanation = explain_end(ending, meant, before.said, after, self.account.policy, silence)
        directory = self.account.files.runs / ending.run_id
        await asyncio.to_thread(save_explanation, directory, ending.at, explanation)

    async def _await_end(self, life: LiveRun, watch: "asyncio.Task[Any]") -> None:
        record = await life.run.ended()
        diagnostics.reach("regent.end_seen")
        watch.cancel()
        commits = await self._headway.commits()
        self._life, self._past = None, life
        self.account.note_gone()
        await self.gate.run_over(record)
        ending = await ending_of(self.account, self.log, record)
        if self._services.is_cut_off() and record.code is None:  # its shim ended it: that is no failure (P5)
            await self._inbox.put(_Envelope(StopRequested(self._services.clock.now(), now=True)))
        if commits:
            await self._inbox.put(_Envelope(Committed(ending.at, record.run_id, commits)))
        await self._inbox.put(_Envelope(RunEnded(ending)))
        await self._note_strangers(record)

    async def _note_strangers(self, record: ExitRecord) -> None:
        """What works in the directory and is not the run's is reported, never killed (S7)."""
        since = record.started_at or record.ended_at
        await asyncio.sleep(STRANGERS_AFTER_S)  # a command typed in the directory is gone by then
        known = [each for each in (record.run_id, self.living, self.gate.test_run) if each is not None]
        directory = self.account.definition.directory
        self._strangers = await asyncio.to_thread(strangers, directory, since, known)

    # --- looking round ------------------------------------------------------------------------------

    def _see_output(self) -> None:
        looked = time.monotonic()
        if self.living is not None and looked - self._looked >= SEEN_FOR_S:
            self._looked = looked
            with suppress(OSError):
                self.account.note_output(self.log.last_output_at(self.living))

    async def look_round(self) -> None:
        """What has to be looked at every few seconds: mirrors, signpost, last output, what is unsaved."""
        self._see_output()
        if (run_id := self.living) is not None and (commits := await self._headway.commits()):
            self.tell(Committed(self._services.clock.now(), run_id, commits))
        self._strangers = [each for each in self._strangers if command_line(each.pid) == each.command]
        await self.account.freshen()
        self._settle()

    def _settle(self) -> None:
        self.incidents.heed()
        supervised = not isinstance(self.account.supervision.state, SETTLED)
        self.holds.settle(supervised=supervised, living=self._life is not None)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("a bug in the supervision of a ralph", exc_info=fault, extra={"ralph": self.name})

    def _let_go(self) -> None:
        self._timers.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        self.holds.let_go()
