"""land and queue: get a ralph's branch onto the target, tested, and show what waits for that."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ralphctl.cli.click_ext import CommonCommand, ralph_argument, the_client, the_ralph, value_for_text
from ralphctl.client.client import Client
from ralphctl.client.discovery import here
from ralphctl.format.humanize import minute, moment, wrapped
from ralphctl.format.output import clean, columns
from ralphctl.format.state_text import repository_names
from ralphctl.offline import state as offline
from ralphd import overview
from ralphd.errors import RalphdError, UsageError

_PUSH_WAIT_S = 600.0
_GH_LIMIT_S = 120.0
_LOOK_S = 0.2
_MOST_DIGITS = 10
_IS_BRANCH = re.compile(r"(?!-)[^\x00-\x20\x7f]{1,1000}")
_UNDO = {"queued": "undo", "landed": "undone"}
DAY_S = 24 * 3600.0


@click.command(cls=CommonCommand)
@ralph_argument
@click.option("--branch", metavar="BRANCH", help="Land BRANCH instead of the branch of NAME's directory.")
@click.option("--pr", is_flag=True, help="Push the branch and open a pull request (gh) instead of merging.")
@click.option("--undo", "undoes", is_flag=True, help="Revert what NAME landed last, or landing N.")
@click.option("-n", "--number", "nth", metavar="N", help="The landing that --undo reverts.")
def land(name: str | None, branch: str | None, pr: bool, undoes: bool, nth: str | None) -> None:
    """Merge NAME's branch into the target (main), if the tests pass.

    The merge is made and tested in a work tree of its own; your checkout is changed only if nothing in it is
    uncommitted. On a conflict or red tests the target stays as it is, and NAME gets a task. The tests and all
    rules are those of ralph.toml on the target, not of the branch.

    \b
      ralphctl land api                 the branch of the ralph api
      ralphctl land api --branch fix    another branch
      ralphctl land api --pr            push it, and open a pull request
      ralphctl land api --undo          revert what it landed last, by a commit
      ralphctl queue                    what waits, and why
    """
    if nth is not None and not undoes:
        raise click.UsageError("--number needs --undo")
    number = None if nth is None else _number(nth)
    if branch is not None and not _IS_BRANCH.fullmatch(branch):
        raise UsageError(f"{branch!r} is not the name of a branch", mend="git branch --list")
    if undoes and (pr or branch is not None):
        raise click.UsageError(f"{'--pr' if pr else '--branch'} and --undo exclude each other")
    client, name = the_ralph(name)
    reply = client.undo_landing(name, number) if undoes else client.land(name, branch, is_for_pr=pr)
    queue = value_for_text(reply)
    mine = next(each for each in queue["candidates"] if each["number"] == queue["number"])
    if pr:
        _open_pull_request(client, queue, mine)
        return
    what = f"the revert of {clean(mine['branch'])}" if undoes else clean(mine["branch"])
    click.echo(f"{what} is queued for {clean(queue['target'])} as landing {mine['number']}")
    if queue["blocked"]:
        click.echo(f"  blocked: {clean(queue['blocked'])}")
    click.echo("  next: ralphctl queue  (show its state)")


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < len(text) < _MOST_DIGITS and int(text) > 0:
        return int(text)
    raise UsageError(f"--number {text!r} is not the number of a landing", mend="ralphctl queue --all")


def _open_pull_request(client: Client, queue: dict[str, Any], mine: dict[str, Any]) -> None:
    """Wait until the branch is pushed, then have gh open the pull request, with this terminal's login."""
    words = ["gh", "pr", "create", "--base", queue["target"], "--head", mine["branch"], "--fill"]
    common = Path(queue["repository"])
    place = common.parent if common.name == ".git" else common
    by_hand = clean(f"cd {shlex.quote(str(place))} && {shlex.join(words)}")
    _wait_until_pushed(client, queue, mine)
    click.echo(f"{clean(mine['branch'])} is pushed to {clean(queue['remote'])}")
    if shutil.which(words[0]) is None:
        click.echo(f"  next: open a pull request on the remote's site, or where gh is installed: {by_hand}")
        return
    try:
        done = subprocess.run(words, cwd=place, stdin=subprocess.DEVNULL, timeout=_GH_LIMIT_S, check=False)
        why = f"it ended with {done.returncode}" if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as fault:
        why = str(fault)
    if why:
        raise RalphdError("gh opened no pull request; the branch is pushed", why=why, mend=by_hand)


def _wait_until_pushed(client: Client, queue: dict[str, Any], mine: dict[str, Any]) -> None:
    until, number, blocked = time.monotonic() + _PUSH_WAIT_S, mine["number"], None
    while time.monotonic() < until and not blocked:
        if mine["state"] == "pushed":
            return
        if mine["state"] != "queued":
            break
        time.sleep(_LOOK_S)
        queues = client.landing().value["queues"]
        queue = next(each for each in queues if each["repository"] == queue["repository"])
        gone = mine | {"state": "", "why": "another request took its place"}
        mine = next((each for each in queue["candidates"] if each["number"] == number), gone)
        blocked = queue["blocked"]
    why = mine["why"] or blocked or f"the queue still works on something else: {mine['next']}"
    raise RalphdError(f"{clean(mine['branch'])} is not pushed", why=clean(why), mend="ralphctl queue")


@click.command(cls=CommonCommand)
@click.option("-a", "--all", "every", is_flag=True, help="Those that ended more than a day ago, too.")
def queue(every: bool) -> None:
    """Show what waits to land, what is tested now, and what landed or was refused.

    First what is open, then what ended, newest first; with the reason, and the command to type next.
    """
    queues = value_for_text(the_client().landing())["queues"]
    if not queues:
        click.echo("nothing waits to land: ralphctl land NAME")
    mine = offline.repository_of(here())
    names = {each["repository"]: name for each, name in zip(queues, repository_names(queues), strict=True)}
    queues = sorted(queues, key=lambda each: (each["repository"] != mine, names[each["repository"]]))
    for index, each in enumerate(queues):
        lines = _queue_lines(each, time.time(), columns(sys.stdout), every=every)
        click.echo("\n" * bool(index) + "\n".join(lines))


def _queue_lines(shown: dict[str, Any], now: float, width: int | None, *, every: bool) -> Iterator[str]:
    where = f" of {clean(shown['remote'])}" if shown["remote"] else ""
    yield f"{clean(shown['target'])}{where}  {clean(shown['repository'])}"
    if shown["blocked"]:
        blocked = f"blocked: {clean(shown['blocked'])}"
        yield from (f"  {line}" for line in (wrapped(blocked, width - 2) if width else [blocked]))
    rows = []
    for each in shown["candidates"]:
        is_recent = now - (moment(each["ended_at"]) or now) < DAY_S
        if every or is_recent or each["next"] or overview.is_aside(each):
            step = clean(each["next"]) if each["next"] != shown["blocked"] else ""
            why = clean(each["why"]) if not step or step not in each["why"] else ""
            why = clean(overview.aside_words(each, shown["target"])) if overview.is_aside(each) else why
            rows.append((_cells(each, now), [*filter(None, (why, step))]))
    widths = [max(map(len, column)) for column in zip(*(cells for cells, _ in rows), strict=True)]
    for cells, texts in rows:
        head = "  ".join(cell.ljust(wide) for cell, wide in zip(cells, widths, strict=True))
        about = "; ".join(texts)
        if width and len(f"  {head}  {about}") > width:
            yield f"  {head}".rstrip()
            yield from (f"       {line}" for text in texts for line in wrapped(text, width - 7))
        else:
            yield f"  {head}  {about}".rstrip()
    if old := len(shown["candidates"]) - len(rows):
        yield f"  and {old} that ended more than a day ago: ralphctl queue --all"


def _cells(each: dict[str, Any], now: float) -> tuple[str, ...]:
    state = _UNDO.get(each["state"], each["state"]) if each["undoes"] else each["state"]
    state = ("undo" if each["undoes"] else "waiting") if overview.is_aside(each) else state
    at = moment(each["ended_at"] or each["queued_at"]) or now
    whose = "" if each["branch"] == f"ralph/{each['ralph']}" else f" ({clean(each['ralph'])})"
    return str(each["number"]).rjust(3), state, clean(each["branch"]) + whose, minute(at, now)
