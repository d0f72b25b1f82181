"""logs and events: what a ralph printed, and what happened to it."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from ralphctl.cli.click_ext import ralph_command, the_client, the_name, wants_json
from ralphctl.client import transport
from ralphctl.client.discovery import check_name, here, left_by_build
from ralphctl.format import log_text
from ralphctl.format.event_text import event_words
from ralphctl.format.humanize import clock, moment
from ralphctl.format.output import clean, has_colour, message
from ralphd.errors import DaemonNotRunning, UnknownRalph, UsageError

_TAIL = "100"
_MOST = 10_000
_NAME_WIDTH = 12


def _tail(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "all" or value.isdigit():
        return value
    raise click.BadParameter(f"{value!r} is no number of lines; a number, or all", context, parameter)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    moment = log_text.since(value)
    if moment is None:
        raise UsageError(
            f"{parameter.opts[0]} {value!r} is no time",
            why="10m, 2h, 07:00, '2026-11-21 20:00', RFC 3339, or @seconds since 1970",
            mend=f"{parameter.opts[0]} 10m",
        )
    return moment


@ralph_command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over restarts of the daemon.")
@click.option("-n", "--tail", callback=_tail, metavar="N", help=f"The last N lines ({_TAIL}), or all.")
@click.option(
    "--since", callback=_moment, metavar="TIME", help="From then on: 10m, 07:00, 2026-11-21T20:00Z."
)
@click.option("--until", callback=_moment, metavar="TIME", help="Up to then.")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "regent"]), help="Only these lines.")
@click.option("--grep", metavar="TEXT", help="Only lines with TEXT in them, as it is written.")
@click.option("--raw", is_flag=True, help="Do not neutralise control sequences on a terminal.")
@click.option("-t", "--timestamps", is_flag=True, help="With the time of each line.")
def logs(name: str | None, follow: bool, raw: bool, timestamps: bool, **query: str | None) -> None:
    """What NAME printed, over all its runs, with the Regent's own lines between.

    \b
      ralphctl logs -f                       watch this directory's ralph
      ralphctl logs api --since 2h --stream regent
    """
    client = the_client()
    words = {key: word for key, word in query.items() if word is not None}
    if "tail" not in words and "since" not in words:
        words["tail"] = _TAIL
    safe = sys.stdout.isatty() and not raw
    try:
        transport.connect(client.paths).close()
        name = the_name(client, name)
        if follow or left_by_build(here()) is not None:
            client.ralph(name)  # an unknown ralph is an error at once, not a wait
    except (DaemonNotRunning, UnknownRalph) as fault:  # a build's log stays in its directory
        from ralphctl.offline import log as offline_log

        if follow or (past := offline_log.records(here(), name, words)) is None:
            raise
        away = "no daemon" if isinstance(fault, DaemonNotRunning) else "no daemon works here"
        message(f"{away}; what is kept:")
        _put(past, safe=safe, timestamps=timestamps)
        return
    if not (follow or timestamps or safe or wants_json()):
        for part in client.log_text(name, words):
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    records = client.log(name, words)
    if follow:
        from ralphctl.client import streams

        records = streams.log(client, name, words)
    _put(records, safe=safe, timestamps=timestamps)


def _put(records: Iterator[dict[str, Any]], *, safe: bool, timestamps: bool) -> None:
    if wants_json():
        for record in records:
            print(json.dumps(record), flush=True)
        return
    printer = log_text.LogPrinter(
        sys.stdout.buffer, safe=safe, timestamps=timestamps, colour=has_colour(sys.stdout)
    )
    try:
        for record in records:
            printer.put(record)
            sys.stdout.buffer.flush()
    finally:
        if safe:
            printer.end()
        sys.stdout.buffer.flush()


@ralph_command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over restarts of the daemon.")
@click.option(
    "-n", "--tail", type=click.IntRange(0, _MOST), metavar="N", help="The last N events (20; with -f 0)."
)
def events(name: str | None, follow: bool, tail: int | None) -> None:
    """What happened to NAME, or to all ralphs and the daemon."""
    if name is not None:
        check_name(name)
    client = the_client()
    tail = (0 if follow else 20) if tail is None else tail
    # The daemon keeps one history for all ralphs, so the last N of one are picked from many.
    past = list(client.past_events(max(1, tail if name is None else _MOST)))
    shown = [event for event in past if name in (None, event["ralph"])][-tail:] if tail else []
    width = max([_NAME_WIDTH, *(len(_who(event)) for event in shown)])
    coming: Iterator[dict[str, Any]] = iter(())
    if follow:
        from ralphctl.client import streams

        coming = streams.events(client, past[-1]["id"] if past else 0)
    for event in itertools.chain(shown, (each for each in coming if name in (None, each["ralph"]))):
        print(json.dumps(event) if wants_json() else _line(event, width), flush=True)


def _line(event: dict[str, Any], width: int) -> str:
    at = moment(event["at"])
    when = "?" if at is None else clock(at, time.time())
    text = clean(event_words(event["type"], event["data"]))
    return f"{when}  {_who(event):<{width}}  {event['type']:<18}  {text}".rstrip()


def _who(event: dict[str, Any]) -> str:
    return event["ralph"] or "ralphd"
