"""land and queue: get a ralph's branch onto the target, tested, and show what waits for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from ralphctl.cli.click_ext import (
    CommonCommand,
    printed_as_json,
    ralph_argument,
    the_client,
    the_ralph,
)
from ralphctl.format.humanize import clock, moment
from ralphctl.format.output import clean

_UNDO = {"queued": "undo", "landed": "undone"}


@click.command(cls=CommonCommand)
@ralph_argument
@click.option("--branch", metavar="BRANCH", help="Land BRANCH instead of the branch of NAME's directory.")
@click.option("--undo", "undoes", is_flag=True, help="Revert what landed last, or landing N.")
@click.option("-n", "--number", type=click.IntRange(1), metavar="N", help="The landing that --undo reverts.")
def land(name: str | None, branch: str | None, undoes: bool, number: int | None) -> None:
    """Merge NAME's branch into the target (main), if the tests pass.

    The merge is made and tested in a work tree of its own; your checkout is changed only if nothing in it is
    uncommitted. On a conflict or red tests the target stays as it is, and NAME gets a task. The tests and all
    rules are those of ralph.toml on the target, not of the branch.

    \b
      ralphctl land api                 the branch of the ralph api
      ralphctl land api --branch fix    another branch
      ralphctl land api --undo          revert what landed last, by a commit
      ralphctl queue                    what waits, and why
    """
    if number is not None and not undoes:
        raise click.UsageError("--number needs --undo")
    if branch is not None and undoes:
        raise click.UsageError("--branch and --undo exclude each other")
    client, name = the_ralph(name)
    reply = client.undo_landing(name, number) if undoes else client.land(name, branch)
    if printed_as_json(reply):
        return
    queue = reply.value
    mine = next(each for each in queue["candidates"] if each["number"] == queue["number"])
    what = f"the revert of {clean(mine['branch'])}" if undoes else clean(mine["branch"])
    click.echo(f"{what} is number {mine['number']} in the queue for {clean(queue['target'])}")
    if queue["blocked"]:
        click.echo(f"  nothing lands: {clean(queue['blocked'])}")
    click.echo("  next: ralphctl queue  (show its state)")


@click.command(cls=CommonCommand)
def queue() -> None:
    """Show what waits to land, what is tested now, and what landed or was refused.

    One line per branch: number, state, ralph, branch, when, the reason, and the next step.
    """
    reply = the_client().landing()
    if printed_as_json(reply):
        return
    queues = reply.value["queues"]
    if not queues:
        click.echo("nothing waits to land: ralphctl land NAME")
    for index, each in enumerate(queues):
        click.echo("\n" * bool(index) + "\n".join(_queue_lines(each)))


def _queue_lines(shown: dict[str, Any]) -> Iterator[str]:
    where = f" of {clean(shown['remote'])}" if shown["remote"] else ""
    yield f"{clean(shown['target'])}{where}  {clean(shown['repository'])}"
    if shown["blocked"]:
        yield f"  nothing lands: {clean(shown['blocked'])}"
    now = time.time()
    for each in shown["candidates"]:
        at = moment(each["ended_at"] or each["queued_at"])
        state = _UNDO.get(each["state"], each["state"]) if each["undoes"] else each["state"]
        about = "; ".join(clean(each[key]) for key in ("why", "next") if each[key])
        when = "" if at is None else clock(at, now)
        yield f"  {each['number']:>3}  {state:<8} {clean(each['ralph'])}  {clean(each['branch'])}  {when}" + (
            f"  {about}" if about else ""
        )
