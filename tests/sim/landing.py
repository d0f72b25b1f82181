"""The landing queue of a night: branches of other ralphs and of this one, and the daemon's worker for them.

Real is every decision (``core/landing``). Made up: git, as sets of changes, and what the tests show of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from ralphd.core.gate.verdict import Result
from ralphd.core.landing import step as landing
from ralphd.core.landing.model import (
    BatchTested,
    Doing,
    LandingBatch,
    LandingCandidate,
    LandingFact,
    LandingPolicy,
    LandingQueue,
    Merged,
    MergeDone,
    Standing,
    TargetMoved,
    TargetTaken,
)
from tests.sim.world import Due

if TYPE_CHECKING:
    from tests.sim.night import Night

POLICY: Final = LandingPolicy()
LOOK_S: Final = 60.0
EVENING_S: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a branch brings. ``clash``: one of two with the same conflicts. ``foe``: both are red together."""

    name: str
    breaks: bool = False
    clash: str = ""
    foe: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A commit that was made for the target: on top of ``parent``, it ``brings`` a change."""

    parent: str
    brings: str


class LandingWorld:
    """The target, what was made for it, and the branches; all survive the daemon."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self.is_on = night.script.setting.branches > 0
        self._dice = Random(night.script.seed * 17 + 5)
        self.changes: dict[str, Change] = {}
        self.made: dict[str, Made] = {}
        self.target, self._count = "start", 0
        self.surprises: deque[Result] = deque()
        self.surprised = 0
        self._fixed: frozenset[str] = frozenset()
        self._coming = night.script.setting.branches
        moments = [EVENING_S * self._dice.random() ** 2 for _ in range(3)]
        for number in range(night.script.setting.branches):
            at_s = self._dice.choice(moments) + 120.0 * self._dice.random()
            night.agenda.after(at_s, partial(self._arrives, f"other{number}"))
        if self.is_on and self._dice.random() < 0.5:  # while the tests of a batch run
            at_s, breaks = self._dice.choice(moments) + 300.0 * self._dice.random(), self._dice.random() < 0.2
            night.agenda.after(at_s, lambda: self.somebody_pushes(breaks=breaks))

    def content(self, commit: str) -> tuple[str, ...]:
        """What a commit has, oldest first."""
        found: list[str] = []
        while (made := self.made.get(commit)) is not None:
            found.append(made.brings)
            commit = made.parent
        return tuple(reversed(found))

    def is_red(self, names: tuple[str, ...]) -> bool:
        """Whether the tests fail with these changes."""
        there = {*names} - self._fixed
        return any(self.changes[each].breaks or self.changes[each].foe in there for each in there)

    def make(self, parent: str, brings: str) -> str:
        """A commit."""
        self._count += 1
        sha = f"{self._count:07x}{0:033x}"
        self.made[sha] = Made(parent, brings)
        return sha

    def somebody_pushes(self, *, breaks: bool) -> None:
        """The target moves, and no queue has done it."""
        name = f"person{len(self.changes)}"
        self.changes[name] = Change(name, breaks)
        self.target = self.make(self.target, name)

    def fix(self) -> None:
        """A person makes all pass, and lands what waits for them."""
        self._fixed = frozenset(self.changes)
        self.surprises.clear()
        self.surprised += 2  # of a batch under way: what its tests show has changed
        self.somebody_pushes(breaks=False)
        for each in self._night.disk.landing.standing(Standing.WAITING):
            self.admit(each.ralph, each.head)

    def _arrives(self, ralph: str, tries: int = 0) -> None:
        """A ralph is done with its branch. The more often it was refused, the better it is."""
        if self._night.daemon is None or not self._night.daemon.is_started:
            self._night.agenda.after(LOOK_S, lambda: self._arrives(ralph, tries))
            return
        self._coming -= 1
        dice, name = self._dice, f"{ralph}v{tries}"
        foes = [each for each in self.changes if each.startswith("other")]
        is_bad = dice.random() < (0.35 if tries == 0 else 0.15)
        self.changes[name] = Change(
            name,
            breaks=is_bad,
            clash=dice.choice(("", "", "x", "y")) if tries == 0 else "",
            foe=dice.choice(foes) if foes and dice.random() < 0.15 else "",
        )
        waits = dice.random() < 0.1 and not self._night.is_dawn
        self.admit(ralph, name, waits_for="it changes ralph.toml" if waits else "")

    def admit(self, ralph: str, head: str, *, waits_for: str = "") -> None:
        """It is in the queue."""
        night = self._night
        wanted = LandingCandidate(0, ralph, f"refs/heads/ralph/{ralph}", head, night.clock.wall())
        wanted = replace(wanted, is_auto=not night.is_dawn)
        night.disk.landing = landing.admit(night.disk.landing, wanted, waits_for=waits_for)
        night.tell("the landing", f"{head} is queued" + (f", and waits: {waits_for}" if waits_for else ""))
        if night.daemon is not None:
            night.daemon.landing.nudge()

    def proposes(self, commits: int) -> None:
        """The ralph of this night is done: its branch is proposed, if it has something new."""
        name = f"me{commits}"
        if self.is_on and commits and name not in self.changes:
            self.changes[name] = Change(name)
            self.admit("me", name)

    def was_refused(self, candidate: LandingCandidate) -> None:
        """Its ralph has the task, up to a number of tries."""
        if candidate.tries < POLICY.max_tries and candidate.ralph != "me":
            self._coming += 1
            delay_s = 300.0 + 900.0 * self._dice.random()
            self._night.agenda.after(delay_s, lambda: self._arrives(candidate.ralph, candidate.id))

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way or on its way, and nothing waits."""
        if self._coming:
            return False
        queue = self._night.disk.landing
        open_ones = (*queue.standing(Standing.QUEUED), *queue.standing(Standing.WAITING))
        return queue.batch is None and not open_ones


class LandingHands:
    """The worker of one life of the daemon: takes a step, has it decided, and writes that down."""

    def __init__(self, night: Night) -> None:
        self._night, self._world = night, night.landing
        self._due: Due | None = None

    def dies(self) -> None:
        """With its daemon."""
        if self._due is not None:
            self._due.call_off()

    def nudge(self) -> None:
        """There may be something to do."""
        if self._world.is_on and self._due is None:
            self._after(0.1, self._advance)

    def _after(self, delay_s: float, act: Callable[[], None]) -> None:
        self._due = self._night.agenda.after(delay_s, act)

    def _save(self, queue: LandingQueue) -> None:
        self._night.disk.landing = queue
        self._night.daemon_may_die("after queue.json")

    def _advance(self) -> None:
        self._due, disk, world = None, self._night.disk, self._world
        for ended in [each for each in disk.landing.candidates if not each.is_told]:
            self._night.checks.landing_is_told(ended)
            if ended.standing is Standing.REFUSED:
                world.was_refused(ended)
            self._save(disk.landing.with_candidate(replace(ended, is_told=True)))
        self._save(landing.begin(disk.landing))
        queue, now = disk.landing, self._night.clock.wall()
        if queue.blocked:
            if landing.is_due(queue, now, world.target):
                self._save(landing.unblocked(queue))
            self._after(LOOK_S, self._advance)
        elif queue.batch is not None:
            batch, is_short = queue.batch, queue.batch.doing in (Doing.MERGING, Doing.MOVING)
            self._after(0.5 if is_short else 90.0, lambda: self._acts(batch))

    def _acts(self, batch: LandingBatch) -> None:
        fact = self._result(batch)
        self._night.daemon_may_die(f"after {batch.doing}")
        before, now = self._night.disk.landing, self._night.clock.wall()
        after = self._night.steps.lands(before, fact, POLICY, now)
        self._night.checks.landing_is_decided(before, fact, after)
        self._save(after)
        self._due = None
        self.nudge()

    def _result(self, batch: LandingBatch) -> LandingFact:
        world = self._world
        match batch.doing:
            case Doing.MERGING:
                world.surprised = 0
                return self._merge(batch)
            case Doing.MOVING:
                return self._move(batch)
            case _ if world.surprises:
                world.surprised += 1
                return BatchTested(world.surprises.popleft())
            case _:
                is_red = world.is_red(world.content(batch.commit))
                return BatchTested(Result.RED if is_red else Result.GREEN)

    def _merge(self, batch: LandingBatch) -> MergeDone:
        world, queue = self._world, self._night.disk.landing
        tip = head = world.target
        merged: list[Merged] = []
        conflicts, present = dict[int, str](), list[int]()
        base = {world.changes[each].clash for each in world.content(tip)} - {""}
        for each in map(queue.candidate, batch.ids):
            clash, there = world.changes[each.head].clash, world.content(head)
            if each.head in there:
                present.append(each.id)
            elif clash and clash in base:
                conflicts[each.id] = f"it conflicts in {clash}"
            elif not (clash and clash in {world.changes[name].clash for name in there}):
                head = world.make(head, each.head)
                merged.append(Merged(each.id, head))
        return MergeDone(tip, tip, tuple(merged), conflicts, tuple(present))

    def _move(self, batch: LandingBatch) -> LandingFact:
        world, commit = self._world, batch.commit
        at, known = world.target, {commit}
        while (made := world.made.get(at)) is not None and at not in known:
            at = made.parent
        if at in known:
            return TargetMoved()  # an earlier daemon has done it, and somebody may have gone on
        if world.target != batch.tip:
            return TargetTaken()
        self._night.checks.target_moves(commit)
        world.target = commit
        self._night.daemon_may_die("after the target has moved")
        return TargetMoved()
