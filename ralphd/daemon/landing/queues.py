"""The landing queues of a daemon, one for each repository: who gets in, and who is alerted (M2, M4, M6)."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ralphd.config import configuration as config
from ralphd.core.incidents import Escalation
from ralphd.core.landing import step as decisions
from ralphd.core.landing.model import LandingCandidate, LandingQueue, Standing, Target
from ralphd.core.landing.views import calls_person, task_text
from ralphd.core.loop import inbox
from ralphd.core.supervision.model import Done
from ralphd.core.text import short_sha
from ralphd.daemon.landing.worker import QueueWorker
from ralphd.errors import ConfigFaults, NotLandable, RalphdError
from ralphd.git.landing import merge
from ralphd.git.landing.target import TargetBranch, find_target
from ralphd.git.landing.tree import keep, prepare
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.store.files import Broken
from ralphd.store.shared.landing import LandingFiles, known_queues

if TYPE_CHECKING:
    from ralphd.core.loop.inbox import Inbox
    from ralphd.core.time import Moment
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

WATCH_S: Final = 5.0
CLOSE_S: Final = 30.0
PINNED: Final = ("ralph", "regent", "sandbox", "logs", "limits", "landing")
"""The sections that a queue is pinned to: without agents' variables and webhooks, which hold secrets."""
HEADS: Final = "refs/heads/"
DEFAULT_TARGETS: Final = ("main", "master")

Send = Callable[[str, Callable[["Inbox", "Moment"], "Inbox"]], Awaitable[object]]
Start = Callable[[str], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A candidate and the queue that it belongs to, as read from its repository."""

    files: LandingFiles
    queue: LandingQueue
    candidate: LandingCandidate
    needs_person: str


class LandingQueues:
    """Admits candidates, and runs the worker of each queue. Used on the event loop only.

    ``send`` changes the inbox of a ralph's built-in loop, ``start`` starts a ralph.
    """

    def __init__(self, roster: "Roster", services: "Services", send: Send, start: Start) -> None:
        self._roster, self._services = roster, services
        self._send, self._start = send, start
        self._workers: dict[str, QueueWorker] = {}
        self._admitting = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None
        self._seen: dict[str, Moment | None] = {}

    async def recover(self) -> None:
        """Read the queues that an earlier daemon left. One that cannot be read is reported and left out."""
        for files in await asyncio.to_thread(lambda: [*known_queues(self._services.state_directory)]):
            try:
                await asyncio.to_thread(files.create)
                if (queue := await asyncio.to_thread(files.load)) is not None:
                    self._take_in(files, queue)
            except (Broken, RalphdError) as fault:
                self._services.trouble(f"landing queue {files.home.name}", str(fault))

    async def run(self) -> None:
        """Work on all queues, and propose the branches of ralphs that are done, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            for worker in self._workers.values():
                self._group.create_task(worker.run())
            while True:
                await asyncio.sleep(WATCH_S)
                for regent in self._roster:
                    await self._propose(regent.account)

    async def close(self, *, leaves_tests: bool) -> None:
        """End the work under way, for CLOSE_S at most; the next daemon continues."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(
                    *(each.close(leaves_tests=leaves_tests) for each in self._workers.values())
                )

    def views(self) -> list[dict[str, Any]]:
        return [worker.view() for _, worker in sorted(self._workers.items())]

    async def land(self, name: str, branch: str | None) -> dict[str, Any]:
        """Have a branch land that a person asks for (M2). Raises UnknownRalph, NotLandable, ConfigFaults."""
        account = self._roster.get(name).account
        async with self._admitting:
            wanted = await self._read(account, branch)
            return await self._admit(wanted, waits_for="")

    async def undo(self, name: str, number: int | None) -> dict[str, Any]:
        """Queue the revert of what landed, which is tested like any other (M6). Raises NotLandable."""
        account = self._roster.get(name).account
        async with self._admitting:
            wanted = await self._read(account, None, is_undo=True)
            worker = self._workers.get(str(wanted.files.home))
            landed = [] if worker is None else worker.queue.standing(Standing.LANDED)
            undone = {each.undoes for each in landed}
            known = [
                each
                for each in landed
                if each.commit
                and each.commit not in undone
                and (number == each.id if number else not each.undoes)
            ]
            if not known:
                which = "nothing" if number is None else f"no landing {number}"
                raise NotLandable(f"{which} landed here that could be undone", mend="ralphctl queue")
            last = max(known, key=lambda each: each.ended_at or 0.0)
            revert = replace(
                wanted.candidate, ralph=last.ralph, branch=last.branch, head=last.commit, undoes=last.commit
            )
            return await self._admit(replace(wanted, candidate=revert), waits_for="")

    async def _admit(self, wanted: Wanted, *, waits_for: str) -> dict[str, Any]:
        worker = self._workers.get(str(wanted.files.home))
        if worker is None:
            worker = self._take_in(wanted.files, wanted.queue)
        queue, candidate = wanted.queue, wanted.candidate

        def decide(current: LandingQueue) -> LandingQueue:
            renewed = replace(
                current, target=queue.target, work_tree=queue.work_tree, pinned=queue.pinned, green=""
            ) if current.is_idle else current  # fmt: skip
            return decisions.admit(renewed, candidate, waits_for=waits_for)

        await worker.change(decide)
        new = worker.queue.candidates[-1]
        with suppress(NotDone):
            await asyncio.to_thread(self._keep, worker.queue, new)
        await worker.tell("landing.queued", new, f"{new.id}/queued")
        return worker.view() | {"number": new.id}

    def _keep(self, queue: LandingQueue, new: LandingCandidate) -> None:
        keep(Path(queue.work_tree), new.id, new.head, {each.id for each in queue.candidates})

    def _take_in(self, files: LandingFiles, queue: LandingQueue) -> QueueWorker:
        worker = QueueWorker(files, queue, self._services, busy=self._busy, tell_end=self._tell_end)
        self._workers[str(files.home)] = worker
        if self._group is not None:
            self._group.create_task(worker.run())
        return worker

    def _busy(self) -> set[Path]:
        """Return the work trees of ralphs that have a run. Blocks; called in threads."""
        places = [each.account.definition.directory for each in [*self._roster] if each.has_a_run]
        found = ((place, Repository.find(place)) for place in places)
        return {((known and known.top) or place).resolve() for place, known in found}

    # --- candidates -------------------------------------------------------------------------------------

    async def _read(self, account: "RalphRecord", branch: str | None, *, is_undo: bool = False) -> Wanted:
        try:
            return await asyncio.to_thread(self._wanted, account, branch, is_undo)
        except (NotDone, OSError) as fault:
            name = account.definition.name
            raise NotLandable(f"{name} cannot land", why=error_text(fault), mend="ralphctl queue") from fault

    def _wanted(self, account: "RalphRecord", branch: str | None, is_undo: bool) -> Wanted:
        """Read a candidate, and pin its queue to the target's tip if the queue is idle. Blocks."""
        directory, name = account.definition.directory, account.definition.name
        git = GitRunner(directory)
        common = git.repository.common.resolve()
        files = LandingFiles.of(self._services.state_directory, common)
        worker = self._workers.get(str(files.home))
        if worker is None:  # later it would remove what the worker is writing
            files.create()
        if worker is None or worker.queue.is_idle:
            queue = self._pinned(account, git, files, worker.queue if worker else None)
        else:
            queue = worker.queue
        ref = HEADS + branch.removeprefix(HEADS) if branch else git.branch()
        head = None if ref is None else git.commit(ref)
        now = self._services.clock.now()
        if is_undo:
            return Wanted(files, queue, LandingCandidate(0, name, ref or "", head or "", now), "")
        if ref is None or head is None:
            raise NotDone(f"the branch {branch} does not exist" if branch else "HEAD is detached")
        if ref == HEADS + queue.target.branch:
            raise NotDone(f"it works on {queue.target.branch} itself: nothing is to land")
        tip = TargetBranch(queue.target, Path(queue.work_tree)).read(git, fetches=False).tip
        if merge.is_ancestor(git, head, tip):
            raise NotDone(f"{queue.target.branch} has all of {ref.removeprefix(HEADS)} already")
        protect = config.Configuration.from_pinned(queue.pinned).regent.protect
        why = decisions.needs_person(merge.changed_paths(git, tip, head), protect)
        return Wanted(files, queue, LandingCandidate(0, name, ref, head, now), why)

    def _pinned(
        self, account: "RalphRecord", git: GitRunner, files: LandingFiles, known: LandingQueue | None
    ) -> LandingQueue:
        """Return the queue with the configuration of the target's tip, never the candidate's (M2). Blocks.

        Flags of the ralph's registration and the user's own file count as everywhere.
        """
        environment, flags = account.files.load_environment() or dict(os.environ), account.definition.flags
        common, work_tree = git.repository.common.resolve(), git.top
        if common.name == ".git" and Repository.find(common.parent) is not None:
            work_tree = common.parent
        own = config.load(None, flags=flags, environ=environment).landing.target
        names = DEFAULT_TARGETS if own == DEFAULT_TARGETS[0] else (own,)
        branch = next((name for name in names if git.commit(HEADS + name)), own)
        for _ in range(2):  # its tip may name another branch
            target = find_target(work_tree, branch)
            tip = TargetBranch(target, work_tree, environment=environment).read(git, fetches=True).tip
            prepare(common, work_tree, files.tree, tip)
            loaded = config.load(self._place(account, git, files), flags=flags, environ=environment)
            if loaded.landing.target in (branch, own) or not git.commit(HEADS + loaded.landing.target):
                break
            branch = loaded.landing.target
        if not loaded.regent.test_command:
            raise ConfigFaults(
                f"{target.branch} has no tests: nothing lands untested",
                why=f"ralph.toml at {target.branch} {short_sha(tip)} sets no test_command",
                mend=f"commit [regent] test_command to {target.branch}, then ralphctl land",
            )
        pinned = loaded.pinned()
        pinned["values"] = {key: value for key, value in pinned["values"].items() if key in PINNED}
        files.save_environment(environment)
        base = known or LandingQueue(str(common), str(work_tree), Target(branch))
        return replace(base, work_tree=str(work_tree), target=target, pinned=pinned)

    def _place(self, account: "RalphRecord", git: GitRunner, files: LandingFiles) -> Path:
        """Return the ralph's directory within the queue's tree; the tree itself where it is not there."""
        directory, top = account.definition.directory.resolve(), git.top.resolve()
        inside = files.tree / directory.relative_to(top) if directory.is_relative_to(top) else files.tree
        return inside if inside.is_dir() else files.tree

    async def _propose(self, account: "RalphRecord") -> None:
        """Queue the branch of a ralph that is done, as its target's configuration says (M2)."""
        name, done_at = account.definition.name, account.facts.finished_at
        is_done = isinstance(account.supervision.state, Done)
        if not is_done or self._seen.get(name, 0.0) == done_at:
            return
        self._seen[name] = done_at
        refused = {
            each.ralph
            for worker in self._workers.values()
            for each in worker.queue.standing(Standing.REFUSED)
        }
        if account.configuration.landing.mode == "off" and name not in refused:
            return
        try:
            async with self._admitting:
                await self._propose_branch(await self._read(account, None))
        except RalphdError as fault:
            logger.info("not queued to land: %s", fault, extra={"ralph": name})
        except Exception:  # must not end the daemon
            logger.exception("a bug in the landing queue", extra={"ralph": name})

    async def _propose_branch(self, wanted: Wanted) -> None:
        worker, new, again = self._workers.get(str(wanted.files.home)), wanted.candidate, False
        if worker is not None:
            known = [each for each in worker.queue.candidates if each.branch == new.branch]
            if known and known[-1].head == new.head:
                return
            is_refused = bool(known) and known[-1].standing is Standing.REFUSED
            again = is_refused and not calls_person(known[-1], worker.policy)
        mode = config.Configuration.from_pinned(wanted.queue.pinned).landing.mode
        if mode == "off" and not again:
            return
        asks = "" if mode == "auto" or again else f"you decide: ralphctl land {new.ralph}"
        await self._admit(wanted, waits_for=wanted.needs_person or asks)

    # --- ends -------------------------------------------------------------------------------------------

    async def _tell_end(self, worker: QueueWorker, ended: LandingCandidate) -> None:
        """Publish the end of a candidate; a refused one becomes a task of its ralph, or an alert (M4)."""
        kind = "landing.landed" if ended.standing is Standing.LANDED else "landing.refused"
        if ended.standing is Standing.REFUSED:
            took = not ended.undoes and not calls_person(ended, worker.policy)
            if not (took and await self._give_task(worker, ended)):
                await self._alert(worker, ended)
        await worker.tell(kind, ended, f"{ended.id}/ended", tail=ended.tail[-2000:] or None)

    async def _give_task(self, worker: QueueWorker, ended: LandingCandidate) -> bool:
        """Add a task to the inbox of the built-in loop, once. Return whether somebody has it."""
        text = task_text(ended, worker.queue.target)

        def with_task(kept: "Inbox", at: "Moment") -> "Inbox":
            if any(each.text == text for each in kept.tasks):
                return kept
            kept = inbox.with_task(kept, at, text)
            log = ended.tail[-inbox.NOTE_CHARS // 2 :].strip()
            if not log or len(kept.notes) >= inbox.MOST_NOTES:
                return kept
            return inbox.with_note(kept, at, f"Why landing {ended.id} failed, the end of the log:\n{log}")

        try:
            await self._send(ended.ralph, with_task)
            state = self._roster.get(ended.ralph).account.supervision.state
            if worker.configuration.landing.mode == "auto" and isinstance(state, Done):
                await self._start(ended.ralph)
        except RalphdError as fault:
            logger.info("no task about a refused landing: %s", fault, extra={"ralph": ended.ralph})
            return False
        return True

    async def _alert(self, worker: QueueWorker, ended: LandingCandidate) -> None:
        branch = ended.branch.removeprefix(HEADS)
        call = Escalation(
            f"{branch} does not land on {worker.queue.target.branch}: {ended.why}",
            "nobody works on it until you look at it",
            "ralphctl queue",
            stands=False,
        )
        with suppress(RalphdError):
            if (regent := self._roster.find(ended.ralph)) is not None:
                await regent.escalate(call)
