"""What must hold of landing: nothing red lands, each lands once and is told once, refusals have a cause."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ralphd.core.landing.model import BatchTested, LandingCandidate, LandingFact, LandingQueue, Standing
from tests.sim.gate_checks import GateChecks

if TYPE_CHECKING:
    from tests.sim.night import Night


class LandingChecks(GateChecks):
    """The target and the queue, against each other."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._ends: dict[int, Standing] = {}

    def target_moves(self, commit: str) -> None:
        """To a commit on top of all that was there, with nothing twice, and green."""
        world = self._night.landing
        before, after = world.content(world.target), world.content(commit)
        if after[: len(before)] != before:
            self.broken("what is kept stays", f"the target loses {before[-1:]}")
        twice = [name for name, times in Counter(after).items() if times > 1]
        if twice:
            self.broken("it lands once", f"{twice} is on the target already")
        if world.is_red(after):
            self.broken("nothing red lands", f"the tests fail with {after[len(before) :]}")

    def landing_is_decided(self, before: LandingQueue, fact: LandingFact, after: LandingQueue) -> None:
        """A step of the queue: who has ended, and why."""
        world, was = self._night.landing, {each.id: each for each in before.candidates}
        for each in after.candidates:
            old = was.get(each.id, each)
            if each.standing is old.standing:
                continue
            if old.standing in (Standing.LANDED, Standing.REFUSED):
                self.broken("it lands once", f"{each.head} is {old.standing}, and then {each.standing}")
            if each.standing is Standing.LANDED and each.head not in world.content(world.target):
                self.broken("no outcome is invented", f"{each.head} has landed, it says, and is not there")
            if each.standing is Standing.REFUSED and isinstance(fact, BatchTested) and before.batch:
                base = world.content(before.batch.base)
                is_cause = world.is_red((*base, each.head)) and not world.is_red(base)
                if not is_cause and world.surprised < 2:
                    self.broken("no task is lost", f"{each.head} is refused without a cause: {each.why}")
        if after.blocked and not before.blocked and world.surprised < 2:
            base = () if before.batch is None else world.content(before.batch.base)
            if not world.is_red(base):
                self.broken("goes on", f"nothing lands any more, without a cause: {after.blocked}")

    def landing_is_told(self, candidate: LandingCandidate) -> None:
        """People hear of an end, once; a daemon that dies may tell the same again under the same key."""
        if candidate.standing in (Standing.QUEUED, Standing.WAITING):
            return
        first = self._ends.setdefault(candidate.id, candidate.standing)
        if first is not candidate.standing:
            self.broken("it lands once", f"{candidate.head} is told as {first} and as {candidate.standing}")

    def landing_at_the_end(self) -> None:
        """Whatever wanted to land has landed, or was refused."""
        world, queue = self._night.landing, self._night.disk.landing
        left = [each.head for each in queue.candidates if each.standing is Standing.QUEUED]
        if left:
            self.broken("finishes", f"still queued are {left}: {queue.blocked or 'nobody knows why'}")
        there = world.content(world.target)
        for each in queue.candidates:
            if each.standing is Standing.LANDED and there.count(each.head) != 1:
                words = f"{each.head} has landed, and is there {there.count(each.head)} times"
                self.broken("it lands once", words)
