"""verdicts and undo: the gate's verdicts on commits, and restoring what it reverted."""

import json
import subprocess
import sys
import time
from typing import Any

import click

from ralphctl.cli import click_ext, completers
from ralphctl.cli.click_ext import CommonCommand, end_if_json, limit_option, ralph_command, the_ralph
from ralphctl.client import transport
from ralphctl.client.discovery import here
from ralphctl.format import gate_text, state_text
from ralphctl.format.humanize import clock, moment
from ralphctl.format.output import columns, has_colour, message
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError, UnknownRalph


@ralph_command()
@limit_option
def verdicts(name: str | None, limit: int) -> None:
    """List the test results of NAME's iterations, newest first.

    Kept, reverted or untested, how often the tests ran, their results, and the reason. With --json also the
    last lines of failed tests. Then what was repaired in the repository, where the state before is kept, and
    the command that undoes it. Without a daemon, the verdicts that are kept on disk.
    """
    try:
        client, name = the_ralph(name)
        reply = client.verdicts(name, limit)
    except (DaemonNotRunning, UnknownRalph) as fault:
        _print_from_files(name, limit, fault)
        return
    known = click_ext.value_for_text(reply)
    if judged := known["verdicts"]:
        _print_table(judged, name)
    else:
        click.echo("\n".join(gate_text.none_yet(client.ralph(name).value)))
    _print_repairs(known.get("repairs"))


def _print_from_files(name: str | None, limit: int, fault: RalphdError) -> None:
    """Print the verdicts in the files of this directory's ralph. Raise ``fault`` if there are none."""
    from ralphctl.offline import log as offline_log

    on_disk = offline_log.verdicts(here(), name, limit)
    if on_disk is None:
        raise fault
    known_as, judged, repairs = on_disk
    away = "no daemon is running" if isinstance(fault, DaemonNotRunning) else "no daemon works here"
    message(f"{away}; verdicts kept on disk:")
    end_if_json({"verdicts": judged, "repairs": repairs})
    if not judged:
        click.echo(f"{known_as}: no verdicts are recorded; only a daemon knows whether the guard is on")
    else:
        _print_table(judged, known_as)
    _print_repairs(repairs)


def _print_repairs(repairs: Any) -> None:
    for each in repairs or ():
        at, (words, *ways) = moment(each.get("at")), gate_text.repair_words(each)
        when = "?" if at is None else clock(at, time.time())
        click.echo("\n  ".join((f"\nrepair {each.get('number') or '-'}  {when}  {words}", *ways)))


def _print_table(judged: list[dict[str, Any]], name: str) -> None:
    """Print the verdicts, and how to undo a revert if there is one."""
    width, colour = columns(sys.stdout), has_colour(sys.stdout)
    click.echo(gate_text.table(judged, time.time(), columns=width, colour=colour))
    if any(each.get("reverted") and not each.get("undone") for each in judged):
        click.echo(f"\n  next: ralphctl undo {name} ITER  (re-apply the reverted commits of an iteration)")


@click.command(cls=CommonCommand)
@click.argument("words", nargs=-1, metavar="[NAME] [N]", shell_complete=completers.ralphs_or_iterations)
@click.option("--repair", is_flag=True, help="Undo repair N of a branch, by default the last repair.")
def undo(words: tuple[str, ...], repair: bool) -> None:
    """Re-apply the commits of NAME that were reverted in iteration N, by default the last reverted ones.

    Each gets a commit of its own on top of HEAD, and nothing is pushed. NAME must not be running: ralphctl
    pause NAME first. The tests run again before the next start. An argument of digits only is N. It works
    without a daemon too: none can start meanwhile.

    With --repair, N is the number of a repair (ralphctl verdicts lists them): the branch returns to where the
    agent left it, with later commits on top. The repaired branch stays under a ref.
    """
    name, digits = click_ext.name_and_number(words, "undo", r"[0-9]{1,15}")
    number = None if digits is None else int(digits)
    try:
        client, name = the_ralph(name)
        undone = client.ask(name, "undo", {"repair": number or 0} if repair else {"iteration": number}).value
    except (DaemonNotRunning, UnknownRalph) as fault:
        undone = _undone_alone(name, f"r{number or 0}" if repair else number, fault)
    end_if_json(undone)
    click.echo("\n".join(gate_text.undone_lines(undone)))
    view = undone["ralph"]
    does, how = "continue", f"ralphctl resume {view['name']}"
    if view.get("state") != "paused":
        starts = (step for step in state_text.next_steps(view) if step[1].startswith("ralphctl start"))
        does, how = next(starts, ("show its state", f"ralphctl status {view['name']}"))
    click.echo(f"  next: {how}  ({does}; the tests run first)")


def _undone_alone(name: str | None, number: int | str | None, fault: RalphdError) -> dict[str, Any]:
    """Have a ralphd that does nothing else undo it. Raise ``fault`` where no files are kept."""
    from ralphctl.offline import log as offline_log

    click_ext.refuse_within_run()
    if (known := offline_log.find(here(), name)) is None:
        raise fault
    what = known[0] if number is None else f"{known[0]}:{number}"
    command = [sys.executable, "-m", "ralphd", "--state-dir", str(known[1].parent.parent), "--undo", what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        raise DaemonBusy(done.stderr.strip() or "no answer from ralphd", mend="ralphctl regent status")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "detail" in answer:
        raise transport.error_of(500, done.stdout.encode())
    return answer
