"""What became of a scene: no run is lost or started twice, no line is lost, each end is on record once."""

import json
import re
import signal
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.soak.cast import Member
from tests.upgrades.stage import Scene
from tests.whole.harness import Daemon

CODES = {"crash": 1, "tree": 3, "flood": 0}
LINE = re.compile(r"^(r\d{6}-[0-9a-f]{8}) (\d+)$", re.MULTILINE)


@dataclass(slots=True)
class Figures:
    """Counts of what was compared. ``problems`` has to be empty."""

    runs: int = 0
    ends: int = 0
    lines: int = 0
    commits: int = 0
    iterations: int = 0
    problems: list[str] = field(default_factory=list)


def figures_of(scene: Scene) -> Figures:
    """Compare the records of all ralphs, which are at rest. The daemon answers."""
    figures = Figures(problems=list(scene.problems))
    events = Counter((event["ralph"], event["type"], event["run_id"]) for event in scene.daemon.events())
    for member in scene.members:
        problems = [*_starts(scene.daemon, member, figures), *_ends(scene.daemon, member, events, figures)]
        problems += (
            _loop(scene.daemon, member, figures) if member.is_loop else _lines(scene.daemon, member, figures)
        )
        figures.problems += [f"{member.name}: {problem}" for problem in problems]
    log = "".join(path.read_text(errors="replace") for path in scene.daemon.state.glob("ralphd.log*"))
    if "Traceback" in log:
        figures.problems.append(f"the daemon's log: {log[max(0, log.index('Traceback') - 500) :][:3000]}")
    return figures


def _starts(daemon: Daemon, member: Member, figures: Figures) -> list[str]:
    starts = member.starts(daemon)
    twice = [run for run, count in Counter(run for _, run in starts).items() if count > 1]
    beside = [run for word, run in starts if word != "alone"]
    unknown = {run for _, run in starts} - {path.name for path in daemon.run_directories(member.name)}
    figures.runs += len(starts) or len(daemon.run_directories(member.name))
    kept = len(daemon.run_directories(member.name)) < 100
    return [
        *([f"started twice: {twice}"] if twice else []),
        *([f"beside another run: {beside}"] if beside else []),
        *([f"runs without a directory: {sorted(unknown)}"] if unknown and kept else []),
    ]


def _ends(
    daemon: Daemon, member: Member, events: Counter[tuple[str, str, str]], figures: Figures
) -> list[str]:
    """Compare ``exit.json``, the history and the events."""
    path = daemon.files(member.name) / "history.jsonl"
    entries = daemon.history(member.name) if path.exists() else []
    on_record = Counter(entry["run_id"] for entry in entries)
    figures.ends += len(entries)
    problems = [f"{run} is on record {count} times" for run, count in on_record.items() if count > 1]
    for entry in entries:
        told = events[member.name, "ralph.exited", entry["run_id"]]
        if told != 1:
            problems.append(f"{told} events report the end of {entry['run_id']}")
        code = CODES.get(str(member.habit[1]) if member.habit else "")
        was_stopped = entry is entries[-1] and entry["signal"] == signal.SIGTERM  # at rest, all are
        if code is not None and not was_stopped and (entry["code"], entry["signal"]) != (code, None):
            problems.append(f"{entry['run_id']} ended with {code}, but its record is {entry}")
    for run in daemon.run_directories(member.name):
        started = events[member.name, "ralph.started", run.name]
        if (run / "run.json").exists() and started != 1:
            problems.append(f"{started} events report the start of {run.name}")
        if (run / "exit.json").exists() and run.name not in on_record:
            problems.append(
                f"the end of {run.name} is not on record: {json.loads((run / 'exit.json').read_text())}"
            )
    return problems


def _lines(daemon: Daemon, member: Member, figures: Figures) -> list[str]:
    """Compare the numbered lines in the log with what each run has written."""
    text = daemon.ask("GET", f"/v1/ralphs/{member.name}/logs?tail=all&stream=stdout").decode()
    seen = defaultdict[str, list[int]](list)
    for run, number in LINE.findall(text):
        seen[run].append(int(number))
    problems = []
    for run, numbers in seen.items():
        figures.lines += len(numbers)
        if numbers != [*range(len(numbers))]:
            odd = next(at for at, number in enumerate(numbers) if at != number)
            problems.append(f"{run}: line {odd} is {numbers[odd]}")
    for path in daemon.run_directories(member.name):
        counter = member.record(daemon) / f"written.{path.name}"
        written = int(counter.read_text() or 0) if counter.exists() else 0
        is_over = (path / "exit.json").exists()
        if is_over and len(seen[path.name]) not in (written, written + 1):
            problems.append(
                f"{path.name}: {written} lines were written, {len(seen[path.name])} are in the log"
            )
    return problems


def _loop(daemon: Daemon, member: Member, figures: Figures) -> list[str]:
    """Compare the commits, the iterations on record, and the calls of the agent."""
    iterations = Counter(entry["key"] for entry in daemon.history(member.name, "iteration"))
    commits = [
        line for line in member.git(daemon, "log", "--reverse", "--format=%s").splitlines() if "work" in line
    ]
    numbers = Counter(line for line in commits if line.startswith("work "))
    calls = member.calls(daemon)
    figures.iterations += len(iterations)
    figures.commits += len(commits)
    return [
        *(f"iteration {key} is on record twice" for key, count in iterations.items() if count > 1),
        *(f"{count} commits are called {name!r}" for name, count in numbers.items() if count > 1),
        *([f"{calls.count('beside')} calls of its agent beside another one"] if "beside" in calls else []),
        *(
            [f"{len(calls)} calls made {len(numbers)} commits"]
            if not 0 <= len(calls) - len(numbers) <= 1
            else []
        ),
    ]
