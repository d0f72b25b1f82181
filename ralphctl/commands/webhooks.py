"""webhooks: configure where ralphd calls you, test it, list the deliveries and repeat them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import (
    CommonCommand,
    LazyGroup,
    limit_option,
    printed_as_json,
    the_client,
    wants_json,
)
from ralphctl.cli.overview import CommandEntry
from ralphctl.format import webhook_text
from ralphctl.format.output import clean, has_colour, message
from ralphd import wire
from ralphd.errors import UsageError

_MOST_BYTES = 4096
"""Of a URL, and of a secret."""

webhooks = LazyGroup(
    "webhooks",
    table={
        "list": CommandEntry("webhooks:list_", "Where you are called, and whether it went well."),
        "add": CommandEntry("webhooks:add", "Have an address told when a ralph needs you."),
        "remove": CommandEntry("webhooks:remove", "Take one away that was added."),
        "test": CommandEntry("webhooks:test", "Send a test and say what came back."),
        "deliveries": CommandEntry("webhooks:deliveries", "What was sent, waits, or was given up."),
        "replay": CommandEntry("webhooks:replay", "Send the message of a delivery again."),
    },
    help="""Be told, by Slack, ntfy or a receiver of your own.

    What stands in [[webhooks]] of ralph.toml or of your own file is listed here too.

    \b
      ralphctl webhooks add --format ntfy https://ntfy.sh/TOPIC
      ralphctl webhooks test ID
    """,
    no_args_is_help=True,
)


@click.command("list", cls=CommonCommand)
def list_() -> None:
    """Every webhook: of your own file, of the ralphs' files, and those that were added."""
    reply = the_client().webhooks()
    if not printed_as_json(reply):
        _print(reply.value["webhooks"], webhook_text.hook_lines, webhook_text.NONE_YET)


@click.command(cls=CommonCommand)
@click.argument("url")
@click.option(
    "--on",
    multiple=True,
    metavar="EVENT",
    help="An event to send, such as ralph.done or ralph.*; "
    "may be given more than once.  [default: ralph.escalated]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "slack", "ntfy"]),
    default="json",
    show_default=True,
    help="What is sent: the event, or words for a person.",
)
@click.option("--secret-file", type=click.Path(), metavar="FILE", help="A file with the signing secret.")
@click.option("--secret-env", metavar="NAME", help="A variable of ralphd's environment that holds it.")
@click.option("--allow-private", is_flag=True,
              help="A private or loopback address; only where your own file allows it.")  # fmt: skip
def add(
    url: str,
    on: tuple[str, ...],
    form: str,
    secret_file: str | None,
    secret_env: str | None,
    allow_private: bool,
) -> None:
    """Have URL told when a ralph needs you. With - the address is read from standard input.

    An address of Slack or ntfy is as good as a password: give it by - where others see your processes.
    Without a secret one is made up for json, and shown this once. Added again, a webhook is replaced.
    """
    words: dict[str, object] = {"url": _read_url() if url == "-" else url, "format": form}
    words |= {"on": list(on)} if on else {}
    words |= {"secret_file": os.path.abspath(secret_file)} if secret_file else {}  # noqa: PTH100
    words |= {"secret_env": secret_env} if secret_env else {}
    words |= {"allow_private": True} if allow_private else {}
    reply = the_client().add_webhook(words)
    hook = reply.value
    secret = _made_secret(hook) if hook["secret_made"] else ()
    if printed_as_json(reply):
        for line in secret:
            message(line)
        return
    did = "replaced" if hook["replaced"] else "added"
    told_of = ", ".join(map(clean, hook["on"]))
    lines = [f"webhook {hook['id']} {did}: {clean(hook['where'])} is told of {told_of}", *secret]
    click.echo("\n".join([*lines, f"  next: ralphctl webhooks test {hook['id']}"]))


@click.command(cls=CommonCommand)
@click.argument("id", shell_complete=completers.webhooks)
def remove(id: str) -> None:
    """Take away the webhook ID, which was added; what waits for it is given up."""
    if not printed_as_json(the_client().remove_webhook(_id(id))):
        click.echo(f"webhook {id} is removed; what waited for it is given up")


@click.command(cls=CommonCommand)
@click.argument("id", shell_complete=completers.webhooks)
def test(id: str) -> int:
    """Send a test to the webhook ID now, and say what came back. Exits 1 when it did not arrive.

    One that has answered 410 is sent to again from then on, and what waits for it goes at once.
    """
    if not wants_json():
        message(f"sending a test to {id}; it has 10 s to answer")
    reply = the_client().test_webhook(_id(id))
    tested = reply.value
    if not printed_as_json(reply):
        click.echo(webhook_text.line_of_test(tested))
        if tested["back"]:
            click.echo("it had answered 410 before; from now on it is sent to again")
    return wire.EXIT_OK if tested["arrived"] else wire.EXIT_FAILED


@click.command(cls=CommonCommand)
@click.argument("id", required=False, shell_complete=completers.webhooks)
@limit_option
def deliveries(id: str | None, limit: int) -> None:
    """What was sent to the webhook ID, or to all, newest first: arrived, waiting, or given up."""
    reply = the_client().deliveries(None if id is None else _id(id), limit)
    if not printed_as_json(reply):
        replies = webhook_text.with_replays(reply.value["deliveries"])
        _print(replies, webhook_text.delivery_lines, webhook_text.NO_DELIVERIES)


@click.command(cls=CommonCommand)
@click.argument("delivery", type=click.IntRange(0, (1 << 63) - 1))
def replay(delivery: int) -> None:
    """Send the message of DELIVERY again, under the id that it had; one that still waits goes now."""
    reply = the_client().replay(delivery)
    if printed_as_json(reply):
        return
    again = reply.value
    where = clean(str(again["where"]))
    said = "waits, and goes now" if again["id"] == delivery else f"is sent again as {again['id']}"
    click.echo(f"delivery {delivery} to {where} {said}")
    click.echo(f"  next: ralphctl webhooks deliveries {again['webhook']}")


def _print(rows: Iterable[object], lines_of: Callable[..., Iterator[str]], otherwise: str) -> None:
    now, colour = time.time(), has_colour(sys.stdout)
    blocks = ["\n".join(lines_of(row, now, colour=colour)) for row in rows]
    click.echo("\n\n".join(blocks) if blocks else otherwise)


def _read_url() -> str:
    url = sys.stdin.readline(_MOST_BYTES).strip()
    if not url:
        raise UsageError("no address came in on standard input", mend="ralphctl webhooks add - <FILE")
    return url


def _made_secret(hook: dict[str, Any]) -> tuple[str, ...]:
    """Return the generated secret, read from its file because no reply contains it."""
    path = hook["secret"]["name"]
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            text = file.read(_MOST_BYTES).strip()
    except (OSError, ValueError) as fault:
        return (f"  secret: in {clean(path)} on ralphd's machine ({clean(str(fault))})",)
    return (f"  secret: {clean(text)}", f"  shown this once; ralphd keeps it in {clean(path)}")


def _id(id: str) -> str:
    """Return the id as part of a route. Raise UsageError for an impossible one."""
    if not id.isalnum() or not id.isascii() or len(id) > 64:
        raise UsageError(f"{clean(id[:80])!r} is no id of a webhook", mend="ralphctl webhooks list")
    return id
