"""completion: the script by which a shell completes commands, options and the names of ralphs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ralphctl.grammar import Command

_PROGRAMS = ("ralphctl", "ralph")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, for ralphctl and ralph.

    \b
      bash    eval "$(ralphctl completion bash)"          in ~/.bashrc
      zsh     eval "$(ralphctl completion zsh)"           in ~/.zshrc
      fish    ralphctl completion fish | source           in config.fish
    """
    from ralphctl.cli import COMPLETE, cli

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    for program in _PROGRAMS:
        click.echo(kind(cli, {}, program, COMPLETE).source())
