"""``ralphctl init``: create ralph.toml and PROMPT.md in a directory, without a daemon."""

import os
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, end_if_json, wants_json
from ralphctl.client.discovery import here
from ralphctl.format.output import note
from ralphctl.offline.checkpoint import can_ask
from ralphd.errors import DirectoryUnusable


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, metavar="[DIR]", shell_complete=completers.directories)
@click.option("--agent", metavar="NAME", shell_complete=completers.agents,
              help="The first agent to use (default: the first that is installed).")  # fmt: skip
@click.option("--fallback", metavar="A,B", shell_complete=completers.agents,
              help="The next agents, in order (default: none).")  # fmt: skip
@click.option("--test-command", metavar="COMMAND", help="The test command (default: found in the files).")
@click.option("--push/--no-push", "pushes", default=None, help="Push kept commits. Asked; default no.")
@click.option("--pull/--no-pull", "pulls", default=None,
              help="Pull with rebase before an iteration. Asked; default no.")  # fmt: skip
@click.option("--rollback/--no-rollback", "rolls_back", default=None,
              help="Revert commits that break the tests. Asked; default yes.")  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: use the default answers.")
@click.option("--force", is_flag=True, help="Write a new ralph.toml; the old one is renamed.")
def init(directory: str | None, fallback: str | None, yes: bool, force: bool, **options: Any) -> None:
    """Create ralph.toml, PROMPT.md and .ralph/ in DIR (default: this directory).

    \b
      ralphctl init                    inspect the project, ask, write
      ralphctl init ~/project --yes    ask nothing
      ralphctl init --no-push --no-pull --rollback --test-command 'make test'

    No existing file is overwritten, and none of your programs is run. At a terminal it asks about the risks
    that apply here: reverting needs tests, pushing and pulling need an upstream. Without a terminal it asks
    nothing, and what no option turns on stays off.
    """
    from ralphctl.commands.start import flags_of
    from ralphctl.setup import init as setup
    from ralphctl.setup import init_dialog as dialog

    chain: Any = flags_of({"fallback": fallback}).get("fallback", ())
    wishes = setup.InitChoices(fallback=tuple(chain), **options)
    place = Path(directory or here()).absolute()
    if not place.is_dir():
        mend = "ralphctl init DIR" if place.exists() else f"mkdir -p {shlex.quote(str(place))}"
        raise DirectoryUnusable(f"{place} is not a directory", mend=mend)
    project = setup.inspect(place, os.environ, wishes, force=force)
    if not wants_json():
        click.echo("\n".join(dialog.detected_lines(project, wishes.test_command or "")))
    is_answered = yes or (can_ask() and not wants_json())
    ask = partial(dialog.ask, yes=yes) if is_answered else lambda choice, tests: False
    choices = setup.decide(project, wishes, ask)
    result = setup.write(project, choices)
    missing = setup.missing_agents(project, choices, os.environ)
    notes = [*missing, *dialog.notes(project, choices)]
    end_if_json(dialog.as_data(project, choices, result, notes), indent=2, ensure_ascii=False)
    click.echo("\n".join(dialog.written_lines(result)))
    for line in notes:
        note(line)
    for line in dialog.next_lines(project, choices, result, directory, can_start=not missing):
        click.echo(f"  next: {line}")
