"""reload: have a ralph follow its files again, from the next run on."""

from __future__ import annotations

import click

from ralphctl.changes import change_lines
from ralphctl.grammar import Command, print_reply, ralph_argument, the_client, the_name, wants_json
from ralphctl.words import count


@click.command(cls=Command)
@ralph_argument
def reload(name: str | None) -> None:
    """Take up what ralph.toml and your own configuration say now.

    Flags and environment are those of the start. A run that lives goes on by the rules it was started with;
    the next one gets the new ones. With faults nothing changes.
    """
    client = the_client()
    name = the_name(client, name)
    reply = client.ask(name, "reload")
    if wants_json():
        print_reply(reply)
        return
    changes, when = reply.value["changes"], reply.value["when"]
    if not changes:
        click.echo(f"{name}: nothing has changed")
        return
    holds = "from the next run on" if when == "next_run" else "from now on"
    click.echo(f"{name}: {count(len(changes), 'change')}, {holds}")
    for line in change_lines(changes):
        click.echo(line)
    if when == "next_run":
        click.echo(f"  next: ralphctl restart {name}  (begin the next run now)")
    elif reply.value["ralph"]["state"] == "waiting_for_retry":
        click.echo(f"  next: ralphctl skip-wait {name}  (the wait under way keeps its end)")
