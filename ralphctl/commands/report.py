"""The ``report`` command. It reads files and asks no daemon."""

import gc
import json
import os
import sys
import time

import click

from ralphctl.cli.click_ext import CommonCommand, ralph_argument, wants_json
from ralphctl.client.discovery import check_name, here
from ralphctl.format import log_text
from ralphctl.format.output import columns, has_colour
from ralphd.errors import UsageError


def last_evening(now: float) -> float:
    """Return 18:00 of the day before, in local time."""
    today = time.localtime(now)
    # mktime knows the length of a day on which clocks change; day 0 is the last of the month before.
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - 1, 18, 0, 0, 0, 0, -1))


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from datetime import datetime

    said = log_text.since(value)
    if said is None:
        raise UsageError(
            f"{parameter.opts[0]} {value!r} is no time",
            why="8h, 2d, 18:00, '2026-11-21 18:00', RFC 3339, or @seconds since 1970",
            mend=f"{parameter.opts[0]} 8h",
        )
    return datetime.fromisoformat(said).timestamp()


@click.command(cls=CommonCommand)
@ralph_argument
@click.option("--since", callback=_moment, metavar="WHEN",
              help="From then on: 8h, 18:00, 2026-11-21.  [18:00 yesterday]")  # fmt: skip
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
        why = "there is no time between them"
        raise UsageError("--since is not before --until", why=why, mend="ralphctl report --since 8h")
    from ralphctl.report import model, page, read, text

    gc.disable()  # hundreds of thousands of objects without cycles, then the process ends: saves a quarter
    sources = read.choose(None if name is None else check_name(name), here(), os.environ)
    reports = [read.read(source, since, until, now) for source in sources]
    if wants_json():
        print(json.dumps(model.document(reports, since, until), ensure_ascii=False))
        return
    shown = text.page(reports[0], now) if len(reports) == 1 else text.overview(reports, since, until, now)
    if md:
        print(page.markdown(shown))
    else:
        print(page.plain_text(shown, columns=columns(sys.stdout), colour=has_colour(sys.stdout)))
