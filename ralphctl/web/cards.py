"""A ralph as the page shows it: its state in words, what it needs, and the buttons that fit.

Pure functions over views, whether they are of this machine or, named ``HOST/NAME``, of another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from ralphctl.format import incident_text, state_text
from ralphctl.format.explanation import localised
from ralphctl.format.humanize import View, ago, objects, part, usd_words
from ralphctl.format.output import clean
from ralphctl.mcp import replies
from ralphctl.report.page import PageSection, ReportPage
from ralphd import overview
from ralphd.dataclass import dataclass

_BUTTONS: Final = {
    "resume": ("Resume", ""),
    "skip-wait": ("Do not wait", ""),
    "undo": ("Restore reverted commits", "Restore the commits that were reverted in {}?"),
    "land": ("Land its branch", "Land the branch of {}?"),
    "ack": ("Seen, no reminders", ""),
    "pause": ("Pause", ""),
    "stop": ("Stop", "Stop {}? Only the computer can start it again."),
}
"""By action, what its button says, and the question that is asked before an act that is hard to take back."""
_ON_THE_PAGE: Final = {"explain", "attach", "report", "verdicts", "logs", "queue"}
"""Commands whose answer the page shows."""
_MOST_FIGURES: Final = 20


class PageButton(NamedTuple):
    """One action on a ralph. ``question`` is asked first; empty where the action is easily taken back."""

    action: str
    label: str
    question: str


@dataclass(frozen=True, slots=True)
class RalphCard:
    """One ralph as the page shows it. ``why`` continues the word for its state."""

    name: str
    key: str
    url: str
    word: str
    why: str
    message: str
    needs_you: bool
    alert: Sequence[tuple[str, str]]
    landing: str
    task: str
    tasks: tuple[int, int] | None
    facts: str
    steps: Sequence[tuple[str, str]]
    buttons: Sequence[PageButton]


class CardList(NamedTuple):
    """The first ralphs of a list, and how many there are."""

    cards: Sequence[RalphCard]
    number: int

    @property
    def left(self) -> int:
        """How many are not shown."""
        return self.number - len(self.cards)


def ralph_url(name: str) -> str:
    """Return the path of a ralph's page; ``name`` may be ``HOST/NAME``, or go on."""
    return f"/ralphs/{quote(name, safe='/:', errors='replace')}"


def needs_you(row: overview.Row) -> bool:
    """Return whether the ralph, or its branch in the landing queue, waits for a person."""
    return row.needs_you or overview.landing_need(row.view) != ""


def cards(rows: Sequence[overview.Row], most: int, now: float) -> CardList:
    """Return the first ralphs of a list."""
    return CardList([card(row, now) for row in rows[:most]], len(rows))


def card(row: overview.Row, now: float) -> RalphCard:
    """Return what is shown of a ralph."""
    view, word, calls = row.view, clean(row.word), needs_you(row)
    verbs, tasks = replies.actions(view, ("act",)), row.tasks
    why = state_text.state_words({**view, "ralph_pid": None}, now).removeprefix(word).lstrip(": ,")
    message = clean(view.get("message") or "") if calls else ""
    landing = "" if row.word == "done" else overview.landing_words(view)
    return RalphCard(
        name=row.name, key=quote(row.name, safe="", errors="replace"), url=ralph_url(row.name),
        word=word, why=why, message="" if message in why else message, needs_you=calls,
        alert=[each for each in incident_text.incident_rows(view, now, daemon=False) if each[1]],
        landing=landing, task=row.task, tasks=(tasks[0] or 0, tasks[1]) if tasks and tasks[1] else None,
        facts=" · ".join(filter(None, _facts(row, now))),
        steps=list(_typed_steps(view, verbs)) if calls or row.word in overview.FINISHED else [],
        buttons=[
            PageButton(verb, label, question.format(row.name))
            for verb, (label, question) in _BUTTONS.items()
            if verb in verbs
        ],
    )  # fmt: skip


def _facts(row: overview.Row, now: float) -> Iterator[str]:
    change, number = part(row.view, "last_change"), row.view.get("iteration")
    yield f"last change {ago(change.get('at'), now)}: {change.get('what')}" if change else ""
    yield f"iteration {number}" if isinstance(number, int) and number else ""
    yield row.agent
    yield usd_words(row.cost_usd) if row.cost_usd else ""


def _typed_steps(view: View, verbs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a person has to type on the computer: each command that the page has no button for."""
    for does, command in state_text.next_steps(view):
        program, verb, *_ = [*command.split(), "", ""]
        if program != "ralphctl" or (verb not in _ON_THE_PAGE and verb not in verbs):
            yield command, does


def explained(explanation: View, now: float) -> ReportPage:
    """Return why the Regent last acted on a ralph, as rows, with the figures that it saw."""

    def local(view: View, *keys: str) -> str:
        return ": ".join(filter(None, (localised(clean(view.get(key) or ""), now) for key in keys)))

    missing, figures = explanation.get("missing"), objects(explanation, "figures")[:_MOST_FIGURES]
    rows = [
        ("what", local(explanation, "title")),
        ("why", local(explanation, "rule", "because")),
        ("missing", clean(", ".join(map(str, missing))) if isinstance(missing, list) else ""),
        ("then", local(explanation, "done")),
        ("tests", local(part(explanation, "verdict"), "title", "because")),
        ("request", _requested(part(explanation, "request"), now)),
    ]
    table = [tuple(local(each, key) for key in ("name", "seen", "limit")) for each in figures]
    sections = (PageSection("Figures", (), (("signal", "observed", "threshold"), *table)),) if table else ()
    return ReportPage("", "", tuple(row for row in rows if row[1]), sections)


def _requested(request: View, now: float) -> str:
    if not request:
        return ""
    by = part(request, "by")
    who = clean(by.get("device") or by.get("command") or "")
    return f"{clean(request.get('action'))}{f' by {who}' if who else ''}, {ago(request.get('at'), now)}"
