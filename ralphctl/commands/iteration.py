"""show and diff: one iteration on one page, and its changes as git shows them. They read files."""

import os
import sys
import time
from pathlib import Path

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, end_if_json, name_and_number
from ralphctl.client.discovery import here
from ralphctl.format.output import columns, has_colour
from ralphd.errors import NotFound

_NUMBERS = r"\d+|.*:.*"


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs)
def show(words: tuple[str, ...]) -> None:
    """Show one iteration: task, agent, its words, its changes, verdict, cost and time.

    N is the number that `ralphctl verdicts` shows, RUN:N that of an earlier run. Without N, the last finished
    iteration. Works without a daemon.

    \b
      ralphctl show              the last iteration of the ralph in this directory
      ralphctl show api 3        iteration 3 of api
      ralphctl show api 12:3     iteration 3 of its run 12
    """
    from ralphctl.report import diff, iteration, page, pages, read

    name, number = name_and_number(words, "show", _NUMBERS)
    source = read.choose_one(name, here(), os.environ)
    facts = iteration.find(source, number)
    end_if_json({"name": source.name, **facts.end, "verdict": facts.verdict or None})
    commits = diff.commit_range(Path(source.directory), facts.commits)
    changed = diff.stat(Path(source.directory), commits) if commits else []
    printed = iteration.printed(source, facts)
    shown = pages.iteration_page(source.name, facts, printed, changed, time.time())
    click.echo(page.plain_text(shown, columns=columns(sys.stdout), colour=has_colour(sys.stdout)))


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs)
def diff(words: tuple[str, ...]) -> int:
    """Show what iteration N changed, as git shows it; also an iteration that was reverted.

    git uses your own pager and colours. No program that the repository names runs. N is as for
    `ralphctl show`.
    """
    from ralphctl.report import diff as changes
    from ralphctl.report import iteration, read

    name, number = name_and_number(words, "diff", _NUMBERS)
    source = read.choose_one(name, here(), os.environ)
    facts = iteration.find(source, number)
    commits = changes.commit_range(Path(source.directory), facts.commits)
    if commits is None:
        why = changes.fault(Path(source.directory), facts.commits) if facts.commits else "it made no commit"
        run, name = f"run {facts.run_id[1:7].lstrip('0')}", source.name
        which = run if facts.number is None else f"iteration {facts.number}"
        raise NotFound(f"there is no diff of {which} of {name}", why=why, mend=f"ralphctl show {name}")
    return changes.show_diff(Path(source.directory), commits)
