"""ack: a person knows of what they were called for, and is not reminded of it."""

from __future__ import annotations

import time

import click

from ralphctl import show
from ralphctl.grammar import Command, print_reply, ralph_argument, the_client, the_name, wants_json
from ralphctl.incident_words import held_back, open_incident
from ralphctl.tell import clean
from ralphctl.words import duration, moment


@click.command(cls=Command)
@ralph_argument
def ack(name: str | None) -> None:
    """Acknowledge what NAME called you for: no reminder follows.

    What is still to do is told. It is over when NAME works again; status shows it until then. Nothing to
    acknowledge is no error.
    """
    client = the_client()
    name = the_name(client, name)
    before = open_incident(client.ralph(name).value)
    reply = client.ask(name, "ack")
    if wants_json():
        print_reply(reply)
        return
    now, after = time.time(), open_incident(reply.value)
    if not before:
        click.echo(f"{name}: nothing to acknowledge; it is {show.state_words(reply.value, now)}")
        return
    click.echo(f"{name}: {_known(before, now)}: " + ", ".join([_what(before), *held_back(before)]))
    if not after:
        click.echo("  nothing is left to do: it runs, and the next call is told at once")
        return
    click.echo(f"  still to do: {clean(str(after.get('needs') or ''))}")
    does, how = show.next_steps(reply.value)[0]
    click.echo(f"  next: {how}  ({does})")


def _known(incident: show.View, now: float) -> str:
    known = moment(incident.get("acknowledged_at"))
    return "acknowledged" if known is None else f"acknowledged already, {duration(now - known)} ago"


def _what(incident: show.View) -> str:
    return clean(str(incident.get("message") or "?"))
