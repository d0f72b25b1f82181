"""Hold a copy of a ralph's repository, and restore what an iteration destroyed (A7, A8).

Called before a run starts, at each reported boundary before the gate judges, and after a run ended. What is
missing while nothing runs was removed by its owner: it is reported, and nothing is touched.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ralphd.core.gate.git_config_changes import HOOKS_PATH, ChangedCommand, is_restored
from ralphd.core.supervision.model import Announce, RunId
from ralphd.core.text import first_names
from ralphd.daemon.services import Services
from ralphd.git.diagnostics import is_older, unfinished
from ralphd.git.repo import Repository
from ralphd.git.restore import Rebuilt, changed_commands, rebuild, restore_setting
from ralphd.git.runner import GitRunner, NotDone, error_text
from ralphd.git.vault import REMOTES, Taken, Vault, rewound_upstreams

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord

Begin: TypeAlias = Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
_STATUS_LIMIT_S: Final = 10.0
_PROTECTING: Final = ("write", "box")
"""The levels that are never started without their sandbox: what is configured is in effect."""
TOO_LARGE: Final = "vault: no copy of the commits: the repository is larger than git.vault_max_bytes"
UNPUSHED: Final = "vault: a copy of unpushed commits only: the repository is larger than git.vault_max_bytes"
COPYING: Final = "vault: copying (the first copy of the repository is not complete)"
SHOWN_AFTER_S: Final = 5.0
"""A shorter first copy is not worth a note at each start."""

logger = logging.getLogger(__name__)


class Custody:
    """The vault of one ralph's repository. Methods are called on the event loop; git works in threads."""

    def __init__(self, account: "RalphRecord", services: Services, begin: Begin) -> None:
        self._account, self._services, self._begin = account, services, begin
        self._alone = asyncio.Lock()
        self._first_since: float | None = None
        self._notes: tuple[str, ...] = ()
        self._changed = ""
        self._hooks_path: ChangedCommand | None = None
        """The first change of ``core.hooksPath`` in this run, if it was left as it is."""

    @property
    def _is_on(self) -> bool:
        return self._account.policy.supervised

    def _vault(self) -> Vault | None:
        return Vault.of(self._services.state_directory / "vaults", self._account.definition.directory)

    def notes(self) -> tuple[str, ...]:
        """Return the notes for ``status``."""
        is_long = self._first_since is not None and time.monotonic() - self._first_since > SHOWN_AFTER_S
        return (COPYING,) if is_long else (*self._notes, *filter(None, [self._changed]))

    async def before_run(self) -> None:
        """Copy the repository in the background: what happened while nothing ran is its owner's."""
        self._changed, self._hooks_path = "", None
        if not self._is_on:
            return
        async with self._alone:
            has_repository = await asyncio.to_thread(self._check_repository)
        if has_repository:
            self._begin(self._take(at_start=True))

    def _check_repository(self) -> bool:
        """Return whether the directory has a repository. If it was removed, give up the copy."""
        if Repository.find(self._account.definition.directory) is not None:
            return True
        self._give_up()
        return False

    def _give_up(self) -> None:
        with suppress(OSError):
            vault = self._vault()
            if vault is not None and (taken := vault.taken()) is not None and vault.fault(taken):
                vault.give_up(taken)
                self._notes = (f"vault: {taken.common} was changed while nothing ran; it is not restored",)

    async def at_boundary(self, run_id: RunId) -> None:
        """Restore what the iteration destroyed, then copy what is new. During the first copy: nothing."""
        if self._is_on and self._first_since is None:
            await self._restore(run_id)
            await self._take(run_id)

    async def after_run(self, run_id: RunId, *, seen: bool) -> None:
        """Do the same after a run. ``seen``: a daemon was there at its end."""
        if self._is_on and self._first_since is None:
            await self._restore(run_id, seen=seen, at_end=True)
            await self._take(run_id if seen else None)

    async def after_gate(self) -> None:
        """Copy what the gate changed: a revert, re-applied commits."""
        if self._is_on and self._first_since is None:
            await self._take()

    async def _take(self, run_id: RunId | None = None, *, at_start: bool = False) -> None:
        async with self._alone:
            try:
                if (vault := await asyncio.to_thread(self._vault)) is None:
                    return self._trouble(None)
                before = vault.taken()
                self._first_since = time.monotonic() if before is None else None
                taken = await asyncio.to_thread(self._copy, vault, self._services.busy() if at_start else [])
                if run_id is not None and before is not None:
                    await self._tell(run_id, await asyncio.to_thread(_lost_upstream, before, taken))
                self._trouble(None)
            except (NotDone, OSError, ValueError) as why:
                self._trouble(error_text(why))
                self._notes = (f"vault: no new copy of the repository: {error_text(why)}",)
                if at_start:
                    await asyncio.to_thread(self._give_up)
            finally:
                self._first_since = None

    def _copy(self, vault: Vault, busy: Iterable[Path] = ()) -> Taken:
        """Take a copy. A run in a work tree of ``busy`` may have changed what all of them share."""
        others = filter(None, (Vault.of(vault.path.parent, each) for each in busy))
        others_run = any(each.path == vault.path and each.top != vault.top for each in others)
        git = self._account.configuration.git
        with vault.exclusive():
            taken = vault.take(git.keep, most_bytes=git.vault_max_bytes, others_run=others_run)
        self._notes = () if taken.is_whole else (UNPUSHED if taken.has_unpushed else TOO_LARGE,)
        return taken

    async def _restore(self, run_id: RunId, *, seen: bool = True, at_end: bool = False) -> None:
        async with self._alone:
            try:
                done = await asyncio.to_thread(self._restored, run_id, seen, at_end)
            except (NotDone, OSError, ValueError) as why:
                self._trouble(f"a restore failed: {error_text(why)}")
                return
        await self._tell(run_id, done)

    async def _tell(self, run_id: RunId, done: list[tuple[Announce, str]]) -> None:
        for action, key in done:
            at, whom = self._services.clock.now(), self._account.told()
            await self._account.telling.repaired(action, f"{run_id}/{key}", at, whom)

    def _restored(self, run_id: RunId, seen: bool, at_end: bool) -> list[tuple[Announce, str]]:
        vault = self._vault()
        taken = None if vault is None else vault.taken()
        if vault is None or taken is None or not taken.is_current:
            return []
        told: list[tuple[Announce, str]] = []
        with vault.exclusive():
            fault = vault.fault(taken, is_thorough=at_end)
            repository = Repository.find(vault.top)
            if fault and repository is not None and unfinished(repository):
                fault = "" if is_older(repository, self._account.facts.started_at or 0.0) else fault
            if fault and (seen or repository is None):
                label = f"{self._account.definition.name}/{run_id}"
                told.append((_repaired(fault, rebuild(vault, taken, label), taken), f"git/{taken.at}"))
            if names := vault.restore_kept(taken) if seen else []:
                text = f"restored {first_names(names)} from the vault: the iteration deleted what git ignores"
                told.append((Announce("file.restored", text, data=(("files", names),)), f"kept/{taken.at}"))
            if Repository.find(vault.top) is not None:
                changed = changed_commands(vault, taken, partial(self._is_restored, taken, seen))
                if (left := self._hooks_path) is not None and seen and _is_stuck(taken):
                    self._hooks_path = None
                    changed += filter(None, [restore_setting(left)])
                told += self._on_commands(changed, taken)
        return told

    def _is_restored(self, taken: Taken, seen: bool, name: str) -> bool:
        is_protected = self._account.configuration.sandbox.level in _PROTECTING
        is_stuck = name == HOOKS_PATH and _is_stuck(taken)
        return is_restored(name, seen=seen, is_protected=is_protected, is_stuck=is_stuck)

    def _on_commands(self, changed: list[ChangedCommand], taken: Taken) -> list[tuple[Announce, str]]:
        """Report hooks and settings that an iteration changed, once: the next copy has what is there now."""
        restored = [each for each in changed if each.restored]
        if left := [each for each in changed if not each.restored]:
            hooks_path = next((each for each in left if each.name == HOOKS_PATH), None)
            self._hooks_path = self._hooks_path or hooks_path
            what = f"{first_names([each.name for each in left])} of {taken.common}"
            self._changed = f"git runs what an iteration changed: {what}; to undo: {left[0].undo}"
            logger.warning("%s", self._changed, extra={"ralph": self._account.definition.name})
        if not restored:
            return []
        names, undo = [*dict.fromkeys(each.name for each in restored)], restored[0].undo
        does = "to compare" if undo.startswith("diff ") else "to undo while it is stopped"
        why = f"an iteration changed what git runs, or where it works; {does}: {undo}"
        text = f"restored {first_names(names)} of {taken.common}: {why}"
        data = (("files", names), ("undo", undo))
        return [(Announce("file.restored", text, data=data), f"commands/{taken.at}")]

    def _trouble(self, why: str | None) -> None:
        self._services.trouble(f"vault of {self._account.definition.name}", why)


def _is_stuck(taken: Taken) -> bool:
    """Return whether tracked files were changed and nothing was committed since the vault's copy."""
    git = GitRunner(Path(taken.top), limit_s=_STATUS_LIMIT_S)
    return git.commit("HEAD") == taken.head and bool(git.status("-uno"))


def _lost_upstream(before: Taken, after: Taken) -> list[tuple[Announce, str]]:
    told = []
    for each in rewound_upstreams(before, after):
        remote, _, branch = each.ref.removeprefix(REMOTES).partition("/")
        lost = f"{remote}/{branch} lost {each.lost} commit{'s' * (each.lost > 1)} while Ralph worked"
        text = f"{lost}; the next push restores them; if it is rejected: git pull --rebase first"
        data = (("why", lost), ("undo", f"git push {remote} {each.sha}:refs/heads/{branch}"))
        told.append((Announce("guard.blocked", text, data=data), f"upstream/{each.ref}/{after.at}"))
    return told


def _repaired(fault: str, done: Rebuilt, taken: Taken) -> Announce:
    text = f"restored {done.path} from the vault: {fault}"
    if Path(taken.top, ".gitmodules").exists() and not Path(taken.common, "modules").exists():
        text += ". Its submodules are not in the vault: git submodule update --init fetches them"
    undo = ""
    if done.left is not None:
        text += f". The earlier git directory is in {done.left}"
        undo = f"git --git-dir={done.left} log"
    if done.refs:
        text += f". Its new commits are kept under {', '.join(done.refs[:3])}"
        undo = f"git log {done.refs[0]}"
    left = str(done.left) if done.left else None
    data = (("why", fault), ("left", left), ("refs", list(done.refs)), ("undo", undo))
    return Announce("repository.repaired", text, data=data)
