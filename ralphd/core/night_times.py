"""Where the time went: stretches that may overlap, to parts of a span that add up to it.

Of what overlaps the first in the order of ``Doing`` counts, so no moment is told twice. By a clock that was
set back some stretches end before they begin: these count for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from ralphd.core.model import Moment
from ralphd.core.night_entries import (
    ENDED_WELL,
    FAILED_ENDS,
    HANGS,
    Entry,
    count,
    moment,
    seconds,
    text,
    wait_reason,
)
from ralphd.core.night_model import MICRO, Doing, Share

EARLY_S: Final = 600.0
"""A run that reports nothing and fails sooner was a failure; later, it had worked (C3)."""
LONGEST_RETRY_S: Final = 3600.0
"""No wait after a failure is longer; what is, was no daemon's wait."""
BETWEEN_RUNS_S: Final = 60.0
MOST_REASONS: Final = 8
_OTHER: Final = "other"
_ENDS_BY_ITSELF: Final = frozenset({"usage_limit", "rate_limit", "outage"})
_ASKED: Final = frozenset({"requested", "user_requested"})

Label = tuple[Doing, str | None]
_ORDER: Final = {doing: rank for rank, doing in enumerate(Doing)}


@dataclass(slots=True)
class Stretch:
    """From one moment to another, what was done. Not frozen, since hundreds of thousands are made.

    ``of`` is the run and the iteration of which the commits may be reverted later. One that ``is_behind`` is
    as long as a run: whatever else is known of that time counts before it.
    """

    begin: Moment
    end: Moment
    doing: Doing
    reason: str | None = None
    of: tuple[str, int | None] | None = None
    is_behind: bool = False


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
            return [Stretch(begin, end, Doing.BETWEEN, is_behind=True)]
        if self.first is None:
            return [Stretch(begin, end, opaque, is_behind=True)]
        return [Stretch(begin, end, Doing.WORK, is_behind=True), replace(self.first, begin=begin)]


@dataclass(slots=True)
class Timeline:
    """Takes entries in the order of the record, and keeps what they tell of time."""

    stretches: list[Stretch] = field(default_factory=list)
    reverted: set[tuple[str, int | None]] = field(default_factory=set)
    _runs: dict[str, _Run] = field(default_factory=lambda: defaultdict(_Run))
    _lives: list[tuple[Moment, Moment, Entry]] = field(default_factory=list)
    _called: set[str] = field(default_factory=set)

    def attempt(self, entry: Entry, at: Moment) -> None:
        """An agent has ended."""
        run = self._runs[text(entry.get("run_id"))]
        begin = at - seconds(entry.get("duration_s"))
        if run.wait is not None:
            self._end_wait(run, begin)
        run.tells_attempts, run.last_at = True, at
        kind = entry.get("failure_kind")
        if kind is None or kind == ENDED_WELL:
            doing = Doing.FAILURE if entry.get("outcome") == "lost" else Doing.WORK
        elif text(kind) in HANGS:
            doing = Doing.HANG
        else:
            doing = Doing.FAILURE
        self.stretches.append(Stretch(begin, at, doing, None, _of(entry)))

    def iteration(self, entry: Entry, at: Moment) -> None:
        """A boundary: of a loop that tells no attempts, all since the one before was one."""
        run = self._runs[text(entry.get("run_id"))]
        if run.wait is not None:
            self._end_wait(run, at)
        if not run.tells_attempts:
            doing = Doing.FAILURE if entry.get("failed") is True else Doing.WORK
            since = at if run.last_at is None else run.last_at
            told = Stretch(since, at, doing, None, _of(entry), is_behind=True)
            if run.last_at is None:
                run.first = told
            else:
                self.stretches.append(told)
        run.last_at = at

    def wait(self, entry: Entry, at: Moment) -> None:
        """It waits from now on."""
        run = self._runs[text(entry.get("run_id"))]
        self._end_wait(run, at)
        if (until := moment(entry.get("until"))) is not None and until > at:
            run.wait = Stretch(at, until, Doing.WAIT, wait_reason(entry.get("reason")))

    def wait_over(self, entry: Entry, at: Moment) -> None:
        """It waits no longer."""
        self._end_wait(self._runs[text(entry.get("run_id"))], at)

    def verdict(self, entry: Entry, at: Moment) -> None:
        """The tests have run, and maybe all commits of the iteration are gone."""
        gone, made = entry.get("reverted"), entry.get("commits")
        if isinstance(gone, list) and isinstance(made, list) and gone and len(gone) >= len(made):
            self.reverted.add(_of(entry))
        took = entry.get("tests_s")
        if isinstance(took, list) and took:
            self.stretches.append(Stretch(at - sum(map(seconds, took)), at, Doing.TESTS))

    def undo(self, entry: Entry, at: Moment) -> None:
        """They are back."""
        self.reverted.discard(_of(entry))

    def called(self, entry: Entry, at: Moment) -> None:
        """A person was called."""
        self._called.add(text(entry.get("run_id")))

    def ended(self, entry: Entry, at: Moment) -> None:
        """A run is over."""
        run = self._runs.pop(text(entry.get("run_id")), None) or _Run()
        begin = moment(entry.get("started_at"))
        begin = at if begin is None else begin
        self._end_wait(run, at)
        outcome = text(entry.get("outcome"))
        failed_early = outcome in FAILED_ENDS and at - begin < EARLY_S
        opaque = Doing.FAILURE if failed_early else Doing.WORK
        self.stretches += run.whole(begin, at, opaque)
        if outcome == "stalled" and (sign := moment(entry.get("last_sign_at"))) is not None:
            self.stretches.append(Stretch(max(sign, begin), at, Doing.HANG))
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
        return [self._judged(stretch) for stretch in self.stretches]

    def _lives_on(self, living: Living, started_at: Moment, now: Moment) -> None:
        run = self._runs.get(living.run_id or "") or _Run()
        self._end_wait(run, now)
        self.stretches += run.whole(started_at, now, Doing.WORK)
        if living.waits_for is None and run.last_at is not None:
            self.stretches.append(Stretch(run.last_at, now, Doing.WORK, is_behind=True))

    def _gap(self, begin: Moment, end: Moment, entry: Entry) -> None:
        """Nothing ran between two runs, of which ``entry`` tells the end of the first."""
        outcome, reason = text(entry.get("outcome")), text(entry.get("reason"))
        if outcome == "paused" and reason not in _ASKED:
            by_itself = not reason or reason in _ENDS_BY_ITSELF
            self._add(begin, end, Doing.WAIT if by_itself else Doing.PERSON, reason or "paused")
        elif outcome in FAILED_ENDS:
            if text(entry.get("run_id")) in self._called or outcome in ("refused", "gave_up"):
                self._add(begin, end, Doing.PERSON)
            else:
                self._add(begin, min(end, begin + LONGEST_RETRY_S), Doing.WAIT, "crash")
        elif outcome == "done" and end - begin <= BETWEEN_RUNS_S:
            self._add(begin, end, Doing.WAIT, "iteration_pause")

    def _rest(self, begin: Moment, now: Moment, living: Living) -> None:
        """Nothing runs since the last run's end."""
        if living.waits_for is not None:
            self._add(begin, now, Doing.WAIT, living.waits_for)
        elif living.needs_person:
            self._add(begin, now, Doing.PERSON)

    def _add(self, begin: Moment, end: Moment, doing: Doing, reason: str | None = None) -> None:
        self.stretches.append(Stretch(begin, end, doing, reason if doing is Doing.WAIT else None))

    def _end_wait(self, run: _Run, at: Moment) -> None:
        if run.wait is not None:
            self.stretches.append(replace(run.wait, end=min(run.wait.end, max(at, run.wait.begin))))
            run.wait = None

    def _judged(self, stretch: Stretch) -> Stretch:
        undone = stretch.doing is Doing.WORK and stretch.of in self.reverted
        return replace(stretch, doing=Doing.UNDONE) if undone else stretch


def _of(entry: Entry) -> tuple[str, int | None]:
    """By what the time of an iteration and its verdict belong together."""
    return text(entry.get("run_id")), count(entry.get("iteration"))


def shares(stretches: Iterable[Stretch], since: Moment, until: Moment) -> tuple[Share, ...]:
    """The parts of the span by what they went to, the longest first; what nothing is known of is ``OFF``."""
    begin, end = round(since * MICRO), round(until * MICRO)
    labels: dict[tuple[int, Doing, str | None], list[tuple[int, int]]] = defaultdict(list)
    for each in stretches:
        first, last = max(round(each.begin * MICRO), begin), min(round(each.end * MICRO), end)
        if first < last:
            labels[_rank(each)].append((first, last))
    _bound(labels)
    if begin < end:
        labels[len(_ORDER) * 2, Doing.OFF, None].append((begin, end))
    found: dict[Label, tuple[int, int]] = defaultdict(lambda: (0, 0))
    ranked = sorted(labels, key=lambda label: (label[0], label[2] or ""))
    for label, us in zip(ranked, _swept([labels[label] for label in ranked], end), strict=True):
        took, times = found[label[1:]]
        found[label[1:]] = (took + us, times + len(labels[label]))
    told = (Share(doing, reason, us, times) for (doing, reason), (us, times) in found.items() if us)
    return tuple(sorted(told, key=lambda share: (-share.us, _ORDER[share.doing], share.reason or "")))


def _rank(stretch: Stretch) -> tuple[int, Doing, str | None]:
    return _ORDER[stretch.doing] + len(_ORDER) * stretch.is_behind, stretch.doing, stretch.reason


def _bound(labels: dict[tuple[int, Doing, str | None], list[tuple[int, int]]]) -> None:
    """Have few reasons: the rarest are told together."""
    named = sorted((label for label in labels if label[2]), key=lambda label: -len(labels[label]))
    for label in named[MOST_REASONS:]:
        labels[label[0], label[1], _OTHER] += labels.pop(label)


def _swept(ranked: list[list[tuple[int, int]]], end: int) -> list[int]:
    """How much of the time is each one's, where the first that is there takes it."""
    bits = len(ranked).bit_length() + 1  # an edge is one number, which is sorted faster than a tuple
    edges: list[int] = []
    for rank, spans in enumerate(ranked):
        edges += [begin << bits | rank << 1 | 1 for begin, _ in spans]
        edges += [end << bits | rank << 1 for _, end in spans]
    edges.sort()
    took, open_, mask, before, below = [0] * len(ranked), [0] * len(ranked), 0, end, (1 << bits) - 1
    for edge in edges:
        at, rank = edge >> bits, (edge & below) >> 1
        if mask and at > before:
            took[(mask & -mask).bit_length() - 1] += at - before
        before = at
        if edge & 1:
            open_[rank] += 1
            mask |= 1 << rank
        else:
            open_[rank] -= 1
            if not open_[rank]:
                mask &= ~(1 << rank)
    return took
