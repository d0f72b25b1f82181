"""All commands of ``ralphctl`` and how their errors are told. Loaded when ``fast`` did not answer."""

from __future__ import annotations

import os

import click

from ralphctl.grammar import Entry, LazyGroup, UnknownWord
from ralphctl.tell import error
from ralphd import __version__, wire
from ralphd.errors import UsageError

_EVERYDAY, _LOOK, _DAEMON, _MORE = "Everyday", "Look", "Daemon", "More"
_HERE = "ralphctl.commands"

TABLE = {
    "start": Entry(f"{_HERE}.start:start", "Supervise Ralph in DIR, or start a ralph again.", _EVERYDAY),
    "build": Entry(f"{_HERE}.build:build", "The same in the foreground, without a daemon.", _EVERYDAY),
    "stop": Entry(f"{_HERE}.control:stop", "Stop a ralph; nothing of it stays alive.", _EVERYDAY),
    "restart": Entry(f"{_HERE}.control:restart", "Stop a ralph, then start it.", _EVERYDAY),
    "pause": Entry(f"{_HERE}.control:pause", "Pause a ralph until it is resumed.", _EVERYDAY),
    "resume": Entry(f"{_HERE}.control:resume", "Let a paused ralph go on.", _EVERYDAY),
    "skip-wait": Entry(f"{_HERE}.control:skip_wait", "Do not wait any longer; start now.", _EVERYDAY),
    "reload": Entry(f"{_HERE}.reload:reload", "Take up a changed configuration.", _EVERYDAY),
    "undo": Entry(f"{_HERE}.guard:undo", "Put back commits that the guard has reverted.", _EVERYDAY),
    "rm": Entry(f"{_HERE}.control:rm", "Forget a ralph that does not run.", _EVERYDAY),
    "status": Entry(f"{_HERE}.status:status", "What is so, and what to do about it.", _LOOK),
    "ps": Entry(f"{_HERE}.status:status", "The same as status.", _LOOK, hidden=True),
    "logs": Entry(f"{_HERE}.logs:logs", "What a ralph printed, with the Regent's own lines.", _LOOK),
    "events": Entry(f"{_HERE}.events:events", "What happened, one line an event.", _LOOK),
    "explain": Entry(f"{_HERE}.explain:explain", "Why the last thing was done to a ralph.", _LOOK),
    "verdicts": Entry(f"{_HERE}.guard:verdicts", "What was said of its commits, and why.", _LOOK),
    "wait": Entry(f"{_HERE}.wait:wait", "Wait until a ralph is done, paused, stopped or idle.", _LOOK),
    "regent": Entry(f"{_HERE}.regent:regent", "Start, stop, restart and look at the daemon itself.", _DAEMON),
    "config": Entry(f"{_HERE}.config:config", "Show and check the configuration of a directory.", _MORE),
    "classify": Entry(f"{_HERE}.classify:classify", "Say what an agent's output means.", _MORE),
    "notify": Entry(f"{_HERE}.notify:notify", "For scripts in a run: tell the Regent what it does.", _MORE),
    "completion": Entry(f"{_HERE}.completion:completion", "Print the completion script of a shell.", _MORE),
    "demo": Entry(f"{_HERE}.demo:demo", "See in a quarter of a minute what ralphd does.", _MORE),
}  # fmt: skip

COMPLETE = "_RALPHCTL_COMPLETE"
"""Set by the script of `ralphctl completion` when a person presses TAB."""

_HELP = """Keep coding-agent loops running, and honest.

\b
  ralphctl start ~/project                  supervise Ralph there: the built-in loop
  ralphctl start ~/project -- ./loop.sh     or a loop of your own
  ralphctl status                           see how it is
  ralphctl logs -f                          watch it
  ralphctl stop                             end it, and all it started
"""


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"ralphctl {__version__}")
        context.exit()


@click.pass_context
def _help_without_a_command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli = LazyGroup(
    "ralphctl",
    table=TABLE,
    help=_HELP,
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 no such ralph, 75 paused or try later, "
    "78 configuration, 124 --wait-timeout ran out, 130 interrupted.",
    no_args_is_help=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    callback=_help_without_a_command,
    params=[
        click.Option(["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version,
                     help="Print the version."),
    ],
)  # fmt: skip


def run(arguments: list[str]) -> int:
    """Carry out the command that ``arguments`` name; gives its exit code. Raises RalphdError."""
    if os.environ.get(COMPLETE):
        cli.main(prog_name="ralphctl", complete_var=COMPLETE)
    try:
        # Not cli.main: it would take Ctrl-C and a closed pipe for itself.
        with cli.make_context("ralphctl", list(arguments)) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.format_message(), err=True)
        return wire.EXIT_USAGE
    except click.ClickException as fault:
        error(_usage(fault))
        return wire.EXIT_USAGE
    return code if isinstance(code, int) else wire.EXIT_OK


def _usage(fault: click.ClickException) -> UsageError:
    what = fault.format_message().rstrip(".")
    context = getattr(fault, "ctx", None)
    better = fault.better if isinstance(fault, UnknownWord) else ""
    return UsageError(what, mend=better or f"{context.command_path if context else 'ralphctl'} --help")
