"""start: supervise a directory's loop, the built-in one or a command; or start a known ralph again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ralphctl import background, completers, fast, resumption, show
from ralphctl.client import Client, Reply
from ralphctl.commands.control import tell_view
from ralphctl.grammar import socket_given, the_client
from ralphctl.local import checkpoint
from ralphctl.offline import state as offline
from ralphctl.registration import WithCommand, command_given, flags_of, key_options, registration
from ralphctl.resumption import resume_options, wish_of
from ralphctl.tell import message, note
from ralphd import wire
from ralphd.errors import DaemonNotRunning, DirectoryUnusable, UnknownRalph, UsageError


@click.command(
    cls=WithCommand,
    options_metavar="[OPTIONS]",
    epilog="Options that take a value, but --name, are keys of ralph.toml too.",
)
@click.argument("directory", required=False, metavar="[DIR | NAME] [-- COMMAND...]",
                shell_complete=completers.ralphs_and_directories)  # fmt: skip
@click.argument("more", nargs=-1, metavar="", shell_complete=completers.files)
@click.option("--name", help="The ralph's name; the directory's name when left out.")
@click.option("--no-autostart", is_flag=True, help="Do not start the daemon when there is none.")
@key_options
@resume_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    directory: str | None,
    more: tuple[str, ...],
    name: str | None,
    no_autostart: bool,
    resume: bool,
    no_resume: bool,
    **keys: Any,
) -> int:
    """Supervise Ralph in DIR: the built-in loop, or COMMAND; or start a ralph again that is known.

    \b
      ralphctl start ~/project                  the built-in loop: PROMPT.md, claude
      ralphctl start ~/project -- ./loop.sh     a loop of your own
      ralphctl start                            this directory: its ralph.toml, or again
      ralphctl start NAME                       a known ralph again

    Where the built-in loop left a checkpoint, it is asked what becomes of it; without a terminal it goes on
    from there.
    """
    if more:
        raise UsageError(
            f"what is {more[0]!r}? A command comes after --",
            mend=f"ralphctl start {directory} -- {' '.join(more)}",
        )
    command = command_given(ctx, mend="ralphctl start DIR -- ./loop.sh")
    wish = wish_of(resume, no_resume, command)
    if name is not None:
        fast.check_name(name)
    client = the_client()
    order = _Order(directory, command, name, flags_of(keys))
    before = _views(client, no_autostart)
    wish = _settled_wish(order, before, wish)
    if not no_autostart:
        background.ensure(client, socket_given(), tell=message)
    pids = [view["ralph_pid"] for view in client.views() if view["ralph_pid"]]
    reply = _start(client, order, wish)
    tell_view(reply, said=show.started_words(reply.value, before=pids))
    for line in reply.value.get("notes") or []:
        note(str(line))
    return wire.EXIT_FAILED if reply.value["state"] == "failed" else wire.EXIT_OK


@dataclass(frozen=True, slots=True)
class _Order:
    """What was typed: DIR or NAME, the command, the name, the flags."""

    where: str | None
    command: list[str] | None
    name: str | None
    flags: dict[str, object]

    @property
    def directory(self) -> Path:
        """The directory that is meant, if it is one."""
        return Path(self.where or fast.here()).absolute()

    @property
    def is_name(self) -> bool:
        """Whether ``where`` can only be the name of a ralph."""
        return self.where is not None and not self.directory.is_dir()

    def known(self, views: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The ralph that is started again by these words; None where they register one."""
        if self.is_name:
            return next((view for view in views if view["name"] == self.where), None)
        if self.command is not None:
            return None
        view = fast.of_directory(views, str(self.directory))
        if view is None or self.name not in (None, view["name"]):
            return None
        here = self.directory.resolve() == Path(view["directory"]).resolve()
        if not here and self.where is not None:
            return None
        # An agent is the built-in loop's: a ralph with a command of its own becomes one with that loop.
        return None if here and view["command"] and "agent" in self.flags else view


def _views(client: Client, no_autostart: bool) -> list[dict[str, Any]]:
    """What is known before anything is started: by the daemon, or by its files where none is there yet."""
    try:
        return client.views()
    except DaemonNotRunning:
        if no_autostart:
            raise
        return offline.registered_views(os.environ)


def _settled_wish(order: _Order, views: list[dict[str, Any]], wish: bool | None) -> bool | None:
    """What becomes of a checkpoint, asked before anything is started (L13)."""
    view = order.known(views)
    if order.command is not None or (order.is_name and view is None):
        return wish
    if view is not None and (view["command"] or view["state"] not in wire.SETTLED_STATES):
        _tell_ignored(wish, "it has a command of its own" if view["command"] else "it runs already")
        return None
    directory = str(view["directory"]) if view is not None else str(order.directory)
    home = Path(wire.state_directory(os.environ)) / "ralphs" / str(view["name"] if view is not None else "")
    told = None if view is None else view.get("checkpoint")
    found = checkpoint.find(directory, [home] if view is not None else [], told=told)
    if found is not None and view is None and not checkpoint.runs_built_in(directory, order.flags):
        _tell_ignored(wish, "ralph.toml has a command")
        return None
    typed = f"ralphctl start {order.where}" if order.where else "ralphctl start"
    return resumption.settle(found, wish, command=typed)


def _tell_ignored(wish: bool | None, why: str) -> None:
    if wish is not None:
        note(f"{'--resume' if wish else '--no-resume'} changes nothing: {why}")


def _start(client: Client, order: _Order, wish: bool | None) -> Reply:
    if order.is_name:
        return _again_by_name(client, order, wish)
    known = order.known(client.views())
    if known is not None:
        return _again(client, str(known["name"]), order.flags, wish)
    directory = str(order.directory)
    return client.register(registration(directory, order.command, order.name, order.flags, resume=wish))


def _again_by_name(client: Client, order: _Order, wish: bool | None) -> Reply:
    name = str(order.where)
    if order.command is not None or not wire.is_name(name):
        raise DirectoryUnusable(f"{name} is no directory", mend="ralphctl start DIR")
    try:
        return _again(client, name, order.flags, wish)
    except UnknownRalph as fault:
        raise UnknownRalph(
            f"{name} is neither a directory nor a known ralph",
            mend="ralphctl start DIR, or ralphctl status --all",
        ) from fault


def _again(client: Client, name: str, flags: dict[str, object], wish: bool | None) -> Reply:
    words: dict[str, object] = {"flags": flags} if flags else {}
    return client.ask(name, "start", words if wish is None else words | {"resume": wish})
