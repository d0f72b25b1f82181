"""events: what happened, one line an event, from the daemon's own record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import click

from ralphctl.client import Client
from ralphctl.fast import check_name
from ralphctl.grammar import Command, ralph_argument, the_client, wants_json
from ralphctl.lines import events_of, lines_of
from ralphctl.tell import clean
from ralphctl.words import clock, moment

_MOST = 10_000


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
    for event in _events(client, follow, (0 if follow else 20) if tail is None else tail, name):
        print(json.dumps(event) if wants_json() else _line(event), flush=True)


def _events(client: Client, follow: bool, tail: int, name: str | None) -> Iterator[dict[str, Any]]:
    last = 0
    # Of one ralph's events, N are looked for among more of all: the daemon keeps one record for all.
    past = list(events_of(lines_of(client.past_events(max(1, tail if name is None else _MOST)))))
    if past:
        last = past[-1]["id"]
    mine = [event for event in past if name in (None, event["ralph"])]
    yield from mine[-tail:] if tail else ()
    if follow:
        from ralphctl import streams

        yield from (event for event in streams.events(client, last) if name in (None, event["ralph"]))


def _line(event: dict[str, Any]) -> str:
    at = moment(event["at"])
    when = "?" if at is None else clock(at, time.time())
    return f"{when}  {event['ralph'] or 'ralphd':<12}  {event['type']:<18}  {_data(event['data'])}".rstrip()


def _data(data: dict[str, Any]) -> str:
    if isinstance(data.get("message"), str):
        return clean(data["message"])
    return clean(
        ", ".join(f"{key} {_value(value)}" for key, value in data.items() if value not in (None, []))
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
