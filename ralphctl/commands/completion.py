"""completion: the script by which a shell completes commands, options, names and keys."""

import os

import click
from click.shell_completion import get_completion_class, shell_complete

from ralphctl.cli.click_ext import CommonCommand

VARIABLE = "_RALPHCTL_COMPLETE"  # also in main.py, which cannot afford to import click
_PROGRAMS = ("ralphctl", "ralph")


@click.command(cls=CommonCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, for ralphctl and ralph.

    \b
      bash    ralphctl completion bash > ~/.ralphctl.bash
              echo '. ~/.ralphctl.bash' >> ~/.bashrc
      zsh     ralphctl completion zsh > ~/.ralphctl.zsh
              echo '. ~/.ralphctl.zsh' >> ~/.zshrc        (after compinit)
      fish    ralphctl completion fish > ~/.config/fish/completions/ralphctl.fish
              ln -s ralphctl.fish ~/.config/fish/completions/ralph.fish

    The script runs ralphctl at each TAB, so it does not have to be written again after an upgrade.
    """
    from ralphctl.cli.root import cli

    writer = get_completion_class(shell)
    assert writer is not None, shell  # click has these three
    click.echo("\n".join(writer(cli, {}, program, VARIABLE).source() for program in _PROGRAMS))


def answer() -> int:
    """Print what the words in the shell's variables can be completed with."""
    from ralphctl.cli.root import cli

    return shell_complete(cli, {}, _PROGRAMS[0], VARIABLE, os.environ[VARIABLE])
