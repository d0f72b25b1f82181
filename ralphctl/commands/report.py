"""report: what was done in a night, what it cost, and what now. Reads files, and asks no daemon."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ralphctl import logtext
from ralphctl.fast import check_name, here
from ralphctl.grammar import Command, ralph_argument, wants_json
from ralphctl.tell import columns, has_colour
from ralphd.errors import UnknownRalph, UsageError

if TYPE_CHECKING:
    from ralphctl.local.report import Place, Report

EVENING_HOUR = 18
_SLOW_S = 1.0
_TOLD_EVERY_S = 0.2


def last_evening(now: float) -> float:
    """18:00 of the day before, in local time: what of the last night, and of the day since, is told of."""
    today = time.localtime(now)
    # mktime knows how long a day is on which the clocks are changed; day 0 is the last of the month before.
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - 1, EVENING_HOUR, 0, 0, 0, 0, -1))


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from datetime import datetime

    said = logtext.since(value)
    if said is None:
        raise UsageError(
            f"{parameter.opts[0]} {value!r} is no time",
            why="8h, 2d, 18:00, '2026-11-21 18:00', RFC 3339, or @seconds since 1970",
            mend=f"{parameter.opts[0]} 8h",
        )
    return datetime.fromisoformat(said).timestamp()


@click.command(cls=Command)
@ralph_argument
@click.option(
    "--since",
    callback=_moment,
    metavar="WHEN",
    help="From then on: 8h, 18:00, 2026-11-21.  [18:00 yesterday]",
)
@click.option("--until", callback=_moment, metavar="WHEN", help="Up to then.  [now]")
@click.option("--md", is_flag=True, help="As Markdown, to be pasted.")
def report(name: str | None, since: float | None, until: float | None, md: bool) -> None:
    """What NAME did since last night: tasks, commits, what was undone, times, costs, and what now.

    Without NAME, the ralph of this directory, else all of them. It reads what is kept on disk: a daemon is
    not needed.

    \b
      ralphctl report                        since 18:00 of the day before
      ralphctl report api --since 8h --md    the last eight hours, to be pasted
    """
    if md and wants_json():
        raise UsageError("--md and --json at once", why="it is one or the other", mend="ralphctl report --md")
    now = time.time()
    until = now if until is None else min(until, now)
    since = last_evening(now) if since is None else since
    if since >= until:
        raise UsageError(
            "--since is not before --until",
            why="there is no time between them",
            mend="ralphctl report --since 8h",
        )
    _tell(_places(name), since, until, now, md=md)


def _places(name: str | None) -> list[Place]:
    from ralphctl.local import report as local

    places = local.known(os.environ)
    if name is not None:
        found = local.named(check_name(name), here(), places)
        if found is None:
            raise UnknownRalph(f"nothing is kept of a ralph {name!r}", mend="ralphctl status --all")
        return [found]
    found = local.here(here(), places)
    if found is None and not places:
        raise UnknownRalph(
            "there is no ralph to report of",
            why="none is kept here, nor in the state directory",
            mend="ralphctl start DIR",
        )
    return places if found is None else [found]


def _tell(places: Sequence[Place], since: float, until: float, now: float, *, md: bool) -> None:
    from ralphctl import report_page, report_words
    from ralphctl.local import report as local

    gc.disable()  # hundreds of thousands of objects in no circles, and then it ends: a quarter of the time
    progress = Progress()
    reports: list[Report] = []
    for place in places:
        reports.append(local.read(place, since, until, now, told=progress.told))
        progress.over()
    if wants_json():
        from ralphctl import report_json

        print(json.dumps(report_json.document(reports, since, until), ensure_ascii=False))
        return
    several = len(reports) > 1
    if several:
        from ralphctl import report_overview

        pages = report_overview.page(reports, since, until, now)
    else:
        pages = report_words.page(reports[0], now)
    if md:
        print(report_page.markdown(pages))
    else:
        print(report_page.text(pages, columns=columns(sys.stdout), colour=has_colour(sys.stdout)))


class Progress:
    """Says on a terminal how far the reading is, once it takes more than a second."""

    def __init__(self, *, slow_s: float = _SLOW_S) -> None:
        self._slow_s = slow_s
        self._begun = time.monotonic()
        self._told_at = 0.0
        self._is_shown = False

    def told(self, read: int, of: int) -> None:
        """So many bytes of so many were read."""
        now = time.monotonic()
        if now - self._begun < self._slow_s or now - self._told_at < _TOLD_EVERY_S or not sys.stderr.isatty():
            return
        self._told_at, self._is_shown = now, True
        print(f"\rreading the record: {100 * read // max(of, 1)} %", end="", file=sys.stderr, flush=True)

    def over(self) -> None:
        """One record was read."""
        if self._is_shown:
            print(f"\r{'':<40}\r", end="", file=sys.stderr, flush=True)
        self._is_shown = False
