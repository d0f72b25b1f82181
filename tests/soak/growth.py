"""How fast a figure grows, and whether it may: a fit over each process's own life, after a warm-up.

A daemon or a shim that is killed begins anew with little memory, so the points of each life have a level of
their own, and all of them have one slope.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

SURE = 2.0
"""So many standard errors the slope has to be above what is allowed."""
FEWEST_POINTS = 8

Point: TypeAlias = tuple[Hashable, float, float]
"""A life, a time in seconds, a value."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A slope per hour with its standard error, the mean of the values, and the hours that were fitted."""

    per_hour: float
    error: float
    level: float
    hours: float

    def exceeds(self, most: float, share: float) -> bool:
        """Whether it has surely grown by more than ``most``, and more than this share of its level."""
        grown = (self.per_hour - SURE * self.error) * self.hours
        return grown > max(most, share * abs(self.level))


def fitted(points: Iterable[Point]) -> Growth | None:
    """Return the common slope of all lives with enough points; None if there is none."""
    lives = defaultdict[Hashable, list[tuple[float, float]]](list)
    for life, at_s, value in points:
        lives[life].append((at_s, value))
    long = [life for life in lives.values() if len(life) >= FEWEST_POINTS and life[-1][0] > life[0][0]]
    if not long:
        return None
    centred = [pair for life in long for pair in _centred(life)]
    square = sum(at * at for at, _ in centred)
    slope = sum(at * value for at, value in centred) / square
    rest = sum((value - slope * at) ** 2 for at, value in centred)
    freedom = max(1, len(centred) - len(long) - 1)
    values = [value for life in long for _, value in life]
    return Growth(
        per_hour=3600 * slope,
        error=3600 * math.sqrt(rest / freedom / square),
        level=sum(values) / len(values),
        hours=max(life[-1][0] - life[0][0] for life in long) / 3600,
    )


def _centred(life: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    middle = sum(at for at, _ in life) / len(life)
    mean = sum(value for _, value in life) / len(life)
    return [(at - middle, value - mean) for at, value in life]
