"""config: what is configured, where each value comes from, and whether it is right. Needs no daemon."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ralphctl.fast import here
from ralphctl.grammar import Command, Entry, LazyGroup, wants_json
from ralphd.errors import DirectoryUnusable

_PLACE = "ralphctl.commands.config"

config = LazyGroup(
    "config",
    table={
        "show": Entry(f"{_PLACE}:show", "Print each value with its origin."),
        "check": Entry(f"{_PLACE}:check", "Tell everything that is wrong, together."),
        "schema": Entry(f"{_PLACE}:schema", "Print the JSON Schema of ralph.toml, for editors."),
    },
    help="Show and check the configuration of a directory.",
    no_args_is_help=True,
)


def _directory(given: str | None) -> Path:
    directory = Path(given or here())
    if not directory.is_dir():
        raise DirectoryUnusable(f"{directory} is no directory")
    return directory.absolute()


@click.command(cls=Command)
@click.argument("directory", required=False)
def show(directory: str | None) -> None:
    """Print each value that holds in DIRECTORY (this one), with where it comes from."""
    from ralphctl.local import config as local

    click.echo(local.show(_directory(directory), os.environ, as_json=wants_json()))


@click.command(cls=Command)
@click.argument("directory", required=False)
def check(directory: str | None) -> None:
    """Check the configuration of DIRECTORY (this one); exits with 78 when anything is wrong."""
    from ralphctl.local import config as local

    click.echo(local.check(_directory(directory), os.environ, as_json=wants_json()))


@click.command(cls=Command)
def schema() -> None:
    """Print the JSON Schema of ralph.toml."""
    from ralphctl.local import config as local

    click.echo(local.schema(as_json=wants_json()))
