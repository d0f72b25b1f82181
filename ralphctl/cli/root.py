"""``ralphctl`` as click sees it, and how click's errors are printed."""

import click

from ralphctl.cli import overview
from ralphctl.cli.click_ext import LazyGroup, UnknownWord
from ralphctl.format.output import error
from ralphd import __version__, wire
from ralphd.errors import UsageError


class _Root(LazyGroup):
    def get_help(self, ctx: click.Context) -> str:
        """Return the page that ``overview`` prints without click."""
        return overview.page()


@click.pass_context
def _help_without_a_command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli = _Root(
    "ralphctl",
    epilog=overview.EXIT_CODES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    callback=_help_without_a_command,
)
click.version_option(__version__, message="ralphctl %(version)s", help=overview.OPTIONS["--version"])(cli)


def run(arguments: list[str]) -> int:
    """Run the command that ``arguments`` name and return its exit code. Raise RalphdError."""
    try:
        # Not cli.main, which handles Ctrl-C and a closed pipe by itself.
        with cli.make_context("ralphctl", list(arguments)) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.format_message(), err=True)
        return wire.EXIT_USAGE
    except click.ClickException as fault:
        error(_usage(fault, arguments))
        return wire.EXIT_USAGE
    return code if isinstance(code, int) else wire.EXIT_OK


def _usage(fault: click.ClickException, arguments: list[str]) -> UsageError:
    what, context = fault.format_message().rstrip(".").replace("\n\t", " "), getattr(fault, "ctx", None)
    # click names no context for an option without its value
    path = context.command_path if context else " ".join(["ralphctl", *(cli.table.keys() & arguments[:1])])
    if isinstance(fault, UnknownWord):
        return UsageError(what, mend=fault.better)
    better = ""
    if isinstance(fault, click.NoSuchOption) and context:
        from ralphctl.cli.suggest import option_for

        what = f"unknown option {fault.option_name!r}"
        better = option_for(fault.option_name, [each for one in context.command.params for each in one.opts])
    return UsageError(what, mend=f"{path} {better or '--help'}")
