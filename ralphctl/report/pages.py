"""The pages of ``show`` and ``tasks``."""

from collections.abc import Iterator, Sequence

from ralphctl.format.gate_text import commit_words, tests_words
from ralphctl.format.humanize import clock, count, cut, duration, part
from ralphctl.format.output import clean
from ralphctl.report import history, iteration, model, text
from ralphctl.report.page import PageItem, PageSection, ReportPage, typed
from ralphd.core.loop.inbox import Sent

_MOST_PRINTED, _MOST_FILES, _MOST_FAILED, _TAIL, _WHY = 20, 12, 5, 8, 160


def iteration_page(
    name: str, facts: iteration.IterationFacts, printed: Sequence[str], changed: Sequence[str], now: float
) -> ReportPage:
    """Return one iteration. ``changed`` are git's lines on its changes, the sum last."""
    run = clean(facts.run_id[1:7].lstrip("0"))
    which = "" if facts.number is None else f" {run and f'{run}:'}{facts.number}"  # runs share numbers
    title = "Agent output" if facts.attempts else "Output"
    if len(printed) > _MOST_PRINTED:
        logs = typed(f"ralphctl logs {name}" + (f" --iteration{which}" if which else ""))
        title += f" (the last {_MOST_PRINTED} lines; all: {logs})"
    *files, total = [line.strip() for line in changed] or [""]
    more = [f"… and {len(files) - _MOST_FILES} more"] if len(files) > _MOST_FILES else []
    sections = (
        PageSection("Failures", tuple(_failed(facts))),
        _quoted(title, printed[-_MOST_PRINTED:]),
        _quoted(f"Changes: {clean(total)}", [*files[:_MOST_FILES], *more]),
        _quoted("End of the failed tests", history.last_lines(facts.verdict.get("tail"), _TAIL)),
    )
    rows = dict(_rows(facts, now))
    if changed:
        rows["next"] = f"{typed(f'ralphctl diff {name}{which}')}  (see the changes)"
    state = f"{f'iteration {facts.number}' if which else 'the last iteration'} of run {run}"
    shown = tuple(row for row in rows.items() if row[1])
    return ReportPage(clean(name), state, shown, tuple(section for section in sections if section.items))


def _quoted(title: str, lines: Sequence[str]) -> PageSection:
    return PageSection(title, tuple(PageItem(f"| {clean(line)}") for line in lines))


def _rows(facts: iteration.IterationFacts, now: float) -> Iterator[tuple[str, str]]:
    end, attempts, verdict = facts.end, facts.attempts, facts.verdict
    task = part(end, "task")
    yield "task", clean(task.get("title") or task.get("id") or "")
    agents = " then ".join(dict.fromkeys(clean(each.get("agent")) for each in attempts))
    yield "agent", agents + (f", {len(attempts)} attempts" if len(attempts) > 1 else "")
    began, over = facts.began_at, history.moment(end.get("at"))
    since = "" if began is None else clock(began, now)
    took = "" if began is None or over is None else f" ({duration(over - began)})"
    time = f"{since + ' to' if since else 'until'} {clock(over, now)}{took}" if over else ""
    yield "time", time or f"since {since}, not finished"
    summary = clean(end.get("summary") or "").removeprefix("failed: ")
    if summary and verdict.get("verdict") == "reverted" and not verdict.get("undone"):
        summary += ", then reverted"
    yield "result", ": ".join(filter(None, ("failed" if end.get("failed") else "", summary)))
    cost = model.ReportCost()
    for each in attempts:
        cost.unknown += cost.include(each)
    tokens = f", {cost.tokens_in:,} tokens in, {cost.tokens_out:,} out" if cost.tokens_in else ""
    yield "cost", text.cost_words(cost, brief=True) + tokens if attempts else ""
    if verdict:
        tests = f" (tests: {words})" if (words := tests_words(verdict)) else ""
        kind = f"{clean(verdict.get('verdict'))}{', restored by undo' if verdict.get('undone') else ''}"
        yield "verdict", f"{kind}: {clean(verdict.get('why') or '')}{tests}"
    yield "commits", commit_words([sha[:7] for sha in facts.commits]) or "none known"


def _failed(facts: iteration.IterationFacts) -> Iterator[PageItem]:
    for each in [each for each in facts.attempts if each.get("failure_kind")][-_MOST_FAILED:]:
        kind, why = clean(each["failure_kind"]).replace("_", " "), cut(clean(each.get("why") or ""), _WHY)
        yield PageItem(f"attempt {each.get('attempt')} by {clean(each.get('agent'))}, {kind}: {why}")


def tasks_page(report: model.RalphReport, notes: Sequence[Sent]) -> ReportPage:
    """Return each task with its state, tries, cost and last failure; and the notes for the next prompt."""
    listed, spent = report.tasks, {task.id: task.cost for task in report.summary.tasks}
    name = clean(report.source.name)
    if listed is None:
        add = typed(f'ralphctl tasks add {name} "Fix the header"')
        rows = () if report.view.get("command") else (("next", f"{add}  (give it a task)"),)
        return ReportPage(name, "no task list", rows, ())
    table = [("TASK", "STATE", "TRIES", "COST", "LAST FAILURE")]
    for id_, title, _, why, _, state in listed.listed:
        cost = spent.get(id_) or model.ReportCost()
        price = text.cost_words(cost, brief=True) if cost.attempts else "-"
        state = "open" if state == "working" and not report.state.runs else state
        label = clean(f"{id_} {title}" if id_.startswith("+") else title)
        table.append((label, state, str(cost.attempts), price, cut(clean(why), _WHY) * (state != "done")))
    file = f" ({listed.file})" if listed.file else ""
    words = f"{listed.done} of {count(listed.total, 'task')} done{file}"
    pending = (PageItem(f"{note.id}: {cut(clean(' '.join(note.text.split())), _WHY)}") for note in notes)
    sections = [PageSection("Tasks", (), tuple(table)), PageSection("Notes for the next prompt", (*pending,))]
    return ReportPage(name, clean(words), (), tuple(sections[: 1 + bool(notes)]))
