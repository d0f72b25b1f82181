"""``ralphctl config``: show, check and edit the configuration of a directory, without a daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, LazyGroup, wants_json
from ralphctl.cli.overview import CommandEntry
from ralphctl.client.discovery import here
from ralphctl.format.output import clean, note
from ralphd.errors import DirectoryUnusable

if TYPE_CHECKING:
    from ralphctl.setup.config_edit import ConfigEdit

_MOST_NAMED = 5
config = LazyGroup(
    "config",
    table={
        "show": CommandEntry("config:show", "Print each value with its origin."),
        "check": CommandEntry("config:check", "Tell everything that is wrong, together."),
        "schema": CommandEntry("config:schema", "Print the JSON Schema of ralph.toml, for editors."),
        "set": CommandEntry("config:set_", "Set one key in ralph.toml, or in your own file."),
        "unset": CommandEntry("config:unset", "Take one key out of it."),
    },
    help="Show, check and change the configuration of a directory.",
    no_args_is_help=True,
)


def _directory(given: str | None) -> Path:
    directory = Path(given or here())
    if not directory.is_dir():
        raise DirectoryUnusable(f"{directory} is no directory")
    return directory.absolute()


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, shell_complete=completers.directories)
def show(directory: str | None) -> None:
    """Print each value that holds in DIRECTORY (this one), with where it comes from."""
    from ralphctl.setup import config_show

    click.echo(config_show.show(_directory(directory), os.environ, as_json=wants_json()))


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, shell_complete=completers.directories)
def check(directory: str | None) -> None:
    """Check the configuration of DIRECTORY (this one); exits with 78 when anything is wrong."""
    from ralphctl.setup import config_show

    click.echo(config_show.check(_directory(directory), os.environ, as_json=wants_json()))


@click.command(cls=CommonCommand)
def schema() -> None:
    """Print the JSON Schema of ralph.toml."""
    from ralphctl.setup import config_show

    click.echo(config_show.schema())


_user_option = click.option("--user", is_flag=True, help="In your own file, for all directories.")


@click.command("set", cls=CommonCommand, context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=completers.keys)
@click.argument("value")
@click.argument("directory", required=False, shell_complete=completers.directories)
@_user_option
def set_(key: str, value: str, directory: str | None, user: bool) -> None:
    """Set KEY to VALUE in the ralph.toml that holds in DIRECTORY (this one), or in your own file.

    \b
      ralphctl config set regent.max_retries 5
      ralphctl config set agents.fallback codex,gemini
      ralphctl config set agents.claude.model opus
      ralphctl config set --user logs.total_bytes 4294967296

    Lists are written whole: A,B or a TOML list; a command is split as a shell would. Comments and order stay
    as they are. What check would not accept is not written.
    """
    _edit(key, value, directory, users_own=user)


@click.command(cls=CommonCommand)
@click.argument("key", shell_complete=completers.keys)
@click.argument("directory", required=False, shell_complete=completers.directories)
@_user_option
def unset(key: str, directory: str | None, user: bool) -> None:
    """Take KEY out of the ralph.toml that holds in DIRECTORY (this one), or out of your own file."""
    _edit(key, None, directory, users_own=user)


def _edit(key: str, value: str | None, given: str | None, *, users_own: bool) -> None:
    from ralphctl.setup import config_edit, config_show

    directory = _directory(given)
    edit = config_edit.edit_key(key, value, directory=directory, environ=os.environ, users_own=users_own)
    ralphs = config_show.known_ralphs(edit.file, os.environ, users_own=users_own)
    if wants_json():
        data = {"file": str(edit.file), "key": edit.key, "was": edit.was, "now": edit.now,
                "changed": edit.is_changed, "ralphs": ralphs}  # fmt: skip
        click.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    click.echo(clean(_edit_line(edit)))
    for warning in config_show.warnings(edit, directory, os.environ):
        note(warning)
    if not edit.is_changed:
        return
    if users_own and edit.key.startswith(("logs.", "webhooks[")):
        click.echo("  next: ralphctl regent reload  (the daemon goes by what it read last)")
    for name in ralphs[:_MOST_NAMED]:
        click.echo(f"  next: ralphctl reload {name}  (it goes by what it was started with)")
    if len(ralphs) > _MOST_NAMED:
        click.echo(f"  and {len(ralphs) - _MOST_NAMED} more: ralphctl status --all")


def _edit_line(edit: ConfigEdit) -> str:
    file = edit.file.name if edit.file.parent == Path(here()) else str(edit.file)
    if not edit.is_changed:
        return f"{file}: {edit.key} is {'not set' if edit.now is None else edit.now}; nothing was changed"
    was = "" if edit.was is None else f"  (was {edit.was})"
    return f"{file}: {edit.key} {'is not set now' if edit.now is None else f'= {edit.now}'}{was}"
