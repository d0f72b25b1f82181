"""What a report holds, and its JSON form: fields are named as the keys in docs/report.md.

Times are whole microseconds and money whole millionths of a dollar, so that parts add up to their whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, field
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

from ralphctl.report import strip
from ralphctl.report.history import amount, whole
from ralphd import overview
from ralphd.core.quota.forecast import Forecast
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

MICRO: Final = 1_000_000
REQUESTED_PAUSES: Final = frozenset({"requested", "user_requested"})
_VERSION: Final = 1
"""The version of the JSON form. A new key does not raise it."""
_VIEW_KEYS = ("state", "message", "pause_reason", "agent", "branch", "iteration", "total_cost_usd", "notes")


TIME_USES: Final = {
    # An attempt that stalled or timed out counts whole as a hang; a run that stalled, from its last activity.
    # Other failures are those of attempts, and of runs that failed early without reporting anything.
    "tests": "tests",
    "hang": "hung or timed out",
    "failure": "failures",
    "undone": "reverted work",
    "work": "work",
    "wait": "wait",
    "between": "the loop",
    "person": "waiting for you",
    "off": "stopped",
}
"""What a stretch of the span was used for, in words. Of stretches that overlap, the first here counts."""
WAITS: Final = {
    "usage_limit": "usage limit",
    "rate_limit": "rate limit",
    "outage": "outage",
    "retry": "retry",
    "crash": "restart",
    "iteration_pause": "between iterations",
}
"""The reasons of waits that are counted apart, in words; all others count as ``other``."""


class TimeShare(NamedTuple):
    """How much of the span went to one of ``TIME_USES``; ``reason`` is that of a wait."""

    doing: str
    reason: str | None
    us: int
    stretches: int


@dataclass(slots=True)
class ReportCost:
    """What ``attempts`` cost. ``unknown`` of them reported no cost, so ``micro_usd`` is a lower bound.

    ``estimated`` of them were calculated from tokens.
    """

    micro_usd: int = 0
    attempts: int = 0
    unknown: int = 0
    estimated: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: "ReportCost") -> "ReportCost":
        return ReportCost(*map(add, astuple(self), astuple(other)))

    def include(self, attempt: Mapping[str, Any]) -> bool:
        """Add an attempt of the history. Return whether its cost is unknown; ``unknown`` stays as it is."""
        usd, source = amount(attempt.get("cost_usd")), attempt.get("cost_source")
        is_unknown = usd is None or source == "unknown" or (usd == 0 and source is None)
        self.attempts += 1
        if usd is not None and not is_unknown:
            self.micro_usd += round(usd * MICRO)
            self.estimated += source == "estimated"
        self.tokens_in += max(whole(attempt.get("tokens_in")) or 0, 0)
        self.tokens_out += max(whole(attempt.get("tokens_out")) or 0, 0)
        return is_unknown

    @property
    def is_unknown(self) -> bool:
        """Whether no part of it is known."""
        return self.unknown > 0 and not self.micro_usd and self.unknown >= self.attempts


@dataclass(slots=True)
class ReportAgent:
    """One agent's attempts. ``agent`` None: attempts that named no agent."""

    agent: str | None
    failures: int = 0
    cost: ReportCost = field(default_factory=ReportCost)


@dataclass(slots=True)
class ReportTask:
    """One task in the span. ``id`` None: work that named no task.

    ``done_at``: when it was finished, unless those commits were reverted later. Commits are abbreviated,
    oldest first. ``iterations`` are numbered as their runs count them.
    """

    id: str | None
    title: str = ""
    done_at: Moment | None = None
    iterations: Sequence[int] = ()
    kept: Sequence[str] = ()
    reverted: Sequence[str] = ()
    failures: int = 0
    last_failure: str = ""
    cost: ReportCost = field(default_factory=ReportCost)


@dataclass(slots=True)
class ReportRevert:
    """Reverted commits, newest first, why, and the last lines of the tests.

    ``task`` has its id and title. ``put_back_at``: when a person applied the commits again.
    """

    at: Moment
    iteration: int | None
    task: Mapping[str, str] | None
    commits: tuple[str, ...]
    why: str
    tail: tuple[str, ...]
    put_back_at: Moment | None = None


class ReportWeakened(NamedTuple):
    """An iteration that weakened tests: its commits, newest first, and ``why``: the files, and the counts.

    ``verdict``: whether the commits were kept or reverted.
    """

    at: Moment
    iteration: int | None
    task: Mapping[str, str] | None
    commits: tuple[str, ...]
    verdict: str
    why: str


@dataclass(slots=True)
class ReportFailure:
    """Attempts and runs that failed in the same way; ``why`` and ``last_at`` are those of the last."""

    kind: str
    count: int
    why: str
    last_at: Moment


class ReportCall(NamedTuple):
    """One escalation to a person."""

    at: Moment
    message: str


@dataclass(slots=True)
class SpanSummary:
    """Everything that the history says about the span.

    ``since`` is later than requested where the ralph is younger. ``shares`` add up to the span; the costs of
    ``agents``, those of ``tasks`` and the millionths in ``spending`` add up to ``cost``. ``unjudged`` counts
    iterations whose commits the gate could not judge.
    """

    since: Moment
    until: Moment
    shares: Sequence[TimeShare] = ()
    stretches: Mapping[tuple[int, str, str | None], Sequence[strip.Span]] = field(default_factory=dict)
    tasks: Sequence[ReportTask] = ()
    undone: Sequence[ReportRevert] = ()
    weakened: list[ReportWeakened] = field(default_factory=list)
    agents: Sequence[ReportAgent] = ()
    failures: Sequence[ReportFailure] = ()
    calls: list[ReportCall] = field(default_factory=list)
    repairs: list[Mapping[str, Any]] = field(default_factory=list)
    cost: ReportCost = field(default_factory=ReportCost)
    spending: list[tuple[Moment, int]] = field(default_factory=list)
    efforts: dict[tuple[str, int | None], list[int]] = field(default_factory=dict)
    """For each iteration in turn: its cost in millionths of a dollar, and how many commits it reported."""
    iterations: int = 0
    attempts: int = 0
    runs: int = 0
    failed_runs: int = 0
    kept: Sequence[str] = ()
    reverted: Sequence[str] = ()
    unjudged: int = 0
    last_at: Moment | None = None
    remarks: Sequence[str] = ()

    @property
    def done(self) -> list[ReportTask]:
        """The tasks finished in the span and not reverted, in the order in which they were finished."""
        done = (task for task in self.tasks if task.done_at is not None)
        return sorted(done, key=lambda task: task.done_at or 0.0)

    def cells(self, since: Moment, until: Moment, number: int = strip.MOST_CELLS) -> list[str]:
        """Return the strip from ``since`` to ``until``: a word of ``strip.CELLS`` for each cell."""
        marks = [(call.at, "failed") for call in self.calls]
        marks += [(each.at, "reverted") for each in self.undone]
        return strip.cells(self.stretches, marks, since, until, number)


class ReportedState(NamedTuple):
    """The present state. ``waits_for`` is a wait's reason, ``goes_on_at`` the moment when it ends.

    ``needs_person``: nothing continues before somebody acts. ``agents_out`` stay disabled until then.
    ``run_id`` and ``started_at`` are those of the live run.
    """

    state: str = ""
    waits_for: str | None = None
    goes_on_at: Moment | None = None
    needs_person: bool = False
    agents_out: tuple[str, ...] = ()
    run_id: str = ""
    started_at: Moment | None = None

    @property
    def runs(self) -> bool:
        return self.state in overview.RUNS

    @property
    def is_blocked(self) -> bool:
        return self.waits_for is not None or self.needs_person


class ListedTask(NamedTuple):
    """A task of the list. ``used_up``: it failed too often to be tried again."""

    id: str
    title: str
    failures: int
    why: str
    used_up: bool
    state: str = "open"


class TaskListState(NamedTuple):
    """The task list and what a person added to it: ``done`` of ``total``.

    ``file`` None: known from the loop's memory alone.
    """

    file: str | None
    total: int
    done: int
    open: Sequence[ListedTask]
    listed: Sequence[ListedTask] = ()


class Diffstat(NamedTuple):
    """What ``commits`` changed; ``missing`` others are no longer in the repository."""

    commits: int
    missing: int
    files: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class ReportSource:
    """Where a ralph's files are. ``home`` None: only the copies in its directory can be read."""

    name: str
    directory: str
    home: Path | None
    is_build: bool = False

    def path(self, name: str) -> Path:
        """Return where the file, or else its copy, is."""
        return (Path(self.directory) / ".ralph" if self.home is None else self.home) / name


@dataclass(frozen=True, slots=True)
class RalphReport:
    """A whole report on one ralph. ``changed`` is what the kept commits changed.

    ``budget_usd`` is its ``max_cost_usd``; 0: no limit. ``forecast`` is of its open tasks.
    """

    source: ReportSource
    view: Mapping[str, Any]
    state: ReportedState
    summary: SpanSummary
    tasks: TaskListState | None
    changed: Diffstat | None
    budget_usd: float = 0.0
    forecast: Forecast | None = None

    @property
    def needs_you(self) -> bool:
        """Whether it or its branch in the landing queue waits for a person."""
        return overview.needs_you(self.view) or overview.landing_need(self.view) != ""

    @property
    def has_untold_costs(self) -> bool:
        """Whether a command other than the built-in loop ran, and reported neither attempts nor costs."""
        has_run = self.summary.runs > 0 or self.state.runs
        return has_run and self.view.get("command") != [] and self.summary.cost == ReportCost()

    @property
    def left_usd(self) -> float | None:
        """What is left of the budget; None without one."""
        spent = self.view.get("total_cost_usd") or 0.0
        return max(self.budget_usd - spent, 0.0) if self.budget_usd else None

    @property
    def usd_per_hour(self) -> float:
        """What an hour of the span cost, up to now or to the last entry; 0 for a span under 10 minutes."""
        end = self.summary.until if self.state.runs else self.summary.last_at or self.summary.until
        return usd_per_hour([self.summary], end)


def usd_per_hour(summaries: Sequence[SpanSummary], end: Moment) -> float:
    """Return what an hour cost since the first of these began; 0 for a span under 10 minutes."""
    lasted_s = end - min((each.since for each in summaries), default=end)
    spent_usd = sum(each.cost.micro_usd for each in summaries) / MICRO
    return spent_usd / lasted_s * 3600 if lasted_s >= 600 else 0.0


def document(reports: Sequence[RalphReport], since: Moment, until: Moment) -> Any:
    """Return what ``--json`` prints."""
    span = strip_span(reports)
    ralphs = [_ralph(report) | {"strip": _strip(report, *span)} for report in reports]
    return _plain({"version": _VERSION, "since": since, "until": until, "ralphs": ralphs})


def strip_span(reports: Iterable[RalphReport]) -> tuple[Moment, Moment]:
    """Return the time that the strips of these ralphs show, the same for all: from the first one's start."""
    spans = [(report.summary.since, report.summary.until) for report in reports]
    return min((since for since, _ in spans), default=0.0), max((until for _, until in spans), default=0.0)


def _strip(report: RalphReport, since: Moment, until: Moment) -> dict[str, Any]:
    return {"since": since, "until": until, "cells": report.summary.cells(since, until)}


def _ralph(report: RalphReport) -> dict[str, Any]:
    summary, state = report.summary, report.state
    commits = _pick(summary, "kept", "reverted")
    return {
        **_pick(report.source, "name", "directory"),
        **_pick(summary, "since", "until"),
        **{key: report.view.get(key) for key in _VIEW_KEYS},
        "blocked": _pick(state, "is_blocked", "needs_person", "waits_for", "goes_on_at", "agents_out"),
        "tasks": report.tasks,
        "done": summary.done,
        "worked_on": summary.tasks,
        **_pick(summary, "undone", "weakened"),
        "commits": {**commits, "unjudged_iterations": summary.unjudged, "changed": report.changed},
        "times": summary.shares,
        "cost": _cost(summary.cost, is_unknown=report.has_untold_costs),
        "cost_by_agent": summary.agents,
        "budget": {"usd": report.budget_usd or None, "left_usd": report.left_usd},
        "forecast": report.forecast,
        **_pick(summary, "failures", "calls", "repairs"),
        "counts": _pick(summary, "iterations", "attempts", "runs", "failed_runs"),
        "remarks": summary.remarks,
    }


def _pick(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _cost(cost: ReportCost, *, is_unknown: bool = False) -> dict[str, Any]:
    usd = None if is_unknown or cost.is_unknown else cost.micro_usd / MICRO
    return {"usd": usd, **_pick(cost, "attempts", "unknown", "estimated", "tokens_in", "tokens_out")}


def _plain(value: Any) -> Any:
    """Return ``value`` as JSON: moments as RFC 3339, microseconds as seconds, a cost as keys of its owner."""
    if names := getattr(value, "__match_args__", ()):  # of a dataclass or a NamedTuple
        value = _pick(value, *names)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain: dict[str, Any] = {}
    for key, each in value.items():
        if isinstance(each, ReportCost):
            plain |= _cost(each)
        elif key == "us":
            plain["seconds"] = each / MICRO
        elif each is not None and (key in ("since", "until", "at") or key.endswith("_at")):
            plain[key] = rfc3339(each)
        else:
            plain[key] = _plain(each)
    return plain
