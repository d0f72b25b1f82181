"""Several ralphs on one repository: each in a worktree of its own (W1 to W7).

A worktree is written down before it is made, and ready before its ralph starts: files of
``.worktreeinclude``, ports, ``[ralph] setup``. What a killed daemon has left is continued by the same
request, and by the next daemon if its ralph was to start.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ralphd.config.specs import GitSpec
from ralphd.core.gate.verdict import Result
from ralphd.core.supervision.model import SETTLED, RunId
from ralphd.core.time import rfc3339
from ralphd.core.worktrees.rules import PORTS, PORTS_VARIABLE, Worktree, WorktreeFacts, over_limit, why_kept
from ralphd.daemon.gate.test_runs import SetupRuns
from ralphd.daemon.registration import Registration
from ralphd.daemon.trees.plan import WorktreeOrder, WorktreePlanner, facts_of
from ralphd.dataclass import dataclass
from ralphd.diagnostics import reach
from ralphd.errors import CommandNotStartable, NotFound, RalphdError, UsageError, WrongState
from ralphd.git.runner import NotDone, error_text
from ralphd.git.vault import Vault
from ralphd.git.worktrees import include
from ralphd.git.worktrees import worktree as worktrees
from ralphd.loop.workdir_files import read_plan
from ralphd.overview import word
from ralphd.store.shared import claims

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services

MEASURE_EVERY_S: Final = 60.0
MEASURE_WAIT_S: Final = 5.0
_TAIL_LINES: Final = 10


@dataclass(slots=True)
class Trees:
    """The worktrees of a daemon. ``register`` and ``begin`` are the host's, for a ralph in one of them."""

    roster: "Roster"
    services: "Services"
    register: "Callable[[Registration], Awaitable[Regent]]"
    begin: "Callable[[Regent, bool | None], Awaitable[None]]"
    _alone: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _measure_at: float = 0.0
    _measuring: "asyncio.Task[None] | None" = None
    _measured: dict[str, WorktreeFacts] = field(default_factory=dict)

    @property
    def _planner(self) -> WorktreePlanner:
        return WorktreePlanner(self.roster, self.services)

    @property
    def _state(self) -> Path:
        return self.services.state_directory

    # --- start ----------------------------------------------------------------------------------------

    async def start(self, order: WorktreeOrder) -> "list[Regent]":
        """Make the worktrees, register a ralph in each, and start them. What is refused is removed (E5).

        ``[ralph] setup`` that fails leaves its worktree, so that a person can repair and start it.
        """
        made: list[Worktree] = []
        async with self._alone:
            try:
                await asyncio.wait([self._sizes()])
                for tree in await asyncio.to_thread(self._planner.wanted, order, self._measured):
                    made.append(tree)
                    await self._make(tree, order.registration)
            except (RalphdError, NotDone, OSError) as fault:
                for tree in reversed([each for each in made if each.stage == "making"]):
                    await self._withdraw(tree)
                if isinstance(fault, RalphdError):
                    raise
                raise worktrees.not_made(fault, made[-1].name if made else "the ralph") from fault
        regents = [self.roster.get(tree.name) for tree in made]
        if order.registration.start:
            starts = (self._start(each, order.registration.resume) for each in regents)
            results = await asyncio.gather(*starts, return_exceptions=True)
            for tree, failed in zip(made, results, strict=True):
                present = await asyncio.to_thread(claims.worktree_of, self._state, tree.name)
                if failed and tree.stage == "making" and present and present.stage == "ready":
                    await self._withdraw(tree)
            for failed in filter(None, results):
                raise failed
        return regents

    async def _make(self, tree: Worktree, asked: Registration) -> None:
        """Make one worktree and register its ralph. Can be repeated at any point."""
        notes = await asyncio.to_thread(self._made, tree)
        directory = _directory(tree)
        environment = {**asked.environment, PORTS_VARIABLE: str(tree.port_base)}
        registration = replace(
            asked, directory=str(directory), name=tree.name, environment=environment, start=False, resume=None
        )
        regent = await self.register(registration)
        regent.account.notes += notes
        if tree.tasks:
            await asyncio.to_thread(_check_tasks, tree, regent.account.configuration.ralph.tasks)
        await self._note(tree, stage="preparing")

    def _made(self, tree: Worktree) -> list[str]:
        if tree.stage == "ready":
            tree = replace(tree, stage="preparing")
        claims.save_worktree(self._state, tree)
        reach("worktree.recorded")
        worktrees.make(tree)
        copied, left_out = include.include(Path(tree.source), Path(tree.path))
        reach("worktree.made")
        if not _directory(tree).is_dir():
            mend = "commit it, or name another: --from REF"
            raise UsageError(f"{tree.start[:7]} has no directory {tree.inside}", mend=mend)
        last = tree.port_base + PORTS - 1
        notes = [f"worktree {tree.path}, branch {tree.branch}; ports {tree.port_base} to {last}"]
        files = f"{len(copied)} file{'s' * (len(copied) > 1)}"
        notes += [f"{files} copied by {include.INCLUDE}"] if copied else []
        return notes + ([include.in_words(left_out)] if left_out else [])

    async def _note(self, tree: Worktree, **changes: Any) -> Worktree:
        """Write a change of a record down."""
        present = await asyncio.to_thread(claims.worktree_of, self._state, tree.name)
        changed = replace(present or tree, **changes)
        await asyncio.to_thread(claims.save_worktree, self._state, changed)
        return changed

    async def _withdraw(self, tree: Worktree) -> None:
        """Remove a worktree whose start was refused, unless there is anything of its own in it."""
        if (regent := self.roster.find(tree.name)) is not None:
            await self.roster.drop(regent)
        with suppress(NotDone, OSError, RalphdError):
            await asyncio.to_thread(self._undo, tree)

    def _undo(self, tree: Worktree) -> None:
        shutil.rmtree(Path(_directory(tree)) / ".ralph", ignore_errors=True)
        include.remove_included(tree)
        if not why_kept(facts := worktrees.facts_of(tree)):
            worktrees.remove(tree, facts)
            claims.drop_worktree(self._state, tree.name)

    async def _start(self, regent: "Regent", resume: bool | None) -> None:
        await self.prepare(regent)
        await self.begin(regent, resume)

    # --- disk -----------------------------------------------------------------------------------------

    async def no_room(self, name: str, most_bytes: int) -> str:
        """Return why the start of a ralph in a worktree has to wait; else nothing (W6).

        All are measured at most once a minute. A start waits MEASURE_WAIT_S for that; then the last figures
        count.
        """
        if await asyncio.to_thread(claims.worktree_of, self._state, name) is None:
            return ""
        await asyncio.wait([self._sizes()], timeout=MEASURE_WAIT_S)
        busy = {each.name for each in self.roster if not isinstance(each.account.supervision.state, SETTLED)}
        return over_limit(self._measured, most_bytes, self._measured.keys() - busy)

    def _sizes(self) -> "asyncio.Task[None]":
        now = asyncio.get_running_loop().time()
        if self._measuring is None or (self._measuring.done() and now >= self._measure_at):
            self._measure_at = now + MEASURE_EVERY_S
            self._measuring = asyncio.create_task(self._measure())
        return self._measuring

    async def _measure(self) -> None:
        self._measured = await asyncio.to_thread(self._planner.facts)

    # --- start again ----------------------------------------------------------------------------------

    async def restore(self, name: str) -> None:
        """Make a worktree again that was deleted: its branch has the commits (W7)."""
        tree = await asyncio.to_thread(claims.worktree_of, self._state, name)
        if tree is None or (Path(tree.path) / ".git").exists():
            return
        try:
            async with self._alone:
                await asyncio.to_thread(worktrees.make, tree)
                await asyncio.to_thread(include.include, Path(tree.source), Path(tree.path))
        except (NotDone, OSError) as fault:
            raise worktrees.not_made(fault, name) from fault
        await self._note(tree, stage="preparing", setup_run="")

    async def prepare(self, regent: "Regent") -> None:
        """Run ``[ralph] setup`` in a worktree that is not ready (W3). Raise CommandNotStartable if it fails.

        A run that an earlier daemon has begun is awaited.
        """
        tree = await asyncio.to_thread(claims.worktree_of, self._state, regent.name)
        if tree is None or tree.stage == "ready":
            return
        command = regent.account.configuration.ralph.setup
        if command.strip():
            regent.setups.add(runs := SetupRuns(regent.account, self.services))
            try:
                if not tree.setup_run:
                    run_id = await asyncio.to_thread(runs.next_id)
                    tree = await self._note(tree, setup_run=run_id, starts=True)
                reach("worktree.setup_begun")
                result = await runs.run(RunId(tree.setup_run), _directory(tree))
            finally:
                regent.setups.discard(runs)
            if result.result is not Result.GREEN:
                await self._note(tree, setup_run="", starts=False)
                tail = "\n".join(result.tail.splitlines()[-_TAIL_LINES:])
                what = f"the setup of {tree.name} {'was stopped' if runs.is_cut else f'failed: {result.how}'}"
                mend = f"repair it in {tree.path}, then ralphctl start {tree.name}"
                raise CommandNotStartable(what, why=f"{command}\n{tail}", mend=mend)
        await self._note(tree, stage="ready", setup_run="", starts=False)

    async def resume(self) -> None:
        """Start the ralphs whose setup a killed daemon has begun."""
        for tree in (await asyncio.to_thread(claims.load_worktrees, self._state)).values():
            regent = None if tree.name in self.roster.unusable else self.roster.find(tree.name)
            if regent is None or tree.stage != "preparing" or not tree.starts:
                continue
            task = asyncio.create_task(self._continue(regent), name=f"setup of {tree.name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _continue(self, regent: "Regent") -> None:
        topic = f"worktree of {regent.name}"
        try:
            await self._start(regent, None)
            self.services.trouble(topic, None)
        except (RalphdError, OSError) as fault:
            self.services.trouble(topic, str(fault))

    # --- look and remove ------------------------------------------------------------------------------

    async def listed(self) -> list[dict[str, Any]]:
        """Return all worktrees as the API shows them (W4)."""
        known = await asyncio.to_thread(claims.load_worktrees, self._state)
        facts = await asyncio.gather(*(asyncio.to_thread(facts_of, tree) for tree in known.values()))
        return [self._shown(*each) for each in zip(known.values(), facts, strict=True)]

    def _shown(self, tree: Worktree, facts: WorktreeFacts) -> dict[str, Any]:
        regent = None if tree.name in self.roster.unusable else self.roster.find(tree.name)
        used_at, state = tree.made_at, None
        if regent is not None:
            state, known = regent.account.supervision.state.kind, regent.account.facts
            moments = (known.finished_at, known.started_at, known.last_output_at)
            used_at = max([used_at, *filter(None, moments)])
        of_tree = ("name", "path", "branch", "target", "source", "port_base")
        of_facts = ("size_bytes", "ahead", "behind", "unlanded")
        return {
            **{key: getattr(tree, key) for key in of_tree},
            **{key: getattr(facts, key) for key in of_facts},
            "state": state,
            "word": None if regent is None else word(regent.view()),
            "stage": tree.stage if facts.is_there else "deleted",
            "dirty": len(facts.dirty),
            "keeps": list(why_kept(facts)),
            "used_at": rfc3339(used_at),
        }

    async def remove(self, name: str, *, keep: bool) -> dict[str, Any]:
        """Remove a worktree and forget its ralph; ``keep``: save it under a ref first (W4).

        Raise NotFound, and WrongState with what it holds that is nowhere else.
        """
        tree = await asyncio.to_thread(claims.worktree_of, self._state, name)
        if tree is None:
            raise NotFound(f"{name} has no worktree", mend="ralphctl trees")
        regent = self.roster.find(name)
        async with self._alone, nullcontext() if regent is None else regent.alone:
            if regent is not None:
                regent.refuse_unless_at_rest("it works in the worktree", f", then ralphctl trees rm {name}")
            try:
                ref = await asyncio.to_thread(self._removed, tree, keep)
            except (NotDone, OSError) as fault:
                raise WrongState(f"the worktree {name} is not removed", why=error_text(fault)) from fault
        if regent is not None:
            await self.roster.drop(regent)
            self.services.forget(name)
        await asyncio.to_thread(claims.release_claims, self._state, name, landed=not ref)
        await asyncio.to_thread(claims.drop_worktree, self._state, name)
        self._measuring = None
        return {"name": name, "path": tree.path, "branch": tree.branch, "kept_as": ref or None}

    def _removed(self, tree: Worktree, keep: bool) -> str:
        if not Path(tree.repository).exists():
            if Path(tree.path).exists():
                raise NotDone(f"its repository {tree.repository} is gone: mv {tree.path} {tree.path}.old")
            return ""
        facts, ref = worktrees.facts_of(tree), ""
        if lost := why_kept(facts, for_good=keep and facts.is_there):
            where = f" on {tree.target}" if tree.target else ""
            save = f"save it: ralphctl trees rm --keep {tree.name}"
            save = save if facts.is_there else f"make the worktree again: ralphctl start {tree.name}"
            mend = "" if facts.doing else f"commit it and land it{where}, or {save}"
            what = f"the worktree {tree.name} holds what is nowhere else"
            raise WrongState(what, why="\n".join(lost), mend=mend)
        if keep and facts.is_there:
            ref = worktrees.keep(tree, self._state)
            vault = Vault.of(self._state / "vaults", Path(tree.path))
            if vault is not None and vault.taken() is not None:
                with vault.exclusive():
                    vault.take(GitSpec().keep, most_bytes=GitSpec().vault_max_bytes)
            reach("worktree.kept")
        worktrees.remove(tree, facts, kept_as=ref, scratch=self._state)
        return ref

    async def release(self, name: str) -> None:
        """Unlock the worktree of a ralph that is forgotten, and free its tasks (W1, W2)."""
        tree = await asyncio.to_thread(claims.worktree_of, self._state, name)
        if tree is None:
            return
        await asyncio.to_thread(claims.release_claims, self._state, name)
        with suppress(NotDone):
            await asyncio.to_thread(worktrees.unlock, tree)


def _directory(tree: Worktree) -> Path:
    return Path(tree.path) / tree.inside


def _check_tasks(tree: Worktree, tasks: str) -> None:
    plan = read_plan(_directory(tree), tasks)
    known = [] if plan is None else [task.id for task in plan.tasks]
    if missing := [each for each in tree.tasks if each not in known]:
        why = f"its tasks: {', '.join(known[:20]) or 'none'}"
        raise UsageError(f"no task {missing[0]!r} in {plan.file if plan else 'a task list'}", why=why)
