"""What the gate does by git: read facts, carry out the orders of a run, repair after a run."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ralphd.core.gate import verdict
from ralphd.core.gate.git_repair import MOST_REPAIRS, RewriteAction
from ralphd.core.incidents import shell_word
from ralphd.core.supervision.events import HistoryRewritten, LeftBehind
from ralphd.core.supervision.model import RunId
from ralphd.core.supervision.reports import IterationFinished
from ralphd.core.text import short_sha
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.git import facts, remote, repo
from ralphd.git.diagnostics import in_the_way
from ralphd.git.repair import RepairMode, repair
from ralphd.git.repo import Repository
from ralphd.git.rewrite import old_tests, reapply, revert, stash
from ralphd.git.rewrite.move_branch import Done
from ralphd.git.runner import GitRunner, NotDone, ref_name
from ralphd.process.rundir import ExitRecord

if TYPE_CHECKING:
    from ralphd.daemon.gate.worker import GateMemory
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

BACK: Final = "-back"
"""The end of a label under which a branch went back."""


@dataclass(frozen=True, slots=True)
class GitEffects:
    """The repository of a working directory. Calls of git have time limits, and block.

    ``environment`` is that of the ralph's runs: hooks and credentials of a push are its owner's.
    """

    directory: Path
    environment: Callable[[], Mapping[str, str]]

    def has_repository(self) -> bool:
        return Repository.find(self.directory) is not None

    def root(self) -> Path:
        """Return the root of the work tree, where the tests run (R3)."""
        with suppress(NotDone):
            return GitRunner(self.directory).top
        return self.directory

    def position(self) -> verdict.Position:
        return facts.position(self.directory)

    def boundary(self, before: verdict.Position) -> verdict.Boundary:
        """Return the facts of what came since ``before``."""
        return facts.boundary(self.directory, before)

    def descends(self, before: verdict.Position | None, head: verdict.Position) -> bool:
        """Whether HEAD leads back to ``before`` on the same branch."""
        if before is None or before.head is None or head.head is None or before.branch != head.branch:
            return False
        words = ("merge-base", "--is-ancestor", before.head, head.head)
        return before == head or (repo.answer(self.directory, *words) or (1, b""))[0] == 0

    def reverts(self, label: str) -> dict[str, str]:
        """Return the reverts made under a label, each with the commit that it reverts."""
        return {each.sha: each.reverts for each in revert.reverted(self.directory, label)}

    def is_committed_after(self, moment: Moment) -> bool:
        """Whether HEAD is younger than ``moment``, or its age is unknown."""
        words = ("log", "-1", "--no-show-signature", "--format=%ct")
        code, printed = repo.answer(self.directory, *words) or (1, b"")
        return code != 0 or not printed.strip().isdigit() or int(printed) > moment

    def is_moved_after(self, moment: Moment) -> bool:
        """Whether HEAD was moved after ``moment``, as far as its reflog shows."""
        repository = Repository.find(self.directory)
        try:
            return repository is None or (repository.git / "logs" / "HEAD").stat().st_mtime > moment
        except OSError:
            return False

    @staticmethod
    def refs_of(label: str, *, is_back: bool = False) -> tuple[str, ...]:
        """Return the refs that keep what was reverted under a label, or what the branch left."""
        name = ref_name(label)
        if is_back:
            return reapply.left_refs(f"{label}{BACK}")[:1]
        return (f"{revert.REVERTED}{name}", f"{revert.REVERTS}{name}")

    def carry_out(self, order: verdict.GateOrder, run: verdict.GateRun, label: str) -> verdict.GateEvent:
        """Carry out an order, unless an earlier daemon has done so already."""
        match order:
            case verdict.SetAside():
                return stash.set_aside(self.directory, label)
            case verdict.ShowOld(patterns=patterns, command=command):
                before, start = run.boundary.before.head or "", run.check.start_commit
                return old_tests.show_old(self.directory, label, before, patterns, command, start=start)
            case verdict.PutBack():
                return stash.put_back(self.directory, label)
            case verdict.Revert(commits=commits):
                return revert.revert(self.directory, commits, head=run.head or "", label=label)
            case verdict.Restore(head=head) if run.is_back or head == run.boundary.before.head:
                left, start = reapply.left_refs(f"{label}{BACK}")
                keeps = f"update {left} {run.boundary.now.head}", f"update {start} {run.boundary.before.head}"
                return revert.restore(self.directory, head, expected=run.head or "", label=label, keeps=keeps)
            case verdict.Restore() if run.retakes:  # commits of others may be among the reverts
                made = self.reverts(label).items()
                return revert.undo(self.directory, [by for by, sha in made if sha in run.reverted])
            case verdict.Restore(head=head):
                return revert.restore(self.directory, head, expected=run.head or "", label=label)
            case verdict.Push():
                pushed = remote.push(self.directory, outside=self.environment() or None)
                if pushed.startswith("not pushed"):
                    return verdict.Refused(f"the revert is {pushed}")
                return verdict.CarriedOut(run.head)
            case _:
                raise AssertionError(f"{order} is not an order about git")

    def undo(self, label: str) -> tuple[Done, tuple[verdict.JudgedCommit, ...]]:
        """Put back what was reverted under a label. Return the result and the commits, newest first."""
        back = f"{label}{BACK}"
        with suppress(NotDone):
            if GitRunner(self.directory).ref(reapply.left_refs(back)[1]):
                return reapply.take_back(self.directory, back, self.position().branch or ""), ()
        if not (reverts := revert.reverted(self.directory, label)):
            ref = self.refs_of(label)[1]
            why = f"{ref} is not there: it is kept of the last {revert.KEPT} iterations with a revert"
            mend = "git log --grep 'This reverts' finds older ones, for git revert"
            return verdict.Refused(f"{why}; {mend}"), ()
        commits = tuple(verdict.JudgedCommit(by.reverts, _subject(by.subject)) for by in reversed(reverts))
        return revert.undo(self.directory, [each.sha for each in reverts]), commits

    def by_hand(self, label: str) -> str:
        """Return the command that does the same as ``undo`` and stops at a conflict."""
        reverts = (short_sha(each.sha) for each in revert.reverted(self.directory, label))
        return f"git -C {shell_word(str(self.directory))} revert {' '.join(reverts)}"

    def forget_old(self, ralph: str, *spared: str) -> None:
        """Drop the refs of old reverts, but for ``spared`` labels."""
        revert.forget_old(self.directory, ralph, spared=spared)


def _subject(said: str) -> str:
    """Return the subject of a commit, from that of its revert."""
    inner = said.removeprefix("Reapply ").removeprefix("Revert ")[1:-1]
    return f'Revert "{inner}"' if said.startswith('Reapply "') else inner


# Commits that a branch lost during an iteration, restored at its boundary and at a run's end.


class HistoryRepair:
    """Notes where the branch of a ralph is, and restores it where an iteration has lost commits of it."""

    def __init__(self, account: "RalphRecord", services: "Services", memory: "GateMemory") -> None:
        self._account, self._services, self._memory = account, services, memory
        self._is_lost = False
        self.notes: tuple[str, ...] = ()

    async def note(self, *, anew: bool = False) -> None:
        """Note HEAD as the last good position. Without ``anew``, not while commits of the former are lost."""
        directory = self._account.definition.directory
        if self._is_lost and not anew:
            return
        self._is_lost = False
        good = await asyncio.to_thread(facts.position, directory)
        if anew:
            await self._note_owner(good)
        if good != self._memory.state.good:
            await self._memory.save(replace(self._memory.state, good=good))
        if good.head is None:  # there is no repository, or no commit in it
            return
        with suppress(NotDone):
            await asyncio.to_thread(reapply.keep_judged, directory, self._account.definition.name, good)

    async def forget_old(self) -> None:
        """Delete the refs of former states that are old, except those of repairs that can be undone."""
        good, held, now = self._memory.state.good, self._account.definition, self._services.clock.now()
        if good is None or good.head is None:  # as above
            return
        with suppress(NotDone):
            await asyncio.to_thread(reapply.forget_old, held.directory, held.name, now, self._undoable)

    def _undoable(self) -> list[str]:
        """Return the refs of the repairs that can be undone."""
        past = self._account.records.repairs(MOST_REPAIRS)
        return [ref for each in past if not each["undone"] for ref in each["refs"][:1]]

    async def _note_owner(self, at: verdict.Position) -> None:
        """Report commits that somebody removed while nothing ran: they are not restored."""
        before, self.notes = self._memory.state.good, ()
        if before is None or before.head is None or before.branch != at.branch:
            return
        git = GitEffects(self._account.definition.directory, dict)
        if not await asyncio.to_thread(git.descends, before, at):
            text = f"commit {short_sha(before.head)} was removed from {at.branch} while nothing ran"
            self.notes = (f"{text}: it is not restored",)
            logger.info("%s", self.notes[0], extra={"ralph": self._account.definition.name})

    async def restore(
        self, run_id: RunId, boundary_id: str, report: IterationFinished | None = None
    ) -> HistoryRewritten | None:
        """Restore what was lost since the last ``note``. Return what to report of it."""
        good, name = self._memory.state.good, self._account.definition.name
        if good is None or good.head is None or not self._account.policy.supervised:
            return None
        directory, label = self._account.definition.directory, verdict.label_of(name, run_id, boundary_id)
        pauses = self._account.configuration.git.rewritten == "pause"
        result = await asyncio.to_thread(reapply.restore_judged, directory, good, label=label, pauses=pauses)
        self._is_lost = result is not None and result.action is not RewriteAction.REPAIR
        if result is None:
            return None
        if result.action is RewriteAction.LEAVE:
            logger.warning("commits are missing: %s", result.why, extra={"ralph": name})
            return None
        number = await asyncio.to_thread(self._account.records.repair_number, f"{boundary_id}/repair")
        if result.conflicts:
            shas = tuple(each.sha for each in reversed(result.conflicts))
            left = verdict.Verdict(
                verdict.VerdictKind.REVERTED, f"conflict with the restored commits; kept under {result.ref}",
                boundary_id=boundary_id, run_id=run_id, number=report.number if report else None,
                task=report.task if report else None, commits=shas, reverted=shas, refs=(result.ref,),
                at=self._services.clock.now(),
            )  # fmt: skip
            await self._memory.save(replace(self._memory.state, unapplied=left))
        undo = "" if result.why else result.undo or f"ralphctl undo {name} --repair {number}"
        return HistoryRewritten(
            at=self._services.clock.now(), run_id=run_id, id=boundary_id, branch=result.branch,
            lost=_shas(result.lost), reapplied=_shas(result.reapplied), conflicts=_shas(result.conflicts),
            ref=result.ref, why=result.why, number=number, undo=undo,
        )  # fmt: skip


def _shas(oldest_first: tuple[verdict.Change, ...]) -> tuple[str, ...]:
    return tuple(short_sha(each.sha) for each in reversed(oldest_first))


# What a run has left half done in the repository, looked at when nothing of its processes is alive.


class PostRunRepair:
    """Repairs a repository after each run. A problem that stays is reported once."""

    def __init__(self, account: "RalphRecord") -> None:
        self._account = account
        self._told: tuple[str, ...] = ()

    async def after(self, record: ExitRecord, branch: str | None) -> LeftBehind | None:
        """Repair, and return what to report. ``branch`` is where HEAD was before the run.

        Nothing is touched while a process of the run may live, nor for a ralph that is not supervised (P6).
        """
        if record.survivors or not self._account.policy.supervised:
            return None
        return await asyncio.to_thread(self._after, record, branch)

    def _after(self, record: ExitRecord, branch: str | None) -> LeftBehind | None:
        directory = self._account.definition.directory
        if Repository.find(directory) is None or (record.code == 0 and not in_the_way(directory)):
            return None
        label = f"{self._account.definition.name}/{record.run_id}"
        mode = RepairMode(self._account.configuration.git.repair)
        began_at, ended_at = record.started_at or 0.0, record.ended_at
        found = repair(directory, mode, ended_at=ended_at, began_at=began_at, label=label, branch=branch)
        told = () if found.told == self._told else found.told
        self._told = found.told
        return LeftBehind(record.ended_at, record.run_id, found.done, told) if found.done or told else None
