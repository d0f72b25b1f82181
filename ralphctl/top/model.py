"""What ``top`` shows: the ralphs as ``status`` has them, the quota, and the night as ``report`` reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ralphctl.client.client import Client
from ralphctl.format.humanize import View
from ralphctl.report import model, night, read, strip
from ralphd import overview


@dataclass(slots=True)
class TopModel:
    """The picture as data. ``nights`` has what each ralph did from ``since`` to the moment it was read."""

    since: float
    version: str = "?"
    host: str = ""
    """This machine's name in its fleet; empty without one."""
    views: dict[str, View] = field(default_factory=dict)
    accounts: list[View] = field(default_factory=list)
    nights: dict[str, tuple[float, model.SpanSummary]] = field(default_factory=dict)

    _sorted: tuple[Any, list[overview.Row]] = (None, [])

    def rows(self) -> list[overview.Row]:
        """Return the ralphs, those that need a person first. They are sorted once for each new ``views``."""
        views, (sorted_views, rows) = self.views, self._sorted
        if views is not sorted_views:
            rows = overview.rows(views.values())
            self._sorted = views, rows
        return rows

    def read_state(self, client: Client) -> None:
        """Ask for all ralphs. Raise RalphdError."""
        reply = client.status().value
        self.version = str(reply["version"])
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
        """Read the histories of these ralphs from the files."""
        own = [name for name in names if name in self.views and "/" not in name]
        wanted, nights = {name: self.views[name]["directory"] for name in own}, {}
        for source in read.known(os.environ) if wanted else ():
            if not source.is_build and wanted.get(source.name) == source.directory:
                with suppress(OSError):
                    nights[source.name] = now, read.gathered(source, self.since, now, now)[2]
        self.nights = {**self.nights, **nights}

    def cells(self, name: str, number: int) -> list[str]:
        """Return the strip of a ralph in ``number`` cells; none where its history is not known."""
        if name not in self.nights:
            return []
        until, summary = self.nights[name]
        return summary.cells(self.since, until, number)

    def summaries(self) -> list[model.SpanSummary]:
        """Return what each ralph did in the night."""
        return [summary for _, summary in self.nights.values()]

    def document(self, now: float) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        rows = self.rows()
        strips = [{"name": name, "cells": self.cells(name, strip.MOST_CELLS)} for name in self.nights]
        return {
            "version": self.version,
            "totals": overview.totals(rows),
            "ralphs": [row.view for row in rows],
            "accounts": self.accounts,
            "night": night.span(self.since, now) | night.totals(self.summaries()),
            "strips": strips,
        }


def gathered(client: Client, since: float) -> TopModel:
    """Return what the daemon knows, without the nights. Raise RalphdError."""
    result = TopModel(since)
    result.read_state(client)
    result.read_accounts(client)
    return result
