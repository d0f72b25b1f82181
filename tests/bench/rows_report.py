"""How long a report takes over a record that has grown for months."""

import time
from collections.abc import Mapping, Sequence

from ralphd.core.time import parse_rfc3339
from tests.bench import limits
from tests.bench.bench import Bench
from tests.bench.measure import median, whole_process
from tests.bench.ours import RALPHCTL
from tests.bench.table import Line, Verdict
from tests.written_nights import night, write

ITERATIONS = 31_000
ROUNDS = 5
GOAL_S = 1.0
HOW = (
    f"A record of {ITERATIONS:,} iterations, 100,000 entries in 37 MB: `ralphctl report` as a whole"
    f" process, median of {ROUNDS}, of the last night and of all. The goal is for each. The machine: a bare"
    " Python that does nothing."
)


def reports(bench: Bench) -> Sequence[Line]:
    """The report of a night, and that of months."""
    place = bench.place()
    now, state = time.time(), place / "state"
    length_s = _length_s()
    write(
        state / "ralphs" / "demo", place, night(ITERATIONS, now - 600 - length_s), run_id="r000001-0000beef"
    )
    environment = {"RALPHD_STATE_DIR": str(state), "HOME": str(place), "PATH": "/usr/bin:/bin"}
    last = _typed(environment)
    every = _typed(environment, "--since", "2000-01-01")
    least = median([limits.interpreter_s() for _ in range(ROUNDS)])
    return [
        Line(
            "the report of a night, of a record of 100,000 entries", "<= 1 s", f"{last:.2f} s",
            Verdict.of(last <= GOAL_S), HOW, limit=f"{least:.2f} s",
        ),
        Line(
            "the same of all of it", "<= 1 s", f"{every:.2f} s",
            Verdict.of(every <= GOAL_S), HOW, limit=f"{least:.2f} s",
        ),
    ]  # fmt: skip


def _length_s() -> float:
    """How long that many iterations take."""
    *_, last = night(ITERATIONS, 0.0)
    return parse_rfc3339(str(last["at"]))


def _typed(environment: Mapping[str, str], *words: str) -> float:
    command = [str(RALPHCTL), "report", "demo", *words]
    return median([whole_process(command, dict(environment)).wall_s for _ in range(ROUNDS)])
