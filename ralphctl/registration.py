"""What `start` and `build` send to have a ralph registered: the words after ``--``, flags that are keys of
ralph.toml, the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ralphctl import completers
from ralphctl.grammar import Command
from ralphctl.tell import note
from ralphd.errors import UsageError

_COMMAND = "ralphctl.command"


class WithCommand(Command):
    """Keeps what follows ``--`` for the ralph's command, whatever it looks like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command off ``args``; click sees the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def command_given(ctx: click.Context, *, mend: str) -> list[str] | None:
    """What followed ``--``; None without one. Raises UsageError, which says to ``mend`` it."""
    command: list[str] | None = ctx.meta.get(_COMMAND)
    if command == []:
        raise UsageError("there is no command after --", mend=mend)
    for word in command or ():
        check_text(word, "the command")
    return command


def key_options(function: Any) -> Any:
    """The options that are keys of ralph.toml."""
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
        click.option(
            "--fallback",
            metavar="A,B",
            shell_complete=completers.agents,
            help="The next agents, in order; auto: codex,gemini,claude,opencode.",
        ),
        click.option(
            "--agent", metavar="NAME", shell_complete=completers.agents, help="The agent to begin with."
        ),
    ):
        function = option(function)
    return function


def flags_of(keys: Mapping[str, Any]) -> dict[str, object]:
    """The options that were given, as the API takes them."""
    flags = {option.replace("_", "-"): value for option, value in keys.items() if value is not None}
    if isinstance(chain := flags.get("fallback"), str):
        flags["fallback"] = _agents(chain)
    return {key: int(v) if isinstance(v, float) and v.is_integer() else v for key, v in flags.items()}


def _agents(chain: str) -> list[str]:
    """The agents of ``--fallback A,B``. Raises UsageError for none at all, which is no way to say so."""
    agents = [agent.strip() for agent in chain.split(",") if agent.strip()]
    if not agents:
        raise UsageError("--fallback names no agent", mend="--fallback codex,gemini, or --fallback auto")
    for agent in agents:
        check_text(agent, "--fallback")
    return agents


def registration(
    directory: str,
    command: Sequence[str] | None,
    name: str | None,
    flags: Mapping[str, object],
    *,
    resume: bool | None = None,
) -> dict[str, object]:
    """The body that registers a ralph and starts it. Raises UsageError.

    Without a command it is the one of ralph.toml, else the built-in loop; ``resume`` says what becomes of a
    checkpoint of that one, None leaves it to the loop, which goes on from it.
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
    """Raises UsageError for ``text`` that JSON cannot carry."""
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
