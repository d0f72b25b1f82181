"""What all commands share: options before and after the command, groups that load a command when it is run,
and the nearest known word for one that is not known."""

from __future__ import annotations

import difflib
import importlib
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ralphctl import completers, fast, link
from ralphctl.completers import META_SOCKET
from ralphctl.entry import DIRECTORY_HELP, JSON_HELP, SOCKET_HELP
from ralphctl.entry import Entry as Entry  # with the rest, for groups of commands

if TYPE_CHECKING:
    from ralphctl.client import Client, Reply

_JSON = "ralphctl.json"


def _remember(key: str) -> Any:
    def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value:
            context.meta[key] = value

    return remember


def _go(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        fast.change_directory(value)


def _common_options() -> list[click.Parameter]:
    """``-C``, ``--socket`` and ``--json``: understood before and after the command."""
    return [
        click.Option(["-C", "directory_"], metavar="DIR", expose_value=False, is_eager=True, callback=_go,
                     shell_complete=completers.directories, help=DIRECTORY_HELP),
        click.Option(["--socket"], metavar="PATH", expose_value=False, callback=_remember(META_SOCKET),
                     shell_complete=completers.files, help=SOCKET_HELP),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember(_JSON),
                     help=JSON_HELP),
    ]  # fmt: skip


class Command(click.Command):
    """A command with the options that all have, and with words after ``--`` kept apart."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params.extend(_common_options())


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run; its help imports none of them."""

    def __init__(self, *arguments: Any, table: Mapping[str, Entry], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.table = table
        self.params.extend(_common_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [name for name, entry in self.table.items() if not entry.hidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command called ``cmd_name``; None when there is none."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with; a near miss is answered with the nearest name."""
        word = args[0]
        if word not in self.table and not word.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(word, list(self.table), n=1, cutoff=0.5)
            better = f"{ctx.command_path} {near[0]}" if near else f"{ctx.command_path} --help"
            raise UnknownWord(f"no command {word!r}", better)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete an option or a command, without importing the commands as click would."""
        return [
            *click.Command.shell_complete(self, ctx, incomplete),
            *(
                CompletionItem(name, help=entry.help)
                for name, entry in self.table.items()
                if name.startswith(incomplete) and not entry.hidden
            ),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table as it stands, without importing anything."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            if not entry.hidden:
                sections.setdefault(entry.section, []).append((name, entry.help))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


class UnknownWord(click.UsageError):
    """A command that is not there, and the one that was meant."""

    def __init__(self, what: str, better: str) -> None:
        super().__init__(what)
        self.better = better


def socket_given() -> str | None:
    """What ``--socket`` says."""
    given: str | None = click.get_current_context().meta.get(META_SOCKET)
    return given


def wants_json() -> bool:
    """Whether ``--json`` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def the_client(context: click.Context | None = None) -> Client:
    """The client for the socket that the options, the environment and the directory lead to."""
    from ralphctl.client import Client

    socket: str | None = (context or click.get_current_context()).meta.get(META_SOCKET)
    directory = fast.here()
    return Client(lambda: link.candidates(socket, os.environ, directory), tells_waits=True, keeps=True)


def the_name(client: Client, name: str | None) -> str:
    """``name``, checked; or that of the ralph of the directory we are in. Raises BadName, UnknownRalph."""
    return client.name_here(fast.here()) if name is None else fast.check_name(name)


def print_reply(reply: Reply) -> None:
    """``--json``: the reply as it came."""
    if reply.body:
        click.echo(reply.body.decode().rstrip("\n"))


ralph_argument = click.argument("name", required=False, shell_complete=completers.ralphs)
"""NAME, which may be left out inside a ralph's directory."""


class Number(click.FloatRange):
    """From 0 to ``most``; ``nan``, which no comparison refuses, is not among them."""

    def __init__(self, most: float) -> None:
        super().__init__(0, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number that was written. Raises click's BadParameter."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


SECONDS = Number(10**9)
"""A time to wait."""
