"""The rows as people read them: goal, ours, supervisord's, the ratio, and whether the goal was met."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

NOT_INSTALLED = "not installed"
NONE = "-"


class Verdict(enum.Enum):
    """Whether a goal was met; NONE where there was nothing to compare with."""

    MET = "met"
    MISSED = "MISSED"
    NONE = "-"

    @classmethod
    def of(cls, met: bool) -> "Verdict":
        """MET or MISSED."""
        return cls.MET if met else cls.MISSED


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. ``gates``: when it is missed, the bench fails."""

    what: str
    goal: str
    ours: str
    theirs: str
    ratio: str
    verdict: Verdict
    gates: bool = False

    @property
    def fails(self) -> bool:
        """Whether the bench fails for this line."""
        return self.gates and self.verdict is Verdict.MISSED


def ratio(ours: float, theirs: float | None) -> str:
    """Ours by theirs, as text."""
    return NONE if not theirs else f"{ours / theirs:.2f}"


def broken(name: str, fault: BaseException, *, gates: bool) -> Line:
    """The line of a row that could not be measured."""
    text = f"not measured: {type(fault).__name__}: {fault}"
    return Line(name, "", text[:90], NONE, NONE, Verdict.MISSED, gates)


HEADS = ("", "what", "goal", "ours", "supervisord", "ratio", "")


def text(lines: Sequence[Line]) -> str:
    """The table."""
    rows = [HEADS, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in ruled
    )


def _cells(line: Line) -> tuple[str, ...]:
    mark = "†" if line.gates else ""
    return (mark, line.what, line.goal, line.ours, line.theirs, line.ratio, line.verdict.value)
