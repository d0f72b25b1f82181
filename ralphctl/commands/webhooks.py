"""webhooks: add, test, show and remove webhooks, list their deliveries and repeat them."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import click_ext, completers
from ralphctl.cli.click_ext import CommonCommand, limit_option, printed_as_json, the_client, value_for_text
from ralphctl.client.client import Client, Reply
from ralphctl.format import webhook_text
from ralphctl.format.output import clean, has_colour, message, note
from ralphd import wire
from ralphd.errors import NotFound, PrivateAddress, UsageError

_MOST_BYTES = 4096
"""Of a URL, and of a secret; the daemon refuses longer URLs."""

_FORMATS = click.Choice(["json", "slack", "ntfy"])
_key = click.argument("key", metavar="NAME", shell_complete=completers.webhooks)


@click.group(cls=click_ext.LazyGroup)
def webhooks() -> None:
    """Manage alerts to Slack, ntfy or your own endpoint.

    The list includes the [[webhooks]] of ralph.toml and of your own file. NAME is a name or an id.

    \b
      ralphctl webhooks add --format ntfy --name phone https://ntfy.sh/TOPIC
      ralphctl webhooks test phone
    """


@click.command("list", cls=CommonCommand)
def list_() -> None:
    """List every webhook: of your own file, of the ralphs' files, and added ones."""
    hooks, colour = value_for_text(the_client().webhooks())["webhooks"], has_colour(sys.stdout)
    click.echo(webhook_text.table(hooks, time.time(), colour=colour) if hooks else webhook_text.NONE_YET)


@click.command(cls=CommonCommand)
@_key
def show(key: str) -> None:
    """Show the webhook NAME: its events, origin, secret and last delivery."""
    every = the_client().webhooks().value["webhooks"]
    hook = next((each for each in every if key in (each["name"], each["id"])), None)
    if hook is None:
        raise NotFound(f"there is no webhook {clean(key[:40])!r}", mend="ralphctl webhooks list")
    click_ext.end_if_json(hook, ensure_ascii=False)
    _print([hook], webhook_text.hook_lines, "")


@click.command(cls=CommonCommand)
@click.argument("url")
@click.option("--name", metavar="NAME", help="A name for the other commands.  [default: the format or host]")
@click.option("--on", multiple=True, metavar="EVENT", help="Repeatable.  [default: ralph.escalated]")
@click.option("--format", type=_FORMATS, default="json", show_default=True, help="JSON, or text for people.")
@click.option("--secret-file", type=click.Path(), metavar="FILE", help="A file with the signing secret.")
@click.option("--secret-env", metavar="NAME", help="A variable of ralphd's environment with the secret.")
@click.option("--allow-private", is_flag=True, help="Allow private and loopback addresses.")
def add(**given: Any) -> None:
    """Add a webhook for URL, or replace the one with the same URL. With -, URL is read from standard input.

    A Slack or ntfy URL is as good as a password: use - where others see your processes. For json, ralphctl
    prints a generated secret once, unless you name one. --allow-private also sets notify.allow_private in
    your own configuration file.
    """
    words = {key: list(value) if key == "on" else value for key, value in given.items() if value}
    words["url"] = _read_url() if given["url"] == "-" else given["url"]
    words |= {"secret_file": os.path.abspath(given["secret_file"])} if given["secret_file"] else {}  # noqa: PTH100
    reply = _added(the_client(), words)
    hook = reply.value
    secret = _made_secret(hook) if hook["secret_made"] else ()
    if printed_as_json(reply):
        for line in secret:
            message(line)
        return
    did, shown = "Replaced" if hook["replaced"] else "Added", clean(hook["name"])
    lines = [f"{did} webhook {shown}: {', '.join(map(clean, hook['on']))} → {clean(hook['where'])}", *secret]
    click.echo("\n".join([*lines, f"  next: ralphctl webhooks test {shown}"]))


def _added(client: Client, words: dict[str, object]) -> Reply:
    """Add a webhook; at the user's own request, allow private addresses in their file first."""
    try:
        return client.add_webhook(words)
    except PrivateAddress:
        if os.environ.get("RALPH_RUN_ID"):  # an agent must not decide this
            raise
    from ralphctl.setup import config_edit

    key, root = "notify.allow_private", Path("/")
    edit = config_edit.edit_key(key, "true", directory=root, environ=os.environ, users_own=True)
    client.reload()
    note(f"set {key} = true in {edit.file}; to undo: ralphctl config unset --user {key}")
    return client.add_webhook(words)


@click.command(cls=CommonCommand)
@_key
def remove(key: str) -> None:
    """Remove the webhook NAME, which was added by command, and cancel its pending messages."""
    if not printed_as_json(the_client().remove_webhook(_route_part(key))):
        click.echo(f"Removed webhook {key}. Its pending messages are cancelled.")


@click.command(cls=CommonCommand)
@_key
def test(key: str) -> int:
    """Send a test to the webhook NAME now and print the result. Exits with 1 if it failed.

    A success also sends the pending messages, and enables a webhook that had answered 410.
    """
    if not click_ext.wants_json():
        message(f"Sending a test to {clean(key)} (timeout 10 s)")
    reply = the_client().test_webhook(_route_part(key))
    tested = reply.value
    if not printed_as_json(reply):
        click.echo(webhook_text.line_of_test(tested))
        if tested["back"]:
            click.echo("It had answered 410 before and is enabled again.")
    return wire.EXIT_OK if tested["arrived"] else wire.EXIT_FAILED


@click.command(cls=CommonCommand)
@click.argument("key", metavar="[NAME]", required=False, shell_complete=completers.webhooks)
@limit_option
def deliveries(key: str | None, limit: int) -> None:
    """List the messages to the webhook NAME, or to all, newest first: delivered, pending or given up."""
    reply = the_client().deliveries(None if key is None else _route_part(key), limit)
    rows = webhook_text.with_replays(value_for_text(reply)["deliveries"])
    _print(rows, webhook_text.delivery_lines, webhook_text.NO_MESSAGES)


@click.command(cls=CommonCommand)
@click.argument("delivery", type=click.IntRange(0, (1 << 63) - 1), shell_complete=completers.deliveries)
def replay(delivery: int) -> None:
    """Send the message of DELIVERY again, under the same webhook-id; a pending one is sent now."""
    again = value_for_text(the_client().replay(delivery))
    how = "is sent now" if again["id"] == delivery else f"is sent again as delivery {again['id']}"
    click.echo(f"Delivery {delivery} to {clean(again['where'])} {how}.")
    click.echo(f"  next: ralphctl webhooks deliveries {clean(again['name'])}")


def _print(rows: Iterable[object], lines_of: Callable[..., Iterator[str]], otherwise: str) -> None:
    now, colour = time.time(), has_colour(sys.stdout)
    blocks = ["\n".join(lines_of(row, now, colour=colour)) for row in rows]
    click.echo("\n\n".join(blocks) if blocks else otherwise)


def _read_url() -> str:
    url = sys.stdin.readline(_MOST_BYTES).strip()
    if not url:
        raise UsageError("standard input has no URL", mend="ralphctl webhooks add - <FILE")
    return url


def _made_secret(hook: dict[str, Any]) -> tuple[str, ...]:
    """Return the generated secret, read from its file because no reply contains it."""
    path = hook["secret"]["name"]
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            text = file.read(_MOST_BYTES).strip()
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or "not text"
        return (f"  secret: in {clean(path)} on the machine of ralphd (cannot be read here: {why})",)
    return (f"  secret: {clean(text)}", f"  shown only once; ralphd keeps it in {clean(path)}")


def _route_part(key: str) -> str:
    """Return a name or id as part of a route. Raise UsageError for an impossible one."""
    if not wire.is_name(key):
        raise UsageError(f"{clean(key[:80])!r} is not a webhook's name or id", mend="ralphctl webhooks list")
    return key
