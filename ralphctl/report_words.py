"""A report in words: what was done, what was undone and why, where time and money went, what blocks now."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ralphctl import show
from ralphctl.guard_words import commit_words
from ralphctl.report_figures import money_words, share_rows, task_words, usd
from ralphctl.report_page import Item, Page, Section, typed
from ralphctl.tell import clean
from ralphctl.words import clock, count, duration, until, wait_words

if TYPE_CHECKING:
    from ralphctl.local.report import Report
    from ralphd.core.night_model import Failure, Night, TaskWork, Undone

MOST_DONE = 20
MOST_OTHERS = 12
MOST_TIMES = 4
MOST_SHAS = 2
_MOST_WHY = 160


def page(report: Report, now: float) -> Page:
    """The whole report of one ralph."""
    night = report.night
    sections = (
        Section("What was done", *_most(tuple(_done(task, now) for task in night.done), MOST_DONE, report)),
        Section("Begun, and not done", *_most(_begun(report, now), MOST_OTHERS, report)),
        Section("What was undone, and why", *_most(_all_undone(report, now), MOST_OTHERS, report)),
        Section(f"Where the time went ({duration(night.until - night.since)})", rows=share_rows(night)),
        Section(
            "What failed", *_most(tuple(_failed(each, now) for each in night.failures), MOST_OTHERS, report)
        ),
        Section("What it cost, by agent", rows=tuple(_agents(night))),
        Section("What it cost, by task", rows=tuple(_costs(night)), end=_more_costs(report)),
        Section("Still open", *_most(_open(report), MOST_OTHERS, report)),
    )
    view = report.view
    return Page(
        clean(report.place.name),
        show.state_words(brief(view), now),
        tuple(_rows(report, now)),
        tuple(section for section in sections if section.items or section.rows),
    )


def brief(view: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with a message that leaves room on the first screen."""
    message = view.get("message")
    return {**view, "message": _cut(message, _MOST_WHY)} if isinstance(message, str) else view


# --- the first lines ------------------------------------------------------------------------------------


def _rows(report: Report, now: float) -> Iterator[tuple[str, str]]:
    night = report.night
    yield "report", _span(night, now)
    yield "done", done_words(report)
    yield "blocked by", blocked_words(report, now)
    yield "goes on", goes_on_words(report, now)
    yield "cost", _cost(report)
    if said := _commits(report):
        yield "commits", said
    yield "time", _times(night)
    yield "directory", show.directory_words(report.view)
    if night.calls:
        last = night.calls[-1]
        said = clean(last.message) or "no reason is kept"
        called = "once" if len(night.calls) == 1 else f"{len(night.calls)} times, last"
        yield "called you", f"{called} at {short_clock(last.at, now)}: {_cut(said, _MOST_WHY)}"
    if not night.last_at and not report.standing.runs:
        yield (
            "note",
            "nothing is recorded of this time; further back: "
            + typed(f"ralphctl report {report.place.name} --since 7d"),
        )
    for i, (what, command) in enumerate(next_steps(report)):
        yield "next" if i == 0 else "", f"{typed(command)}  ({what})"
    notes = report.view.get("notes")
    yield from (("note", clean(str(note))) for note in (notes if isinstance(notes, list) else []))
    yield from (("note", clean(note)) for note in night.notes)


def _span(night: Night, now: float) -> str:
    end = clock(night.until, now) if night.until < now else f"now, {clock(now, now)}"
    return f"{day(night.since)} to {end} ({duration(night.until - night.since)})"


def day(at: float) -> str:
    """A moment with its day, in local time."""
    import time

    return time.strftime("%a %d %b %H:%M", time.localtime(at))


def done_words(report: Report) -> str:
    """``5 of 12 tasks (prd.json), 3 of them in this time``."""
    tasks, here = report.tasks, len(report.night.done)
    if tasks is None:
        return (
            f"{count(here, 'task')} in this time; there is no task list to count them by"
            if here
            else (f"{count(report.night.iterations, 'iteration')}; there is no task list to count by")
        )
    file = f" ({clean(tasks.file)})" if tasks.file else ""
    return f"{tasks.done} of {count(tasks.total, 'task')}{file}, {here or 'none'} of them in this time"


def blocked_words(report: Report, now: float) -> str:
    """What keeps it from working, and since when that may be over."""
    stands, view = report.standing, report.view
    out = ", ".join(map(clean, stands.agents_out))
    agents = f"; {out} out until you act" if out else ""
    used_up = [task for task in report.tasks.open if task.used_up] if report.tasks else []
    if stands.state == "failed":
        return _cut(show.why_failed(view), _MOST_WHY) + agents
    if stands.needs_person:
        why = clean(str(view.get("message") or "")) or show.state_words(view, now)
        return _cut(why, _MOST_WHY) + agents
    if stands.waits_for is not None:
        wait = view["wait"].get("reason")
        return f"it waits {clean(wait_words(wait or 'unknown'))}{agents}"
    if used_up:
        which = clean(used_up[0].id) if len(used_up) == 1 else count(len(used_up), "task")
        return f"{which} failed too often to be tried again{agents}"
    if agents:
        return agents.removeprefix("; ")
    if stands.state == "stopped" and view.get("message"):
        return _cut(clean(str(view["message"])), _MOST_WHY)
    return "nothing"


def goes_on_words(report: Report, now: float) -> str:
    """When it goes on, or who has to see to that."""
    stands = report.standing
    steps = next_steps(report)
    if stands.goes_on_at is not None:
        return f"{until(report.view['wait'].get('until'), now)}, by itself"
    if stands.runs:
        return "it runs now"
    if stands.waits_for == "no_daemon":
        return f"when a ralphd runs: {typed('ralphctl regent start')}"
    if stands.state == "waiting_for_retry":
        return "by itself"
    going = [command for what, command in steps if what.startswith(("go on", "then go on", "start"))]
    how = f"when you type {typed(going[0])}" if going else "when you start it"
    if stands.state == "done":
        return f"it is done{'; ' + typed(going[0]) + ' starts it again' if going else ''}"
    return how


def next_steps(report: Report) -> list[tuple[str, str]]:
    """What a person may want to do now, best first."""
    if not report.place.is_build:
        return show.next_steps(report.view)
    again = "go on" if report.standing.state == "paused" else "start again"
    where = clean(report.place.directory)
    return [] if report.standing.runs else [(again, f"ralphctl -C {shlex.quote(where)} build")]


def cost_words(report: Report) -> str:
    """What was spent in the span, or that nobody has told."""
    return "unknown: its command tells none" if report.has_untold_costs else money_words(report.night.money)


def _cost(report: Report) -> str:
    spent = report.view.get("total_cost_usd")
    said = cost_words(report)
    if isinstance(spent, int | float) and round(spent, 2) > round(report.night.money.micro_usd / 1e6, 2):
        said += f"; {usd(round(spent * 1e6))} since it was started"
    return said


def _commits(report: Report) -> str:
    night, changed = report.night, report.changed
    if not (report.commits or night.reverted):
        return "none" if night.iterations or night.runs else ""
    said = f"{len(report.commits)} kept"
    if changed is not None and changed.commits:
        sums = f"{count(changed.files, 'file')}, +{changed.added:,} −{changed.removed:,}"
        missing = f", without {changed.missing} that are not there any more" if changed.missing else ""
        said += f" ({sums}{missing})"
    if night.reverted:
        said += f", {len(night.reverted)} reverted"
    if night.unjudged:
        said += f"; those of {count(night.unjudged, 'iteration')} could not be judged"
    return said


def _times(night: Night) -> str:
    """Work first, then what took longest."""
    rows = sorted(share_rows(night), key=lambda row: row[0] != "work")
    return ", ".join(f"{name} {took}" for name, took, _ in rows[:MOST_TIMES]) or "none"


# --- the sections ---------------------------------------------------------------------------------------


def _most(
    items: Sequence[Item], most: int, report: Report
) -> tuple[tuple[Item, ...], tuple[tuple[str, ...], ...], str]:
    """So many of them, no rows, and how to see the others."""
    left = len(items) - most
    end = f"… and {left} more: {typed(f'ralphctl report {report.place.name} --json')}" if left > 0 else ""
    return tuple(items[:most]), (), end


def _done(task: TaskWork, now: float) -> Item:
    when = "" if task.done_at is None else f"{short_clock(task.done_at, now)}  "
    return Item(f"{when}{task_words(task.id, task.title)}{_details(task)}")


def short_clock(at: float, now: float) -> str:
    """A moment to the minute."""
    said = clock(at, now)
    return said[:5] if said[2:3] == ":" else said


def _details(task: TaskWork) -> str:
    parts = [_iterations(task.numbers)] if task.numbers else []
    few = len(task.kept) <= MOST_SHAS
    parts.append((commit_words(list(task.kept)) if few else count(len(task.kept), "commit")) or "no commit")
    if task.money.attempts:
        parts.append(money_words(task.money, brief=True))
    return f": {', '.join(parts)}"


def _iterations(numbers: Sequence[int]) -> str:
    return f"iteration {numbers[0]}" if len(numbers) == 1 else count(len(numbers), "iteration")


def _begun(report: Report, now: float) -> tuple[Item, ...]:
    begun = [task for task in report.night.tasks if task.done_at is None and task.id is not None]
    return tuple(
        Item(f"{task_words(task.id, task.title)}{_details(task)}", more=_trouble(task)) for task in begun
    )


def _trouble(task: TaskWork) -> tuple[str, ...]:
    if not task.failures:
        return ()
    return (f"{count(task.failures, 'failure')}, the last: {_cut(clean(task.last_failure), _MOST_WHY)}",)


def _all_undone(report: Report, now: float) -> tuple[Item, ...]:
    return tuple(_undone(each, report, now) for each in report.night.undone)


def _undone(undone: Undone, report: Report, now: float) -> Item:
    which = "" if undone.number is None else f"iteration {undone.number}, "
    task = task_words(undone.task_id, undone.title) if undone.task_id else "no task named"
    said = f"{short_clock(undone.at, now)}  {which}{task}: {commit_words(list(undone.commits))} reverted"
    quoted = tuple(clean(line) for line in undone.tail)
    if undone.back_at is not None:
        more = (f"put back at {short_clock(undone.back_at, now)}",)
    else:
        more = (_way_back(undone, report),)
    return Item(f"{said}: {_cut(clean(undone.why), _MOST_WHY) or 'no reason is kept'}", quoted, more)


def _way_back(undone: Undone, report: Report) -> str:
    """The command that puts it back, or, where no daemon knows the ralph, that finds what to revert."""
    place = report.place
    if place.is_build:
        oldest = undone.commits[-1] if undone.commits else ""
        found = typed(f"git -C {shlex.quote(place.directory)} log --grep 'This reverts commit {oldest}'")
        return f"to put it back: git revert what is found by {found}"
    number = "" if undone.number is None else f" {undone.number}"
    return f"to put it back: {typed(f'ralphctl undo {place.name}{number}')}"


def _failed(failure: Failure, now: float) -> Item:
    kind = clean(failure.kind.replace("_", " "))
    why = f": {_cut(clean(failure.why), _MOST_WHY)}" if failure.why else ""
    times = f"{failure.count} times, last at" if failure.count > 1 else "at"
    return Item(f"{kind}, {times} {short_clock(failure.last_at, now)}{why}")


def _agents(night: Night) -> Iterator[tuple[str, ...]]:
    for work in night.agents:
        failed = f", {work.failures} failed" if work.failures else ""
        attempts = count(work.money.attempts, "attempt") + failed if work.money.attempts else "told apart"
        yield clean(work.agent or "no agent named"), money_words(work.money), attempts


def _costs(night: Night) -> Iterator[tuple[str, ...]]:
    for task in night.tasks[:MOST_OTHERS]:
        if task.money.attempts or task.money.micro_usd:
            attempts = count(task.money.attempts, "attempt") if task.money.attempts else "told apart"
            yield task_words(task.id, task.title), money_words(task.money, brief=True), attempts


def _more_costs(report: Report) -> str:
    return _most([Item("")] * len(report.night.tasks), MOST_OTHERS, report)[2]


def _open(report: Report) -> tuple[Item, ...]:
    if report.tasks is None:
        return ()
    return tuple(
        Item(_open_words(task.id, task.title, task.failures, task.why, task.used_up))
        for task in report.tasks.open
    )


def _open_words(id_: str, title: str, failures: int, why: str, used_up: bool) -> str:
    said = task_words(id_, title)
    if failures:
        said += f": failed {count(failures, 'time')}" + (", not tried again" if used_up else "")
        said += f", last: {_cut(clean(why), _MOST_WHY)}" if why else ""
    return said


def _cut(said: str, most: int) -> str:
    return said if len(said) <= most else said[: most - 1] + "…"
