"""One iteration, as the history has it, and what its agent printed.

Iteration N is the newest one with the number that ``verdicts`` shows; ``RUN:N`` names one of an earlier run.
A run that reports no iterations counts as one iteration.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ralphctl.format.humanize import View, last_exit
from ralphctl.format.log_text import RALPH, STAMPED_LATE
from ralphctl.offline import log
from ralphctl.report.history import amount, commits, moment, text, whole
from ralphctl.report.model import ReportSource
from ralphd.core import record
from ralphd.core.gate.verdict_views import verdicts
from ralphd.core.text import plain
from ralphd.core.time import rfc3339
from ralphd.errors import NotFound, UsageError
from ralphd.store.history import newest_first

_MOST: Final = 1000
_MOST_LOGGED: Final = 60
_WANTED: Final = re.compile(r"(?:r?0*(\d{1,9}(?:-[0-9a-f]{8})?):)?(\d{1,15})")


@dataclass(frozen=True, slots=True)
class IterationFacts:
    """What is known of an iteration: its end with its attempts, as its run reported them, and its verdict.

    ``commits``, oldest first, are those that were judged, else those that the run reported. ``began_at`` is
    the start of its first attempt, else the end of the one before it in the same run, else the run's start.
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
            attempts = end.get("attempts") or ()
            same = (each for each in judged if text(each.get("run_id")) == run_id and _fits(each, end))
            verdict = next(same, {})
            shas = commits(verdict.get("commits"))[::-1] or commits(end.get("commits"))
            return IterationFacts(run_id, number, end, verdict, _began(end, before), shas, attempts)
    what = f"no iteration {wanted} in its history" if wanted else "not finished an iteration"
    raise NotFound(f"{source.name} has {what}", mend=f"ralphctl report {source.name}")


def _began(end: View, before: View) -> float | None:
    for first in (end.get("attempts") or ())[:1]:
        if (at := moment(first.get("at"))) is not None:
            return at - (amount(first.get("duration_s")) or 0.0)
    is_same_run = before.get("run_id") == end.get("run_id")
    return moment(before.get("at") if is_same_run else end.get("started_at"))


def _fits(verdict: View, end: View) -> bool:
    number = end.get("iteration", verdict.get("iteration"))
    is_later = number is not None or text(verdict.get("at")) >= text(end.get("at"))
    return is_later and verdict.get("iteration") == number


def printed(source: ReportSource, facts: IterationFacts) -> list[str]:
    """Return the last lines of the iteration in its log, without those of ralphd and of the built-in loop."""
    since, until, runs = facts.began_at, moment(facts.end.get("at")), source.path("runs")
    words = {"tail": str(_MOST_LOGGED)} | ({"since": rfc3339(since)} if since else {})
    late = {"until": rfc3339(until + STAMPED_LATE.total_seconds())} if until else {}
    own = [each for each in log.of_runs(runs, words | late) if each.get("stream") in ("stdout", "stderr")]
    lines = (line for each in own for line in each["text"].split("\n"))
    return [plain(line) for line in lines if not line.startswith(RALPH)]
