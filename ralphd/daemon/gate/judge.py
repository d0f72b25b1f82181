"""A judgement of an iteration's commits: what ``core/gate/verdict`` orders is carried out, each order once.

Each is written down in ``gate.json`` before. A daemon that dies leaves the judgement there, and the next one
goes on with it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ralphd import diagnostics
from ralphd.core.gate.verdict import (
    Baseline,
    Cut,
    GatePolicy,
    JudgeEvent,
    Judgement,
    JudgeOrder,
    Moved,
    Position,
    Ran,
    Refused,
    Result,
    Revert,
    RunTests,
    Say,
    SetAside,
    Verdict,
    VerdictKind,
    begin,
    step,
)
from ralphd.core.supervision.events import Event, JudgementBegan, JudgementOver
from ralphd.core.supervision.model import ReportedTask, RunId
from ralphd.daemon.gate.git_effects import GitEffects, label_of, refs_of
from ralphd.daemon.gate.test_runs import GateTestResult, GateTests
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.daemon.services import Services
from ralphd.errors import NewerState, ShuttingDown
from ralphd.store.files import Broken
from ralphd.store.gate import (
    GateRun,
    GateState,
    LastVerdict,
    RanTests,
    load_gate,
    order_name,
    save_gate,
    tested,
)

# What a gate knows, in memory and in ``gate.json`` alike.


class GateMemory:
    """``state`` is what is so; ``save`` makes it another one, and what is written last is what is so last."""

    def __init__(self, account: RalphRecord, services: Services) -> None:
        self._path = account.files.gate_file
        self._services = services
        self._topic = f"gate of {account.definition.name}"
        self._saving = asyncio.Lock()
        self._saved: GateState | None = None
        try:
            self.state = load_gate(self._path)
        except (Broken, NewerState):  # put aside, and told, when the ralph was loaded
            self.state = GateState()
        self._baseline = (self.state.baseline, self.state.since)

    async def save(self, state: GateState) -> str | None:
        """Write it down. What a full disk does not take is told (F3), and answered in words."""
        self.state = state = self._since(state)
        fault = None
        async with self._saving:
            latest = self.state
            if latest != self._saved:
                try:
                    await asyncio.to_thread(save_gate, self._path, latest)
                    self._saved = latest
                except OSError as error:
                    self._saved, fault = None, f"it cannot be written down: {error.strerror or error}"
        self._services.trouble(self._topic, fault)
        return fault

    def _since(self, state: GateState) -> GateState:
        """With the moment at which the baseline became what it is; one that is put back has its own."""
        baseline, since = self._baseline
        if state.baseline is not baseline and state.since == since:
            state = replace(state, since=self._services.clock.now())
        self._baseline = (state.baseline, state.since)
        return state


logger = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[Event], Awaitable[None]]
Begin: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]

ASKED_TO_END: Final = "everything was to end at once; these commits are judged with the next iteration's"
SWITCHED_OFF: Final = "the guard is switched off"
A_BUG: Final = "a bug in ralphd: its log has the traceback"


@dataclass(frozen=True, slots=True)
class BoundaryReport:
    """A boundary: what it is called, of which run, which iteration it ends and on which task."""

    id: str
    run_id: RunId
    number: int | None = None
    task: ReportedTask | None = None


class GateWorker:
    """Judges one boundary at a time. ``ask`` has the Regent carry out a fact, ``begin`` owns its tasks."""

    def __init__(self, account: RalphRecord, services: Services, *, ask: Ask, begin: Begin) -> None:
        self._account = account
        self._services = services
        self._ask = ask
        self._begin = begin
        self.hands = GitEffects(account.definition.directory, account.files.load_environment)
        self.tests = GateTests(account, services)
        self.memory = GateMemory(account, services)
        self._work: asyncio.Task[LastVerdict | None] | None = None
        self._occasion: str | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether a judgement is under way."""
        return self._work is not None

    def last_of(self, boundary_id: str) -> LastVerdict | None:
        """The verdict on a boundary, where it is the last one."""
        last = self.memory.state.last
        return last if last is not None and last.boundary_id == boundary_id else None

    def resume(self) -> None:
        """Go on with the judgement that an earlier daemon has left."""
        self._start(None)

    async def settled(self) -> None:
        """Wait until nothing is being judged. Raises ShuttingDown."""
        if self._work is not None:
            await _finished(self._work)

    async def judge(self, occasion: BoundaryReport) -> LastVerdict | None:
        """The verdict on a boundary, reached once however often it is asked for. None: nothing is judged.

        Cancelled, it leaves the judgement to go on.
        """
        while True:
            if (last := self.last_of(occasion.id)) is not None:
                return last
            is_open = self.memory.state.judging is not None  # what was begun is brought to its end first
            work = self._work or self._start(None if is_open else occasion)
            is_mine = self._occasion == occasion.id
            verdict = await _finished(work)
            if is_mine:
                return verdict

    def _start(self, occasion: BoundaryReport | None) -> "asyncio.Task[LastVerdict | None]":
        judging = self.memory.state.judging
        self._occasion = occasion.id if occasion is not None else judging.boundary_id if judging else None
        self._work = self._begin(self._judged(occasion))
        return self._work

    async def _judged(self, occasion: BoundaryReport | None) -> LastVerdict | None:
        """Judge a boundary, or go on with the judgement that is under way."""
        try:
            if occasion is not None and not await self._open(occasion):
                return None
            try:
                await self._carry_on()
            except Exception:
                logger.exception(
                    "a bug in the guard of a ralph", extra={"ralph": self._account.definition.name}
                )
                await self._give_up()
            return await self._close()
        finally:
            self._work = self._occasion = None
            self.tests.allow()

    async def _open(self, occasion: BoundaryReport) -> bool:
        """Look at what there is to judge, and write it down. False where it is not known from where on."""
        before = self.memory.state.before
        if before is None:
            now = await asyncio.to_thread(self.hands.position)
            await self.memory.save(replace(self.memory.state, before=now))
            return False
        boundary = await asyncio.to_thread(self.hands.boundary, before)
        judgement = begin(boundary, self.memory.state.baseline)
        judging = GateRun(occasion.id, occasion.number, occasion.task, occasion.run_id, judgement)
        await self.memory.save(replace(self.memory.state, judging=judging))
        return True

    @property
    def _judging(self) -> GateRun:
        assert self.memory.state.judging is not None
        return self.memory.state.judging

    async def _carry_on(self) -> None:
        """Carry out one order after the other, until there is a verdict."""
        if not isinstance(self._judging.judgement.order, Say):
            await self._ask(JudgementBegan(self._services.clock.now(), self._judging.run_id))
        unsaved: str | None = None
        while not isinstance(order := self._judging.judgement.order, Say):
            diagnostics.reach(f"gate.{order_name(order)}.ordered")
            event = await self._carry_out(order) if unsaved is None else Refused(unsaved)
            diagnostics.reach(f"gate.{order_name(order)}.done")
            regent = self._account.configuration.regent
            policy = GatePolicy(regent.test_retries, minimal=regent.rollback_scope == "minimal")
            judging = replace(self._judging, judgement=step(self._judging.judgement, event, policy))
            fault = await self.memory.save(replace(self.memory.state, judging=judging, test_run=None))
            # What was begun is brought to its end; nothing is begun that the next daemon could not know of.
            unsaved = fault if isinstance(judging.judgement.order, SetAside | Revert) else None

    async def _carry_out(self, order: JudgeOrder) -> JudgeEvent:
        judging = self._judging
        if not isinstance(order, RunTests):
            return await asyncio.to_thread(
                self.hands.carry_out, order, judging.judgement, self._label(judging)
            )
        if not self._account.configuration.regent.test_command:
            return Cut(SWITCHED_OFF)
        ran = await self.run_tests()
        if ran.result is None:
            return Cut(ASKED_TO_END)
        once = RanTests(ran.run_id, ran.result, ran.took_s)
        self.memory.state = replace(self.memory.state, judging=tested(judging, once, ran.tail))
        now = await asyncio.to_thread(self.hands.position)
        return moved(judging.judgement, now) or Ran(ran.result)

    async def run_tests(self) -> GateTestResult:
        """Run the tests, or go on with the run of them that is written down."""
        run_id = self.memory.state.test_run
        try:
            if run_id is None:
                run_id = await self.tests.next_id()
                await self.memory.save(replace(self.memory.state, test_run=run_id))
            return await self.tests.run(run_id, await asyncio.to_thread(self.hands.root))
        except OSError as fault:
            return GateTestResult(run_id or RunId("none"), Result.ENDED, how=fault.strerror or str(fault))

    async def _give_up(self) -> None:
        judging = self._judging
        verdict = Verdict(VerdictKind.UNTESTED, A_BUG, Baseline.UNKNOWN, pauses=True)
        said = replace(judging.judgement, order=Say(verdict))
        await self.memory.save(
            replace(self.memory.state, judging=replace(judging, judgement=said), test_run=None)
        )

    async def _close(self) -> LastVerdict:
        """Tell the verdict, once, and begin anew from where HEAD is."""
        judging, at = self._judging, self._services.clock.now()
        verdict = judging.judgement.verdict
        assert verdict is not None
        last = self._last(judging, verdict, at)
        await self._ask(
            JudgementOver(
                at=at,
                run_id=judging.run_id,
                verdict=verdict,
                number=judging.number,
                task=judging.task,
                commits=_short(last.commits),
                reverted=_short(last.reverted),
                tests=tuple(ran.result.value for ran in judging.tests),
                tests_s=tuple(ran.took_s for ran in judging.tests),
                refs=last.refs,
                tail=last.tail,
                id=judging.boundary_id,
            )
        )
        diagnostics.reach("gate.say.done")
        now = await asyncio.to_thread(self.hands.position)
        before = self.memory.state.before if verdict.is_open else now
        state = replace(self.memory.state, baseline=verdict.baseline, before=before, is_open=verdict.is_open)
        reverted = last if last.reverted else state.reverted
        await self.memory.save(replace(state, judging=None, test_run=None, last=last, reverted=reverted))
        if last.reverted:
            name = self._account.definition.name
            await asyncio.to_thread(self.hands.forget_old, name, self._label(judging))
        return last

    def _last(self, judging: GateRun, verdict: Verdict, at: float) -> LastVerdict:
        judgement = judging.judgement
        return LastVerdict(
            boundary_id=judging.boundary_id,
            number=judging.number,
            task=judging.task,
            run_id=judging.run_id,
            verdict=verdict.kind,
            why=verdict.why,
            commits=tuple(commit.sha for commit in judgement.boundary.commits),
            reverted=judgement.reverted,
            refs=refs_of(self._label(judging)) if judgement.reverted else (),
            tail=judging.tail,
            at=at,
        )

    def _label(self, judging: GateRun) -> str:
        return label_of(self._account.definition.name, judging.run_id, judging.boundary_id)


async def _finished(work: "asyncio.Task[LastVerdict | None]") -> LastVerdict | None:
    """What came of it. Raises ShuttingDown where it was left to the next daemon."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not work.cancelled() or (task is not None and task.cancelling()):
            raise
        raise ShuttingDown("ralphd ends, and the next one goes on with the verdict") from None


def moved(judgement: Judgement, now: Position) -> Moved | None:
    """What to tell of a HEAD that is not where the judgement has left it; None: it is there."""
    if now.head == judgement.head and now.branch == judgement.boundary.now.branch:
        return None
    was, is_ = (judgement.head or "nothing")[:7], (now.head or "nothing")[:7]
    return Moved(f"HEAD was at {was} of {judgement.boundary.now.branch}, and is at {is_} of {now.branch}")


def _short(shas: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sha[:7] for sha in shas)
