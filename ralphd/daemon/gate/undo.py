"""``ralphctl undo``: put back what the gate has reverted."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ralphd import diagnostics
from ralphd.core.gate import range as ranges
from ralphd.core.gate.git_repair import repair_to_undo
from ralphd.core.gate.range import GateState
from ralphd.core.gate.verdict import Baseline, CarriedOut, JudgedCommit, Position, label_of, short
from ralphd.core.gate.verdict_views import ToUndo, to_undo
from ralphd.core.supervision.events import CommitsRestored
from ralphd.core.supervision.model import HAS_A_RUN, RunId, Starting, Supervision
from ralphd.dataclass import dataclass
from ralphd.errors import NotUndone, WrongState
from ralphd.git.rewrite.move_branch import Done
from ralphd.git.rewrite.reapply import take_back, undone_ref

if TYPE_CHECKING:
    from ralphd.daemon.gate.git_effects import GitEffects
    from ralphd.daemon.gate.worker import GateMemory
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What is back: ``commits`` as they were, ``made`` the commits that restore them; both newest first."""

    fact: CommitsRestored
    commits: tuple[JudgedCommit, ...]
    made: tuple[JudgedCommit, ...]
    head: str | None
    unjudged: tuple[JudgedCommit, ...] = ()
    """Of an iteration that did not end: no verdict is said of them any more."""

    def shown(self) -> dict[str, Any]:
        return {
            "iteration": self.fact.number,
            "task": self.fact.task,
            "commits": [_shown(each) for each in self.commits],
            "made": [_shown(each) for each in self.made],
            "unjudged": [_shown(each) for each in self.unjudged],
            "head": self.head,
            "repair": self.fact.repair,
            "ref": self.fact.ref or None,
        }


def _shown(commit: JudgedCommit) -> dict[str, str]:
    return {"sha": commit.sha, "subject": commit.subject}


def refuse_while_it_works(name: str, current: Supervision, *, is_busy: bool) -> None:
    """Raise WrongState unless nothing runs that the branch could move under."""
    if isinstance(current.state, HAS_A_RUN):
        mend = f"ralphctl pause {name}    (waits for the end of its iteration; then undo, then resume)"
        why = "an agent may be working on the files that would change"
        raise WrongState(f"cannot undo while {name} is running", why=why, mend=mend)
    if is_busy or isinstance(current.state, Starting):
        why = "their result would not be about the changed files"
        mend = f"ralphctl pause {name}    (or wait for their end)"
        raise WrongState(f"cannot undo while the tests of {name} run", why=why, mend=mend)


class Undo:
    """Carries it out, for a ralph of which nothing runs and nothing starts before it is done."""

    def __init__(
        self, account: "RalphRecord", services: "Services", hands: "GitEffects", memory: "GateMemory"
    ) -> None:
        self._account, self._services = account, services
        self._hands, self._memory = hands, memory

    async def undo(self, iteration: int | None, repair: int | None) -> UndoResult:
        """Put back what was reverted of an iteration, else what was reverted last; or undo a repair.

        Raise NotUndone; then everything is as it was. A daemon that dies in the middle loses nothing: asked
        again, git knows what is back already.
        """
        wanted = await asyncio.to_thread(self._wanted, iteration, repair)
        before, state = await asyncio.to_thread(self._hands.position), self._memory.state
        unjudged = await self._unjudged(state, before)
        # First this: a branch that was moved, and tests that are still held for green, would blame the next.
        if fault := await self._memory.save(replace(state, baseline=Baseline.UNKNOWN)):
            await self._memory.save(state)
            raise self._refusal(wanted, fault)
        diagnostics.reach("undo.noted")
        label = label_of(self._account.definition.name, wanted.run_id, wanted.boundary_id)
        done, commits = await asyncio.to_thread(self._carry_out, wanted, label)
        if not isinstance(done, CarriedOut):
            await self._memory.save(state)
            raise self._refusal(wanted, done.why, await asyncio.to_thread(self._hands.by_hand, label))
        diagnostics.reach("undo.done")
        is_revert = done.head and wanted.repair is None
        made = (await asyncio.to_thread(self._hands.boundary, before)).commits if is_revert else ()
        head = await asyncio.to_thread(self._hands.position)
        await self._memory.save(ranges.after_undo(self._memory.state, wanted.boundary_id, head))
        fact = CommitsRestored(
            at=self._services.clock.now(),
            id=wanted.id,
            run_id=RunId(wanted.run_id),
            number=wanted.iteration,
            task=None if wanted.task is None else dict(wanted.task),
            commits=wanted.commits,
            made=short(tuple(each.sha for each in made)),
            repair=wanted.repair,
            ref="" if wanted.repair is None else undone_ref(label),
        )
        back = commits or tuple(each for each in made if each.sha.startswith(wanted.commits))
        return UndoResult(fact, back, made, done.head, unjudged)

    async def _unjudged(self, state: GateState, at: Position) -> tuple[JudgedCommit, ...]:
        """Return the commits without a verdict: below what is put back, they cannot be judged any more."""
        if not state.is_open or state.before is None or state.left != at:
            return ()
        return (await asyncio.to_thread(self._hands.boundary, state.before)).commits

    def _carry_out(self, wanted: ToUndo, label: str) -> tuple[Done, tuple[JudgedCommit, ...]]:
        if wanted.repair is None:
            return self._hands.undo(label)
        return take_back(self._account.definition.directory, label, wanted.branch), ()

    def _wanted(self, iteration: int | None, repair: int | None) -> ToUndo:
        entries, name = self._account.history.backwards(), self._account.definition.name
        found = to_undo(entries, iteration) if repair is None else repair_to_undo(entries, repair)
        if isinstance(found, str):
            what = "re-applied" if repair is None else "undone"
            raise NotUndone(f"nothing of {name} can be {what}", why=found, mend=f"ralphctl verdicts {name}")
        return found

    def _refusal(self, wanted: ToUndo, why: str, by_hand: str = "") -> NotUndone:
        which = wanted.iteration or "" if wanted.repair is None else f"--repair {wanted.repair}"
        again = f"ralphctl undo {self._account.definition.name} {which}".rstrip()
        mend = f"{again}    (when that is resolved)"
        if wanted.repair is not None:
            what, (why, _, by_hand) = f"undo repair {wanted.repair}", why.partition("; by hand: ")
            mend = by_hand or mend
        else:
            what = f"re-apply {f'iteration {which}' if which else 'the reverted commits'}"
            if by_hand and why.startswith("conflict"):
                mend = f"{by_hand}    (resolve the conflict, then git revert --continue)"
        return NotUndone(f"cannot {what}", why=f"{why}; nothing was changed", mend=mend)
