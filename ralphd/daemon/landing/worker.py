"""One landing queue carried out: each step is in ``queue.json`` before it is taken (M1).

Every step can be repeated, so a daemon that dies during one leaves nothing half done: the next one reads the
step under way and continues. One step runs at a time, and the queue changes under a lock.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from ralphd import diagnostics
from ralphd.config.configuration import Configuration
from ralphd.core.gate.verdict import Result
from ralphd.core.gate.weakened import TestCheck
from ralphd.core.landing import model
from ralphd.core.landing import step as decisions
from ralphd.core.landing.model import BatchTested, Doing, Hindered, LandingBatch, LandingFact, LandingQueue
from ralphd.core.landing.views import landing_event, queue_view
from ralphd.core.supervision.model import RunId
from ralphd.core.text import short_sha
from ralphd.daemon.gate.test_runs import GateTestResult, GateTests, SetupRuns
from ralphd.daemon.ralph.run_source import RunSource
from ralphd.errors import RalphdError
from ralphd.git.landing import merge
from ralphd.git.landing.target import NETWORK_RETRY_S, Follow, TargetBranch, recorded
from ralphd.git.landing.tree import NotTestable, is_ours, keep_rebased, prepare
from ralphd.git.rewrite.old_tests import show_in_own_tree
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.git.worktrees.include import include
from ralphd.git.worktrees.worktree import work_tree_of
from ralphd.process.machine import wait_at_most
from ralphd.store.state import RalphFiles

if TYPE_CHECKING:
    from ralphd.daemon.services import Services
    from ralphd.store.shared.landing import LandingFiles

logger = logging.getLogger(__name__)

POLL_S: Final = 5.0
_PinnedMerge: TypeAlias = tuple[Mapping[str, Any], model.MergeDone]
"""A merge, and the configuration that it was made with."""
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


class LandingTurn(Protocol):
    """The turn of this machine to move a target that others move, too."""

    def is_ours(self, item: str, nudge: Callable[[], object]) -> bool:
        """Return whether it has come. If not, wait in line for an item, and ``nudge`` when it has."""

    def push(self, old: str, new: str) -> str | None:
        """Move the target. Return why not; None: the turn is over. Blocks; not for the event loop."""

    def end(self) -> None:
        """Let others have their turn."""


def configured(queue: LandingQueue) -> Configuration:
    """Return the pinned configuration. Raises ConfigFaults, NewerState."""
    return Configuration.from_pinned(queue.pinned) if queue.pinned else Configuration()


class QueueWorker:
    """The queue of one repository. ``tell_end`` has the ralph of an ended candidate take note of it.

    It returns whether the ralph has got a task. ``busy`` returns the directories in which a run lives.
    ``pin`` returns the queue with the configuration that a commit of the target has for a candidate; blocks.
    """

    def __init__(
        self,
        files: "LandingFiles",
        queue: LandingQueue,
        services: "Services",
        *,
        busy: Callable[[], Container[Path]],
        tell_end: Callable[["QueueWorker", model.LandingCandidate], Awaitable[bool]],
        pin: Callable[[LandingQueue, model.LandingCandidate, str], LandingQueue],
    ) -> None:
        self.files, self.queue = files, queue
        self._services, self._busy, self._tell_end, self._pin = services, busy, tell_end, pin
        self._source = LandingSource(files.home, services, queue)
        self._tests, self._setups = GateTests(self._source, services), SetupRuns(self._source, services)
        self._changing, self._nudged = asyncio.Lock(), asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._is_closed = False
        self._turn: LandingTurn | None = None
        self._look_at, self._seen = 0.0, tuple[object, ...]()

    @property
    def policy(self) -> model.LandingPolicy:
        regent, landing = self.configuration.regent, self.configuration.landing
        return model.LandingPolicy(regent.test_retries, landing.max_landing_tries, regent.protect_tests)

    @property
    def configuration(self) -> Configuration:
        """The configuration of the target's tip when the queue began."""
        return self._source.configuration

    def view(self, active: Container[str]) -> dict[str, Any]:
        """Return the queue as the API shows it. ``active`` are the ralphs that run, or will."""
        return queue_view(self.queue, active) | {"mode": self.configuration.landing.mode}

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

    async def tell(self, kind: str, candidate: model.LandingCandidate, key: str, **more: object) -> None:
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
                await wait_at_most(POLL_S, self._nudged)

    @property
    def _topic(self) -> str:
        return f"landing queue of {self.queue.repository}"

    async def close(self, *, leaves_tests: bool) -> None:
        """Take no further step; wait for the one under way. Tests are ended unless they are left alone."""
        self._is_closed = True
        if not leaves_tests:
            self._tests.cut()
            self._setups.cut()
        elif self.queue.batch and (self.queue.batch.test_run or self.queue.batch.setup_run):
            return
        await self._at_rest.wait()

    async def recall(self, ralph: str) -> None:
        """Take what a ralph has in the queue out again, and end the tests of its batch."""
        batch = self.queue.batch
        await self.change(lambda now: decisions.recalled(now, ralph))
        if batch is None or self.queue.batch is not None or batch.doing in (Doing.MERGING, Doing.MOVING):
            return
        for each in (self._tests, self._setups):
            each.cut()
        await self._at_rest.wait()
        for each in (self._tests, self._setups):
            each.allow()

    async def _advance(self) -> bool:
        """Take the next step. Return whether there may be another one at once."""
        self._at_rest.clear()
        for ended in [each for each in self.queue.candidates if not each.is_told]:
            has_task = await self._tell_end(self, ended)
            diagnostics.reach("landing.told")
            # one that waits again may be replaced in the meantime
            told = replace(ended, is_told=True, has_task=has_task)
            await self.change(lambda now, told=told: now.with_candidate(told))  # type: ignore[misc]
        if may_land := self._may_land():
            await self.change(decisions.begin)
        if self.queue.batch is None or self.queue.blocked:
            return await self._look_again()
        if not may_land:
            return False
        doing = self.queue.batch.doing
        diagnostics.reach(f"landing.{doing.value}.ordered")
        fact = await self._result(self.queue.batch)
        if fact is None:
            return False
        diagnostics.reach(f"landing.{doing.value}.done")
        if isinstance(fact, tuple):
            pinned, fact = fact
            await self.change(lambda now: replace(now, **pinned))
        await self._take(fact)
        if self.queue.batch is None and self._turn is not None:
            self._turn.end()  # the next batch waits for its turn, as those of other machines do
        return True

    async def _take(self, fact: LandingFact) -> None:
        at = self._services.clock.now()
        await self.change(lambda now: decisions.step(now, fact, self.policy, at))
        if isinstance(fact, Hindered):
            logger.warning("nothing lands on %s: %s", self.queue.target.branch, fact.why)

    async def _result(self, batch: LandingBatch) -> LandingFact | _PinnedMerge | None:
        """Carry out the step under way. None where the daemon ends before it is done."""
        place = await asyncio.to_thread(work_tree_of, self.queue.repository, self.queue.work_tree)
        await self.change(lambda now: replace(now, work_tree=str(place)))  # the old one may be gone
        try:
            acts = {Doing.MERGING: self._merge, Doing.MOVING: self._move, Doing.PUSHING: self._publish}
            if (act := acts.get(batch.doing)) is None:
                return await self._tested(batch)
            return await asyncio.to_thread(act, batch)
        except (NotDone, OSError) as fault:
            return Hindered(error_text(fault), NETWORK_RETRY_S)
        except RalphdError as fault:  # the target's own ralph.toml
            return Hindered(str(fault), NETWORK_RETRY_S)

    def _target(self) -> TargetBranch:
        queue, home, environ = self.queue, self.files.home, self._source.files.load_environment() or None
        work_tree, push = Path(queue.work_tree), None if self._turn is None else self._turn.push
        return TargetBranch(queue.target, work_tree, self._busy(), environ, recorded(queue), home, push)

    def _may_land(self) -> bool:
        """Whether a step may be taken. A fleet's target is taken while something of this machine lands."""
        if not self.queue.target.is_shared:
            return True
        self._turn = self._services.turn_of(self.queue.target)
        if self._turn is None:
            return False
        queued = self.queue.standing(model.Standing.QUEUED)
        if self.queue.blocked or not queued:
            self._turn.end()
            return False
        return self._turn.is_ours(queued[0].ralph, self._nudged.set)

    def _git(self) -> GitRunner:
        git = GitRunner(Path(self.queue.work_tree))
        if str(git.repository.common.resolve()) != self.queue.repository:
            raise NotDone(f"{git.directory} is not a work tree of {self.queue.repository} any more")
        return git

    def _merge(self, batch: LandingBatch) -> _PinnedMerge:
        """Merge the batch by the rules of the target's tip, which may be newer than the queue's (M2).

        What nobody asked for is looked at again, since the target that it was compared with was a guess.
        """
        git = self._git()
        tip = self._target().read(git, fetches=True)
        candidates = [*map(self.queue.candidate, batch.ids)]
        queue, first = self.queue, next(iter(candidates), None)
        if first is not None and (tip.tip, first.inside) != (queue.pinned_at, queue.inside):
            queue = self._pin(queue, first, tip.tip)
        configuration = configured(queue)
        rebases, own_list = configuration.landing.method == "rebase", configuration.ralph.tasks
        waits = {
            each.id: why
            for each in candidates
            if each.is_auto and git.commit(each.head)
            and (why := decisions.needs_person(
                merge.changed_paths(git, tip.tip, each.head), configuration.regent.protect
            ))
        }  # fmt: skip
        wanted = [
            merge.ToMerge(
                each.id, each.name, each.head, each.undone, each.refused_at,
                copied=self.queue.copied(each.branch) if rebases and not queue.target.is_shared else None,
            )
            for each in candidates if each.id not in waits
        ]  # fmt: skip
        pinned = {key: getattr(queue, key) for key in ("pinned", "pinned_at", "inside", "green", "counts_at")}
        return pinned, replace(merge.merge_batch(git, tip, wanted, own_list=own_list), waits=waits)

    def _move(self, batch: LandingBatch) -> LandingFact:
        git = self._git()
        fact = self._target().advance(git, merge.Tip(batch.tip), batch.commit)
        if isinstance(fact, model.TargetMoved):
            keep_rebased(git, [self.queue.candidate(each.id).head for each in batch.merged if each.copies])
        return fact

    def _publish(self, batch: LandingBatch) -> LandingFact:
        candidate = self.queue.candidate(batch.ids[0])
        return self._target().publish(self._git(), candidate.branch, candidate.head)

    async def _tested(self, batch: LandingBatch) -> LandingFact | None:
        if not self._source.configuration.regent.test_command:
            return Hindered("test_command is not set: without tests nothing lands")
        if (run_id := batch.test_run) is None:
            is_checking, repository = batch.doing is Doing.CHECKING, Path(self.queue.repository)
            is_there = is_checking and await asyncio.to_thread(is_ours, self.tree, repository)
            try:
                ran = None if is_there else await self._set_up(batch)
            except NotTestable as why:  # whoever brought it is to blame
                return BatchTested(Result.RED, fault=str(why))
            if ran is not None and ran.result is not Result.GREEN:
                return await self._ended(ran, f"the setup commands fail ({ran.how})")
            check = await asyncio.to_thread(self._check, batch) if is_checking else batch.check
            if is_checking and not check.changed:
                await self._note(check=check)
                return BatchTested(Result.GREEN)
            run_id = await self._new_test_run(batch, check)
        ran = await self._tests.run(run_id, self.tree)
        cannot = f"the tests cannot be run ({ran.how})" if ran.result is Result.CANNOT_RUN else ""
        return await self._ended(ran, cannot)

    async def _ended(self, ran: GateTestResult, fault: str) -> BatchTested | None:
        if ran.result is None:
            await self._note(setup_run=None, test_run=None)
            return None
        return BatchTested(ran.result, ran.tail or ran.how, fault, ran.counts)

    @property
    def tree(self) -> Path:
        """The queue's work tree."""
        return Path(self.queue.tree or self.files.old_tree)

    async def _set_up(self, batch: LandingBatch) -> GateTestResult | None:
        """Have the queue's tree hold the commit, and run setup there; None: there is none (W3).

        It runs before each run of the tests: what it reads and leaves behind is not known.
        """
        if (run_id := batch.setup_run) is None:
            await asyncio.to_thread(self._prepare, batch.commit)
            if not self.configuration.ralph.setup.strip():
                return None
            run_id = await asyncio.to_thread(self._setups.next_id)
            await self._note(setup_run=run_id, is_spoiled=True)
        diagnostics.reach("landing.setup.ordered")
        tree = self.tree.resolve()
        inside = (tree / self.queue.inside).resolve()  # a candidate may have made it a link
        is_inside = inside.is_dir() and inside.is_relative_to(tree)
        ran = await self._setups.run(run_id, inside if is_inside else tree)
        diagnostics.reach("landing.setup.done")
        return ran

    def _prepare(self, commit: str) -> None:
        """Have the tree hold the commit, with the files of ``.worktreeinclude`` of the main work tree."""
        self._git()
        repository, source = Path(self.queue.repository), Path(self.queue.work_tree)
        old, is_whole = self.files.old_tree, self.queue.is_spoiled
        prepare(repository, source, self.tree, commit, old=old, is_whole=is_whole, scratch=self.files.home)
        if repository.parent == source:  # others are ralphs'
            include(source, self.tree, renews=True)

    def _check(self, batch: LandingBatch) -> TestCheck:
        """Show the earlier versions of the test files that the batch changed (A9)."""
        regent = self.configuration.regent
        try:
            shown = show_in_own_tree(
                GitRunner(self.tree), batch.base, batch.commit, regent.protect, regent.test_command
            )
        except NotDone as why:
            return replace(batch.check, unknown=str(why))
        return replace(batch.check, changed=shown.changed, gone=shown.gone, hiding=shown.hiding)

    async def _new_test_run(self, batch: LandingBatch, check: TestCheck) -> RunId:
        """Note the run of the tests that is to start in the queue's tree."""
        run_id = await asyncio.to_thread(self._tests.next_id)
        await self._note(test_run=run_id, check=check, is_spoiled=False)
        for each in map(self.queue.candidate, batch.ids):
            key = f"{each.id}/testing/{run_id}"
            words = f"{each.name} is tested on top of {short_sha(batch.base)}"
            await self.tell("landing.testing", each, key, message=words, test_run=run_id)
        return run_id

    async def _note(self, *, is_spoiled: bool | None = None, **of_batch: Any) -> None:
        def noted(queue: LandingQueue) -> LandingQueue:
            spoiled = queue.is_spoiled if is_spoiled is None else is_spoiled
            return replace(queue, is_spoiled=spoiled, batch=queue.batch and replace(queue.batch, **of_batch))

        await self.change(noted)

    async def _look_again(self) -> bool:
        """Nothing is to be done: move the target where it waits, and see whether what blocks is gone.

        An idle queue starts no process.
        """
        if not (self.queue.blocked or decisions.waits_for_checkout(self.queue)):
            return False
        now, how, tip = self._services.clock.now(), Follow.WAITS, self.queue.blocked_at
        with suppress(NotDone, OSError):
            if await asyncio.to_thread(self._has_news, now):
                how, tip = await asyncio.to_thread(self._follow)
        if how is Follow.DONE:
            await self.change(decisions.followed)
        if self.queue.blocked and not decisions.is_due(self.queue, now, tip):
            return False
        await self.change(decisions.unblocked)
        if how is Follow.DIVERGED:
            await self.change(decisions.rejoined)
        return bool(self.queue.batch or self.queue.standing(model.Standing.QUEUED))

    def _has_news(self, now: float) -> bool:
        """Whether git is worth asking: refs or checkouts have changed, or it was not asked for a while."""
        seen = () if self.queue.target.url else self._target().signature(Path(self.queue.repository))
        if seen == self._seen and now < self._look_at:
            return False
        self._seen, self._look_at = seen, now + NETWORK_RETRY_S
        return True

    def _follow(self) -> tuple[Follow, str]:
        target, git = self._target(), self._git()
        how = Follow.WAITS if self.queue.target.url else target.follow(git)
        return how, target.read(git, fetches=True).tip
