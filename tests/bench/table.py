"""A row as it is told: goal, ours, each peer's with the ratio to it, what the machine can do, the verdict."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NOT_INSTALLED = "not installed"
NONE = "-"
OURS = "ralphd"


class Verdict(enum.Enum):
    """Whether a goal was met; NONE where there was nothing to judge, or to compare with."""

    MET = "met"
    MISSED = "MISSED"
    NONE = "-"

    @classmethod
    def of(cls, met: bool) -> "Verdict":
        """MET or MISSED."""
        return cls.MET if met else cls.MISSED


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    ``theirs`` by the name of the peer; ``ratios`` are ours by theirs; ``limit`` is what this machine can do,
    measured in the same run. ``how``: what was done, in a sentence or two for people. ``gates``: when it is
    missed, the bench fails. ``relative``: for a goal that was set on a faster machine, ours as a part of what
    was measured beside it, then and now.
    """

    what: str
    goal: str
    ours: str
    verdict: Verdict
    how: str
    theirs: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    limit: str = NONE
    gates: bool = False
    relative: str = ""

    @property
    def fails(self) -> bool:
        """Whether the bench fails for this line."""
        return self.gates and self.verdict is Verdict.MISSED

    @property
    def mark(self) -> str:
        """† where it gates."""
        return "†" if self.gates else ""

    def of_peer(self, name: str) -> str:
        """What a peer reached, with the ratio to it where there is one."""
        text = self.theirs.get(name, NONE)
        return f"{text} ({_short(self.ratios[name])})" if name in self.ratios else text


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2f}"


def broken(name: str, fault: BaseException, *, gates: bool) -> Line:
    """The line of a row that could not be measured."""
    text = f"not measured: {type(fault).__name__}: {fault}"
    return Line(name, NONE, text[:120], Verdict.MISSED, "", gates=gates)


def cells(lines: Sequence[Line], peers: Sequence[str]) -> list[tuple[str, ...]]:
    """The table with its head, cell by cell."""
    head = ("", "what", "goal", OURS, *peers, "machine", "")
    return [
        head,
        *(
            (
                line.mark, line.what, line.goal, line.ours, *map(line.of_peer, peers), line.limit,
                line.verdict.value,
            )
            for line in lines
        ),
    ]  # fmt: skip


def text(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """The table for a terminal."""
    rows = cells(lines, peers)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in ruled
    )
