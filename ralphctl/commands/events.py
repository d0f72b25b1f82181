"""events: what happened, one line an event, from the daemon's own record."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import click

from ralphctl.client import Client
from ralphctl.eventtext import said
from ralphctl.fast import check_name
from ralphctl.grammar import Command, ralph_argument, the_client, wants_json
from ralphctl.lines import events_of, lines_of
from ralphctl.tell import clean
from ralphctl.words import clock, moment

_MOST = 10_000
_NAME_WIDTH = 12


@click.command(cls=Command)
@ralph_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, over restarts of the daemon.")
@click.option(
    "-n", "--tail", type=click.IntRange(0, _MOST), metavar="N", help="The last N events (20; with -f 0)."
)
def events(name: str | None, follow: bool, tail: int | None) -> None:
    """What happened to NAME, or to all ralphs and the daemon."""
    if name is not None:
        check_name(name)
    client = the_client()
    shown, last = _past(client, (0 if follow else 20) if tail is None else tail, name)
    width = max([_NAME_WIDTH, *(len(_who(event)) for event in shown)])
    for event in itertools.chain(shown, _coming(client, last, name) if follow else ()):
        print(json.dumps(event) if wants_json() else _line(event, width), flush=True)


def _past(client: Client, tail: int, name: str | None) -> tuple[list[dict[str, Any]], int]:
    """The events to show of those that have been, and the id of the last there was."""
    # Of one ralph's events, N are looked for among more of all: the daemon keeps one record for all.
    past = list(events_of(lines_of(client.past_events(max(1, tail if name is None else _MOST)))))
    mine = [event for event in past if name in (None, event["ralph"])]
    return mine[-tail:] if tail else [], past[-1]["id"] if past else 0


def _coming(client: Client, last: int, name: str | None) -> Iterator[dict[str, Any]]:
    from ralphctl import streams

    return (event for event in streams.events(client, last) if name in (None, event["ralph"]))


def _line(event: dict[str, Any], width: int) -> str:
    at = moment(event["at"])
    when = "?" if at is None else clock(at, time.time())
    told = clean(said(event["type"], event["data"]))
    return f"{when}  {_who(event):<{width}}  {event['type']:<18}  {told}".rstrip()


def _who(event: dict[str, Any]) -> str:
    return event["ralph"] or "ralphd"
