"""The repository of a night with a gate: commits in a row, what each does to the tests, and the tests.

A revert turns a commit off, and the revert of a revert turns it on again. A tick is part of its commit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from ralphd.core.gate.verdict import (
    Boundary,
    CarriedOut,
    GateEvent,
    GateOrder,
    GateRun,
    JudgedCommit,
    Moved,
    Position,
    PutBack,
    Restore,
    Result,
    Revert,
    SetAside,
    Shown,
    ShowOld,
)
from ralphd.core.gate.weakened import TestCounts

BRANCH: Final = "main"
BASE: Final = "f" * 40
TESTS: Final = 100


@dataclass(frozen=True, slots=True)
class Commit:
    """``breaks``: the tests fail with it. ``hides``: so would they, but it removes those that would."""

    sha: str
    by_run: bool
    ticks: str = ""
    breaks: bool = False
    hides: bool = False
    reverts: str = ""
    label: str = ""


class GateRepository:
    """What git would say, and what the tests would."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self._count = 0
        self.next_breaks = self.next_hides = self.next_is_dirty = False
        self.is_dirty = self.is_aside = self.shows_old = False
        self.surprises: deque[Result] = deque()
        self.surprised = 0
        self._fixed: set[str] = set()

    @property
    def head(self) -> str:
        """The sha of HEAD."""
        return self.commits[-1].sha if self.commits else BASE

    @property
    def position(self) -> Position:
        """As git has it."""
        return Position(self.head, BRANCH)

    def commit(self, *, by_run: bool, ticks: str = "", breaks: bool = False, hides: bool = False,
               reverts: str = "", label: str = "") -> Commit:  # fmt: skip
        """One more."""
        self._count += 1
        new = Commit(f"{self._count:07x}{0:033x}", by_run, ticks, breaks, hides, reverts, label)
        self.commits.append(new)
        return new

    def work(self, ticks: str) -> None:
        """An agent commits, with what it leaves behind."""
        self.commit(by_run=True, ticks=ticks, breaks=self.next_breaks, hides=self.next_hides)
        self.is_dirty = self.next_is_dirty
        self.next_breaks = self.next_hides = self.next_is_dirty = False

    def fix(self) -> None:
        """A person makes the tests pass."""
        self._fixed |= {each.sha for each in self.commits}
        self.surprised += 2  # of a verdict under way: what its tests show has changed
        self.is_dirty = False
        self.commit(by_run=False)

    def on(self) -> dict[str, bool]:
        """Which commits are in effect; those that revert are not among them."""
        known, found = {each.sha: each for each in self.commits}, dict[str, bool]()

        def turn(sha: str, value: bool) -> None:
            target = known.get(sha)
            if target is not None and target.reverts:
                turn(target.reverts, not value)
            else:
                found[sha] = value

        for each in self.commits:
            turn(each.reverts, False) if each.reverts else turn(each.sha, True)
        return found

    def in_effect(self) -> list[Commit]:
        """The commits that are."""
        on = self.on()
        return [each for each in self.commits if on.get(each.sha)]

    def breaking(self, *, old: bool = False) -> list[Commit]:
        """Those that make the tests fail; with ``old`` by the tests as they were before."""
        suspects = (each for each in self.in_effect() if each.sha not in self._fixed)
        return [each for each in suspects if each.breaks or (old and each.hides)]

    def test(self) -> tuple[Result, TestCounts]:
        """Run the tests on the work tree."""
        gone = sum(each.hides for each in self.in_effect() if each.sha not in self._fixed)
        counts = TestCounts(TESTS - (0 if self.shows_old else gone))
        if self.surprises:
            self.surprised += 1
            return self.surprises.popleft(), counts
        is_red = bool(self.breaking(old=self.shows_old)) or (self.is_dirty and not self.is_aside)
        return Result.RED if is_red else Result.GREEN, counts

    def since(self, before: Position) -> list[Commit]:
        """What came after, oldest first."""
        shas = [each.sha for each in self.commits]
        start = shas.index(before.head) + 1 if before.head in shas else 0
        return self.commits[start:]

    def boundary(self, before: Position) -> Boundary:
        """As ``git/facts`` has it."""
        commits = tuple(
            JudgedCommit(each.sha, by_run=each.by_run, reverts=each.reverts)
            for each in reversed(self.since(before))
        )
        return Boundary(before, self.position, commits=commits, dirty=("notes.txt",) * self.is_dirty)

    def reverts(self, label: str) -> dict[str, str]:
        """The reverts made under a label, each with what it reverts."""
        return {each.sha: each.reverts for each in self.commits if each.label == label}

    def take_back(self, label: str) -> list[str]:
        """Undo the reverts made under a label, as far as that is not done yet. Return what is back."""
        undone = {each.reverts for each in self.commits}
        reverts = [each for each in self.commits if each.label == label and each.reverts]
        for each in reversed(reverts):
            if each.sha not in undone:
                self.commit(by_run=False, reverts=each.sha)
        return [each.reverts for each in reverts]

    def carry_out(self, order: GateOrder, run: GateRun) -> GateEvent:
        """As ``GitEffects.carry_out``: what an earlier daemon has done already is not done again."""
        match order:
            case SetAside():
                self.is_aside = True
                return CarriedOut(self.head)
            case PutBack():
                self.is_aside = self.shows_old = False
                return CarriedOut(self.head)
            case ShowOld():
                hides = [each for each in self.since(run.boundary.before) if each.hides]
                self.shows_old = any(self.on().get(each.sha) for each in hides)
                changed = ("test_all.py",) * self.shows_old
                return Shown(changed, changed)
            case Revert(commits=commits):
                return self._revert(commits, run)
            case Restore(head=head):
                return self._restore(head, run)
            case _:
                return CarriedOut(self.head)

    def _ours_since(self, run: GateRun) -> list[Commit] | None:
        """Our reverts since HEAD was where the run has it; None: somebody else has committed."""
        shas = [each.sha for each in self.commits]
        start = shas.index(run.head) + 1 if run.head in shas else 0
        since = self.commits[start:]
        return None if any(each.label != run.boundary_id for each in since) else since

    def _revert(self, commits: tuple[str, ...], run: GateRun) -> GateEvent:
        ours = self._ours_since(run)
        if ours is None:
            return Moved("somebody has committed")
        done = {each.reverts for each in ours}
        for sha in commits:
            if sha not in done:
                self.commit(by_run=False, reverts=sha, label=run.boundary_id)
        return CarriedOut(self.head)

    def _restore(self, head: str, run: GateRun) -> GateEvent:
        if run.retakes:
            made = [sha for sha, target in self.reverts(run.boundary_id).items() if target in run.reverted]
            for sha in reversed(made):
                if all(each.reverts != sha for each in self.commits):
                    self.commit(by_run=False, reverts=sha, label=run.boundary_id)
            return CarriedOut(self.head)
        if self.head != head and self._ours_since(replace(run, head=head)) is None:
            return Moved("somebody has committed")
        while self.head != head:
            self.commits.pop()
        return CarriedOut(self.head)
