"""``ralphctl config``: show, check and edit the configuration of a directory, without a daemon."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, LazyGroup, end_if_json, refuse_within_run, wants_json
from ralphctl.client.discovery import here
from ralphctl.format.output import clean, message, note
from ralphctl.offline.checkpoint import can_ask, confirmed
from ralphd.errors import ConfigFaults, DirectoryUnusable, UsageError

_MOST_NAMED = 5


@click.group(cls=LazyGroup)
def config() -> None:
    """Show, check and change the configuration of a directory."""


def _directory(given: str | None) -> Path:
    directory = Path(given or here())
    if not directory.is_dir():
        raise DirectoryUnusable(f"{directory} is not a directory")
    return directory.absolute()


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, shell_complete=completers.directories)
def show(directory: str | None) -> None:
    """Print every value in force in DIRECTORY (default: this one), and where it is set."""
    from ralphctl.setup import config_show

    click.echo(config_show.show(_directory(directory), os.environ, as_json=wants_json()))


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, shell_complete=completers.directories)
def check(directory: str | None) -> None:
    """Check the configuration of DIRECTORY (default: this one). Exits with 78 if it has faults."""
    from ralphctl.setup import config_show

    try:
        click.echo(config_show.check(_directory(directory), os.environ, as_json=wants_json()))
    except ConfigFaults as fault:
        if wants_json():
            click.echo(config_show.faults(fault))
        raise


@click.command(cls=CommonCommand)
def schema() -> None:
    """Print the JSON Schema of ralph.toml."""
    from ralphctl.setup import config_show

    click.echo(config_show.schema())


_key_argument = click.argument("key", shell_complete=completers.keys)
_directory_argument = click.argument("directory", required=False, shell_complete=completers.directories)
_user_option = click.option("--user", is_flag=True, help="Your own file, for all directories.")


@click.command(cls=CommonCommand)
@_key_argument
@_directory_argument
def get(key: str, directory: str | None) -> None:
    """Print the value of KEY in force in DIRECTORY (default: this one)."""
    from ralphctl.setup import config_show

    text = config_show.get(key, _directory(directory), os.environ, as_json=wants_json())
    click.echo("\n".join(map(clean, text.split("\n"))) if sys.stdout.isatty() else text)


@click.command(cls=CommonCommand)
@_key_argument
@_directory_argument
def explain(key: str, directory: str | None) -> None:
    """Explain KEY: what it means, its values, its default, and where it is set. KEY may be a section.

    \b
      ralphctl config explain regent.max_retries
      ralphctl config explain git
    """
    from ralphctl.setup import config_show

    click.echo(config_show.explain(key, _directory(directory), os.environ))


@click.command("set", cls=CommonCommand, context_settings={"ignore_unknown_options": True})
@_key_argument
@click.argument("value", shell_complete=completers.values)
@_directory_argument
@_user_option
def set_(key: str, value: str, directory: str | None, user: bool) -> None:
    """Set KEY to VALUE in the ralph.toml of DIRECTORY (default: this one), or in your own file.

    \b
      ralphctl config set regent.max_retries 5
      ralphctl config set agents.fallback codex,gemini
      ralphctl config set agents.claude.model opus
      ralphctl config set --user logs.total_bytes 4294967296

    A list replaces the earlier one: A,B or a TOML list; a command is split as a shell does it. Comments and
    order stay as they are. A value that its key cannot have is not written.
    """
    _edit(key, value, directory, users_own=user)


@click.command(cls=CommonCommand)
@_key_argument
@_directory_argument
@_user_option
def unset(key: str, directory: str | None, user: bool) -> None:
    """Remove KEY from the ralph.toml of DIRECTORY (default: this one), or from your own file."""
    _edit(key, None, directory, users_own=user)


@click.command(cls=CommonCommand)
@_directory_argument
@_user_option
def edit(directory: str | None, user: bool) -> None:
    """Edit the ralph.toml of DIRECTORY (default: this one), or your own file, in $VISUAL or $EDITOR.

    You edit a copy. It replaces the file once it has no faults; until then the file stays as it is, and your
    text is kept.
    """
    from ralphctl.setup.config_edit import edit_whole

    refuse_within_run()
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"

    def run_editor(copy: Path, faults: list[str]) -> None:
        for line in faults:
            message(clean(line))
        if faults and not (can_ask() and confirmed("Edit again? [Y/n]", enter=True)):
            raise ConfigFaults("the edited text has faults")
        try:
            code = subprocess.run([*shlex.split(wanted), str(copy)]).returncode
        except (OSError, ValueError) as fault:
            mend = "EDITOR=nano ralphctl config edit"
            raise UsageError(f"cannot run the editor: {fault}", mend=mend) from fault
        if code:
            raise UsageError(f"the editor {wanted!r} failed (exit {code})")

    file, keys = edit_whole(run_editor, directory=_directory(directory), environ=os.environ, users_own=user)
    done = f"saved ({', '.join(keys[:_MOST_NAMED])})" if keys else "no value changed"
    click.echo(f"{_shown(file)}: {done}")
    _tell_next(file, keys, users_own=user)


def _edit(key: str, value: str | None, given: str | None, *, users_own: bool) -> None:
    from ralphctl.setup import config_edit, config_show

    refuse_within_run()
    directory = _directory(given)
    edit = config_edit.edit_key(key, value, directory=directory, environ=os.environ, users_own=users_own)
    if wants_json():
        _, ralphs = config_show.next_steps(edit.file, [edit.key], os.environ, users_own=users_own)
        data = {"file": str(edit.file), "key": edit.key, "was": edit.was, "now": edit.now,
                "changed": edit.is_changed, "ralphs": ralphs}  # fmt: skip
        end_if_json(data, indent=2, ensure_ascii=False)
    click.echo(clean(config_show.edit_line(edit, _shown(edit.file))))
    for warning in config_show.warnings(edit, directory, os.environ):
        note(warning)
    if edit.is_changed:
        _tell_next(edit.file, [edit.key], users_own=users_own)


def _tell_next(file: Path, keys: list[str], *, users_own: bool) -> None:
    """Print the commands without which a change of ``keys`` does not take effect."""
    from ralphctl.setup import config_show

    for_daemon, ralphs = config_show.next_steps(file, keys, os.environ, users_own=users_own)
    if for_daemon:
        click.echo("  next: ralphctl regent reload  (if the daemon is running)")
    for name in ralphs[:_MOST_NAMED]:
        click.echo(f"  next: ralphctl reload {name}  (it keeps the configuration of its start until then)")
    if len(ralphs) > _MOST_NAMED:
        click.echo(f"  and {len(ralphs) - _MOST_NAMED} more: ralphctl status --all")


def _shown(file: Path) -> str:
    return clean(file.name if file.parent == Path(here()) else file)
