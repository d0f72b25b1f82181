"""The moments that a Regent is to be told of: the end of a wait, by the wall clock, and that of a grace."""

import asyncio
from collections.abc import Callable
from typing import Final

from ralphd.core.events import Event, GraceOver, Woke
from ralphd.core.model import Moment, RunId
from ralphd.daemon.services import Services

LONGEST_SLEEP_S: Final = 30.0
"""Waits follow the wall clock, which can be set, so it is looked at this often (H5)."""


class Timers:
    """One of each kind; a later one takes the place of an earlier one."""

    def __init__(self, services: Services, tell: Callable[[Event], None]) -> None:
        self._services = services
        self._tell = tell
        self._wait: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None

    def wake_at(self, at: Moment) -> None:
        """Tell ``Woke`` at this moment, or earlier, to look at the clock."""
        if self._wait is not None:
            self._wait.cancel()
        delay_s = min(max(at - self._services.clock.now(), 0.0), LONGEST_SLEEP_S)
        self._wait = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def kill_after(self, run_id: RunId, delay_s: float) -> None:
        """Tell ``GraceOver`` when so much time has passed."""
        if self._grace is not None:
            self._grace.cancel()
        self._grace = asyncio.get_running_loop().call_later(delay_s, self._grace_over, run_id)

    def cancel(self) -> None:
        """Tell nothing any more."""
        for timer in (self._wait, self._grace):
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        self._wait = None
        if not self._services.stopping.is_set():
            self._tell(Woke(self._services.clock.now()))

    def _grace_over(self, run_id: RunId) -> None:
        self._tell(GraceOver(self._services.clock.now(), run_id))
