"""The gate of one ralph: no iteration's commits stay that break the tests (R1 to R9).

``core/verdict`` decides; here its orders are carried out, each written down in ``gate.json`` before. A daemon
that dies leaves the judgement there, and the next one goes on with it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ralphd import failpoint
from ralphd.core.events import (
    BaselineTested,
    DaemonStopping,
    Event,
    JudgementBegan,
    JudgementOver,
    StopRequested,
)
from ralphd.core.model import Goal, Mode, RunId, Starting, Supervision, Task
from ralphd.core.reported import IterationFinished, IterationStarted, Reported
from ralphd.core.reports import boundary_id, is_known, why_not
from ralphd.core.verdict import (
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
from ralphd.daemon.account import Account
from ralphd.daemon.hands import Hands, label_of, refs_of
from ralphd.daemon.services import Services
from ralphd.daemon.test_runs import RunsOfTests, Tested
from ralphd.errors import NewerState, ShuttingDown
from ralphd.process.spawn import ExitRecord
from ralphd.store.files import Broken
from ralphd.store.gate_file import (
    GateState,
    Judging,
    Last,
    RanTests,
    load_gate,
    order_name,
    save_gate,
    tested,
)

logger = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[Event], Awaitable[None]]
Begin: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]

ASKED_TO_END: Final = "everything was to end at once; these commits are judged with the next iteration's"
SWITCHED_OFF: Final = "the guard is switched off"
A_BUG: Final = "a bug in ralphd: its log has the traceback"
RED_BEFORE: Final = "the tests are not green: commits are not judged until they are"
NO_BOUNDARY: Final = (
    "no commit is judged: the command reports no iterations. One line in its loop gives it boundaries: "
    "ralphctl notify iteration-finished --wait"
)
_BASELINES: Final = {
    Result.GREEN: Baseline.GREEN,
    None: Baseline.UNKNOWN,
    Result.CANNOT_RUN: Baseline.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Occasion:
    """A boundary: what it is called, of which run, which iteration it ends and on which task."""

    id: str
    run_id: RunId
    number: int | None = None
    task: Task | None = None


class Gate:
    """Judges what a ralph commits. ``ask`` has its Regent carry out a fact, ``begin`` owns its tasks."""

    def __init__(self, account: Account, services: Services, *, ask: Ask, begin: Begin) -> None:
        self._account = account
        self._services = services
        self._ask = ask
        self._begin = begin
        self._hands = Hands(account.definition.directory)
        self._tests = RunsOfTests(account, services)
        self._state = _loaded(account)
        self._work: asyncio.Task[Last | None] | None = None
        self._occasion: str | None = None
        self._tests_baseline = False
        self._saved: GateState | None = None
        self._saving = asyncio.Lock()

    # --- what is so -----------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether commits are judged: it is asked for, and there is a repository."""
        regent = self._account.configuration.regent
        wanted = regent.enabled and regent.rollback_on_test_failure and bool(regent.test_command)
        return wanted and self._hands.has_repository()

    @property
    def is_busy(self) -> bool:
        """Whether tests run, or something is done to the repository."""
        return self._work is not None or self._tests_baseline

    def notes(self) -> tuple[str, ...]:
        """What a person should know of it."""
        regent = self._account.configuration.regent
        if not (regent.enabled and regent.rollback_on_test_failure):
            return ()
        now = self._account.supervision
        is_opaque = self._account.policy.mode is Mode.LOOP and not self._account.policy.own_loop
        notes = [NO_BOUNDARY] if is_opaque and not now.said.iterates and self._state.last is None else []
        if self._state.baseline is Baseline.RED:
            notes.append(RED_BEFORE)
        return tuple(notes)

    def last_of(self, boundary_id: str) -> Last | None:
        """The verdict on a boundary, where it is the last one."""
        last = self._state.last
        return last if last is not None and last.boundary_id == boundary_id else None

    # --- the life of a run ----------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """A run is about to begin: know from where on it is judged. Whether the tests run first (R4).

        Where HEAD has moved since a run ended in the middle of an iteration, it was somebody else's work: none
        of it is judged.
        """
        self._tests.allow()
        if not self.is_on:
            if self._state.before is not None:
                await self._save(GateState(last=self._state.last))
            return False
        now, state = await asyncio.to_thread(self._hands.position), self._state
        if state.is_open and state.left != now:
            state = replace(state, is_open=False, baseline=Baseline.UNKNOWN)
        if not state.is_open:
            state = replace(state, before=now, is_open=self._account.policy.mode is Mode.ITERATION)
        await self._save(replace(state, left=now))
        self._tests_baseline = state.baseline is Baseline.UNKNOWN
        return self._tests_baseline

    async def test_baseline(self) -> None:
        """Run the tests before the first run, in place, and tell what they said (R4)."""
        try:
            ran = await self._run_tests()
        finally:
            self._tests_baseline = False
        self._state = replace(self._state, baseline=_BASELINES.get(ran.result, Baseline.RED))
        if ran.result is None:
            await self._save(replace(self._state, test_run=None))
            if self._services.stopping.is_set():
                return  # the next daemon begins anew
        failpoint.reach("gate.baseline.done")
        at = self._services.clock.now()
        await self._ask(BaselineTested(at, ran.run_id, ran.result, ran.how))
        if ran.result is not None:  # only now: told anew by the next daemon it has the same id
            await self._save(replace(self._state, test_run=None))

    async def iteration_began(self, head: str | None, branch: str | None) -> None:
        """An iteration begins where its run says, or where HEAD is, unless an earlier one is not judged yet."""
        if self._state.is_open or self._state.judging is not None or not self.is_on:
            return
        now = Position(head, branch) if head else await asyncio.to_thread(self._hands.position)
        await self._save(replace(self._state, before=now, is_open=True))

    async def run_over(self, record: ExitRecord, *, seen: bool = True) -> None:
        """A run has ended: no end is told before what is judged is, nor an iteration of its own unjudged.

        ``seen``: a daemon was there. What was committed after an end that nobody saw is somebody else's.
        """
        await self.settled()
        if not self.is_on or self._state.before is None:
            return
        if not seen and await asyncio.to_thread(self._hands.is_committed_after, record.ended_at + 1):
            now = await asyncio.to_thread(self._hands.position)
            if now != self._state.before:
                await self._save(replace(self._state, before=now, is_open=False, baseline=Baseline.UNKNOWN))
        elif self._account.policy.mode is Mode.ITERATION and record.code == 0:
            number = self._account.supervision.tally.iteration + 1
            await self.judge(Occasion(record.run_id, record.run_id, number))
        now = await asyncio.to_thread(self._hands.position)
        is_open = self._state.is_open or now != self._state.before
        await self._save(replace(self._state, is_open=is_open, left=now))

    async def settled(self) -> None:
        """Wait until nothing is being judged. Raises ShuttingDown."""
        if self._work is not None:
            await _finished(self._work)

    async def hear(self, fact: Reported) -> Last | None:
        """Know of an iteration's begin, and judge at its end, where the run waits for the answer."""
        now = self._account.supervision
        if why_not(now, fact) is not None:
            return None
        match fact.report:
            case IterationStarted(head=head, branch=branch):
                await self.iteration_began(head, branch)
            case IterationFinished(waits=True) as report:
                id_ = boundary_id(fact)
                if is_known(now, fact):
                    return self.last_of(id_)
                return await self.judge(Occasion(id_, fact.run_id, report.number, report.task))
            case _:
                pass
        return None

    def heed(self, event: Event, now: Supervision) -> None:
        """End the tests where nobody wants to wait for them any more."""
        kills = isinstance(event, StopRequested | DaemonStopping) and event.now
        unwanted = now.goal is not Goal.RUNNING or isinstance(event, DaemonStopping)
        if kills or (self._tests_baseline and isinstance(now.state, Starting) and unwanted):
            self._tests.cut()

    async def resume(self) -> None:
        """Go on with what an earlier daemon has left; the tests of one that was tied to somebody are over."""
        if self._services.tied is not None:
            self._tests.cut()
        if self._state.judging is not None:
            self._start(None)
        elif (run_id := self._state.test_run) is not None:
            now = self._account.supervision
            if not (isinstance(now.state, Starting) and now.goal is Goal.RUNNING):
                await self._tests.end(run_id)
                await self._save(replace(self._state, test_run=None))

    # --- a judgement ----------------------------------------------------------------------------------

    async def judge(self, occasion: Occasion) -> Last | None:
        """The verdict on a boundary, reached once however often it is asked for. None: nothing is judged.

        Cancelled, it leaves the judgement to go on.
        """
        while True:
            if (last := self.last_of(occasion.id)) is not None:
                return last
            if self._work is None and not self.is_on:
                return None
            work = self._work or self._start(occasion)
            is_mine = self._occasion == occasion.id
            verdict = await _finished(work)
            if is_mine:
                return verdict

    def _start(self, occasion: Occasion | None) -> "asyncio.Task[Last | None]":
        judging = self._state.judging
        self._occasion = occasion.id if occasion is not None else judging.boundary_id if judging else None
        self._work = self._begin(self._judged(occasion))
        return self._work

    async def _judged(self, occasion: Occasion | None) -> Last | None:
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
            self._tests.allow()

    async def _open(self, occasion: Occasion) -> bool:
        """Look at what there is to judge, and write it down. False where it is not known from where on."""
        before = self._state.before
        if before is None:
            now = await asyncio.to_thread(self._hands.position)
            await self._save(replace(self._state, before=now))
            return False
        boundary = await asyncio.to_thread(self._hands.boundary, before)
        judgement = begin(boundary, self._state.baseline)
        judging = Judging(occasion.id, occasion.number, occasion.task, occasion.run_id, judgement)
        await self._save(replace(self._state, judging=judging))
        return True

    @property
    def _judging(self) -> Judging:
        assert self._state.judging is not None
        return self._state.judging

    async def _carry_on(self) -> None:
        """Carry out one order after the other, until there is a verdict."""
        if not isinstance(self._judging.judgement.order, Say):
            await self._ask(JudgementBegan(self._services.clock.now(), self._judging.run_id))
        unsaved: str | None = None
        while not isinstance(order := self._judging.judgement.order, Say):
            failpoint.reach(f"gate.{order_name(order)}.ordered")
            event = await self._carry_out(order) if unsaved is None else Refused(unsaved)
            failpoint.reach(f"gate.{order_name(order)}.done")
            regent = self._account.configuration.regent
            policy = GatePolicy(regent.test_retries, minimal=regent.rollback_scope == "minimal")
            judging = replace(self._judging, judgement=step(self._judging.judgement, event, policy))
            fault = await self._save(replace(self._state, judging=judging, test_run=None))
            # What was begun is brought to its end; nothing is begun that the next daemon could not know of.
            unsaved = fault if isinstance(judging.judgement.order, SetAside | Revert) else None

    async def _carry_out(self, order: JudgeOrder) -> JudgeEvent:
        judging = self._judging
        if not isinstance(order, RunTests):
            return await asyncio.to_thread(
                self._hands.carry_out, order, judging.judgement, self._label(judging)
            )
        if not self._account.configuration.regent.test_command:
            return Cut(SWITCHED_OFF)
        ran = await self._run_tests()
        if ran.result is None:
            return Cut(ASKED_TO_END)
        once = RanTests(ran.run_id, ran.result, ran.took_s)
        self._state = replace(self._state, judging=tested(judging, once, ran.tail))
        now = await asyncio.to_thread(self._hands.position)
        return _moved(judging.judgement, now) or Ran(ran.result)

    async def _run_tests(self) -> Tested:
        """Run the tests, or go on with the run of them that is written down."""
        run_id = self._state.test_run
        try:
            if run_id is None:
                run_id = await self._tests.next_id()
                await self._save(replace(self._state, test_run=run_id))
            return await self._tests.run(run_id, await asyncio.to_thread(self._hands.root))
        except OSError as fault:
            return Tested(run_id or RunId("none"), Result.ENDED, how=fault.strerror or str(fault))

    async def _give_up(self) -> None:
        judging = self._judging
        verdict = Verdict(VerdictKind.UNTESTED, A_BUG, Baseline.UNKNOWN, pauses=True)
        said = replace(judging.judgement, order=Say(verdict))
        await self._save(replace(self._state, judging=replace(judging, judgement=said), test_run=None))

    async def _close(self) -> Last:
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
        failpoint.reach("gate.say.done")
        now = await asyncio.to_thread(self._hands.position)
        before = self._state.before if verdict.is_open else now
        state = replace(self._state, baseline=verdict.baseline, before=before, is_open=verdict.is_open)
        await self._save(replace(state, judging=None, test_run=None, last=last))
        return last

    def _last(self, judging: Judging, verdict: Verdict, at: float) -> Last:
        judgement = judging.judgement
        return Last(
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

    def _label(self, judging: Judging) -> str:
        return label_of(self._account.definition.name, judging.run_id, judging.boundary_id)

    async def _save(self, state: GateState) -> str | None:
        """Write it down. What a full disk does not take is told (F3), and answered in words."""
        self._state = state
        topic, fault = f"gate of {self._account.definition.name}", None
        async with self._saving:
            latest = self._state
            if latest != self._saved:
                try:
                    await asyncio.to_thread(save_gate, self._account.files.gate_file, latest)
                    self._saved = latest
                except OSError as error:
                    self._saved, fault = None, f"it cannot be written down: {error.strerror or error}"
        self._services.trouble(topic, fault)
        return fault


async def _finished(work: "asyncio.Task[Last | None]") -> Last | None:
    """What came of it. Raises ShuttingDown where it was left to the next daemon."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
        raise ShuttingDown("ralphd ends, and the next one goes on with the verdict") from None


def _loaded(account: Account) -> GateState:
    """What was damaged was put aside and told when the ralph was loaded."""
    try:
        return load_gate(account.files.gate_file)
    except (Broken, NewerState):
        return GateState()


def _moved(judgement: Judgement, now: Position) -> Moved | None:
    if now.head == judgement.head and now.branch == judgement.boundary.now.branch:
        return None
    was, is_ = (judgement.head or "nothing")[:7], (now.head or "nothing")[:7]
    return Moved(f"HEAD was at {was} of {judgement.boundary.now.branch}, and is at {is_} of {now.branch}")


def _short(shas: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sha[:7] for sha in shas)
