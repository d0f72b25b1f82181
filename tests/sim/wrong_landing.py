"""The landing queue, decided wrong on purpose."""

from dataclasses import replace

from ralphd.core.gate.verdict import Result
from ralphd.core.landing import step as landing_core
from ralphd.core.landing.model import (
    BatchTested,
    Doing,
    LandingFact,
    LandingPolicy,
    LandingQueue,
    MergeDone,
    Standing,
    TargetMoved,
    TargetTaken,
)
from ralphd.core.time import Moment
from tests.sim.cores import LandingStep, Steps


def _when(kind: type[LandingFact], instead: LandingFact) -> LandingStep:
    """A queue that takes one fact for another."""

    def step(queue: LandingQueue, fact: LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
        return landing_core.step(queue, instead if isinstance(fact, kind) else fact, policy, at)

    return step


def _refuses_all(queue: LandingQueue, fact: LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """Of a batch that is red together, none is tried alone."""
    after = landing_core.step(queue, fact, policy, at)
    for id in after.suspects:
        refused = replace(
            after.candidate(id), standing=Standing.REFUSED, why="red", is_told=False, ended_at=at
        )
        after = after.with_candidate(refused)
    return replace(after, suspects=())


def _skips_tests(queue: LandingQueue, fact: LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """What was merged moves the target at once."""
    after = landing_core.step(queue, fact, policy, at)
    if isinstance(fact, MergeDone) and after.batch is not None and after.batch.merged:
        return replace(after, batch=replace(after.batch, doing=Doing.MOVING))
    return after


def _blames_on_red(queue: LandingQueue, fact: LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """It never looks whether the target was red before."""
    if isinstance(fact, BatchTested) and queue.batch is not None:
        queue = replace(queue, green=queue.batch.base)
    return landing_core.step(queue, fact, policy, at)


def _forgets(queue: LandingQueue, fact: LandingFact, policy: LandingPolicy, at: Moment) -> LandingQueue:
    """What conflicts is neither refused nor tried again."""
    after = landing_core.step(queue, fact, policy, at)
    if isinstance(fact, MergeDone) and fact.conflicts:
        return replace(after, blocked="there was a conflict")
    return after


LANDING = {
    "landing takes red tests for green ones": (
        Steps(lands=_when(BatchTested, BatchTested(Result.GREEN))),
        ("nothing red lands",),
    ),
    "landing does not test": (Steps(lands=_skips_tests), ("nothing red lands",)),
    "landing believes that it moved the target": (
        Steps(lands=_when(TargetTaken, TargetMoved())),
        ("no outcome is invented",),
    ),
    "landing refuses a red batch as a whole": (Steps(lands=_refuses_all), ("no task is lost",)),
    "landing blames a branch for a red target": (Steps(lands=_blames_on_red), ("no task is lost",)),
    "landing stops at a conflict": (Steps(lands=_forgets), ("goes on", "finishes")),
}
"""Each with the rules by which a night may say so."""
