"""The strip of a night: a ralph's state in each of a number of equal cells. Every face draws the same ones.

In a cell the worst state wins, in the order of ``WORST_FIRST``. A revert and an alert always count: they last
only a moment, and are what people look for. A state that lasts counts from a fifth of the cell's time in
which anything ran: a test of seconds after each iteration would hide the work of all night.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ralphctl.format.output import RED, paint
from ralphctl.format.state_text import COLOURS
from ralphd.core.time import Moment
from ralphd.overview import LIMITS

CELLS: Final = {
    "working": "█", "waiting": "▒", "limited": "░", "testing": "T", "reverted": "R", "failed": "✗",
    "stopped": " ",
}  # fmt: skip
"""What is drawn for each state, in the order of the legend."""
DRAWN: Final = tuple(state for state in CELLS if state != "stopped")
"""The states that are more than an empty cell."""
PLAIN_CELLS: Final = CELLS | {"working": "#", "waiting": "-", "limited": ".", "failed": "x"}
"""The same for a terminal without these characters."""
WORST_FIRST: Final = ("failed", "reverted", "limited", "waiting", "testing", "working", "stopped")
MOST_CELLS: Final = 64
"""So many fit on 80 columns with a name. Every face that has the room draws as many."""
_STATES: Final = {
    "tests": "testing", "hang": "failed", "failure": "failed", "off": "stopped", "person": "stopped",
}  # fmt: skip
_LASTING: Final = 5
"""How many states last: failed, limited, waiting, testing, working. One of them has a fifth of any time."""
_SHADES: Final = COLOURS | {"reverted": RED}
_MICRO: Final = 1_000_000

Span = tuple[int, int]
"""Begin and end in microseconds."""


def state_of(use: str, reason: str | None) -> str:
    """Return the state that a stretch of time is drawn as; ``use`` and ``reason`` are those of the report."""
    if use == "wait":
        return "limited" if reason in LIMITS else "waiting"
    return _STATES.get(use, "working")


def cells(
    stretches: Mapping[tuple[int, str, str | None], Iterable[Span]],
    marks: Iterable[tuple[Moment, str]],
    since: Moment,
    until: Moment,
    number: int = MOST_CELLS,
) -> list[str]:
    """Return the states of ``number`` cells that share the time from ``since`` to ``until`` equally.

    ``stretches`` has the spans of each label (rank, use, reason). Where spans overlap, the smallest rank
    counts; a span that ends before it begins is ignored. ``marks`` are moments.
    """
    if until <= since:
        return ["stopped"] * number
    begin, last = round(since * _MICRO), round(until * _MICRO)
    end = max(last, begin + number)
    edges = [begin + (end - begin) * i // number for i in range(number + 1)]
    spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for (rank, use, reason), each in stretches.items():
        spans[rank, state_of(use, reason)] += clipped(each, begin, last)
    ranked = sorted(spans)
    took: list[dict[str, int]] = [defaultdict(int) for _ in range(number)]
    i = 0
    for from_, to, which in pieces([spans[key] for key in ranked]):
        state = ranked[which][1]
        while to > edges[i + 1]:
            took[i][state] += max(edges[i + 1] - from_, 0)
            from_, i = max(from_, edges[i + 1]), i + 1
        took[i][state] += to - from_
    shown = [{_worst_lasting(each)} for each in took]
    for at, state in marks:
        if since <= at <= until:
            shown[min(bisect_right(edges, round(at * _MICRO)), number) - 1].add(state)
    return [min(states, key=WORST_FIRST.index) for states in shown]


def _worst_lasting(took: Mapping[str, int]) -> str:
    least = sum(took.values()) - took.get("stopped", 0)
    counting = (state for state in WORST_FIRST if took.get(state, 0) * _LASTING >= least > 0)
    return next(counting, "stopped")


def clipped(spans: Iterable[Span], begin: int, end: int) -> list[Span]:
    """Return what of the spans lies between ``begin`` and ``end``."""
    return [(first if first > begin else begin, last if last < end else end)
            for first, last in spans if first < last and first < end and last > begin]  # fmt: skip


def pieces(ranked: Sequence[list[Span]]) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and the index of a list, without overlaps: the first with a span takes the time."""
    # An edge is one number, which sorts faster than a tuple: the time, then one bit for the list whose span
    # begins or ends there.
    width = len(ranked)
    edges = [at << width | 1 << rank for rank, spans in enumerate(ranked) for at in _edges(spans)]
    active, before, mask = 0, 0, (1 << width) - 1
    for edge in sorted(edges):
        at = edge >> width
        if active and at > before:
            yield before, at, (active & -active).bit_length() - 1
        active, before = active ^ edge & mask, at


def _edges(spans: list[Span]) -> list[int]:
    """Return where the union of the spans begins and ends, in turn."""
    edges: list[int] = []
    for begin, end in sorted(spans):
        if not edges or begin > edges[-1]:
            edges += begin, end
        elif end > edges[-1]:
            edges[-1] = end
    return edges


def drawn(cells: Iterable[str], *, encoding: str = "utf-8", colour: bool = False) -> str:
    """Return the cells as one line, in ASCII unless the encoding is UTF-8."""
    look = CELLS if encoding.lower().startswith("utf") else PLAIN_CELLS
    shades = [(look[state], _SHADES.get(state, "") if colour else "") for state in cells]
    return "".join(paint(cell, shade, on=bool(shade)) for cell, shade in shades)


_LEVELS: Final = "▁▂▃▄▅▆▇"


def sparkline(efforts: Iterable[Sequence[int]], number: int) -> str:
    """Return the last ``number`` iterations, each as its share of the most: by cost, else by commits."""
    last = list(efforts)[-number:]
    values = [cost for cost, _ in last]
    values = values if any(values) else [commits for _, commits in last]
    most = max(values, default=0) or 1
    highest = len(_LEVELS) - 1
    return "".join(_LEVELS[(each * highest + most - 1) // most] if each else "·" for each in values)


def legend(*, encoding: str = "utf-8") -> str:
    """Return what the cells mean; a cell and its word are joined by a no-break space."""
    return "  ".join(f"{drawn([state], encoding=encoding)}\xa0{state}" for state in DRAWN)
