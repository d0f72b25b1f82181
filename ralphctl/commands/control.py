"""Requests to one ralph: stop, restart, pause, resume, skip-wait, ack, reload, rm; and waiting for it.

A command that waits prints the outcome and the next useful command.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ralphctl.cli.click_ext import (
    SECONDS,
    CommonCommand,
    print_reply,
    printed_as_json,
    ralph_argument,
    the_client,
    the_name,
    the_ralph,
    wants_json,
)
from ralphctl.client import waiting
from ralphctl.client.client import Client, Reply
from ralphctl.format import state_text
from ralphctl.format.humanize import asked, count, duration, last_exit, moment
from ralphctl.format.incident_text import held_back, open_incident
from ralphctl.format.output import clean, message
from ralphctl.format.state_text import change_lines
from ralphd import wire

F = TypeVar("F", bound=Callable[..., Any])

_FINAL = frozenset({"idle", "stopped", "failed", "done"})
"""States that a ralph does not leave without a command."""

_GOALS = {
    "done": frozenset({"done"}),
    "paused": frozenset({"paused"}),
    "stopped": frozenset({"stopped"}),
    "idle": wire.SETTLED_STATES,
}


def waiting_options(function: F) -> F:
    """Add ``--no-wait`` and ``--wait-timeout``."""
    function = click.option("--no-wait", is_flag=True, help="Only ask; do not wait until it is so.")(function)
    return click.option(
        "--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most (then 124)."
    )(function)


def tell_view(reply: Reply, *, said: str = "") -> None:
    """Print what happened (``said``, else the state), and the next useful command."""
    if printed_as_json(reply):
        return
    view = reply.value
    if not said:
        said, ending = state_text.state_words(view, time.time()), view.get("last_exit")
        if view["state"] == "stopped" and ending:
            said += f"; its last run: {clean(last_exit(ending))}"
    click.echo(f"{view['name']}: {said}")
    does, how = state_text.next_steps(view)[0]
    click.echo(f"  next: {how}  ({does})")


def _ask_and_wait(
    client: Client,
    name: str,
    action: str,
    words: dict[str, object],
    *,
    wait: bool,
    reached: Callable[[waiting.View], bool],
    timeout_s: float | None,
    then: str = "",
    force: str = "",
) -> Reply:
    reply = client.ask(name, action, words)
    if said := _at_boundary(reply.value):
        message(said)
    if not wait or reached(reply.value):
        return reply
    waiting_for, since = _end_of(reply.value)
    return waiting.until(
        client, name, reached, waiting_for=f"{name} to {waiting_for}{then}", force=force, timeout_s=timeout_s,
        directory=reply.value["directory"], since=since,
    )  # fmt: skip


def _at_boundary(view: waiting.View) -> str:
    """Return what a loop that reports its iterations does first; empty for any other."""
    what, since = asked(view.get("message"))
    doing = {"pausing": "Pausing", "stopping": "Stopping"}.get(str(view["state"]))
    return f"{doing} after current iteration..." if doing and what and since else ""


def _end_of(view: waiting.View) -> tuple[str, float | None]:
    """Return what has to happen before a run is over, and since when that was requested, if known."""
    message, since = asked(view.get("message"))
    return ("finish its iteration", since) if message and since else ("end its run", None)


@click.command(cls=CommonCommand)
@ralph_argument
@click.option("--now", "at_once", is_flag=True, help="Kill the whole tree at once.")
@waiting_options
def stop(name: str | None, at_once: bool, no_wait: bool, wait_timeout: float | None) -> None:
    """Stop NAME, and wait until nothing of it is alive.

    The built-in loop, and one that reports, finishes its iteration; any other command is asked to end
    (SIGTERM) and killed with all it started when its time is up.
    """
    client, name = the_ralph(name)
    tell_view(
        _ask_and_wait(
            client, name, "stop", {"now": True} if at_once else {}, wait=not no_wait,
            reached=waiting.is_settled, timeout_s=wait_timeout,
            force="" if at_once else f"ralphctl stop --now {name}",
        )
    )  # fmt: skip


@click.command(cls=CommonCommand)
@ralph_argument
@waiting_options
def restart(name: str | None, no_wait: bool, wait_timeout: float | None) -> int:
    """Stop NAME, then start it; waits until the new run lives."""
    client, name = the_ralph(name)
    before = client.ralph(name).value.get("run_id")

    def is_new(view: waiting.View) -> bool:
        state, run_id = view["state"], view.get("run_id")
        return waiting.is_settled(view) or bool(state != "starting" and run_id != before)

    reply = _ask_and_wait(
        client, name, "restart", {}, wait=not no_wait, reached=is_new, timeout_s=wait_timeout,
        then=" and start again", force=f"ralphctl stop --now {name}",
    )  # fmt: skip
    tell_view(reply)
    return wire.EXIT_FAILED if reply.value["state"] == "failed" else wire.EXIT_OK


@click.command(cls=CommonCommand)
@ralph_argument
@waiting_options
def pause(name: str | None, no_wait: bool, wait_timeout: float | None) -> None:
    """Pause NAME: its run ends as with stop, and it stays paused until it is resumed.

    The built-in loop, and one that reports, finishes its iteration first; the built-in one keeps a checkpoint
    then, from which it goes on. --now of stop does not wait for the iteration.
    """
    client, name = the_ralph(name)
    tell_view(
        _ask_and_wait(
            client, name, "pause", {}, wait=not no_wait, reached=waiting.is_settled, timeout_s=wait_timeout,
            force=f"ralphctl stop --now {name}",
        )
    )  # fmt: skip


@click.command(cls=CommonCommand)
@ralph_argument
def resume(name: str | None) -> None:
    """Let NAME go on after a pause; the built-in loop goes on from its checkpoint."""
    client = the_client()
    tell_view(client.ask(the_name(client, name), "resume"))


@click.command("skip-wait", cls=CommonCommand)
@ralph_argument
def skip_wait(name: str | None) -> None:
    """Let NAME go on now instead of at the end of its wait.

    At your own risk where it waits for a limit: an agent that is asked too soon says so again.
    """
    client = the_client()
    reply = client.ask(the_name(client, name), "skip-wait")
    # The run receives it in a moment; until then its view still shows the wait.
    waits = reply.value.get("ralph_pid") and state_text.wait_of(reply.value)
    tell_view(reply, said="told to wait no longer" if waits else "")


@click.command(cls=CommonCommand)
@ralph_argument
def rm(name: str | None) -> None:
    """Forget NAME, which must not be running. Its directory is left as it is."""
    client, name = the_ralph(name)
    reply = client.forget(name)
    if wants_json():
        print_reply(reply)
    else:
        click.echo(f"{name} is forgotten; its directory is as it was")


@click.command(cls=CommonCommand)
@ralph_argument
def ack(name: str | None) -> None:
    """Acknowledge what NAME called you for: no reminder follows.

    What is still to do is told. It is over when NAME works again; status shows it until then. Nothing to
    acknowledge is no error.
    """
    client, name = the_ralph(name)
    before = open_incident(client.ralph(name).value)
    reply = client.ask(name, "ack")
    if printed_as_json(reply):
        return
    now, after = time.time(), open_incident(reply.value)
    if not before:
        click.echo(f"{name}: nothing to acknowledge; it is {state_text.state_words(reply.value, now)}")
        return
    known = moment(before.get("acknowledged_at"))
    done = "acknowledged" if known is None else f"acknowledged already, {duration(now - known)} ago"
    what = clean(str(before.get("message") or "?"))
    click.echo(f"{name}: {done}: " + ", ".join([what, *held_back(before)]))
    if not after:
        click.echo("  nothing is left to do: it runs, and the next call is told at once")
        return
    click.echo(f"  still to do: {clean(str(after.get('needs') or ''))}")
    does, how = state_text.next_steps(reply.value)[0]
    click.echo(f"  next: {how}  ({does})")


@click.command(cls=CommonCommand)
@ralph_argument
def reload(name: str | None) -> None:
    """Take up what ralph.toml and your own configuration say now.

    Flags and environment are those of the start. A run that lives goes on by the rules it was started with;
    the next one gets the new ones. With faults nothing changes.
    """
    client, name = the_ralph(name)
    reply = client.ask(name, "reload")
    if printed_as_json(reply):
        return
    changes, when = reply.value["changes"], reply.value["when"]
    if not changes:
        click.echo(f"{name}: nothing has changed")
        return
    holds = "from the next run on" if when == "next_run" else "from now on"
    click.echo(f"{name}: {count(len(changes), 'change')}, {holds}")
    for line in change_lines(changes):
        click.echo(line)
    if when == "next_run":
        click.echo(f"  next: ralphctl restart {name}  (begin the next run now)")
    elif reply.value["ralph"]["state"] == "waiting_for_retry":
        click.echo(f"  next: ralphctl skip-wait {name}  (the wait under way keeps its end)")


@click.command(cls=CommonCommand)
@ralph_argument
@click.option(
    "--for",
    "goal",
    type=click.Choice(list(_GOALS)),
    default="idle",
    show_default=True,
    help="idle: nothing of it runs, whatever the reason.",
)
@click.option("--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most.")
def wait(name: str | None, goal: str, wait_timeout: float | None) -> int:
    """Wait until NAME is done, paused, stopped, or nothing of it runs.

    Exits as status does: 0, 1 failed, 75 paused. When what was waited for cannot come any more, it ends
    too, with 1 where status would say 0. 124 when --wait-timeout runs out, 3 when no daemon is there at
    first; one that is restarted meanwhile changes nothing.
    """
    client, name = the_ralph(name)
    client.ralph(name)  # fail at once without a daemon or such a ralph
    wanted = _GOALS[goal]
    reply = waiting.until(
        client,
        name,
        waiting.one_of(wanted | _FINAL),
        waiting_for=f"{name} to be {goal}",
        timeout_s=wait_timeout,
        remark=_who_it_waits_for,
    )
    view = reply.value
    if wants_json():
        print_reply(reply)
    else:
        click.echo(f"{name}: {state_text.state_words(view, time.time())}")
    code = wire.status_exit_code([view["state"]])
    if view["state"] not in wanted:
        message(f"{name} will not be {goal} by itself any more")
        return code or wire.EXIT_FAILED
    return code


def _who_it_waits_for(view: waiting.View) -> str:
    """Return that the wait is for a person; empty while something runs, or will."""
    if view["state"] != "paused" or state_text.wait_of(view).get("until"):
        return ""
    does, how = state_text.next_steps(view)[0]
    return (
        f"{view['name']} is {state_text.state_words(view, time.time())}, and waits for you: {how}  ({does})"
    )
