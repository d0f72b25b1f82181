"""How long a report takes: over a record that has grown for months, and of a night as HTML."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ralphd.core.time import parse_rfc3339
from ralphd.process.log.records import stored_time
from tests.bench import limits
from tests.bench.bench import Bench
from tests.bench.measure import median, whole_process
from tests.bench.ours import RALPHCTL
from tests.bench.table import Line, Verdict
from tests.written_nights import Entry, night, write

ITERATIONS = 31_000
NIGHT, PACE_S, LINES = 200, 216.0, 60
ROUNDS = 5
GOAL_S = 1.0
HOW = (
    f"A record of {ITERATIONS:,} iterations, 100,000 entries in 37 MB: `ralphctl report` as a whole"
    f" process, median of {ROUNDS}, of the last night and of all. The goal is for each. The machine: a bare"
    " Python that does nothing."
)
HOW_HTML = (
    f"A night of {NIGHT} iterations, each with a commit of {LINES} lines and {LINES} lines of output:"
    f" `ralphctl report --html` as a whole process, median of {ROUNDS}, with its CPU in brackets."
)


def html(bench: Bench) -> Sequence[Line]:
    """The report of a night as HTML."""
    place, now = bench.place(), time.time()
    began_at = now - NIGHT * PACE_S - 600
    shas = {f"{number:07x}": sha for number, sha in enumerate(_commits(place / "project"), 1)}
    home = place / "state" / "ralphs" / "demo"
    write(home, place / "project", _judged(began_at, shas), run_id="r000001-0000beef")
    run = home / "runs" / "r000001-0000beef"
    run.mkdir(parents=True)
    text = "stdout F what the agent prints of its work, about as long as a sentence is, or two\n"
    moments = (began_at + PACE_S * number + second for number in range(NIGHT) for second in range(LINES))
    (run / "log.000001").write_text("".join(f"{stored_time(at)} {text}" for at in moments))
    environment = {"RALPHD_STATE_DIR": str(place / "state"), "HOME": str(place), "PATH": "/usr/bin:/bin"}
    command = [str(RALPHCTL), "report", "demo", "--html"]
    page = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout
    size = f"{len(page) / 1e6:.1f} MB, {page.count(b'<summary>iteration')} iterations"
    spent = [whole_process(command, environment) for _ in range(ROUNDS)]
    wall_s, cpu_s = (
        median(values) for values in zip(*((each.wall_s, each.cpu_s) for each in spent), strict=True)
    )
    return [
        Line(
            f"the report of a night as HTML ({size})", "<= 1 s", f"{wall_s:.2f} s ({cpu_s:.2f} s)",
            Verdict.of(wall_s <= GOAL_S), HOW_HTML,
        )
    ]  # fmt: skip


def _commits(place: Path) -> Sequence[str]:
    """Make a repository with a commit for each iteration; return them, oldest first."""
    stream = ["reset refs/heads/main\n"]
    for number in range(1, NIGHT + 1):
        text = "".join(f"line {line} of change {number}: some = code(argument)\n" for line in range(LINES))
        stream += (
            f"commit refs/heads/main\nmark :{number}\ncommitter A <a@b> {number} +0000\ndata 4\nwork\n",
            f"from :{number - 1}\n" if number > 1 else "",
            f"M 644 inline part-{number % 20}\ndata {len(text)}\n{text}\n",
        )
    git = ("git", "-C", str(place))
    place.mkdir()
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True, timeout=60)
    subprocess.run([*git, "fast-import", "--quiet"], input="".join(stream).encode(), check=True, timeout=60)
    listed = subprocess.run(
        [*git, "rev-list", "--reverse", "main"], check=True, capture_output=True, text=True, timeout=60
    )
    return listed.stdout.split()


def _judged(began_at: float, shas: Mapping[str, str]) -> Iterator[Entry]:
    """The entries of the night, with commits that are there."""
    for each in night(NIGHT, began_at):
        known = {
            key: [shas[sha] for sha in each[key]]
            for key in ("commits", "reverted")
            if isinstance(each.get(key), list)
        }
        yield each | known


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
