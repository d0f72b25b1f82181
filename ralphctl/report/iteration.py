"""One iteration, as the history has it, and what its agent printed.

Iteration N is the newest one with the number that ``verdicts`` shows; ``RUN:N`` names one of an earlier run.
A run that reports no iterations counts as one iteration.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ralphctl.format.humanize import View, last_exit
from ralphctl.report.history import commits, moment, text, whole
from ralphctl.report.model import ReportSource
from ralphd.core import record
from ralphd.core.failures import agent_events
from ralphd.core.gate.verdict_views import verdicts
from ralphd.core.text import plain
from ralphd.errors import NotFound, UsageError
from ralphd.store.files import open_plain
from ralphd.store.history import newest_first

_MOST: Final = 1000
_KEPT_BYTES: Final = 256 << 10
_MOST_LOGGED: Final = 200
_WANTED: Final = re.compile(r"(?:r?0*(\d{1,9}(?:-[0-9a-f]{8})?):)?(\d{1,15})")


@dataclass(frozen=True, slots=True)
class IterationFacts:
    """What is known of an iteration: its end with its attempts, as its run reported them, and its verdict.

    ``commits``, oldest first, are those that were judged, else those that the run reported. ``began_at`` is
    the end of the one before it in the same run.
    """

    run_id: str
    number: int | None
    end: View
    verdict: View
    began_at: float | None
    commits: Sequence[str]
    attempts: Sequence[View]


def find(source: ReportSource, wanted: str | None) -> IterationFacts:
    """Return the iteration ``N`` or ``RUN:N``, else the newest one. Raise UsageError, NotFound."""
    match, path = _WANTED.fullmatch(wanted or "0"), source.path("history.jsonl")
    if match is None:
        why = "an iteration is N, as in verdicts, or RUN:N, such as 12:3"
        raise UsageError(f"{wanted!r:.80} does not name an iteration", why=why, mend="ralphctl verdicts")
    judged: list[View] = [*verdicts(newest_first(path), _MOST)]
    past: list[dict[str, Any]] = [*record.iterations(newest_first(path), _MOST if wanted else 2)]
    if not past and not wanted:
        runs = (entry for entry in newest_first(path) if entry.get("kind") == "run")
        past = [{**entry, "summary": last_exit(entry), "commits": None} for entry in runs][:1]
    for i, end in enumerate([*past, *(judged if wanted else ())]):
        run_id, number = text(end.get("run_id")), whole(end.get("iteration"))
        is_run = match[1] in (None, run_id[1:].lstrip("0"), run_id[1:7].lstrip("0"))
        if not wanted or (is_run and number == int(match[2])):
            before = past[i + 1] if i + 1 < len(past) else {}
            began_at = moment(before.get("at")) if before.get("run_id") == run_id else None
            same = (each for each in judged if text(each.get("run_id")) == run_id and _fits(each, end))
            verdict = next(same, {})
            shas = commits(verdict.get("commits"))[::-1] or commits(end.get("commits"))
            return IterationFacts(run_id, number, end, verdict, began_at, shas, end.get("attempts") or ())
    what = f"no iteration {wanted} in its history" if wanted else "not finished an iteration"
    raise NotFound(f"{source.name} has {what}", mend=f"ralphctl report {source.name}")


def _fits(verdict: View, end: View) -> bool:
    number = end.get("iteration", verdict.get("iteration"))
    is_later = number is not None or text(verdict.get("at")) >= text(end.get("at"))
    return is_later and verdict.get("iteration") == number


def printed(source: ReportSource, facts: IterationFacts) -> list[str]:
    """Return what the last attempt's agent wrote, tool uses included; else the log of the iteration."""
    runs = (source.home or Path(source.directory) / ".ralph") / "runs"
    for attempt in reversed(facts.attempts):
        directory = f"{facts.number or 0:05d}-{whole(attempt.get('attempt')) or 0:02d}*"
        kept = (runs / facts.run_id / "attempts").glob(f"{directory}/stdout")
        files = sorted(kept, key=lambda file: file.stat().st_mtime)
        if lines := [line for file in files for line in _written(file, text(attempt.get("agent")))]:
            return lines
    from ralphd.process.log.log import RalphLog
    from ralphd.process.log.records import LogQuery, LogRecord

    since = facts.began_at or moment(facts.end.get("started_at"))
    found = RalphLog(runs).read(LogQuery(tail=_MOST_LOGGED, since=since, until=moment(facts.end.get("at"))))
    return [plain(each.text.decode(errors="replace")) for each in found
            if isinstance(each, LogRecord) and each.stream != "regent"]  # fmt: skip


def _written(file: Path, agent: str) -> Iterator[str]:
    from ralphd.agents.known import agent_of, known_as
    from ralphd.agents.parsers import TextParser
    from ralphd.config.specs import AgentSpec

    with open_plain(file) as opened:
        lines = opened.read(_KEPT_BYTES).decode(errors="replace").splitlines()
    known = known_as(agent)
    parser = agent_of(known, AgentSpec()).parser() if known else TextParser()
    for event in chain.from_iterable(map(parser.line, lines)):
        said = agent_events.AgentText(event.text) if isinstance(event, agent_events.Warned) else event
        yield from agent_events.shown_lines(said)
