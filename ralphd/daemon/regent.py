"""The Regent of one ralph: it asks ``core/supervision/step`` what follows from a fact, and carries it out.

One task takes items from the inbox and is the only one to change the ralph; an item that is carried out
never waits for another. Watchers, timers and the gate run in tasks of their own and post facts.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ralphd import diagnostics, errors
from ralphd.agents.streams import without_past_limit
from ralphd.core import sandbox
from ralphd.core.explanation import NOT_KNOWN, NOTHING_YET, Explanation
from ralphd.core.gate.verdict import GateRun, Verdict
from ralphd.core.incidents import Escalation
from ralphd.core.quota.model import AccountRules
from ralphd.core.supervision import events, model, reports
from ralphd.core.supervision.explain import explain_end
from ralphd.core.supervision.start_order import Applicant, StartHold
from ralphd.core.supervision.step import step
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.builtin import accounts_of
from ralphd.daemon.gate.gate import Gate
from ralphd.daemon.gate.undo import UndoResult, refuse_while_it_works
from ralphd.daemon.ralph import live_run
from ralphd.daemon.ralph.callers import REQUESTED_BY
from ralphd.daemon.ralph.custody import Custody
from ralphd.daemon.ralph.incidents import Incidents
from ralphd.daemon.ralph.live_run import CommitWatcher, LiveRun, ending_of, spec_of
from ralphd.daemon.ralph.lock import DirectoryClaim
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.services import Services, Timers
from ralphd.dataclass import dataclass
from ralphd.process.log.log import RalphLog
from ralphd.process.machine import local_zone
from ralphd.process.rundir import ExitRecord, RunDirectory, RunRecord, next_run_directory
from ralphd.process.shim import command_line
from ralphd.process.spawn import Run, RunSpec
from ralphd.process.start_errors import is_lack
from ralphd.process.tree import Stranger, strangers, writable_cgroup
from ralphd.store.history import load_evidence, save_explanation

if TYPE_CHECKING:
    from ralphd.core.supervision.door import Caller
    from ralphd.daemon.gate.test_runs import SetupRuns


logger = logging.getLogger(__name__)

INBOX_BOUND = 1000
SEEN_FOR_S = 1.0
STRANGERS_AFTER_S, STRANGERS_WITHIN_S = 3.0, 30.0
"""After a run's end: a command typed in the directory has ended by then. Of runs that end one after another,
the last one's look serves all, within 30 s: it reads every process of the machine."""


@dataclass(frozen=True, slots=True)
class _Envelope:
    """An item of the inbox: a fact, a gate run that precedes it, and who waits for both."""

    event: events.Event | None
    run: GateRun | None = None
    answered: "asyncio.Future[None] | None" = None
    by: "Caller | None" = None

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits any longer: a report that is dropped then is sent again."""
        return self.answered is not None and self.answered.cancelled()

    def answer(self, fault: errors.RalphdError | None) -> None:
        if self.answered is None or self.answered.done():
            return
        if fault is None:
            self.answered.set_result(None)
        else:
            self.answered.set_exception(fault)


class Regent:
    """Supervises one ralph. All public methods are called on the event loop."""

    def __init__(self, account: RalphRecord, services: Services) -> None:
        self.account, self.name = account, account.definition.name
        self.log = RalphLog(account.files.runs)
        self.holds = DirectoryClaim(account.definition.directory, services)
        self._services = services
        self._endure = partial(services.endure, f"supervision of {self.name}")
        self._inbox: asyncio.Queue[_Envelope] = asyncio.Queue(INBOX_BOUND)
        self._held: _Envelope | None = None
        self._doing: _Envelope | None = None
        self._is_forgotten = False
        self.setups: set[SetupRuns] = set()
        self._boundary = asyncio.Lock()  # held from asking git about a boundary until its verdict
        self._live: LiveRun | None = None
        self._past: LiveRun | None = None
        self._commits = CommitWatcher(account)
        self._timers = Timers(services, self.post)
        self.gate = Gate(account, services, self.post)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.custody = Custody(account, services, self._begin)
        self._counting: asyncio.Task[Any] | None = None
        self.alone = asyncio.Lock()
        self.incidents = Incidents(account, services, self.alone)
        self._spawn_fault: errors.RalphdError | None = None
        self._hold: StartHold | None = None
        self._accounts: Mapping[str, AccountRules] = {}
        self._no_room = ""
        self._shown: tuple[object, ...] = ()
        self._shown_bytes = b""
        self._looked, self._printed_at = 0.0, 0.0
        self._strangers: list[Stranger] = []
        self._suspects: tuple[float, Moment, int] | None = None
        self._deleted: tuple[str, ...] = ()

    @property
    def living(self) -> model.RunId | None:
        return None if self._live is None else self._live.run_id

    @property
    def run_record(self) -> RunRecord | None:
        return None if self._live is None else self._live.record

    @property
    def has_a_run(self) -> bool:
        """Whether a run lives, its end is not answered yet, or its setup or tests run."""
        is_running = isinstance(self.account.supervision.state, model.HAS_A_RUN)
        return is_running or self.gate.is_busy or bool(self.setups)

    def refuse_unless_at_rest(self, why: str, then: str = "") -> None:
        """Raise WrongState where anything of it runs, or will."""
        state = self.account.supervision.state
        if self.has_a_run or not isinstance(state, model.SETTLED):
            mend = f"ralphctl stop {self.name}{then}"
            raise errors.WrongState(f"{self.name} is {self.doing}", why=why, mend=mend)

    @property
    def doing(self) -> str:
        """What it does, in words."""
        return "being set up" if self.setups else self.account.supervision.state.kind.replace("_", " ")

    @property
    def is_unadopted(self) -> bool:
        """Whether a run of an earlier daemon may live that is not adopted yet."""
        is_new = self._live is None and self._past is None
        return is_new and isinstance(self.account.supervision.state, model.HAS_A_RUN)

    @property
    def applicant(self) -> Applicant | None:
        """What decides when it starts, while it waits for that; else None."""
        state = self.account.supervision.state
        queued_at = state.queued_at if isinstance(state, model.Waiting | model.Starting) else None
        return None if queued_at is None or self.name in self._services.living else self._applicant(queued_at)

    def _applicant(self, queued_at: Moment) -> Applicant:
        current, configuration = self.account.supervision, self.account.configuration
        ralph, state = configuration.ralph, current.state
        asked = isinstance(state, model.Starting) and (state.skips or isinstance(state.before, model.Paused))
        return Applicant(
            self.name, queued_at, current.goal, configuration.run_limits(), ralph.priority, ralph.schedule,
            current.tally.unscheduled_until, {} if asked else self._accounts, self._no_room,
        )  # fmt: skip

    @property
    def _why_wait(self) -> str:
        """What its start waits for, as of the last decision; empty if it does not wait."""
        state = self.account.supervision.state
        if not isinstance(state, model.Waiting):
            return ""
        return state.why if state.queued_at is None or self._hold is None else self._hold.why

    @property
    def _seen(self) -> dict[str, Any] | None:
        """What the last run's output shows of its agents."""
        live = self._live or self._past
        return without_past_limit(live.output.seen, self._services.clock.now()) if live else None

    def view(self) -> dict[str, Any]:
        record, view = self.run_record, self.account.view()
        return view | {
            "notes": [*self._notes()], "tree_means": record and record.tree_means,
            "guard": self.gate.view(), "seen": self._seen,
            "landing": self._services.landing_of(self.name),
            "sandbox": record and sandbox.view_of(record.sandbox, record.sandbox_reason),
            "message": self._why_wait or view["message"],
        }  # fmt: skip

    def _notes(self) -> tuple[str, ...]:
        record, own = self.run_record, (*self.account.in_force.awaited, *self.account.notes)
        bare = sandbox.note_on(record.sandbox, record.sandbox_reason) if record else None
        left = [f"still in the directory: pid {each.pid} ({each.command})" for each in self._strangers]
        left += ["its [ralph] setup runs"] if self.setups else []
        more = (*self.gate.notes(), *self.custody.notes(), *left, *self._deleted)
        return tuple(filter(None, (bare, *own, *more, self._services.why_unqueued(self.name))))

    def view_bytes(self) -> bytes:
        """Return the view, its last output at most a second old; serialised once per change."""
        self._see_output()
        own = (self._notes(), self.gate.same(), self._seen, self._why_wait)
        parts = (*self.account.same(), self.living, *own, self._services.landing_of(self.name))
        if parts != self._shown:  # quick: what has not changed is the same object
            text = json.dumps(self.view(), ensure_ascii=False)
            self._shown, self._shown_bytes = parts, text.encode(errors="replace")
        return self._shown_bytes

    async def explain(self) -> dict[str, Any]:
        """Explain the last decision, or the state of the run that lives: rule, figures, evidence."""
        run_id, wait = self.living or self.account.facts.run_id, self.account.supervision.wait
        is_timed = wait is not None and wait.reason in (model.Reason.SCHEDULE, model.Reason.USAGE_LIMIT)
        done = f"the next run starts at {rfc3339(wait.until)}" if wait and is_timed else ""
        waits = Explanation("", "Its start waits", why, done=done) if (why := self._why_wait) else None
        if run_id is None:
            nothing = asdict(waits or NOTHING_YET)
            return {"run_id": None, "living": False, **nothing, "evidence": None, "verdict": None}
        request = await asyncio.to_thread(self.account.records.last_request)
        last_repair = await asyncio.to_thread(self.account.records.last_repair)
        verdict = await asyncio.to_thread(self.account.records.explained) if self.gate.is_on else None
        explanation, evidence = await asyncio.to_thread(load_evidence, self.account.files.runs / run_id)
        if self._live is not None and self._live.run_id == run_id:
            explanation = {"at": rfc3339(self._services.clock.now()), **asdict(self._live.explanation())}
        elif waits or explanation is None:
            explanation = asdict(waits or NOT_KNOWN)
        about = {"run_id": run_id, "living": self.living == run_id, "evidence": evidence, "verdict": verdict}
        return {**explanation, **about, "request": request, "repair": last_repair}

    # --- the inbox --------------------------------------------------------------------------------------

    async def request(self, event: events.Event | None, run: GateRun | None = None) -> None:
        """Queue ``event`` and wait until it is carried out, after the verdict on ``run`` if there is one.

        Raise WrongState, StaleReport, UnknownRalph, or why the command cannot be started. Never called by
        what carries an item out: that would wait for itself.
        """
        for setup in self.setups if isinstance(event, events.StopRequested | events.DaemonStopping) else ():
            setup.cut()
        answered = asyncio.get_running_loop().create_future()
        await self._inbox.put(_Envelope(event, run, answered, REQUESTED_BY.get()))
        if self._is_forgotten:
            self.refuse_what_waits()
        await answered

    def refuse_what_waits(self) -> None:
        """Answer all requests, now and later, that the ralph was removed."""
        self._is_forgotten = True
        waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        for each in filter(None, (self._held, self._doing, *waiting)):
            each.answer(errors.UnknownRalph(f"{self.name} was removed meanwhile", mend="ralphctl status"))

    def post(self, event: events.Event) -> None:
        """Queue a fact without waiting for it to be carried out.

        A full inbox loses nothing: requests wait for room before they are accepted, and a fact waits for it
        in a task of its own, so that a timer or a finished run is never blocked.
        """
        self._deliver(_Envelope(event))

    def _deliver(self, envelope: _Envelope) -> None:
        try:
            self._inbox.put_nowait(envelope)
        except asyncio.QueueFull:
            self._begin(self._inbox.put(envelope))

    async def report(
        self, run_id: model.RunId, report_id: str, digest: str, report: reports.Report
    ) -> dict[str, Any]:
        """Act upon a report of the run, once, and return the reply; for a boundary with its verdict.

        Raise StaleReport, and ShuttingDown where the next daemon will know the verdict.
        """
        async with self.alone:
            pass  # what a quick command reports may come before its start is in the state
        live = self._live
        fact = reports.Reported(self._services.clock.now(), run_id, report_id, digest, report)
        if isinstance(report, reports.IterationFinished) and report.waits:
            async with self._boundary:  # the same report, sent again, finds the verdict on the first
                await self._keep_repository(fact)
                if (rewritten := await self.gate.restore_history(fact)) is not None:
                    await self.request(rewritten)
                await self.request(fact, await self.gate.on_report(fact))
                goes_on = reports.answer(self.account.supervision, report_id) is model.Next.CONTINUE
                if goes_on and self.gate.is_on:  # else the loop may not have waited
                    await asyncio.shield(self._begin(self._follow(tests=True)))
        else:
            await self._keep_repository(fact)
            await self.gate.on_report(fact)
            await self.request(fact)
        if live is not None:
            if isinstance(report, reports.Hello) and report.signals:
                with suppress(OSError):  # a full disk costs the signals; the next daemon notes them again
                    live.run.directory.note_signals()
            live.on_report()
        diagnostics.reach("regent.before_answer")
        verdict = self.gate.verdict_on(reports.boundary_id(fact))
        answer = reports.answer(self.account.supervision, report_id)
        return {"id": report_id, "next": answer.value, "verdict": verdict and _shown(verdict)}

    async def _follow(self, *, tests: bool) -> None:
        if self._services.follow is not None and self.account.policy.supervised:
            if tests:  # before a start nothing is judged
                await self.gate.idle()
            if await self._services.follow(self.account, self.gate, tests=tests) and tests:
                await self.custody.after_gate()

    async def _keep_repository(self, fact: reports.Reported) -> None:
        """Hold the repository against the vault at the end of an iteration, before the gate asks git."""
        current = self.account.supervision
        is_stale = reports.why_not(current, fact) or reports.is_known(current, fact)
        if not isinstance(fact.report, reports.IterationFinished) or is_stale:
            return
        if not await asyncio.to_thread(self.holds.is_away):
            await self.custody.at_boundary(fact.run_id)

    async def undo(
        self, iteration: int | None, repair: int | None = None, *, is_alone: bool = False
    ) -> dict[str, Any]:
        """Put back what was reverted of an iteration, else what was reverted last; or undo a repair.

        Raise WrongState, DirectoryBusy, NotUndone; cancelled, it is still finished. ``is_alone``: nothing is
        supervised, so the state may be old, and only the lock shows whether a run lives.
        """
        work = self._undo(iteration, repair, is_alone=is_alone)
        done: UndoResult | errors.RalphdError = await asyncio.shield(self._begin(work))
        if isinstance(done, errors.RalphdError):
            raise done
        return done.shown() | {"ralph": self.view()}

    async def _undo(
        self, iteration: int | None, repair: int | None, *, is_alone: bool
    ) -> UndoResult | errors.RalphdError:
        async with self.alone:
            try:
                busy = self.gate.is_interrupted if is_alone else self.gate.is_busy
                if busy or not is_alone:
                    refuse_while_it_works(self.name, self.account.supervision, is_busy=busy)
                # Another Regent, or one without a daemon, may work there.
                await asyncio.to_thread(self.holds.take)
                done = await self.gate.undoing.undo(iteration, repair)
                await self.account.note_head()
                await self._handle(done.fact, REQUESTED_BY.get())
            except errors.RalphdError as fault:
                return fault
            finally:
                await self._settle()
            return done

    async def enter_request(self, key: str, at: Moment, data: dict[str, Any]) -> None:
        """Enter a request that was carried out into the history."""
        await self.account.records.enter("request", key, at, data)

    async def escalate(self, call: Escalation) -> None:
        async with self.alone:
            await self.account.escalate(call)

    async def supervise(self) -> None:
        """Carry out one item after the other, until cancelled. Cancelled, it leaves the run alone."""
        self._begin(self.incidents.watch())
        try:
            while True:
                envelope = self._doing = await self._inbox.get()
                async with self.alone:
                    await self._take(envelope)
        finally:
            self._let_go()

    async def _take(self, envelope: _Envelope) -> None:
        """Carry out an item. One with a gate run is held, and carried out when the verdict has come."""
        if envelope.run is not None:
            if envelope.is_abandoned:  # its sender no longer holds ``_boundary``: another run may be open
                return
            fault = await self._fault_in(partial(self._open_gate, envelope.run))
            self._begin(self.gate.worker.work())  # what is open comes to a verdict, after a bug too
            if fault is None:
                self._held = replace(envelope, run=None)
                return
        else:
            event, fault = envelope.event, None
            if event is not None:
                fault = await self._fault_in(partial(self._handle, event, envelope.by))
        envelope.answer(fault)
        if isinstance(envelope.event, events.VerdictReached | events.BaselineTested):
            await self._fault_in(partial(self.gate.conclude, envelope.event))
        is_reverted = isinstance(envelope.event, events.VerdictReached) and envelope.event.verdict.reverted
        if is_reverted or isinstance(envelope.event, events.HistoryRewritten):
            await self._fault_in(self.custody.after_gate)  # before the next iteration may remove .git
        if isinstance(envelope.event, events.VerdictReached):
            held, self._held = self._held, None
            if held is None or held.is_abandoned:
                return
            if isinstance(held.event, reports.Reported):
                held = replace(held, event=replace(held.event, at=self._services.clock.now()))
            await self._take(held)

    async def _open_gate(self, run: GateRun) -> None:
        if await self.gate.open(run):
            await self._handle(events.GateRunBegan(self._services.clock.now(), run.run_id))

    async def _fault_in(self, work: Callable[[], Awaitable[None]]) -> errors.RalphdError | None:
        """Return what a person can fix. A bug fails this ralph, not the daemon."""
        try:
            await self._endure(work)
        except errors.RalphdError as fault:
            return fault
        except Exception:
            logger.exception("a bug in the supervision of a ralph", extra={"ralph": self.name})
            if self._live is not None:
                self._live.run.kill_tree()
            with suppress(Exception):  # another bug must not end the supervision
                await self._endure(partial(self.account.fail, "a bug in ralphd: its log has the traceback"))
            return errors.InternalError(f"the Regent of {self.name} failed", mend="ralphctl regent logs")
        return None

    async def _handle(self, event: events.Event, by: "Caller | None" = None) -> None:
        self._spawn_fault = None
        facts = deque([event])
        while facts:
            fact = facts.popleft()
            before = self.account.supervision
            answered = step(before, fact, self.account.policy)
            if (why := answered.refusal) is not None:
                verb = "start" if isinstance(fact, events.ResumeRequested) else "status"
                mend = f"ralphctl {verb} {self.name}"
                if isinstance(fact, reports.Reported):
                    raise errors.StaleReport("the report was not acted upon", why=why, mend=mend)
                raise errors.WrongState(f"{self.name} cannot do that now", why=why, mend=mend)
            if fact is event and by is not None:
                self.account.requested_by = by
            if isinstance(fact, events.RunEnded):
                await self._endure(partial(self._explain, fact.ending, before.said, answered))
            await self._endure(partial(self.account.write_down, fact, answered))
            self.gate.on_event(fact, self.account.supervision)
            for action in answered.actions:
                if (news := await self._endure(partial(self._carry_out, action))) is not None:
                    facts.append(news)
        if isinstance(self.account.supervision.state, model.Done):
            self._services.done.set()
        await self._endure(self._settle)
        if self._spawn_fault is not None:
            raise self._spawn_fault

    # --- carrying out ---------------------------------------------------------------------------------

    async def _carry_out(self, action: model.Action) -> events.Event | None:
        live = self._live
        match action:
            case model.Spawn():
                return await self._spawn()
            case model.Terminate() if live is not None:
                live.run.terminate()
            case model.PassOn(wish=wish) if live is not None:
                live.run.pass_on(live_run.SIGNALS[wish])
            case model.KillTree() if live is not None:
                live.run.kill_tree()
            case model.KillAfter(run_id=run_id, delay_s=delay_s):
                self._timers.kill_after(run_id, delay_s)
            case model.WakeAt(at=at):
                self._timers.wake_at(at)
            case _:
                pass  # told when it was written down
        return None

    async def _spawn(self) -> events.Event:
        """Start a run, and return what came of it."""
        now = self._services.clock.now
        try:
            lock = await asyncio.to_thread(self.holds.take)
            self.account.take_up()
            await self._look_at_world()
            if (postponed := self._postponed()) is not None:
                return postponed
            await self._follow(tests=False)
            await self.custody.before_run()
            where, is_bare = self.account.definition.directory, self.gate.is_bare
            chosen = await self._services.sandbox_for(self.account, where, is_bare=is_bare)
            if await self.gate.prepare():
                self._begin(self.gate.test_baseline())
                return events.GateRunBegan(now(), None)  # their result orders the run again
            if (postponed := self._postponed()) is not None:  # others may have started meanwhile
                return postponed
            self._services.living.add(self.name)
            await self._commits.begin()  # before the spawn: a quick command commits within milliseconds
            directory, spec = await asyncio.to_thread(self._prepared, chosen)
            run = await Run.spawn(directory, spec, lock)
        except (errors.CommandNotStartable, errors.DirectoryBusy, errors.DirectoryUnusable) as fault:
            self._left()
            self._spawn_fault = fault
            return events.SpawnFailed(now(), f"{fault.what}: {fault.why}" if fault.why else fault.what)
        except Exception as fault:
            if not isinstance(fault, OSError) and not is_lack(fault):
                raise
            self._left()
            return events.SpawnPostponed(now(), getattr(fault, "strerror", None) or str(fault))
        if (born := await self._endure(run.ready)) is None:  # a second attempt would be a second run
            raise errors.InternalError(f"{directory.run_id} was started and left no record of it")
        self.adopt(run, born)
        await self._endure(partial(self._tell_sandbox, born))
        return events.Spawned(born.started_at, born.run_id)

    def _prepared(self, chosen: sandbox.SandboxChoice) -> tuple[RunDirectory, RunSpec]:
        directory = next_run_directory(self.account.files.runs, alone=True)
        return directory, spec_of(self.account, self._services, directory, chosen)

    async def _look_at_world(self) -> None:
        """Read what a start may have to wait for: its accounts and their clocks, the size of worktrees."""
        most_bytes = self.account.configuration.worktree.max_total_bytes
        self._no_room = await self._services.no_room(self.name, most_bytes)
        self._accounts = {}
        if self.account.definition.runs_own_loop and self._services.tied is None:
            self._accounts = await asyncio.to_thread(accounts_of, self.account)
            await self._services.look_at_clocks()

    def _postponed(self) -> events.SpawnPostponed | None:
        """Return why the start has to wait, or None. Raise CommandNotStartable where it is refused (A11)."""
        if self.account.configuration.limits.require_cgroup and writable_cgroup() is None:
            why = "[limits] require_cgroup is set, and ralphd cannot create control groups (v2) here"
            mend = "run ralphd under systemd: ralphctl regent install"
            raise errors.CommandNotStartable("no run can start without a control group", why=why, mend=mend)
        now = self._services.clock.now()
        if self._services.stopping.is_set():  # what began now would be nobody's
            return events.SpawnPostponed(now, "ralphd is shutting down")
        mine = self.applicant or self._applicant(now)
        hold = self._hold = self._services.start_order(mine).get(self.name)  # none if it is to stop
        if hold is None:
            self._services.begun[self.name] = now, mine
            return None
        return events.SpawnPostponed(now, hold.why, hold.reason, hold.until, mine.queued_at)

    def retry_start(self, hold: StartHold | None) -> None:
        """Start now if nothing holds the start back; else show what does."""
        self._hold = hold
        if hold is None and isinstance(self.account.supervision.state, model.Waiting):
            self.post(events.Woke(self._services.clock.now(), is_free=True))

    def _left(self) -> None:
        self._services.living.discard(self.name)
        self._services.freed.set()

    async def _tell_sandbox(self, record: RunRecord) -> None:
        """Publish why a run has no sandbox, once per reason."""
        level, reason = record.sandbox, record.sandbox_reason
        if (note := sandbox.note_on(level, reason)) is not None:
            data = {"message": note, "level": level, "reason": reason}
            await self.account.publish("sandbox.degraded", data, key=reason)

    def adopt(self, run: Run, record: RunRecord) -> None:
        """Watch a run, of our own or of an earlier daemon (P1)."""
        clock, post = self._services.clock, self.post
        live = self._live = LiveRun(run, record, self.account, log=self.log, clock=clock, post=post)
        self.account.note_run(record)
        self._services.living.add(self.name)
        self._begin(self._await_end(live, self._begin(live.watch())))

    async def _explain(self, ending: model.ExitFacts, said: model.RunReports, answer: model.Step) -> None:
        """Keep with the run why its end led to the state after it."""
        if (meant := answer.exit_meaning) is None:
            return
        silence = None if self._past is None or self._past.run_id != ending.run_id else self._past.silence()
        explanation = explain_end(ending, meant, said, answer.supervision, self.account.policy, silence)
        directory = self.account.files.runs / ending.run_id
        await asyncio.to_thread(save_explanation, directory, ending.at, explanation)

    async def _await_end(self, live: LiveRun, watch: "asyncio.Task[Any]") -> None:
        endure = partial(self._services.endure, f"end of the run of {self.name}")
        record = await endure(live.run.ended)
        diagnostics.reach("regent.end_seen")
        watch.cancel()
        commits = await endure(self._commits.commits)
        at, is_paid = await endure(lambda: self._conclude(live, record, commits))
        await endure(lambda: live.output.count(live_run.COUNTED_AT_END_BYTES))
        if not is_paid:
            await self.account.records.enter_seen(record.run_id, at, live.output.seen or {})
        await self._find_strangers(record)

    async def _find_strangers(self, record: ExitRecord) -> None:
        """Find what works in the directory and is not the run's: it is reported, never killed (S7)."""
        now, since = time.monotonic(), record.started_at or record.ended_at
        due, first, ends = self._suspects or (now + STRANGERS_WITHIN_S, since, 0)
        self._suspects = mine = due, first, ends + 1
        await asyncio.sleep(min(STRANGERS_AFTER_S, max(due - now, 0.0)))
        if self._suspects != mine:
            return  # a later run has ended, whose look includes this one's
        self._suspects = None
        known = [each for each in (record.run_id, self.living, self.gate.test_run) if each is not None]
        self._strangers = await asyncio.to_thread(strangers, self.account.definition.directory, first, known)

    async def _conclude(self, live: LiveRun, record: ExitRecord, commits: int) -> tuple[Moment, bool]:
        """Have the end answered. Return when it was, and whether the run has reported what it cost."""
        self._live, self._past = None, live
        live.run.close()
        self._left()
        self.account.note_gone()
        await self.after_run(record)
        ending = await ending_of(self.account, self.log, record)
        is_paid = bool(self.account.supervision.tally.cost_usd)  # the next start begins a new tally
        if is_trusted := self.account.configuration.ralph.trust_output:
            is_paid = bool(self.account.supervision.said.answered)
            await live.output.count(live_run.COUNTED_AT_END_BYTES)
        if self._services.is_cut_off() and record.code is None:  # its shim ended it: not a failure (P5)
            await self._inbox.put(_Envelope(events.StopRequested(self._services.clock.now(), now=True)))
        if commits:
            await self._inbox.put(_Envelope(events.Committed(ending.at, record.run_id, commits)))
        if is_trusted:
            self._post_cost(live, ending.at)
        await self._inbox.put(_Envelope(events.RunEnded(ending)))
        return ending.at, is_paid

    async def after_run(self, record: ExitRecord, *, seen: bool = True) -> None:
        """Bring the gate's part in a run's end about, before that end is carried out.

        ``seen``: a daemon was there. What was committed after an end that nobody saw is somebody else's.
        """
        await self.gate.idle()
        if not record.survivors and not await asyncio.to_thread(self.holds.is_away):
            await self.custody.after_run(record.run_id, seen=seen)
        if (left := await self.gate.repair(record)) is not None:
            await self.request(left)
        async with self._boundary:
            await self.gate.idle()  # a last report may have come in between
            if (rewritten := await self.gate.restore_at_end(record, seen=seen)) is not None:
                await self.request(rewritten)
            if (run := await self.gate.at_end(record, seen=seen)) is not None:
                await self.request(None, run)
        await self.gate.note_left()

    async def resume_gate(self) -> None:
        """Continue the gate run that an earlier daemon has left; ``gate.idle`` waits for it."""
        if (run := await self.gate.resume()) is not None:
            self._deliver(_Envelope(None, run))

    # --- looking round ------------------------------------------------------------------------------

    def _see_output(self) -> None:
        looked = time.monotonic()
        if self.living is not None and looked - self._looked >= SEEN_FOR_S:
            self._looked = looked
            with suppress(OSError):
                at = self.log.last_output_at(self.living)
                self._printed_at = at or 0.0
                self.account.note_output(at)

    def has_news(self) -> bool:
        """Return whether ``look_round`` has something to do, as far as the state directory shows."""
        self._see_output()
        self.incidents.heed()
        ralph, live = self.account.configuration.ralph, self._live
        if self._strangers or self._deleted or ralph.schedule or self.account.has_news():
            return True
        if live is None:
            return False
        is_counted = self._counting is None or self._counting.done()
        is_due = is_counted and live.output.is_due(self._printed_at)
        return is_due or ralph.trust_output or not live.run.is_kept()

    def directory_has_news(self) -> bool:
        """The same as far as the working directory shows. Blocks, in a directory that hangs for ever."""
        supervised = not isinstance(self.account.supervision.state, model.SETTLED)
        living = self._live is not None
        is_settled = self.holds.is_settled(supervised=supervised, living=living)
        return not is_settled or self.account.copies_are_due() or (living and self._commits.has_changed())

    async def look_round(self) -> None:
        """Poll every few seconds: last output, commits, lock file, copies, unsaved state."""
        self._see_output()
        now = self._services.clock.now()
        if (run_id := self.living) is not None and (commits := await self._commits.commits()):
            self.post(events.Committed(now, run_id, commits))
        has_schedule = run_id is not None and self.account.configuration.ralph.schedule
        if run_id and has_schedule and not self._applicant(now).is_scheduled(now, local_zone()):
            self.post(events.ScheduleEnded(now, run_id))
        self._strangers = [each for each in self._strangers if command_line(each.pid) == each.command]
        if (live := self._live) is not None and not live.run.is_kept():  # it may end meanwhile
            await asyncio.to_thread(live.run.keep)
        if self._live is not None and (self._counting is None or self._counting.done()):
            if self._live.output.is_due(self._printed_at):
                self._counting = self._begin(self._live.output.count())  # a flood must not delay other ralphs
            self._post_cost(self._live, now)
        await self.account.freshen()
        if not self.alone.locked():  # else what is carried out does it
            async with self.alone:
                await self._settle()

    def _post_cost(self, live: LiveRun, at: Moment) -> None:
        is_trusted = self.account.configuration.ralph.trust_output
        if is_trusted and (usd := (live.output.seen or {}).get("cost_usd")):
            self.post(events.CostSeen(at, live.run_id, usd))

    async def _settle(self) -> None:
        """Hold what is to be held. Report once if the directory is gone, or another one, while a run lives
        (W7): its command may not notice.
        """
        self.incidents.heed()
        if self.account.files.hangs:
            return
        supervised = not isinstance(self.account.supervision.state, model.SETTLED)
        settle = partial(self.holds.settle, supervised=supervised, living=self._live is not None)
        is_gone = not await asyncio.to_thread(settle) and self.living is not None
        place = self.account.definition.directory
        what = f"{place} is gone or replaced, and its ralph still runs: ralphctl stop {self.name}"
        self._deleted = (what,) if is_gone else ()
        self._services.trouble(f"directory of {self.name}", what if is_gone else None)

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
        self.gate.let_go()
        if self._held is not None:
            what = "ralphd is shutting down; the next one continues with the verdict"
            self._held.answer(errors.ShuttingDown(what))
        for task in tuple(self._tasks):
            task.cancel()
        self.holds.let_go()


def _shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": verdict.kind.value, "why": verdict.why,
        "commits": [*verdict.commits], "reverted": [*verdict.reverted],
        "task": reports.task_data(verdict.task), "tail": verdict.tail,
    }  # fmt: skip
