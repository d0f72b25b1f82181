"""Where the time went: from stretches that may overlap to parts of a span that add up to it.

Where stretches overlap, the first use in the order of ``TIME_USES`` counts, so no moment counts twice. A
clock that was set back leaves stretches that end before they begin: these count for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from ralphctl.report.history import HistoryEntry, amount, failure_of, moment, text
from ralphctl.report.model import MICRO, REQUESTED_PAUSES, TIME_USES, WAITS, ReportedState, TimeShare
from ralphctl.report.strip import Span, clipped, pieces
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.overview import known_reason

EARLY_S: Final = 600.0
"""An opaque run that fails sooner than this was a failure; a run that fails later had worked first."""
LONGEST_RETRY_S: Final = 3600.0
"""No daemon waits longer than this after a failure; the rest of a longer gap was something else."""
BETWEEN_RUNS_S: Final = 60.0

Iteration: TypeAlias = tuple[str, int | None]
"""A run's id, or nothing, and the iteration: what an attempt and the verdict on it have in common."""
_Label: TypeAlias = tuple[int, str, str | None]
"""A rank, a use, and the reason of a wait. Where stretches overlap, the smallest rank counts."""
Stretch: TypeAlias = tuple[Moment, Moment, _Label, Iteration | None]
"""Begin, end, label, and the iteration whose commits may be reverted later.

A plain tuple: a long history has hundreds of thousands of them.
"""
_RANK: Final = {use: rank for rank, use in enumerate(TIME_USES)}


def _label(use: str, reason: str | None = None) -> _Label:
    return _RANK[use], use, reason if reason is None or reason in WAITS else "other"


def _background(use: str) -> _Label:
    """A label for the length of a run: anything else that is known about the same time counts first."""
    return len(_RANK) + _RANK[use], use, None


_HANG, _FAILURE, _WORK, _PERSON = map(_label, ("hang", "failure", "work", "person"))
_LOOP_WORK: Final = _background("work")
_UNDONE: Final = {_WORK: _label("undone"), _LOOP_WORK: _background("undone")}
"""What work becomes once its commits are reverted."""
# An agent that ended well with its task unfinished (agent_incomplete) has worked.
_ATTEMPT_LABELS: Final = {None: _WORK, "agent_incomplete": _WORK, "stall": _HANG, "timeout": _HANG}


@dataclass(slots=True)
class _UnfinishedRun:
    """What is known about a run before it ends. ``first`` is its first iteration without a beginning."""

    reports_attempts: bool = False
    last_at: Moment | None = None
    first: Stretch | None = None
    wait: Stretch | None = None

    def background(self, begin: Moment, end: Moment, opaque: str) -> list[Stretch]:
        """Return what its time counts as where nothing else is known; ``opaque`` if it reported nothing."""
        if self.reports_attempts:
            return [(begin, end, _background("between"), None)]
        if self.first is None:
            return [(begin, end, _background(opaque), None)]
        return [(begin, end, _LOOP_WORK, None), (begin, *self.first[1:])]


class Timeline:
    """Collects what history entries say about time. Each is passed once, in the order of the file."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._reverted: set[Iteration] = set()
        self._runs: dict[str, _UnfinishedRun] = defaultdict(_UnfinishedRun)
        self._ended: list[tuple[Moment, Moment, HistoryEntry]] = []
        self._escalated: set[str] = set()
        self._asked_for: set[str] = set()

    def attempt(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        run = self._runs[of[0]]
        begin = at - (amount(entry.get("duration_s")) or 0.0)
        self._end_wait(run, begin)
        run.reports_attempts, run.last_at = True, at
        self._stretches.append((begin, at, _ATTEMPT_LABELS.get(failure_of(entry), _FAILURE), of))

    def iteration(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        """Of a loop that reports no attempts, the whole time since the iteration before counts."""
        run = self._runs[of[0]]
        self._end_wait(run, at)
        if not run.reports_attempts:
            label = _background("failure") if entry.get("failed") is True else _LOOP_WORK
            if run.last_at is None:
                run.first = at, at, label, of
            else:
                self._stretches.append((run.last_at, at, label, of))
        run.last_at = at

    def wait(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        run = self._runs[of[0]]
        self._end_wait(run, at)
        if (until := moment(entry.get("until"))) is not None and until > at:
            run.wait = at, until, _label("wait", known_reason(text(entry.get("reason")))), None

    def wait_over(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._end_wait(self._runs[of[0]], at)

    def verdict(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        if reverted := entry.get("reverted"):
            made = entry.get("commits")
            if isinstance(reverted, list) and isinstance(made, list) and len(reverted) >= len(made):
                self._reverted.add(of)
        if isinstance(tests_s := entry.get("tests_s"), list) and tests_s:
            took_s = sum(amount(each) or 0.0 for each in tests_s)
            self._stretches.append((at - took_s, at, _label("tests"), None))

    def undo(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._reverted.discard(of)

    def request(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        if entry.get("action") == "start":
            self._asked_for.add(of[0])

    def escalation(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._escalated.add(of[0])

    def run(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        run = self._runs.pop(of[0], None) or _UnfinishedRun()
        began_at = moment(entry.get("started_at"))
        begin = at if began_at is None else began_at
        self._end_wait(run, at)
        has_failed_early = failure_of(entry) is not None and at - begin < EARLY_S
        self._stretches += run.background(begin, at, "failure" if has_failed_early else "work")
        silent_from = moment(entry.get("last_sign_at"))
        if entry.get("outcome") == "stalled" and silent_from is not None:
            self._stretches.append((max(silent_from, begin), at, _HANG, None))
        self._ended.append((begin, at, entry))

    def finish(self, current: ReportedState, now: Moment) -> dict[_Label, list[Span]]:
        """Return all stretches by label, with those of the live run and of the gaps between runs."""
        ended = sorted(self._ended, key=lambda each: each[1])
        for (_, end, entry), (begin, _, after) in pairwise(ended):
            self._gap(end, begin, entry, text(after.get("run_id")))
        if current.started_at is not None:
            run = self._runs.get(current.run_id) or _UnfinishedRun()
            self._end_wait(run, now)
            self._stretches += run.background(current.started_at, now, "work")
            if current.waits_for is None and run.last_at is not None:
                self._stretches.append((run.last_at, now, _LOOP_WORK, None))
            if ended:
                self._gap(ended[-1][1], current.started_at, ended[-1][2], current.run_id)
        elif ended and current.is_blocked:
            label = _PERSON if current.waits_for is None else _label("wait", current.waits_for)
            self._stretches.append((ended[-1][1], now, label, None))
        spans: dict[_Label, list[Span]] = defaultdict(list)
        for begin, end, label, of in self._stretches:
            kind = _UNDONE.get(label, label) if of in self._reverted else label
            spans[kind].append((round(begin * MICRO), round(end * MICRO)))
        return spans

    def _gap(self, begin: Moment, end: Moment, entry: HistoryEntry, run_after: str) -> None:
        """Add why nothing ran between two runs, of which ``entry`` is the end of the first."""
        outcome, reason = text(entry.get("outcome")), text(entry.get("reason"))
        label = None
        if outcome == "paused" and reason not in REQUESTED_PAUSES:
            resumes = reason in ("", "usage_limit", "rate_limit", "outage")
            label = _label("wait", reason or "paused") if resumes else _PERSON
        elif failure_of(entry) is not None:
            if text(entry.get("run_id")) in self._escalated or outcome in ("refused", "gave_up"):
                label = _PERSON
            else:
                label, end = _label("wait", "crash"), min(end, begin + LONGEST_RETRY_S)
        elif outcome == "done" and end - begin <= BETWEEN_RUNS_S and run_after not in self._asked_for:
            label = _label("wait", "iteration_pause")
        if label is not None:
            self._stretches.append((begin, end, label, None))

    def _end_wait(self, run: _UnfinishedRun, at: Moment) -> None:
        if run.wait is not None:
            begin, end, label, _ = run.wait
            self._stretches.append((begin, min(end, max(at, begin)), label, None))
            run.wait = None


def shares(stretches: Mapping[_Label, Iterable[Span]], since: Moment, until: Moment) -> tuple[TimeShare, ...]:
    """Return the parts of the span by use, longest first; unknown time is ``off``."""
    begin, end = round(since * MICRO), round(until * MICRO)
    spans = {label: clipped(each, begin, end) for label, each in stretches.items()}
    if begin < end:
        spans[_background("off")] = [(begin, end)]
    took: dict[int, int] = defaultdict(int)
    ranked = sorted(spans, key=lambda label: (label[0], label[2] or ""))
    for first, last, which in pieces([spans[label] for label in ranked]):
        took[which] += last - first
    totals: dict[tuple[str, str | None], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for which, label in enumerate(ranked):
        total, times = totals[label[1:]]
        totals[label[1:]] = total + took[which], times + len(spans[label])
    found = (TimeShare(use, reason, us, times) for (use, reason), (us, times) in totals.items() if us)
    return tuple(sorted(found, key=lambda share: (-share.us, _RANK[share.doing], share.reason or "")))
