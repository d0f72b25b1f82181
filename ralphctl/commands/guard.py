"""verdicts and undo: the gate's verdicts on commits, and restoring what it reverted."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import (
    CommonCommand,
    limit_option,
    printed_as_json,
    ralph_command,
    the_ralph,
    wants_json,
)
from ralphctl.client.discovery import here
from ralphctl.format import gate_text, state_text
from ralphctl.format.output import clean, columns, has_colour, message
from ralphd.errors import DaemonNotRunning, RalphdError, UnknownRalph, UsageError

_WITHOUT_UNDO = """\
  ralphctl undo needs a daemon. Without one: git log --grep 'This reverts commit'
  finds what has reverted a commit, and git revert takes that back"""


@ralph_command()
@limit_option
def verdicts(name: str | None, limit: int) -> None:
    """What was said of the commits of NAME's iterations, newest first.

    Kept, reverted, or untested, how often the tests ran and what they said, and why. With --json also the
    last lines that red tests printed. Without a daemon, in the working directory, from what is kept there.
    """
    try:
        client, name = the_ralph(name)
        reply = client.verdicts(name, limit)
    except (DaemonNotRunning, UnknownRalph) as fault:
        _print_from_files(name, limit, fault)
        return
    if printed_as_json(reply):
        return
    if judged := reply.value["verdicts"]:
        undo = f"  next: ralphctl undo {name} ITER  (put the reverted commits of an iteration back)"
        _print_table(judged, undo)
    else:
        click.echo("\n".join(gate_text.none_yet(client.ralph(name).value)))


def _print_from_files(name: str | None, limit: int, fault: RalphdError) -> None:
    """Print the verdicts in the files of this directory's ralph. Raise ``fault`` if there are none."""
    from ralphctl.offline import log as offline_log

    on_disk = offline_log.verdicts(here(), name, limit)
    if on_disk is None:
        raise fault
    known_as, judged = on_disk
    message(
        ("no daemon" if isinstance(fault, DaemonNotRunning) else "no daemon works here") + "; what is kept:"
    )
    if wants_json():
        print(json.dumps({"verdicts": judged}))
    elif not judged:
        click.echo(gate_text.none_kept(known_as))
    else:
        _print_table(judged, _WITHOUT_UNDO)


def _print_table(judged: list[dict[str, Any]], undo: str) -> None:
    """Print the verdicts, then ``undo`` if one of them can be undone."""
    width, colour = columns(sys.stdout), has_colour(sys.stdout)
    click.echo(gate_text.verdict_table(judged, time.time(), columns=width, colour=colour))
    if any(each.get("reverted") and not each.get("undone") for each in judged):
        click.echo(f"\n{undo}")


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs)
def undo(words: tuple[str, ...]) -> None:
    """Put back the commits of NAME that were reverted in iteration N, else those that were reverted last.

    Each gets a commit of its own on top of HEAD, and nothing is pushed. Only while nothing of NAME runs:
    ralphctl pause NAME first. The tests run again before the next start. A word of digits alone is N.
    """
    name, iteration = _name_and_number(words)
    client, name = the_ralph(name)
    reply = client.ask(name, "undo", {"iteration": iteration})
    if printed_as_json(reply):
        return
    undone = reply.value
    click.echo("\n".join(gate_text.undone_lines(undone)))
    view = undone["ralph"]
    does, how = ("go on", f"ralphctl resume {view['name']}")
    if view.get("state") != "paused":
        starts = (step for step in state_text.next_steps(view) if step[1].startswith("ralphctl start"))
        does, how = next(starts, ("see how it is", f"ralphctl status {view['name']}"))
    click.echo(f"  next: {how}  ({does}; the tests run first)")


def _name_and_number(words: tuple[str, ...]) -> tuple[str | None, int | None]:
    numbers = [word for word in words[-1:] if word.isascii() and word.isdecimal()]
    names = words[: len(words) - len(numbers)]
    if len(names) > 1 or any(len(number) > 15 for number in numbers):
        raise UsageError(
            f"what is {clean(words[-1])!r}?",
            why="undo takes a name and a number",
            mend="ralphctl undo --help",
        )
    return names[0] if names else None, int(numbers[0]) if numbers else None
