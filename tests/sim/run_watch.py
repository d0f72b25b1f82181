"""The Regent's watch over a loop that beats no more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ralphd.core import stall_detector as patience
from ralphd.core.stall_detector import Glance, SilenceLimits, Window
from ralphd.core.supervision.events import Overran
from ralphd.core.supervision.model import Overdue
from tests.sim.world import Due, RunRecord

if TYPE_CHECKING:
    from tests.sim.daemon_hands import DaemonHands
    from tests.sim.night import Night

LIMITS: Final = SilenceLimits()


class RunWatch:
    """The real watch over a loop that beats no more; made up is what is seen of it, which is nothing."""

    def __init__(self, night: Night, daemon: DaemonHands, run: RunRecord) -> None:
        self._night, self._daemon, self._run = night, daemon, run
        now, began_at = night.clock.wall(), run.born_at or night.clock.wall()
        age_s = max(now - began_at, 0.0)
        self._watch = patience.begun(now, began_at, run.last_output_at, age_s)
        self._looked_s, self._window_s = night.clock.awake_s, night.clock.awake_s
        self._due: Due | None = None
        self._plan()

    def stop(self) -> None:
        """Nobody looks any more."""
        if self._due is not None:
            self._due.call_off()

    def _plan(self) -> None:
        said = self._daemon.supervision.said
        self._watch = replace(self._watch, reports=said.beats)
        rest_s = patience.next_look_s(self._watch, LIMITS)
        self._due = self._night.agenda.after(rest_s, lambda: self._look(rest_s))

    def _look(self, planned_s: float) -> None:
        clock, said = self._night.clock, self._daemon.supervision.said
        now, wait = clock.wall(), said.wait
        window = None
        if patience.is_watched(self._watch, LIMITS):
            window = Window(elapsed_s=clock.awake_s - self._window_s, processes=1)
            self._window_s = clock.awake_s
        glance = Glance(
            now=now,
            elapsed_s=clock.awake_s - self._looked_s,
            planned_s=planned_s,
            last_output_at=self._run.last_output_at,
            excused=wait is not None and now < wait.until,
            since_excuse_s=0.0 if wait is None else now - wait.until,
            window=window,
        )
        self._looked_s = clock.awake_s
        self._watch = patience.looked(self._watch, glance, LIMITS)
        if patience.finding(self._watch, LIMITS) is patience.StallFinding.STALL:
            self._night.checks.run_is_overdue(self._run)
            self._due = None
            self._daemon.tell(Overran(now, self._run.run_id, Overdue.STALL, "Ralph hung"))
        else:
            self._plan()
