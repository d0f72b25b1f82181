"""Requests to one ralph: stop, restart, pause, resume, skip-wait, ack, reload, rm; and waiting for it.

A command that waits prints the outcome and the next useful command.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from ralphctl.cli.click_ext import SECONDS, printed_as_json, ralph_command, the_ralph
from ralphctl.client import waiting
from ralphctl.client.client import Client, Reply
from ralphctl.format import state_text
from ralphctl.format.humanize import asked, count, duration, last_exit, moment
from ralphctl.format.incident_text import held_back, open_incident
from ralphctl.format.output import clean, message
from ralphctl.format.state_text import change_lines
from ralphd import wire

_FINAL = frozenset({"idle", "stopped", "failed", "done"})
"""States that a ralph does not leave without a command."""

_GOALS = {
    "done": frozenset({"done"}),
    "paused": frozenset({"paused"}),
    "stopped": frozenset({"stopped"}),
    "idle": wire.SETTLED_STATES,
}


def waiting_options(function: Any) -> Any:
    """Add ``--no-wait`` and ``--wait-timeout``, as ``_ask_and_wait`` takes them."""
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
    *,
    no_wait: bool,
    wait_timeout: float | None,
    at_once: bool = False,
    reached: Callable[[waiting.View], bool] = waiting.is_settled,
    then: str = "",
) -> Reply:
    reply = client.ask(name, action, {"now": True} if at_once else {})
    view = reply.value
    what, since = asked(view.get("message"))
    is_at_boundary = bool(what and since)  # a loop that reports its iterations finishes the present one first
    doing = {"pausing": "Pausing", "stopping": "Stopping"}.get(str(view["state"]))
    if is_at_boundary and doing:
        message(f"{doing} after current iteration...")
    if no_wait or reached(view):
        return reply
    return waiting.until(
        client, name, reached, timeout_s=wait_timeout, directory=view["directory"],
        waiting_for=f"{name} to {'finish its iteration' if is_at_boundary else 'end its run'}{then}",
        force="" if at_once else f"ralphctl stop --now {name}", since=since if is_at_boundary else None,
    )  # fmt: skip


@ralph_command()
@click.option("--now", "at_once", is_flag=True, help="Kill the whole tree at once.")
@waiting_options
def stop(name: str | None, at_once: bool, **wait: Any) -> None:
    """Stop NAME, and wait until nothing of it is alive.

    The built-in loop, and one that reports, finishes its iteration; any other command is asked to end
    (SIGTERM) and killed with all it started when its time is up.
    """
    client, name = the_ralph(name)
    tell_view(_ask_and_wait(client, name, "stop", at_once=at_once, **wait))


@ralph_command()
@waiting_options
def restart(name: str | None, **wait: Any) -> int:
    """Stop NAME, then start it; waits until the new run lives."""
    client, name = the_ralph(name)
    before = client.ralph(name).value.get("run_id")

    def is_new(view: waiting.View) -> bool:
        state, run_id = view["state"], view.get("run_id")
        return waiting.is_settled(view) or bool(state != "starting" and run_id != before)

    reply = _ask_and_wait(client, name, "restart", reached=is_new, then=" and start again", **wait)
    tell_view(reply)
    return wire.EXIT_FAILED if reply.value["state"] == "failed" else wire.EXIT_OK


@ralph_command()
@waiting_options
def pause(name: str | None, **wait: Any) -> None:
    """Pause NAME: its run ends as with stop, and it stays paused until it is resumed.

    The built-in loop, and one that reports, finishes its iteration first; the built-in one keeps a checkpoint
    then, from which it goes on. --now of stop does not wait for the iteration.
    """
    client, name = the_ralph(name)
    tell_view(_ask_and_wait(client, name, "pause", **wait))


@ralph_command()
def resume(name: str | None) -> None:
    """Let NAME go on after a pause; the built-in loop goes on from its checkpoint."""
    client, name = the_ralph(name)
    tell_view(client.ask(name, "resume"))


@ralph_command("skip-wait")
def skip_wait(name: str | None) -> None:
    """Let NAME go on now instead of at the end of its wait.

    At your own risk where it waits for a limit: an agent that is asked too soon says so again.
    """
    client, name = the_ralph(name)
    reply = client.ask(name, "skip-wait")
    # The run receives it in a moment; until then its view still shows the wait.
    waits = reply.value.get("ralph_pid") and state_text.wait_of(reply.value)
    tell_view(reply, said="told to wait no longer" if waits else "")


@ralph_command()
def rm(name: str | None) -> None:
    """Forget NAME, which must not be running. Its directory is left as it is."""
    client, name = the_ralph(name)
    if not printed_as_json(client.forget(name)):
        click.echo(f"{name} is forgotten; its directory is as it was")


@ralph_command()
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


@ralph_command()
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


@ralph_command()
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
        lambda view: view["state"] in wanted | _FINAL,
        waiting_for=f"{name} to be {goal}",
        timeout_s=wait_timeout,
        remark=_who_it_waits_for,
    )
    view = reply.value
    if not printed_as_json(reply):
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
    state = state_text.state_words(view, time.time())
    return f"{view['name']} is {state}, and waits for you: {how}  ({does})"
