"""What one item of a fleet needs on this host: a clone, a worktree on its branch, and a ralph in it.

No command of the submitter runs: the ralph runs what ``ralph.toml`` of the repository says at the item's
base, as after ``ralphctl start DIR``. It does not push: the fleet does. With ``[landing] mode = "auto"`` at
the base its branch goes through this host's landing queue, once it is pushed. Nothing is removed that the
remote does not have.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from ralphd.core.fleet.model import Item, ItemState
from ralphd.core.landing.model import LandingCandidate, LandingQueue, Standing, Target
from ralphd.core.loop.inbox import Inbox, with_note
from ralphd.core.supervision.events import Event, PauseRequested, ResumeRequested, StopRequested
from ralphd.core.text import one_line, short_sha
from ralphd.daemon.fleet.clones import (
    ASIDE,
    CLONE_LIMIT_S,
    KEEP_CLONES,
    TRACKED,
    Clones,
    free_branch,
    is_saved,
)
from ralphd.daemon.fleet.holder import Progress
from ralphd.daemon.landing.queues import NothingToLand
from ralphd.daemon.registration import Registration
from ralphd.daemon.trees.plan import WorktreeOrder
from ralphd.errors import NameTaken, RalphdError, UnknownRalph, UsageError, WrongState
from ralphd.git.fence.fence import Fence
from ralphd.git.fence.lease_ref import Aside
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.git.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from ralphd.core.delivery import StoredEvent
    from ralphd.core.time import Moment
    from ralphd.notify.hub import Hub, Subscription

logger = logging.getLogger(__name__)

T = TypeVar("T")

Last: TypeAlias = tuple[LandingQueue, LandingCandidate] | None
"""The last candidate of a ralph, and its queue."""

LANDING_RETRY_S: Final = 10.0
STOP_LIMIT_S: Final = 60.0
RULES: Final = "ralph.toml"
_POLL_S: Final = 1.0
_VERDICTS: Final = 20
_WHY_CHARS: Final = 300
_TAIL_CHARS: Final = 150
_BOUNDARIES: Final = ("iteration.finished", "ralph.exited")
"""After these a commit is kept, where no tests decide about it."""
_ENDED: Final = ("idle", "stopped", "failed")


class Removes(Protocol):
    """The part of ``Trees`` that removes a worktree and its ralph."""

    async def remove(self, name: str, *, keep: bool) -> dict[str, Any]: ...


class Lands(Protocol):
    """The part of ``LandingQueues`` that an item needs."""

    async def lands(self, name: str, target: Target, branch: str, *, queues: bool) -> str: ...
    def last(self, name: str) -> Last: ...
    async def recall(self, name: str) -> None: ...


class Ralphs(Protocol):
    """The part of ``Host`` that an item needs."""

    @property
    def landing(self) -> Lands: ...
    @property
    def hub(self) -> "Hub": ...
    @property
    def trees(self) -> Removes: ...
    async def start_in_worktrees(self, order: WorktreeOrder) -> list[bytes]: ...
    async def start(self, name: str) -> bytes: ...
    async def ask(self, name: str, kind: "Callable[..., Event]", **how: bool) -> bytes: ...
    async def send(self, name: str, change: "Callable[[Inbox, Moment], Inbox]") -> bytes: ...
    async def view_bytes(self, name: str) -> bytes: ...
    async def past(self, name: str, what: Literal["verdicts"], limit: int) -> list[dict[str, Any]]: ...


class RalphWork:
    """The work on one item. Used on the event loop only; git runs in threads.

    ``environment`` is that of the user whose logins and git credentials count. ``fence`` is there after
    ``prepare``, even if the remote was away.
    """

    fence: Fence

    def __init__(
        self, item: Item, ralphs: Ralphs, work_directory: Path, environment: Mapping[str, str], *,
        keep_clones: int = KEEP_CLONES, limit_s: float = CLONE_LIMIT_S,
    ) -> None:  # fmt: skip
        self.name = re.sub(r"[^a-z0-9-]", "", item.id.lower())
        self._item, self._ralphs, self._environment = item, ralphs, environment
        self._clones = Clones(work_directory / "clones", environment, keep_clones, limit_s)
        self._events: Subscription | None = None
        self._head, self._is_kept, self._is_stopping = "", False, False
        self._target = Target(item.base, "origin", item.repo, is_shared=True)
        self._landing, self._is_queued, self._retry_at = Progress(""), False, 0.0
        self._is_complete = False
        """The branch was finished on another host, so the ralph does not start."""

    # --- begin ------------------------------------------------------------------------------------------

    async def prepare(self) -> str:
        """Clone or fetch the repository. Return why the item cannot begin here; empty if it can."""
        try:
            directory = self._clones.directory(self._item.repo)
            self.fence = Fence(
                directory, self._item.repo, self._environment, self._item.form, scratch=self._clones.scratch
            )
            await asyncio.to_thread(self._prepare, directory)
        except (NotDone, OSError, RalphdError) as fault:
            return one_line(error_text(fault), _WHY_CHARS)
        return ""

    def _prepare(self, directory: Path) -> None:
        self._clones.ready(directory, self._item.repo)
        git, base = GitRunner(directory), self._item.base
        if (commit := git.commit(f"{TRACKED}{base}")) is None:
            raise NotDone(f"{self._item.repo} has no branch {base}")
        if _rules(git, commit) is None:
            raise NotDone(f"{self._item.repo} has no {RULES} on {base}: ralphctl init, then commit it")

    async def begin(self, tip: str, note: str) -> None:
        """Start the ralph on the item's branch at ``tip``, empty: at the base; or adopt the one that works.

        Raise RalphdError. ``note`` is for the next iteration of the built-in loop.
        """
        self._is_stopping = False
        await self._listen()
        if (view := await self._view()) is not None:
            if not await asyncio.to_thread(self._is_ours, view):
                raise NameTaken(f"another ralph has the name {self.name}", mend=f"ralphctl rm {self.name}")
            if view["state"] not in _ENDED:
                self._is_kept = True
                return
            if not await self._has(tip):
                await self.forget()
        start = await self._in_thread(self._start_commit, tip)
        if await self._view() is None:
            directory, flags = str(self.fence.directory), self._flags()
            asked = Registration(
                directory, [], name=self.name, flags=flags, environment=dict(self._environment), start=False
            )
            await self._ralphs.start_in_worktrees(WorktreeOrder(asked, branch=self._item.branch, start=start))
        if not await self._has(start):
            what = f"the worktree of {self.name} has other work than {short_sha(start)}"
            raise WrongState(what, mend=f"ralphctl trees rm --keep {self.name}")
        self._head = await self._in_thread(self._tip)
        self._is_complete = bool(tip) and tip == self._item.finished
        if not self._is_complete:
            await self._hand_over(note)
            await self._ralphs.start(self.name)

    def _start_commit(self, tip: str) -> str:
        git, item = GitRunner(self.fence.directory), self._item
        base = git.text("rev-parse", f"{TRACKED}{item.base}")
        if (start := git.commit(tip or base)) is None:
            raise WrongState(f"{item.repo} does not have the commit {short_sha(tip)}")
        fork = git.line("merge-base", start, base) or base
        if _rules(git, start) not in (_rules(git, base), _rules(git, fork)):
            why = f"a ralph of the fleet runs what {item.base} says"
            raise UsageError(f"{item.branch} changes {RULES}", why=why, mend=f"land it on {item.base} first")
        free_branch(self.fence.directory, item.branch, start)
        return start

    def _flags(self) -> dict[str, object]:
        given, (first, *others) = self._item.flags, self._item.flags.agents or ("",)
        flags: dict[str, object] = {
            "landing.mode": "off", "git.auto_push": False, "git.auto_pull_rebase": False,
            "worktree.follow": False,  # the queue of a clone serves the bases of several items
            "max-cost": given.max_cost_usd, "max-iterations": given.max_iterations,
            "timeout": given.timeout_s, "agent": first, "fallback": others if first else None,
        }  # fmt: skip
        return {key: value for key, value in flags.items() if value is False or value not in (0, "", None)}

    async def _hand_over(self, note: str) -> None:
        def noted(kept: Inbox, at: "Moment") -> Inbox:
            return kept if any(each.text == note for each in kept.notes) else with_note(kept, at, note)

        try:
            if note:
                await self._ralphs.send(self.name, noted)
        except RalphdError as fault:  # a command of its own takes no notes
            logger.info("not handed over: %s: %s", note, fault.why or fault.what, extra={"ralph": self.name})

    # --- changes ----------------------------------------------------------------------------------------

    async def changed(self) -> Progress:
        """Wait until another commit of the branch is kept, or the ralph ends or needs a person.

        A ``stop`` of ours changes nothing: cancel the wait.
        """
        await self._listen()
        while True:
            last = self._ralphs.landing.last(self.name)  # before the view: a refusal starts the ralph again
            if (view := await self._view()) is None:
                return Progress(self._head, ItemState.HELD, f"the ralph {self.name} was removed")
            state, why = self._standing(view)
            is_done = state is ItemState.DONE
            if (is_done or self._landing.state) and (
                progress := await self._landed(last, why, is_done=is_done)
            ) is not None:
                return progress
            if not is_done and (state is not None or self._is_kept):
                before = self._head
                self._head = await (self._newest_green() if view["guard"] else self._in_thread(self._tip))
                self._is_kept = False
                if state is None and self._head != before:
                    return Progress(self._head)
                if state is not None:
                    return Progress(self._head, state, one_line(why, _WHY_CHARS))
            await self._news(("commit.kept",) if view["guard"] else _BOUNDARIES)

    def _standing(self, view: Mapping[str, Any]) -> tuple[ItemState | None, str]:
        """Return what the state of the ralph means for the item, and why."""
        why, goal, is_asked = view["message"] or "", view["goal"], view["pause_reason"] == "requested"
        match view["state"]:
            case "done":
                return ItemState.DONE, why
            case "idle" if self._is_complete:
                return ItemState.DONE, why
            case "failed":
                return ItemState.FAILED, why or "the ralph has failed"
            case "stopped" if not self._is_stopping and goal == "stopped":
                return ItemState.HELD, why or "stopped on its host"
            case "paused" if view["wait"] is None and not is_asked:
                return ItemState.HELD, why or f"paused: {view['pause_reason']}"
        return None, ""

    async def _landed(self, last: Last, why: str, *, is_done: bool) -> Progress | None:
        """Return what is new about the landing of the branch; None: nothing. The holder pushes before it."""
        if not is_done:  # it repairs what did not land
            self._landing = Progress("")
            return Progress(self._head, ItemState.WORKING)
        if time.monotonic() < self._retry_at:
            return None
        if not (self._is_queued and last and last[1].standing is Standing.QUEUED):  # else nothing has changed
            self._head = await self._in_thread(self._tip)
        head = self._head
        is_new = self._landing.head != head
        call = partial(self._ralphs.landing.lands, self.name, self._target)
        self._is_queued &= not is_new and last is not None and last[1].head == head
        try:
            if is_new and not await call(self._item.branch, queues=False):
                return Progress(head, ItemState.DONE, one_line(why, _WHY_CHARS))
            if not is_new and not self._is_queued:
                self._is_queued = bool(await call(self._item.branch, queues=True))
                return None
        except NothingToLand as fault:
            has_landed = bool(self._landing.state) or self._is_complete
            why = one_line(fault.why if has_landed else why, _WHY_CHARS)
            return Progress(head, ItemState.DONE, why, head if has_landed else "")
        except RalphdError as fault:
            if not isinstance(fault.__cause__, NotDone | OSError):
                return Progress(head, ItemState.HELD, one_line(str(fault), _WHY_CHARS))
            logger.info("%s", fault, extra={"ralph": self.name})
            self._retry_at = time.monotonic() + LANDING_RETRY_S
            return None
        progress = Progress(head, ItemState.LANDING) if is_new else landing_progress(head, self._target, last)
        if self._is_complete and progress is not None and last and last[1].has_task and not is_new:
            self._is_complete = False
            await self._ralphs.start(self.name)
            return None
        if progress == self._landing:
            return None
        self._landing = progress or self._landing
        return progress

    async def _news(self, kinds: tuple[str, ...]) -> None:
        """Wait for an event, for _POLL_S at most: it is published before the state that goes with it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                event = await self._next()
                # None: some events are lost.
                self._is_kept = event is None or (event.ralph == self.name and event.type in kinds)

    async def _next(self) -> "StoredEvent | None":
        events = await self._listen()
        try:
            return await anext(events)
        except StopAsyncIteration:
            self._events = None
            return None

    async def _listen(self) -> "Subscription":
        if self._events is None:
            self._events = await self._ralphs.hub.subscribe().__aenter__()
        return self._events

    async def _newest_green(self) -> str:
        """Return the newest commit that the tests have kept; the last known one without any."""
        for verdict in await self._ralphs.past(self.name, "verdicts", _VERDICTS):
            if verdict["verdict"] == "kept" and verdict["commits"]:
                return await self._in_thread(self._newest, verdict["commits"]) or self._head
        return self._head

    def _newest(self, commits: list[str]) -> str:
        git, branch = GitRunner(self.fence.directory), f"refs/heads/{self._item.branch}"
        known = [sha for each in commits if (sha := git.commit(each))]
        newest = git.line("rev-list", "--topo-order", "-1", *known) if known else None
        is_there = newest and git.run("merge-base", "--is-ancestor", newest, branch)[0] == 0
        return newest if newest and is_there else ""

    # --- requests ---------------------------------------------------------------------------------------

    async def stop(self, *, at_once: bool) -> None:
        """Stop the ralph, after its iteration or ``at_once``; return when nothing of it runs.

        Raise RalphdError if it does not end ``at_once``; an iteration has no limit here.
        """
        self._is_stopping = True
        await self._ralphs.landing.recall(self.name)
        with suppress(UnknownRalph):
            await self._ralphs.ask(self.name, StopRequested, now=at_once)
        try:
            async with (
                asyncio.timeout(STOP_LIMIT_S if at_once else None),
                self._ralphs.hub.subscribe() as events,
            ):
                while (view := await self._view()) and view["state"] not in ("done", *_ENDED):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_POLL_S):
                            async for _ in events:
                                break
                            else:  # they have ended, as the daemon does
                                await asyncio.sleep(_POLL_S)
        except TimeoutError as fault:
            raise WrongState(f"{self.name} did not end within {STOP_LIMIT_S:g} s") from fault

    async def pause(self) -> None:
        """Pause the ralph after its iteration. Raises RalphdError."""
        with suppress(WrongState):  # it is done, and lands
            await self._ralphs.ask(self.name, PauseRequested)

    async def resume(self) -> None:
        """Have a paused ralph continue. Raises RalphdError."""
        with suppress(WrongState):
            await self._ralphs.ask(self.name, ResumeRequested)

    # --- end --------------------------------------------------------------------------------------------

    async def saved(self) -> tuple[str, ...]:
        """Return the commits that hold all work: of the branch, of HEAD, of uncommitted files if any."""
        view = await self._view()
        commits, _ = await self._in_thread(self._work_in, None if view is None else view["directory"])
        return commits

    def _work_in(self, directory: str | None) -> tuple[tuple[str, ...], Snapshot]:
        """Return the commits of the item, and what is not committed, which has a commit then."""
        commits, left = [self._tip()], Snapshot()
        if directory is not None and Path(directory).exists():
            commits += [GitRunner(Path(directory)).commit("HEAD") or ""]
            left = snapshot(Path(directory), f"fleet item {self._item.id}", scratch=self._clones.scratch)
            if left.trouble:
                logger.warning("%s", left.trouble, extra={"ralph": self.name})
        return (*dict.fromkeys(each for each in (*commits, left.commit) if each),), left

    async def forget(self) -> None:
        """Forget the ralph and remove its worktree, if the remote has all of it; else keep both."""
        if (view := await self._view()) is None:
            return
        try:
            why, is_dirty = await self._in_thread(self._unsaved, view["directory"])
            if not why:
                # What is not committed is on the remote too; the whole tree stays in the clone, under a ref.
                await self._ralphs.trees.remove(self.name, keep=is_dirty)
        except RalphdError as fault:
            why = str(fault)
        if why:
            logger.warning("%s is kept: %s", self.name, one_line(why, _WHY_CHARS), extra={"ralph": self.name})

    def _unsaved(self, directory: str) -> tuple[str, bool]:
        """Return what the remote lacks, and whether there are files that are not committed."""
        kept = (f"{kind}/{self._item.branch}/*" for kind in Aside)
        aside = (f"+{self._item.form.prefix}{each}:{ASIDE}{each}" for each in kept)
        self._clones.fetch(self.fence.directory, self._item.repo, *aside)
        commits, left = self._work_in(directory)
        if left.trouble or is_saved(self.fence.directory, *commits):
            return left.trouble, bool(left.files)
        return "the remote does not have all of its work", True

    # --- the clone and the ralph ------------------------------------------------------------------------

    async def _view(self) -> dict[str, Any] | None:
        try:
            view: dict[str, Any] = json.loads(await self._ralphs.view_bytes(self.name))
        except UnknownRalph:
            return None
        return view

    def _is_ours(self, view: Mapping[str, Any]) -> bool:
        found = Repository.find(Path(view["directory"]))
        ours = (self.fence.directory / ".git").resolve()
        # A worktree that was deleted is made again by the start of its ralph.
        return found.common.resolve() == ours if found else self.fence.directory.name in view["directory"]

    async def _has(self, commit: str) -> bool:
        """Whether the branch contains a commit; empty: any branch does."""

        def has() -> bool:
            git, branch = GitRunner(self.fence.directory), f"refs/heads/{self._item.branch}"
            return not commit or git.run("merge-base", "--is-ancestor", commit, branch)[0] == 0

        return await self._in_thread(has)

    def _tip(self) -> str:
        return GitRunner(self.fence.directory).commit(f"refs/heads/{self._item.branch}") or ""

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except (NotDone, OSError) as fault:
            raise WrongState(f"{self.name}: git failed", why=error_text(fault)) from fault


def landing_progress(head: str, target: Target, last: Last) -> Progress | None:
    """Return what a queued branch means for its item; None: nothing yet."""
    if last is None or last[1].head != head:
        return None
    queue, candidate = last
    match candidate.standing:
        case Standing.LANDED:
            commit = candidate.commit or head
            why = f"landed on {target.branch} as {short_sha(commit)}"
            return Progress(head, ItemState.DONE, why, commit)
        case Standing.QUEUED:
            return Progress(head, ItemState.LANDING, one_line(queue.blocked, _WHY_CHARS))
        case Standing.REFUSED if not candidate.is_told:
            return None
        case _:
            why = f"does not land on {target.branch}: {candidate.why}"
            tail = candidate.tail.strip()[-_TAIL_CHARS:]
            return Progress(head, ItemState.HELD, one_line(f"{why}: {tail}" if tail else why, _WHY_CHARS))


def _rules(git: GitRunner, commit: str) -> str | None:
    """Return the sha of the rules at a commit; None if it has none."""
    return git.line("rev-parse", "--verify", "--quiet", f"{commit}:{RULES}")
