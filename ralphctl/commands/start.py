"""start: supervise a directory's loop, the built-in one or a command; or start a known ralph again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, socket_given, the_client
from ralphctl.client import discovery
from ralphctl.client.client import Client, Reply
from ralphctl.commands.control import tell_view
from ralphctl.format import state_text
from ralphctl.format.output import message, note
from ralphctl.offline import checkpoint
from ralphctl.offline import state as offline
from ralphctl.offline.checkpoint import resume_options, wish_of
from ralphctl.service import daemon
from ralphd import wire
from ralphd.errors import DaemonNotRunning, DirectoryUnusable, UnknownRalph, UsageError

_COMMAND = "ralphctl.command"


class WithCommand(CommonCommand):
    """A command that keeps what follows ``--`` as the ralph's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the command off ``args``; click parses the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def command_given(ctx: click.Context, more: Sequence[str], typed: str, *, mend: str) -> list[str] | None:
    """Return what followed ``--``, None without it. Raise UsageError with the advice ``mend``.

    ``more`` are words after ``typed`` that belong behind ``--``.
    """
    if more:
        what = f"what is {more[0]!r}? A command comes after --"
        raise UsageError(what, mend=f"{typed} -- {' '.join(more)}")
    command: list[str] | None = ctx.meta.get(_COMMAND)
    if command == []:
        raise UsageError("there is no command after --", mend=mend)
    for word in command or ():
        check_text(word, "the command")
    return command


_KEYS = (
    ("--agent", str, "NAME", "The agent to begin with."),
    ("--fallback", str, "A,B", "The next agents, in order; auto: codex,gemini,claude,opencode."),
    ("--retries-before-fallback", int, "N", "Same agent again, N times."),
    ("--max-task-failures", int, "N", "Skip a task with more than N failures."),
    ("--timeout", float, "S", "Seconds for an agent process."),
    ("--iteration-timeout", float, "S", "Seconds for an attempt."),
    ("--phase-3-retry-count", int, "N", "Retries of phase 3 (at most 2)."),
    ("--max-iterations", int, "N", "End after N iterations."),
    ("--max-cost", float, "USD", "End after that many dollars."),
)


def loop_options(function: Any) -> Any:
    """Add the options that are keys of ralph.toml, ``--resume`` and ``--no-resume``."""
    function = resume_options(function)
    for option, kind, metavar, purpose in reversed(_KEYS):
        complete = completers.agents if kind is str else None
        add = click.option(option, type=kind, metavar=metavar, shell_complete=complete, help=purpose)
        function = add(function)
    return function


def flags_of(keys: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that were given, as the API expects them."""
    flags = {option.replace("_", "-"): value for option, value in keys.items() if value is not None}
    if isinstance(chain := flags.get("fallback"), str):
        agents = [agent.strip() for agent in chain.split(",") if agent.strip()]
        if not agents:
            raise UsageError("--fallback names no agent", mend="--fallback codex,gemini, or --fallback auto")
        for agent in agents:
            check_text(agent, "--fallback")
        flags["fallback"] = agents
    return {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in flags.items()}


def registration(
    directory: str,
    command: Sequence[str] | None,
    name: str | None,
    flags: Mapping[str, object],
    *,
    resume: bool | None = None,
) -> dict[str, object]:
    """Return the request that registers a ralph and starts it. Raise UsageError.

    Without a command ralph.toml's applies, else the built-in loop. ``resume`` says whether that continues
    from its checkpoint; None leaves it to the loop, which does.
    """
    check_text(directory, "the directory")
    body = {
        "directory": os.path.normpath(directory),
        "command": list(command or ()),
        "flags": dict(flags),
        "environment": _environment(),
        "start": True,
    }
    return body | ({"name": name} if name else {}) | ({} if resume is None else {"resume": resume})


def check_text(text: str, what: str) -> None:
    """Raise UsageError for ``text`` that JSON cannot carry."""
    if not _is_text(text):
        raise UsageError(f"{what} is not UTF-8: {text!r}", mend="a name that is")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    for name in [name for name, value in environment.items() if not _is_text(name + value)]:
        note(f"the environment variable {name} is not UTF-8; the ralph gets it not")
        del environment[name]
    return environment


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
@loop_options
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
    command = command_given(ctx, more, f"ralphctl start {directory}", mend="ralphctl start DIR -- ./loop.sh")
    wish = wish_of(resume, no_resume, command)
    if name is not None:
        discovery.check_name(name)
    client = the_client()
    order = _Order(directory, command, name, flags_of(keys))
    before = _views(client, no_autostart)
    wish = _settled_wish(order, before, wish)
    if not no_autostart:
        daemon.ensure(client, socket_given(), tell=message)
    pids = [view["ralph_pid"] for view in client.views() if view["ralph_pid"]]
    reply = _start(client, order, wish)
    tell_view(reply, said=state_text.started_words(reply.value, before=pids))
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
        """The directory that ``where`` names, if it is one."""
        return Path(self.where or discovery.here()).absolute()

    @property
    def is_name(self) -> bool:
        """True if ``where`` can only be the name of a ralph."""
        return self.where is not None and not self.directory.is_dir()

    def known(self, views: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the ralph that this starts again; None if it registers one."""
        if self.is_name:
            return next((view for view in views if view["name"] == self.where), None)
        if self.command is not None:
            return None
        view = discovery.of_directory(views, str(self.directory))
        if view is None or self.name not in (None, view["name"]):
            return None
        here = self.directory.resolve() == Path(view["directory"]).resolve()
        if not here and self.where is not None:
            return None
        # An agent is the built-in loop's: a ralph with a command of its own becomes one with that loop.
        return None if here and view["command"] and "agent" in self.flags else view


def _views(client: Client, no_autostart: bool) -> list[dict[str, Any]]:
    """Return the views before anything is started: the daemon's, or those in its files if none runs yet."""
    try:
        return client.views()
    except DaemonNotRunning:
        if no_autostart:
            raise
        return offline.registered_views(os.environ)


def _settled_wish(order: _Order, views: list[dict[str, Any]], wish: bool | None) -> bool | None:
    """Settle what becomes of a checkpoint, before anything is started."""
    view = order.known(views)
    if order.command is not None or (order.is_name and view is None):
        return wish
    if view is None:
        directory = str(order.directory)
        saved = checkpoint.find(directory, [])
        if saved is not None and not checkpoint.runs_built_in(directory, order.flags):
            tell_ignored(wish, "changes nothing: ralph.toml has a command")
            return None
    elif view["command"] or view["state"] not in wire.SETTLED_STATES:
        why = "it has a command of its own" if view["command"] else "it runs already"
        tell_ignored(wish, f"changes nothing: {why}")
        return None
    else:
        home = Path(wire.state_directory(os.environ)) / "ralphs" / str(view["name"])
        saved = checkpoint.find(str(view["directory"]), [home], reported=view.get("checkpoint"))
    typed = f"ralphctl start {order.where}" if order.where else "ralphctl start"
    return checkpoint.settle(saved, wish, command=typed)


def tell_ignored(wish: bool | None, why: str) -> None:
    """Print a note that ``--resume`` or ``--no-resume`` is ignored, if one of them was given."""
    if wish is not None:
        note(f"{'--resume' if wish else '--no-resume'} {why}")


def _start(client: Client, order: _Order, wish: bool | None) -> Reply:
    again: dict[str, object] = {"flags": order.flags} if order.flags else {}
    again |= {} if wish is None else {"resume": wish}
    if order.is_name:
        name = str(order.where)
        if order.command is not None or not wire.is_name(name):
            raise DirectoryUnusable(f"{name} is no directory", mend="ralphctl start DIR")
        try:
            return client.ask(name, "start", again)
        except UnknownRalph as fault:
            raise UnknownRalph(
                f"{name} is neither a directory nor a known ralph",
                mend="ralphctl start DIR, or ralphctl status --all",
            ) from fault
    if (known := order.known(client.views())) is not None:
        return client.ask(str(known["name"]), "start", again)
    directory = str(order.directory)
    return client.register(registration(directory, order.command, order.name, order.flags, resume=wish))
