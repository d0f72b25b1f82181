"""The history of a ralph: which entry a report makes, and what is shown when entries are read back.

Entries of ``history.jsonl`` come in as they were read; any key may be missing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from ralphd.core.explanation import in_seconds
from ralphd.core.gate.verdict import VerdictKind, short
from ralphd.core.supervision import reports
from ralphd.core.supervision.events import CommitsRestored, Committed, Event, RunEnded, VerdictReached
from ralphd.core.supervision.model import Done, ReportedTask, RunReports, Supervision, Waiting
from ralphd.core.text import commit_names, one_line
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

Entry: TypeAlias = Mapping[str, Any]

PROGRESS_HEADER: Final = (
    "# Progress\n\nOne line per attempt, newest last. Times are local, with their offset from UTC."
    " See also history.jsonl\n\n"
)
_MOST_TITLE_CHARS: Final = 60
_MOST_WORDS_CHARS: Final = 200
_ITERATION: Final = ("run_id", "iteration", "at", "failed", "summary", "task", "complete", "commits")


def entry_of(event: reports.Reported, said: RunReports) -> tuple[str, dict[str, Any]] | None:
    """Return kind and data of the entry that a report makes, or None. ``said`` is what came before it."""
    match event.report:
        case reports.AttemptFinished() as report:
            return "attempt", dict(report.data())
        case reports.IterationFinished() as finished:
            return "iteration", dict(finished.data())
        case reports.WaitingUntil(until=float() as until, reason=reason) if until > event.at:
            return "wait", {"reason": reason, "until": rfc3339(reports.bounded(until, event.at, said))}
        case reports.WaitingUntil():
            return "wait_over", {}
        case reports.Cost(usd=usd):
            return "cost", {"usd": usd}
        case _:
            return None


def happened_at(event: reports.Reported) -> Moment:
    """Return when a reported fact happened: the daemon may have been away. Never after its arrival."""
    match event.report:
        case (
            reports.AttemptFinished(ended_at=float() as at)
            | reports.IterationFinished(ended_at=float() as at)
        ):
            return min(at, event.at)
        case _:
            return event.at


def progress_line(entry: Entry) -> str:
    """Format an attempt for ``progress.md``."""
    took = entry.get("duration_s")
    parts = [
        _local(entry.get("at")),
        _numbered("iteration", entry.get("iteration")), _task_words(entry.get("task")), _agent(entry),
        _outcome(entry), in_seconds(took) if isinstance(took, int | float) else "", _cost(entry),
        _numbered("commits", entry.get("commits")) if entry.get("commits") else "",
        _cut(entry.get("next"), _MOST_WORDS_CHARS),
    ]  # fmt: skip
    return "- " + " · ".join(part for part in parts if part) + "\n"


def _local(at: object) -> str:
    try:
        return datetime.fromisoformat(str(at)).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError):
        return ""


def _numbered(word: str, number: object) -> str:
    return f"{word} {number}" if isinstance(number, int) else ""


def _task_words(task: object) -> str:
    if not isinstance(task, Mapping):
        return ""
    name, title = (_cut(task.get(key), _MOST_TITLE_CHARS) for key in ("id", "title"))
    return name if title in ("", name) else f"{name} {title}"


def _agent(entry: Entry) -> str:
    which = (_numbered("attempt", entry.get("attempt")), _cut(entry.get("phase"), _MOST_TITLE_CHARS))
    attempt = ", ".join(part for part in which if part)
    return _cut(entry.get("agent"), _MOST_TITLE_CHARS) + (f" ({attempt})" if attempt else "")


def _outcome(entry: Entry) -> str:
    kind, why = (_cut(entry.get(key), _MOST_WORDS_CHARS) for key in ("failure_kind", "why"))
    outcome = _cut(entry.get("outcome"), _MOST_TITLE_CHARS)
    if not kind:
        return outcome
    return f"{outcome}: {kind}" + (f" ({why})" if why else "")


def _cost(entry: Entry) -> str:
    cost, source = entry.get("cost_usd"), entry.get("cost_source")
    if not isinstance(cost, int | float):
        return "cost unknown" if source == "unknown" else ""
    if cost == 0 and source is None:
        return ""
    return f"${cost:.2f}" + (" (estimated)" if source == "estimated" else "")


def _cut(text: object, most: int) -> str:
    return one_line(text, most) if isinstance(text, str) else ""


def iterations(newest_first: Iterable[Entry], limit: int) -> list[dict[str, Any]]:
    """Return the last iterations, newest first, each with its attempts, oldest first.

    Attempts at an iteration that was never finished make an entry whose ``at`` is None.
    """
    found: list[dict[str, Any]] = []
    for entry in newest_first:
        match entry.get("kind"):
            case "iteration":
                if len(found) == limit:
                    break
                found.append({key: entry.get(key) for key in _ITERATION} | {"attempts": []})
            case "attempt":
                if not (found and _belongs(entry, found[-1])):
                    if len(found) == limit:
                        break
                    known = {key: entry.get(key) for key in ("run_id", "iteration", "task")}
                    found.append({**dict.fromkeys(_ITERATION), **known, "attempts": []})
                shown = {key: value for key, value in entry.items() if key not in ("kind", "key")}
                found[-1]["attempts"].insert(0, shown)
    return found


def _belongs(attempt: Entry, iteration: Entry) -> bool:
    """An iteration that was cut off and finished by a later run has the attempts of both."""
    key = "run_id" if attempt.get("iteration") is None else "iteration"
    mine, its = attempt.get(key), iteration[key]
    return mine is not None and bool(mine == its)


# The last thing that got anywhere: an iteration that was finished, a commit that stays, the work done.

MOST_CHARS = 160


@dataclass(frozen=True, slots=True)
class LastChange:
    """The last lasting progress, in words."""

    what: str
    at: Moment


def change_of(before: Supervision, event: Event, after: Supervision, head: str | None) -> LastChange | None:
    """Return the progress that ``event`` has brought, or None. ``head`` is abbreviated."""
    if (what := _what(before, event, after, head)) is None:
        return None
    return LastChange(what if len(what) <= MOST_CHARS else what[: MOST_CHARS - 1] + "…", event.at)


def _what(before: Supervision, event: Event, after: Supervision, head: str | None) -> str | None:
    match event:
        case reports.Reported(report=reports.IterationFinished(failed=False) as report) if (
            not reports.is_known(before, event)
        ):
            if before.said.reverted and before.said.judged == reports.boundary_id(event):
                return None
            which = "an iteration" if report.number is None else f"iteration {report.number}"
            verb = "finished, its task is done" if report.complete and report.task else "finished"
            made = f", {commit_names(report.commits[::-1], 2)}" if report.commits else ""
            return f"{which} {verb}{made}{_about(report.task)}"
        case VerdictReached(verdict=verdict) if verdict.kind is VerdictKind.KEPT and verdict.commits:
            of = "" if verdict.number is None else f", of iteration {verdict.number}"
            return f"{commit_names(short(verdict.commits), 2)} kept{of}{_about(verdict.task)}"
        case CommitsRestored(commits=commits) if commits:
            return f"put back, as you asked: {commit_names(commits, 2)}"
        case Committed(commits=count) if after.tally.iteration > before.tally.iteration:
            return f"{count} commits, the last one {head}" if count > 1 else f"commit {head}"
        case RunEnded() if isinstance(after.state, Done) and after.state.why == "complete":
            return "all is done"
        case RunEnded() if (
            isinstance(after.state, Waiting) and after.tally.iteration > before.tally.iteration
        ):
            return f"iteration {after.tally.iteration} finished" + (f", at commit {head}" if head else "")
        case _:
            return None


def _about(task: ReportedTask | None) -> str:
    return "" if task is None else f": {task.title or task.id}"
