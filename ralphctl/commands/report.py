"""The ``report`` command. It reads files and asks no daemon."""

import gc
import json
import os
import sys
import time

import click

from ralphctl.cli.click_ext import CommonCommand, ralph_argument, time_option, wants_json
from ralphctl.client.discovery import check_name, here
from ralphctl.format.output import columns, has_colour
from ralphd.errors import UsageError


def last_evening(now: float) -> float:
    """Return 18:00 of the day before, in local time."""
    today = time.localtime(now)
    # mktime knows the length of a day on which clocks change; day 0 is the last of the month before.
    return time.mktime((today.tm_year, today.tm_mon, today.tm_mday - 1, 18, 0, 0, 0, 0, -1))


since_option = time_option("--since", "Start: 8h, 18:00, 2026-11-21.  [18:00 yesterday]")


@click.command(cls=CommonCommand)
@ralph_argument
@since_option
@time_option("--until", "End.  [now]")
@click.option("-a", "--all", "every", is_flag=True, help="All ralphs, in the directory of one, too.")
@click.option("--md", is_flag=True, help="Print Markdown.")
def report(name: str | None, since: float | None, until: float | None, every: bool, md: bool) -> None:
    """Show what NAME did since last evening: tasks, commits, reverts, times, costs, and what to do next.

    Without NAME, the ralph of this directory, else all ralphs. Works without a daemon.

    \b
      ralphctl report                        since 18:00 of the day before
      ralphctl report api --since 8h --md    the last eight hours, as Markdown
    """
    if md and wants_json():
        raise UsageError("--md and --json at once", why="choose one of them", mend="ralphctl report --md")
    now = time.time()
    until = now if until is None else min(until, now)
    since = last_evening(now) if since is None else since
    if since >= until:
        why = "the span is empty"
        raise UsageError("--since is not before --until", why=why, mend="ralphctl report --since 8h")
    from ralphctl.report import model, page, read, text

    gc.disable()  # hundreds of thousands of objects without cycles, then the process ends: saves a quarter
    sources = read.choose(None if name is None else check_name(name), here(), os.environ, every=every)
    reports = [read.read(source, since, until, now) for source in sources]
    queues = read.landing(reports, since, until)
    if wants_json():
        print(json.dumps(model.document(reports, since, until) | {"landing": queues}, ensure_ascii=False))
        return
    shown = text.page(reports[0], now) if len(reports) == 1 else text.overview(reports, since, until, now)
    shown = text.with_landing(shown, queues, now)
    if md:
        print(page.markdown(shown))
    else:
        print(page.plain_text(shown, columns=columns(sys.stdout), colour=has_colour(sys.stdout)))
