"""What the entries of a span tell, gathered one by one in the order of the record."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ralphd.core.night_entries import (
    FAILED_ENDS,
    SHORT,
    Entry,
    Of,
    commits,
    count,
    lines,
    moment,
    number,
    task_of,
    text,
)
from ralphd.core.night_model import MICRO, Call, Failure, Money, Undone
from ralphd.core.night_times import Timeline
from ralphd.core.time import Moment

MOST_USD: Final = 1e9
TAIL_LINES: Final = 8
BACKWARDS_S: Final = 120.0
"""Entries may come late by that much before the clock is said to have been set back."""
Handler: TypeAlias = Callable[[Entry, Moment, Of], None]
_IN_ORDER: Final = frozenset({"run", "wait", "verdict", "escalation", "undo"})


@dataclass(slots=True)
class Sum:
    """Money that is being counted; ``failures`` of the attempts failed."""

    micro_usd: int = 0
    unknown: int = 0
    estimated: int = 0
    attempts: int = 0
    failures: int = 0

    def attempt(self, micro_usd: int, *, is_estimated: bool, has_failed: bool) -> None:
        """Count an attempt."""
        self.micro_usd += micro_usd
        self.estimated += is_estimated
        self.attempts += 1
        self.failures += has_failed

    def money(self) -> Money:
        """What there is so far."""
        return Money(self.micro_usd, self.unknown, self.estimated, self.attempts)


@dataclass(slots=True)
class GatheredTask:
    """What is gathered of a task."""

    id: str | None
    title: str = ""
    done: list[tuple[str, Moment]] = field(default_factory=list)
    numbers: dict[int, None] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    sum: Sum = field(default_factory=Sum)
    last_failure: str = ""


@dataclass(slots=True)
class Gathering:
    """What the entries of the span tell."""

    since: Moment
    until: Moment
    timeline: Timeline = field(default_factory=Timeline)
    tasks: dict[str | None, GatheredTask] = field(default_factory=dict)
    agents: dict[str | None, Sum] = field(default_factory=lambda: defaultdict(Sum))
    failures: dict[str, Failure] = field(default_factory=dict)
    undone: dict[str, Undone] = field(default_factory=dict)
    put_back: dict[str, Moment] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    silent: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    told_apart: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unknown_kinds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    undated: int = 0
    first_at: Moment | None = None
    last_at: Moment | None = None
    newest_at: Moment = 0.0
    set_back_at: Moment | None = None
    head_before: str | None = None
    _handlers: dict[str, tuple[Handler | None, Handler | None]] = field(default_factory=dict)
    _last_task: tuple[object, GatheredTask] | None = None

    def __post_init__(self) -> None:
        timeline = self.timeline
        # What each kind tells of time, from before and after the span too, and what it tells of the span.
        self._handlers = {
            "attempt": (timeline.attempt, self._attempt),
            "iteration": (timeline.iteration, self._iteration),
            "verdict": (timeline.verdict, self._verdict),
            "run": (self._run_ended, self._run),
            "wait": (timeline.wait, None),
            "wait_over": (timeline.wait_over, None),
            "escalation": (timeline.called, self._call),
            "undo": (self._put_back, self._undo),
            "cost": (None, self._cost),
            "incident": (None, None),
        }

    def take(self, entry: Entry) -> None:
        """One entry, in the order of the record.

        What it tells of time, and of reverts, counts from before the span and after it too.
        """
        kind, at = text(entry.get("kind")), moment(entry.get("at"))
        if at is None:
            self.undated += 1
            return
        of = text(entry.get("run_id")), count(entry.get("iteration"))
        is_inside = self.since <= at < self.until
        if kind in _IN_ORDER:
            if is_inside and at < self.newest_at - BACKWARDS_S:
                self.set_back_at = self.newest_at
            self.newest_at = at
        if self.first_at is None or at < self.first_at:
            self.first_at = at
        in_time, inside = self._handlers.get(kind) or (None, self._unknown)
        if in_time is not None:
            in_time(entry, at, of)
        if is_inside:
            if self.last_at is None or at > self.last_at:
                self.last_at = at
            if inside is not None:
                inside(entry, at, of)

    def _unknown(self, entry: Entry, at: Moment, of: Of) -> None:
        self.unknown_kinds[text(entry.get("kind")) or "none"] += 1

    def _run_ended(self, entry: Entry, at: Moment, of: Of) -> None:
        began_at = moment(entry.get("started_at"))
        if began_at is not None and (self.first_at is None or began_at < self.first_at):
            self.first_at = began_at
        self.timeline.ended(entry, at, of)
        if at < self.since:
            self.head_before = next(iter(commits([entry.get("commit")])), None)

    def _put_back(self, entry: Entry, at: Moment, of: Of) -> None:
        self.timeline.undo(entry, at, of)
        self.put_back[text(entry.get("key")).removesuffix("/undo")] = at

    def _call(self, entry: Entry, at: Moment, of: Of) -> None:
        self.calls.append(Call(at, _message(entry)))

    def _undo(self, entry: Entry, at: Moment, of: Of) -> None:
        self._commit(self._task(entry), entry.get("made"), newest_first=True)

    def _attempt(self, entry: Entry, at: Moment, of: Of) -> None:
        self.counts["attempts"] += 1
        agent, task = text(entry.get("agent")) or None, self._task(entry)
        failed = entry.get("failure_kind") is not None or entry.get("outcome") == "lost"
        micro_usd = _micro_usd(entry)
        if micro_usd is None:
            self.silent.append((of[0], agent, task.id))
        is_estimated = micro_usd is not None and entry.get("cost_source") == "estimated"
        for spent in (task.sum, self.agents[agent]):
            spent.attempt(micro_usd or 0, is_estimated=is_estimated, has_failed=failed)
        if of[1] is not None:
            task.numbers[of[1]] = None
        if failed:
            why = text(entry.get("why"))
            kind = text(entry.get("failure_kind")) or "lost"
            task.last_failure = why or kind
            self._failed(kind, why, at)

    def _iteration(self, entry: Entry, at: Moment, of: Of) -> None:
        self.counts["iterations"] += 1
        task = self._task(entry)
        if of[1] is not None:
            task.numbers[of[1]] = None
        if entry.get("complete") is True:
            task.done.append((text(entry.get("key")), at))
        self._commit(task, entry.get("commits"))

    def _verdict(self, entry: Entry, at: Moment, of: Of) -> None:
        task = self._task(entry)
        self._commit(task, entry.get("commits"), newest_first=True)
        if entry.get("verdict") == "untested" and commits(entry.get("commits")):
            self.counts["unjudged"] += 1
        if (reverted := entry.get("reverted")) and (gone := tuple(commits(reverted))):
            boundary = text(entry.get("key")).removesuffix("/verdict")
            why, tail = text(entry.get("why")), lines(entry.get("tail"), TAIL_LINES)
            self.undone[boundary] = Undone(at, of[1], task.id, task.title, gone, why, tail, None)

    def _run(self, entry: Entry, at: Moment, of: Of) -> None:
        self.counts["runs"] += 1
        outcome = text(entry.get("outcome"))
        if outcome in FAILED_ENDS:
            self.counts["failed_runs"] += 1
            self._failed(f"run {outcome}", text(entry.get("why")) or _end_words(entry), at)

    def _cost(self, entry: Entry, at: Moment, of: Of) -> None:
        usd = number(entry.get("usd"))
        self.told_apart.add(of[0])
        if usd is not None:
            for spent in (self._task({}).sum, self.agents[None]):
                spent.micro_usd += _micro(usd)

    def _failed(self, kind: str, why: str, at: Moment) -> None:
        before = self.failures.get(kind)
        self.failures[kind] = Failure(kind, 1 if before is None else before.count + 1, why, at)

    def _task(self, entry: Entry) -> GatheredTask:
        """The task that an entry is about, which is mostly that of the entry before."""
        told = entry.get("task")
        if self._last_task is None or self._last_task[0] != told:
            self._last_task = told, self._named(entry)
        return self._last_task[1]

    def _named(self, entry: Entry) -> GatheredTask:
        id_, title = task_of(entry)
        task = self.tasks.get(id_)
        if task is None:
            task = self.tasks[id_] = GatheredTask(id_)
        if title:
            task.title = title
        return task

    def _commit(self, task: GatheredTask, shas: object, *, newest_first: bool = False) -> None:
        if made := commits(shas, task.commits):
            for sha in reversed(made) if newest_first else made:
                task.commits.setdefault(sha[:SHORT], sha)
                self.made.setdefault(sha[:SHORT], sha)


def _micro_usd(entry: Entry) -> int | None:
    """What an attempt cost; None where it did not say."""
    usd, source = number(entry.get("cost_usd")), entry.get("cost_source")
    return None if usd is None or source == "unknown" or (usd == 0 and source is None) else _micro(usd)


def _micro(usd: float) -> int:
    return round((usd if 0.0 <= usd <= MOST_USD else min(max(usd, 0.0), MOST_USD)) * MICRO)


def _message(entry: Entry) -> str:
    data = entry.get("data")
    return text(data.get("message")) if isinstance(data, Mapping) else ""


def _end_words(entry: Entry) -> str:
    code, signal = count(entry.get("code")), count(entry.get("signal"))
    if signal is not None:
        return f"signal {signal}"
    return "nobody saw how it ended" if code is None else f"exit {code}"
