"""A report in words: what was done and undone, where time and money went, what blocks it now.

A cost that is not known is called unknown; it is never shown as 0.
"""

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

from ralphctl.format import gate_text, state_text
from ralphctl.format.explanation import localised
from ralphctl.format.gate_text import commit_words
from ralphctl.format.humanize import View, clock, count, cut, duration, minute, moment, until, usd_words
from ralphctl.format.output import clean
from ralphctl.report import model
from ralphctl.report.model import MICRO, TIME_USES, WAITS, RalphReport, ReportCost, ReportRevert, ReportTask
from ralphctl.report.page import PageItem, PageSection, PageStrip, ReportPage, typed
from ralphd import overview as overview_words

_MOST_DONE, _MOST, _MOST_TIMES, _MOST_SHAS = 20, 12, 4, 2
_STARTS = ("continue", "then resume", "resume", "start")
_TITLE_CHARS, _WHY_CHARS = 60, 160
_NOTHING = "nothing"


# --- one ralph, and several -------------------------------------------------------------------------------


def page(report: RalphReport, now: float) -> ReportPage:
    """Return the whole report on one ralph."""
    summary = report.summary
    listed, left = (report.tasks.listed, report.tasks.open) if report.tasks else ((), ())
    done = {None, *(task.id for task in listed if task.state == "done")}  # in an iteration for another one
    begun = [task for task in summary.tasks if task.done_at is None and task.id not in done]
    known = {failure.why for failure in summary.failures}  # their section has the whole text
    started, length = {task.id for task in begun}, duration(summary.until - summary.since)
    still_open = [task for task in left if task.used_up or task.id not in started]
    sections = (
        _section("Done", partial(_worked_on, now=now), summary.done, report, _MOST_DONE),
        _section("Started, not done", partial(_worked_on, now=now, known=known), begun, report),
        _section("Reverted", partial(_undone, report=report, now=now), summary.undone, report),
        _section("Weakened tests", partial(_weakened, now=now), summary.weakened, report),
        _section("Repaired", partial(_repaired, now=now), summary.repairs, report),
        PageSection(f"Where the time went ({length})", rows=tuple(_times(report))),
        _section("Failures", partial(_failed, now=now), summary.failures, report),
        PageSection("Cost by agent", rows=tuple(_agents(report))),
        PageSection("Cost by task", (), tuple(_costs(report)), _rest(len(summary.tasks), report)),
        _section("Still open", partial(_still_open, known=known), still_open, report),
    )
    name, state = clean(report.source.name), state_text.state_words(_brief(report.view), now)
    shown = tuple(section for section in sections if section.items or section.rows)
    return ReportPage(name, state, tuple(_rows(report, now)), shown, _strips([report], ["night"]))


def overview(reports: Sequence[RalphReport], since: float, to: float, now: float) -> ReportPage:
    """Return a few lines on each ralph, those that need a person first."""
    ordered = sorted(reports, key=lambda each: (not each.needs_you, overview_words.Row(each.view).order))
    blocked = sum(report.needs_you for report in reports)
    begin, _ = model.strip_span(reports)
    begins = f"; the strips begin at {clock(begin, now)}" if begin > since else ""
    rows = (
        ("report", _span(since, to, now) + begins),
        ("done", f"{count(sum(len(report.summary.done) for report in reports), 'task')} in this span"),
        ("cost", together([(report, {}) for report in reports])),
        ("next", f"{typed(f'ralphctl report {ordered[0].source.name}')}  (the full report)"),
    )
    items = []
    for report in ordered:
        more = [f"done: {_done_words(report)}; cost: {_spent(report)}"]
        if report.state.is_blocked:
            more.append(f"blocked by: {_blocked_words(report, now)}; resumes {_goes_on_words(report, now)}")
        head = f"{clean(report.source.name)}  {state_text.state_words(_brief(report.view), now)}"
        items.append(PageItem(head, more=tuple(more)))
    state = f"{blocked or 'none'} {'need' if blocked > 1 else 'needs'} you"
    strips = _strips(ordered, [clean(report.source.name) for report in ordered])
    section = PageSection("Ralphs", tuple(items))
    return ReportPage(count(len(reports), "ralph"), state, rows, (section,), strips)


def _strips(reports: Sequence[RalphReport], labels: Sequence[str]) -> tuple[PageStrip, ...]:
    """Return the strips of those that did anything."""
    since, until = model.strip_span(reports)
    return tuple(
        PageStrip(label, partial(report.summary.cells, since, until))
        for label, report in zip(labels, reports, strict=True)
        if report.summary.stretches or report.summary.calls
    )


def with_landing(shown: ReportPage, queues: Sequence[View], now: float) -> ReportPage:
    """Return the page with a row and a section for each landing queue: what waits and why, what landed."""
    names = state_text.repository_names(queues)
    for queue, name in sorted(zip(queues, names, strict=True), key=lambda each: each[1], reverse=True):
        landed = [each for each in queue["candidates"] if each["state"] in ("landed", "pushed")]
        left = [each for each in queue["candidates"] if each not in landed]
        aside = [each for each in landed if overview_words.is_aside(each)]
        landed = [each for each in landed if each not in aside]
        target = f"{clean(queue['target'])} of {name}"
        items = [PageItem(f"blocked: {clean(queue['blocked'])}")] if queue["blocked"] else []
        items += [PageItem(_landing_words(each, queue, now)) for each in (*left, *aside, *landed)]
        more = f"… and {len(items) - _MOST_DONE} more: {typed('ralphctl queue')}" * (len(items) > _MOST_DONE)
        section = PageSection(f"Landing on {target}", tuple(items[:_MOST_DONE]), (), more)
        words = _landed_words(target, landed, len(aside), len(left))
        rows = [*shown.rows[:2], ("landed", words), *shown.rows[2:]]
        if queue["blocked"] and ("blocked by", _NOTHING) in rows:
            why = f"its landing queue: {clean(queue['blocked'])}"
            rows[rows.index(("blocked by", _NOTHING))] = ("blocked by", why)
        shown = shown._replace(rows=tuple(rows), sections=(section, *shown.sections))
    return shown


def _landed_words(target: str, landed: Sequence[View], aside: int, left: int) -> str:
    """Return how many branches are on the target, and where the others are."""
    merged = [each for each in landed if each["state"] == "landed" and not each["undoes"]]
    reverts = sum(bool(each["undoes"]) for each in landed)
    pushed = sum(each["state"] == "pushed" for each in landed)
    words = f"{count(len(merged), 'branch', 'branches') if merged else 'nothing'} on {target}"
    if merged and all(commits := [each["commits"] for each in merged]):
        words += f" ({count(sum(commits), 'commit')})"
    words += f", {count(reverts, 'revert')}" if reverts else ""
    words += f"; {pushed} pushed for a pull request" if pushed else ""
    words += f"; {aside} waiting for the checkout: {typed(overview_words.MERGE)} there" if aside else ""
    return words + (f"; {left} not yet: {typed('ralphctl queue')}" if left else "")


def _landing_words(each: View, queue: View, now: float) -> str:
    at = minute(moment(each["ended_at"] or each["queued_at"]) or now, now)
    brought = f" ({count(each['commits'], 'commit')})" if each["commits"] and not each["undoes"] else ""
    if overview_words.is_aside(each):
        undoes = "the revert of " * bool(each["undoes"])
        words = overview_words.aside_words(each, queue["target"])
        return f"{at}  {undoes}{clean(each['branch'])}{brought} {clean(words)}"
    state = "reverted" if each["undoes"] and each["commit"] else each["state"]
    step = "" if each["next"] in each["why"] else clean(each["next"])
    step = typed(step) if step.startswith("ralphctl ") else step
    why = "; ".join(filter(None, (clean(each["why"]), step)))
    return f"{at}  {clean(each['branch'])} {state}{brought}" + (f": {why}" if why else "")


def cost_page(report: RalphReport, seen: View, now: float) -> ReportPage:
    """Return what a ralph cost: in all, per hour, by agent, by task, and what is left of its budget.

    ``seen`` is what the daemon read in the output of a command that reports no costs.
    """
    whole = page(report, now)
    found = dict(whole.rows)
    if found_cost := seen_cost(report, seen).micro_usd:
        before = "" if report.has_untold_costs else f"{found['cost']}; "
        found["cost"] = f"{before}{usd_words(found_cost / MICRO)} (seen in output of the current run)"
    rate, cost = report.usd_per_hour, report.summary.cost
    found["per hour"] = usd_words(rate) if rate else ""
    found["tokens"] = f"{cost.tokens_in:,} in, {cost.tokens_out:,} out" if cost.tokens_in else ""
    found.setdefault("budget", f"no limit; {typed('ralphctl config set ralph.max_cost_usd 20')} sets one")
    rows = [(key, found[key]) for key in ("report", "cost", "per hour", "tokens", "budget") if found[key]]
    costs = tuple(section for section in whole.sections if section.title.startswith("Cost by"))
    return ReportPage(whole.name, whole.state, tuple(rows), costs)


def together(pairs: Sequence[tuple[RalphReport, View]]) -> str:
    """Return what ralphs cost in all, with what was ``seen`` of each, and of how many that is unknown."""
    total = sum((report.summary.cost + seen_cost(report, seen) for report, seen in pairs), ReportCost())
    silent = sum(report.has_untold_costs and not seen.get("cost_usd") for report, seen in pairs)
    unknown = f"unknown for {count(silent, 'ralph')}" if silent else ""
    return "; ".join(filter(None, (cost_words(total) if silent < len(pairs) else "", unknown)))


def seen_cost(report: RalphReport, seen: View) -> ReportCost:
    """Return what the output of a run showed that reports no costs itself."""
    reports_none = report.state.runs and not report.view.get("total_cost_usd")
    usd = seen.get("cost_usd") if report.has_untold_costs or reports_none else None
    return ReportCost(round(usd * MICRO) if isinstance(usd, int | float) else 0)


def _brief(view: View) -> View:
    """Truncate the message, so that it leaves room on the first screen."""
    message = view.get("message")
    return {**view, "message": cut(message, _WHY_CHARS)} if isinstance(message, str) else view


# --- the first lines --------------------------------------------------------------------------------------


def _rows(report: RalphReport, now: float) -> Iterator[tuple[str, str]]:
    summary = report.summary
    yield "report", _span(summary.since, summary.until, now)
    yield "done", _done_words(report)
    yield "blocked by", _blocked_words(report, now)
    yield "resumes", _goes_on_words(report, now)
    total_usd = report.view.get("total_cost_usd") or 0.0
    is_more = round(total_usd, 2) > round(summary.cost.micro_usd / MICRO, 2)
    yield "cost", _spent(report) + (f"; {usd_words(total_usd)} since the start" if is_more else "")
    if report.left_usd is not None:
        rate = report.usd_per_hour
        lasts = f", enough for {duration(report.left_usd / rate * 3600)}" if rate and report.left_usd else ""
        yield "budget", f"{usd_words(report.left_usd)} left of {usd_words(report.budget_usd)}{lasts}"
    if report.forecast is not None:
        yield "forecast", report.forecast.words()
    if commits := _commits(report):
        yield "commits", commits
    times = sorted(_times(report), key=lambda row: row[0] != "work")
    yield "time", ", ".join(f"{name} {took}" for name, took, _ in times[:_MOST_TIMES]) or "none"
    yield "directory", state_text.directory_words(report.view)
    if summary.calls:
        last = summary.calls[-1]
        times_called = "once" if len(summary.calls) == 1 else f"{len(summary.calls)} times, last"
        yield "alerts", f"{times_called} at {minute(last.at, now)}: {_why(last.message)}"
    if not summary.last_at and not report.state.runs:
        further = typed(f"ralphctl report {report.source.name} --since 7d")
        yield "note", f"nothing was recorded in this span; an earlier start: {further}"
    for i, (what, command) in enumerate(_next_steps(report)):
        yield "next" if i == 0 else "", f"{typed(command)}  ({what})"
    notes = report.view.get("notes")
    for note in (*(notes if isinstance(notes, list) else ()), *summary.remarks):
        yield "note", clean(note)


def _span(since: float, to: float, now: float) -> str:
    end = f"now, {clock(now, now)}" if to >= now else clock(to, now)
    return f"{time.strftime('%a %d %b %H:%M', time.localtime(since))} to {end} ({duration(to - since)})"


def _done_words(report: RalphReport) -> str:
    tasks, summary, here = report.tasks, report.summary, len(report.summary.done)
    if tasks is not None:
        file = f" ({clean(tasks.file)})" if tasks.file else ""
        # Finished ones may have been removed from the list.
        span = f"{here} {'of them' if here <= tasks.done else 'done'}" if here else "none reported"
        return f"{tasks.done} of {count(tasks.total, 'task')}{file}, {span} in this span"
    if here:
        return f"{count(here, 'task')} in this span; there is no task list"
    has_runs_only = summary.runs and not summary.iterations  # a loop of its own that reports nothing
    done = count(summary.runs, "run") if has_runs_only else count(summary.iterations, "iteration")
    return f"{done}; there is no task list"


def _blocked_words(report: RalphReport, now: float) -> str:
    state, view, out = report.state, report.view, ", ".join(map(clean, report.state.agents_out))
    used_up = [task for task in report.tasks.open if task.used_up] if report.tasks else []
    message = clean(view.get("message") or "")
    why = ""
    if state.state == "failed":
        why = cut(state_text.why_failed(view), _WHY_CHARS)
    elif state.needs_person:
        why = cut(message or state_text.state_words(view, now), _WHY_CHARS)
    elif state.waits_for is not None:
        why = state_text.waiting_words(view)
    elif used_up:
        which = clean(used_up[0].id) if len(used_up) == 1 else count(len(used_up), "task")
        why = f"{which} failed too often; it is not retried"
    elif state.state == "stopped" and not out:
        why = cut(message, _WHY_CHARS)
    return "; ".join(filter(None, (why, f"{out} out until you act" if out else ""))) or _NOTHING


def _goes_on_words(report: RalphReport, now: float) -> str:
    state = report.state
    if state.goes_on_at is not None:
        return f"{until(report.view['wait'].get('until'), now)}, automatically"
    if state.runs:
        return "running now"
    if state.waits_for == "no_daemon":
        return f"when a daemon runs: {typed('ralphctl regent start')}"
    if state.state == "waiting_for_retry":
        return "automatically"
    command = next((typed(how) for what, how in _next_steps(report) if what.startswith(_STARTS)), "")
    if state.state == "done":
        return f"done; {command} starts it again" if command else "done"
    return f"when you type {command}" if command else "when you start it"


def _next_steps(report: RalphReport) -> list[tuple[str, str]]:
    """Return what a person may want to do now, best first."""
    if not report.source.is_build:
        return [step for step in state_text.next_steps(report.view) if step[0] != "see what it did"]
    view = {**report.view, "directory": report.source.directory}
    return [] if report.state.runs else [state_text.build_step(view)]


def _commits(report: RalphReport) -> str:
    summary, changed = report.summary, report.changed
    if not (summary.kept or summary.reverted):
        return "none" if summary.iterations and not report.view.get("command") else ""
    words = f"{len(summary.kept)} kept"
    if changed is not None and changed.commits:
        missing = f", not counting {changed.missing} that git no longer has" if changed.missing else ""
        words += f" ({count(changed.files, 'file')}, +{changed.added:,} −{changed.removed:,}{missing})"
    if summary.reverted:
        words += f", {len(summary.reverted)} reverted"
    if summary.unjudged:
        words += f"; those of {count(summary.unjudged, 'iteration')} could not be judged"
    return words


# --- the sections -----------------------------------------------------------------------------------------


def _section(
    title: str, item: Callable[[Any], PageItem], found: Sequence[Any], report: RalphReport, most: int = _MOST
) -> PageSection:  # fmt: skip
    return PageSection(title, tuple(map(item, found[:most])), (), _rest(len(found), report, most))


def _rest(number: int, report: RalphReport, most: int = _MOST) -> str:
    """Return how to see the items beyond the first ones."""
    all_of_them = typed(f"ralphctl report {report.source.name} --json")
    return f"… and {number - most} more: {all_of_them}" if number > most else ""


def _worked_on(task: ReportTask, now: float, known: Collection[str] = ()) -> PageItem:
    numbers, shas = task.iterations, list(task.kept)
    parts = [f"iteration {numbers[0]}" if len(numbers) == 1 else count(len(numbers), "iteration")]
    parts.append(count(len(shas), "commit") if len(shas) > _MOST_SHAS else commit_words(shas) or "no commit")
    parts += [cost_words(task.cost, brief=True)] if task.cost.attempts else []
    name = f"{_task_words(task.id, task.title)}: {', '.join(parts if numbers else parts[1:])}"
    if task.done_at is not None:
        return PageItem(f"{minute(task.done_at, now)}  {name}")
    failures = count(task.failures, "failure")
    if task.last_failure not in known:
        failures += f", the last: {cut(clean(task.last_failure), _WHY_CHARS)}"
    return PageItem(name, more=(failures,) if task.failures else ())


def _undone(revert: ReportRevert, report: RalphReport, now: float) -> PageItem:
    source = report.source
    number = "" if revert.iteration is None else f" {revert.iteration}"
    later = (each for each in report.summary.undone if each.at > revert.at and each.put_back_at is None)
    undo_is_for_later = any(revert.iteration in (None, each.iteration) for each in later)
    if revert.put_back_at is not None:
        way_back = f"restored at {minute(revert.put_back_at, now)}"
    elif source.is_build or undo_is_for_later:
        oldest = revert.commits[-1]
        search = f"git -C {shlex.quote(source.directory)} log --grep 'This reverts commit {oldest}'"
        way_back = f"to restore it, run git revert on the commit that this finds: {typed(search)}"
    else:
        way_back = f"to restore it: {typed(f'ralphctl undo {source.name}{number}')}"
    return PageItem(_judged(revert, "reverted", now), tuple(map(clean, revert.tail)), (way_back,))


def _weakened(verdict: model.ReportWeakened, now: float) -> PageItem:
    return PageItem(_judged(verdict, clean(verdict.verdict), now))


def _judged(judged: ReportRevert | model.ReportWeakened, became: str, now: float) -> str:
    number = "" if judged.iteration is None else f"iteration {judged.iteration}, "
    task = _task_words(judged.task["id"], judged.task["title"]) if judged.task else "no task reported"
    commits = commit_words(list(judged.commits)) or "no commit"
    return f"{minute(judged.at, now)}  {number}{task}: {commits} {became}: {_why(judged.why)}"


def _repaired(repair: View, now: float) -> PageItem:
    words, *ways = gate_text.repair_words(repair)
    return PageItem(f"{minute(repair['at'], now)}  {_why(words)}", more=tuple(ways))


def _failed(failure: model.ReportFailure, now: float) -> PageItem:
    why = f": {cut(localised(clean(failure.why), now), _WHY_CHARS)}" if failure.why else ""
    times = f"{failure.count} times, last at" if failure.count > 1 else "at"
    return PageItem(f"{clean(failure.kind.replace('_', ' '))}, {times} {minute(failure.last_at, now)}{why}")


def _times(report: RalphReport) -> Iterator[tuple[str, str, str]]:
    whole = sum(share.us for share in report.summary.shares)
    for share in report.summary.shares:
        reason = f": {WAITS.get(share.reason, share.reason)}" if share.reason else ""
        name = TIME_USES[share.doing] + reason
        took = duration(share.us / MICRO) if share.us >= MICRO else "under 1s"
        percent = 100 * share.us / whole
        yield name, took, "under 1 %" if percent < 1 else f"{percent:.0f} %"


def _agents(report: RalphReport) -> Iterator[tuple[str, ...]]:
    for agent in report.summary.agents:
        failed = f", {agent.failures} failed" if agent.failures else ""
        yield clean(agent.agent or "unknown agent"), cost_words(agent.cost), _attempts(agent.cost) + failed


def _costs(report: RalphReport) -> Iterator[tuple[str, ...]]:
    for task in report.summary.tasks[:_MOST]:
        if task.cost.attempts or task.cost.micro_usd:
            yield _task_words(task.id, task.title), cost_words(task.cost, brief=True), _attempts(task.cost)


def _attempts(cost: ReportCost) -> str:
    return count(cost.attempts, "attempt") if cost.attempts else "reported separately"


def _still_open(task: model.ListedTask, known: Collection[str]) -> PageItem:
    words = _task_words(task.id, task.title)
    if task.failures:
        words += f": failed {count(task.failures, 'time')}{'; not retried' if task.used_up else ''}"
        words += f", last: {cut(clean(task.why), _WHY_CHARS)}" if task.why not in {"", *known} else ""
    return PageItem(words)


# --- single values ----------------------------------------------------------------------------------------


def _spent(report: RalphReport) -> str:
    known = "" if report.has_untold_costs else cost_words(report.summary.cost)
    return known or "unknown; its command reports no cost"


def cost_words(cost: ReportCost, *, brief: bool = False) -> str:
    """Return what is known of a cost, and what is not: ``$4.20, and 3 attempts of unknown cost``."""
    if not cost.attempts and not cost.micro_usd:
        return "" if brief else _NOTHING
    if cost.is_unknown:
        return "cost unknown" if brief else "unknown; no attempt reported its cost"
    words = usd_words(cost.micro_usd / MICRO)
    if cost.estimated:
        words += " (estimated)" if cost.estimated >= cost.attempts - cost.unknown else " (partly estimated)"
    if not cost.unknown:
        return words
    attempts = count(cost.unknown, "attempt")
    return f"{words} + {cost.unknown} unknown" if brief else f"{words}, and {attempts} of unknown cost"


def _why(reason: str) -> str:
    return cut(clean(reason), _WHY_CHARS) or "no reason recorded"


def _task_words(id_: str | None, title: str) -> str:
    """Return a task by its title, or by its id if it has no title."""
    return cut(clean(title or id_ or "no task reported"), _TITLE_CHARS)
