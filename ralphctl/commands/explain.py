"""explain: why the last thing was done to a ralph, in words and figures."""

from __future__ import annotations

import sys
import time

import click

from ralphctl import explanation, show
from ralphctl.grammar import Command, print_reply, ralph_argument, the_client, the_name, wants_json
from ralphctl.tell import columns, has_colour


@click.command(cls=Command)
@ralph_argument
def explain(name: str | None) -> None:
    """Why the last thing was done to NAME, or what is thought of its run that lives.

    Tells the rule, the figures that were seen, what was missing, and what was done. Of a run that hung also
    the processes and the last lines that were saved before it was ended.
    """
    client = the_client()
    name = the_name(client, name)
    reply = client.explain(name)
    if wants_json():
        print_reply(reply)
        return
    now = time.time()
    is_so = show.state_words(client.ralph(name).value, now) if reply.value.get("run_id") else ""
    shown = explanation.page(
        name, reply.value, now, is_so=is_so, columns=columns(sys.stdout), colour=has_colour(sys.stdout)
    )
    click.echo(shown)
