"""The report as one HTML file: the pages that the terminal shows, with drawings and every iteration.

Whatever a run could write passes ``escaped``. Nothing is calculated here: the values are those of the report.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from ralphctl.report import history, model, pages, text
from ralphctl.report.html import charts, style
from ralphctl.report.html.charts import escaped
from ralphctl.report.html.details import PART_BYTES, NightDetails
from ralphctl.report.iteration import MOST
from ralphctl.report.page import CODE, PageItem, PageSection, ReportPage
from ralphd import overview

BODIES_BYTES: Final = 3_200_000
"""How long those of all iterations may be together: with many iterations, each part is shorter."""
_PARTS: Final = 3
_HEADS: Final = {
    "Where the time went": ("Part", "Time", "Share"), "Cost by agent": ("Agent", "Cost", "Attempts"),
    "Cost by task": ("Task", "Cost", "Attempts"),
}  # fmt: skip
_SUMMARY_ROWS: Final = ("task", "verdict", "result", "cost")


def document(shown: ReportPage, nights: Sequence[NightDetails], now: float) -> str:
    """Return the file. ``shown`` is what the terminal shows: the page of the only ralph, or the overview."""
    number = sum(len(night.iterations) for night in nights)
    limit = min(PART_BYTES, BODIES_BYTES // (_PARTS * max(number, 1)))
    title = f"{escaped(shown.name)}: {escaped(shown.state)}"
    is_one = len(nights) == 1
    whole = [shown] if is_one else [text.page(night.report, now) for night in nights]
    parts = [
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(style.POLICY)}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{style.SHEET}</style></head><body>",
        f"<header><h1>{title}</h1></header>",
        "" if is_one else _contents(nights), "<main>",
        *_section("At a glance", 2, labelled(shown)),
        *_needs_you(nights, whole), *_strips([night.report for night in nights]),
    ]  # fmt: skip
    if is_one:
        parts += _ralph(shown, nights[0], now, limit=limit, level=2)
    else:
        for section in shown.sections:
            parts += page_section(section, 2)
        for i, (page, night) in enumerate(zip(whole, nights, strict=True)):
            inner = [labelled(page), *_ralph(page, night, now, limit=limit, level=3)]
            parts += _section(f"{page.name}: {page.state}", 2, "".join(inner), f"ralph-{i}")
    parts += ['</main><footer><p class="note">Made by ralphctl report --html.</p></footer></body></html>']
    return "\n".join(filter(None, parts)) + "\n"


def _contents(nights: Sequence[NightDetails]) -> str:
    names = (escaped(night.report.source.name) for night in nights)
    links = "".join(f'<li><a href="#ralph-{i}">{name}</a></li>' for i, name in enumerate(names))
    return f'<nav aria-label="Ralphs"><ul>{links}</ul></nav>'


def _section(title: str, level: int, inner: str, id_: str = "") -> list[str]:
    """Return a section with its heading; nothing for one that is empty."""
    anchor = f' id="{id_}"' if id_ else ""
    return [f"<section{anchor}><h{level}>{marked(title)}</h{level}>", inner, "</section>"] if inner else []


def marked(words: str) -> str:
    """Return text of a page; a command becomes code."""
    parts = enumerate(words.split(CODE))
    return "".join(f"<code>{escaped(part)}</code>" if i % 2 else escaped(part) for i, part in parts)


def labelled(page: ReportPage) -> str:
    """Return the labelled rows; one without a label belongs to the label before it."""
    rows = (
        f"<dt>{escaped(label)}</dt>" * bool(label) + f"<dd>{marked(words)}</dd>" for label, words in page.rows
    )
    return f"<dl>{''.join(rows)}</dl>"


def _needs_you(nights: Sequence[NightDetails], whole: Sequence[ReportPage]) -> list[str]:
    items = []
    for night, page in zip(nights, whole, strict=True):
        if night.report.needs_you:
            rows = dict(page.rows)
            why = overview.landing_words(night.report.view) or rows.get("blocked by", "")
            step = f": {rows['next']}" if "next" in rows else ""
            words = f"{marked(page.state)}; {marked(why + step)}"
            items.append(f"<li><strong>{escaped(page.name)}</strong> {words}</li>")
    inner = f'<ul class="needs">{"".join(items)}</ul>' if items else "<p>Nobody.</p>"
    return _section("Needs you", 2, inner)


def _strips(reports: Sequence[model.RalphReport]) -> list[str]:
    since, until = model.strip_span(reports)
    figures = [
        f"<figure><figcaption>{escaped(each.source.name)}</figcaption>"
        f"{charts.strip(each.source.name, each.summary.cells(since, until), since, until)}</figure>"
        for each in reports
    ]
    return _section("The night", 2, "".join(figures) + charts.legend())


def _ralph(page: ReportPage, night: NightDetails, now: float, *, limit: int, level: int) -> list[str]:
    report, parts = night.report, list[str]()
    summary = report.summary
    if summary.spending:
        left = report.left_usd
        meets = None if left is None else left + summary.cost.micro_usd / model.MICRO
        chart = charts.cost(summary.spending, summary.since, summary.until, meets)
        parts += _section("Cost over time", level, f"<figure>{chart}</figure>")
    tasks = pages.tasks_page(report, night.inbox.notes).sections if report.tasks else ()
    for section in (*page.sections, *tasks):
        parts += page_section(section, level)
    parts += _section("Commits", level, _commits(night))
    iterations = [_iteration(night, i, now, limit=limit) for i in reversed(range(len(night.iterations)))]
    note = f"Only the last {MOST} iterations are here. " if len(iterations) >= MOST else ""
    note += "ralphd keeps only the prompt of the last attempt."
    inner = f'<p class="note">{note}</p>{"".join(iterations)}' if iterations else ""
    return parts + _section("Iterations", level, inner)


def page_section(section: PageSection, level: int) -> list[str]:
    """Return a section with its items or its table; nothing for an empty one."""
    inner = "".join(map(_item, section.items))
    inner = f"<ul>{inner}</ul>" if inner else ""
    if section.rows:
        kind = section.title.partition(" (")[0]
        heads, rows = (_HEADS[kind], section.rows) if kind in _HEADS else (section.rows[0], section.rows[1:])
        inner += _table([head.capitalize() for head in heads], rows)
    inner += f"<p>{marked(section.end)}</p>" if section.end else ""
    return _section(section.title, level, inner)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escaped(each)}</th>' for each in heads)
    body = ""
    for first, *cells in rows:
        rest = "".join(f"<td>{marked(cell)}</td>" for cell in cells)
        body += f'<tr><th scope="row">{marked(first)}</th>{rest}</tr>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _item(item: PageItem) -> str:
    quoted = f"<pre>{chr(10).join(map(escaped, item.quoted))}</pre>" if item.quoted else ""
    more = "".join(f"<br>{marked(line)}" for line in item.more)
    return f"<li>{marked(item.text)}{quoted}{more}</li>"


def _commits(night: NightDetails) -> str:
    summary = night.report.summary
    judged = [*((sha, "kept") for sha in summary.kept), *((sha, "reverted") for sha in summary.reverted)]
    rows = [
        (sha[: history.SHORT], patch.subject if (patch := night.patch(sha)) else "", verdict)
        for sha, verdict in judged
    ]
    return _table(("Commit", "Subject", "Verdict"), rows) if rows else ""


def _iteration(night: NightDetails, i: int, now: float, *, limit: int) -> str:
    page, body = iteration(night, i, now, limit=limit)
    rows = dict(page.rows)
    summary = " · ".join((page.state, *(rows[key] for key in _SUMMARY_ROWS if key in rows)))
    return f"<details><summary>{marked(summary)}</summary>{body}</details>\n"


def iteration(night: NightDetails, i: int, now: float, *, limit: int) -> tuple[ReportPage, str]:
    """Return an iteration: its rows, and as HTML all of it, each part clipped at ``limit`` bytes."""
    facts = night.iterations[i]
    page = pages.iteration_page(night.report.source.name, facts, (), (), now)
    shown = [patch for sha in facts.commits if (patch := night.patch(sha))]
    lines = [line for patch in shown for line in (f"commit {patch.sha} {patch.subject}", *patch.lines)]
    failures = [part for each in page.sections if each.title == "Failures" for part in map(_item, each.items)]
    body = [
        labelled(page), f"<ul>{''.join(failures)}</ul>" if failures else "",
        _part("Prompt", night.prompt if i == night.prompt_of else (), limit),
        _said(night.printed[i], limit),
        _part("Diff", lines, limit, is_whole=all(patch.is_whole for patch in shown)),
        _part("End of the tests' output", history.last_lines(facts.verdict.get("tail"), 200), limit),
    ]  # fmt: skip
    return page, "".join(body)


def _part(title: str, lines: Sequence[str], limit: int, *, is_whole: bool = True) -> str:
    shown, left = _clipped(lines, limit)
    note = "; its end is left out" if left or not is_whole else ""
    return f'<p class="note">{title}{note}</p><pre>{"".join(shown)}</pre>' if shown else ""


def _said(lines: Sequence[str], limit: int) -> str:
    """Return what the agent printed, its tool calls folded; of a long output, the end."""
    shown, left = _clipped(lines[::-1], limit * 3 // 4)  # the folds need the rest
    parts, kept = [], lines[len(lines) - len(shown) :]
    for is_call, group in groupby(zip(kept, reversed(shown), strict=True), lambda each: _is_call(each[0])):
        block = [line for _, line in group]
        calls = f"{len(block)} tool call{'s' * (len(block) > 1)}"
        pre = f"<pre>{''.join(block)}</pre>"
        parts.append(f"<details><summary>{calls}</summary>{pre}</details>" if is_call else pre)
    note = "; its beginning is left out" if left else ""
    return f'<p class="note">Agent output{note}</p>{"".join(parts)}' if parts else ""


def _is_call(line: str) -> bool:
    return line.startswith("[") and "]" in line


def _clipped(lines: Sequence[str], limit: int) -> tuple[list[str], int]:
    """Return the first lines, escaped, that fit into ``limit`` bytes, and how many were left out."""
    shown, size = list[str](), 0
    for line in lines:
        text_ = escaped(line.expandtabs(4)) + "\n"
        size += len(text_.encode(errors="backslashreplace"))
        if size > limit and not shown:
            return [escaped(line[: limit // 6]) + "\n"], len(lines)
        if size > limit:
            break
        shown.append(text_)
    return shown, len(lines) - len(shown)
