"""Where the time went: stretches that may overlap, to parts of a span that add up to it.

Of what overlaps the first in the order of ``Doing`` counts, so no moment is told twice. By a clock that was
set back some stretches end before they begin: these count for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from ralphd.core.night_entries import (
    ENDED_WELL,
    FAILED_ENDS,
    HANGS,
    Entry,
    Of,
    moment,
    seconds,
    text,
    wait_reason,
)
from ralphd.core.night_model import MICRO, Doing, Share
from ralphd.core.time import Moment

EARLY_S: Final = 600.0
"""A run that reports nothing and fails sooner was a failure; later, it had worked (C3)."""
LONGEST_RETRY_S: Final = 3600.0
"""No wait after a failure is longer; what is, was no daemon's wait."""
BETWEEN_RUNS_S: Final = 60.0
MOST_REASONS: Final = 8
_OTHER: Final = "other"
_ENDS_BY_ITSELF: Final = frozenset({"usage_limit", "rate_limit", "outage"})
_ASKED: Final = frozenset({"requested", "user_requested"})

Label: TypeAlias = tuple[int, Doing, str | None]
"""What was done, and of a wait, what for. The number: of what overlaps the smallest counts."""
Stretch: TypeAlias = tuple[Moment, Moment, Label, Of | None]
"""From one moment to another, what was done. A plain tuple, since hundreds of thousands are made.

Last, the run and the iteration of which the commits may be reverted later.
"""
_Span: TypeAlias = tuple[int, int]
_ORDER: Final = {doing: rank for rank, doing in enumerate(Doing)}


def _label(doing: Doing, reason: str | None = None) -> Label:
    return _ORDER[doing], doing, reason


def _behind(doing: Doing) -> Label:
    """What is as long as a run: whatever else is known of that time counts before it."""
    return len(_ORDER) + _ORDER[doing], doing, None


_TESTS: Final = _label(Doing.TESTS)
_HANG: Final = _label(Doing.HANG)
_FAILURE: Final = _label(Doing.FAILURE)
_WORK: Final = _label(Doing.WORK)
_PERSON: Final = _label(Doing.PERSON)
_UNDONE: Final = {_WORK: _label(Doing.UNDONE), _behind(Doing.WORK): _behind(Doing.UNDONE)}
"""What work turns out to have been, once its commits are reverted."""


@dataclass(frozen=True, slots=True)
class Living:
    """What is so now: the run that lives, if one does, and what nothing that runs is waiting for."""

    run_id: str | None = None
    started_at: Moment | None = None
    waits_for: str | None = None
    needs_person: bool = False


@dataclass(slots=True)
class _Run:
    """What is known of a run before its end is."""

    tells_attempts: bool = False
    last_at: Moment | None = None
    first: Stretch | None = None
    wait: Stretch | None = None

    def whole(self, begin: Moment, end: Moment, opaque: Doing) -> list[Stretch]:
        """What lies behind all else that is known of a run; of an opaque one it is all there is."""
        if self.tells_attempts:
            return [(begin, end, _behind(Doing.BETWEEN), None)]
        if self.first is None:
            return [(begin, end, _behind(opaque), None)]
        return [(begin, end, _behind(Doing.WORK), None), (begin, *self.first[1:])]


@dataclass(slots=True)
class Timeline:
    """Takes entries in the order of the record, and keeps what they tell of time."""

    stretches: list[Stretch] = field(default_factory=list)
    reverted: set[Of] = field(default_factory=set)
    _runs: dict[str, _Run] = field(default_factory=lambda: defaultdict(_Run))
    _lives: list[tuple[Moment, Moment, Entry]] = field(default_factory=list)
    _called: set[str] = field(default_factory=set)

    def attempt(self, entry: Entry, at: Moment, of: Of) -> None:
        """An agent has ended."""
        run = self._runs[of[0]]
        begin = at - seconds(entry.get("duration_s"))
        if run.wait is not None:
            self._end_wait(run, begin)
        run.tells_attempts, run.last_at = True, at
        kind = entry.get("failure_kind")
        if kind is None or kind == ENDED_WELL:
            label = _FAILURE if entry.get("outcome") == "lost" else _WORK
        else:
            label = _HANG if text(kind) in HANGS else _FAILURE
        self.stretches.append((begin, at, label, of))

    def iteration(self, entry: Entry, at: Moment, of: Of) -> None:
        """A boundary: of a loop that tells no attempts, all since the one before was one."""
        run = self._runs[of[0]]
        if run.wait is not None:
            self._end_wait(run, at)
        if not run.tells_attempts:
            label = _behind(Doing.FAILURE if entry.get("failed") is True else Doing.WORK)
            if run.last_at is None:
                run.first = at, at, label, of
            else:
                self.stretches.append((run.last_at, at, label, of))
        run.last_at = at

    def wait(self, entry: Entry, at: Moment, of: Of) -> None:
        """It waits from now on."""
        run = self._runs[of[0]]
        self._end_wait(run, at)
        if (until := moment(entry.get("until"))) is not None and until > at:
            run.wait = at, until, _label(Doing.WAIT, wait_reason(entry.get("reason"))), None

    def wait_over(self, entry: Entry, at: Moment, of: Of) -> None:
        """It waits no longer."""
        self._end_wait(self._runs[of[0]], at)

    def verdict(self, entry: Entry, at: Moment, of: Of) -> None:
        """The tests have run, and maybe all commits of the iteration are gone."""
        if gone := entry.get("reverted"):
            made = entry.get("commits")
            if isinstance(gone, list) and isinstance(made, list) and len(gone) >= len(made):
                self.reverted.add(of)
        took = entry.get("tests_s")
        if isinstance(took, list) and took:
            self.stretches.append((at - sum(map(seconds, took)), at, _TESTS, None))

    def undo(self, entry: Entry, at: Moment, of: Of) -> None:
        """They are back."""
        self.reverted.discard(of)

    def called(self, entry: Entry, at: Moment, of: Of) -> None:
        """A person was called."""
        self._called.add(of[0])

    def ended(self, entry: Entry, at: Moment, of: Of) -> None:
        """A run is over."""
        run = self._runs.pop(of[0], None) or _Run()
        begin = moment(entry.get("started_at"))
        begin = at if begin is None else begin
        self._end_wait(run, at)
        outcome = text(entry.get("outcome"))
        failed_early = outcome in FAILED_ENDS and at - begin < EARLY_S
        opaque = Doing.FAILURE if failed_early else Doing.WORK
        self.stretches += run.whole(begin, at, opaque)
        if outcome == "stalled" and (sign := moment(entry.get("last_sign_at"))) is not None:
            self.stretches.append((max(sign, begin), at, _HANG, None))
        self._lives.append((begin, at, entry))

    def finish(self, living: Living, now: Moment) -> list[Stretch]:
        """All stretches, with the run that lives and what lies between the runs."""
        lives = sorted(self._lives, key=lambda life: life[1])
        if living.run_id is not None and living.started_at is not None:
            self._lives_on(living, living.started_at, now)
        for (_, end, entry), (begin, _, _) in pairwise(lives):
            self._gap(end, begin, entry)
        if lives and living.started_at is not None and living.run_id is not None:
            self._gap(lives[-1][1], living.started_at, lives[-1][2])
        elif lives:
            self._rest(lives[-1][1], now, living)
        if not self.reverted:
            return self.stretches
        return [
            (begin, end, _UNDONE.get(label, label) if of in self.reverted else label, of)
            for begin, end, label, of in self.stretches
        ]

    def _lives_on(self, living: Living, started_at: Moment, now: Moment) -> None:
        run = self._runs.get(living.run_id or "") or _Run()
        self._end_wait(run, now)
        self.stretches += run.whole(started_at, now, Doing.WORK)
        if living.waits_for is None and run.last_at is not None:
            self.stretches.append((run.last_at, now, _behind(Doing.WORK), None))

    def _gap(self, begin: Moment, end: Moment, entry: Entry) -> None:
        """Nothing ran between two runs, of which ``entry`` tells the end of the first."""
        outcome, reason = text(entry.get("outcome")), text(entry.get("reason"))
        if outcome == "paused" and reason not in _ASKED:
            by_itself = not reason or reason in _ENDS_BY_ITSELF
            self._add(begin, end, _label(Doing.WAIT, reason or "paused") if by_itself else _PERSON)
        elif outcome in FAILED_ENDS:
            if text(entry.get("run_id")) in self._called or outcome in ("refused", "gave_up"):
                self._add(begin, end, _PERSON)
            else:
                self._add(begin, min(end, begin + LONGEST_RETRY_S), _label(Doing.WAIT, "crash"))
        elif outcome == "done" and end - begin <= BETWEEN_RUNS_S:
            self._add(begin, end, _label(Doing.WAIT, "iteration_pause"))

    def _rest(self, begin: Moment, now: Moment, living: Living) -> None:
        """Nothing runs since the last run's end."""
        if living.waits_for is not None:
            self._add(begin, now, _label(Doing.WAIT, living.waits_for))
        elif living.needs_person:
            self._add(begin, now, _PERSON)

    def _add(self, begin: Moment, end: Moment, label: Label) -> None:
        self.stretches.append((begin, end, label, None))

    def _end_wait(self, run: _Run, at: Moment) -> None:
        if run.wait is not None:
            begin, end, label, _ = run.wait
            self._add(begin, min(end, max(at, begin)), label)
            run.wait = None


def shares(stretches: Iterable[Stretch], since: Moment, until: Moment) -> tuple[Share, ...]:
    """The parts of the span by what they went to, the longest first; what nothing is known of is ``OFF``."""
    begin, end = round(since * MICRO), round(until * MICRO)
    spans: dict[Label, list[_Span]] = defaultdict(list)
    for from_, to, label, _ in stretches:
        first, last = round(from_ * MICRO), round(to * MICRO)
        if not begin <= first < last <= end:
            first, last = max(first, begin), min(last, end)
        if first < last:
            spans[label].append((first, last))
    _bound(spans)
    if begin < end:
        spans[_behind(Doing.OFF)].append((begin, end))
    found: dict[tuple[Doing, str | None], tuple[int, int]] = defaultdict(lambda: (0, 0))
    ranked = sorted(spans, key=lambda label: (label[0], label[2] or ""))
    for label, us in zip(ranked, _swept([spans[label] for label in ranked]), strict=True):
        took, times = found[label[1:]]
        found[label[1:]] = (took + us, times + len(spans[label]))
    told = (Share(doing, reason, us, times) for (doing, reason), (us, times) in found.items() if us)
    return tuple(sorted(told, key=lambda share: (-share.us, _ORDER[share.doing], share.reason or "")))


def _bound(spans: dict[Label, list[_Span]]) -> None:
    """Have few reasons: the rarest are told together."""
    named = sorted((label for label in spans if label[2]), key=lambda label: -len(spans[label]))
    for label in named[MOST_REASONS:]:
        spans[label[0], label[1], _OTHER] += spans.pop(label)


def _swept(ranked: list[list[_Span]]) -> list[int]:
    """How much of the time is each one's, where the first that is there takes it."""
    # An edge is one number, which is sorted faster than a tuple: the time, then the bit of the one that
    # begins or ends there.
    width = len(ranked)
    edges = [at << width | 1 << rank for rank, spans in enumerate(ranked) for at in _edges(spans)]
    took: dict[int, int] = defaultdict(int)
    there, before, bits = 0, 0, (1 << width) - 1
    for edge in sorted(edges):
        at = edge >> width
        took[there & -there] += at - before
        there, before = there ^ edge & bits, at
    return [took[1 << rank] for rank in range(width)]


def _edges(spans: list[_Span]) -> list[int]:
    """Where the time of these begins and ends, in turn; what overlaps or touches is one."""
    edges: list[int] = []
    for begin, end in sorted(spans):
        if not edges or begin > edges[-1]:
            edges += begin, end
        elif end > edges[-1]:
            edges[-1] = end
    return edges
