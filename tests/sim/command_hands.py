"""A command of the user's own in place of the built-in loop: it reports nothing, and only its end tells.

It works through the list like any ``loop.sh``; in iteration mode one run is one iteration. What a SIGTERM
does to it differs from night to night.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ralphd.core.loop.model import Loop
from ralphd.core.supervision.events import Committed
from ralphd.core.supervision.model import Mode
from tests.sim.faults import Fault, What
from tests.sim.loop_hands import LoopHands
from tests.sim.mail import Mail
from tests.sim.world import Due, RunRecord

if TYPE_CHECKING:
    from tests.sim.night import Night

SIGTERM: Final = 15
SEEN_AFTER_S: Final = 5.0
LIMITS: Final = (What.USAGE_LIMIT, What.RATE_LIMIT)
CRASHES: Final = (What.CRASH, What.CRASH_AFTER_TICK, What.CONTEXT, What.UNKNOWN, What.TRANSIENT)


class CommandHands(LoopHands):
    """The command's process of one run."""

    def __init__(self, night: Night, run: RunRecord) -> None:
        self._night, self.run = night, run
        self.mail = Mail(night, run.run_id)
        self.by, self.loop, self.attempt = "", Loop(), None
        self.is_hung = False
        self._is_stubborn = night.script.seed % 4 == 0
        self._dues: list[Due] = []
        night.checks.loop_reads_the_list(knows=False)
        self._soon(0.1, self._begins_pass)

    def _soon(self, delay_s: float, act: Callable[[], None]) -> None:
        self._dues.append(self._after(delay_s, act))

    def clock_jumped(self) -> None:
        """It sleeps by a clock that cannot be set."""

    def look_at_accounts(self) -> None:
        """It has none."""

    # what it does

    def _begins_pass(self) -> None:
        night = self._night
        night.list.is_empty = False
        trouble = night.services.of("claude", night.clock.true())
        fault = night.waiting.popleft() if night.waiting else None
        if trouble is not None:
            self._soon(2.0, lambda: self._exits(75 if trouble.what in LIMITS else 1))
        elif fault is not None:
            night.tell("the night", f"{fault.what} (the command)")
            self._soon(5.0, lambda: self._befallen(fault))
        else:
            takes_s = 60.0 + 1440.0 * night.noise() ** 2
            self._soon(takes_s, lambda: self._ends_pass(ticks=True))

    def _befallen(self, fault: Fault) -> None:
        match fault.what:
            case What.HANG | What.BUSY_WAIT:
                self.is_hung = True
                self.run.last_output_at = self._night.clock.wall()
                if self._night.daemon is not None:
                    self._night.daemon.look_at_run()
            case What.SLOW | What.SILENCE:
                self._soon(2400.0, lambda: self._ends_pass(ticks=True))
            case What.PROMISE:
                self._exits(0)
            case What.RATE_LIMIT:
                self._exits(75)
            case what if what in CRASHES:
                self._exits(1)
            case _:
                self._ends_pass(ticks=False)

    def _ends_pass(self, *, ticks: bool) -> None:
        night, is_iteration = self._night, self._night.policy.mode is Mode.ITERATION
        if ticks:
            task = next(iter(night.list.open), "")
            night.commits += 1
            night.tick(task, "the command")
            self._is_seen_to_commit()
            night.loop_may_die("after a commit")
        if is_iteration or night.is_work_done:
            self._exits(0)
        else:
            self._soon(1.0, self._begins_pass)

    def _is_seen_to_commit(self) -> None:
        """The daemon looks every few seconds."""

        def seen() -> None:
            daemon = self._night.daemon
            if daemon is not None and daemon.living == self.run.run_id and self.run.lives:
                daemon.tell(Committed(self._night.clock.wall(), self.run.run_id, 1))

        self._night.agenda.after(SEEN_AFTER_S, seen)

    def _exits(self, code: int) -> None:
        self._stop()
        self._night.run_exits(self.run, code=code)

    def _stop(self) -> None:
        for due in self._dues:
            due.call_off()

    # signals

    def asked_to_pause(self) -> None:
        """It has announced no signals: nobody sends it one."""
        self._night.checks.broken("no working agent is killed", "SIGUSR1 ends a command")

    def asked_to_skip(self) -> None:
        """The same."""
        self._night.checks.broken("no working agent is killed", "SIGUSR2 ends a command")

    def asked_to_end(self) -> None:
        """SIGTERM: it ends soon, or does not care."""
        if self.is_stuck or self._is_stubborn:
            return
        self._stop()
        self._soon(2.0 * self._night.noise(), self._ends_by_signal)

    def _ends_by_signal(self) -> None:
        self._night.run_exits(self.run, signal=SIGTERM)
