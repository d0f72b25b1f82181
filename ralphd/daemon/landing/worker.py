"""One landing queue carried out: each step is in ``queue.json`` before it is taken (M1).

Every step can be repeated, so a daemon that dies during one leaves nothing half done: the next one reads the
step under way and continues. One step runs at a time, and the queue changes under a lock.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ralphd import diagnostics
from ralphd.config.configuration import Configuration
from ralphd.core.gate.verdict import Result
from ralphd.core.landing import step as decisions
from ralphd.core.landing.model import (
    BatchTested,
    Doing,
    Hindered,
    LandingBatch,
    LandingCandidate,
    LandingFact,
    LandingPolicy,
    LandingQueue,
    MergeDone,
    Standing,
)
from ralphd.core.landing.views import landing_event, queue_view
from ralphd.core.supervision.model import RunId
from ralphd.core.text import short_sha
from ralphd.daemon.gate.test_runs import GateTests
from ralphd.daemon.ralph.run_source import RunSource
from ralphd.git.landing import merge
from ralphd.git.landing.target import NETWORK_RETRY_S, TargetBranch
from ralphd.git.landing.tree import prepare
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.store.state import RalphFiles

if TYPE_CHECKING:
    from ralphd.daemon.services import Services
    from ralphd.store.shared.landing import LandingFiles

logger = logging.getLogger(__name__)

POLL_S: Final = 5.0
A_BUG: Final = "a bug in ralphd: its log has the traceback"


class LandingSource(RunSource):
    """Who runs the tests of a queue: with its pinned configuration, and the environment of its ralphs."""

    def __init__(self, home: Path, services: "Services", queue: LandingQueue) -> None:
        self.files = RalphFiles(home)
        self._services = services
        self._configuration = configured(queue)

    def take(self, queue: LandingQueue) -> None:
        """Use the configuration that the queue is pinned to now."""
        self._configuration = configured(queue)

    @property
    def run_name(self) -> str:
        return "landing"

    @property
    def configuration(self) -> Configuration:
        return self._configuration


def configured(queue: LandingQueue) -> Configuration:
    """Return the pinned configuration. Raises ConfigFaults, NewerState."""
    return Configuration.from_pinned(queue.pinned) if queue.pinned else Configuration()


class QueueWorker:
    """The queue of one repository. ``tell_end`` has the ralph of an ended candidate take note of it.

    ``busy`` returns the directories in which a run lives.
    """

    def __init__(
        self,
        files: "LandingFiles",
        queue: LandingQueue,
        services: "Services",
        *,
        busy: Callable[[], set[Path]],
        tell_end: Callable[["QueueWorker", LandingCandidate], Awaitable[None]],
    ) -> None:
        self.files, self.queue = files, queue
        self._services, self._busy, self._tell_end = services, busy, tell_end
        self._source = LandingSource(files.home, services, queue)
        self._tests = GateTests(self._source, services)
        self._changing, self._nudged = asyncio.Lock(), asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._is_closed = False
        self._fetch_at = 0.0

    @property
    def policy(self) -> LandingPolicy:
        configuration = self._source.configuration
        return LandingPolicy(configuration.regent.test_retries, configuration.landing.max_landing_tries)

    @property
    def configuration(self) -> Configuration:
        """The configuration of the target's tip when the queue began."""
        return self._source.configuration

    def view(self) -> dict[str, Any]:
        return queue_view(self.queue, self.policy) | {"mode": self.configuration.landing.mode}

    async def change(self, decide: Callable[[LandingQueue], LandingQueue]) -> None:
        """Make what ``decide`` returns the queue, on disk first. Raises OSError; then nothing has changed."""
        async with self._changing:
            new = decide(self.queue)
            if new != self.queue:
                await asyncio.to_thread(self.files.save, new)
                if new.pinned != self.queue.pinned:
                    self._source.take(new)
                self.queue = new
        self._nudged.set()

    async def tell(self, kind: str, candidate: LandingCandidate, key: str, **more: object) -> None:
        """Publish an event about a candidate, once."""
        data = landing_event(self.queue, candidate) | more
        key = f"landing/{self.files.home.name}/{key}"
        await self._services.news.tell(kind, data, ralph=candidate.ralph, key=key)
        logger.info("%s", data["message"], extra={"ralph": candidate.ralph})

    async def run(self) -> None:
        """Take one step after the other, until cancelled."""
        while True:
            self._nudged.clear()
            try:
                goes_on = not self._is_closed and await self._advance()
                self._services.trouble(self._topic, None)
            except OSError as fault:
                self._services.trouble(self._topic, f"it cannot be saved: {fault.strerror or fault}")
                goes_on = False
            except Exception:
                logger.exception("a bug in the landing queue of %s", self.queue.repository)
                with suppress(OSError):
                    await self._take(Hindered(A_BUG))
                goes_on = False
            finally:
                self._at_rest.set()
            if not goes_on:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._nudged.wait()

    @property
    def _topic(self) -> str:
        return f"landing queue of {self.queue.repository}"

    async def close(self, *, leaves_tests: bool) -> None:
        """Take no further step; wait for the one under way. Tests are ended unless they are left alone."""
        self._is_closed = True
        if not leaves_tests:
            self._tests.cut()
        elif self.queue.batch and self.queue.batch.test_run:
            return
        await self._at_rest.wait()

    async def _advance(self) -> bool:
        """Take the next step. Return whether there may be another one at once."""
        self._at_rest.clear()
        for ended in [each for each in self.queue.candidates if not each.is_told]:
            await self._tell_end(self, ended)
            diagnostics.reach("landing.told")
            await self.change(lambda now, id=ended.id: now.with_candidate(  # type: ignore[misc]
                replace(now.candidate(id), is_told=True)
            ))  # fmt: skip
        await self.change(decisions.begin)
        if self.queue.batch is None:
            return await self._look_again()
        doing = self.queue.batch.doing
        diagnostics.reach(f"landing.{doing.value}.ordered")
        fact = await self._result(self.queue.batch)
        if fact is None:
            return False
        diagnostics.reach(f"landing.{doing.value}.done")
        await self._take(fact)
        return True

    async def _take(self, fact: LandingFact) -> None:
        at = self._services.clock.now()
        await self.change(lambda now: decisions.step(now, fact, self.policy, at))
        if isinstance(fact, Hindered):
            logger.warning("nothing lands on %s: %s", self.queue.target.branch, fact.why)

    async def _result(self, batch: LandingBatch) -> LandingFact | None:
        """Carry out the step under way. None where the daemon ends before it is done."""
        try:
            if batch.doing in (Doing.TESTING, Doing.BASELINE):
                return await self._tested(batch)
            act = self._merge if batch.doing is Doing.MERGING else self._move
            return await asyncio.to_thread(act, batch)
        except (NotDone, OSError) as fault:
            return Hindered(error_text(fault), NETWORK_RETRY_S)

    def _target(self) -> TargetBranch:
        environment = self._source.files.load_environment() or None
        work_tree = Path(self.queue.work_tree)
        return TargetBranch(self.queue.target, work_tree, self._busy(), environment)

    def _git(self) -> GitRunner:
        work_tree = Path(self.queue.work_tree)
        known = Repository.find(work_tree)
        if known is None or str(known.common.resolve()) != self.queue.repository:
            raise NotDone(f"{work_tree} is not a work tree of {self.queue.repository} any more")
        return GitRunner(work_tree)

    def _merge(self, batch: LandingBatch) -> MergeDone:
        git, own_list = self._git(), self._source.configuration.ralph.tasks
        wanted = [
            merge.ToMerge(each.id, each.branch.removeprefix("refs/heads/"), each.head, each.undoes)
            for each in map(self.queue.candidate, batch.ids)
        ]
        return merge.merge_batch(git, self._target().read(git, fetches=True), wanted, own_list=own_list)

    def _move(self, batch: LandingBatch) -> LandingFact:
        return self._target().advance(self._git(), merge.Tip(batch.tip), batch.commit)

    async def _tested(self, batch: LandingBatch) -> LandingFact | None:
        if not self._source.configuration.regent.test_command:
            return Hindered("test_command is not set: without tests nothing lands")
        run_id = batch.test_run or await self._new_test_run(batch)
        ran = await self._tests.run(run_id, self.files.tree)
        if ran.result is None:
            await self._note_test_run(None)
            return None
        if ran.result is not Result.GREEN and not ran.tail:
            return BatchTested(ran.result, ran.how)
        return BatchTested(ran.result, ran.tail)

    async def _new_test_run(self, batch: LandingBatch) -> RunId:
        """Have the queue's tree hold the commit, and note the run of the tests that is to start there."""
        work_tree, repository = Path(self.queue.work_tree), Path(self.queue.repository)
        await asyncio.to_thread(self._git)
        await asyncio.to_thread(prepare, repository, work_tree, self.files.tree, batch.commit)
        run_id = await asyncio.to_thread(self._tests.next_id)
        await self._note_test_run(run_id)
        for each in map(self.queue.candidate, batch.ids):
            key = f"{each.id}/testing/{run_id}"
            words = f"{each.branch.removeprefix('refs/heads/')} is tested on top of {short_sha(batch.base)}"
            await self.tell("landing.testing", each, key, message=words, test_run=run_id)
        return run_id

    async def _note_test_run(self, run_id: RunId | None) -> None:
        await self.change(
            lambda now: replace(now, batch=replace(now.batch, test_run=run_id)) if now.batch else now
        )

    async def _look_again(self) -> bool:
        """Nothing is to be done: move the target where it waits, and see whether what blocks is gone."""
        now = self._services.clock.now()
        try:
            has_followed, tip = await asyncio.to_thread(self._follow, now)
        except (NotDone, OSError):
            return False
        if has_followed:
            await self.change(decisions.followed)
        if not decisions.is_due(self.queue, now, tip):
            return False
        await self.change(decisions.unblocked)
        return bool(self.queue.standing(Standing.QUEUED))

    def _follow(self, now: float) -> tuple[bool, str]:
        target, git = self._target(), self._git()
        has_followed = not self.queue.target.url and target.follow(git)
        fetches = bool(self.queue.blocked) and now >= self._fetch_at
        if fetches:
            self._fetch_at = now + NETWORK_RETRY_S
        return has_followed, target.read(git, fetches=fetches).tip
