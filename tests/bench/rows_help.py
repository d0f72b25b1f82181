"""How soon the help is there, as people type it."""

import os
from collections.abc import Sequence

from tests.bench import limits
from tests.bench.bench import Bench
from tests.bench.measure import Spent, median, whole_process
from tests.bench.ours import RALPHCTL
from tests.bench.table import Line, Verdict

TURNS = 20
GOAL_S = 0.100
HOW = (
    f"`ralphctl --help` as a whole process, its output thrown away, {TURNS} times: median, and the fastest."
    " The machine: a bare Python that does nothing, in turn."
)


def help_page(bench: Bench) -> Sequence[Line]:
    """The page of all commands."""
    environment = {**os.environ, "HOME": str(bench.place())}
    ours: list[Spent] = []
    least: list[float] = []
    whole_process([str(RALPHCTL), "--help"], environment)  # warms the caches
    for _ in range(TURNS):
        ours.append(_typed(environment))
        least.append(limits.interpreter_s())
    walls_s = [each.wall_s for each in ours]
    cpu_s = median([each.cpu_s for each in ours])
    return [
        Line(
            "ralphctl --help", f"<= {GOAL_S * 1e3:.0f} ms",
            f"{median(walls_s) * 1e3:.0f} ms, at best {min(walls_s) * 1e3:.0f}; CPU {cpu_s * 1e3:.0f} ms",
            Verdict.of(median(walls_s) <= GOAL_S), HOW, limit=f"{median(least) * 1e3:.0f} ms",
        )
    ]  # fmt: skip


def _typed(environment: dict[str, str]) -> Spent:
    spent = whole_process([str(RALPHCTL), "--help"], environment)
    if spent.code:
        raise RuntimeError(f"ralphctl --help ended with {spent.code}")
    return spent
