"""The pages of ``ralphctl web``: what ``top``, ``explain``, ``report``, ``show`` and ``logs`` know, as HTML.

Nothing is calculated here. Whatever others can write (names, tasks, output) is freed of escape codes and
escaped, wherever it stands. Every list has a bound, and the page says what it leaves out.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any, Final

import jinja2
from markupsafe import Markup

from ralphctl.client.client import Client
from ralphctl.format import incident_text
from ralphctl.format.humanize import View, clock, count, last_evening, minute, moment
from ralphctl.format.log_text import LogPrinter
from ralphctl.mcp.replies import clipped, plain
from ralphctl.report import iteration, model, night, pages, read, text
from ralphctl.report.html import charts, document
from ralphctl.report.html.details import PART_BYTES, details
from ralphctl.report.page import PageSection, ReportPage
from ralphctl.top.model import TopModel, gathered
from ralphctl.web.cards import card, cards, explained, needs_you, ralph_url
from ralphctl.web.devices import Device
from ralphd import overview, wire
from ralphd.errors import NotFound, RalphdError

LOG_LINES: Final = 200
MOST_ITERATIONS: Final = 50
_MOST_NEEDS, _MOST_WORKING, _MOST_FINISHED, _MOST_STRIPS, _MOST_EVENTS, _MOST_TASKS = 20, 40, 100, 24, 12, 60
_TAIL_LINES: Final = 12
_LOG_CHARS: Final = 100_000
_AGAIN_S: Final = 60.0
"""How old the strip of a ralph at work may be."""
_NO_PAGE: Final = ReportPage("", "", (), ())

_Summaries = Mapping[str, model.SpanSummary]


class Pages:
    """Renders the pages; threads may share it. Every method raises RalphdError.

    With ``part``, a page is only the content of its ``<main>``. Only a viewer with the role ``act`` gets
    buttons.
    """

    def __init__(self, client: Client) -> None:
        self._client, self._lock = client, Lock()
        self._nights, self._stamps = TopModel(0.0), dict[str, int]()

    def home(self, viewer: Device, *, part: bool = False) -> str:
        """Return the page of all ralphs: who needs you, who works, the night, the quota."""
        now = time.time()
        shown = gathered(self._client, last_evening(now))
        shown.read_elsewhere(self._client)
        rows, summaries = shown.rows(), self._summaries(shown, now)
        needs = [row for row in rows if needs_you(row)]
        others = [row for row in rows if not needs_you(row)]
        working = [row for row in others if row.word not in overview.FINISHED]
        finished = [row for row in others if row.word in overview.FINISHED]
        names = [row.name for row in (*needs, *working, *finished)]
        accounts = sorted(shown.accounts, key=lambda account: account["state"] == "open")
        return _rendered(
            "home.html", viewer, now, part=part,
            total=len(rows), counts=overview.totals(others), since=minute(shown.since, now),
            needs=cards(needs, _MOST_NEEDS, now), working=cards(working, _MOST_WORKING, now),
            finished=cards(finished, _MOST_FINISHED, now),
            figures=night.figures([*summaries.values()]) if summaries else "",
            strips=_strips(names, summaries, shown.since, now), landing=self._landing(shown.since, now),
            reverted=_reverted(summaries, now), done=_done(summaries, now), problems=shown.problems,
            accounts=[_account(each, now) for each in accounts[:_MOST_EVENTS]],
        )  # fmt: skip

    def ralph(self, name: str, viewer: Device, *, part: bool = False) -> str:
        """Return the page of one ralph: state, buttons, why, progress, night, report, iterations."""
        now = time.time()
        view, since = self._client.ralph(name).value, last_evening(now)
        why = explained(self._client.explain(name).value, now)
        shown: dict[str, Any] = {"report": None, "tasks": [], "iterations": [], "strips": []}
        if (source := _source(name, view)) is not None:
            report = read.read(source, since, now, now)
            tasks = pages.tasks_page(report, read.inbox_of(source).notes)
            past = iteration.within(source, 0.0, now, MOST_ITERATIONS)
            shown = {
                "report": text.page(report, now),
                "tasks": [_clipped(section) for section in tasks.sections],
                "iterations": [_iteration_link(name, facts, now) for facts in past],
                "strips": _strips([name], {name: report.summary}, since, now),
            }
        shown |= {"card": card(overview.Row(view), now), "why": why, "most": MOST_ITERATIONS}
        return _rendered("ralph.html", viewer, now, part=part, **shown)

    def log(self, name: str, viewer: Device, *, part: bool = False) -> str:
        """Return the page with the last lines of a ralph's log."""
        now, out = time.time(), io.BytesIO()
        printer = LogPrinter(out)
        for record in self._client.log(name, {"tail": str(LOG_LINES), "events": "text"}):
            printer.put(record)
        printer.end()
        printed = plain(out.getvalue().decode(errors="replace")).rstrip("\n").split("\n")
        lines, room = list[str](), _LOG_CHARS
        for line in map(clipped, reversed(printed[-LOG_LINES:])):
            room -= len(line)
            if room < 0:
                break
            lines.insert(0, line)
        return _rendered("log.html", viewer, now, part=part, name=name, url=ralph_url(name), lines=lines)

    def iteration(self, name: str, number: str, viewer: Device, *, part: bool = False) -> str:
        """Return the page of the iteration ``N`` or ``RUN:N`` of a ralph. Raise NotFound, UsageError."""
        now = time.time()
        if (source := _source(name, self._client.ralph(name).value)) is None:
            why = "its history is on another machine"
            raise NotFound(f"{name} has no iterations here", why=why, mend="ralphctl show, on that machine")
        facts = iteration.find(source, str(number))
        nothing = model.SpanSummary(now, now)
        report = model.RalphReport(source, {}, model.ReportedState(), nothing, None, None)
        page, body = document.iteration(details(report, [facts]), 0, now, limit=PART_BYTES)
        shown = {"name": name, "url": ralph_url(name), "page": page, "body": _safe(body), "limit": PART_BYTES}
        return _rendered("iteration.html", viewer, now, part=part, number=number, **shown)

    def pair(self) -> str:
        """Return the page on which a device is paired."""
        return _rendered("pair.html", None, time.time(), part=False)

    def problem(self, fault: RalphdError, viewer: Device) -> str:
        """Return the page of an error."""
        return _rendered("problem.html", viewer, time.time(), part=False, fault=fault)

    def _summaries(self, shown: TopModel, now: float) -> _Summaries:
        """Return what each ralph did in the night. A history that has not changed is not read again."""
        with self._lock:
            known = self._nights
            known.state_directory = shown.state_directory
            known.views = {name: view for name, view in shown.views.items() if "/" not in name}
            known.nights = {name: each for name, each in known.nights.items() if name in known.views}
            stamps = {name: _stamp(name) for name in known.views}
            changed = {name for name, stamp in stamps.items() if stamp != self._stamps.get(name)}
            for name, each in known.nights.items():
                if now - each.until > _AGAIN_S and overview.is_at_work(known.views[name]):
                    changed.add(name)
            known.read_nights(changed, now)
            self._stamps = stamps
            return {name: each.summary for name, each in known.nights.items()}

    def _landing(self, since: float, now: float) -> ReportPage:
        """Return what waits to land, and what landed in the night."""
        queues = self._client.landing().value["queues"]
        for queue in queues:
            queue["candidates"] = [
                each | {"commits": None}
                for each in queue["candidates"]
                if (moment(each["ended_at"]) or now) >= since
            ]
        return text.with_landing(_NO_PAGE, [each for each in queues if each["candidates"]], now)


def _stamp(name: str) -> int:
    """Return when the history of a ralph was last written."""
    try:
        return Path(wire.state_directory(os.environ), "ralphs", name, "history.jsonl").stat().st_mtime_ns
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return 0


def _source(name: str, view: View) -> model.ReportSource | None:
    """Return where the files of a ralph are; None for one of another machine."""
    here = (each for each in read.known(os.environ) if each.name == name and not each.is_build)
    return next((each for each in here if each.directory == view.get("directory")), None)


def _strips(
    names: Sequence[str], summaries: _Summaries, since: float, now: float
) -> list[tuple[str, str, Markup]]:
    """Return name, page and drawing of those who did anything."""
    known = [name for name in names if name in summaries]
    since = max(since, min((summaries[name].since for name in known), default=since))
    every = ((name, summaries[name].cells(since, now)) for name in known)
    shown = [(name, cells) for name, cells in every if {*cells} != {"stopped"}][:_MOST_STRIPS]
    return [(name, ralph_url(name), _safe(charts.strip(name, cells, since, now))) for name, cells in shown]


def _reverted(summaries: _Summaries, now: float) -> list[dict[str, Any]]:
    every = [(each.at, name, each) for name, summary in summaries.items() for each in summary.undone]
    newest = sorted(every, key=lambda each: each[0], reverse=True)[:_MOST_EVENTS]
    return [
        {
            "name": name, "url": ralph_url(name), "at": minute(at, now), "why": each.why,
            "task": each.task and (each.task["title"] or each.task["id"]), "tail": each.tail[-_TAIL_LINES:],
            "commits": count(len(each.commits), "commit"), "is_back": each.put_back_at is not None,
        }
        for at, name, each in newest
    ]  # fmt: skip


def _done(summaries: _Summaries, now: float) -> list[tuple[str, str, str, str]]:
    every = [
        (each.done_at or 0.0, name, each.title or each.id or "a task without a name")
        for name, summary in summaries.items()
        for each in summary.done
    ]
    newest = sorted(every, reverse=True)[:_MOST_EVENTS]
    return [(minute(at, now), name, ralph_url(name), title) for at, name, title in newest]


def _account(account: View, now: float) -> tuple[str, float | None, str]:
    used, words = incident_text.account_use(account, now)
    return str(account["account"]), used, words


def _clipped(section: PageSection) -> PageSection:
    left = len(section.rows) - 1 - _MOST_TASKS
    if left <= 0:
        return section
    return section._replace(rows=section.rows[: 1 + _MOST_TASKS], end=f"… and {left} more: ralphctl tasks")


def _iteration_link(name: str, facts: iteration.IterationFacts, now: float) -> tuple[str, str, str]:
    """Return the page of an iteration, if it has one, its title, and what came of it."""
    page = pages.iteration_page(name, facts, (), (), now)
    rows, run, ended_at = dict(page.rows), facts.run_id[1:7].lstrip("0"), moment(facts.end.get("at"))
    url = "" if facts.number is None else ralph_url(f"{name}/iterations/{run}:{facts.number}")
    verdict = rows.get("verdict", "")
    kept, _, _ = verdict.partition(":") if verdict.startswith("kept") else (verdict, "", "")
    at = minute(ended_at, now) if ended_at else ""
    failed = rows.get("result", "") if facts.end.get("failed") else ""
    words = (at, rows.get("task"), failed, kept, rows.get("cost", "").partition(",")[0])
    return url, page.state, " · ".join(filter(None, words))


# --- templates --------------------------------------------------------------------------------------------


def _safe(html: str) -> Markup:
    """Mark what the report has escaped."""
    return Markup(html)  # noqa: S704


def _sections(given: Sequence[PageSection], level: int) -> Markup:
    return _safe("".join(line for each in given for line in document.page_section(each, level)))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ralphctl.web"), autoescape=True, undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.globals |= {
        "static": _static,
        "legend": _safe(charts.legend()),
        "rows": lambda page: _safe(document.labelled(page)),
        "sections": _sections,
        "log_lines": LOG_LINES,
    }
    return environment


@cache
def _static(name: str) -> str:
    """Return the address of a file, which changes with the file."""
    data = resources.files("ralphctl.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(data).hexdigest()[:16]}"


def _rendered(template: str, viewer: Device | None, now: float, *, part: bool, **values: Any) -> str:
    values |= {"layout": "part.html" if part else "base.html", "viewer": viewer, "as_of": clock(now, now)}
    values["at"] = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    values["may_act"] = viewer is not None and viewer.role == "act"
    html = _environment().get_template(template).render(values)
    return html.encode(errors="backslashreplace").decode()
