"""start: supervise a command in a directory, or start a known ralph again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ralphctl import background, fast, show
from ralphctl.client import Client, Reply
from ralphctl.commands.control import tell_view
from ralphctl.grammar import Command, socket_given, the_client
from ralphctl.tell import message, note
from ralphd import wire
from ralphd.errors import DirectoryUnusable, UnknownRalph, UsageError

_COMMAND = "ralphctl.command"


class _StartCommand(Command):
    """Keeps what follows ``--`` for the ralph's command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command off ``args``; click sees the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def _key_options(function: Any) -> Any:
    seconds, number = click.FLOAT, click.INT
    for option in (
        click.option("--max-cost", type=float, metavar="USD", help="End after that many dollars."),
        click.option("--max-iterations", type=number, metavar="N", help="End after N iterations."),
        click.option(
            "--phase-3-retry-count", type=number, metavar="N", help="Retries of phase 3 (at most 2)."
        ),
        click.option("--iteration-timeout", type=seconds, metavar="S", help="Seconds for an attempt."),
        click.option("--timeout", type=seconds, metavar="S", help="Seconds for an agent process."),
        click.option("--max-task-failures", type=number, metavar="N", help="Skip a task after N failures."),
        click.option(
            "--retries-before-fallback", type=number, metavar="N", help="Same agent again, N times."
        ),
        click.option("--fallback", metavar="A,B", help="The next agents, in order."),
        click.option("--agent", metavar="NAME", help="The agent to begin with."),
    ):
        function = option(function)
    return function


@click.command(
    cls=_StartCommand,
    options_metavar="[OPTIONS]",
    epilog="Options that take a value, but --name, are keys of ralph.toml too.",
)
@click.argument("directory", required=False, metavar="[DIR | NAME] [-- COMMAND...]")
@click.argument("more", nargs=-1, metavar="")
@click.option("--name", help="The ralph's name; the directory's name when left out.")
@click.option("--no-autostart", is_flag=True, help="Do not start the daemon when there is none.")
@_key_options
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
    command: list[str] | None = ctx.meta.get(_COMMAND)
    _check_words(directory, more, command)
    if name is not None:
        fast.check_name(name)
    client = the_client()
    if not no_autostart:
        background.ensure(client, socket_given(), tell=message)
    pids = [view["ralph_pid"] for view in client.views() if view["ralph_pid"]]
    reply = _start(client, directory, command, name, _flags(keys))
    tell_view(reply, said=show.started_words(reply.value, before=pids))
    for line in reply.value.get("notes") or []:
        note(str(line))
    return wire.EXIT_FAILED if reply.value["state"] == "failed" else wire.EXIT_OK


def _check_words(directory: str | None, more: tuple[str, ...], command: list[str] | None) -> None:
    if more:
        words = " ".join(more)
        raise UsageError(
            f"what is {more[0]!r}? A command comes after --", mend=f"ralphctl start {directory} -- {words}"
        )
    if command == []:
        raise UsageError("there is no command after --", mend="ralphctl start DIR -- ./loop.sh")
    for word in command or ():
        _check_text(word, "the command")


def _check_text(text: str, what: str) -> None:
    if not _is_text(text):
        raise UsageError(f"{what} is not UTF-8: {text!r}", mend="a name that is")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _flags(keys: dict[str, Any]) -> dict[str, object]:
    flags = {option.replace("_", "-"): value for option, value in keys.items() if value is not None}
    if isinstance(chain := flags.get("fallback"), str):
        flags["fallback"] = [agent.strip() for agent in chain.split(",") if agent.strip()]
    return {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in flags.items()}


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
    _check_text(str(directory), "the directory")
    registration = {
        "directory": os.path.normpath(directory),
        "command": command or [],
        "flags": flags,
        "environment": _environment(),
        "start": True,
    }
    return client.register(registration | ({"name": name} if name else {}))


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


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    for name in [name for name, value in environment.items() if not _is_text(name + value)]:
        note(f"the environment variable {name} is not UTF-8; the ralph gets it not")
        del environment[name]
    return environment
