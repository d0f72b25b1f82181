"""A figure over sizes, and the exponent with which it grows."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

FLAT, LINEAR = 0.0, 1.0
MARGIN: Final = 0.1
"""By how much an exponent may be above its goal before the goal counts as missed."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one size, once per repetition. The least of them counts: others ran between."""

    size: float
    values: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def noise(self) -> float:
        """The middle repetition's share above the least one."""
        return statistics.median(self.values) / self.least - 1 if self.least else 0.0


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure in ``unit`` over sizes. ``goal`` is the exponent that it may have: FLAT or LINEAR."""

    what: str
    unit: str
    goal: float
    points: tuple[Point, ...]

    @property
    def exponent(self) -> float:
        """The slope of the logarithms over all sizes."""
        return slope(self.points)[0]

    @property
    def error(self) -> float:
        """The standard error of that slope; 0 for two sizes."""
        return slope(self.points)[1]

    @property
    def last_exponent(self) -> float:
        """The slope between the two largest sizes, where a fixed cost hides the least."""
        return slope(self.points[-2:])[0]

    @property
    def noise(self) -> float:
        return max((point.noise for point in self.points), default=0.0)

    @property
    def is_met(self) -> bool:
        """Whether it grows no faster than its goal, by more than the noise at its end explains."""
        before, last = self.points[-2:]
        noise = math.log1p(max(before.noise, last.noise)) / math.log(last.size / before.size)
        return self.last_exponent <= self.goal + MARGIN + noise


@dataclass(frozen=True, slots=True)
class Series:
    """All curves over one kind of size. ``how`` says what was done; ``load`` is the machine's."""

    name: str
    title: str
    size: str
    how: str
    curves: tuple[Curve, ...]
    at: str = ""
    load: float = 0.0
    took_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> "Series":
        """Return what ``as_json`` returned."""
        curves = (
            each | {"points": tuple(Point(one["size"], tuple(one["values"])) for one in each["points"])}
            for each in found["curves"]
        )
        return cls(**{**found, "curves": tuple(Curve(**each) for each in curves)})


def slope(points: Sequence[Point]) -> tuple[float, float]:
    """Return the slope of the logarithms by least squares, and its standard error."""
    known = [(math.log(point.size), math.log(point.least)) for point in points if point.least > 0]
    if len(known) < 2:
        return 0.0, 0.0
    xs, ys = zip(*known, strict=True)
    fitted = statistics.linear_regression(xs, ys)
    if len(known) == 2:
        return fitted.slope, 0.0
    rest = sum((y - fitted.intercept - fitted.slope * x) ** 2 for x, y in known)
    middle = statistics.fmean(xs)
    spread = sum((x - middle) ** 2 for x in xs)
    return fitted.slope, math.sqrt(rest / (len(known) - 2) / spread)


class Table:
    """Collects values by figure and size."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, float], dict[float, list[float]]] = {}

    def add(self, what: str, unit: str, goal: float, size: float, *values: float) -> None:
        """Add repetitions of a figure at a size."""
        sizes = self._values.setdefault((what, unit, goal), {})
        sizes.setdefault(size, []).extend(values)

    def curves(self) -> tuple[Curve, ...]:
        """Return a curve for each figure, in the order in which they first came."""
        return tuple(
            Curve(*key, tuple(Point(size, tuple(values)) for size, values in sorted(sizes.items())))
            for key, sizes in self._values.items()
        )
