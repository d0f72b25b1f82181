"""completion: the script by which a shell completes commands, options and the names of ralphs."""

from __future__ import annotations

import importlib

import click

from ralphctl.grammar import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, for ralphctl and ralph.

    \b
      bash    ralphctl completion bash > ~/.ralphctl.bash
              echo '. ~/.ralphctl.bash' >> ~/.bashrc
      zsh     ralphctl completion zsh > ~/.ralphctl.zsh
              echo '. ~/.ralphctl.zsh' >> ~/.zshrc
      fish    ralphctl completion fish > ~/.config/fish/completions/ralphctl.fish
              ln -s ralphctl.fish ~/.config/fish/completions/ralph.fish

    The script starts nothing when TAB is pressed: the names of ralphs are those in the state directory.
    After an upgrade, write it anew.
    """
    from ralphctl.root import cli
    from ralphctl.shells.places import places
    from ralphd import __version__

    writer = importlib.import_module(f"ralphctl.shells.{shell}")
    click.echo(writer.script(places(cli), __version__), nl=False)
