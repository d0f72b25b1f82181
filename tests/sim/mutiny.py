"""What a run does to its supervision, as the daemon meets it: at the door, in reports, and at a boundary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ralphd.core.gate.verdict import Verdict, VerdictKind
from ralphd.core.gate.weakened import Weakened
from ralphd.core.supervision.door import Caller, requested
from ralphd.core.supervision.events import (
    Event,
    HistoryRewritten,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
    VerdictReached,
)
from ralphd.core.supervision.model import LastWord, RunId
from ralphd.core.supervision.reports import Report, Reported, WaitingUntil
from ralphd.core.time import Moment
from tests.sim.checking import Died
from tests.sim.faults import What

if TYPE_CHECKING:
    from tests.sim.daemon_hands import DaemonHands
    from tests.sim.night import Night

MUTINIES: Final = (
    What.ASKS_TO_STOP,
    What.MEDDLES,
    What.FORGES,
    What.REWRITES,
    What.DESTROYS,
    What.WEAKENS,
)
_ROUTES: Final[Mapping[str, Callable[[Moment], Event]]] = {
    "stop": lambda at: StopRequested(at, now=True),
    "pause": PauseRequested,
    "restart": RestartRequested,
    "skip-wait": SkipWaitRequested,
    "start": StartRequested,
    "resume": ResumeRequested,
}
FORGED_WAIT_S: Final = 1800.0


class Mutiny:
    """The run that lives, against its daemon."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._count = 0

    def happens(self, what: What) -> None:
        """Now, if a run lives and a daemon knows it."""
        daemon, loop = self._night.daemon, self._night.loop
        if daemon is None or not daemon.is_started or loop is None or daemon.living != loop.run.run_id:
            return
        now, run_id = self._night.clock.wall(), loop.run.run_id
        self._count += 1
        match what:
            case What.ASKS_TO_STOP:
                self._asks(daemon, run_id, now, ("stop",))
            case What.MEDDLES:
                self._asks(daemon, run_id, now, tuple(_ROUTES))
            case What.FORGES:
                self._forges(daemon, run_id, now)
            case What.WEAKENS:
                verdict = Verdict(VerdictKind.REVERTED, "fewer tests", weakened=Weakened.VANISHED,
                    boundary_id=f"mutiny{self._count}", run_id=run_id, commits=("b",), reverted=("b",),
                    at=now)  # fmt: skip
                daemon.handle(VerdictReached(verdict))
            case _:
                self._rewrites(daemon, run_id, now, "the objects are gone" if what is What.DESTROYS else "")

    def _asks(self, daemon: DaemonHands, run_id: RunId, now: Moment, words: tuple[str, ...]) -> None:
        """By the socket, as anybody may."""
        for word in words:
            asked, caller = requested("POST", f"/v1/ralphs/me/{word}"), Caller(1, 0, run_id, "me")
            if asked is None or self._night.steps.door(asked, caller, ()):
                self._night.checks.run_is_obeyed(word)
                daemon.handle(_ROUTES[word](now))

    def _forges(self, daemon: DaemonHands, run_id: RunId, now: Moment) -> None:
        """A run may report for itself, whichever of its processes does."""
        reports: tuple[Report, ...] = (
            LastWord(0, "complete"),
            WaitingUntil(now + FORGED_WAIT_S, "forged"),
        )
        for number, report in enumerate(reports):
            id_ = f"forged{self._count}-{number}"
            daemon.handle(Reported(now, run_id, id_, id_, report))

    def _rewrites(self, daemon: DaemonHands, run_id: RunId, now: Moment, why: str) -> None:
        boundary = f"mutiny{self._count}"
        if why:
            self._night.checks.person_has_to_look()
        try:
            daemon.handle(HistoryRewritten(now, run_id, boundary, "main", ("a",), ref="refs/a", why=why))
        except Died:  # the next daemon finds the loss again, at another boundary
            self._night.checks.call_may_come_again()
            raise
