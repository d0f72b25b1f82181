"""wait: until a ralph is done, paused, stopped, or does nothing any more."""

from __future__ import annotations

import time

import click

from ralphctl import show, waiting
from ralphctl.grammar import SECONDS, Command, print_reply, ralph_argument, the_client, the_name, wants_json
from ralphctl.tell import message
from ralphd import wire

_FINAL = frozenset({"idle", "stopped", "failed", "done"})
"""States that a ralph does not leave by itself."""

_GOALS = {
    "done": frozenset({"done"}),
    "paused": frozenset({"paused"}),
    "stopped": frozenset({"stopped"}),
    "idle": wire.SETTLED_STATES,
}


@click.command(cls=Command)
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
    client = the_client()
    name = the_name(client, name)
    client.ralph(name)  # nobody answers, or nobody knows it: an error at once, and no wait
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
        click.echo(f"{name}: {show.state_words(view, time.time())}")
    code = wire.status_exit_code([view["state"]])
    if view["state"] not in wanted:
        message(f"{name} will not be {goal} by itself any more")
        return code or wire.EXIT_FAILED
    return code


def _who_it_waits_for(view: waiting.View) -> str:
    """That nothing will come of the wait before a person acts; empty while something runs, or will."""
    if view["state"] != "paused" or show.wait_of(view).get("until"):
        return ""
    does, how = show.next_steps(view)[0]
    return f"{view['name']} is {show.state_words(view, time.time())}, and waits for you: {how}  ({does})"
