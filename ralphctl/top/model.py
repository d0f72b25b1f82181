"""What ``top`` shows: the ralphs as ``status`` has them, the quota, and the night as ``report`` reads it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from ralphctl.client.client import Client
from ralphctl.format.humanize import View, last_evening
from ralphctl.report import model, night, read, strip
from ralphd import overview
from ralphd.dataclass import dataclass


class TopNight(NamedTuple):
    """What a ralph did until a moment, and its ``max_cost_usd``, 0 without one."""

    until: float
    summary: model.SpanSummary
    budget_usd: float


@dataclass(slots=True)
class TopModel:
    """The picture as data. ``nights`` has what each ralph did from ``since`` to the moment it was read.

    ``state_directory`` is where the daemon keeps its files. ``have_nights``: they have been looked for.
    """

    since: float
    version: str = "?"
    host: str = ""
    """This machine's name in its fleet; empty without one."""
    views: dict[str, View] = field(default_factory=dict)
    accounts: list[View] = field(default_factory=list)
    nights: dict[str, TopNight] = field(default_factory=dict)
    state_directory: str = ""
    have_nights: bool = False
    problems: list[str] = field(default_factory=list)
    """What is wrong with the daemon."""

    _sorted: tuple[Any, list[overview.Row]] = (None, [])

    def rows(self) -> list[overview.Row]:
        """Return the ralphs, those that need a person first. They are sorted once for each new ``views``."""
        views, (sorted_views, rows) = self.views, self._sorted
        if views is not sorted_views:
            known = {id(row.view): row for row in rows}  # of 200, few have changed
            fresh = [known.get(id(view)) or overview.Row(view) for view in views.values()]
            rows = sorted(fresh, key=lambda row: row.order)
            self._sorted = views, rows
        return rows

    def read_state(self, client: Client) -> None:
        """Ask for all ralphs. Raise RalphdError."""
        reply = client.status().value
        self.version = str(reply["version"])
        self.state_directory = str(reply["daemon"]["state_directory"])
        self.problems = [f"ralphd is degraded: {each}" for each in reply["daemon"].get("problems", ())]
        self._replace(reply["ralphs"], is_elsewhere=False)
        self.nights = {name: each for name, each in self.nights.items() if name in self.views}

    def read_elsewhere(self, client: Client) -> None:
        """Ask for the ralphs of the other machines; without a fleet there are none. Raise RalphdError."""
        reply = client.elsewhere()
        self.host = str(reply["host"])
        self._replace(reply["ralphs"], is_elsewhere=True)

    def _replace(self, views: Iterable[View], *, is_elsewhere: bool) -> None:
        """Replace the views of this machine, or of all others. Another thread may be reading ``views``."""
        others = {name: view for name, view in self.views.items() if ("/" in name) != is_elsewhere}
        self.views = others | {str(view["name"]): view for view in views}

    def read_ralph(self, client: Client, name: str) -> None:
        """Ask for one ralph, of this machine or another. Raise RalphdError."""
        self.views = {**self.views, name: client.ralph(name).value}

    def read_accounts(self, client: Client) -> None:
        """Ask for the quota. Raise RalphdError."""
        self.accounts = client.quota().value["accounts"]

    def read_nights(self, names: Iterable[str], now: float) -> None:
        """Read the histories of these ralphs from the files; of all, where another night has begun."""
        if (since := last_evening(now)) != self.since:  # ``top`` stays open for days
            self.since, self.nights, names = since, {}, self.views
        own, nights = [name for name in names if name in self.views and "/" not in name], {}
        ralphs = Path(self.state_directory, "ralphs")
        for source in (each for name in own for each in read.in_home(ralphs / name)):
            if self.views[source.name]["directory"] == source.directory:
                with suppress(OSError):
                    definition, _, summary = read.gathered(source, self.since, now, now)
                    nights[source.name] = TopNight(now, summary, read.budget_usd(definition))
        self.nights = {**self.nights, **nights}
        self.have_nights = True

    def cells(self, name: str, number: int) -> list[str]:
        """Return the strip of a ralph in ``number`` cells; none where its history is not known."""
        if name not in self.nights:
            return []
        until, summary, _ = self.nights[name]
        return summary.cells(self.since, until, number)

    def sparkline(self, name: str, number: int) -> str:
        """Return the last iterations of a ralph as bars; empty where its history is not known."""
        known = self.nights.get(name)
        return strip.sparkline(known.summary.efforts.values(), number) if known else ""

    def budget(self) -> tuple[float, float, list[str]]:
        """Return what those with a budget spent of it, all of it, and their names."""
        limits = {name: each.budget_usd for name, each in self.nights.items() if each.budget_usd}
        rows = [row for row in self.rows() if row.name in limits]
        return sum(row.cost_usd or 0.0 for row in rows), sum(limits.values()), [row.name for row in rows]

    def summaries(self) -> list[model.SpanSummary]:
        """Return what each ralph did in the night."""
        return [each.summary for each in self.nights.values()]

    def document(self, now: float) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        rows, (spent_usd, budget_usd, names) = self.rows(), self.budget()
        strips = [{"name": name, "cells": self.cells(name, strip.MOST_CELLS)} for name in self.nights]
        return {
            "version": self.version,
            "totals": overview.totals(rows),
            "ralphs": [row.view for row in rows],
            "accounts": self.accounts,
            "night": night.span(self.since, now) | night.totals(self.summaries()),
            "budget": {"spent_usd": spent_usd, "usd": budget_usd, "ralphs": names} if names else None,
            "strips": strips,
        }


def gathered(client: Client, since: float) -> TopModel:
    """Return what the daemon knows, without the nights. Raise RalphdError."""
    result = TopModel(since)
    result.read_state(client)
    result.read_accounts(client)
    return result
