"""The guard's hands: where the repository stands, and what a judgement orders, carried out by git."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ralphd.core.boundary import Boundary, JudgedCommit, Position
from ralphd.core.model import Moment
from ralphd.core.verdict import (
    CarriedOut,
    JudgeEvent,
    Judgement,
    JudgeOrder,
    Push,
    PutBack,
    Refused,
    Restore,
    Revert,
    SetAside,
)
from ralphd.git import aside, facts, guard, remote, repo
from ralphd.git.calls import Calls, NotDone
from ralphd.git.repo import Repository

LABEL_CHARS = 8


@dataclass(frozen=True, slots=True)
class Hands:
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
            return Calls(self.directory).top
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
                return aside.set_aside(self.directory, label)
            case PutBack():
                return aside.put_back(self.directory, label)
            case Revert(commits=commits):
                return guard.revert(self.directory, commits, head=judgement.head or "", label=label)
            case Restore(head=head):
                return guard.restore(self.directory, head, expected=judgement.head or "", label=label)
            case Push():
                return self._push(judgement)
            case _:
                raise AssertionError(f"{order} is no order about git")

    def undo(self, label: str) -> tuple[guard.Done, tuple[JudgedCommit, ...]]:
        """Put back what was reverted under a label: what came of it, and the commits, newest first."""
        reverts = guard.reverted(self.directory, label)
        if not reverts:
            ref = refs_of(label)[1]
            why = f"{ref} is not there: it is kept of the last {guard.KEPT} iterations with a revert"
            return Refused(f"{why}; git log --grep 'This reverts' finds older ones, for git revert"), ()
        commits = tuple(JudgedCommit(each.commit, _subject(each.subject)) for each in reversed(reverts))
        return guard.undo(self.directory, [each.revert for each in reverts]), commits

    def forget_old(self, ralph: str, *spared: str) -> None:
        """Drop the refs of reverts that are long ago, but for these labels."""
        guard.forget_old(self.directory, ralph, spared=spared)

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
    name = guard.ref_name(label)
    return (f"{guard.REVERTED}{name}", f"{guard.REVERTS}{name}")
