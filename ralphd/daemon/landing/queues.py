"""The landing queues of a daemon, one for each repository: who gets in, and who is alerted (M2, M4, M6)."""

import asyncio
import hashlib
import logging
import math
import os
import threading
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from ralphd.config import configuration as config
from ralphd.config.layers import DEFAULT
from ralphd.core.gate.verdict import Result
from ralphd.core.incidents import Escalation
from ralphd.core.landing import step as decisions
from ralphd.core.landing.model import LandingCandidate, LandingQueue, Standing, Target
from ralphd.core.landing.views import calls_person, landing_event, landing_of, task_text
from ralphd.core.loop import inbox
from ralphd.core.supervision.model import SETTLED, Done
from ralphd.core.worktrees.rules import PORTS_VARIABLE, QUEUE_PORT, port_bases
from ralphd.daemon.landing.worker import QueueWorker
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults, NotLandable, RalphdError
from ralphd.git.landing import merge
from ralphd.git.landing.follow import planned
from ralphd.git.landing.target import NETWORK_RETRY_S, TargetBranch, find_target
from ralphd.git.landing.tree import discard, keep, write_rules
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.process.lock import holders
from ralphd.process.machine import are_free, wait_at_most
from ralphd.store.files import Broken
from ralphd.store.shared import claims
from ralphd.store.shared.landing import LandingFiles, known_queues
from ralphd.store.state import RalphFiles

if TYPE_CHECKING:
    from ralphd.core.time import Moment
    from ralphd.daemon.gate.gate import Gate
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

CLOSE_S: Final = 30.0
PINNED: Final = ("ralph", "regent", "sandbox", "logs", "limits", "landing")
"""The sections that a queue is pinned to: without agents' variables and webhooks, which hold secrets."""
HEADS: Final = "refs/heads/"
_ENDS: Final = {
    Standing.LANDED: "landing.landed",
    Standing.PUSHED: "landing.pushed",
    Standing.REFUSED: "landing.refused",
}
DEFAULT_TARGETS: Final = ("main", "master")


class NothingToLand(NotLandable):
    """The target has all of it."""


Send = Callable[[str, Callable[[inbox.Inbox, "Moment"], inbox.Inbox]], Awaitable[object]]
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
        self._admitting: dict[str, asyncio.Lock] = {}
        self._ports, self._choosing = dict[str, int](), threading.Lock()
        self._unqueued: dict[str, str] = {}
        """Why the branch of a ralph that is done is not in its queue, by name."""
        self._group: asyncio.TaskGroup | None = None
        self._seen: dict[str, tuple[Moment | None, float]] = {}
        """The end of each ralph that was proposed, and until when not to propose it again."""
        services.follow = self.follow

    async def recover(self) -> None:
        """Read the queues that an earlier daemon left. One that cannot be read is reported and left out."""
        for files in await asyncio.to_thread(lambda: [*known_queues(self._services.state_directory)]):
            try:
                await asyncio.to_thread(files.create)
                if (queue := await asyncio.to_thread(files.load)) is not None:
                    if not (queue.tree or (queue.batch and queue.batch.test_run)):  # an earlier layout
                        environment = RalphFiles(files.home).load_environment() or os.environ
                        queue = replace(queue, tree=_tree(files, environment))
                    self._take_in(files, queue)
            except (Broken, RalphdError) as fault:
                self._services.trouble(f"landing queue {files.home.name}", str(fault))

    async def run(self) -> None:
        """Work on all queues, and propose the branches of ralphs that are done, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            for worker in self._workers.values():
                self._group.create_task(worker.run())
            while True:
                self._services.done.clear()
                await self._forget_removed()
                await asyncio.gather(*(self._propose(regent.account) for regent in self._roster))
                await wait_at_most(self._retry_s(), self._services.done)

    def _retry_s(self) -> float | None:
        """Return how soon a branch whose remote was away is proposed again; None for none."""
        soonest = min((until for _, until in self._seen.values()), default=math.inf)
        return None if soonest == math.inf else max(soonest - self._services.clock.now(), 1.0)

    async def _forget_removed(self) -> None:
        """Withdraw what waits for a person, of removed ralphs; without any other, the queue's tree goes."""
        known = self._roster.directories()
        for names in (self._seen, self._unqueued):
            for name in [name for name in names if name not in known]:
                del names[name]
        for worker in self._workers.values():
            for each in worker.queue.standing(Standing.WAITING):
                if each.ralph not in known:
                    await worker.change(partial(decisions.withdrawn, ralph=each.ralph))
            if worker.queue.is_idle and worker.queue.tree:
                with suppress(NotDone, OSError):
                    await asyncio.to_thread(self._tidy, worker.queue, [*known.values()])

    def _tidy(self, queue: LandingQueue, directories: Sequence[Path]) -> None:
        found = (Repository.find(each) for each in directories)
        if Path(queue.tree).exists() and all(
            each is None or str(each.common.resolve()) != queue.repository for each in found
        ):
            discard(Path(queue.work_tree), Path(queue.tree))

    async def _lock(self, account: "RalphRecord") -> asyncio.Lock:
        """Return the lock of a ralph's repository: requests for it come one after the other."""
        found = await asyncio.to_thread(Repository.find, account.definition.directory)
        return self._admitting.setdefault(str(found and found.common.resolve()), asyncio.Lock())

    def why_unqueued(self, name: str) -> str:
        """Return why the branch of a ralph that is done is not queued; empty if it is, or need not be."""
        return self._unqueued.get(name, "")

    async def close(self, *, leaves_tests: bool) -> None:
        """End the work under way, for CLOSE_S at most; the next daemon continues."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                closing = (each.close(leaves_tests=leaves_tests) for each in self._workers.values())
                await asyncio.gather(*closing)

    def views(self) -> list[dict[str, Any]]:
        return [self._view(worker) for _, worker in sorted(self._workers.items())]

    def _view(self, worker: QueueWorker) -> dict[str, Any]:
        states = {each.name: each.account.supervision.state for each in self._roster}
        return worker.view({name for name, state in states.items() if not isinstance(state, SETTLED)})

    def of(self, name: str) -> dict[str, Any] | None:
        """Return where the last candidate of a ralph stands, as its view shows it."""
        if not self._workers:  # each status asks, for each ralph
            return None
        known = self._roster.find(name)  # an undo without a daemon knows its ralph alone
        is_active = known is not None and not isinstance(known.account.supervision.state, SETTLED)
        shown = (landing_of(each.queue, name, is_active=is_active) for each in self._workers.values())
        return next(filter(None, shown), None)

    async def land(self, name: str, branch: str | None, *, publishes: bool) -> dict[str, Any]:
        """Have a branch land, or only be pushed, that a person asks for (M1, M2).

        Raises UnknownRalph, NotLandable, ConfigFaults.
        """
        account = self._roster.get(name).account
        async with await self._lock(account):
            wanted = await self._read(account, branch)
            if publishes and wanted.queue.target.is_shared:
                mend = f"open the pull request from {wanted.candidate.name}"
                raise NotLandable(f"{name} cannot be pushed", why="its fleet has pushed it", mend=mend)
            if publishes and not wanted.queue.target.url:
                raise NotLandable(f"{name} cannot be pushed", why=_no_remote(wanted.queue))
            on = wanted.candidate.name
            if publishes and branch is None and on != f"ralph/{name}":  # HEAD is what a run writes
                mend = f"ralphctl land {name} --pr --branch {on}"
                raise NotLandable(f"{name} works on {on}, not on ralph/{name}", mend=mend)
            return await self._admit(wanted, publishes=publishes)

    async def lands(self, name: str, target: Target, branch: str, *, queues: bool) -> str:
        """Return the head of the branch if it lands by itself on a target that a fleet shares, else nothing.

        With ``queues`` it is queued, once. Raises NotLandable, ConfigFaults; their cause shows what may pass.
        """
        account = self._roster.get(name).account
        async with await self._lock(account):
            wanted = await self._read(account, branch, target=target)
            if _mode(config.Configuration.from_pinned(wanted.queue.pinned), in_tree=True) != "auto":
                return ""
            last = self.last(name)
            is_known = last is not None and last[1].head == wanted.candidate.head
            if queues and not (is_known and last and last[1].standing is Standing.QUEUED):
                wanted = replace(wanted, candidate=replace(wanted.candidate, is_auto=True))
                await self._admit(wanted, waits_for=wanted.needs_person)
            return wanted.candidate.head

    def last(self, name: str) -> tuple[LandingQueue, LandingCandidate] | None:
        """Return the last candidate of a ralph, and its queue."""
        queues = (worker.queue for worker in self._workers.values())
        its_own = ((queue, each) for queue in queues for each in queue.candidates if each.ralph == name)
        return max(its_own, key=lambda pair: pair[1].id, default=None)

    async def recall(self, name: str) -> None:
        """Take what a ralph has in its queue out again. A push under way may still arrive."""
        for worker in [*self._workers.values()]:
            await worker.recall(name)

    async def undo(self, name: str, number: int | None) -> dict[str, Any]:
        """Queue the revert of what a ralph landed last, or of a landing, tested like any other (M6).

        Raises NotLandable.
        """
        account = self._roster.get(name).account
        async with await self._lock(account):
            wanted = await self._read(account, None, is_undo=True)
            worker = self._workers.get(str(wanted.files.home))
            landed = [] if worker is None else worker.queue.standing(Standing.LANDED)
            undone = {each.undoes for each in landed}
            known = [
                each
                for each in landed
                if each.commit
                and each.commit not in undone
                and (number == each.id if number else each.ralph == name and not each.undoes)
            ]
            if not known:
                which = f"nothing of {name}" if number is None else f"no landing {number}"
                raise NotLandable(f"{which} landed that could be undone", mend="ralphctl queue")
            last = max(known, key=lambda each: each.ended_at or 0.0)
            if last.ralph != name and last.ralph in self._roster.directories():
                mend = f"ralphctl land {last.ralph} --undo -n {number}"
                raise NotLandable(f"landing {number} is one of {last.ralph}, not of {name}", mend=mend)
            revert = replace(
                wanted.candidate, ralph=last.ralph, branch=last.branch, head=last.commit, undoes=last.commit,
                copies=last.copies, is_again=bool(last.undoes) and not last.is_again,
            )  # fmt: skip
            return await self._admit(replace(wanted, candidate=revert))

    async def _admit(self, wanted: Wanted, *, publishes: bool = False, waits_for: str = "") -> dict[str, Any]:
        branch = wanted.queue.target.branch
        if not (publishes or config.Configuration.from_pinned(wanted.queue.pinned).regent.test_command):
            raise ConfigFaults(
                f"{branch} has no tests: nothing lands untested",
                why=f"ralph.toml at {branch} sets no test_command",
                mend=f"commit [regent] test_command to {branch}, then ralphctl land",
            )
        worker = self._workers.get(str(wanted.files.home))
        if worker is None:
            worker = self._take_in(wanted.files, wanted.queue)
        queue, candidate = wanted.queue, replace(wanted.candidate, publishes=publishes)

        def decide(current: LandingQueue) -> LandingQueue:
            renewed = replace(
                current, target=queue.target, work_tree=queue.work_tree, pinned=queue.pinned, green="",
                pinned_at=queue.pinned_at, tree=queue.tree, inside=queue.inside, port_base=queue.port_base,
                counts_at=current.counts_at if queue.pinned == current.pinned else "",
            ) if current.is_idle else current  # fmt: skip
            return decisions.admit(renewed, candidate, waits_for=waits_for)

        await worker.change(decide)
        self._unqueued.pop(candidate.ralph, None)
        listed = worker.queue.candidates
        new, ids = listed[-1], {each.id for each in listed}
        with suppress(NotDone):
            await asyncio.to_thread(keep, Path(worker.queue.work_tree), worker.tree, new.id, new.head, ids)
        await worker.tell("landing.queued", new, f"{new.id}/queued")
        return self._view(worker) | {"number": new.id}

    def _take_in(self, files: LandingFiles, queue: LandingQueue) -> QueueWorker:
        worker = QueueWorker(
            files, queue, self._services, busy=self._busy, tell_end=self._tell_end, pin=self._pin_for
        )
        self._workers[str(files.home)] = worker
        if self._group is not None:
            self._group.create_task(worker.run())
        return worker

    def _busy(self) -> Container[Path]:
        """Return the work trees in which a run lives. Blocks; called in threads."""
        places = [each.account.definition.directory for each in [*self._roster] if each.has_a_run]
        found = ((place, Repository.find(place)) for place in places)
        return _BusyPlaces({((known and known.top) or place).resolve() for place, known in found})

    # --- candidates -------------------------------------------------------------------------------------

    async def _read(
        self,
        account: "RalphRecord",
        branch: str | None,
        *,
        is_undo: bool = False,
        target: Target | None = None,
    ) -> Wanted:
        try:
            return await asyncio.to_thread(self._wanted, account, branch, is_undo, target)
        except (NotDone, OSError) as fault:
            raise _not_landable(account.definition.name, error_text(fault)) from fault

    def _wanted(
        self, account: "RalphRecord", branch: str | None, is_undo: bool, target: Target | None
    ) -> Wanted:
        """Read a candidate, and pin its queue to the target's tip if the queue is idle. Blocks."""
        directory, name = account.definition.directory, account.definition.name
        if not directory.exists() and (tree := claims.worktree_of(self._services.state_directory, name)):
            directory, branch = Path(tree.source), branch or tree.branch  # its branch is intact (W7)
        git = GitRunner(directory)
        files = LandingFiles.of(self._services.state_directory, git.repository.common.resolve())
        worker = self._workers.get(str(files.home))
        if worker is None:  # later it would remove what the worker is writing
            files.create()
        if worker is None or worker.queue.is_idle:
            queue = self._pinned(account, git, files, worker.queue if worker else None, target)
        elif target in (None, worker.queue.target):
            queue = worker.queue
        else:
            raise NotDone(f"the queue of this repository lands on {worker.queue.target.branch} now")
        ref = HEADS + branch.removeprefix(HEADS) if branch else git.branch()
        head = None if ref is None else git.commit(ref)
        now = self._services.clock.now()
        if is_undo:
            candidate = LandingCandidate(0, name, ref or "", head or "", now, inside=queue.inside or ".")
            return Wanted(files, queue, candidate, "")
        if ref is None or head is None:
            raise _not_landable(name, f"the branch {branch} does not exist" if branch else "HEAD is detached")
        if ref == HEADS + queue.target.branch:
            why = f"it works on {queue.target.branch} itself: nothing is to land"
            raise NothingToLand(f"{name} cannot land", why=why, mend="ralphctl queue")
        tip = TargetBranch(queue.target, Path(queue.work_tree)).read(git, fetches=False).tip
        if merge.is_ancestor(git, head, tip):
            known = f"{queue.target.branch} has all of {ref.removeprefix(HEADS)} already"
            raise NothingToLand(f"{name} cannot land", why=known, mend="ralphctl queue")
        protect = config.Configuration.from_pinned(queue.pinned).regent.protect
        why = decisions.needs_person(merge.changed_paths(git, tip, head), protect)
        inside = _inside(directory, git)
        return Wanted(files, queue, LandingCandidate(0, name, ref, head, now, inside=inside), why)

    def _pinned(
        self, account: "RalphRecord", git: GitRunner, files: LandingFiles, known: LandingQueue | None,
        shared: Target | None,
    ) -> LandingQueue:  # fmt: skip
        """Return the queue with the configuration of the target's tip, never the candidate's (M2). Blocks.

        Flags of the ralph's registration and the user's own file count as everywhere. ``shared`` is the
        target that its fleet has chosen.
        """
        environment, flags = account.files.load_environment() or dict(os.environ), account.definition.flags
        common, work_tree = git.repository.common.resolve(), git.top
        if common.name == ".git" and Repository.find(common.parent) is not None:
            work_tree = common.parent
        own = config.load(None, flags=flags, environ=environment).landing.target
        if known is not None and known.target.is_shared:
            shared = shared or known.target
        names = DEFAULT_TARGETS if own == DEFAULT_TARGETS[0] else (own,)
        branch = next((name for name in names if git.commit(HEADS + name)), own)
        base = known or LandingQueue(str(common), str(work_tree), Target(branch))
        tree = base.tree or _tree(files, environment)
        base = replace(base, port_base=self._ports_for(base), tree=tree, work_tree=str(work_tree))
        inside = _inside(account.definition.directory, git)
        for _ in range(2):  # its tip may name another branch
            target = shared or find_target(work_tree, branch, known=known.target if known else None)
            if target.url.startswith(f"{os.devnull}/"):  # the address of a fleet's clone
                raise NotDone(f'its fleet pushes {target.branch}; [landing] mode = "auto" there lands it')
            at = TargetBranch(target, work_tree, environment=environment, scratch=files.home)
            tip = at.read(git, fetches=True).tip
            base = replace(base, target=target)
            base = self._pinned_at(base, files, inside, tip, flags=flags, environment=environment)
            named = config.Configuration.from_pinned(base.pinned).landing.target
            if shared or named in (branch, own):
                break
            branch = named
        files.save_environment({**environment, PORTS_VARIABLE: str(base.port_base)})
        return base

    def _pinned_at(
        self, queue: LandingQueue, files: LandingFiles, inside: str, tip: str, *,
        flags: Mapping[str, Any], environment: Mapping[str, str],
    ) -> LandingQueue:  # fmt: skip
        """Return the queue with the configuration that is ``inside`` a commit of the target. Blocks."""
        with TemporaryDirectory(prefix=f"git.{os.getpid()}.", dir=files.home) as name:
            place = write_rules(GitRunner(Path(queue.work_tree)), tip, inside, Path(name))
            if queue.target.is_shared:  # an item has this flag, so that its branch is pushed before it lands
                flags = {key: value for key, value in flags.items() if key != "landing.mode"}
            pinned = config.load(place, flags=flags, environ=environment).pinned()
        pinned["values"] = {key: value for key, value in pinned["values"].items() if key in PINNED}
        green, counts_at = (queue.green, queue.counts_at) if pinned == queue.pinned else ("", "")
        return replace(
            queue, pinned=pinned, pinned_at=tip, inside=inside, green=green, counts_at=counts_at
        )  # fmt: skip

    def _ports_for(self, queue: LandingQueue) -> int:
        """Return the first port of a queue. Several queues may begin at once, each in a thread."""
        with self._choosing:
            taken = [*self._ports.values(), *(each.queue.port_base for each in [*self._workers.values()])]
            known = queue.port_base or self._ports.get(queue.repository)
            free = filter(are_free, port_bases(taken, first=QUEUE_PORT))
            return self._ports.setdefault(queue.repository, known or next(free, 0))

    def _pin_for(self, queue: LandingQueue, first: LandingCandidate, tip: str) -> LandingQueue:
        """Return the queue pinned for a candidate; as it is where its ralph was removed. Blocks."""
        if (regent := self._roster.find(first.ralph)) is None:
            return replace(queue, pinned_at=tip, inside=first.inside)
        files = LandingFiles.of(self._services.state_directory, Path(queue.repository))
        environment = regent.account.files.load_environment() or dict(os.environ)
        flags = regent.account.definition.flags
        return self._pinned_at(queue, files, first.inside, tip, flags=flags, environment=environment)

    async def _propose(self, account: "RalphRecord") -> None:
        """Queue the branch of a ralph that is done, as its target's configuration says (M2)."""
        name, done_at = account.definition.name, account.facts.finished_at
        seen_at, until = self._seen.get(name, (0.0, 0.0))
        now, is_done = self._services.clock.now(), isinstance(account.supervision.state, Done)
        if not is_done or (seen_at == done_at and now < until):
            return
        self._seen[name] = done_at, math.inf
        refused = {
            each.ralph
            for worker in self._workers.values()
            if not worker.queue.target.is_shared  # the fleet pushes the branch first
            for each in worker.queue.standing(Standing.REFUSED)
        }
        try:
            tree = await asyncio.to_thread(claims.worktree_of, self._services.state_directory, name)
            in_tree = tree is not None
            mode = _mode(account.configuration, in_tree)
            if mode == "off" and name not in refused:
                return
            if mode == "ask" and in_tree and not account.configuration.regent.test_command:
                raise NotLandable("nothing lands untested", why="test_command is not set")
            async with await self._lock(account):
                await self._propose_branch(await self._read(account, None), in_tree)
            self._unqueued.pop(name, None)
        except (RalphdError, OSError) as fault:
            logger.info("not queued to land: %s", fault, extra={"ralph": name})
            why = (fault.why or fault.what) if isinstance(fault, RalphdError) else error_text(fault)
            if isinstance(fault, OSError) or isinstance(fault.__cause__, NotDone | OSError):
                self._seen[name] = done_at, now + NETWORK_RETRY_S  # the remote, or room, may be back then
            if not isinstance(fault, NothingToLand):
                self._unqueued[name] = f"its branch is not queued to land: {why}"
        except Exception:  # must not end the daemon
            logger.exception("a bug in the landing queue", extra={"ralph": name})

    async def _propose_branch(self, wanted: Wanted, in_tree: bool) -> None:
        worker, new, again = self._workers.get(str(wanted.files.home)), wanted.candidate, False
        if worker is not None:
            known = [each for each in worker.queue.candidates if each.branch == new.branch]
            if known and known[-1].head == new.head:
                return
            is_refused = bool(known) and known[-1].standing is Standing.REFUSED
            again = is_refused and not calls_person(known[-1], worker.policy)
        mode = _mode(config.Configuration.from_pinned(wanted.queue.pinned), in_tree)
        if mode == "off" and not again:
            return
        publishes, asks = mode == "branch" and not again, ""
        if publishes and not wanted.queue.target.url:
            asks = _no_remote(wanted.queue)
        elif publishes and new.name != f"ralph/{new.ralph}":  # HEAD is what a run writes
            asks = f"it is not ralph/{new.ralph}"
        elif mode == "ask" and not again:
            asks = "you decide"
        wanted = replace(wanted, candidate=replace(new, is_auto=True))
        await self._admit(wanted, publishes=publishes, waits_for=wanted.needs_person or asks)

    # --- ends -------------------------------------------------------------------------------------------

    async def _tell_end(self, worker: QueueWorker, ended: LandingCandidate) -> bool:
        """Publish the end of a candidate; a refused one becomes a task of its ralph, or an alert (M4).

        Return whether the ralph has got a task.
        """
        is_refused, took = ended.standing is Standing.REFUSED, False
        if is_refused and not calls_person(ended, worker.policy):
            took = await self._give_task(worker, ended)
        if is_refused and not took:
            await self._alert(worker, ended)
        kind = _ENDS.get(ended.standing, "landing.queued")
        await worker.tell(kind, ended, f"{ended.id}/ended", tail=ended.tail[-2000:] or None)
        return took

    async def _give_task(self, worker: QueueWorker, ended: LandingCandidate) -> bool:
        """Add a task to the inbox of the built-in loop, once. Return whether somebody has it."""
        text = task_text(ended, worker.queue.target)

        def with_task(kept: inbox.Inbox, at: "Moment") -> inbox.Inbox:
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
        call = Escalation(
            landing_event(worker.queue, ended)["message"],
            "nobody works on it until you look at it",
            "ralphctl queue",
            stands=False,
        )
        with suppress(RalphdError):
            if (regent := self._roster.find(ended.ralph)) is not None:
                await regent.escalate(call)

    # --- what landed comes to the other branches (M7) ---------------------------------------------------

    async def follow(self, account: "RalphRecord", gate: "Gate", *, tests: bool) -> bool:
        """Merge what landed into the branch of a ralph's worktree, if it can take it now. Return whether.

        Call between two iterations. With ``tests`` they run after it, for the new baseline.
        """
        name, state = account.definition.name, self._services.state_directory
        try:
            tree = await asyncio.to_thread(claims.worktree_of, state, name)
            if tree is None or not account.configuration.worktree.follow or gate.is_open:
                return False
            home = LandingFiles.of(state, Path(tree.repository)).home
            if (worker := self._workers.get(str(home))) is None:
                return False
            own_list, directory = worker.configuration.ralph.tasks, account.definition.directory
            merge = await asyncio.to_thread(planned, tree, directory, worker.queue, own_list)
            is_red = merge is not None and not merge.move.new
            if not is_red and (merge or gate.is_unsure):
                is_red = await gate.follow(merge, tests=tests) is Result.RED
            if merge and is_red:
                await self._send(name, merge.with_task)
            return merge is not None and bool(merge.move.new)
        except (RalphdError, NotDone, OSError) as why:
            logger.info("the target is not merged, or no task: %s", why, extra={"ralph": name})
        except Exception:  # must not cost the loop its answer
            logger.exception("a bug in ralphd: the target is not merged", extra={"ralph": name})
        return False


@dataclass(frozen=True, slots=True)
class _BusyPlaces(Container[Path]):
    """The work trees in which a run lives: ``own`` ones, and those that another ralphd has locked."""

    own: set[Path]

    def __contains__(self, place: object) -> bool:
        with suppress(OSError):
            if place in self.own:
                return True
            about = os.stat(str(place))  # noqa: PTH116
            others = {*holders(about)} - {os.getpid()}
            # A process that this daemon is starting holds the lock, too, but only until it is executed.
            return bool(others and others.intersection(holders(about)))
        return False


def _not_landable(name: str, why: str) -> NotLandable:
    return NotLandable(f"{name} cannot land", why=why, mend="ralphctl queue")


def _tree(files: LandingFiles, environment: Mapping[str, str]) -> str:
    name = hashlib.sha256(os.fsencode(files.home)).hexdigest()[:16]  # another daemon's queue has its own
    return str(config.data_home(environment) / "landing" / name)


def _inside(directory: Path, git: GitRunner) -> str:
    """Return where a directory is in its work tree."""
    directory, top = directory.resolve(), git.top.resolve()
    return str(directory.relative_to(top)) if directory.is_relative_to(top) else "."


def _no_remote(queue: LandingQueue) -> str:
    return f"no remote has {queue.target.branch}: git push -u origin {queue.target.branch}"


def _mode(configuration: config.Configuration, in_tree: bool) -> str:
    """Return ``[landing] mode``; ``ask`` where it is not set and the ralph has a worktree of ours (M1)."""
    is_unset = configuration.origins.get("landing.mode", DEFAULT) == DEFAULT
    return "ask" if in_tree and is_unset else configuration.landing.mode
