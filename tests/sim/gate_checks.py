"""What must hold of the gate: what is kept stays, what is reverted was to blame, and each is judged once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ralphd.core.gate.verdict import Baseline, Verdict, VerdictKind
from tests.sim.account_checks import AccountChecks

if TYPE_CHECKING:
    from tests.sim.night import Night


class GateChecks(AccountChecks):
    """The verdicts so far, against the commits as they are."""

    def __init__(self, night: Night) -> None:
        super().__init__(night)
        self._failed: Counter[str] = Counter()
        self._kept: set[str] = set()
        self._reverted: set[str] = set()
        self._verdicts: dict[str, VerdictKind] = {}
        self._called_for = ""
        self._calls: str | None = None
        self.unticked: set[str] = set()

    def verdict_is_reached(self, verdict: Verdict, *, is_blind: bool) -> None:
        """A verdict, when all that it asked for is done. ``is_blind``: no mark of a run was ever seen."""
        repository = self._night.repository
        known = {each.sha: each for each in repository.commits}
        first = self._verdicts.setdefault(verdict.boundary_id, verdict.kind)
        if first is not verdict.kind:
            self.broken("judged once", f"{verdict.boundary_id} is {first}, and then {verdict.kind}")
        reverted = [known[sha] for sha in verdict.reverted if sha in known]
        is_blind = is_blind and not any(each.by_run for each in reverted)
        for each in reverted:
            if not (each.by_run or is_blind):
                self.broken("nobody else's work is reverted", f"{each.sha[:7]} is a person's")
        # One red run in a row is not believed, two surprises may be.
        is_sure = repository.surprised < 2
        broke = [each for each in reverted if each.breaks or each.hides]
        if verdict.kind is VerdictKind.REVERTED and not verdict.is_open and is_sure and not broke:
            self.broken("what is kept stays", f"reverted without a cause: {verdict.why}")
        if verdict.kind is VerdictKind.KEPT and verdict.tests and is_sure:
            self._is_green(verdict)
        if verdict.kind is VerdictKind.UNTESTED and not verdict.is_open and is_sure:
            on = repository.on()
            there = [sha for sha in verdict.commits if sha in known and sha not in self._reverted]
            if gone := [sha[:7] for sha in there if not on.get(sha, True)]:
                self.broken("what is kept stays", f"{gone} are reverted, untested: {verdict.why}")
        if verdict.kind is VerdictKind.KEPT:
            self._kept |= {sha for sha in verdict.commits if sha in known}
        self.all_kept_is_there()
        self._reverted |= {*verdict.reverted}  # what an open verdict left reverted is not touched again
        if verdict.reverted:
            tasks = {each.ticks for each in reverted if each.ticks}
            tasks |= set() if verdict.task is None else {verdict.task.id}
            self.unticked |= tasks
            for task in tasks:
                self._failed[task] += 1
        self._calls = verdict.why if verdict.calls or verdict.pauses else None
        if verdict.pauses:
            self._night.checks.person_has_to_look()

    def commits_are_restored(self, shas: list[str]) -> None:
        """A person wants them, whatever the tests say."""
        self._kept |= {*shas}
        self.all_kept_is_there()

    def _is_green(self, verdict: Verdict) -> None:
        repository, at = self._night.repository, self._night.disk.gate.judging
        shas = [each.sha for each in repository.commits]
        hides = [each for each in repository.breaking(old=True) if each.sha in verdict.commits and each.hides]
        is_watched = self._night.script.setting.protects == "revert" and at is not None
        if hides and is_watched and at is not None and at.baseline is Baseline.GREEN:
            self.broken("nothing red is kept", f"{hides[0].sha[:7]} hides what fails, and is kept")
        head = shas.index(at.head) if at is not None and at.head in shas else len(shas)
        red = [each for each in repository.breaking() if shas.index(each.sha) <= head]
        if red:
            self.broken("nothing red is kept", f"{verdict.why}, and {red[0].sha[:7]} breaks them")

    def all_kept_is_there(self) -> None:
        """No commit that was kept has gone, and none that no run has made."""
        on = self._night.repository.on()
        if gone := [sha[:7] for sha in self._kept if not on.get(sha)]:
            self.broken("what is kept stays", f"{gone} were kept, and are not in effect")

    def verdict_is_told(self) -> None:
        """The Regent has answered it."""
        self._called_for, self._calls = self._calls or "", None

    def is_call_of_verdict(self) -> bool:
        """Whether the verdict that is being told calls a person: not for the reason of the last one."""
        if self._calls is None:
            return False
        if self._calls == self._called_for:
            self.broken("a person is called once", f"again for a verdict: {self._calls}")
        return True
