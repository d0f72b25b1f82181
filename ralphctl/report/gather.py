"""What a ralph did in a span, what was undone, where time and money went: from its history alone.

Entries are passed one by one, in the order of the file. Entries from outside the span count too: for times,
which reach into it, and for reverts, which a person may have undone later.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from ralphctl.format.humanize import count, part
from ralphctl.report import history, model
from ralphctl.report.history import HistoryEntry, HistoryReader, amount, moment, text, whole
from ralphctl.report.times import Iteration, Timeline, shares
from ralphd.core.time import Moment

TAIL_LINES: Final = 8
BACKWARDS_S: Final = 120.0
"""Entries may be older than the one before by this much before the clock counts as set back."""
_IN_ORDER: Final = frozenset({"run", "wait", "verdict", "escalation", "undo"})
_Handler: TypeAlias = Callable[[HistoryEntry, Moment, Iteration], None]


class Gatherer:
    """Collects what entries say about the time from ``since`` to ``until``."""

    def __init__(self, since: Moment, until: Moment) -> None:
        self._summary = model.SpanSummary(since, until, efforts=defaultdict(lambda: [0, 0]))
        self._timeline = timeline = Timeline()
        self._tasks: dict[str | None, model.ReportTask] = {}
        self._agents: dict[str | None, model.ReportAgent] = {}
        self._failures: dict[str, model.ReportFailure] = {}
        self._reverts: dict[str, model.ReportRevert] = {}
        self._put_back: dict[str, Moment] = {}
        self._done: list[tuple[str, Moment, model.ReportTask]] = []
        self._commits: dict[str, str] = {}
        self._task_commits: dict[str | None, dict[str, str]] = defaultdict(dict)
        self._task_iterations: dict[str | None, dict[int | None, None]] = defaultdict(dict)
        self._costs: dict[tuple[str | None, str | None], model.ReportCost] = defaultdict(model.ReportCost)
        self._without_cost: list[tuple[str, model.ReportCost]] = []
        self._runs_with_costs: set[str] = set()
        self._unknown_kinds: Counter[str] = Counter()
        self._undated, self._was_set_back = 0, False
        self._first_at, self._newest_at = float("inf"), 0.0
        self._last_task: tuple[object, model.ReportTask] | None = None
        # By kind: what counts wherever it lies, and what counts inside the span only.
        self._handlers: dict[str, tuple[_Handler | None, _Handler | None]] = {
            "attempt": (timeline.attempt, self._attempt), "iteration": (timeline.iteration, self._iteration),
            "verdict": (timeline.verdict, self._verdict), "run": (self._run_anywhere, self._run),
            "wait": (timeline.wait, None), "wait_over": (timeline.wait_over, None),
            "escalation": (timeline.escalation, self._escalation),
            "undo": (self._undo_anywhere, self._undo), "cost": (None, self._cost), "incident": (None, None),
            "repair": (None, self._repair), "request": (timeline.request, None),
        }  # fmt: skip

    def add(self, entry: HistoryEntry) -> None:
        """Add one entry. They are added in the order of the file."""
        kind, at = text(entry.get("kind")), moment(entry.get("at"))
        if at is None:
            self._undated += 1
            return
        of = text(entry.get("run_id")), whole(entry.get("iteration"))
        summary = self._summary
        is_inside = summary.since <= at < summary.until
        if kind in _IN_ORDER:
            if is_inside and at < self._newest_at - BACKWARDS_S:
                self._was_set_back = True
            self._newest_at = at
        self._first_at = at if at < self._first_at else self._first_at  # `min` takes three times as long
        anywhere, inside = self._handlers.get(kind) or (None, self._unknown)
        if anywhere is not None:
            anywhere(entry, at, of)
        if is_inside:
            summary.last_at = at if summary.last_at is None or at > summary.last_at else summary.last_at
            if inside is not None:
                inside(entry, at, of)

    def _unknown(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._unknown_kinds[text(entry.get("kind")) or "none"] += 1

    def _run_anywhere(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        started_at = moment(entry.get("started_at"))
        self._first_at = min(self._first_at, at if started_at is None else started_at)
        self._timeline.run(entry, at, of)

    def _run(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._summary.runs += 1
        if failure := history.failure_of(entry):
            self._summary.failed_runs += 1
            code, signal = whole(entry.get("code")), whole(entry.get("signal"))
            ending = "exit status unknown" if code is None else f"exit {code}"
            ending = ending if signal is None else f"signal {signal}"
            self._failed(failure, text(entry.get("why")) or ending, at)

    def _escalation(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._summary.calls.append(model.ReportCall(at, text(part(entry, "data").get("message"))))

    def _repair(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        from ralphd.core.gate.git_repair import repair_of  # hardly ever needed, and slow to import

        self._summary.repairs.append({"at": at, **repair_of(entry)})

    def _undo_anywhere(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._timeline.undo(entry, at, of)
        self._put_back[text(entry.get("key")).removesuffix("/undo")] = at

    def _undo(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._add_commits(self._task(entry), reversed(history.commits(entry.get("made"))))

    def _attempt(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._summary.attempts += 1
        task, agent = self._task(entry), self._agent(text(entry.get("agent")) or None)
        cost = self._costs[task.id, agent.agent]
        before = cost.micro_usd
        if cost.include(entry):
            self._without_cost.append((of[0], cost))
        if spent := cost.micro_usd - before:
            self._summary.spending.append((at, spent))
            self._summary.efforts[of][0] += spent
        self._task_iterations[task.id][of[1]] = None
        if (failure := history.failure_of(entry)) is not None:
            task.failures, agent.failures = task.failures + 1, agent.failures + 1
            why = text(entry.get("why"))
            task.last_failure = why or failure
            self._failed(failure, why, at)

    def _iteration(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._summary.iterations += 1
        task, shas = self._task(entry), history.commits(entry.get("commits"))
        self._summary.efforts[of][1] += len(shas)
        self._task_iterations[task.id][of[1]] = None
        if entry.get("complete") is True:
            self._done.append((text(entry.get("key")), at, task))
        self._add_commits(task, shas)

    def _verdict(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        task, shas = self._task(entry), history.commits(entry.get("commits"))
        self._add_commits(task, reversed(shas))
        if shas and entry.get("verdict") == "untested":
            self._summary.unjudged += 1
        name, why = None if task.id is None else {"id": task.id, "title": task.title}, text(entry.get("why"))
        if entry.get("weakened"):
            weakened = model.ReportWeakened(at, of[1], name, tuple(shas), text(entry.get("verdict")), why)
            self._summary.weakened.append(weakened)
        if reverted := tuple(history.commits(entry.get("reverted"))):
            tail = history.last_lines(entry.get("tail"), TAIL_LINES)
            boundary = text(entry.get("key")).removesuffix("/verdict")
            self._reverts[boundary] = model.ReportRevert(at, of[1], name, reverted, why, tail)

    def _cost(self, entry: HistoryEntry, at: Moment, of: Iteration) -> None:
        self._runs_with_costs.add(of[0])
        if (usd := amount(entry.get("usd"))) is not None:
            self._summary.spending.append((at, round(usd * model.MICRO)))
            task, agent = self._task({}), self._agent(text(entry.get("source")) or None)
            self._costs[task.id, agent.agent].micro_usd += round(usd * model.MICRO)

    def _failed(self, kind: str, why: str, at: Moment) -> None:
        failure = self._failures.setdefault(kind, model.ReportFailure(kind, 0, why, at))
        failure.count, failure.why, failure.last_at = failure.count + 1, why, at

    def _agent(self, name: str | None) -> model.ReportAgent:
        return self._agents.get(name) or self._agents.setdefault(name, model.ReportAgent(name))

    def _task(self, entry: HistoryEntry) -> model.ReportTask:
        """Return the entry's task, which mostly is that of the entry before."""
        named = entry.get("task")
        if self._last_task is None or self._last_task[0] != named:
            id_, title = (named.get("id"), named.get("title")) if isinstance(named, Mapping) else (None, None)
            id_ = text(id_) or None
            task = self._tasks.setdefault(id_, model.ReportTask(id_))
            task.title = text(title) or id_ or task.title
            self._last_task = named, task
        return self._last_task[1]

    def _add_commits(self, task: model.ReportTask, shas: Iterable[str]) -> None:
        known = self._task_commits[task.id]
        for sha in shas:
            known.setdefault(digits := sha[: history.SHORT], sha)
            self._commits.setdefault(digits, sha)

    def finish(self, current: model.ReportedState, now: Moment, reader: HistoryReader) -> model.SpanSummary:
        """Return the summary, once. ``now`` is not before the end of the span; ``reader`` has read it all."""
        summary = self._summary
        first_at = min(self._first_at, current.started_at or self._first_at)
        if reader.is_whole and first_at < float("inf"):
            summary.since = min(max(summary.since, first_at), summary.until)
        summary.stretches = self._timeline.finish(current, now)
        summary.shares = shares(summary.stretches, summary.since, summary.until)
        for run_id, cost in self._without_cost:
            # Else the run reports its costs apart from its attempts.
            cost.unknown += run_id not in self._runs_with_costs
        for (task_id, agent), cost in self._costs.items():
            self._tasks[task_id].cost += cost
            self._agents[agent].cost += cost
        for boundary, at in self._put_back.items():
            if boundary in self._reverts:
                self._reverts[boundary].put_back_at = at
        gone = self._reverts.keys() - self._put_back.keys()
        reverted = {sha[: history.SHORT] for boundary in gone for sha in self._reverts[boundary].commits}
        for boundary, at, task in self._done:
            task.done_at = task.done_at if boundary in gone else at
        for task in self._tasks.values():
            task.iterations = [number for number in self._task_iterations[task.id] if number is not None]
            task.kept, task.reverted = _parted(self._task_commits[task.id], reverted)
        # A cost without a task belongs to no task, and the undo of an earlier verdict may leave nothing here.
        shown = [task for task in self._tasks.values() if task.id is not None or task.iterations
                 or task.cost != model.ReportCost() or task.kept or task.done_at]  # fmt: skip
        summary.tasks = sorted(shown, key=_dearest_first)
        summary.agents = sorted(self._agents.values(), key=_dearest_first)
        summary.cost = sum((task.cost for task in shown), model.ReportCost())
        summary.undone = list(self._reverts.values())
        summary.failures = sorted(self._failures.values(), key=lambda failure: -failure.count)
        summary.kept, summary.reverted = _parted(self._commits, reverted)
        summary.remarks = self._remarks(reader.torn)
        return summary

    def _remarks(self, torn: int) -> list[str]:
        lines = f"{count(torn, 'line')} of the history could not be read"
        undated = f"left out: {count(self._undated, 'entry', 'entries')} of the history without a time"
        set_back = "the clock was set back: times overlap, and durations may be wrong by that much"
        remarks = [(torn, lines), (self._undated, undated), (self._was_set_back, set_back)]
        for kind, number in self._unknown_kinds.items():
            of_kind = f"{count(number, 'entry', 'entries')} of kind {kind!r}"
            remarks.append((number, f"left out: {of_kind}, unknown to this ralphctl"))
        return [remark for is_so, remark in remarks if is_so]


def _parted(by_digits: Mapping[str, str], reverted: set[str]) -> tuple[list[str], list[str]]:
    """Return the commits that stay, and those that are ``reverted``."""
    kept = [sha for digits, sha in by_digits.items() if digits not in reverted]
    return kept, [sha for digits, sha in by_digits.items() if digits in reverted]


def _dearest_first(work: model.ReportTask | model.ReportAgent) -> tuple[int, int]:
    return -work.cost.micro_usd, -work.cost.attempts
