"""One iteration, as the history has it, and what its agent printed.

Iteration N is the newest one with the number that ``verdicts`` shows; ``RUN:N`` names one of an earlier run.
A run that reports no iterations counts as one iteration.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ralphctl.format.humanize import View, last_exit
from ralphctl.format.log_text import RALPH, STAMPED_LATE
from ralphctl.offline import log
from ralphctl.report.history import amount, commits, moment, text, whole
from ralphctl.report.model import ReportSource
from ralphd.core import record
from ralphd.core.gate.verdict_views import verdicts
from ralphd.core.text import plain
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass
from ralphd.errors import NotFound, UsageError
from ralphd.store.history import newest_first

MOST: Final = 1000
_MOST_LOGGED: Final = 60
_MOST_LOGGED_OF_MANY: Final = 40
_LIMIT_S: Final = 5.0
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
    judged: list[View] = [*verdicts(newest_first(path), MOST)]
    past: list[dict[str, Any]] = [*record.iterations(newest_first(path), MOST if wanted else 2)]
    if not past and not wanted:
        runs = (entry for entry in newest_first(path) if entry.get("kind") == "run")
        past = [{**entry, "summary": last_exit(entry), "commits": None} for entry in runs][:1]
    for i, end in enumerate([*past, *(judged if wanted else ())]):
        run_id, number = text(end.get("run_id")), whole(end.get("iteration"))
        is_run = match[1] in (None, run_id[1:].lstrip("0"), run_id[1:7].lstrip("0"))
        if not wanted or (is_run and number == int(match[2])):
            return _facts(end, past[i + 1] if i + 1 < len(past) else {}, judged)
    what = f"no iteration {wanted} in its history" if wanted else "not finished an iteration"
    raise NotFound(f"{source.name} has {what}", mend=f"ralphctl report {source.name}")


def within(source: ReportSource, since: Moment, until: Moment, most: int = MOST) -> list[IterationFacts]:
    """Return the iterations of a span, newest first, of at most the last ``most``."""
    path, judged = source.path("history.jsonl"), defaultdict[tuple[str, int | None], list[View]](list)
    for each in verdicts(newest_first(path), most):
        judged[text(each.get("run_id")), whole(each.get("iteration"))].append(each)
    past = [*record.iterations(newest_first(path), most + 1)]
    return [
        _facts(end, before, judged[text(end.get("run_id")), whole(end.get("iteration"))])
        for end, before in zip(past[:most], [*past[1:], {}], strict=False)
        for attempt in (end.get("attempts") or [{}])[-1:]
        if since <= (moment(end.get("at") or attempt.get("at")) or 0.0) < until
    ]


def _facts(end: View, before: View, judged: Iterable[View]) -> IterationFacts:
    run_id = text(end.get("run_id"))
    verdict = next((each for each in judged if text(each.get("run_id")) == run_id and _fits(each, end)), {})
    shas = commits(verdict.get("commits"))[::-1] or commits(end.get("commits"))
    number, attempts = whole(end.get("iteration")), end.get("attempts") or ()
    return IterationFacts(run_id, number, end, verdict, _began(end, before), shas, attempts)


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
    return _without_ralph(line for each in own for line in each["text"].split("\n"))


def printed_by(source: ReportSource, newest_first: Sequence[IterationFacts]) -> Iterator[list[str]]:
    """Yield a little less for each of these iterations, reading the log once."""
    spans = []
    for facts in reversed(newest_first):
        until = moment(facts.end.get("at")) or moment((facts.attempts or ({},))[-1].get("at")) or 0.0
        began = until if facts.began_at is None else facts.began_at
        spans.append((began, until + STAMPED_LATE.total_seconds()))
    lines = log.last_lines(source.path("runs"), spans, most=_MOST_LOGGED_OF_MANY, limit_s=_LIMIT_S)
    yield from map(_without_ralph, reversed(lines))


def _without_ralph(lines: Iterable[str]) -> list[str]:
    return [plain(line) for line in lines if not line.startswith(RALPH)]
