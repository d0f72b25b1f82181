"""tasks, cost and note: what is to be done, what it costs, and what a person sends to the loop."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from ralphctl.cli import click_ext, completers
from ralphctl.client.discovery import check_name, here
from ralphctl.commands.report import since_option
from ralphctl.format import state_text
from ralphctl.format.humanize import last_evening
from ralphctl.format.output import clean, columns, has_colour
from ralphd.errors import RalphdError, UsageError


def _reports(names: Sequence[str], since: float, now: float) -> list[Any]:
    """Read the report of each ralph, without names that of this directory's, else of all.

    With --json print them, and end the command.
    """
    from ralphctl.report import model, read

    chosen = (read.choose(name and check_name(name), here(), os.environ) for name in names or (None,))
    reports = [read.read(source, since, now, now) for sources in chosen for source in sources]
    click_ext.end_if_json(model.document(reports, since, now), ensure_ascii=False)
    return reports


def _print(pages: Sequence[Any]) -> None:
    from ralphctl.report.page import plain_text

    width, colour = columns(sys.stdout), has_colour(sys.stdout)
    click.echo("\n\n".join(plain_text(page, columns=width, colour=colour) for page in pages), nl=bool(pages))


@click.command(cls=click_ext.CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME]... | add [NAME] TEXT | remove [NAME] ID|TEXT",
                shell_complete=completers.ralphs)  # fmt: skip
def tasks(words: tuple[str, ...]) -> None:
    """Show the tasks of NAME: state, tries, cost, last failure; and the notes for the next prompt.

    `add` gives the built-in loop a task, which it does in its next iteration. Your own task list is not
    changed. The task is done when the agent commits something for it, or declares it done. `remove` takes an
    added task back, by its number or its text, or a note; an attempt at it continues.

    \b
      ralphctl tasks                            the tasks of the ralph in this directory
      ralphctl tasks add api "Fix the header"   one more task
      ralphctl tasks remove api +1              take it back
    """
    if words[:1] == ("add",):
        _send(words[1:], "tasks", 'ralphctl tasks add api "Fix the header"')
    elif words[:1] in (("remove",), ("rm",)):
        client, name, id_ = _addressed(words[1:], "ralphctl tasks remove api +1")
        if not click_ext.printed_as_json(client.remove_task(name, id_)):
            click.echo(f"{name}: removed {clean(id_)}")
    else:
        from ralphctl.report import pages, read

        reports = _reports(words, 0.0, time.time())
        _print([pages.tasks_page(report, read.inbox_of(report.source).notes) for report in reports])


def _addressed(words: Sequence[str], example: str) -> tuple[Any, str, str]:
    """Return the client, the ralph and the text of ``[NAME] TEXT``. Raise UsageError.

    The name of a ralph is no text: who types ``note api`` has forgotten it.
    """
    if 1 <= len(words) <= 2:
        client, name = click_ext.the_ralph(words[0] if len(words) == 2 else None)
        if words[-1] not in {each["name"] for each in client.views()}:
            return client, name, words[-1]
    raise UsageError("a name and one text are expected; put the text in quotes", mend=example)


def _send(words: Sequence[str], what: str, example: str) -> None:
    """Send a task or a note to a built-in loop, and print when it is taken up."""
    client, name, text = _addressed(words, example)
    given = click_ext.value_for_text(client.ask(name, what, {"text": text}))[what]
    id_ = clean(given[-1]["id"]) if given else ""
    click.echo(f"{name}: added {what[:-1]} {id_}; the loop's next prompt has it".replace(" ;", ";"))
    steps = (how for _, how in state_text.next_steps(client.ralph(name).value))
    if start := next((how for how in steps if how.startswith(("ralphctl start", "ralphctl resume"))), None):
        click.echo(f"  next: {start}  (the loop does not run)")


@click.command(cls=click_ext.CommonCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completers.ralphs)
@since_option
def cost(names: tuple[str, ...], since: float | None) -> None:
    """Show what NAME cost since last evening: by agent and task, per hour, and what is left of its budget.

    Without NAME, the ralph of this directory, else all ralphs. Works without a daemon.
    """
    from ralphctl.report import text

    now, seen = time.time(), {}
    reports = _reports(names, last_evening(now) if since is None else since, now)
    with suppress(RalphdError):  # only a daemon reads the output of a run
        seen = {view["name"]: view.get("seen") for view in click_ext.the_client().views()}
    pairs = [(report, seen.get(report.source.name) or {}) for report in reports]
    if len(reports) > 1:
        click.echo(f"in all  {text.together(pairs)}\n")
    _print([text.cost_page(report, found, now) for report, found in pairs])


@click.command(cls=click_ext.CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] TEXT", shell_complete=completers.ralphs)
def note(words: tuple[str, ...]) -> None:
    """Send a note to the agent: the next prompt of NAME's built-in loop contains TEXT, once.

    If the agent cannot work, at a rate limit for example, the next attempt gets the note again. `ralphctl
    tasks` shows the notes that no agent has got.

    \b
      ralphctl note api "Use the new API"
    """
    _send(words, "notes", 'ralphctl note api "Use the new API"')
