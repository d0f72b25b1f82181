"""What every check of a night begins with: what a broken promise is, and the clocks of the night."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from tests.sim.night import Night

SLACK_S: Final = 1.0
LOOKED_AT_EVERY_S: Final = 30.0


class Died(Exception):
    """A process was killed in the middle of what it did."""


class Broken(AssertionError):
    """A promise was broken; ``rule`` says which in a word or two."""

    def __init__(self, rule: str, words: str) -> None:
        super().__init__(f"{rule}: {words}")
        self.rule = rule


class Checking:
    """Holds what is seen against what is so in this world; nothing here asks the core what is right."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._clock_was_set = False
        self._resets: list[float] = []

    def reset_is_named(self, until: float) -> None:
        """A service has said until when its limit lasts."""
        self._resets.append(until)

    def broken(self, rule: str, words: str) -> NoReturn:
        """A promise was broken."""
        raise Broken(rule, words)

    @property
    def _now_s(self) -> float:
        return self._night.clock.awake_s

    @property
    def _wall(self) -> float:
        return self._night.clock.wall()


def crowded(moments: deque[float], most: int, within_s: float) -> bool:
    """Whether more than so many of these lie within that time before the last one."""
    while moments and moments[0] < moments[-1] - within_s:
        moments.popleft()
    return len(moments) > most
