"""The last thing that got anywhere: an iteration that was finished, a commit that stays, the work done."""

from dataclasses import dataclass

from ralphd.core.events import CommitsRestored, Committed, Event, JudgementOver, RunEnded
from ralphd.core.model import Done, Moment, Supervision, Task, Waiting
from ralphd.core.reported import IterationFinished, Reported
from ralphd.core.reports import boundary_id, is_known
from ralphd.core.verdict import VerdictKind

MOST_CHARS = 160


@dataclass(frozen=True, slots=True)
class Change:
    """What changed for good, in words, and when."""

    what: str
    at: Moment


def change_of(before: Supervision, event: Event, after: Supervision, head: str | None) -> Change | None:
    """What ``event`` has brought, or None. ``head`` is where the repository stands, abbreviated."""
    what = _what(before, event, after, head)
    return None if what is None else Change(what[:MOST_CHARS], event.at)


def _what(before: Supervision, event: Event, after: Supervision, head: str | None) -> str | None:
    match event:
        case Reported(report=IterationFinished(failed=False) as report) if not is_known(before, event):
            reverted = before.said.reverted and before.said.judged == boundary_id(event)
            if reverted:
                return None
            verb = "finished, its task is done" if report.complete and report.task else "finished"
            return _iteration(report.number, report.task, report.commits[::-1], verb=verb)
        case JudgementOver(verdict=verdict) if verdict.kind is VerdictKind.KEPT and event.commits:
            of = "" if event.number is None else f", of iteration {event.number}"
            return _said(f"{_commits(event.commits)} kept{of}{_about(event.task)}")
        case CommitsRestored(commits=commits) if commits:
            return _said(f"put back, as you asked: {_commits(commits)}")
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


def _iteration(number: int | None, task: Task | None, commits: tuple[str, ...], *, verb: str) -> str:
    which = "an iteration" if number is None else f"iteration {number}"
    made = f", {_commits(commits)}" if commits else ""
    return _said(f"{which} {verb}{made}{_about(task)}")


def _about(task: Task | None) -> str:
    return "" if task is None else f": {task.title or task.id}"


def _commits(shas: tuple[str, ...]) -> str:
    more = f" and {len(shas) - 2} more" if len(shas) > 2 else ""
    return f"commit{'s' if len(shas) > 1 else ''} {', '.join(shas[:2])}{more}"


def _said(text: str) -> str:
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"
