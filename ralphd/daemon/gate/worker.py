"""A gate run carried out: each order of ``core/gate/verdict`` is written to ``gate.json`` before it is done.

Every order can be carried out twice, so a daemon that dies during a run leaves nothing half done: the next
one reads the order under way and continues.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ralphd import diagnostics
from ralphd.core.gate import verdict
from ralphd.core.gate.range import GateState, attributed
from ralphd.core.gate.step import retaken, step
from ralphd.core.gate.verdict import GateRun, Result, Revert, Say, SetAside, ShowOld, label_of
from ralphd.core.supervision.events import Event, VerdictReached
from ralphd.core.supervision.model import RunId
from ralphd.daemon.gate.test_runs import GateTestResult, GateTests
from ralphd.errors import NewerState
from ralphd.store.files import Broken
from ralphd.store.gate import load_gate, order_name, save_gate

if TYPE_CHECKING:
    from ralphd.daemon.gate.git_effects import GitEffects
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

ASKED_TO_END: Final = "everything was to end at once; these commits are judged with the next iteration's"
SWITCHED_OFF: Final = "the guard is switched off"
STILL_S: Final = 1.0
MOST_WAIT_S: Final = 10.0
POLL_S: Final = 0.1
A_BUG: Final = "a bug in ralphd: its log has the traceback"


class GateMemory:
    """The state of a gate, in memory and in ``gate.json``. What was saved last is what the file holds."""

    def __init__(self, account: "RalphRecord", services: "Services") -> None:
        self._path = account.files.gate_file
        self._services = services
        self._topic = f"gate of {account.definition.name}"
        self._saving = asyncio.Lock()
        self._saved: GateState | None = None
        try:
            self.state = load_gate(self._path)
        except (Broken, NewerState):  # reported and set aside when the ralph was loaded
            self.state = GateState()
        self._baseline = (self.state.baseline, self.state.since)

    async def save(self, state: GateState) -> str | None:
        """Write ``state``. Return the fault, in words, where the disk does not take it (F3)."""
        baseline, since = self._baseline
        if state.baseline is not baseline and state.since == since:
            state = replace(state, since=self._services.clock.now())
        self._baseline = (state.baseline, state.since)
        self.state = state
        fault = None
        async with self._saving:
            latest = self.state  # another save may have come while this one waited
            if latest != self._saved:
                try:
                    await asyncio.to_thread(save_gate, self._path, latest)
                    self._saved = latest
                except OSError as error:
                    self._saved, fault = None, f"it cannot be saved: {error.strerror or error}"
        self._services.trouble(self._topic, fault)
        return fault


class GateWorker:
    """Carries out the orders of one gate run, and the tests before a first run."""

    def __init__(
        self, account: "RalphRecord", services: "Services", memory: GateMemory, git: "GitEffects",
        tests: "GateTests", post: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self._account, self._services, self._post = account, services, post
        self._memory, self._git, self._tests = memory, git, tests

    @property
    def _run(self) -> GateRun:
        assert self._memory.state.judging is not None
        return self._memory.state.judging

    @property
    def _label(self) -> str:
        return label_of(self._account.definition.name, self._run.run_id, self._run.boundary_id)

    @property
    def _policy(self) -> verdict.GatePolicy:
        regent = self._account.configuration.regent
        tests = (regent.protect_tests, regent.protect, regent.test_command)
        return verdict.GatePolicy(regent.test_retries, regent.rollback_scope == "minimal", *tests)

    async def work(self) -> None:
        """Carry out one order after the other until the run is decided, then post the verdict.

        A bug decides it: untested.
        """
        try:
            unsaved: str | None = None
            while not isinstance(order := self._run.order, Say):
                if self._run.is_stale:
                    await self._retake()
                    continue
                diagnostics.reach(f"gate.{order_name(order)}.ordered")
                event: verdict.GateEvent
                if unsaved is not None:
                    event = verdict.Refused(unsaved)
                elif not isinstance(order, verdict.RunTests):
                    event = await asyncio.to_thread(self._git.carry_out, order, self._run, self._label)
                elif not self._account.configuration.regent.test_command:
                    event = verdict.Cut(SWITCHED_OFF)
                elif (ran := await self.run_tests()).result is None:
                    event = verdict.Cut(ASKED_TO_END)
                else:
                    test_run = verdict.TestRun(ran.run_id, ran.result, ran.took_s)
                    tested = self._run.tested(test_run, ran.tail, ran.counts)
                    self._memory.state = replace(self._memory.state, judging=tested)
                    moved = tested.moved(await asyncio.to_thread(self._git.position))
                    event = moved or verdict.Ran(ran.result)
                diagnostics.reach(f"gate.{order_name(order)}.done")
                run = step(self._run, event, self._policy)
                fault = await self._save(run)
                # What has begun is brought to its end; nothing begins that the next daemon could not know of.
                unsaved = fault if isinstance(run.order, SetAside | ShowOld | Revert) else None
        except Exception:
            logger.exception("a bug in the guard of a ralph", extra={"ralph": self._account.definition.name})
            bug = verdict.Verdict(verdict.VerdictKind.UNTESTED, A_BUG, verdict.Baseline.UNKNOWN, pauses=True)
            await self._save(replace(self._run, order=Say(bug)))
        refs = self._git.refs_of(self._label, is_back=self._run.is_back)
        self._post(VerdictReached(self._run.finished(self._services.clock.now(), refs)))

    async def _retake(self) -> None:
        """Begin the run again once HEAD has been still for a moment."""
        await self._until_still()
        run, git = self._run, self._git
        found = await asyncio.to_thread(git.boundary, run.boundary.before)
        boundary = attributed(found, knows_run=self._memory.state.knows_run)
        await self._save(retaken(run, boundary, await asyncio.to_thread(git.reverts, self._label)))

    async def _until_still(self) -> None:
        """Wait until HEAD has not moved for a moment, some seconds at most."""
        loop, at = asyncio.get_running_loop(), await asyncio.to_thread(self._git.position)
        since = begun = loop.time()
        while loop.time() - since < STILL_S and loop.time() - begun < MOST_WAIT_S and not self._tests.is_cut:
            await asyncio.sleep(POLL_S)
            if (now := await asyncio.to_thread(self._git.position)) != at:
                at, since = now, loop.time()

    async def _save(self, run: GateRun) -> str | None:
        return await self._memory.save(replace(self._memory.state, judging=run, test_run=None))

    async def run_tests(self) -> GateTestResult:
        """Run the tests, or wait for the run of them that an earlier daemon has started."""
        run_id = self._memory.state.test_run
        try:
            if run_id is None:
                run_id = await asyncio.to_thread(self._tests.next_id)
                await self._memory.save(replace(self._memory.state, test_run=run_id))
            root, is_bare = await asyncio.to_thread(self._git.root), self._memory.state.is_bare
            return await self._tests.run(run_id, root, is_bare=is_bare)
        except OSError as fault:
            return GateTestResult(run_id or RunId("none"), Result.ENDED, how=fault.strerror or str(fault))
