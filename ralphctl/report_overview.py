"""Several ralphs: a few lines each, and how to see one in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ralphctl import show
from ralphctl.report_figures import money_words
from ralphctl.report_page import Item, Page, Section, typed
from ralphctl.report_words import blocked_words, brief, cost_words, day, done_words, goes_on_words
from ralphctl.tell import clean
from ralphctl.words import clock, count, duration

if TYPE_CHECKING:
    from ralphctl.local.report import Report
    from ralphd.core.night_model import Money


def page(reports: Sequence[Report], since: float, until: float, now: float) -> Page:
    """All of them; those that need a person first."""
    ordered = sorted(reports, key=lambda report: (not report.standing.needs_person, report.place.name))
    needed = sum(report.standing.needs_person for report in reports)
    end = "now, " + clock(now, now) if until >= now else clock(until, now)
    rows = (
        ("report", f"{day(since)} to {end} ({duration(until - since)})"),
        ("done", f"{count(sum(len(report.night.done) for report in reports), 'task')} in this time"),
        ("cost", _cost(reports)),
        ("next", f"{typed(f'ralphctl report {ordered[0].place.name}')}  (one of them in full)"),
    )
    said = f"{needed or 'none'} {'wait' if needed > 1 else 'waits'} for you"
    items = tuple(_item(report, now) for report in ordered)
    return Page(count(len(reports), "ralph"), said, rows, (Section("Each of them", items),))


def _cost(reports: Sequence[Report]) -> str:
    silent = [clean(report.place.name) for report in reports if report.has_untold_costs]
    if len(silent) == len(reports):
        return "unknown: their commands tell none"
    who = silent[0] if len(silent) == 1 else f"{len(silent)} of them"
    return money_words(_sum(reports)) + (f"; that of {who} is unknown" if silent else "")


def _sum(reports: Sequence[Report]) -> Money:
    first, *others = (report.night.money for report in reports)
    for each in others:
        first += each
    return first


def _item(report: Report, now: float) -> Item:
    head = f"{clean(report.place.name)}  {show.state_words(brief(report.view), now)}"
    more = [f"done: {done_words(report)}; cost: {cost_words(report)}"]
    if report.standing.is_blocked:
        more.append(f"blocked by: {blocked_words(report, now)}; goes on {goes_on_words(report, now)}")
    return Item(head, more=tuple(more))
