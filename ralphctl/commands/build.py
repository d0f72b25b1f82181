"""build: a ralph in the foreground, with a private ralphd that ends with the command (P5)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from ralphctl import fast, show
from ralphctl.background import StartFailed
from ralphctl.client import Client, Reply
from ralphctl.embedded import PrivateDaemon, await_the_earlier, refuse_beside
from ralphctl.foreground import Bell, End, Foreground, View, Wishes, say
from ralphctl.local import builds
from ralphctl.registration import WithCommand, command_given, flags_of, key_options, registration
from ralphctl.screen import have_streams, let_go_of_stderr
from ralphctl.tell import note
from ralphctl.words import until
from ralphd import wire
from ralphd.errors import DaemonNotRunning, DirectoryBusy, UsageError

_BUSY_LIMIT_S = 15.0
"""Shims of a build that was killed take so long at most to end their trees."""
_BUSY_PAUSE_S = 0.1
_DOES = {"done": "start again", "failed": "try again", "paused": "go on"}
_EXITS = {
    "done": wire.EXIT_OK,
    "failed": wire.EXIT_FAILED,
    "paused": wire.EXIT_PAUSED,
    "stopped": wire.EXIT_INTERRUPTED,
    "idle": wire.EXIT_INTERRUPTED,
}


@click.command(
    cls=WithCommand,
    options_metavar="[OPTIONS] [-- COMMAND...]",
    epilog="Options that take a value, but --name, are keys of ralph.toml too.",
)
@click.argument("more", nargs=-1, metavar="")
@click.option("--name", help="The ralph's name; the directory's name when left out.")
@key_options
@click.pass_context
def build(ctx: click.Context, /, more: tuple[str, ...], name: str | None, **keys: Any) -> int:
    """Supervise COMMAND here, in the foreground: no daemon is needed, and none stays.

    \b
      ralphctl build -- ./loop.sh     a loop of your own
      ralphctl build                  [ralph] command of ralph.toml; after a pause, go on

    Ctrl-C asks it to end, a second one ends it now. However this command ends, nothing of it stays alive.
    From another terminal, in this directory: ralphctl status, logs -f, pause, stop.

    Exits with 0 when it is done, 5 at a limit, 1 when it failed, 75 when it is paused, 130 when stopped.
    """
    if more:
        raise UsageError(
            f"what is {more[0]!r}? A command comes after --", mend=f"ralphctl build -- {' '.join(more)}"
        )
    have_streams()
    command = command_given(ctx, mend="ralphctl build -- ./loop.sh")
    directory = fast.here()
    place = builds.place_of(directory, name if name is None else fast.check_name(name), os.environ)
    daemon = PrivateDaemon(place)
    bell, wishes = Bell(), Wishes(daemon.cut)
    refuse_beside(directory, daemon.socket)
    await_the_earlier(place, lambda: wishes.stop, say)
    view: View = {}
    try:
        daemon.start()
        daemon.await_ready(lambda: wishes.stop)
        began_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        view = _register(daemon.client, directory, command, name, flags_of(keys), wishes)
        _tell_start(view)
        front = Foreground(daemon, view["name"], began_at, wishes, bell)
        end = front.watch()
        view = front.view or view
    finally:
        if not daemon.end():
            say("error: something that it started cannot be ended; see ps -ef")
    if end is End.UNHEARD:
        raise BrokenPipeError
    if front.is_cut_short:
        say("the end of what it printed may be missing here; ralphctl logs has it")
    code = _tell_end(end, view, daemon, wishes)
    let_go_of_stderr()
    return code


def _register(
    client: Client,
    directory: str,
    command: list[str] | None,
    name: str | None,
    flags: dict[str, object],
    wishes: Wishes,
) -> View:
    """Have it registered and started. A run of an earlier build may need a moment to end."""
    body = registration(directory, command, name, flags)
    until = time.monotonic() + _BUSY_LIMIT_S
    while True:
        try:
            view: View = _registered(client, body).value
            return view
        except DirectoryBusy:
            refuse_beside(directory, own_socket=client.paths[0])
            if wishes.stop or time.monotonic() > until:
                raise
        except UsageError as fault:
            raise _of_build(fault, directory) from fault
        except DaemonNotRunning as gone:
            if wishes.now:
                raise KeyboardInterrupt from gone
            raise StartFailed("the private ralphd has died", wire.EXIT_FAILED, why=gone.what) from gone
        time.sleep(_BUSY_PAUSE_S)


def _registered(client: Client, body: dict[str, object]) -> Reply:
    """Without a command the one of ralph.toml holds, else the one that the last build here was given."""
    known = client.views()
    try:
        return client.register(body)
    except UsageError:
        if body["command"] or not known or not known[0]["command"]:
            raise
        return client.register(body | {"command": known[0]["command"]})


def _of_build(fault: UsageError, directory: str) -> UsageError:
    mend = fault.mend.replace(f"ralphctl start {os.path.realpath(directory)} --", "ralphctl build --")
    return type(fault)(fault.what, why=fault.why, mend=mend)


def _tell_start(view: View) -> None:
    say(f"{view['name']}: {show.started_words(view) or show.state_words(view, time.time())}")
    for line in view.get("notes") or []:
        if not str(line).startswith("replaced the earlier definition"):  # each build does that
            with suppress(OSError):
                note(str(line))
    say("Ctrl-C stops it; from another terminal, here: ralphctl status, logs -f, pause, stop")


def _tell_end(end: End, view: View, daemon: PrivateDaemon, wishes: Wishes) -> int:
    """The last words, and the exit code."""
    if end is End.NOW or wishes.now:
        say(f"{view['name']}: ended at once, with all that it had started")
        code = wire.EXIT_INTERRUPTED
    elif end is End.ALONE and daemon.code != 0:
        say(f"{view['name']}: ended, since its ralphd has died (its log: {daemon.log})")
        code = wire.EXIT_FAILED
    elif end is End.ALONE:  # asked to end from elsewhere, it stopped the ralph first
        say(f"{view['name']}: stopped, with its ralphd")
        code = wire.EXIT_INTERRUPTED
    else:
        code = _tell_settled(view)
    if view["state"] in ("failed", "paused"):
        say("  next: ralphctl logs  (see why)")
    say(f"  next: ralphctl build  ({_DOES.get(view['state'], 'start it again')})")
    return code


def _tell_settled(view: View) -> int:
    now = time.time()
    # Nothing goes on by itself once this command has ended.
    resets = until(show.wait_of(view).get("until"), now)
    said = show.state_words({**view, "wait": None}, now)
    say(f"{view['name']}: {said}" + (f"; its limit resets {resets}" if resets else ""))
    if view["state"] == "done" and view.get("message"):
        return wire.EXIT_LIMIT
    return _EXITS[view["state"]]
