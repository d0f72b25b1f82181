"""config: what is configured, where each value comes from, whether it is right; and one key changed.

Needs no daemon.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralphctl.entry import Entry
from ralphctl.fast import here
from ralphctl.grammar import Command, LazyGroup, wants_json
from ralphctl.tell import clean, note
from ralphd.errors import DirectoryUnusable

if TYPE_CHECKING:
    from ralphctl.local.config_edit import Edit

_MOST_NAMED = 5
_PLACE = "ralphctl.commands.config"

config = LazyGroup(
    "config",
    table={
        "show": Entry(f"{_PLACE}:show", "Print each value with its origin."),
        "check": Entry(f"{_PLACE}:check", "Tell everything that is wrong, together."),
        "schema": Entry(f"{_PLACE}:schema", "Print the JSON Schema of ralph.toml, for editors."),
        "set": Entry(f"{_PLACE}:set_", "Set one key in ralph.toml, or in your own file."),
        "unset": Entry(f"{_PLACE}:unset", "Take one key out of it."),
    },
    help="Show, check and change the configuration of a directory.",
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


_user_option = click.option("--user", is_flag=True, help="In your own file, for all directories.")


@click.command("set", cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@click.argument("directory", required=False)
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
    from ralphctl.local import config_edit

    place = _directory(directory)
    _tell_edit(
        config_edit.set_key(key, value, directory=place, environ=os.environ, users_own=user), place, user
    )


@click.command(cls=Command)
@click.argument("key")
@click.argument("directory", required=False)
@_user_option
def unset(key: str, directory: str | None, user: bool) -> None:
    """Take KEY out of the ralph.toml that holds in DIRECTORY (this one), or out of your own file."""
    from ralphctl.local import config_edit

    place = _directory(directory)
    _tell_edit(config_edit.unset_key(key, directory=place, environ=os.environ, users_own=user), place, user)


def _tell_edit(edit: Edit, directory: Path, user: bool) -> None:
    """What was changed, what else stands in its way, and from when on it holds."""
    from ralphctl.local import config_effect

    known = config_effect.known_ralphs(edit.path, os.environ, users_own=user)
    if wants_json():
        told = {"file": str(edit.path), "key": edit.key, "was": edit.was, "now": edit.now,
                "changed": edit.is_changed, "ralphs": known}  # fmt: skip
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    click.echo(clean(_edit_words(edit)))
    for line in (edit.warning, *config_effect.obstacles(edit.key, edit.path, directory, os.environ)):
        if line:
            note(line)
    if not edit.is_changed:
        return
    if user and edit.key.startswith(("logs.", "webhooks[")):
        click.echo("  next: ralphctl regent reload  (the daemon goes by what it read last)")
    for name in known[:_MOST_NAMED]:
        click.echo(f"  next: ralphctl reload {name}  (it goes by what it was started with)")
    if len(known) > _MOST_NAMED:
        click.echo(f"  and {len(known) - _MOST_NAMED} more: ralphctl status --all")


def _edit_words(edit: Edit) -> str:
    where = edit.path.name if edit.path.parent == Path(here()) else str(edit.path)
    if not edit.is_changed:
        return f"{where}: {edit.key} is {'not set' if edit.now is None else edit.now}; nothing was changed"
    was = "" if edit.was is None else f"  (was {edit.was})"
    return f"{where}: {edit.key} " + (
        f"= {edit.now}{was}" if edit.now is not None else f"is not set now{was}"
    )
