"""What all commands share: common options, lazily loaded groups, ralphs by name."""

from __future__ import annotations

import json
import math
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ralphctl.cli import completers
from ralphctl.cli.overview import OPTIONS, commands_of, sections
from ralphctl.client import discovery
from ralphctl.offline.state import is_within_run
from ralphd.errors import BadName, RalphdError, UsageError, WithinRun

if TYPE_CHECKING:
    from ralphctl.client.client import Client, Reply

_JSON = "ralphctl.json"


class ExtraMissing(RalphdError, slug="extra-missing", exit_code=69):
    """The Python packages of an extra of ralphd are not installed, or are too old."""

    def __init__(self, what: str, extra: str, package: str, missing: ImportError, *more: str) -> None:
        """``more``: other commands that help."""
        import shlex

        by_pip = f"{shlex.quote(sys.executable)} -m pip install '{package}'"
        mend = "\n".join([f"make install EXTRAS={extra}", by_pip, *more])
        super().__init__(what, why=str(missing), mend=mend)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        context.meta[f"ralphctl.{parameter.name}"] = value


def _go(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        discovery.change_directory(value)


def _common_options() -> list[click.Parameter]:
    """Return ``-C``, ``--socket`` and ``--json``, valid before and after the command."""
    return [
        click.Option(["-C", "directory_"], metavar="DIR", expose_value=False, is_eager=True, callback=_go,
                     shell_complete=completers.directories, help=OPTIONS["-C DIR"]),
        click.Option(["--socket"], metavar="PATH", expose_value=False, callback=_remember,
                     shell_complete=completers.files, help=OPTIONS["--socket PATH"]),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember,
                     help=OPTIONS["--json"]),
    ]  # fmt: skip


class CommonCommand(click.Command):
    """A command with the options that all commands have."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params.extend(_common_options())


class LazyGroup(CommonCommand, click.Group):
    """A group that imports a command when it is run; its help imports none of them."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self.table = commands_of(name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command ``cmd_name``; None if there is no such command."""
        entry = self.table.get(cmd_name)
        return pkgutil.resolve_name(f"ralphctl.commands.{entry.location}") if entry else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begin with. Raise UnknownWord with the nearest name."""
        word = args[0]
        if word not in self.table and not word.startswith("-") and not ctx.resilient_parsing:
            from ralphctl.cli.suggest import command_for

            better = command_for(word, self.table, is_root=ctx.parent is None)
            raise UnknownWord(f"unknown command {word!r}", f"{ctx.command_path} {better or '--help'}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete an option or a command, without importing the commands as click would."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.table[name].help) for name in names]
        return [*click.Command.shell_complete(self, ctx, incomplete), *items]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing any command."""
        for section, rows in sections(self.table).items():
            with formatter.section(section):
                formatter.write_dl(rows)


class UnknownWord(click.UsageError):
    """An unknown command, and what to type instead."""

    def __init__(self, what: str, better: str) -> None:
        super().__init__(what)
        self.better = better


def socket_given() -> str | None:
    """Return the value of ``--socket``."""
    given: str | None = click.get_current_context().meta.get(completers.META_SOCKET)
    return given


def wants_json() -> bool:
    """Return whether ``--json`` was given."""
    return bool(click.get_current_context().meta.get(_JSON))


def refuse_within_run() -> None:
    """Raise WithinRun in a run: for what changes something without a request that the daemon could refuse."""
    if is_within_run():
        raise WithinRun


def the_client() -> Client:
    """Return the client of the daemon that options, environment and directory select."""
    from ralphctl.client.client import Client

    socket, here = socket_given(), discovery.here()
    return Client(lambda: discovery.candidates(socket, os.environ, here), reports_waits=True, sticks=True)


def the_name(client: Client, name: str | None, *, in_fleet: bool = False) -> str:
    """Return ``name``, checked, or the current directory's ralph. Raise BadName, UnknownRalph."""
    if name is None:
        return client.name_here(discovery.here())
    host, is_elsewhere, _ = discovery.check_name(name, in_fleet=True).rpartition("/")
    if is_elsewhere and not in_fleet:
        why = "only status, logs, explain, stop, pause and resume reach another machine"
        raise BadName(f"{name} is a ralph of another machine", why=why, mend=f"type it on {host}")
    return name


def the_ralph(name: str | None, *, in_fleet: bool = False) -> tuple[Client, str]:
    """Return the client, and the name as ``the_name`` does."""
    client = the_client()
    return client, the_name(client, name, in_fleet=in_fleet)


def name_and_number(words: Sequence[str], command: str, numbers: str) -> tuple[str | None, str | None]:
    """Split ``[NAME] [N]``, where N matches the pattern ``numbers``. Raise UsageError, BadName."""
    found = [word for word in words[-1:] if re.fullmatch(numbers, word)]
    names = words[: len(words) - len(found)]
    if len(names) > 1:
        why = f"{command} takes one name and the number of an iteration"
        raise UsageError(f"unexpected {names[1]!r}", why=why, mend=f"ralphctl {command} --help")
    return discovery.check_name(names[0]) if names else None, found[0] if found else None


def printed_as_json(reply: Reply) -> bool:
    """Print the reply as it came if ``--json`` was given, and return whether it was."""
    if wants_json() and reply.body:
        click.echo(reply.body.decode().rstrip("\n"))
    return wants_json()


def value_for_text(reply: Reply) -> Any:
    """Return the value of the reply, for text; with ``--json`` print it as it came, and end the command."""
    if printed_as_json(reply):
        raise click.exceptions.Exit
    return reply.value


def end_if_json(value: object, **options: Any) -> None:
    """With ``--json`` print ``value`` as JSON, and end the command."""
    if wants_json():
        click.echo(json.dumps(value, **options))
        raise click.exceptions.Exit


ralph_argument = click.argument("name", required=False, shell_complete=completers.ralphs)
"""NAME, optional inside a ralph's directory."""


def ralph_command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command with NAME; the command's own name is the function's."""
    return lambda function: click.command(name, cls=CommonCommand)(ralph_argument(function))


limit_option = click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most N."
)


def _moment(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return the moment that an option names. Raise UsageError."""
    from ralphctl.format.log_text import since

    option = parameter.opts[0]
    at = None if value is None else since(value, is_past=option == "--since")
    if value is not None and at is None:
        why = "use 8h, 10m, 07:00, '2026-11-21 20:00', RFC 3339, or @seconds since 1970"
        raise UsageError(f"{option} {value!r} is not a time", why=why, mend=f"{option} 8h")
    return at


def time_option(name: str, purpose: str) -> Callable[[Any], Any]:
    """Return an option whose value is a moment, in seconds since the epoch."""
    return click.option(name, callback=_moment, metavar="TIME", help=purpose)


class Number(click.FloatRange):
    """A number from 0 to ``most``; ``nan``, which no comparison refuses, is rejected."""

    def __init__(self, most: float) -> None:
        super().__init__(0, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raise click's BadParameter."""
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


SECONDS = Number(10**9)
"""A duration in seconds."""
