"""stop, restart, pause, resume, skip-wait, rm: asked of one ralph, answered when it is so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ralphctl import show, waiting
from ralphctl.client import Client, Reply
from ralphctl.grammar import SECONDS, Command, print_reply, ralph_argument, the_client, the_name, wants_json
from ralphctl.tell import clean, message
from ralphctl.words import asked, last_exit
from ralphd import wire

F = TypeVar("F", bound=Callable[..., Any])


def waiting_options(function: F) -> F:
    """``--no-wait`` and ``--wait-timeout``."""
    function = click.option("--no-wait", is_flag=True, help="Only ask; do not wait until it is so.")(function)
    return click.option(
        "--wait-timeout", type=SECONDS, metavar="S", help="Wait S seconds at most (then 124)."
    )(function)


def tell_view(reply: Reply, *, said: str = "") -> None:
    """One line of what happened (``said``, else the state), and the next useful command."""
    if wants_json():
        print_reply(reply)
        return
    view = reply.value
    click.echo(f"{view['name']}: {said or show.state_words(view, time.time()) + _ended(view)}")
    does, how = show.next_steps(view)[0]
    click.echo(f"  next: {how}  ({does})")


def _ended(view: dict[str, Any]) -> str:
    ending = view.get("last_exit")
    return f"; its last run: {clean(last_exit(ending))}" if view["state"] == "stopped" and ending else ""


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
    """What a loop that reports its iterations does first; empty for any other."""
    what, since = asked(view.get("message"))
    doing = {"pausing": "Pausing", "stopping": "Stopping"}.get(str(view["state"]))
    return f"{doing} after current iteration..." if doing and what and since else ""


def _end_of(view: waiting.View) -> tuple[str, float | None]:
    """What has to happen before a run is over, and since when it was asked to end, where that is known."""
    message, since = asked(view.get("message"))
    return ("finish its iteration", since) if message and since else ("end its run", None)


@click.command(cls=Command)
@ralph_argument
@click.option("--now", is_flag=True, help="Kill the whole tree at once.")
@waiting_options
def stop(name: str | None, now: bool, no_wait: bool, wait_timeout: float | None) -> None:
    """Stop NAME, and wait until nothing of it is alive.

    The built-in loop, and one that reports, finishes its iteration; any other command is asked to end
    (SIGTERM) and killed with all it started when its time is up.
    """
    client = the_client()
    name = the_name(client, name)
    tell_view(
        _ask_and_wait(
            client, name, "stop", {"now": True} if now else {}, wait=not no_wait, reached=waiting.is_settled,
            timeout_s=wait_timeout, force="" if now else f"ralphctl stop --now {name}",
        )
    )  # fmt: skip


@click.command(cls=Command)
@ralph_argument
@waiting_options
def restart(name: str | None, no_wait: bool, wait_timeout: float | None) -> int:
    """Stop NAME, then start it; waits until the new run lives."""
    client = the_client()
    name = the_name(client, name)
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


@click.command(cls=Command)
@ralph_argument
@waiting_options
def pause(name: str | None, no_wait: bool, wait_timeout: float | None) -> None:
    """Pause NAME: its run ends as with stop, and it stays paused until it is resumed.

    The built-in loop, and one that reports, finishes its iteration first; the built-in one keeps a checkpoint
    then, from which it goes on. --now of stop does not wait for the iteration.
    """
    client = the_client()
    name = the_name(client, name)
    tell_view(
        _ask_and_wait(
            client, name, "pause", {}, wait=not no_wait, reached=waiting.is_settled, timeout_s=wait_timeout,
            force=f"ralphctl stop --now {name}",
        )
    )  # fmt: skip


@click.command(cls=Command)
@ralph_argument
def resume(name: str | None) -> None:
    """Let NAME go on after a pause; the built-in loop goes on from its checkpoint."""
    client = the_client()
    tell_view(client.ask(the_name(client, name), "resume"))


@click.command("skip-wait", cls=Command)
@ralph_argument
def skip_wait(name: str | None) -> None:
    """Let NAME go on now instead of at the end of its wait.

    At your own risk where it waits for a limit: an agent that is asked too soon says so again.
    """
    client = the_client()
    reply = client.ask(the_name(client, name), "skip-wait")
    waits = reply.value.get("ralph_pid") and show.wait_of(reply.value)  # a run hears of it in a moment
    tell_view(reply, said="told to wait no longer" if waits else "")


@click.command(cls=Command)
@ralph_argument
def rm(name: str | None) -> None:
    """Forget NAME, which must not be running. Its directory is left as it is."""
    client = the_client()
    name = the_name(client, name)
    reply = client.forget(name)
    if wants_json():
        print_reply(reply)
    else:
        click.echo(f"{name} is forgotten; its directory is as it was")
