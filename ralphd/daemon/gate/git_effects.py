"""The guard's hands: where the repository stands, and what a judgement orders, carried out by git."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.gate.verdict import (
    Boundary,
    CarriedOut,
    JudgedCommit,
    JudgeEvent,
    Judgement,
    JudgeOrder,
    Position,
    Push,
    PutBack,
    Refused,
    Restore,
    Revert,
    SetAside,
)
from ralphd.core.supervision.events import LeftBehind
from ralphd.core.time import Moment
from ralphd.daemon.ralph.record import RalphRecord
from ralphd.git import facts, remote, repo
from ralphd.git.diagnostics import in_the_way
from ralphd.git.repair import RepairMode, repair
from ralphd.git.repo import Repository
from ralphd.git.rewrite import revert, stash
from ralphd.git.runner import GitRunner, NotDone
from ralphd.process.rundir import ExitRecord

LABEL_CHARS = 8


@dataclass(frozen=True, slots=True)
class GitEffects:
    """The repository of a working directory. Its calls of git are bounded, and block.

    ``environment`` gives that of the ralph's runs: hooks and credentials of a push are its owner's.
    """

    directory: Path
    environment: Callable[[], Mapping[str, str]]

    def has_repository(self) -> bool:
        """Whether there is one; a few stats."""
        return Repository.find(self.directory) is not None

    def root(self) -> Path:
        """Where the tests run: the root of the work tree (R3)."""
        with suppress(NotDone):
            return GitRunner(self.directory).top
        return self.directory

    def position(self) -> Position:
        """Where HEAD is, and on which branch."""
        return facts.position(self.directory)

    def boundary(self, before: Position) -> Boundary:
        """What came since ``before``."""
        return facts.boundary(self.directory, before)

    def is_committed_after(self, moment: Moment) -> bool:
        """Whether HEAD is younger than that, or nobody can tell."""
        words = ("log", "-1", "--no-show-signature", "--format=%ct")
        code, printed = repo.answer(self.directory, *words) or (1, b"")
        return code != 0 or not printed.strip().isdigit() or int(printed) > moment

    def carry_out(self, order: JudgeOrder, judgement: Judgement, label: str) -> JudgeEvent:
        """Carry out what is about git alone. What was carried out already is not done again."""
        match order:
            case SetAside():
                return stash.set_aside(self.directory, label)
            case PutBack():
                return stash.put_back(self.directory, label)
            case Revert(commits=commits):
                return revert.revert(self.directory, commits, head=judgement.head or "", label=label)
            case Restore(head=head):
                return revert.restore(self.directory, head, expected=judgement.head or "", label=label)
            case Push():
                return self._push(judgement)
            case _:
                raise AssertionError(f"{order} is no order about git")

    def undo(self, label: str) -> tuple[revert.Done, tuple[JudgedCommit, ...]]:
        """Put back what was reverted under a label: what came of it, and the commits, newest first."""
        reverts = revert.reverted(self.directory, label)
        if not reverts:
            ref = refs_of(label)[1]
            why = f"{ref} is not there: it is kept of the last {revert.KEPT} iterations with a revert"
            return Refused(f"{why}; git log --grep 'This reverts' finds older ones, for git revert"), ()
        commits = tuple(JudgedCommit(each.commit, _subject(each.subject)) for each in reversed(reverts))
        return revert.undo(self.directory, [each.revert for each in reverts]), commits

    def forget_old(self, ralph: str, *spared: str) -> None:
        """Drop the refs of reverts that are long ago, but for these labels."""
        revert.forget_old(self.directory, ralph, spared=spared)

    def _push(self, judgement: Judgement) -> JudgeEvent:
        pushed = remote.push(self.directory, outside=self.environment() or None)
        if pushed.words.startswith("not pushed"):
            return Refused(f"the revert is {pushed.words}")
        return CarriedOut(judgement.head)


def label_of(ralph: str, run_id: str, boundary_id: str) -> str:
    """What the refs of a judgement are called: the ralph, the run, and of a report a digest of its id."""
    if boundary_id == run_id:
        return f"{ralph}/{run_id}"
    return f"{ralph}/{run_id}-{hashlib.sha256(boundary_id.encode()).hexdigest()[:LABEL_CHARS]}"


def _subject(said: str) -> str:
    """That of the commit, from what its revert says."""
    reapplied = said.startswith('Reapply "')
    inner = said.removeprefix("Reapply ").removeprefix("Revert ")[1:-1]
    return f'Revert "{inner}"' if reapplied else inner


def refs_of(label: str) -> tuple[str, ...]:
    """The refs that keep what was reverted under a label."""
    name = revert.ref_name(label)
    return (f"{revert.REVERTED}{name}", f"{revert.REVERTS}{name}")


# What a run has left half done in the repository, looked at when nothing of its processes is alive.


class PostRunRepair:
    """Mends one ralph's repository after each run; what is the same as after the last one is told once."""

    def __init__(self, account: RalphRecord) -> None:
        self._account = account
        self._told: tuple[str, ...] = ()

    async def after(self, record: ExitRecord, branch: str | None) -> LeftBehind | None:
        """What there is to tell of it, if anything. ``branch`` is where HEAD was before the run.

        Nothing is touched while a process of the run may live, nor of a ralph that is not supervised (P6).
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
        found = repair(
            directory,
            mode,
            ended_at=record.ended_at,
            began_at=record.started_at or 0.0,
            label=label,
            branch=branch,
        )
        told = () if found.told == self._told else found.told
        self._told = found.told
        return LeftBehind(record.ended_at, record.run_id, found.done, told) if found.done or told else None
