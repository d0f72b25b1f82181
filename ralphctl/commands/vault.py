"""vault: list the copies of repositories, and restore a repository or an ignored file from one."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, LazyGroup, end_if_json, refuse_within_run, wants_json
from ralphctl.format.humanize import ago
from ralphctl.format.output import clean, has_colour, message, wrapped_table
from ralphctl.offline.checkpoint import can_ask, confirmed
from ralphd import wire

_HEADS = ("DIRECTORY", "RALPHS", "TAKEN", "SIZE", "COMMITS", "KEPT FILES")
_MOST_NAMES_CHARS = 40


@click.group(cls=LazyGroup)
def vault() -> None:
    """List and restore ralphd's copies of repositories and of the ignored files of [git] keep.

    ralphd copies a repository at the start of a run and at the end of each iteration. The copies stay for 30
    days after ralphctl rm. No daemon is needed.

    \b
      ralphctl vault list
      ralphctl vault restore ~/project
      ralphctl vault restore ~/project --to /tmp/project
    """


@click.command("list", cls=CommonCommand)
def list_() -> None:
    """List each copy: its directory and ralphs, its age and size, whether it has all commits, its files."""
    from ralphctl.offline.vault import listed

    vaults = listed(os.environ)
    end_if_json({"vaults": vaults})
    rows = [_HEADS, *map(_row, vaults)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = min(widths[-1], _MOST_NAMES_CHARS)
    table = "\n".join(wrapped_table(rows, widths, colour=has_colour(sys.stdout)))
    click.echo(table if vaults else "no copies yet: the first run of a ralph in a repository makes one")


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    size, commits = f"{each['bytes'] / (1 << 20):.1f} MiB", each["commits"]
    names = [", ".join(map(clean, each[key])) or "-" for key in ("ralphs", "files")]
    return clean(each["directory"]), names[0], ago(each["taken_at"], time.time()), size, commits, names[1]


@click.command(cls=CommonCommand)
@click.argument("directory", required=False, type=click.Path(path_type=Path),
                shell_complete=completers.directories)  # fmt: skip
@click.option("--to", type=click.Path(path_type=Path), metavar="PATH", shell_complete=completers.directories,
              help="Restore into this new or empty directory.")  # fmt: skip
@click.option("--file", "name", metavar="NAME", shell_complete=completers.kept_files,
              help="Restore only this kept file.")  # fmt: skip
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def restore(directory: Path | None, to: Path | None, name: str | None, yes: bool) -> int:
    """Restore the repository around DIRECTORY, by default the current one, and its kept files that are gone.

    A sound repository and files that exist are left as they are. A broken git directory is moved aside, and
    its commits stay under refs/ralph/left. At a terminal it asks first. Refused while a ralph works there:
    ralphctl stop NAME.
    """
    from ralphctl.offline import vault as copies

    refuse_within_run()
    plan = copies.planned(directory or Path.cwd(), os.environ, to, name)
    git = [] if plan.fault is None else [f"{plan.taken.common} ({plan.fault})"]
    wanted = ", ".join(map(clean, (*git, *plan.files)))
    if wanted and not yes and not wants_json() and can_ask() and not confirmed(f"Restore {wanted}? [y/N]"):
        message("nothing was restored")
        return wire.EXIT_FAILED
    done = copies.carry_out(plan, os.environ)
    end_if_json(done)
    lines = [f"restored {clean(each)}" for each in ([done["git"]] if done["git"] else []) + done["files"]]
    lines += [f"the earlier git directory is in {clean(done['left'])}"] if done["left"] else []
    lines += [f"its commits are kept under {clean(each)}" for each in done["refs"]]
    nothing = f"{clean(plan.top)} needs nothing: the repository and the kept files are there"
    click.echo("\n".join(lines) or nothing)
    if to is not None and done["git"]:
        click.echo(f"  next: git -C {clean(plan.top)} restore .  (writes the files of the index)")
    return wire.EXIT_OK
