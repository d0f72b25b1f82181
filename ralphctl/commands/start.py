"""start: supervise a command in a directory, or start a known ralph again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ralphctl import background, fast, show
from ralphctl.client import Client, Reply
from ralphctl.commands.control import tell_view
from ralphctl.grammar import socket_given, the_client
from ralphctl.registration import WithCommand, command_given, flags_of, key_options, registration
from ralphctl.tell import message, note
from ralphd import wire
from ralphd.errors import DirectoryUnusable, UnknownRalph, UsageError


@click.command(
    cls=WithCommand,
    options_metavar="[OPTIONS]",
    epilog="Options that take a value, but --name, are keys of ralph.toml too.",
)
@click.argument("directory", required=False, metavar="[DIR | NAME] [-- COMMAND...]")
@click.argument("more", nargs=-1, metavar="")
@click.option("--name", help="The ralph's name; the directory's name when left out.")
@click.option("--no-autostart", is_flag=True, help="Do not start the daemon when there is none.")
@key_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    directory: str | None,
    more: tuple[str, ...],
    name: str | None,
    no_autostart: bool,
    **keys: Any,
) -> int:
    """Supervise COMMAND in DIR, or start a ralph again that is known.

    \b
      ralphctl start ~/project -- ./loop.sh     a loop of your own
      ralphctl start                            this directory: its ralph.toml, or again
      ralphctl start NAME                       a known ralph again
    """
    if more:
        raise UsageError(
            f"what is {more[0]!r}? A command comes after --",
            mend=f"ralphctl start {directory} -- {' '.join(more)}",
        )
    command = command_given(ctx, mend="ralphctl start DIR -- ./loop.sh")
    if name is not None:
        fast.check_name(name)
    client = the_client()
    if not no_autostart:
        background.ensure(client, socket_given(), tell=message)
    pids = [view["ralph_pid"] for view in client.views() if view["ralph_pid"]]
    reply = _start(client, directory, command, name, flags_of(keys))
    tell_view(reply, said=show.started_words(reply.value, before=pids))
    for line in reply.value.get("notes") or []:
        note(str(line))
    return wire.EXIT_FAILED if reply.value["state"] == "failed" else wire.EXIT_OK


def _start(
    client: Client, where: str | None, command: list[str] | None, name: str | None, flags: dict[str, object]
) -> Reply:
    directory = Path(where or fast.here()).absolute()
    if where is not None and not directory.is_dir():
        return _again_by_name(client, where, command, flags)
    if command is None:
        known = _known_here(client, directory, upward=where is None)
        if known is not None and name in (None, known):
            return _again(client, known, flags)
    return client.register(registration(str(directory), command, name, flags))


def _again_by_name(client: Client, name: str, command: list[str] | None, flags: dict[str, object]) -> Reply:
    if command is not None or not wire.is_name(name):
        raise DirectoryUnusable(f"{name} is no directory", mend="ralphctl start DIR -- COMMAND")
    try:
        return _again(client, name, flags)
    except UnknownRalph as fault:
        raise UnknownRalph(
            f"{name} is neither a directory nor a known ralph",
            mend="ralphctl start DIR -- COMMAND, or ralphctl status --all",
        ) from fault


def _again(client: Client, name: str, flags: dict[str, object]) -> Reply:
    return client.ask(name, "start", {"flags": flags} if flags else {})


def _known_here(client: Client, directory: Path, *, upward: bool) -> str | None:
    view = fast.of_directory(client.views(), str(directory))
    if view is None or not (upward or directory.resolve() == Path(view["directory"]).resolve()):
        return None
    return str(view["name"])
