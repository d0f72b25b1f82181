"""help and version: what git, docker and kubectl users type first."""

import click

from ralphctl.cli.click_ext import CommonCommand, LazyGroup, wants_json
from ralphd import __version__


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, or the list of all commands.

    \b
      ralphctl help
      ralphctl help start
      ralphctl help config set
    """
    at = context.find_root()
    for word in words:
        if not isinstance(at.command, LazyGroup):
            break
        name, command, _ = at.command.resolve_command(at, [word])
        assert command is not None, name  # resolve_command raises UnknownWord
        at = click.Context(command, info_name=name, parent=at)
    click.echo(at.get_help())


@click.command(cls=CommonCommand)
def version() -> None:
    """Print the version of ralphctl; regent status prints the daemon's."""
    click.echo(f'{{"version": "{__version__}"}}' if wants_json() else f"ralphctl {__version__}")
