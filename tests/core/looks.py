"""Looks at a run that is made up: no clock and no process, only what each look would have seen."""

from collections.abc import Iterator
from dataclasses import dataclass

from ralphd.core.stall_detector import (
    Glance,
    SilenceLimits,
    StallFinding,
    Watch,
    Window,
    begun,
    finding,
    is_watched,
    looked,
    next_look_s,
    warned,
)
from ralphd.core.time import Moment
from tests.core.supervision.scenes import NOW

STRONG = Window(elapsed_s=1.0, processes=1, changed_files=1, changed_file="notes.md")
WEAK = Window(elapsed_s=1.0, processes=1, cpu_s=1.0, switches_per_s=500.0)
NOTHING = Window(elapsed_s=1.0, processes=1, io_bytes=0, received_bytes=0, cpu_s=0.0, switches_per_s=0.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found, ``at_s`` seconds after the first."""

    at_s: float
    found: StallFinding
    watch: Watch


@dataclass(frozen=True, slots=True)
class Made:
    """A run that is made up: when it prints, shows evidence, and reports, by its age in seconds.

    ``late_s`` is how much later than planned each look comes. ``wall_jumps`` is what is added to the wall
    clock from an age on.
    """

    prints: tuple[float, ...] = ()
    strong: tuple[float, ...] = ()
    weak: bool = False
    beats: tuple[float, ...] = ()
    reports: bool = False
    late_s: float = 0.0
    wall_jumps: tuple[tuple[float, float], ...] = ()


def looks(run: Made, limits: SilenceLimits, *, until_s: float, watch: Watch | None = None) -> Iterator[Seen]:
    """Look at ``run`` as often as patience asks for, as the daemon does, until it is to be ended."""
    seen = watch or begun(NOW, NOW, None, 0.0)
    at_s, looked_at_s = 0.0, None
    while at_s < until_s:
        planned_s = next_look_s(seen, limits)
        since_s, at_s = at_s, at_s + min(planned_s + run.late_s, until_s)
        window = None
        if is_watched(seen, limits):
            window = _window(run, looked_at_s, at_s)
            looked_at_s = at_s
        seen = looked(seen, _glance(run, since_s, at_s, planned_s, window), limits)
        if not is_watched(seen, limits):
            looked_at_s = None
        found = finding(seen, limits)
        if found is StallFinding.WARN:
            seen = warned(seen)
            looked_at_s = at_s if looked_at_s is None else looked_at_s
        yield Seen(at_s, found, seen)
        if found in (StallFinding.STALL, StallFinding.TOO_LONG):
            return


def ends(run: Made, limits: SilenceLimits, *, until_s: float, watch: Watch | None = None) -> list[Seen]:
    """The looks that found it to be ended: one at most."""
    over = (StallFinding.STALL, StallFinding.TOO_LONG)
    return [seen for seen in looks(run, limits, until_s=until_s, watch=watch) if seen.found in over]


def warnings(run: Made, limits: SilenceLimits, *, until_s: float) -> list[float]:
    """When it was warned of."""
    return [seen.at_s for seen in looks(run, limits, until_s=until_s) if seen.found is StallFinding.WARN]


def every(period_s: float, until_s: float) -> tuple[float, ...]:
    """The moments of something that comes again and again."""
    return tuple(period_s * number for number in range(1, int(until_s / period_s) + 2))


def wall(run: Made, at_s: float) -> Moment:
    """What the clock on the wall tells."""
    return NOW + at_s + sum(jump for since_s, jump in run.wall_jumps if at_s >= since_s)


def _glance(run: Made, since_s: float, at_s: float, planned_s: float, window: Window | None) -> Glance:
    printed = [moment for moment in run.prints if moment <= at_s]
    return Glance(
        now=wall(run, at_s),
        elapsed_s=at_s - since_s,
        planned_s=planned_s,
        last_output_at=wall(run, printed[-1]) if printed else None,
        heard=any(since_s < beat <= at_s for beat in run.beats),
        window=window,
    )


def _window(run: Made, since_s: float | None, at_s: float) -> Window:
    if since_s is None or since_s == at_s:
        return Window(processes=1)
    evidence = any(since_s < moment <= at_s for moment in run.strong)
    elapsed_s = at_s - since_s
    return Window(
        elapsed_s=elapsed_s,
        processes=1,
        changed_files=int(evidence),
        cpu_s=elapsed_s if run.weak else 0.0,
        switches_per_s=0.0,
    )
