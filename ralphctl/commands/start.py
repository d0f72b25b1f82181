"""start: start a loop in a directory, the built-in one or a command; or start a known ralph again."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, refuse_within_run, socket_given, the_client, wants_json
from ralphctl.client import discovery
from ralphctl.client.client import Client, Reply
from ralphctl.client.waiting import is_settled
from ralphctl.commands import trees
from ralphctl.commands.control import tell_view
from ralphctl.format import state_text
from ralphctl.format.output import clean, message, note
from ralphctl.offline import checkpoint
from ralphctl.offline import state as offline
from ralphctl.service import daemon
from ralphd import wire
from ralphd.dataclass import dataclass
from ralphd.errors import AlreadyRunning, DaemonNotRunning, DirectoryUnusable, UnknownRalph, UsageError

_COMMAND = "ralphctl.command"
REPLACED = "replaced the earlier definition"
"""How the daemon's note about it begins."""


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
        what = f"unexpected argument {more[0]!r}: a command comes after --"
        raise UsageError(what, mend=f"{typed} -- {' '.join(more)}")
    command: list[str] | None = ctx.meta.get(_COMMAND)
    if command == []:
        raise UsageError("no command after --", mend=mend)
    for word in command or ():
        check_text(word, "the command")
    return command


_KEYS = (
    ("--agent", str, "NAME", "The first agent to use."),
    ("--fallback", str, "A,B", f"The next agents, in order; auto: {','.join(wire.AUTO_AGENTS)}."),
    ("--retries-before-fallback", int, "N", "Retry the same agent N times first."),
    ("--max-task-failures", int, "N", "Skip a task with more than N failures."),
    ("--timeout", float, "S", "Time limit of an agent process, in seconds."),
    ("--iteration-timeout", float, "S", "Time limit of an attempt, in seconds."),
    ("--phase-3-retry-count", int, "N", "Retries of phase 3 (at most 2)."),
    ("--max-iterations", int, "N", "Stop after N iterations."),
    ("--max-cost", float, "USD", "Stop when the agents have cost this much."),
)


def loop_options(function: Any) -> Any:
    """Add the options that are keys of ralph.toml, ``--resume`` and ``--no-resume``."""
    function = checkpoint.resume_options(function)
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
    if odd := [key for key, v in flags.items() if isinstance(v, float) and not math.isfinite(v)]:
        raise UsageError(f"--{odd[0]} {flags[odd[0]]} is not a number", mend="0 for no limit")
    return {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in flags.items()}


def registration(
    directory: str, command: Sequence[str] | None, name: str | None, flags: Mapping[str, object], *,
    resume: bool | None = None,
) -> dict[str, object]:  # fmt: skip
    """Return the request that registers a ralph and starts it. Raise UsageError.

    Without a command that of ralph.toml applies, else the built-in loop. ``resume`` None: the loop resumes
    from its checkpoint if it has one.
    """
    check_text(directory, "the directory")
    body = {"directory": os.path.normpath(directory), "command": list(command or ()), "flags": dict(flags),
            "environment": _environment(), "start": True}  # fmt: skip
    return body | ({"name": name} if name else {}) | ({} if resume is None else {"resume": resume})


def check_text(text: str, what: str) -> None:
    """Raise UsageError for ``text`` that JSON cannot carry."""
    if not _is_text(text):
        raise UsageError(f"{what} is not UTF-8: {text!r}", mend="use a UTF-8 name")


def _is_text(text: str) -> bool:
    return text == text.encode(errors="replace").decode()


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    for name in [name for name, value in environment.items() if not _is_text(name + value)]:
        note(f"the environment variable {name} is not UTF-8 and is not passed on")
        del environment[name]
    return environment


_EXCEPT = "--name, --branch and those for worktrees"
_EPILOG = f"Every option with a value except {_EXCEPT} can also be set in ralph.toml."


@click.command(cls=WithCommand, options_metavar="[OPTIONS]", epilog=_EPILOG)
@click.argument("directory", required=False, metavar="[DIR | NAME] [-- COMMAND...]",
                shell_complete=completers.ralphs_and_directories)  # fmt: skip
@click.argument("more", nargs=-1, metavar="", shell_complete=completers.files)
@click.option("--name", help="The ralph's name (default: the directory's name).")
@click.option("--branch", metavar="BRANCH", help="Commit to BRANCH; created if it does not exist.")
@click.option("--replace", "may_replace", is_flag=True, help="Replace the known command of this directory.")
@click.option("--no-autostart", is_flag=True, help="Do not start the daemon if none is running.")
@trees.worktree_options
@loop_options
@click.pass_context
def start(
    ctx: click.Context, /, directory: str | None, more: tuple[str, ...], name: str | None,
    branch: str | None, may_replace: bool, no_autostart: bool, resume: bool, no_resume: bool, **keys: Any,
) -> int:  # fmt: skip
    """Start a loop in DIR: the built-in one, or COMMAND. Or start a known ralph again by its name.

    \b
      ralphctl start ~/project                  the built-in loop: PROMPT.md, claude
      ralphctl start ~/project -- ./loop.sh     a loop of your own
      ralphctl start                            this directory: its ralph.toml, or as last time
      ralphctl start NAME                       a known ralph again
      ralphctl start --branch night             commit to the branch night
      ralphctl start --worktree fix --count 3   three ralphs, each in a worktree, share the task list

    Commits go to the current branch, or to BRANCH. A checkpoint left in the middle of an iteration is shown
    first: resume or discard it. Without a terminal it is resumed.
    """
    command = command_given(ctx, more, f"ralphctl start {directory}", mend="ralphctl start DIR -- ./loop.sh")
    wish = checkpoint.wish_of(resume, no_resume, command)
    if name is not None:
        discovery.check_name(name)
    if branch is not None:
        _check_branch(branch)
    client = the_client()
    worktree = trees.worktree_asked(keys, branch, name)
    order = _Order(directory, command, name, flags_of(keys))
    if worktree is not None:
        if not no_autostart:
            daemon.ensure(client, socket_given())
        body = registration(str(order.directory), command, None, order.flags, resume=wish)
        return trees.start_in_worktrees(client, body, worktree)
    before = _views(client, no_autostart)
    _settle_replacement(order, before, may_replace=may_replace)
    wish = _settled_wish(order, before, wish)
    if command is None and not order.is_name and order.known(before) is None:
        offer_init(ctx, order.directory, order.flags)
    if not no_autostart:
        daemon.ensure(client, socket_given())
    with nullcontext() if branch is None else _on_branch(order, before, branch):
        running = [view["ralph_pid"] for view in client.views() if view["ralph_pid"]]
        reply = _start(client, order, wish)
    return _tell(reply, running, was_settled=command is not None)


def _tell(reply: Reply, running: list[int], *, was_settled: bool) -> int:
    """Print what was started and where its commits go; return the exit code."""
    view, branch = reply.value, clean(reply.value.get("branch") or "")
    more = [f"  commits go to branch {branch}"] if branch else []
    tell_view(reply, text=state_text.started_words(view, before=running), more=more)
    for line in view.get("notes") or []:
        if not (was_settled and str(line).startswith(REPLACED)):
            note(str(line))
    return wire.EXIT_FAILED if view["state"] == "failed" else wire.EXIT_OK


def _check_branch(branch: str) -> None:
    trees.check_git_name(branch, "--branch", "a branch, which is created if it does not exist")
    if branch == wire.LANDED_BRANCH:
        why = "what landed waits on it until the target's checkout can take it"
        raise UsageError(f"{branch} is the landing queue's branch", why=why, mend="--branch NAME")


def offer_init(ctx: click.Context, directory: Path, flags: Mapping[str, object]) -> None:
    """Offer to run ``ralphctl init`` at a terminal if the built-in loop has no prompt in ``directory``."""
    if (directory / "PROMPT.md").exists() or wants_json() or not checkpoint.can_ask():
        return  # the daemon refuses, and its error names init
    from ralphctl.setup.init import missing_prompt

    if file := missing_prompt(directory, flags, os.environ):
        message(f"{clean(directory)} has no {clean(file)}, the prompt of the built-in loop.")
        if checkpoint.confirmed("Run ralphctl init now? [Y/n]", enter=True):
            root: Any = ctx.find_root().command  # by name: init imports this module
            ctx.invoke(root.get_command(ctx, "init"), directory=str(directory), yes=False, force=False)


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

    def in_directory(self, views: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the ralph of this very directory and name, if there is one."""
        view = None if self.is_name else discovery.of_directory(views, str(self.directory))
        if view is None or self.name not in (None, view["name"]):
            return None
        return view if self.directory.resolve() == Path(view["directory"]).resolve() else None

    def known(self, views: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the ralph that this starts again; None if it registers one."""
        if self.is_name:
            return next((view for view in views if view["name"] == self.where), None)
        here = self.in_directory(views)
        if self.command is not None:  # the same command is registered again: the environment may be another
            return here if here and here["command"] == self.command and not is_settled(here) else None
        if here is not None:
            # An agent is the built-in loop's: a ralph with a command of its own becomes one with that loop.
            return None if here["command"] and "agent" in self.flags else here
        view = discovery.of_directory(views, str(self.directory)) if self.where is None else None
        if view is None or self.name not in (None, view["name"]):
            return None
        nearer = takewhile(lambda path: not path.samefile(view["directory"]), map(Path, offline.upward(".")))
        return None if any(os.path.lexists(path / "ralph.toml") for path in nearer) else view


def _settle_replacement(order: _Order, views: list[dict[str, Any]], *, may_replace: bool) -> None:
    """Ask before another command replaces the known one. Raise AlreadyRunning, UsageError, StartDeclined."""
    command, view = order.command, order.in_directory(views)
    if command is None or view is None or view["command"] == command:
        return
    name, new = view["name"], clean(shlex.join(command))
    old = clean(shlex.join(view["command"] or ())) or "the built-in loop"
    words = [*([order.where] if order.where else []), *(["--name", order.name] if order.name else [])]
    replacing = shlex.join(["ralphctl", "start", "--replace", *words, "--", *command])
    if not is_settled(view):
        refuse_within_run()
        mend = f"ralphctl stop {name}, then {replacing}"
        raise AlreadyRunning(f"{name} is running here, with {old}", mend=mend)
    if may_replace:
        return
    again = f"ralphctl start {name}  (starts {old})"
    if wants_json() or not checkpoint.can_ask():
        what = f"{name} is known here, with another command: {old}"
        raise UsageError(what, why=f"{new} would replace it", mend=f"{replacing}\n{again}")
    if not checkpoint.confirmed(f"{name} is known here. Replace {old} by {new}? [y/N]"):
        raise checkpoint.StartDeclined("nothing was started", mend=again)


def _on_branch(order: _Order, views: list[dict[str, Any]], branch: str) -> AbstractContextManager[None]:
    from ralphctl.setup.detect import on_branch

    view = order.known(views) or order.in_directory(views)
    if view is not None and not is_settled(view):
        refuse_within_run()
        mend = f"ralphctl stop {view['name']}, then start it with --branch"
        raise AlreadyRunning(f"{view['name']} is running: its branch stays as it is", mend=mend)
    return on_branch(Path(view["directory"]) if view else order.directory, branch)


def _views(client: Client, no_autostart: bool) -> list[dict[str, Any]]:
    """Return the views before anything is started: the daemon's, or those in its files if none runs yet."""
    try:
        return client.views()
    except DaemonNotRunning:
        if no_autostart:
            raise
        return offline.registered_views(os.environ)


def _settled_wish(order: _Order, views: list[dict[str, Any]], wish: bool | None) -> bool | None:
    """Decide whether to resume from a checkpoint, before anything is started."""
    view = order.known(views)
    if order.command is not None or (order.is_name and view is None):
        return wish
    if view is None:
        directory = str(order.directory)
        saved = checkpoint.find(directory, [])
        if saved is not None and not checkpoint.runs_built_in(directory, order.flags):
            tell_ignored(wish, "changes nothing: ralph.toml has a command")
            return None
    elif view["command"] or not is_settled(view):
        why = "it has a command of its own" if view["command"] else "it is already running"
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


def start_known(client: Client, where: str) -> Reply:
    """Start the ralph of this name, or the loop of a directory, without questions."""
    if wire.is_name(where):
        return client.ask(where, "start")
    if not Path(where).is_dir():
        raise DirectoryUnusable(f"{where} is not a directory")
    return _start(client, _Order(where, None, None, {}), None)


def _start(client: Client, order: _Order, wish: bool | None) -> Reply:
    if order.is_name:
        name = str(order.where)
        place = f"-- {shlex.quote(name if '/' in name else './' + name)}" if Path(name).is_file() else "DIR"
        if order.command is not None or not wire.is_name(name):
            raise DirectoryUnusable(f"{name} is not a directory", mend=f"ralphctl start {place}")
        if order.name not in (None, name):
            raise UsageError(f"--name cannot rename {name}", mend=f"ralphctl start {name}")
        try:
            return client.ask(name, "start", _again(order, wish))
        except UnknownRalph as fault:
            mend = f"ralphctl start {place}, or ralphctl status --all"
            raise UnknownRalph(f"{name} is neither a directory nor a known ralph", mend=mend) from fault
    if (known := order.known(client.views())) is not None:
        return client.ask(str(known["name"]), "start", _again(order, wish))
    directory = str(order.directory)
    return client.register(registration(directory, order.command, order.name, order.flags, resume=wish))


def _again(order: _Order, wish: bool | None) -> dict[str, object]:
    return {"flags": order.flags, "environment": _environment()} | ({} if wish is None else {"resume": wish})
