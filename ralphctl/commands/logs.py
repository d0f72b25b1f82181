"""logs: what a ralph printed, and what its Regent said of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from ralphctl import link, logtext
from ralphctl.client import Client
from ralphctl.fast import here, left_here
from ralphctl.grammar import Command, ralph_argument, the_client, the_name, wants_json
from ralphctl.lines import lines_of
from ralphctl.tell import has_colour, message
from ralphd.errors import DaemonNotRunning, UnknownRalph, UsageError

_TAIL = "100"


def _tail(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None or value == "all" or value.isdigit():
        return value
    raise click.BadParameter(f"{value!r} is no number of lines; a number, or all", context, parameter)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    moment = logtext.since(value)
    if moment is None:
        raise UsageError(
            f"{parameter.opts[0]} {value!r} is no time",
            why="10m, 2h, 07:00, '2026-11-21 20:00', RFC 3339, or @seconds since 1970",
            mend=f"{parameter.opts[0]} 10m",
        )
    return moment


@click.command(cls=Command)
@ralph_argument
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
        link.connect(client.paths).close()
    except DaemonNotRunning:
        if follow or (past := _past(name, words)) is None:
            raise
        message("no daemon; what is kept:")
        _put(past, safe=safe, timestamps=timestamps)
        return
    try:
        name = the_name(client, name)
        if follow or left_here(here()) is not None:
            client.ralph(name)  # nobody knows it: that is said at once, and not waited for
    except UnknownRalph:  # the log of a build is where it was
        if follow or (past := _past(name, words)) is None:
            raise
        message("no daemon works here; what is kept:")
        _put(past, safe=safe, timestamps=timestamps)
        return
    if not (follow or timestamps or safe or wants_json()):
        _copy(client, name, words)
        return
    records = _followed(client, name, words) if follow else _kept(client, name, words)
    _put(records, safe=safe, timestamps=timestamps)


def _past(name: str | None, words: dict[str, str]) -> Iterator[dict[str, Any]] | None:
    """What is kept of the ralph of this directory, on disk; None where that is not known, or not meant."""
    from ralphctl.offline import log as offline_log

    return offline_log.records(name, words)


def _put(records: Iterator[dict[str, Any]], *, safe: bool, timestamps: bool) -> None:
    if wants_json():
        _print_json(records)
    else:
        _print(records, safe=safe, timestamps=timestamps)


def _copy(client: Client, name: str, words: dict[str, str]) -> None:
    """The bytes as they were printed."""
    for part in client.log(name, {**words, "format": "text"}):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


def _kept(client: Client, name: str, words: dict[str, str]) -> Iterator[dict[str, Any]]:
    return map(json.loads, lines_of(client.log(name, {**words, "format": "json"})))


def _followed(client: Client, name: str, words: dict[str, str]) -> Iterator[dict[str, Any]]:
    from ralphctl import streams

    return streams.log(client, name, words)


def _print_json(records: Iterator[dict[str, Any]]) -> None:
    for record in records:
        print(json.dumps(record), flush=True)


def _print(records: Iterator[dict[str, Any]], *, safe: bool, timestamps: bool) -> None:
    printer = logtext.LogPrinter(
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
